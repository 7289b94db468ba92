{{- define "lora-autoscaler.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "lora-autoscaler.selector" -}}
app.kubernetes.io/name: lora-autoscaler
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lora-autoscaler.dashboardSelector" -}}
app.kubernetes.io/name: lora-autoscaler-dashboard
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lora-autoscaler.labels" -}}
{{ include "lora-autoscaler.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "lora-autoscaler.account" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "lora-autoscaler.name" .) }}
{{- else -}}
{{ required "serviceAccount.create is false: name an existing one in serviceAccount.name" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{/* Whether nobody else says whose a token is, and the account may keep some. */}}
{{- define "lora-autoscaler.makesTokens" -}}
{{ and .Values.rbac.create (not .Values.tokensSecret) (not .Values.rbac.authDelegator) }}
{{- end -}}

{{- define "lora-autoscaler.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* What is read and changed of fleets, for the release's namespace and each of rbac.namespaces. */}}
{{- define "lora-autoscaler.fleetRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch{{ if or .Values.rbac.scale .Values.rbac.slots }}, patch{{ end }}]
{{- if .Values.rbac.readinessGate }}
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
{{- end }}
{{- range .Values.rbac.targets }}
- apiGroups: [{{ .apiGroup | quote }}]
  resources: [{{ .resource }}]
  verbs: [get, list, watch{{ if $.Values.rbac.declaredHotGroups }}, patch{{ end }}]
- apiGroups: [{{ .apiGroup | quote }}]
  resources: [{{ .resource }}/scale]
  verbs: [get{{ if $.Values.rbac.scale }}, update{{ end }}]
{{- end }}
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch]
{{- if .Values.rbac.hotGroups.create }}
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, update, delete]
- apiGroups: [apps]
  resources: [deployments/scale]
  verbs: [get, update]
{{- end }}
{{- if .Values.rbac.events }}
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}
{{- end -}}
