//! Functions on Knative Serving, and their moves to it and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use devcluster::{Action, Call, verbs::patch::Form};
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{API, AUTOSCALERS, DEPLOYMENTS, JOBS, SERVICES, inline},
    knative::{BREAKS, KNATIVE, REVISIONS, ROUTES, is_real},
    server::TestServer,
    world::{NAMESPACE, World},
};

const CHOICE: &str = "mainstay.dev/serving";
const READY: &str = "True ServiceReady: Function hello is ready";

/// Creates a Function with this flavour.
fn choose(world: &World, name: &str, flavour: &str, spec: Value) {
    let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": {CHOICE: flavour, "team": "a"}});
    world.create(
        API,
        "functions",
        NAMESPACE,
        json!({"apiVersion": API, "kind": "Function", "metadata": metadata, "spec": spec}),
    );
}

/// Returns a world with Knative and an agent.
async fn with_knative() -> World {
    let mut world = World::without_knative().await;
    world.knative_is_installed();
    world.start();
    world
}

/// Returns such a world in which `hello` runs on Knative.
async fn serving() -> World {
    let world = with_knative().await;
    world.knative_runs();
    choose(&world, "hello", "knative", inline("1"));
    world.says("hello", "Running", READY).await;
    world
}

fn service(world: &World) -> Value {
    world.get(KNATIVE.0, KNATIVE.1, "hello").map(|service| Value::clone(&service)).unwrap_or_default()
}

/// Returns the numbers of the existing Revisions.
fn revisions(world: &World) -> Vec<String> {
    let all = world.server.objects(REVISIONS.0, REVISIONS.1, Some(NAMESPACE));
    let name =
        |revision: &Value| revision["metadata"]["name"].as_str().unwrap().trim_start_matches("hello-0000").to_owned();
    let mut all: Vec<_> = all.iter().map(|revision| name(revision)).collect();
    all.sort();
    all
}

/// Returns how often the agent has listed Revisions.
fn lists_of_revisions(world: &World) -> u64 {
    let requests = world.requests().into_iter();
    requests.filter(|(request, _)| request == "list revisions.serving.knative.dev").map(|(_, count)| count).sum()
}

/// Whether the address of `hello` has endpoints: pods of the Deployment, or a Revision.
fn answers(world: &TestServer) -> bool {
    let get = |(version, resource): (&str, &str), name: &str| world.object(version, resource, NAMESPACE, name);
    let Some(address) = get(SERVICES, "hello") else { return false };
    match address["metadata"]["ownerReferences"][0]["kind"].as_str() {
        Some("Function") => {
            let all = world.objects(DEPLOYMENTS.0, DEPLOYMENTS.1, Some(NAMESPACE));
            address["spec"]["selector"].is_object()
                && all.iter().any(|d| d["status"]["availableReplicas"].as_i64() > Some(0))
        }
        Some("Route") => {
            get(KNATIVE, "hello").is_some_and(|service| service["status"]["latestReadyRevisionName"].is_string())
        }
        _ => false,
    }
}

/// Counts changes of the embedded cluster from now on after which the address has no endpoints.
fn count_unanswered(world: &World) -> Arc<AtomicU32> {
    let (count, server) = (Arc::new(AtomicU32::new(0)), world.server.clone());
    let TestServer::Embedded(embedded) = &world.server else { return count };
    let (counted, mut events) = (Arc::clone(&count), embedded.subscribe());
    let address = move || server.object(SERVICES.0, SERVICES.1, NAMESPACE, "hello");
    let server = world.server.clone();
    tokio::spawn(async move {
        loop {
            events.next().await;
            let before = address();
            // The address may be transferred during the check; then another event follows.
            let is_unanswered = !answers(&server) && address() == before;
            counted.fetch_add(u32::from(is_unanswered), Ordering::Relaxed);
        }
    });
    count
}

/// Returns the UIDs of the Function's own Deployments. The Deployments of its Revisions have its labels, too.
fn deployments(world: &World) -> Vec<Value> {
    let all = world.children("hello", DEPLOYMENTS);
    let mine = all.iter().filter(|deployment| deployment["metadata"]["ownerReferences"][0]["kind"] == "Function");
    mine.map(|deployment| deployment["metadata"]["uid"].clone()).collect()
}

/// Returns the kind of the owner of the Service `hello`.
fn address(world: &World) -> Value {
    let service = world.get(SERVICES.0, SERVICES.1, "hello");
    service.map(|service| service["metadata"]["ownerReferences"][0]["kind"].clone()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_is_built_and_becomes_a_knative_service() {
    let mut world = with_knative().await;
    let mut spec = inline("1");
    spec["labels"] = json!({"app": "shop"});
    spec["minReplicas"] = json!(0);
    choose(&world, "hello", "knative", spec);
    if !is_real() {
        world.says("hello", "Running", "Unknown ServiceWaiting: Service hello is not ready yet").await;
    }
    world.knative_runs();
    world.says("hello", "Running", READY).await;
    let order = ["ConfigMapCreated", "JobCreated", "JobRunning", "JobFinished", "ServiceCreated", "ServiceWaiting"];
    world.told("hello", &[&order[..], &["ServiceReady"]].concat()).await;

    let service = service(&world);
    let labels = &service["metadata"]["labels"];
    for label in ["serving.knative.dev/visibility", "networking.knative.dev/visibility"] {
        assert_eq!(labels[label], "cluster-local");
    }
    assert_eq!((&labels["team"], &labels[CHOICE]), (&json!("a"), &Value::Null));
    let template = &service["spec"]["template"];
    let annotations = json!({"autoscaling.knative.dev/minScale": "0", "autoscaling.knative.dev/maxScale": "1"});
    assert_eq!(template["metadata"]["annotations"], annotations);
    let of_pods = &template["metadata"]["labels"];
    assert_eq!((&of_pods["app"], &of_pods["serverless.kyma-project.io/resource"]), (&json!("shop"), &Value::Null));
    let container = &template["spec"]["containers"][0];
    assert_eq!(container["name"], "lambda");
    assert!(container["image"].as_str().unwrap().contains("@sha256:"), "{container}");
    assert_eq!(container["ports"], Value::Null);
    if !is_real() {
        // Knative's admission adds that all traffic goes to the latest Revision.
        assert_eq!(service["spec"]["traffic"], Value::Null);
    }
    assert_eq!(world.function_status("hello")["serving"], "knative");
    assert!(deployments(&world).is_empty());
    assert_eq!(address(&world), "Route");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_knative_it_is_said_and_other_functions_run() {
    let mut world = World::without_knative().await;
    world.start();
    world.function("plain", inline("1"));
    world.runs("plain").await;
    let definitions = |w: &World| w.requests().iter().any(|(request, _)| request.contains("knative"));
    choose(&world, "hello", "knative", inline("1"));
    world.says("hello", "Running", "False KnativeNotInstalled").await;
    world.says("hello", "BuildReady", "True JobFinished").await;
    assert!(deployments(&world).is_empty() && !definitions(&world));
    assert!(world.is_running("plain"));
    // The Function recovers by itself, and reports the problem again when Knative is removed.
    world.knative_is_installed();
    world.knative_runs();
    world.says("hello", "Running", READY).await;
    world.undefine("services.serving.knative.dev");
    world.says("hello", "Running", "False KnativeNotInstalled").await;
    world.quiet().await;
    assert!(world.is_running("plain"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_for_knative_is_made_without_a_function_on_it() {
    let mut world = World::without_knative().await;
    world.knative_is_installed();
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    let counts = world.levers().counts();
    let asked: Vec<_> = counts.iter().filter(|c| c.resource.contains("knative")).map(|c| &*c.resource).collect();
    assert_eq!(asked, [""; 0]);
    assert_eq!(world.function_status("hello")["serving"], Value::Null);
    choose(&world, "other", "knative", inline("1"));
    let is_asked = |w: &World| w.levers().counts().iter().any(|c| c.resource.contains("knative"));
    world.until("it is asked for", is_asked).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_others_are_reverted_and_their_additions_stay() {
    let world = serving().await;
    let uid = world.uid(KNATIVE.0, KNATIVE.1, "hello");
    world.delete(KNATIVE.0, KNATIVE.1, "hello");
    let is_back = |w: &World| service(w)["metadata"]["uid"].as_str().is_some_and(|new| new != uid);
    world.until("the Knative Service is back", is_back).await;
    world.says("hello", "Running", READY).await;
    assert_eq!(world.children("hello", JOBS).len(), 1, "nothing is built for it");

    // Knative itself does not allow changes of the creator.
    let annotation = if is_real() { "example.org/note" } else { "serving.knative.dev/creator" };
    let public = json!({"metadata": {
        "labels": {"networking.knative.dev/visibility": null, "other": "y"}, "annotations": {annotation: "x"},
    }, "spec": {"traffic": [{"latestRevision": true, "percent": 100}]}});
    world.edit(KNATIVE.0, KNATIVE.1, "hello", public);
    let is_private =
        |w: &World| service(w)["metadata"]["labels"]["networking.knative.dev/visibility"] == "cluster-local";
    world.until("it is private again", is_private).await;
    let mut containers = service(&world)["spec"]["template"]["spec"]["containers"].clone();
    containers[0]["image"] = json!("example.org/other");
    world.edit(KNATIVE.0, KNATIVE.1, "hello", json!({"spec": {"template": {"spec": {"containers": containers}}}}));
    let is_ours = |w: &World| service(w)["spec"]["template"]["spec"]["containers"][0]["image"] != "example.org/other";
    world.until("its image is back", is_ours).await;
    world.says("hello", "Running", READY).await;
    world.quiet().await;
    let service = service(&world);
    assert_eq!(service["metadata"]["labels"]["other"], "y");
    assert_eq!(service["metadata"]["annotations"][annotation], "x");
    assert_eq!(service["spec"]["traffic"][0]["percent"], 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_makes_a_revision_and_no_build() {
    let world = serving().await;
    let revision = |w: &World| service(w)["status"]["latestReadyRevisionName"].clone();
    assert_eq!(revision(&world), "hello-00001");
    world.edit_function("hello", json!({"spec": {"env": [{"name": "A", "value": "1"}]}}));
    world.until_function("the next Revision", |w| revision(w) == "hello-00002").await;
    world.says("hello", "Running", READY).await;
    world.until("the first is gone", |w| revisions(w) == ["2"]).await;
    assert_eq!(world.children("hello", JOBS).len(), 1);
    let label = json!({"metadata": {"labels": {"team": "b"}}, "spec": {"env": null}});
    world.edit_function("hello", label);
    world.says("hello", "Running", READY).await;
    world.until("only the newest is left", |w| revisions(w) == ["3"]).await;
    world.quiet().await;
    let asked = lists_of_revisions(&world);
    assert_ne!(asked, 0);
    world.edit_function("hello", json!({"metadata": {"labels": {"team": "c"}}}));
    world.until("its label is there", |w| service(w)["metadata"]["labels"]["team"] == "c").await;
    world.edit_function("hello", json!({"metadata": {"labels": {"team": "b"}}}));
    world.until("its label is there", |w| service(w)["metadata"]["labels"]["team"] == "b").await;
    world.quiet().await;
    assert_eq!(lists_of_revisions(&world), asked, "there is nothing to delete");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_that_is_named_in_traffic_stays_as_long_as_it_is() {
    let world = serving().await;
    let traffic = |of_first: Value| json!({"spec": {"traffic": [of_first, {"latestRevision": true, "percent": 50}]}});
    world.edit(
        KNATIVE.0,
        KNATIVE.1,
        "hello",
        traffic(json!({"revisionName": "hello-00001", "percent": 50, "tag": "old"})),
    );
    for (number, left) in [("2", ["1", "2"]), ("3", ["1", "3"])] {
        world.edit_function("hello", json!({"spec": {"env": [{"name": "A", "value": number}]}}));
        world
            .until_function("the next Revision", |w| w.said("hello", "Running") == READY && revisions(w) == left)
            .await;
    }
    world.quiet().await;
    assert_eq!(revisions(&world), ["1", "3"]);
    let service = service(&world);
    assert_eq!(service["spec"]["traffic"][0]["tag"], "old");
    assert_eq!(service["status"]["traffic"][1]["revisionName"], "hello-00003");
    // A Revision with the annotation is kept, and the other one is deleted with the traffic.
    world.edit(KNATIVE.0, KNATIVE.1, "hello", json!({"spec": {"traffic": [{"latestRevision": true, "percent": 100}]}}));
    world.until("only the newest is left", |w| revisions(w) == ["3"]).await;
    world.says("hello", "Running", READY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_go_although_the_route_changes_while_they_are_looked_at() {
    let world = serving().await;
    let server = world.server.clone();
    // The Route's generation is ahead of its status for a moment, and the Knative Service has not observed it.
    world.gate.before(["get", "routes.serving.knative.dev", "hello"], 1, move || {
        let tagged = json!({"spec": {"traffic": [{"latestRevision": true, "percent": 100, "tag": "t"}]}});
        let patch = Action::Patch(Form::Merge, tagged);
        server.must_call("test", Call::new("serving.knative.dev/v1", "routes", NAMESPACE, "hello", patch));
    });
    world.edit_function("hello", json!({"spec": {"env": [{"name": "A", "value": "1"}]}}));
    world.until("only the newest is left", |w| revisions(w) == ["2"]).await;
    assert_eq!(world.gate.interferences_left(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_that_fails_says_what_serves() {
    let world = serving().await;
    world.edit_function("hello", json!({"spec": {"env": [{"name": BREAKS, "value": "1"}]}}));
    world.says("hello", "Running", "False ServiceFailed: Service hello failed: RevisionFailed: ").await;
    let said = world.said("hello", "Running");
    assert!(said.contains("boom") && said.ends_with("hello-00001 serves"), "{said}");
    world.quiet().await;
    assert_eq!(revisions(&world), ["1", "2"], "the one that serves and the one that failed");
    world.edit_function("hello", json!({"spec": {"env": null}}));
    world.says("hello", "Running", READY).await;
    world.until("only the newest is left", |w| revisions(w) == ["3"]).await;
    assert_eq!(world.children("hello", JOBS).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_moves_to_knative_and_back_without_a_build() {
    let mut world = World::without_knative().await;
    world.knative_is_installed();
    world.knative_runs();
    world.start();
    let mut spec = inline("1");
    spec["maxReplicas"] = json!(3);
    world.function("hello", spec);
    world.runs("hello").await;
    let uid = world.uid(SERVICES.0, SERVICES.1, "hello");
    let before = world.get(SERVICES.0, SERVICES.1, "hello").unwrap()["spec"].clone();
    let unanswered = count_unanswered(&world);
    world.edit_function("hello", json!({"metadata": {"labels": {CHOICE: "knative"}}}));
    world.says("hello", "Running", READY).await;
    let has_left = |w: &World| deployments(w).is_empty() && address(w) == "Route";
    world.until_function("the Deployment is gone", has_left).await;
    assert_eq!(world.function_status("hello")["serving"], "knative");
    let given = world.get(SERVICES.0, SERVICES.1, "hello").unwrap();
    assert_eq!((&given["metadata"]["uid"], &given["spec"]["selector"]), (&json!(uid), &Value::Null));
    assert!(world.children("hello", AUTOSCALERS).is_empty());
    // An agent that missed the label's change finds the Knative Service.
    world.stop().await;
    world.edit_function("hello", json!({"metadata": {"labels": {CHOICE: "deployment"}}}));
    world.start();
    let is_back = |w: &World| service(w).is_null() && address(w) == "Function" && w.is_running("hello");
    world.until_function("the Deployment serves", is_back).await;
    world.until_function("nothing is left", |w| w.function_status("hello")["serving"].is_null()).await;
    assert_eq!(world.children("hello", JOBS).len(), 1, "the image is as it was");
    let taken = world.get(SERVICES.0, SERVICES.1, "hello").unwrap();
    assert_eq!(taken["metadata"]["uid"], json!(uid), "the address has been there all the time");
    let labels = taken["metadata"]["labels"].as_object().unwrap();
    assert!(!labels.keys().any(|key| key.contains("knative")), "{labels:?}");
    assert_eq!((&taken["spec"]["selector"], &taken["spec"]["ports"]), (&before["selector"], &before["ports"]));
    assert_eq!(world.children("hello", AUTOSCALERS).len(), 1);
    assert_eq!(unanswered.load(Ordering::Relaxed), 0, "somebody has served all the time");
    world.edit(SERVICES.0, SERVICES.1, "hello", json!({"spec": {"selector": {"app": "x"}}}));
    let is_ours = |w: &World| w.get(SERVICES.0, SERVICES.1, "hello").unwrap()["spec"]["selector"] == before["selector"];
    world.until("what is changed is reverted", is_ours).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_is_undone_wherever_it_is_and_an_agent_that_was_killed_goes_on() {
    let mut world = World::without_knative().await;
    world.knative_is_installed();
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    let uids = |w: &World| (w.uid(SERVICES.0, SERVICES.1, "hello"), deployments(w));
    let (before, unanswered) = (uids(&world), count_unanswered(&world));
    let choose = |w: &World, flavour| w.edit_function("hello", json!({"metadata": {"labels": {CHOICE: flavour}}}));
    let is_back =
        |w: &World| service(w).is_null() && address(w) == "Function" && w.function_status("hello")["serving"].is_null();
    // The move is undone before Knative has acted.
    choose(&world, "knative");
    world.until("the Knative Service is there", |w| !service(w).is_null()).await;
    choose(&world, "deployment");
    world.until_function("it is undone", is_back).await;
    // The agent is killed once a Revision can serve.
    choose(&world, "knative");
    world.until("the Knative Service is there", |w| !service(w).is_null()).await;
    world.stop().await;
    world.knative_runs();
    let has_revision = |w: &World| service(w)["status"]["latestReadyRevisionName"].is_string();
    world.until("a Revision could serve", has_revision).await;
    // The agent is killed as soon as Knative has the address.
    let route = world.get(ROUTES.0, ROUTES.1, "hello").unwrap();
    let owner = json!({"apiVersion": ROUTES.0, "kind": "Route", "name": "hello", "uid": route["metadata"]["uid"], "controller": true});
    let given = json!({"metadata": {"ownerReferences": [owner]}, "spec": {"selector": null}});
    world.edit(SERVICES.0, SERVICES.1, "hello", given);
    choose(&world, "deployment");
    world.start();
    world.until_function("it is undone", is_back).await;
    assert_eq!(uids(&world), before);
    choose(&world, "knative");
    let has_moved = |w: &World| deployments(w).is_empty() && address(w) == "Route";
    world.until_function("it has moved", has_moved).await;
    world.says("hello", "Running", READY).await;
    assert_eq!(world.children("hello", JOBS).len(), 1, "nothing is built");
    assert_eq!(unanswered.load(Ordering::Relaxed), 0, "somebody has served all the time");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_belongs_to_somebody_else_is_not_taken() {
    let world = serving().await;
    let traffic = json!([{"configurationName": "theirs", "percent": 100}]);
    let theirs = json!({
        "apiVersion": ROUTES.0, "kind": "Route", "metadata": {"name": "theirs", "namespace": NAMESPACE}, "spec": {"traffic": traffic},
    });
    let theirs = world.create(ROUTES.0, ROUTES.1, NAMESPACE, theirs);
    let uid = &theirs["metadata"]["uid"];
    let owner = json!({"apiVersion": ROUTES.0, "kind": "Route", "name": "theirs", "uid": uid, "controller": true});
    world.edit(SERVICES.0, SERVICES.1, "hello", json!({"metadata": {"ownerReferences": [owner]}}));
    let before = world.get(SERVICES.0, SERVICES.1, "hello");
    world.edit_function("hello", json!({"metadata": {"labels": {CHOICE: "deployment"}}}));
    let said = "False ServiceFailed: Service mainstay-tests/hello exists already and belongs to Route theirs";
    world.says("hello", "Running", said).await;
    assert_eq!(world.get(SERVICES.0, SERVICES.1, "hello"), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_knative_are_reported_before_a_build() {
    let world = with_knative().await;
    let mut spec = inline("1");
    spec["env"] = json!([{"name": "PORT", "value": "1"}, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]);
    choose(&world, "hello", "knative", spec);
    world.says("hello", "ConfigurationReady", "False SpecInvalid").await;
    let said = world.said("hello", "ConfigurationReady");
    assert!(said.contains("env PORT is set by Knative") && said.contains("env NODE refers to a field"), "{said}");
    choose(&world, "other", "serverless", inline("1"));
    world.says("other", "ConfigurationReady", "False SpecInvalid").await;
    let said = world.said("other", "ConfigurationReady");
    assert!(said.contains(CHOICE) && said.contains("neither `deployment` nor `knative`"), "{said}");
    assert!(world.children("hello", JOBS).is_empty() && world.children("other", JOBS).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_knative_service_of_somebody_else_is_left_alone() {
    let world = with_knative().await;
    let spec = json!({"template": {"spec": {"containers": [{"image": "example.org/theirs"}]}}});
    let theirs = json!({"apiVersion": KNATIVE.0, "kind": "Service", "metadata": {"name": "hello", "namespace": NAMESPACE}, "spec": spec});
    world.create(KNATIVE.0, KNATIVE.1, NAMESPACE, theirs);
    let written = |w: &World| {
        let service = service(w);
        (service["spec"].clone(), service["metadata"]["generation"].clone(), service["metadata"]["labels"].clone())
    };
    let before = written(&world);
    choose(&world, "hello", "knative", inline("1"));
    world.says("hello", "Running", "False ServiceFailed: Service mainstay-tests/hello exists already").await;
    assert_eq!(written(&world), before);
}
