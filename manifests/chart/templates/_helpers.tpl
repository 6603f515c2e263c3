{{- /* Labels and annotations of a pod: of a list of the context, its name and its own annotations. */}}
{{- define "mainstay.podMetadata" }}
{{- $values := (index . 0).Values }}
      labels:
        app.kubernetes.io/name: {{ index . 1 }}
{{- with $values.podLabels }}
{{- toYaml . | nindent 8 }}
{{- end }}
{{- with mergeOverwrite (dict) (index . 2) $values.podAnnotations }}
      annotations: {{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}

{{- /* Where each pod runs, and the login for its image. */}}
{{- define "mainstay.pod" }}
{{- with .Values.imagePullSecret }}
      imagePullSecrets:
        - name: {{ . | quote }}
{{- end }}
{{- with .Values.priorityClassName }}
      priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
{{- end }}
{{- with .Values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}

{{- /* Where the agent's pods run. */}}
{{- define "mainstay.agentPod" }}
{{- with .Values.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
      topologySpreadConstraints: {{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}

{{- /* Resources of the agent: its memory follows from the expected load. */}}
{{- define "mainstay.agentResources" }}
{{- $resources := deepCopy (default (dict) .Values.resources.mainstay) }}
{{- $syncs := int64 .Values.expect.gitSyncs }}
{{- $objects := int64 .Values.expect.objects }}
{{- if add $syncs $objects }}
{{- $counted := add (mul 24 $syncs) (mul 2 (ternary (mul 4 $syncs) $objects (eq $objects 0))) }}
{{- $mib := max 160 (div (add (mul 5 $counted) 1343) 1344) }}
{{- $memory := dict "limits" (dict "memory" (printf "%dMi" $mib)) "requests" (dict "memory" (printf "%dMi" (div (mul $mib 2) 5))) }}
{{- $resources = mergeOverwrite $resources $memory }}
{{- end }}
{{- toYaml $resources }}
{{- end }}

{{- /* When nodes pull the image of a container. */}}
{{- define "mainstay.imagePullPolicy" }}
{{- with .Values.imagePullPolicy }}
          imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{- /* Whether a component is installed: of a list of the context and its name. */}}
{{- define "mainstay.has" -}}
{{- $components := (index . 0).Values.components -}}
{{- if or (not $components) (has (index . 1) $components) -}}true{{- end -}}
{{- end }}

{{- /* Whether events are on NATS. */}}
{{- define "mainstay.onNats" -}}
{{- if and (has "eventing" .Values.components) (or .Values.nats.url .Values.nats.server) -}}true{{- end -}}
{{- end }}

{{- /* Addresses of NATS. */}}
{{- define "mainstay.natsURL" -}}
{{- if .Values.nats.server -}}
{{- range $number := until (int .Values.nats.replicas) }}{{ if $number }},{{ end }}tls://mainstay-nats-{{ $number }}.mainstay-nats.kyma-system.svc:4222{{ end -}}
{{- else -}}
{{ .Values.nats.url }}
{{- end -}}
{{- end }}

{{- /* The Secret with the login for NATS. */}}
{{- define "mainstay.natsSecret" -}}
{{- if .Values.nats.server }}mainstay-nats{{ else }}{{ .Values.nats.credentials }}{{ end -}}
{{- end }}

{{- /* The files of that Secret for clients of the installed NATS. */}}
{{- define "mainstay.natsItems" }}
{{- if .Values.nats.server }}
            items:
              - key: username
                path: username
              - key: password
                path: password
              - key: authorities.crt
                path: ca.crt
{{- end }}
{{- end }}

{{- /* The registry for the images of Functions, where there are Functions. */}}
{{- define "mainstay.registry" -}}
{{- if include "mainstay.has" (list . "functions") }}{{ .Values.registry }}{{ else }}none{{ end -}}
{{- end }}

{{- /* Who may connect to the registry, where the networks of nodes are known. */}}
{{- define "mainstay.registryClients" }}
{{- with .Values.registryNetworks }}
      from:
        - namespaceSelector: {}
{{- range . }}
        - ipBlock:
            cidr: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Arguments of the agent that depend on values. */}}
{{- define "mainstay.arguments" }}
{{- with .Values.components }}
            - --components={{ join "," . }}
{{- end }}
{{- if .Values.shards }}
            - --shards={{ .Values.shards }}
{{- end }}
{{- range .Values.allowNetworks }}
            - {{ printf "--allow-network=%s" . | quote }}
{{- end }}
{{- range .Values.extraArgs }}
            - {{ . | quote }}
{{- end }}
{{- end }}

{{- /* The port of the repository, for the egress policy. */}}
{{- define "mainstay.egressPort" }}
{{- if .Values.git.url }}
{{- $address := include "mainstay.address" . | fromYaml }}
{{- if not (has $address.port (list "22" "443" "6443")) }}
        - port: {{ $address.port }}
          protocol: TCP
{{- end }}
{{- end }}
{{- end }}

{{- /* Environment of the agent that depends on values. */}}
{{- define "mainstay.environment" }}
{{- with .Values.receiverURL }}
            - name: MAINSTAY_RECEIVER_URL
              value: {{ regexReplaceAll "/+$" . "" | quote }}
{{- end }}
{{- with .Values.baseImages }}
            - name: MAINSTAY_BASE_IMAGES
              value: {{ toRawJson . | quote }}
{{- end }}
{{- with .Values.baseCA }}
            - name: MAINSTAY_BASE_CA
              value: {{ . | quote }}
{{- end }}
{{- with .Values.imagePullSecret }}
            - name: MAINSTAY_IMAGE_PULL_SECRET
              value: {{ . | quote }}
{{- end }}
{{- range $name, $value := .Values.extraEnv }}
            - name: {{ $name | quote }}
{{- if kindIs "map" $value }}
              valueFrom: {{- toYaml $value | nindent 16 }}
{{- else }}
              value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Conversion of Functions by the agent, which writes `caBundle`. */}}
{{- define "mainstay.conversion" }}
{{- if .Values.v1alpha2 }}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig:
        service:
          name: mainstay-admission
          namespace: {{ .Release.Namespace | quote }}
          path: /convert
{{- end }}
{{- end }}

{{- /*
The parts of git.url as YAML: scheme (https, http, ssh or git), host, port, knownHostsName (of SSH only) and path.
*/}}
{{- define "mainstay.address" }}
{{- $url := .Values.git.url }}
{{- $form := "git.url: the URL must have the form https://host/path, ssh://user@host/path or user@host:path" }}
{{- $scheme := "ssh" }}
{{- $authority := "" }}
{{- $path := "" }}
{{- if contains "://" $url }}
  {{- $scheme = splitList "://" $url | first | lower | replace "git+ssh" "ssh" | replace "ssh+git" "ssh" }}
  {{- $rest := regexReplaceAll "^.*?://" $url "" }}
  {{- $authority = regexFind "^[^/]*" $rest }}
  {{- $path = trimPrefix $authority $rest }}
  {{- if or (not (has $scheme (list "https" "http" "ssh" "git"))) (not $authority) }}
    {{- fail $form }}
  {{- end }}
  {{- if regexMatch "[?#]" $rest }}
    {{- fail "git.url: the URL must not contain `?` or `#`; credentials belong in the Secret that git.secret names" }}
  {{- end }}
{{- else }}
  {{- if not (regexMatch "^[^@/:]+@(\\[[^]/]+\\]|[^@/:[]+):." $url) }}
    {{- fail $form }}
  {{- end }}
  {{- $authority = regexFind "^[^@]+@(\\[[^]]+\\]|[^:]+)" $url }}
  {{- $path = trimPrefix (printf "%s:" $authority) $url }}
{{- end }}
{{- $user := regexFind "^.*@" $authority }}
{{- if or (contains ":" $user) (and $user (ne $scheme "ssh")) }}
  {{- fail "git.url: an address with a user or password would be stored in the open; put them into a Secret and name it with git.secret" }}
{{- end }}
{{- $server := trimPrefix $user $authority | lower }}
{{- $host := regexReplaceAll ":[0-9]*$" $server "" | trimPrefix "[" | trimSuffix "]" }}
{{- $port := regexFind ":[0-9]+$" $server | trimPrefix ":" }}
scheme: {{ $scheme }}
host: {{ $host | quote }}
path: {{ $path | quote }}
port: {{ $port | default (get (dict "ssh" "22" "http" "80" "https" "443" "git" "9418") $scheme) | quote }}
{{- if eq $scheme "ssh" }}
knownHostsName: {{ ternary $host (printf "[%s]:%s" $host $port) (has $port (list "" "22")) | quote }}
{{- end }}
{{- end }}

{{- /* The text as a name: other characters become dashes. */}}
{{- define "mainstay.label" -}}
{{ regexReplaceAll "[^A-Za-z0-9]+" .text "-" | lower | trimAll "-" | trunc .most | trimSuffix "-" }}
{{- end }}

{{- /* Name of the GitRepository. */}}
{{- define "mainstay.name" -}}
{{- if .Values.git.name -}}
  {{ .Values.git.name }}
{{- else -}}
  {{- $address := include "mainstay.address" . | fromYaml -}}
  {{- $last := trimAll "/" $address.path | trimSuffix ".git" | splitList "/" | last -}}
  {{- if or (regexMatch "[^A-Za-z0-9._-]" $last) (regexMatch "^[.]{1,2}$" $last) -}}
    {{- fail "git.name: set a name, because the last part of git.url has other characters than letters, digits, `.`, `_` and `-`" -}}
  {{- end -}}
  {{ include "mainstay.label" (dict "text" $last "most" 40) | default "repository" }}
{{- end -}}
{{- end }}

{{- /* How the repository is authenticated, as YAML: type and secretName, and whether the agent makes the key. */}}
{{- define "mainstay.auth" }}
{{- $address := include "mainstay.address" . | fromYaml }}
{{- $secret := .Values.git.secret }}
{{- if ne $address.scheme "ssh" }}
  {{- if .Values.git.knownHosts }}
    {{- fail "git.knownHosts is for SSH addresses; leave it out, or set such an address" }}
  {{- end }}
  {{- if and $secret (eq $address.scheme "git") }}
    {{- fail "git.secret: authentication at a git:// address is not supported; leave it out, or set the https:// or ssh:// address" }}
  {{- end }}
  {{- with $secret }}
type: basic
secretName: {{ . | quote }}
  {{- end }}
{{- else }}
  {{- if and (not $secret) (has $address.host (list "ssh.dev.azure.com" "vs-ssh.visualstudio.com")) }}
    {{- fail "git.url: Azure DevOps takes RSA keys only, and the agent makes an ed25519 key; store a key of yours in a Secret and name it with git.secret" }}
  {{- end }}
type: key
secretName: {{ $secret | default (printf "%s-git" (include "mainstay.name" .)) | quote }}
isGenerated: {{ not $secret }}
{{- end }}
{{- end }}

{{- /* The interval in hours, minutes, seconds and milliseconds, as `mainstay install` writes it. */}}
{{- define "mainstay.interval" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 -}}
{{- $total := 0 -}}
{{- range regexFindAll "[0-9]+[a-z]+" . -1 -}}
  {{- $total = add $total (mul (regexFind "[0-9]+" . | int64) (get $units (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{- if gt $total 315360000000 -}}
  {{- fail "git.interval: it is at most ten years" -}}
{{- end -}}
{{- if not $total }}0s{{ end -}}
{{- range $unit := list "h" "m" "s" "ms" -}}
  {{- $length := get $units $unit -}}
  {{- with div $total $length }}{{ . }}{{ $unit }}{{ end -}}
  {{- $total = mod $total $length -}}
{{- end -}}
{{- end }}

{{- /* The GitRepository and its GitSyncs, which the agent creates. */}}
{{- define "mainstay.followed" }}
{{- $git := .Values.git }}
{{- $name := include "mainstay.name" . }}
{{- $auth := include "mainstay.auth" . | fromYaml }}
{{- $spec := dict "url" $git.url }}
{{- with $auth }}
  {{- $spec = set $spec "auth" (omit . "isGenerated") }}
{{- end }}
{{- $metadata := dict "name" $name "namespace" .Release.Namespace -}}
---
{{ dict "apiVersion" "serverless.kyma-project.io/v1alpha1" "kind" "GitRepository" "metadata" $metadata "spec" $spec | toYaml }}
{{- $names := list }}
{{- $directories := list }}
{{- range $path := $git.paths | default (list "/") }}
  {{- $parts := without (splitList "/" $path) "" "." }}
  {{- if has ".." $parts }}
    {{- printf "git.paths: %q: a directory lies in the repository; `..` is not allowed" $path | fail }}
  {{- end }}
  {{- $directory := join "/" $parts }}
  {{- if has $directory $directories }}
    {{- printf "git.paths names /%s twice" $directory | fail }}
  {{- end }}
  {{- $directories = append $directories $directory }}
  {{- $sync := $name }}
  {{- if gt (len $git.paths) 1 }}
    {{- $sync = include "mainstay.label" (dict "text" (printf "%s-%s" $name $directory) "most" 63) }}
  {{- end }}
  {{- if has $sync $names }}
    {{- printf "git.paths: %q would make a second GitSync %s; create a GitSync of your own for it" $path $sync | fail }}
  {{- end }}
  {{- $names = append $names $sync }}
  {{- $spec := dict "gitRepository" $name "reference" $git.branch "baseDir" (printf "/%s" $directory) "targetNamespace" $git.targetNamespace }}
  {{- with $git.interval }}
    {{- $spec = set $spec "interval" (include "mainstay.interval" .) }}
  {{- end }}
  {{- $metadata := dict "name" $sync "namespace" $.Release.Namespace }}
---
{{ dict "apiVersion" "mainstay.dev/v1alpha1" "kind" "GitSync" "metadata" $metadata "spec" $spec | toYaml }}
{{- end }}
{{ end }}
