//! Reports an attempt: what a GitSync's status says of it, when that is written, and the messages about what failed.
//!
//! Invariant: a status is written at most once per 5 s; a request by annotation is answered at once.
//! Invariant: a status that the server refuses is written less and less often.
//!
//! Deliberately absent: what a status says; that is `status`'s.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::conditions;
use super::context::{SyncFacts, git_syncs};
use super::outcome::Outcome;
use super::reconcile::Task;
use super::status;
use crate::api::GitSync;
use crate::api::git_sync::GitSyncStatus;
use crate::cluster::Part;
use crate::notification::Message;
use crate::source::TreeId;

/// Least time between two writes of a status.
const STATUS_EVERY: Duration = Duration::from_secs(5);
/// How long a status waits for objects to become healthy before it says that they are not.
const HEALTH_GRACE: Duration = Duration::from_millis(700);
/// How often a contended object's cooling is looked at.
const COOLING: Duration = Duration::from_secs(15);

impl Task {
    pub(super) fn emit_failures(&self, outcome: &Outcome) {
        if self.outcome.as_ref() == Some(outcome) {
            return;
        }
        let problems = match outcome {
            Outcome::Suspended { .. } => return,
            Outcome::Frozen { commit, freeze, .. } => {
                let held = Message::CommitHeld {
                    subject: self.owner.clone(),
                    commit: commit.clone(),
                    why: conditions::waits(commit, freeze),
                };
                self.context.emit(&self.owner, &held);
                return;
            }
            Outcome::Refused { message, .. } => message.lines().map(str::to_owned).collect::<Vec<_>>(),
            Outcome::Applied { failures, guard, .. } => {
                let before = match &self.outcome {
                    Some(Outcome::Applied { failures, .. }) => failures.as_slice(),
                    _ => &[],
                };
                let new = failures.iter().filter(|failure| !before.contains(failure));
                new.map(|(_, _, f)| format!("{}: {}", f.object, f.message)).chain(guard.clone()).collect()
            }
        };
        if !problems.is_empty() {
            let commit = self.state.seen.map(|(commit, _)| commit.to_string());
            let message = Message::Failed { subject: self.owner.clone(), commit, problems };
            self.context.emit(&self.owner, &message);
        }
    }

    /// Writes the status if it changed and the last write is long enough ago.
    pub(super) async fn report(&mut self, sync: &GitSync) {
        self.set_facts();
        let Some(outcome) = self.outcome.clone().or_else(|| self.settled_outcome(sync)) else { return };
        let now = Instant::now();
        // A request is answered at once, unless its answer was refused before.
        let is_urgent = self.request.is_some() && self.failed_writes == 0;
        if let Some(next) = self.next_write.filter(|next| *next > now && !is_urgent) {
            // What it would say now is not written, and while a thousand objects are put back that would be asked for all
            // the time.
            self.settling = Some(next);
            return;
        }
        let old = self.status.clone().or_else(|| sync.status.clone()).unwrap_or_default();
        let (seen, applied) = (self.state.seen, self.state.applied);
        let attempted = seen.map(|(commit, _)| commit.to_string());
        let tree = |tree: Option<TreeId>| tree.map_or_else(String::new, |tree| tree.to_string());
        let applied = applied.map(|(commit, id)| (commit.to_string(), tree(id)));
        let facts = status::Facts {
            generation: sync.metadata.generation,
            attempted: attempted.as_deref(),
            reference: self.state.found_at.as_deref(),
            applied: applied.as_ref().map(|(commit, tree)| (commit.as_str(), tree.as_str())),
            request: self.request.as_deref(),
            outcome: &outcome,
            summary: &self.context.writer.summary(&self.owner),
            wait: sync.spec.wait.then_some(sync.spec.timeout.0),
            windows: !sync.spec.windows.is_empty(),
            unprotected: self.is_unprotected(),
            window_override: self.state.window_override.as_ref(),
        };
        let new = status::after(&old, &facts, Timestamp::now());
        self.settling = Self::wake_for(sync, &outcome, &new);
        if old == new {
            self.status = Some(old);
            return;
        }
        let is_first = self.next_write.is_none() && self.request.is_none();
        let waits_for_health = matches!(&outcome, Outcome::Applied { .. } | Outcome::Frozen { .. });
        if is_first && waits_for_health && is_progressing(&new) {
            let grace = now + HEALTH_GRACE;
            self.next_write = Some(grace);
            self.settling = Some(self.settling.map_or(grace, |at| at.min(grace)));
            return;
        }
        self.write_status(sync, &old, new).await;
    }

    /// A new agent that found nothing to do says so.
    fn settled_outcome(&self, sync: &GitSync) -> Option<Outcome> {
        let applied = self.state.applied.is_some();
        applied.then(|| Outcome::Applied {
            failures: self.state.failed.shown(),
            held: sync.status.as_ref().map(|s| s.held.clone()).unwrap_or_default(),
            guard: None,
            pruning: 0,
            note: None,
            since: Timestamp::now(),
        })
    }

    /// When the status has to be looked at again although nothing happened.
    fn wake_for(sync: &GitSync, outcome: &Outcome, status: &GitSyncStatus) -> Option<Instant> {
        let contended = status.conditions.iter().any(|c| c.type_ == "Contended" && c.status == "True");
        let cooling = contended.then(|| Instant::now() + COOLING);
        let timeout = match outcome {
            Outcome::Applied { since, .. } | Outcome::Frozen { since, .. }
                if sync.spec.wait && is_progressing(status) =>
            {
                let passed = Timestamp::now().duration_since(*since).unsigned_abs();
                let left = sync.spec.timeout.0.checked_sub(passed);
                left.map(|left| Instant::now() + left + Duration::from_millis(100))
            }
            _ => None,
        };
        cooling.into_iter().chain(timeout).min()
    }

    async fn write_status(&mut self, sync: &GitSync, old: &GitSyncStatus, new: GitSyncStatus) {
        // What was last applied to an object may have changed: one that was created again has another UID.
        let is_unsaved = self.context.writer.store().is_unsaved(&self.owner);
        if is_unsaved && let Err(refused) = self.attempt(sync).save_inventory().await {
            tracing::warn!(sync = self.owner.resource().as_str(), why = refused.message, "inventory not written");
        }
        let namespace = sync.metadata.namespace.as_deref();
        let name = sync.metadata.name.as_deref().unwrap_or_default();
        let patch = status::patch(old, &new);
        let cluster = self.context.writer.cluster();
        match cluster.patch_merge(&git_syncs(), namespace, name, Part::Status, &patch).await {
            Ok(_) => {
                self.status = Some(new);
                self.next_write = Some(Instant::now() + STATUS_EVERY);
                self.failed_writes = 0;
                self.request = None;
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::warn!(
                    sync = self.owner.resource().as_str(),
                    why = crate::failure::chain(&error),
                    "status not written"
                );
                self.failed_writes += 1;
                let delay = error.class().status_delay(self.failed_writes, error.retry_after(), fastrand::f64());
                self.next_write = Some(Instant::now() + delay);
                self.settling = self.next_write;
            }
        }
    }

    fn set_facts(&self) {
        let waits = matches!(self.outcome, Some(Outcome::Frozen { .. }));
        let behind = self
            .state
            .seen
            .filter(|_| !waits)
            .filter(|(commit, _)| self.state.applied.is_none_or(|(applied, _)| applied != *commit));
        let facts = SyncFacts { lagging_since: behind.map(|(_, since)| since), failed: self.state.failed.len() };
        self.context.set_facts(&self.owner, Some(facts));
    }
}

fn is_progressing(status: &GitSyncStatus) -> bool {
    status.healthy < status.objects
}
