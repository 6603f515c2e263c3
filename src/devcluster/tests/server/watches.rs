//! Watches: replay, order, selectors, bookmarks and end.

use crate::world::{MAPS, World, version};
use devcluster::Options;
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn begins_with_what_is_there_and_goes_on() {
    let world = World::new();
    world.map("a", json!({})).await;
    let mut watch = world.watch(&format!("{MAPS}?watch=1")).await;
    assert_eq!(watch.short().await, "ADDED a");
    world.map("b", json!({})).await;
    world.merge(&format!("{MAPS}/b"), json!({"data": {"k": "w"}})).await.expect(200);
    world.delete(&format!("{MAPS}/a"), json!({})).await.expect(200);
    assert_eq!(watch.short().await, "ADDED b");
    assert_eq!(watch.short().await, "MODIFIED b");
    let gone = watch.next().await.unwrap();
    assert_eq!((gone["type"].as_str(), version(&gone["object"])), (Some("DELETED"), world.server.store().version()));
    assert_eq!(gone["object"]["kind"], "ConfigMap");
}

#[tokio::test]
async fn replays_from_a_version_and_skips_writes_without_effect() {
    let world = World::new();
    let start = version(&world.map("a", json!({})).await);
    let same = world.merge(&format!("{MAPS}/a"), json!({"data": {"k": "v"}})).await.expect(200);
    assert_eq!(version(&same), start);
    world.merge(&format!("{MAPS}/a?dryRun=All"), json!({"data": {"k": "x"}})).await.expect(200);
    world.merge(&format!("{MAPS}/a"), json!({"data": {"k": "y"}})).await.expect(200);
    let mut watch = world.watch(&format!("{MAPS}?watch=true&resourceVersion={start}")).await;
    let event = watch.next().await.unwrap();
    assert_eq!((event["type"].as_str(), &event["object"]["data"]["k"]), (Some("MODIFIED"), &json!("y")));
}

#[tokio::test]
async fn selector_transitions_are_additions_and_deletions_of_the_old_state() {
    let world = World::new();
    let start = version(&world.map("a", json!({"app": "x"})).await);
    world.merge(&format!("{MAPS}/a"), json!({"metadata": {"labels": {"app": "y"}}})).await.expect(200);
    world.merge(&format!("{MAPS}/a"), json!({"metadata": {"labels": {"app": "x"}}})).await.expect(200);
    let mut watch = world.watch(&format!("{MAPS}?watch=1&resourceVersion={start}&labelSelector=app%3Dx")).await;
    let left = watch.next().await.unwrap();
    assert_eq!(left["type"], "DELETED");
    assert_eq!(left["object"]["metadata"]["labels"]["app"], "x");
    assert_eq!(version(&left["object"]), start + 1);
    assert_eq!(watch.short().await, "ADDED a");
}

#[tokio::test]
async fn forgotten_history_is_an_error_event_and_the_end() {
    let world = World::new();
    world.map("a", json!({})).await;
    world.server.store().compact();
    let mut watch = world.watch(&format!("{MAPS}?watch=1&resourceVersion=2")).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!((&event["object"]["reason"], &event["object"]["code"]), (&json!("Expired"), &json!(410)));
    assert!(event["object"]["message"].as_str().unwrap().starts_with("too old resource version: 2 ("));
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn an_open_watch_survives_compaction() {
    let world = World::new();
    let mut watch = world.watch(&format!("{MAPS}?watch=1")).await;
    world.map("a", json!({})).await;
    assert_eq!(watch.short().await, "ADDED a");
    world.server.store().compact();
    world.map("b", json!({})).await;
    assert_eq!(watch.short().await, "ADDED b");
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let world = World::new();
    world.map("a", json!({})).await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0\
                 &allowWatchBookmarks=true";
    let mut watch = world.watch(&format!("{MAPS}?{query}")).await;
    assert_eq!(watch.short().await, "ADDED a");
    let bookmark = watch.next().await.unwrap();
    assert_eq!(
        bookmark["object"],
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
            "resourceVersion": world.server.store().version().to_string(),
            "annotations": {"k8s.io/initial-events-end": "true"},
        }})
    );
    let refused = world.get(&format!("{MAPS}?watch=1&sendInitialEvents=true")).await;
    refused.refused(422, "Invalid", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
}

#[tokio::test]
async fn bookmarks_follow_the_global_version() {
    let world = World::with(Options { bookmark_interval: Duration::from_millis(20), ..Options::default() });
    let start = world.server.store().version();
    let mut watch = world.watch(&format!("{MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={start}")).await;
    world.post("/api/v1/namespaces", json!({"metadata": {"name": "other"}})).await.expect(201);
    let bookmark = watch.next().await.unwrap();
    assert_eq!((bookmark["type"].as_str(), version(&bookmark["object"])), (Some("BOOKMARK"), start + 1));
}

#[tokio::test]
async fn ends_cleanly_after_its_timeout_and_when_it_is_dropped() {
    let world = World::new();
    let mut short = world.watch(&format!("{MAPS}?watch=1&timeoutSeconds=1")).await;
    assert!(short.next().await.is_none());
    let mut dropped = world.watch(&format!("{MAPS}?watch=1")).await;
    world.map("a", json!({})).await;
    world.server.store().end_watches(None);
    assert_eq!(dropped.short().await, "ADDED a");
    assert!(dropped.next().await.is_none());
}

#[tokio::test]
async fn a_version_of_the_future_is_silence_until_then() {
    let world = World::new();
    let now = world.server.store().version();
    let mut watch = world.watch(&format!("{MAPS}?watch=1&resourceVersion={}", now + 1)).await;
    world.map("a", json!({})).await;
    world.map("b", json!({})).await;
    assert_eq!(watch.short().await, "ADDED b");
}

#[tokio::test]
async fn metadata_watch_shows_metadata_only() {
    use http::Request;
    use http_body_util::{BodyExt as _, Full};
    let world = World::new();
    world.map("a", json!({})).await;
    let request = Request::get(format!("{MAPS}?watch=1"))
        .header("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
        .body(Full::default())
        .unwrap();
    let mut body = world.send(request).await.into_body();
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let event: serde_json::Value = serde_json::from_slice(&frame).unwrap();
    assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
    assert!(event["object"].get("data").is_none());
}
