{{/* Mounts and volumes of secrets, each under the path that the configuration has. Called for the StatefulSet only. */}}

{{/* Secret files, as a list: where, which secret, and file names by key. Rendered as YAML {files: [...]}. */}}
{{- define "idemproxy.secretFiles" -}}
{{- $files := list -}}
{{- range $name, $listener := (include "idemproxy.listeners" . | fromYaml) -}}
{{- if $listener.tls.enabled -}}
{{- $folder := printf "/etc/idemproxy-secrets/tls/%s" $name -}}
{{- $secret := default (printf "%s-tls" (include "idemproxy.listenerService" (list $ $name))) $listener.tls.secretName -}}
{{- $files = append $files (dict "name" (printf "tls-%s" $name) "path" (printf "%s/server" $folder) "secret" $secret "items" (dict "tls.crt" "tls.crt" "tls.key" "tls.key")) -}}
{{- with $listener.tls.clientCrlSecret -}}
{{- if .name -}}
{{- $files = append $files (dict "name" (printf "tls-%s-revoked" $name) "path" (printf "%s/revoked" $folder) "secret" .name "items" (dict .key "ca.crl")) -}}
{{- end -}}
{{- end -}}
{{- if ne $listener.tls.clientAuth "none" -}}
{{- with $listener.tls.clientCaSecret -}}
{{- $files = append $files (dict "name" (printf "tls-%s-clients" $name) "path" (printf "%s/clients" $folder) "secret" .name "items" (dict .key "ca.crt")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $side, $tls := dict "upstream" .Values.upstream.tls "redis" .Values.redis.tls -}}
{{- if $tls.enabled -}}
{{- with $tls.caSecret -}}
{{- if .name -}}
{{- $files = append $files (dict "name" (printf "%s-ca" $side) "path" (printf "/etc/idemproxy-secrets/%s/ca" $side) "secret" .name "items" (dict .key "ca.crt")) -}}
{{- end -}}
{{- end -}}
{{- if $tls.clientSecret -}}
{{- $files = append $files (dict "name" (printf "%s-client" $side) "path" (printf "/etc/idemproxy-secrets/%s/client" $side) "secret" $tls.clientSecret "items" (dict "tls.crt" "tls.crt" "tls.key" "tls.key")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.upstream.sasl -}}
{{- if eq .mechanism "OAUTHBEARER" -}}
{{- $files = append $files (dict "name" "upstream-token" "path" "/etc/idemproxy-secrets/upstream/token" "secret" .tokenSecret.name "items" (dict .tokenSecret.key "token")) -}}
{{- else if .mechanism -}}
{{- $files = append $files (dict "name" "upstream-password" "path" "/etc/idemproxy-secrets/upstream/password" "secret" .passwordSecret.name "items" (dict .passwordSecret.key "password")) -}}
{{- end -}}
{{- end -}}
{{- with .Values.redis.passwordSecret -}}
{{- if .name -}}
{{- $files = append $files (dict "name" "redis-password" "path" "/etc/idemproxy-secrets/redis/password" "secret" .name "items" (dict .key "password")) -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "files" $files) -}}
{{- end -}}

{{/* The variables that hold a secret or name the pod. */}}
{{- define "idemproxy.environment" -}}
{{- if or .Values.redis.url .Values.redis.existingSecret.name }}
- name: IDEMPROXY_REDIS__URL
  valueFrom:
    secretKeyRef:
      name: {{ default (printf "%s-redis-url" (include "idemproxy.fullname" .)) .Values.redis.existingSecret.name }}
      key: {{ if .Values.redis.existingSecret.name }}{{ .Values.redis.existingSecret.key }}{{ else }}url{{ end }}
{{- end }}
{{- with .Values.tracing }}
{{- if .endpoint }}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: OTEL_TRACES_EXPORTER
  value: otlp
- name: OTEL_METRICS_EXPORTER
  value: {{ .metrics | ternary "otlp" "none" }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .endpoint | quote }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: {{ .protocol | quote }}
- name: OTEL_TRACES_SAMPLER
  value: parentbased_traceidratio
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ .sampleRatio | quote }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.namespace.name={{ $.Release.Namespace }},k8s.pod.name=$(POD_NAME)
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* As far as possible on different hosts and in different zones. */}}
{{- define "idemproxy.spread" -}}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "idemproxy.selectorLabels" $ | nindent 6 }}
{{- end }}
{{- end -}}
