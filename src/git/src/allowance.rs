//! What one fetch may take, of however many repositories.
//!
//! Deliberately not here: the limits of a single pack and of a single mirror (`settings`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::Limits;
use super::error::Fault;
use super::spool::Space;

/// What is too large if it is more than that: whoever fetched it has asked for too much, and the remote is not to blame.
pub(super) const ALLOWED: &str = "what all submodules receive in bytes";

/// What a fetch may still take. Clones take from the same.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    /// When it ends.
    pub(super) until: Instant,
    limit: u64,
    /// Bytes of packs, with what they need while they are unpacked.
    left: Arc<AtomicU64>,
}

impl Allowance {
    /// Only the time is limited: of one pack there are limits of their own.
    pub(super) fn until(until: Instant) -> Self {
        Self { until, limit: u64::MAX, left: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// For all submodules of a commit: as much as one repository takes at most, twice, because a pack needs room while it is
    /// unpacked, and what does not fit to a mirror is fetched anew.
    pub(super) fn of_submodules(until: Instant, limits: &Limits) -> Self {
        let limit = limits.mirror_bytes.max(limits.pack_bytes).saturating_mul(2);
        Self { until, limit, left: Arc::new(AtomicU64::new(limit)) }
    }

    /// The same room, within the allowance.
    pub(super) fn space<S: Space + 'static>(&self, room: S) -> impl Space + 'static {
        Limited { allowance: self.clone(), room }
    }

    /// Takes bytes.
    fn take(&self, bytes: u64) -> Result<(), Fault> {
        let taken =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok();
        if taken { Ok(()) } else { Err(Fault::TooLarge { what: ALLOWED, limit: self.limit }) }
    }
}

/// Room that is limited by an allowance, too.
struct Limited<S> {
    allowance: Allowance,
    room: S,
}

impl<S: Space> Space for Limited<S> {
    fn take(&mut self, bytes: u64) -> Result<(), Fault> {
        self.allowance.take(bytes)?;
        self.room.take(bytes)
    }

    fn relieve(&mut self, bytes: u64) -> bool {
        self.room.relieve(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_take_from_the_same() {
        let limits = Limits { mirror_bytes: 50, pack_bytes: 20, ..Limits::default() };
        let allowance = Allowance::of_submodules(Instant::now(), &limits);
        allowance.take(60).unwrap();
        let text = allowance.clone().take(41).unwrap_err().to_string();
        assert_eq!(text, "what all submodules receive in bytes is larger than the limit of 100");
        allowance.take(40).unwrap();
        assert!(allowance.take(1).is_err());
        Allowance::until(Instant::now()).take(u64::MAX).unwrap();
    }
}
