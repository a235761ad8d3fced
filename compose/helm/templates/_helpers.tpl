{{/* The name of everything: the release's, with the chart's where that does not have it. */}}
{{- define "dovecote.name" -}}
{{- if contains "dovecote" .Release.Name }}{{ .Release.Name | trunc 33 | trimSuffix "-" }}
{{- else }}{{ printf "%s-dovecote" (.Release.Name | trunc 24 | trimSuffix "-") }}
{{- end }}
{{- end }}

{{/* What selects the pods of a part; it never changes. Takes (list root part). */}}
{{- define "dovecote.selector" -}}
app.kubernetes.io/name: dovecote
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "dovecote.labels" -}}
{{ include "dovecote.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "dovecote.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "dovecote.name" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{/* An image: that of `image`, with what is missing from the chart's. Takes (dict root image). */}}
{{- define "dovecote.image" -}}
{{- $own := .image | default dict }}
{{- $common := .root.Values.image }}
{{- $repository := $own.repository | default $common.repository }}
{{- if $own.digest }}{{ $repository }}@{{ $own.digest }}
{{- else if $own.repository }}{{ $repository }}:{{ required (printf "consumers: the image %s needs a tag or a digest" $repository) $own.tag }}
{{- else if $common.digest }}{{ $repository }}@{{ $common.digest }}
{{- else }}{{ $repository }}:{{ $own.tag | default $common.tag | default .root.Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* The seconds of a duration as Dovecote writes it, rounded up. Takes the text. */}}
{{- define "dovecote.seconds" -}}
{{- $number := regexFind "^[0-9]+" . | int }}
{{- $unit := regexFind "[a-z]+$" . }}
{{- if eq $unit "ms" }}{{ div (add $number 999) 1000 }}
{{- else if eq $unit "s" }}{{ $number }}
{{- else if eq $unit "m" }}{{ mul $number 60 }}
{{- else if eq $unit "h" }}{{ mul $number 3600 }}
{{- else }}{{ fail (printf "%q is no duration: write 500ms, 30s, 2m or 1h" .) }}
{{- end }}
{{- end }}

{{/* The rules that the standard "restricted" has for a pod and for its containers. */}}
{{- define "dovecote.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "dovecote.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "dovecote.secretMounts" -}}
{{- range .Values.secrets }}
- {name: {{ printf "secret-%s" . | trunc 63 | trimSuffix "-" }}, mountPath: /run/secrets/dovecote/{{ . }}, readOnly: true}
{{- end }}
{{- end }}
{{- define "dovecote.secretVolumes" -}}
{{- range .Values.secrets }}
- name: {{ printf "secret-%s" . | trunc 63 | trimSuffix "-" }}
  secret: {secretName: {{ . }}, defaultMode: 288}
{{- end }}
{{- end }}

{{/* What the pods of a Deployment and of the Job have in common. Takes the root. */}}
{{- define "dovecote.placed" -}}
automountServiceAccountToken: {{ .Values.serviceAccount.token }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- include "dovecote.podSecurity" . | nindent 2 }}
{{- end }}

{{/*
A part: its settings, Deployment and PodDisruptionBudget.
Takes (dict root part port command config env values replicas grace image).
*/}}
{{- define "dovecote.part" -}}
{{- $ := .root }}
{{- $name := printf "%s-%s" (include "dovecote.name" $) .part }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}
  labels: {{- include "dovecote.labels" (list $ .part) | nindent 4 }}
data:
  settings.toml: {{ required (printf "%s: config is missing: the text of its settings file" .part) .config | quote }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels: {{- include "dovecote.labels" (list $ .part) | nindent 4 }}
spec:
  {{- with .replicas }}
  replicas: {{ . }}
  {{- end }}
  # A new process is ready before an old one goes; with settings that do not work nothing goes.
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  selector:
    matchLabels: {{- include "dovecote.selector" (list $ .part) | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "dovecote.labels" (list $ .part) | nindent 8 }}
        {{- with $.Values.podLabels }}{{ toYaml . | nindent 8 }}{{ end }}
      annotations:
        # Other settings start other processes.
        checksum/settings: {{ .config | sha256sum }}
        {{- with $.Values.podAnnotations }}{{ toYaml . | nindent 8 }}{{ end }}
    spec:
      serviceAccountName: {{ include "dovecote.serviceAccount" $ }}
      {{- include "dovecote.placed" $ | nindent 6 }}
      # More than the process takes to end: see docs/deploy.md.
      terminationGracePeriodSeconds: {{ .grace }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "dovecote.selector" (list $ .part) | nindent 14 }}
      containers:
        - name: dovecote
          image: {{ include "dovecote.image" (dict "root" $ "image" .image) | quote }}
          imagePullPolicy: {{ $.Values.image.pullPolicy }}
          command: [dovecote]
          args: {{- toYaml (concat .command (list "--config" "/etc/dovecote/settings.toml" "--log-format" $.Values.logFormat)) | nindent 12 }}
          env:
            {{- toYaml .env | nindent 12 }}
            {{- with .values.env }}{{ toYaml . | nindent 12 }}{{ end }}
          ports:
            - {name: http, containerPort: {{ .port }}}
          startupProbe:
            httpGet: {path: /healthz, port: http}
            periodSeconds: 2
            failureThreshold: 30
            timeoutSeconds: 5
          # An outage of Kafka or Postgres is no reason to restart.
          livenessProbe:
            httpGet: {path: /healthz, port: http}
            periodSeconds: 10
            failureThreshold: 6
            timeoutSeconds: 5
          readinessProbe:
            httpGet: {path: /readyz, port: http}
            periodSeconds: 5
            failureThreshold: 2
            timeoutSeconds: 5
          securityContext: {{- include "dovecote.security" $ | nindent 12 }}
          {{- with .values.resources }}
          resources: {{- toYaml . | nindent 12 }}
          {{- end }}
          volumeMounts:
            - {name: settings, mountPath: /etc/dovecote, readOnly: true}
            - {name: tmp, mountPath: /tmp}
            {{- include "dovecote.secretMounts" $ | nindent 12 }}
      volumes:
        - name: settings
          configMap: {name: {{ $name }}}
        - name: tmp
          emptyDir: {sizeLimit: 64Mi}
        {{- include "dovecote.secretVolumes" $ | nindent 8 }}
{{- if $.Values.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  labels: {{- include "dovecote.labels" (list $ .part) | nindent 4 }}
spec:
  maxUnavailable: 1
  # In an outage no pod is ready, and a node can be drained all the same.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "dovecote.selector" (list $ .part) | nindent 6 }}
{{- end }}
{{- if $.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ $name }}
  labels: {{- include "dovecote.labels" (list $ .part) | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "dovecote.selector" (list $ .part) | nindent 6 }}
  policyTypes: [Ingress{{ if $.Values.networkPolicy.egress }}, Egress{{ end }}]
  ingress:
    - ports:
        - {port: http}
      {{- $from := $.Values.networkPolicy.metricsFrom }}
      {{- if and (eq .part "push") $from $.Values.networkPolicy.apiFrom }}
      {{- $from = concat $from $.Values.networkPolicy.apiFrom }}
      {{- else if eq .part "push" }}
      {{- $from = list }}
      {{- end }}
      {{- with $from }}
      from: {{- toYaml . | nindent 8 }}
      {{- end }}
  {{- with $.Values.networkPolicy.egress }}
  egress: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* A Service of a part's pods, and a ServiceMonitor. Takes (dict root part port headless). */}}
{{- define "dovecote.service" -}}
{{- $ := .root }}
{{- $name := printf "%s-%s" (include "dovecote.name" $) .part }}
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}
  labels: {{- include "dovecote.labels" (list $ .part) | nindent 4 }}
spec:
  {{- if .headless }}
  clusterIP: None
  # Prometheus watches those most of all that are not ready.
  publishNotReadyAddresses: true
  {{- end }}
  selector: {{- include "dovecote.selector" (list $ .part) | nindent 4 }}
  ports:
    - {name: http, port: {{ .port }}, targetPort: http}
{{- if $.Values.serviceMonitor.enabled }}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ $name }}
  labels:
    {{- include "dovecote.labels" (list $ .part) | nindent 4 }}
    {{- with $.Values.serviceMonitor.labels }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  selector:
    matchLabels: {{- include "dovecote.selector" (list $ .part) | nindent 6 }}
  endpoints:
    - port: http
      path: /metrics
      interval: {{ $.Values.serviceMonitor.interval }}
      {{- with .token }}
      authorization:
        credentials: {name: {{ .secretName }}, key: {{ .key }}}
      {{- end }}
{{- end }}
{{- if $.Values.podMonitor.enabled }}
{{- if $.Values.serviceMonitor.enabled }}
{{- fail "serviceMonitor and podMonitor are both enabled: each pod would be asked twice; disable one" }}
{{- end }}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ $name }}
  labels:
    {{- include "dovecote.labels" (list $ .part) | nindent 4 }}
    {{- with $.Values.podMonitor.labels }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  selector:
    matchLabels: {{- include "dovecote.selector" (list $ .part) | nindent 6 }}
  podMetricsEndpoints:
    - port: http
      path: /metrics
      interval: {{ $.Values.podMonitor.interval }}
      {{- with .token }}
      authorization:
        credentials: {name: {{ .secretName }}, key: {{ .key }}}
      {{- end }}
      relabelings:
        # Alerts find processes by this name; by default it has the namespace before it.
        - {targetLabel: job, replacement: {{ $name }}}
{{- end }}
{{- end }}
