//! Receives deliveries over HTTP.
//!
//! Invariant: the answer to a path of nobody is the same whatever the path; nothing but the path is looked at before.
//! Invariant: a body is read only for a path that is known, to at most [`MAX_BODY`] bytes and [`BODY_WITHIN`]; all bodies
//! that are held have at most [`BODIES`] bytes, and those for one Receiver at most [`BODIES_OF_ONE`].
//! Invariant: a delivery leads to lookups of remotes and nothing else, so a repeated one is harmless.
//! Invariant: only the leader receives; another agent answers 503.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

#[cfg(doc)]
use super::context::BODIES_OF_ONE;
use super::context::{Context, Served};
use super::delivery::{Delivery, judge};
use super::outcome::Outcome;
use crate::api::ReceiverType;
use crate::listener::{self, Limits};

/// Maximum size of a body.
pub const MAX_BODY: usize = 3 << 20;
/// Until a body is there.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of bodies that are held at the same time.
const BODIES: usize = 16 << 20;

/// How much of a body is read that nobody needs, and for how long; and the same of one for a path of nobody.
const DRAINED: (usize, Duration) = (8 << 20, BODY_WITHIN);
const DRAINED_OF_NOBODY: (usize, Duration) = (256 << 10, Duration::from_millis(100));

/// Where deliveries come in, for as long as the process runs; whether they are acted on changes with the Lease.
#[derive(Debug)]
pub struct Deliveries {
    /// The Receivers of this term.
    leading: Mutex<Option<Arc<Context>>>,
    counts: Mutex<BTreeMap<(Option<ReceiverType>, &'static str), u64>>,
    bodies: Semaphore,
}

/// How often something came of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// `spec.type` of the Receiver; `unknown` if there is none.
    pub kind: &'static str,
    /// What came of it.
    pub outcome: &'static str,
    /// How often.
    pub count: u64,
}

impl Default for Deliveries {
    fn default() -> Self {
        Self { leading: Mutex::default(), counts: Mutex::default(), bodies: Semaphore::new(BODIES) }
    }
}

impl Deliveries {
    /// From now on deliveries are for these Receivers; `None` when a term has ended.
    pub fn set(&self, context: Option<Arc<Context>>) {
        *lock(&self.leading) = context;
    }

    /// What came of the deliveries since the start.
    pub fn counts(&self) -> Vec<Count> {
        let kind = |kind: Option<ReceiverType>| kind.map_or("unknown", ReceiverType::as_str);
        let counts = lock(&self.counts);
        counts.iter().map(|((of, outcome), count)| Count { kind: kind(*of), outcome, count: *count }).collect()
    }

    /// Receives deliveries until `stop`.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, limits: Limits, stop: CancellationToken) {
        let answer = move |request| Arc::clone(&self).answer(request);
        listener::serve(listener, limits, answer, stop).await;
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let context = lock(&self.leading).clone();
        let (head, mut body) = request.into_parts();
        let served = context.as_ref().filter(|_| head.uri.query().is_none()).map(|c| (c, c.find(head.uri.path())));
        let (kind, outcome) = match (&context, served) {
            (None, _) => (None, Outcome::NotLeading),
            (Some(_), Some((context, Some(served)))) => {
                (Some(served.receiver.kind), self.receive(context, &served, &head, &mut body).await)
            }
            (Some(context), _) if context.is_starting() => (None, Outcome::NotLeading),
            (Some(_), _) => (None, Outcome::NotFound),
        };
        *lock(&self.counts).entry((kind, outcome.label())).or_default() += 1;
        drain(&mut body, if kind.is_some() { DRAINED } else { DRAINED_OF_NOBODY }).await;
        response(&outcome)
    }

    async fn receive(&self, context: &Context, served: &Served, head: &Parts, body: &mut Incoming) -> Outcome {
        if head.method != Method::POST {
            return Outcome::WrongMethod;
        }
        if served.receiver.is_suspended {
            return Outcome::Suspended;
        }
        if body.size_hint().lower() > MAX_BODY as u64 {
            return Outcome::TooLarge;
        }
        // The permits are held until the body has been judged.
        let (body, _permits) = match timeout(BODY_WITHIN, self.read(served, body)).await {
            Err(_) => return Outcome::TooSlow,
            Ok(Err(outcome)) => return outcome,
            Ok(Ok(read)) => read,
        };
        match judge(&served.receiver, &head.headers, &body) {
            Delivery::Ping => Outcome::Ping,
            Delivery::PassedOver => Outcome::PassedOver,
            Delivery::Malformed(malformed) => Outcome::Malformed(malformed),
            Delivery::Refused(refusal) => {
                context.report_refused(served, refusal.to_string(), Instant::now());
                Outcome::Refused(refusal)
            }
            Delivery::Push(meant) => {
                let is_meant = |consumer: &_, followed: &_| meant.includes(consumer, followed);
                match context.pushes.wake(is_meant, Instant::now()) {
                    woken if woken.is_empty() => Outcome::NobodyWoken,
                    woken => Outcome::Woken(woken),
                }
            }
        }
    }
}

impl Deliveries {
    /// A body, and permits for its bytes.
    async fn read<'a>(&'a self, served: &'a Served, body: &mut Incoming) -> Result<(Vec<u8>, Permits<'a>), Outcome> {
        let (mut bytes, mut permits) = (Vec::new(), Permits::default());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| Outcome::Broken)?.into_data() else { continue };
            if bytes.len() + data.len() > MAX_BODY {
                return Err(Outcome::TooLarge);
            }
            let size = u32::try_from(data.len()).map_err(|_| Outcome::TooLarge)?;
            for semaphore in [&served.bodies, &self.bodies] {
                // They are closed only at the end of the process.
                permits.0.push(semaphore.acquire_many(size).await.map_err(|_| Outcome::Broken)?);
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes, permits))
    }
}

/// Permits for the bytes of one body.
#[derive(Default)]
struct Permits<'a>(Vec<SemaphorePermit<'a>>);

/// Reads the rest of a body and drops it: a client that is still sending when the connection ends misses the answer.
async fn drain(body: &mut Incoming, (most, within): (usize, Duration)) {
    let read = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > most {
                break;
            }
        }
    };
    let _ = timeout(within, read).await;
}

fn response(outcome: &Outcome) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{}\n", outcome.text())));
    *response.status_mut() = StatusCode::from_u16(outcome.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if matches!(outcome, Outcome::WrongMethod) {
        headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
    }
    if matches!(outcome, Outcome::NotLeading) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    }
    response
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
