//! The rights of an agent that applies nothing with rights of its own (`--profile restricted`).
//!
//! Two ServiceAccounts: `mainstay`, the agent, reads the chosen kinds, keeps its records in its own namespace, and may impersonate
//! the other one alone. That one may apply the chosen kinds in the chosen namespaces. No role of them has a wildcard, `escalate`,
//! `bind`, a subresource of pods, or tokens.
//!
//! Invariant: nobody but the agent reads Secrets of its namespace; it reads Secrets of other namespaces only if they are among the
//! chosen kinds, and then in the chosen namespaces.

use serde_json::{Value, json};

use super::choice::Restricted;
use super::kinds::{Resource, rules};
use super::request::Installation;
use mainstay_api::names;
use mainstay_cluster::Scope;

/// Verbs to see objects, and to apply and prune them.
const READ: [&str; 3] = ["get", "list", "watch"];
const APPLY: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];
/// The agent's `ServiceAccount`.
const AGENT: &str = "mainstay";
/// Names of roles and of their bindings.
const OF_AGENT: &str = "mainstay-agent";
const APPLIES: &str = "mainstay-restricted";
const IMPERSONATES: &str = "mainstay-impersonates";

/// All roles and bindings besides those of the agent's Lease.
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

/// What the agent needs in the whole cluster: no content of anything.
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

/// What it needs in each namespace that it sees, also to refuse a GitSync there by its status.
fn anywhere() -> Vec<Value> {
    vec![
        json!({"apiGroups": ["mainstay.dev"], "resources": ["gitsyncs", "receivers"], "verbs": READ}),
        json!({
            "apiGroups": ["mainstay.dev"], "resources": ["gitsyncs/status", "receivers/status"],
            "verbs": ["get", "update", "patch"],
        }),
        json!({"apiGroups": ["serverless.kyma-project.io"], "resources": ["gitrepositories"], "verbs": READ}),
        json!({"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": READ}),
        json!({"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}),
    ]
}

/// What it needs in its own namespace: credentials, inventories, and what it follows.
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

/// Whom rights are given to.
struct Granted<'a> {
    home: &'a str,
    account: &'a str,
}

impl Granted<'_> {
    /// A role of a namespace or of the cluster, and its binding to a `ServiceAccount`; none without rules.
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
