{{- define "posthaste.name" -}}
{{- if contains "posthaste" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-posthaste" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Labels by which a Deployment finds its pods. Called with a list of the context and the component. */}}
{{- define "posthaste.selector" -}}
{{- $context := index . 0 -}}
app.kubernetes.io/name: posthaste
app.kubernetes.io/instance: {{ $context.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "posthaste.labels" -}}
{{- $context := index . 0 -}}
{{ include "posthaste.selector" . }}
app.kubernetes.io/version: {{ $context.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $context.Release.Service }}
helm.sh/chart: {{ printf "posthaste-%s" $context.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "posthaste.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- end }}

{{/* A variable whose value is in a secret. Called with a list of its name, the secret and the key. */}}
{{- define "posthaste.secret" -}}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef:
      name: {{ index . 1 | quote }}
      key: {{ index . 2 | quote }}
{{- end }}

{{/* What all pods have in common. */}}
{{- define "posthaste.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "posthaste.container" -}}
image: {{ include "posthaste.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* The variables of programs that use the database. */}}
{{- define "posthaste.env" -}}
{{ include "posthaste.secret" (list "DATABASE_URL" .Values.database.secretName .Values.database.key) }}
{{- with .Values.database.environment }}
- name: POSTHASTE_ENVIRONMENT
  value: {{ . | quote }}
{{- end }}
{{- if .Values.database.pollingOnly }}
- name: POSTHASTE_POLLING_ONLY
  value: "true"
{{- end }}
{{- end }}
