//! The turns of statuses that may wait.
//!
//! Two kinds of statuses wait for a turn:
//!
//! - With shards, a status that only names a new commit. A commit changes the statuses of all GitSyncs that follow it,
//!   although it changes few of their objects. If all were written together, the API server would delay the reverts, and the
//!   reads of GitSyncs that the agent takes over.
//! - Without shards, the status of a commit that was carried out, while other GitSyncs wait to carry out theirs. A status
//!   costs the API server as much as two to three applies, and would delay the objects of the others.
//!
//! Invariant: an agent writes at most [`NAMING_AT_ONCE`] statuses that only name a commit at a time, and none while a GitSync
//! reads its inventory for the first time. It writes none of a carried out commit while a GitSync waits to carry out one, and
//! then at most [`CARRIED_OUT_AT_ONCE`] at a time. After the longest wait, a status waits for nothing. Statuses that began to
//! wait together end their longest wait at different times.
//! Invariant: a task that is busy with an attempt has no turn. Each report uses up the turn, also if its write fails, and a
//! turn is granted only to a status whose last report has asked for one. So a task does not reconcile without a pause.
//!
//! Not here: which statuses have to wait (`urgency`, `report`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout_at;

use mainstay_cluster::Turns;

/// Maximum number of statuses in flight that only name a new commit.
const NAMING_AT_ONCE: usize = 2;
/// Maximum number of statuses in flight that have waited for the commits of other GitSyncs.
const CARRIED_OUT_AT_ONCE: usize = 16;

/// The reason why a status waits for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// It only names a new commit.
    NamesCommit,
    /// Its commit was carried out, and other GitSyncs wait to carry out theirs.
    CarriedOut,
}

impl Waits {
    /// Returns the minimum of the longest wait. Chance makes it up to twice as long.
    const fn longest(self) -> Duration {
        match self {
            Self::NamesCommit => Duration::from_secs(30),
            Self::CarriedOut => Duration::from_secs(5),
        }
    }
}

/// The turns of all GitSyncs of an agent. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct StatusTurns {
    naming: Arc<Semaphore>,
    carried_out: Arc<Semaphore>,
    /// The turns of GitSyncs that carry out a commit.
    commits: Arc<Turns>,
    /// The number of GitSyncs whose inventories were not read yet.
    starting: Arc<watch::Sender<usize>>,
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
    /// Returns turns after the commits that have these turns.
    pub(super) fn new(commits: Arc<Turns>) -> Self {
        Self {
            naming: Arc::new(Semaphore::new(NAMING_AT_ONCE)),
            carried_out: Arc::new(Semaphore::new(CARRIED_OUT_AT_ONCE)),
            commits,
            starting: Arc::new(watch::Sender::new(0)),
        }
    }

    /// Whether GitSyncs wait to carry out a commit.
    pub(super) fn has_waiting_commits(&self) -> bool {
        self.commits.are_awaited()
    }

    /// Records that a GitSync starts.
    fn start(&self) -> Starting {
        self.starting.send_modify(|count| *count += 1);
        Starting(Arc::clone(&self.starting))
    }

    /// Waits for the next turn. The semaphores are never closed.
    async fn next(&self, waits: Waits) -> Option<OwnedSemaphorePermit> {
        match waits {
            Waits::NamesCommit => {
                let slot = Arc::clone(&self.naming).acquire_owned().await.ok();
                let mut starting = self.starting.subscribe();
                let _ = starting.wait_for(|count| *count == 0).await;
                slot
            }
            Waits::CarriedOut => loop {
                self.commits.until_not_awaited().await;
                let slot = Arc::clone(&self.carried_out).acquire_owned().await.ok();
                if !self.has_waiting_commits() {
                    break slot;
                }
            },
        }
    }
}

/// A status that waits for its turn, or has it.
#[derive(Debug)]
struct Waiting {
    waits: Waits,
    /// End of the longest wait, which is the same for all turns of the status.
    until: Instant,
    /// Whether the last report asked for a turn.
    asks: bool,
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

    /// Records that a report begins. The status does not ask for a turn until the report does.
    pub(super) fn begin_report(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.asks = false;
        }
    }

    /// Whether the status may be written. If it may not, it asks for a turn, and waits from its first such report on.
    /// `chance` is from 0 to 1.
    pub(super) fn may_write(&mut self, waits: Waits, now: Instant, chance: f64) -> bool {
        let until = now + waits.longest().mul_f64(1.0 + chance);
        let begin = || Box::new(Waiting { waits, until, asks: false, is_granted: false, slot: None });
        let waiting = self.waiting.get_or_insert_with(begin);
        waiting.waits = waits;
        waiting.asks = !waiting.is_granted;
        waiting.is_granted
    }

    /// Ends the wait: the status was written, does not have to be, or could not be.
    pub(super) fn end(&mut self) {
        self.waiting = None;
    }

    /// Gives the turn back, such as before an attempt, which may take long. A status that asks again gets another turn.
    pub(super) fn give_back(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            (waiting.is_granted, waiting.slot) = (false, None);
        }
    }

    /// Waits until the status gets its turn. Waits forever if the status does not ask for one. Cancel-safe, but the place in
    /// the queue is lost.
    pub(super) async fn granted(&mut self, turns: &StatusTurns) {
        let waiting = self.waiting.as_mut().filter(|waiting| waiting.asks && !waiting.is_granted);
        let Some(waiting) = waiting else { return std::future::pending().await };
        // Boxed, because every task has space for this wait.
        let turn = Box::pin(timeout_at(waiting.until.into(), turns.next(waiting.waits)));
        waiting.slot = turn.await.ok().flatten();
        waiting.is_granted = true;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const NAMES: Waits = Waits::NamesCommit;

    fn turns() -> StatusTurns {
        StatusTurns::new(Arc::new(Turns::new(1, Duration::from_secs(60))))
    }

    /// Returns the time of the test.
    fn now() -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn has_slot(turn: &StatusTurn) -> bool {
        turn.waiting.as_ref().is_some_and(|waiting| waiting.slot.is_some())
    }

    fn waiting(now: Instant) -> StatusTurn {
        let mut turn = StatusTurn::default();
        assert!(!turn.may_write(NAMES, now, 0.0));
        turn
    }

    /// Returns how often a task reconciles in an hour because of its turn, up to 100 times. `report` is the part of a report
    /// that writes the status.
    async fn reconciles(mut turn: StatusTurn, report: impl Fn(&mut StatusTurn)) -> u32 {
        let (turns, end) = (turns(), tokio::time::Instant::now() + Duration::from_secs(3600));
        let mut count = 0;
        while count < 100 && timeout_at(end, turn.granted(&turns)).await.is_ok() {
            count += 1;
            turn.begin_report();
            report(&mut turn);
            turn.give_back();
        }
        assert_eq!(turns.naming.available_permits(), NAMING_AT_ONCE, "the turn is given back");
        count
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_that_does_not_write_the_status_is_not_repeated() {
        let now = now();
        assert_eq!(reconciles(waiting(now), |_| {}).await, 1, "it returns before it asks, or there is no outcome");
        let write_without_result = |turn: &mut StatusTurn| assert!(turn.may_write(NAMES, now, 0.0));
        assert_eq!(reconciles(waiting(now), write_without_result).await, 1, "the write panics");
        let refused = |turn: &mut StatusTurn| {
            assert!(turn.may_write(NAMES, now, 0.0));
            turn.end();
        };
        assert_eq!(reconciles(waiting(now), refused).await, 1, "the write is refused, or the GitSync is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_that_asks_for_no_turn_does_not_extend_the_wait() {
        let (turns, begun) = (turns(), tokio::time::Instant::now());
        let (mut turn, _starting) = (waiting(now()), StatusTurn::of(&turns, true));
        tokio::time::sleep(NAMES.longest() / 2).await;
        turn.begin_report();
        assert!(turn.granted(&turns).now_or_never().is_none(), "it does not ask");
        assert!(!turn.may_write(NAMES, now(), 1.0));
        turn.granted(&turns).await;
        assert!(begun.elapsed() < NAMES.longest() + Duration::from_secs(1), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn statuses_that_began_to_wait_together_end_their_wait_at_different_times() {
        let (turns, begun, now) = (turns(), tokio::time::Instant::now(), now());
        let _starting = StatusTurn::of(&turns, true);
        let mut ends = Vec::new();
        for part in 0..10_u32 {
            let mut turn = StatusTurn::default();
            assert!(!turn.may_write(NAMES, now, f64::from(part) / 10.0));
            turn.granted(&turns).await;
            assert!(turn.may_write(NAMES, now, 0.0));
            ends.push(begun.elapsed());
        }
        let is_spread = ends.windows(2).all(|pair| pair[1] > pair[0] + NAMES.longest() / 12);
        assert!(
            is_spread && ends[0] + Duration::from_secs(1) > NAMES.longest() && ends[9] < NAMES.longest() * 2,
            "{ends:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn two_statuses_are_written_at_a_time() {
        let (turns, now) = (turns(), now());
        let [mut first, mut second, mut third] = [waiting(now), waiting(now), waiting(now)];
        first.granted(&turns).await;
        second.granted(&turns).await;
        assert!(third.granted(&turns).now_or_never().is_none());
        assert!(
            first.may_write(NAMES, now, 0.0) && second.may_write(NAMES, now, 0.0) && !third.may_write(NAMES, now, 0.0)
        );
        first.end();
        third.granted(&turns).await;
        assert!(third.may_write(NAMES, now, 0.0));
        second.give_back();
        assert!(!second.may_write(NAMES, now, 0.0), "its task makes an attempt first");
        second.granted(&turns).await;
        assert!(second.may_write(NAMES, now, 0.0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_without_a_wait_gets_no_turn() {
        let (turns, mut turn) = (turns(), StatusTurn::default());
        assert!(turn.granted(&turns).now_or_never().is_none());
        assert!(!turn.may_write(NAMES, now(), 0.0));
        turn.granted(&turns).await;
        assert!(turn.granted(&turns).now_or_never().is_none(), "it has its turn already");
    }

    #[tokio::test(start_paused = true)]
    async fn statuses_wait_for_the_inventories_of_a_takeover_but_not_for_ever() {
        let (turns, now) = (turns(), now());
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
        assert!(turn.may_write(NAMES, now, 0.0) && !has_slot(&turn));
        assert!(begun.elapsed() < NAMES.longest() + Duration::from_secs(1), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn the_status_of_a_carried_out_commit_waits_for_the_commits_of_others_but_not_for_ever() {
        let (turns, waits) = (turns(), Waits::CarriedOut);
        let mut first = Box::pin(turns.commits.run(std::future::pending::<()>));
        let mut second = Box::pin(turns.commits.run(std::future::pending::<()>));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        assert!(turns.has_waiting_commits());
        let (mut turn, mut late) = (StatusTurn::default(), StatusTurn::default());
        assert!(!turn.may_write(waits, now(), 0.0) && !late.may_write(waits, now(), 0.0));
        assert!(turn.granted(&turns).now_or_never().is_none());
        let begun = tokio::time::Instant::now();
        late.granted(&turns).await;
        assert!(late.may_write(waits, now(), 0.0) && !has_slot(&late));
        assert!(begun.elapsed() < waits.longest() + Duration::from_secs(1), "{:?}", begun.elapsed());
        let mut turn = StatusTurn::default();
        assert!(!turn.may_write(waits, now(), 0.0));
        drop(second);
        turn.granted(&turns).await;
        assert!(turn.may_write(waits, now(), 0.0) && has_slot(&turn));
    }
}
