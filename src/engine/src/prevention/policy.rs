//! The policy and the binding of one GitSync.
//!
//! The policy refuses what the drift loop would revert, and, of people, whatever else changes an object: an edit that
//! changes nothing but what the agent, the cluster or a break glass may change passes. It reads of a live object that it is
//! ours (our label and our entry in `managedFields`), as the drift loop does: a label alone is no proof, and whoever copies
//! one must be able to delete the copy.
//!
//! Invariant: every condition about who asks comes to `true` or `false` for any request, so that a failure of another
//! expression never stops the agent or the cluster's own controllers: one condition that is false is enough.
//! Invariant: what comes from a spec is in expressions only as a quoted text.
//! Invariant: the same GitSync gives the same two objects, with every default of the API server written out.
//!
//! Deliberately absent: times. An expression cannot ask what time it is, so a break glass counts here until its annotation
//! is gone, also after `mainstay.dev/until`; the agent reverts what is changed then.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use mainstay_api::conditions::cut;
use mainstay_api::names::{
    ANNOTATION_PREFIX, DISABLED, MANAGER, PREVENTION_LABEL, RECONCILE, RESTARTED_AT, SYNC_LABEL,
};
use mainstay_object::{Digest, Owner, printable};

/// `apiVersion` of both.
pub(super) const API_VERSION: &str = "admissionregistration.k8s.io/v1";
/// Longest name of an object.
const LONGEST_NAME: usize = 253;
/// Longest part of a message that comes from a spec, in bytes.
const LONGEST_PART: usize = 200;
/// Users of the cluster's own components.
const COMPONENTS: [&str; 4] =
    ["system:apiserver", "system:cloud-controller-manager", "system:kube-controller-manager", "system:kube-scheduler"];
/// Groups of the cluster's own components: its controllers have ServiceAccounts in kube-system.
const COMPONENT_GROUPS: [&str; 2] = ["system:nodes", "system:serviceaccounts:kube-system"];
/// What of an object's metadata does not count: the server keeps it, or it is compared by itself.
const UNCOUNTED: [&str; 4] = ["annotations", "generation", "managedFields", "resourceVersion"];

/// Where a GitSync may have objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Everywhere.
    None,
    /// In these namespaces; it has no objects outside of namespaces.
    Namespaces(BTreeSet<String>),
}

/// What a GitSync wants prevented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protection {
    /// The GitSync.
    pub owner: Owner,
    /// Value of the label on its objects.
    pub label: String,
    /// Name of its GitRepository.
    pub repository: String,
    /// What it follows.
    pub reference: String,
    /// The directory.
    pub base_dir: String,
    /// User name of the ServiceAccount that it acts as.
    pub account: Option<String>,
    /// Where it may have objects.
    pub limit: Limit,
}

/// Name of the policy and of the binding of a GitSync. No namespace contains a dot, so no two have the same.
pub(super) fn name_of(owner: &Owner) -> String {
    let resource = owner.resource();
    let name = format!("mainstay-{}.{}", resource.namespace(), resource.name());
    if name.len() <= LONGEST_NAME { name } else { format!("mainstay-{}", Digest::of(name.as_bytes())) }
}

impl Protection {
    /// Name of both objects.
    pub(super) fn name(&self) -> String {
        name_of(&self.owner)
    }

    /// The policy, for an agent that is known as this user.
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
                // Of subresources there is none in it: they are for autoscalers, kubelets and the like.
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

    /// The binding.
    pub(super) fn binding(&self) -> Value {
        let mut spec = json!({"policyName": self.name(), "validationActions": ["Deny"]});
        if let Limit::Namespaces(namespaces) = &self.limit {
            spec["matchResources"] = json!({
                "matchPolicy": "Equivalent",
                "namespaceSelector": {"matchExpressions": [{
                    "key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces,
                }]},
                "objectSelector": {},
                // What lies in no namespace meets every selector of namespaces.
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

    /// Conditions that all hold for what is judged at all.
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

    /// What the validation is composed of.
    fn variables(&self) -> Vec<(&'static str, String)> {
        let (ours, manager) = (applied_by_us("f"), quoted(MANAGER));
        let label = format!("?labels[?{}].orValue('')", quoted(SYNC_LABEL));
        let annotations = |object: &str| format!("{object}.metadata.?annotations.orValue({{}})");
        let template = |object: &str| format!("{object}.spec.template");
        let restarts = |object: &str| format!("{object}.spec.template.metadata.?annotations.orValue({{}})");
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
            (
                "isRestart",
                format!(
                    "has(object.spec) && has(oldObject.spec) && has(object.spec.template) && \
                     has(oldObject.spec.template) && has(object.spec.template.metadata) && \
                     has(oldObject.spec.template.metadata) && {} && {} && {} && {}",
                    same_but("object.spec", "oldObject.spec", "k == 'template'"),
                    same_but(&template(new), &template(old), "k == 'metadata'"),
                    same_but("object.spec.template.metadata", "oldObject.spec.template.metadata", "k == 'annotations'"),
                    same_but(&restarts(new), &restarts(old), &format!("k == {}", quoted(RESTARTED_AT))),
                ),
            ),
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

    /// What is said of an object, before and after it is named once more.
    fn message(&self) -> (String, String) {
        let part = |text: &str| cut(&printable(text), LONGEST_PART).to_owned();
        let (resource, namespace) = (self.owner.resource(), self.owner.resource().namespace());
        let before = format!(
            "is kept as it is in Git by GitSync {resource} (directory {} of GitRepository {namespace}/{}, {}): change it there; `mainstay trace` says in which file. To change it here all the same: `mainstay pause` for ",
            part(&self.base_dir),
            part(&self.repository),
            part(&self.reference),
        );
        (before, " first, and `mainstay resume` afterwards".to_owned())
    }
}

/// Changes and deletions of all objects.
fn rule(scope: &str) -> Value {
    json!({
        "operations": ["UPDATE", "DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": scope,
    })
}

/// A text as an expression. What JSON escapes, expressions escape alike.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn list<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    Value::from_iter(texts).to_string()
}

/// Whether an entry of `managedFields` is that of our applies.
fn applied_by_us(entry: &str) -> String {
    format!("{entry}.?manager.orValue('') == {} && {entry}.?operation.orValue('') == 'Apply'", quoted(MANAGER))
}

/// Whether two maps are the same, but for the keys `k` that an expression holds for.
fn same_but(new: &str, old: &str, excepted: &str) -> String {
    format!("{new}.all(k, {excepted} || k in {old} && {new}[k] == {old}[k]) && {old}.all(k, {excepted} || k in {new})")
}

#[cfg(test)]
mod tests;
