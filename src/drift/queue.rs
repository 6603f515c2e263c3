//! The work queue of the backward loop: reverts and reports that wait for a permit, watches that begin, objects that are
//! looked at later; and the task that runs them.
//!
//! Invariant: no more reverts are in flight than the server takes ([`Limit`]), and owners share them ([`Fair`]); who waits
//! for its own sake (a fight, a failure) keeps nobody else waiting.
//! Invariant: what waits is bounded in bytes: beyond a number, what was seen is left out and read again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Drift;
use super::fair::Fair;
use super::keep::Error;
use super::limit::{Limit, MOST};
use super::watching::Watching;
use crate::cluster::{self, Cause, Kind};
use crate::managed::seen::{SMALL, Sight};
use crate::object::{Key, Owner};

/// Reverts that may wait together with the state that was found, if it is small. Beyond that number the state is dropped
/// and the object is read again when its revert begins.
const WAITING_WITH_STATE: usize = 1000;
/// Of them, how many keep the state as it is, not as compact JSON.
const WAITING_WITH_VALUE: usize = 128;
/// Longest wait of the forward loop for the backward loop, per object.
const YIELD: Duration = Duration::from_millis(50);

pub(super) enum Job {
    Watch(Arc<Kind>, Arc<Watching>),
    /// With what ends it.
    WatchByName(Arc<Kind>, Key, CancellationToken),
    /// With its generation.
    Revert(Key, u32),
    Later {
        key: Key,
        wait: Duration,
    },
    /// Lets those go on that wait, after a while.
    Grant(Duration),
}

/// The queue.
pub(super) struct Queue {
    jobs: mpsc::UnboundedSender<Job>,
    inbox: Mutex<Option<mpsc::UnboundedReceiver<Job>>>,
    reverts: Mutex<Reverts>,
    /// Turns on the queue.
    queued: AtomicUsize,
    /// Those of them that may be taken as soon as there is room.
    waiting: AtomicUsize,
    calm: Notify,
}

/// The reverts that wait for their permit, and how many have one.
#[derive(Default)]
struct Reverts {
    fair: Fair<oneshot::Sender<()>>,
    limit: Limit,
}

impl Reverts {
    /// Takes in what a write says about the server.
    fn learn(&mut self, learn: impl FnOnce(&mut Limit)) {
        let before = self.limit.number();
        learn(&mut self.limit);
        if self.limit.number() < before {
            tracing::debug!(reverts = self.limit.number(), "the server is busy: fewer reverts at once");
        }
    }

    /// Gives permits to as many as may go on now.
    fn grant(&mut self) {
        while let Some((owner, waits)) = self.fair.pop(self.limit.allowed(Instant::now())) {
            if waits.send(()).is_err() {
                self.fair.done(&owner);
            }
        }
    }
}

/// Permission for one revert, until this is dropped.
struct Permit<'q> {
    queue: &'q Queue,
    owner: &'q Owner,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut reverts = self.queue.reverts();
        reverts.fair.done(self.owner);
        reverts.grant();
    }
}

/// A write that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    at: Instant,
    /// How many were in flight then.
    in_flight: usize,
}

impl Default for Queue {
    fn default() -> Self {
        let (jobs, inbox) = mpsc::unbounded_channel();
        Self {
            jobs,
            inbox: Mutex::new(Some(inbox)),
            reverts: Mutex::default(),
            queued: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            calm: Notify::new(),
        }
    }
}

impl Queue {
    pub(super) fn send(&self, job: Job) {
        // The receiver is gone only when the loop has ended, and then nothing is to be done any more.
        let _ = self.jobs.send(job);
    }

    /// Where the jobs come out; the first who asks has it.
    fn inbox(&self) -> Option<mpsc::UnboundedReceiver<Job>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Counts one more queued revert; returns what of the state that was seen may wait with it.
    fn enter(&self, seen: Option<Sight>) -> Option<Sight> {
        match self.queued.fetch_add(1, Ordering::AcqRel) {
            ..MOST => seen,
            MOST..WAITING_WITH_VALUE => seen.filter(|seen| seen.size() <= SMALL),
            WAITING_WITH_VALUE..WAITING_WITH_STATE => seen.and_then(|seen| seen.within(SMALL)),
            _ => None,
        }
    }

    fn reverts(&self) -> MutexGuard<'_, Reverts> {
        self.reverts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one more revert of this owner may be in flight. `None`: the queue is over.
    async fn permit<'q>(&'q self, owner: &'q Owner) -> Option<Permit<'q>> {
        let (grant, granted) = oneshot::channel();
        {
            let mut reverts = self.reverts();
            reverts.fair.push(owner, grant);
            reverts.grant();
        }
        granted.await.ok()?;
        Some(Permit { queue: self, owner })
    }

    /// A write of a revert is sent now.
    pub(super) fn sent(&self) -> Sent {
        Sent { at: Instant::now(), in_flight: self.reverts().fair.in_flight() }
    }

    /// It was answered as it should be.
    pub(super) fn answered(&self, sent: Sent) {
        let mut reverts = self.reverts();
        reverts.learn(|limit| limit.answered(sent.at, sent.in_flight, Instant::now()));
        reverts.grant();
    }

    /// It failed. `again`: that the object was refused is nothing new.
    pub(super) fn failed(&self, sent: Sent, error: &cluster::Error, again: bool) {
        let is_overloaded = match error.code() {
            Some(code) => code == 429 || code > 500 || (code == 500 && !again),
            None => matches!(&*error.cause, Cause::TimedOut(_)),
        };
        if !is_overloaded {
            return;
        }
        let mut reverts = self.reverts();
        let now = Instant::now();
        reverts.learn(|limit| limit.overloaded(sent.at, error.retry_after(), now));
        if let Some(pause) = reverts.limit.pause(now) {
            self.send(Job::Grant(pause));
        }
    }
}

impl Drift {
    /// Runs until `stop`, or until one of its tasks breaks. To be called once.
    pub async fn run(&self, stop: CancellationToken) -> Result<(), Error> {
        let Some(mut inbox) = self.0.queue.inbox() else { return Ok(()) };
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
            Job::Revert(key, generation) => tasks.spawn(this.run_revert(key, generation)),
            Job::Later { key, wait } => tasks.spawn(async move {
                tokio::time::sleep(wait).await;
                this.look_now(&key);
            }),
            Job::Grant(wait) => tasks.spawn(async move {
                tokio::time::sleep(wait).await;
                this.0.queue.reverts().grant();
            }),
        };
    }

    async fn run_revert(self, key: Key, generation: u32) {
        let delay = self.delay(&key);
        if !delay.is_zero() {
            // Even a sleep of nothing lasts until the timer's next millisecond.
            tokio::time::sleep(delay).await;
        }
        let queue = &self.0.queue;
        // What has to wait for its own sake keeps nobody else waiting.
        queue.waiting.fetch_add(1, Ordering::AcqRel);
        let owner = self.store().get(&key).map(|managed| managed.owner.clone());
        if let Some(owner) = &owner
            && let Some(_permit) = queue.permit(owner).await
        {
            self.0.liveness.track(self.put_back_or_report(key, generation)).await;
        }
        queue.queued.fetch_sub(1, Ordering::AcqRel);
        if queue.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            queue.calm.notify_waiters();
        }
    }

    /// Lets waiting reverts go first, for a moment: drift goes before sync work.
    pub async fn yield_to_reverts(&self) {
        let queue = &self.0.queue;
        if queue.waiting.load(Ordering::Acquire) > 0 {
            let _ = tokio::time::timeout(YIELD, queue.calm.notified()).await;
        }
    }

    pub(super) fn enqueue(&self, key: Key) {
        let generation = {
            let mut store = self.store();
            let mut managed = store.get_mut(&key);
            let pending = managed.as_mut().and_then(|managed| managed.write.pending_mut());
            match pending {
                Some(seen) => seen.live = self.0.queue.enter(seen.live.take()),
                None => drop(self.0.queue.enter(None)),
            }
            managed.map_or(0, |managed| managed.generation)
        };
        self.0.queue.send(Job::Revert(key, generation));
    }

    /// Looks at an object again after a while.
    pub(super) fn look_again(&self, key: &Key, wait: Duration) {
        self.0.queue.send(Job::Later { key: key.clone(), wait });
    }

    /// Looks at an object again when its break glass ends by itself.
    pub(super) fn look_when_over(&self, key: &Key, until: Option<Timestamp>) {
        if let Some(until) = until {
            let wait = Duration::try_from(until - self.now()).unwrap_or_default();
            self.look_again(key, wait + Duration::from_millis(50));
        }
    }

    pub(super) fn look_now(&self, key: &Key) {
        let next = self.store().look_now(key, Instant::now());
        self.carry_out(key, next);
    }
}
