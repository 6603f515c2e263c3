//! What follows from a failed attempt to watch: whether a plain list is tried instead of a streaming one, and how long to
//! wait.
//!
//! A streaming list (`sendInitialEvents`) is not to be had everywhere where it is offered: an API server over an old
//! etcd answers it with 500 for ever, and what stands between may hold it back. LIST and WATCH are everywhere.
//!
//! Invariant: what is remembered of a kind was proved by a plain list that succeeded where the streaming one had failed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::error::{Cause, Error};
use crate::cluster::kind::Kind;
use crate::cluster::refusal::Refusal;
use crate::failure::Backoff;

/// Kinds that are listed and watched from now on, because their streaming lists failed.
#[derive(Default)]
pub(in crate::cluster) struct Unstreamed(Mutex<BTreeSet<Arc<str>>>);

impl Unstreamed {
    pub(super) fn contains(&self, kind: &Kind) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&kind.resource)
    }

    pub(super) fn insert(&self, kind: &Kind) {
        let new = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(Arc::clone(&kind.resource));
        if new {
            tracing::info!(resource = %kind.resource, "the server does not stream this list: it is read in pages");
        }
    }
}

/// Whether a plain list may succeed where a streaming list failed like this: the server answered, whatever it said, or
/// was silent. A connection that breaks says nothing about streaming lists.
pub(super) fn lists_instead(error: &Error) -> bool {
    matches!(&*error.cause, Cause::Refused(_) | Cause::TimedOut(_))
}

/// Whether the server has too much to do and wants to be left alone before anything else is asked.
pub(super) fn is_busy(refusal: &Refusal) -> bool {
    refusal.code == 429 || (refusal.code == 503 && refusal.retry_after.is_some())
}

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
/// Minimum delay after an answer that only an administrator can change: no permission, or no such kind.
const MIN_UNSERVED: Duration = Duration::from_secs(5);
/// The longest `Retry-After` that a watch honours.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// The delay after this many failures in a row: the larger of [`BACKOFF`] and what the refusal asks for. `chance` (0 to 1)
/// takes up to half of the backoff off, so that the watches of a restarted server do not all return at once.
pub(super) fn pause(failures: u32, refusal: Option<&Refusal>, chance: f64) -> Duration {
    let least = match refusal.map(|refusal| refusal.code) {
        Some(401 | 403 | 404) => MIN_UNSERVED,
        _ => Duration::ZERO,
    };
    let retry_after = refusal.and_then(|refusal| refusal.retry_after).unwrap_or_default().min(MAX_RETRY_AFTER);
    BACKOFF.delay(failures).max(least).mul_f64(1.0 - chance / 2.0).max(retry_after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_half_a_minute() {
        let check = |failures, chance, seconds: f64| {
            assert_eq!(pause(failures, None, chance), Duration::from_secs_f64(seconds), "{failures} {chance}");
        };
        check(1, 0.0, 0.5);
        check(1, 1.0, 0.25);
        check(4, 0.0, 4.0);
        check(u32::MAX, 0.0, 30.0);
    }
}
