//! The stream that reports when a page has to be read again. It can also deliver the lines of a log.
//!
//! Invariant: a stream ends within 30 s after the API server has begun to refuse the token of its session, also if the page
//! changes all the time.
//!
//! Not here: the changes themselves. The browser reads the page again, with the same checks as for the first read.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt as _, stream};
use http::{StatusCode, Uri};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer;
use super::connection_permits::{ConnectionPermit, no_stream};
use super::follow::{Followed, event, follow};
use super::lists::{List, ListName};
use super::log::Wanted;
use super::pages::query;
use super::session::{Credentials, Its, Session};
use super::watched::Watched;
use crate::filter::Query;
use crate::freshness::{AgentReader, Stale};
use crate::row::FleetKind;
use mainstay_cluster::Cluster;
use mainstay_object::Key;

/// Changes within this time become one message.
const PAUSE: Duration = Duration::from_millis(200);
/// Interval of probes, and of messages without content, which show that the connection works.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The last message of a stream whose token is refused.
const REFUSED: &str = "the API server no longer accepts the token of this session, because it has expired or was revoked. \
                       Sign in again with a new token";

/// The content type of streams.
pub(super) const STREAM: &str = "text/event-stream";

/// The subject of a page.
enum About {
    /// The fleet, or another list.
    Fleet,
    Object(FleetKind, String, String),
    /// An object that is not in the fleet. Its page is read again on request only.
    Other,
}

struct Stream {
    watched: Arc<Watched>,
    /// Cancelled at the end of the session, of its list, or of its fleet, which another namespace replaces.
    stop: CancellationToken,
    about: About,
    changes: watch::Receiver<u64>,
    /// The version of the page that the browser has; `None` if something has changed since the browser read the page.
    known: Option<String>,
    /// The freshness that the browser knows; `None` before the first message.
    reported: Option<Option<Stale>>,
    cluster: Cluster,
    agent: AgentReader,
    credentials: Credentials,
    /// When the next probe is sent.
    probe_at: Instant,
    /// Cancelled when the API server refuses the token.
    refused: CancellationToken,
    /// The list that the stream keeps; `None` for the fleet.
    _list: Option<Arc<List>>,
    _open: ConnectionPermit,
}

impl Stream {
    /// Returns the version of the object or the fleet that the page shows.
    fn version(&mut self) -> String {
        let count = *self.changes.borrow_and_update();
        match &self.about {
            About::Fleet => count.to_string(),
            About::Other => String::new(),
            About::Object(kind, namespace, name) => {
                self.watched.row(*kind, namespace, name).map(|row| row.resource_version.clone()).unwrap_or_default()
            }
        }
    }

    /// Waits for the next message; `None` at the end of the session, or after the message that the token is refused.
    async fn next(&mut self) -> Option<Bytes> {
        if self.refused.is_cancelled() {
            return None;
        }
        loop {
            let stale = self.watched.stale();
            if self.reported != Some(stale) {
                let is_first = self.reported.replace(stale).is_none();
                // The browser reads the page again once it is current.
                let version = self.version();
                if is_first && self.known.is_none() {
                    self.changes.mark_changed();
                } else {
                    self.known = Some(version);
                }
                return Some(freshness(stale));
            }
            tokio::select! {
                () = self.stop.cancelled() => return None,
                changed = self.changes.changed() => changed.ok()?,
                // Changes do not delay the probe.
                () = tokio::time::sleep_until(self.probe_at) => {
                    self.probe_at = Instant::now() + HEARTBEAT;
                    let probe = self.watched.probe(&self.cluster, &self.agent);
                    self.stop.run_until_cancelled(probe).await?;
                    if self.credentials == Credentials::Token && self.watched.is_refused() {
                        self.refused.cancel();
                        return Some(event("ended", REFUSED));
                    }
                    if self.reported == Some(self.watched.stale()) {
                        return Some(Bytes::from_static(b":\n\n"));
                    }
                    continue;
                }
            }
            tokio::time::sleep(PAUSE).await;
            if self.reported != Some(self.watched.stale()) {
                continue;
            }
            let version = self.version();
            if self.known.as_ref() != Some(&version) {
                self.known = Some(version);
                return Some(Bytes::from_static(b"event: change\ndata:\n\n"));
            }
        }
    }
}

/// Returns the message that says whether the page is current.
fn freshness(stale: Option<Stale>) -> Bytes {
    match stale {
        None => Bytes::from_static(b"retry: 2000\nevent: fresh\ndata:\n\n"),
        Some(stale) => event("stale", &stale.lines()),
    }
}

pub(super) async fn events(Extension(session): Its, uri: Uri) -> Response {
    let query = query(&uri);
    let stream = match open(&session, &query).await {
        Ok(stream) => stream,
        Err(refusal) => return refusal,
    };
    let log = log(&session, &query);
    // The session is dropped, so that the stream does not keep it alive.
    drop(session);
    answer::of_type(StatusCode::OK, STREAM, Body::from_stream(joined(stream, log).map(Ok::<_, Infallible>)))
}

/// Opens the stream of a page.
///
/// # Errors
/// Fails with the response that refuses the stream.
async fn open(session: &Session, query: &Query) -> Result<Stream, Response> {
    let open = session.connections.try_stream().map_err(no_stream)?;
    let list = match ListName::of_word(query.get("list")) {
        None => None,
        Some(name) => Some(session.list(name).ok_or_else(|| {
            let text = "Too many pages with lists are open. Reload this page later.";
            answer::message(StatusCode::TOO_MANY_REQUESTS, "Too many pages", text)
        })?),
    };
    let (watched, stop) = match &list {
        Some(list) => (Arc::clone(&list.watched), list.stop.clone()),
        None => session.followed(),
    };
    watched.settled().await;
    let kind = FleetKind::ALL.into_iter().find(|kind| kind.name() == query.get("kind"));
    let (namespace, name) = (query.get("namespace").to_owned(), query.get("name").to_owned());
    let about = match kind {
        Some(kind) => About::Object(kind, namespace, name),
        None if query.get("log-kind").is_empty() => About::Fleet,
        None => About::Other,
    };
    let changes = watched.changes();
    let is_missing = query.get("seen").parse::<u64>().is_ok_and(|seen| seen != *changes.borrow());
    Ok(Stream {
        watched,
        stop,
        about,
        changes,
        known: (!is_missing).then(String::new),
        reported: None,
        cluster: session.cluster.clone(),
        agent: session.readers.agent.clone(),
        credentials: session.credentials,
        probe_at: Instant::now() + HEARTBEAT,
        refused: CancellationToken::new(),
        _list: list,
        _open: open,
    })
}

/// Returns the messages of the log that the page follows.
fn log(session: &Session, query: &Query) -> BoxStream<'static, Bytes> {
    if query.get("log-kind").is_empty() || query.get("pod").is_empty() {
        return stream::empty().boxed();
    }
    let object = |part: &str| query.get(&format!("log-{part}")).to_owned();
    let object = Key::new(object("group"), object("kind"), Some(&*object("namespace")), object("name"));
    follow(session, Followed { object, wanted: Wanted::of(query) }).boxed()
}

/// Joins the messages of a stream with those of a log. The log ends with the stream, so that the browser opens both again.
fn joined(stream: Stream, log: BoxStream<'static, Bytes>) -> impl futures::Stream<Item = Bytes> + Send + 'static {
    let (ended, refused) = (stream.stop.clone().cancelled_owned(), stream.refused.clone().cancelled_owned());
    let messages = stream::unfold(stream, |mut stream| async move {
        let message = stream.next().await?;
        Some((message, stream))
    });
    stream::select(messages, log.take_until(refused)).take_until(ended)
}

#[cfg(test)]
mod tests {
    use http::{Request, Response as HttpResponse};

    use super::*;
    use crate::serve::row_memory::RowMemory;
    use crate::serve::session::tests::session_of;

    /// Time after which a stream counts as one that goes on. The clock is paused.
    const WITHIN: Duration = Duration::from_secs(30);

    /// Returns the messages of a stream, with a log that does not end, if the API server responds with this status.
    /// Returns `None` if the stream goes on.
    async fn messages(status: u16, credentials: Credentials) -> Option<String> {
        let service = tower::service_fn(move |_: Request<kube::client::Body>| {
            let response = HttpResponse::builder().status(status).body(Body::from("{}")).unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let session = session_of(&RowMemory::default(), kube::Client::new(service, "default"));
        let session = if credentials == Credentials::Kubeconfig { session.with_kubeconfig() } else { session };
        let stream = open(&session, &Query::parse(b"")).await.ok().unwrap();
        let all = joined(stream, stream::pending().boxed()).collect::<Vec<Bytes>>();
        let all = tokio::time::timeout(WITHIN, all).await.ok()?;
        Some(String::from_utf8(all.concat()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_and_its_log_end_with_a_message_when_the_api_server_refuses_the_token() {
        let text = messages(401, Credentials::Token).await.expect("the stream ends");
        let (_, last) = text.split_once("event: ended\n").unwrap();
        assert!(
            last.starts_with("data: the API server no longer accepts the token") && last.ends_with("\n\n"),
            "{text}"
        );
        assert_eq!(last.matches("\n\n").count(), 1, "no message follows: {text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_goes_on_while_the_token_is_accepted_or_the_api_server_does_not_say() {
        // The status 403 is about the question for the user's name.
        for status in [200, 403, 404, 503] {
            assert_eq!(messages(status, Credentials::Token).await, None, "{status}");
        }
        // The next request may have a new token of the kubeconfig.
        assert_eq!(messages(401, Credentials::Kubeconfig).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_of_the_page_do_not_delay_the_end_of_the_stream() {
        let service = tower::service_fn(|_: Request<kube::client::Body>| {
            let response = HttpResponse::builder().status(401_u16).body(Body::from("{}")).unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let session = session_of(&RowMemory::default(), kube::Client::new(service, "default"));
        let stream = open(&session, &Query::parse(b"")).await.ok().unwrap();
        let (watched, stop) = (Arc::clone(&stream.watched), stream.stop.clone());
        tokio::spawn(async move {
            while !stop.is_cancelled() {
                watched.note_change();
                tokio::time::sleep(PAUSE).await;
            }
        });
        let all = joined(stream, stream::empty().boxed()).collect::<Vec<Bytes>>();
        let all = tokio::time::timeout(WITHIN, all).await.expect("the stream ends").concat();
        assert!(String::from_utf8_lossy(&all).contains("event: ended\n"));
    }
}
