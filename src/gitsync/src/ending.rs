//! The end of a GitSync: its objects are let go of or deleted, wherever they are, and then it goes.
//!
//! Invariant: objects of another cluster, which may be gone for ever, keep no GitSync for longer than `spec.timeout`; that they
//! stay is said.
//!
//! Deliberately absent: what becomes of each object; that is `finalize`'s.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::finalize::{End, has_finalizer};
use super::outcome::Outcome;
use super::reconcile::{Next, Task};
use super::terminating::{self, TerminatingObjects};
use super::whereabouts::{Place, as_known_in, has_objects};
use mainstay_api::GitSync;
use mainstay_api::conditions::Reason;
use mainstay_object::failure::Class;

impl Task {
    /// Lets go of the objects of a GitSync that is being deleted, and then of itself.
    pub(super) async fn end(&mut self, sync: &GitSync) -> Next {
        self.context.registry.update(&self.owner, |row| row.tried = true);
        self.context.source.set_remote(&self.consumer, None);
        let placed = match self.settle_place(sync).await {
            // Where the objects are is known, and what that is reached with may do for this last time.
            Err(_) if !matches!(self.place, Place::Nowhere) => Ok(()),
            placed => placed,
        };
        let seen = as_known_in(sync, self.cluster_id(sync)).into_owned();
        if !has_finalizer(sync) {
            // By a name that no account can have, nothing was ever applied.
            let left = match placed.and_then(|()| self.settle_policy(sync)) {
                Ok(()) => self.attempt(&seen).farewell(true).await.err(),
                Err(refused) => Some(refused),
            };
            if let Some(refused) = left.filter(|_| !matches!(self.place, Place::Home) && has_objects(sync)) {
                self.say_left(self.cluster_id(sync), &refused.message);
            }
            return Next::Over;
        }
        let settled = placed.and_then(|()| self.settle_policy(sync));
        let ended = match settled {
            Ok(()) => self.attempt(&seen).finalize().await,
            Err(refused) => Err(refused),
        };
        match ended {
            Ok(End::Done) => Next::Over,
            Ok(End::Waiting) => {
                self.outcome = Some(self.awaits_deletions());
                self.next_look = Instant::now() + self.deletion_wait(sync);
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
                self.next_look = left.map_or(self.next_look, |left| self.next_look.min(Instant::now() + left));
                self.report(sync).await;
                Next::Wait
            }
        }
    }

    /// Whether the objects are in another cluster that does not even say any more which one it is. That may be gone for ever, and
    /// what stands in its place may answer everything, with a refusal.
    async fn is_away(&mut self) -> bool {
        let engine = match &self.place {
            Place::Home => return false,
            Place::Nowhere => return true,
            Place::Elsewhere(engine) => Arc::clone(engine),
        };
        !engine.cluster.id().await.is_ok_and(|id| id == engine.id())
    }

    /// What is said while the objects of a GitSync that is being deleted go.
    fn awaits_deletions(&self) -> Outcome {
        let objects = self.state.terminating.as_ref().map(TerminatingObjects::listed).unwrap_or_default();
        let message = terminating::named(&objects).unwrap_or_else(|| "its objects are being deleted".to_owned());
        Outcome::Refused { class: Class::NotReady, reason: Reason::Deleting, message }
    }
}

/// How long the end of a GitSync waits for its objects in a cluster that is away: nobody would be left to take the finalizer off.
fn left_to_wait(sync: &GitSync) -> Duration {
    let since = sync.metadata.deletion_timestamp.as_ref().map_or_else(Timestamp::now, |since| since.0);
    let passed = Timestamp::now().duration_since(since).unsigned_abs();
    sync.spec.timeout.0.saturating_sub(passed)
}
