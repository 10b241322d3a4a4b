{{/*
What is fixed when a release is made. The data lie on volumes that belong to one mode, one list of ingesters
or one map in etcd; with other values Kubernetes would make new, empty volumes or a new, empty map, and old
profiles would be in no answer. So the ConfigMap that runs today is read, and a change that would hide
data fails with what to do instead. It fails nothing where nothing can be looked up (`helm template`).
*/}}

{{/* (dict "ctx" . "role" r): today's options of a role of this release, or {}. */}}
{{- define "embertree.today" -}}
{{- $there := lookup "v1" "ConfigMap" .ctx.Release.Namespace (printf "%s-config" (include "embertree.name" .)) -}}
{{- $labels := dig "metadata" "labels" dict (default dict $there) -}}
{{- if eq (index $labels "app.kubernetes.io/instance" | default "") .ctx.Release.Name -}}
{{- dig "data" "embertree.yaml" "" $there | fromYaml | toJson -}}
{{- else -}}{}{{- end -}}
{{- end -}}

{{- define "embertree.checkFixed" -}}
{{- $one := include "embertree.today" (dict "ctx" . "role" "monolithic") | fromJson -}}
{{- $many := include "embertree.today" (dict "ctx" . "role" "ingester") | fromJson -}}
{{- $distributed := eq .Values.mode "distributed" -}}
{{- if and $one $distributed -}}
{{- fail (printf "mode: release %s is monolithic, and its profiles are on the volume of pod %s-0, which mode=distributed would neither keep nor read. Keep mode=monolithic; or install a second release with mode=distributed, forward what is pushed to both (files.forward), and remove this one when its profiles are old enough" .Release.Name (include "embertree.fullname" .)) -}}
{{- end -}}
{{- if and $many (not $distributed) -}}
{{- fail (printf "mode: release %s is distributed, and its profiles are on the volumes of its ingesters, which mode=monolithic would not read. Set mode=distributed" .Release.Name) -}}
{{- end -}}
{{- if and $many $distributed -}}
{{- include "embertree.checkFixedCluster" (dict "ctx" . "was" (default dict $many.cluster)) -}}
{{- end -}}
{{- end -}}

{{/* (dict "ctx" . "was" options of `cluster` today) */}}
{{- define "embertree.checkFixedCluster" -}}
{{- $was := .was -}}
{{- $now := dig "cluster" dict (include "embertree.options" (dict "ctx" .ctx "role" "ingester") | fromJson) -}}
{{- $copies := eq (default "none" $was.coordination) "etcd" -}}
{{- $moves := eq (include "embertree.moves" .ctx) "yes" -}}
{{- if and $copies (not $moves) -}}
{{- fail "cluster.coordination: this release keeps copies and is coordinated by etcd; with `list` its ingesters would refuse to start. Set cluster.coordination=etcd" -}}
{{- end -}}
{{- if and $moves (not $copies) -}}
{{- fail "cluster.coordination: this release was made with `list`, one copy of each shard; with `etcd` its profiles would be in no answer. Set cluster.coordination=list; for three copies install a second release, forward what is pushed to both (files.forward), and remove this one when its profiles are old enough" -}}
{{- end -}}
{{- if $copies -}}
{{- range $name := list "shards" "replicas" -}}
{{- if ne (int (index $was $name)) (int (index $now $name)) -}}
{{- fail (printf "cluster.%s: fixed when the cluster was made. It is %d there, and %d in these values: set cluster.%s=%d" $name (int (index $was $name)) (int (index $now $name)) $name (int (index $was $name))) -}}
{{- end -}}
{{- end -}}
{{- if ne $was.etcd_prefix $now.etcd_prefix -}}
{{- fail (printf "cluster.etcd.prefix: the map of this release stands below %s, not below %s: set cluster.etcd.prefix=%s" $was.etcd_prefix $now.etcd_prefix $was.etcd_prefix) -}}
{{- end -}}
{{- include "embertree.checkFixedEtcd" .ctx -}}
{{- else -}}
{{- if ne (join " " $was.ingesters) (join " " $now.ingesters) -}}
{{- fail (printf "ingester.replicas, ingester.zones, ports.rpc: without copies a shard is found by its place in the list of ingesters, so the list stays as it was installed. It is %s, and these values make %s. Go back to the old values; for other numbers install a second release with cluster.coordination=etcd" (join ", " $was.ingesters) (join ", " $now.ingesters)) -}}
{{- end -}}
{{- if ne (int $was.shards) (int $now.shards) -}}
{{- fail (printf "config.cluster.shards: fixed when the cluster was made. It is %d there, and %d in these values: set config.cluster.shards=%d" (int $was.shards) (int $now.shards) (int $was.shards)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "embertree.checkFixedEtcd" -}}
{{- if include "embertree.bundlesEtcd" . -}}
{{- $there := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "embertree.etcdName" .) -}}
{{- if $there -}}
{{- $had := int $there.spec.replicas -}}
{{- if ne $had (int .Values.etcd.replicas) -}}
{{- fail (printf "etcd.replicas: fixed at the first install, since new members would have to be told to the old ones. There are %d: set etcd.replicas=%d" $had $had) -}}
{{- end -}}
{{- $args := (index $there.spec.template.spec.containers 0).args | join " " -}}
{{- $secure := contains "--listen-client-urls=https:" $args -}}
{{- if ne $secure (eq (include "embertree.securesEtcd" .) "yes") -}}
{{- fail (printf "etcd.tls.enabled: fixed at the first install, since members that speak TLS and members that do not would not find each other. Set etcd.tls.enabled=%t" $secure) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
