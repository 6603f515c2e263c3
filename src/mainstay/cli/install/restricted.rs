//! The permissions of an agent that applies objects only by impersonation (`--profile restricted`).
//!
//! There are two ServiceAccounts. The agent's ServiceAccount, `mainstay`, reads the chosen kinds, keeps its records in
//! its own namespace, and may impersonate only the second one. The second ServiceAccount may apply the chosen kinds in
//! the chosen namespaces. The roles of both contain no wildcards, no `escalate` or `bind`, no subresources of pods, and
//! no tokens.
//!
//! Invariant: only the agent reads Secrets of its namespace. The agent reads Secrets of other namespaces only if
//! Secrets are among the chosen kinds, and then only in the chosen namespaces.

use serde_json::{Value, json};

use super::choice::Restricted;
use super::kinds::{Resource, rules};
use super::request::Installation;
use mainstay_api::names;
use mainstay_cluster::Scope;

/// Verbs for reading objects, and for applying and pruning them.
const READ: [&str; 3] = ["get", "list", "watch"];
const APPLY: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];
/// The agent's `ServiceAccount`.
const AGENT: &str = "mainstay";
/// Names of roles and of their bindings.
const OF_AGENT: &str = "mainstay-agent";
const APPLIES: &str = "mainstay-restricted";
const IMPERSONATES: &str = "mainstay-impersonates";

/// Returns all roles and bindings, except for the role and binding of the agent's Lease.
pub(super) fn rights(installation: &Installation, restricted: &Restricted) -> Vec<Value> {
    let home = &*installation.namespace;
    let (inside, outside): (Vec<&Resource>, Vec<&Resource>) =
        restricted.kinds.iter().partition(|kind| kind.scope == Scope::Namespaced && !restricted.namespaces.is_empty());
    let mut everywhere = in_cluster();
    everywhere.extend(rules(outside.iter().copied(), &READ));
    let mut at_home = in_home();
    if restricted.namespaces.is_empty() {
        everywhere.extend(anywhere());
    } else {
        at_home.extend(anywhere());
        at_home.extend(rules(inside.iter().copied(), &READ));
    }
    let impersonates = json!({
        "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": [restricted.account], "verbs": ["impersonate"],
    });
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": false,
        "metadata": {"name": restricted.account, "namespace": home, "labels": labels()},
    });
    let granted = Granted { home, account: &restricted.account };
    let mut objects = vec![account];
    objects.extend(granted.role(None, OF_AGENT, AGENT, &everywhere));
    objects.extend(granted.role(Some(home), OF_AGENT, AGENT, &at_home));
    objects.extend(granted.role(Some(home), IMPERSONATES, AGENT, &[impersonates]));
    objects.extend(granted.role(None, APPLIES, granted.account, &rules(outside, &APPLY)));
    for namespace in &restricted.namespaces {
        let mut seen = anywhere();
        seen.extend(rules(inside.iter().copied(), &READ));
        objects.extend(granted.role(Some(namespace), OF_AGENT, AGENT, &seen));
        objects.extend(granted.role(Some(namespace), APPLIES, granted.account, &rules(inside.iter().copied(), &APPLY)));
    }
    objects
}

/// Returns the permissions in the whole cluster. These permissions do not include the content of objects.
fn in_cluster() -> Vec<Value> {
    vec![
        json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": READ}),
        json!({"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": READ}),
        json!({
            "apiGroups": ["admissionregistration.k8s.io"], "resources": ["validatingwebhookconfigurations"],
            "resourceNames": [names::ADMISSION], "verbs": ["get", "list", "watch", "patch"],
        }),
    ]
}

/// The kinds of Mainstay that the agent reads in each visible namespace.
const KINDS: [&str; 9] = [
    "gitsyncs",
    "ocirepositories",
    "helmcharts",
    "imagerepositories",
    "imagepolicies",
    "imageupdateautomations",
    "receivers",
    "providers",
    "alerts",
];

/// Returns the permissions in each visible namespace, including the status of a refused GitSync.
fn anywhere() -> Vec<Value> {
    vec![
        json!({"apiGroups": ["mainstay.dev"], "resources": KINDS, "verbs": READ}),
        json!({
            "apiGroups": ["mainstay.dev"], "resources": KINDS.map(|kind| format!("{kind}/status")),
            "verbs": ["get", "update", "patch"],
        }),
        json!({"apiGroups": ["serverless.kyma-project.io"], "resources": ["gitrepositories"], "verbs": READ}),
        json!({"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": READ}),
        json!({"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}),
    ]
}

/// Returns the permissions in the agent's own namespace: credentials, inventories, and followed objects.
fn in_home() -> Vec<Value> {
    vec![
        json!({"apiGroups": ["mainstay.dev"], "resources": ["gitsyncs"], "verbs": ["update", "patch"]}),
        json!({"apiGroups": ["mainstay.dev"], "resources": ["gitsyncs/finalizers"], "verbs": ["update"]}),
        json!({"apiGroups": ["serverless.kyma-project.io"], "resources": ["gitrepositories/status"], "verbs": ["patch"]}),
        json!({"apiGroups": [""], "resources": ["secrets"], "verbs": READ}),
        json!({"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get"]}),
        json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": APPLY}),
    ]
}

fn labels() -> Value {
    json!({names::INSTALLED: names::INSTALLED_AS})
}

/// The ServiceAccounts that receive permissions.
struct Granted<'a> {
    home: &'a str,
    account: &'a str,
}

impl Granted<'_> {
    /// Returns a role and its binding to a `ServiceAccount`, in a namespace or in the whole cluster; empty if there are
    /// no rules.
    fn role(&self, namespace: Option<&str>, name: &str, account: &str, rules: &[Value]) -> Vec<Value> {
        if rules.is_empty() {
            return Vec::new();
        }
        let group = "rbac.authorization.k8s.io";
        let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
        let mut metadata = json!({"name": name, "labels": labels()});
        if let Some(namespace) = namespace {
            metadata["namespace"] = json!(namespace);
        }
        let version = format!("{group}/v1");
        vec![
            json!({"apiVersion": version, "kind": kind, "metadata": metadata, "rules": rules}),
            json!({
                "apiVersion": version, "kind": format!("{kind}Binding"), "metadata": metadata,
                "roleRef": {"apiGroup": group, "kind": kind, "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.home}],
            }),
        ]
    }
}
