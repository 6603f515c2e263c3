//! The threads that may index packs and read objects: a bound for all remotes together, shared fairly by namespaces.
//!
//! Invariant: a slot is held until the work on its thread has ended, even when nobody waits for that any more.
//! Deliberately not here: whose turn it is (`turns`).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::error::Fault;
use super::turns::{Party, Turns};

/// All slots. Cheap to clone.
#[derive(Clone)]
pub(super) struct Slots(Arc<Mutex<Turns<oneshot::Sender<Slot>>>>);

/// The slots, as one party uses them.
#[derive(Clone, Debug)]
pub(super) struct Share {
    slots: Slots,
    party: Party,
}

/// A slot that is held; dropping it gives it to the next.
struct Slot {
    slots: Slots,
    /// `None`: it was given back already.
    party: Option<Party>,
}

impl Slots {
    pub(super) fn new(slots: usize) -> Self {
        Self(Arc::new(Mutex::new(Turns::new(slots))))
    }

    /// The slots as `party` uses them.
    pub(super) fn share(&self, party: &Party) -> Share {
        Share { slots: self.clone(), party: Arc::clone(party) }
    }

    /// The slots as the one of several parties uses them that holds the fewest now, `party` among equals. So work that
    /// all of them wait for is not held up by what one of them does besides.
    pub(super) fn share_of_all<'p>(&self, party: &Party, others: impl Iterator<Item = &'p str>) -> Share {
        let turns = self.turns();
        let mut best = (turns.held(party), Arc::clone(party));
        for other in others {
            let held = turns.held(other);
            if held < best.0 {
                best = (held, other.into());
            }
        }
        drop(turns);
        self.share(&best.1)
    }

    /// Gives free slots to those whose turn it is.
    fn give(&self) {
        loop {
            // Bound first: a slot that nobody takes needs the lock again.
            let next = self.turns().next();
            let Some((party, waiter)) = next else { return };
            let slot = Slot { slots: self.clone(), party: Some(party) };
            if let Err(mut refused) = waiter.send(slot)
                && let Some(party) = refused.party.take()
            {
                self.turns().give_back(&party);
            }
        }
    }

    fn turns(&self) -> MutexGuard<'_, Turns<oneshot::Sender<Slot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Runs `work` on a blocking thread when it is the party's turn.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
        let (waiter, turn) = oneshot::channel();
        self.slots.turns().wait(&self.party, waiter, oneshot::Sender::is_closed);
        self.slots.give();
        let slot = turn.await.map_err(|_| Fault::Stopped)?;
        let work = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(slot);
            result
        });
        work.await.map_err(|_| Fault::Stopped)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(party) = self.party.take() {
            self.slots.turns().give_back(&party);
            self.slots.give();
        }
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slots")
    }
}
