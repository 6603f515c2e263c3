//! Tests of the tasks: their sizes, the list after a change of the share, and objects that are read again.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use mainstay_api::GitSync;
use mainstay_cluster::EventWriter;
use mainstay_cluster::liveness::Liveness;
use mainstay_engine::apply::FollowUps;
use mainstay_engine::notification::Emitter;
use mainstay_gitsync::receiver;

/// Returns the size of a waiting task, in bytes.
fn waiting<A, B, C, D, E, F: Future<Output = ()>>(_: impl Fn(A, B, C, D, E) -> F) -> usize {
    size_of_result(after::<F>)
}

fn size_of_result<A, B, R>(_: impl Fn(A, B) -> R) -> usize {
    size_of::<R>()
}

#[test]
fn a_thousand_objects_that_wait_cost_a_few_mib() {
    let sizes = [
        waiting(mainstay_gitsync::run),
        waiting(mainstay_function::run),
        waiting(receiver::run),
        waiting(mainstay_exposure::run),
    ];
    // Each task is counted as 8 KiB, so it must be smaller.
    assert!(sizes.iter().all(|size| *size <= 6 * 1024 + 768), "{sizes:?} bytes");
}

/// Work that records when all objects were known, and whose tasks began.
struct Recorded {
    writer: Writer,
    complete: Arc<Mutex<Vec<Instant>>>,
    begun: Arc<Mutex<Vec<Name>>>,
}

impl Work for Recorded {
    type Object = GitSync;

    fn kind(&self) -> Kind {
        Kind::of::<GitSync>()
    }

    fn owner(&self, (namespace, name): &Name) -> Owner {
        Owner::git_sync(namespace, name)
    }

    fn writer(&self) -> &Writer {
        &self.writer
    }

    fn complete(&self) {
        self.complete.lock().push(Instant::now());
    }

    fn run(
        &self,
        name: Name,
        _: Input<GitSync>,
        _: (CancellationToken, CancellationToken),
    ) -> impl Future<Output = ()> + Send + 'static {
        self.begun.lock().push(name);
        std::future::ready(())
    }
}

/// Returns tasks, and the other ends of their queues.
fn recorded(cluster: &Cluster) -> (Tasks<Recorded>, (EventWriter, FollowUps)) {
    let (notifier, events) = Notifier::new(Emitter::default(), cluster, "one");
    let (writer, follow_ups) = Writer::new(cluster.clone(), Liveness::default().component("a test"), |_| {});
    let work = Recorded { writer, complete: Arc::default(), begun: Arc::default() };
    (Tasks::new(work, notifier, JoinSet::new(), CancellationToken::new()), (events, follow_ups))
}

/// Returns the line that ends a list without objects.
fn end_of_list() -> String {
    let bookmark = json!({
        "type": "BOOKMARK",
        "object": {"metadata": {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}},
    });
    format!("{bookmark}\n")
}

/// Returns a cluster whose first list is complete immediately. It does not respond to later requests.
fn cluster() -> Cluster {
    let requests = Arc::new(AtomicU64::new(0));
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        let (is_first, line) = (requests.fetch_add(1, Ordering::Relaxed) == 0, end_of_list());
        async move {
            if !is_first {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from(line))))
        }
    });
    let client = kube::Client::new(service, "default");
    Cluster::from_clients(client.clone(), client)
}

#[tokio::test(start_paused = true)]
async fn objects_are_complete_with_the_list_after_a_change_of_the_share_only() {
    let cluster = cluster();
    let (mut tasks, _queues) = recorded(&cluster);
    let complete = Arc::clone(&tasks.work.complete);
    let due = Instant::now() + GATHER;
    // The list of the present watch would complete before.
    tasks.relist = Some(due);
    let running = tokio::time::timeout(Duration::from_secs(1), tasks.run(&cluster)).await;
    assert!(running.is_err());
    let complete = complete.lock();
    assert!(matches!(complete[..], [at] if at >= due), "{complete:?}, due at {due:?}");
}

const SECOND: Duration = Duration::from_secs(1);
/// The time of a read of an object.
const READ: Duration = Duration::from_secs(5);

/// A cluster with slow reads. Its list has no objects.
struct Slow {
    /// The time of the list.
    list: Duration,
    /// The status codes of responses to reads and patches.
    read: u16,
    patch: u16,
}

/// The requests to a cluster.
#[derive(Clone, Default)]
struct Requests {
    reads: Arc<Mutex<Vec<Instant>>>,
    patches: Arc<Mutex<Vec<Value>>>,
}

impl Slow {
    fn cluster(self) -> (Cluster, Requests) {
        let (server, requests) = (Arc::new(self), Requests::default());
        let noted = requests.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (server, noted) = (Arc::clone(&server), noted.clone());
            async move {
                let (code, text) = server.respond(&noted, request).await;
                let response = http::Response::builder().status(code).body(Full::new(Bytes::from(text)));
                Ok::<_, Infallible>(response.unwrap())
            }
        });
        let client = kube::Client::new(service, "default");
        (Cluster::from_clients(client.clone(), client), requests)
    }

    async fn respond(&self, noted: &Requests, request: http::Request<kube::client::Body>) -> (u16, String) {
        let query = request.uri().query().unwrap_or_default().to_owned();
        if query.contains("sendInitialEvents") {
            tokio::time::sleep(self.list).await;
            return (200, end_of_list());
        }
        if query.contains("watch=true") || query.contains("limit=") {
            return std::future::pending().await;
        }
        if request.method() == http::Method::PATCH {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            noted.patches.lock().push(serde_json::from_slice(&body).unwrap());
            return (self.patch, object_or_status(self.patch));
        }
        noted.reads.lock().push(Instant::now());
        tokio::time::sleep(READ).await;
        (self.read, object_or_status(self.read))
    }
}

fn object_or_status(code: u16) -> String {
    let object = json!({
        "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "spec": {"gitRepository": "a"},
        "metadata": {"namespace": "shop", "name": "demo", "uid": "1", "resourceVersion": "5"},
    });
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "no", "code": code});
    if code == 200 { object.to_string() } else { status.to_string() }
}

fn demo() -> Name {
    ("shop".to_owned(), "demo".to_owned())
}

/// Returns tasks with an object that lacks memory, which is read again immediately.
fn lacking(cluster: &Cluster) -> (Tasks<Recorded>, (EventWriter, FollowUps)) {
    let (mut tasks, queues) = recorded(cluster);
    tasks.rereads.insert(&demo(), Need { since: Timestamp::UNIX_EPOCH, bytes: 100, expected: 0 }, false);
    tasks.look = Some(Instant::now());
    (tasks, queues)
}

async fn run_for(time: Duration, tasks: Tasks<Recorded>, cluster: &Cluster) {
    assert!(tokio::time::timeout(time, tasks.run(cluster)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_watch_goes_on_while_an_object_is_read_again_and_an_older_response_is_dropped() {
    let (cluster, requests) = Slow { list: SECOND, read: 200, patch: 200 }.cluster();
    let (tasks, _queues) = lacking(&cluster);
    let (complete, begun) = (Arc::clone(&tasks.work.complete), Arc::clone(&tasks.work.begun));
    let start = Instant::now();
    run_for(READ * 3, tasks, &cluster).await;
    let complete = complete.lock();
    assert!(matches!(complete[..], [at] if at < start + READ), "{complete:?}, begun at {start:?}");
    assert_eq!(requests.reads.lock().len(), 1);
    assert!(begun.lock().is_empty(), "the list has shown that the object is deleted");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_read_again_gets_its_task() {
    let (cluster, requests) = Slow { list: READ * 10, read: 200, patch: 200 }.cluster();
    let (tasks, _queues) = lacking(&cluster);
    let begun = Arc::clone(&tasks.work.begun);
    run_for(READ * 3, tasks, &cluster).await;
    assert_eq!(*begun.lock(), [demo()]);
    assert!(requests.patches.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_request_during_a_read_begins_the_next_read_after_it() {
    let (cluster, requests) = Slow { list: READ * 10, read: 404, patch: 200 }.cluster();
    let (tasks, _queues) = lacking(&cluster);
    let room = Arc::clone(&tasks.room);
    let notify = async {
        tokio::time::sleep(SECOND).await;
        room.notify_one();
    };
    tokio::join!(run_for(READ * 3, tasks, &cluster), notify);
    let reads = requests.reads.lock();
    assert!(matches!(reads[..], [first, second] if (READ..READ + SECOND).contains(&(second - first))), "{reads:?}");
}

#[tokio::test(start_paused = true)]
async fn an_object_without_memory_is_reported_again_if_it_has_changed_since_the_read() {
    for (patch, expected) in [(200, 1), (409, 2)] {
        let (cluster, requests) = Slow { list: READ * 10, read: 200, patch }.cluster();
        let (tasks, _queues) = lacking(&cluster);
        tasks.work.writer.limit_memory(0);
        let begun = Arc::clone(&tasks.work.begun);
        run_for(READ * 2 + SECOND * 2, tasks, &cluster).await;
        let patches = requests.patches.lock();
        assert_eq!(patches.len(), expected, "{patches:?}");
        assert_eq!(patches[0]["metadata"], json!({"resourceVersion": "5"}));
        assert_eq!(patches[0]["status"]["conditions"][0]["reason"], "MemoryExhausted");
        assert!(begun.lock().is_empty());
    }
}
