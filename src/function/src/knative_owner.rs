//! Determines the owners of a Knative Service's objects, and transfers the address of a Function.
//!
//! The address is the Service with the Function's name. Both flavours use that name. The Service is not deleted during
//! a transfer: one merge patch changes its owner to the Route, or back to the Function.
//!
//! Invariant: owners are matched by UID. An object with only the right name or labels belongs to a different owner.

use serde_json::{Map, Value, json};

/// API group of Knative Serving.
const GROUP: &str = "serving.knative.dev";
/// Suffix of the prefixes of labels and annotations that Knative sets.
const KEYS: &str = ".knative.dev";

/// The owner of the Service with a Function's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder<'a> {
    /// The Function.
    Function,
    /// A Route with this UID.
    Route(&'a str),
    /// Any other owner.
    Other,
}

/// Returns the controller of an object.
fn controller(object: &Value) -> Option<&Value> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

/// Whether an object's controller has this UID.
pub(super) fn is_controlled_by(object: &Value, uid: &Value) -> bool {
    uid.is_string() && controller(object).is_some_and(|owner| owner["uid"] == *uid)
}

/// Returns the owner of a Service: the Function with this UID, a Route, or another one.
pub(super) fn holder<'v>(service: &'v Value, function: &str) -> Holder<'v> {
    let Some(owner) = controller(service) else { return Holder::Other };
    let group = owner["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
    match owner["uid"].as_str() {
        Some(uid) if uid == function => Holder::Function,
        Some(uid) if group == Some(GROUP) && owner["kind"] == "Route" => Holder::Route(uid),
        _ => Holder::Other,
    }
}

/// Returns the patch that makes a Route the controller of Endpoints. Returns `None` if the Endpoints have a controller.
pub(super) fn given_endpoints(endpoints: &Value, route: &Value) -> Option<Value> {
    controller(endpoints).map_or_else(|| given(endpoints, route), |_| None)
}

/// Returns the patch that makes a Route the controller of an object; `None` if the Route already is the controller.
fn given(object: &Value, route: &Value) -> Option<Value> {
    let metadata = &route["metadata"];
    let is_given = is_controlled_by(object, &metadata["uid"]);
    let owner = json!({
        "apiVersion": route["apiVersion"], "kind": "Route", "name": metadata["name"], "uid": metadata["uid"],
        "controller": true
    });
    (!is_given).then(|| json!({ "metadata": { "ownerReferences": [owner] } }))
}

/// Returns the patch that makes a Route the controller of a Service. The patch removes the selector, because Knative
/// sets the endpoints.
pub(super) fn given_service(service: &Value, route: &Value) -> Option<Value> {
    let mut patch = given(service, route)?;
    patch["spec"] = json!({ "selector": null });
    Some(patch)
}

/// Whether a Service can be taken over. A headless Service cannot be taken over, because it never gets a cluster IP.
pub(super) fn can_be_taken(service: &Value) -> bool {
    service["spec"]["clusterIP"] != "None"
}

/// Returns the patch that turns a Route's Service into the one in `document`, without Knative's fields.
pub(super) fn taken(service: &Value, document: &Value) -> Value {
    let mut metadata = json!({ "ownerReferences": document["metadata"]["ownerReferences"] });
    for field in ["labels", "annotations"] {
        let of_knative = service["metadata"][field].as_object().into_iter().flatten();
        let mut keys: Map<_, _> = of_knative
            .filter(|(key, _)| key.split('/').next().is_some_and(|prefix| prefix.ends_with(KEYS)))
            .map(|(key, _)| (key.clone(), Value::Null))
            .collect();
        keys.extend(document["metadata"][field].as_object().cloned().unwrap_or_default());
        if !keys.is_empty() {
            metadata[field] = keys.into();
        }
    }
    let mut spec = document["spec"].clone();
    spec["externalName"] = Value::Null;
    json!({ "metadata": metadata, "spec": spec })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> Value {
        let metadata = json!({"name": "hello", "uid": "route"});
        json!({"apiVersion": "serving.knative.dev/v1", "kind": "Route", "metadata": metadata})
    }

    fn owned(api_version: &str, kind: &str, uid: &str) -> Value {
        json!({"metadata": {"ownerReferences": [{"apiVersion": api_version, "kind": kind, "uid": uid, "controller": true}]}})
    }

    #[test]
    fn the_controller_reference_names_the_owner_of_a_service() {
        let version = "serving.knative.dev/v1";
        assert_eq!(holder(&owned("serverless.kyma-project.io/v1alpha1", "Function", "1"), "1"), Holder::Function);
        assert_eq!(holder(&owned(version, "Route", "route"), "1"), Holder::Route("route"));
        for other in [owned("example.org/v1", "Route", "route"), owned(version, "Service", "x"), json!({})] {
            assert_eq!(holder(&other, "1"), Holder::Other, "{other}");
        }
        assert!(!is_controlled_by(&json!({}), &Value::Null));
    }

    #[test]
    fn a_service_of_a_route_is_not_ours() {
        let patch = given_service(&owned("v1", "Function", "1"), &route()).unwrap();
        assert_eq!(patch["spec"], json!({"selector": null}));
        let owner = &patch["metadata"]["ownerReferences"];
        assert_eq!((owner.as_array().unwrap().len(), &owner[0]["uid"]), (1, &json!("route")));
        let given_already = owned("serving.knative.dev/v1", "Route", "route");
        assert_eq!(given_service(&given_already, &route()), None);
        assert_eq!(given_endpoints(&owned("example.org/v1", "Mirror", "m"), &route()), None, "they are somebody's");
        assert!(given_endpoints(&json!({}), &route()).is_some());
    }

    #[test]
    fn a_service_that_is_taken_over_has_no_field_of_knative_left() {
        let service = json!({"metadata": {
            "labels": {"serving.knative.dev/route": "hello", "networking.knative.dev/visibility": "cluster-local", "team": "a"},
            "annotations": {"serving.knative.dev/creator": "x", "other": "y"},
        }, "spec": {"clusterIP": "10.0.0.1"}});
        let document =
            json!({"metadata": {"labels": {"team": "b"}, "ownerReferences": [1]}, "spec": {"type": "ClusterIP"}});
        let patch = taken(&service, &document);
        let labels = json!({"serving.knative.dev/route": null, "networking.knative.dev/visibility": null, "team": "b"});
        assert_eq!(patch["metadata"]["labels"], labels);
        assert_eq!(patch["metadata"]["annotations"], json!({"serving.knative.dev/creator": null}));
        assert_eq!(patch["spec"], json!({"type": "ClusterIP", "externalName": null}));
        assert!(can_be_taken(&service) && !can_be_taken(&json!({"spec": {"clusterIP": "None"}})));
    }
}
