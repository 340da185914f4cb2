{{/* What values.schema.json cannot say. Called once, by the StatefulSet; every refusal begins with the value's name. */}}
{{- define "idemproxy.validate" -}}
{{- if not .Values.upstream.bootstrap -}}
{{- fail "upstream.bootstrap: name at least one broker of the cluster, host:port" -}}
{{- end -}}
{{- include "idemproxy.validateRedis" . -}}
{{- include "idemproxy.validateListeners" . -}}
{{- include "idemproxy.validatePrincipal" . -}}
{{- include "idemproxy.validateTime" . -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- fail "autoscaling.minReplicas: more than autoscaling.maxReplicas" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (not (dig "requests" "cpu" "" .Values.resources)) -}}
{{- fail "autoscaling.enabled: resources.requests.cpu is what the CPU is measured by; set it" -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.adminFrom) -}}
{{- fail "networkPolicy.adminFrom: with serviceMonitor.enabled name the pods of Prometheus here, or nothing could be scraped" -}}
{{- end -}}
{{- if and .Values.prometheusRule.enabled (not .Values.serviceMonitor.enabled) (not .Values.prometheusRule.selector) -}}
{{- fail "prometheusRule.selector: without serviceMonitor.enabled say which labels this release's series have, or no alert ever comes" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled .Values.networkPolicy.egress.enabled (not .Values.networkPolicy.egress.rules) -}}
{{- fail "networkPolicy.egress.rules: with egress.enabled name the brokers here (and Redis), or no pod could reach them" -}}
{{- end -}}
{{- range $label, $value := (printf "%s\napp.kubernetes.io/component: proxy" (include "idemproxy.labels" .) | fromYaml) -}}
{{- if hasKey $.Values.podLabels $label -}}
{{- fail (printf "podLabels: %s is a label of the chart's own; Services and policies choose pods by such labels" $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "idemproxy.validateRedis" -}}
{{- $redis := .Values.redis -}}
{{- $sources := 0 -}}
{{- range list $redis.url $redis.existingSecret.name $redis.embedded $redis.bundled.enabled -}}{{- if . -}}{{- $sources = add1 $sources -}}{{- end -}}{{- end -}}
{{- if and (eq (int $sources) 0) (ne .Values.upstream.idempotence "native") -}}
{{- fail "redis: set redis.url or redis.existingSecret.name (or redis.bundled.enabled=true, or redis.embedded=true for a single pod)" -}}
{{- end -}}
{{- if gt (int $sources) 1 -}}
{{- fail "redis: set only one of redis.url, redis.existingSecret.name, redis.bundled.enabled and redis.embedded" -}}
{{- end -}}
{{- if $redis.embedded -}}
{{- if or (gt (int .Values.replicas) 1) .Values.autoscaling.enabled -}}
{{- fail "redis.embedded: a private Redis serves one pod only; for more set redis.url or redis.existingSecret.name" -}}
{{- end -}}
{{- if not .Values.persistence.enabled -}}
{{- fail "redis.embedded: without persistence.enabled the producers' state would be lost with the pod" -}}
{{- end -}}
{{- if or (eq .Values.persistence.whenDeleted "Delete") (eq .Values.persistence.whenScaled "Delete") -}}
{{- fail "persistence.whenDeleted, persistence.whenScaled: with redis.embedded the producers' state would go with the volume" -}}
{{- end -}}
{{- if or $redis.passwordSecret.name $redis.tls.enabled -}}
{{- fail "redis.embedded: the private Redis has no redis.passwordSecret and no redis.tls" -}}
{{- end -}}
{{- end -}}
{{- if $redis.bundled.enabled -}}
{{- if not $redis.passwordSecret.name -}}
{{- fail "redis.passwordSecret.name: redis.bundled needs a secret with its password" -}}
{{- end -}}
{{- if $redis.tls.enabled -}}
{{- fail "redis.tls.enabled: redis.bundled speaks no TLS" -}}
{{- end -}}
{{- end -}}
{{- if and $redis.username (or $redis.bundled.enabled $redis.embedded (not $redis.passwordSecret.name)) -}}
{{- fail "redis.username: it goes with redis.url or redis.existingSecret, and its password into redis.passwordSecret" -}}
{{- end -}}
{{- if and (contains "@" $redis.url) $redis.passwordSecret.name -}}
{{- fail "redis.passwordSecret.name: redis.url has a password already" -}}
{{- end -}}
{{- end -}}

{{/* Who acts at the brokers, and for whom. */}}
{{- define "idemproxy.validatePrincipal" -}}
{{- with .Values.upstream.sasl -}}
{{- if and (eq .mechanism "OAUTHBEARER") (not .tokenSecret.name) -}}
{{- fail "upstream.sasl.tokenSecret.name: OAUTHBEARER needs a secret with the token" -}}
{{- end -}}
{{- if and .mechanism (ne .mechanism "OAUTHBEARER") (not (and .username .passwordSecret.name)) -}}
{{- fail (printf "upstream.sasl: %s needs username and passwordSecret.name" .mechanism) -}}
{{- end -}}
{{- end -}}
{{- range $name, $listener := (include "idemproxy.listeners" . | fromYaml) -}}
{{- if and (eq $listener.authentication "pass_through") (not $.Values.upstream.sasl.mechanism) -}}
{{- fail (printf "listeners.%s.authentication: pass_through needs upstream.sasl, for what the proxy itself has to ask the brokers" $name) -}}
{{- end -}}
{{- if and $listener.tls.clientCrlSecret.name (eq $listener.tls.clientAuth "none") -}}
{{- fail (printf "listeners.%s.tls.clientCrlSecret: without clientAuth no client shows a certificate" $name) -}}
{{- end -}}
{{- end -}}
{{- $tls := .Values.upstream.tls -}}
{{- if and (or .Values.upstream.sasl.mechanism (and $tls.enabled $tls.clientSecret)) (not .Values.upstream.allowUnauthenticatedClients) -}}
{{- range $name, $listener := (include "idemproxy.listeners" . | fromYaml) -}}
{{- $asks := or (eq $listener.authentication "pass_through") (and $listener.tls.enabled (eq $listener.tls.clientAuth "required")) -}}
{{- if not $asks -}}
{{- fail (printf "listeners.%s.tls.clientAuth: its clients would act with the rights of the proxy at the brokers; make it required, or authentication pass_through, or say upstream.allowUnauthenticatedClients=true" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "idemproxy.validateListeners" -}}
{{- $count := len .Values.upstream.brokerIds -}}
{{- $ports := dict (toString .Values.admin.port) "admin.port" -}}
{{- $listeners := 0 -}}
{{- range $name, $listener := (include "idemproxy.listeners" . | fromYaml) -}}
{{- $listeners = add1 $listeners -}}
{{- $path := printf "listeners.%s" $name -}}
{{- if not $listener.port -}}
{{- fail (printf "%s.port: set it" $path) -}}
{{- end -}}
{{- $last := int (eq $listener.routing "sni" | ternary $listener.port (add $listener.port $count)) -}}
{{- if gt $last 65535 -}}
{{- fail (printf "%s.port: %d brokers would get ports up to %d, above 65535" $path $count $last) -}}
{{- end -}}
{{- range $port := untilStep (int $listener.port) (int (add1 $last)) 1 -}}
{{- if hasKey $ports (toString $port) -}}
{{- fail (printf "%s.port: port %d is that of %s already" $path $port (get $ports (toString $port))) -}}
{{- end -}}
{{- $_ := set $ports (toString $port) $path -}}
{{- end -}}
{{- with $listener.tls -}}
{{- if .enabled -}}
{{- if and .certManager.enabled (not .certManager.issuerRef.name) -}}
{{- fail (printf "%s.tls.certManager.issuerRef.name: set the issuer" $path) -}}
{{- end -}}
{{- if and .certManager.enabled .secretName -}}
{{- fail (printf "%s.tls.secretName: the chart names the secret of certManager; leave it empty" $path) -}}
{{- end -}}
{{- if not (or .certManager.enabled .secretName) -}}
{{- fail (printf "%s.tls.secretName: set a secret with a certificate, or certManager.enabled" $path) -}}
{{- end -}}
{{- if and (ne .clientAuth "none") (not .clientCaSecret.name) -}}
{{- fail (printf "%s.tls.clientCaSecret.name: clientAuth needs the authorities of the clients" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq $listener.routing "sni" -}}
{{- if not $listener.tls.enabled -}}
{{- fail (printf "%s.routing: sni needs tls.enabled" $path) -}}
{{- end -}}
{{- if and $listener.advertised (not (contains "{id" (regexReplaceAll ":[^:]*$" $listener.advertised ""))) -}}
{{- fail (printf "%s.advertised: sni needs {id} in the host, a name per broker" $path) -}}
{{- end -}}
{{- if and $listener.advertised (not $listener.bootstrapName) -}}
{{- fail (printf "%s.bootstrapName: sni with names of your own needs one for bootstrap" $path) -}}
{{- end -}}
{{- end -}}
{{- if and $listener.gateway.parentRefs (not (and (eq $listener.routing "sni") $listener.advertised)) -}}
{{- fail (printf "%s.gateway.parentRefs: a TLSRoute needs routing sni, and in advertised and bootstrapName the names by which clients find the gateway" $path) -}}
{{- end -}}
{{- if and (get $listener.service "port") (eq $listener.routing "port") -}}
{{- fail (printf "%s.service.port: with routing by port a Service has the listener's own ports; this is for sni" $path) -}}
{{- end -}}
{{- if eq $listener.service.type "NodePort" -}}
{{- $first := int (add $listener.port $listener.service.nodePortOffset) -}}
{{- if or (lt $first 30000) (gt (int (add $last $listener.service.nodePortOffset)) 32767) -}}
{{- fail (printf "%s.service.nodePortOffset: the nodes' ports would be %d to %d; they have to be in 30000 to 32767" $path $first (int (add $last $listener.service.nodePortOffset))) -}}
{{- end -}}
{{- if not $listener.advertised -}}
{{- fail (printf "%s.advertised: with NodePort say what clients connect to, such as nodes.example.com:{port+%d}" $path (int $listener.service.nodePortOffset)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq $listeners 0 -}}
{{- fail "listeners: at least one way in" -}}
{{- end -}}
{{- end -}}

{{/* Beside the drain, as the merged configuration has it: up to 5 s to give the lease back, 5 for the last metrics, 5 for
the last spans, 10 for a slow node; the private Redis may take 20 to end. */}}
{{- define "idemproxy.neededSeconds" -}}
{{- $drain := dig "limits" "drain_seconds" .Values.limits.drainSeconds (include "idemproxy.config" . | fromYaml) -}}
{{- add (int .Values.preStopSeconds) (ceil (float64 $drain) | int) (.Values.redis.embedded | ternary 45 25) -}}
{{- end -}}

{{- define "idemproxy.graceSeconds" -}}
{{- $needed := int (include "idemproxy.neededSeconds" .) -}}
{{- kindIs "invalid" .Values.terminationGracePeriodSeconds | ternary $needed (int .Values.terminationGracePeriodSeconds) -}}
{{- end -}}

{{- define "idemproxy.validateTime" -}}
{{- range .Values.extraEnv -}}
{{- if eq (toString .name) "IDEMPROXY_LIMITS__DRAIN_SECONDS" -}}
{{- fail (printf "extraEnv: %s takes precedence over limits.drainSeconds, from which terminationGracePeriodSeconds is computed; set that one instead" .name) -}}
{{- end -}}
{{- end -}}
{{- $needed := int (include "idemproxy.neededSeconds" .) -}}
{{- if lt (int (include "idemproxy.graceSeconds" .)) $needed -}}
{{- fail (printf "terminationGracePeriodSeconds: %d are needed (preStopSeconds + limits.drainSeconds + %d)" $needed (.Values.redis.embedded | ternary 45 25)) -}}
{{- end -}}
{{- end -}}
