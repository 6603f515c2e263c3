//! Names, labels and annotations of Knative's objects.

use serde_json::{Map, Value};

use devcluster_apiserver::object::text;

pub(super) const SERVICE: &str = "serving.knative.dev/service";
pub(super) const SERVICE_UID: &str = "serving.knative.dev/serviceUID";
pub(super) const CONFIGURATION: &str = "serving.knative.dev/configuration";
pub(super) const CONFIGURATION_UID: &str = "serving.knative.dev/configurationUID";
pub(super) const GENERATION: &str = "serving.knative.dev/configurationGeneration";
pub(super) const REVISION: &str = "serving.knative.dev/revision";
pub(super) const REVISION_UID: &str = "serving.knative.dev/revisionUID";
pub(super) const ROUTE: &str = "serving.knative.dev/route";
pub(super) const ROUTE_NAMESPACE: &str = "serving.knative.dev/routeNamespace";
/// Label: `pending`, `active` or `reserve`.
pub(super) const ROUTING_STATE: &str = "serving.knative.dev/routingState";
/// Annotation: time of the last change of the routing state.
pub(super) const ROUTING_SINCE: &str = "serving.knative.dev/routingStateModified";
/// Annotation: names of the Routes that send requests to the object.
pub(super) const ROUTES: &str = "serving.knative.dev/routes";
/// Annotation: the user who created the object.
pub(super) const CREATOR: &str = "serving.knative.dev/creator";
/// Annotation: the user who last changed the spec.
pub(super) const MODIFIER: &str = "serving.knative.dev/lastModifier";
/// Label: restricts an address to the cluster.
pub(super) const VISIBILITY: &str = "networking.knative.dev/visibility";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Maximum length of a name.
const LONGEST: usize = 63;
/// Length of the prefix before a digest.
const HEAD: usize = 31;

/// Returns the name of a child. A long name is cut and gets a digest of the parent's name.
pub(super) fn child(parent: &str, suffix: &str) -> String {
    if parent.len() + suffix.len() <= LONGEST {
        return format!("{parent}{suffix}");
    }
    let head = parent.get(..HEAD.saturating_sub(suffix.len())).unwrap_or_default();
    format!("{head}{:x}{suffix}", md5::compute(parent))
}

/// Returns a map of strings of an object, such as its labels.
pub(super) fn map(object: &Value, pointer: &str) -> Map<String, Value> {
    object.pointer(pointer).and_then(Value::as_object).cloned().unwrap_or_default()
}

/// Returns the labels of an object plus `more`.
pub(super) fn labels(object: &Value, more: &[(&str, &str)]) -> Map<String, Value> {
    let mut labels = map(object, "/metadata/labels");
    labels.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())));
    labels
}

/// Returns the annotations that a child inherits.
pub(super) fn annotations(object: &Value) -> Map<String, Value> {
    let mut annotations = map(object, "/metadata/annotations");
    annotations.retain(|name, _| name != LAST_APPLIED);
    annotations
}

/// Returns the labels of a Revision's children.
pub(super) fn of_revision(revision: &Value) -> Map<String, Value> {
    let (name, uid) = (text(revision, "/metadata/name"), text(revision, "/metadata/uid"));
    let mut labels = labels(revision, &[(REVISION, name), (REVISION_UID, uid)]);
    labels.remove(ROUTING_STATE);
    labels.entry("app").or_insert_with(|| name.into());
    labels
}

/// Returns the generation of the Configuration that a Revision was created for.
pub(super) fn number(revision: &Value) -> i64 {
    revision["metadata"]["labels"][GENERATION].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Returns an autoscaling annotation, spelled with hyphens or in the older camel case.
pub(super) fn autoscaling<'o>(object: &'o Value, name: &str) -> Option<&'o str> {
    let mut camel = String::new();
    for (number, word) in name.split('-').enumerate() {
        let mut letters = word.chars();
        match letters.next().filter(|_| number > 0) {
            Some(first) => camel.extend(first.to_uppercase().chain(letters)),
            None => camel.push_str(word),
        }
    }
    let annotations = &object["metadata"]["annotations"];
    let of = |key: &str| annotations[format!("autoscaling.knative.dev/{key}")].as_str();
    of(name).or_else(|| of(&camel))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_that_is_too_long_is_cut_and_distinguished_by_a_digest() {
        assert_eq!(child("hello-00001", "-deployment"), "hello-00001-deployment");
        let long = "a".repeat(60);
        let name = child(&long, "-deployment");
        assert_eq!(name, "aaaaaaaaaaaaaaaaaaaacc7ed669cf88f201c3297c6a91e1d18d-deployment");
        assert_eq!(name.len(), LONGEST);
        assert_ne!(child(&"b".repeat(60), "-deployment"), name);
    }

    #[test]
    fn a_setting_is_read_in_both_spellings_and_the_newer_wins() {
        let of = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        let old = of(json!({"autoscaling.knative.dev/minScale": "2"}));
        assert_eq!(autoscaling(&old, "min-scale"), Some("2"));
        let both = of(json!({"autoscaling.knative.dev/minScale": "2", "autoscaling.knative.dev/min-scale": "3"}));
        assert_eq!(autoscaling(&both, "min-scale"), Some("3"));
        assert_eq!(autoscaling(&json!({}), "min-scale"), None);
    }
}
