{{/* What follows from the values, as options by section. */}}
{{- define "embertree.computed" -}}
{{- $v := .ctx.Values -}}
{{- $role := .role -}}
{{- $port := int $v.ports.http -}}
{{- $http := dict "listen" (printf "0.0.0.0:%d" $port) "insecure_open" true "admin_token_file" "/etc/embertree/admin/admin-token" -}}
{{- if $v.tls.secretName -}}
{{- $_ := set $http "tls_cert" "/etc/embertree/tls/tls.crt" -}}
{{- $_ := set $http "tls_key" "/etc/embertree/tls/tls.key" -}}
{{- if $v.tls.only -}}{{- $_ := set $http "tls_only" true -}}{{- end -}}
{{- if $v.tls.clientCA -}}{{- $_ := set $http "tls_client_ca" "/etc/embertree/tls/ca.crt" -}}{{- end -}}
{{- end -}}
{{- $out := dict "http" $http "data" (dict "dir" "/data") -}}
{{- if ne $role "monolithic" -}}
{{- $ingesters := include "embertree.ingesters" .ctx | fromJsonArray -}}
{{- $cluster := dict "ingesters" $ingesters "shards" (len $ingesters) -}}
{{- if include "embertree.moves" .ctx -}}{{- $cluster = include "embertree.etcdOptions" .ctx | fromJson -}}{{- end -}}
{{- if include "embertree.hasKeys" . -}}
{{- $_ := set $cluster "key_file" "/etc/embertree/keys/cluster-keys" -}}
{{- if include "embertree.keysAreNew" .ctx -}}{{- $_ := set $cluster "key_optional" true -}}{{- end -}}
{{- end -}}
{{/* Without a key a role refuses to listen beyond its pod; secrets.clusterKeys ends that. */}}
{{- if or (not (include "embertree.hasKeys" .)) (include "embertree.keysAreNew" .ctx) -}}
{{- $_ := set $cluster "insecure_open" true -}}
{{- end -}}
{{- $_ := set $out "cluster" $cluster -}}
{{- end -}}
{{- if eq $role "ingester" -}}
{{- $_ := set $out "ingester" (dict "listen" (printf "tcp://0.0.0.0:%d" (int $v.ports.rpc))) -}}
{{- end -}}
{{- if has $role (list "monolithic" "distributor") -}}
{{- $d := dict -}}
{{- if not (kindIs "invalid" $v.files.overrides) -}}{{- $_ := set $d "overrides_file" "/etc/embertree/files/overrides.yaml" -}}{{- end -}}
{{- if not (kindIs "invalid" $v.files.forward) -}}{{- $_ := set $d "forward_config_file" "/etc/embertree/files/forward.yaml" -}}{{- end -}}
{{- if not (kindIs "invalid" $v.files.scrape) -}}{{- $_ := set $d "scrape_config_file" "/etc/embertree/files/scrape.yaml" -}}{{- end -}}
{{- if or $v.secrets.tokensExisting (not (kindIs "invalid" $v.secrets.tokens)) -}}{{- $_ := set $d "tokens_file" "/etc/embertree/tokens/tokens.yaml" -}}{{- end -}}
{{- if and (eq $role "distributor") $v.distributor.persistence.enabled -}}{{- $_ := set $d "scrape_of" (int $v.distributor.replicas) -}}{{- end -}}
{{- $_ := set $out "distributor" $d -}}
{{- end -}}
{{- if and (has $role (list "monolithic" "ingester")) (not (kindIs "invalid" $v.files.retention)) -}}
{{- $_ := set $out "retention" (dict "overrides" "/etc/embertree/files/retention") -}}
{{- end -}}
{{- if $v.secrets.identityExisting -}}
{{- $_ := set $out "identity" (dict "file" "/etc/embertree/identity/identity.yaml") -}}
{{- end -}}
{{- if include "embertree.hasCold" . -}}
{{- $_ := set $out "cold" (dict "s3_credentials_file" "/etc/embertree/cold/credentials") -}}
{{- end -}}
{{- $out | toJson -}}
{{- end -}}

{{/* (dict "ctx" . "role" r): options in effect: computed, then `config`, then `<role>.config`, of the
     sections that the role has. */}}
{{- define "embertree.options" -}}
{{- $known := (.ctx.Files.Get "files/sections.json" | fromJson) -}}
{{- $sections := index $known .role -}}
{{- $out := include "embertree.computed" . | fromJson -}}
{{- range $layer := list .ctx.Values.config (index .ctx.Values .role).config -}}
{{- range $section, $options := $layer -}}
{{- if and (has $section $sections) $options -}}
{{- $_ := set $out $section (mergeOverwrite (dict) (default dict (index $out $section)) $options) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $section, $_ := (index .ctx.Values .role).config -}}
{{- if not (has $section $sections) -}}
{{- fail (printf "%s.config: %s has no section %q" $.role $.role $section) -}}
{{- end -}}
{{- end -}}
{{- if and (has .role (list "monolithic" "ingester")) (hasPrefix "s3:" (dig "cold" "url" "" $out)) (not (dig "cold" "s3_credentials_file" "" $out)) -}}
{{- fail "config.cold.url is a bucket, and there are no credentials for it, so no pod would start: set secrets.coldCredentialsExisting to a secret with the key `credentials` (access key and secret key, a line each)" -}}
{{- end -}}
{{- if ne .role "monolithic" -}}
{{- $shards := int (index $out "cluster" "shards") -}}
{{- if include "embertree.moves" .ctx -}}
{{- $n := len (include "embertree.ingesters" .ctx | fromJsonArray) -}}
{{- $copies := int (index $out "cluster" "replicas") -}}
{{- if gt $copies $n -}}
{{- fail (printf "cluster.replicas is %d for %d ingesters: want at most one copy on each" $copies $n) -}}
{{- end -}}
{{- if gt (mul $shards $copies) (mul 32 $n) -}}
{{- fail (printf "cluster.shards is %d: %d copies of each are more than 32 for each of %d ingesters" $shards $copies $n) -}}
{{- end -}}
{{- if not .ctx.Values.ingester.persistence.enabled -}}
{{- fail "ingester.persistence.enabled: an ingester that forgets what it has acked breaks what copies promise" -}}
{{- end -}}
{{- else if ne (default "none" (index $out "cluster" "coordination")) "none" -}}
{{- fail "config.cluster.coordination: set cluster.coordination instead" -}}
{{- else -}}
{{- $n := len (index $out "cluster" "ingesters") -}}
{{- if or (lt $shards $n) (gt $shards (mul 8 $n)) -}}
{{- fail (printf "config.cluster.shards is %d for %d ingesters: want %d to %d" $shards $n $n (mul 8 $n)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $out | toJson -}}
{{- end -}}

{{/* The file: sections of scalars and lists. Numbers with all their digits, never as 1e+06. */}}
{{- define "embertree.configFile" -}}
{{- range $section, $options := include "embertree.options" . | fromJson }}
{{- if $options }}
{{ $section }}:
{{- range $key, $value := $options }}
  {{ $key }}: {{ include "embertree.scalar" $value }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "embertree.scalar" -}}
{{- if kindIs "slice" . -}}
[{{ range $i, $v := . }}{{ if $i }}, {{ end }}{{ include "embertree.scalar" $v }}{{ end }}]
{{- else if kindIs "float64" . -}}
{{- if eq (float64 (int64 .)) . -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- else if kindIs "string" . -}}
{{ . | quote }}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}

{{/* Whole seconds of a duration as options have it, rounded up. */}}
{{- define "embertree.seconds" -}}
{{- $text := lower (trim (toString .)) -}}
{{- $number := regexFind "^[0-9.]+" $text -}}
{{- $unit := trim (trimPrefix $number $text) -}}
{{- $factors := dict "ms" 0.001 "s" 1.0 "m" 60.0 "min" 60.0 "h" 3600.0 "d" 86400.0 -}}
{{- if not (and $number (hasKey $factors $unit)) -}}
{{- fail (printf "%q is no duration such as 30s" $text) -}}
{{- end -}}
{{- mulf (float64 $number) (index $factors $unit) | ceil | int -}}
{{- end -}}

{{/* Text as it is, anything else as YAML. */}}
{{- define "embertree.text" -}}
{{- if kindIs "string" . -}}{{ . }}{{- else -}}{{ toYaml . }}{{- end -}}
{{- end -}}
