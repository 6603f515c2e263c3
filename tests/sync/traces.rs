//! Traces: what a collector gets for commits, reverts and builds, and that an absent one delays nothing.

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;

use mainstay_testkit::{
    collector::Collector,
    functions::inline,
    git_server::GitServer,
    logs,
    remote::NAME,
    webhooks::{client, listening, push, send, signature},
    world::{NAMESPACE, World, config_map, free_address},
};
use mainstay_traces::Endpoint;

const TOKEN: &str = "token-of-enough-bytes-for-a-hook";
const CAUSE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn names(spans: &[Span]) -> Vec<&str> {
    let mut spans = spans.iter().collect::<Vec<_>>();
    spans.sort_by_key(|span| span.start_time_unix_nano);
    spans.iter().map(|span| span.name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_and_a_revert_are_one_trace_each() {
    logs::keep();
    let (collector, url) = Collector::start().await;
    let _ = client();
    let _exporting = mainstay_traces::start(Endpoint::Collector(&url)).unwrap();
    let mut world = World::with_functions().await;
    world.listen = Some(free_address());
    world.receive = Some(listening());
    world.remote.file("a.yaml", config_map("a", "canary-of-a-value")).commit("one");
    let server = GitServer::start(world.remote.root()).await;
    world.repository("shop", &server.url(NAME));
    world.synced(json!({"gitRepository": "shop"})).await;
    let commits = collector.wait_for("commit", 1).await;
    let (commit, steps) = &commits[0];
    assert_eq!(names(steps), ["lookup", "fetch", "compile", "plan", "stage", "prune", "health"], "{steps:#?}");
    assert!(commit.parent_span_id.is_empty());
    assert!(steps.iter().all(|step| step.trace_id == commit.trace_id));
    assert!(steps.iter().all(|step| step.start_time_unix_nano >= commit.start_time_unix_nano));
    assert!(steps.iter().all(|step| step.end_time_unix_nano <= commit.end_time_unix_nano));
    assert!(collector.services().iter().all(|service| service.contains("\"mainstay\"")), "{:?}", collector.services());

    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed-by-hand"}}));
    let reverts = collector.wait_for("revert", 1).await;
    assert!(reverts[0].0.parent_span_id.is_empty() && reverts[0].0.trace_id != commit.trace_id);

    // The span of a push is taken over, but not that of a delivery that is refused.
    world.set_secret("hook", json!({"token": TOKEN}));
    world.receiver("hook", json!({}));
    let hook = world.receiver_url("hook").await;
    world.remote.file("a.yaml", config_map("a", "2")).commit("two");
    let body = push(&server.url(NAME), "refs/heads/main");
    for token in ["another-token-of-enough-bytes", TOKEN] {
        let cause = if token == TOKEN { CAUSE } else { "00-11111111111111111111111111111111-2222222222222222-01" };
        let request = client().post(&hook).header("X-GitHub-Event", "push").header("traceparent", cause);
        let request = request.header("Content-Type", "application/json").body(body.clone());
        send(request.header("X-Hub-Signature-256", signature(token, &body))).await;
    }
    let commits = collector.wait_for("commit", 2).await;
    let caused = commits.iter().find(|(commit, _)| !commit.parent_span_id.is_empty()).unwrap();
    assert_eq!(hex::encode(&caused.0.trace_id), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(hex::encode(&caused.0.parent_span_id), "b7ad6b7169203331");
    let sent = format!("{:?}", collector.spans());
    assert!(!sent.contains("canary-of-a-value") && !sent.contains("changed-by-hand"), "{sent}");
    assert!(logs::text().contains("trace_id=\"0af7651916cd43dd8448eb211c80319c\""), "{}", logs::text());
    assert!(sent.contains(NAMESPACE));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_is_one_trace_with_its_job() {
    let (collector, url) = Collector::start().await;
    let _ = client();
    let _exporting = mainstay_traces::start(Endpoint::Collector(&url)).unwrap();
    let mut world = World::with_functions().await;
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    let builds = collector.wait_for("build", 1).await;
    assert!(names(&builds[0].1).contains(&"job"), "{builds:#?}");
    assert!(builds[0].1.iter().all(|part| part.trace_id == builds[0].0.trace_id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_absent_collector_delays_no_sync_and_is_logged_once() {
    logs::keep();
    let _ = client();
    let exporting = mainstay_traces::start(Endpoint::Traces(&format!("http://{}/v1/traces", free_address()))).unwrap();
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    for _ in 0..3 {
        world.edit("v1", "configmaps", "a", json!({"data": {"key": "x"}}));
        world.until("the revert", |w| w.data("a") == "1").await;
        exporting.flush();
    }
    let began = Instant::now();
    drop(exporting);
    assert!(began.elapsed() < Duration::from_secs(30));
    let logged = logs::text();
    assert_eq!(logged.matches("traces not sent").count(), 1, "{logged}");
}
