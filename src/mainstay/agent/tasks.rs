//! Runs a task for every object of a kind. A watch feeds the task, and the task ends when its object is deleted.
//!
//! Invariant: if an object is recreated, the old task ends before the new one starts. Invariant: an object without
//! memory has no task. If an object with a task grows beyond its memory, the task keeps the last state. Both cases are
//! reported. The objects are read again when there is memory.
//!
//! Not here: the work of the tasks, which is a [`Work`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::dropping::{Dropping, Ending};
use super::initial::Initial;
use super::kept::{self, Labels, Name, memory, since_of};
use super::notify::{Notifier, event_metadata};
use super::rereads::{Need, Rereads};
use super::share::{self, Share};
use super::source_changes::SourceChanges;
use mainstay_cluster::reflector::{Delta, Shown, name_of};
use mainstay_cluster::{Cluster, Kind, Regarding, Selection};
use mainstay_engine::apply::{Announcement, Writer};
use mainstay_engine::managed::{Part, Waiting};
use mainstay_engine::notification::Message;
use mainstay_object::Owner;
use mainstay_object::failure::chain;

/// Interval at which objects that lack memory are read again, and maximum number of objects per interval.
const AGAIN: Duration = Duration::from_secs(30);
const AT_ONCE: usize = 16;
/// Delay before the next batch, instead of `AGAIN`, if more objects lack memory.
const SOON: Duration = Duration::from_secs(1);
/// Time during which changes of the share are gathered before the objects are listed: the other agents publish theirs at
/// about the same time.
const GATHER: Duration = Duration::from_millis(100);

/// Memory of a task, in bytes, and maximum number of copies of the task's object, including partial copies.
pub(super) const EACH: usize = 8 << 10;
pub(super) const COPIES: usize = 3;

/// The newest state of an object; `None` once it is deleted.
pub(super) type Input<T> = watch::Receiver<Option<Arc<T>>>;

/// The work for the objects of one kind.
pub(super) trait Work {
    /// The type of an object.
    type Object: Resource + DeserializeOwned + Send + Sync + 'static;

    /// The kind.
    fn kind(&self) -> Kind;

    /// Returns the owner of the managed objects, as in messages.
    fn owner(&self, name: &Name) -> Owner;

    /// Returns the writer, which counts memory.
    fn writer(&self) -> &Writer;

    /// Whether the labels of an object are kept.
    const LABELS: Labels = Labels::Dropped;

    /// The condition that reports that an object lacks memory.
    const CONDITION: &str = "Ready";

    /// Returns the memory of an object of this size with its task, without the part that [`keep`](Self::keep) counts.
    fn counted(&self, bytes: usize) -> usize {
        kept::counted(EACH, COPIES, bytes)
    }

    /// Returns the expected memory of managed objects that are not read yet.
    fn expected(&self, _object: &Self::Object) -> usize {
        0
    }

    /// Removes the parts of an object for which there is no memory. `bytes` is the object's size. Returns whether the
    /// whole object is kept. Called again when there may be memory.
    fn keep(&self, _owner: &Owner, _object: &mut Self::Object, _bytes: usize) -> bool {
        true
    }

    /// Returns whether the whole object might fit now.
    fn may_keep(&self, _owner: &Owner, _bytes: usize) -> bool {
        true
    }

    /// Called for an object that gets no task because there is no memory, and again once it is deleted.
    fn set_refused(&self, _owner: &Owner, _name: &Name, _is_there: bool) {}

    /// Called with the object before its task receives it, even if the object gets no task; called with `None` once the
    /// object is deleted.
    fn see(&self, _name: &Name, _object: Option<&Self::Object>) {}

    /// Called for a new object before its task starts.
    fn enter(&self, _owner: &Owner, _name: &Name) {}

    /// Returns the last state for the task of a deleted object; `None` if the task receives only the deletion.
    fn deleted(&self, _last: Self::Object) -> Option<Self::Object> {
        None
    }

    /// Returns the memory of an object of this size that another agent looks after.
    fn counted_of_other_agent(&self, bytes: usize) -> usize {
        self.counted(bytes)
    }

    /// Called instead of [`see_of_other_agent`](Self::see_of_other_agent) if there is no memory for the object; with
    /// `None` if the last state that was shown is not older.
    fn refuse_of_other_agent(&self, _owner: &Owner, _object: Option<&Self::Object>) {}

    /// Whether the task of an object waits for a remote cluster, which may never respond.
    fn is_remote(&self, _object: &Self::Object) -> bool {
        false
    }

    /// Called for the state of an object that another agent looks after; `None` once the object is deleted.
    fn see_of_other_agent(&self, _owner: &Owner, _object: Option<Self::Object>) {}

    /// Returns the version of the sources on which the rows of objects of other agents depend.
    fn sources(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// Called after a change of the sources.
    fn see_sources_of_other_agents(&self) {}

    /// Called when all existing objects have a task, or another agent.
    fn complete(&self) {}

    /// Runs the task of one object, until the object is deleted. The first token ends all work, and the second one the
    /// work for an object that another agent takes over.
    fn run(
        &self,
        name: Name,
        input: Input<Self::Object>,
        ends: (CancellationToken, CancellationToken),
    ) -> impl Future<Output = ()> + Send + 'static;
}

/// The task of one object and its input.
struct Running<T> {
    feed: watch::Sender<Option<Arc<T>>>,
    uid: Option<String>,
    /// The size of the object.
    bytes: usize,
    /// Ends the task, because another agent takes the object over. Each task has its own token: the task of a recreated
    /// object may end while the next one works.
    lost: CancellationToken,
    /// Cancelled when the task has ended.
    over: CancellationToken,
    /// The task of a deleted object of this name, which ends before this task begins.
    before: Option<Ending>,
}

/// Watches the objects of a kind and runs a task for each.
pub(super) struct Tasks<W: Work> {
    work: W,
    kind: Arc<Kind>,
    notifier: Notifier,
    running: HashMap<Name, Running<W::Object>>,
    /// Tasks that are ending. A new object with the same name waits for the task's end.
    ended: HashMap<Name, Ending>,
    /// Inputs of tasks that end because another agent takes their objects over.
    leaving: Vec<Running<W::Object>>,
    /// The tasks that end before this agent publishes its share.
    dropping: Option<Dropping>,
    /// Objects that were left to other agents and whose task has not ended, each with its newest state; `None` if it is
    /// deleted.
    left: HashMap<Name, Option<W::Object>>,
    /// The share of this agent; `None` without shards.
    share: Option<Share>,
    /// When a list shows the objects that this agent takes over. It takes none before: an event of the earlier watch may
    /// be older than the last write of the other agent.
    relist: Option<Instant>,
    /// Objects that are not kept, or only in part, for lack of memory.
    rereads: Rereads,
    /// Objects of other agents that are not kept for lack of memory. Their agents report them.
    unseen: Rereads,
    /// When objects that lack memory are read again.
    look: Instant,
    /// Notified when there may be memory for an object.
    room: Arc<Notify>,
    all: JoinSet<()>,
    stop: CancellationToken,
}

impl<W: Work> Tasks<W> {
    /// Returns an instance that also runs `others`.
    pub(super) fn new(work: W, notifier: Notifier, others: JoinSet<()>, stop: CancellationToken) -> Self {
        let kind = Arc::new(work.kind());
        Self {
            work,
            kind,
            notifier,
            running: HashMap::new(),
            ended: HashMap::new(),
            leaving: Vec::new(),
            dropping: None,
            left: HashMap::new(),
            share: None,
            relist: None,
            rereads: Rereads::default(),
            unseen: Rereads::default(),
            look: Instant::now() + AGAIN,
            room: Arc::default(),
            all: others,
            stop,
        }
    }

    /// Limits the tasks to the share of this agent.
    pub(super) fn sharing(self, share: Option<Share>) -> Self {
        Self { share, ..self }
    }

    /// Runs until `stop`, or until a task panics.
    pub(super) async fn run(mut self, cluster: &Cluster) -> Result<(), JoinError> {
        let mut events = cluster.watch(&self.kind, Selection::default());
        let (mut shown, mut initial) = (Shown::default(), Initial::default());
        let room = Arc::clone(&self.room);
        let mut sources = self.work.sources().filter(|_| self.share.is_some()).map(SourceChanges::new);
        loop {
            let event = tokio::select! {
                () = self.stop.cancelled() => break,
                () = tokio::time::sleep_until(self.look) => {
                    let wait = if self.reread(cluster).await { SOON } else { AGAIN };
                    self.look = Instant::now() + wait;
                    continue;
                }
                () = room.notified() => {
                    self.look = Instant::now();
                    continue;
                }
                () = changed(self.share.as_mut()) => {
                    if self.follow_share() {
                        self.relist.get_or_insert_with(|| Instant::now() + GATHER);
                    }
                    continue;
                }
                () = at(self.relist) => {
                    self.relist = None;
                    events = cluster.watch(&self.kind, Selection::default());
                    (shown, initial) = (Shown::default(), Initial::default());
                    continue;
                }
                () = Dropping::ended(self.dropping.as_mut()) => {
                    self.drop_lost();
                    continue;
                }
                () = SourceChanges::due(sources.as_mut()) => {
                    self.work.see_sources_of_other_agents();
                    continue;
                }
                Some(ended) = self.all.join_next() => {
                    ended?;
                    self.show_all_left();
                    continue;
                }
                // The objects that this agent takes over are left to others until the list begins. A list that completes
                // before it would count them as known.
                event = events.next(), if self.relist.is_none() => event,
            };
            let Some(event) = event else { break };
            if let Some(delta) = shown.take(event, name_of) {
                self.see_delta(delta, &mut initial);
            }
        }
        Ok(())
    }

    /// Takes in a change that the watch shows.
    fn see_delta(&mut self, delta: Delta<Name>, initial: &mut Initial) {
        match delta {
            Delta::Listed(name, mut value) => {
                kept::trim(&mut value, W::LABELS);
                if !initial.add(&value) {
                    self.see_all(initial);
                    self.see(name, value);
                }
            }
            Delta::Changed(name, value) => self.see(name, value),
            // The object's task continues with the last readable state.
            Delta::Unreadable(name, value, error) => {
                self.announce_unreadable(&name, &value, error.cause_text());
            }
            Delta::Gone(name, value) => {
                let last = read::<W::Object>(value).ok().and_then(|last| self.work.deleted(last));
                self.end(&name, last);
            }
            Delta::Complete(list) => {
                self.see_all(initial);
                let others = self.share.iter().flat_map(|share| share.names().cloned());
                let known: HashSet<Name> =
                    self.running.keys().cloned().chain(self.rereads.names()).chain(others).collect();
                for name in known.iter().filter(|name| list.lacks(name)) {
                    self.end(name, None);
                }
                self.work.complete();
            }
            Delta::Failed(error) => {
                tracing::warn!(why = chain(&error), "{}s cannot be watched", self.kind.kind);
            }
            Delta::Resumed => {}
        }
    }

    /// Processes the listed objects, the oldest first.
    fn see_all(&mut self, initial: &mut Initial) {
        for value in initial.take() {
            if let Some(name) = name_of(&value) {
                self.see(name, value);
            }
        }
    }

    /// Parses a state of an object for its task.
    fn see(&mut self, name: Name, mut value: Value) {
        kept::trim(&mut value, W::LABELS);
        let (identity, bytes) = (identity_of(&value), memory(&value));
        match read::<W::Object>(value) {
            Ok(object) if self.is_of_other_agent(&name, &object) => self.leave(&name, Some((object, bytes))),
            Ok(object) => self.feed(name, object, bytes),
            Err(why) => self.announce_unreadable(&name, &identity, why),
        }
    }

    /// Whether another agent looks after an object.
    fn is_of_other_agent(&mut self, name: &Name, object: &W::Object) -> bool {
        let (is_running, is_late) = (self.running.contains_key(name), self.relist.is_some());
        let Some(share) = &mut self.share else { return false };
        share.see(name, object.meta().labels.as_ref());
        if is_running { !share.keeps(name) } else { is_late || !share.may_gain(name) }
    }

    /// Leaves an object to another agent. Its task ends without a change of the object. `seen` is the new state of the
    /// object and its size, if it has one.
    fn leave(&mut self, name: &Name, seen: Option<(W::Object, usize)>) {
        let owner = self.work.owner(name);
        self.rereads.remove(name);
        let mut counted = 0;
        if let Some(running) = self.running.remove(name) {
            // The task shows its last state when it ends.
            counted = self.work.counted_of_other_agent(running.bytes);
            let ending = self.ending_of(&running);
            ending.cancel();
            self.ended.insert(name.clone(), ending);
            self.leaving.retain(|leaving| !leaving.over.is_cancelled());
            self.leaving.push(running);
            self.notifier.set_subject(&owner, None);
            self.count_share(|counts| &counts.lost);
        }
        self.work.see(name, None);
        self.notifier.set_labels(&owner, None);
        self.notifier.set_event_metadata(&owner, BTreeMap::new());
        self.work.writer().end_memory_wait(&owner);
        for part in [Part::Source, Part::Expected] {
            self.work.writer().keep_in_memory(&owner, part, 0);
        }
        match seen {
            Some((object, bytes)) => self.show_within_memory(name, object, bytes),
            None => {
                self.work.writer().keep_in_memory(&owner, Part::Resource, counted);
            }
        }
    }

    /// Shows the state of an object of another agent if there is memory for it. Otherwise it is read again later.
    fn show_within_memory(&mut self, name: &Name, object: W::Object, bytes: usize) {
        let (owner, counted) = (self.work.owner(name), self.work.counted_of_other_agent(bytes));
        if self.work.writer().keep_in_memory(&owner, Part::Resource, counted) {
            self.unseen.remove(name);
            return self.show_left(name, Some(object));
        }
        let since = object.meta().creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0);
        self.unseen.insert(name, Need { since, bytes, expected: 0 }, true);
        self.left.remove(name);
        self.work.refuse_of_other_agent(&owner, Some(&object));
        self.work.writer().keep_in_memory(&owner, Part::Resource, 0);
        let (part, room) = (Part::Resource, Arc::clone(&self.room));
        self.work.writer().wait_for_memory(&owner, Waiting { since, part, bytes: counted, room });
    }

    /// Shows the state of an object of another agent; `None` if it is deleted. A task that has not ended shows an older
    /// state when it ends, so the new one is shown after it.
    fn show_left(&mut self, name: &Name, object: Option<W::Object>) {
        if self.ended.get(name).is_none_or(|ending| ending.over.is_cancelled()) {
            self.left.remove(name);
            self.work.see_of_other_agent(&self.work.owner(name), object);
        } else {
            self.left.insert(name.clone(), object);
        }
    }

    /// Shows the objects of other agents whose tasks have ended.
    fn show_all_left(&mut self) {
        for (name, object) in std::mem::take(&mut self.left) {
            self.show_left(&name, object);
        }
        // A task that has ended has shown its last state.
        for name in self.unseen.names().filter(|name| self.ended.contains_key(name)) {
            self.work.refuse_of_other_agent(&self.work.owner(&name), None);
        }
    }

    /// Takes a changed share: ends the tasks of lost objects. Returns whether objects may be gained. Does not wait for the
    /// ends, so that the other objects get their changes.
    fn follow_share(&mut self) -> bool {
        let Some(share) = &mut self.share else { return false };
        share.take();
        let mine = self.running.keys().cloned().chain(self.rereads.names());
        let lost: Vec<Name> = mine.filter(|name| !share.keeps(name)).collect();
        // An object without a task is shown by the next list only.
        let is_unshown = lost.iter().any(|name| !self.running.contains_key(name));
        for name in &lost {
            self.leave(name, None);
        }
        let Some(share) = &self.share else { return false };
        let ending = self.ending().into_iter();
        self.dropping = Some(Dropping::new(ending, self.dropping.take(), share.lease(), Instant::now()));
        is_unshown || share.names().any(|name| !self.running.contains_key(name) && share.may_gain(name))
    }

    /// Records that the tasks of lost objects have ended, or have had their time.
    fn drop_lost(&mut self) {
        self.dropping = None;
        self.leaving.retain(|leaving| !leaving.over.is_cancelled());
        self.show_all_left();
        if let Some(share) = &self.share {
            share.dropped();
        }
    }

    /// Returns the tasks that work for objects outside of the share, also for deleted ones.
    fn ending(&self) -> Vec<Ending> {
        let keeps = |name: &Name| self.share.as_ref().is_none_or(|share| share.keeps(name));
        let deleted = self.ended.iter().filter(|(name, ending)| !ending.over.is_cancelled() && !keeps(name));
        let leaving = self.leaving.iter().filter(|leaving| !leaving.over.is_cancelled());
        leaving.map(|leaving| self.ending_of(leaving)).chain(deleted.map(|(_, ending)| ending.clone())).collect()
    }

    fn ending_of(&self, running: &Running<W::Object>) -> Ending {
        let is_remote = running.feed.borrow().as_deref().is_some_and(|object| self.work.is_remote(object));
        Ending::new(running.lost.clone(), running.over.clone(), is_remote).after(running.before.as_ref())
    }

    fn count_share(&self, counter: impl Fn(&share::Counts) -> &AtomicU64) {
        if let Some(share) = &self.share {
            counter(&share.counts).fetch_add(1, Ordering::Relaxed);
            share.counts.own.store(self.running.len() as u64, Ordering::Relaxed);
        }
    }

    /// Reports an unreadable object by an Event on the object, where users look for it.
    fn announce_unreadable(&self, name: &Name, value: &Value, cause: String) {
        if self.share.as_ref().is_some_and(|share| !share.keeps(name)) {
            return;
        }
        let uid = value.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
        let key = self.kind.key(Some(&name.0), &name.1);
        let owner = self.work.owner(name);
        let subject = Regarding { key, api_version: self.kind.api_version(), uid };
        // If the object has a task, its identity is known already.
        let object = (!self.running.contains_key(name)).then_some(subject);
        let message = Message::Unreadable { subject: owner.clone(), object: None, cause };
        self.notifier.notify(&Announcement { owner: &owner, object, message: &message });
    }

    /// Reads again the objects for which there may be memory now. Returns whether there may be more such objects.
    async fn reread(&mut self, cluster: &Cluster) -> bool {
        let may_keep = |name: &Name, need: Need| {
            let (owner, counted) = (self.work.owner(name), self.work.counted(need.bytes) + need.expected);
            self.work.writer().may_keep_in_memory(&owner, Part::Resource, counted)
                && self.work.may_keep(&owner, need.bytes)
        };
        let names = self.rereads.next(AT_ONCE, may_keep);
        for name in &names {
            // The watch may have delivered or deleted the object in the meantime.
            let live = cluster.get(&self.kind, Some(&name.0), &name.1).await;
            let Ok(live) = live.inspect_err(|error| tracing::debug!(why = chain(error), "not read again")) else {
                continue;
            };
            self.rereads.reported(name);
            let Some(mut live) = live else { continue };
            kept::trim(&mut live, W::LABELS);
            let bytes = memory(&live);
            let Ok(object) = read::<W::Object>(live.clone()) else { continue };
            let need = Need { since: since_of(&live), bytes, expected: self.work.expected(&object) };
            self.feed(name.clone(), object, bytes);
            self.say_refused(cluster, name, &live, need).await;
        }
        let may_show = |name: &Name, need: Need| {
            let (owner, counted) = (self.work.owner(name), self.work.counted_of_other_agent(need.bytes));
            self.work.writer().may_keep_in_memory(&owner, Part::Resource, counted)
        };
        let unseen = self.unseen.next(AT_ONCE, may_show);
        for name in &unseen {
            let live = cluster.get(&self.kind, Some(&name.0), &name.1).await;
            match live {
                Ok(Some(live)) => self.see(name.clone(), live),
                // The watch shows the deletion.
                Ok(None) => {}
                Err(error) => tracing::debug!(why = chain(&error), "not read again"),
            }
        }
        names.len() == AT_ONCE || unseen.len() == AT_ONCE
    }

    /// Reports in the status of an object without a task that there is no memory for it.
    async fn say_refused(&self, cluster: &Cluster, name: &Name, live: &Value, need: Need) {
        if self.running.contains_key(name) {
            return;
        }
        let why = kept::no_memory(need.bytes, self.wait_for_memory(&self.work.owner(name), need));
        let status = kept::status_without_memory(live, W::CONDITION, why, Timestamp::now());
        let written =
            cluster.patch_merge(&self.kind, Some(&name.0), &name.1, mainstay_cluster::Part::Status, &status).await;
        if let Err(error) = written {
            tracing::warn!(why = chain(&error), "status not written");
        }
    }

    /// Registers an object that waits for memory. Returns the total budget with which it would fit.
    fn wait_for_memory(&self, owner: &Owner, need: Need) -> usize {
        let bytes = self.work.counted(need.bytes) + need.expected;
        let (since, part, room) = (need.since, Part::Resource, Arc::clone(&self.room));
        self.work.writer().wait_for_memory(owner, Waiting { since, part, bytes, room })
    }

    fn feed(&mut self, name: Name, mut object: W::Object, bytes: usize) {
        self.left.remove(&name);
        self.unseen.remove(&name);
        self.work.see(&name, Some(&object));
        let owner = self.work.owner(&name);
        let uid = object.meta().uid.clone();
        let since = object.meta().creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0);
        let need = Need { since, bytes, expected: self.work.expected(&object) };
        // An object that is being deleted needs its existing task.
        let is_kept = self.work.writer().admit_to_memory(&owner, self.work.counted(bytes), need.expected);
        if !is_kept && (object.meta().deletion_timestamp.is_none() || !self.running.contains_key(&name)) {
            return self.refuse(name, &owner, uid, need);
        }
        if self.work.keep(&owner, &mut object, bytes) {
            self.rereads.remove(&name);
        } else {
            // The object's task reports the missing memory.
            self.rereads.insert(&name, need, true);
        }
        self.notifier.set_labels(&owner, object.meta().labels.as_ref());
        let annotations = object.meta().annotations.iter().flatten();
        let metadata = event_metadata(annotations.map(|(name, value)| (name.as_str(), value.as_str())));
        self.notifier.set_event_metadata(&owner, metadata);
        if let Some(running) = self.running.get_mut(&name) {
            if running.uid == uid && !running.over.is_cancelled() {
                running.bytes = bytes;
                running.feed.send_replace(Some(Arc::new(object)));
                return;
            }
            // The object was recreated: the old task ends before the new one starts.
            self.end_task(&name, None);
        }
        let key = self.kind.key(Some(&name.0), &name.1);
        let subject = Regarding { key, api_version: self.kind.api_version(), uid: uid.clone() };
        self.notifier.set_subject(&owner, Some(subject));
        self.work.enter(&owner, &name);
        let (feed, input) = watch::channel(Some(Arc::new(object)));
        let (lost, over) = (CancellationToken::new(), CancellationToken::new());
        let (before, ending) = (self.ended.remove(&name), over.clone().drop_guard());
        let task = self.work.run(name.clone(), input, (self.stop.clone(), lost.clone()));
        let old = before.as_ref().map(|before| before.over.clone());
        self.all.spawn(after(old, task).map(move |()| drop(ending)));
        self.running.insert(name, Running { feed, uid, bytes, lost, over, before });
        self.count_share(|counts| &counts.gained);
    }

    /// Handles a new or changed object for which there is no memory. An existing task keeps the last state.
    fn refuse(&mut self, name: Name, owner: &Owner, uid: Option<String>, need: Need) {
        if self.running.get(&name).is_some_and(|running| running.uid != uid) {
            // The object was replaced, and the watch already shows the new object.
            self.end_task(&name, None);
            self.forget_memory(owner);
        }
        let is_new = self.rereads.insert(&name, need, self.running.contains_key(&name));
        let needed = self.wait_for_memory(owner, need);
        if !is_new {
            return;
        }
        let key = self.kind.key(Some(&name.0), &name.1);
        let subject = Regarding { key, api_version: self.kind.api_version(), uid };
        let is_known = self.running.contains_key(&name);
        if !is_known {
            self.work.set_refused(owner, &name, true);
        }
        self.look = self.look.min(Instant::now() + SOON);
        let message = Message::NotKept { subject: owner.clone(), why: kept::no_memory(need.bytes, needed) };
        let object = (!is_known).then_some(subject);
        self.notifier.notify(&Announcement { owner, object, message: &message });
    }

    /// Handles a deleted object.
    fn end(&mut self, name: &Name, last: Option<W::Object>) {
        self.work.see(name, None);
        let owner = self.work.owner(name);
        self.unseen.remove(name);
        if let Some(share) = &mut self.share {
            share.forget(name);
            if !self.running.contains_key(name) {
                self.show_left(name, None);
            }
        }
        if self.rereads.remove(name) && !self.running.contains_key(name) {
            self.work.set_refused(&owner, name, false);
        }
        self.end_task(name, last);
        self.notifier.set_labels(&owner, None);
        self.notifier.set_event_metadata(&owner, BTreeMap::new());
        self.forget_memory(&owner);
    }

    /// Releases the memory of a deleted object, and stops its wait for memory.
    fn forget_memory(&self, owner: &Owner) {
        self.work.writer().end_memory_wait(owner);
        for part in [Part::Resource, Part::Source, Part::Expected] {
            self.work.writer().keep_in_memory(owner, part, 0);
        }
    }

    fn end_task(&mut self, name: &Name, last: Option<W::Object>) {
        if let Some(running) = self.running.remove(name) {
            self.ended.retain(|_, ending| !ending.over.is_cancelled());
            self.ended.insert(name.clone(), self.ending_of(&running));
            running.feed.send_replace(last.map(Arc::new));
            self.notifier.set_subject(&self.work.owner(name), None);
        }
    }
}

/// Waits until a time; for ever without one.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Waits until the share of this agent may change.
async fn changed(share: Option<&mut Share>) {
    match share {
        Some(share) => share.changed().await,
        None => std::future::pending().await,
    }
}

/// Runs a task once the old one has ended.
fn after<T: Future<Output = ()>>(old: Option<CancellationToken>, task: T) -> impl Future<Output = ()> {
    let ended = async move {
        if let Some(old) = old {
            old.cancelled().await;
        }
    };
    // An `async` block would hold the task twice: as a captured variable and as an awaited future.
    ended.then(move |()| task)
}

/// Returns the parts of an object that are needed to report it.
pub(super) fn identity_of(value: &Value) -> Value {
    let uid = value.pointer("/metadata/uid").cloned().unwrap_or_default();
    serde_json::json!({ "metadata": { "uid": uid } })
}

/// Parses a resource of Mainstay, without its `managedFields`. An error is possible only if a different version of the
/// CRD is installed.
pub(super) fn read<T: DeserializeOwned>(mut value: Value) -> Result<T, String> {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    // The error may quote a value.
    let unreadable = |error: serde_json::Error| {
        let kind = if error.is_data() {
            "a field does not match the CRD of this version of Mainstay"
        } else {
            "it is not an object"
        };
        format!("{kind}; is the installed CRD up to date?")
    };
    serde_json::from_value(value).map_err(unreadable)
}

#[cfg(test)]
mod tests;
