//! The ResourceQuotas, for Functions of which a quota has refused something: they are told when there is room again.
//!
//! Invariant: nothing is watched while no quota refuses anything; however many wait, there is one watch.
//! Invariant: a quota that changes all the time wakes nobody more often than every two seconds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use tokio::sync::{Notify, watch};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::quota;
use crate::cluster::{Cluster, Kind, Scope, Selection};

/// How long at least one who was told is left alone.
const PACE: Duration = Duration::from_secs(2);

/// Those who wait for room.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    /// By namespace.
    waiting: Mutex<HashMap<String, watch::Sender<()>>>,
    begun: Notify,
}

/// Waits for room in one namespace, for as long as it is held.
#[derive(Debug)]
pub(super) struct Waiting {
    eased: watch::Receiver<()>,
    next: Instant,
}

impl Quotas {
    /// Begins to wait for room in a namespace.
    pub(super) fn wait(&self, namespace: &str) -> Waiting {
        let eased = self.lock().entry(namespace.to_owned()).or_default().subscribe();
        self.begun.notify_one();
        Waiting { eased, next: Instant::now() }
    }

    /// Watches the ResourceQuotas whenever somebody waits, until `stop`.
    pub(super) async fn follow(self: Arc<Self>, cluster: Cluster, stop: CancellationToken) {
        let kind = Arc::new(Kind::fixed("v1", "ResourceQuota", "resourcequotas", Scope::Namespaced));
        loop {
            while !self.is_awaited() {
                if stop.run_until_cancelled(self.begun.notified()).await.is_none() {
                    return;
                }
            }
            let mut known = quota::Quotas::default();
            let mut events = cluster.watch(&kind, Selection::default());
            while self.is_awaited() {
                let Some(Some(event)) = stop.run_until_cancelled(events.next()).await else { return };
                for namespace in known.hear(&event) {
                    self.tell(&namespace);
                }
            }
        }
    }

    fn tell(&self, namespace: &str) {
        if let Some(sender) = self.lock().get(namespace) {
            sender.send_replace(());
        }
    }

    /// Whether anybody waits.
    fn is_awaited(&self) -> bool {
        let mut waiting = self.lock();
        waiting.retain(|_, sender| sender.receiver_count() > 0);
        !waiting.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<()>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Waits until there is more room than before. What was told meanwhile is not lost when nobody waits any more.
    pub(super) async fn eased(&mut self) {
        sleep_until(self.next.into()).await;
        if self.eased.changed().await.is_err() {
            // The sender lives as long as somebody waits, and as the agent does.
            std::future::pending::<()>().await;
        }
        self.next = Instant::now() + PACE;
    }
}
