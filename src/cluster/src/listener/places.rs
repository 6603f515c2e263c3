//! The places of connections: a bounded number, and a few spare ones for probes.
//!
//! Invariant: a new client takes a spare place only if each other connection is busy with a request. A spare place carries
//! one request for a short time, so that it is soon free for the next probe.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits::Limits;
use super::silent::Silent;

/// Marks a request on a spare place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spare;

/// Whether a request came on a spare place, because each other connection is busy. Handlers respond to it quickly.
pub fn is_spare(extensions: &http::Extensions) -> bool {
    extensions.get::<Spare>().is_some()
}

/// Permits, and the connections with a permit that a new client may replace.
struct Pool {
    free: Arc<Semaphore>,
    silent: Arc<Silent>,
}

impl Pool {
    fn new(size: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(size)), silent: Arc::default() }
    }

    fn place(&self, permit: OwnedSemaphorePermit, spare: Option<Spare>) -> Place {
        Place { _permit: permit, silent: Arc::clone(&self.silent), spare }
    }

    fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    /// Waits for a permit. The semaphore is never closed.
    async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).acquire_owned().await.ok()
    }

    /// Cancels the connection that has been idle longest. Returns false if none is idle.
    fn replace_oldest(&self) -> bool {
        let oldest = self.silent.connections.lock().pop_first();
        let Some((_, connection)) = oldest else { return false };
        connection.cancel();
        true
    }

    /// Cancels the connection that has been idle longest, once there is one.
    async fn replaced(&self) {
        while !self.replace_oldest() {
            self.silent.another.notified().await;
        }
    }
}

/// The places of all connections.
pub(super) struct Places {
    regular: Pool,
    spare: Pool,
}

/// The place of a connection.
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    /// The idle connections to which this one belongs.
    pub(super) silent: Arc<Silent>,
    pub(super) spare: Option<Spare>,
}

impl Places {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { regular: Pool::new(limits.connections), spare: Pool::new(limits.spare) }
    }

    /// Waits for a place. A new client replaces the connection that has been idle longest, and takes a spare place if none
    /// is idle.
    pub(super) async fn take(&self) -> Option<Place> {
        if let Some(permit) = self.regular.try_acquire() {
            return Some(self.regular.place(permit, None));
        }
        if self.regular.replace_oldest() {
            return self.regular.acquire().await.map(|permit| self.regular.place(permit, None));
        }
        if let Some(permit) = self.spare.try_acquire() {
            return Some(self.spare.place(permit, Some(Spare)));
        }
        let gives_way = async {
            tokio::select! {
                () = self.regular.replaced() => {}
                () = self.spare.replaced() => {}
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            permit = self.regular.acquire() => permit.map(|permit| self.regular.place(permit, None)),
            permit = self.spare.acquire() => permit.map(|permit| self.spare.place(permit, Some(Spare))),
            () = gives_way => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test]
    async fn a_spare_place_is_taken_if_each_connection_is_busy() {
        let places = Places::new(&Limits { connections: 2, spare: 1, ..Limits::default() });
        let take = || places.take().now_or_never().flatten();
        let (first, second) = (take().unwrap(), take().unwrap());
        assert!(first.spare.is_none() && second.spare.is_none());
        let probe = take().unwrap();
        assert!(probe.spare.is_some() && take().is_none(), "all places are taken");
        // An idle connection on the spare place gives way, and is not one of the others.
        let end = CancellationToken::new();
        let _entry = probe.silent.enter(end.clone());
        assert!(take().is_none() && end.is_cancelled());
        drop(probe);
        assert!(take().is_some_and(|place| place.spare.is_some()));
        // An idle connection gives way before a spare place is taken.
        let end = CancellationToken::new();
        let _entry = first.silent.enter(end.clone());
        assert!(take().is_none() && end.is_cancelled());
        drop(first);
        assert!(take().is_some_and(|place| place.spare.is_none()));
    }

    #[tokio::test]
    async fn a_listener_without_spare_places_waits() {
        let places = Places::new(&Limits { connections: 1, ..Limits::default() });
        let held = places.take().await;
        assert!(held.is_some() && places.take().now_or_never().is_none());
        drop(held);
        assert!(places.take().await.is_some());
    }
}
