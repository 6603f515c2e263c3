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

/// How long to wait after this many failures in a row: 0.5 s doubling to 30 s, at least 5 s where only someone else can
/// help (permissions, a missing kind) and as long as the server wishes. `random` is in 0..1 and takes up to a half off.
pub(super) fn pause(failures: u32, refusal: Option<&Refusal>, random: f64) -> Duration {
    let doubled = Duration::from_millis(500)
        .saturating_mul(2u32.saturating_pow(failures.saturating_sub(1).min(10)))
        .min(Duration::from_secs(30));
    let least = match refusal.map(|refusal| refusal.code) {
        Some(401 | 403 | 404) => Duration::from_secs(5),
        _ => Duration::ZERO,
    };
    let wished = refusal.and_then(|refusal| refusal.retry_after).unwrap_or_default().min(Duration::from_secs(300));
    doubled.max(least).mul_f64(1.0 - random / 2.0).max(wished)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_half_a_minute() {
        let check = |failures, random, seconds: f64| {
            assert_eq!(pause(failures, None, random), Duration::from_secs_f64(seconds), "{failures} {random}");
        };
        check(1, 0.0, 0.5);
        check(1, 1.0, 0.25);
        check(4, 0.0, 4.0);
        check(u32::MAX, 0.0, 30.0);
    }
}
