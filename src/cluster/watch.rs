//! Watching: a kind and a selection become a stream that never ends by itself and never loses a change.
//!
//! A watch begins with what is there (a streaming list, `sendInitialEvents`; where that fails, a list in small pages at
//! once) and goes on with what changes. It survives cut connections, restarted servers, forgotten history and missing
//! permissions, and says [`WatchEvent::Trouble`] for each attempt that fails.
//!
//! Invariant: after [`WatchEvent::Begin`], what was neither [`WatchEvent::Initial`] nor [`WatchEvent::Unreadable`] by
//! [`WatchEvent::Synced`] was not there at the version that it names.
//! Invariant: one object that cannot be read costs one event, not the watch.
//! Invariant: between two `Begin`s every change of the selection arrives at least once, in the server's order.
//! Invariant: at most one page or one line is held.
//! Deliberately absent: any memory of objects.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use serde_json::Value;
use tokio::time::Instant;

use super::connect::Cluster;
use super::count::Verb;
use super::error::{Attempt, Cause, Error, Subject};
use super::kind::Kind;
use super::line::{self, Line, Lines, Next};
use super::object::{self, Read};
use super::read::{Page, WHOLE_PAGE};
use super::refusal::Refusal;
use super::request::{Call, JSON};
use super::selection::{Content, Selection, and};

use setback::{is_busy, lists_instead, pause};

mod setback;

pub(super) use setback::Unstreamed;

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// After how many seconds the server is asked to end a watch, which then resumes: ± 10 %.
const LIFETIME: Duration = Duration::from_secs(240);
/// How much later than it promised the server may end it before the connection counts as dead.
const GRACE: Duration = Duration::from_secs(15);
/// A watch that lived this long was no failure.
const LONG_ENOUGH: Duration = Duration::from_secs(10);
/// Longest silence before the headers of a watch that is resumed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest silence of a streaming list, before the headers and between two events: API servers give up after 3 s to wait
/// for a cache that is behind.
const STREAM_PATIENCE: Duration = Duration::from_secs(10);

/// What a watch tells.
#[derive(Debug)]
pub enum WatchEvent {
    /// A fresh account of what is there begins; whatever was heard before may be out of date.
    Begin,
    /// This object is there.
    Initial(Value),
    /// All that was there at one moment has been told. The resource version of that moment, or "" where the server did
    /// not say it.
    Synced(String),
    /// This object was added to the selection or was changed; the same state may come twice.
    Applied(Value),
    /// This object was deleted or left the selection; its state is the last one inside.
    Deleted(Value),
    /// This object is there, was added or was changed, and cannot be read: its `apiVersion`, `kind` and `metadata` as far
    /// as they can be. All others are told as ever.
    Unreadable(Value, Error),
    /// An attempt failed; the watch goes on by itself after a while.
    Trouble(Error),
    /// After a trouble the watch is open again where it was, and has nothing to tell.
    Resumed,
}

impl Cluster {
    /// Watches a selection of a kind for as long as the stream is held. With [`Content::Metadata`] the objects are
    /// `PartialObjectMetadata`. Nothing is asked before the stream is polled.
    pub fn watch(&self, kind: &Arc<Kind>, selection: Selection) -> BoxStream<'static, WatchEvent> {
        let watcher = Watcher {
            cluster: self.clone(),
            kind: Arc::clone(kind),
            selection,
            state: State::Fresh,
            pause: None,
            failures: 0,
            expired: 0,
            lost: false,
            lists_instead: false,
            troubled: false,
        };
        stream::unfold(watcher, |mut watcher| async move { Some((watcher.next().await, watcher)) }).boxed()
    }
}

struct Watcher {
    cluster: Cluster,
    kind: Arc<Kind>,
    selection: Selection,
    state: State,
    /// How long to wait before going on.
    pause: Option<Duration>,
    /// Failed attempts in a row.
    failures: u32,
    /// Accounts that were begun anew since the last complete one.
    expired: u32,
    /// The connection was lost since the last event: the server may have been replaced by one with another history.
    lost: bool,
    /// The streaming list has just failed: the next account comes in pages.
    lists_instead: bool,
    /// A trouble was told, and since then nothing that says that it is over.
    troubled: bool,
}

#[derive(Default)]
enum State {
    /// A fresh account is to begin.
    #[default]
    Fresh,
    /// It was announced; nothing of it is known.
    Announced,
    /// It comes in pages.
    Pages(Page),
    /// It is complete; what happened after this version is wanted.
    After(String),
    /// A watch is open.
    Open(Open),
}

struct Open {
    lines: Lines,
    /// Version up to which everything was told.
    version: String,
    /// The account is complete.
    synced: bool,
    since: Instant,
    deadline: Instant,
    heard: bool,
}

impl Open {
    /// Where to go on after it has ended.
    fn after(self) -> State {
        if self.synced { State::After(self.version) } else { State::Fresh }
    }
}

impl Watcher {
    async fn next(&mut self) -> WatchEvent {
        loop {
            if let Some(pause) = self.pause.take() {
                tokio::time::sleep(pause).await;
            }
            let event = match std::mem::take(&mut self.state) {
                State::Fresh => {
                    self.state = State::Announced;
                    Some(WatchEvent::Begin)
                }
                State::Announced => self.begin().await,
                State::Pages(page) => self.turn(page).await,
                State::After(version) => self.resume(version).await,
                State::Open(open) => self.hear(open).await,
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// Opens a watch that tells what is there first, or turns to pages.
    async fn begin(&mut self) -> Option<WatchEvent> {
        self.state = State::Pages(first_page());
        if self.lists_instead || self.cluster.0.unstreamed.contains(&self.kind) {
            return None;
        }
        match self.open(None).await {
            Ok(open) => {
                self.state = State::Open(open);
                None
            }
            Err(error) if lists_instead(&error) => self.list_instead(error),
            Err(error) => {
                self.state = State::Announced;
                Some(self.trouble(error))
            }
        }
    }

    /// A streaming list failed: a list comes next, at once unless the server wants to be left alone.
    fn list_instead(&mut self, error: Error) -> Option<WatchEvent> {
        tracing::debug!(resource = %self.kind.resource, error = crate::failure::chain(&error), "no streaming list");
        self.lists_instead = true;
        error.refusal().is_some_and(is_busy).then(|| self.trouble(error))
    }

    /// Tells the next object of a page, or turns the page.
    async fn turn(&mut self, mut page: Page) -> Option<WatchEvent> {
        if let Some(item) = page.items.pop_front() {
            return Some(match object::read_item(&self.kind, item.get()) {
                Ok(Read::Whole(object)) => {
                    self.state = State::Pages(page);
                    WatchEvent::Initial(object)
                }
                Ok(Read::Identity(object, error)) => {
                    self.state = State::Pages(page);
                    self.unreadable(object, error.into())
                }
                // Not even its name is known, so the account could not be complete.
                Err(error) => {
                    self.state = State::Announced;
                    self.trouble(self.call(Attempt::List).failed(error))
                }
            });
        }
        let Some(next) = page.next.clone() else {
            let synced = self.synced(page.version.clone());
            self.state = State::After(page.version);
            return Some(synced);
        };
        match self.cluster.page(&self.kind, &self.selection, &next, page.limit).await {
            Ok(page) => {
                // Only now it is certain that the failure was not about the kind, the selection or the server as such.
                self.cluster.0.unstreamed.insert(&self.kind);
                self.failures = 0;
                self.state = State::Pages(page);
                None
            }
            Err(error) if error.is_expired() => {
                self.forgotten();
                None
            }
            Err(error) => {
                let begins = next.is_empty();
                self.state = if begins { State::Announced } else { State::Pages(page) };
                self.lists_instead &= !begins;
                Some(self.trouble(error))
            }
        }
    }

    /// Opens a watch that goes on where the last one ended.
    async fn resume(&mut self, version: String) -> Option<WatchEvent> {
        if self.lost {
            match self.went_back(&version).await {
                Ok(false) => self.lost = false,
                Ok(true) => {
                    self.lost = false;
                    self.forgotten();
                    return None;
                }
                Err(error) => {
                    self.state = State::After(version);
                    return Some(self.trouble(error));
                }
            }
        }
        match self.open(Some(&version)).await {
            Ok(open) => {
                self.state = State::Open(open);
                std::mem::take(&mut self.troubled).then_some(WatchEvent::Resumed)
            }
            Err(error) if error.is_expired() => {
                self.forgotten();
                None
            }
            Err(error) => {
                // A kind that went and came back has another history.
                self.state = if error.is_not_found() { State::Fresh } else { State::After(version) };
                Some(self.trouble(error))
            }
        }
    }

    /// Whether the server is at an older version than we are: it was restored from a backup, or it is another one.
    /// Asking it for what happened after our version would be answered with silence.
    async fn went_back(&mut self, version: &str) -> Result<bool, Error> {
        let anything = Selection {
            namespace: self.selection.namespace.clone(),
            content: Content::Metadata,
            ..Selection::default()
        };
        match self.cluster.page(&self.kind, &anything, "", 1).await {
            Ok(page) => Ok(match (page.version.parse::<u64>(), version.parse::<u64>()) {
                (Ok(theirs), Ok(ours)) => theirs < ours,
                _ => false,
            }),
            // The watch will be answered the same, and its answer is the one that counts.
            Err(error) if error.refusal().is_some() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads one line of an open watch.
    async fn hear(&mut self, mut open: Open) -> Option<WatchEvent> {
        let deadline = if open.synced { open.deadline } else { open.deadline.min(Instant::now() + STREAM_PATIENCE) };
        let line = match open.lines.next(deadline).await {
            Next::Line(line) => line,
            Next::End => {
                self.ended(open);
                return None;
            }
            Next::Cut(cause @ Cause::TimedOut(_)) if !open.synced => {
                self.state = State::Fresh;
                return self.list_instead(self.call(Attempt::Watch).failed(cause));
            }
            Next::Cut(cause) => {
                tracing::debug!(resource = %self.kind.resource, cause = %cause, "watch was cut");
                self.lost = true;
                let telling = self.call(Attempt::Watch).failed(cause);
                self.ended(open);
                // Connections break; only when nothing comes through any more it is worth telling.
                return (self.failures >= 3).then(|| self.trouble(telling));
            }
        };
        let line = match line::read(&self.kind.key(None, ""), &line) {
            Ok(line) => line,
            Err(error) => {
                // What it said is lost, so everything after the last version must be told anew.
                self.state = State::Fresh;
                return Some(self.trouble(self.call(Attempt::Watch).failed(error)));
            }
        };
        if let Line::Refused(refusal) = line {
            return self.refused(open, refusal);
        }
        open.heard = true;
        let initial = !open.synced;
        if !initial {
            // An account that is not complete may yet break off where the last one did.
            self.failures = 0;
        }
        let (event, version) = match line {
            Line::Applied { object, version } if initial => (Some(WatchEvent::Initial(object)), version),
            Line::Applied { object, version } => (Some(WatchEvent::Applied(object)), version),
            Line::Unreadable { object, version, cause } => (Some(self.unreadable(object, cause)), version),
            Line::Deleted { object, version } => (Some(WatchEvent::Deleted(object)), version),
            Line::Bookmark { version, ends_initial } if ends_initial && initial => {
                open.synced = true;
                (Some(self.synced(version.clone())), version)
            }
            Line::Bookmark { version, .. } => (None, version),
            Line::Refused(_) | Line::Unknown => (None, String::new()),
        };
        if !version.is_empty() {
            open.version = version;
        }
        self.state = State::Open(open);
        event
    }

    /// A watch has ended without a word. One that ended at once is followed by a pause: whoever ends every watch at once
    /// must not be asked in a tight loop.
    fn ended(&mut self, open: Open) {
        if !open.synced {
            // Once is an accident.
            self.lists_instead |= self.expired > 0;
            self.forgotten();
            return;
        }
        if open.heard || open.since.elapsed() >= LONG_ENOUGH {
            self.failures = 0;
        } else {
            self.failures += 1;
            self.pause = Some(pause(self.failures, None, fastrand::f64()));
        }
        self.state = open.after();
    }

    /// The server ended the watch with an error event.
    fn refused(&mut self, open: Open, refusal: Refusal) -> Option<WatchEvent> {
        if !open.synced {
            self.state = State::Fresh;
            return self.list_instead(self.call(Attempt::Watch).failed(refusal));
        }
        if refusal.code == 410 {
            self.forgotten();
            return None;
        }
        self.state = open.after();
        Some(self.trouble(self.call(Attempt::Watch).failed(refusal)))
    }

    fn synced(&mut self, version: String) -> WatchEvent {
        (self.failures, self.expired, self.lost, self.troubled) = (0, 0, false, false);
        WatchEvent::Synced(version)
    }

    /// The history or snapshot is gone, or an account broke off: begin anew, at once the first time.
    fn forgotten(&mut self) {
        if self.expired > 0 {
            self.pause = Some(pause(self.expired, None, fastrand::f64()));
        }
        self.expired += 1;
        self.state = State::Fresh;
    }

    /// Nothing is wrong with the watch, so it goes on without a pause.
    fn unreadable(&self, object: Value, cause: Cause) -> WatchEvent {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        let name = text("/metadata/name").unwrap_or_default();
        let key = self.kind.key(text("/metadata/namespace"), name);
        WatchEvent::Unreadable(object, Error::new(Attempt::Read, Subject::Object(key), cause))
    }

    fn trouble(&mut self, error: Error) -> WatchEvent {
        self.failures += 1;
        self.troubled = true;
        self.lost |= error.refusal().is_none();
        self.pause = Some(pause(self.failures, error.refusal(), fastrand::f64()));
        WatchEvent::Trouble(error)
    }

    fn call(&self, attempt: Attempt) -> Call {
        let path = self.selection.path(&self.kind);
        let mut call = Call::collection(attempt, Verb::Watch, &self.kind, self.selection.namespace.as_deref(), path);
        call.accept = if self.selection.content == Content::Metadata { METADATA } else { JSON };
        call
    }

    /// Opens a watch after this version, or with what is there first.
    async fn open(&mut self, after: Option<&str>) -> Result<Open, Error> {
        let lifetime = crate::failure::jitter(LIFETIME, fastrand::f64());
        let mut call = self.call(Attempt::Watch);
        and(&mut call.path, "watch", "true");
        and(&mut call.path, "allowWatchBookmarks", "true");
        and(&mut call.path, "timeoutSeconds", &lifetime.as_secs().to_string());
        if let Some(version) = after {
            and(&mut call.path, "resourceVersion", version);
        } else {
            // Without a resourceVersion: at least as new as this request, not just whatever is cached.
            and(&mut call.path, "sendInitialEvents", "true");
            and(&mut call.path, "resourceVersionMatch", "NotOlderThan");
        }
        let patience = if after.is_some() { PATIENCE } else { STREAM_PATIENCE };
        let Ok(response) = tokio::time::timeout(patience, self.cluster.open(&call)).await else {
            return Err(call.failed(Cause::TimedOut(patience)));
        };
        let since = Instant::now();
        Ok(Open {
            lines: Lines::new(response?.into_body()),
            version: after.unwrap_or_default().to_owned(),
            synced: after.is_some(),
            since,
            deadline: since + lifetime + GRACE,
            heard: false,
        })
    }
}

fn first_page() -> Page {
    Page {
        items: std::collections::VecDeque::new(),
        next: Some(String::new()),
        version: String::new(),
        limit: WHOLE_PAGE,
    }
}

#[cfg(test)]
mod tests;
