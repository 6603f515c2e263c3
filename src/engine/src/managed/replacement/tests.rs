//! Replacements: their permissions, guards and messages.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::managed::Mark;
use mainstay_cluster::{Kind, Scope};
use mainstay_object::{Object, Place};

const NOW: jiff::Timestamp = jiff::Timestamp::UNIX_EPOCH;

fn desired(api_version: &str, kind: &str, document: Value) -> Desired {
    let mut whole = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
    json_patch::merge(&mut whole, &document);
    let object = Arc::new(Object::from_value(&whole, Place::file("a.yaml")).unwrap());
    let kind = Arc::new(Kind::fixed(api_version, kind, "plurals", Scope::Namespaced));
    Desired { key: kind.key(Some("shop"), "a"), kind, object, mark: Mark::Label("shop.demo".into()), ignored: None }
}

fn annotated(value: &str) -> Value {
    json!({"metadata": {"annotations": {REPLACE: value}}})
}

#[test]
fn kinds_are_parsed_and_all_invalid_ones_are_reported() {
    let parse = |items: &[&str]| ReplacedKinds::parse(&items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>());
    let kinds = parse(&["Job.batch", "Service", "Widget.example.org"]).unwrap();
    assert!(kinds.names(&Key::new("batch", "Job", Some("a"), "b")) && kinds.names(&Key::new("", "Service", None, "b")));
    assert!(
        !kinds.names(&Key::new("", "Job", None, "b")) && !kinds.names(&Key::new("example.org", "Service", None, "b"))
    );
    let check = |item: &str, expected: &str| {
        let why = parse(&["Service", item]).unwrap_err();
        assert!(why.starts_with(&format!("spec.replace[1]: {item:?}: {expected}")), "{why}");
    };
    check("Job", "the core group has no such kind; write Job.batch");
    check("Widget", "the core group has no such kind; write Kind.group");
    for item in ["", "job.batch", "Job.", "Job.batch/v1", "Job batch", "batch/Job", "*", "Job.batch..x"] {
        check(item, "must be Kind.group");
    }
    check("Namespace", "deleting a Namespace deletes everything in it");
    check("CustomResourceDefinition.apiextensions.k8s.io", "deleting it deletes every object of its kind");
    check("PersistentVolume", "deleting it deletes data, so objects of this kind are never");
    check("GitSync.mainstay.dev", "deleting a GitSync ends its work");
    check("PersistentVolumeClaim", "it holds data, so each object must have the annotation");
    let both = parse(&["Job", "Namespace"]).unwrap_err();
    assert!(both.contains("spec.replace[0]") && both.contains("; spec.replace[1]"), "{both}");
}

#[test]
fn an_annotation_or_a_kind_permits_but_data_needs_the_annotation() {
    let kinds = ReplacedKinds::parse(&["Job.batch".to_owned(), "StatefulSet.apps".to_owned()]).unwrap();
    let check = |api_version: &str, kind: &str, document: Value, expected: Result<AllowedBy, Denied>| {
        assert_eq!(permit(&desired(api_version, kind, document.clone()), &kinds), expected, "{kind} {document}");
    };
    let (annotation, spec) = (Ok(AllowedBy::Annotation), Ok(AllowedBy::Spec));
    check("v1", "Service", json!({}), Err(Denied::Unasked));
    check("v1", "Service", annotated(ENABLED), annotation.clone());
    check("v1", "Service", annotated("yes"), Err(Denied::Unasked));
    check("batch/v1", "Job", json!({}), spec.clone());
    check("batch/v1", "Job", annotated(ENABLED), annotation.clone());
    check("batch/v1", "Job", annotated(DISABLED), Err(Denied::Disabled));
    check("apps/v1", "StatefulSet", json!({"spec": {"volumeClaimTemplates": []}}), spec);
    let mut claims = json!({"spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}});
    check("apps/v1", "StatefulSet", claims.clone(), Err(Denied::HoldsData("it has volume claims, and so data")));
    json_patch::merge(&mut claims, &annotated(ENABLED));
    check("apps/v1", "StatefulSet", claims, annotation.clone());
    check("v1", "PersistentVolumeClaim", json!({}), Err(Denied::HoldsData("it holds data")));
    check("v1", "PersistentVolumeClaim", annotated(ENABLED), annotation);
    for (api_version, kind) in [
        ("v1", "Namespace"),
        ("v1", "PersistentVolume"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("mainstay.dev/v1alpha1", "GitSync"),
    ] {
        let permitted = permit(&desired(api_version, kind, annotated(ENABLED)), &kinds);
        assert!(matches!(permitted, Err(Denied::Never(_))), "{kind}: {permitted:?}");
    }
}

/// Judges a live object with these changes.
fn judged(change: Value, is_proven: bool, of: impl FnOnce(&mut Candidate<'_>)) -> Result<(), Unfit> {
    let desired = desired("batch/v1", "Job", json!({}));
    let mut candidate = Candidate { desired: &desired, allowed_by: AllowedBy::Spec, was_ours: true, had_ended: false };
    of(&mut candidate);
    let mut live = json!({"metadata": {"name": "a", "uid": "u", "labels": {SYNC_LABEL: "shop.demo"}}});
    json_patch::merge(&mut live, &change);
    judge(&candidate, &live, is_proven, NOW)
}

#[test]
fn our_object_or_its_successor_is_deleted_unless_a_guard_forbids_it() {
    let check = |change: Value, expected: Denied| {
        assert_eq!(judged(change.clone(), true, |_| ()), Err(Unfit::Denied(expected)), "{change}");
    };
    assert_eq!(judged(json!({}), true, |_| ()), Ok(()));
    let unlabelled = json!({"metadata": {"labels": null}});
    assert_eq!(judged(unlabelled.clone(), false, |_| ()), Ok(()), "it was put in the place of ours");
    let never_ours = |of: &mut Candidate<'_>| of.was_ours = false;
    assert_eq!(judged(json!({}), true, never_ours), Ok(()), "it is proven to be ours");
    for (change, is_proven) in [(json!({}), false), (unlabelled, true)] {
        assert_eq!(judged(change, is_proven, never_ours), Err(Unfit::Denied(Denied::NotOurs)));
    }
    let ended = judged(json!({}), true, |of| of.had_ended = true);
    assert_eq!(ended, Err(Unfit::Denied(Denied::Ended)));
    check(json!({"metadata": {"labels": {SYNC_LABEL: "shop.other"}}}), Denied::Anothers);
    let annotations = |name: &str, value: &str| json!({"metadata": {"annotations": {name: value}}});
    check(annotations("mainstay.dev/reconcile", "disabled"), Denied::Paused);
    check(annotations("mainstay.dev/prune", "disabled"), Denied::Kept("mainstay.dev/prune: disabled"));
    check(annotations(REPLACE, DISABLED), Denied::Disabled);
    let owner =
        |controller| json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": controller}]);
    check(json!({"metadata": {"ownerReferences": owner(true)}}), Denied::Controlled);
    assert_eq!(judged(json!({"metadata": {"ownerReferences": owner(false)}}), true, |_| ()), Ok(()));
    check(json!({"metadata": {"ownerReferences": "garbage"}}), Denied::NotOurs);
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}});
    assert!(matches!(judged(going, true, |_| ()), Err(Unfit::UnderWay(t)) if t.finalizers == ["a/b"]));
}

#[test]
fn live_volume_claims_count_although_the_manifest_has_none_any_more() {
    let desired = desired("apps/v1", "StatefulSet", json!({}));
    let live = json!({"metadata": {"labels": {SYNC_LABEL: "shop.demo"}}, "spec": {"volumeClaimTemplates": [{}]}});
    let judged = |allowed_by| {
        let of = Candidate { desired: &desired, allowed_by, was_ours: true, had_ended: false };
        judge(&of, &live, true, NOW)
    };
    assert!(matches!(judged(AllowedBy::Spec), Err(Unfit::Denied(Denied::HoldsData(_)))));
    assert_eq!(judged(AllowedBy::Annotation), Ok(()));
}

#[test]
fn a_trial_omits_fields_that_the_first_object_holds() {
    let service = desired(
        "v1",
        "Service",
        json!({"spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80, "nodePort": 30_080}]}}),
    );
    let name = trial_name(&service.key);
    let body = trial(&service, Some(&name));
    assert_eq!(body["metadata"]["name"], *name);
    assert_eq!(body["spec"], json!({"ports": [{"port": 80}]}));
    assert!(name.len() <= 63 && name != trial_name(&Key::new("", "Service", Some("shop"), "b")), "{name}");
    assert_eq!(trial(&service, None)["metadata"]["name"], "a");
    let class = desired("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 7, "globalDefault": true}));
    assert_eq!(trial(&class, None)["globalDefault"], Value::Null);
}

#[test]
fn a_grown_claim_is_reported_with_its_size() {
    let key = Key::new("", "PersistentVolumeClaim", Some("shop"), "a");
    let text = Denied::Grown("20Gi".to_owned()).text(&key);
    assert_eq!(
        text,
        "it was grown to 20Gi, and a claim cannot shrink: commit the size, `spec.resources.requests.storage: 20Gi`"
    );
}

#[test]
fn a_forbidden_replacement_says_how_to_allow_it() {
    let text = |group: &str, kind: &str, why: Denied| why.text(&Key::new(group, kind, Some("shop"), "a"));
    let unasked = text("apps", "Deployment", Denied::Unasked);
    let snippets = ["`annotations: {mainstay.dev/replace: enabled}`", "`replace: [Deployment.apps]`"];
    assert!(snippets.iter().all(|snippet| unasked.contains(snippet)), "{unasked}");
    assert!(text("batch", "Job", Denied::Unasked).contains(RERUN));
    assert!(text("", "Service", Denied::Unasked).contains("`replace: [Service]`"));
    let claim = text("", "PersistentVolumeClaim", Denied::HoldsData("it holds data"));
    assert!(
        claim.starts_with("it holds data, so spec.replace does not apply") && claim.contains(snippets[0]),
        "{claim}"
    );
}
