//! Aliases: fields that the API server derives from a different field, and that remain when that field is removed.
//!
//! When a field is removed from the manifest, server-side apply removes it, and the server sets it again from its
//! alias. So both are claimed before the apply that removes them. If the stale aliases become known only after the
//! apply, they are claimed then, and a second apply follows.
//!
//! Invariant: only fields without an owner are stale. Fields that a person, a controller or a manifest owns stay.
//!
//! Not here: defaults that do not depend on another field.

use serde_json::{Value, json};

use super::fields::{Fields, add, entries, owns};
use mainstay_api::names::MANAGER;
use mainstay_object::Key;

/// Fields of one structure that the server derives from one another.
struct Alias {
    /// Group and kind of the objects, and the path of the structure in each kind.
    places: &'static [(&'static str, &'static str, &'static [&'static str])],
    /// The alias fields. A manifest that sets one of them sets all.
    fields: &'static [&'static str],
    /// The fields from which the server derives the aliases. When these are removed, the aliases are stale.
    follows: &'static [&'static str],
    /// Whether the values in a live structure are stale if the manifest sets none of the fields.
    is_stale: fn(&Value) -> bool,
}

/// All aliases of a Kubernetes API server.
const ALIASES: [Alias; 2] = [
    // Conversion between API versions copies each name to the other.
    Alias { places: &PODS, fields: &SERVICE_ACCOUNT, follows: &SERVICE_ACCOUNT, is_stale: |_| true },
    // The default contains Egress if the policy has egress rules. Without rules, the entry would deny all egress.
    Alias {
        places: &[("networking.k8s.io", "NetworkPolicy", &["spec"])],
        fields: &["policyTypes"],
        follows: &["egress"],
        is_stale: denies_egress_by_default,
    },
];

/// Both names of the ServiceAccount of a pod.
const SERVICE_ACCOUNT: [&str; 2] = ["serviceAccountName", "serviceAccount"];

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

impl Alias {
    /// Returns the aliases of a kind, each with the path of its structure.
    fn of(key: &Key) -> impl Iterator<Item = (&'static Self, &'static [&'static str])> {
        ALIASES.iter().filter_map(|alias| {
            let (_, _, path) = alias.places.iter().find(|(group, kind, _)| key.is(group, kind))?;
            Some((alias, *path))
        })
    }
}

fn at<'v>(object: &'v Value, path: &[&str]) -> &'v Value {
    path.iter().try_fold(object, |value, name| value.get(name)).unwrap_or(&Value::Null)
}

fn has(structure: &Value, field: &str) -> bool {
    structure.get(field).is_some_and(|value| !value.is_null())
}

/// Whether a kind has aliases.
pub(crate) fn are_in(key: &Key) -> bool {
    Alias::of(key).next().is_some()
}

/// Whether aliases may be stale after an apply of `body` to an object to which `old` was applied.
pub(crate) fn may_leave(key: &Key, old: &Value, body: &Value) -> bool {
    Alias::of(key).any(|(alias, path)| {
        let (old, body) = (at(old, path), at(body, path));
        alias.follows.iter().any(|field| has(old, field) && !has(body, field))
    })
}

/// Returns the aliases of a live object that will be stale after an apply of `body`. The apply removes fields that only
/// Mainstay owns and that `body` omits.
pub(crate) fn stale_after(key: &Key, body: &Value, live: &Value) -> Fields {
    let is_ours = |entry: &Value| entry["manager"] == MANAGER && entry["operation"] == "Apply";
    let mut after = live.clone();
    if let Some(entries) = after.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut) {
        entries.retain(|entry| !is_ours(entry));
    }
    for (alias, path) in Alias::of(key) {
        for field in alias.follows.iter().filter(|field| !has(at(body, path), field)) {
            let names = path.iter().chain([field]).map(|name| format!("f:{name}")).collect::<Vec<_>>();
            let names = names.iter().map(String::as_str).collect::<Vec<_>>();
            let owns_it = |object: &Value| entries(object).any(|entry| owns(entry.fields, &names));
            if !owns_it(live) || owns_it(&after) {
                continue;
            }
            let structure = path.iter().try_fold(&mut after, |value, name| value.get_mut(name));
            if let Some(structure) = structure.and_then(Value::as_object_mut) {
                structure.remove(*field);
            }
        }
    }
    stale(key, body, &after)
}

/// Returns the stale aliases of a live object after an apply of `body`, as a field set.
pub(crate) fn stale(key: &Key, body: &Value, live: &Value) -> Fields {
    let mut stale = Fields::new();
    for (alias, path) in Alias::of(key) {
        let there = at(live, path);
        if there.is_null() || !(alias.is_stale)(there) {
            continue;
        }
        let wanted = at(body, path);
        let is_owned = |field: &&str| {
            let names = path.iter().chain([field]).map(|name| format!("f:{name}")).collect::<Vec<_>>();
            let names = names.iter().map(String::as_str).collect::<Vec<_>>();
            entries(live).any(|entry| owns(entry.fields, &names))
        };
        if alias.fields.iter().any(|field| has(wanted, field)) || alias.fields.iter().any(is_owned) {
            continue;
        }
        for field in alias.fields.iter().filter(|field| has(there, field)) {
            add(&mut stale, &nested(path, field));
        }
    }
    stale
}

/// Returns the field set of one field.
fn nested(path: &[&str], field: &str) -> Fields {
    let leaf = Fields::from_iter([(format!("f:{field}"), json!({}))]);
    path.iter().rev().fold(leaf, |inside, name| Fields::from_iter([(format!("f:{name}"), Value::Object(inside))]))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_service_account_with_an_owner_is_not_stale() {
        let (group, kind, path) = PODS[4];
        let live = json!({"serviceAccount": "theirs", "serviceAccountName": "theirs"});
        for owned in ["f:serviceAccount", "f:serviceAccountName"] {
            let (key, live) = object(group, kind, path, &live, &json!({owned: {}}));
            assert_eq!(stale(&key, &json!({}), &live), Fields::new(), "{owned}");
        }
    }

    #[test]
    fn a_policy_without_rules_for_egress_lists_it_only_if_the_manifest_does() {
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

    #[test]
    fn stale_fields_are_known_before_the_apply_if_only_we_own_their_source() {
        for (group, kind, path) in PODS {
            let live = json!({"serviceAccount": "old", "serviceAccountName": "old", "containers": []});
            let (key, mut live) = object(group, kind, path, &live, &json!({"f:serviceAccountName": {}}));
            let body = |spec: &Value| object(group, kind, path, spec, &json!({})).1;
            let (without, with) = (body(&json!({"containers": []})), body(&json!({"serviceAccountName": "old"})));
            assert!(may_leave(&key, &with, &without) && !may_leave(&key, &with, &with), "{kind}");
            assert!(!may_leave(&key, &without, &without), "{kind}");
            assert_eq!(stale_after(&key, &without, &live), nested(path, "serviceAccount"), "{kind}");
            assert_eq!(stale_after(&key, &with, &live), Fields::new(), "{kind}");
            let entries = live.pointer_mut("/metadata/managedFields").unwrap().as_array_mut().unwrap();
            let mut theirs = entries[0].clone();
            theirs["manager"] = "theirs".into();
            entries.push(theirs);
            assert_eq!(stale_after(&key, &without, &live), Fields::new(), "{kind}: somebody else owns it, too");
        }
        let (group, kind, path) = ("networking.k8s.io", "NetworkPolicy", ["spec"]);
        let live = json!({"policyTypes": ["Ingress", "Egress"], "egress": [{}]});
        let (key, live) = object(group, kind, &path, &live, &json!({"f:egress": {}}));
        assert!(may_leave(&key, &live, &json!({"spec": {}})));
        assert_eq!(stale_after(&key, &json!({"spec": {}}), &live), nested(&path, "policyTypes"));
        assert_eq!(stale_after(&key, &live, &live), Fields::new());
        assert!(are_in(&key) && !are_in(&Key::new("", "ConfigMap", Some("shop"), "a")));
    }
}
