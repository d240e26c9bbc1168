{{/* Pieces of pods: of the job, of its executors, and of drivers that an operator starts. */}}
{{- define "buckets.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "buckets.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "buckets.mounts" -}}
- {name: data, mountPath: /data}
- {name: job, mountPath: /etc/buckets/job, readOnly: true}
{{- if .Values.rules }}
- {name: rules, mountPath: /etc/buckets/rules, readOnly: true}
{{- end }}
- {name: scratch, mountPath: /tmp}
- {name: shared, mountPath: /dev/shm}
{{- end -}}

{{- define "buckets.volumes" -}}
{{- if .Values.persistence.enabled -}}
- {name: data, persistentVolumeClaim: {claimName: {{ include "buckets.claim" . }}}}
{{- else -}}
- {name: data, emptyDir: {sizeLimit: {{ .Values.persistence.size }}}}
{{- end }}
- {name: job, configMap: {name: {{ include "buckets.name" . }}-job}}
{{- if .Values.rules }}
- {name: rules, configMap: {name: {{ include "buckets.name" . }}-rules}}
{{- end }}
- {name: scratch, emptyDir: {sizeLimit: {{ .Values.scratch }}}}
- {name: shared, emptyDir: {medium: Memory, sizeLimit: {{ .Values.sharedMemory }}}}
{{- end -}}

{{- define "buckets.environment" -}}
{{- $secret := include "buckets.secret" . -}}
{{- if $secret }}
envFrom: [{secretRef: {name: {{ $secret }}}}]
{{- end }}
{{- if and (eq .Values.runsAs "pod") (include "buckets.hasExecutors" .) }}
env: [{name: SPARK_LOCAL_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
{{- end }}
{{- end -}}

{{- define "buckets.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  {{- toYaml .Values.probes.startup | nindent 2 }}
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  {{- toYaml .Values.probes.liveness | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  {{- toYaml .Values.probes.readiness | nindent 2 }}
{{- end -}}

{{- define "buckets.placement" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
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
{{- end -}}

{{- define "buckets.arguments" -}}
[/etc/buckets/job/conf.yaml, --log-format, {{ .Values.logFormat }}{{ if .Values.audit }}, --audit{{ end }}]
{{- end -}}

{{/* The metadata and spec of an executor's pod. Spark adds image, command, and from its settings cores and memory. */}}
{{- define "buckets.executorPod" -}}
metadata:
  labels:
    {{- include "buckets.labels" . | nindent 4 }}
    app.kubernetes.io/component: executor
spec:
  automountServiceAccountToken: false
  securityContext:
    {{- include "buckets.podSecurity" . | nindent 4 }}
  {{- with include "buckets.placement" . | trim }}{{ . | nindent 2 }}{{ end }}
  containers:
    - name: executor
      {{- with include "buckets.environment" . | trim }}{{ . | nindent 6 }}{{ end }}
      securityContext:
        {{- include "buckets.containerSecurity" . | nindent 8 }}
      volumeMounts:
        {{- include "buckets.mounts" . | nindent 8 }}
  volumes:
    {{- include "buckets.volumes" . | nindent 4 }}
{{- end -}}

{{/* The metadata and spec of a driver's pod that an operator starts; Spark adds what it adds to executors. */}}
{{- define "buckets.driverPod" -}}
metadata:
  labels:
    {{- include "buckets.labels" . | nindent 4 }}
    app.kubernetes.io/component: job
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with .Values.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  securityContext:
    {{- include "buckets.podSecurity" . | nindent 4 }}
  {{- with include "buckets.placement" . | trim }}{{ . | nindent 2 }}{{ end }}
  containers:
    - name: driver
      {{- with include "buckets.environment" . | trim }}{{ . | nindent 6 }}{{ end }}
      ports: [{name: metrics, containerPort: 9464}]
      {{- include "buckets.probes" . | nindent 6 }}
      securityContext:
        {{- include "buckets.containerSecurity" . | nindent 8 }}
      volumeMounts:
        {{- include "buckets.mounts" . | nindent 8 }}
  volumes:
    {{- include "buckets.volumes" . | nindent 4 }}
{{- end -}}
