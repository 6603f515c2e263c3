//! The share of this agent in the GitSyncs, for the tasks.
//!
//! Invariant: the share changes only in [`Share::take`], after which the caller ends the tasks of lost GitSyncs. It calls
//! [`Share::dropped`] once they have ended, or have had their time.
//! Invariant: a GitSync whose pin changes is lost immediately, and gained by another agent after the Lease duration.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::kept::Name;
use mainstay_api::names::SHARD;
use mainstay_cluster::shards::{Member, Ownership};

/// Maximum wait for the first share. An agent without a share knows the GitSyncs, but acts on none.
const FIRST: Duration = Duration::from_secs(5);

/// The numbers of the share, for metrics.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The agents that share the GitSyncs; 0 without shards.
    pub(super) members: AtomicU64,
    /// The GitSyncs of this agent.
    pub(super) own: AtomicU64,
    /// The GitSyncs that this agent has begun with, or left to another agent.
    pub(super) gained: AtomicU64,
    pub(super) lost: AtomicU64,
}

/// A GitSync of any agent.
#[derive(Debug, Default)]
struct Known {
    label: Option<Member>,
    /// The GitSync is not gained before this time.
    settles: Option<Instant>,
}

/// A GitSync that was deleted lately. Its former agent may still release its objects.
#[derive(Debug)]
struct Gone {
    label: Option<Member>,
    /// When the former agent has stopped in any case.
    until: Instant,
}

/// The share of this agent.
pub(super) struct Share {
    ownership: watch::Receiver<Arc<Ownership>>,
    dropped: watch::Sender<u64>,
    lease: Duration,
    now: Arc<Ownership>,
    known: HashMap<Name, Known>,
    gone: HashMap<Name, Gone>,
    /// GitSyncs that a pin moves are not gained before this time: it may have been changed before this share began.
    begun: Instant,
    /// When GitSyncs whose pin has changed may be gained.
    due: Option<Instant>,
    pub(super) counts: Arc<Counts>,
}

impl Share {
    pub(super) fn new(
        ownership: watch::Receiver<Arc<Ownership>>,
        dropped: watch::Sender<u64>,
        lease: Duration,
        counts: Arc<Counts>,
    ) -> Self {
        let (now, known, gone) = (Arc::default(), HashMap::new(), HashMap::new());
        let begun = Instant::now() + lease;
        Self { ownership, dropped, lease, now, known, gone, begun, due: None, counts }
    }

    /// Waits for the first share, before any task runs.
    pub(super) async fn begin(&mut self) {
        let _ = timeout(FIRST, async {
            loop {
                self.take();
                self.dropped();
                let is_acting = self.now.is_acting() && self.now.members().count() > 0;
                if is_acting || self.ownership.changed().await.is_err() {
                    break;
                }
            }
        })
        .await;
    }

    /// Waits until the share may change.
    pub(super) async fn changed(&mut self) {
        let at = self.due;
        let due = async move {
            match at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Ok(()) = self.ownership.changed() => {}
            () = due => self.due = None,
            else => std::future::pending().await,
        }
    }

    /// Takes the newest share.
    pub(super) fn take(&mut self) {
        self.now = Arc::clone(&self.ownership.borrow_and_update());
        self.counts.members.store(self.now.members().count() as u64, Ordering::Relaxed);
        let now = Instant::now();
        let of_syncs = self.known.values().filter_map(|known| known.settles).filter(|settles| *settles > now).min();
        let begun = Some(self.begun).filter(|begun| *begun > now);
        self.due = [of_syncs, self.now.due(now), begun].into_iter().flatten().min();
        self.gone.retain(|_, gone| gone.until > now);
    }

    /// Returns the duration of the Lease.
    pub(super) fn lease(&self) -> Duration {
        self.lease
    }

    /// Records that no task of a lost GitSync runs any more.
    pub(super) fn dropped(&self) {
        self.dropped.send_replace(self.now.number());
    }

    /// Records a GitSync.
    pub(super) fn see(&mut self, name: &Name, labels: Option<&BTreeMap<String, String>>) {
        let label = labels.and_then(|labels| labels.get(SHARD)).and_then(|shard| Member::parse(shard));
        match self.known.get_mut(name) {
            Some(known) if known.label == label => {}
            Some(known) => {
                let settles = Instant::now() + self.lease;
                *known = Known { label, settles: Some(settles) };
                self.wake_at(settles);
            }
            None => {
                let now = Instant::now();
                let gone = self.gone.remove(name).filter(|gone| gone.label != label && gone.until > now);
                let settles = gone.map(|_| now + self.lease);
                self.known.insert(name.clone(), Known { label, settles });
                if let Some(settles) = settles {
                    self.wake_at(settles);
                }
            }
        }
    }

    fn wake_at(&mut self, time: Instant) {
        self.due = Some(self.due.map_or(time, |due| due.min(time)));
    }

    /// Forgets a deleted GitSync.
    pub(super) fn forget(&mut self, name: &Name) {
        let Some(known) = self.known.remove(name) else { return };
        let until = Instant::now() + self.lease;
        self.gone.insert(name.clone(), Gone { label: known.label, until });
        // The GitSync is forgotten then.
        self.wake_at(until);
    }

    /// Returns the known GitSyncs.
    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.known.keys()
    }

    fn pin(&self, name: &Name) -> Option<Member> {
        let label = self.known.get(name).and_then(|known| known.label);
        label.or_else(|| self.now.pin(&name.0))
    }

    /// Whether the task of a GitSync continues.
    pub(super) fn keeps(&self, name: &Name) -> bool {
        self.now.keeps(&name.0, &name.1, self.pin(name))
    }

    /// Whether a task of a GitSync may begin.
    pub(super) fn may_gain(&self, name: &Name) -> bool {
        let (own, pin) = (self.known.get(name).and_then(|known| known.settles), self.pin(name));
        let begun = Some(self.begun).filter(|_| self.now.is_moved(&name.0, &name.1, pin));
        let settles = own.max(self.now.settles(&name.0)).max(begun);
        settles.is_none_or(|settles| settles <= Instant::now()) && self.now.may_gain(&name.0, &name.1, pin)
    }
}
