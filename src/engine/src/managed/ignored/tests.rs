//! Objects with ignored fields: their applies, comparisons and the release of ownership.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::managed::{Desired, Mark};
use mainstay_api::ignore::IgnoreRule;
use mainstay_cluster::{Kind, Scope};
use mainstay_object::Place as At;

/// Returns a Deployment with these ignored fields.
fn desired(document: Value, pointers: &[&str]) -> Desired {
    let kind = Arc::new(Kind::fixed("apps/v1", "Deployment", "deployments", Scope::Namespaced));
    let mut whole = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}});
    json_patch::merge(&mut whole, &document);
    let object = Arc::new(Object::from_value(&whole, At::file("a.yaml")).unwrap());
    let paths = pointers.iter().map(|pointer| (*pointer).to_owned()).collect::<Vec<_>>();
    let rules = if paths.is_empty() { Vec::new() } else { vec![IgnoreRule { paths, target: None }] };
    let key = kind.key(Some("shop"), "web");
    let ignored = Ignored::of(&IgnoreRules::parse(&rules).unwrap(), &key, &object).map(Box::new);
    Desired { key, kind, object, mark: Mark::Label("shop.demo".into()), ignored }
}

/// Returns a live object in which Mainstay owns `ours` and another manager owns `theirs`.
fn live(mut object: Value, ours: Value, theirs: Value) -> Value {
    object["metadata"]["managedFields"] = json!([
        {"manager": "other", "operation": "Update", "apiVersion": "apps/v1", "fieldsV1": theirs},
        {"manager": MANAGER, "operation": "Apply", "apiVersion": "apps/v1", "fieldsV1": ours},
    ]);
    object
}

fn containers() -> Value {
    json!({"spec": {"containers": [{"name": "web", "image": "a:1", "args": ["x", "y"]}, {"name": "log", "image": "l:1"}]}})
}

fn item(name: &str, fields: &[&str]) -> (String, Value) {
    let mut inside = json!({".": {}, "f:name": {}});
    for field in fields {
        inside[field] = json!({});
    }
    (format!("k:{{\"name\":\"{name}\"}}"), inside)
}

fn owned(items: impl IntoIterator<Item = (String, Value)>) -> Value {
    json!({"f:spec": {"f:containers": items.into_iter().collect::<serde_json::Map<_, _>>()}})
}

#[test]
fn a_field_in_a_list_item_is_found_by_the_key_of_the_item() {
    let desired = desired(containers(), &["/spec/containers/0/image"]);
    let ours = owned([item("web", &["f:image", "f:args"]), item("log", &["f:image"])]);
    let found = json!({"spec": {"containers": [
        {"name": "injected"}, {"name": "log", "image": "l:1"}, {"name": "web", "image": "a:2", "args": ["x", "y"]}]}});
    let found = live(found, ours, owned([item("injected", &[])]));
    let body = desired.body_over(&found);
    assert_eq!(
        body["spec"]["containers"],
        json!([{"name": "web", "args": ["x", "y"]}, {"name": "log", "image": "l:1"}])
    );
    let given_up = desired.given_up(&found).unwrap();
    assert_eq!(given_up[1]["fieldsV1"], owned([item("web", &["f:args"]), item("log", &["f:image"])]));
    assert_eq!(given_up[0], found["metadata"]["managedFields"][0]);
    let mut after = found.clone();
    after["metadata"]["managedFields"] = given_up;
    assert_eq!(desired.given_up(&after), None, "once");
    assert_eq!(desired.view(&after)["metadata"], desired.view(&found)["metadata"], "it is not looked at before");
}

#[test]
fn a_removed_item_does_not_move_later_ones() {
    let desired = desired(containers(), &["/spec/containers/0", "/spec/containers/1/image", "/spec/containers/0"]);
    let ours = owned([item("web", &["f:image", "f:args"]), item("log", &["f:image"])]);
    let found = live(containers(), ours, json!({}));
    assert_eq!(desired.body_over(&found)["spec"]["containers"], json!([{"name": "log"}]));
    assert_eq!(desired.given_up(&found).unwrap()[1]["fieldsV1"], owned([item("log", &[])]));
}

#[test]
fn a_new_object_has_the_values_of_the_manifest() {
    let desired = desired(containers(), &["/spec/containers/0/image", "/spec/containers/1/image"]);
    let found = json!({"spec": {"containers": [{"name": "log", "image": "l:9"}]}});
    let found = live(found, owned([item("log", &[])]), owned([item("log", &["f:image"])]));
    let expected = json!([{"name": "web", "image": "a:1", "args": ["x", "y"]}, {"name": "log"}]);
    assert_eq!(desired.body_over(&found)["spec"]["containers"], expected);
    assert_eq!(desired.whole_body()["spec"], containers()["spec"]);
}

#[test]
fn a_field_in_an_atomic_value_is_sent_with_its_live_value() {
    let routes = |weight: i64, host: &str| json!({"spec": {"http": [{"host": host, "weight": weight}]}});
    let desired = desired(routes(100, "a"), &["/spec/http/0/weight"]);
    let atomic = json!({"f:spec": {"f:http": {}}});
    // A manager that writes in the atomic value takes it from Mainstay.
    let found = live(routes(70, "b"), json!({"f:metadata": {"f:labels": {"f:x": {}}}}), atomic.clone());
    assert!(desired.follows(&found));
    assert_eq!(desired.body_over(&found)["spec"], routes(70, "a")["spec"]);
    assert_eq!(desired.given_up(&found), None);
    let digest = |live: &Value| projection::digest(&desired.view(live), &projection::EmptyContainers::default());
    let applied = digest(&live(routes(100, "a"), atomic.clone(), json!({})));
    assert_eq!(applied, digest(&live(routes(70, "a"), atomic.clone(), json!({}))));
    let taken = live(routes(70, "a"), json!({"f:metadata": {"f:labels": {"f:x": {}}}}), atomic.clone());
    let kept =
        live(routes(100, "a"), json!({"f:metadata": {"f:labels": {"f:x": {}}}, "f:spec": {"f:http": {}}}), json!({}));
    assert_eq!(digest(&kept), digest(&taken), "that it was taken is no difference");
    assert_ne!(digest(&kept), digest(&found), "the rest of it is");
}

#[test]
fn a_pointer_to_a_missing_place_changes_nothing() {
    let plain = desired(containers(), &["/spec/x", "/spec/containers/7/image", "/spec/containers/web", "/status"]);
    assert_eq!((plain.source(), plain.body()), (plain.object.digest, plain.whole_body()));
    let ours = owned([item("web", &["f:image", "f:args"]), item("log", &["f:image"])]);
    let found = live(containers(), ours, json!({}));
    assert_eq!((plain.body_over(&found), plain.given_up(&found)), (plain.whole_body(), None));
    assert_eq!(*plain.view(&found), found);
}

#[test]
fn a_change_of_an_ignored_field_changes_no_digest() {
    let with = |image: &str, args: &str| {
        let document = json!({"metadata": {"annotations": {"a": image}}, "spec": {"image": image, "args": args}});
        desired(document, &["/spec/image", "/metadata/annotations/a"]).source()
    };
    assert_eq!(with("a:1", "x"), with("a:2", "x"));
    assert_ne!(with("a:1", "x"), with("a:1", "y"));
    let without = desired(json!({"spec": {"args": "x"}}), &[]);
    assert_eq!(with("a:1", "x"), without.source(), "as if it were not there");
}

#[test]
fn values_that_people_wrote_in_an_ignored_field_are_not_taken_over() {
    let desired = desired(json!({}), &["/metadata/annotations/theirs", "/metadata/labels/a"]);
    let mut taken = json!({"f:metadata": {"f:annotations": {"f:theirs": {}, "f:other": {}}, "f:labels": {"f:a": {}}}});
    desired.leave_ignored(taken.as_object_mut().unwrap());
    assert_eq!(taken, json!({"f:metadata": {"f:annotations": {"f:other": {}}}}));
}

#[test]
fn members_of_a_set_are_identified_by_their_value() {
    let desired = desired(json!({"metadata": {"finalizers": ["a/a", "b/b"]}}), &["/metadata/finalizers/1"]);
    let ours = json!({"f:metadata": {"f:finalizers": {"v:\"a/a\"": {}, "v:\"b/b\"": {}}}});
    let found = live(json!({"metadata": {"finalizers": ["b/b", "a/a"]}}), ours, json!({}));
    assert_eq!(desired.body_over(&found)["metadata"]["finalizers"], json!(["a/a"]));
    let given_up = desired.given_up(&found).unwrap();
    assert_eq!(given_up[1]["fieldsV1"], json!({"f:metadata": {"f:finalizers": {"v:\"a/a\"": {}}}}));
}

#[test]
fn odd_live_objects_cause_no_panic() {
    let desired = desired(containers(), &["/spec/containers/0/args/1", "/spec/containers/1", "/metadata/labels/x"]);
    let ours = owned([item("web", &["f:args"]), item("log", &[])]);
    for found in [json!(null), json!([]), json!({"spec": 1}), json!({"spec": {"containers": {"web": 1}}}), containers()]
    {
        for managed in
            [json!(null), json!(1), json!([1, {}, {"manager": MANAGER, "operation": "Apply", "fieldsV1": ours}])]
        {
            let mut found = found.clone();
            if found.is_object() {
                found["metadata"] = json!({"managedFields": managed});
            }
            let _ = (desired.body_over(&found), desired.body_in_place_of(&found), desired.given_up(&found));
            let _ = (desired.view(&found), desired.follows(&found));
        }
    }
}
