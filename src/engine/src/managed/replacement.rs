//! Decides whether an object may be replaced after the server refused an update of an immutable field.
//!
//! The annotation `mainstay.dev/replace` in the manifest and `spec.replace` of the GitSync permit a replacement. The
//! live object, read right before its deletion, may forbid it.
//!
//! Invariant: objects whose deletion deletes other objects are never replaced. Objects with data are replaced only if
//! the annotation permits it.
//! Invariant: a replaced object is proven to be applied by Mainstay, or has the name of an object that Mainstay
//! applied. In the second case a user deleted Mainstay's object and created a different one in its place. Other objects
//! stay.
//!
//! Not here: the proof that a field is immutable, which needs requests to the server, and the deletion (`apply`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::deletion::{kept_by, takes_much};
use super::desired::Desired;
use super::installation::Installation;
use super::verdict::{is_controlled, is_paused, uid};
use mainstay_api::git_sync::AllowedBy;
use mainstay_api::names::{DISABLED, ENABLED, REPLACE, RERUN, SYNC_LABEL};
use mainstay_cluster::{Refusal, Terminating};
use mainstay_object::{Digest, Key, can_end};

/// Kinds of the core group that can be applied.
const CORE: [&str; 15] = [
    "ConfigMap",
    "Endpoints",
    "Event",
    "LimitRange",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodTemplate",
    "ReplicationController",
    "ResourceQuota",
    "Secret",
    "Service",
    "ServiceAccount",
];
/// The groups of other kinds with immutable fields, for the message about a missing group.
const GROUPS: [(&str, &str); 12] = [
    ("ClusterRoleBinding", "rbac.authorization.k8s.io"),
    ("ControllerRevision", "apps"),
    ("CronJob", "batch"),
    ("DaemonSet", "apps"),
    ("Deployment", "apps"),
    ("IngressClass", "networking.k8s.io"),
    ("Job", "batch"),
    ("PriorityClass", "scheduling.k8s.io"),
    ("ReplicaSet", "apps"),
    ("RoleBinding", "rbac.authorization.k8s.io"),
    ("StatefulSet", "apps"),
    ("StorageClass", "storage.k8s.io"),
];
/// The size of a claim.
const CLAIMED: &str = "spec.resources.requests.storage";
/// Maximum number of shown characters of a name.
const SHOWN: usize = 80;

/// The kinds whose objects a GitSync permits to replace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplacedKinds(Vec<(String, String)>);

/// The reason for not replacing an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The manifest and the GitSync do not permit a replacement.
    Unasked,
    /// An annotation forbids the replacement.
    Disabled,
    /// The deletion of such an object always causes this loss.
    Never(&'static str),
    /// The object contains this data, and its manifest does not permit the replacement.
    HoldsData(&'static str),
    /// The object is a claim that was grown to this size, and would have to shrink.
    Grown(String),
    /// The object is paused.
    Paused,
    /// This annotation, with its value, protects the object from deletion.
    Kept(&'static str),
    /// A controller owns the object.
    Controlled,
    /// The object has the label of another GitSync.
    Anothers,
    /// Mainstay did not apply this object or an earlier object of its name.
    NotOurs,
    /// The object that Mainstay applied had ended, so it is not recreated.
    Ended,
    /// The server would refuse the creation of the object for this cause.
    CannotCreate(String),
}

/// The reason for not deleting a live object now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// A guard forbids the deletion.
    Denied(Denied),
    /// The object is already being deleted.
    UnderWay(Terminating),
    /// The object is not the one whose update was refused.
    Another,
}

/// An object to replace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    /// The desired state of the object.
    pub(crate) desired: &'a Desired,
    /// The source of the permission.
    pub(crate) allowed_by: AllowedBy,
    /// Whether an object of this name was applied for its owner.
    pub(crate) was_ours: bool,
    /// Whether that earlier object had ended in its desired state.
    pub(crate) had_ended: bool,
}

impl ReplacedKinds {
    /// Parses `spec.replace`.
    ///
    /// # Errors
    /// The problem of each invalid item, with its remedy.
    pub fn parse(items: &[String]) -> Result<Self, String> {
        let read = |(at, item): (usize, &String)| {
            kind_of(item).map_err(|why| {
                let shown = item.chars().take(SHOWN).collect::<String>();
                format!("spec.replace[{at}]: {shown:?}: {why}")
            })
        };
        let (kinds, problems): (Vec<_>, Vec<_>) = items.iter().enumerate().map(read).partition(Result::is_ok);
        let problems = problems.into_iter().filter_map(Result::err).collect::<Vec<_>>();
        if problems.is_empty() {
            return Ok(Self(kinds.into_iter().filter_map(Result::ok).collect()));
        }
        Err(problems.join("; "))
    }

    fn names(&self, key: &Key) -> bool {
        self.0.iter().any(|(kind, group)| key.is(group, kind))
    }
}

/// Parses `Kind.group`, or `Kind` in the core group. Returns the kind and the group.
fn kind_of(item: &str) -> Result<(String, String), String> {
    let (kind, group) = item.split_once('.').unwrap_or((item, ""));
    let is_kind = kind.starts_with(|c: char| c.is_ascii_uppercase()) && kind.chars().all(|c| c.is_ascii_alphanumeric());
    let is_group = |group: &str| {
        let is_label = |label: &str| {
            let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            !label.is_empty() && label.chars().all(is_letter)
        };
        group.split('.').all(is_label)
    };
    if !is_kind || (item.contains('.') && !is_group(group)) {
        return Err("must be Kind.group, such as Job.batch, or Kind in the core group, such as Service".to_owned());
    }
    if group.is_empty() && !CORE.contains(&kind) {
        let of = GROUPS.iter().find(|(known, _)| *known == kind);
        return Err(match of {
            Some((_, group)) => format!("the core group has no such kind; write {kind}.{group}"),
            None => "the core group has no such kind; write Kind.group".to_owned(),
        });
    }
    let key = Key::new(group, kind, None, "");
    if let Some(why) = never(&key) {
        return Err(format!("{why}, so objects of this kind are never replaced; remove it"));
    }
    if is_claim(&key) {
        return Err(format!(
            "it holds data, so each object must have the annotation {REPLACE}: {ENABLED} in its manifest"
        ));
    }
    Ok((kind.to_owned(), group.to_owned()))
}

/// Returns why objects of this kind are never replaced, if so.
fn never(key: &Key) -> Option<&'static str> {
    if key.is("mainstay.dev", "GitSync") {
        return Some("deleting a GitSync ends its work");
    }
    takes_much(key).filter(|_| !is_claim(key))
}

fn is_claim(key: &Key) -> bool {
    key.is("", "PersistentVolumeClaim")
}

/// Returns the data of an object that no repository can restore.
fn data_of(key: &Key, object: &Value) -> Option<&'static str> {
    if is_claim(key) {
        return Some("it holds data");
    }
    let claims = object.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array);
    let has_claims = key.is("apps", "StatefulSet") && claims.is_some_and(|claims| !claims.is_empty());
    has_claims.then_some("it has volume claims, and so data")
}

/// Returns the permission to replace an object, from its manifest or the kinds of its GitSync.
///
/// # Errors
/// The reason why the replacement is not permitted.
pub(crate) fn permit(desired: &Desired, kinds: &ReplacedKinds) -> Result<AllowedBy, Denied> {
    if let Some(why) = never(&desired.key) {
        return Err(Denied::Never(why));
    }
    let document = desired.object.value();
    match document.pointer("/metadata/annotations").and_then(|all| all.get(REPLACE)?.as_str()) {
        Some(ENABLED) => return Ok(AllowedBy::Annotation),
        Some(DISABLED) => return Err(Denied::Disabled),
        _ => {}
    }
    if let Some(why) = data_of(&desired.key, &document) {
        return Err(Denied::HoldsData(why));
    }
    if kinds.names(&desired.key) { Ok(AllowedBy::Spec) } else { Err(Denied::Unasked) }
}

/// Decides whether the live object may be deleted for a replacement. `is_proven`: the inventory has its UID, or the
/// object has Mainstay's entry in `managedFields`.
///
/// # Errors
/// The reason for not deleting the object.
pub(crate) fn judge(of: &Candidate<'_>, live: &Value, is_proven: bool, now: jiff::Timestamp) -> Result<(), Unfit> {
    let denied = |why| Err(Unfit::Denied(why));
    // Invalid metadata is no proof.
    let Some(meta) = live.get("metadata").and_then(|meta| serde_json::from_value::<ObjectMeta>(meta.clone()).ok())
    else {
        return denied(Denied::NotOurs);
    };
    let label = meta.labels.as_ref().and_then(|labels| labels.get(SYNC_LABEL)).map(String::as_str);
    let is_disabled = meta.annotations.as_ref().and_then(|all| all.get(REPLACE)).is_some_and(|value| value == DISABLED);
    if is_controlled(&meta) {
        return denied(Denied::Controlled);
    }
    if label.is_some() && label != of.desired.label() {
        return denied(Denied::Anothers);
    }
    if is_paused(&meta, now) {
        return denied(Denied::Paused);
    }
    if let Some(terminating) = Terminating::of(&meta) {
        return Err(Unfit::UnderWay(terminating));
    }
    if is_disabled {
        return denied(Denied::Disabled);
    }
    if let Some(annotation) = kept_by(&meta) {
        return denied(Denied::Kept(annotation));
    }
    let is_ours = label.is_some() && is_proven;
    if !is_ours && !of.was_ours {
        return denied(Denied::NotOurs);
    }
    if of.had_ended {
        return denied(Denied::Ended);
    }
    match data_of(&of.desired.key, live).filter(|_| of.allowed_by != AllowedBy::Annotation) {
        Some(why) => denied(Denied::HoldsData(why)),
        None => Ok(()),
    }
}

/// Protects the objects of the running Mainstay: no agent would be left to recreate them.
pub(crate) fn spare(installation: &Installation, key: &Key, live: &Value) -> Result<(), Unfit> {
    let meta = live.get("metadata").cloned().unwrap_or_default();
    let belongs = |meta: &ObjectMeta| installation.includes(key, meta) || installation.is_bound_by(key, live);
    if serde_json::from_value(meta).is_ok_and(|meta| belongs(&meta)) {
        return Err(Unfit::Denied(Denied::Never("it is part of the running installation of Mainstay")));
    }
    Ok(())
}

/// Returns the body of a trial creation, under the given name or its own. Omits fields that a second object cannot have
/// beside the first.
pub(crate) fn trial(desired: &Desired, name: Option<&str>) -> Value {
    let mut body = desired.whole_body();
    if desired.key.is("", "Service")
        && let Some(spec) = body.get_mut("spec").and_then(Value::as_object_mut)
    {
        // The old Service holds these addresses.
        spec.retain(|field, _| !["clusterIP", "clusterIPs", "healthCheckNodePort"].contains(&field.as_str()));
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port.as_object_mut().map(|port| port.remove("nodePort"));
        }
    }
    if desired.key.is("scheduling.k8s.io", "PriorityClass")
        && let Some(root) = body.as_object_mut()
    {
        root.remove("globalDefault");
    }
    if let Some(name) = name {
        body["metadata"]["name"] = json!(name);
    }
    body
}

/// Returns an unused name for a trial.
pub(crate) fn trial_name(key: &Key) -> String {
    format!("mainstay-trial-{}", Digest::of(key.to_string().as_bytes()))
}

/// Returns the body of an apply to this object only: another object of the same name is a conflict.
pub(crate) fn apply_to(body: &Value, live: &Value) -> Value {
    let mut body = body.clone();
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.insert("uid".to_owned(), uid(live).into());
    }
    body
}

impl Denied {
    /// Returns `Grown` if the refusal is about the size of a claim, else itself. The server refuses only a size that is
    /// smaller, and a deletion would not help.
    pub(crate) fn or_grown(self, desired: &Desired, live: &Value, refused: Option<&Refusal>) -> Self {
        let is_refused = refused.is_some_and(|refused| refused.causes.iter().any(|cause| cause.field == CLAIMED));
        let size = live.pointer("/spec/resources/requests/storage").and_then(Value::as_str);
        match size.filter(|_| is_claim(&desired.key) && is_refused) {
            Some(size) => Self::Grown(size.to_owned()),
            None => self,
        }
    }

    /// Returns the text for a status, with the remedy.
    pub fn text(&self, key: &Key) -> String {
        let kind = if key.group.is_empty() { key.kind.to_string() } else { format!("{}.{}", key.kind, key.group) };
        match self {
            Self::Unasked => {
                let rerun = if can_end(key) {
                    format!(
                        "once it has finished, change the annotation {RERUN} in its manifest to have it recreated; or "
                    )
                } else {
                    String::new()
                };
                format!(
                    "{rerun}delete the object to have it recreated, or allow its replacement: `annotations: \
                     {{{REPLACE}: {ENABLED}}}` in the metadata of its manifest, or `replace: [{kind}]` in the spec of \
                     the GitSync"
                )
            }
            Self::Disabled => format!("{REPLACE}: {DISABLED} prevents its replacement"),
            Self::Never(why) => {
                format!("{why}, so Mainstay never replaces it: change the manifest back, or replace the object by hand")
            }
            Self::HoldsData(why) => format!(
                "{why}, so spec.replace does not apply to it: delete the object to have it recreated, or allow its \
                 replacement: `annotations: {{{REPLACE}: {ENABLED}}}` in the metadata of its manifest"
            ),
            Self::Grown(size) => {
                format!("it was grown to {size}, and a claim cannot shrink: commit the size, `{CLAIMED}: {size}`")
            }
            Self::Paused => "it is paused, so it is not replaced".to_owned(),
            Self::Kept(annotation) => {
                format!("{annotation} on the live object prevents its replacement: remove the annotation")
            }
            Self::Controlled => "a controller owns it, so it is not replaced".to_owned(),
            Self::Anothers => "it carries the label of another GitSync, so it is not replaced".to_owned(),
            Self::NotOurs => {
                "without proof that Mainstay applied it, it is not deleted: delete it to have it created from the \
                 repository"
                    .to_owned()
            }
            Self::Ended => {
                "the object from the repository has finished and is not run again; the object in the cluster is a \
                 different one with the same name, and is not deleted"
                    .to_owned()
            }
            Self::CannotCreate(cause) => {
                format!("it is not deleted, because the API server would reject the new object ({cause})")
            }
        }
    }
}

#[cfg(test)]
mod tests;
