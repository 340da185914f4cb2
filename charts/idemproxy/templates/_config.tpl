{{/* The configuration file, as `idemproxy run --config` reads it. Places of files are those of the StatefulSet's mounts. */}}

{{/* The listeners by name, with what a further one need not say. Those that are turned off are left out. */}}
{{- define "idemproxy.listeners" -}}
{{- $listeners := dict -}}
{{- range $name, $listener := .Values.listeners -}}
{{- if and $listener (get $listener "enabled" | toString | ne "false") -}}
{{- $issuer := dict "name" "" "kind" "Issuer" "group" "cert-manager.io" -}}
{{- $manager := dict "enabled" false "issuerRef" $issuer "dnsNames" list "duration" "2160h" "renewBefore" "720h" -}}
{{- $authorities := dict "name" "" "key" "ca.crt" -}}
{{- $revoked := dict "name" "" "key" "ca.crl" -}}
{{- $tls := dict "enabled" false "secretName" "" "clientAuth" "none" "clientCaSecret" $authorities "clientCrlSecret" $revoked "minimumVersion" "1.2" "certManager" $manager -}}
{{- $service := dict "type" "ClusterIP" "nodePortOffset" 0 -}}
{{- $gateway := dict "parentRefs" list "apiVersion" "" -}}
{{- $whole := dict "port" 0 "routing" "port" "authentication" "none" "advertised" "" "bootstrapName" "" "tls" $tls "service" $service "gateway" $gateway -}}
{{- $_ := set $listeners $name (mergeOverwrite $whole (deepCopy $listener)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $listeners -}}
{{- end -}}

{{/* What clients of a listener are told. Takes (list root name listener). */}}
{{- define "idemproxy.advertised" -}}
{{- $root := index . 0 -}}
{{- $listener := index . 2 -}}
{{- $service := include "idemproxy.listenerService" (list $root (index . 1)) -}}
{{- if $listener.advertised -}}
{{- $listener.advertised -}}
{{- else if eq $listener.routing "sni" -}}
{{- include "idemproxy.inside" (list $root (printf "%s-broker-{id}" $service)) -}}:{{- include "idemproxy.servicePort" $listener -}}
{{- else -}}
{{- include "idemproxy.inside" (list $root $service) -}}:{port}
{{- end -}}
{{- end -}}

{{/* The name by which clients of a listener come to any broker. Takes (list root name listener). */}}
{{- define "idemproxy.bootstrapName" -}}
{{- $root := index . 0 -}}
{{- $listener := index . 2 -}}
{{- $inside := include "idemproxy.inside" (list $root (include "idemproxy.listenerService" (list $root (index . 1)))) -}}
{{- if $listener.bootstrapName -}}
{{- $listener.bootstrapName -}}
{{- else if and $listener.advertised (eq $listener.routing "port") (not (contains "{id" $listener.advertised)) -}}
{{- regexReplaceAll ":[^:]*$" $listener.advertised "" -}}
{{- else -}}
{{- $inside -}}
{{- end -}}
{{- end -}}

{{/* The port of one broker. Takes (list root listener index); the index is the broker's place in upstream.brokerIds. */}}
{{- define "idemproxy.brokerPort" -}}
{{- $listener := index . 1 -}}
{{- eq $listener.routing "sni" | ternary (int $listener.port) (add $listener.port 1 (index . 2)) -}}
{{- end -}}

{{/* The bootstrap port of a listener's Service. */}}
{{- define "idemproxy.servicePort" -}}
{{- int (default .port (get .service "port")) -}}
{{- end -}}

{{/* A template of an address with {NAME}, {NAME+N} and {NAME-N} filled in. Takes (list text name value). */}}
{{- define "idemproxy.filledIn" -}}
{{- $text := index . 0 -}}
{{- $name := index . 1 -}}
{{- $value := int (index . 2) -}}
{{- range $found := regexFindAll (printf "\\{%s[+-][0-9]+\\}" $name) $text -1 -}}
{{- $number := $found | trimPrefix (printf "{%s" $name) | trimPrefix "+" | trimSuffix "}" -}}
{{- $text = $text | replace $found (add $value (int $number) | toString) -}}
{{- end -}}
{{- $text | replace (printf "{%s}" $name) (toString $value) -}}
{{- end -}}

{{/* The port at which clients find the bootstrap name: what they are told of brokers says it too, where it can. Takes
(list root name listener). */}}
{{- define "idemproxy.bootstrapPort" -}}
{{- $listener := index . 2 -}}
{{- $port := include "idemproxy.filledIn" (list (regexFind "[^:]*$" (include "idemproxy.advertised" .)) "port" $listener.port) -}}
{{- $says := or (eq $listener.routing "sni") (contains "{port" $listener.advertised) -}}
{{- and $says (regexMatch "^[0-9]+$" $port) | ternary $port (include "idemproxy.servicePort" $listener) -}}
{{- end -}}

{{/* The listeners, with commas, at which clients may arrive with the address of a node, of a load balancer or of a gateway. */}}
{{- define "idemproxy.withoutAddresses" -}}
{{- $names := list -}}
{{- range $name, $listener := (include "idemproxy.listeners" . | fromYaml) -}}
{{- $keeps := eq (get $listener.service "externalTrafficPolicy" | toString) "Local" -}}
{{- if or $listener.gateway.parentRefs (and (ne $listener.service.type "ClusterIP") (not $keeps)) -}}{{- $names = append $names $name -}}{{- end -}}
{{- end -}}
{{- join ", " $names -}}
{{- end -}}

{{/* TLS towards a server. Takes (list tls folder). */}}
{{- define "idemproxy.clientTls" -}}
{{- $tls := index . 0 -}}
{{- $folder := index . 1 -}}
{{- $section := dict "minimum_version" $tls.minimumVersion -}}
{{- if $tls.caSecret.name -}}{{- $_ := set $section "ca_file" (printf "%s/ca/ca.crt" $folder) -}}{{- end -}}
{{- if $tls.clientSecret -}}
{{- $_ := set $section "cert_file" (printf "%s/client/tls.crt" $folder) -}}
{{- $_ := set $section "key_file" (printf "%s/client/tls.key" $folder) -}}
{{- end -}}
{{- if $tls.serverName -}}{{- $_ := set $section "server_name" $tls.serverName -}}{{- end -}}
{{- toYaml $section -}}
{{- end -}}

{{/* The brokers' ids with commas. */}}
{{- define "idemproxy.idList" -}}
{{- $ids := list -}}{{- range .Values.upstream.brokerIds -}}{{- $ids = append $ids (int .) -}}{{- end -}}
{{- join "," $ids -}}
{{- end -}}

{{/* One listener's section. Takes (list root name listener). */}}
{{- define "idemproxy.listener" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $listener := index . 2 -}}
{{- $section := dict "name" $name "bind" (include "idemproxy.place" (list $root.Values.bindAddress $listener.port)) -}}
{{- $_ := set $section "routing" $listener.routing -}}
{{- $_ := set $section "authentication" $listener.authentication -}}
{{- $_ := set $section "advertised" (include "idemproxy.advertised" .) -}}
{{- $_ := set $section "broker_ids" (include "idemproxy.idList" $root) -}}
{{- if eq $listener.routing "sni" -}}{{- $_ := set $section "bootstrap_name" (include "idemproxy.bootstrapName" .) -}}{{- end -}}
{{- with $listener.tls -}}
{{- if .enabled -}}
{{- $folder := printf "/etc/idemproxy-secrets/tls/%s" $name -}}
{{- $tls := dict "cert_file" (printf "%s/server/tls.crt" $folder) "key_file" (printf "%s/server/tls.key" $folder) -}}
{{- $_ := set $tls "minimum_version" .minimumVersion -}}
{{- $_ := set $tls "client_auth" .clientAuth -}}
{{- if ne .clientAuth "none" -}}{{- $_ := set $tls "client_ca_file" (printf "%s/clients/ca.crt" $folder) -}}{{- end -}}
{{- if .clientCrlSecret.name -}}{{- $_ := set $tls "client_crl_file" (printf "%s/revoked/ca.crl" $folder) -}}{{- end -}}
{{- $_ := set $section "tls" $tls -}}
{{- end -}}
{{- end -}}
{{- toYaml $section -}}
{{- end -}}

{{- define "idemproxy.config" -}}
{{- $values := .Values -}}
{{- $upstream := dict "bootstrap" $values.upstream.bootstrap -}}
{{- if $values.upstream.tls.enabled -}}
{{- $_ := set $upstream "tls" (include "idemproxy.clientTls" (list $values.upstream.tls "/etc/idemproxy-secrets/upstream") | fromYaml) -}}
{{- end -}}
{{- with $values.upstream.sasl -}}
{{- if .mechanism -}}
{{- $sasl := dict "mechanism" .mechanism -}}
{{- if eq .mechanism "OAUTHBEARER" -}}
{{- $_ := set $sasl "token_file" "/etc/idemproxy-secrets/upstream/token/token" -}}
{{- else -}}
{{- $_ := set $sasl "username" .username -}}
{{- $_ := set $sasl "password_file" "/etc/idemproxy-secrets/upstream/password/password" -}}
{{- end -}}
{{- $_ := set $upstream "sasl" $sasl -}}
{{- end -}}
{{- end -}}
{{- if ne $values.upstream.idempotence "auto" -}}{{- $_ := set $upstream "idempotence" $values.upstream.idempotence -}}{{- end -}}
{{- if $values.upstream.allowDuplicatesInFlight -}}{{- $_ := set $upstream "allow_duplicates_in_flight" true -}}{{- end -}}
{{- if $values.upstream.allowUnauthenticatedClients -}}{{- $_ := set $upstream "allow_unauthenticated_clients" true -}}{{- end -}}
{{- $listeners := list -}}
{{- range $name, $listener := (include "idemproxy.listeners" . | fromYaml) -}}
{{- $listeners = append $listeners (include "idemproxy.listener" (list $ $name $listener) | fromYaml) -}}
{{- end -}}
{{- $config := dict "upstream" $upstream "listeners" $listeners "cluster_name" $values.clusterName -}}
{{- $_ := set $config "data_directory" "/opt/idemproxy/data" -}}
{{- if not $values.redis.embedded -}}
{{- $redis := dict -}}
{{- if $values.redis.bundled.enabled -}}
{{- $_ := set $redis "url" (printf "redis://%s-redis:6379/0" (include "idemproxy.fullname" .)) -}}
{{- end -}}
{{- with $values.redis.username -}}{{- $_ := set $redis "username" . -}}{{- end -}}
{{- if $values.redis.passwordSecret.name -}}{{- $_ := set $redis "password_file" "/etc/idemproxy-secrets/redis/password/password" -}}{{- end -}}
{{- if $values.redis.tls.enabled -}}
{{- $_ := set $redis "tls" (include "idemproxy.clientTls" (list $values.redis.tls "/etc/idemproxy-secrets/redis") | fromYaml) -}}
{{- end -}}
{{- if $redis -}}{{- $_ := set $config "redis" $redis -}}{{- end -}}
{{- end -}}
{{- $producers := dict "expiry_seconds" (int64 $values.producers.expirySeconds) -}}
{{- $_ := set $producers "append_reservations" $values.producers.appendReservations -}}
{{- $_ := set $producers "client_retry_seconds_max" (int64 $values.producers.clientRetrySecondsMax) -}}
{{- with $values.producers.names -}}{{- $_ := set $producers "names" . -}}{{- end -}}
{{- with $values.producers.droppedHeaders -}}{{- $_ := set $producers "dropped_headers" . -}}{{- end -}}
{{- with $values.producers.upstreamIdempotence -}}{{- $_ := set $producers "upstream_idempotence" . -}}{{- end -}}
{{- $_ := set $config "producers" $producers -}}
{{- $topics := dict "default_partitions" (int64 $values.topics.defaultPartitions) -}}
{{- $_ := set $topics "default_replication_factor" (int64 $values.topics.defaultReplicationFactor) -}}
{{- with $values.topics.conditional -}}{{- $_ := set $topics "conditional" . -}}{{- end -}}
{{- with $values.topics.engine -}}{{- $_ := set $topics "engine" . -}}{{- end -}}
{{- $_ := set $config "topics" $topics -}}
{{- $old := $values.oldClients -}}
{{- $_ := set $config "old_clients" (dict "translate" $old.translate "fetch" $old.fetch "timestamps" $old.timestamps) -}}
{{- with $values.hiddenRanges.topic -}}{{- $_ := set $config "hidden_ranges" (dict "topic" .) -}}{{- end -}}
{{- $limits := dict -}}
{{- /* Where all clients have one address, a limit for one would be a limit for all of them. */ -}}
{{- if include "idemproxy.withoutAddresses" . -}}
{{- $limits = dict "connections_per_ip_max" 0 "unauthenticated_per_ip_max" 0 -}}
{{- end -}}
{{- range $name, $limit := $values.limits -}}
{{- if not (kindIs "invalid" $limit) -}}{{- $_ := set $limits (snakecase $name) (int64 $limit) -}}{{- end -}}
{{- end -}}
{{- $_ := set $config "limits" $limits -}}
{{- $_ := set $config "admin" (dict "bind" (include "idemproxy.place" (list $values.bindAddress $values.admin.port))) -}}
{{- $log := dict "level" $values.log.level "format" $values.log.format -}}
{{- with $values.log -}}
{{- if not (kindIs "invalid" .linesPerMinuteMax) -}}{{- $_ := set $log "lines_per_minute_max" (int64 .linesPerMinuteMax) -}}{{- end -}}
{{- end -}}
{{- $_ := set $config "log" $log -}}
{{- with $values.journal -}}
{{- if kindIs "string" . -}}
{{- $_ := set $config "journal" . -}}
{{- else -}}
{{- $journal := dict "path" .path -}}
{{- range $name := list "rotateBytes" "keepFiles" -}}
{{- if hasKey $values.journal $name -}}{{- $_ := set $journal (snakecase $name) (int64 (index $values.journal $name)) -}}{{- end -}}
{{- end -}}
{{- if hasKey . "fsyncSeconds" -}}{{- $_ := set $journal "fsync_seconds" .fsyncSeconds -}}{{- end -}}
{{- if hasKey . "required" -}}{{- $_ := set $journal "required" .required -}}{{- end -}}
{{- $_ := set $config "journal" $journal -}}
{{- end -}}
{{- end -}}
{{- toYaml (mergeOverwrite $config (deepCopy $values.extraConfig)) -}}
{{- end -}}
