//! Receives deliveries over HTTP.
//!
//! Invariant: all unknown paths have the same response, and the path is the first thing that is checked.
//! Invariant: a body is read only for a known path, up to [`MAX_BODY`] bytes and [`BODY_WITHIN`], and only if there is
//! memory ([`Room`]). Without memory, the client gets a response immediately.
//! Invariant: the token of an issuer is checked before the body is read, and objects are listed only for an authentic delivery.
//! Invariant: one body at a time is read as a whole, after its list. No delivery waits for a list while it holds this permit.
//! Invariant: a delivery causes only lookups of remotes, so a repeated one is harmless.
//! Invariant: only the leader processes deliveries; other agents respond with 503.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use parking_lot::Mutex;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::context::{Context, Served};
use super::delivery::{self, Chosen, Delivery, judge};
use super::filter::STEPS_OF_DELIVERY;
use super::issuers::Denied;
use super::listing;
use super::matching::Meant;
use super::outcome::Outcome;
use super::payload::MAX_BODY;
use super::room::{Held, Room};
use super::signature::Refusal;
use crate::commit_trace::CommitTrace;
use loopback::Listener;
use mainstay_api::ReceiverType;
use mainstay_cluster::body::{self, BodyFault};
use mainstay_cluster::listener::{self, Limits};
use mainstay_git::{Consumer, Followed};
use mainstay_object::expression::Budget;
use mainstay_traces::Parent;

/// Maximum time until a body is complete.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// Maximum bytes and duration of reading an unused body. The second limit applies without memory, for unknown paths, and for
/// clients without a valid token of an issuer.
const DRAINED: (usize, Duration) = (8 << 20, Duration::from_secs(1));
const DRAINED_OF_NOBODY: (usize, Duration) = (256 << 10, Duration::from_millis(100));

/// The receiver of deliveries, which lives as long as the process. It processes deliveries only while the agent holds
/// the Lease.
#[derive(Debug, Default)]
pub struct Deliveries {
    /// The Receivers of the current term.
    leading: Mutex<Option<Arc<Context>>>,
    counts: Mutex<BTreeMap<(Option<ReceiverType>, &'static str), u64>>,
    room: Arc<Room>,
}

/// A number of deliveries with the same result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// `spec.type` of the Receiver; `unknown` if there is none.
    pub kind: &'static str,
    /// The result.
    pub outcome: &'static str,
    /// The number.
    pub count: u64,
}

impl Deliveries {
    /// Sets the Receivers of a term; `None` at its end.
    pub fn set(&self, context: Option<Arc<Context>>) {
        *self.leading.lock() = context;
    }

    /// Returns the numbers of deliveries since the start, by result.
    pub fn counts(&self) -> Vec<Count> {
        let kind = |kind: Option<ReceiverType>| kind.map_or("unknown", ReceiverType::as_str);
        let counts = self.counts.lock();
        counts.iter().map(|((of, outcome), count)| Count { kind: kind(*of), outcome, count: *count }).collect()
    }

    /// Receives deliveries until `stop`.
    pub async fn serve(self: Arc<Self>, listener: Listener, limits: Limits, stop: CancellationToken) {
        let answer = move |request| Arc::clone(&self).answer(request);
        listener::serve(listener, limits, answer, stop).await;
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let context = self.leading.lock().clone();
        let (head, mut body) = request.into_parts();
        let served = context.as_ref().filter(|_| head.uri.query().is_none()).map(|c| (c, c.find(head.uri.path())));
        // Memory for a known path is reserved until the response is sent.
        let mut held = None;
        let (kind, outcome) = match (&context, served) {
            (None, _) => (None, Outcome::NotLeading),
            (Some(_), Some((context, Some(served)))) => {
                held = self.room.enter(&served.owner);
                let outcome = match &mut held {
                    Some(held) => receive(context, &served, &head, &mut body, held).await,
                    None => Outcome::NoRoom,
                };
                (Some(served.receiver.kind), outcome)
            }
            (Some(context), _) if context.is_starting() => (None, Outcome::NotLeading),
            (Some(_), _) => (None, Outcome::NotFound),
        };
        *self.counts.lock().entry((kind, outcome.label())).or_default() += 1;
        drain(&mut body, if held.is_some() && is_worth_reading(&outcome) { DRAINED } else { DRAINED_OF_NOBODY }).await;
        response(&outcome)
    }
}

async fn receive(context: &Context, served: &Served, head: &Parts, body: &mut Incoming, held: &mut Held) -> Outcome {
    if head.method != Method::POST {
        return Outcome::WrongMethod;
    }
    if served.receiver.is_suspended {
        return Outcome::Suspended;
    }
    let mut budget = Budget::new(STEPS_OF_DELIVERY);
    if let Err(outcome) = check_token(context, served, &head.headers, &mut budget).await {
        return outcome;
    }
    let body = match timeout(BODY_WITHIN, read(held, body)).await {
        Err(_) => return Outcome::TooSlow,
        Ok(Err(outcome)) => return outcome,
        Ok(Ok(body)) => body,
    };
    match judge(&served.receiver, &head.headers, &body) {
        Delivery::Ping => Outcome::Ping,
        Delivery::PassedOver => Outcome::PassedOver,
        Delivery::Malformed(malformed) => Outcome::Malformed(malformed),
        Delivery::Refused(refusal) => {
            context.report_refused(served, refusal.to_string(), Instant::now());
            Outcome::Refused(refusal)
        }
        Delivery::Push(meant) if meant.names_no_repository() => Outcome::NoRepository,
        Delivery::Push(meant) if served.receiver.needs_objects() => {
            wake_selected(context, served, meant, (&head.headers, body.as_slice()), &mut budget).await
        }
        Delivery::Push(meant) => wake(context, &meant, &head.headers),
    }
}

/// Wakes the consumers of the objects that the labels and the filter of the Receiver select.
async fn wake_selected(
    context: &Context,
    served: &Served,
    meant: Meant,
    (headers, body): (&HeaderMap, &[u8]),
    budget: &mut Budget,
) -> Outcome {
    let chosen = match select(context, served, (headers, body), budget).await {
        Ok(chosen) => chosen,
        Err(outcome) => return outcome,
    };
    if let Some(none) = chosen.none {
        return Outcome::NoneSelected(none);
    }
    let outcome = wake(context, &meant.limited_to(chosen.sources), headers);
    let Some(why) = chosen.failed else { return outcome };
    context.report_incomplete(served, why.clone(), Instant::now());
    let woken = if let Outcome::Woken(woken) = outcome { woken } else { Vec::new() };
    Outcome::Unevaluated { woken, why }
}

/// Selects the objects of a delivery: those with the labels and the metadata that the Receiver asks for.
async fn select(
    context: &Context,
    served: &Served,
    (headers, body): (&HeaderMap, &[u8]),
    budget: &mut Budget,
) -> Result<Chosen, Outcome> {
    let listed = listing::list(context, served).await.map_err(|why| {
        context.report_refused(served, why, Instant::now());
        Outcome::ObjectsAway
    })?;
    let _whole = match &served.receiver.filter {
        Some(_) => Some(context.whole_bodies.acquire(&served.receiver.namespace).await),
        None => None,
    };
    delivery::select(&served.receiver, &listed.objects, headers, body, budget).map_err(Outcome::Malformed)
}

/// Wakes the consumers of a delivery, and those of other agents.
fn wake(context: &Context, meant: &Meant, headers: &HeaderMap) -> Outcome {
    let sources = RefCell::new(BTreeSet::new());
    let is_meant = |consumer: &Consumer, followed: &Followed| {
        let is_meant = meant.includes(consumer, followed);
        if is_meant && context.ring.is_some() {
            sources.borrow_mut().insert((consumer.namespace.clone(), followed.repository.clone()));
        }
        is_meant
    };
    let woken = context.pushes.wake(is_meant, Instant::now());
    for (namespace, source) in sources.take() {
        context.ring.iter().for_each(|ring| ring(&namespace, &source));
    }
    if woken.is_empty() {
        let fixed = context.pushes.count(|consumer, followed| meant.passes_over_fixed(consumer, followed));
        return Outcome::NobodyWoken { fixed };
    }
    note_cause(&woken, headers);
    Outcome::Woken(woken)
}

/// Checks the token of an issuer, for types that have one.
async fn check_token(
    context: &Context,
    served: &Served,
    headers: &HeaderMap,
    budget: &mut Budget,
) -> Result<(), Outcome> {
    let Some(providers) = &served.receiver.tokens else { return Ok(()) };
    let checked = context.issuers.check(&served.receiver.namespace, providers, headers, budget).await;
    checked.map_err(|denied| match denied {
        Denied::Refused(flaw) => {
            context.report_refused(served, flaw.to_string(), Instant::now());
            Outcome::Refused(Refusal::Token(flaw))
        }
        Denied::Away(why) => {
            context.report_refused(served, why, Instant::now());
            Outcome::IssuerAway
        }
    })
}

/// Records the sender's span as the cause of the lookups. Only accepted deliveries reach this.
fn note_cause(woken: &[Consumer], headers: &HeaderMap) {
    if mainstay_traces::is_on() {
        let cause = headers.get("traceparent").and_then(|value| Parent::of_header(value.to_str().ok()?));
        for consumer in woken {
            mainstay_traces::set_parent(&CommitTrace::cause(consumer), cause.as_ref());
        }
    }
}

/// Reads a body. Reserves memory for bytes before they are read.
async fn read<B: Body<Data = Bytes> + Unpin>(held: &mut Held, body: &mut B) -> Result<Vec<u8>, Outcome> {
    let read = body::read(body, MAX_BODY, |length| held.grow(length.saturating_sub(held.bytes()))).await;
    read.map_err(|fault| match fault {
        BodyFault::TooLarge => Outcome::TooLarge,
        BodyFault::NoRoom => Outcome::NoRoom,
        BodyFault::Broken => Outcome::Broken,
    })
}

/// Whether much of an unused body is read. A Receiver whose path is not secret must not spend time on clients without a
/// token.
fn is_worth_reading(outcome: &Outcome) -> bool {
    !matches!(outcome, Outcome::TooSlow | Outcome::IssuerAway | Outcome::Refused(Refusal::Token(_)))
}

/// Reads and drops the rest of a body. A client that still sends when the connection closes would miss the response.
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
    if matches!(outcome, Outcome::NotLeading | Outcome::NoRoom | Outcome::IssuerAway | Outcome::ObjectsAway) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;
    use mainstay_object::Owner;

    /// Reads a body that arrives in pieces. Returns its bytes, and the reserved bytes.
    async fn read_in_pieces(room: &Arc<Room>, length: usize, piece: usize) -> Result<(Vec<u8>, usize), Outcome> {
        let pieces = (0..length / piece).map(|_| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; piece]))));
        let mut held = room.enter(&Owner::receiver("shop", "web")).ok_or(Outcome::NoRoom)?;
        let body = read(&mut held, &mut StreamBody::new(stream::iter(pieces))).await?;
        Ok((body, held.bytes()))
    }

    #[tokio::test]
    async fn a_body_in_single_bytes_takes_no_more_room_than_one_in_large_pieces() {
        let room = Arc::default();
        for piece in [1, 16 << 10] {
            let (body, held) = read_in_pieces(&room, MAX_BODY, piece).await.unwrap();
            assert_eq!((body.len(), held), (MAX_BODY, MAX_BODY), "in pieces of {piece}");
            assert!(body.capacity() <= held, "{} bytes in pieces of {piece}", body.capacity());
        }
        assert_eq!(read_in_pieces(&room, MAX_BODY + 1, 1).await, Err(Outcome::TooLarge));
    }
}
