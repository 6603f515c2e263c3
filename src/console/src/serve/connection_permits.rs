//! Permits for requests that keep their connection: streams of live updates, calls of Functions, and each other request until
//! its client has read the response.
//!
//! Invariant: all such requests together have fewer connections than the server, so that pages and probes have some.
//! Invariant: no session and no group of users takes the permits of all others.

use std::sync::Arc;

use axum::response::Response;
use http::{HeaderValue, Method, StatusCode, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answer;
use super::group_permits::{Full, GroupPermit, GroupPermits, Most};

/// Maximum numbers of streams and of calls. A session has one stream for each open page.
const STREAMS: Most = Most { server: 512, group: 80, least: 0 };
const STREAMS_OF_SESSION: usize = 16;
const CALLS: Most = Most { server: 64, group: 16, least: 0 };
const CALLS_OF_SESSION: usize = 4;
/// Maximum numbers of requests that wait, are processed, or have a response that is not read.
pub(super) const REQUESTS: Most = Most { server: 192, group: 68, least: 2 };
/// Number of requests of a group that only forms take, so that open pages keep no form out.
const FORMS: usize = 4;

// The server has 1024 connections. Each session may be a group of its own. A call is one of the requests, too.
const _: () = assert!(STREAMS.server + REQUESTS.all() <= 1024 - 64);
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

    /// Takes the permit of a request with this method.
    pub(super) fn try_request(&self, method: &Method) -> Result<GroupPermit, Full> {
        let left = if *method == Method::POST { 0 } else { FORMS };
        self.requests.try_acquire_leaving(&self.group, 1, left)
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

    /// Returns why a request with this method is refused. The body of a form has not been read.
    pub(super) fn of_requests(self, method: &Method) -> &'static str {
        let is_form = *method == Method::POST;
        match self {
            Self::Session | Self::Group if is_form => {
                "You, or the ServiceAccounts of your namespace, have too many requests at the same time, so the form was not \
                 read. Go back, and send the form again.\n"
            }
            Self::Session | Self::Group => {
                "You, or the ServiceAccounts of your namespace, have too many requests at the same time. Send this one \
                 again later.\n"
            }
            Self::Server if is_form => {
                "The server has too many requests of all users at the same time, so the form was not read. Go back, and send \
                 the form again.\n"
            }
            Self::Server => {
                "The server has too many requests of all users at the same time. Send this one again later.\n"
            }
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
            let page = |session: &SessionConnections| session.try_request(&Method::GET).ok();
            let both = || page(&first).or_else(|| page(&second));
            std::iter::from_fn(both).collect::<Vec<_>>()
        };
        let held = ["a", "b", "c", "d"].map(take);
        assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 64, 2]);
        drop(held);
        assert_eq!(take("d").len(), REQUESTS.group - FORMS);
    }

    #[test]
    fn the_open_pages_of_a_group_leave_requests_to_its_forms() {
        let all = ConnectionPermits::default();
        let session = all.of_session("a");
        let take = |method: &Method| std::iter::from_fn(|| session.try_request(method).ok()).collect::<Vec<_>>();
        let (pages, heads, forms) = (take(&Method::GET), take(&Method::HEAD), take(&Method::POST));
        assert_eq!((pages.len(), heads.len(), forms.len()), (64, 0, FORMS));
        drop(pages);
        assert_eq!(take(&Method::POST).len(), 64);
    }

    #[test]
    fn a_refused_request_says_who_has_too_many_and_what_to_do() {
        let all = ConnectionPermits::default();
        let take = |group: &str, method: &Method| {
            let session = all.of_session(group);
            std::iter::from_fn(|| session.try_request(method).ok()).collect::<Vec<_>>()
        };
        let refusal = |group: &str, method: &Method| all.of_session(group).try_request(method).err().unwrap();
        let _own = take("a", &Method::POST);
        assert_eq!(refusal("a", &Method::POST), Full::Group);
        let _others = ["b", "c", "d"].map(|group| take(group, &Method::POST));
        assert_eq!(refusal("d", &Method::GET), Full::Server);
        for (full, who) in [(Full::Group, "ServiceAccounts of your namespace"), (Full::Server, "of all users")] {
            for (method, what) in [(Method::GET, "again later"), (Method::POST, "Go back, and send the form again")] {
                let text = full.of_requests(&method);
                assert!(text.contains(who) && text.contains(what), "{text}");
            }
        }
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
