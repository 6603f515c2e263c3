//! Turns of pieces of work: a bounded number is in progress, and the others wait in order.
//!
//! Work that waits is not created yet, so it takes no memory. Work that takes long gives up its turn and goes on, so slow
//! work does not block other work.
//!
//! Invariant: at most as many pieces as there are turns are in progress, in addition to slow ones.

use std::time::Duration;

use tokio::sync::{Semaphore, watch};

/// The turns for pieces of work of one kind.
#[derive(Debug)]
pub struct Turns {
    free: Semaphore,
    /// Time after which work in progress is slow.
    slow: Duration,
    /// Number of waiting pieces. Only the change to 0 is notified, because thousands may wait for it.
    waiting: watch::Sender<usize>,
}

/// A waiting piece of work.
struct Waiting<'t>(&'t watch::Sender<usize>);

impl<'t> Waiting<'t> {
    fn of(waiting: &'t watch::Sender<usize>) -> Self {
        waiting.send_if_modified(|count| {
            *count += 1;
            false
        });
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_if_modified(|count| {
            *count -= 1;
            *count == 0
        });
    }
}

impl Turns {
    /// Returns turns for `count` concurrent pieces of work. Work is slow after the time `slow`.
    #[must_use]
    pub fn new(count: usize, slow: Duration) -> Self {
        Self { free: Semaphore::new(count), slow, waiting: watch::Sender::default() }
    }

    /// Whether work waits for a turn.
    #[must_use]
    pub fn are_awaited(&self) -> bool {
        *self.waiting.borrow() > 0
    }

    /// Waits until no work waits for a turn.
    pub async fn until_not_awaited(&self) {
        // The sender is in `self`.
        let _ = self.waiting.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Creates and does a piece of work once there is a free turn. The work is on the heap.
    pub async fn run<F: Future>(&self, work: impl FnOnce() -> F) -> F::Output {
        let turn = if let Ok(turn) = self.free.try_acquire() {
            Some(turn)
        } else {
            let _waiting = Waiting::of(&self.waiting);
            // The semaphore is never closed.
            self.free.acquire().await.ok()
        };
        let mut work = Box::pin(work());
        if let Ok(done) = tokio::time::timeout(self.slow, &mut work).await {
            return done;
        }
        drop(turn);
        work.await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;

    use futures::FutureExt as _;
    use futures::future::join_all;

    use super::*;

    const SLOW: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn others_may_wait_until_no_work_waits() {
        let turns = Turns::new(1, SLOW);
        assert!(!turns.are_awaited());
        turns.until_not_awaited().await;
        let first = turns.run(pending::<()>);
        let mut first = Box::pin(first);
        assert!((&mut first).now_or_never().is_none() && !turns.are_awaited());
        let mut second = Box::pin(turns.run(pending::<()>));
        assert!((&mut second).now_or_never().is_none() && turns.are_awaited());
        let mut over = Box::pin(turns.until_not_awaited());
        assert!((&mut over).now_or_never().is_none());
        drop(first);
        assert!((&mut over).now_or_never().is_none(), "the second one has not taken the turn yet");
        assert!((&mut second).now_or_never().is_none() && !turns.are_awaited());
        over.await;
        let mut third = Box::pin(turns.run(pending::<()>));
        assert!((&mut third).now_or_never().is_none() && turns.are_awaited());
        drop(third);
        assert!(!turns.are_awaited(), "work that is cancelled does not wait");
    }

    #[tokio::test(start_paused = true)]
    async fn work_waits_for_a_turn_before_it_is_created_and_slow_work_gives_its_turn_up() {
        let (turns, created) = (Turns::new(2, SLOW), Cell::new(0));
        let endless = || {
            created.set(created.get() + 1);
            pending::<()>()
        };
        let mut all = Box::pin(join_all((0..5).map(|_| turns.run(endless))));
        assert!((&mut all).now_or_never().is_none());
        assert_eq!(created.get(), 2);
        for expected in [4, 5] {
            tokio::time::advance(SLOW).await;
            assert!((&mut all).now_or_never().is_none());
            assert_eq!(created.get(), expected);
        }
        tokio::time::advance(SLOW).await;
        assert!((&mut all).now_or_never().is_none());
        assert_eq!(turns.run(async || 7).await, 7, "slow work has no turn");
    }
}
