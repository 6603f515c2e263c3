//! The requests of a puller to its consumer.
//!
//! One request is sent at a time. A request costs one message for many events. It waits until there is memory for its
//! messages.

use std::pin::Pin;
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::BatchConfig;
use async_nats::{Message, StatusCode, Subject, Subscriber};
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::StreamExt as _;
use tokio::time::{Instant, Sleep, sleep};

use super::memory::{Grant, Part, Share, Size};
use super::message;
use super::streams::Unmade;

/// Time for which a request for messages waits.
const REQUEST: Duration = Duration::from_secs(5);
/// Time for the response to a request, after the time for which it waits.
const RESPONSE: Duration = Duration::from_secs(3);
/// Delay after an error of the server. A request that needs no part of the budget waits as long, because other requests
/// of its subscriber wait for it.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// Header of a status: the number of requested messages that the server does not send.
const PENDING: &str = "Nats-Pending-Messages";
/// Reasons that pass, and leave the consumer as it is.
const PASSING: [&str; 3] = ["leadership change", "server shutdown", "exceeded maxwaiting"];

/// The requests to a consumer.
pub(super) struct Requests {
    consumer: PullConsumer,
    inbox: Subject,
    messages: Subscriber,
    share: Share,
    /// Maximum size of the messages of the next request.
    size: Size,
    request: Request,
    /// The end of a pause, or the time at which the request is lost.
    timer: Pin<Box<Sleep>>,
}

/// The current request.
enum Request {
    None,
    /// The next request is sent later.
    Pause,
    /// A request for this number of messages waits for memory.
    Waiting(usize, BoxFuture<'static, Grant>),
    Ready(usize, Grant),
    Sent(Sent),
}

/// A request that the server has not answered completely.
struct Sent {
    /// Number of requested messages.
    batch: usize,
    /// Number of messages that have not arrived.
    missing: usize,
    /// Size of the messages that have arrived.
    bytes: usize,
    /// Whether a further message exceeds the limit.
    is_exceeded: bool,
    grant: Grant,
    since: Instant,
    waits: Duration,
}

/// A response of the server.
pub(super) enum Arrived {
    Message(Message, Option<Part>),
    /// The time of the request is over.
    Idle,
    /// The server refuses the request for now, for this reason.
    Refused(String),
    /// The consumer may be gone.
    Failed(Unmade),
    /// The requests are lost, for this reason.
    Lost(&'static str),
}

impl Requests {
    pub(super) fn new(consumer: PullConsumer, inbox: Subject, messages: Subscriber, share: Share) -> Self {
        let timer = Box::pin(sleep(REQUEST));
        Self { consumer, inbox, messages, share, size: Size::Small, request: Request::None, timer }
    }

    pub(super) fn consumer(&self) -> &PullConsumer {
        &self.consumer
    }

    /// Waits for a response. If no requested message is missing, `most` messages are requested. Cancel-safe.
    pub(super) async fn arrived(&mut self, most: usize) -> Arrived {
        self.response(Some(most)).await
    }

    /// Waits for a response, and sends no request. Cancel-safe.
    pub(super) async fn further(&mut self) -> Arrived {
        self.response(None).await
    }

    /// Waits for a response. Without a number of messages, it sends no request, and ignores the timer.
    async fn response(&mut self, most: Option<usize>) -> Arrived {
        loop {
            if let Some(most) = most
                && let Err(error) = self.ask(most).await
            {
                return Arrived::Failed(error);
            }
            let is_timed = most.is_some() && matches!(self.request, Request::Pause | Request::Sent(_));
            tokio::select! {
                // Messages that have arrived are delivered.
                biased;
                message = self.messages.next() => {
                    let Some(message) = message else { return Arrived::Lost("the subscription has ended") };
                    if let Some(arrived) = self.receive(message) {
                        return arrived;
                    }
                }
                // A waiting request that is not polled holds up those of other subscribers.
                (batch, grant) = granted(&mut self.request) => self.request = Request::Ready(batch, grant),
                () = &mut self.timer, if is_timed => {
                    if matches!(self.request, Request::Sent(_)) {
                        return Arrived::Lost("the server has not answered a request");
                    }
                    self.request = Request::None;
                }
            }
        }
    }

    /// Begins a request for `most` messages if there is none, and sends a request that has got its memory. Cancel-safe.
    async fn ask(&mut self, most: usize) -> Result<(), Unmade> {
        if most > 0 && matches!(self.request, Request::None) {
            let most = self.permitted(most);
            self.request = Request::Waiting(most, self.share.clone().grant(self.size, most).boxed());
        }
        if matches!(self.request, Request::Ready(..)) {
            self.send(most).await?;
        }
        Ok(())
    }

    /// Returns how many messages one request may ask for. An administrator of NATS can limit it.
    fn permitted(&self, most: usize) -> usize {
        match usize::try_from(self.consumer.cached_info().config.max_batch) {
            Ok(limit @ 1..) => most.min(limit),
            _ => most,
        }
    }

    /// Sends the request that has got its memory, unless no message is wanted any more. Cancel-safe.
    async fn send(&mut self, most: usize) -> Result<(), Unmade> {
        let (missing, max_bytes, waits) = match &self.request {
            Request::Ready(reserved, grant) if most > 0 => match grant.limit() {
                Some(limit) => (most.min(*reserved), limit, REQUEST),
                None => (1, 0, AGAIN),
            },
            _ => {
                self.request = Request::None;
                return Ok(());
            }
        };
        let batch = BatchConfig { batch: missing, max_bytes, expires: Some(waits), ..BatchConfig::default() };
        self.consumer.request_batch(batch, self.inbox.clone()).await?;
        let since = Instant::now();
        if let Request::Ready(_, grant) = std::mem::replace(&mut self.request, Request::None) {
            self.request =
                Request::Sent(Sent { batch: missing, missing, bytes: 0, is_exceeded: false, grant, since, waits });
            self.timer.as_mut().reset(since + waits + RESPONSE);
        }
        Ok(())
    }

    /// Records a response. Returns `None` if it has no meaning for the puller.
    fn receive(&mut self, message: Message) -> Option<Arrived> {
        // The headers of a message can look like a status.
        if message.reply.is_some() {
            let part = self.record(message.length);
            return Some(Arrived::Message(message, part));
        }
        let status = message.status.filter(|status| !matches!(*status, StatusCode::OK | StatusCode::IDLE_HEARTBEAT))?;
        let why = message.description.unwrap_or_default();
        let begins = |text: &str| why.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text));
        let is_end = status == StatusCode::REQUEST_TERMINATED;
        // The server says so after the last message of a request that has a limit in bytes.
        if is_end && begins("batch completed") {
            return None;
        }
        // It is about an earlier request.
        let Request::Sent(sent) = &mut self.request else { return None };
        if is_end && begins("message size exceeds") {
            let pending = message.headers.as_ref().and_then(|headers| headers.get(PENDING)?.as_str().parse().ok());
            self.exceeded(pending);
            return None;
        }
        let (has_arrived, since, waits) = (sent.missing < sent.batch, sent.since, sent.waits);
        self.request = Request::None;
        if matches!(status, StatusCode::TIMEOUT | StatusCode::NOT_FOUND) {
            if !has_arrived {
                self.size = Size::Small;
            }
            // A server that does not wait would be asked all the time.
            if since.elapsed() < waits / 2 {
                self.pause();
            }
            return Some(Arrived::Idle);
        }
        let text = format!("the server answers a request for messages with {status}: {why}");
        // The consumer and its limits may be other ones now.
        if !is_end || !PASSING.iter().any(|text| begins(text)) {
            return Some(Arrived::Failed(text.into()));
        }
        self.pause();
        Some(Arrived::Refused(text))
    }

    /// Records that a further message exceeds the limit of the request. `pending` is the number of messages that the server
    /// does not send. Others may arrive later: a server of a cluster sends them when the other servers know of them.
    fn exceeded(&mut self, pending: Option<usize>) {
        let Request::Sent(sent) = &mut self.request else { return };
        let pending = pending.unwrap_or(sent.missing).min(sent.missing);
        sent.missing -= pending;
        sent.is_exceeded = true;
        let (has_others, has_room) = (sent.batch > pending, sent.missing > 0);
        self.size = self.size.larger(has_others);
        if !has_room {
            self.request = Request::None;
        }
    }

    /// Records that a message has arrived. Returns its memory.
    fn record(&mut self, length: usize) -> Option<Part> {
        let Request::Sent(sent) = &mut self.request else { return None };
        sent.missing = sent.missing.saturating_sub(1);
        sent.bytes = sent.bytes.saturating_add(length);
        let part = sent.grant.part(length);
        if sent.missing == 0 {
            let is_small = !sent.is_exceeded && Size::Small.bytes().is_some_and(|limit| sent.bytes <= limit / 2);
            if self.size == Size::Large && is_small {
                self.size = Size::Small;
            }
            self.request = Request::None;
        }
        if self.size == Size::Any {
            self.size = Size::Large;
        }
        part
    }

    fn pause(&mut self) {
        self.request = Request::Pause;
        self.timer.as_mut().reset(Instant::now() + AGAIN);
    }

    /// Ends the subscription. Returns the subjects for acknowledgements of the messages that have arrived.
    pub(super) async fn end(mut self) -> Vec<Subject> {
        if self.messages.unsubscribe().await.is_err() {
            return Vec::new();
        }
        let mut subjects = Vec::new();
        while let Some(Some(message)) = self.messages.next().now_or_never() {
            subjects.extend(message.reply.filter(|subject| message::delivered(subject).is_some()));
        }
        subjects
    }
}

/// Waits for the memory of the request.
async fn granted(request: &mut Request) -> (usize, Grant) {
    match request {
        Request::Waiting(most, granting) => (*most, granting.await),
        _ => std::future::pending().await,
    }
}
