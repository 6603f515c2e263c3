//! Recorded objects: each sent object must become the recorded stored object.

use serde_json::{Value, json};

use super::*;

/// Allocates the address from the recording.
struct Recorded;

impl Allocator for Recorded {
    fn cluster_ip(&mut self) -> String {
        "10.0.0.147".into()
    }
    fn claim_cluster_ip(&mut self, _: &str) -> bool {
        true
    }
    fn node_port(&mut self) -> u16 {
        30000
    }
    fn claim_node_port(&mut self, port: u16) -> bool {
        port != 31000
    }
}

fn recorded() -> serde_json::Map<String, Value> {
    let text = include_str!("../../../tests/data/defaults.json");
    serde_json::from_str(text).expect("the fixture is JSON")
}

/// Returns the recorded response without two groups of fields: fields that the store sets, and deliberately unsupported
/// fields (a Pod's token volume).
fn without_store_fields(kind: &str, mut created: Value) -> Value {
    created["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    created["metadata"].as_object_mut().unwrap().remove("generation");
    if kind == "v1/Pod" {
        let token = |v: &Value| v["name"].as_str().is_some_and(|n| n.starts_with("kube-api-access-"));
        let spec = &mut created["spec"];
        spec["volumes"].as_array_mut().unwrap().retain(|v| !token(v));
        spec["containers"][0].as_object_mut().unwrap().remove("volumeMounts");
    }
    created
}

fn create(sent: &Value, created: &Value) -> (Value, Vec<Cause>) {
    let (api_version, kind) = (sent["apiVersion"].as_str().unwrap(), sent["kind"].as_str().unwrap());
    let mut object = sent.clone();
    if let Some(namespace) = created["metadata"].get("namespace") {
        object["metadata"]["namespace"] = namespace.clone();
    }
    object["metadata"]["uid"] = "69a29baf-51d9-4970-9c53-b2a215701e85".into();
    object["metadata"]["creationTimestamp"] = "2026-11-20T09:44:50Z".into();
    default(api_version, kind, &mut object);
    let mut causes = prepare_create(api_version, kind, &mut object, &mut Recorded);
    causes.extend(validate(api_version, kind, &object, None));
    object["metadata"].as_object_mut().unwrap().remove("uid");
    object["metadata"].as_object_mut().unwrap().remove("creationTimestamp");
    (object, causes)
}

#[test]
fn makes_of_every_recorded_object_what_the_server_made() {
    for (name, case) in recorded() {
        let (object, causes) = create(&case["sent"], &case["created"]);
        assert_eq!(causes, [], "{name}");
        assert_eq!(object, without_store_fields(&name, case["created"].clone()), "{name}");
    }
}

#[test]
fn defaulting_twice_is_defaulting_once() {
    for (name, case) in recorded() {
        let (api_version, kind) =
            (case["sent"]["apiVersion"].as_str().unwrap(), case["sent"]["kind"].as_str().unwrap());
        let stored = case["created"].clone();
        let mut again = stored.clone();
        default(api_version, kind, &mut again);
        assert_eq!(again, stored, "{name}");
        prepare_update(api_version, kind, &stored, &mut again, &mut Recorded);
        assert_eq!(again, stored, "{name}");
        assert_eq!(validate(api_version, kind, &again, Some(&stored)), [], "{name}");
        assert_ne!(generation_changes(api_version, kind, &stored, &again), Some(true), "{name}");
        assert_eq!(
            generation_changes(api_version, kind, &stored, &again).is_some(),
            stored["metadata"].get("generation").is_some(),
            "{name}"
        );
    }
}

#[test]
fn any_nonsense_is_survived() {
    let nonsense = [json!(null), json!(1), json!("x"), json!([1, "a", null]), json!({"a": [{}]})];
    for (name, case) in recorded() {
        let (api_version, kind) = name.rsplit_once('/').unwrap();
        for junk in &nonsense {
            for field in ["metadata", "spec", "status", "data", "rules", "webhooks", "roleRef", "subjects", "ports"] {
                let mut object = case["sent"].clone();
                object[field] = junk.clone();
                let old = object.clone();
                default(api_version, kind, &mut object);
                prepare_create(api_version, kind, &mut object, &mut Recorded);
                prepare_update(api_version, kind, &old, &mut object, &mut Recorded);
                prepare_status_update(api_version, kind, &old, &mut object);
                validate(api_version, kind, &object, Some(&old));
                let _ = check_decodable(api_version, kind, &object);
            }
        }
    }
}

fn stored(name: &str) -> Value {
    recorded()[name]["created"].clone()
}

fn check_update(name: &str, change: impl Fn(&mut Value), expected: &[&str]) {
    let (api_version, kind) = name.rsplit_once('/').unwrap();
    let old = stored(name);
    let mut new = old.clone();
    change(&mut new);
    default(api_version, kind, &mut new);
    let mut causes = prepare_update(api_version, kind, &old, &mut new, &mut Recorded);
    causes.extend(validate(api_version, kind, &new, Some(&old)));
    let lines: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
    assert_eq!(lines.len(), expected.len(), "{name}: {lines:?}");
    lines.iter().zip(expected).for_each(|(line, start)| assert!(line.starts_with(start), "{name}: {line}"));
}

#[test]
fn refuses_to_change_what_is_immutable() {
    check_update(
        "apps/v1/Deployment",
        |d| d["spec"]["selector"]["matchLabels"] = json!({"app": "y"}),
        &[
            "spec.template.metadata.labels: Invalid value: {\"app\":\"x\"}: `selector` does not match template `labels`",
            "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"y\"}}: field is immutable",
        ],
    );
    check_update(
        "v1/Service",
        |s| s["spec"]["clusterIP"] = "10.0.0.99".into(),
        &["spec.clusterIPs[0]: Invalid value: [\"10.0.0.99\"]: may not change once set"],
    );
    check_update(
        "batch/v1/Job",
        |j| j["spec"]["completions"] = 3.into(),
        &["spec.completions: Invalid value: 3: field is immutable"],
    );
    check_update(
        "rbac.authorization.k8s.io/v1/RoleBinding",
        |b| b["roleRef"]["name"] = "y".into(),
        &[
            "roleRef: Invalid value: {\"apiGroup\":\"rbac.authorization.k8s.io\",\"kind\":\"Role\",\"name\":\"y\"}: cannot ",
        ],
    );
    check_update("v1/Secret", |s| s["type"] = "x".into(), &["type: Invalid value: \"x\": field is immutable"]);
    check_update("v1/Pod", |p| p["spec"]["containers"][0]["image"] = "busybox:2".into(), &[]);
    check_update(
        "v1/Pod",
        |p| p["spec"]["hostNetwork"] = true.into(),
        &["spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"],
    );
    check_update("batch/v1/Job", |j| j["spec"]["suspend"] = true.into(), &[]);
}

#[test]
fn a_replaced_service_keeps_its_address_and_ports() {
    let old = stored("v1/Service");
    let mut new = recorded()["v1/Service"]["sent"].clone();
    new["spec"]["type"] = "NodePort".into();
    default("v1", "Service", &mut new);
    assert_eq!(prepare_update("v1", "Service", &old, &mut new, &mut Recorded), []);
    assert_eq!(new["spec"]["clusterIP"], "10.0.0.147");
    assert_eq!(new["spec"]["ports"][0]["nodePort"], 30000);
    assert_eq!(held("v1", "Service", &new), Held { cluster_ips: vec!["10.0.0.147".into()], node_ports: vec![30000] });
    let mut back = new.clone();
    back["spec"]["type"] = "ClusterIP".into();
    prepare_update("v1", "Service", &new, &mut back, &mut Recorded);
    assert_eq!(held("v1", "Service", &back).node_ports, Vec::<u16>::new());
}

#[test]
fn a_taken_node_port_is_refused() {
    let mut service =
        json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP", "nodePort": 31000}]}});
    let causes = prepare_create("v1", "Service", &mut service, &mut Recorded);
    assert_eq!(causes[0].message, "Invalid value: 31000: provided port is already allocated");
}

#[test]
fn quantities_become_canonical() {
    let mut deployment = recorded()["apps/v1/Deployment"]["sent"].clone();
    let limits = json!({"cpu": "1000m", "memory": "1024Mi", "x/y": 2});
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"limits": limits});
    default("apps/v1", "Deployment", &mut deployment);
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "1", "memory": "1Gi", "x/y": "2"}})
    );
}

#[test]
fn null_and_empty_are_forgotten() {
    let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {}, "creationTimestamp": null}, "data": {"a": null}});
    default("v1", "ConfigMap", &mut map);
    assert_eq!(map, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": ""}}));
}
