//! The watches of managed objects, one per kind, and the loop that runs what follows from them.
//!
//! An event goes to the store, which says what has to be done about the object; the loop does that. A revert waits for its
//! own backoff first, so that it keeps nobody else waiting, and then until it may be in flight: no more are than the server
//! takes ([`Limit`]), and owners share them ([`Fair`]).
//!
//! Deliberately absent: what an event means (`managed`), and the revert itself (`apply`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::fair::Fair;
use super::limit::Limit;
use super::timers::Timers;
use crate::apply::{FollowUp, FollowUps, ServerLoad, Writer};
use crate::managed::object::{Managed, Watched};
use crate::managed::verdict::resource_version;
use mainstay_api::names::SYNC_LABEL;
use mainstay_cluster::reflector::{Delta, Shown};
use mainstay_cluster::{Cause, Kind, KindId, Selection, WatchEvent};
use mainstay_object::failure::{Backoff, caught, caught_now, chain};
use mainstay_object::{Key, Owner};

/// How long requests for a fresh list are gathered before it begins.
const GATHER: Duration = Duration::from_millis(100);
/// How long a list of one owner's objects is tried.
const LIST_WITHIN: Duration = Duration::from_secs(60);
/// How long a watch that panicked waits before it begins anew.
const PANICKED: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(120));
/// Failed attempts in a row to watch a kind after which its owners' statuses say so: what passes by itself has passed by
/// then.
const REMARKABLE_FAILURES: u32 = 3;
/// How many objects of a list are noted that nobody manages.
const MOST_STRANGERS: usize = 20_000;

/// The drift loop. Clones are the same.
#[derive(Clone)]
pub struct Drift {
    pub(super) writer: Writer,
}

/// The drift loop ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One of its tasks broke.
    #[error("a task of the drift loop ended")]
    Task(#[source] JoinError),
}

/// How a running watch of one kind is told to list anew, and to end.
#[derive(Debug, Default)]
struct Control {
    list: Notify,
    end: CancellationToken,
}

/// A task of the loop ended.
enum Ended {
    /// The backoff of a revert, of an object with this generation.
    Backoff(Owner, Key, u32),
    /// The revert of an object, with what it says about the server.
    Revert(Owner, Option<ServerLoad>),
    /// Requests to list the objects of an owner were gathered.
    Gathered(Owner),
    /// An object was looked at after a while.
    Looked(Key),
    /// Another one.
    Other,
}

impl Drift {
    /// Over the objects that a writer manages.
    pub fn new(writer: Writer) -> Self {
        Self { writer }
    }

    /// Runs until `stop`, or until one of its tasks breaks.
    pub async fn run(&self, mut follow_ups: FollowUps, stop: CancellationToken) -> Result<(), Error> {
        let (mut tasks, mut watches) = (JoinSet::new(), HashMap::<KindId, Arc<Control>>::new());
        let (mut waiting, mut limit, mut gathering) = (Fair::default(), Limit::default(), HashSet::new());
        let (mut backoffs, mut looks) = (Timers::default(), Timers::default());
        tasks.spawn(self.clone().follow_autoscalers(stop.clone()).map(|()| Ended::Other));
        tasks.spawn(self.clone().follow_inventories(stop.clone()).map(|()| Ended::Other));
        loop {
            // One time for both: what may not begin yet is waited for.
            let now = Instant::now();
            let allowed = limit.allowed(now);
            let begin = std::iter::from_fn(|| waiting.pop(allowed)).collect::<Vec<_>>();
            self.writer.set_reverts(waiting.in_flight(), !waiting.is_empty());
            for (owner, (key, generation)) in begin {
                let writer = self.writer.clone();
                tasks.spawn(async move { Ended::Revert(owner, writer.revert(&key, generation).await) });
            }
            let pause = limit.pause(now);
            self.writer.set_pause(pause.map(|pause| now + pause));
            let follow_up = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                Some(follow_up) = follow_ups.next() => follow_up,
                Some(ended) = tasks.join_next_with_id() => {
                    let (task, ended) = match ended {
                        // Another one waits in its place.
                        Err(error) if error.is_cancelled() => continue,
                        ended => ended.map_err(Error::Task)?,
                    };
                    match ended {
                        Ended::Backoff(owner, key, generation) => {
                            backoffs.ended(&key, task);
                            waiting.push(&owner, (key, generation));
                        }
                        Ended::Looked(key) => looks.ended(&key, task),
                        Ended::Revert(owner, load) => {
                            waiting.done(&owner);
                            learn(&mut limit, load);
                        }
                        Ended::Gathered(owner) => {
                            gathering.remove(&owner);
                            tasks.spawn(self.clone().list_owner(owner, stop.clone()).map(|()| Ended::Other));
                        }
                        Ended::Other => {}
                    }
                    continue;
                }
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => continue,
            };
            let (this, stop) = (self.clone(), stop.clone());
            match follow_up {
                FollowUp::Revert(key, generation) => {
                    let delay = self.writer.store().revert_delay(&key, self.writer.clock(), Instant::now());
                    let Some((owner, delay)) = delay else { continue };
                    if delay.is_zero() {
                        waiting.push(&owner, (key, generation));
                    } else {
                        // Even a sleep of nothing lasts until the timer's next millisecond.
                        let slept = tokio::time::sleep(delay);
                        let (writer, object) = (self.writer.clone(), key.clone());
                        backoffs.start(&mut tasks, object, async move {
                            let _ = tokio::time::timeout(delay, writer.note_waiting(&key, generation, delay)).await;
                            slept.await;
                            Ended::Backoff(owner, key, generation)
                        });
                    }
                }
                FollowUp::Watch(kind) => {
                    let control = Arc::<Control>::default();
                    watches.insert(kind.id(), Arc::clone(&control));
                    tasks.spawn(this.follow(kind, control, stop).map(|()| Ended::Other));
                }
                FollowUp::List(kind) => watches.get(&kind).into_iter().for_each(|control| control.list.notify_one()),
                FollowUp::ListOwner(owner) => {
                    if gathering.insert(owner.clone()) {
                        tasks.spawn(tokio::time::sleep(GATHER).map(|()| Ended::Gathered(owner)));
                    }
                }
                FollowUp::ListKinds(owner, kinds) => {
                    tasks.spawn(self.clone().list_kinds(owner, kinds, stop).map(|()| Ended::Other));
                }
                FollowUp::EndWatch(kind) => watches.remove(&kind).into_iter().for_each(|control| control.end.cancel()),
                FollowUp::WatchByName(kind, key, over) => {
                    tasks.spawn(this.follow_by_name(kind, key, over, stop).map(|()| Ended::Other));
                }
                FollowUp::Learn(load) => learn(&mut limit, Some(load)),
                FollowUp::LookAgain(key, Duration::ZERO) => this.look_now(&key),
                FollowUp::LookAgain(key, wait) => {
                    let slept = tokio::time::sleep(wait);
                    looks.start(&mut tasks, key.clone(), async move {
                        slept.await;
                        this.look_now(&key);
                        Ended::Looked(key)
                    });
                }
            }
        }
    }

    /// Follows the managed objects of one kind. A watch that panics begins anew after a while.
    async fn follow(self, kind: Arc<Kind>, control: Arc<Control>, stop: CancellationToken) {
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
        let (mut shown, mut failures) = (Shown::default(), WatchFailures::default());
        loop {
            // Several GitSyncs begin to expect objects of a kind at the same time: one list serves them all, and whoever
            // asked for one until it begins.
            tokio::time::sleep(GATHER).await;
            let _ = control.list.notified().now_or_never();
            let mut events = self.writer.cluster().watch(kind, Selection::with_label(SYNC_LABEL));
            loop {
                let event = tokio::select! {
                    () = stop.cancelled() => return,
                    () = control.end.cancelled() => return,
                    () = control.list.notified() => break,
                    event = events.next() => event,
                };
                let Some(event) = event else { return };
                let Some(seen) = self.take(&mut shown, kind, event) else { continue };
                if failures.update(&seen) {
                    let why = failures.remarkable().map(str::to_owned);
                    let owners = self.writer.store().set_watch_failure(kind, why);
                    for owner in &owners {
                        self.writer.notify(owner);
                    }
                }
                self.see(kind, Watched::ByUs, seen);
            }
        }
    }

    /// Looks at the objects of one owner anew: what was passed over counts now. What others have is not asked for.
    async fn list_owner(self, owner: Owner, stop: CancellationToken) {
        let kinds = self.writer.store().kinds_of(&owner);
        self.list_kinds(owner, kinds, stop).await;
    }

    async fn list_kinds(self, owner: Owner, kinds: Vec<(Arc<Kind>, Arc<str>)>, stop: CancellationToken) {
        let mut lists = JoinSet::new();
        for (kind, label) in kinds {
            let (this, owner) = (self.clone(), owner.clone());
            lists.spawn(async move {
                let listed = caught(tokio::time::timeout(LIST_WITHIN, this.list_kind(&owner, &kind, &label))).await;
                if !matches!(listed, Ok(Ok(()))) {
                    tracing::warn!(owner = %owner, resource = &*kind.resource, "objects could not be listed again");
                }
            });
        }
        // What is left of them ends with this.
        stop.run_until_cancelled(async { while lists.join_next().await.is_some() {} }).await;
    }

    async fn list_kind(&self, owner: &Owner, kind: &Arc<Kind>, label: &str) {
        let mut events = self.writer.cluster().watch(kind, Selection::labelled(SYNC_LABEL, label));
        let mut shown = Shown::default();
        while let Some(event) = events.next().await {
            match self.take(&mut shown, kind, event) {
                Some(Delta::Complete(list)) => {
                    let missing = self.writer.store().missing_of(owner, kind, list.shown(), list.version());
                    for key in &missing {
                        self.miss(kind, key, list.version());
                    }
                    return;
                }
                Some(seen) => self.see(kind, Watched::ByUs, seen),
                None => {}
            }
        }
    }

    fn take(&self, shown: &mut Shown<Key>, kind: &Kind, event: WatchEvent) -> Option<Delta<Key>> {
        shown.take_noting(event, |live| kind.key_of(live), |key, count| self.note(key, count))
    }

    /// Returns the key of a listed object for [`Shown`] to note. Returns `None` for an object that nobody manages, if `count` keys
    /// are too many: such objects may be as many as somebody likes. The bound is large enough for those that are managed in a
    /// moment; a later one of them is looked at once more.
    pub fn note(&self, key: &Key, count: usize) -> Option<Key> {
        // The key as the store keeps it: its texts are there already.
        let kept = self.writer.store().get(key).map(|managed| managed.desired.key.clone());
        kept.or_else(|| (count < MOST_STRANGERS).then(|| key.clone()))
    }

    /// Takes in what the owner's own watch of a kind says, for objects that are marked by their controller. Its lists
    /// [note](Self::note) objects.
    pub fn see_child(&self, kind: &Arc<Kind>, seen: Delta<Key>) {
        self.see(kind, Watched::ByOwner, seen);
    }

    fn see(&self, kind: &Arc<Kind>, watched: Watched, seen: Delta<Key>) {
        match seen {
            Delta::Listed(key, live) | Delta::Changed(key, live) => self.see_object(kind, &key, live),
            // Nothing can be decided about it but that it is there.
            Delta::Unreadable(key, live, error) => self.writer.announce_unreadable(&key, &live, &error),
            Delta::Complete(list) => {
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
            // Nothing is decided about it but that it is there; all others are seen.
            Err(panicked) => {
                tracing::error!(object = %key, why = %panicked, "a managed object is not looked at");
            }
        }
    }

    fn miss(&self, kind: &Kind, key: &Key, version: &str) {
        let next = self.writer.store().miss(kind, key, Some(version), Instant::now());
        self.writer.carry_out(key, next);
    }

    /// Looks at an object, whatever its last event said.
    pub(super) fn look_now(&self, key: &Key) {
        let next = self.writer.store().look_now(key, Instant::now());
        self.writer.carry_out(key, next);
    }
}

/// Takes in what a revert or an audit says about the server.
fn learn(limit: &mut Limit, load: Option<ServerLoad>) {
    let before = limit.number();
    match load {
        None => {}
        Some(ServerLoad::Answered { sent, in_flight, at }) => limit.answered(sent, in_flight, at),
        Some(ServerLoad::Overloaded { sent, retry_after }) => limit.overloaded(sent, retry_after, Instant::now()),
    }
    if limit.number() < before {
        tracing::debug!(reverts = limit.number(), "the server is busy: fewer reverts at once");
    }
}

/// Attempts in a row to watch a kind that the server refused or did not answer, and the last cause.
#[derive(Debug, Default)]
struct WatchFailures {
    count: u32,
    why: String,
}

impl WatchFailures {
    /// Takes in an event of the watch. Whether there may be something else to report than before.
    fn update(&mut self, seen: &Delta<Key>) -> bool {
        match seen {
            Delta::Complete(_) | Delta::Resumed => std::mem::take(self).remarkable().is_some(),
            // While nothing comes through, no kind is worse off than the others, and nobody could be told.
            Delta::Failed(error) if matches!(&*error.cause, Cause::Unreachable(_)) => false,
            Delta::Failed(error) => {
                self.count = self.count.saturating_add(1);
                self.why = chain(error);
                self.remarkable().is_some()
            }
            _ => false,
        }
    }

    /// What keeps the watch from working, if that is worth reporting.
    fn remarkable(&self) -> Option<&str> {
        (self.count >= REMARKABLE_FAILURES).then_some(&*self.why)
    }
}
