{{- define "idemproxy.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough for what is appended to it: a listener's name, "broker-" and an id. What is cut off of a long name comes
back as a hash, so that two releases never share one. */}}
{{- define "idemproxy.fullname" -}}
{{- $name := include "idemproxy.name" . -}}
{{- $whole := .Values.fullnameOverride -}}
{{- if not $whole -}}
{{- $whole = contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- end -}}
{{- if gt (len $whole) 28 -}}
{{- printf "%s-%s" (trunc 21 $whole | trimSuffix "-") (sha256sum $whole | trunc 6) -}}
{{- else -}}
{{- $whole -}}
{{- end -}}
{{- end -}}

{{- define "idemproxy.instanceLabels" -}}
app.kubernetes.io/name: {{ include "idemproxy.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "idemproxy.selectorLabels" -}}
{{ include "idemproxy.instanceLabels" . }}
app.kubernetes.io/component: proxy
{{- end -}}

{{/* Of everything; what has a component of its own adds it. */}}
{{- define "idemproxy.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "idemproxy.instanceLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Of pods: without the chart's version, with which they would be replaced though nothing of theirs has changed. */}}
{{- define "idemproxy.podLabels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "idemproxy.instanceLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Of everything but the pods, which have podAnnotations. What an object has of its own takes precedence over what all have. Takes
(list root) or (list root annotations); begins a line of its own, since most objects have none. */}}
{{- define "idemproxy.annotations" -}}
{{- $root := index . 0 -}}
{{- $own := gt (len .) 1 | ternary (last .) dict | default dict -}}
{{- with merge (deepCopy $own) $root.Values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end -}}

{{/* Takes the image's values, a default for the tag, and the root. */}}
{{- define "idemproxy.imageName" -}}
{{- $image := index . 0 -}}
{{- $registry := dig "imageRegistry" "" ((index . 2).Values.global | default dict) -}}
{{- $name := empty $registry | ternary $image.repository (printf "%s/%s" $registry $image.repository) -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default (index . 1) $image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "idemproxy.image" -}}
{{- include "idemproxy.imageName" (list .Values.image .Chart.AppVersion .) -}}
{{- end -}}

{{- define "idemproxy.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "idemproxy.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* A listener's Service. Takes (list root listenerName). */}}
{{- define "idemproxy.listenerService" -}}
{{- printf "%s-%s" (include "idemproxy.fullname" (index . 0)) (index . 1) -}}
{{- end -}}

{{/* A Service's name for clients inside this Kubernetes cluster. Takes (list root serviceName). */}}
{{- define "idemproxy.inside" -}}
{{- $root := index . 0 -}}
{{- printf "%s.%s.svc.%s" (index . 1) $root.Release.Namespace $root.Values.clusterDomain -}}
{{- end -}}

{{/* HOST:PORT as the configuration has it: an IPv6 address in brackets. Takes (list host port). */}}
{{- define "idemproxy.place" -}}
{{- $host := index . 0 -}}
{{- contains ":" $host | ternary (printf "[%s]" $host) $host -}}:{{- int (index . 1) -}}
{{- end -}}
