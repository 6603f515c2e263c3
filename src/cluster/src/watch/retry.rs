//! Handles failures of a watch: the fallback from a streaming list to a paginated one, and the backoff.
//!
//! Some servers offer streaming lists (`sendInitialEvents`) that do not work: an API server with an old etcd always
//! responds with 500, and a proxy may buffer the stream. LIST and WATCH work everywhere.
//!
//! Invariant: a kind is recorded as not streamable only after its streaming list failed and its paginated list
//! succeeded. If the streaming list sent nothing, the page must come quickly. Otherwise the server is overloaded, and the
//! streaming list begins again with a longer timeout: a list of 30 000 objects has 600 pages.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::{Cause, Error};
use crate::kind::Kind;
use crate::refusal::Refusal;
use mainstay_object::failure::Backoff;

/// Kinds whose streaming lists failed. They are listed in pages.
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

/// The reason why a list is paginated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instead {
    /// The server refused or ended the streaming list.
    Refused,
    /// The streaming list sent nothing.
    Silent,
    /// The server is overloaded and said so.
    Busy,
}

/// Maximum time for a page of a server that is not overloaded.
pub(super) const QUICK: Duration = Duration::from_secs(1);

impl Instead {
    pub(super) fn of(error: &Error) -> Self {
        match &*error.cause {
            Cause::TimedOut(_) => Self::Silent,
            _ if error.refusal().is_some_and(is_busy) => Self::Busy,
            _ => Self::Refused,
        }
    }
}

/// Whether a paginated list may succeed after this failure of a streaming list: the server refused it, or sent no data.
/// A broken connection is no sign of a problem with streaming lists.
pub(super) fn may_list_instead(error: &Error) -> bool {
    matches!(&*error.cause, Cause::Refused(_) | Cause::TimedOut(_))
}

/// Whether the server may have been replaced by one with a different history: the connection was lost, or a load balancer
/// before it has no server, as during a restore. Other errors, such as those of a webhook for conversions, come from the
/// server itself.
pub(super) fn may_be_replaced(error: &Error) -> bool {
    error.refusal().is_none_or(|refusal| matches!(refusal.code, 502..=504))
}

/// Whether the server is overloaded. No other request is sent before its `Retry-After`.
pub(super) fn is_busy(refusal: &Refusal) -> bool {
    refusal.code == 429 || (refusal.code == 503 && refusal.retry_after.is_some())
}

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
/// Minimum delay after a missing permission or kind, which only an administrator can change.
const MIN_UNSERVED: Duration = Duration::from_secs(5);
/// Maximum `Retry-After` that is respected.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// The delay after this many consecutive failures: the backoff with jitter, or the `Retry-After` if it is longer.
/// `chance` (0 to 1) selects the jitter, which subtracts up to half of the backoff, so that the watches of a restarted
/// server do not all reconnect simultaneously.
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
