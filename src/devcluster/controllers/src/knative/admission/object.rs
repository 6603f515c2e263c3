//! Validation of Services, Configurations, Revisions and Routes.

use serde_json::Value;

use super::container;
use super::findings::Findings;
use crate::knative::names;
use devcluster_apiserver::object::{controller, is_terminating, text};

/// Prefix of annotations for autoscaling.
const AUTOSCALING: &str = "autoscaling.knative.dev/";
/// Kubernetes' message for an invalid name.
const NO_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
    character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
    '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// Validates an object against its stored version.
pub(super) fn check(kind: &str, object: &Value, old: &Value, user: &str) -> Findings {
    let mut found = Findings::default();
    // A terminating object must accept the removal of its finalizers.
    if is_terminating(object) {
        return found;
    }
    if kind != "Revision" {
        name(object, &mut found);
    }
    match kind {
        "Service" => {
            annotations(object, &mut found);
            template(object, old, &mut found);
            traffic(object, &mut found);
        }
        "Configuration" => template(object, old, &mut found),
        "Route" => traffic(object, &mut found),
        "Revision" => {
            container::check(&object["spec"], "spec", &mut found);
            scale(object, "metadata", &mut found);
            if !old.is_null() && old["spec"] != object["spec"] {
                found.add("Immutable fields changed (-old +new)", "spec");
            }
        }
        _ => {}
    }
    if controller(object).is_none() && !old.is_null() {
        signatures(object, old, user, &mut found);
    }
    found
}

fn name(object: &Value, found: &mut Findings) {
    let name = text(object, "/metadata/name");
    let is_label = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && name.len() <= 63;
    if !name.is_empty() && !is_label {
        let why = if name.len() > 63 { "must be no more than 63 characters" } else { NO_LABEL };
        found.add(format!("not a DNS 1035 label: [{why}]"), "metadata.name");
    }
}

/// Refuses autoscaling annotations on the Service: they belong on the template.
fn annotations(object: &Value, found: &mut Findings) {
    for (key, _) in object["metadata"]["annotations"].as_object().into_iter().flatten() {
        if key.starts_with(AUTOSCALING) {
            found.add(format!("invalid key name {key:?}"), "metadata.annotations");
        }
    }
}

fn template(object: &Value, old: &Value, found: &mut Findings) {
    let template = &object["spec"]["template"];
    container::check(&template["spec"], "spec.template.spec", found);
    scale(template, "spec.template.metadata", found);
    let (given, own) = (text(template, "/metadata/name"), text(object, "/metadata/name"));
    if given.is_empty() {
        return;
    }
    if !given.starts_with(&format!("{own}-")) {
        let what = format!("invalid value: {given:?} must have prefix \"{own}-\"");
        found.add(what, "spec.template.metadata.name");
    }
    let before = &old["spec"]["template"];
    if text(before, "/metadata/name") == given && before != template {
        found.add("Saw the following changes without a name change (-old +new)", "spec.template.metadata.name");
    }
}

/// Checks the autoscaling bounds of a template.
fn scale(template: &Value, at: &str, found: &mut Findings) {
    let key = |name: &str| {
        let annotations = &template["metadata"]["annotations"];
        let hyphens = format!("{AUTOSCALING}{name}");
        if annotations[&hyphens].is_string() { hyphens } else { format!("{AUTOSCALING}{}", camel(name)) }
    };
    let mut number = |name: &str| {
        let given = names::autoscaling(template, name)?;
        let number = given.parse::<i32>().ok().filter(|number| *number >= 0);
        if number.is_none() {
            found.add(format!("invalid value: {given}"), format!("{at}.annotations.{}", key(name)));
        }
        number
    };
    let (min, max) = (number("min-scale").unwrap_or(0), number("max-scale").unwrap_or(0));
    if max != 0 && max < min {
        let field = |name: &str| format!("{at}.annotations.{}", key(name));
        let what = format!("max-scale={max} is less than min-scale={min}");
        found.add(what, format!("{}, {}", field("max-scale"), field("min-scale")));
    }
}

fn camel(name: &str) -> &str {
    if name == "min-scale" { "minScale" } else { "maxScale" }
}

fn traffic(object: &Value, found: &mut Findings) {
    let targets = object["spec"]["traffic"].as_array().map_or(&[][..], Vec::as_slice);
    let mut sum = 0;
    for (index, target) in targets.iter().enumerate() {
        let percent = target["percent"].as_i64().unwrap_or(0);
        if !(0..=100).contains(&percent) {
            found.add(format!("expected 0 <= {percent} <= 100"), format!("spec.traffic[{index}].percent"));
        }
        sum += percent;
        let is_pinned = !text(target, "/revisionName").is_empty();
        if is_pinned && target["latestRevision"] == true {
            let what = "may not set revisionName \"".to_owned()
                + text(target, "/revisionName")
                + "\" when latestRevision is true";
            found.add(what, format!("spec.traffic[{index}].latestRevision"));
        }
    }
    if sum != 100 {
        found.add(format!("Traffic targets sum to {sum}, want 100"), "spec.traffic");
    }
}

/// Validates creator and modifier. The creator is immutable. The modifier must be the user of this write.
fn signatures(object: &Value, old: &Value, user: &str, found: &mut Findings) {
    let of = |object: &Value, name: &str| object["metadata"]["annotations"][name].clone();
    let mut refuse = |name: &str| found.add("annotation value is immutable", format!("metadata.annotations.{name}"));
    if of(object, names::CREATOR) != of(old, names::CREATOR) {
        refuse(names::CREATOR);
    }
    let (before, after) = (of(old, names::MODIFIER), of(object, names::MODIFIER));
    if before != after && (object["spec"] == old["spec"] || after != user) {
        refuse(names::MODIFIER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the errors of a Service with this patch.
    fn said(patch: Value) -> String {
        let mut service = json!({
            "metadata": {"name": "hello"},
            "spec": {"template": {"spec": {"containers": [{"image": "i"}]}}, "traffic": [{"latestRevision": true, "percent": 100}]},
        });
        merge(&mut service, patch);
        check("Service", &service, &Value::Null, "ada").0.join("\n")
    }

    fn merge(into: &mut Value, patch: Value) {
        match (into, patch) {
            (Value::Object(into), Value::Object(patch)) => {
                patch.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
            }
            (into, patch) => *into = patch,
        }
    }

    fn container(fields: Value) -> Value {
        let mut container = json!({"image": "i"});
        merge(&mut container, fields);
        json!({"spec": {"template": {"spec": {"containers": [container]}}}})
    }

    #[test]
    fn refusals_have_the_words_of_knative() {
        let pod = |fields: Value| json!({"spec": {"template": {"spec": fields}}});
        let env = |value: Value| container(json!({"env": [value]}));
        let at = "spec.template.spec.containers[0]";
        for (patch, expected) in [
            (env(json!({"name": "PORT", "value": "1"})), format!("\"PORT\" is a reserved environment variable: {at}.env[0].name")),
            (
                env(json!({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})),
                format!("must not set the field(s): {at}.env[0].valueFrom.fieldRef"),
            ),
            (
                pod(json!({"securityContext": {"runAsUser": 1}, "initContainers": [{"image": "i"}], "automountServiceAccountToken": true})),
                "must not set the field(s): spec.template.spec.automountServiceAccountToken, spec.template.spec.initContainers, \
                 spec.template.spec.securityContext".to_owned(),
            ),
            (
                json!({"metadata": {"annotations": {"autoscaling.knative.dev/minScale": "1"}}}),
                "invalid key name \"autoscaling.knative.dev/minScale\": metadata.annotations".to_owned(),
            ),
            (
                container(json!({"ports": [{"name": "http", "containerPort": 8080}]})),
                format!("Port name http is not allowed: {at}.ports\nName must be empty, or one of: 'h2c', 'http1'"),
            ),
            (
                container(json!({"ports": [{"containerPort": 8012}]})),
                format!("invalid value: 8012 is a reserved port: {at}.ports.containerPort"),
            ),
            (json!({"spec": {"traffic": [{"latestRevision": true, "percent": 50}]}}), "Traffic targets sum to 50, want 100: spec.traffic".to_owned()),
            (json!({"metadata": {"name": "1a"}}), format!("not a DNS 1035 label: [{NO_LABEL}]: metadata.name")),
            (
                json!({"spec": {"template": {"metadata": {"annotations": {
                    "autoscaling.knative.dev/min-scale": "2", "autoscaling.knative.dev/max-scale": "1"}}}}}),
                "max-scale=1 is less than min-scale=2: spec.template.metadata.annotations.autoscaling.knative.dev/max-scale, \
                 spec.template.metadata.annotations.autoscaling.knative.dev/min-scale".to_owned(),
            ),
            (pod(json!({"timeoutSeconds": 601})), "expected 0 <= 601 <= 600: spec.template.spec.timeoutSeconds".to_owned()),
            (pod(json!({"containers": []})), "missing field(s): spec.template.spec.containers".to_owned()),
            (
                json!({"spec": {"template": {"metadata": {"name": "other-1"}}}}),
                "invalid value: \"other-1\" must have prefix \"hello-\": spec.template.metadata.name".to_owned(),
            ),
        ] {
            assert_eq!(said(patch), expected);
        }
    }

    #[test]
    fn accepts_all_that_knative_accepts() {
        let restricted = json!({
            "securityContext": {"runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            "readinessProbe": {"httpGet": {"path": "/", "port": 8080}},
        });
        let mut whole = container(restricted);
        merge(
            &mut whole,
            json!({"spec": {"template": {
                "metadata": {"annotations": {"autoscaling.knative.dev/minScale": "3", "autoscaling.knative.dev/min-scale": "1",
                    "autoscaling.knative.dev/max-scale": "2"}},
                "spec": {"automountServiceAccountToken": false, "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}]},
            }}}),
        );
        assert_eq!(said(whole), "");
    }

    #[test]
    fn a_template_with_a_name_of_its_own_changes_with_its_name_only() {
        let service = |name: &str, image: &str| {
            json!({"metadata": {"name": "hello"}, "spec": {"traffic": [{"percent": 100}], "template": {
                "metadata": {"name": name}, "spec": {"containers": [{"image": image}]}}}})
        };
        let of = |new: &Value| check("Service", new, &service("hello-a", "i"), "ada").0.join("\n");
        assert_eq!(of(&service("hello-a", "i")), "");
        assert_eq!(of(&service("hello-b", "j")), "");
        let expected = "Saw the following changes without a name change (-old +new): spec.template.metadata.name";
        assert_eq!(of(&service("hello-a", "j")), expected);
    }

    #[test]
    fn the_creator_can_be_neither_changed_nor_removed() {
        let service = |annotations: Value, image: &str| {
            json!({"metadata": {"name": "hello", "annotations": annotations},
                "spec": {"traffic": [{"percent": 100}], "template": {"spec": {"containers": [{"image": image}]}}}})
        };
        let old = service(json!({names::CREATOR: "ada", names::MODIFIER: "ada"}), "i");
        let of = |new: &Value| check("Service", new, &old, "bob").0.join("\n");
        let refused = |name: &str| format!("annotation value is immutable: metadata.annotations.{name}");
        assert_eq!(of(&service(json!({names::MODIFIER: "ada"}), "i")), refused(names::CREATOR));
        assert_eq!(of(&service(json!({names::CREATOR: "ada", names::MODIFIER: "bob"}), "i")), refused(names::MODIFIER));
        assert_eq!(of(&service(json!({names::CREATOR: "ada", names::MODIFIER: "bob"}), "j")), "");
        let revision = |image: &str| json!({"metadata": {"name": "r"}, "spec": {"containers": [{"image": image}]}});
        let changed = check("Revision", &revision("j"), &revision("i"), "ada").0.join("\n");
        assert_eq!(changed, "Immutable fields changed (-old +new): spec");
    }

    #[test]
    fn a_route_has_traffic() {
        let route = json!({"metadata": {"name": "hello"}});
        let found = check("Route", &route, &Value::Null, "ada").0.join("\n");
        assert_eq!(found, "Traffic targets sum to 0, want 100: spec.traffic");
    }
}
