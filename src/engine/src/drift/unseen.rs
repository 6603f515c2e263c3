//! Lists for managed objects that no watch has shown yet, beside the watch of their kind.
//!
//! An object that this agent takes over existed before, so the watch may never show it. The same holds for an object
//! whose owner's policy has changed: the watch showed it while its changes were ignored. A list of the kind shows it. The
//! watch goes on meanwhile, and continues to show the other objects.
//!
//! Invariant: a list is repeated with a backoff until it shows all awaited objects or is complete. It succeeds in no
//! other way. Each kind has its own lists, one at a time, so one that fails does not delay those of other kinds.
//! Invariant: a list that began is not begun again. A request during a list causes one more list after it. Otherwise the
//! start of hundreds of GitSyncs would begin a list each, and none would end.
//! Invariant: after [`IN_A_ROW`] lists without a break, the pause after a list is as long as the list, up to
//! [`LONGEST_PAUSE`].
//! Invariant: a list that fails or gets stuck ends, so that the next one lists other objects.
//! Invariant: an agent that is limited to namespaces lists one namespace at a time. A namespace that rejects its lists does
//! not delay those of the others.
//! Invariant: an event of the watch ends the wait for its object. The list may be older than the event.
//! Invariant: a failed list delays the next ones only until the watch works, which proves that the kind is served.
//! Invariant: an object that a list of one label value lacks may exist with another value, so it counts as unseen.
//! Invariant: a list shows only objects that were managed before it was requested. Any other object may have changed
//! after the list, while the watch ignored its changes.
//!
//! Not here: the watch (`watch`), and the set of unseen objects (`managed`).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout_at};

use mainstay_api::names::SYNC_LABEL;
use mainstay_cluster::reflector::{Delta, Shown};
use mainstay_cluster::{Cluster, Error, Kind, Selection, WatchEvent};
use mainstay_object::Key;
use mainstay_object::failure::{Backoff, chain};

/// Time during which requests for a list are merged into one.
pub(super) const GATHER: Duration = Duration::from_millis(100);
/// Longest pause after one of the first lists in a row. GitSyncs that are taken over together need several lists, and
/// their objects are unprotected meanwhile.
const SHORT_PAUSE: Duration = Duration::from_millis(500);
/// Number of lists in a row with a short pause.
const IN_A_ROW: u32 = 4;
/// Longest pause after a later list.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Time without a list after which the next one is the first in a row.
const BREAK: Duration = Duration::from_secs(15);
/// Maximum time between two events of a list.
const IDLE: Duration = Duration::from_secs(60);
/// Maximum number of times that a list begins again because the server ended it.
const BEGINNINGS: u32 = 3;
/// Maximum `Retry-After` that is respected after a failed list. One request of each kind costs the server little, and the
/// objects are unprotected meanwhile.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// Minimum delay after a missing permission or a missing kind. Once it exists, the watch shows the objects.
const UNSERVED: Duration = Duration::from_secs(300);
/// Delay after a failed list.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), LONGEST_RETRY);

/// The lists of one kind, one after the other.
pub(super) struct Lists {
    kind: Arc<Kind>,
    running: Option<Running>,
    /// When the requested list begins.
    due: Option<Instant>,
    /// The end of the pause after the last list.
    not_before: Option<Instant>,
    /// The end of the last list.
    ended: Option<Instant>,
    /// Number of lists in a row.
    in_a_row: u32,
    /// Number of consecutive failed lists of all namespaces.
    failures: u32,
    /// The namespaces whose last list failed, if the agent is limited to namespaces.
    refused: BTreeMap<Arc<str>, Refused>,
    /// The namespace of the last list, if the agent is limited to namespaces.
    last: Option<Arc<str>>,
}

/// The failed lists of a namespace.
struct Refused {
    /// Number of consecutive failed lists.
    failures: u32,
    /// When the next list may begin.
    not_before: Instant,
}

/// A list in progress.
struct Running {
    events: BoxStream<'static, WatchEvent>,
    /// The namespace, if the agent is limited to namespaces.
    namespace: Option<Arc<str>>,
    /// Whether only objects with one label value are listed.
    is_filtered: bool,
    shown: Shown<Key>,
    /// The objects that the list has not shown yet.
    awaited: HashSet<Key>,
    begun: Instant,
    /// The list fails at this time, unless there is an event.
    deadline: Instant,
    /// Number of times that the list has begun.
    beginnings: u32,
}

/// The next step of the lists.
pub(super) enum Step {
    /// A list is due. The caller [begins](Lists::begin) it.
    Due,
    /// The state of an awaited object.
    Listed(Key, Value),
    /// An awaited object exists but cannot be parsed.
    Unreadable(Key, Value, Error),
    /// The list is complete at this version, and lacks these objects. A filtered list contains only objects with one
    /// label value, so they may exist with another one.
    Missing { keys: HashSet<Key>, version: String, is_filtered: bool },
    /// The list failed for this reason, as the given number in a row, and another one is due after a delay.
    Failed(String, u32),
}

impl Lists {
    pub(super) fn new(kind: &Arc<Kind>) -> Self {
        Self {
            kind: Arc::clone(kind),
            running: None,
            due: None,
            not_before: None,
            ended: None,
            in_a_row: 0,
            failures: 0,
            refused: BTreeMap::new(),
            last: None,
        }
    }

    /// Requests a list.
    pub(super) fn request(&mut self) {
        let soon = Instant::now() + GATHER;
        let next = self.not_before.map_or(soon, |end| end.max(soon));
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
    }

    /// Begins a list for these objects; none without objects. If all are in one namespace, only that one is listed. If all
    /// have the same `label` value, only objects with this value are listed.
    pub(super) fn begin(&mut self, cluster: &Cluster, awaited: HashSet<Key>, label: Option<&str>) {
        let all =
            label.map_or_else(|| Selection::with_label(SYNC_LABEL), |label| Selection::labelled(SYNC_LABEL, label));
        if cluster.is_limited() && self.kind.namespaced {
            let kind = Arc::clone(&self.kind);
            self.begin_in_one(awaited, |namespace| cluster.watch_existing(&kind, all.within(namespace)));
        } else {
            let selection = match only_namespace(&awaited) {
                Some(namespace) => all.within(namespace),
                None => all,
            };
            self.begin_with(cluster.watch_existing(&self.kind, selection), awaited);
        }
        if let Some(running) = &mut self.running {
            running.is_filtered = label.is_some();
        }
    }

    /// Begins a list in one of the namespaces of these objects. The namespaces take turns, and another list is due for the
    /// rest of them.
    fn begin_in_one(&mut self, mut awaited: HashSet<Key>, open: impl FnOnce(&str) -> BoxStream<'static, WatchEvent>) {
        (self.running, self.due) = (None, None);
        let mut namespaces: BTreeSet<Arc<str>> = awaited.iter().filter_map(|key| key.namespace.clone()).collect();
        self.refused.retain(|namespace, _| namespaces.contains(namespace));
        let now = Instant::now();
        namespaces.retain(|namespace| self.refused.get(namespace).is_none_or(|refused| refused.not_before <= now));
        let later = namespaces.iter().find(|namespace| Some(*namespace) > self.last.as_ref());
        let Some(namespace) = later.or_else(|| namespaces.first()).cloned() else {
            self.due = self.refused.values().map(|refused| refused.not_before).min();
            return;
        };
        let all = awaited.len();
        awaited.retain(|key| key.namespace.as_ref() == Some(&namespace));
        let is_all = awaited.len() == all;
        self.begin_with(open(&namespace), awaited);
        if let Some(running) = &mut self.running {
            running.namespace = Some(Arc::clone(&namespace));
        }
        self.last = Some(namespace);
        if !is_all {
            self.request();
        }
    }

    fn begin_with(&mut self, events: BoxStream<'static, WatchEvent>, awaited: HashSet<Key>) {
        self.due = None;
        if awaited.is_empty() {
            (self.running, self.failures) = (None, 0);
            return;
        }
        let begun = Instant::now();
        if self.ended.is_none_or(|ended| begun - ended > BREAK) {
            self.in_a_row = 0;
        }
        let (shown, deadline) = (Shown::default(), begun + IDLE);
        let (namespace, is_filtered) = (None, false);
        self.running = Some(Running { events, namespace, is_filtered, shown, awaited, begun, deadline, beginnings: 0 });
    }

    /// Takes in a change that the watch of the kind shows.
    pub(super) fn see_watch(&mut self, seen: &Delta<Key>) {
        match seen {
            Delta::Listed(key, _) | Delta::Changed(key, _) | Delta::Unreadable(key, ..) | Delta::Gone(key, _) => {
                self.show(key);
            }
            Delta::Complete(_) => {
                self.forget_failures();
                // The watch has shown all objects, some of them perhaps before they were managed.
                if self.running.is_some() {
                    self.end();
                    self.request();
                }
            }
            Delta::Resumed => self.forget_failures(),
            Delta::Failed(_) => {}
        }
    }

    /// Ends the delays after failed lists.
    fn forget_failures(&mut self) {
        if self.failures == 0 && self.refused.is_empty() {
            return;
        }
        (self.failures, self.not_before) = (0, None);
        self.refused.clear();
        if self.due.take().is_some() {
            self.request();
        }
    }

    /// Waits for the next step. Waits forever without a list and a request. Cancel-safe.
    pub(super) async fn next(&mut self) -> Step {
        loop {
            let Some(running) = &mut self.running else {
                match self.due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
                return Step::Due;
            };
            let event = timeout_at(running.deadline, running.events.next()).await;
            match event {
                Ok(Some(event)) => {
                    if let Some(step) = self.take(event) {
                        return step;
                    }
                }
                // A watch never ends.
                Ok(None) => return self.fail("the list ended".to_owned(), None, Duration::ZERO),
                Err(_) => return self.fail(format!("no event for {} s", IDLE.as_secs()), None, Duration::ZERO),
            }
        }
    }

    fn take(&mut self, event: WatchEvent) -> Option<Step> {
        let (kind, running) = (&self.kind, self.running.as_mut()?);
        running.deadline = Instant::now() + IDLE;
        if event.is_begin() {
            running.beginnings += 1;
            if running.beginnings > BEGINNINGS {
                return Some(self.fail("the server ended the list repeatedly".to_owned(), None, Duration::ZERO));
            }
        }
        match running.shown.take_noting(event, |live| kind.key_of(live), |_, _| None)? {
            Delta::Listed(key, live) => self.show(&key).then_some(Step::Listed(key, live)),
            Delta::Unreadable(key, live, error) => self.show(&key).then_some(Step::Unreadable(key, live, error)),
            Delta::Complete(list) => {
                let (keys, is_filtered) = (std::mem::take(&mut running.awaited), running.is_filtered);
                self.end();
                Some(Step::Missing { keys, version: list.version().to_owned(), is_filtered })
            }
            Delta::Failed(error) => {
                let is_unserved = error.is_forbidden() || error.is_not_found();
                let least = if is_unserved { UNSERVED } else { Duration::ZERO };
                Some(self.fail(chain(&error), error.retry_after(), least))
            }
            // The watch of the kind shows changes.
            Delta::Changed(..) | Delta::Gone(..) | Delta::Resumed => None,
        }
    }

    /// Records that the list shows an object. Returns whether the object was awaited. The list ends with the last one.
    fn show(&mut self, key: &Key) -> bool {
        let Some(running) = &mut self.running else { return false };
        let is_awaited = running.awaited.remove(key);
        if running.awaited.is_empty() {
            self.end();
        }
        is_awaited
    }

    /// Ends the list. The pause until the next one is as long as this one was, within limits.
    fn end(&mut self) {
        let Some(running) = self.running.take() else { return };
        let now = Instant::now();
        if let Some(namespace) = &running.namespace {
            self.refused.remove(namespace);
        } else {
            self.failures = 0;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        let longest = if self.in_a_row <= IN_A_ROW { SHORT_PAUSE } else { LONGEST_PAUSE };
        let pause = (now - running.begun).clamp(GATHER, longest);
        (self.ended, self.not_before) = (Some(now), Some(now + pause));
        self.due = self.due.map(|due| due.max(now + pause));
    }

    /// Ends a failed list, and requests another one after a delay, which is at least `least` and `retry_after`.
    fn fail(&mut self, why: String, retry_after: Option<Duration>, least: Duration) -> Step {
        let namespace = self.running.take().and_then(|running| running.namespace);
        let before =
            namespace.as_ref().map_or(self.failures, |own| self.refused.get(own).map_or(0, |own| own.failures));
        let failures = before.saturating_add(1);
        let asked = retry_after.unwrap_or_default().min(LONGEST_RETRY);
        let delay = RETRY.delay(failures).max(asked).max(least);
        let now = Instant::now();
        let next = if let Some(namespace) = namespace {
            self.refused.insert(namespace, Refused { failures, not_before: now + delay });
            // The other namespaces do not wait for this one, but a busy server is busy for all of them.
            now + GATHER.max(asked)
        } else {
            self.failures = failures;
            now + delay
        };
        (self.ended, self.not_before, self.due) = (Some(now), Some(next), Some(next));
        Step::Failed(why, failures)
    }
}

/// Returns the namespace that all of these objects are in, if there is one.
fn only_namespace(objects: &HashSet<Key>) -> Option<&str> {
    let mut namespaces = objects.iter().map(|key| key.namespace.as_deref());
    let first = namespaces.next()??;
    namespaces.all(|other| other == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests;
