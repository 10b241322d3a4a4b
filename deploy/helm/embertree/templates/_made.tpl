{{/*
Secrets that the chart makes at the first install and keeps from then on: `lookup` finds them again.
Where nothing can be looked up (`helm template`, many GitOps controllers) each rendering would make
others: retried pushes would count twice, tokens and keys would change under running pods. So there
they must be given, by value or as secrets that exist, and rendering fails until they are.
*/}}

{{/* "yes" where `lookup` has a cluster to ask. The first of the two needs no right outside of the namespace;
     the second is for `--create-namespace`, where the namespace comes later than this. */}}
{{- define "embertree.remembers" -}}
{{- if or (lookup "v1" "ServiceAccount" .Release.Namespace "default") (lookup "v1" "Namespace" "" "kube-system") -}}yes{{- end -}}
{{- end -}}

{{/* (dict "ctx" . "secret" name "key" key): what a secret of the release holds today, in base64, or "". */}}
{{- define "embertree.kept" -}}
{{- $there := lookup "v1" "Secret" .ctx.Release.Namespace .secret -}}
{{- dig "data" .key "" (default dict $there) -}}
{{- end -}}

{{/* Certificates of the chart's etcd as {"server": {...}, "client": {...}}, files in base64. The key of their
     authority is kept nowhere: both are made at once, and again when one of the two secrets is deleted. */}}
{{- define "embertree.etcdCertificates" -}}
{{- $name := include "embertree.etcdName" . -}}
{{- $out := dict -}}
{{- $whole := true -}}
{{- range $end := list "server" "client" -}}
{{- $files := dict -}}
{{- range $file := list "ca.crt" "tls.crt" "tls.key" -}}
{{- $kept := include "embertree.kept" (dict "ctx" $ "secret" (printf "%s-%s" $name $end) "key" $file) -}}
{{- $_ := set $files $file $kept -}}
{{- if not $kept -}}{{- $whole = false -}}{{- end -}}
{{- end -}}
{{- $_ := set $out $end $files -}}
{{- end -}}
{{- if not $whole -}}
{{- $domain := printf "%s-headless.%s.svc.%s" $name .Release.Namespace .Values.clusterDomain -}}
{{- $ca := genCA (printf "%s-ca" $name | trunc 64) 3650 -}}
{{- $server := genSignedCert "etcd" (list "127.0.0.1") (list $domain (printf "*.%s" $domain) "localhost") 3650 $ca -}}
{{- $client := genSignedCert "embertree" (list) (list) 3650 $ca -}}
{{- range $end, $made := dict "server" $server "client" $client -}}
{{- $_ := set $out $end (dict "ca.crt" ($ca.Cert | b64enc) "tls.crt" ($made.Cert | b64enc) "tls.key" ($made.Key | b64enc)) -}}
{{- end -}}
{{- end -}}
{{- $out | toJson -}}
{{- end -}}

{{/* {name: {key: base64}} of all secrets that the chart itself keeps. Computed once for all templates. */}}
{{- define "embertree.madeSecrets" -}}
{{- if not (hasKey .Values "madeSecrets") -}}
{{- $_ := set .Values "madeSecrets" (include "embertree.madeSecretsNow" .) -}}
{{- end -}}
{{- .Values.madeSecrets -}}
{{- end -}}

{{- define "embertree.madeSecretsNow" -}}
{{- $full := include "embertree.fullname" . -}}
{{- $s := .Values.secrets -}}
{{- $distributed := eq .Values.mode "distributed" -}}
{{- $out := dict -}}
{{- $missing := list -}}
{{- $rows := list
  (dict "secret" (printf "%s-write-id" $full) "key" "write-id" "given" $s.writeId "existing" $s.writeIdExisting "value" "secrets.writeIdExisting" "make" (randAlphaNum 48))
  (dict "secret" (printf "%s-admin" $full) "key" "admin-token" "given" $s.adminToken "existing" $s.adminTokenExisting "value" "secrets.adminTokenExisting" "make" (randAlphaNum 48)) -}}
{{- if $distributed -}}
{{- $rows = append $rows
  (dict "secret" (printf "%s-cluster-keys" $full) "key" "cluster-keys" "given" $s.clusterKeys "existing" $s.clusterKeysExisting "value" "secrets.clusterKeysExisting" "make" (printf "k1: %s\n" (randBytes 32))) -}}
{{- end -}}
{{- range $row := $rows -}}
{{- if not $row.existing -}}
{{- $kept := include "embertree.kept" (dict "ctx" $ "secret" $row.secret "key" $row.key) -}}
{{- if $row.given -}}
{{- $_ := set $out $row.secret (dict $row.key ($row.given | b64enc)) -}}
{{- else if $kept -}}
{{- $_ := set $out $row.secret (dict $row.key $kept) -}}
{{- else -}}
{{- $missing = append $missing $row.value -}}
{{- $_ := set $out $row.secret (dict $row.key ($row.make | b64enc)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if include "embertree.securesEtcd" . -}}
{{- if .Values.etcd.tls.existing -}}
{{- if not .Values.etcd.tls.clientExisting -}}{{- fail "etcd.tls.existing is set: set etcd.tls.clientExisting, too (README.md, Which pods may talk to each other)" -}}{{- end -}}
{{- else -}}
{{- $name := include "embertree.etcdName" . -}}
{{- $certificates := include "embertree.etcdCertificates" . | fromJson -}}
{{- if not (include "embertree.kept" (dict "ctx" . "secret" (printf "%s-client" $name) "key" "tls.crt")) -}}
{{- $missing = append $missing "etcd.tls.existing with etcd.tls.clientExisting" -}}
{{- end -}}
{{- range $end, $files := $certificates -}}{{- $_ := set $out (printf "%s-%s" $name $end) $files -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $missing (not (include "embertree.remembers" .)) -}}
{{- fail (printf "this chart is rendered without a cluster to look its secrets up in (helm template, a GitOps controller), so each rendering would make other ones: retried pushes would be counted twice, and tokens and keys would change. Make the secrets once and name them: %s (README.md, Secrets)" (join ", " $missing)) -}}
{{- end -}}
{{- $out | toJson -}}
{{- end -}}
