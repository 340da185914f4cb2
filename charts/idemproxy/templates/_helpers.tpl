{{- define "idemproxy.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough for what is appended to it: "-headless", and the pods' ordinals. */}}
{{- define "idemproxy.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "idemproxy.name" . -}}
{{- (contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name)) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "idemproxy.selectorLabels" -}}
app.kubernetes.io/name: {{ include "idemproxy.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "idemproxy.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "idemproxy.selectorLabels" . }}
{{- end -}}

{{- define "idemproxy.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "idemproxy.advertisedHost" -}}
{{- default (printf "%s.%s.svc.%s" (include "idemproxy.fullname" .) .Release.Namespace .Values.clusterDomain) .Values.advertisedHost -}}
{{- end -}}

{{/* The port of one broker, as the proxy counts: bootstrap port + 1 + broker id. Takes (list root brokerId). */}}
{{- define "idemproxy.brokerPort" -}}
{{- add (index . 0).Values.service.bootstrapPort 1 (index . 1) -}}
{{- end -}}

{{- define "idemproxy.redisSecretName" -}}
{{- default (printf "%s-redis" (include "idemproxy.fullname" .)) .Values.redis.existingSecret.name -}}
{{- end -}}

{{/* What values.schema.json cannot say. Called once, by the StatefulSet. */}}
{{- define "idemproxy.validate" -}}
{{- $redis := .Values.redis -}}
{{- $sources := 0 -}}
{{- range list $redis.url $redis.existingSecret.name $redis.embedded -}}{{- if . -}}{{- $sources = add1 $sources -}}{{- end -}}{{- end -}}
{{- if eq (int $sources) 0 -}}
{{- fail "redis: set redis.url or redis.existingSecret.name (or redis.embedded=true for a single pod)" -}}
{{- end -}}
{{- if gt (int $sources) 1 -}}
{{- fail "redis: set only one of redis.url, redis.existingSecret.name and redis.embedded" -}}
{{- end -}}
{{- if and $redis.embedded (gt (int .Values.replicas) 1) -}}
{{- fail "redis.embedded: a private Redis serves one pod only; with replicas > 1 set redis.url or redis.existingSecret.name" -}}
{{- end -}}
{{- if and $redis.embedded (not .Values.persistence.enabled) -}}
{{- fail "redis.embedded: without persistence.enabled the producers' state would be lost with the pod" -}}
{{- end -}}
{{- range .Values.brokerIds -}}
{{- if gt (int (include "idemproxy.brokerPort" (list $ .))) 65535 -}}
{{- fail (printf "brokerIds: broker %d would get a port above 65535; lower service.bootstrapPort" (int .)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "idemproxy.servicePorts" -}}
- name: bootstrap
  port: {{ .Values.service.bootstrapPort }}
  targetPort: bootstrap
{{- range .Values.brokerIds }}
- name: broker-{{ int . }}
  port: {{ include "idemproxy.brokerPort" (list $ .) }}
  targetPort: broker-{{ int . }}
{{- end }}
{{- end -}}
