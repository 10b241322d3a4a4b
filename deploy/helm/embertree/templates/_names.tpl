{{/* Names are cut so that a pod's name and the address of an ingester stay within their bounds. */}}
{{- define "embertree.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 36 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 36 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 36 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* (dict "ctx" . "role" "querier"): name of a role's objects; the one process has the release's. */}}
{{- define "embertree.name" -}}
{{- $full := include "embertree.fullname" .ctx -}}
{{- if eq .role "monolithic" -}}{{ $full }}{{- else -}}{{ $full }}-{{ .role }}{{- end -}}
{{- end -}}

{{- define "embertree.headless" -}}
{{ include "embertree.name" . }}-headless
{{- end -}}

{{- define "embertree.selector" -}}
app.kubernetes.io/name: {{ .ctx.Chart.Name }}
app.kubernetes.io/instance: {{ .ctx.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end -}}

{{- define "embertree.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ default .Chart.AppVersion .Values.image.tag | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "embertree.labelsOf" -}}
{{ include "embertree.labels" .ctx }}
app.kubernetes.io/component: {{ .role }}
{{- end -}}

{{- define "embertree.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "embertree.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "embertree.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "embertree.roles" -}}
{{- if eq .Values.mode "distributed" -}}
{{ list "ingester" "distributor" "querier" "compactor" | toJson }}
{{- else -}}
{{ list "monolithic" | toJson }}
{{- end -}}
{{- end -}}

{{/* Do shards have copies that move? */}}
{{- define "embertree.moves" -}}
{{- if and (eq .Values.mode "distributed") (eq .Values.cluster.coordination "etcd") -}}yes{{- end -}}
{{- end -}}

{{/* Does the chart bring etcd? */}}
{{- define "embertree.bundlesEtcd" -}}
{{- if and (include "embertree.moves" .) (not .Values.cluster.etcd.endpoints) -}}yes{{- end -}}
{{- end -}}

{{/* StatefulSets of the ingesters: [{name, zone, nodeSelector}]. */}}
{{- define "embertree.ingesterSets" -}}
{{- $base := include "embertree.name" (dict "ctx" . "role" "ingester") -}}
{{- $sets := list -}}
{{- range .Values.ingester.zones -}}
{{- $sets = append $sets (dict "name" (printf "%s-%s" $base .name) "zone" .name "nodeSelector" (default dict .nodeSelector)) -}}
{{- else -}}
{{- $sets = append $sets (dict "name" $base "zone" "" "nodeSelector" dict) -}}
{{- end -}}
{{- $sets | toJson -}}
{{- end -}}

{{/* (dict "ctx" . "pod" name): where an ingester is. */}}
{{- define "embertree.ingesterAddress" -}}
{{- $c := .ctx -}}
{{- printf "tcp://%s.%s.%s.svc.%s:%d" .pod (include "embertree.headless" (dict "ctx" $c "role" "ingester")) $c.Release.Namespace $c.Values.clusterDomain (int $c.Values.ports.rpc) -}}
{{- end -}}

{{/* Addresses of all ingesters, in the order that says which has which shard. */}}
{{- define "embertree.ingesters" -}}
{{- $all := list -}}
{{- range $set := include "embertree.ingesterSets" . | fromJsonArray -}}
{{- range $i := until (int $.Values.ingester.replicas) -}}
{{- $a := include "embertree.ingesterAddress" (dict "ctx" $ "pod" (printf "%s-%d" $set.name $i)) -}}
{{- if gt (len $a) 127 -}}
{{- fail (printf "the address %s has %d bytes, at most 127: choose a shorter release name or namespace" $a (len $a)) -}}
{{- end -}}
{{- $all = append $all $a -}}
{{- end -}}
{{- end -}}
{{- $all | toJson -}}
{{- end -}}
