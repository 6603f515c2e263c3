//! Decides whether a request to NATS is repeated: while no server responds, and while servers elect a leader.
//!
//! A lost connection loses responses. Without a leader, a server answers "no responders" or an error, and a new leader
//! may take some seconds. The request is then sent again after a pause with jitter.
//!
//! Invariant: only idempotent requests are repeated. A message keeps its ID, so the server stores it once. Invariant: all
//! attempts of a task end within [`ANSWER`].

use std::error::Error;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{
    ConsumerInfoError, ConsumerInfoErrorKind, CreateStreamError, CreateStreamErrorKind, GetStreamError,
    GetStreamErrorKind, PublishError, PublishErrorKind, RequestError, RequestErrorKind,
};
use async_nats::jetstream::stream::{ConsumerError, ConsumerErrorKind, LastRawMessageError, LastRawMessageErrorKind};
use tokio::time::{Instant, sleep};

use super::connect::ANSWER;

/// Time after which a request without a response is sent again.
pub(super) const ATTEMPT: Duration = Duration::from_secs(2);
/// The first pause between two attempts. Each further pause is twice as long, up to the maximum.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// The time for all attempts of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    end: Instant,
    pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self::of(ANSWER)
    }
}

impl Patience {
    /// Returns the time for a task that must end within `limit`.
    pub(super) fn of(limit: Duration) -> Self {
        Self { end: Instant::now() + limit, pause: FIRST }
    }

    /// Returns the time that is left.
    pub(super) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Waits before a further attempt. Returns false if there is no time for one.
    pub(super) async fn further(&mut self) -> bool {
        let wait = self.pause.mul_f64(0.5 + fastrand::f64());
        self.pause = (self.pause * 2).min(LONGEST);
        let has_time = wait < self.left();
        if has_time {
            sleep(wait).await;
        }
        has_time
    }
}

/// No response has arrived in time, or the connection was lost.
#[derive(Debug, thiserror::Error)]
#[error("NATS does not respond")]
pub(super) struct NoResponse;

/// Returns whether no server has the stream of a message.
pub(super) fn has_no_stream(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<PublishError>().is_some_and(|error| error.kind() == PublishErrorKind::StreamNotFound)
}

/// Returns the server's own error, if there is one.
pub(super) fn server_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e jetstream::Error> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'e (dyn Error + 'static)| (*error).source())
}

/// Returns whether an error ends with an election or with the return of a server.
pub(super) fn is_passing(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| {
        let of_publish = cause.downcast_ref::<PublishError>().map(PublishError::kind);
        let of_request = cause.downcast_ref::<RequestError>().map(RequestError::kind);
        let of_create = cause.downcast_ref::<CreateStreamError>().map(CreateStreamError::kind);
        let of_get = cause.downcast_ref::<GetStreamError>().map(GetStreamError::kind);
        let of_info = cause.downcast_ref::<ConsumerInfoError>().map(ConsumerInfoError::kind);
        let of_consumer = cause.downcast_ref::<ConsumerError>().map(ConsumerError::kind);
        let of_read = cause.downcast_ref::<LastRawMessageError>().map(LastRawMessageError::kind);
        matches!(of_publish, Some(PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe))
            || matches!(of_request, Some(RequestErrorKind::NoResponders | RequestErrorKind::TimedOut))
            || match of_create {
                Some(CreateStreamErrorKind::JetStreamUnavailable | CreateStreamErrorKind::TimedOut) => true,
                Some(CreateStreamErrorKind::JetStream(error)) => is_election(&error),
                _ => false,
            }
            || matches!(of_get, Some(GetStreamErrorKind::JetStream(error)) if is_election(&error))
            || matches!(of_read, Some(LastRawMessageErrorKind::JetStream(error)) if is_election(&error))
            || match of_info {
                Some(ConsumerInfoErrorKind::NoResponders | ConsumerInfoErrorKind::TimedOut) => true,
                Some(ConsumerInfoErrorKind::JetStream(error)) => is_election(&error),
                _ => false,
            }
            || match of_consumer {
                Some(ConsumerErrorKind::TimedOut) => true,
                Some(ConsumerErrorKind::JetStream(error)) => is_election(&error),
                _ => false,
            }
            || cause.downcast_ref::<jetstream::Error>().is_some_and(is_election)
            || cause.is::<NoResponse>()
    })
}

/// Returns whether too few servers exist for the replicas of a stream. It can last longer than an election.
pub(super) fn has_no_peers(error: &CreateStreamError) -> bool {
    matches!(
        error.kind(),
        CreateStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::CLUSTER_NO_PEERS
    )
}

/// Returns whether servers answer with this error while they elect a leader, or while too few of them are connected.
fn is_election(error: &jetstream::Error) -> bool {
    let known = [
        ErrorCode::CLUSTER_NO_PEERS,
        ErrorCode::CLUSTER_NOT_ACTIVE,
        ErrorCode::CLUSTER_NOT_ASSIGNED,
        ErrorCode::CLUSTER_NOT_AVAILABLE,
        ErrorCode::CLUSTER_NOT_LEADER,
        ErrorCode::STREAM_OFFLINE,
        ErrorCode::CONSUMER_OFFLINE,
    ];
    // A server that is no leader any more refuses a message with a status and no code.
    let is_stale = error.code() == 503 && error.error_code() == ErrorCode(0);
    is_stale || known.contains(&error.error_code())
}
