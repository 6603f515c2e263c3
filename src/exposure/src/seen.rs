//! The remembered state of a routing object: its owner, its hosts, and whether it changed.

use serde_json::{Value, json};

use super::child::ChildKind;
use mainstay_api::names::EXPOSURE_MANAGER;
use mainstay_engine::managed::verdict::{is_terminating, resource_version, uid};
use mainstay_object::{Digest, Owner};

/// A routing object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) uid: Box<str>,
    pub(super) resource_version: Box<str>,
    /// A digest that changes with every write to the object, but not with its status.
    pub(super) fingerprint: Digest,
    /// The APIRule that controls the object, and the UID of the APIRule.
    pub(super) rule: Option<(Owner, Box<str>)>,
    /// Whether this agent wrote the object.
    pub(super) is_ours: bool,
    pub(super) is_terminating: bool,
    /// The hosts of the object, in lower case.
    pub(super) hosts: Vec<Box<str>>,
    pub(super) verdict: Verdict,
}

/// The state of an object as its router reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The state is not reported yet.
    Waiting,
    /// The object is in effect.
    Accepted,
    /// The object is refused, for this reason.
    Refused(String),
}

/// The version of a state from before the API server was restored from a backup. Each state of the restored server is
/// newer. No object has this version, so a request with it as a precondition is refused.
const FORGOTTEN: &str = "1";

impl Seen {
    /// Reads an object.
    pub(super) fn of(kind: ChildKind, live: &Value) -> Self {
        let metadata = &live["metadata"];
        // Oathkeeper's Rules have no status subresource, so a status update changes the generation too.
        let counts_generations = kind != ChildKind::AccessRule && !metadata["generation"].is_null();
        let written = json!([
            if counts_generations { &metadata["generation"] } else { &live["spec"] },
            metadata["labels"],
            metadata["ownerReferences"],
            is_terminating(live),
        ]);
        let hosts = match kind {
            ChildKind::VirtualService => &live["spec"]["hosts"],
            ChildKind::HttpRoute => &live["spec"]["hostnames"],
            ChildKind::AccessRule | ChildKind::RequestAuthentication | ChildKind::AuthorizationPolicy => &Value::Null,
        };
        Self {
            uid: uid(live).into(),
            resource_version: resource_version(live).into(),
            fingerprint: Digest::of(written.to_string().as_bytes()),
            rule: rule(metadata),
            is_ours: list(&metadata["managedFields"]).any(|field| field["manager"] == EXPOSURE_MANAGER),
            is_terminating: is_terminating(live),
            hosts: list(hosts).filter_map(Value::as_str).map(|host| host.to_ascii_lowercase().into()).collect(),
            verdict: verdict(kind, live),
        }
    }

    /// Whether a relevant part changed.
    pub(super) fn differs(&self, old: &Self) -> bool {
        let counts = |seen: &Self| (seen.uid.clone(), seen.fingerprint, seen.is_ours, seen.verdict.clone());
        counts(self) != counts(old) || self.hosts != old.hosts
    }

    /// Whether this state is older than the known state of the same object.
    pub(super) fn is_older_than(&self, known: &Self) -> bool {
        self.uid == known.uid && self.version().zip(known.version()).is_some_and(|(this, known)| this < known)
    }

    /// Forgets the resource version, so that no other state is older.
    pub(super) fn forget_version(&mut self) {
        self.resource_version = FORGOTTEN.into();
    }

    /// Returns the resource version as a number, if it is a number.
    pub(super) fn version(&self) -> Option<u64> {
        self.resource_version.parse().ok()
    }

    /// Whether the object belongs to this APIRule: its owner has the same namespace and UID.
    pub(super) fn is_of(&self, owner: &Owner, rule: &str) -> bool {
        self.rule.as_ref().is_some_and(|(known, uid)| known == owner && **uid == *rule)
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the APIRule that controls an object with this metadata.
fn rule(metadata: &Value) -> Option<(Owner, Box<str>)> {
    let controls = |owner: &&Value| {
        let group = owner["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
        owner["kind"] == "APIRule" && group == Some("gateway.kyma-project.io") && owner["controller"] == true
    };
    let owner = list(&metadata["ownerReferences"]).find(controls)?;
    let namespace = metadata["namespace"].as_str()?;
    Some((Owner::api_rule(namespace, owner["name"].as_str()?), owner["uid"].as_str()?.into()))
}

fn verdict(kind: ChildKind, live: &Value) -> Verdict {
    match kind {
        ChildKind::AccessRule if live["status"]["validation"]["valid"] == false => {
            Verdict::Refused("RuleInvalid".into())
        }
        // Istio and Oathkeeper report no state.
        ChildKind::VirtualService
        | ChildKind::AccessRule
        | ChildKind::RequestAuthentication
        | ChildKind::AuthorizationPolicy => Verdict::Accepted,
        ChildKind::HttpRoute => of_parents(live),
    }
}

fn of_parents(live: &Value) -> Verdict {
    let generation = &live["metadata"]["generation"];
    let mut verdict = Verdict::Waiting;
    for parent in list(&live["status"]["parents"]) {
        for condition in list(&parent["conditions"]).filter(|said| said["observedGeneration"] == *generation) {
            match (condition["type"].as_str(), condition["status"].as_str()) {
                (Some("Accepted" | "ResolvedRefs"), Some("False")) => {
                    let word = condition["reason"].as_str().unwrap_or_default();
                    return Verdict::Refused(word.chars().filter(char::is_ascii_alphanumeric).take(100).collect());
                }
                (Some("Accepted"), Some("True")) => verdict = Verdict::Accepted,
                _ => {}
            }
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(generation: u64) -> Value {
        let owner = json!({
            "apiVersion": "gateway.kyma-project.io/v1beta1", "kind": "APIRule", "name": "web", "uid": "u", "controller": true,
        });
        json!({
            "metadata": {
                "name": "web-1", "namespace": "shop", "uid": "1", "resourceVersion": "7", "generation": generation,
                "ownerReferences": [owner], "managedFields": [{"manager": "istio"}, {"manager": "mainstay-exposure"}],
            },
            "spec": {"hosts": ["Web.kyma.local"]},
        })
    }

    #[test]
    fn a_status_changes_nothing_and_an_edit_does() {
        let old = Seen::of(ChildKind::VirtualService, &live(1));
        assert!(old.is_of(&Owner::api_rule("shop", "web"), "u") && old.is_ours && &*old.hosts[0] == "web.kyma.local");
        assert_eq!(old.rule.as_ref().unwrap().0, Owner::api_rule("shop", "web"));
        let mut noted = live(1);
        (noted["status"], noted["metadata"]["resourceVersion"]) = (json!({"seen": true}), json!("8"));
        let new = Seen::of(ChildKind::VirtualService, &noted);
        assert!(!new.differs(&old) && old.is_older_than(&new) && !new.is_older_than(&old));
        assert!(Seen::of(ChildKind::VirtualService, &live(2)).differs(&old));
        let mut unlabelled = live(1);
        unlabelled["metadata"]["ownerReferences"] = json!([]);
        assert!(Seen::of(ChildKind::VirtualService, &unlabelled).differs(&old));
    }

    #[test]
    fn the_status_that_oathkeeper_writes_is_no_change_of_a_rule() {
        let old = Seen::of(ChildKind::AccessRule, &live(1));
        let mut noted = live(2);
        noted["status"] = json!({"validation": {"valid": true}});
        assert_eq!(Seen::of(ChildKind::AccessRule, &noted).fingerprint, old.fingerprint);
        let mut edited = live(2);
        edited["spec"]["authorizer"] = json!({"handler": "deny"});
        assert_ne!(Seen::of(ChildKind::AccessRule, &edited).fingerprint, old.fingerprint);
    }

    #[test]
    fn a_route_counts_once_its_gateway_says_so() {
        let said = |kind: &str, status: &str, generation: u64| json!({"type": kind, "status": status, "reason": "NoMatchingParent", "observedGeneration": generation});
        let check = |conditions: Value, expected: Verdict| {
            let mut route = live(2);
            route["status"] = json!({"parents": [{"conditions": conditions}]});
            assert_eq!(Seen::of(ChildKind::HttpRoute, &route).verdict, expected);
        };
        check(json!([]), Verdict::Waiting);
        check(json!([said("Accepted", "True", 1)]), Verdict::Waiting);
        check(json!([said("Accepted", "True", 2)]), Verdict::Accepted);
        let refused = Verdict::Refused("NoMatchingParent".into());
        check(json!([said("Accepted", "False", 2)]), refused.clone());
        check(json!([said("Accepted", "True", 2), said("ResolvedRefs", "False", 2)]), refused);
    }
}
