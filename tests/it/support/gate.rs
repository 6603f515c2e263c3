//! Stands between an agent and its cluster: after so many writes nothing gets through any more, as if the agent had been
//! killed right then.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use bytes::Bytes;
use devcluster::service::ClientService;
use futures::future::BoxFuture;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::sync::watch;
use tower::Service;

/// How many writes still get through; `None`: all.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    left: Arc<Mutex<Option<u64>>>,
    shut: Arc<watch::Sender<bool>>,
    /// What went through, if that is recorded.
    heard: Arc<Mutex<Option<Vec<Heard>>>>,
}

/// A request that went through, and as much of its answer as has come.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    /// `GET /api/v1/pods?watch=true`.
    pub(crate) asked: String,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl Heard {
    /// The body of the answer.
    pub(crate) fn answer(&self) -> String {
        String::from_utf8_lossy(&self.answer.lock().unwrap()).into_owned()
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self { left: Arc::default(), shut: Arc::new(watch::Sender::new(false)), heard: Arc::default() }
    }
}

impl Gate {
    /// Lets so many writes be carried out; the answer to the last of them is lost.
    pub(crate) fn shut_after(&self, writes: u64) {
        *self.left.lock().unwrap() = Some(writes);
        self.shut.send_replace(false);
    }

    /// Lets everything through again.
    pub(crate) fn open(&self) {
        *self.left.lock().unwrap() = None;
        self.shut.send_replace(false);
    }

    /// Waits until it is shut.
    pub(crate) async fn shut(&self) {
        self.shut.subscribe().wait_for(|shut| *shut).await.unwrap();
    }

    /// Records from now on what is asked and answered.
    pub(crate) fn record(&self) {
        *self.heard.lock().unwrap() = Some(Vec::new());
    }

    /// What was recorded.
    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone().unwrap_or_default()
    }

    /// Where the answer to a request is to be recorded.
    fn hear(&self, request: &Request<Body>) -> Option<Arc<Mutex<Vec<u8>>>> {
        let mut heard = self.heard.lock().unwrap();
        let asked = format!("{} {}", request.method(), request.uri().path_and_query()?);
        let one = Heard { asked, answer: Arc::default() };
        let answer = Arc::clone(&one.answer);
        heard.as_mut()?.push(one);
        Some(answer)
    }

    /// Whether a request gets an answer; counts the writes. `None`: it is not even carried out.
    fn pass(&self, writes: bool) -> Option<bool> {
        let mut left = self.left.lock().unwrap();
        match left.as_mut() {
            Some(0) => None,
            Some(left) if writes => {
                *left -= 1;
                Some(*left > 0)
            }
            _ => Some(true),
        }
    }
}

/// A client's way to the cluster through a gate.
#[derive(Clone, Debug)]
pub(crate) struct Gated {
    cluster: ClientService,
    gate: Gate,
}

impl Gated {
    /// Over a cluster.
    pub(crate) fn new(cluster: ClientService, gate: &Gate) -> Self {
        Self { cluster, gate: gate.clone() }
    }
}

impl Service<Request<Body>> for Gated {
    type Response = http::Response<devcluster::service::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let writes = request.method() != Method::GET;
        let (mut cluster, gate) = (self.cluster.clone(), self.gate.clone());
        Box::pin(async move {
            let answered = gate.pass(writes);
            if answered.is_none() {
                return std::future::pending().await;
            }
            let heard = gate.hear(&request);
            let answer = cluster.call(request).await;
            if answered == Some(false) {
                gate.shut.send_replace(true);
                return std::future::pending().await;
            }
            let Some(heard) = heard else { return answer };
            answer.map(|answer| {
                answer.map(|body| {
                    let note = move |frame: http_body::Frame<Bytes>| {
                        heard.lock().unwrap().extend(frame.data_ref().into_iter().flatten());
                        frame
                    };
                    body.map_frame(note).boxed_unsync()
                })
            })
        })
    }
}

/// Scenarios that run at the same time.
const TOGETHER: u64 = 8;

/// Runs a scenario that is cut off after the first write, the second, and so on until it ends before it is cut off.
pub(crate) async fn after_every_write<F: Future<Output = bool>>(scenario: impl Fn(u64) -> F, at_least: u64) {
    let mut writes = 1;
    while futures::future::join_all((writes..writes + TOGETHER).map(&scenario)).await.contains(&true) {
        writes += TOGETHER;
    }
    assert!(writes + TOGETHER > at_least, "the scenario made fewer than {at_least} writes");
}
