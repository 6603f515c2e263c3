//! Tests of the tasks: their sizes, and the list after a change of the share.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::Full;
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use mainstay_api::GitSync;
use mainstay_cluster::liveness::Liveness;
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

/// Work that records when all objects were known.
struct Recorded {
    writer: Writer,
    complete: Arc<Mutex<Vec<Instant>>>,
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
        _: Name,
        _: Input<GitSync>,
        _: (CancellationToken, CancellationToken),
    ) -> impl Future<Output = ()> + Send + 'static {
        std::future::ready(())
    }
}

/// Returns a cluster whose first list is complete immediately. It does not respond to later requests.
fn cluster() -> Cluster {
    let bookmark = json!({
        "type": "BOOKMARK",
        "object": {"metadata": {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}},
    });
    let requests = Arc::new(AtomicU64::new(0));
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        let (is_first, line) = (requests.fetch_add(1, Ordering::Relaxed) == 0, format!("{bookmark}\n"));
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
    let (notifier, _events) = Notifier::new(Emitter::default(), &cluster, "one");
    let (writer, _follow_ups) = Writer::new(cluster.clone(), Liveness::default().component("a test"), |_| {});
    let complete = Arc::<Mutex<Vec<Instant>>>::default();
    let work = Recorded { writer, complete: Arc::clone(&complete) };
    let mut tasks = Tasks::new(work, notifier, JoinSet::new(), CancellationToken::new());
    let due = Instant::now() + GATHER;
    // The list of the present watch would complete before.
    tasks.relist = Some(due);
    let running = tokio::time::timeout(Duration::from_secs(1), tasks.run(&cluster)).await;
    assert!(running.is_err());
    let complete = complete.lock();
    assert!(matches!(complete[..], [at] if at >= due), "{complete:?}, due at {due:?}");
}
