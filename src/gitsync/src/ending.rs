//! The deletion of a GitSync: its objects are released or deleted, in whichever cluster they are. Then the finalizer is
//! removed.
//!
//! Invariant: objects of a remote cluster delay the deletion by at most `spec.timeout`, because that cluster may never
//! return. A message names the cluster and the remaining objects.
//!
//! Not here: the decision for each object (`finalize`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::finalize::{End, has_finalizer};
use super::outcome::Outcome;
use super::reconcile::{Next, Task};
use super::terminating;
use super::whereabouts::{Place, as_known_in, has_objects};
use mainstay_api::GitSync;
use mainstay_api::conditions::Reason;
use mainstay_object::failure::Class;

impl Task {
    /// Releases the objects of a GitSync that is being deleted, then removes its finalizer.
    pub(super) async fn end(&mut self, sync: &GitSync) -> Next {
        self.context.registry.update(&self.owner, |row| row.tried = true);
        self.context.source.set_remote(&self.names.consumer, None);
        let placed = match self.settle_place(sync).await {
            // The cluster is known, so one more request with its last credentials may succeed.
            Err(_) if !matches!(self.place, Place::Nowhere) => Ok(()),
            placed => placed,
        };
        let seen = as_known_in(sync, self.cluster_id(sync)).into_owned();
        if !has_finalizer(sync) {
            // If the name of the ServiceAccount is invalid, no object was ever applied.
            let left = match placed.and_then(|()| self.settle_policy(&seen)) {
                Ok(()) => self.attempt(&seen).farewell(true).await.err(),
                Err(refused) => Some(refused),
            };
            if let Some(refused) = left.filter(|_| !matches!(self.place, Place::Home) && has_objects(sync)) {
                self.say_left(self.cluster_id(sync), &refused.message);
            }
            return Next::Over;
        }
        let settled = placed.and_then(|()| self.settle_policy(&seen));
        let ended = match settled {
            Ok(()) => self.attempt(&seen).finalize().await,
            Err(refused) => Err(refused),
        };
        match ended {
            Ok(End::Done) => Next::Over,
            Ok(End::Waiting) => {
                self.reported.outcome = Some(self.awaits_deletions());
                let wait = self.deletion_wait(sync);
                self.timers.look_at(Instant::now() + wait);
                self.report(sync).await;
                Next::Wait
            }
            Err(refused) => {
                let left = if self.is_away().await { Some(left_to_wait(sync)) } else { None };
                if left == Some(Duration::ZERO) && self.attempt(sync).set_finalizer(false).await.is_ok() {
                    if has_objects(sync) {
                        self.say_left(self.cluster_id(sync), &refused.message);
                    }
                    return Next::Over;
                }
                self.refuse(&refused, Duration::from_secs(60));
                if let Some(left) = left {
                    self.timers.look_by(Instant::now() + left);
                }
                self.report(sync).await;
                Next::Wait
            }
        }
    }

    /// Whether the objects are in a remote cluster that no longer reports the same id. The former cluster may never
    /// return, and a cluster at the same address may reject every request.
    async fn is_away(&mut self) -> bool {
        let engine = match &self.place {
            Place::Home => return false,
            Place::Nowhere => return true,
            Place::Elsewhere(engine) => Arc::clone(engine),
        };
        !engine.cluster.id().await.is_ok_and(|id| id == engine.id())
    }

    /// Returns the outcome while the objects of a deleted GitSync are being deleted.
    fn awaits_deletions(&self) -> Outcome {
        if let Some(pending) = &self.state.removal.awaited {
            let message = format!("its objects are kept until it is known what others want: it waits for {pending}");
            return Outcome::Refused { class: Class::NotReady, reason: Reason::Deleting, message };
        }
        let objects = self.state.removal.listed().unwrap_or_default();
        let message = terminating::named(&objects).unwrap_or_else(|| "its objects are being deleted".to_owned());
        Outcome::Refused { class: Class::NotReady, reason: Reason::Deleting, message }
    }
}

/// Returns the remaining time that a deletion waits for an unreachable remote cluster. Without this limit, the
/// finalizer would never be removed.
fn left_to_wait(sync: &GitSync) -> Duration {
    let since = sync.metadata.deletion_timestamp.as_ref().map_or_else(Timestamp::now, |since| since.0);
    let passed = Timestamp::now().duration_since(since).unsigned_abs();
    sync.spec.timeout.0.saturating_sub(passed)
}
