{{/* (dict "ctx" . "role" r): flags that differ from pod to pod, then extraArgs, which go before all. */}}
{{- define "embertree.args" -}}
{{- $v := .ctx.Values -}}
{{- $args := list "--config=/etc/embertree/config/embertree.yaml" -}}
{{- $rpc := int $v.ports.rpc -}}
{{- if eq .role "ingester" -}}
{{- $args = append $args (printf "--ingester.advertise=%s" (include "embertree.ingesterAddress" (dict "ctx" .ctx "pod" "$(POD_NAME)"))) -}}
{{- if include "embertree.moves" .ctx -}}
{{- $args = append $args "--cluster.node=$(POD_NAME)" -}}
{{- with dig "zone" "" (default dict .set) -}}{{- $args = append $args (printf "--cluster.zone=%s" .) -}}{{- end -}}
{{- end -}}
{{- else if ne .role "monolithic" -}}
{{- $args = append $args (printf "--%s.listen=tcp://$(POD_IP):%d" .role $rpc) -}}
{{- end -}}
{{- if has .role (list "monolithic" "distributor") -}}
{{- $args = append $args "--distributor.write-id-secret-file=/etc/embertree/write-id/write-id" -}}
{{- end -}}
{{- if and (eq .role "distributor") $v.distributor.persistence.enabled -}}
{{- $args = append $args "--distributor.scrape-index=$(POD_INDEX)" -}}
{{- end -}}
{{- if and (eq .role "monolithic") $v.monolithic.restore -}}
{{- $args = append $args "--cold.take-over" -}}
{{- end -}}
{{- concat $args (index $v .role).extraArgs | toYaml -}}
{{- end -}}

{{- define "embertree.env" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- if and (eq .role "distributor") .ctx.Values.distributor.persistence.enabled }}
- name: POD_INDEX
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
{{- end }}
# For `kubectl exec ... -- embertreectl cluster status`.
- {name: EMBERTREE_TOKEN_FILE, value: /etc/embertree/admin/admin-token}
- {name: EMBERTREE_URL, value: "http{{ if and .ctx.Values.tls.secretName (or .ctx.Values.tls.only .ctx.Values.tls.clientCA) }}s{{ end }}://127.0.0.1:{{ int .ctx.Values.ports.http }}"}
{{- with (index .ctx.Values .role).extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* (dict "ctx" . "path" "/readyz" "command" "ready"): how a probe asks. A kubelet has no certificate. */}}
{{- define "embertree.probe" -}}
{{- $v := .ctx.Values -}}
{{- if and $v.tls.secretName $v.tls.clientCA -}}
{{- if eq .path "/readyz" -}}
exec:
  command: [embertreectl, admin, ready, "--server=https://127.0.0.1:{{ int $v.ports.http }}", --insecure, --quiet,
    --timeout=4s, --tls-cert=/etc/embertree/tls/tls.crt, --tls-key=/etc/embertree/tls/tls.key]
{{- else -}}
tcpSocket: {port: http}
{{- end -}}
{{- else -}}
httpGet: {path: {{ .path }}, port: http, scheme: {{ if and $v.tls.secretName $v.tls.only }}HTTPS{{ else }}HTTP{{ end }}}
{{- end -}}
{{- end -}}

{{- define "embertree.hasFiles" -}}
{{- range $name, $text := .Values.files -}}{{- if not (kindIs "invalid" $text) -}}yes{{- end -}}{{- end -}}
{{- end -}}

{{- define "embertree.mounts" -}}
- {name: config, mountPath: /etc/embertree/config, readOnly: true}
- {name: data, mountPath: /data}
- {name: tmp, mountPath: /tmp}
- {name: admin, mountPath: /etc/embertree/admin, readOnly: true}
{{- if has .role (list "monolithic" "distributor") }}
- {name: write-id, mountPath: /etc/embertree/write-id, readOnly: true}
{{- end }}
{{- if include "embertree.hasFiles" .ctx }}
- {name: files, mountPath: /etc/embertree/files, readOnly: true}
{{- end }}
{{- if include "embertree.hasTokens" . }}
- {name: tokens, mountPath: /etc/embertree/tokens, readOnly: true}
{{- end }}
{{- if .ctx.Values.secrets.identityExisting }}
- {name: identity, mountPath: /etc/embertree/identity, readOnly: true}
{{- end }}
{{- if include "embertree.hasCold" . }}
- {name: cold, mountPath: /etc/embertree/cold, readOnly: true}
{{- end }}
{{- if include "embertree.hasKeys" . }}
- {name: keys, mountPath: /etc/embertree/keys, readOnly: true}
{{- end }}
{{- if .ctx.Values.tls.secretName }}
- {name: tls, mountPath: /etc/embertree/tls, readOnly: true}
{{- end }}
{{- if include "embertree.moves" .ctx }}
{{- with include "embertree.etcdTlsSecret" .ctx }}
- {name: etcd-tls, mountPath: /etc/embertree/etcd-tls, readOnly: true}
{{- end }}
{{- with .ctx.Values.cluster.etcd.passwordSecret }}
- {name: etcd-password, mountPath: /etc/embertree/etcd-password, readOnly: true}
{{- end }}
{{- end }}
{{- with (index .ctx.Values .role).extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "embertree.hasTokens" -}}
{{- $s := .ctx.Values.secrets -}}
{{- if and (has .role (list "monolithic" "distributor")) (or $s.tokensExisting (not (kindIs "invalid" $s.tokens))) -}}yes{{- end -}}
{{- end -}}

{{- define "embertree.hasCold" -}}
{{- $s := .ctx.Values.secrets -}}
{{- if and (has .role (list "monolithic" "ingester")) (or $s.coldCredentialsExisting (not (kindIs "invalid" $s.coldCredentials))) -}}yes{{- end -}}
{{- end -}}

{{- define "embertree.hasKeys" -}}
{{- if ne .role "monolithic" -}}yes{{- end -}}
{{- end -}}

{{/* A release that runs without keys takes them in two updates: pods that have them still talk to pods that do not. */}}
{{- define "embertree.keysAreNew" -}}
{{- $was := dig "cluster" dict (include "embertree.today" (dict "ctx" . "role" "ingester") | fromJson) -}}
{{- if and $was (not $was.key_file) -}}yes{{- end -}}
{{- end -}}

{{/* "claimed": a volume named data comes from a claim. */}}
{{- define "embertree.volumes" -}}
{{- $full := include "embertree.fullname" .ctx -}}
- name: config
  configMap: {name: {{ include "embertree.name" . }}-config}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
- name: admin
  secret:
    secretName: {{ default (printf "%s-admin" $full) .ctx.Values.secrets.adminTokenExisting }}
    defaultMode: 0440
    items: [{key: admin-token, path: admin-token}]
{{- if has .role (list "monolithic" "distributor") }}
- name: write-id
  secret:
    secretName: {{ default (printf "%s-write-id" $full) .ctx.Values.secrets.writeIdExisting }}
    defaultMode: 0440
    items: [{key: write-id, path: write-id}]
{{- end }}
{{- if not .claimed }}
- name: data
  emptyDir: {}
{{- end }}
{{- if include "embertree.hasFiles" .ctx }}
- name: files
  configMap: {name: {{ $full }}-files}
{{- end }}
{{- if include "embertree.hasTokens" . }}
- name: tokens
  secret:
    secretName: {{ default (printf "%s-tokens" $full) .ctx.Values.secrets.tokensExisting }}
    defaultMode: 0440
    items: [{key: tokens.yaml, path: tokens.yaml}]
{{- end }}
{{- with .ctx.Values.secrets.identityExisting }}
- name: identity
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items: [{key: identity.yaml, path: identity.yaml}]
{{- end }}
{{- if include "embertree.hasCold" . }}
- name: cold
  secret:
    secretName: {{ default (printf "%s-cold" $full) .ctx.Values.secrets.coldCredentialsExisting }}
    defaultMode: 0440
    items: [{key: credentials, path: credentials}]
{{- end }}
{{- if include "embertree.hasKeys" . }}
- name: keys
  secret:
    secretName: {{ default (printf "%s-cluster-keys" $full) .ctx.Values.secrets.clusterKeysExisting }}
    defaultMode: 0440
    items: [{key: cluster-keys, path: cluster-keys}]
{{- end }}
{{- if .ctx.Values.tls.secretName }}
- name: tls
  secret: {secretName: {{ .ctx.Values.tls.secretName }}, defaultMode: 0440}
{{- end }}
{{- if include "embertree.moves" .ctx }}
{{- with include "embertree.etcdTlsSecret" .ctx }}
- name: etcd-tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with .ctx.Values.cluster.etcd.passwordSecret }}
- name: etcd-password
  secret: {secretName: {{ . }}, defaultMode: 0440, items: [{key: password, path: password}]}
{{- end }}
{{- end }}
{{- with (index .ctx.Values .role).extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Time to go: what is before SIGTERM, what a drain may take, and some to spare. */}}
{{- define "embertree.grace" -}}
{{- $own := index .ctx.Values .role -}}
{{- if kindIs "invalid" $own.terminationGracePeriodSeconds -}}
{{- $options := include "embertree.options" . | fromJson -}}
{{- $deadline := dig "shutdown" "deadline" "30s" $options -}}
{{- add (int $own.preStopSeconds) (int (include "embertree.seconds" $deadline)) 15 -}}
{{- else -}}
{{- int $own.terminationGracePeriodSeconds -}}
{{- end -}}
{{- end -}}

{{- define "embertree.affinity" -}}
{{- $own := index .ctx.Values .role -}}
{{- if $own.affinity -}}
affinity: {{- toYaml $own.affinity | nindent 2 }}
{{- else if ne .role "monolithic" -}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "embertree.selector" . | nindent 14 }}
{{- end }}
{{- if $own.topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml $own.topologySpreadConstraints | nindent 2 }}
{{- else if ne .role "monolithic" }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "embertree.selector" . | nindent 8 }}
{{- end }}
{{- end -}}

{{/* (dict "ctx" . "role" r "claimed" bool "set" {name, zone, nodeSelector} or nil): a pod template. */}}
{{- define "embertree.pod" -}}
{{- $v := .ctx.Values -}}
{{- $own := index $v .role -}}
{{- $set := default dict .set -}}
metadata:
  labels:
    {{- include "embertree.selector" . | nindent 4 }}
    {{- with $v.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $set.zone }}
    embertree/zone: {{ . | quote }}
    {{- end }}
    {{- with $own.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ include "embertree.configFile" . | sha256sum }}
    {{- if include "embertree.hasTokens" . }}
    checksum/tokens: {{ toJson $v.secrets.tokens | sha256sum }}
    {{- end }}
    {{- if include "embertree.hasCold" . }}
    checksum/cold: {{ toJson $v.secrets.coldCredentials | sha256sum }}
    {{- end }}
    {{- with $own.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "embertree.serviceAccount" .ctx }}
  automountServiceAccountToken: {{ and $v.serviceAccount.discovery (has .role (list "monolithic" "distributor")) }}
  terminationGracePeriodSeconds: {{ include "embertree.grace" . }}
  securityContext: {{- toYaml $v.podSecurityContext | nindent 4 }}
  {{- with $v.image.pullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $own.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with mergeOverwrite (dict) $own.nodeSelector (default dict $set.nodeSelector) }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $own.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with include "embertree.affinity" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- if and (eq .role "monolithic") $own.restore }}
  initContainers:
    - name: restore
      image: {{ include "embertree.image" .ctx }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      command: [/usr/bin/embertree, restore]
      args: [--config=/etc/embertree/config/embertree.yaml]
      resources: {{- toYaml $own.resources | nindent 8 }}
      securityContext: {{- toYaml $v.securityContext | nindent 8 }}
      volumeMounts: {{- include "embertree.mounts" . | nindent 8 }}
  {{- end }}
  containers:
    - name: {{ .role }}
      image: {{ include "embertree.image" .ctx }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      command: [/usr/bin/embertree{{ if ne .role "monolithic" }}-{{ .role }}{{ end }}]
      args: {{- include "embertree.args" . | nindent 8 }}
      env: {{- include "embertree.env" . | nindent 8 }}
      ports:
        - {name: http, containerPort: {{ int $v.ports.http }}}
        {{- if ne .role "monolithic" }}
        - {name: rpc, containerPort: {{ int $v.ports.rpc }}}
        {{- end }}
      startupProbe:
        {{- include "embertree.probe" (dict "ctx" .ctx "path" "/healthz") | nindent 8 }}
        periodSeconds: 5
        failureThreshold: {{ div (add (int $v.probes.startSeconds) 4) 5 | max 1 }}
      livenessProbe:
        {{- include "embertree.probe" (dict "ctx" .ctx "path" "/healthz") | nindent 8 }}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: {{ div (add (int $v.probes.deadSeconds) 9) 10 | max 1 }}
      readinessProbe:
        {{- include "embertree.probe" (dict "ctx" .ctx "path" "/readyz") | nindent 8 }}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: {{ div (add (int $v.probes.unreadySeconds) 4) 5 | max 1 }}
      {{- if gt (int $own.preStopSeconds) 0 }}
      lifecycle:
        preStop: {exec: {command: [sleep, {{ int $own.preStopSeconds | toString | quote }}]}}
      {{- end }}
      resources: {{- toYaml $own.resources | nindent 8 }}
      securityContext: {{- toYaml $v.securityContext | nindent 8 }}
      volumeMounts: {{- include "embertree.mounts" . | nindent 8 }}
  volumes: {{- include "embertree.volumes" . | nindent 4 }}
{{- end -}}

{{/* (dict "ctx" . "role" r): the claim of its data. */}}
{{- define "embertree.claims" -}}
{{- $p := (index .ctx.Values .role).persistence -}}
- metadata:
    name: data
    {{- with $p.annotations }}
    annotations: {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with $p.storageClass }}
    storageClassName: {{ . }}
    {{- end }}
    resources: {requests: {storage: {{ $p.size }}}}
{{- end -}}

{{/* (dict "ctx" . "role" r "set" ... "replicas" n "update" "RollingUpdate"): a StatefulSet. */}}
{{- define "embertree.statefulset" -}}
{{- $p := (index .ctx.Values .role).persistence -}}
{{- $name := default (include "embertree.name" .) (dig "name" "" (default dict .set)) -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ $name }}
  namespace: {{ .ctx.Release.Namespace }}
  labels: {{- include "embertree.labelsOf" . | nindent 4 }}
spec:
  replicas: {{ int .replicas }}
  serviceName: {{ include "embertree.headless" . }}
  podManagementPolicy: Parallel
  updateStrategy: {type: {{ .update }}}
  minReadySeconds: 5
  selector:
    matchLabels:
      {{- include "embertree.selector" . | nindent 6 }}
      {{- with dig "zone" "" (default dict .set) }}
      embertree/zone: {{ . | quote }}
      {{- end }}
  template: {{- include "embertree.pod" (mergeOverwrite (dict) . (dict "claimed" $p.enabled)) | nindent 4 }}
  {{- if $p.enabled }}
  volumeClaimTemplates: {{- include "embertree.claims" . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "embertree.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "embertree.name" . }}
  namespace: {{ .ctx.Release.Namespace }}
  labels: {{- include "embertree.labelsOf" . | nindent 4 }}
spec:
  replicas: {{ int (index .ctx.Values .role).replicas }}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  minReadySeconds: 5
  selector:
    matchLabels: {{- include "embertree.selector" . | nindent 6 }}
  template: {{- include "embertree.pod" . | nindent 4 }}
{{- end -}}
