//! Whether an object whose update is refused because of a field that cannot be changed may be deleted and created anew.
//!
//! Who asks for that is said by the manifest (the annotation `mainstay.dev/replace`) and by the GitSync (`spec.replace`);
//! what speaks against it, by the live object as it is found right before its deletion.
//!
//! Invariant: what takes other things with it is never deleted for that, and what holds data only where its own manifest
//! names it.
//! Invariant: nothing is deleted that is neither proven to be what we applied nor in the place of what we applied: whoever
//! deletes an object of ours and creates another one under its name has put it in our place. What was never ours stays.
//!
//! Deliberately absent: the proof that it is a field that cannot be changed, for which the server is asked, and the deletion
//! (`apply`).

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
/// The groups of other kinds that have fields which cannot be changed, for whoever leaves them out.
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
/// Characters of a name that are shown.
const SHOWN: usize = 80;

/// The kinds whose objects a GitSync lets be replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplacedKinds(Vec<(String, String)>);

/// Why an object with a field that cannot be changed is not replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Nobody asked for that.
    Unasked,
    /// An annotation forbids it.
    Disabled,
    /// Other things go with it.
    Never(&'static str),
    /// It holds data, and its manifest does not name it.
    HoldsData(&'static str),
    /// It is a claim that was grown to this size, and would have to shrink.
    Grown(String),
    /// It is under break glass.
    Paused,
    /// This annotation, with its value, keeps it from being deleted.
    Kept(&'static str),
    /// A controller owns it.
    Controlled,
    /// It carries the label of another GitSync.
    Anothers,
    /// It is not what we applied, and not in its place.
    NotOurs,
    /// What we applied had ended, so it is not created anew.
    Ended,
    /// The server refuses to create it even where nothing is in its way, for this cause.
    CannotCreate(String),
}

/// Why a live object is not deleted now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It may not be.
    Denied(Denied),
    /// It is being deleted already.
    UnderWay(Terminating),
    /// It is another one than the one whose update was refused.
    Another,
}

/// What is known of an object that is to be replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    /// What it must be.
    pub(crate) desired: &'a Desired,
    /// Who allows it.
    pub(crate) allowed_by: AllowedBy,
    /// An object of this name was applied for its owner.
    pub(crate) was_ours: bool,
    /// That one ended, with what is desired.
    pub(crate) had_ended: bool,
}

impl ReplacedKinds {
    /// Reads `spec.replace`.
    ///
    /// # Errors
    /// What is wrong with each item, and what would be right.
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

/// Kind and group of `Kind.group`, or of `Kind` in the core group.
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
        return Err("has to be Kind.group, such as Job.batch, or Kind in the core group, such as Service".to_owned());
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
        return Err(format!("{why}, so objects of this kind are never deleted and created again; remove it"));
    }
    if is_claim(&key) {
        return Err(format!(
            "it holds data, so each object has to be named by the annotation {REPLACE}: {ENABLED} in its manifest"
        ));
    }
    Ok((kind.to_owned(), group.to_owned()))
}

/// Why an object of this kind is never deleted to be created anew.
fn never(key: &Key) -> Option<&'static str> {
    if key.is("mainstay.dev", "GitSync") {
        return Some("deleting a GitSync ends its work");
    }
    takes_much(key).filter(|_| !is_claim(key))
}

fn is_claim(key: &Key) -> bool {
    key.is("", "PersistentVolumeClaim")
}

/// What an object holds that no repository can bring back.
fn data_of(key: &Key, object: &Value) -> Option<&'static str> {
    if is_claim(key) {
        return Some("it holds data");
    }
    let claims = object.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array);
    let has_claims = key.is("apps", "StatefulSet") && claims.is_some_and(|claims| !claims.is_empty());
    has_claims.then_some("it has volume claims, and so data")
}

/// Who allows that an object is replaced, by its manifest and the kinds of its GitSync.
///
/// # Errors
/// Why nobody does.
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

/// Whether the live object may be deleted for that, as it was found. `is_noted`: the server answered with its UID when we
/// applied it, or it has our entry.
///
/// # Errors
/// Why not.
pub(crate) fn judge(of: &Candidate<'_>, live: &Value, is_proven: bool, now: jiff::Timestamp) -> Result<(), Unfit> {
    let denied = |why| Err(Unfit::Denied(why));
    // What cannot be read as metadata says nothing, so nothing proves that it may go.
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

/// The Mainstay that runs here is not deleted: nobody would be left to create it anew.
///
/// # Errors
/// The live object belongs to it.
pub(crate) fn spare(installation: &Installation, key: &Key, live: &Value) -> Result<(), Unfit> {
    let meta = live.get("metadata").cloned().unwrap_or_default();
    let belongs = |meta: &ObjectMeta| installation.includes(key, meta) || installation.is_bound_by(key, live);
    if serde_json::from_value(meta).is_ok_and(|meta| belongs(&meta)) {
        return Err(Unfit::Denied(Denied::Never("it is part of the Mainstay that runs here")));
    }
    Ok(())
}

/// What is created for trial: the object under another name, or (without one) under its own, without what a second one could
/// not have beside the first.
pub(crate) fn trial(desired: &Desired, name: Option<&str>) -> Value {
    let mut body = desired.whole_body();
    if desired.key.is("", "Service")
        && let Some(spec) = body.get_mut("spec").and_then(Value::as_object_mut)
    {
        // A new Service could not have the addresses that the old one holds.
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

/// A name that nothing has.
pub(crate) fn trial_name(key: &Key) -> String {
    format!("mainstay-trial-{}", Digest::of(key.to_string().as_bytes()))
}

/// What is applied to just this object: an apply to another one of the same name is a conflict.
pub(crate) fn apply_to(body: &Value, live: &Value) -> Value {
    let mut body = body.clone();
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.insert("uid".to_owned(), uid(live).into());
    }
    body
}

impl Denied {
    /// The same, unless a claim was grown and would have to shrink, which its deletion is no way out of. Of this field, the server
    /// refuses only less than it is.
    pub(crate) fn or_grown(self, desired: &Desired, live: &Value, refused: Option<&Refusal>) -> Self {
        let is_refused = refused.is_some_and(|refused| refused.causes.iter().any(|cause| cause.field == CLAIMED));
        let size = live.pointer("/spec/resources/requests/storage").and_then(Value::as_str);
        match size.filter(|_| is_claim(&desired.key) && is_refused) {
            Some(size) => Self::Grown(size.to_owned()),
            None => self,
        }
    }

    /// What a status says, with what to do about it.
    pub fn text(&self, key: &Key) -> String {
        let kind = if key.group.is_empty() { key.kind.to_string() } else { format!("{}.{}", key.kind, key.group) };
        match self {
            Self::Unasked => {
                let rerun = if can_end(key) {
                    format!(
                        "once it has finished, another value of the annotation {RERUN} in its manifest has it created \
                         again; or "
                    )
                } else {
                    String::new()
                };
                format!(
                    "{rerun}delete the object to have it created again, or let Mainstay do that: with `annotations: \
                     {{{REPLACE}: {ENABLED}}}` in the metadata of its manifest, or with `replace: [{kind}]` in the \
                     spec of the \
                     GitSync"
                )
            }
            Self::Disabled => format!("{REPLACE}: {DISABLED} keeps it from being deleted and created again"),
            Self::Never(why) => format!(
                "{why}, so Mainstay never deletes it to create it again: change the manifest back, or replace it by \
                 hand"
            ),
            Self::HoldsData(why) => format!(
                "{why}, so spec.replace does not count for it: delete the object to have it created again, or let \
                 Mainstay do that with `annotations: {{{REPLACE}: {ENABLED}}}` in the metadata of its manifest"
            ),
            Self::Grown(size) => {
                format!("it was grown to {size}, and a claim cannot shrink: commit the size, `{CLAIMED}: {size}`")
            }
            Self::Paused => "it is paused, so it is not deleted and created again".to_owned(),
            Self::Kept(annotation) => {
                format!("{annotation} on the live object keeps it from being deleted and created again: take that off")
            }
            Self::Controlled => "a controller owns it, so it is not deleted and created again".to_owned(),
            Self::Anothers => {
                "it carries the label of another GitSync, so it is not deleted and created again".to_owned()
            }
            Self::NotOurs => {
                "without proof that Mainstay applied it, it is not deleted: delete it to have it created from the \
                 repository"
                    .to_owned()
            }
            Self::Ended => {
                "the one in the repository has finished and is not run again; another object with its name exists and \
                 is not deleted"
                    .to_owned()
            }
            Self::CannotCreate(cause) => {
                format!("it is not deleted, because the API server would not create it again ({cause})")
            }
        }
    }
}

#[cfg(test)]
mod tests;
