//! The consequence of a failed watch: whether a paginated list replaces the streaming one, and the delay before the
//! retry.
//!
//! A streaming list (`sendInitialEvents`) does not work everywhere where it is offered: an API server over an old etcd
//! answers it with 500 for ever, and a proxy may hold it back. LIST and WATCH work everywhere.
//!
//! Invariant: a kind is remembered as not streamable only after a paginated list succeeded where the streaming one had
//! failed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::{Cause, Error};
use crate::kind::Kind;
use crate::refusal::Refusal;
use mainstay_object::failure::Backoff;

/// Kinds whose streaming lists failed. They are read with a paginated list.
#[derive(Default)]
pub(crate) struct Unstreamed(Mutex<BTreeSet<Arc<str>>>);

impl Unstreamed {
    pub(super) fn contains(&self, kind: &Kind) -> bool {
        self.0.lock().contains(&kind.resource)
    }

    pub(super) fn insert(&self, kind: &Kind) {
        let new = self.0.lock().insert(Arc::clone(&kind.resource));
        if new {
            tracing::info!(resource = %kind.resource, "the server does not stream this list: it is read as a paginated one");
        }
    }
}

/// Whether a paginated list may succeed after this failure of a streaming one: the server refused it or was silent. A
/// broken connection says nothing about streaming lists.
pub(super) fn may_list_instead(error: &Error) -> bool {
    matches!(&*error.cause, Cause::Refused(_) | Cause::TimedOut(_))
}

/// Whether the server is overloaded and should not be asked anything else before its `Retry-After`.
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
pub(super) fn delay(failures: u32, refusal: Option<&Refusal>, chance: f64) -> Duration {
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
    fn delays_grow_to_half_a_minute() {
        let check = |failures, chance, seconds: f64| {
            assert_eq!(delay(failures, None, chance), Duration::from_secs_f64(seconds), "{failures} {chance}");
        };
        check(1, 0.0, 0.5);
        check(1, 1.0, 0.25);
        check(4, 0.0, 4.0);
        check(u32::MAX, 0.0, 30.0);
    }
}
