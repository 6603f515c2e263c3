//! Server-side apply and managed fields.

use serde_json::{Value, json};

use crate::patches::deployment;
use crate::world::{World, claim, fields, managers, rv};

pub(crate) fn config(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

pub(crate) async fn apply(w: &World, manager: &str, data: Value) -> Value {
    w.apply(&w.maps("a"), manager, config(data)).await.ok()
}

#[test]
fn apply_creates_and_then_updates() {
    claim(async |w| {
        w.apply(&w.maps("a"), "m", config(json!({"k": "1"}))).await.code(201);
        let after = w.apply(&w.maps("a"), "m", config(json!({"k": "2"}))).await.code(200).body;
        assert_eq!(after["data"], json!({"k": "2"}));
        assert_eq!(managers(&after), ["m/Apply"]);
        assert_eq!(fields(&after, "m", "Apply"), json!({"f:data": {"f:k": {}}}));
        let entry = &after["metadata"]["managedFields"][0];
        assert_eq!((&entry["apiVersion"], &entry["fieldsType"]), (&json!("v1"), &json!("FieldsV1")));
    });
}

#[test]
fn apply_takes_yaml() {
    claim(async |w| {
        let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n";
        let path = w.maps("a?fieldManager=m");
        let headers = [("Content-Type", "application/apply-patch+yaml")];
        let answer = w.send(reqwest::Method::PATCH, &path, &headers, yaml).await.code(201);
        assert_eq!(answer.body["data"]["k"], "v");
    });
}

#[test]
fn applying_the_same_again_changes_nothing() {
    claim(async |w| {
        let first = apply(w, "m", json!({"k": "v"})).await;
        assert_eq!(apply(w, "m", json!({"k": "v"})).await, first);
        assert_eq!(w.force(&w.maps("a"), "m", config(json!({"k": "v"}))).await.code(200).body, first);
    });
}

#[test]
fn a_field_that_is_no_longer_applied_is_removed() {
    claim(async |w| {
        apply(w, "m", json!({"k": "v", "l": "w"})).await;
        let after = apply(w, "m", json!({"k": "v"})).await;
        assert_eq!(after["data"], json!({"k": "v"}));
        assert_eq!(fields(&after, "m", "Apply"), json!({"f:data": {"f:k": {}}}));
    });
}

#[test]
fn a_conflict_names_manager_and_field() {
    claim(async |w| {
        apply(w, "m1", json!({"a": "1", "b": "1"})).await;
        let answer = w.apply(&w.maps("a"), "m2", config(json!({"a": "2"}))).await;
        let answer = answer.refused(409, "Conflict", "Apply failed with 1 conflict: conflict with \"m1\": .data.a");
        assert_eq!(answer.causes(), ["FieldManagerConflict .data.a: conflict with \"m1\""]);
        assert_eq!(answer.body["details"]["name"], Value::Null);
        let both = w.apply(&w.maps("a"), "m2", config(json!({"a": "2", "b": "2"}))).await;
        let message = "Apply failed with 2 conflicts: conflicts with \"m1\":\n- .data.a\n- .data.b";
        both.refused(409, "Conflict", message);
    });
}

#[test]
fn force_takes_the_field_and_dropping_it_later_leaves_the_value() {
    claim(async |w| {
        apply(w, "m1", json!({"a": "1", "b": "1"})).await;
        let after = w.force(&w.maps("a"), "m2", config(json!({"a": "2"}))).await.code(200).body;
        assert_eq!(after["data"], json!({"a": "2", "b": "1"}));
        assert_eq!(fields(&after, "m1", "Apply"), json!({"f:data": {"f:b": {}}}));
        assert_eq!(fields(&after, "m2", "Apply"), json!({"f:data": {"f:a": {}}}));
        let later = apply(w, "m1", json!({"b": "1"})).await;
        assert_eq!(later["data"], json!({"a": "2", "b": "1"}));
    });
}

#[test]
fn the_same_value_is_shared_and_stays_until_the_last_owner_drops_it() {
    claim(async |w| {
        apply(w, "m1", json!({"a": "1"})).await;
        let shared = apply(w, "m2", json!({"a": "1"})).await;
        assert_eq!(managers(&shared), ["m1/Apply", "m2/Apply"]);
        let nothing = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let one = w.apply(&w.maps("a"), "m1", nothing.clone()).await.ok();
        assert_eq!(one["data"], json!({"a": "1"}));
        assert_eq!(managers(&one), ["m2/Apply"], "a manager without fields has no entry");
        let none = w.apply(&w.maps("a"), "m2", nothing).await.ok();
        assert_eq!(none["data"], Value::Null);
    });
}

#[test]
fn an_empty_map_is_owned_by_itself() {
    claim(async |w| {
        let made = apply(w, "m", json!({})).await;
        assert_eq!(fields(&made, "m", "Apply"), json!({"f:data": {}}));
    });
}

#[test]
fn becoming_co_owner_is_a_write() {
    claim(async |w| {
        let first = apply(w, "m1", json!({"a": "1"})).await;
        let second = apply(w, "m2", json!({"a": "1"})).await;
        assert!(rv(&second) > rv(&first));
    });
}

#[test]
fn a_plain_write_takes_ownership_and_conflicts_with_the_next_apply() {
    claim(async |w| {
        apply(w, "m", json!({"a": "1", "b": "1"})).await;
        let patched = w.merge(&w.maps("a?fieldManager=u"), json!({"data": {"a": "2"}})).await.ok();
        assert_eq!(fields(&patched, "m", "Apply"), json!({"f:data": {"f:b": {}}}));
        assert_eq!(fields(&patched, "u", "Update"), json!({"f:data": {"f:a": {}}}));
        let answer = w.apply(&w.maps("a"), "m", config(json!({"a": "1", "b": "1"}))).await;
        let message = "Apply failed with 1 conflict: conflict with \"u\" using v1: .data.a";
        answer.refused(409, "Conflict", message);
    });
}

#[test]
fn a_field_of_an_update_manager_stays_when_the_applier_drops_it() {
    claim(async |w| {
        w.post(&w.maps("?fieldManager=u"), config(json!({"a": "1"}))).await.code(201);
        apply(w, "m", json!({"a": "1"})).await;
        let after = apply(w, "m", json!({})).await;
        assert_eq!(after["data"], json!({"a": "1"}));
    });
}

#[test]
fn the_manager_of_a_plain_write_is_the_user_agent() {
    claim(async |w| {
        let made = w.map("a", json!({"k": "v"})).await;
        assert_eq!(managers(&made), ["conformance/Update"]);
        assert_eq!(fields(&made, "conformance", "Update"), json!({"f:data": {".": {}, "f:k": {}}}));
    });
}

#[test]
fn a_map_that_an_update_brings_in_is_owned_with_a_dot() {
    claim(async |w| {
        apply(w, "m", json!({"a": "1"})).await;
        let after = w.merge(&w.maps("a?fieldManager=u"), json!({"metadata": {"labels": {"l": "v"}}})).await.ok();
        assert_eq!(fields(&after, "u", "Update"), json!({"f:metadata": {"f:labels": {".": {}, "f:l": {}}}}));
    });
}

#[test]
fn an_applied_null_owns_its_path() {
    claim(async |w| {
        let mut body = config(json!({"k": null}));
        body["metadata"]["creationTimestamp"] = Value::Null;
        let made = w.apply(&w.maps("a"), "m", body).await.code(201).body;
        assert_eq!(made["data"], json!({"k": ""}));
        assert_eq!(fields(&made, "m", "Apply"), json!({"f:data": {"f:k": {}}}));
    });
}

#[test]
fn kubectl_takes_what_its_client_side_apply_wrote_without_a_conflict() {
    claim(async |w| {
        let last = config(json!({"k": "1"})).to_string();
        let mut body = config(json!({"k": "1"}));
        body["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": last});
        w.post(&w.maps("?fieldManager=kubectl-client-side-apply"), body).await.code(201);
        let other = w.apply(&w.maps("a"), "other", config(json!({"k": "2"}))).await;
        let message = "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.k";
        other.refused(409, "Conflict", message);
        let taken = w.apply(&w.maps("a"), "kubectl", config(json!({"k": "2"}))).await.code(200).body;
        assert_eq!(taken["data"]["k"], "2");
    });
}

#[test]
fn a_conflict_in_a_keyed_list_names_the_key() {
    claim(async |w| {
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        let with = |host: i64| {
            let mut body = deployment("d");
            body["spec"]["template"]["spec"]["containers"][0]["ports"] =
                json!([{"containerPort": 80, "hostPort": host}]);
            body
        };
        w.apply(&path, "m", with(81)).await.code(201);
        let answer =
            w.apply(&path, "n", with(82)).await.refused_like(409, "Conflict", "Apply failed with 1 conflict: ");
        let field = ".spec.template.spec.containers[name=\"c\"].ports[containerPort=80,protocol=\"TCP\"].hostPort";
        assert_eq!(answer.causes(), [format!("FieldManagerConflict {field}: conflict with \"m\"")]);
    });
}

#[test]
fn defaults_are_not_owned_by_the_applier() {
    claim(async |w| {
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        let made = w.apply(&path, "m", deployment("d")).await.code(201).body;
        assert_eq!(made["spec"]["strategy"]["type"], "RollingUpdate");
        let owned = fields(&made, "m", "Apply");
        assert_eq!(owned["f:spec"]["f:strategy"], Value::Null);
        assert_eq!(owned["f:spec"]["f:selector"], json!({}), "a selector is one atomic field");
        let container = &owned["f:spec"]["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"];
        assert_eq!(
            container,
            &json!({".": {}, "f:name": {}, "f:image": {}, "f:env": {"k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}}})
        );
        let again = w.apply(&path, "m", deployment("d")).await.code(200).body;
        assert_eq!(again["metadata"]["generation"], 1);
    });
}

#[test]
fn a_key_that_has_a_default_is_filled_in_but_not_owned() {
    claim(async |w| {
        let body = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]},
        });
        let path = format!("{}/s", w.path("v1", "services"));
        let made = w.apply(&path, "m", body.clone()).await.code(201).body;
        let ports = &fields(&made, "m", "Apply")["f:spec"]["f:ports"];
        assert_eq!(ports, &json!({"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}));
        assert_eq!(w.apply(&path, "m", body).await.code(200).body, made, "a Service's address is no drift");
    });
}

#[test]
fn lists_are_merged_by_key_among_managers() {
    claim(async |w| {
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        w.apply(&path, "m1", deployment("d")).await.code(201);
        let env = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "env": [{"name": "B", "value": "2"}]}]}}},
        });
        let after = w.apply(&path, "m2", env).await.code(200).body;
        let listed = &after["spec"]["template"]["spec"]["containers"][0]["env"];
        assert_eq!(listed, &json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]));
        let mut without = deployment("d");
        without["spec"]["template"]["spec"]["containers"][0].as_object_mut().unwrap().remove("env");
        let after = w.apply(&path, "m1", without).await.code(200).body;
        assert_eq!(after["spec"]["template"]["spec"]["containers"][0]["env"], json!([{"name": "B", "value": "2"}]));
    });
}

#[test]
fn dropping_replicas_returns_to_the_default_unless_scale_took_them() {
    claim(async |w| {
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        w.apply(&path, "m", deployment("d")).await.code(201);
        let mut without = deployment("d");
        without["spec"].as_object_mut().unwrap().remove("replicas");
        let mut two = deployment("d");
        two["spec"]["replicas"] = 0.into();
        let after = w.apply(&path, "m", without.clone()).await.code(200).body;
        assert_eq!(after["spec"]["replicas"], 1);
        w.apply(&path, "m", two).await.code(200);
        let scaled = w.merge(&format!("{path}/scale?fieldManager=hpa"), json!({"spec": {"replicas": 3}})).await.ok();
        assert_eq!((&scaled["kind"], &scaled["spec"]["replicas"]), (&json!("Scale"), &json!(3)));
        let live = w.get(&path).await.ok();
        assert!(managers(&live).contains(&"hpa/Update/scale".to_owned()), "{:?}", managers(&live));
        let mut back = deployment("d");
        back["spec"]["replicas"] = 2.into();
        let answer = w.apply(&path, "m", back).await;
        let message = "Apply failed with 1 conflict: conflict with \"hpa\" with subresource \"scale\" using apps/v1: .spec.replicas";
        answer.refused(409, "Conflict", message);
        let after = w.apply(&path, "m", without).await.code(200).body;
        assert_eq!(after["spec"]["replicas"], 3);
        w.delete(&path, json!({"propagationPolicy": "Background"})).await;
    });
}

#[test]
fn status_in_a_main_apply_is_dropped_and_not_owned() {
    claim(async |w| {
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        let mut body = deployment("d");
        body["status"] = json!({"replicas": 5});
        let made = w.apply(&path, "m", body).await.code(201).body;
        assert_ne!(made["status"]["replicas"], 5);
        assert_eq!(fields(&made, "m", "Apply")["f:status"], Value::Null);
    });
}

#[test]
fn string_data_is_owned_as_written_and_stored_as_data() {
    claim(async |w| {
        let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}});
        let path = format!("{}/s", w.path("v1", "secrets"));
        let made = w.apply(&path, "m", body.clone()).await.code(201).body;
        assert_eq!(made["data"], json!({"a": "Yg=="}));
        assert_eq!(made["stringData"], Value::Null);
        assert_eq!(fields(&made, "m", "Apply"), json!({"f:stringData": {"f:a": {}}}));
        let again = w.apply(&path, "m", body).await.code(200).body;
        assert_eq!(rv(&again), rv(&made));
    });
}

#[test]
fn apply_to_a_terminating_object_works_and_dropping_its_finalizer_ends_it() {
    claim(async |w| {
        let mut body = config(json!({"k": "1"}));
        body["metadata"]["finalizers"] = json!(["example.com/hold"]);
        w.apply(&w.maps("a"), "m", body.clone()).await.code(201);
        w.delete(&w.maps("a"), json!({})).await.code(200);
        body["data"]["k"] = "2".into();
        let after = w.apply(&w.maps("a"), "m", body).await.code(200).body;
        assert!(after["metadata"]["deletionTimestamp"].is_string());
        w.apply(&w.maps("a"), "m", config(json!({}))).await.code(200);
        w.get(&w.maps("a")).await.code(404);
    });
}

#[test]
fn managed_fields_may_be_rewritten_for_a_migration() {
    claim(async |w| {
        w.post(&w.maps("?fieldManager=old"), config(json!({"k": "v", "l": "w"}))).await.code(201);
        let live = w.get(&w.maps("a")).await.ok();
        let mut entry = live["metadata"]["managedFields"][0].clone();
        entry["manager"] = "m".into();
        entry["operation"] = "Apply".into();
        let patch = json!([{"op": "replace", "path": "/metadata/managedFields", "value": [entry]}]);
        let after = w.json_patch(&w.maps("a"), patch).await.code(200).body;
        assert_eq!(managers(&after), ["m/Apply"]);
        let pruned = apply(w, "m", json!({"k": "v"})).await;
        assert_eq!(pruned["data"], json!({"k": "v"}), "the rewritten ownership decides what is pruned");
    });
}

#[test]
fn an_empty_entry_clears_managed_fields() {
    claim(async |w| {
        w.map("a", json!({"k": "v"})).await;
        let after = w.merge(&w.maps("a"), json!({"metadata": {"managedFields": [{}]}})).await.code(200).body;
        assert_eq!(after["metadata"]["managedFields"], Value::Null);
    });
}

#[test]
fn a_dry_run_apply_shows_the_result_and_stores_nothing() {
    claim(async |w| {
        let made = w.apply(&w.maps("a?dryRun=All"), "m", config(json!({"k": "v"}))).await.code(201).body;
        assert_eq!(made["metadata"]["resourceVersion"], Value::Null);
        w.get(&w.maps("a")).await.code(404);
        let live = apply(w, "m", json!({"k": "1"})).await;
        let shown = w.apply(&w.maps("a?dryRun=All"), "m", config(json!({"k": "2"}))).await.code(200).body;
        assert_eq!((&shown["data"]["k"], rv(&shown)), (&json!("2"), rv(&live)));
        assert_eq!(w.get(&w.maps("a")).await.ok(), live);
    });
}

#[test]
fn dry_runs_conflict_as_well() {
    claim(async |w| {
        apply(w, "m1", json!({"a": "1"})).await;
        let answer = w.apply(&w.maps("a?dryRun=All"), "m2", config(json!({"a": "2"}))).await;
        answer.refused(409, "Conflict", "Apply failed with 1 conflict: conflict with \"m1\": .data.a");
    });
}

#[test]
fn applying_nothing_but_the_name_gives_up_everything() {
    claim(async |w| {
        let head = || json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let mut whole = head();
        whole["metadata"]["labels"] = json!({"l": "1"});
        whole["metadata"]["annotations"] = json!({"n": "1"});
        whole["data"] = json!({"k": "v"});
        let made = w.apply(&w.maps("a"), "m1", whole).await.code(201).body;
        let left = w.apply(&w.maps("a"), "m1", head()).await.code(200).body;
        assert_eq!(managers(&left), [""; 0]);
        assert_eq!(left["data"], Value::Null);
        assert_eq!(left["metadata"]["labels"], Value::Null);
        assert_eq!(left["metadata"]["annotations"], Value::Null);
        assert!(rv(&left) > rv(&made));
        assert_eq!(w.get(&w.maps("a")).await.ok(), left);
        // Applying the same again changes nothing.
        assert_eq!(rv(&w.apply(&w.maps("a"), "m1", head()).await.code(200).body), rv(&left));
    });
}

#[test]
fn applying_nothing_but_the_name_leaves_what_others_own() {
    claim(async |w| {
        let config =
            |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
        w.apply(&w.maps("a"), "m1", config(json!({"mine": "1", "ours": "1"}))).await.code(201);
        w.apply(&w.maps("a"), "m2", config(json!({"ours": "1", "theirs": "1"}))).await.code(200);
        let head = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let left = w.apply(&w.maps("a"), "m1", head).await.code(200).body;
        assert_eq!(managers(&left), ["m2/Apply"]);
        assert_eq!(left["data"], json!({"ours": "1", "theirs": "1"}));
    });
}

#[test]
fn applying_nothing_but_the_name_empties_a_custom_object() {
    claim(async |w| {
        let schema = json!({"type": "object", "properties": {
            "size": {"type": "integer"}, "items": {"type": "array", "items": {"type": "string"}},
            "inner": {"type": "object", "properties": {"deep": {"type": "string"}}},
        }});
        let custom = w.custom(schema, json!({})).await;
        let spec = json!({"size": 3, "items": ["a"], "inner": {"deep": "x"}});
        w.apply(&custom.at("a"), "m1", custom.widget("a", spec)).await.code(201);
        let head = json!({"apiVersion": custom.api_version, "kind": "Widget", "metadata": {"name": "a"}});
        let left = w.apply(&custom.at("a"), "m1", head).await.code(200).body;
        assert_eq!(managers(&left), [""; 0]);
        assert_eq!(left["spec"], Value::Null, "{left}");
    });
}

#[test]
fn applying_less_of_a_deployment_gives_up_the_rest() {
    claim(async |w| {
        let mut whole = deployment("d");
        whole["spec"]["replicas"] = 2.into();
        whole["metadata"]["labels"] = json!({"l": "1"});
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        w.post(&w.path("apps/v1", "deployments"), deployment("d")).await.code(201);
        w.apply(&format!("{path}?force=true"), "m1", whole).await.code(200);
        let head = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}});
        let left = w.apply(&path, "m1", head).await.code(200).body;
        assert_eq!(fields(&left, "m1", "Apply"), Value::Null);
        assert_eq!(left["spec"]["replicas"], 1);
        assert_eq!(left["metadata"]["labels"], Value::Null);
        // Fields of the creator are kept.
        assert_eq!(left["spec"]["template"]["spec"]["containers"][0]["name"], "c");
    });
}
