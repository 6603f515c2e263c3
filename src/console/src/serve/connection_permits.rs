//! Permits for requests that keep their connection: streams of live updates, calls of Functions, and each other request until
//! its client has read the response.
//!
//! Invariant: all such requests together have fewer connections than the server, so that pages and probes have some.
//! Invariant: no session and no group of users takes the permits of all others.

use std::sync::Arc;

use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answer;
use super::group_permits::{Full, GroupPermit, GroupPermits, Most};
use crate::session;

/// Maximum numbers of streams and of calls. A session has one stream for each open page.
const STREAMS: Most = Most { server: 512, group: 80, least: 0 };
const STREAMS_OF_SESSION: usize = 16;
const CALLS: Most = Most { server: 64, group: 16, least: 0 };
const CALLS_OF_SESSION: usize = 4;
/// Maximum numbers of requests that wait, are processed, or have a response that is not read.
const REQUESTS: Most = Most { server: 192, group: 64, least: 2 };

// The server has 1024 connections. Each session may be a group of its own. A call is one of the requests, too.
const _: () = assert!(STREAMS.server + REQUESTS.server + session::ALL * REQUESTS.least <= 1024 - 64);
const _: () = assert!(CALLS.server < REQUESTS.server && CALLS.group < REQUESTS.group);

/// The permits of all sessions. Clones share them.
#[derive(Clone)]
pub(super) struct ConnectionPermits {
    streams: GroupPermits,
    calls: GroupPermits,
    requests: GroupPermits,
}

impl Default for ConnectionPermits {
    fn default() -> Self {
        Self {
            streams: GroupPermits::new(STREAMS),
            calls: GroupPermits::new(CALLS),
            requests: GroupPermits::new(REQUESTS),
        }
    }
}

/// The permits of a session.
pub(super) struct SessionConnections {
    group: String,
    streams: (Arc<Semaphore>, GroupPermits),
    calls: (Arc<Semaphore>, GroupPermits),
    requests: GroupPermits,
}

/// The permit of one request, until it is dropped.
pub(super) struct ConnectionPermit {
    _own: OwnedSemaphorePermit,
    _all: GroupPermit,
}

impl ConnectionPermits {
    /// Returns the permits of a new session of a group of users.
    pub(super) fn of_session(&self, group: &str) -> SessionConnections {
        SessionConnections {
            group: group.to_owned(),
            streams: (Arc::new(Semaphore::new(STREAMS_OF_SESSION)), self.streams.clone()),
            calls: (Arc::new(Semaphore::new(CALLS_OF_SESSION)), self.calls.clone()),
            requests: self.requests.clone(),
        }
    }
}

impl SessionConnections {
    /// Takes the permit of a stream.
    pub(super) fn try_stream(&self) -> Result<ConnectionPermit, Full> {
        self.try_acquire(&self.streams)
    }

    /// Takes the permit of a call.
    pub(super) fn try_call(&self) -> Result<ConnectionPermit, Full> {
        self.try_acquire(&self.calls)
    }

    /// Takes the permit of a request.
    pub(super) fn try_request(&self) -> Option<GroupPermit> {
        self.requests.try_acquire(&self.group, 1).ok()
    }

    fn try_acquire(&self, (own, all): &(Arc<Semaphore>, GroupPermits)) -> Result<ConnectionPermit, Full> {
        let own = Arc::clone(own).try_acquire_owned().map_err(|_| Full::Session)?;
        Ok(ConnectionPermit { _own: own, _all: all.try_acquire(&self.group, 1)? })
    }
}

impl Full {
    /// Returns the status of a refused request.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Session | Self::Group => StatusCode::TOO_MANY_REQUESTS,
            Self::Server => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns why a stream is refused.
    fn of_streams(self) -> &'static str {
        match self {
            Self::Session => "This session has too many open pages. Close one, and open this page again.",
            Self::Group => {
                "You, or the ServiceAccounts of your namespace, have too many open pages. Close one, and open this page again."
            }
            Self::Server => "The users of this server have too many open pages. Open this page again later.",
        }
    }

    /// Returns why a call is refused.
    pub(super) fn of_calls(self) -> &'static str {
        match self {
            Self::Session => {
                "This session waits for the responses of other calls. Send the form again after one of them."
            }
            Self::Group => {
                "You, or the ServiceAccounts of your namespace, wait for the responses of other calls. Send the form again \
                 after one of them."
            }
            Self::Server => "The server waits for the responses of too many other calls. Send the form again later.",
        }
    }
}

/// Returns the response to a stream that is refused. The script of the page tries again.
pub(super) fn no_stream(full: Full) -> Response {
    let mut response = answer::message(full.status(), "Too many pages", full.of_streams());
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    type Take = fn(&SessionConnections) -> Result<ConnectionPermit, Full>;

    /// The permits of streams and of calls, with their maximum numbers.
    const KINDS: [(Take, usize, Most); 2] = [
        (SessionConnections::try_stream, STREAMS_OF_SESSION, STREAMS),
        (SessionConnections::try_call, CALLS_OF_SESSION, CALLS),
    ];

    /// Takes permits until they are refused.
    fn take_all(session: &SessionConnections, take: Take) -> (Vec<ConnectionPermit>, Full) {
        let mut permits = Vec::new();
        loop {
            match take(session) {
                Ok(permit) => permits.push(permit),
                Err(full) => return (permits, full),
            }
        }
    }

    #[test]
    fn a_session_and_a_group_leave_permits_to_others_and_return_theirs() {
        for (take, of_session, most) in KINDS {
            let all = ConnectionPermits::default();
            let (first, full) = take_all(&all.of_session("namespace a"), take);
            assert_eq!((first.len(), full), (of_session, Full::Session));
            let mut held = first;
            for _ in 1..most.group / of_session {
                held.extend(take_all(&all.of_session("namespace a"), take).0);
            }
            assert_eq!(held.len(), most.group);
            let late = all.of_session("namespace a");
            assert_eq!(take(&late).err(), Some(Full::Group));
            assert!(take(&all.of_session("namespace b")).is_ok());
            held.pop();
            let (permits, full) = take_all(&late, take);
            assert_eq!((permits.len(), full), (1, Full::Group));
        }
    }

    #[test]
    fn the_sessions_of_all_groups_have_a_maximum() {
        for (take, _, most) in KINDS {
            let all = ConnectionPermits::default();
            let mut held = Vec::new();
            let mut full = Full::Session;
            for number in 0..100 {
                let (permits, why) = take_all(&all.of_session(&number.to_string()), take);
                held.extend(permits);
                full = why;
            }
            assert_eq!((held.len(), full), (most.server, Full::Server));
        }
    }

    #[test]
    fn a_group_leaves_requests_to_others() {
        let all = ConnectionPermits::default();
        let take = |group: &str| {
            let (first, second) = (all.of_session(group), all.of_session(group));
            let both = || first.try_request().or_else(|| second.try_request());
            std::iter::from_fn(both).collect::<Vec<_>>()
        };
        let held = ["a", "b", "c", "d"].map(take);
        assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 64, 2]);
        drop(held);
        assert_eq!(take("d").len(), REQUESTS.group);
    }

    #[test]
    fn a_refused_stream_has_a_status_that_the_script_knows() {
        for (full, status) in [(Full::Session, 429_u16), (Full::Group, 429), (Full::Server, 503)] {
            let response = no_stream(full);
            assert_eq!(response.status(), status);
            assert!(response.headers().contains_key(header::RETRY_AFTER));
            assert!(!full.of_calls().is_empty());
        }
    }
}
