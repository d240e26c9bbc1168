{{/* Names and labels. */}}
{{- define "buckets.name" -}}
{{- printf "%s" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "buckets.selector" -}}
app.kubernetes.io/name: buckets
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "buckets.labels" -}}
{{ include "buckets.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "buckets.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "buckets.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "buckets.name" .) }}
{{- end -}}

{{- define "buckets.claim" -}}
{{ .Values.persistence.existingClaim | default (printf "%s-data" (include "buckets.name" .)) }}
{{- end -}}

{{- define "buckets.secret" -}}
{{ .Values.secret.existing | default (ternary (include "buckets.name" .) "" (not (empty .Values.secret.values))) }}
{{- end -}}

{{/* Whether Spark asks Kubernetes for executors. */}}
{{- define "buckets.hasExecutors" -}}
{{- if or (ne .Values.runsAs "pod") (gt (int .Values.executors.instances) 0) }}yes{{ end -}}
{{- end -}}
