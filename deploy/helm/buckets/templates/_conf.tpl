{{/* The configuration of the job: that of the values, with what the chart has to say itself. */}}
{{- define "buckets.conf" -}}
{{- if empty .Values.conf }}{{ fail "conf is empty: give the configuration of the job" }}{{ end -}}
{{- $conf := deepCopy .Values.conf -}}
{{- $_ := set $conf "metrics" (merge (dict "host" "0.0.0.0" "port" 9464) ($conf.metrics | default dict)) -}}
{{- if .Values.console.enabled -}}
{{- $own := dict "host" "0.0.0.0" "port" 8484 "token" "${BUCKETS_CONSOLE_TOKEN}" -}}
{{- $_ := set $conf "console" (merge $own ($conf.console | default dict)) -}}
{{- end -}}
{{- if eq .Values.runsAs "pod" -}}
{{- $spark := dict "spark.driver.memory" .Values.driver.memory -}}
{{- if gt (int .Values.executors.instances) 0 -}}
{{- $spark = merge $spark (include "buckets.sparkOnKubernetes" . | fromYaml) -}}
{{- end -}}
{{- $_ := set $conf "spark" (merge ($conf.spark | default dict) $spark) -}}
{{- end -}}
{{ toYaml $conf }}
{{- end -}}

{{/* What Spark needs for executors that are pods, in whichever way the driver is started. */}}
{{- define "buckets.executorSettings" -}}
spark.executor.instances: {{ .Values.executors.instances | quote }}
spark.executor.cores: {{ .Values.executors.cores | quote }}
spark.kubernetes.executor.limit.cores: {{ .Values.executors.cores | quote }}
spark.executor.memory: {{ .Values.executors.memory }}
spark.executor.memoryOverhead: {{ .Values.executors.memoryOverhead }}
spark.executor.extraClassPath: /opt/buckets/jars/*
spark.pyspark.python: /opt/buckets/bin/python
spark.kubernetes.namespace: {{ .Release.Namespace }}
spark.kubernetes.container.image: {{ include "buckets.image" . }}
spark.kubernetes.container.image.pullPolicy: {{ .Values.image.pullPolicy }}
spark.kubernetes.authenticate.driver.serviceAccountName: {{ include "buckets.serviceAccount" . }}
spark.kubernetes.executor.deleteOnTermination: "true"
spark.port.maxRetries: "0"
spark.driver.port: "7078"
spark.driver.blockManager.port: "7079"
spark.blockManager.port: "7079"
{{- end -}}

{{/* A driver in a pod of the StatefulSet, in client mode. */}}
{{- define "buckets.sparkOnKubernetes" -}}
{{ include "buckets.executorSettings" . }}
spark.master: k8s://https://kubernetes.default.svc
spark.submit.deployMode: client
spark.driver.host: {{ include "buckets.name" . }}-0.{{ include "buckets.name" . }}-pods.{{ .Release.Namespace }}.svc
spark.driver.bindAddress: 0.0.0.0
spark.kubernetes.driver.pod.name: {{ include "buckets.name" . }}-0
spark.kubernetes.executor.podTemplateFile: /etc/buckets/job/executor.yaml
spark.kubernetes.executor.podTemplateContainerName: executor
{{- end -}}
