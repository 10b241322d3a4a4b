{{/* The settings of etcd for the roles, as options of the section `cluster`. */}}
{{- define "embertree.etcdOptions" -}}
{{- $e := .Values.cluster.etcd -}}
{{- $prefix := default (printf "/embertree/%s/%s" .Release.Namespace (include "embertree.fullname" .)) $e.prefix -}}
{{- $urls := $e.endpoints -}}
{{- if not $urls -}}
{{- $urls = list -}}
{{- range $i := until (int .Values.etcd.replicas) -}}{{- $urls = append $urls (include "embertree.etcdUrl" (dict "ctx" $ "pod" (printf "%s-%d" (include "embertree.etcdName" $) $i) "port" 2379)) -}}{{- end -}}
{{- end -}}
{{- $out := dict "coordination" "etcd" "etcd" $urls "etcd_prefix" $prefix "replicas" (int .Values.cluster.replicas) "shards" (int .Values.cluster.shards) -}}
{{- if include "embertree.etcdTlsSecret" . -}}
{{- $_ := set $out "etcd_ca" "/etc/embertree/etcd-tls/ca.crt" -}}
{{- if or $e.clientCert (include "embertree.securesEtcd" .) -}}
{{- $_ := set $out "etcd_cert" "/etc/embertree/etcd-tls/tls.crt" -}}
{{- $_ := set $out "etcd_key" "/etc/embertree/etcd-tls/tls.key" -}}
{{- end -}}
{{- end -}}
{{- if $e.user -}}{{- $_ := set $out "etcd_user" $e.user -}}{{- end -}}
{{- if $e.passwordSecret -}}{{- $_ := set $out "etcd_password_file" "/etc/embertree/etcd-password/password" -}}{{- end -}}
{{- $out | toJson -}}
{{- end -}}

{{- define "embertree.etcdName" -}}
{{ include "embertree.fullname" . }}-etcd
{{- end -}}

{{/* Do the members of the chart's etcd want certificates? */}}
{{- define "embertree.securesEtcd" -}}
{{- if and (include "embertree.bundlesEtcd" .) .Values.etcd.tls.enabled -}}yes{{- end -}}
{{- end -}}

{{- define "embertree.etcdScheme" -}}
{{- if include "embertree.securesEtcd" . -}}https{{- else -}}http{{- end -}}
{{- end -}}

{{/* The secret with what the roles show etcd, and know it by; "" for plain HTTP. */}}
{{- define "embertree.etcdTlsSecret" -}}
{{- if include "embertree.securesEtcd" . -}}
{{- default (printf "%s-client" (include "embertree.etcdName" .)) .Values.etcd.tls.clientExisting -}}
{{- else -}}
{{- .Values.cluster.etcd.tlsSecret -}}
{{- end -}}
{{- end -}}

{{/* (dict "ctx" . "pod" name "port" n) */}}
{{- define "embertree.etcdUrl" -}}
{{- printf "%s://%s.%s-headless.%s.svc.%s:%d" (include "embertree.etcdScheme" .ctx) .pod (include "embertree.etcdName" .ctx) .ctx.Release.Namespace .ctx.Values.clusterDomain .port -}}
{{- end -}}

{{/* "a-0=http://...:2380,a-1=...": all of its members. */}}
{{- define "embertree.etcdMembers" -}}
{{- $all := list -}}
{{- range $i := until (int .Values.etcd.replicas) -}}
{{- $pod := printf "%s-%d" (include "embertree.etcdName" $) $i -}}
{{- $all = append $all (printf "%s=%s" $pod (include "embertree.etcdUrl" (dict "ctx" $ "pod" $pod "port" 2380))) -}}
{{- end -}}
{{- join "," $all -}}
{{- end -}}
