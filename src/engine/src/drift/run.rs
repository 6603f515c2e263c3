//! The drift loop: it carries out the follow-ups of writes and events, and starts the reverts.
//!
//! A revert first waits for its own backoff, then for a permit. [`Limit`] sets the number of permits and [`Fair`]
//! shares them between owners.
//!
//! Not here: the watches (`watch`) and the revert itself (`apply`).

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::fair::Fair;
use super::limit::Limit;
use super::timers::Timers;
use super::watch::{Control, Drift};
use crate::apply::{FollowUp, FollowUps, ServerLoad};
use mainstay_cluster::KindId;
use mainstay_object::{Key, Owner};

/// Why the drift loop ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A task panicked or was cancelled.
    #[error("a task of the drift loop ended")]
    Task(#[source] JoinError),
}

/// The result of a task of the loop.
enum Ended {
    /// The backoff of a revert with this generation has elapsed.
    Backoff(Owner, Key, u32),
    /// A revert ended, with the server load that it saw.
    Revert(Owner, Option<ServerLoad>),
    /// An object was checked after a delay.
    Looked(Key),
    Other,
}

impl Drift {
    /// Runs until `stop`.
    ///
    /// # Errors
    /// A task of the loop panicked.
    pub async fn run(&self, mut follow_ups: FollowUps, stop: CancellationToken) -> Result<(), Error> {
        let mut running = Running::new(self.clone(), stop.clone());
        running.tasks.spawn(self.clone().follow_autoscalers(stop.clone()).map(|()| Ended::Other));
        running.tasks.spawn(self.clone().follow_inventories(stop.clone()).map(|()| Ended::Other));
        loop {
            let pause = running.begin_reverts();
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                follow_up = follow_ups.next() => running.carry_out(follow_up),
                Some(ended) = running.tasks.join_next_with_id() => match ended {
                    // A later timer replaced this one.
                    Err(error) if error.is_cancelled() => {}
                    ended => {
                        let (task, ended) = ended.map_err(Error::Task)?;
                        running.end(task, ended);
                    }
                },
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }
}

/// The state of the loop while it runs.
struct Running {
    drift: Drift,
    stop: CancellationToken,
    tasks: JoinSet<Ended>,
    watches: HashMap<KindId, Arc<Control>>,
    /// Reverts whose backoff has elapsed, with their generations.
    waiting: Fair<(Key, u32)>,
    limit: Limit,
    backoffs: Timers,
    looks: Timers,
}

impl Running {
    fn new(drift: Drift, stop: CancellationToken) -> Self {
        Self {
            drift,
            stop,
            tasks: JoinSet::new(),
            watches: HashMap::new(),
            waiting: Fair::default(),
            limit: Limit::default(),
            backoffs: Timers::default(),
            looks: Timers::default(),
        }
    }

    /// Starts the reverts that have a permit. Returns the remaining time of a pause.
    fn begin_reverts(&mut self) -> Option<Duration> {
        // The permits and the pause must refer to the same time.
        let now = Instant::now();
        let allowed = self.limit.allowed(now);
        let begin = std::iter::from_fn(|| self.waiting.pop(allowed)).collect::<Vec<_>>();
        let writer = &self.drift.writer;
        writer.set_reverts(self.waiting.in_flight(), !self.waiting.is_empty());
        for (owner, (key, generation)) in begin {
            let writer = writer.clone();
            self.tasks.spawn(async move { Ended::Revert(owner, writer.revert(&key, generation).await) });
        }
        let pause = self.limit.pause(now);
        writer.set_pause(pause.map(|pause| now + pause));
        pause
    }

    /// Handles the result of a task.
    fn end(&mut self, task: Id, ended: Ended) {
        match ended {
            Ended::Backoff(owner, key, generation) => {
                self.backoffs.ended(&key, task);
                self.waiting.push(&owner, (key, generation));
            }
            Ended::Looked(key) => self.looks.ended(&key, task),
            Ended::Revert(owner, load) => {
                self.waiting.done(&owner);
                learn(&mut self.limit, load);
            }
            Ended::Other => {}
        }
    }

    fn spawn<T: Future<Output = ()> + Send + 'static>(&mut self, task: impl FnOnce(Drift, CancellationToken) -> T) {
        self.tasks.spawn(task(self.drift.clone(), self.stop.clone()).map(|()| Ended::Other));
    }

    fn carry_out(&mut self, follow_up: FollowUp) {
        match follow_up {
            FollowUp::Revert(key, generation) => self.queue_revert(key, generation),
            FollowUp::Watch(kind) => {
                let control = Arc::<Control>::default();
                self.watches.insert(kind.id(), Arc::clone(&control));
                self.spawn(|drift, stop| drift.follow(kind, control, stop));
            }
            FollowUp::List(kind) => self.watches.get(&kind).into_iter().for_each(|control| control.list.notify_one()),
            FollowUp::EndWatch(kind) => {
                self.watches.remove(&kind).into_iter().for_each(|control| control.end.cancel());
            }
            FollowUp::WatchByName(kind, key, over) => {
                self.spawn(|drift, stop| drift.follow_by_name(kind, key, over, stop));
            }
            FollowUp::Learn(load) => learn(&mut self.limit, Some(load)),
            FollowUp::LookAgain(key, Duration::ZERO) => self.drift.look_now(&key),
            FollowUp::LookAgain(key, wait) => {
                let (drift, slept) = (self.drift.clone(), tokio::time::sleep(wait));
                self.looks.start(&mut self.tasks, key.clone(), async move {
                    slept.await;
                    drift.look_now(&key);
                    Ended::Looked(key)
                });
            }
        }
    }

    /// Waits for the backoff of a revert, then queues it for a permit.
    fn queue_revert(&mut self, key: Key, generation: u32) {
        let writer = &self.drift.writer;
        let delay = writer.store().revert_delay(&key, writer.clock(), Instant::now());
        let Some((owner, delay)) = delay else { return };
        if delay.is_zero() {
            self.waiting.push(&owner, (key, generation));
            return;
        }
        // A zero sleep would still last until the next millisecond of the timer.
        let slept = tokio::time::sleep(delay);
        let (writer, object) = (writer.clone(), key.clone());
        self.backoffs.start(&mut self.tasks, object, async move {
            let _ = tokio::time::timeout(delay, writer.note_waiting(&key, generation, delay)).await;
            slept.await;
            Ended::Backoff(owner, key, generation)
        });
    }
}

/// Updates the limit with the server load that a revert or an audit saw.
fn learn(limit: &mut Limit, load: Option<ServerLoad>) {
    let before = limit.number();
    match load {
        None => {}
        Some(ServerLoad::Answered { sent, in_flight, at }) => limit.answered(sent, in_flight, at),
        Some(ServerLoad::Overloaded { sent, retry_after }) => limit.overloaded(sent, retry_after, Instant::now()),
    }
    if limit.number() < before {
        tracing::debug!(reverts = limit.number(), "the server is busy: fewer concurrent reverts");
    }
}
