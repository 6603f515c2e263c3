//! Decides what happens to each object of an APIRule, and the outcome of the APIRule.
//!
//! Invariant: only objects of this APIRule are written or deleted, or objects that have the name of such an object and
//! no other owner. Invariant: repeated changes by other clients are reverted with increasing delays.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::checks::{Failure, text};
use super::child::{Child, ChildKind, Place};
use super::no_target::NoTargets;
use super::seen::{Seen, Verdict};
use super::status::Outcome;
use mainstay_api::names::EXPOSURE_MANAGER;
use mainstay_engine::managed::revert_backoff::RevertBackoff;
use mainstay_object::{Digest, Owner};

/// Maximum delay of a revert.
const MOST: Duration = Duration::from_secs(300);

/// The last written state of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Applied {
    pub(super) desired: Digest,
    pub(super) fingerprint: Digest,
}

/// The decision about a desired object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// The object is unchanged, or it is being deleted and is recreated afterwards.
    Nothing,
    /// The object is reverted after this delay.
    Later(Duration),
    /// The object belongs to another owner.
    Taken,
    /// The object is written for the first time, or in a new version.
    Write,
    /// The object is written again over a change by another client.
    Revert,
}

/// The backoff of reverts. Times are seconds on the caller's clock.
#[derive(Debug, Default)]
pub(super) struct Reverts {
    backoff: RevertBackoff,
    /// When the current delay ends.
    held_until: f64,
}

impl Reverts {
    /// Records a revert.
    pub(super) fn add(&mut self, now: f64) {
        self.backoff.grow(now);
        self.held_until = now + self.backoff.delay(now, MOST).as_secs_f64();
    }

    /// Returns how long the next revert has to wait.
    pub(super) fn wait(&self, now: f64) -> Option<Duration> {
        (now < self.held_until).then(|| Duration::from_secs_f64(self.held_until - now))
    }
}

/// Decides about an object of the APIRule `owner` with this UID. `reverts` is the remaining delay of reverts.
pub(super) fn put(
    desired: Digest,
    applied: Option<&Applied>,
    seen: Option<&Seen>,
    (owner, uid): (&Owner, &str),
    reverts: Option<Duration>,
) -> Put {
    let known = applied.filter(|applied| applied.desired == desired);
    if known.zip(seen).is_some_and(|(known, seen)| known.fingerprint == seen.fingerprint) {
        return Put::Nothing;
    }
    match (reverts, seen) {
        (Some(wait), _) if known.is_some() => Put::Later(wait),
        (_, Some(seen)) if !seen.is_ours && !seen.is_of(owner, uid) => Put::Taken,
        (_, Some(seen)) if seen.is_terminating => Put::Nothing,
        _ if known.is_some() => Put::Revert,
        _ => Put::Write,
    }
}

/// Returns the objects of an APIRule that this agent created and that are no longer desired.
pub(super) fn unwanted(children: Vec<(Place, Seen)>, wanted: &[Child]) -> Vec<(Place, Seen)> {
    let is_wanted = |place: &Place| wanted.iter().any(|child| child.kind == place.0 && child.name == place.2);
    children.into_iter().filter(|(place, seen)| seen.is_ours && !seen.is_terminating && !is_wanted(place)).collect()
}

/// Whether this agent created an object for an APIRule.
pub(super) fn is_made_for(rule: &str, meta: &ObjectMeta) -> bool {
    let is_owned =
        meta.owner_references.iter().flatten().any(|owner| owner.uid == rule && owner.controller == Some(true));
    let managers = meta.managed_fields.iter().flatten();
    is_owned && managers.into_iter().any(|field| field.manager.as_deref() == Some(EXPOSURE_MANAGER))
}

/// Returns an object of an APIRule that another controller created.
pub(super) fn made_elsewhere(children: &[(Place, Seen)]) -> Option<String> {
    let foreign = children.iter().find(|(_, seen)| !seen.is_ours && !seen.is_terminating);
    foreign.map(|(place, _)| format!("{} {}", place.0.names().1, place.2))
}

/// Returns the VirtualService among these objects.
pub(super) fn virtual_service(children: &[Child]) -> Option<&Child> {
    children.iter().find(|child| child.kind == ChildKind::VirtualService)
}

/// Makes the VirtualService an owner of the guards, so that the garbage collector deletes them after the route. `seen`
/// is the existing VirtualService, and `version` its served version.
pub(super) fn guard_as_long_as_routed(
    children: &mut [Child],
    seen: Option<&Seen>,
    (owner, uid): (&Owner, &str),
    version: &str,
) {
    let Some(name) = virtual_service(children).map(|route| route.name.clone()) else { return };
    let Some(seen) = seen.filter(|seen| !seen.is_terminating && seen.is_of(owner, uid)) else { return };
    for child in children.iter_mut().filter(|child| child.kind.guards()) {
        child.also_of(version, ChildKind::VirtualService, &name, &seen.uid);
    }
}

/// Describes the existing access rules.
pub(super) fn old_rules(children: Vec<(Place, Seen)>) -> String {
    let rules = children.into_iter().filter(|(place, seen)| place.0 == ChildKind::AccessRule && !seen.is_terminating);
    let mut names: Vec<String> = rules.map(|(place, _)| place.2).collect();
    names.sort();
    match names.as_slice() {
        [] => String::new(),
        [one] => format!("; until then, Rule {one} goes on serving as it is"),
        [one, rest @ ..] => format!("; until then, Rule {one} and {} more go on serving as they are", rest.len()),
    }
}

/// Returns the worst verdict about the objects. A missing object counts as waiting.
pub(super) fn worst(verdicts: impl Iterator<Item = Option<Verdict>>) -> Verdict {
    let mut worst = Verdict::Accepted;
    for verdict in verdicts {
        match verdict {
            Some(Verdict::Accepted) => {}
            Some(refused @ Verdict::Refused(_)) => return refused,
            Some(Verdict::Waiting) | None => worst = Verdict::Waiting,
        }
    }
    worst
}

/// Returns the outcome of an APIRule whose objects exist. `problem` is the reason why some paths are not routed.
pub(super) fn outcome(host: &str, problem: Option<String>, verdict: Verdict, no_targets: NoTargets) -> Outcome {
    if !no_targets.is_empty() {
        return Outcome::NoTargets(no_targets);
    }
    match (problem, verdict) {
        (Some(problem), _) => Outcome::AuthNotSupported(problem),
        (None, Verdict::Waiting) => Outcome::NotAccepted(None),
        (None, Verdict::Refused(why)) => Outcome::NotAccepted(Some(why)),
        (None, Verdict::Accepted) => Outcome::Served(host.to_owned()),
    }
}

/// Returns the outcome of an APIRule that cannot be served. `occupied` is the failure of an occupied host. `is_served`
/// is whether the last valid version is served.
pub(super) fn not_served(failures: &[Failure], occupied: &Failure, is_served: bool) -> Outcome {
    let text = text(failures);
    if failures == std::slice::from_ref(occupied) {
        Outcome::Occupied(text, is_served)
    } else {
        Outcome::Invalid(text, is_served)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const UID: &str = "u";

    fn seen(change: Value) -> Seen {
        let owner = json!({
            "apiVersion": "gateway.kyma-project.io/v1alpha1", "kind": "APIRule", "name": "web", "uid": UID, "controller": true,
        });
        let mut live = json!({"metadata": {
            "name": "web", "namespace": "shop", "uid": "v", "generation": 1, "ownerReferences": [owner],
            "managedFields": [{"manager": EXPOSURE_MANAGER}],
        }});
        json_patch::merge(&mut live, &change);
        Seen::of(ChildKind::VirtualService, &live)
    }

    fn check(applied: Option<&Applied>, seen: Option<&Seen>, reverts: Option<Duration>, expected: Put) {
        let (desired, owner) = (Digest::of(b"new"), Owner::api_rule("shop", "web"));
        assert_eq!(put(desired, applied, seen, (&owner, UID), reverts), expected, "{applied:?} {seen:?}");
    }

    #[test]
    fn only_changed_objects_are_reverted_and_only_those_wait() {
        let (live, held) = (seen(json!({})), Some(Duration::from_secs(9)));
        let (old, new) = (Digest::of(b"old"), Digest::of(b"new"));
        let as_written = Applied { desired: new, fingerprint: live.fingerprint };
        check(Some(&as_written), Some(&live), held, Put::Nothing);
        let changed = seen(json!({"metadata": {"generation": 2}}));
        for other in [Some(&changed), None] {
            check(Some(&as_written), other, None, Put::Revert);
            check(Some(&as_written), other, held, Put::Later(Duration::from_secs(9)));
        }
        let before = Applied { desired: old, fingerprint: live.fingerprint };
        check(Some(&before), Some(&live), held, Put::Write);
        check(None, Some(&live), held, Put::Write);
        check(None, None, held, Put::Write);
    }

    #[test]
    fn an_object_is_written_if_it_is_this_api_rules_or_this_agents() {
        let by_others = json!({"managedFields": [{"manager": "kubectl"}]});
        check(None, Some(&seen(json!({"metadata": by_others}))), None, Put::Write);
        check(None, Some(&seen(json!({"metadata": {"ownerReferences": []}}))), None, Put::Write);
        let mut foreign = by_others;
        foreign["ownerReferences"] = json!([]);
        check(None, Some(&seen(json!({"metadata": foreign}))), None, Put::Taken);
        // An object of another owner belongs to that owner even during its deletion.
        foreign["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        check(None, Some(&seen(json!({"metadata": foreign}))), None, Put::Taken);
        let gone = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        check(None, Some(&seen(gone)), None, Put::Nothing);
    }

    #[test]
    fn reverts_wait_once_there_are_many() {
        let mut reverts = Reverts::default();
        reverts.add(0.0);
        assert_eq!(reverts.wait(0.0), None);
        (0..100).for_each(|_| reverts.add(0.0));
        assert_eq!((reverts.wait(0.0), reverts.wait(300.0)), (Some(MOST), None));
    }

    #[test]
    fn deletes_its_own_unwanted_objects() {
        let place = |name: &str| (ChildKind::AccessRule, "shop".to_owned(), name.to_owned());
        let by_others = seen(json!({"metadata": {"managedFields": []}}));
        let terminating = seen(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        let all = vec![
            (place("wanted"), seen(json!({}))),
            (place("unwanted"), seen(json!({}))),
            (place("foreign"), by_others),
            (place("terminating"), terminating),
        ];
        let wanted = [("wanted", ChildKind::AccessRule), ("unwanted", ChildKind::VirtualService)]
            .map(|(name, kind)| Child { kind, name: name.to_owned(), body: Value::Null });
        let names: Vec<String> = unwanted(all.clone(), &wanted).into_iter().map(|(place, _)| place.2).collect();
        assert_eq!(names, ["unwanted"]);
        assert_eq!(made_elsewhere(&all).as_deref(), Some("Rule foreign"));
        assert_eq!(old_rules(all), "; until then, Rule foreign and 2 more go on serving as they are");
    }

    #[test]
    fn only_a_route_that_stays_keeps_its_guards() {
        let kinds = [ChildKind::AuthorizationPolicy, ChildKind::VirtualService];
        let body = json!({"metadata": {"ownerReferences": []}});
        let all = kinds.map(|kind| Child { kind, name: "web".to_owned(), body: body.clone() });
        let owners_beside = |seen: Option<&Seen>| {
            let mut children = all.to_vec();
            guard_as_long_as_routed(&mut children, seen, (&Owner::api_rule("shop", "web"), UID), "g/v1");
            children.iter().map(|child| child.body["metadata"]["ownerReferences"].clone()).collect::<Vec<Value>>()
        };
        let owner = json!([{"apiVersion": "g/v1", "kind": "VirtualService", "name": "web", "uid": "v"}]);
        assert_eq!(owners_beside(Some(&seen(json!({})))), [owner, json!([])]);
        let terminating = seen(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        let foreign = seen(json!({"metadata": {"ownerReferences": []}}));
        for gone in [None, Some(&terminating), Some(&foreign)] {
            assert_eq!(owners_beside(gone), [json!([]), json!([])]);
        }
    }

    #[test]
    fn the_worst_is_said() {
        let refused = || Verdict::Refused("NoMatchingParent".into());
        let of = |all: &[Option<Verdict>]| worst(all.iter().cloned());
        assert_eq!(of(&[Some(Verdict::Accepted)]), Verdict::Accepted);
        assert_eq!(of(&[None, Some(Verdict::Accepted)]), Verdict::Waiting);
        assert_eq!(of(&[Some(Verdict::Waiting), Some(refused()), None]), refused());
    }
}
