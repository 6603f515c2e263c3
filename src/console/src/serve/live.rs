//! The stream that reports when a page has to be read again. It can also deliver the lines of a log.
//!
//! Not here: the changes themselves. The browser reads the page again, with the same checks as for the first read.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{StatusCode, Uri};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::answer;
use super::connection_permits::{ConnectionPermit, no_stream};
use super::follow::{Followed, event, follow};
use super::lists::{List, ListName};
use super::log::Wanted;
use super::pages::query;
use super::session::Its;
use super::watched::Watched;
use crate::freshness::{AgentReader, Stale};
use crate::row::FleetKind;
use mainstay_cluster::Cluster;
use mainstay_object::Key;

/// Changes within this time become one message.
const PAUSE: Duration = Duration::from_millis(200);
/// Interval of probes, and of messages without content, which show that the connection works.
const HEARTBEAT: Duration = Duration::from_secs(10);

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

    /// Waits for the next message; `None` at the end of the session.
    async fn next(&mut self) -> Option<Bytes> {
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
                () = tokio::time::sleep(HEARTBEAT) => {
                    let probe = self.watched.probe(&self.cluster, &self.agent);
                    self.stop.run_until_cancelled(probe).await?;
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
    let open = match session.connections.try_stream() {
        Ok(open) => open,
        Err(full) => return no_stream(full),
    };
    let query = query(&uri);
    let list = match ListName::of_word(query.get("list")) {
        None => None,
        Some(name) => {
            let Some(list) = session.list(name) else {
                let text = "Too many pages with lists are open. Reload this page later.";
                return answer::message(StatusCode::TOO_MANY_REQUESTS, "Too many pages", text);
            };
            Some(list)
        }
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
    let known = (!is_missing).then(String::new);
    let log = if query.get("log-kind").is_empty() || query.get("pod").is_empty() {
        stream::empty().boxed()
    } else {
        let object = |part: &str| query.get(&format!("log-{part}")).to_owned();
        let object = Key::new(object("group"), object("kind"), Some(&*object("namespace")), object("name"));
        follow(&session, Followed { object, wanted: Wanted::of(&query) }).boxed()
    };
    // The log ends with the other messages, so that the browser opens the stream again.
    let ended = stop.clone().cancelled_owned();
    // The session is dropped, so that the stream does not keep it alive.
    let (cluster, agent) = (session.cluster.clone(), session.readers.agent.clone());
    drop(session);
    let stream =
        Stream { watched, stop, about, changes, known, reported: None, cluster, agent, _list: list, _open: open };
    let messages = stream::unfold(stream, |mut stream| async move {
        let message = stream.next().await?;
        Some((message, stream))
    });
    let all = stream::select(messages, log).take_until(ended).map(Ok::<_, Infallible>);
    answer::of_type(StatusCode::OK, STREAM, Body::from_stream(all))
}
