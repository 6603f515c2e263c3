//! Decides which Revisions of a Knative Service are unused.
//!
//! Knative keeps unused Revisions for days. While a new Revision starts, its Knative Service still reports Ready. So
//! the decision uses the references to Revisions instead of the Ready condition.
//!
//! Invariant: a Revision stays if a Route references it in its spec or status, with any percentage of the traffic. The
//! newest Revision and the newest ready Revision stay too. Invariant: Revisions are matched by the UID of their owner,
//! not by labels.
//!
//! Not here: reading and deleting Revisions; see `perform`.

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::knative_owner::is_controlled_by;

/// Label with the generation of the Configuration that created a Revision.
const NUMBER: &str = "serving.knative.dev/configurationGeneration";
/// Annotation of a Revision that the user wants to keep.
const KEEP: &str = "serving.knative.dev/no-gc";

/// The current owners of Revisions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owners<'a> {
    /// The Knative Service.
    pub(super) service: &'a Value,
    /// The Configuration of the Knative Service.
    pub(super) configuration: &'a Value,
    /// The Route of the Knative Service.
    pub(super) route: &'a Value,
}

/// Returns the unused Revisions, or `None` while one of the owners is not ready. The Knative Service may report Ready
/// before it observes a change of its Route, and observing the change does not alter its status.
pub(super) fn unneeded<'r>(owners: &Owners<'_>, revisions: &'r [ObjectMeta]) -> Option<Vec<&'r ObjectMeta>> {
    let Owners { service, configuration, route } = *owners;
    let all = [service, configuration, route];
    let uid = &service["metadata"]["uid"];
    if ![configuration, route].iter().all(|o| is_controlled_by(o, uid)) {
        return Some(Vec::new());
    }
    if !all.iter().all(|object| is_ready(object)) {
        return None;
    }
    let configuration_uid = configuration["metadata"]["uid"].as_str();
    let mine: Vec<_> =
        revisions.iter().filter(|meta| configuration_uid.is_some() && controller(meta) == configuration_uid).collect();
    let named: HashSet<&str> = all.iter().flat_map(|object| names(object)).collect();
    let newest = configuration["status"]["latestReadyRevisionName"].as_str();
    let newest = mine.iter().find(|meta| meta.name.as_deref() == newest).and_then(|meta| number(meta));
    let Some(newest) = newest else { return Some(Vec::new()) };
    let may_go = |meta: &&ObjectMeta| {
        meta.name.as_deref().is_some_and(|name| !named.contains(name))
            && number(meta).is_some_and(|number| number < newest)
            && meta.deletion_timestamp.is_none()
            && !is_kept(meta)
    };
    Some(mine.into_iter().filter(may_go).collect())
}

/// Whether an object is ready at its current generation.
fn is_ready(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let is_true = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    let generation = object["metadata"]["generation"].as_i64();
    generation.is_some()
        && generation == object["status"]["observedGeneration"].as_i64()
        && conditions.into_iter().flatten().any(is_true)
}

/// Returns the Revisions that an object references.
fn names(object: &Value) -> impl Iterator<Item = &str> {
    let traffic = ["spec", "status"].into_iter().filter_map(|part| object[part]["traffic"].as_array()).flatten();
    let latest =
        ["latestReadyRevisionName", "latestCreatedRevisionName"].into_iter().map(|field| &object["status"][field]);
    traffic.map(|target| &target["revisionName"]).chain(latest).filter_map(Value::as_str)
}

fn controller(meta: &ObjectMeta) -> Option<&str> {
    let mut owners = meta.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true) && owner.kind == "Configuration").map(|owner| &*owner.uid)
}

fn number(meta: &ObjectMeta) -> Option<i64> {
    meta.labels.as_ref()?.get(NUMBER)?.parse().ok()
}

fn is_kept(meta: &ObjectMeta) -> bool {
    let says = |all: &Option<std::collections::BTreeMap<String, String>>| {
        all.as_ref().and_then(|all| all.get(KEEP)).is_some_and(|value| value == "true")
    };
    says(&meta.annotations) || says(&meta.labels)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NEWEST: &str = "hello-00004";

    /// Returns an object of the Knative Service that is ready at its generation.
    fn object(kind: &str, spec: Value, status: &Value) -> Value {
        let owner =
            json!([{"apiVersion": "serving.knative.dev/v1", "kind": "Service", "uid": "Service", "controller": true}]);
        let mut all = json!({"observedGeneration": 7, "conditions": [{"type": "Ready", "status": "True"}],
            "latestReadyRevisionName": NEWEST, "latestCreatedRevisionName": NEWEST});
        for (key, value) in status.as_object().unwrap() {
            all[key] = value.clone();
        }
        json!({"metadata": {"uid": kind, "generation": 7, "ownerReferences": owner}, "spec": spec, "status": all})
    }

    fn revision(number: &str, owner: &str, annotations: &Value) -> ObjectMeta {
        let owner = json!([{"apiVersion": "serving.knative.dev/v1", "kind": "Configuration", "name": "hello", "uid": owner, "controller": true}]);
        let meta = json!({"name": format!("hello-{number:0>5}"), "labels": {NUMBER: number}, "ownerReferences": owner, "annotations": annotations});
        serde_json::from_value(meta).unwrap()
    }

    /// Returns the names of the unused Revisions among four fixed ones and `more`.
    fn gone(service: &Value, configuration: &Value, route: &Value, more: &[ObjectMeta]) -> Vec<String> {
        decided(service, configuration, route, more).unwrap()
    }

    fn decided(service: &Value, configuration: &Value, route: &Value, more: &[ObjectMeta]) -> Option<Vec<String>> {
        let mut all: Vec<_> = ["1", "2", "3", "4"].map(|n| revision(n, "Configuration", &json!({}))).into();
        all.extend_from_slice(more);
        let owners = Owners { service, configuration, route };
        Some(unneeded(&owners, &all)?.into_iter().filter_map(|meta| meta.name.clone()).collect())
    }

    #[test]
    fn only_the_one_that_serves_is_left() {
        let [service, configuration, route] =
            ["Service", "Configuration", "Route"].map(|k| object(k, json!({}), &json!({})));
        let old = ["hello-00001", "hello-00002", "hello-00003"];
        assert_eq!(gone(&service, &configuration, &route, &[]), old);
        let kept = revision("3", "Configuration", &json!({KEEP: "true"}));
        let others = [revision("1", "another", &json!({})), revision("x", "Configuration", &json!({})), kept];
        assert_eq!(gone(&service, &configuration, &route, &others), old, "of others, unnumbered, or kept");
    }

    #[test]
    fn revisions_that_a_route_names_stay() {
        let plain = |kind: &str| object(kind, json!({}), &json!({}));
        let pinned =
            json!({"traffic": [{"revisionName": "hello-00002", "percent": 0, "tag": "old"}, {"latestRevision": true}]});
        for part in ["spec", "status"] {
            let of = |kind| match part {
                "spec" => object(kind, pinned.clone(), &json!({})),
                _ => object(kind, json!({}), &pinned),
            };
            let left = ["hello-00001", "hello-00003"];
            assert_eq!(gone(&of("Service"), &plain("Configuration"), &plain("Route"), &[]), left, "{part}");
            assert_eq!(gone(&plain("Service"), &plain("Configuration"), &of("Route"), &[]), left, "{part}");
        }
    }

    #[test]
    fn revisions_are_judged_only_once_all_is_as_desired() {
        let plain = |kind: &str| object(kind, json!({}), &json!({}));
        let failed =
            json!({"conditions": [{"type": "Ready", "status": "False"}], "latestCreatedRevisionName": "hello-00005"});
        for status in [json!({"observedGeneration": 6}), failed] {
            let of = |kind| object(kind, json!({}), &status);
            assert_eq!(decided(&plain("Service"), &of("Configuration"), &plain("Route"), &[]), None, "{status}");
            assert_eq!(decided(&of("Service"), &plain("Configuration"), &plain("Route"), &[]), None, "{status}");
            assert_eq!(decided(&plain("Service"), &plain("Configuration"), &of("Route"), &[]), None, "{status}");
        }
    }

    #[test]
    fn none_goes_of_others_and_without_a_newest_one() {
        let plain = |kind: &str| object(kind, json!({}), &json!({}));
        let none = [""; 0];
        let unknown = object("Configuration", json!({}), &json!({"latestReadyRevisionName": "hello-00009"}));
        assert_eq!(gone(&plain("Service"), &unknown, &plain("Route"), &[]), none);
        let mut of_another = plain("Route");
        of_another["metadata"]["ownerReferences"][0]["uid"] = json!("another");
        assert_eq!(gone(&plain("Service"), &plain("Configuration"), &of_another, &[]), none);
    }
}
