//! From what a commit wants to the objects in the cluster: planned, reserved, applied, pruned.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use super::attempt::{Attempt, Refused};
use super::plan::{self, Facts, Plan, Why};
use super::prune::{self, Prune, Unproven};
use super::status::Outcome;
use super::sync_state::{DesiredState, SyncRequest};
use super::{observe, registry};
use crate::api::conditions::Reason;
use crate::apply::{Applied, Change, Pruned};
use crate::failure::{Class, chain};
use crate::managed::Desired;
use crate::managed::inventory::Inventory;
use crate::notification::Message;
use crate::object::Key;

impl Attempt<'_> {
    pub(super) async fn perform(
        &mut self,
        desired: &DesiredState,
        sync_request: &SyncRequest,
        branch: &str,
    ) -> Result<Outcome, Refused> {
        let began = self.state.seen.map_or_else(Instant::now, |(_, at)| at);
        let commit = sync_request.commit.to_string();
        self.forget_old_failures(desired);
        let plan = self.plan(desired, sync_request, branch).await?;
        self.write_intentions(&plan).await?;
        self.accept(desired, &plan);
        let mut tally = Tally { unchanged: plan.unchanged.len(), ..Tally::default() };
        self.state.paused.clear();
        self.apply(&plan, &mut tally).await;
        self.note_refused(&plan);
        self.await_break_glass(&plan);
        self.forget_settled_failures(&plan);
        let failed = self.state.failed.values().any(|failed| failed.reason != Reason::PruneFailed);
        let may_prune = prune::follows(&plan, failed, self.state.rebuilt);
        if !may_prune {
            // Not tried in this round: it is held, and has not failed again.
            self.state.failed.retain(|_, failed| failed.reason != Reason::PruneFailed);
        }
        let mut held = plan.held.iter().map(|(key, why)| format!("{key}: {why}")).collect::<Vec<_>>();
        let inventory = self.inventory().unwrap_or_default();
        let beyond = inventory.0.keys().filter(|key| !self.reaches(key));
        held.extend(beyond.map(|key| format!("{key}: a GitSync in this namespace may not touch it")));
        drop(inventory);
        let mut pruning = 0;
        if may_prune {
            let now = Instant::now();
            let waits = |key: &&Key| self.state.failed.get(*key).is_none_or(|failed| failed.again <= now);
            let due = plan.prune.iter().filter(waits).cloned().collect::<Vec<_>>();
            pruning = self.prune(&due, unproven(sync_request), &mut held, &mut tally).await;
        } else {
            held.extend(plan.prune.iter().map(|key| format!("{key}: kept until everything else is applied")));
        }
        let awaits_takers = self.hand_over(&plan.handed_over).await;
        self.context.drift.end_idle_watches();
        self.save_inventory().await?;
        self.state.awaits_others = awaits_takers
            || plan.refused.iter().any(|r| matches!(r.why, Why::AwaitsHandover(_)))
            || plan.held.iter().any(|(_, why)| *why == prune::AWAITS_SIBLINGS);
        let complete = self.state.failed.is_empty() && plan.guard.is_none() && pruning == 0 && may_prune;
        if complete && !self.state.awaits_others {
            self.complete(desired, sync_request, &tally, began);
        }
        let note = self.state.rebuilt.then(|| {
            "the inventory was missing or damaged and was put together from labels; nothing is pruned in this round"
                .to_owned()
        });
        let since = match &self.state.since {
            Some((of, since)) if *of == sync_request.commit => *since,
            _ => Timestamp::now(),
        };
        self.state.since = Some((sync_request.commit, since));
        let guard = prune::guard_text(&plan, &commit);
        Ok(Outcome::Applied { failures: self.state.failures(), held, guard, pruning, note, since })
    }

    async fn plan(
        &mut self,
        desired: &DesiredState,
        sync_request: &SyncRequest,
        branch: &str,
    ) -> Result<Plan, Refused> {
        let now = Instant::now();
        let kept = self.context.drift.applied(self.owner);
        let mut inventory = self.inventory().map_or_else(Inventory::default, |inventory| Inventory::clone(&inventory));
        inventory.0.retain(|key, _| self.reaches(key));
        let mut waiting: HashSet<Key> =
            self.state.failed.iter().filter(|(_, f)| f.again > now).map(|(key, _)| key.clone()).collect();
        let unknown = desired
            .objects
            .iter()
            .filter(|d| !plan::is_unchanged(d, inventory.0.get(&d.key)))
            .filter(|d| !kept.contains(&d.key) && !waiting.contains(&d.key))
            .collect::<Vec<_>>();
        let (live, unseen) = observe::live(self.context.drift.cluster(), &unknown, self.label).await?;
        for (keys, error) in unseen {
            for key in keys {
                let (class, message, after) = (error.class(), chain(&error), error.retry_after());
                self.fail(&key, class, Reason::ApplyFailed, message, after);
                waiting.insert(key);
            }
        }
        let commit = sync_request.commit.to_string();
        let allowed = sync_request.allows_prune();
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let plan = self.context.registry.with(self.owner, |view| {
            let prune = Prune::of(self.sync.spec.prune, view.siblings_pending(branch, &commit), allowed);
            let plan = plan::plan(&Facts {
                desired: &desired.objects,
                inventory: &inventory,
                kept: &kept,
                waiting: &waiting,
                live: &live,
                claimed: &|key, label| view.claim(key, label, branch, &commit),
                desired_elsewhere: &|key| view.desired_elsewhere(key),
                prune,
                now: &now,
            });
            reserve(view.own(), &plan);
            plan
        });
        Ok(plan)
    }

    /// What is under break glass is applied when that ends.
    fn await_break_glass(&mut self, plan: &Plan) {
        for desired in &plan.paused {
            self.context.drift.insert_paused(self.owner, desired);
            self.state.paused.insert(desired.key.clone());
        }
    }

    /// The commit counts from now on: what left it is never brought back.
    fn accept(&self, desired: &DesiredState, plan: &Plan) {
        let gone = plan.prune.iter().chain(plan.held.iter().map(|(key, _)| key)).chain(&plan.handed_over);
        self.context.drift.accept(self.owner, &desired.objects, gone);
    }

    async fn apply(&mut self, plan: &Plan, tally: &mut Tally) {
        let drift = self.context.drift.clone();
        let owner = self.owner.clone();
        let mut definitions = false;
        for steps in plan.stages.values() {
            drift
.put_stage(&owner, steps.clone(), |desired, applied| {
                // Told of nothing new, whoever waits for it would be woken for nothing, again and again.
                let is_news =
                    matches!(&applied, Applied::Done(put) if matches!(put.change, Change::Created | Change::Changed));
                definitions |= is_news && matches!(&*desired.key.kind, "Namespace" | "CustomResourceDefinition");
                self.applied(&desired, applied, tally);
            })
            .await;
        }
        if definitions {
            self.context.registry.tell();
        }
    }

    fn applied(&mut self, desired: &Desired, applied: Applied, tally: &mut Tally) {
        let key = &desired.key;
        let put = match applied {
            Applied::Done(put) => put,
            Applied::Failed(error) => {
                let after = error.retry_after();
                self.fail(key, error.class(), Reason::ApplyFailed, chain(&error), after);
                return;
            }
            Applied::Immutable(error) => {
                let hint = "a field differs that cannot be changed; delete the object to have it created anew";
                let message = format!("{hint}: {}", chain(&error));
                self.fail(key, Class::Invalid, Reason::Immutable, message, None);
                return;
            }
        };
        match put.change {
            Change::Paused => {
                self.state.failed.remove(key);
                self.state.paused.insert(key.clone());
                return;
            }
            Change::Terminating => {
                let message = "it is being deleted; it is created again when it is gone";
                self.fail(key, Class::NotReady, Reason::ApplyFailed, message.to_owned(), None);
                return;
            }
            Change::Anothers => {
                // The next look at it decides: it may be taken over, or it is another one's, or under break glass.
                let message = "somebody else has just created it";
                self.fail(key, Class::Conflict, Reason::ApplyFailed, message.to_owned(), None);
                return;
            }
            Change::Created => tally.created += 1,
            Change::Changed => tally.changed += 1,
            Change::Unchanged => tally.unchanged += 1,
        }
        self.state.failed.remove(key);
    }

    async fn prune(&mut self, leaving: &[Key], unproven: Unproven, held: &mut Vec<String>, tally: &mut Tally) -> usize {
        let Some(inventory) = self.inventory() else { return 0 };
        let leaving = leaving.iter().filter_map(|key| Some((key.clone(), inventory.0.get(key)?.clone()))).collect();
        drop(inventory);
        let (drift, label) = (self.context.drift.clone(), Arc::clone(self.label));
        let mut pruning = 0;
        drift
            .prune(&label, leaving, unproven, |key, pruned| match pruned {
                Pruned::Gone { deleted } => {
                    tally.pruned += usize::from(deleted);
                    self.state.failed.remove(&key);
                    self.context.drift.remove(self.owner, &key);
                }
                Pruned::Terminating => {
                    pruning += 1;
                    tally.pruned += 1;
                }
                Pruned::Kept(why) => held.push(format!("{key}: {why}")),
                Pruned::Failed(error) => {
                    let after = error.retry_after();
                    self.fail(&key, error.class(), Reason::PruneFailed, chain(&error), after);
                }
            })
            .await;
        pruning
    }

    fn complete(&mut self, desired: &DesiredState, sync_request: &SyncRequest, tally: &Tally, began: Instant) {
        let new = self.state.applied.is_none_or(|(commit, _)| commit != sync_request.commit);
        self.state.applied = Some((sync_request.commit, desired.tree));
        let said = self.sync.status.as_ref().and_then(|s| s.applied_commit.clone());
        let restarted = said.as_deref() == Some(&sync_request.commit.to_string()) && tally.touched() == 0;
        if (new && !restarted) || tally.touched() > 0 {
            let message = Message::CommitApplied {
                subject: self.owner.clone(),
                commit: sync_request.commit.to_string(),
                created: tally.created,
                changed: tally.changed,
                unchanged: tally.unchanged,
                pruned: tally.pruned,
                millis: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            };
            self.context.emit(self.owner, &message);
        }
    }
}

/// What an attempt did, in numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    created: usize,
    changed: usize,
    unchanged: usize,
    pruned: usize,
}

impl Tally {
    fn touched(&self) -> usize {
        self.created + self.changed + self.pruned
    }
}

/// From now on these objects count as ours, before anyone else can plan to apply them.
fn reserve(row: &mut registry::Row, plan: &Plan) {
    let mut managed = row.managed.as_deref().cloned().unwrap_or_default();
    let before = managed.len();
    managed.extend(plan.stages.values().flatten().map(|step| step.desired.key.clone()));
    if managed.len() != before {
        row.managed = Some(Arc::new(managed));
    }
}

fn unproven(sync_request: &SyncRequest) -> Unproven {
    if sync_request.allows_prune() { Unproven::Delete } else { Unproven::Keep }
}
