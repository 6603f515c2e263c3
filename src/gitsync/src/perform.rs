//! Performs a plan: lists intended objects in the inventory, applies objects, and deletes or hands over removed
//! objects.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use jiff::Timestamp;

use super::attempt::Attempt;
use super::conditions;
use super::context::Context;
use super::inventory::Awaited;
use super::outcome::{Outcome, Refused};
use super::plan::{self, Applies, DesiredState, Expect, Live, Plan, Step, Why};
use super::prune::{self, HeldBack, Kept, Permission};
use super::resolve::{ResolvedSync, SyncRequest};
use super::step::Step as progress;
use super::tally::Tally;
use mainstay_api::conditions::Reason;
use mainstay_api::git_sync::ObjectChange;
use mainstay_cluster::Regarding;
use mainstay_engine::apply::{Applied, Change, Pruned, Writer};
use mainstay_engine::managed::inventory::{Inventory, uid_text};
use mainstay_engine::managed::{Appliers, Desired};
use mainstay_engine::notification::{Message, WhyPruned, waits_for};
use mainstay_git::Commit;
use mainstay_object::failure::Class;
use mainstay_object::{Key, Owner};

/// Maximum number of objects of a stage that are applied as new before the first responses show whether they exist.
const PROBED: usize = 16;

/// Returns the reason not to delete an object that left the commit.
fn stays(context: &Context, owner: &Owner, key: &Key) -> Option<Pruned> {
    let is_suspended = context.writer.is_suspended(owner).then_some(Pruned::Kept(Kept::Suspended));
    is_suspended.or_else(|| context.is_wanted_elsewhere(owner, key).then_some(Pruned::Wanted))
}

impl Attempt<'_> {
    /// Performs the plan: writes the inventory, applies objects, then deletes or hands over removed objects.
    pub(super) async fn perform(
        &mut self,
        resolved: &ResolvedSync,
        request: &SyncRequest,
        (desired, facts): (&DesiredState, &plan::Facts<'_>),
        plan: &mut Plan,
    ) -> Result<Outcome, Refused> {
        let acting = self.acting()?;
        let began = self.began(desired.commit);
        // Objects are listed before they are created. The last inventory write may have failed, so an unsaved inventory
        // is written, too.
        let steps = plan.stages.values().flatten();
        let grew = self.context.writer.store().intend(self.owner, steps.map(|step| &step.desired));
        let is_unwritten = self.state.inventory.is_empty() || self.context.writer.store().is_unsaved(self.owner);
        if grew || (is_unwritten && !plan.stages.is_empty()) {
            self.save_inventory().await?;
        }
        self.give_up_lost(plan);
        // From now on, drift is compared with the new commit: removed objects are not restored any more.
        self.context.writer.accept(self.owner, &desired.objects, plan.leaving.keys());
        let mut tally = self.state.commit.take_tally(desired.commit).next_round(plan.unchanged.len());
        self.state.unfinished.begin_round();
        let steps = plan.stages.values().map(Vec::len).sum();
        self.state.progress.begin(progress::Apply(desired.commit, 0, steps));
        let left = self.apply_stages(resolved, facts, plan, &mut tally).await?;
        self.take_over_left(resolved, left, &mut tally).await?;
        if tally.has_definitions {
            self.context.registry.notify();
        }
        let failed = &self.state.unfinished.failed;
        self.state.removal.retain_replaced(|key| failed.awaits_deletion(key));
        self.state.unfinished.failed.add_refused(plan);
        self.await_break_glass(plan);
        self.state.unfinished.failed.forget_settled(plan);
        let left = self.let_leave(&acting, plan, request, &mut tally).await;
        let handed_over = plan.leaving.handed_over.iter().chain(&left.wanted).cloned().collect::<Vec<_>>();
        let awaited = self.hand_over(&acting, handed_over).await;
        self.context.writer.end_idle_watches();
        self.save_inventory().await?;
        let awaits_peers = awaited == Awaited::Peers || plan.awaits_peers();
        let waits_for_others = awaits_peers || plan.awaits_readers() || awaited == Awaited::Tenants;
        self.state.unfinished.await_others(waits_for_others);
        let complete = self.state.unfinished.failed.is_empty() && plan.leaving.guard.is_none() && left.is_complete;
        if complete && !awaits_peers && !self.context.writer.is_suspended(self.owner) {
            self.complete(desired, &tally, began).await;
        } else {
            self.state.commit.keep_tally(desired.commit, tally);
        }
        self.emit_stuck();
        let note = self.state.inventory.is_rebuilt().then(|| {
            "the inventory was missing or damaged and was rebuilt from labels; nothing is pruned in this round"
                .to_owned()
        });
        let since = self.state.commit.ended(request.commit, Timestamp::now());
        let guard = plan.leaving.guard_text(self.owner, &request.commit.to_string());
        let failures = self.state.unfinished.failed.shown(self.context.is_shared());
        let HeldBack { all: held, safeguarded } = left.held;
        Ok(Outcome::Applied { failures, held, safeguarded, guard, pruning: left.pruning, note, since })
    }

    /// Returns the time of the lookup that found the commit, or now for a commit that is applied again, whose lookup
    /// was long ago.
    fn began(&self, commit: Commit) -> Instant {
        let is_again = self.state.applied.commit() == Some(commit);
        self.state.branch.since().filter(|_| !is_again).unwrap_or_else(Instant::now)
    }

    /// Applies the stages of a plan in order. Objects that were planned as new but exist are read and planned again.
    /// Returns the objects with fields that known appliers still own.
    async fn apply_stages(
        &mut self,
        resolved: &ResolvedSync,
        facts: &plan::Facts<'_>,
        plan: &mut Plan,
        tally: &mut Tally,
    ) -> Result<Vec<(Arc<Desired>, Live)>, Refused> {
        let known = resolved.takes_over_known().then(|| resolved.left().and_known());
        let mut left = Vec::new();
        for (stage, mut steps) in std::mem::take(&mut plan.stages) {
            self.state.progress.trace_stage(stage.number, steps.len());
            let mut again = Vec::new();
            if steps.iter().filter(|step| step.expect == Expect::Absent).count() > PROBED {
                again = steps.split_off(PROBED);
            }
            let mut found = self.apply_steps(facts, &steps, known.as_ref(), (&mut left, tally)).await;
            if !found.is_empty() {
                // The other new objects may exist, too. They are read together.
                let new = again.extract_if(.., |step| step.expect == Expect::Absent);
                found.extend(new.map(|step| step.desired));
            }
            found.extend(self.apply_steps(facts, &again, known.as_ref(), (&mut left, tally)).await);
            if found.is_empty() {
                continue;
            }
            let steps = self.plan_found(resolved, facts, &found, plan).await?;
            for desired in self.apply_steps(facts, &steps, known.as_ref(), (&mut left, tally)).await {
                // The next attempt reads the object: it may be adopted, owned by another GitSync, or paused.
                let message = "another client has just created it".to_owned();
                self.state.unfinished.failed.add(&desired.key, Class::Conflict, Reason::ApplyFailed, message, None);
            }
        }
        Ok(left)
    }

    /// Applies objects of one stage. Returns those that were planned as new but exist.
    async fn apply_steps(
        &mut self,
        facts: &plan::Facts<'_>,
        steps: &[Step],
        known: Option<&Appliers>,
        (left, tally): (&mut Vec<(Arc<Desired>, Live)>, &mut Tally),
    ) -> Vec<Arc<Desired>> {
        let (writer, owner) = (self.context.writer.clone(), self.owner.clone());
        let (mut puts, mut found) = (pin!(writer.put_stage(&owner, steps)), Vec::new());
        while let Some((desired, applied)) = puts.next().await {
            self.state.progress.advance();
            if matches!(&applied, Applied::Done(put) if put.change == Change::Anothers) {
                found.push(desired);
                continue;
            }
            left.extend(known.and_then(|known| left_in(known, &desired, &applied)));
            // The object was not created. An inventory entry for it could never be removed.
            let is_denied = matches!(&applied, Applied::Failed(error) if error.class() == Class::Denied);
            let key = &desired.key;
            let is_new = || steps.iter().any(|step| step.expect == Expect::Absent && step.desired.key == *key);
            if is_denied && !facts.observed.inventory.0.contains_key(key) && is_new() {
                self.context.writer.remove(self.owner, key);
            }
            self.applied(&desired, applied, tally);
        }
        found
    }

    /// Plans objects that were planned as new but exist. Objects that are left to their owner are removed from the
    /// inventory.
    async fn plan_found(
        &mut self,
        resolved: &ResolvedSync,
        facts: &plan::Facts<'_>,
        found: &[Arc<Desired>],
        plan: &mut Plan,
    ) -> Result<Vec<Step>, Refused> {
        let observed = self.observe_found(resolved, found, facts.observed).await?;
        let facts = plan::Facts { desired: found, observed: &observed, ..*facts };
        let again = self.context.registry.with(self.owner, |view| plan::plan_found(view, &facts));
        let not_applied = again.refused.iter().map(|refused| &refused.key);
        let not_applied = not_applied.chain(again.paused.iter().map(|(desired, _)| &desired.key));
        let not_applied: HashSet<_> = not_applied.chain(&observed.waiting).collect();
        for desired in found.iter().filter(|desired| not_applied.contains(&desired.key)) {
            let is_ours = observed.live.get(&desired.key).is_some_and(|live| live.is_ours(desired));
            if !is_ours && !observed.inventory.0.contains_key(&desired.key) {
                self.context.writer.remove(self.owner, &desired.key);
            }
        }
        plan.refused.extend(again.refused);
        plan.paused.extend(again.paused);
        Ok(again.stages.into_values().flatten().collect())
    }

    /// Takes over fields that an earlier version left to known appliers in Mainstay's objects, if these tools do not
    /// manage the objects any more.
    async fn take_over_left(
        &mut self,
        resolved: &ResolvedSync,
        left: Vec<(Arc<Desired>, Live)>,
        tally: &mut Tally,
    ) -> Result<(), Refused> {
        if left.is_empty() {
            return Ok(());
        }
        let live = left.iter().map(|(desired, live)| (desired.key.clone(), live.clone())).collect();
        let contested = self.contested(resolved, &live).await?;
        let appliers = resolved.left().and_known();
        let step = |desired| Step { desired, expect: Expect::Ours, appliers: appliers.clone() };
        let free = left.into_iter().filter(|(desired, _)| !contested.contains_key(&desired.key));
        let steps = free.map(|(desired, _)| step(desired)).collect::<Vec<_>>();
        let (writer, owner) = (self.context.writer.clone(), self.owner.clone());
        let mut puts = pin!(writer.put_stage(&owner, &steps));
        while let Some((desired, applied)) = puts.next().await {
            if !matches!(applied, Applied::Done(_)) {
                self.applied(&desired, applied, tally);
            }
        }
        Ok(())
    }

    /// Forgets the applied state of objects that another GitSync has taken over.
    fn give_up_lost(&self, plan: &Plan) {
        let lost = self.context.registry.with(self.owner, |view| {
            let lost = plan.refused.iter().filter(|refused| match &refused.why {
                Why::Claimed(_) => true,
                Why::AwaitsHandover(_) => view.is_outranked(&refused.key),
                _ => false,
            });
            lost.map(|refused| refused.key.clone()).collect::<Vec<_>>()
        });
        self.context.writer.store().give_up(self.owner, &lost);
    }

    /// Deletes removed objects, if the plan allows it now.
    async fn let_leave(&mut self, acting: &Writer, plan: &Plan, request: &SyncRequest, tally: &mut Tally) -> Left {
        let may_prune = plan.may_prune(Applies {
            failed: self.state.unfinished.failed.has_apply() || self.context.writer.is_suspended(self.owner),
            rebuilt: self.state.inventory.is_rebuilt(),
        });
        let commit = request.commit.to_string();
        let mut held = HeldBack::default();
        for (key, why) in &plan.leaving.held {
            held.add(key, why.text(self.owner, &commit), why.needs_release());
        }
        let inventory = self.inventory().unwrap_or_default();
        let beyond = inventory.0.keys().filter(|key| !self.reaches(key));
        held.all.extend(beyond.map(|key| format!("{key}: a GitSync in this namespace may not manage it")));
        drop(inventory);
        let handovers = self.pending_handovers(plan);
        // The status shows the first ones, and other agents act on the handovers that it shows.
        let at = if self.context.is_shared() { 0 } else { held.all.len() };
        drop(held.all.splice(at..at, handovers));
        if !may_prune {
            // Deletions are held in this round, so their earlier failures do not count any more.
            self.state.unfinished.failed.forget_deletions();
            let kept = plan.leaving.prune.iter();
            held.all.extend(kept.map(|key| format!("{key}: kept until everything else is applied")));
            return Left { held, pruning: 0, wanted: Vec::new(), is_complete: false };
        }
        let waiting = self.state.unfinished.failed.waiting(Instant::now());
        let due = plan.leaving.prune.iter().filter(|key| !waiting.contains(*key)).cloned().collect::<Vec<_>>();
        self.state.progress.begin(progress::Delete(request.commit, due.len()));
        let (pruning, wanted) = self.prune(acting, &due, request, &mut held, tally).await;
        // A pending deletion does not delay the commit, because its finalizers may never be removed.
        Left { held, pruning, wanted, is_complete: true }
    }

    /// Emits a message for each object whose deletion takes longer than the timeout.
    pub(super) fn emit_stuck(&mut self) {
        let (timeout, now) = (self.sync.spec.timeout.0, Timestamp::now());
        for (key, terminating) in self.state.removal.take_stuck(timeout, now) {
            let message = Message::DeletionStuck {
                subject: self.owner.clone(),
                object: key.to_string(),
                finalizers: terminating.finalizers,
                since: terminating.since.to_string(),
            };
            self.context.emit(self.owner, &message);
        }
    }

    /// Records paused objects. They are applied when the pause ends.
    fn await_break_glass(&mut self, plan: &Plan) {
        for (desired, until) in &plan.paused {
            self.context.writer.insert_paused(self.owner, desired, *until);
            self.state.unfinished.pause(desired.key.clone());
        }
    }

    fn applied(&mut self, desired: &Desired, applied: Applied, tally: &mut Tally) {
        let key = &desired.key;
        let put = match applied {
            Applied::Done(put) => put,
            Applied::Failed(error) => {
                let (message, after) = (error.cause_at(&desired.object), error.retry_after());
                self.state.unfinished.failed.add(key, error.class(), Reason::ApplyFailed, message, after);
                return;
            }
            Applied::Immutable(error, why) => {
                let message =
                    format!("an immutable field differs; {}: {}", why.text(key), error.cause_at(&desired.object));
                self.state.unfinished.failed.add(key, Class::Invalid, Reason::Immutable, message, None);
                if self.context.writer.has_successor(key) {
                    self.state.unfinished.failed.await_deletion(key);
                }
                return;
            }
        };
        match put.change {
            Change::Paused => {
                self.note_paused_sync(key);
                self.state.unfinished.failed.remove(key);
                self.state.unfinished.pause(key.clone());
                return;
            }
            Change::Terminating => {
                let mut message = "it is being deleted; it is recreated when it is gone".to_owned();
                let awaits = put.awaits.filter(|_| self.context.writer.has_successor(key));
                if let Some(awaits) = &awaits {
                    let (since, waits) = (awaits.since, waits_for(&awaits.finalizers));
                    message =
                        format!("it is being deleted, since {since}, and {waits}; it is recreated once it is gone");
                }
                self.state.unfinished.failed.add(key, Class::NotReady, Reason::ApplyFailed, message, None);
                if let Some(awaits) = awaits {
                    self.state.unfinished.failed.await_deletion(key);
                    if self.state.removal.replace(key.clone(), awaits) {
                        tally.add(ObjectChange::Changed, key);
                    }
                }
                return;
            }
            // The caller reads the existing object. A suspended GitSync applies it once it is resumed.
            Change::Anothers | Change::Suspended => return,
            Change::Created => tally.add(ObjectChange::Created, key),
            Change::Changed => tally.add(ObjectChange::Changed, key),
            Change::Unchanged => tally.unchanged += 1,
        }
        self.note_applied_sync(desired, &put.answer);
        // Other GitSyncs are woken only if a Namespace or CustomResourceDefinition changed.
        let is_definition = matches!(&*key.kind, "Namespace" | "CustomResourceDefinition");
        tally.has_definitions |= is_definition && put.change != Change::Unchanged;
        self.state.unfinished.failed.remove(key);
    }

    /// Deletes removed objects. Returns the number of pending deletions, and the objects that another GitSync now
    /// wants.
    async fn prune(
        &mut self,
        acting: &Writer,
        leaving: &[Key],
        request: &SyncRequest,
        held: &mut HeldBack,
        tally: &mut Tally,
    ) -> (usize, Vec<Key>) {
        let Some(inventory) = self.inventory() else { return (0, Vec::new()) };
        let leaving = leaving.iter().filter_map(|key| Some((key.clone(), inventory.0.get(key)?.clone()))).collect();
        let commit = request.commit.to_string();
        let (permission, why) = if request.allows_prune() {
            (Permission::Allowed, WhyPruned::LeftAndAllowed(commit.clone()))
        } else {
            (Permission::Unasked, WhyPruned::Left(commit.clone()))
        };
        let label = Arc::clone(self.label);
        let mut terminating = Vec::new();
        let (context, owner) = (self.context, self.owner);
        let stays = |key: &Key| stays(context, owner, key);
        let mut wanted = Vec::new();
        acting
            .prune(&label, leaving, permission, stays, |key, pruned| match pruned {
                Pruned::Gone { deleted } => {
                    if deleted {
                        tally.add(ObjectChange::Pruned, &key);
                        self.emit_pruned(&key, &inventory, &why);
                    }
                    self.state.unfinished.failed.remove(&key);
                    self.context.writer.remove(self.owner, &key);
                }
                Pruned::Terminating { requested, awaits } => {
                    if requested {
                        tally.add(ObjectChange::Pruned, &key);
                        self.emit_pruned(&key, &inventory, &why);
                    }
                    self.state.unfinished.failed.remove(&key);
                    terminating.push((key, awaits));
                }
                Pruned::Wanted => {
                    self.state.unfinished.failed.remove(&key);
                    wanted.push(key);
                }
                Pruned::Kept(why) => {
                    // The user who set the annotation knows that the object is kept.
                    let needs_release = !matches!(why, Kept::Annotation(_) | Kept::Paused | Kept::Suspended);
                    held.add(&key, prune::kept(why, &key, self.owner, &commit), needs_release);
                }
                Pruned::Failed(error) => {
                    let after = error.retry_after();
                    let failed = &mut self.state.unfinished.failed;
                    failed.add(&key, error.class(), Reason::PruneFailed, error.cause_text(), after);
                }
            })
            .await;
        let pruning = terminating.len();
        self.state.removal.set_terminating(terminating);
        (pruning, wanted)
    }

    /// Emits a message about the deletion of an object that the inventory lists.
    pub(super) fn emit_pruned(&self, key: &Key, inventory: &Inventory, why: &WhyPruned) {
        let Some(entry) = inventory.0.get(key) else { return };
        let version = &entry.version;
        let api_version = if key.group.is_empty() { version.to_string() } else { format!("{}/{version}", key.group) };
        let regarding = Regarding { key: key.clone(), api_version, uid: entry.uid.map(uid_text) };
        let message = Message::Pruned { subject: self.owner.clone(), object: key.to_string(), why: why.clone() };
        self.context.emit_about(self.owner, regarding, &message);
    }

    async fn complete(&mut self, desired: &DesiredState, tally: &Tally, began: Instant) {
        let commit = desired.commit;
        let new = self.state.applied.commit() != Some(commit);
        let is_known = self.is_applied(desired);
        let becomes_empty = desired.objects.is_empty() && !is_known;
        self.state.applied.complete(commit, desired.tree);
        let said = self.sync.status.as_ref().and_then(|s| s.applied_commit.clone());
        let restarted = said.as_deref() == Some(&commit.to_string()) && tally.affected() == 0;
        if (new && !restarted) || tally.affected() > 0 {
            let message = Message::CommitApplied {
                subject: self.owner.clone(),
                commit: commit.to_string(),
                created: tally.created,
                changed: tally.changed,
                unchanged: tally.unchanged,
                pruned: tally.pruned,
                millis: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
                is_elsewhere: is_known && self.has_succeeded,
            };
            self.context.emit(self.owner, &message);
        }
        // In a monorepo, most commits change nothing in the directory of a GitSync.
        if !is_known || tally.affected() > 0 {
            self.remember(desired, tally, began.elapsed()).await;
        }
        if becomes_empty {
            let why = conditions::no_manifests(&self.sync.spec.base_dir, self.state.compiled.left_out());
            let message = Message::NoManifests { subject: self.owner.clone(), commit: commit.to_string(), why };
            self.context.emit(self.owner, &message);
        }
    }
}

/// Returns the object if known appliers still own some of its fields after its apply.
fn left_in(known: &Appliers, desired: &Arc<Desired>, applied: &Applied) -> Option<(Arc<Desired>, Live)> {
    let Applied::Done(put) = applied else { return None };
    known.would_remove(put.answer.pointer("/metadata/managedFields")?, desired)?;
    let meta = serde_json::from_value(put.answer["metadata"].clone()).ok()?;
    let label = desired.label().unwrap_or_default();
    Some((Arc::clone(desired), Live::of(&meta, label, Timestamp::now())))
}

/// The result for removed objects.
struct Left {
    /// Objects that are kept, with the reason.
    held: HeldBack,
    /// The number of pending deletions.
    pruning: usize,
    /// Objects that another GitSync has wanted since the plan was made.
    wanted: Vec<Key>,
    /// Whether all objects are deleted that may be deleted.
    is_complete: bool,
}
