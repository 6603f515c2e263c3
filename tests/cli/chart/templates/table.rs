//! The templates, each with its manifest, its condition and its replacements.

/// A template that is generated from a manifest.
pub(super) struct Template {
    pub(super) manifest: &'static str,
    pub(super) name: &'static str,
    /// Condition on the values.
    pub(super) condition: Option<&'static str>,
    /// Texts of the manifest with their replacements.
    pub(super) replacements: &'static [(&'static str, &'static str)],
}

const fn template(manifest: &'static str, name: &'static str) -> Template {
    Template { manifest, name, condition: None, replacements: &[] }
}

/// Conditions of components that are installed only on request.
const EXPOSURE: Option<&str> = Some("has \"exposure\" .Values.components");
const EVENTING: Option<&str> = Some("has \"eventing\" .Values.components");
const WITH_JOURNAL: Option<&str> =
    Some("and (has \"eventing\" .Values.components) (not (include \"mainstay.onNats\" .))");
const ON_NATS: Option<&str> = Some("include \"mainstay.onNats\" .");
const KEPT_EVENTS: (&str, &str) = (
    "kind: PersistentVolumeClaim\nmetadata:\n",
    "kind: PersistentVolumeClaim\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n",
);

/// Labels and annotations of pods.
const METADATA: (&str, &str) = (
    "      labels:\n        app.kubernetes.io/name: mainstay\n      annotations:\n        prometheus.io/scrape: \"true\"\n        \
     prometheus.io/port: \"8080\"\n    spec:\n",
    "{{- include \"mainstay.podMetadata\" (list . \"mainstay\" (dict \"prometheus.io/scrape\" \"true\" \"prometheus.io/port\" \
     \"8080\")) }}\n    spec:\n",
);
const METADATA_OF_REGISTRY: (&str, &str) = (
    "      labels:\n        app.kubernetes.io/name: serverless-docker-registry\n    spec:\n",
    "{{- include \"mainstay.podMetadata\" (list . \"serverless-docker-registry\" (dict)) }}\n    spec:\n",
);
const METADATA_OF_CONSOLE: (&str, &str) = (
    "      labels:\n        app.kubernetes.io/name: mainstay-console\n    spec:\n",
    "{{- include \"mainstay.podMetadata\" (list . \"mainstay-console\" (dict)) }}\n    spec:\n",
);
const METADATA_OF_PUBLISHER: (&str, &str) = (
    "      labels:\n        app.kubernetes.io/name: mainstay-eventing-publisher\n    spec:\n",
    "{{- include \"mainstay.podMetadata\" (list . \"mainstay-eventing-publisher\" (dict)) }}\n    spec:\n",
);
const METADATA_OF_DISPATCHER: (&str, &str) = (
    "      labels:\n        app.kubernetes.io/name: mainstay-eventing-dispatcher\n    spec:\n",
    "{{- include \"mainstay.podMetadata\" (list . \"mainstay-eventing-dispatcher\" (dict)) }}\n    spec:\n",
);
const METADATA_OF_NATS: (&str, &str) = (
    "      labels:\n        app.kubernetes.io/name: mainstay-nats\n    spec:\n      automount",
    "{{- include \"mainstay.podMetadata\" (list . \"mainstay-nats\" (dict)) }}\n    spec:\n      automount",
);
const METADATA_OF_EVENTING: (&str, &str) = (
    "      labels:\n        app.kubernetes.io/name: mainstay-eventing\n    spec:\n",
    "{{- include \"mainstay.podMetadata\" (list . \"mainstay-eventing\" (dict)) }}\n    spec:\n",
);

/// The choices for NATS.
const SHARE_ON_NATS: (&str, &str) = ("--nats-share=64Mi\n", "--nats-share={{ .Values.nats.share }}\n");
const REPLICAS_ON_NATS: (&str, &str) = ("--nats-replicas=1\n", "--nats-replicas={{ .Values.nats.replicas }}\n");
const URL_OF_NATS: (&str, &str) = ("value: tls://nats:4222\n", "value: {{ include \"mainstay.natsURL\" . | quote }}\n");
const LOGIN_OF_NATS: (&str, &str) = (
    "            - name: MAINSTAY_NATS_CREDENTIALS\n              value: /etc/nats\n",
    "{{- if include \"mainstay.natsSecret\" . }}\n            - name: MAINSTAY_NATS_CREDENTIALS\n              value: /etc/nats\n{{- end }}\n",
);

pub(super) const TEMPLATES: [Template; 20] = [
    Template {
        replacements: &[(
            "    resources: [leases]\n    verbs: [get, create, update]\n",
            "    resources: [leases]\n    verbs: [get, {{ if .Values.shards }}list, watch, {{ end }}create, update]\n",
        )],
        ..template("rbac.yaml", "rbac.yaml")
    },
    template("network-policy.yaml", "network-policy.yaml"),
    template("disruption-budget.yaml", "disruption-budget.yaml"),
    Template {
        replacements: &[
            (
                "  - name: validation.webhook.serverless.kyma-project.io\n",
                "{{- if include \"mainstay.has\" (list . \"functions\") }}\n  - name: \
                 validation.webhook.serverless.kyma-project.io\n",
            ),
            (
                "  - name: gitrepository.validation.webhook.serverless.kyma-project.io\n",
                "{{- end }}\n  - name: gitrepository.validation.webhook.serverless.kyma-project.io\n",
            ),
        ],
        ..template("webhooks.yaml", "webhooks.yaml")
    },
    Template {
        condition: Some(".Values.egressPolicy"),
        replacements: &[(
            "        - port: 6443\n          protocol: TCP\n",
            "        - port: 6443\n          protocol: TCP\n{{- include \"mainstay.egressPort\" . }}\n",
        )],
        ..template("egress/network-policy.yaml", "egress.yaml")
    },
    Template {
        condition: Some("and (has \"exposure\" .Values.components) .Values.crds"),
        replacements: &[("\nmetadata:\n", "\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n")],
        ..template("exposure/crd.yaml", "exposure-crd.yaml")
    },
    Template { condition: EXPOSURE, ..template("exposure/rbac.yaml", "exposure-rbac.yaml") },
    Template {
        condition: Some("and (has \"eventing\" .Values.components) .Values.crds"),
        replacements: &[("\nmetadata:\n", "\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n")],
        ..template("eventing/crd.yaml", "eventing-crd.yaml")
    },
    Template {
        condition: Some("and (has \"eventing\" .Values.components) (ne .Release.Namespace \"kyma-system\")"),
        replacements: &[("\nmetadata:\n", "\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n")],
        ..template("eventing/namespace.yaml", "eventing-namespace.yaml")
    },
    Template { condition: EVENTING, ..template("eventing/rbac.yaml", "eventing-rbac.yaml") },
    Template {
        condition: WITH_JOURNAL,
        replacements: &[KEPT_EVENTS, METADATA_OF_EVENTING],
        ..template("eventing/deployment.yaml", "eventing-deployment.yaml")
    },
    Template { condition: WITH_JOURNAL, ..template("eventing/network-policy.yaml", "eventing-network-policy.yaml") },
    Template {
        condition: ON_NATS,
        replacements: &[
            METADATA_OF_PUBLISHER,
            METADATA_OF_DISPATCHER,
            (
                "spec:\n  replicas: 2\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: mainstay-eventing-publisher\n",
                "spec:\n  replicas: {{ .Values.nats.publishers }}\n  selector:\n    matchLabels:\n      \
                 app.kubernetes.io/name: mainstay-eventing-publisher\n",
            ),
            (
                "spec:\n  replicas: 2\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: mainstay-eventing-dispatcher\n",
                "spec:\n  replicas: {{ .Values.nats.dispatchers }}\n  selector:\n    matchLabels:\n      \
                 app.kubernetes.io/name: mainstay-eventing-dispatcher\n",
            ),
            SHARE_ON_NATS,
            REPLICAS_ON_NATS,
            URL_OF_NATS,
            LOGIN_OF_NATS,
            (
                "          volumeMounts:\n            - name: credentials\n",
                "{{- if include \"mainstay.natsSecret\" . }}\n          volumeMounts:\n            - name: credentials\n",
            ),
            (
                "secretName: nats\n            defaultMode: 288\n",
                "secretName: {{ include \"mainstay.natsSecret\" . | quote }}\n            defaultMode: 288\n{{- include \"mainstay.natsItems\" . }}\n{{- end }}\n",
            ),
        ],
        ..template("eventing/nats.yaml", "eventing-nats.yaml")
    },
    Template {
        condition: Some("and (include \"mainstay.onNats\" .) .Values.nats.drainJournal"),
        replacements: &[
            KEPT_EVENTS,
            METADATA_OF_EVENTING,
            SHARE_ON_NATS,
            REPLICAS_ON_NATS,
            ("--nats-url=tls://nats:4222\n", "--nats-url={{ include \"mainstay.natsURL\" . }}\n"),
            (
                "            - --nats-credentials=/etc/nats\n",
                "{{- if include \"mainstay.natsSecret\" . }}\n            - --nats-credentials=/etc/nats\n{{- end }}\n",
            ),
            (
                "            - name: credentials\n              mountPath: /etc/nats\n              readOnly: true\n",
                "{{- if include \"mainstay.natsSecret\" . }}\n            - name: credentials\n              mountPath: /etc/nats\n              \
                 readOnly: true\n{{- end }}\n",
            ),
            (
                "        - name: credentials\n          secret:\n            secretName: nats\n            defaultMode: 288\n",
                "{{- if include \"mainstay.natsSecret\" . }}\n        - name: credentials\n          secret:\n            secretName: \
                 {{ include \"mainstay.natsSecret\" . | quote }}\n            defaultMode: 288\n{{- include \"mainstay.natsItems\" . \
                 }}\n{{- end }}\n",
            ),
        ],
        ..template("eventing/drain.yaml", "eventing-drain.yaml")
    },
    Template {
        condition: Some("and (include \"mainstay.onNats\" .) .Values.nats.server"),
        replacements: &[
            METADATA_OF_NATS,
            ("  replicas: 3\n  serviceName:", "  replicas: {{ .Values.nats.replicas }}\n  serviceName:"),
            (
                "sync_interval: \"2m\"\n",
                "sync_interval: {{ ternary \"\\\"2m\\\"\" \"always\" (gt (int .Values.nats.replicas) 1) }}\n",
            ),
            ("    cluster {\n", "{{- if gt (int .Values.nats.replicas) 1 }}\n    cluster {\n"),
            (
                "    }\n---\napiVersion: apps/v1\nkind: StatefulSet\n",
                "    }\n{{- end }}\n---\napiVersion: apps/v1\nkind: StatefulSet\n",
            ),
            (
                "          image: docker.io/library/nats:",
                "          image: {{ .Values.nats.image | default \"docker.io/library/nats:",
            ),
            (
                "\n          command:\n            - nats-server\n",
                "\" | quote }}\n          command:\n            - nats-server\n",
            ),
        ],
        ..template("eventing/nats-server.yaml", "eventing-nats-server.yaml")
    },
    Template {
        condition: Some("has \"console\" .Values.components"),
        replacements: &[
            METADATA_OF_CONSOLE,
            (
                "            - --log-format=json\n          env:\n",
                "            - --log-format=json\n{{- range .Values.console.urls }}\n            - --url={{ . }}\n{{- end }}\n{{- with \
                 .Values.console.clusterName }}\n            - {{ printf \"--cluster-name=%s\" . | quote }}\n{{- end }}\n{{- if ne \
                 .Values.console.signIn \"form\" }}\n            - --sign-in={{ .Values.console.signIn }}\n{{- end }}\n{{- if eq \
                 .Values.console.signIn \"oidc\" }}\n            - {{ printf \"--oidc-issuer=%s\" .Values.console.oidc.issuer | quote }}\n            - \
                 {{ printf \"--oidc-client-id=%s\" .Values.console.oidc.clientID | quote }}\n{{- range .Values.console.oidc.scopes }}\n            - {{ \
                 printf \"--oidc-scope=%s\" . | quote }}\n{{- end }}\n{{- if .Values.console.oidc.secret }}\n            - \
                 --oidc-credentials=/etc/oidc\n{{- end }}\n{{- end }}\n          env:\n",
            ),
            (
                "              mountPath: /etc/cluster\n              readOnly: true\n",
                "              mountPath: /etc/cluster\n              readOnly: true\n{{- if and (eq .Values.console.signIn \"oidc\") \
                 .Values.console.oidc.secret }}\n            - name: oidc\n              mountPath: /etc/oidc\n              readOnly: \
                 true\n{{- end }}\n",
            ),
            (
                "            name: kube-root-ca.crt\n",
                "            name: kube-root-ca.crt\n{{- if and (eq .Values.console.signIn \"oidc\") .Values.console.oidc.secret }}\n        - \
                 name: oidc\n          secret:\n            secretName: {{ .Values.console.oidc.secret | quote }}\n            defaultMode: \
                 288\n{{- end }}\n",
            ),
        ],
        ..template("console/deployment.yaml", "console.yaml")
    },
    Template { condition: Some(".Values.v1alpha2"), ..template("v1alpha2/rbac.yaml", "v1alpha2.yaml") },
    Template {
        replacements: &[
            (
                "          # Build it from this repository, push it to your registry, and name it here or in a \
                 kustomization's `images`.\n",
                "",
            ),
            METADATA,
            (
                "\nspec:\n  replicas: 1\n",
                "\nspec:\n  replicas: {{ max (int .Values.replicas) (int .Values.shards) }}\n",
            ),
            (
                "      serviceAccountName: mainstay\n",
                "{{- include \"mainstay.agentPod\" . }}\n      serviceAccountName: mainstay\n",
            ),
            (
                "            # The same image: builds of Functions run `mainstay build` in it.\n            - name: \
                 MAINSTAY_BUILDER_IMAGE\n              value: {{ .Values.image | quote }}\n",
                "{{- if include \"mainstay.has\" (list . \"functions\") }}\n            # The same image: builds of Functions run \
                 `mainstay build` in it.\n            - name: MAINSTAY_BUILDER_IMAGE\n              value: \
                 {{ .Values.image | quote }}\n{{- end }}\n{{- include \"mainstay.environment\" . }}\n",
            ),
            (
                "            - --log-format=json\n          env:\n",
                "            - --log-format=json\n{{- include \"mainstay.arguments\" . }}\n          env:\n",
            ),
        ],
        ..template("deployment.yaml", "deployment.yaml")
    },
    Template {
        condition: Some("eq (include \"mainstay.registry\" .) \"internal\""),
        replacements: &[
            ("  annotations:\n", "  annotations:\n    helm.sh/resource-policy: keep\n"),
            (
                "    app.kubernetes.io/name: mainstay\nspec:\n",
                "    app.kubernetes.io/name: mainstay\n  annotations:\n    helm.sh/resource-policy: keep\nspec:\n",
            ),
            METADATA_OF_REGISTRY,
            (
                "  ingress:\n    - ports:\n        - port: registry\n          protocol: TCP\n",
                "  ingress:\n    - ports:\n        - port: registry\n          protocol: TCP\n{{- include \
                 \"mainstay.registryClients\" . }}\n",
            ),
        ],
        ..template("registry/registry.yaml", "registry.yaml")
    },
    Template {
        condition: Some(".Values.crds"),
        replacements: &[
            ("\nmetadata:\n", "\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n"),
            ("    served: false\n", "    served: {{ .Values.v1alpha2 }}\n"),
            (
                FUNCTIONS_BEGIN,
                "{{- if include \"mainstay.has\" (list . \"functions\") }}\n---\napiVersion: apiextensions.k8s.io/v1\nkind: \
                 CustomResourceDefinition\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n  name: \
                 functions.serverless.kyma-project.io\n",
            ),
            (
                "spec:\n  group: serverless.kyma-project.io\n  names:\n    kind: Function\n",
                "spec:\n{{- include \"mainstay.conversion\" . }}\n  group: serverless.kyma-project.io\n  names:\n    \
                 kind: Function\n",
            ),
        ],
        ..template("crds.yaml", "crds.yaml")
    },
];

/// The head of the Functions CRD, which is the last one, after the keep annotation was added.
const FUNCTIONS_BEGIN: &str = "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  annotations:\n    \
                               helm.sh/resource-policy: keep\n  name: functions.serverless.kyma-project.io\n";
