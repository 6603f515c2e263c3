//! Reports an attempt: decides when the status is written, and emits messages about failures.
//!
//! Invariant: a sync request by annotation is reported immediately, other changes as soon as `urgency` allows.
//! Invariant: refused status writes back off.
//! Invariant: with shards, a status that only names a new commit waits for its turn, unless a user has requested the sync or
//! a dependant reads the status. Without shards, the same holds for the status of a commit that was carried out without
//! failures, while other GitSyncs wait to carry out theirs.
//!
//! Not here: the content of a status (`status`).

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::conditions;
use super::context::{SyncFacts, git_syncs};
use super::health_report::Health;
use super::outcome::Outcome;
use super::reconcile::Task;
use super::shared_plan;
use super::status;
use super::status_turn::Waits;
use super::urgency::{Urgency, first_grace, only_names_commit, urgency};
use super::whereabouts::Place;
use mainstay_api::GitSync;
use mainstay_api::conditions::{Reason, Type};
use mainstay_api::git_sync::{GitSyncStatus, SharedPlan};
use mainstay_cluster::Part;
use mainstay_engine::notification::Message;
use mainstay_engine::prevention;

/// Interval of status updates while another client keeps changing an object.
const COOLING: Duration = Duration::from_secs(15);

impl Task {
    pub(super) fn emit_failures(&self, outcome: &Outcome) {
        if self.reported.outcome.as_ref() == Some(outcome) {
            return;
        }
        let problems = match outcome {
            Outcome::Suspended { .. } | Outcome::Waiting { .. } => return,
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
            Outcome::Applied { failures, guard, safeguarded, .. } => {
                let (before, known) = match &self.reported.outcome {
                    Some(Outcome::Applied { failures, safeguarded, .. }) => {
                        (failures.as_slice(), safeguarded.as_slice())
                    }
                    _ => (&[][..], &[][..]),
                };
                for (object, why) in safeguarded.iter().filter(|held| !known.contains(held)) {
                    let (subject, object, why) = (self.owner.clone(), object.clone(), why.clone());
                    self.context.emit(&self.owner, &Message::NotPruned { subject, object, why });
                }
                let new = failures.iter().filter(|failure| !before.contains(failure));
                new.map(|(_, _, f)| format!("{}: {}", f.object, f.message)).chain(guard.clone()).collect()
            }
        };
        if !problems.is_empty() {
            let commit = self.state.branch.commit().map(|commit| commit.to_string());
            let message = Message::Failed { subject: self.owner.clone(), commit, problems };
            self.context.emit(&self.owner, &message);
        }
    }

    /// Emits a message when objects of the applied commit have failed or are not healthy in time, and when all of them are
    /// healthy again. Objects of a commit that change between failing and waiting cause one message.
    fn emit_health(&mut self, sync: &GitSync, new: &GitSyncStatus) {
        let Some(commit) = new.applied_commit.clone() else { return };
        let before = self.reported.status.get(sync);
        let stored = || before.filter(|status| unhealthy(status).is_some())?.applied_commit.clone();
        let unhealthy = unhealthy(new);
        let health = match unhealthy {
            Some(_) => Health::Unhealthy,
            None if conditions::is_ready(new) => Health::Healthy,
            None => Health::Unknown,
        };
        if !self.reported.health.report(&commit, health, stored) {
            return;
        }
        let subject = self.owner.clone();
        let message = match unhealthy {
            Some((reason, why)) => Message::Unhealthy { subject, commit, reason: reason.into(), why: why.to_owned() },
            None => Message::Recovered { subject, commit },
        };
        self.context.emit(&self.owner, &message);
    }

    /// Writes the status if it changed, as soon as that is allowed.
    pub(super) async fn report(&mut self, sync: &GitSync) {
        self.save_ends(sync).await;
        let now = Instant::now();
        if self.reported.save.owed().is_some_and(|due| due <= now) {
            self.save_changes(sync, now).await;
        }
        self.timers.settle_at(None);
        self.reported.status.turn.begin_report();
        if let Some(mut outcome) = self.reported.outcome.clone().or_else(|| self.settled_outcome(sync)) {
            outcome.began_no_earlier_than(self.unhealthy_since());
            self.report_outcome(sync, &outcome, now).await;
        }
        // A turn is for one report.
        self.reported.status.turn.give_back();
        if let Some(owed) = self.reported.save.owed() {
            self.timers.settle_by(owed);
        }
        self.set_facts();
    }

    async fn report_outcome(&mut self, sync: &GitSync, outcome: &Outcome, now: Instant) {
        let base = self.reported.status.get(sync).cloned().unwrap_or_default();
        // The written status may show the attempt as running.
        let old = self.state.progress.shown().unwrap_or_else(|| base.clone());
        let attempted = self.state.branch.commit().map(|commit| commit.to_string());
        let applied = self.state.applied.last();
        let applied = applied.map(|(commit, id)| (commit.to_string(), id.map(|id| id.to_string()).unwrap_or_default()));
        let terminating = self.state.removal.listed();
        let summary = self.context.writer.summary(&self.owner);
        let (prevention, shared) = (self.prevention_of(sync), self.shared_plan(sync, outcome, &base));
        let facts = status::Facts {
            name: name(sync),
            generation: sync.metadata.generation,
            attempted: attempted.as_deref(),
            reference: self.state.branch.reference(),
            applied: applied.as_ref().map(|(commit, tree)| (commit.as_str(), tree.as_str())),
            history: self.state.applied.unwritten_history(),
            request: self.seen.request(),
            rerun: self.seen.rerun(),
            outcome,
            summary: &summary,
            drift: sync.spec.drift,
            base_dir: &sync.spec.base_dir,
            left_out: self.state.compiled.left_out(),
            wait: sync.spec.wait.then_some(sync.spec.timeout.0),
            windows: !sync.spec.windows.is_empty(),
            unprotected: self.seen.is_unprotected(),
            window_override: self.state.commit.window_override(),
            terminating: terminating.as_ref(),
            refused_permission: self.state.removal.refused_permission(),
            prevent: sync.spec.prevent,
            prevention: prevention.as_ref(),
            cluster: self.cluster_id(sync),
            shared: shared.as_ref(),
        };
        let mut new = status::after(&base, &facts, Timestamp::now());
        if matches!(self.place, Place::Nowhere) {
            new = without_place(new, &base);
        }
        self.reported.facts.is_ready = conditions::is_ready(&new);
        self.context.dependencies.report(&self.owner, &new, attempted.clone().filter(|_| outcome.has_no_failures()));
        let waits = summary.waits_for_health();
        self.timers.settle_at(Self::wake_for(sync, outcome, &new, waits));
        let urgency = urgency(&old, &new);
        // A sync request is reported immediately, unless writing the status failed before.
        let is_asked = self.seen.request().is_some() && !self.reported.status.has_failed();
        let Some(due) = self.reported.status.due(urgency, now) else { return self.set_written(old) };
        let grace = if waits { self.grace_of(outcome, urgency, (&old, &new), now) } else { now };
        let due = if is_asked { now } else { due }.max(grace);
        if due > now {
            self.timers.settle_by(due);
            return;
        }
        let waits = if is_asked { None } else { self.waits_for_turn(outcome, &old, &new) };
        if waits.is_none_or(|waits| self.reported.status.turn.may_write(waits, now, fastrand::f64())) {
            Box::pin(self.write_status(sync, &old, new)).await;
        }
    }

    /// Returns why a changed status waits for its turn; `None` if it does not.
    fn waits_for_turn(&self, outcome: &Outcome, old: &GitSyncStatus, new: &GitSyncStatus) -> Option<Waits> {
        if self.context.dependencies.is_status_read(&self.owner) {
            None
        } else if self.context.is_shared() {
            only_names_commit(old, new).then_some(Waits::NamesCommit)
        } else {
            // A user waits for a failure.
            let is_good = outcome.is_clean() && unhealthy(new).is_none();
            (is_good && self.home.status_turns.has_waiting_commits()).then_some(Waits::CarriedOut)
        }
    }

    /// Records the written status.
    fn set_written(&mut self, status: GitSyncStatus) {
        self.reported.status.set(status);
        self.state.progress.forget_shown();
    }

    /// Returns the plan for GitSyncs of other agents; `None` without shards. Until a commit is planned for the present
    /// spec, the wanted objects of the last plan stay, without its commit. A plan without a commit shows that an agent
    /// with shards has begun.
    fn shared_plan(&self, sync: &GitSync, outcome: &Outcome, base: &GitSyncStatus) -> Option<SharedPlan> {
        if !self.context.is_shared() {
            return None;
        }
        let generation = sync.metadata.generation;
        let carried_out =
            self.state.applied.carried_out().filter(|_| outcome.has_no_failures()).map(|commit| commit.to_string());
        let row = self.context.registry.with(&self.owner, |view| view.own().clone());
        let of_row = shared_plan::of(&row, &self.state.unfinished.failed.conflicts(), carried_out.as_deref());
        let planned_for = if of_row.is_some() { self.state.commit.planned_for() } else { base.observed_generation };
        let is_known = planned_for == generation;
        let is_of_cluster = base.cluster.as_deref() == self.cluster_id(sync);
        let plan = of_row.or_else(|| base.shared.clone().filter(|_| is_of_cluster)).unwrap_or_default();
        Some(if is_known { plan } else { SharedPlan { commit: String::new(), carried_out: false, ..plan } })
    }

    fn prevention_of(&self, sync: &GitSync) -> Option<prevention::State> {
        match sync.spec.kube_config {
            Some(_) => Some(prevention::State::Elsewhere),
            None => self.home.prevention.state(&self.owner),
        }
    }

    /// Returns the end of the status delay for objects that may become healthy soon.
    fn grace_of(
        &mut self,
        outcome: &Outcome,
        urgency: Urgency,
        (old, new): (&GitSyncStatus, &GitSyncStatus),
        now: Instant,
    ) -> Instant {
        let waits = matches!(outcome, Outcome::Applied { .. } | Outcome::Frozen { .. });
        if !waits || urgency != Urgency::Now {
            return now;
        }
        // Also if a sync is requested: an answer before the objects are seen would show healthy ones as unknown.
        let is_known = self.reported.status.is_first() && old.applied_commit.is_some();
        let is_listing = is_known && self.context.writer.store().awaits_first_look(&self.owner);
        let grace = first_grace(is_known.then(|| old.applied_commit == new.applied_commit), is_listing);
        // The delay only becomes shorter once objects are seen.
        self.reported.status.delay_until(now + grace)
    }

    /// Saves the inventory as soon as Jobs and Pods complete, because other clients may delete these objects
    /// immediately.
    async fn save_ends(&mut self, sync: &GitSync) {
        let is_urgent = self.context.writer.store().take_urgent(&self.owner);
        if is_urgent && let Err(refused) = self.attempt(sync).save_inventory().await {
            tracing::warn!(sync = self.owner.resource().as_str(), why = refused.message, "inventory not written");
            self.context.writer.store().set_urgent(&self.owner);
        }
    }

    /// Returns the time since which not all objects are healthy.
    fn unhealthy_since(&mut self) -> Option<Timestamp> {
        let summary = self.context.writer.summary(&self.owner);
        let is_healthy = summary.healthy >= summary.objects;
        if is_healthy {
            self.state.progress.trace_healthy();
        }
        self.reported.health.observe(is_healthy, Timestamp::now())
    }

    /// Returns the outcome of a new agent that found no work.
    fn settled_outcome(&self, sync: &GitSync) -> Option<Outcome> {
        let applied = self.state.applied.commit().is_some();
        applied.then(|| Outcome::Applied {
            failures: self.state.unfinished.failed.shown(self.context.is_shared()),
            held: sync.status.as_ref().map(|s| s.held.clone()).unwrap_or_default(),
            safeguarded: Vec::new(),
            guard: None,
            pruning: 0,
            note: None,
            since: Timestamp::now(),
        })
    }

    /// Returns the time of the next status update without an event.
    fn wake_for(sync: &GitSync, outcome: &Outcome, status: &GitSyncStatus, waits: bool) -> Option<Instant> {
        let contended = status.conditions.iter().any(|c| c.type_ == "Contended" && c.status == "True");
        let cooling = contended.then(|| Instant::now() + COOLING);
        let timeout = match outcome {
            Outcome::Applied { since, .. } | Outcome::Frozen { since, .. } if sync.spec.wait && waits => {
                let passed = Timestamp::now().duration_since(*since).unsigned_abs();
                let left = sync.spec.timeout.0.checked_sub(passed);
                left.map(|left| Instant::now() + left + Duration::from_millis(100))
            }
            _ => None,
        };
        cooling.into_iter().chain(timeout).min()
    }

    async fn write_status(&mut self, sync: &GitSync, old: &GitSyncStatus, mut new: GitSyncStatus) {
        self.save_changes(sync, Instant::now()).await;
        let namespace = sync.metadata.namespace.as_deref();
        let name = sync.metadata.name.as_deref().unwrap_or_default();
        let patch = status::patch(old, &new);
        let offers = self.context.is_shared().then(|| shared_plan::given_up(&new.held));
        if let Some(offers) = &offers {
            // A write whose response is lost may succeed.
            let before = || shared_plan::given_up(&old.held);
            self.state.removal.handovers.offered.get_or_insert_with(before).extend(offers.iter().cloned());
        }
        match self.home.home.patch_merge(&git_syncs(), namespace, name, Part::Status, &patch).await {
            Ok(_) => {
                self.emit_health(sync, &new);
                self.state.removal.handovers.offered = offers;
                // A history is kept once, in the state. A patch without it leaves it in the status.
                if !std::mem::take(&mut new.history).is_empty() {
                    self.state.applied.history_written();
                }
                self.set_written(new);
                self.reported.status.succeeded(Instant::now());
                self.seen.set_request(None);
            }
            Err(error) if error.is_not_found() => self.reported.status.turn.end(),
            Err(error) => {
                tracing::warn!(
                    sync = self.owner.resource().as_str(),
                    why = mainstay_object::failure::chain(&error),
                    "status not written"
                );
                let at = (Instant::now(), fastrand::f64());
                let again = self.reported.status.failed(error.class(), error.retry_after(), at);
                self.timers.settle_at(Some(again));
            }
        }
    }

    /// Saves the inventory if applied objects changed. A recreated object has a new UID.
    async fn save_changes(&mut self, sync: &GitSync, now: Instant) {
        if !self.context.writer.store().is_unsaved(&self.owner) {
            self.reported.save.settle();
            return;
        }
        if !self.reported.save.begin(now) {
            return;
        }
        if let Err(refused) = self.attempt(sync).save_inventory().await {
            tracing::warn!(sync = self.owner.resource().as_str(), why = refused.message, "inventory not written");
        }
    }

    fn set_facts(&mut self) {
        let is_behind = !self.reported.is_frozen() && self.state.applied.commit() != self.state.branch.commit();
        self.reported.facts = SyncFacts {
            lagging_since: self.state.branch.since().filter(|_| is_behind),
            failed: self.state.unfinished.failed.len(),
            is_suspended: self.reported.is_suspended(),
            ..self.reported.facts
        };
        self.context.set_facts(&self.owner, Some(self.reported.facts));
    }
}

/// The reasons of `Ready` for objects that have failed or are not healthy in time.
const UNHEALTHY: [Reason; 3] = [Reason::HealthTimeout, Reason::ObjectFailed, Reason::EventsNotDelivered];

/// Returns the reason why objects are unhealthy, and the message without the commit; `None` if they are not.
fn unhealthy(status: &GitSyncStatus) -> Option<(Reason, &str)> {
    let ready = mainstay_api::conditions::status(&status.conditions, Type::Ready)?;
    let reason = UNHEALTHY.into_iter().find(|one| one.as_str() == ready.reason)?;
    Some((reason, ready.message.split_once("; ").map_or(&*ready.message, |(_, why)| why)))
}

fn name(sync: &GitSync) -> (&str, &str) {
    let metadata = &sync.metadata;
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

/// Returns the status of a GitSync whose cluster is unknown. The last known state of its objects is kept.
fn without_place(new: GitSyncStatus, old: &GitSyncStatus) -> GitSyncStatus {
    GitSyncStatus {
        observed_generation: new.observed_generation,
        last_handled_request: new.last_handled_request,
        conditions: new.conditions,
        ..old.clone()
    }
}
