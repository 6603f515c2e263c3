//! With several agents, the Service of Receivers selects the leader.

use std::fs;

use serde::Deserialize as _;
use serde_json::{Value, json};

use mainstay_testkit::{
    webhooks::listening,
    world::{NAMESPACE, World},
};

/// Returns the object of this kind from `manifests/deployment.yaml`, in the namespace of the tests.
fn manifest(kind: &str) -> Value {
    let text = fs::read_to_string("manifests/deployment.yaml").unwrap();
    let mut all = serde_yaml::Deserializer::from_str(&text).map(|object| Value::deserialize(object).unwrap());
    let mut object = all.find(|object| object["kind"] == kind).unwrap();
    object["metadata"]["namespace"] = json!(NAMESPACE);
    object
}

/// Returns the names of the pods to which the Service routes.
fn reached(world: &World) -> Vec<String> {
    let slices = world.server.objects("discovery.k8s.io/v1", "endpointslices", Some(NAMESPACE));
    let slices =
        slices.iter().filter(|s| s["metadata"]["labels"]["kubernetes.io/service-name"] == "mainstay-receivers");
    let all: Vec<Value> = slices.flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default()).collect();
    let ready = all.iter().filter(|endpoint| endpoint["conditions"]["ready"] == true);
    ready.map(|endpoint| endpoint["targetRef"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_of_receivers_leads_to_the_agent_that_leads() {
    let mut world = World::new().await;
    world.in_pods = true;
    let template = manifest("Deployment")["spec"]["template"].clone();
    for name in ["first", "second"] {
        let spec = json!({"containers": [{
            "name": "mainstay", "image": "mainstay:1", "ports": template["spec"]["containers"][0]["ports"],
        }]});
        let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": template["metadata"]["labels"]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        world.create("v1", "pods", NAMESPACE, pod);
    }
    world.create("v1", "services", NAMESPACE, manifest("Service"));
    world.receive = Some(listening());
    world.start_as("first", true);
    world.until("it leads to the first one", |w| reached(w) == ["first"]).await;
    let first = world.detach();
    world.receive = Some(listening());
    world.start_as("second", true);
    // Another user removes the label.
    world.edit("v1", "pods", "first", json!({"metadata": {"labels": {"mainstay.dev/leader": null}}}));
    world.until("it is back", |w| reached(w) == ["first"]).await;
    // The leader is killed, and its pod stays.
    first.kill().await;
    world.until("it leads to the second one", |w| reached(w) == ["second"]).await;
    let label = world.get("v1", "pods", "first").unwrap()["metadata"]["labels"]["mainstay.dev/leader"].clone();
    assert_eq!(label, Value::Null);
}
