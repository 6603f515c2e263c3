//! A server in place of the pods of a Service. It records the calls, and answers as a test wants.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use axum::Router;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use mainstay_testkit::world::free_address;

/// A server in place of the pods of a Service.
pub(crate) struct Sink {
    pub(super) address: SocketAddr,
    /// Whether the process receives the address of this server.
    pub(super) is_named: bool,
    pub(super) seen: Arc<Seen>,
    task: Option<JoinHandle<()>>,
}

#[derive(Default)]
pub(super) struct Seen {
    pub(super) calls: Mutex<Vec<Seized>>,
    /// The statuses of the next responses. Further responses have 200.
    pub(super) answers: Mutex<Vec<u16>>,
    /// The statuses of the responses to these events, by their id.
    pub(super) failing: Mutex<HashMap<String, u16>>,
    /// Whether each response contains an event.
    pub(super) replies: AtomicBool,
}

pub(super) struct Seized {
    pub(super) at: Instant,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
    /// The status of the answer.
    pub(super) code: u16,
}

impl Sink {
    pub(super) fn new() -> Self {
        Self { address: free_address(), is_named: true, seen: Arc::default(), task: None }
    }

    pub(crate) async fn start(&mut self) {
        let listener = tokio::net::TcpListener::bind(self.address).await.unwrap();
        let app = Router::new().fallback(seize).with_state(Arc::clone(&self.seen));
        self.task = Some(tokio::spawn(async move { axum::serve(listener, app).await.unwrap() }));
    }

    /// Ends immediately, even during a response.
    pub(super) async fn stop(&mut self) {
        let task = self.task.take().unwrap();
        task.abort();
        let _ = task.await;
    }

    pub(super) fn count(&self) -> usize {
        self.seen.calls.lock().len()
    }

    /// Returns a header of each call.
    pub(super) fn headers(&self, name: &str) -> Vec<String> {
        let calls = self.seen.calls.lock();
        let text = |call: &Seized| call.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        calls.iter().map(|call| text(call).unwrap_or_default()).collect()
    }

    pub(crate) fn bodies(&self) -> Vec<String> {
        self.seen.calls.lock().iter().map(|call| call.body.clone()).collect()
    }
}

async fn seize(State(seen): State<Arc<Seen>>, headers: HeaderMap, body: String) -> (StatusCode, HeaderMap) {
    let failing = headers.get("ce-id").and_then(|id| seen.failing.lock().get(id.to_str().ok()?).copied());
    let code = if let Some(code) = failing {
        code
    } else {
        let mut answers = seen.answers.lock();
        if answers.is_empty() { 200 } else { answers.remove(0) }
    };
    let number = {
        let mut calls = seen.calls.lock();
        calls.push(Seized { at: Instant::now(), headers, body, code });
        calls.len()
    };
    let mut reply = HeaderMap::new();
    if seen.replies.load(Ordering::Relaxed) {
        let id = format!("reply-{number}");
        for (name, value) in [
            ("ce-specversion", "1.0"),
            ("ce-id", &id),
            ("ce-source", "sink"),
            ("ce-type", "reply"),
            ("ce-knativebrokerttl", "255"),
        ] {
            reply.insert(name, value.parse().unwrap());
        }
    }
    (StatusCode::from_u16(code).unwrap(), reply)
}
