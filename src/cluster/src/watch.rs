//! Watches: a stream of the objects of a kind and selection, which never ends and never misses a change.
//!
//! A watch starts with the current objects (a streaming list with `sendInitialEvents`, or a paginated list if that
//! fails) and continues with their changes. It survives cut connections, restarted servers, expired resource versions
//! and missing permissions, and yields [`WatchEvent::Failed`] for each failed attempt.
//!
//! Invariant: after [`WatchEvent::Begin`], an object without [`WatchEvent::Initial`] or [`WatchEvent::Unreadable`]
//! before [`WatchEvent::Synced`] did not exist at the version of `Synced`.
//! Invariant: an object that cannot be parsed causes one event, and the watch continues.
//! Invariant: between two `Begin`s, every change of the selection arrives at least once, in the server's order.
//! Invariant: at most one page or one line is in memory.
//!
//! Not here: a cache of objects. `kube-runtime`'s watcher is not used. In version 5.0 on kube-apiserver 1.36, 10 000
//! ConfigMaps of 1 KiB cost it as little memory as this module (4 to 5 MiB; here 3). But one object with more than 128
//! levels makes its paginated list fail forever, and its streaming list omits the object and its name. It does not fall
//! back to a paginated list when the server refuses to stream.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use serde_json::Value;
use tokio::time::Instant;

use super::answer_limits::PAGE;
use super::connect::Cluster;
use super::count::Verb;
use super::error::{Attempt, Cause, Error, Target};
use super::kind::Kind;
use super::object::{self, Read};
use super::read::{Page, WHOLE_PAGE};
use super::refusal::Refusal;
use super::request::{Call, JSON};
use super::selection::{Content, Selection, and};
use super::version::{is_older, number};
use super::watch_decoder::{self, Decoded, Lines, Next};

use retry::{Instead, QUICK, delay, is_busy, may_be_replaced, may_list_instead};

mod retry;

pub(super) use retry::Unstreamed;

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// The server ends a watch after this time, ±10 %. The watch then resumes.
const LIFETIME: Duration = Duration::from_secs(240);
/// The connection counts as dead if the server does not end the watch within this time after the requested end.
const GRACE: Duration = Duration::from_secs(15);
/// A watch that lasted this long does not count as failed.
const LONG_ENOUGH: Duration = Duration::from_secs(10);
/// Maximum wait for the headers of a resumed watch.
const PATIENCE: Duration = Duration::from_secs(60);
/// Idle timeout of a streaming list, before the headers and between two events. API servers wait at most 3 s for a
/// lagging cache.
const STREAM_PATIENCE: Duration = Duration::from_secs(10);
/// The same for a server that needed long for a page: it is overloaded, and requests wait in its queues.
const BUSY_STREAM_PATIENCE: Duration = Duration::from_secs(60);

/// An event of a watch. Only [`Reflector`](crate::reflector) and its parts match it.
#[derive(Debug)]
pub enum WatchEvent {
    /// A new list of the current objects begins. Earlier events may be outdated.
    Begin,
    /// An object of that list.
    Initial(Value),
    /// The list is complete. Its resource version, or "" if the server did not send one.
    Synced(String),
    /// The list that is complete next is older than a version that this watch has shown before, as after a restore of
    /// the server from a backup.
    WentBack,
    /// An object was added to the selection or changed; the same state may come twice.
    Applied(Value),
    /// An object was deleted or is no longer selected. The value is its last state.
    Deleted(Value),
    /// An object exists, was added or changed, and cannot be parsed. The value contains its `apiVersion`, `kind` and
    /// `metadata` as far as they can be parsed.
    Unreadable(Value, Error),
    /// An attempt failed. The watch retries after a backoff.
    Failed(Error),
    /// The watch is open again after a failure, and no event was missed.
    Resumed,
}

impl WatchEvent {
    /// Whether a list begins.
    pub fn is_begin(&self) -> bool {
        matches!(self, Self::Begin)
    }

    /// The error of a failed attempt.
    pub fn failure(&self) -> Option<&Error> {
        match self {
            Self::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// Turns an object that cannot be parsed into a normal one, for consumers that read only metadata.
    #[must_use]
    pub fn by_metadata(self) -> Self {
        match self {
            Self::Unreadable(live, _) => Self::Applied(live),
            event => event,
        }
    }
}

impl Cluster {
    /// Watches a selection of a kind until the stream is dropped. If the selection is for metadata only, objects are
    /// `PartialObjectMetadata`. No request is sent before the stream is polled.
    pub fn watch(&self, kind: &Arc<Kind>, selection: Selection) -> BoxStream<'static, WatchEvent> {
        match <[Selection; 1]>::try_from(self.scoped(kind, selection)) {
            Ok([selection]) => self.watch_one(kind, selection),
            Err(selections) => {
                let (cluster, kind) = (self.clone(), Arc::clone(kind));
                Self::merged(selections.len(), move |at| cluster.watch_in(&kind, selections[at].clone()))
            }
        }
    }

    pub(super) fn watch_one(&self, kind: &Arc<Kind>, selection: Selection) -> BoxStream<'static, WatchEvent> {
        let watcher = Watcher {
            cluster: self.clone(),
            kind: Arc::clone(kind),
            selection,
            state: State::Fresh,
            delay: None,
            failures: 0,
            expired: 0,
            lost: false,
            instead: None,
            patience: STREAM_PATIENCE,
            failing: false,
            listed: 0,
            newest: None,
            then: None,
        };
        stream::unfold(watcher, |mut watcher| async move { Some((watcher.next().await, watcher)) }).boxed()
    }
}

struct Watcher {
    cluster: Cluster,
    kind: Arc<Kind>,
    selection: Selection,
    state: State,
    /// Delay before the next attempt.
    delay: Option<Duration>,
    /// Consecutive failed attempts.
    failures: u32,
    /// Number of lists that expired since the last complete list.
    expired: u32,
    /// Whether the connection was lost or the server failed since the last event. The server may have been replaced by
    /// one with a different history.
    lost: bool,
    /// Why the next list is paginated; `None` if it is streamed.
    instead: Option<Instead>,
    /// Idle timeout of streaming lists.
    patience: Duration,
    /// Whether a failure was yielded, and no event since then.
    failing: bool,
    /// Number of objects and pages of the current list.
    listed: usize,
    /// The newest version of the last complete list and of the events and bookmarks after it.
    newest: Option<u64>,
    /// The event after the one that was yielded last.
    then: Option<WatchEvent>,
}

#[derive(Default)]
enum State {
    /// A new list has to begin.
    #[default]
    Fresh,
    /// `Begin` was yielded, and no list was requested yet.
    Announced,
    /// A paginated list is in progress.
    Pages(Page),
    /// The list is complete; the watch continues after this version.
    After(String),
    /// A watch is open.
    Open(Open),
}

struct Open {
    lines: Lines,
    /// The version of the last event.
    version: String,
    /// Whether the initial list is complete.
    synced: bool,
    since: Instant,
    deadline: Instant,
    received: bool,
}

impl Open {
    /// The state to continue from after the watch has ended.
    fn after(self) -> State {
        if self.synced { State::After(self.version) } else { State::Fresh }
    }
}

impl Watcher {
    async fn next(&mut self) -> WatchEvent {
        if let Some(event) = self.then.take() {
            return event;
        }
        loop {
            if let Some(pause) = self.delay.take() {
                tokio::time::sleep(pause).await;
            }
            let event = match std::mem::take(&mut self.state) {
                State::Fresh => {
                    self.state = State::Announced;
                    self.listed = 0;
                    Some(WatchEvent::Begin)
                }
                State::Announced => self.begin().await,
                State::Pages(page) => self.next_in_page(page).await,
                State::After(version) => self.resume(version).await,
                State::Open(open) => self.read_event(open).await,
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// Opens a streaming list or begins a paginated one.
    async fn begin(&mut self) -> Option<WatchEvent> {
        self.state = State::Pages(first_page());
        if self.instead.is_some() || self.cluster.0.unstreamed.contains(&self.kind) {
            return None;
        }
        match self.open(None).await {
            Ok(open) => {
                self.state = State::Open(open);
                None
            }
            Err(error) if may_list_instead(&error) => self.list_instead(error),
            Err(error) => {
                self.state = State::Announced;
                Some(self.fail(error))
            }
        }
    }

    /// Falls back to a paginated list, immediately unless the server is overloaded.
    fn list_instead(&mut self, error: Error) -> Option<WatchEvent> {
        tracing::debug!(resource = %self.kind.resource, error = mainstay_object::failure::chain(&error), "the streaming list failed");
        self.instead = Some(Instead::of(&error));
        error.refusal().is_some_and(is_busy).then(|| self.fail(error))
    }

    /// Counts objects or pages (`more`) of a list. Returns a failure if the list exceeds the limit.
    fn listed(&mut self, more: usize) -> Option<WatchEvent> {
        self.listed += more;
        let cause = self.cluster.0.limits.check_list(self.listed).err()?;
        self.state = State::Fresh;
        Some(self.fail(self.call(Attempt::List).failed(cause)))
    }

    /// Yields the next object of the page, or requests the next page.
    async fn next_in_page(&mut self, mut page: Page) -> Option<WatchEvent> {
        if let Some(endless) = self.listed(if page.items.is_empty() { PAGE } else { 1 }) {
            return Some(endless);
        }
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
                // The name of the object is unknown, so the list would be incomplete.
                Err(error) => {
                    self.state = State::Announced;
                    self.fail(self.call(Attempt::List).failed(error))
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
                self.read_page(page, next.is_empty());
                None
            }
            Err(error) if error.is_expired() => {
                self.expired();
                None
            }
            Err(error) => {
                let begins = next.is_empty();
                self.state = if begins { State::Announced } else { State::Pages(page) };
                self.instead = self.instead.filter(|_| !begins);
                Some(self.fail(error))
            }
        }
    }

    /// Continues with a page.
    fn read_page(&mut self, page: Page, is_first: bool) {
        let (is_quick, is_silent) = (page.took <= QUICK, self.instead == Some(Instead::Silent));
        if is_silent && !is_quick && is_first && page.next.is_some() && self.patience < BUSY_STREAM_PATIENCE {
            // The server is overloaded, and all pages would cost it more than a stream.
            (self.instead, self.patience) = (None, BUSY_STREAM_PATIENCE);
            self.state = State::Announced;
            return;
        }
        // The paginated list works, so only streaming lists fail for this kind.
        let is_for_ever = match self.instead {
            Some(Instead::Refused) => true,
            Some(Instead::Silent) => is_first && is_quick,
            Some(Instead::Busy) | None => false,
        };
        if is_for_ever {
            self.cluster.0.unstreamed.insert(&self.kind);
        }
        self.failures = 0;
        self.state = State::Pages(page);
    }

    /// Opens a watch that continues after the last version.
    async fn resume(&mut self, version: String) -> Option<WatchEvent> {
        if self.lost {
            match self.went_back(&version).await {
                Ok(false) => self.lost = false,
                Ok(true) => {
                    self.lost = false;
                    self.expired();
                    return None;
                }
                Err(error) => {
                    self.state = State::After(version);
                    return Some(self.fail(error));
                }
            }
        }
        match self.open(Some(&version)).await {
            Ok(open) => {
                self.state = State::Open(open);
                std::mem::take(&mut self.failing).then_some(WatchEvent::Resumed)
            }
            Err(error) if error.is_expired() => {
                self.expired();
                None
            }
            Err(error) => {
                // A kind that was deleted and recreated has a different history.
                self.state = if error.is_not_found() { State::Fresh } else { State::After(version) };
                Some(self.fail(error))
            }
        }
    }

    /// Whether the server's version is older than the last seen one, as after a restore from a backup. A watch from the
    /// last seen version would then show no events.
    async fn went_back(&mut self, version: &str) -> Result<bool, Error> {
        let anything = self.selection.without_selectors().metadata_only();
        match self.cluster.page(&self.kind, &anything, "", 1).await {
            Ok(page) => Ok(is_older(&page.version, number(version))),
            Err(error) if may_be_replaced(&error) => Err(error),
            // The watch would fail in the same way and return the error.
            Err(_) => Ok(false),
        }
    }

    /// Reads one event of an open watch.
    async fn read_event(&mut self, mut open: Open) -> Option<WatchEvent> {
        let deadline = if open.synced { open.deadline } else { open.deadline.min(Instant::now() + self.patience) };
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
                tracing::debug!(resource = %self.kind.resource, cause = %cause, "the watch failed");
                self.lost = true;
                let telling = self.call(Attempt::Watch).failed(cause);
                self.ended(open);
                // A cut connection is normal. It yields a failure only if several reconnects fail.
                return (self.failures >= 3).then(|| self.fail(telling));
            }
        };
        let line = match watch_decoder::decode(&self.kind.key(None, ""), &line) {
            Ok(line) => line,
            Err(error) => {
                // An event is lost, so the objects are listed again.
                self.state = State::Fresh;
                return Some(self.fail(self.call(Attempt::Watch).failed(error)));
            }
        };
        if let Decoded::Refused(refusal) = line {
            return self.refused(open, refusal);
        }
        open.received = true;
        let initial = !open.synced;
        if initial && let Some(endless) = self.listed(1) {
            return Some(endless);
        }
        if !initial {
            // An incomplete list may fail at the same object again, so it does not reset the backoff.
            self.failures = 0;
        }
        let (event, version) = match line {
            Decoded::Applied { object, version } if initial => (Some(WatchEvent::Initial(object)), version),
            Decoded::Applied { object, version } => (Some(WatchEvent::Applied(object)), version),
            Decoded::Unreadable { object, version, cause } => (Some(self.unreadable(object, cause)), version),
            Decoded::Deleted { object, version } => (Some(WatchEvent::Deleted(object)), version),
            Decoded::Bookmark { version, ends_initial } if ends_initial && initial => {
                open.synced = true;
                (Some(self.synced(version.clone())), version)
            }
            Decoded::Bookmark { version, .. } => (None, version),
            Decoded::Refused(_) | Decoded::Unknown => (None, String::new()),
        };
        if !version.is_empty() {
            self.newest = self.newest.max(number(&version).filter(|_| !initial));
            open.version = version;
        }
        self.state = State::Open(open);
        event
    }

    /// Handles the end of a watch without an error. A watch that ended immediately is retried after a delay.
    fn ended(&mut self, open: Open) {
        if !open.synced {
            // The first time may be a coincidence.
            if self.expired > 0 {
                self.instead = Some(Instead::Refused);
            }
            self.expired();
            return;
        }
        if open.received || open.since.elapsed() >= LONG_ENOUGH {
            self.failures = 0;
        } else {
            self.failures += 1;
            self.delay = Some(delay(self.failures, None, fastrand::f64()));
        }
        self.state = open.after();
    }

    /// Handles an error event of the server.
    fn refused(&mut self, open: Open, refusal: Refusal) -> Option<WatchEvent> {
        if !open.synced {
            self.state = State::Fresh;
            return self.list_instead(self.call(Attempt::Watch).failed(refusal));
        }
        if refusal.code == 410 {
            self.expired();
            return None;
        }
        self.state = open.after();
        Some(self.fail(self.call(Attempt::Watch).failed(refusal)))
    }

    fn synced(&mut self, version: String) -> WatchEvent {
        (self.failures, self.expired, self.lost, self.failing) = (0, 0, false, false);
        // The next list is streamed unless the kind is recorded as not streamable.
        (self.instead, self.patience) = (None, STREAM_PATIENCE);
        let went_back = is_older(&version, self.newest);
        self.newest = number(&version).or(self.newest);
        let synced = WatchEvent::Synced(version);
        if !went_back {
            return synced;
        }
        self.then = Some(synced);
        WatchEvent::WentBack
    }

    /// Lists again after an expired version or list snapshot; immediately the first time.
    fn expired(&mut self) {
        if self.expired > 0 {
            self.delay = Some(delay(self.expired, None, fastrand::f64()));
        }
        self.expired += 1;
        self.state = State::Fresh;
    }

    /// Returns the event of an object that cannot be parsed. The watch continues.
    fn unreadable(&self, object: Value, cause: Cause) -> WatchEvent {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        let name = text("/metadata/name").unwrap_or_default();
        let key = self.kind.key(text("/metadata/namespace"), name);
        WatchEvent::Unreadable(object, Error::new(Attempt::Read, Target::Object(key), cause))
    }

    fn fail(&mut self, error: Error) -> WatchEvent {
        self.failures += 1;
        self.failing = true;
        self.lost |= may_be_replaced(&error);
        self.delay = Some(delay(self.failures, error.refusal(), fastrand::f64()));
        WatchEvent::Failed(error)
    }

    fn call(&self, attempt: Attempt) -> Call {
        let path = self.selection.path(&self.kind);
        let mut call = Call::collection(attempt, Verb::Watch, &self.kind, self.selection.namespace(), path);
        call.accept = if self.selection.content() == Content::Metadata { METADATA } else { JSON };
        call
    }

    /// Opens a watch after this version, or a streaming list if there is none.
    async fn open(&mut self, after: Option<&str>) -> Result<Open, Error> {
        let lifetime = mainstay_object::failure::jitter(LIFETIME, fastrand::f64());
        let mut call = self.call(Attempt::Watch);
        and(&mut call.path, "watch", "true");
        and(&mut call.path, "allowWatchBookmarks", "true");
        and(&mut call.path, "timeoutSeconds", &lifetime.as_secs().to_string());
        if let Some(version) = after {
            and(&mut call.path, "resourceVersion", version);
        } else {
            // Without a resourceVersion, the list is at least as new as the request. Otherwise it may be as old as the
            // server's cache.
            and(&mut call.path, "sendInitialEvents", "true");
            and(&mut call.path, "resourceVersionMatch", "NotOlderThan");
        }
        let patience = if after.is_some() { PATIENCE } else { self.patience };
        let Ok(response) = tokio::time::timeout(patience, self.cluster.open(&call)).await else {
            return Err(call.failed(Cause::TimedOut(patience)));
        };
        let since = Instant::now();
        Ok(Open {
            lines: Lines::new(response?.into_body(), self.cluster.0.limits),
            version: after.unwrap_or_default().to_owned(),
            synced: after.is_some(),
            since,
            deadline: since + lifetime + GRACE,
            received: false,
        })
    }
}

fn first_page() -> Page {
    Page {
        items: std::collections::VecDeque::new(),
        next: Some(String::new()),
        version: String::new(),
        limit: WHOLE_PAGE,
        took: Duration::ZERO,
    }
}

#[cfg(test)]
mod tests;
