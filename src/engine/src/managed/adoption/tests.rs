//! Takeovers: their fields, appliers and moments, and how they are undone.

use super::*;
use crate::managed::fixtures::desired_of;
use mainstay_cluster::{Kind, Scope};

const NOW: &str = "2026-01-01T00:00:00Z";

fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
    let (version, time) = ("apps/v1", "2025-06-01T00:00:00Z");
    json!({"manager": manager, "operation": operation, "apiVersion": version, "time": time, "fieldsType": "FieldsV1",
           "fieldsV1": fields})
}

fn web() -> Arc<Desired> {
    let kind = Kind::fixed("apps/v1", "Deployment", "deployments", Scope::Namespaced);
    let document = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "finalizers": ["a/named"]},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "web", "image": "nginx"}]}}},
    });
    desired_of(kind, &document)
}

fn container(name: &str, fields: &Value) -> Value {
    json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {format!("k:{{\"name\":\"{name}\"}}"): fields}}}}})
}

/// Takes over fields of `web` from these entries.
fn taken(entries: &Value, from: &Appliers, moment: Moment) -> Option<TakeOver> {
    take_over(entries, &web(), &web().body(), from, moment, NOW)
}

fn all() -> Appliers {
    Appliers::former(Arc::from(["kustomize-controller".to_owned()]))
}

#[test]
fn only_kubectl_in_every_form_and_named_appliers_are_taken_over() {
    let fields = container("log", &json!({".": {}, "f:name": {}, "f:image": {}}));
    let check = |manager: &str, operation: &str, is_taken: bool| {
        let taken = taken(&json!([entry(manager, operation, &fields)]), &all(), Moment::Before);
        assert_eq!(taken.is_some(), is_taken, "{manager} {operation}");
        let Some(taken) = taken else { return };
        assert_eq!(taken.entries[0]["manager"], MANAGER, "{manager}: nothing is left to it");
        assert_eq!(taken.entries[0]["fieldsV1"], fields);
        assert_eq!(taken.fields(), [r#"spec.template.spec.containers[name="log"]"#], "{manager}");
        assert_eq!(taken.from, [manager]);
    };
    for operation in ["Apply", "Update"] {
        for manager in ["kubectl", "kubectl-client-side-apply", "kubectl-create", "kubectl-edit", "kubectl-patch"] {
            check(manager, operation, true);
        }
        check("kustomize-controller", operation, true);
        check("before-first-apply", operation, true);
        for manager in ["kube-controller-manager", "vpa-updater", "argocd-controller", "kubectlish", "mainstay", ""] {
            check(manager, operation, false);
        }
    }
}

#[test]
fn fields_that_stay_become_ours_only_if_the_manifest_names_them() {
    let fields = json!({
        "f:metadata": {
            "f:finalizers": {".": {}, "v:\"a/named\"": {}, "v:\"a/other\"": {}},
            "f:annotations": {".": {}, "f:mainstay.dev/reconcile": {}, "f:old": {}},
            "f:ownerReferences": {"k:{\"uid\":\"u\"}": {}},
        },
        "f:spec": {"f:replicas": {}, "f:paused": {}, "f:template": {"f:metadata": {"f:annotations": {
            "f:kubectl.kubernetes.io/restartedAt": {}}}}},
        "f:status": {"f:replicas": {}},
    });
    let taken = taken(&json!([entry("kubectl-edit", "Update", &fields)]), &all(), Moment::Before).unwrap();
    let expected = json!({
        "f:metadata": {"f:finalizers": {"v:\"a/named\"": {}}, "f:annotations": {"f:old": {}}},
        "f:spec": {"f:replicas": {}, "f:paused": {}},
    });
    assert_eq!(taken.fields(), ["metadata.annotations.old", "spec.paused"]);
    assert_eq!(Value::Object(taken.taken), expected);
    assert_eq!(taken.entries[0]["fieldsV1"]["f:spec"]["f:template"], fields["f:spec"]["f:template"]);
}

#[test]
fn the_suspension_of_an_object_of_flux_stays_unless_the_manifest_names_it() {
    let check = |group: &str, spec: Value, removed: &[&str]| {
        let kind = Kind::fixed(&format!("{group}/v1"), "HelmRelease", "helmreleases", Scope::Namespaced);
        let desired = desired_of(
            kind,
            &json!({
                "apiVersion": format!("{group}/v1"), "kind": "HelmRelease", "metadata": {"name": "web"}, "spec": spec,
            }),
        );
        let mut theirs = entry("kubectl-patch", "Update", &json!({"f:spec": {"f:suspend": {}, "f:timeout": {}}}));
        theirs["apiVersion"] = format!("{group}/v1").into();
        let taken = take_over(&json!([theirs]), &desired, &desired.body(), &all(), Moment::Before, NOW).unwrap();
        assert_eq!(taken.fields(), removed, "{group} {spec}");
        let kept = taken.entries.to_string().contains("kubectl-patch");
        assert_eq!(kept, removed == ["spec.timeout"] && spec["suspend"].is_null(), "{}", taken.entries);
    };
    check("helm.toolkit.fluxcd.io", json!({}), &["spec.timeout"]);
    check("helm.toolkit.fluxcd.io", json!({"suspend": false}), &["spec.timeout"]);
    check("other.example.com", json!({}), &["spec.suspend", "spec.timeout"]);
}

#[test]
fn a_secret_has_no_field_that_the_server_merges_into_another() {
    let kind = Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced);
    let document = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "YQ=="}});
    let desired = desired_of(kind, &document);
    let mut theirs = entry("kubectl", "Apply", &json!({"f:stringData": {"f:a": {}}, "f:data": {"f:b": {}}}));
    theirs["apiVersion"] = "v1".into();
    let taken = take_over(&json!([theirs]), &desired, &desired.body(), &all(), Moment::Before, NOW).unwrap();
    assert_eq!(taken.fields(), ["data.b"]);
    assert!(!taken.entries.to_string().contains("kubectl"), "{}", taken.entries);
}

#[test]
fn writes_through_a_subresource_stay() {
    let mut scaled = entry("kubectl", "Update", &json!({"f:spec": {"f:replicas": {}}}));
    scaled["subresource"] = "scale".into();
    assert!(taken(&json!([scaled]), &all(), Moment::Before).is_none());
}

#[test]
fn only_older_writes_of_kubectl_are_left_from_an_adoption_of_our_object() {
    let fields = json!({"f:spec": {"f:paused": {}}});
    let check = |manager: &str, since: &str, is_left: bool| {
        let from = Appliers::left(Arc::from(["helm".to_owned()]), Some(since.parse().unwrap()));
        let taken = taken(&json!([entry(manager, "Update", &fields)]), &from, Moment::After);
        assert_eq!(taken.is_some(), is_left, "{manager} {since}");
    };
    check("kubectl-edit", "2025-07-01T00:00:00Z", true);
    check("kubectl-edit", "2025-05-01T00:00:00Z", false);
    check("helm", "2025-05-01T00:00:00Z", true);
    check("before-first-apply", "2025-07-01T00:00:00Z", false);
}

#[test]
fn fields_of_another_version_are_taken_over_separately() {
    let fields = json!({"f:spec": {"f:paused": {}}});
    let mut old = entry("kubectl", "Update", &fields);
    old["apiVersion"] = "apps/v1beta1".into();
    let alone = taken(&json!([old]), &all(), Moment::Before).unwrap();
    assert_eq!(alone.entries[0]["apiVersion"], "apps/v1beta1");
    let ours = entry(MANAGER, "Apply", &json!({"f:spec": {"f:replicas": {}}}));
    let beside = json!([old, ours]);
    assert!(
        taken(&beside, &all(), Moment::Before).is_none(),
        "what is ours in this version is not in the document yet"
    );
    let after = taken(&beside, &all(), Moment::After).unwrap();
    let [only] = &after.entries.as_array().unwrap()[..] else { panic!("{}", after.entries) };
    assert_eq!(
        (&only["manager"], &only["apiVersion"], &only["fieldsV1"]),
        (&json!(MANAGER), &old["apiVersion"], &fields)
    );
}

#[test]
fn fields_named_by_a_refusal_are_returned_and_the_rest_stays_owned() {
    let fields = json!({"f:spec": {"f:paused": {}, "f:selector": {}, "f:template": {"f:spec": {"f:hostNetwork": {}}}}});
    let entries = json!([entry("kubectl", "Update", &fields)]);
    let taken = taken(&entries, &all(), Moment::Before).unwrap();
    let check = |causes: &[&str], back: &Value, ours: &Value| {
        let entries = put_back(&taken.entries, &taken, causes).unwrap();
        let of = |manager: &str| {
            let entry = entries.as_array().unwrap().iter().find(|entry| entry["manager"] == manager).cloned();
            entry.map_or(json!({}), |entry| entry["fieldsV1"].clone())
        };
        assert_eq!((&of("kubectl"), &of(MANAGER)), (back, ours), "{causes:?}");
    };
    let selector = json!({"f:spec": {"f:selector": {}}});
    let rest = json!({"f:spec": {"f:paused": {}, "f:template": {"f:spec": {"f:hostNetwork": {}}}}});
    check(&["spec.selector"], &selector, &rest);
    check(&["spec.selector.matchLabels[0]"], &selector, &rest);
    check(&["spec"], &fields, &json!({}));
    check(&[], &fields, &json!({}));
    assert!(put_back(&taken.entries, &taken, &["data"]).is_none());
}

#[test]
fn a_preview_lacks_fields_that_become_solely_ours() {
    let object =
        json!({"spec": {"a": 1, "b": 2, "list": [{"name": "x", "v": 1}, {"name": "y", "v": 1}], "map": {"k": 1}}});
    let taken = json!({"f:spec": {"f:a": {}, "f:b": {}, "f:map": {".": {}, "f:k": {}}, "f:list": {
        "k:{\"name\":\"x\"}": {".": {}, "f:name": {}, "f:v": {}}, "k:{\"name\":\"y\"}": {".": {}, "f:name": {}, "f:v": {}}}}});
    let keep = json!({"f:spec": {"f:b": {}, "f:list": {"k:{\"name\":\"y\"}": {".": {}, "f:name": {}}}}});
    let (taken, keep) = (taken.as_object().unwrap(), keep.as_object().unwrap());
    assert_eq!(without(object, taken, keep), json!({"spec": {"b": 2, "list": [{"name": "y"}]}}));
}

#[test]
fn defaults_that_the_server_sets_again_are_not_removed() {
    let fields = json!({
        "f:metadata": {"f:labels": {".": {}, "f:app.kubernetes.io/instance": {}, "f:kept": {}}},
        "f:spec": {"f:replicas": {}, "f:revisionHistoryLimit": {}, "f:progressDeadlineSeconds": {},
            "f:strategy": {"f:type": {}, "f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}}}},
    });
    let entries = json!([entry("kustomize-controller", "Update", &fields)]);
    let taken = taken(&entries, &all(), Moment::Before).unwrap();
    assert_eq!(taken.fields().len(), 7, "{:?}", taken.fields());
    let rolling =
        |surge: &str| json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": "25%"}});
    let before = json!({
        "metadata": {"labels": {"app.kubernetes.io/instance": "shop", "kept": "1"}},
        "spec": {"replicas": 2, "revisionHistoryLimit": 3, "progressDeadlineSeconds": 600, "strategy": rolling("1")},
    });
    let after = json!({
        "metadata": {"labels": {"kept": "1"}},
        "spec": {"replicas": 2, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600, "strategy": rolling("25%")},
    });
    let taken = Taken::new(taken, before.clone());
    let removed = taken.removed(&web().body(), &after).unwrap();
    let expected = [
        "metadata.labels[app.kubernetes.io/instance]",
        "spec.revisionHistoryLimit",
        "spec.strategy.rollingUpdate.maxSurge",
    ];
    assert_eq!(removed, expected);
    assert_eq!(taken.removed(&web().body(), &before).unwrap(), [""; 0]);
}
