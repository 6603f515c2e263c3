//! Notifies Functions whose writes a ResourceQuota refused, once the quota allows more.
//!
//! Invariant: quotas are watched only while a Function waits for one. One watch serves all Functions.
//! Invariant: a quota that keeps changing notifies a Function at most every two seconds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::quota;
use mainstay_cluster::{Cluster, Kind, Scope, Selection};

/// Minimum time between two notifications of a Function.
const PACE: Duration = Duration::from_secs(2);

/// The waiting Functions.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    /// The senders by namespace.
    waiting: Mutex<HashMap<String, watch::Sender<()>>>,
    begun: Notify,
}

/// A subscription to the quotas of one namespace. It ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Waiting {
    raised: watch::Receiver<()>,
    next: Instant,
}

impl Quotas {
    /// Subscribes to the quotas of a namespace.
    pub(super) fn wait(&self, namespace: &str) -> Waiting {
        let mut waiting = self.waiting.lock();
        waiting.retain(|_, sender| sender.receiver_count() > 0);
        let raised = waiting.entry(namespace.to_owned()).or_default().subscribe();
        drop(waiting);
        self.begun.notify_one();
        Waiting { raised, next: Instant::now() }
    }

    /// Watches the ResourceQuotas while a Function waits, until `stop`.
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
                for namespace in known.observe(event) {
                    self.wake(&namespace);
                }
            }
        }
    }

    fn wake(&self, namespace: &str) {
        if let Some(sender) = self.waiting.lock().get(namespace) {
            sender.send_replace(());
        }
    }

    /// Whether a Function waits.
    fn is_awaited(&self) -> bool {
        self.waiting.lock().values().any(|sender| sender.receiver_count() > 0)
    }
}

impl Waiting {
    /// Waits until the quotas allow more than before. Cancel-safe.
    pub(super) async fn raised(&mut self) {
        sleep_until(self.next.into()).await;
        if self.raised.changed().await.is_err() {
            // The sender is dropped only at the end of the agent.
            std::future::pending::<()>().await;
        }
        self.next = Instant::now() + PACE;
    }
}
