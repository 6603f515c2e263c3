//! Permits for reverts: how many are in flight, whose turn it is, and how many wait.
//!
//! Invariant: no more reverts are in flight than the server takes ([`Limit`]), and owners share them ([`Fair`]).
//! Invariant: what waits is bounded in bytes: beyond a number, what was seen is left out and read again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::fair::Fair;
use super::limit::{Limit, MOST};
use crate::cluster::{self, Cause};
use crate::managed::seen::{SMALL, Sight};
use crate::object::Owner;

/// Reverts that may wait together with the state that was found, if it is small. Beyond that number the state is dropped
/// and the object is read again when its revert begins.
const WAITING_WITH_STATE: usize = 1000;
/// Of them, how many keep the state as it is, not as compact JSON.
const WAITING_WITH_VALUE: usize = 128;
/// Longest wait of a commit's writes for reverts, per object.
const YIELD: Duration = Duration::from_millis(50);

/// The permits for reverts.
#[derive(Default)]
pub(super) struct Permits {
    reverts: Mutex<Reverts>,
    /// Reverts that are queued, also those that wait because of their own backoff.
    queued: AtomicUsize,
    /// Those of them that begin as soon as they have a permit.
    waiting: AtomicUsize,
    none_waits: Notify,
}

/// The reverts that wait for their permit, and how many have one.
#[derive(Default)]
struct Reverts {
    fair: Fair<oneshot::Sender<()>>,
    limit: Limit,
}

impl Reverts {
    /// Takes in what a write says about the server.
    fn learn(&mut self, learn: impl FnOnce(&mut Limit)) {
        let before = self.limit.number();
        learn(&mut self.limit);
        if self.limit.number() < before {
            tracing::debug!(reverts = self.limit.number(), "the server is busy: fewer reverts at once");
        }
    }

    /// Gives permits to as many as may go on now.
    fn grant(&mut self) {
        while let Some((owner, waits)) = self.fair.pop(self.limit.allowed(Instant::now())) {
            if waits.send(()).is_err() {
                self.fair.done(&owner);
            }
        }
    }
}

/// Permission for one revert, until this is dropped.
pub(super) struct Permit<'p> {
    permits: &'p Permits,
    owner: &'p Owner,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut reverts = self.permits.reverts.lock();
        reverts.fair.done(self.owner);
        reverts.grant();
    }
}

/// A write that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    at: Instant,
    /// How many were in flight then.
    in_flight: usize,
}

impl Permits {
    /// Counts one more queued revert; returns what of the state that was seen may wait with it.
    pub(super) fn enter(&self, seen: Option<Sight>) -> Option<Sight> {
        match self.queued.fetch_add(1, Ordering::AcqRel) {
            ..MOST => seen,
            MOST..WAITING_WITH_VALUE => seen.filter(|seen| seen.size() <= SMALL),
            WAITING_WITH_VALUE..WAITING_WITH_STATE => seen.and_then(|seen| seen.within(SMALL)),
            _ => None,
        }
    }

    /// A queued revert waits for nothing but its permit from now on.
    pub(super) fn wait(&self) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
    }

    /// A revert that waited is over.
    pub(super) fn leave(&self) {
        self.queued.fetch_sub(1, Ordering::AcqRel);
        if self.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.none_waits.notify_waiters();
        }
    }

    /// Waits until one more revert of this owner may be in flight. `None`: no permits are granted any more.
    pub(super) async fn acquire<'p>(&'p self, owner: &'p Owner) -> Option<Permit<'p>> {
        let (grant, granted) = oneshot::channel();
        {
            let mut reverts = self.reverts.lock();
            reverts.fair.push(owner, grant);
            reverts.grant();
        }
        granted.await.ok()?;
        Some(Permit { permits: self, owner })
    }

    /// Grants as many permits as there may be now.
    pub(super) fn grant(&self) {
        self.reverts.lock().grant();
    }

    /// Waits while reverts wait, for a moment: drift goes before sync work.
    pub(super) async fn yield_to_reverts(&self) {
        if self.waiting.load(Ordering::Acquire) > 0 {
            let _ = tokio::time::timeout(YIELD, self.none_waits.notified()).await;
        }
    }

    /// A write of a revert is sent now.
    pub(super) fn sent(&self) -> Sent {
        Sent { at: Instant::now(), in_flight: self.reverts.lock().fair.in_flight() }
    }

    /// It was answered as it should be.
    pub(super) fn answered(&self, sent: Sent) {
        let mut reverts = self.reverts.lock();
        reverts.learn(|limit| limit.answered(sent.at, sent.in_flight, Instant::now()));
        reverts.grant();
    }

    /// It failed. `again`: that the object was refused is nothing new. For how long the server wants to be left alone:
    /// then permits have to be granted again.
    pub(super) fn failed(&self, sent: Sent, error: &cluster::Error, again: bool) -> Option<Duration> {
        let is_overloaded = match error.code() {
            Some(code) => code == 429 || code > 500 || (code == 500 && !again),
            None => matches!(&*error.cause, Cause::TimedOut(_)),
        };
        if !is_overloaded {
            return None;
        }
        let mut reverts = self.reverts.lock();
        let now = Instant::now();
        reverts.learn(|limit| limit.overloaded(sent.at, error.retry_after(), now));
        reverts.limit.pause(now)
    }
}
