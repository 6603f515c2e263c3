//! The fields of decoded messages: number, name and type.
//!
//! Not here: status, and all fields that neither `kubectl create` nor Helm sets.

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    /// A string; empty means unset.
    Text,
    /// Bytes, base64 in JSON.
    Bytes,
    /// A number behind a pointer: zero is a value.
    Number,
    /// A number: zero means unset.
    Count,
    /// A boolean behind a pointer: false is a value.
    Bool,
    /// A boolean: false means unset.
    Flag,
    /// `resource.Quantity`.
    Quantity,
    /// `intstr.IntOrString`.
    IntOrText,
    /// A message.
    Message(Message),
    /// A repeated field.
    List(&'static Field),
    /// A map with string keys.
    Map(&'static Field),
}

/// Number, name and type of each field. A message without a name is embedded: its fields belong to the parent.
pub(super) type Message = &'static [(u64, &'static str, Field)];

use Field::{Bool, Bytes, Count, Flag, IntOrText, List, Map, Number, Quantity, Text};

const fn message(message: Message) -> Field {
    Field::Message(message)
}

const TEXTS: Field = List(&Text);
const TEXT_MAP: Field = Map(&Text);

const METADATA: Field = message(&[
    (1, "name", Text),
    (2, "generateName", Text),
    (3, "namespace", Text),
    (4, "selfLink", Text),
    (5, "uid", Text),
    (6, "resourceVersion", Text),
    (7, "generation", Count),
    (11, "labels", TEXT_MAP),
    (12, "annotations", TEXT_MAP),
    (13, "ownerReferences", List(&OWNER)),
    (14, "finalizers", TEXTS),
]);
const OWNER: Field = message(&[
    (1, "kind", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (5, "apiVersion", Text),
    (6, "controller", Bool),
    (7, "blockOwnerDeletion", Bool),
]);
const SELECTOR: Field = message(&[
    (1, "matchLabels", TEXT_MAP),
    (2, "matchExpressions", List(&message(&[(1, "key", Text), (2, "operator", Text), (3, "values", TEXTS)]))),
]);
const NAMED: Field = message(&[(1, "name", Text)]);

const DELETE_OPTIONS: Message = &[
    (1, "gracePeriodSeconds", Number),
    (2, "preconditions", message(&[(1, "uid", Text), (2, "resourceVersion", Text)])),
    (3, "orphanDependents", Bool),
    (4, "propagationPolicy", Text),
    (5, "dryRun", TEXTS),
];
const NAMESPACE: Message = &[(1, "metadata", METADATA), (2, "spec", message(&[(1, "finalizers", TEXTS)]))];
const CONFIG_MAP: Message =
    &[(1, "metadata", METADATA), (2, "data", TEXT_MAP), (3, "binaryData", Map(&Bytes)), (4, "immutable", Bool)];
const SECRET: Message = &[
    (1, "metadata", METADATA),
    (2, "data", Map(&Bytes)),
    (3, "type", Text),
    (4, "stringData", TEXT_MAP),
    (5, "immutable", Bool),
];
const SERVICE_ACCOUNT: Message =
    &[(1, "metadata", METADATA), (3, "imagePullSecrets", List(&NAMED)), (4, "automountServiceAccountToken", Bool)];
const QUOTA: Message =
    &[(1, "metadata", METADATA), (2, "spec", message(&[(1, "hard", Map(&Quantity)), (2, "scopes", TEXTS)]))];
const SERVICE: Message = &[
    (1, "metadata", METADATA),
    (
        2,
        "spec",
        message(&[
            (1, "ports", List(&SERVICE_PORT)),
            (2, "selector", TEXT_MAP),
            (3, "clusterIP", Text),
            (4, "type", Text),
            (5, "externalIPs", TEXTS),
            (7, "sessionAffinity", Text),
            (8, "loadBalancerIP", Text),
            (10, "externalName", Text),
            (11, "externalTrafficPolicy", Text),
        ]),
    ),
];
const SERVICE_PORT: Field = message(&[
    (1, "name", Text),
    (2, "protocol", Text),
    (3, "port", Count),
    (4, "targetPort", IntOrText),
    (5, "nodePort", Count),
    (6, "appProtocol", Text),
]);

const CONTAINER: Field = message(&[
    (1, "name", Text),
    (2, "image", Text),
    (3, "command", TEXTS),
    (4, "args", TEXTS),
    (5, "workingDir", Text),
    (
        6,
        "ports",
        List(&message(&[
            (1, "name", Text),
            (2, "hostPort", Count),
            (3, "containerPort", Count),
            (4, "protocol", Text),
            (5, "hostIP", Text),
        ])),
    ),
    (7, "env", List(&message(&[(1, "name", Text), (2, "value", Text)]))),
    (8, "resources", message(&[(1, "limits", Map(&Quantity)), (2, "requests", Map(&Quantity))])),
    (13, "terminationMessagePath", Text),
    (14, "imagePullPolicy", Text),
    (16, "stdin", Flag),
    (17, "stdinOnce", Flag),
    (18, "tty", Flag),
    (20, "terminationMessagePolicy", Text),
]);
const POD_SPEC: Field = message(&[
    (2, "containers", List(&CONTAINER)),
    (3, "restartPolicy", Text),
    (4, "terminationGracePeriodSeconds", Number),
    (5, "activeDeadlineSeconds", Number),
    (6, "dnsPolicy", Text),
    (7, "nodeSelector", TEXT_MAP),
    (8, "serviceAccountName", Text),
    (9, "serviceAccount", Text),
    (10, "nodeName", Text),
    (11, "hostNetwork", Flag),
    (14, "securityContext", message(&[])),
    (15, "imagePullSecrets", List(&NAMED)),
    (19, "schedulerName", Text),
    (20, "initContainers", List(&CONTAINER)),
    (21, "automountServiceAccountToken", Bool),
]);
const TEMPLATE: Field = message(&[(1, "metadata", METADATA), (2, "spec", POD_SPEC)]);
const DEPLOYMENT: Message = &[
    (1, "metadata", METADATA),
    (
        2,
        "spec",
        message(&[
            (1, "replicas", Number),
            (2, "selector", SELECTOR),
            (3, "template", TEMPLATE),
            (
                4,
                "strategy",
                message(&[
                    (1, "type", Text),
                    (2, "rollingUpdate", message(&[(1, "maxUnavailable", IntOrText), (2, "maxSurge", IntOrText)])),
                ]),
            ),
            (5, "minReadySeconds", Count),
            (6, "revisionHistoryLimit", Number),
            (7, "paused", Flag),
            (9, "progressDeadlineSeconds", Number),
        ]),
    ),
];
const JOB_SPEC: Field = message(&[
    (1, "parallelism", Number),
    (2, "completions", Number),
    (3, "activeDeadlineSeconds", Number),
    (4, "selector", SELECTOR),
    (5, "manualSelector", Bool),
    (6, "template", TEMPLATE),
    (7, "backoffLimit", Number),
    (8, "ttlSecondsAfterFinished", Number),
    (9, "completionMode", Text),
    (10, "suspend", Bool),
]);
const JOB: Message = &[(1, "metadata", METADATA), (2, "spec", JOB_SPEC)];
const CRON_JOB: Message = &[
    (1, "metadata", METADATA),
    (
        2,
        "spec",
        message(&[
            (1, "schedule", Text),
            (2, "startingDeadlineSeconds", Number),
            (3, "concurrencyPolicy", Text),
            (4, "suspend", Bool),
            (5, "jobTemplate", message(JOB)),
            (6, "successfulJobsHistoryLimit", Number),
            (7, "failedJobsHistoryLimit", Number),
            (8, "timeZone", Text),
        ]),
    ),
];

const RULE: Field = message(&[
    (1, "verbs", TEXTS),
    (2, "apiGroups", TEXTS),
    (3, "resources", TEXTS),
    (4, "resourceNames", TEXTS),
    (5, "nonResourceURLs", TEXTS),
]);
const ROLE: Message = &[
    (1, "metadata", METADATA),
    (2, "rules", List(&RULE)),
    (3, "aggregationRule", message(&[(1, "clusterRoleSelectors", List(&SELECTOR))])),
];
const BINDING: Message = &[
    (1, "metadata", METADATA),
    (
        2,
        "subjects",
        List(&message(&[(1, "kind", Text), (2, "apiGroup", Text), (3, "name", Text), (4, "namespace", Text)])),
    ),
    (3, "roleRef", message(&[(1, "apiGroup", Text), (2, "kind", Text), (3, "name", Text)])),
];
const PRIORITY_CLASS: Message = &[
    (1, "metadata", METADATA),
    (2, "value", Number),
    (3, "globalDefault", Flag),
    (4, "description", Text),
    (5, "preemptionPolicy", Text),
];
const BUDGET: Message = &[
    (1, "metadata", METADATA),
    (
        2,
        "spec",
        message(&[(1, "minAvailable", IntOrText), (2, "selector", SELECTOR), (3, "maxUnavailable", IntOrText)]),
    ),
];

const INGRESS_BACKEND: Field = message(&[
    (3, "resource", message(&[(1, "apiGroup", Text), (2, "kind", Text), (3, "name", Text)])),
    (4, "service", message(&[(1, "name", Text), (2, "port", message(&[(1, "name", Text), (2, "number", Count)]))])),
]);
const INGRESS_PATHS: Field =
    List(&message(&[(1, "path", Text), (2, "backend", INGRESS_BACKEND), (3, "pathType", Text)]));
const INGRESS: Message = &[
    (1, "metadata", METADATA),
    (
        2,
        "spec",
        message(&[
            (1, "defaultBackend", INGRESS_BACKEND),
            (2, "tls", List(&message(&[(1, "hosts", TEXTS), (2, "secretName", Text)]))),
            // The value of a rule is inlined in JSON.
            (
                3,
                "rules",
                List(&message(&[
                    (1, "host", Text),
                    (2, "", message(&[(1, "http", message(&[(1, "paths", INGRESS_PATHS)]))])),
                ])),
            ),
            (4, "ingressClassName", Text),
        ]),
    ),
];
const TARGET_REF: Field = message(&[(1, "kind", Text), (2, "name", Text), (3, "apiVersion", Text)]);
const AUTOSCALER_V1: Message = &[
    (1, "metadata", METADATA),
    (
        2,
        "spec",
        message(&[
            (1, "scaleTargetRef", TARGET_REF),
            (2, "minReplicas", Number),
            (3, "maxReplicas", Count),
            (4, "targetCPUUtilizationPercentage", Number),
        ]),
    ),
];
const METRIC_TARGET: Field = message(&[
    (1, "type", Text),
    (2, "value", Quantity),
    (3, "averageValue", Quantity),
    (4, "averageUtilization", Number),
]);
const AUTOSCALER_V2: Message = &[
    (1, "metadata", METADATA),
    (
        2,
        "spec",
        message(&[
            (1, "scaleTargetRef", TARGET_REF),
            (2, "minReplicas", Number),
            (3, "maxReplicas", Count),
            (
                4,
                "metrics",
                List(&message(&[
                    (1, "type", Text),
                    (4, "resource", message(&[(1, "name", Text), (2, "target", METRIC_TARGET)])),
                ])),
            ),
        ]),
    ),
];

const SELF_REVIEW: Message = &[(1, "metadata", METADATA)];
const TOKEN_REQUEST: Message = &[
    (1, "metadata", METADATA),
    (
        2,
        "spec",
        message(&[
            (1, "audiences", TEXTS),
            (
                3,
                "boundObjectRef",
                message(&[(1, "kind", Text), (2, "apiVersion", Text), (3, "name", Text), (4, "uid", Text)]),
            ),
            (4, "expirationSeconds", Number),
        ]),
    ),
];
const ACCESS_REVIEW: Message = &[
    (1, "metadata", METADATA),
    (
        2,
        "spec",
        message(&[
            (
                1,
                "resourceAttributes",
                message(&[
                    (1, "namespace", Text),
                    (2, "verb", Text),
                    (3, "group", Text),
                    (4, "version", Text),
                    (5, "resource", Text),
                    (6, "subresource", Text),
                    (7, "name", Text),
                ]),
            ),
            (2, "nonResourceAttributes", message(&[(1, "path", Text), (2, "verb", Text)])),
        ]),
    ),
];
const RULES_REVIEW: Message = &[(1, "metadata", METADATA), (2, "spec", message(&[(1, "namespace", Text)]))];

/// Returns the message of a kind.
pub(super) fn of(api_version: &str, kind: &str) -> Option<Message> {
    Some(match (api_version, kind) {
        ("v1", "Namespace") => NAMESPACE,
        ("v1", "ConfigMap") => CONFIG_MAP,
        ("v1", "Secret") => SECRET,
        ("v1", "ServiceAccount") => SERVICE_ACCOUNT,
        ("v1", "ResourceQuota") => QUOTA,
        ("v1", "Service") => SERVICE,
        ("apps/v1", "Deployment") => DEPLOYMENT,
        ("batch/v1", "Job") => JOB,
        ("batch/v1", "CronJob") => CRON_JOB,
        ("rbac.authorization.k8s.io/v1", "Role" | "ClusterRole") => ROLE,
        ("rbac.authorization.k8s.io/v1", "RoleBinding" | "ClusterRoleBinding") => BINDING,
        ("scheduling.k8s.io/v1", "PriorityClass") => PRIORITY_CLASS,
        ("networking.k8s.io/v1", "Ingress") => INGRESS,
        ("policy/v1", "PodDisruptionBudget") => BUDGET,
        ("autoscaling/v1", "HorizontalPodAutoscaler") => AUTOSCALER_V1,
        ("autoscaling/v2", "HorizontalPodAutoscaler") => AUTOSCALER_V2,
        // Every group has DeleteOptions.
        (_, "DeleteOptions") => DELETE_OPTIONS,
        ("authentication.k8s.io/v1", "SelfSubjectReview") => SELF_REVIEW,
        ("authentication.k8s.io/v1", "TokenRequest") => TOKEN_REQUEST,
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview") => ACCESS_REVIEW,
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview") => RULES_REVIEW,
        _ => return None,
    })
}
