//! Evaluates the expressions with a CEL implementation other than that of a cluster.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

fn protection() -> Protection {
    Protection {
        owner: Owner::git_sync("shop", "web"),
        label: "shop.web".to_owned(),
        repository: "GitRepository shop/app".to_owned(),
        reference: "main".to_owned(),
        base_dir: "/deploy".to_owned(),
        account: Some("system:serviceaccount:shop:deployer".to_owned()),
        limit: Limit::None,
    }
}

/// A stored object of the GitSync.
fn stored() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "shop", "resourceVersion": "1", "generation": 1,
            "labels": {SYNC_LABEL: "shop.web"},
            "managedFields": [{"manager": "mainstay", "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}}],
        },
        "spec": {"replicas": 1, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}}},
        "status": {"replicas": 1},
    })
}

/// Applies a JSON merge patch and returns the next version of the object.
fn changed(patch: Value) -> Value {
    let mut new = stored();
    json_patch::merge(&mut new, &patch);
    new["metadata"]["resourceVersion"] = json!("2");
    new
}

/// Evaluates an expression after its variables are expanded.
fn evaluate(expression: &str, variables: &[(&str, String)], request: &Value, old: &Value, new: &Value) -> cel::Value {
    let mut source = expression.to_owned();
    for (name, variable) in variables.iter().rev() {
        source = source.replace(&format!("variables.{name}"), &format!("({variable})"));
    }
    let env = Arc::new(cel::Env::stdlib());
    let mut context = cel::Context::with_env(Arc::clone(&env));
    for (name, value) in [("request", request), ("oldObject", old), ("object", new)] {
        context.add_variable(name, value.clone()).unwrap();
    }
    let program = env.compile(&source).unwrap_or_else(|_| panic!("{source}"));
    program.execute(&context).unwrap_or_else(|why| panic!("{source}: {why}"))
}

/// Returns the message of the policy if it rejects a write.
fn judge(
    protection: &Protection,
    user: &str,
    groups: &[&str],
    request: Value,
    new: &Value,
    old: &Value,
) -> Option<String> {
    let mut whole = json!({
        "operation": if new.is_null() { "DELETE" } else { "UPDATE" }, "dryRun": false,
        "kind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "options": {"kind": "UpdateOptions"},
        "userInfo": {"username": user, "groups": groups},
    });
    json_patch::merge(&mut whole, &request);
    for (_, condition) in protection.conditions("system:serviceaccount:mainstay-system:mainstay") {
        if evaluate(&condition, &[], &whole, old, new) != cel::Value::Bool(true) {
            return None;
        }
    }
    let variables = protection.variables();
    if evaluate("variables.isLeftToOthers", &variables, &whole, old, new) == cel::Value::Bool(true) {
        return None;
    }
    let policy = protection.policy("agent");
    let worded = policy["spec"]["validations"][0]["messageExpression"].as_str().unwrap();
    match evaluate(worded, &variables, &whole, old, new) {
        cel::Value::String(text) => Some(text.to_string()),
        other => panic!("{other:?} is no text"),
    }
}

fn check(what: &str, user: &str, groups: &[&str], new: Value, refused: bool) {
    let found = judge(&protection(), user, groups, json!({}), &new, &stored());
    assert_eq!(found.is_some(), refused, "{what}: {found:?}");
}

const ACCOUNT: &str = "system:serviceaccount:tools:operator";

#[test]
fn people_change_only_permitted_fields() {
    let by_hand = |what: &str, patch: Value, refused| check(what, "jane", &["system:masters"], changed(patch), refused);
    by_hand("a field of the manifest", json!({"spec": {"replicas": 2}}), true);
    by_hand("another field", json!({"spec": {"paused": true}}), true);
    by_hand("a whole part", json!({"spec": null}), true);
    by_hand("another part", json!({"data": {"a": "1"}}), true);
    by_hand("our label", json!({"metadata": {"labels": {SYNC_LABEL: null}}}), true);
    by_hand("another label", json!({"metadata": {"labels": {"a": "1"}}}), true);
    by_hand("an annotation", json!({"metadata": {"annotations": {"a": "1"}}}), true);
    by_hand("a finalizer", json!({"metadata": {"finalizers": ["a/b"]}}), true);
    by_hand("our entry", json!({"metadata": {"managedFields": null}}), true);
    by_hand("in the template", json!({"spec": {"template": {"spec": {"containers": [1]}}}}), true);
    let restarted = json!({"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: "now"}}}}});
    by_hand("a restart", restarted.clone(), false);
    let mut more = restarted;
    more["spec"]["template"]["metadata"]["annotations"]["a"] = json!("1");
    by_hand("a restart and more", more, true);
    by_hand(
        "break glass",
        json!({"metadata": {"annotations": {RECONCILE: "disabled", "mainstay.dev/until": "x"}}}),
        false,
    );
    let both = json!({"metadata": {"annotations": {RECONCILE: "disabled"}}, "spec": {"replicas": 2}});
    by_hand("break glass and more at once", both, true);
    by_hand("the status", json!({"status": {"replicas": 2}}), false);
    by_hand("nothing", json!({}), false);
    let others = json!([
        {"manager": "mainstay", "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        {"manager": "kubectl", "operation": "Update"},
    ]);
    by_hand("entries of others", json!({"metadata": {"managedFields": others}}), false);
    check("a deletion", "jane", &[], Value::Null, true);
}

#[test]
fn the_agent_its_account_and_the_cluster_pass() {
    // The server removes a field from Mainstay's entry when another manager changes it.
    let taken = json!([{"manager": "mainstay", "operation": "Apply", "fieldsV1": {}}]);
    let patch = || changed(json!({"metadata": {"managedFields": taken}, "spec": {"replicas": 2}}));
    for (user, groups) in [
        ("system:serviceaccount:mainstay-system:mainstay", &[][..]),
        ("system:serviceaccount:shop:deployer", &[]),
        ("system:kube-controller-manager", &[]),
        ("system:apiserver", &[]),
        ("system:serviceaccount:kube-system:generic-garbage-collector", &["system:serviceaccounts:kube-system"]),
        ("system:node:a", &["system:nodes"]),
    ] {
        check(user, user, groups, patch(), false);
        check(user, user, groups, Value::Null, false);
    }
    check("another account", "system:serviceaccount:shop:other", &["system:serviceaccounts:shop"], patch(), true);
}

#[test]
fn accounts_add_fields_but_change_none_of_the_manifest() {
    let adds = json!({"metadata": {"finalizers": ["a/b"], "annotations": {"a": "1"}}, "spec": {"paused": true}});
    check("an addition", ACCOUNT, &[], changed(adds.clone()), false);
    let taken = json!([{"manager": "mainstay", "operation": "Apply", "fieldsV1": {}}]);
    let changes = changed(json!({"metadata": {"managedFields": taken}, "spec": {"replicas": 2}}));
    check("a change", ACCOUNT, &[], changes, true);
    check("a deletion", ACCOUNT, &[], Value::Null, true);
    let as_us = json!({"options": {"fieldManager": "mainstay"}});
    let found = judge(&protection(), ACCOUNT, &[], as_us.clone(), &changed(adds), &stored());
    assert!(found.is_some(), "a change in our name");
    let moved = changed(json!({"metadata": {"labels": {SYNC_LABEL: "team.other"}}, "spec": {"replicas": 2}}));
    assert_eq!(judge(&protection(), ACCOUNT, &[], as_us, &moved, &stored()), None, "another GitSync takes it");
}

#[test]
fn foreign_objects_and_dry_runs_are_not_judged() {
    let new = changed(json!({"spec": {"replicas": 2}}));
    let dry = json!({"dryRun": true});
    assert_eq!(judge(&protection(), "jane", &[], dry, &new, &stored()), None, "a dry run");
    for patch in [
        json!({"metadata": {"annotations": {RECONCILE: "disabled"}}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"metadata": {"managedFields": null}}),
        json!({"metadata": {"managedFields": [{"manager": "kubectl", "operation": "Update"}]}}),
        json!({"metadata": {"labels": null}}),
        json!({"metadata": {"labels": {SYNC_LABEL: "shop.other"}}}),
        json!({"metadata": {"ownerReferences": [{"kind": "ReplicaSet", "controller": true}]}}),
    ] {
        let mut old = stored();
        json_patch::merge(&mut old, &patch);
        assert_eq!(judge(&protection(), "jane", &[], json!({}), &new, &old), None, "{patch}");
        assert_eq!(judge(&protection(), "jane", &[], json!({}), &Value::Null, &old), None, "{patch}");
    }
}

#[test]
fn a_refusal_says_what_to_do() {
    let found = judge(&protection(), "jane", &[], json!({}), &Value::Null, &stored()).unwrap();
    let says = "Deployment.apps shop/web is kept as it is in Git by GitSync shop/web (directory /deploy of GitRepository \
                shop/app, main): change it there; `mainstay trace` says in which file. To change it here all the same: \
                `mainstay pause` for Deployment.apps shop/web first, and `mainstay resume` afterwards";
    assert_eq!(found, says);
}

#[test]
fn values_of_a_spec_stay_text_in_the_expression() {
    let hostile = "\" + string(request.userInfo) + \"\n'\\x";
    let protection = Protection {
        repository: hostile.to_owned(),
        reference: hostile.to_owned(),
        base_dir: format!("/{}", "ä".repeat(4000)),
        ..protection()
    };
    let found = judge(&protection, "jane", &[], json!({}), &Value::Null, &stored()).unwrap();
    assert!(found.contains("string(request.userInfo)") && !found.contains('\n') && found.len() < 1500, "{found}");
    let policy = protection.policy("agent");
    let message = policy["spec"]["validations"][0]["message"].as_str().unwrap();
    assert!(!message.contains('\n'), "{message}");
}

#[test]
fn a_binding_of_a_confined_git_sync_covers_only_its_namespaces() {
    let namespaces = ["shop".to_owned(), "shop-db".to_owned()].into();
    let binding = Protection { limit: Limit::Namespaces(namespaces), ..protection() }.binding();
    let about = &binding["spec"]["matchResources"];
    let selector = json!([{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["shop", "shop-db"]}]);
    assert_eq!(about["namespaceSelector"]["matchExpressions"], selector);
    assert_eq!(about["resourceRules"][0]["scope"], "Namespaced");
    assert_eq!(protection().binding()["spec"].get("matchResources"), None);
}

#[test]
fn names_of_policies_are_valid() {
    assert_eq!(name_of(&Owner::git_sync("shop", "web")), "mainstay-shop.web");
    let long = name_of(&Owner::git_sync("shop", &"a".repeat(250)));
    assert!(long.len() <= LONGEST_NAME && long.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{long}");
}
