//! Bindings: a scheduler creates a binding to assign a pod to a node, through `pods/binding` or `bindings`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::accounts::token;
use crate::connections::{core, refused, refusing};
use crate::world::{World, claim, condition, managers};

/// Creates a pod that no scheduler binds.
pub(crate) async fn unplaced(w: &World, name: &str) -> Value {
    unplaced_with(w, name, json!({})).await
}

/// Creates a pod that no scheduler binds, with more fields of the spec.
pub(crate) async fn unplaced_with(w: &World, name: &str, more: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": name},
        "spec": {"schedulerName": "nobody", "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "nginx:1"}]},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    w.post(&w.path("v1", "pods"), pod).await.code(201).body
}

/// Returns the name of a node.
async fn node(w: &World) -> String {
    let nodes = w.get("/api/v1/nodes?limit=1").await.ok();
    nodes["items"][0]["metadata"]["name"].as_str().expect("a cluster has a node").to_owned()
}

fn binding(name: &str, target: Value) -> Value {
    json!({"metadata": {"name": name}, "target": target})
}

#[test]
fn a_binding_places_a_pod() {
    claim(async |w| {
        let node = node(w).await;
        let pod = unplaced(w, "p").await;
        assert_eq!((&pod["spec"]["nodeName"], &pod["metadata"]["generation"]), (&Value::Null, &json!(1)));
        let mut body = binding("p", json!({"kind": "Node", "name": node}));
        body["metadata"]["labels"] = json!({"l": "m"});
        body["metadata"]["annotations"] = json!({"x": "y"});
        let path = w.path("v1", "pods/p/binding");
        let done = w.post(&format!("{path}?fieldManager=binder&dryRun=All"), body.clone()).await.code(201);
        assert_eq!(
            done.body,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
        );
        assert_eq!(
            w.get(&w.path("v1", "pods/p")).await.body["spec"]["nodeName"],
            Value::Null,
            "a dry run places nothing"
        );
        let done = w.post(&format!("{path}?fieldManager=binder"), body).await.code(201);
        assert_eq!((&done.body["kind"], &done.body["status"]), (&json!("Status"), &json!("Success")));
        let placed = w.get(&w.path("v1", "pods/p")).await.ok();
        assert_eq!(placed["spec"]["nodeName"], node.as_str());
        assert_eq!(
            (&placed["metadata"]["labels"], &placed["metadata"]["annotations"]["x"]),
            (&json!({"l": "m"}), &json!("y"))
        );
        assert_eq!(placed["metadata"]["generation"], 1, "a placement is no new generation");
        assert_eq!(condition(&placed, "PodScheduled"), "True");
        assert!(managers(&placed).iter().all(|m| !m.starts_with("binder")), "nobody owns a placement: {placed}");
        let running = |a: &crate::world::Answer| condition(&a.body, "Ready") == "True";
        w.until(&w.path("v1", "pods/p"), "the node runs the pod", running).await;
    });
}

#[test]
fn the_scheduler_places_with_bindings() {
    claim(async |w| {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "nginx:1"}]}});
        w.post(&w.path("v1", "pods"), pod).await.code(201);
        let placed = |a: &crate::world::Answer| a.body["spec"]["nodeName"].is_string();
        let pod = w.until(&w.path("v1", "pods/p"), "the pod is placed", placed).await;
        assert_eq!(condition(&pod.body, "PodScheduled"), "True", "{}", pod.text);
        assert!(managers(&pod.body).iter().all(|m| !m.contains("scheduler")), "{}", pod.text);
    });
}

#[test]
fn a_pod_of_another_scheduler_or_with_a_gate_waits() {
    claim(async |w| {
        unplaced(w, "other").await;
        let gated = unplaced_with(
            w,
            "gated",
            json!({"schedulerName": "default-scheduler", "schedulingGates": [{"name": "a.b/c"}]}),
        );
        let gated = gated.await;
        let condition = &gated["status"]["conditions"][0];
        assert_eq!(
            (&condition["type"], &condition["status"], &condition["reason"], &condition["message"]),
            (
                &json!("PodScheduled"),
                &json!("False"),
                &json!("SchedulingGated"),
                &json!("Scheduling is blocked due to non-empty scheduling gates")
            )
        );
        // A pod that is scheduled later shows that the scheduler ignored the others.
        let pod = json!({"metadata": {"name": "p"}, "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "nginx:1"}]}});
        w.post(&w.path("v1", "pods"), pod).await.code(201);
        let placed = |a: &crate::world::Answer| a.body["spec"]["nodeName"].is_string();
        w.until(&w.path("v1", "pods/p"), "the pod is placed", placed).await;
        for name in ["other", "gated"] {
            let pod = w.get(&w.path("v1", &format!("pods/{name}"))).await.ok();
            assert_eq!(pod["spec"]["nodeName"], Value::Null, "{name}");
        }
        let message =
            "Operation cannot be fulfilled on pods/binding \"gated\": pod gated has non-empty .spec.schedulingGates";
        let path = w.path("v1", "pods/gated/binding");
        w.post(&path, binding("gated", json!({"name": "n"}))).await.refused(409, "Conflict", message);
    });
}

#[test]
fn the_old_way_of_binding_places_too() {
    claim(async |w| {
        unplaced(w, "p").await;
        let path = w.path("v1", "bindings");
        let body = binding("p", json!({"name": "no-such-node"}));
        assert_eq!(w.post(&path, body.clone()).await.code(201).body["status"], "Success");
        assert_eq!(
            w.get(&w.path("v1", "pods/p")).await.ok()["spec"]["nodeName"],
            "no-such-node",
            "nobody asks for the node"
        );
        let message =
            "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"no-such-node\"";
        let again = w.post(&path, body.clone()).await.refused(409, "Conflict", message);
        assert_eq!(again.body["details"], json!({"name": "p", "kind": "pods/binding"}));
        w.post(&format!("{path}?dryRun=All"), body).await.refused(409, "Conflict", message);
        let nameless = json!({"target": {"name": "n"}});
        w.post(&path, nameless).await.refused(400, "BadRequest", "Name parameter required.");
        w.post(&path, binding("q", json!({"name": "n"}))).await.refused(404, "NotFound", "pods \"q\" not found");
        w.get(&path).await.refused(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        w.post("/api/v1/bindings", binding("p", json!({"name": "n"}))).await.refused(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
        w.get(&format!("{path}/p")).await.refused(404, "NotFound", "the server could not find the requested resource");
    });
}

#[test]
fn a_binding_that_cannot_be_is_refused() {
    claim(async |w| {
        let pod = unplaced(w, "p").await;
        let path = w.path("v1", "pods/p/binding");
        let to = || json!({"name": "n"});
        let other = "name in URL does not match name in Binding object";
        w.post(&path, json!({"target": to()})).await.refused(400, "BadRequest", other);
        w.post(&path, binding("q", to())).await.refused(400, "BadRequest", other);
        let kind = "target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\"";
        let unnamed = "target.name: Required value";
        w.post(&path, binding("p", json!({"kind": "Pod", "name": "n"}))).await.refused(500, "", kind);
        w.post(&path, binding("p", json!({"kind": "Node"}))).await.refused(500, "", unnamed);
        w.post(&path, binding("p", json!({"kind": "Pod"}))).await.refused(500, "", &format!("[{kind}, {unnamed}]"));
        w.post(&path, json!({"metadata": {"name": "p"}})).await.refused(500, "", unnamed);
        let mut elsewhere = binding("p", to());
        elsewhere["metadata"]["namespace"] = "other".into();
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        w.post(&path, elsewhere).await.refused(400, "BadRequest", message);
        let missing = w.path("v1", "pods/q/binding");
        w.post(&missing, binding("q", to())).await.refused(404, "NotFound", "pods \"q\" not found");
        for (field, value, what, live) in [
            ("uid", "123", "UID", pod["metadata"]["uid"].as_str().unwrap()),
            ("resourceVersion", "1", "ResourceVersion", pod["metadata"]["resourceVersion"].as_str().unwrap()),
            ("resourceVersion", "x", "ResourceVersion", pod["metadata"]["resourceVersion"].as_str().unwrap()),
        ] {
            let mut body = binding("p", to());
            body["metadata"][field] = value.into();
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/pods/{}/p, ResourceVersion: 0, AdditionalErrorMsg: \
                 Precondition failed: {what} in precondition: {value}, {what} in object meta: {live}",
                w.ns
            );
            let message = format!("Operation cannot be fulfilled on pods \"p\": {why}");
            w.post(&path, body).await.refused(409, "Conflict", &message);
        }
        let mut wrong = binding("p", to());
        wrong["kind"] = "Pod".into();
        wrong["apiVersion"] = "v1".into();
        let message = "Pod in version \"v1\" cannot be handled as a Binding: converting (v1.Pod) to (core.Binding): unknown conversion";
        w.post(&path, wrong).await.refused(400, "BadRequest", message);
        let mut strange = binding("p", to());
        strange["foo"] = 1.into();
        let message =
            "Binding in version \"v1\" cannot be handled as a Binding: strict decoding error: unknown field \"foo\"";
        w.post(&format!("{path}?fieldValidation=Strict"), strange).await.refused(400, "BadRequest", message);
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            let message = "the server does not allow this method on the requested resource";
            let body = if method == Method::GET { "" } else { "{}" };
            let answer = w.send(method, &path, &[("Content-Type", "application/json")], body).await;
            answer.refused(405, "MethodNotAllowed", message);
        }
        assert_eq!(
            w.get(&w.path("v1", "pods/p")).await.ok()["metadata"]["resourceVersion"],
            pod["metadata"]["resourceVersion"]
        );
    });
}

#[test]
fn a_pod_that_ends_is_not_placed() {
    claim(async |w| {
        unplaced(w, "p").await;
        let pod = w.path("v1", "pods/p");
        w.merge(&pod, json!({"metadata": {"finalizers": ["a.b/c"]}})).await.code(200);
        w.delete(&pod, json!({})).await.code(200);
        let message =
            "Operation cannot be fulfilled on pods/binding \"p\": pod p is being deleted, cannot be assigned to a host";
        w.post(&format!("{pod}/binding"), binding("p", json!({"name": "n"}))).await.refused(409, "Conflict", message);
        w.merge(&pod, json!({"metadata": {"finalizers": null}})).await.code(200);
    });
}

#[test]
fn webhooks_judge_bindings() {
    claim(async |w| {
        unplaced(w, "p").await;
        let hooks = refusing(w, json!(["CREATE"]), json!(["pods/binding", "bindings"])).await;
        let body = || binding("p", json!({"name": "n"}));
        let request = refused(w, &hooks, Method::POST, &w.path("v1", "pods/p/binding"), body()).await;
        assert_eq!((&request["kind"], &request["operation"]), (&core("Binding"), &json!("CREATE")));
        assert_eq!((&request["name"], &request["subResource"]), (&json!("p"), &json!("binding")));
        assert_eq!(request["object"]["target"], json!({"name": "n"}));
        assert_eq!(request["options"]["kind"], "CreateOptions");
        let request = refused(w, &hooks, Method::POST, &w.path("v1", "bindings"), body()).await;
        assert_eq!(request["resource"], json!({"group": "", "version": "v1", "resource": "bindings"}));
        assert_eq!((&request["name"], &request["subResource"]), (&json!("p"), &Value::Null));
        assert_eq!(w.get(&w.path("v1", "pods/p")).await.ok()["spec"]["nodeName"], Value::Null);
    });
}

#[test]
fn a_user_without_the_right_to_bind_is_refused() {
    claim(async |w| {
        unplaced(w, "p").await;
        let token = token(w, "a").await;
        let user = format!("system:serviceaccount:{}:a", w.ns);
        for (path, resource) in [("pods/p/binding", "pods \"p\" is forbidden"), ("bindings", "bindings is forbidden")] {
            let kind = if path == "bindings" { "bindings" } else { "pods/binding" };
            let message = format!(
                "{resource}: User \"{user}\" cannot create resource \"{kind}\" in API group \"\" in the namespace \"{}\"",
                w.ns
            );
            let body = binding("p", json!({"name": "n"}));
            w.bear(&token, Method::POST, &w.path("v1", path), body).await.refused(403, "Forbidden", &message);
        }
    });
}

#[test]
fn discovery_knows_the_parts_of_pods_services_and_nodes() {
    claim(async |w| {
        let proxy = json!(["create", "delete", "get", "patch", "update"]);
        let part = json!(["get", "patch", "update"]);
        let expected = [
            ("bindings", "Binding", json!(["create"])),
            ("pods/binding", "Binding", json!(["create"])),
            ("pods/ephemeralcontainers", "Pod", part.clone()),
            ("pods/resize", "Pod", part),
            ("pods/proxy", "PodProxyOptions", proxy.clone()),
            ("services/proxy", "ServiceProxyOptions", proxy.clone()),
            ("nodes/proxy", "NodeProxyOptions", proxy),
        ];
        let list = w.get("/api/v1").await.ok();
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let all = w.get_as("/api", accept).await.ok();
        let resources = all["items"][0]["versions"][0]["resources"].as_array().unwrap();
        for (name, kind, verbs) in expected {
            let namespaced = !name.starts_with("nodes");
            let singular = if name == "bindings" { "binding" } else { "" };
            let entry =
                json!({"name": name, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": verbs});
            let found = list["resources"].as_array().unwrap().iter().find(|r| r["name"] == name);
            assert_eq!(found, Some(&entry));
            let (resource, sub) = name.split_once('/').unwrap_or((name, ""));
            let parent = resources.iter().find(|r| r["resource"] == resource).unwrap();
            let response = json!({"group": "", "version": "", "kind": kind});
            if sub.is_empty() {
                assert_eq!(
                    (&parent["responseKind"]["kind"], &parent["verbs"], &parent["scope"]),
                    (&json!(kind), &verbs, &json!("Namespaced"))
                );
                continue;
            }
            let found = parent["subresources"].as_array().unwrap().iter().find(|s| s["subresource"] == sub).unwrap();
            assert_eq!(found, &json!({"subresource": sub, "responseKind": response, "verbs": verbs}));
        }
    });
}
