//! The verdict on an event: whether an object must be reverted.
//!
//! Invariant: a verdict depends only on the event, the stored state, the policy and the time.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::desired::Mark;
use super::pause_end::PauseEnd;
use super::projection::{self, EmptyContainers};
use super::reserved;
use mainstay_api::DriftPolicy;
use mainstay_api::names::{DISABLED, RECONCILE, UNTIL};
use mainstay_object::Digest;

/// Maximum length of a UID or a resource version in bytes. All known servers use a UUID and a number.
const LONGEST: usize = 128;

/// The last apply of an object, from the server's response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastApplied {
    /// UID; empty if unknown.
    pub uid: Box<str>,
    /// Resource version; empty if the object must be compared at any version.
    pub resource_version: Box<str>,
    /// Digest of the projection.
    pub digest: Option<Digest>,
    /// Paths that were applied as empty containers.
    pub empty_containers: EmptyContainers,
}

/// The verdict on an event.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Mainstay's fields did not change, or the event is already known.
    InSync,
    /// Revert the object.
    Revert,
    /// The object is being deleted: recreate it when it is gone.
    AwaitDeletion,
    /// The object stays as it is.
    LeaveAlone(Reason),
}

/// The reason for leaving an object as it is.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// A pause, with its end.
    BreakGlass(PauseEnd),
    /// A controller other than the expected one owns the object.
    Controlled,
    /// The owner needs the object to read its repository, and that read fails. A change may be a repair.
    Unread,
    /// The policy is to report drift.
    Report,
    /// The policy is to ignore drift, or the owner is suspended.
    Ignore,
}

/// Returns the verdict on a live object.
pub fn decide(verified: &LastApplied, mark: &Mark, live: &Value, policy: DriftPolicy, now: Timestamp) -> Verdict {
    if let Some(until) = break_glass_of(live, now) {
        return Verdict::LeaveAlone(Reason::BreakGlass(until));
    }
    if is_seen(verified, resource_version(live)) {
        return Verdict::InSync;
    }
    let same_object = verified.uid.is_empty() || *verified.uid == *uid(live);
    if is_anothers(mark, live, same_object) {
        return Verdict::LeaveAlone(Reason::Controlled);
    }
    if policy == DriftPolicy::Ignore {
        return Verdict::LeaveAlone(Reason::Ignore);
    }
    if is_terminating(live) {
        return Verdict::AwaitDeletion;
    }
    let is_ours = verified.digest.is_some() && projection::digest(live, &verified.empty_containers) == verified.digest;
    if same_object && is_ours && !reserved::is_added_to(mark.reserved(), live) {
        return Verdict::InSync;
    }
    if policy == DriftPolicy::Report { Verdict::LeaveAlone(Reason::Report) } else { Verdict::Revert }
}

/// Whether the state with this resource version is the verified one or older. Numeric versions are compared as numbers.
/// With other versions, a known state may be compared again, and the object applied without a change.
pub(crate) fn is_seen(verified: &LastApplied, version: &str) -> bool {
    if verified.resource_version.is_empty() {
        return false;
    }
    match (verified.resource_version.parse::<u64>(), version.parse::<u64>()) {
        (Ok(known), Ok(seen)) => seen <= known,
        _ => *verified.resource_version == *version,
    }
}

/// Returns the end of the object's pause, if it is paused at `now`. An invalid time does not end the pause.
pub(crate) fn break_glass_of(live: &Value, now: Timestamp) -> Option<PauseEnd> {
    break_glass(|name| live.get("metadata")?.get("annotations")?.get(name)?.as_str(), now)
}

/// Returns the end of a pause by the object's annotations, if it is paused.
fn break_glass<'a>(annotation: impl Fn(&str) -> Option<&'a str>, now: Timestamp) -> Option<PauseEnd> {
    if annotation(RECONCILE) != Some(DISABLED) {
        return None;
    }
    let end = PauseEnd::read(annotation(UNTIL));
    end.time().is_none_or(|time| time > now).then_some(end)
}

/// Whether the object with this metadata is paused at `now`.
pub(crate) fn is_paused(meta: &ObjectMeta, now: Timestamp) -> bool {
    pause_of(meta, now).is_some()
}

/// Returns the end of the pause of the object with this metadata, if it is paused.
pub fn pause_of(meta: &ObjectMeta, now: Timestamp) -> Option<PauseEnd> {
    let annotation = |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name)).map(String::as_str);
    break_glass(annotation, now)
}

/// Whether a controller owns the object with this metadata.
pub fn is_controlled(meta: &ObjectMeta) -> bool {
    meta.owner_references.iter().flatten().any(|owner| owner.controller == Some(true))
}

/// Whether the object is being deleted.
pub fn is_terminating(live: &Value) -> bool {
    live.pointer("/metadata/deletionTimestamp").is_some_and(|v| !v.is_null())
}

/// Whether a GitSync, live or in its document, is suspended at `now`.
pub fn is_suspended(live: &Value, now: Timestamp) -> bool {
    let until =
        live.pointer("/spec/suspendUntil").and_then(Value::as_str).and_then(|text| text.parse::<Timestamp>().ok());
    live.pointer("/spec/suspend") == Some(&Value::Bool(true)) || until.is_some_and(|until| until > now)
}

/// Returns the UID of the object's controller.
pub fn controller(live: &Value) -> Option<&str> {
    let owners = live.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let controls = |owner: &&Value| owner.get("controller") == Some(&Value::Bool(true));
    owners
        .into_iter()
        .flatten()
        .find(controls)
        .map(|owner| owner.get("uid").and_then(Value::as_str).unwrap_or_default())
}

/// Whether the object belongs to a different controller, or is a new object without the controller that Mainstay sets.
fn is_anothers(mark: &Mark, live: &Value, same_object: bool) -> bool {
    match (controller(live), mark.controller()) {
        (Some(live), ours) => Some(live) != ours,
        (None, Some(_)) => !same_object,
        (None, None) => false,
    }
}

/// Returns `metadata.resourceVersion`, or "".
pub fn resource_version(live: &Value) -> &str {
    kept(live, "/metadata/resourceVersion")
}

/// Returns `metadata.uid`, or "".
pub fn uid(live: &Value) -> &str {
    kept(live, "/metadata/uid")
}

/// Returns a string that is stored for every object. A remote cluster may send any string, so a longer one counts as
/// missing.
fn kept<'l>(live: &'l Value, path: &str) -> &'l str {
    live.pointer(path).and_then(Value::as_str).filter(|text| text.len() <= LONGEST).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn live(version: &str, value: &str) -> Value {
        json!({"metadata": {"uid": "u", "resourceVersion": version, "managedFields": [
            {"manager": "mainstay", "operation": "Apply", "fieldsV1": {"f:data": {"f:a": {}}}}]}, "data": {"a": value}})
    }

    fn verified() -> LastApplied {
        let digest = projection::digest(&live("5", "1"), &EmptyContainers::default());
        LastApplied {
            uid: "u".into(),
            resource_version: "5".into(),
            digest,
            empty_containers: EmptyContainers::default(),
        }
    }

    fn check(live: &Value, expected: &Verdict) {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let mark = Mark::Label("x.y".into());
        assert_eq!(&decide(&verified(), &mark, live, DriftPolicy::Revert, now), expected, "{live}");
    }

    #[test]
    fn drops_events_that_are_not_newer_than_our_apply() {
        check(&live("5", "changed"), &Verdict::InSync);
        check(&live("4", "changed"), &Verdict::InSync);
    }

    #[test]
    fn reverts_a_changed_projection_and_nothing_else() {
        check(&live("6", "1"), &Verdict::InSync);
        check(&live("6", "2"), &Verdict::Revert);
        let mut other = live("6", "1");
        other["metadata"]["uid"] = "other".into();
        check(&other, &Verdict::Revert);
    }

    #[test]
    fn reverts_fields_of_its_own_controller_and_leaves_those_of_others() {
        let mark = Mark::Controller { uid: "f1".into(), watched_by: "x", reserved: reserved::Reserved::NOTHING };
        let check = |live: &Value, expected: &Verdict| {
            let now = "2026-01-01T00:00:00Z".parse().unwrap();
            assert_eq!(&decide(&verified(), &mark, live, DriftPolicy::Revert, now), expected, "{live}");
        };
        let mut object = live("6", "2");
        check(&object, &Verdict::Revert);
        object["metadata"]["ownerReferences"] = json!([{"uid": "f1", "controller": true}]);
        check(&object, &Verdict::Revert);
        object["metadata"]["ownerReferences"] = json!([{"uid": "f2", "controller": true}]);
        check(&object, &Verdict::LeaveAlone(Reason::Controlled));
        object["metadata"]["ownerReferences"] = json!([]);
        object["metadata"]["uid"] = "another".into();
        check(&object, &Verdict::LeaveAlone(Reason::Controlled));
    }

    #[test]
    fn leaves_paused_and_controlled_objects() {
        let mut held = live("6", "2");
        held["metadata"]["annotations"] = json!({RECONCILE: DISABLED});
        check(&held, &Verdict::LeaveAlone(Reason::BreakGlass(PauseEnd::Open)));
        held["metadata"]["annotations"][UNTIL] = "nonsense".into();
        check(&held, &Verdict::LeaveAlone(Reason::BreakGlass(PauseEnd::Unreadable)));
        held["metadata"]["annotations"][UNTIL] = "2025-01-01T00:00:00Z".into();
        check(&held, &Verdict::Revert);
        let mut owned = live("6", "2");
        owned["metadata"]["ownerReferences"] = json!([{"controller": true}]);
        check(&owned, &Verdict::LeaveAlone(Reason::Controlled));
    }

    #[test]
    fn waits_for_a_deletion_to_end() {
        let mut going = live("6", "1");
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        check(&going, &Verdict::AwaitDeletion);
    }
}
