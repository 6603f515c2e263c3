//! Tests of the watches of managed objects.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use serde_json::json;

use super::*;
use crate::apply::{FollowUp, FollowUps};
use crate::managed::fixtures::{POLICY, desired, live};
use crate::managed::verdict::LastApplied;
use crate::managed::{Desired, History, Mark, Policy, Reserved};
use mainstay_api::DriftPolicy;
use mainstay_cluster::liveness::Liveness;
use mainstay_cluster::{Attempt, Cluster, Scope, Target};
use mainstay_object::{Digest, Owner};

/// Longer than each backoff of a watch and of a list.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_watch_that_fails_is_not_listing_again_because_one_of_its_parts_shows_objects() {
    let kind = Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced);
    let listed = || Delta::Listed(kind.key(Some("a"), "x"), Value::Null);
    let failed = || {
        let (subject, cause) = (Box::new(Target::Cluster), Box::new(Cause::TimedOut(LONG)));
        Delta::Failed(Error { attempt: Attempt::List, subject, cause })
    };
    let after = |first: Progress, events: [Delta<Key>; 3]| events.iter().fold(first, Progress::after);
    assert_eq!(after(Progress::Listing, [listed(), failed(), listed()]), Progress::Failing);
    assert_eq!(after(Progress::Listing, [listed(), listed(), listed()]), Progress::Listing);
    let complete = || Delta::Complete(std::iter::empty().collect());
    assert_eq!(after(Progress::Listing, [failed(), listed(), complete()]), Progress::Watching);
    assert_eq!(after(Progress::Watching, [failed(), Delta::Resumed, failed()]), Progress::Failing);
}

/// Returns a cluster whose server answers requests for ConfigMaps by their address.
fn serving(answer: impl Fn(&str) -> (u16, Value) + Send + 'static) -> Cluster {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let address = request.uri().to_string();
        let (code, body) = if address.contains("/configmaps") {
            answer(&address)
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

fn rejected(code: u16) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "code": code}))
}

/// Returns a list at a version that has the ConfigMap `a` of the namespace `shop` at these versions.
fn config_maps(version: u64, items: &[u64]) -> (u16, Value) {
    let item = |version: &u64| {
        let mut item = live(*version, "1");
        item["metadata"]["namespace"] = "shop".into();
        item
    };
    let metadata = json!({"resourceVersion": version.to_string()});
    let items: Vec<_> = items.iter().map(item).collect();
    (200, json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items}))
}

/// Returns a cluster whose lists contain the ConfigMap `a` of the namespace `shop`. It rejects all watches, and the lists
/// of the namespace `b`.
fn cluster() -> Cluster {
    serving(|address| {
        let is_rejected = address.contains("watch=true") || address.contains("/namespaces/b/");
        if is_rejected { rejected(403) } else { config_maps(7, &[6]) }
    })
}

fn owner() -> Owner {
    Owner::git_sync("shop", "demo")
}

fn key(namespace: &str) -> Key {
    desired().kind.key(Some(namespace), "a")
}

/// Manages the ConfigMap `a` of a namespace, last applied at this version.
fn manage(writer: &Writer, namespace: &str, version: &str) {
    manage_as(writer, namespace, version, Mark::Label("shop.demo".into()));
}

fn manage_as(writer: &Writer, namespace: &str, version: &str, mark: Mark) {
    let (first, mut store) = (desired(), writer.store());
    store.set_policy(&owner(), POLICY, History::default());
    let (kind, object) = (Arc::clone(&first.kind), Arc::clone(&first.object));
    let digest = Some(Digest::of(b"x"));
    let last_applied = LastApplied { resource_version: version.into(), digest, ..LastApplied::default() };
    let object = Desired { key: key(namespace), kind, object, mark, ignored: None };
    store.hold(&owner(), Arc::new(object), last_applied);
}

/// A watch of ConfigMaps whose first list is over.
struct Followed {
    writer: Writer,
    follow_ups: FollowUps,
    control: Arc<Control>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Followed {
    async fn new(cluster: Cluster) -> Self {
        let (writer, follow_ups) = Writer::new(cluster, Liveness::default().component("test"), |_| {});
        let (control, stop) = (Arc::<Control>::default(), CancellationToken::new());
        let kind = Arc::clone(&desired().kind);
        let follow = Drift::new(writer.clone()).follow(kind, Arc::clone(&control), stop.clone());
        let task = tokio::spawn(follow);
        // The clock is paused: the watch has listed the objects before they are managed.
        tokio::time::sleep(LONG).await;
        Self { writer, follow_ups, control, stop, task }
    }

    /// Waits until a condition of the object in the namespace `shop` holds.
    async fn until(&self, what: &str, is_so: impl Fn(&Managed) -> bool) {
        let wait = async {
            while !self.writer.store().get(&key("shop")).is_some_and(&is_so) {
                tokio::time::sleep(GATHER).await;
            }
        };
        tokio::time::timeout(LONG, wait).await.expect(what);
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.expect("the watch ends");
    }
}

/// Follows ConfigMaps in a cluster, accepts `a` of these namespaces while the watch fails, and waits until that of `shop`
/// is shown.
async fn is_shown_while_the_watch_fails(cluster: Cluster, namespaces: &[&str]) {
    let followed = Followed::new(cluster).await;
    for namespace in namespaces {
        manage(&followed.writer, namespace, "");
    }
    assert!(followed.writer.store().is_unshown(&key("shop")));
    followed.control.list.notify_one();
    followed.until("a list beside the watch shows the object", |managed| managed.is_shown).await;
    followed.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_taken_over_during_a_large_list_is_listed_again_and_not_read() {
    let (writer, _follow_ups) = Writer::new(cluster(), Liveness::default().component("test"), |_| {});
    let kind = Arc::clone(&desired().kind);
    let (drift, mut lists) = (Drift::new(writer.clone()), Lists::new(&kind));
    manage(&writer, "shop", "");
    drift.end_large(&kind, &mut lists, &List::default());
    assert!(writer.store().is_unshown(&key("shop")));
    let next = tokio::time::timeout(LONG, lists.next()).await;
    assert!(matches!(next, Ok(Step::Due)));
    drift.see(&kind, Watched::ByUs, Delta::Complete(List::default()));
    assert!(!writer.store().is_unshown(&key("shop")), "a smaller list has shown all objects");
}

#[tokio::test(start_paused = true)]
async fn a_large_list_of_a_restored_server_makes_the_watch_forget_versions() {
    let (writer, _follow_ups) = Writer::new(cluster(), Liveness::default().component("test"), |_| {});
    let kind = Arc::clone(&desired().kind);
    let (drift, mut lists) = (Drift::new(writer.clone()), Lists::new(&kind));
    manage(&writer, "shop", "899");
    let version = || {
        let store = writer.store();
        store.get(&key("shop")).and_then(|managed| managed.applied.last()).unwrap().resource_version.to_string()
    };
    let mut shown = Shown::<Key>::default();
    for (list, expected) in [("900", "899"), ("100", "")] {
        assert!(shown.take(WatchEvent::Begin, |_| None).is_none());
        let complete = shown.take(WatchEvent::Synced(list.to_owned()), |_| None);
        let Some(Delta::Complete(complete)) = complete else { panic!("no complete list at version {list}") };
        drift.end_large(&kind, &mut lists, &complete);
        assert_eq!(version(), expected, "after the list at version {list}");
    }
    assert!(writer.store().is_unshown(&key("shop")), "it is listed once more");
    let next = tokio::time::timeout(LONG, lists.next()).await;
    assert!(matches!(next, Ok(Step::Due)));
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

#[tokio::test(start_paused = true)]
async fn objects_of_a_changed_policy_are_listed_until_a_list_succeeds() {
    let (is_broken, lists) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (broken, listed) = (Arc::clone(&is_broken), Arc::clone(&lists));
    let mut followed = Followed::new(serving(move |address| {
        if address.contains("watch=true") {
            return rejected(403);
        }
        listed.fetch_add(1, Ordering::Relaxed);
        if broken.load(Ordering::Relaxed) { rejected(500) } else { config_maps(7, &[6]) }
    }))
    .await;
    manage(&followed.writer, "shop", "");
    followed.control.list.notify_one();
    followed.until("the object is shown", |managed| managed.is_shown).await;
    let before = lists.load(Ordering::Relaxed);
    is_broken.store(true, Ordering::Relaxed);
    let policy = Policy { drift: DriftPolicy::Report, ..POLICY };
    assert!(followed.writer.set_policy(&owner(), policy, History::default()));
    let mut follow_ups = std::iter::from_fn(|| followed.follow_ups.next().now_or_never());
    let id = desired().kind.id();
    assert!(follow_ups.any(|follow_up| matches!(follow_up, FollowUp::List(kind) if kind == id)));
    followed.control.list.notify_one();
    tokio::time::sleep(5 * LONG).await;
    let failed = lists.load(Ordering::Relaxed) - before;
    assert!((5..50).contains(&failed), "it is repeated with a backoff: {failed} lists");
    assert!(followed.writer.store().is_unshown(&key("shop")), "no list has succeeded");
    is_broken.store(false, Ordering::Relaxed);
    followed.until("a list shows the object again", |managed| managed.is_shown).await;
    tokio::time::sleep(LONG).await;
    let after = lists.load(Ordering::Relaxed);
    tokio::time::sleep(5 * LONG).await;
    assert_eq!(lists.load(Ordering::Relaxed), after, "it is not repeated after a success");
    followed.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_gone_is_shown_after_the_server_was_restored() {
    let is_restored = Arc::new(AtomicBool::new(false));
    let restored = Arc::clone(&is_restored);
    let followed = Followed::new(serving(move |address| {
        let is_restored = restored.load(Ordering::Relaxed);
        if address.contains("watch=true") {
            let is_expired = is_restored && address.contains("resourceVersion=900");
            return rejected(if is_expired { 410 } else { 403 });
        }
        if is_restored { config_maps(100, &[90]) } else { config_maps(900, &[]) }
    }))
    .await;
    manage(&followed.writer, "shop", "899");
    let kind = Arc::clone(&desired().kind);
    followed.writer.store().miss(&kind, &key("shop"), Some("900"), Instant::now());
    followed.until("it is gone", |managed| managed.gone_at == Some(900) && managed.is_shown).await;
    is_restored.store(true, Ordering::Relaxed);
    followed.until("it is seen at version 90", |managed| managed.gone_at.is_none() && managed.is_shown).await;
    followed.end().await;
}

/// Whether the object in the namespace `shop` waits to be read, whatever its last event was.
fn is_read(writer: &Writer) -> bool {
    let store = writer.store();
    let pending = store.get(&key("shop")).and_then(|managed| managed.write.pending());
    pending.is_some_and(|seen| seen.live.is_none() && seen.gone_at.is_none())
}

#[tokio::test(start_paused = true)]
async fn an_object_that_a_list_of_one_label_value_lacks_is_read_and_not_gone() {
    let cluster = serving(|address| if address.contains("watch=true") { rejected(403) } else { config_maps(900, &[]) });
    let (writer, _follow_ups) = Writer::new(cluster, Liveness::default().component("test"), |_| {});
    let (kind, drift) = (Arc::clone(&desired().kind), Drift::new(writer.clone()));
    let (mut lists, mut shown) = (Lists::new(&kind), Shown::default());
    manage(&writer, "shop", "5");
    drift.take_step(&kind, &mut lists, &mut shown, Step::Due);
    let step = tokio::time::timeout(LONG, lists.next()).await.expect("the list ends");
    assert!(matches!(step, Step::Missing { is_filtered: true, .. }));
    drift.take_step(&kind, &mut lists, &mut shown, step);
    assert!(is_read(&writer), "its label may have another value");
    assert_eq!(writer.store().get(&key("shop")).map(|managed| managed.gone_at), Some(None));
    assert!(writer.store().is_unshown(&key("shop")));
    drift.take_step(&kind, &mut lists, &mut shown, Step::Listed(key("shop"), live(6, "2")));
    assert!(!writer.store().is_unshown(&key("shop")), "a list by the key only shows it at a lower version");
}

#[tokio::test]
async fn an_awaited_object_whose_listed_state_is_ignored_is_read() {
    let (writer, _follow_ups) = Writer::new(cluster(), Liveness::default().component("test"), |_| {});
    let (kind, drift) = (Arc::clone(&desired().kind), Drift::new(writer.clone()));
    manage(&writer, "shop", "5");
    writer.store().miss(&kind, &key("shop"), Some("900"), Instant::now());
    writer.store().show_again(&owner(), |_| true);
    assert!(!is_read(&writer) && writer.store().is_unshown(&key("shop")));
    let step = Step::Listed(key("shop"), live(90, "1"));
    drift.take_step(&kind, &mut Lists::new(&kind), &mut Shown::default(), step);
    assert!(is_read(&writer));
}

#[tokio::test]
async fn a_list_of_the_watch_that_is_older_than_one_beside_it_shows_a_restored_server() {
    let (writer, _follow_ups) = Writer::new(cluster(), Liveness::default().component("test"), |_| {});
    let (kind, drift) = (Arc::clone(&desired().kind), Drift::new(writer));
    let (mut lists, mut shown) = (Lists::new(&kind), Shown::default());
    let went_back = |shown: &mut Shown<Key>, version: &str| {
        shown.take(WatchEvent::Begin, |_| None);
        let complete = shown.take(WatchEvent::Synced(version.to_owned()), |_| None);
        matches!(complete, Some(Delta::Complete(list)) if list.went_back())
    };
    assert!(!went_back(&mut shown, "100"));
    let complete = Step::Missing { keys: HashSet::new(), version: "900".to_owned(), is_filtered: false };
    drift.take_step(&kind, &mut lists, &mut shown, complete);
    assert!(went_back(&mut shown, "500"));
    drift.take_step(&kind, &mut lists, &mut shown, Step::Listed(key("other"), live(900, "1")));
    assert!(went_back(&mut shown, "600"));
    assert!(!went_back(&mut shown, "600"));
}

#[tokio::test]
async fn the_objects_of_an_owners_watch_are_read_after_the_server_was_restored() {
    let (writer, _follow_ups) = Writer::new(cluster(), Liveness::default().component("test"), |_| {});
    let (kind, drift, mut shown) = (Arc::clone(&desired().kind), Drift::new(writer.clone()), Shown::default());
    let mark = Mark::Controller { uid: "f1".into(), watched_by: "x", reserved: Reserved::NOTHING };
    manage_as(&writer, "shop", "900", mark);
    let mut list = |version: u64| {
        let (object, version) = (live(version, "1"), version.to_string());
        for event in [WatchEvent::Begin, WatchEvent::Initial(object), WatchEvent::Synced(version)] {
            if let Some(seen) = shown.take(event, |_| Some(key("shop"))) {
                drift.see_child(&kind, seen);
            }
        }
    };
    list(900);
    assert!(!is_read(&writer));
    list(100);
    assert!(is_read(&writer));
}
