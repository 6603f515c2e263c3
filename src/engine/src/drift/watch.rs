//! The watches of managed objects, one per kind. The store decides what follows from an event.
//!
//! Invariant: a list of a kind that began is not begun again because more objects are managed. They are listed after it,
//! beside the watch (`unseen`). So are all objects of an owner whose policy or health rules changed, and all objects of
//! a kind after a restored server showed its list.
//!
//! Not here: the verdict on an event (`managed`), the loop that runs the watches (`run`), and the revert (`apply`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::unseen::{GATHER, Lists, Step};
use crate::apply::Writer;
use crate::managed::object::{Managed, Watched};
use crate::managed::verdict::resource_version;
use mainstay_api::names::SYNC_LABEL;
use mainstay_cluster::reflector::{Delta, List, Shown};
use mainstay_cluster::{Cause, Error, Kind, Selection, WatchEvent};
use mainstay_object::Key;
use mainstay_object::failure::{Backoff, caught, caught_now, chain};

/// Delay before a watch that panicked restarts.
const PANICKED: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(120));
/// Number of consecutive failures after which the status reports a failing watch. Most failures end before that.
const REMARKABLE_FAILURES: u32 = 3;
/// Maximum number of unmanaged objects whose keys are stored during a list.
const MOST_STRANGERS: usize = 20_000;

/// The drift loop. Clones share their state.
#[derive(Clone)]
pub struct Drift {
    pub(super) writer: Writer,
}

/// Signals to the watch of a kind: list objects that it has not shown, and end.
#[derive(Debug, Default)]
pub(super) struct Control {
    pub(super) list: Notify,
    pub(super) end: CancellationToken,
}

impl Drift {
    /// Returns a drift loop for the objects of a writer.
    pub fn new(writer: Writer) -> Self {
        Self { writer }
    }

    /// Watches the managed objects of one kind. Restarts after a panic with a backoff.
    pub(super) async fn follow(self, kind: Arc<Kind>, control: Arc<Control>, stop: CancellationToken) {
        let mut panics = 0;
        while let Err(panicked) = caught(self.follow_once(&kind, &control, &stop)).await {
            panics += 1;
            tracing::error!(resource = &*kind.resource, why = %panicked, "a watch restarts");
            let waited = stop.run_until_cancelled(tokio::time::sleep(PANICKED.delay(panics))).await;
            if waited.is_none() || control.end.is_cancelled() {
                return;
            }
        }
    }

    async fn follow_once(&self, kind: &Arc<Kind>, control: &Control, stop: &CancellationToken) {
        // Several GitSyncs often start to watch a kind at the same time, and one list serves them all.
        tokio::time::sleep(GATHER).await;
        let _ = control.list.notified().now_or_never();
        let mut events = self.writer.cluster().watch(kind, Selection::with_label(SYNC_LABEL));
        let (mut shown, mut progress, mut lists) = (Shown::default(), Progress::Listing, Lists::new(kind));
        let (mut failures, mut is_listed) = (WatchFailures::default(), false);
        loop {
            // A watch that fails keeps its backoff. It may never work, so the lists do not wait for it. Before the first
            // complete list, a failure is often over soon, and the watch then lists all objects itself.
            let may_list = match progress {
                Progress::Listing => false,
                Progress::Watching => true,
                Progress::Failing => is_listed || failures.is_lasting(),
            };
            let event = tokio::select! {
                () = stop.cancelled() => return,
                () = control.end.cancelled() => return,
                () = control.list.notified(), if may_list => {
                    lists.request();
                    continue;
                }
                step = lists.next(), if may_list => {
                    self.take_step(kind, &mut lists, &mut shown, step);
                    continue;
                }
                event = events.next() => event,
            };
            let Some(event) = event else { return };
            if event.is_begin() {
                progress = Progress::Listing;
            }
            let Some(seen) = self.take(&mut shown, kind, event) else { continue };
            progress = progress.after(&seen);
            is_listed |= matches!(seen, Delta::Complete(_));
            let went_back = matches!(&seen, Delta::Complete(list) if list.went_back());
            lists.see_watch(&seen);
            if failures.update(&seen) {
                let why = failures.remarkable().map(str::to_owned);
                let owners = self.writer.store().set_watch_failure(kind, why);
                for owner in &owners {
                    self.writer.notify(owner);
                }
            }
            match seen {
                Delta::Complete(list) if list.shown().len() >= MOST_STRANGERS => {
                    self.end_large(kind, &mut lists, &list);
                }
                seen => self.see(kind, Watched::ByUs, seen),
            }
            if went_back {
                lists.request();
            }
        }
    }

    /// Handles the end of a list with more objects than are remembered. It may have shown an object before the object was
    /// managed. One list beside the watch shows all of these, instead of a read of each.
    fn end_large(&self, kind: &Arc<Kind>, lists: &mut Lists, list: &List<Key>) {
        if list.went_back() {
            self.forget_versions(kind, Watched::ByUs);
        }
        let (unshown, missing) = {
            let store = self.writer.store();
            (store.unshown(kind), store.missing(kind, Watched::ByUs, list.shown(), list.version()))
        };
        let (later, missing): (Vec<Key>, Vec<Key>) = missing.into_iter().partition(|key| unshown.contains(key));
        if !later.is_empty() {
            lists.request();
        }
        for key in &missing {
            self.miss(kind, key, list.version());
        }
    }

    /// Takes a step of the lists beside the watch of a kind. A response to a write may have shown a newer state of an
    /// object since the list began. The versions of the list count as those of the watch (`shown`).
    fn take_step(&self, kind: &Arc<Kind>, lists: &mut Lists, shown: &mut Shown<Key>, step: Step) {
        let is_unshown = |key: &Key| self.writer.store().is_unshown(key);
        match step {
            Step::Due => {
                let unshown = self.writer.store().unshown(kind);
                let label = self.writer.store().only_label(&unshown);
                lists.begin(self.writer.cluster(), unshown, label.as_deref());
            }
            Step::Listed(key, live) => {
                shown.note_version(resource_version(&live));
                if is_unshown(&key) {
                    self.see_object(kind, &key, live);
                    // The state was ignored, for example as older than a deletion.
                    if is_unshown(&key) {
                        self.look_now(&key);
                    }
                }
            }
            Step::Unreadable(key, live, error) => self.see_unreadable(kind, &key, &live, &error),
            Step::Missing { keys, version, is_filtered } => {
                shown.note_version(&version);
                for key in keys.iter().filter(|key| is_unshown(key)) {
                    if is_filtered {
                        self.look_now(key);
                    } else {
                        self.miss(kind, key, &version);
                    }
                }
            }
            Step::Failed(why, 1) => {
                tracing::warn!(
                    resource = &*kind.resource,
                    why,
                    "managed objects could not be listed; the list is repeated until it succeeds"
                );
            }
            Step::Failed(why, failures) => {
                tracing::debug!(resource = &*kind.resource, why, failures, "objects are not listed yet");
            }
        }
    }

    /// Handles an object that cannot be parsed. It counts as present, and each of its states is announced once.
    fn see_unreadable(&self, kind: &Kind, key: &Key, live: &Value, error: &Error) {
        let is_new = self.writer.store().note_unreadable(kind, key, resource_version(live));
        if is_new {
            self.writer.announce_unreadable(key, live, error);
        }
    }

    fn take(&self, shown: &mut Shown<Key>, kind: &Kind, event: WatchEvent) -> Option<Delta<Key>> {
        shown.take_noting(event, |live| kind.key_of(live), |key, count| self.note(key, count))
    }

    /// Returns the key under which [`Shown`] remembers a listed object. Returns `None` for an unmanaged object beyond
    /// the limit of remembered keys, which bounds memory. If such an object becomes managed later, it is listed or read one
    /// more time.
    pub fn note(&self, key: &Key, count: usize) -> Option<Key> {
        // The key of the store shares its strings.
        let kept = self.writer.store().get(key).map(|managed| managed.desired.key.clone());
        kept.or_else(|| (count < MOST_STRANGERS).then(|| key.clone()))
    }

    /// Handles an event of an owner's own watch of its children. [`note`](Self::note) selects the objects that the
    /// lists of this watch remember.
    pub fn see_child(&self, kind: &Arc<Kind>, seen: Delta<Key>) {
        self.see(kind, Watched::ByOwner, seen);
    }

    fn see(&self, kind: &Arc<Kind>, watched: Watched, seen: Delta<Key>) {
        match seen {
            Delta::Listed(key, live) | Delta::Changed(key, live) => self.see_object(kind, &key, live),
            Delta::Unreadable(key, live, error) => self.see_unreadable(kind, &key, &live, &error),
            Delta::Complete(list) => {
                if list.went_back() {
                    self.forget_versions(kind, watched);
                }
                let missing = self.writer.store().missing(kind, watched, list.shown(), list.version());
                for key in missing {
                    self.miss(kind, &key, list.version());
                }
            }
            Delta::Gone(key, live) => {
                self.writer.store().note_end(kind, &key, &live);
                self.miss(kind, &key, resource_version(&live));
            }
            Delta::Failed(error) => {
                tracing::debug!(resource = &*kind.resource, error = chain(&error), "watch failed");
            }
            Delta::Resumed => {}
        }
    }

    /// Forgets the versions of a kind's objects, because the server was restored. The list has shown the objects before
    /// this, so labelled objects are listed once more (`unseen`), and those of an owner's watch are read.
    fn forget_versions(&self, kind: &Kind, watched: Watched) {
        tracing::warn!(
            resource = &*kind.resource,
            "the API server's resource versions went back, as after a restore from a backup; all managed objects of the \
             kind are compared again"
        );
        let forgotten = self.writer.store().forget_versions(kind, watched, Instant::now());
        if watched == Watched::ByOwner {
            for key in &forgotten {
                self.look_now(key);
            }
        }
    }

    fn see_object(&self, kind: &Arc<Kind>, key: &Key, live: Value) {
        let seen = caught_now(|| {
            let mut store = self.writer.store();
            let status = |managed: &Managed| {
                let drift = managed.drift().cloned();
                (managed.health.clone(), managed.failure().is_some(), managed.ended, drift)
            };
            let before = store.get(key).map(status);
            let next = store.see(kind, key, live, Instant::now(), self.writer.now());
            let changed = store.get(key).filter(|managed| Some(status(managed)) != before);
            (next, changed.map(|managed| managed.owner.clone()))
        });
        match seen {
            Ok((next, owner)) => {
                owner.inspect(|owner| self.writer.notify(owner));
                self.writer.carry_out(key, next);
            }
            // An object whose check panics counts as present; the loop continues with the others.
            Err(panicked) => {
                tracing::error!(object = %key, why = %panicked, "a managed object is not looked at");
                self.writer.store().note_shown(key);
            }
        }
    }

    fn miss(&self, kind: &Kind, key: &Key, version: &str) {
        let next = self.writer.store().miss(kind, key, Some(version), Instant::now());
        self.writer.carry_out(key, next);
    }

    /// Checks an object regardless of its last event.
    pub(super) fn look_now(&self, key: &Key) {
        let next = self.writer.store().look_now(key, Instant::now());
        self.writer.carry_out(key, next);
    }
}

/// The progress of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Its list began, and is not complete.
    Listing,
    /// It shows changes.
    Watching,
    /// An attempt failed since its list began, or since it showed changes. The list may never be complete: in a merged
    /// watch, one namespace may reject all attempts while the others show objects.
    Failing,
}

impl Progress {
    /// Returns the progress after an event other than the beginning of a list.
    fn after(self, seen: &Delta<Key>) -> Self {
        match seen {
            Delta::Complete(_) | Delta::Resumed => Self::Watching,
            Delta::Failed(_) => Self::Failing,
            Delta::Listed(..) | Delta::Changed(..) | Delta::Unreadable(..) | Delta::Gone(..) => self,
        }
    }
}

/// Consecutive failures of a watch, and the last cause.
#[derive(Debug, Default)]
struct WatchFailures {
    count: u32,
    why: String,
}

impl WatchFailures {
    /// Records an event of the watch. Returns whether the status may have to change.
    fn update(&mut self, seen: &Delta<Key>) -> bool {
        match seen {
            Delta::Complete(_) | Delta::Resumed => std::mem::take(self).remarkable().is_some(),
            // If the whole API server is unreachable, the status cannot be written either.
            Delta::Failed(error) if matches!(&*error.cause, Cause::Unreachable(_)) => false,
            Delta::Failed(error) => {
                self.count = self.count.saturating_add(1);
                self.why = chain(error);
                self.remarkable().is_some()
            }
            _ => false,
        }
    }

    /// Whether the watch has failed several times in a row.
    fn is_lasting(&self) -> bool {
        self.count >= REMARKABLE_FAILURES
    }

    /// Returns the cause if it has to be shown in the status.
    fn remarkable(&self) -> Option<&str> {
        self.is_lasting().then_some(&*self.why)
    }
}

#[cfg(test)]
mod tests;
