//! [`Drift`] itself: the ledger behind its lock, the queue of reverts, and the task that runs both loops' writes.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::decide::Verified;
use super::desired::{Desired, Owner};
use super::ledger::{Ledger, Policy};
use super::managed::SMALL;
use super::summary::Summary;
use crate::api::git_sync::Revert;
use crate::cluster::{Cluster, Kind};
use crate::notification::Message;
use crate::object::{Digest, Key};
use crate::pulse::Part;

/// Reverts in flight at once.
const IN_FLIGHT: usize = 16;
/// Reverts per second, and how many may come at once.
const RATE: f64 = 50.0;
const BURST: f64 = 100.0;
/// Reverts that may wait with the state that was found, if it is small; what comes beyond is read again when its turn
/// comes.
const WAITING_WITH_STATE: usize = 1000;
/// Locks that serialise the writes to one object.
const TURNS: usize = 512;
/// Longest wait of the forward loop for the backward loop, per object.
const YIELD: Duration = Duration::from_millis(50);

/// Something that both loops want told.
pub struct Announcement<'a> {
    /// For whom the object is managed.
    pub owner: &'a Owner,
    /// The object, where it is about one: what it must be and what it is.
    pub object: Option<(&'a Desired, &'a Value)>,
    /// CamelCase word for Events.
    pub reason: &'a str,
    /// What happened.
    pub message: &'a Message,
}

/// Nothing is written to an object while this is held.
pub struct Alone<'a>(#[expect(dead_code, reason = "it is held, not read")] tokio::sync::MutexGuard<'a, ()>);

/// What was verified of an object.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// UID.
    pub uid: &'a str,
    /// Digest of its projection.
    pub digest: Option<Digest>,
    /// What was applied.
    pub desired: &'a Desired,
}

type Announce = dyn Fn(&Announcement<'_>) + Send + Sync;

/// The backward loop ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One of its tasks broke.
    #[error("a task of the drift loop ended")]
    Task(#[source] tokio::task::JoinError),
}

/// The backward loop, and the one writer of managed objects.
#[derive(Clone)]
pub struct Drift(Arc<Inner>);

struct Inner {
    cluster: Cluster,
    announce: Box<Announce>,
    ledger: Mutex<Ledger>,
    turns: Vec<tokio::sync::Mutex<()>>,
    jobs: mpsc::UnboundedSender<Job>,
    inbox: Mutex<Option<mpsc::UnboundedReceiver<Job>>>,
    watches: Mutex<HashMap<KindId, Arc<Watching>>>,
    notifiers: Mutex<HashMap<Owner, Arc<Notify>>>,
    autoscalers_known: watch::Sender<bool>,
    reverts: Semaphore,
    bucket: tokio::sync::Mutex<Bucket>,
    /// Reverts on the queue.
    queued: AtomicUsize,
    /// Those of them that may go as soon as there is room.
    waiting: AtomicUsize,
    calm: Notify,
    started: Instant,
    /// Moves with every revert.
    pulse: Part,
}

/// Group, version, kind.
type KindId = (Arc<str>, Arc<str>, Arc<str>);

/// A running watch of one kind.
pub(super) struct Watching {
    pub(super) relist: Notify,
    pub(super) stop: CancellationToken,
}

pub(super) enum Job {
    Watch(Arc<Kind>, Arc<Watching>),
    /// With what ends it.
    WatchByName(Arc<Kind>, Key, CancellationToken),
    /// With its ticket.
    Turn(Key, u32),
    Later {
        key: Key,
        wait: Duration,
    },
}

struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Drift {
    /// Over a cluster. `announce` is called for everything worth telling and must not block.
    pub fn new(cluster: Cluster, pulse: Part, announce: impl Fn(&Announcement<'_>) + Send + Sync + 'static) -> Self {
        let (jobs, inbox) = mpsc::unbounded_channel();
        let now = Instant::now();
        Self(Arc::new(Inner {
            cluster,
            announce: Box::new(announce),
            ledger: Mutex::default(),
            turns: (0..TURNS).map(|_| tokio::sync::Mutex::default()).collect(),
            jobs,
            inbox: Mutex::new(Some(inbox)),
            watches: Mutex::default(),
            notifiers: Mutex::default(),
            autoscalers_known: watch::Sender::new(false),
            reverts: Semaphore::new(IN_FLIGHT),
            bucket: tokio::sync::Mutex::new(Bucket { tokens: BURST, filled: now }),
            queued: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            calm: Notify::new(),
            started: now,
            pulse,
        }))
    }

    /// Runs until `stop`, or until one of its tasks breaks. To be called once.
    pub async fn run(&self, stop: CancellationToken) -> Result<(), Error> {
        let inbox = self.0.inbox.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut inbox) = inbox else { return Ok(()) };
        let mut tasks = JoinSet::new();
        tasks.spawn(self.clone().follow_autoscalers(stop.clone()));
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                Some(job) = inbox.recv() => self.start(job, &mut tasks, &stop),
                Some(ended) = tasks.join_next() => ended.map_err(Error::Task)?,
            }
        }
    }

    fn start(&self, job: Job, tasks: &mut JoinSet<()>, stop: &CancellationToken) {
        let this = self.clone();
        match job {
            Job::Watch(kind, watching) => tasks.spawn(this.follow(kind, watching, stop.clone())),
            Job::WatchByName(kind, key, over) => tasks.spawn(this.follow_by_name(kind, key, over, stop.clone())),
            Job::Turn(key, ticket) => tasks.spawn(this.take_turn(key, ticket)),
            Job::Later { key, wait } => tasks.spawn(async move {
                tokio::time::sleep(wait).await;
                this.look_now(&key);
            }),
        };
    }

    async fn take_turn(self, key: Key, ticket: u32) {
        tokio::time::sleep(self.delay(&key)).await;
        // What has to wait for its own sake keeps nobody else waiting.
        self.0.waiting.fetch_add(1, Ordering::AcqRel);
        self.take_token().await;
        if let Ok(_permit) = self.0.reverts.acquire().await {
            self.0.pulse.work(self.put_back_or_report(key, ticket)).await;
        }
        self.0.queued.fetch_sub(1, Ordering::AcqRel);
        if self.0.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.calm.notify_waiters();
        }
    }

    async fn take_token(&self) {
        let mut bucket = self.0.bucket.lock().await;
        let refilled = bucket.filled.elapsed().as_secs_f64() * RATE;
        bucket.tokens = (bucket.tokens + refilled).min(BURST);
        bucket.filled = Instant::now();
        if bucket.tokens < 1.0 {
            tokio::time::sleep(Duration::from_secs_f64((1.0 - bucket.tokens) / RATE)).await;
            bucket.tokens = 1.0;
            bucket.filled = Instant::now();
        }
        bucket.tokens -= 1.0;
    }

    /// Lets waiting reverts go first, for a moment: drift goes before sync work.
    pub async fn yield_to_reverts(&self) {
        if self.0.waiting.load(Ordering::Acquire) > 0 {
            let _ = tokio::time::timeout(YIELD, self.0.calm.notified()).await;
        }
    }

    /// What applies to an owner's objects from now on. `reverted` and `last` are what its status says, and count only
    /// the first time.
    pub fn set_policy(&self, owner: &Owner, policy: Policy, reverted: i64, last: Vec<Revert>) {
        let before = self.ledger().policy(owner);
        self.ledger().set_policy(owner, policy, reverted, last);
        if before.is_some_and(|before| before != policy) {
            // What was passed over under the old policy has to be looked at again.
            let watches = self.0.watches.lock().unwrap_or_else(PoisonError::into_inner);
            watches.values().for_each(|watching| watching.relist.notify_one());
        }
    }

    /// Keeps an object at what an agent before this one verified.
    pub fn expect(&self, owner: &Owner, desired: &Arc<Desired>, uid: Option<String>, digest: Digest) {
        let verified = Verified { uid: uid.unwrap_or_default().into(), digest: Some(digest), ..Verified::default() };
        self.ledger().hold(owner, Arc::clone(desired), verified);
        if let Some(watching) = self.watch_kind(desired) {
            watching.relist.notify_one();
        }
    }

    /// The keys that are kept for an owner and have been applied.
    pub fn kept(&self, owner: &Owner) -> HashSet<Key> {
        let ledger = self.ledger();
        let kept = ledger.kept_for(owner).filter(|(_, m)| m.is_applied());
        kept.map(|(key, _)| key.clone()).collect()
    }

    /// Shows what was verified of everything that is kept for an owner. `look` must not wait: nothing is seen or
    /// applied meanwhile.
    pub fn verified(&self, owner: &Owner, mut look: impl FnMut(&Key, Known<'_>)) {
        let ledger = self.ledger();
        let kept = ledger
            .kept_for(owner)
            .filter(|(_, m)| m.is_applied() && !m.stale && !m.tombstoned && !m.verified.uid.is_empty());
        for (key, m) in kept {
            look(key, Known { uid: &m.verified.uid, digest: m.verified.digest, desired: &m.desired });
        }
    }

    /// Digest of the document that an object is kept at for an owner: nothing needs to be done about it by the owner,
    /// although it may just be on its way back, or under break glass.
    pub fn kept_at(&self, owner: &Owner, key: &Key) -> Option<Digest> {
        let ledger = self.ledger();
        let managed = ledger.get(key).filter(|managed| managed.owner == *owner && !managed.tombstoned)?;
        let applied = managed.is_applied() && !managed.stale;
        (applied || managed.paused.is_some()).then(|| managed.desired.source())
    }

    /// The document that is kept at a key, for an object whose commit did not change.
    pub fn desired(&self, key: &Key) -> Option<Arc<Desired>> {
        self.ledger().get(key).map(|managed| Arc::clone(&managed.desired))
    }

    /// The document moved or is decoded anew and says the same: what is kept refers to it from now on.
    pub fn renew(&self, owner: &Owner, desired: &Arc<Desired>) {
        if let Some(mut managed) = self.ledger().get_mut(&desired.key).filter(|m| m.owner == *owner) {
            managed.desired = Arc::clone(desired);
            if !std::mem::take(&mut managed.tombstoned) {
                return;
            }
            // Nobody looked while it counted as gone.
            self.look_again(&desired.key, Duration::ZERO);
        }
    }

    /// Follows an object under break glass that is not kept yet, and rings for its owner when that ends.
    pub fn await_resume(&self, owner: &Owner, desired: &Arc<Desired>) {
        let new = {
            let mut ledger = self.ledger();
            ledger.hold(owner, Arc::clone(desired), Verified::default());
            ledger.get_mut(&desired.key).is_some_and(|mut managed| managed.paused.replace(None).is_none())
        };
        if new {
            self.watch_by_name(desired);
        }
    }

    /// Whether an object is kept and known to be under break glass.
    pub fn is_paused(&self, key: &Key) -> bool {
        self.ledger().get(key).is_some_and(|managed| managed.paused.is_some())
    }

    /// Leaves an object alone from now on: it left the repository.
    pub fn tombstone(&self, owner: &Owner, key: &Key) {
        self.ledger().tombstone(owner, key);
    }

    /// Forgets an object.
    pub fn forget(&self, owner: &Owner, key: &Key) {
        self.ledger().forget(owner, key);
    }

    /// Forgets everything of an owner.
    pub fn forget_owner(&self, owner: &Owner) {
        self.ledger().forget_owner(owner);
        self.0.notifiers.lock().unwrap_or_else(PoisonError::into_inner).remove(owner);
        self.end_idle_watches();
    }

    /// What an owner's status says of its objects.
    pub fn summary(&self, owner: &Owner) -> Summary {
        let clock = self.clock();
        self.ledger().summary(owner, clock)
    }

    /// Objects that could not be put back, with the cause, once that has been tried again: what fails once only is over
    /// sooner than anybody can read of it.
    pub fn not_put_back(&self, owner: &Owner) -> Vec<(Key, String)> {
        let ledger = self.ledger();
        let remarkable = ledger.objects.tally(owner).into_iter().flat_map(|tally| &tally.remarkable);
        let cause = |key: &Key| {
            let managed = ledger.get(key).filter(|managed| managed.attempts > 1)?;
            Some((key.clone(), managed.failure.as_ref()?.message.clone()))
        };
        remarkable.filter_map(cause).collect()
    }

    /// How many objects have been put back lately (heat above zero).
    pub fn heated(&self, owner: &Owner) -> usize {
        let ledger = self.ledger();
        let remarkable = ledger.objects.tally(owner).into_iter().flat_map(|tally| &tally.remarkable);
        remarkable.filter(|key| ledger.get(key).is_some_and(|managed| managed.heat.is_some())).count()
    }

    /// Rings when something changed that an owner's status shows.
    pub fn notifier(&self, owner: &Owner) -> Arc<Notify> {
        let mut notifiers = self.0.notifiers.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(notifiers.entry(Arc::clone(owner)).or_default())
    }

    /// The cluster that is written to.
    pub fn cluster(&self) -> &Cluster {
        &self.0.cluster
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other write to the object is under way.
    pub(super) async fn turn(&self, key: &Key) -> tokio::sync::MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let at = usize::try_from(hasher.finish() % TURNS as u64).unwrap_or(0);
        self.0.turns[at].lock().await
    }

    /// Seconds on a monotonic clock.
    pub(super) fn clock(&self) -> f64 {
        self.0.started.elapsed().as_secs_f64()
    }

    #[expect(clippy::unused_self, reason = "the clock is the loop's, wherever it comes from")]
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    pub(super) fn changed(&self, owner: &Owner) {
        let notifiers = self.0.notifiers.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever has gone is not told, nor remembered for it.
        notifiers.get(owner).inspect(|notifier| notifier.notify_one());
    }

    pub(super) fn announce(
        &self,
        owner: &Owner,
        object: Option<(&Arc<Desired>, &Value)>,
        reason: &'static str,
        message: &Message,
    ) {
        let object = object.map(|(desired, live)| (&**desired, live));
        (self.0.announce)(&Announcement { owner, object, reason, message });
    }

    pub(super) fn enqueue(&self, key: Key) {
        let room = match self.0.queued.fetch_add(1, Ordering::AcqRel) {
            ..IN_FLIGHT => usize::MAX,
            IN_FLIGHT..WAITING_WITH_STATE => SMALL,
            _ => 0,
        };
        let ticket = {
            let mut ledger = self.ledger();
            let managed = ledger.get_mut(&key);
            managed.map_or(0, |mut managed| {
                if let Some(seen) = &mut managed.pending {
                    seen.live = seen.live.take().filter(|live| live.size() <= room);
                }
                managed.ticket
            })
        };
        self.send(Job::Turn(key, ticket));
    }

    /// Looks at an object again after a while.
    pub(super) fn look_again(&self, key: &Key, wait: Duration) {
        self.send(Job::Later { key: key.clone(), wait });
    }

    /// Looks at an object again when its break glass ends by itself.
    pub(super) fn look_when_over(&self, key: &Key, until: Option<Timestamp>) {
        if let Some(until) = until {
            let wait = Duration::try_from(until - self.now()).unwrap_or_default();
            self.look_again(key, wait + Duration::from_millis(50));
        }
    }

    pub(super) fn look_now(&self, key: &Key) {
        let next = self.ledger().look_now(key, Instant::now());
        self.carry_out(key, next);
    }

    /// Watches the objects of a kind from now on, if they are known by a label. The watch, if it was running already.
    pub(super) fn watch_kind(&self, desired: &Desired) -> Option<Arc<Watching>> {
        desired.label()?;
        let kind = &desired.kind;
        let id = (Arc::clone(&kind.group), Arc::clone(&kind.version), Arc::clone(&kind.kind));
        let mut watches = self.0.watches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = watches.get(&id) {
            return Some(Arc::clone(running));
        }
        let watching = Arc::new(Watching { relist: Notify::new(), stop: CancellationToken::new() });
        watches.insert(id, Arc::clone(&watching));
        self.send(Job::Watch(Arc::clone(kind), watching));
        None
    }

    /// Watches one object by name: it lost the label by which we would see it, and is not to be touched now.
    pub(super) fn watch_by_name(&self, desired: &Desired) {
        let over = CancellationToken::new();
        let new = self.ledger().get_mut(&desired.key).is_some_and(|mut managed| {
            let new = managed.followed.is_none();
            managed.followed.get_or_insert_with(|| over.clone().drop_guard());
            new
        });
        if new {
            self.send(Job::WatchByName(Arc::clone(&desired.kind), desired.key.clone(), over));
        }
    }

    /// Waits until no write to the object is under way, and keeps new ones from beginning for as long as the answer is
    /// held.
    pub async fn alone_with(&self, key: &Key) -> Alone<'_> {
        Alone(self.turn(key).await)
    }

    /// Ends the watches of kinds of which nothing is kept any more.
    pub fn end_idle_watches(&self) {
        let mut watches = self.0.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let ledger = self.ledger();
        watches.retain(|(group, version, kind), watching| {
            let kept = ledger.keeps(group, version, kind);
            if !kept {
                watching.stop.cancel();
            }
            kept
        });
    }

    /// Waits until it is known which workloads an autoscaler scales; a cluster that does not say is not waited for long.
    pub(super) async fn know_autoscalers(&self) {
        let mut known = self.0.autoscalers_known.subscribe();
        let _ = tokio::time::timeout(Duration::from_secs(10), known.wait_for(|known| *known)).await;
    }

    pub(super) fn autoscalers_are_known(&self) {
        self.0.autoscalers_known.send_replace(true);
    }

    fn send(&self, job: Job) {
        // The receiver is gone only when the loop has ended, and then nothing is to be done any more.
        let _ = self.0.jobs.send(job);
    }
}
