//! The turns of statuses that only name a new commit, for an agent with a shard.
//!
//! A commit changes the statuses of all GitSyncs that follow it, although it changes few of their objects. If all were
//! written together, the API server would delay the reverts, and the reads of GitSyncs that the agent takes over.
//!
//! Invariant: an agent writes at most [`AT_ONCE`] such statuses at a time, and none while a GitSync reads its inventory for
//! the first time.
//! Invariant: a status waits for [`LONGEST`] at most. A task that is busy with an attempt has no turn.
//!
//! Not here: which statuses have to wait (`urgency`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout_at;

/// Maximum number of statuses in flight that only name a new commit.
const AT_ONCE: usize = 2;
/// Maximum wait of such a status.
const LONGEST: Duration = Duration::from_secs(30);

/// The turns of all GitSyncs of an agent. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct StatusTurns {
    slots: Arc<Semaphore>,
    /// The number of GitSyncs whose inventories were not read yet.
    starting: Arc<watch::Sender<usize>>,
}

impl Default for StatusTurns {
    fn default() -> Self {
        Self { slots: Arc::new(Semaphore::new(AT_ONCE)), starting: Arc::new(watch::Sender::new(0)) }
    }
}

/// A GitSync that starts. Statuses have turns again once all of these are dropped.
#[derive(Debug)]
struct Starting(Arc<watch::Sender<usize>>);

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl StatusTurns {
    /// Records that a GitSync starts.
    fn start(&self) -> Starting {
        self.starting.send_modify(|count| *count += 1);
        Starting(Arc::clone(&self.starting))
    }

    /// Waits for the next turn. The semaphore is never closed.
    async fn next(&self) -> Option<OwnedSemaphorePermit> {
        let slot = Arc::clone(&self.slots).acquire_owned().await.ok();
        let mut starting = self.starting.subscribe();
        let _ = starting.wait_for(|count| *count == 0).await;
        slot
    }
}

/// A status that waits for its turn, or has it.
#[derive(Debug)]
struct Waiting {
    since: Instant,
    is_granted: bool,
    /// The slot; `None` also after the longest wait.
    slot: Option<OwnedSemaphorePermit>,
}

/// The turn of the status of one GitSync.
#[derive(Debug, Default)]
pub(super) struct StatusTurn {
    waiting: Option<Box<Waiting>>,
    /// Delays the statuses of all GitSyncs until the inventory of this one was read.
    starting: Option<Starting>,
}

impl StatusTurn {
    /// Returns the turn of a new task. If `starts`, the statuses of all GitSyncs wait until it has [started](Self::started).
    pub(super) fn of(turns: &StatusTurns, starts: bool) -> Self {
        Self { starting: starts.then(|| turns.start()), ..Self::default() }
    }

    /// Records that the inventory was read, or cannot be.
    pub(super) fn started(&mut self) {
        self.starting = None;
    }

    /// Whether the status may be written. If it may not, it waits for its turn from `now` on.
    pub(super) fn may_write(&mut self, now: Instant) -> bool {
        let begin = || Box::new(Waiting { since: now, is_granted: false, slot: None });
        self.waiting.get_or_insert_with(begin).is_granted
    }

    /// Ends the wait: the status was written, or does not have to be.
    pub(super) fn end(&mut self) {
        self.waiting = None;
    }

    /// Gives the turn back, such as before an attempt, which may take long. A status that waits gets another turn.
    pub(super) fn give_back(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            (waiting.is_granted, waiting.slot) = (false, None);
        }
    }

    /// Waits until the status gets its turn. Waits forever if the status does not wait. Cancel-safe, but the place in the
    /// queue is lost.
    pub(super) async fn granted(&mut self, turns: &StatusTurns) {
        let waiting = self.waiting.as_mut().filter(|waiting| !waiting.is_granted);
        let Some(waiting) = waiting else { return std::future::pending().await };
        // Boxed, because every task has space for this wait.
        let turn = Box::pin(timeout_at((waiting.since + LONGEST).into(), turns.next()));
        waiting.slot = turn.await.ok().flatten();
        waiting.is_granted = true;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// Returns the time of the test.
    fn now() -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn has_slot(turn: &StatusTurn) -> bool {
        turn.waiting.as_ref().is_some_and(|waiting| waiting.slot.is_some())
    }

    fn waiting(now: Instant) -> StatusTurn {
        let mut turn = StatusTurn::default();
        assert!(!turn.may_write(now));
        turn
    }

    #[tokio::test(start_paused = true)]
    async fn two_statuses_are_written_at_a_time() {
        let (turns, now) = (StatusTurns::default(), now());
        let [mut first, mut second, mut third] = [waiting(now), waiting(now), waiting(now)];
        first.granted(&turns).await;
        second.granted(&turns).await;
        assert!(third.granted(&turns).now_or_never().is_none());
        assert!(first.may_write(now) && second.may_write(now) && !third.may_write(now));
        first.end();
        third.granted(&turns).await;
        assert!(third.may_write(now));
        second.give_back();
        assert!(!second.may_write(now), "its task makes an attempt first");
        second.granted(&turns).await;
        assert!(second.may_write(now));
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_without_a_wait_gets_no_turn() {
        let (turns, mut turn) = (StatusTurns::default(), StatusTurn::default());
        assert!(turn.granted(&turns).now_or_never().is_none());
        assert!(!turn.may_write(now()));
        turn.granted(&turns).await;
        assert!(turn.granted(&turns).now_or_never().is_none(), "it has its turn already");
    }

    #[tokio::test(start_paused = true)]
    async fn statuses_wait_for_the_inventories_of_a_takeover_but_not_for_ever() {
        let (turns, now) = (StatusTurns::default(), now());
        let (mut first, second) = (StatusTurn::of(&turns, true), StatusTurn::of(&turns.clone(), true));
        let mut turn = waiting(now);
        first.started();
        assert!(turn.granted(&turns).now_or_never().is_none());
        drop(second);
        turn.granted(&turns).await;
        assert!(has_slot(&turn));
        turn.end();
        let _third = StatusTurn::of(&turns, true);
        let (mut turn, begun) = (waiting(now), tokio::time::Instant::now());
        turn.granted(&turns).await;
        assert!(turn.may_write(now) && !has_slot(&turn));
        assert!(begun.elapsed() < LONGEST + Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}
