{{- define "lib.map" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
data:
  {{- range $key, $value := .data }}
  {{ $key }}: {{ tpl $value $.root | quote }}
  {{- end }}
{{- end }}
