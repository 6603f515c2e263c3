//! Traces: what a collector gets for commits and builds, and that an absent one delays nothing.

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;

use mainstay_testkit::{
    collector::Collector,
    functions::inline,
    git_server::GitServer,
    logs,
    remote::NAME,
    webhooks::client,
    world::{World, config_map, free_address},
};

fn names(spans: &[Span]) -> Vec<&str> {
    let mut spans = spans.iter().collect::<Vec<_>>();
    spans.sort_by_key(|span| span.start_time_unix_nano);
    spans.iter().map(|span| span.name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_is_one_trace_with_its_steps() {
    let (collector, url) = Collector::start().await;
    let _ = client();
    let _exporting = mainstay_traces::start(&url).unwrap();
    let mut world = World::with_functions().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
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
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_is_one_trace_with_its_job() {
    let (collector, url) = Collector::start().await;
    let _ = client();
    let _exporting = mainstay_traces::start(&url).unwrap();
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
    let exporting = mainstay_traces::start(&format!("http://{}", free_address())).unwrap();
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    exporting.flush();
    let began = Instant::now();
    drop(exporting);
    assert!(began.elapsed() < Duration::from_secs(30));
    let logged = logs::text();
    assert_eq!(logged.matches("traces not sent").count(), 1, "{logged}");
}
