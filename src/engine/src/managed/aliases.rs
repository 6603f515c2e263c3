//! Fields that the API server keeps in step with another field, and that outlive it: server-side apply removes the field that
//! left the manifest, and the server fills it in again from what was kept in step.
//!
//! Invariant: only what nobody owns is stale. What a person, a controller or a manifest wrote is not.
//!
//! Deliberately absent: defaults that do not depend on another field.

use serde_json::{Value, json};

use super::fields::{Fields, add, entries, owns};
use mainstay_object::Key;

/// A set of fields of one structure that are kept in step.
struct Alias {
    /// Where they are: the kinds, and the path of the structure in each.
    places: &'static [(&'static str, &'static str, &'static [&'static str])],
    /// The fields. A manifest that says one of them says all.
    fields: &'static [&'static str],
    /// Whether their values in a live structure are stale, where the manifest says none of them.
    is_stale: fn(&Value) -> bool,
}

/// All of them, as a Kubernetes API server has them.
const ALIASES: [Alias; 2] = [
    // Conversion copies one to the other.
    Alias { places: &PODS, fields: &["serviceAccountName", "serviceAccount"], is_stale: |_| true },
    // The default lists Egress where there are rules for it. Left in the list without rules, it denies all egress.
    Alias {
        places: &[("networking.k8s.io", "NetworkPolicy", &["spec"])],
        fields: &["policyTypes"],
        is_stale: denies_egress_by_default,
    },
];

/// The specs of pods.
const PODS: [(&str, &str, &[&str]); 9] = [
    ("", "Pod", &["spec"]),
    ("", "PodTemplate", &["template", "spec"]),
    ("", "ReplicationController", &["spec", "template", "spec"]),
    ("apps", "DaemonSet", &["spec", "template", "spec"]),
    ("apps", "Deployment", &["spec", "template", "spec"]),
    ("apps", "ReplicaSet", &["spec", "template", "spec"]),
    ("apps", "StatefulSet", &["spec", "template", "spec"]),
    ("batch", "Job", &["spec", "template", "spec"]),
    ("batch", "CronJob", &["spec", "jobTemplate", "spec", "template", "spec"]),
];

fn denies_egress_by_default(spec: &Value) -> bool {
    let has_rules = spec["egress"].as_array().is_some_and(|rules| !rules.is_empty());
    let types = spec["policyTypes"].as_array();
    !has_rules && types.is_some_and(|types| types.iter().any(|kind| kind == "Egress"))
}

/// What of a live object is stale after `body` was applied to it, as a field set; empty where nothing is.
pub(crate) fn stale(key: &Key, body: &Value, live: &Value) -> Fields {
    let mut stale = Fields::new();
    for alias in &ALIASES {
        let place = alias.places.iter().find(|(group, kind, _)| key.is(group, kind));
        let Some((_, _, path)) = place else { continue };
        let at = |object: &Value| path.iter().try_fold(object.clone(), |value, name| value.get(name).cloned());
        let has = |value: &Value, field: &str| value.get(field).is_some_and(|value| !value.is_null());
        let Some(there) = at(live).filter(|there| (alias.is_stale)(there)) else { continue };
        let wanted = at(body).unwrap_or_default();
        let is_owned = |field: &&str| {
            let names = path.iter().chain([field]).map(|name| format!("f:{name}")).collect::<Vec<_>>();
            let names = names.iter().map(String::as_str).collect::<Vec<_>>();
            entries(live).any(|entry| owns(entry.fields, &names))
        };
        if alias.fields.iter().any(|field| has(&wanted, field)) || alias.fields.iter().any(is_owned) {
            continue;
        }
        for field in alias.fields.iter().filter(|field| has(&there, field)) {
            add(&mut stale, &nested(path, field));
        }
    }
    stale
}

/// The field set of one field.
fn nested(path: &[&str], field: &str) -> Fields {
    let leaf = Fields::from_iter([(format!("f:{field}"), json!({}))]);
    path.iter().rev().fold(leaf, |inside, name| Fields::from_iter([(format!("f:{name}"), Value::Object(inside))]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_api::names::MANAGER;

    fn object(group: &str, kind: &str, path: &[&str], inside: &Value, owned: &Value) -> (Key, Value) {
        let nest = |inside: &Value, prefix: &str| {
            path.iter().rev().fold(inside.clone(), |inside, name| json!({ format!("{prefix}{name}"): inside }))
        };
        let mut object = nest(inside, "");
        object["metadata"] = json!({"managedFields": [
            {"manager": MANAGER, "operation": "Apply", "fieldsV1": nest(owned, "f:")}]});
        (Key::new(group, kind, Some("shop"), "a"), object)
    }

    #[test]
    fn an_unnamed_service_account_is_stale_in_every_kind_with_pods() {
        for (group, kind, path) in PODS {
            let live = json!({"serviceAccount": "old", "serviceAccountName": "old", "containers": []});
            let (key, live) = object(group, kind, path, &live, &json!({"f:containers": {}}));
            let (_, body) = object(group, kind, path, &json!({"containers": []}), &json!({}));
            let mut both = nested(path, "serviceAccount");
            add(&mut both, &nested(path, "serviceAccountName"));
            assert_eq!(stale(&key, &body, &live), both, "{kind}");
            for name in ["serviceAccount", "serviceAccountName"] {
                let (_, body) = object(group, kind, path, &json!({name: "new"}), &json!({}));
                assert_eq!(stale(&key, &body, &live), Fields::new(), "{kind} names {name}");
            }
        }
    }

    #[test]
    fn a_service_account_that_somebody_owns_is_not_stale() {
        let (group, kind, path) = PODS[4];
        let live = json!({"serviceAccount": "theirs", "serviceAccountName": "theirs"});
        for owned in ["f:serviceAccount", "f:serviceAccountName"] {
            let (key, live) = object(group, kind, path, &live, &json!({owned: {}}));
            assert_eq!(stale(&key, &json!({}), &live), Fields::new(), "{owned}");
        }
    }

    #[test]
    fn a_policy_without_rules_for_egress_lists_it_only_where_the_manifest_does() {
        let check = |body: &Value, live: &Value, is_stale: bool| {
            let (group, kind, path) = ("networking.k8s.io", "NetworkPolicy", ["spec"]);
            let (key, live) = object(group, kind, &path, live, &json!({"f:podSelector": {}}));
            let (_, body) = object(group, kind, &path, body, &json!({}));
            let expected = if is_stale { nested(&path, "policyTypes") } else { Fields::new() };
            assert_eq!(stale(&key, &body, &live), expected, "{body} {live}");
        };
        let both = json!(["Ingress", "Egress"]);
        check(&json!({}), &json!({"policyTypes": both}), true);
        check(&json!({}), &json!({"policyTypes": ["Ingress"]}), false);
        check(&json!({}), &json!({"policyTypes": both, "egress": [{}]}), false);
        check(&json!({"policyTypes": both}), &json!({"policyTypes": both}), false);
    }
}
