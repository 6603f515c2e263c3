//! A Function that moves between the flavours on the embedded cluster's Knative Serving under constant load.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle, task::JoinSet, time::interval};

use mainstay_testkit::{
    functions::{AUTOSCALERS, DEPLOYMENTS, JOBS, SERVICES, inline},
    knative::{KNATIVE, REVISIONS},
    world::{NAMESPACE, World},
};

/// Interval for 50 requests per second.
const EVERY: Duration = Duration::from_millis(20);
/// Timeout of a response.
const PATIENCE: Duration = Duration::from_secs(20);

/// A load of requests.
struct Load {
    end: oneshot::Sender<()>,
    answers: JoinHandle<BTreeMap<String, usize>>,
}

impl Load {
    /// Starts a load in which each request has its own connection.
    fn on(url: String) -> Self {
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(PATIENCE).build().unwrap();
        let (end, mut ended) = oneshot::channel();
        let answers = tokio::spawn(async move {
            let (mut calls, mut every) = (JoinSet::new(), interval(EVERY));
            loop {
                tokio::select! {
                    _ = &mut ended => break,
                    _ = every.tick() => drop(calls.spawn(answer(client.get(&url)))),
                }
            }
            let mut counts = BTreeMap::new();
            for answer in calls.join_all().await {
                *counts.entry(answer).or_default() += 1;
            }
            counts
        });
        Self { end, answers }
    }

    /// Ends the load and returns how often each response occurred.
    async fn end(self) -> BTreeMap<String, usize> {
        self.end.send(()).unwrap();
        self.answers.await.unwrap()
    }
}

async fn answer(request: reqwest::RequestBuilder) -> String {
    match request.send().await {
        Ok(response) => {
            let status = response.status().as_u16();
            format!("{status} {}", response.text().await.unwrap_or_else(|error| error.to_string()))
        }
        Err(error) => format!("{error:?}"),
    }
}

/// Returns the number of the Function's own Deployments, without Knative's.
fn deployments(world: &World) -> usize {
    let all = world.server.objects(DEPLOYMENTS.0, DEPLOYMENTS.1, Some(NAMESPACE));
    all.iter().filter(|deployment| deployment["metadata"]["ownerReferences"][0]["kind"] == "Function").count()
}

fn owner_of_address(world: &World) -> Value {
    let service = world.get(SERVICES.0, SERVICES.1, "hello");
    service.map_or(Value::Null, |service| service["metadata"]["ownerReferences"][0]["kind"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_a_function_moves_to_knative_and_back() {
    let mut world = World::with_node_and(|_| {}, |options| options.knative = true).await;
    // The Deployment stays for another 30 s.
    world.patience *= 2;
    world.server.embedded().install_knative().unwrap();
    world.start();
    let mut spec = inline("module.exports = { main: () => '1' }");
    spec["maxReplicas"] = json!(2);
    world.function("hello", spec);
    world.runs("hello").await;
    world.answers("hello", "200 1").await;
    let uid = world.uid(SERVICES.0, SERVICES.1, "hello");
    let url = world.server.embedded().service_urls(NAMESPACE, "hello").remove(0);
    let load = Load::on(url);
    let choose =
        |flavour| world.edit_function("hello", json!({"metadata": {"labels": {"mainstay.dev/serving": flavour}}}));

    choose("knative");
    let on_knative = |w: &World| {
        let is_ready = w.said("hello", "Running") == "True ServiceReady: Function hello is ready";
        owner_of_address(w) == "Route" && deployments(w) == 0 && is_ready
    };
    world.until_function("it is on Knative", on_knative).await;
    assert!(world.children("hello", AUTOSCALERS).is_empty());

    choose("deployment");
    let is_back = |w: &World| {
        let nothing_left = w.get(KNATIVE.0, KNATIVE.1, "hello").is_none()
            && w.server.objects(REVISIONS.0, REVISIONS.1, Some(NAMESPACE)).is_empty();
        owner_of_address(w) == "Function" && deployments(w) == 1 && nothing_left && w.is_running("hello")
    };
    world.until_function("it is on a Deployment", is_back).await;
    world.until("its status says so", |w| w.function_status("hello")["serving"].is_null()).await;

    let answers = load.end().await;
    assert_eq!(answers.keys().collect::<Vec<_>>(), ["200 1"], "{answers:?}");
    assert!(answers["200 1"] > 100, "{answers:?}");
    assert_eq!(world.uid(SERVICES.0, SERVICES.1, "hello"), uid, "the address has been there all the time");
    assert_eq!(world.children("hello", AUTOSCALERS).len(), 1);
    assert_eq!(world.children("hello", JOBS).len(), 1, "nothing is built");
}
