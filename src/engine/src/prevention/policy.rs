//! Builds the policy and the binding of a GitSync.
//!
//! The policy rejects changes that the drift loop would revert, and any other change by people. It permits changes to
//! fields which the agent, the cluster or a pause may change. The API server knows neither the store nor the inventory.
//! So the policy protects an object that has the GitSync's label and Mainstay's entry in `managedFields`. A label alone
//! is not enough: users must be able to delete a copy that has it.
//!
//! Invariant: each match condition about the client evaluates to `true` or `false` for any request. Requests of the
//! agent and of the cluster's controllers therefore pass even if a different expression fails, because one false
//! condition is enough to skip the policy.
//! Invariant: strings of a spec occur in expressions only as quoted strings.
//! Invariant: the same GitSync gives the same two objects, with all defaults of the API server.
//!
//! Not here: the end of a pause. Expressions have no clock, so a pause is valid until its annotation is removed, even
//! after `mainstay.dev/until`. The agent reverts changes that are made after that time.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use mainstay_api::conditions::cut;
use mainstay_api::names::{
    ANNOTATION_PREFIX, DISABLED, MANAGER, PREVENTION_LABEL, RECONCILE, RESTARTED_AT, SYNC_LABEL,
};
use mainstay_object::{Digest, Owner, printable};

/// `apiVersion` of both kinds.
pub(super) const API_VERSION: &str = "admissionregistration.k8s.io/v1";
/// Maximum length of an object's name.
const LONGEST_NAME: usize = 253;
/// Maximum length in bytes of a string from a spec in a message.
const LONGEST_PART: usize = 200;
/// User names of cluster components.
const COMPONENTS: [&str; 4] =
    ["system:apiserver", "system:cloud-controller-manager", "system:kube-controller-manager", "system:kube-scheduler"];
/// Groups of cluster components. The ServiceAccounts of controllers are in kube-system.
const COMPONENT_GROUPS: [&str; 2] = ["system:nodes", "system:serviceaccounts:kube-system"];
/// Metadata that is not compared as a whole: the server sets it, or another expression compares it.
const UNCOUNTED: [&str; 4] = ["annotations", "generation", "managedFields", "resourceVersion"];

/// The namespaces in which a GitSync may have objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// All namespaces, and cluster-scoped objects.
    None,
    /// These namespaces, and no cluster-scoped objects.
    Namespaces(BTreeSet<String>),
}

/// The inputs of a GitSync's policy and binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protection {
    /// The GitSync.
    pub owner: Owner,
    /// The value of the label on its objects.
    pub label: String,
    /// The source of the GitSync, with kind, namespace and name.
    pub repository: String,
    /// The branch, tag or commit that the GitSync follows.
    pub reference: String,
    /// The directory of its manifests.
    pub base_dir: String,
    /// The user name of the impersonated ServiceAccount.
    pub account: Option<String>,
    /// The namespaces in which the GitSync may have objects.
    pub limit: Limit,
}

/// Returns the name of a GitSync's policy and binding. It is unique, because a namespace contains no dot.
pub(super) fn name_of(owner: &Owner) -> String {
    let resource = owner.resource();
    let name = format!("mainstay-{}.{}", resource.namespace(), resource.name());
    if name.len() <= LONGEST_NAME { name } else { format!("mainstay-{}", Digest::of(name.as_bytes())) }
}

impl Protection {
    /// The name of both objects.
    pub(super) fn name(&self) -> String {
        name_of(&self.owner)
    }

    /// Builds the policy; `agent` is the user name of the agent.
    pub(super) fn policy(&self, agent: &str) -> Value {
        let conditions = self.conditions(agent);
        let conditions = conditions.iter().map(|(name, expression)| json!({"name": name, "expression": expression}));
        let variables = self.variables();
        let variables = variables.iter().map(|(name, expression)| json!({"name": name, "expression": expression}));
        let (before, after) = self.message();
        let spec = json!({
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": {},
                "objectSelector": {"matchLabels": {SYNC_LABEL: self.label}},
                // Subresources are not matched, because autoscalers, kubelets and others use them.
                "resourceRules": [rule("*")],
            },
            "matchConditions": conditions.collect::<Value>(),
            "variables": variables.collect::<Value>(),
            "validations": [{
                "expression": "variables.isLeftToOthers",
                "message": format!("it {before}{after}"),
                "messageExpression": format!(
                    "variables.object + {} + variables.object + {}", quoted(&format!(" {before}")), quoted(&after)
                ),
                "reason": "Forbidden",
            }],
        });
        self.object("ValidatingAdmissionPolicy", spec)
    }

    /// Builds the binding.
    pub(super) fn binding(&self) -> Value {
        let mut spec = json!({"policyName": self.name(), "validationActions": ["Deny"]});
        if let Limit::Namespaces(namespaces) = &self.limit {
            spec["matchResources"] = json!({
                "matchPolicy": "Equivalent",
                "namespaceSelector": {"matchExpressions": [{
                    "key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces,
                }]},
                "objectSelector": {},
                // This rule is limited to namespaced objects, because a namespace selector matches every cluster-scoped
                // object.
                "resourceRules": [rule("Namespaced")],
            });
        }
        self.object("ValidatingAdmissionPolicyBinding", spec)
    }

    fn object(&self, kind: &str, spec: Value) -> Value {
        json!({
            "apiVersion": API_VERSION, "kind": kind,
            "metadata": {"name": self.name(), "labels": {PREVENTION_LABEL: self.label}},
            "spec": spec,
        })
    }

    /// The match conditions. The policy evaluates a request only if all are true.
    fn conditions(&self, agent: &str) -> Vec<(&'static str, String)> {
        let own = [Some(agent), self.account.as_deref()];
        let users = list(own.into_iter().flatten().chain(COMPONENTS));
        let groups = list(COMPONENT_GROUPS);
        let (label, disabled) = (quoted(&self.label), quoted(DISABLED));
        let is_ours = applied_by_us("f");
        vec![
            ("is-not-of-mainstay-or-the-cluster", format!("!(request.userInfo.username in {users})")),
            (
                "is-not-of-a-controller",
                format!("!has(request.userInfo.groups) || !request.userInfo.groups.exists(g, g in {groups})"),
            ),
            ("is-stored", "!request.dryRun".to_owned()),
            (
                "is-managed",
                format!(
                    "oldObject.metadata.?labels[?{}].orValue('') == {label} && \
                     oldObject.metadata.?managedFields.orValue([]).exists(f, {is_ours}) && \
                     !oldObject.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) == true)",
                    quoted(SYNC_LABEL)
                ),
            ),
            (
                "is-not-under-break-glass",
                format!("oldObject.metadata.?annotations[?{}].orValue('') != {disabled}", quoted(RECONCILE)),
            ),
            ("is-not-being-deleted", "!has(oldObject.metadata.deletionTimestamp)".to_owned()),
        ]
    }

    /// The variables of the validation.
    fn variables(&self) -> Vec<(&'static str, String)> {
        let (ours, manager) = (applied_by_us("f"), quoted(MANAGER));
        let label = format!("?labels[?{}].orValue('')", quoted(SYNC_LABEL));
        let annotations = |object: &str| format!("{object}.metadata.?annotations.orValue({{}})");
        let (new, old) = ("object", "oldObject");
        vec![
            (
                "object",
                "(request.kind.group == '' ? request.kind.kind : request.kind.kind + '.' + request.kind.group) + ' ' + \
                 (oldObject.metadata.?namespace.orValue('') == '' ? '' : oldObject.metadata.namespace + '/') + \
                 oldObject.metadata.name"
                    .to_owned(),
            ),
            ("isOfAccount", "request.userInfo.username.startsWith('system:serviceaccount:')".to_owned()),
            ("manager", "string(request.?options.?fieldManager.orValue(''))".to_owned()),
            (
                "entries",
                format!("[object, oldObject].map(o, o.metadata.?managedFields.orValue([]).filter(f, {ours}))"),
            ),
            (
                "isTakenOver",
                format!(
                    "variables.isOfAccount && variables.manager == {manager} && !(object.metadata.{label} in ['', {}])",
                    quoted(&self.label)
                ),
            ),
            (
                "isAddition",
                format!(
                    "variables.isOfAccount && variables.manager != {manager} && \
                     variables.entries[0] == variables.entries[1]"
                ),
            ),
            ("isRestart", is_restart()),
            (
                "isSame",
                format!(
                    "{} && {} && {} && variables.entries[0].size() > 0",
                    same_but(new, old, "k in ['metadata', 'status'] || k == 'spec' && variables.isRestart"),
                    same_but("object.metadata", "oldObject.metadata", &format!("k in {}", list(UNCOUNTED))),
                    same_but(
                        &annotations(new),
                        &annotations(old),
                        &format!("k.startsWith({})", quoted(ANNOTATION_PREFIX))
                    ),
                ),
            ),
            (
                "isLeftToOthers",
                "request.operation == 'UPDATE' && \
                 (variables.isSame || variables.isAddition || variables.isTakenOver)"
                    .to_owned(),
            ),
        ]
    }

    /// The parts of the message that precede and follow the name of the object.
    fn message(&self) -> (String, String) {
        let part = |text: &str| cut(&printable(text), LONGEST_PART).to_owned();
        let resource = self.owner.resource();
        let before = format!(
            "is kept as it is in Git by GitSync {resource} (directory {} of {}, {}): change it there; `mainstay trace` says in which file. To change it here all the same: `mainstay pause` for ",
            part(&self.base_dir),
            part(&self.repository),
            part(&self.reference),
        );
        (before, " first, and `mainstay resume` afterwards".to_owned())
    }
}

/// Whether an update only requests a restart, as `kubectl rollout restart` does.
fn is_restart() -> String {
    let template = |object: &str| format!("{object}.spec.template");
    let restarts = |object: &str| format!("{object}.spec.template.metadata.?annotations.orValue({{}})");
    let (new, old) = ("object", "oldObject");
    format!(
        "has(object.spec) && has(oldObject.spec) && has(object.spec.template) && has(oldObject.spec.template) && \
         has(object.spec.template.metadata) && has(oldObject.spec.template.metadata) && {} && {} && {} && {}",
        same_but("object.spec", "oldObject.spec", "k == 'template'"),
        same_but(&template(new), &template(old), "k == 'metadata'"),
        same_but("object.spec.template.metadata", "oldObject.spec.template.metadata", "k == 'annotations'"),
        same_but(&restarts(new), &restarts(old), &format!("k == {}", quoted(RESTARTED_AT))),
    )
}

/// Matches updates and deletions of all resources in a scope.
fn rule(scope: &str) -> Value {
    json!({
        "operations": ["UPDATE", "DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": scope,
    })
}

/// Quotes a string for an expression. CEL uses the escapes of JSON.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn list<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    Value::from_iter(texts).to_string()
}

/// An expression that tests whether an entry of `managedFields` is from an apply of Mainstay.
fn applied_by_us(entry: &str) -> String {
    format!("{entry}.?manager.orValue('') == {} && {entry}.?operation.orValue('') == 'Apply'", quoted(MANAGER))
}

/// An expression that compares two maps without the keys `k` that `excepted` selects.
fn same_but(new: &str, old: &str, excepted: &str) -> String {
    format!("{new}.all(k, {excepted} || k in {old} && {new}[k] == {old}[k]) && {old}.all(k, {excepted} || k in {new})")
}

#[cfg(test)]
mod tests;
