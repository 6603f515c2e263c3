//! The cluster client against the embedded server: in process, and over a socket where that matters.

use mainstay_testkit::PATIENCE;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use devcluster::fault_injection::Fault;
use devcluster::{Cluster as EmbeddedCluster, Options};
use futures::StreamExt;
use futures::stream::BoxStream;
use mainstay_api::events::Reason;
use mainstay_cluster::{
    Apply, Cluster, Denial, Elector, Event, EventRecorder, EventType, Guard, Kind, Origin, Part, Persistence, Priority,
    Propagation, Regarding, Removal, Scope, Selection, Timing, Verb, WatchEvent,
};
use mainstay_object::failure::Class;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

mod lease;
mod watches;

fn server() -> (EmbeddedCluster, Cluster) {
    let server = EmbeddedCluster::new(Options::default());
    let client = kube::Client::new(server.client_service(), "default");
    (server, Cluster::from_clients(client.clone(), client))
}

/// Connects to a cluster over a socket.
fn connect(address: SocketAddr) -> Cluster {
    // The TLS stack is initialised even without a server name.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = format!("http://{address}").parse().expect("a URL");
    Cluster::connect(kube::Config::new(url)).expect("a client")
}

fn config_maps() -> Arc<Kind> {
    Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced))
}

fn config_map(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": "web" } },
        "data": { "key": value },
    })
}

async fn apply(cluster: &Cluster, name: &str, value: &str) -> Value {
    let body = config_map(name, value);
    let applied = cluster.apply(&config_maps(), Some("default"), name, &body, Apply::forced("mainstay")).await;
    applied.expect("applied")
}

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().expect("a version")
}

#[tokio::test]
async fn an_identical_apply_changes_nothing() {
    let (_server, cluster) = server();
    let first = apply(&cluster, "a", "1").await;
    let again = apply(&cluster, "a", "1").await;
    assert_eq!(version(&first), version(&again));
    assert_ne!(version(&apply(&cluster, "a", "2").await), version(&first));
    let found = cluster.get(&config_maps(), Some("default"), "a").await.expect("an answer").expect("there");
    assert_eq!(found["data"]["key"], "2");
    let metadata = cluster.get_metadata(&config_maps(), Some("default"), "a").await.expect("an answer").expect("there");
    assert_eq!(metadata.resource_version.as_deref(), Some(version(&found)));
}

#[tokio::test]
async fn refusals_have_the_class_that_says_what_to_do() {
    let (_server, cluster) = server();
    let kind = config_maps();
    let forced = Apply::forced("mainstay");

    let mut unknown = config_map("a", "1");
    unknown["bogus"] = json!(1);
    let error = cluster.apply(&kind, Some("default"), "a", &unknown, forced).await.expect_err("an unknown field");
    assert_eq!((error.code(), error.class()), (Some(500), Class::Invalid), "{error:?}");

    let bare = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
    let error = cluster.apply(&kind, Some("nowhere"), "a", &bare, forced).await.expect_err("no such namespace");
    assert!(error.is_namespace_missing(), "{error:?}");
    assert_eq!(error.class(), Class::NotReady);

    apply(&cluster, "a", "1").await;
    let theirs = Apply::unforced("somebody");
    let error =
        cluster.apply(&kind, Some("default"), "a", &config_map("a", "2"), theirs).await.expect_err("a conflict");
    assert!(error.is_conflict());
    let conflicts = &error.refusal().expect("an answer").conflicts;
    assert_eq!((conflicts[0].field.as_str(), conflicts[0].manager.as_str()), (".data.key", "mainstay"));

    let error = cluster.create(&kind, Some("default"), "a", &config_map("a", "2"), Persistence::DryRun).await;
    assert!(error.expect_err("it exists").is_already_exists());

    let gizmos = Kind::fixed("x.io/v1", "Gizmo", "gizmos", Scope::Namespaced);
    let body = json!({ "apiVersion": "x.io/v1", "kind": "Gizmo", "metadata": { "name": "w" } });
    let error = cluster.apply(&gizmos, Some("default"), "w", &body, forced).await.expect_err("not served");
    assert!(error.is_not_found() && !error.is_namespace_missing(), "{error:?}");
    assert_eq!(error.class(), Class::NotReady);
}

#[tokio::test]
async fn a_terminating_namespace_is_not_a_lack_of_permission() {
    let (_server, cluster) = server();
    let namespaces = Kind::fixed("v1", "Namespace", "namespaces", Scope::Cluster);
    let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "x" } });
    cluster.apply(&namespaces, None, "x", &body, Apply::forced("mainstay")).await.expect("applied");
    let held =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "held", "finalizers": ["x.io/y"] } });
    cluster.apply(&config_maps(), Some("x"), "held", &held, Apply::forced("mainstay")).await.expect("applied");
    let removal = cluster.delete(&namespaces, None, "x", Guard::default(), Propagation::Background).await;
    let Removal::Terminating(terminating) = removal.expect("deleted") else { panic!("it is gone") };
    assert!(terminating.finalizers.is_empty(), "a Namespace waits for what is in it: {terminating:?}");
    let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "new" } });
    let error = cluster.apply(&config_maps(), Some("x"), "new", &body, Apply::forced("mainstay")).await;
    let error = error.expect_err("the namespace is going");
    assert!(error.is_namespace_terminating(), "{error:?}");
    assert_eq!(error.refusal().expect("an answer").denial, Some(Denial::NamespaceTerminating));
    assert_eq!(error.class(), Class::NotReady);
}

#[tokio::test]
async fn deletes_only_the_object_that_was_read() {
    let (_server, cluster) = server();
    let kind = config_maps();
    let seen = apply(&cluster, "a", "1").await;
    let uid = seen["metadata"]["uid"].as_str();
    apply(&cluster, "a", "2").await;
    for guard in
        [Guard { uid: Some("another"), resource_version: None }, Guard { uid, resource_version: Some(version(&seen)) }]
    {
        let error = cluster.delete(&kind, Some("default"), "a", guard, Propagation::Background).await;
        assert_eq!(error.expect_err("another object").class(), Class::Conflict, "{guard:?}");
    }
    let guard = Guard { uid, resource_version: None };
    let removal = cluster.delete(&kind, Some("default"), "a", guard, Propagation::Background).await;
    assert_eq!(removal.expect("deleted"), Removal::Gone);
    let removal = cluster.delete(&kind, Some("default"), "a", guard, Propagation::Background).await;
    assert_eq!(removal.expect("gone already"), Removal::Absent);
}

#[tokio::test]
async fn ownership_is_rewritten_only_without_a_concurrent_write() {
    let (_server, cluster) = server();
    let kind = config_maps();
    let seen = apply(&cluster, "a", "1").await;
    let now = apply(&cluster, "a", "2").await;
    let mut entries = now["metadata"]["managedFields"].clone();
    entries[0]["manager"] = json!("somebody");
    let stale = cluster.rewrite_managed_fields(&kind, Some("default"), "a", version(&seen), &entries).await;
    assert_eq!(stale.expect_err("it moved").class(), Class::Conflict);
    let written = cluster.rewrite_managed_fields(&kind, Some("default"), "a", version(&now), &entries).await;
    assert_eq!(written.expect("written")["metadata"]["managedFields"][0]["manager"], "somebody");
}

#[tokio::test]
async fn lists_more_than_a_page() {
    let (_server, cluster) = server();
    for n in 0..120 {
        apply(&cluster, &format!("c{n:03}"), "1").await;
    }
    let kind = config_maps();
    let listed = cluster.list(&kind, Selection::labelled("app", "web")).map(|object| object.expect("an object"));
    let listed: Vec<Value> = listed.collect().await;
    assert_eq!(listed.len(), 120);
    assert!(listed.iter().all(|object| object["kind"] == "ConfigMap" && object["apiVersion"] == "v1"));
    assert_eq!(cluster.requests().total(|verb, _| verb == Verb::List), 3);
    let metadata = cluster.list_metadata(&kind, Selection::default().within("default"));
    let names: Vec<_> = metadata.map(|metadata| metadata.expect("metadata").name).collect().await;
    assert!(names.contains(&Some("c119".to_owned())));
}

#[tokio::test]
async fn a_new_definition_is_discovered() {
    let (_server, cluster) = server();
    assert_eq!(cluster.kind("x.io/v1", "Gizmo").await.expect("an answer"), None);
    let deployments = cluster.kind("apps/v1", "Deployment").await.expect("an answer").expect("served");
    assert!(deployments.namespaced && deployments.has_status && deployments.listable && deployments.watchable);
    let definitions =
        cluster.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").await.expect("an answer").expect("served");
    assert!(!definitions.namespaced);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "gizmos.x.io" },
        "spec": {
            "group": "x.io",
            "scope": "Cluster",
            "names": { "plural": "gizmos", "kind": "Gizmo", "shortNames": ["gz"] },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    });
    let applied = cluster.apply(&definitions, None, "gizmos.x.io", &definition, Apply::forced("mainstay")).await;
    applied.expect("applied");
    let found = async {
        loop {
            cluster.kinds_changed();
            if let Some(kind) = cluster.kind("x.io/v1", "Gizmo").await.expect("an answer") {
                return kind;
            }
        }
    };
    let gizmos = tokio::time::timeout(PATIENCE, found).await.expect("served");
    assert!(!gizmos.namespaced && gizmos.has_status && gizmos.preferred);
    assert_eq!(cluster.kind_called("gz").await.expect("an answer"), Some(gizmos));
}

#[tokio::test]
async fn events_of_one_series_are_one_object_with_the_newest_note() {
    let (_server, cluster) = server();
    let applied = apply(&cluster, "a", "1").await;
    let (recorder, writer) = EventRecorder::new(cluster.clone(), "mainstay.dev/agent", "pod-1");
    let writing = tokio::spawn(writer.run(CancellationToken::new()));
    let event = |note: &str| Event {
        regarding: Regarding {
            key: config_maps().key(Some("default"), "a"),
            api_version: "v1".to_owned(),
            uid: applied["metadata"]["uid"].as_str().map(str::to_owned),
        },
        related: None,
        kind: EventType::Normal,
        priority: Priority::Routine,
        about: None,
        reason: Reason::Reverted.into(),
        action: "Apply".to_owned(),
        note: note.to_owned(),
        aggregation_key: "data.key".to_owned(),
    };
    let events = Arc::new(Kind::fixed("events.k8s.io/v1", "Event", "events", Scope::Namespaced));
    for (note, count) in [("first", None), ("first", Some(2)), ("second", Some(3))] {
        recorder.publish(event(note));
        let written = async {
            loop {
                let all: Vec<_> = cluster.list(&events, Selection::default().within("default")).collect().await;
                let ours: Vec<Value> = all.into_iter().map(|event| event.expect("an event")).collect();
                if let [one] = ours.as_slice()
                    && one["note"] == note
                    && one["series"]["count"].as_u64() == count
                {
                    return one.clone();
                }
                assert!(ours.len() <= 1, "{ours:?}");
                tokio::task::yield_now().await;
            }
        };
        let written = tokio::time::timeout(PATIENCE, written).await.expect(note);
        assert_eq!((&written["regarding"]["name"], &written["type"]), (&json!("a"), &json!("Normal")));
        assert_eq!(written["reportingController"], "mainstay.dev/agent");
        // The fields that kubectl sorts and describes by.
        let core = Arc::new(Kind::fixed("v1", "Event", "events", Scope::Namespaced));
        let name = written["metadata"]["name"].as_str().expect("a name");
        let core = cluster.get(&core, Some("default"), name).await.expect("it is there").expect("it is there");
        let times = ["firstTimestamp", "lastTimestamp"].map(|field| core[field].as_str().map(str::len));
        assert_eq!(
            (times, core["count"].as_u64()),
            ([Some("2026-01-01T00:00:00Z".len()); 2], count.or(Some(1))),
            "{core}"
        );
    }
    drop(recorder);
    writing.await.expect("the writer ends");
}
