//! Shows a running attempt in the status of its GitSync.
//!
//! Invariant: an attempt that ends within [`QUICK`] causes no write, and a longer one at most one per [`EVERY`]. All
//! attempts together write at most once per [`BETWEEN`], so a commit to thousands of GitSyncs shows only some of them.
//! Invariant: the report of the attempt replaces the shown step (`report`). It waits for a write in flight.
//!
//! Not here: the steps, and the status (`step`).

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{Either, select};
use jiff::Timestamp;
use tokio::time::sleep_until;

use super::context::{Context, git_syncs};
use super::status;
use super::step::Progress;
use super::urgency::BETWEEN;
use mainstay_api::GitSync;
use mainstay_api::git_sync::GitSyncStatus;
use mainstay_cluster::Part;

/// Maximum duration of an attempt that is not shown.
const QUICK: Duration = Duration::from_secs(5);
/// Minimum time between two writes for an attempt.
const EVERY: Duration = Duration::from_secs(5);

/// A running attempt.
pub(super) struct Running {
    home: Arc<Context>,
    namespace: String,
    name: String,
    /// The written status.
    old: GitSyncStatus,
    progress: Progress,
    /// Earliest time of the first write.
    not_before: Option<Instant>,
}

impl Running {
    /// Returns a running attempt, with the last written status.
    pub(super) fn new(home: &Arc<Context>, sync: &GitSync, old: Option<&GitSyncStatus>, progress: Progress) -> Self {
        Self {
            home: Arc::clone(home),
            namespace: sync.metadata.namespace.clone().unwrap_or_default(),
            name: sync.metadata.name.clone().unwrap_or_default(),
            old: old.or(sync.status.as_ref()).cloned().unwrap_or_default(),
            progress,
            not_before: None,
        }
    }

    /// Sets the earliest time of the first write.
    pub(super) fn not_before(self, time: Option<Instant>) -> Self {
        Self { not_before: time, ..self }
    }

    /// Runs the attempt, and shows its steps.
    pub(super) async fn beside<T>(self: Box<Self>, attempt: impl Future<Output = T>) -> T {
        let (since, begun) = (Timestamp::now(), Instant::now() + QUICK);
        let mut next = self.not_before.map_or(begun, |time| time.max(begun));
        let mut attempt = pin!(attempt);
        loop {
            let mut waiting = Box::pin(sleep_until(next.into()));
            match select(attempt.as_mut(), &mut waiting).await {
                Either::Left((ended, _)) => return ended,
                Either::Right(_) => next = Instant::now() + EVERY,
            }
            if !self.progress.is_worth_showing(&self.old) {
                continue;
            }
            if !self.home.show_turns.take(Instant::now()) {
                next = Instant::now() + BETWEEN;
                continue;
            }
            let showing = Box::pin(self.show(since));
            if let Either::Left((ended, showing)) = select(attempt.as_mut(), showing).await {
                showing.await;
                return ended;
            }
        }
    }

    async fn show(&self, since: Timestamp) {
        let Some(new) = self.progress.show(&self.old, since, Timestamp::now()) else { return };
        let patch = status::patch(&self.old, &new);
        let kind = git_syncs();
        let written = self.home.home.patch_merge(&kind, Some(&self.namespace), &self.name, Part::Status, &patch);
        if let Err(error) = written.await {
            // The report of the attempt is written anyway.
            tracing::debug!(why = mainstay_object::failure::chain(&error), "a running attempt is not shown");
        }
    }
}
