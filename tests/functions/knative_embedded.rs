//! Functions on the embedded cluster's Knative Serving, with pods as processes: built, started, called, and idle.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use devcluster::Gateway;
use mainstay_engine::notification::Message;
use mainstay_object::Owner;
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{API, DEPLOYMENTS, JOBS, SERVICES, inline},
    knative::KNATIVE,
    world::{NAMESPACE, World},
};

const CHOICE: &str = "mainstay.dev/serving";
const REVISIONS: (&str, &str) = ("serving.knative.dev/v1", "revisions");
const INGRESSES: (&str, &str) = ("networking.internal.knative.dev/v1alpha1", "ingresses");
const REVISION: &str = "serving.knative.dev/revision";
/// How long a request may be held.
const HELD: Duration = Duration::from_secs(30);

/// Returns a world with Knative and an agent.
async fn world() -> World {
    let mut world = World::with_node_and(|_| {}, |options| options.knative = true).await;
    world.server.embedded().install_knative().unwrap();
    world.start();
    world
}

fn configure(world: &World, name: &str, data: &Value) {
    let patch = devcluster::Action::Patch(devcluster::verbs::patch::Form::Merge, json!({"data": data}));
    let call = devcluster::Call::new("v1", "configmaps", "knative-serving", name, patch);
    world.try_as("test", call).unwrap();
}

/// Creates a Function on Knative.
fn choose(world: &World, name: &str, spec: Value) {
    let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": {CHOICE: "knative"}});
    world.create(
        API,
        "functions",
        NAMESPACE,
        json!({"apiVersion": API, "kind": "Function", "metadata": metadata, "spec": spec}),
    );
}

async fn ready(world: &World, name: &str) {
    world.says(name, "Running", &format!("True ServiceReady: Function {name} is ready")).await;
}

/// Returns a Function that answers with this text.
fn answering(text: &str) -> Value {
    inline(&format!("module.exports = {{ main: () => '{text}' }}"))
}

fn revisions(world: &World) -> Vec<String> {
    let all = world.server.objects(REVISIONS.0, REVISIONS.1, Some(NAMESPACE));
    all.iter().map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Returns the desired replicas of a Revision.
fn replicas(world: &World, revision: &str) -> Value {
    let all = world.server.objects(DEPLOYMENTS.0, DEPLOYMENTS.1, Some(NAMESPACE));
    let found = all.iter().find(|one| one["metadata"]["labels"][REVISION] == revision);
    found.map_or(Value::Null, |found| found["spec"]["replicas"].clone())
}

/// Returns the status of a request to a host through a gateway.
async fn outside(gateway: SocketAddr, host: &str) -> u16 {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    client.get(format!("http://{gateway}/")).header("host", host).send().await.unwrap().status().as_u16()
}

/// Returns the reasons of a Function's messages until it is ready, each once, because a waiting message may be refined.
async fn told(world: &mut World, name: &str) -> Vec<String> {
    let owner = Owner::function(NAMESPACE, name);
    let mut reasons: Vec<String> = Vec::new();
    while reasons.last().is_none_or(|last| last != "ServiceReady") {
        let heard = tokio::time::timeout(HELD, world.messages.recv()).await.expect("it is told").unwrap();
        if let Message::Stage { subject, reason, .. } = heard
            && subject == owner
        {
            reasons.push(reason.to_string());
        }
    }
    reasons.dedup();
    reasons
}

/// Returns the sample of the documentation without unused packages.
fn sample() -> Value {
    let text = include_str!("../samples/knative.yaml");
    let mut function: Value = serde_yaml::from_str(text).unwrap();
    function["spec"].as_object_mut().unwrap().remove("deps");
    function["spec"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_of_the_documentation_answers_inside_only_and_a_variable_is_a_revision_and_no_build() {
    let mut world = world().await;
    let name = "my-test-function";
    choose(&world, name, sample());
    ready(&world, name).await;
    world.says(name, "ConfigurationReady", "True ConfigMapCreated").await;
    world.says(name, "BuildReady", "True JobFinished").await;
    let order = [
        "ConfigMapCreated",
        "JobCreated",
        "JobRunning",
        "JobFinished",
        "ServiceCreated",
        "ServiceWaiting",
        "ServiceReady",
    ];
    assert_eq!(told(&mut world, name).await, order);
    assert_eq!(world.call(name).await, "200 Hello John");
    assert_eq!(replicas(&world, "my-test-function-00001"), 3);
    let service = world.get(KNATIVE.0, KNATIVE.1, name).unwrap();
    assert_eq!(service["status"]["url"], format!("http://{name}.{NAMESPACE}.svc.cluster.local"));

    let ingress = world.get(INGRESSES.0, INGRESSES.1, name).unwrap();
    let rules = ingress["spec"]["rules"].as_array().unwrap();
    assert!(rules.iter().all(|rule| rule["visibility"] == "ClusterLocal"), "{rules:?}");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let gateway = Gateway::start(world.server.embedded(), any).await.unwrap();
    assert_eq!(outside(gateway.address(), &format!("{name}.{NAMESPACE}.localhost")).await, 404);
    assert_eq!(outside(gateway.address(), &format!("{name}.{NAMESPACE}.svc.cluster.local")).await, 200);

    let env = json!({"spec": {"env": [{"name": "PERSON_NAME", "value": "Ada"}], "minReplicas": 1, "maxReplicas": 1}});
    world.edit_function(name, env);
    // Requests are answered during the whole update.
    let mut answers = std::collections::BTreeSet::new();
    while !answers.contains("200 Hello Ada") {
        answers.insert(world.call(name).await);
    }
    assert_eq!(Vec::from_iter(answers), ["200 Hello Ada", "200 Hello John"]);
    ready(&world, name).await;
    assert_eq!(world.children(name, JOBS).len(), 1, "nothing is built for it");
    world.until("the Revision before is gone", |w| revisions(w) == ["my-test-function-00002"]).await;
    world.delete(API, "functions", name);
    world.until("nothing is left", |w| revisions(w).is_empty() && w.get(SERVICES.0, SERVICES.1, name).is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_without_requests_has_no_pods_and_the_next_request_is_held_and_answered() {
    let world = world().await;
    configure(&world, "config-autoscaler", &json!({"stable-window": "6s"}));
    let mut spec = answering("1");
    (spec["minReplicas"], spec["maxReplicas"]) = (json!(0), json!(2));
    choose(&world, "hello", spec);
    ready(&world, "hello").await;
    world.until("there are no pods", |w| replicas(w, "hello-00001") == 0).await;
    let active = |w: &World| {
        let revision = w.get(REVISIONS.0, REVISIONS.1, "hello-00001").unwrap();
        revision["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["type"] == "Active" && c["reason"] == "NoTraffic")
    };
    world.until("Knative says so", active).await;
    assert!(world.said("hello", "Running").starts_with("True ServiceReady"), "a Function without pods is ready");
    let calls = (0..20).map(|_| world.call_within("hello", HELD));
    for answer in futures::future::join_all(calls).await {
        assert_eq!(answer, "200 1");
    }
    assert!([json!(1), json!(2)].contains(&replicas(&world, "hello-00001")));
    assert!(world.said("hello", "Running").starts_with("True ServiceReady"));
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_ends_is_a_failure_and_what_was_there_before_serves() {
    let world = world().await;
    configure(&world, "config-deployment", &json!({"progress-deadline": "10s"}));
    choose(&world, "hello", answering("1"));
    ready(&world, "hello").await;
    world.edit_function("hello", json!({"spec": {"source": "process.exit(3)"}}));
    world.says("hello", "Running", "False ServiceFailed: Service hello failed: RevisionFailed: ").await;
    let said = world.said("hello", "Running");
    assert!(said.contains("hello-00001 serves") && said.contains("exit code 3"), "{said}");
    let service = world.get(KNATIVE.0, KNATIVE.1, "hello").unwrap();
    assert_eq!(service["status"]["latestReadyRevisionName"], "hello-00001");
    assert_eq!(world.call("hello").await, "200 1");
    world.edit_function("hello", json!({"spec": {"source": answering("2")["source"]}}));
    ready(&world, "hello").await;
    assert_eq!(world.call("hello").await, "200 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_moves_from_a_deployment_to_knative_and_back_and_answers_on_either() {
    let world = world().await;
    world.function("hello", answering("1"));
    world.runs("hello").await;
    assert_eq!(world.call("hello").await, "200 1");
    let owner = |w: &World| {
        let service = w.get(SERVICES.0, SERVICES.1, "hello");
        service.map_or(Value::Null, |service| service["metadata"]["ownerReferences"][0]["kind"].clone())
    };
    world.edit_function("hello", json!({"metadata": {"labels": {CHOICE: "knative"}}}));
    world.until_function("it is on Knative", |w| w.function_status("hello")["serving"] == "knative").await;
    ready(&world, "hello").await;
    assert_eq!(owner(&world), "Route");
    world.answers("hello", "200 1").await;
    world.edit_function("hello", json!({"metadata": {"labels": {CHOICE: "deployment"}}}));
    let is_back = |w: &World| owner(w) == "Function" && revisions(w).is_empty() && w.is_running("hello");
    world.until_function("it is on a Deployment", is_back).await;
    world.answers("hello", "200 1").await;
    assert_eq!(world.children("hello", JOBS).len(), 1, "nothing is built for it");
}
