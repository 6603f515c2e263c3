//! Tests of the watches of managed objects.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::Full;
use serde_json::json;

use super::*;
use crate::managed::fixtures::{POLICY, desired, live};
use crate::managed::verdict::LastApplied;
use crate::managed::{Desired, History, Mark};
use mainstay_cluster::liveness::Liveness;
use mainstay_cluster::{Attempt, Cluster, Scope, Target};
use mainstay_object::Digest;

#[test]
fn a_watch_that_fails_is_not_listing_again_because_one_of_its_parts_shows_objects() {
    let kind = Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced);
    let listed = || Delta::Listed(kind.key(Some("a"), "x"), Value::Null);
    let failed = || {
        let (subject, cause) = (Box::new(Target::Cluster), Box::new(Cause::TimedOut(LIST_WITHIN)));
        Delta::Failed(Error { attempt: Attempt::List, subject, cause })
    };
    let after = |first: Progress, events: [Delta<Key>; 3]| events.iter().fold(first, Progress::after);
    assert_eq!(after(Progress::Listing, [listed(), failed(), listed()]), Progress::Failing);
    assert_eq!(after(Progress::Listing, [listed(), listed(), listed()]), Progress::Listing);
    let complete = || Delta::Complete(std::iter::empty().collect());
    assert_eq!(after(Progress::Listing, [failed(), listed(), complete()]), Progress::Watching);
    assert_eq!(after(Progress::Watching, [failed(), Delta::Resumed, failed()]), Progress::Failing);
}

/// Returns a cluster whose lists contain the ConfigMap `a` of the namespace `shop`. It rejects all watches, and the lists
/// of the namespace `b`.
fn cluster() -> Cluster {
    let service = tower::service_fn(|request: http::Request<kube::client::Body>| {
        let address = request.uri().to_string();
        let is_of_config_maps = address.contains("/configmaps");
        let is_rejected = address.contains("watch=true") || address.contains("/namespaces/b/");
        let (code, body) = if is_of_config_maps && is_rejected {
            (403_u16, json!({"kind": "Status", "status": "Failure", "code": 403}))
        } else if is_of_config_maps {
            let mut item = live(6, "1");
            item["metadata"]["namespace"] = "shop".into();
            let metadata = json!({"resourceVersion": "7"});
            (200, json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": [item]}))
        } else {
            (200, json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "b"}}))
        };
        let body = Full::new(Bytes::from(body.to_string()));
        let response = http::Response::builder().status(code).body(body).expect("a response");
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let client = kube::Client::new(service, "default");
    Cluster::from_clients(client.clone(), client)
}

/// Follows ConfigMaps in a cluster, accepts `a` of these namespaces while the watch fails, and waits until that of `shop`
/// is shown.
async fn is_shown_while_the_watch_fails(cluster: Cluster, namespaces: &[&str]) {
    let (writer, _follow_ups) = Writer::new(cluster, Liveness::default().component("test"), |_| {});
    let (owner, first) = (Owner::git_sync("shop", "demo"), desired());
    let (control, stop) = (Arc::<Control>::default(), CancellationToken::new());
    let follow = Drift::new(writer.clone()).follow(Arc::clone(&first.kind), Arc::clone(&control), stop.clone());
    let task = tokio::spawn(follow);
    // The clock is paused: the watch has listed the objects before they are managed.
    tokio::time::sleep(LIST_WITHIN).await;
    let key = |namespace: &str| first.kind.key(Some(namespace), "a");
    {
        let mut store = writer.store();
        store.set_policy(&owner, POLICY, History::default());
        for namespace in namespaces {
            let (kind, object) = (Arc::clone(&first.kind), Arc::clone(&first.object));
            let mark = Mark::Label("shop.demo".into());
            let last_applied = LastApplied { digest: Some(Digest::of(b"x")), ..LastApplied::default() };
            let object = Desired { key: key(namespace), kind, object, mark, ignored: None };
            store.hold(&owner, Arc::new(object), last_applied);
        }
    }
    assert!(writer.store().is_unshown(&key("shop")));
    control.list.notify_one();
    let shown = async {
        while writer.store().is_unshown(&key("shop")) {
            tokio::time::sleep(GATHER).await;
        }
    };
    tokio::time::timeout(LIST_WITHIN, shown).await.expect("a list beside the watch shows the object");
    stop.cancel();
    task.await.expect("the watch ends");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_taken_over_during_a_large_list_is_listed_again_and_not_read() {
    let (writer, _follow_ups) = Writer::new(cluster(), Liveness::default().component("test"), |_| {});
    let (owner, object) = (Owner::git_sync("shop", "demo"), desired());
    let (drift, mut lists) = (Drift::new(writer.clone()), Lists::new(&object.kind));
    {
        let mut store = writer.store();
        store.set_policy(&owner, POLICY, History::default());
        let last_applied = LastApplied { digest: Some(Digest::of(b"x")), ..LastApplied::default() };
        store.hold(&owner, Arc::clone(&object), last_applied);
    }
    drift.end_large(&object.kind, &mut lists, &List::default());
    assert!(writer.store().is_unshown(&object.key));
    let next = tokio::time::timeout(LIST_WITHIN, lists.next()).await;
    assert!(matches!(next, Ok(Step::Due)));
    drift.see(&object.kind, Watched::ByUs, Delta::Complete(List::default()));
    assert!(!writer.store().is_unshown(&object.key), "a smaller list has shown all objects");
}

#[tokio::test(start_paused = true)]
async fn an_object_is_shown_by_a_list_if_the_agent_may_not_watch() {
    is_shown_while_the_watch_fails(cluster(), &["shop"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_is_shown_by_a_list_if_another_namespace_rejects_the_agent() {
    let cluster = cluster();
    cluster.limit_to(["b".to_owned(), "shop".to_owned()].into());
    is_shown_while_the_watch_fails(cluster, &["b", "shop"]).await;
}
