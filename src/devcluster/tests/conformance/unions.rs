//! Unions: defaults beside a member, and their removal when another member is applied.

use serde_json::{Value, json};

use crate::world::{World, claim, fields};

fn pods(more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "a", "image": "busybox:1"}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"metadata": {"labels": {"app": "a"}}, "spec": spec})
}

fn workload(kind: &str, more: &Value) -> Value {
    let mut spec = json!({"selector": {"matchLabels": {"app": "a"}}, "template": pods(json!({}))});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec})
}

async fn apply(w: &World, resource: &str, object: Value) -> crate::world::Answer {
    let path = w.path(object["apiVersion"].as_str().unwrap(), &format!("{resource}/a"));
    w.force(&path, "m", object).await
}

/// Returns the `managedFields` of an object, with one more field owned by its applier.
fn owning_more(object: &Value, path: &[&str]) -> Value {
    let mut entries = object["metadata"]["managedFields"].clone();
    let own = entries.as_array_mut().unwrap().iter_mut().find(|entry| entry["manager"] == "m").unwrap();
    let mut at = &mut own["fieldsV1"];
    for key in path {
        let fields = at.as_object_mut().unwrap();
        at = fields.entry(*key).or_insert_with(|| json!({}));
    }
    entries
}

#[test]
fn a_default_of_one_member_keeps_an_apply_of_another_one_from_being_taken_until_the_applier_owns_it() {
    let volume = |source: Value| json!({"template": pods(json!({"volumes": [source]}))});
    let cases = [
        (
            "Deployment",
            "spec.strategy.rollingUpdate",
            json!({}),
            json!({"strategy": {"type": "Recreate"}}),
            vec!["f:spec", "f:strategy", "f:rollingUpdate"],
            "/spec/strategy",
            json!({"type": "Recreate"}),
        ),
        (
            "StatefulSet",
            "spec.updateStrategy.rollingUpdate",
            json!({}),
            json!({"updateStrategy": {"type": "OnDelete"}}),
            vec!["f:spec", "f:updateStrategy", "f:rollingUpdate"],
            "/spec/updateStrategy",
            json!({"type": "OnDelete"}),
        ),
        (
            "DaemonSet",
            "spec.template.spec.volumes[0].secret",
            volume(json!({"name": "v"})),
            volume(json!({"name": "v", "secret": {"secretName": "s"}})),
            vec!["f:spec", "f:template", "f:spec", "f:volumes", "k:{\"name\":\"v\"}", "f:emptyDir"],
            "/spec/template/spec/volumes/0",
            json!({"name": "v", "secret": {"secretName": "s", "defaultMode": 420}}),
        ),
    ];
    claim(async |w| {
        for (kind, field, before, after, owned, pointer, expected) in &cases {
            let resource = format!("{}s", kind.to_lowercase());
            let made = apply(w, &resource, workload(kind, before)).await.ok();
            let refused = apply(w, &resource, workload(kind, after)).await;
            assert!(refused.causes().iter().any(|cause| cause.contains(&format!(" {field}: "))), "{}", refused.text);
            let path = w.path("apps/v1", &format!("{resource}/a"));
            let entries = json!({"metadata": {"managedFields": owning_more(&made, owned)}});
            w.merge(&path, entries).await.ok();
            let applied = apply(w, &resource, workload(kind, after)).await.ok();
            assert_eq!(applied.pointer(pointer), Some(expected), "{kind}");
        }
    });
}

#[test]
fn null_leaves_a_default_with_fields_as_it_is() {
    claim(async |w| {
        apply(w, "deployments", workload("Deployment", &json!({}))).await.ok();
        let nulled = json!({"strategy": {"type": "Recreate", "rollingUpdate": null}});
        let refused = apply(w, "deployments", workload("Deployment", &nulled)).await;
        refused.invalid("FieldValueForbidden", "spec.strategy.rollingUpdate");
    });
}

#[test]
fn a_daemon_set_keeps_the_default_of_another_strategy() {
    claim(async |w| {
        apply(w, "daemonsets", workload("DaemonSet", &json!({}))).await.ok();
        let on_delete = json!({"updateStrategy": {"type": "OnDelete"}});
        let after = apply(w, "daemonsets", workload("DaemonSet", &on_delete)).await.ok();
        let rolling = json!({"maxSurge": 0, "maxUnavailable": 1});
        assert_eq!(after["spec"]["updateStrategy"], json!({"type": "OnDelete", "rollingUpdate": rolling}));
    });
}

#[test]
fn a_stateful_set_that_names_its_strategy_gets_no_settings_of_it() {
    claim(async |w| {
        let strategy = json!({"updateStrategy": {"type": "RollingUpdate"}});
        let made = apply(w, "statefulsets", workload("StatefulSet", &strategy)).await.ok();
        assert_eq!(made["spec"]["updateStrategy"], strategy["updateStrategy"]);
    });
}

#[test]
fn the_types_of_a_network_policy_stay_as_they_were_filled_in_until_null_removes_them() {
    claim(async |w| {
        let policy = |rules: Value| json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"}, "spec": rules});
        let types = |object: Value| object["spec"]["policyTypes"].clone();
        let all = json!([{}]);
        let made = apply(w, "networkpolicies", policy(json!({"podSelector": {}, "ingress": all}))).await.ok();
        assert_eq!(types(made), json!(["Ingress"]));
        let stale = apply(w, "networkpolicies", policy(json!({"podSelector": {}, "egress": all}))).await.ok();
        assert_eq!(types(stale), json!(["Ingress"]), "nothing of `egress` is enforced");
        let nulled = policy(json!({"podSelector": {}, "egress": all, "policyTypes": null}));
        assert_eq!(types(apply(w, "networkpolicies", nulled).await.ok()), json!(["Ingress", "Egress"]));
    });
}

#[test]
fn settings_of_a_session_affinity_go_with_it() {
    claim(async |w| {
        let service = |affinity: Value| {
            let mut spec = json!({"ports": [{"port": 80}]});
            spec.as_object_mut().unwrap().extend(affinity.as_object().unwrap().clone());
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec})
        };
        let made = apply(w, "services", service(json!({"sessionAffinity": "ClientIP"}))).await.ok();
        assert_eq!(made["spec"]["sessionAffinityConfig"], json!({"clientIP": {"timeoutSeconds": 10800}}));
        let after = apply(w, "services", service(json!({}))).await.ok();
        assert_eq!(
            (&after["spec"]["sessionAffinity"], &after["spec"]["sessionAffinityConfig"]),
            (&json!("None"), &Value::Null)
        );
        assert_eq!(fields(&after, "m", "Apply")["f:spec"].get("f:sessionAffinity"), None);
    });
}

#[test]
fn ports_on_the_network_of_the_host_are_filled_in_in_pods_and_not_in_templates() {
    claim(async |w| {
        w.until(&w.path("v1", "serviceaccounts/default"), "the account is there", |a| a.code == 200).await;
        let host = json!({"hostNetwork": true,
            "containers": [{"name": "a", "image": "busybox:1", "ports": [{"containerPort": 8080}]}]});
        let made =
            apply(w, "deployments", workload("Deployment", &json!({"replicas": 0, "template": pods(host.clone())})))
                .await;
        let ports = &made.ok()["spec"]["template"]["spec"]["containers"][0]["ports"];
        assert_eq!(*ports, json!([{"containerPort": 8080, "protocol": "TCP"}]));
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": host});
        let made = w.post(&w.path("v1", "pods?dryRun=All"), pod).await.ok();
        let ports = &made["spec"]["containers"][0]["ports"];
        assert_eq!(*ports, json!([{"containerPort": 8080, "hostPort": 8080, "protocol": "TCP"}]));
    });
}
