//! Limits of time and bytes for one fetch, across all repositories that it reads.
//!
//! Not here: the limits of a single pack and of a single mirror (`settings`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::Limits;
use super::error::Fault;
use super::spool::Space;

/// The description of this limit in `Fault::TooLarge`. If it is exceeded, the request was too large; the remote is not
/// the cause.
pub(super) const ALLOWED: &str = "the data received for all submodules in bytes";

/// The remaining limits of a fetch. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    /// Deadline of the fetch.
    pub(super) until: Instant,
    limit: u64,
    /// Remaining bytes of packs, including the space that unpacking needs.
    left: Arc<AtomicU64>,
}

impl Allowance {
    /// Limits only the time. A single pack has its own limits.
    pub(super) fn until(until: Instant) -> Self {
        Self { until, limit: u64::MAX, left: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// Limits all submodules of a commit together to twice the maximum of one repository. Unpacking needs space
    /// besides the pack, and a pack that does not match the mirror is fetched again.
    pub(super) fn of_submodules(until: Instant, limits: &Limits) -> Self {
        let limit = limits.mirror_bytes.max(limits.pack_bytes).saturating_mul(2);
        Self { until, limit, left: Arc::new(AtomicU64::new(limit)) }
    }

    /// Returns `room`, limited also by this allowance.
    pub(super) fn space<S: Space + 'static>(&self, room: S) -> impl Space + 'static {
        Limited { allowance: self.clone(), room }
    }

    /// Consumes bytes.
    fn take(&self, bytes: u64) -> Result<(), Fault> {
        let taken =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok();
        if taken { Ok(()) } else { Err(Fault::TooLarge { what: ALLOWED, limit: self.limit }) }
    }
}

/// Space that is also limited by an allowance.
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
        assert_eq!(text, "the data received for all submodules in bytes is larger than the limit of 100");
        allowance.take(40).unwrap();
        assert!(allowance.take(1).is_err());
        Allowance::until(Instant::now()).take(u64::MAX).unwrap();
    }
}
