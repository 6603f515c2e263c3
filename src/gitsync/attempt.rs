//! One attempt: from the ref at the remote to the objects in the cluster.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::apply::{self, Applied, InventoryOwner, Pruned};
use super::context::Context;
use super::inventory::{Entry, Inventory};
use super::plan::{self, Facts, Guard, Plan, Prune, Why};
use super::resolve::{self, Placing};
use super::status::Outcome;
use super::{observe, registry};
use crate::api::GitSync;
use crate::api::conditions::Reason;
use crate::api::git_sync::Failure;
use crate::api::names::ALLOW_PRUNE;
use crate::cluster;
use crate::drift::{Change, Desired, Owner};
use crate::failure::{Class, chain};
use crate::manifest::{self, Problem};
use crate::notification::Message;
use crate::object::{Digest, Key};
use crate::source::{BaseDir, Commit, Found, Reference, Remote, RemoteUrl, Snapshot, TreeId};

/// Problems that one message names.
const SHOWN_PROBLEMS: usize = 20;
/// Longest value of a label.
const LONGEST_LABEL: usize = 63;
/// First wait before a failed object is tried again; it doubles up to [`LAST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LAST_WAIT: Duration = Duration::from_secs(120);

/// Why an attempt did not come to applying anything.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub(super) class: Class,
    pub(super) reason: Reason,
    pub(super) message: String,
    pub(super) retry_after: Option<Duration>,
}

impl Refused {
    pub(super) fn invalid(reason: Reason, message: impl Into<String>) -> Self {
        Self { class: Class::Invalid, reason, message: message.into(), retry_after: None }
    }

    pub(super) fn outcome(&self) -> Outcome {
        Outcome::Refused { class: self.class, reason: self.reason, message: self.message.clone() }
    }
}

impl From<cluster::Error> for Refused {
    fn from(error: cluster::Error) -> Self {
        let class = error.class();
        let reason = if class == Class::Bug { Reason::InternalError } else { Reason::ClusterUnavailable };
        Self { class, reason, message: chain(&error), retry_after: error.retry_after() }
    }
}

impl From<crate::source::Error> for Refused {
    fn from(error: crate::source::Error) -> Self {
        let class = error.class();
        let reason = match class {
            Class::Denied => Reason::GitAuthorizationFailed,
            Class::Invalid => Reason::SourceInvalid,
            _ => Reason::SourceUnavailable,
        };
        Self { class, reason, message: chain(&error), retry_after: error.retry_after() }
    }
}

/// An object that failed, and when it is tried again.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) class: Class,
    pub(super) reason: Reason,
    pub(super) message: String,
    pub(super) attempts: u32,
    pub(super) again: Instant,
}

/// What a GitSync remembers from attempt to attempt.
#[derive(Default)]
pub(super) struct Memory {
    /// Its inventory; `None` until it was read.
    pub(super) inventory: Option<Inventory>,
    /// Digests of the inventory's ConfigMaps as they are written.
    pub(super) written: BTreeMap<usize, Digest>,
    /// The inventory was put together from labels: nothing is pruned in this round.
    rebuilt: bool,
    /// What the last decoded commit wants.
    wanted: Option<Wanted>,
    /// Objects whose last apply or deletion failed.
    pub(super) failed: HashMap<Key, Failed>,
    /// What an attempt was made for and came out right with.
    settled: Option<Question>,
    /// Objects that this commit changes and that are under break glass.
    pub(super) paused: HashSet<Key>,
    /// Something is awaited from another GitSync.
    pub(super) awaits_others: bool,
    /// The commit that was seen last, and when.
    pub(super) seen: Option<(Commit, Instant)>,
    /// Commit and tree that are applied in full.
    pub(super) applied: Option<(Commit, Option<TreeId>)>,
    /// What an earlier agent applied was looked for.
    looked_back: bool,
    /// When the present outcome of applying began.
    since: Option<(Commit, Timestamp)>,
}

/// What decides whether there is anything to do.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Question {
    commit: Commit,
    generation: Option<i64>,
    allow_prune: Option<String>,
}

#[derive(Clone)]
struct Wanted {
    commit: Commit,
    /// Tree of `baseDir`; `None` when the directory is gone and its deletion was allowed.
    tree: Option<TreeId>,
    generation: Option<i64>,
    objects: Vec<Arc<Desired>>,
}

/// One attempt's view of its GitSync.
pub(super) struct Attempt<'a> {
    pub(super) context: &'a Context,
    pub(super) owner: &'a Owner,
    pub(super) sync: &'a GitSync,
    pub(super) label: &'a Arc<str>,
    pub(super) memory: &'a mut Memory,
}

/// Value of the label on everything that a GitSync manages: `<namespace>.<name>`, hashed when too long.
pub fn label(namespace: &str, name: &str) -> Arc<str> {
    let plain = format!("{namespace}.{name}");
    if plain.len() <= LONGEST_LABEL {
        return plain.into();
    }
    format!("{}.{}", crate::api::conditions::cut(name, 30), Digest::of(plain.as_bytes())).into()
}

/// What a GitSync follows, as one text: what follows the same is planned together.
pub(super) fn branch(url: &RemoteUrl, reference: &str) -> String {
    format!("{url} {reference}")
}

impl Attempt<'_> {
    pub(super) fn namespace(&self) -> &str {
        self.sync.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub(super) fn inventory_owner(&self) -> InventoryOwner<'_> {
        InventoryOwner {
            namespace: self.namespace(),
            name: self.sync.metadata.name.as_deref().unwrap_or_default(),
            uid: self.sync.metadata.uid.as_deref().unwrap_or_default(),
            label: self.label,
        }
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.sync.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// Reads the inventory, once.
    pub(super) async fn load_inventory(&mut self) -> Result<(), Refused> {
        if self.memory.inventory.is_some() {
            return Ok(());
        }
        let cluster = self.context.drift.cluster();
        let status = self.sync.status.as_ref();
        let applied_before = status.is_some_and(|s| s.attempted_commit.is_some() || s.objects > 0);
        let inventory = match observe::inventory(cluster, self.namespace(), self.label).await? {
            observe::Found::Whole(inventory) => {
                self.memory.written =
                    inventory.encode().into_iter().map(|s| (s.index, Digest::of(&s.content))).collect();
                inventory
            }
            observe::Found::Missing if !applied_before => Inventory::default(),
            observe::Found::Missing | observe::Found::Damaged => {
                self.memory.rebuilt = true;
                observe::labelled(cluster, self.label).await?
            }
        };
        self.memory.inventory = Some(inventory);
        self.publish_managed();
        Ok(())
    }

    fn publish_managed(&self) {
        let keys = self.memory.inventory.iter().flat_map(|i| i.0.keys().cloned()).collect::<HashSet<_>>();
        self.context.registry.update(self.owner, |row| row.managed = Some(Arc::new(keys)));
    }

    /// Looks up the ref and, if there is anything to do, does it. `None`: nothing was to do.
    pub(super) async fn sync(&mut self, remote: &Remote, max_age: Duration) -> Result<Option<Outcome>, Refused> {
        let reference = Reference::parse(&self.sync.spec.reference)?;
        let base_dir = BaseDir::parse(&self.sync.spec.base_dir)?;
        let found = match self.context.source.lookup(remote, &reference, max_age).await {
            Ok(found) => found,
            Err(error) => {
                self.keep_what_was_applied(remote, &base_dir).await;
                return Err(error.into());
            }
        };
        if self.memory.seen.is_none_or(|(commit, _)| commit != found.commit) {
            let sync = self.owner.to_string();
            self.memory.seen = Some((found.commit, Instant::now()));
            self.context.tell(
                self.owner,
                "CommitSeen",
                &Message::CommitSeen { sync, commit: found.commit.to_string() },
            );
            self.memory.failed.clear();
        }
        let question = Question {
            commit: found.commit,
            generation: self.sync.metadata.generation,
            allow_prune: self.annotation(ALLOW_PRUNE).map(str::to_owned),
        };
        if self.memory.settled.as_ref() == Some(&question) {
            return Ok(None);
        }
        let branch = branch(&remote.url, &self.sync.spec.reference);
        let wanted = match self.wanted(remote, &found, &base_dir, &question).await {
            Ok(wanted) => wanted,
            Err(refused) => {
                self.keep_what_was_applied(remote, &base_dir).await;
                return Err(refused);
            }
        };
        let keys = wanted.objects.iter().map(|d| d.key.clone()).collect::<HashSet<_>>();
        self.context.registry.update(self.owner, |row| {
            row.branch = Some(branch.clone());
            row.wanted = Some(Arc::new(keys));
            row.planned = Some(question.commit.to_string());
            row.suspended = false;
        });
        let outcome = self.perform(&wanted, &question, &branch).await?;
        let clean = matches!(&outcome, Outcome::Applied { failures, pruning: 0, .. } if failures.is_empty())
            && self.memory.paused.is_empty();
        if clean && !self.memory.awaits_others && !std::mem::take(&mut self.memory.rebuilt) {
            self.memory.settled = Some(question);
        }
        Ok(Some(outcome))
    }

    /// What the commit wants: as it was decoded before, or decoded now.
    async fn wanted(
        &mut self,
        remote: &Remote,
        found: &Found,
        base_dir: &BaseDir,
        question: &Question,
    ) -> Result<Wanted, Refused> {
        let generation = self.sync.metadata.generation;
        let known = self.memory.wanted.as_ref().filter(|w| w.generation == generation && w.tree.is_some());
        if let Some(wanted) = known.filter(|w| w.commit == found.commit) {
            return Ok(wanted.clone());
        }
        // Held no longer than it is read: an open mirror is memory.
        let snapshot = self.context.source.fetch(remote, found).await?;
        let tree = match snapshot.tree(base_dir).await? {
            Some(tree) => Some(tree),
            None if question.allow_prune.as_deref() == Some(&found.commit.to_string()) => None,
            None => {
                return Err(Refused::invalid(
                    Reason::SourceInvalid,
                    format!(
                        "baseDir {base_dir} does not exist at commit {}; nothing is deleted. Put it back, or set the \
                         annotation {ALLOW_PRUNE} to the commit to delete everything",
                        found.commit
                    ),
                ));
            }
        };
        if let Some(wanted) = self.memory.wanted.as_mut().filter(|w| w.tree == tree && w.generation == generation) {
            wanted.commit = found.commit;
            return Ok(wanted.clone());
        }
        let objects = if tree.is_none() { Vec::new() } else { self.decode(&snapshot, base_dir).await? };
        let wanted = Wanted { commit: found.commit, tree, generation, objects };
        self.memory.wanted = Some(wanted.clone());
        Ok(wanted)
    }

    async fn decode(&self, snapshot: &Snapshot, base_dir: &BaseDir) -> Result<Vec<Arc<Desired>>, Refused> {
        let (memory, limits) = (Arc::clone(&self.context.memory), self.context.limits.clone());
        let directory = base_dir.clone();
        let decoded = snapshot
            .blocking(move |snapshot| {
                let listing = snapshot.entries(&directory)?;
                manifest::decode(&listing, &mut |entry| snapshot.read(entry), &memory, &limits)
            })
            .await??;
        if !decoded.problems.is_empty() {
            return Err(refused_for(&decoded.problems));
        }
        let served = observe::served(self.context.drift.cluster(), &decoded.objects).await?;
        let target = self.sync.spec.target_namespace.as_deref().unwrap_or(self.namespace());
        let placing = Placing {
            own_namespace: self.namespace(),
            target_namespace: target,
            label: self.label,
            reach: self.context.reach(self.namespace()),
        };
        resolve::resolve(&decoded.objects, &served, &placing).map_err(|problems| refused_for(&problems))
    }

    /// A new agent that cannot use the newest commit goes on keeping what the last one applied.
    async fn keep_what_was_applied(&mut self, remote: &Remote, base_dir: &BaseDir) {
        let applied = self.sync.status.as_ref().and_then(|status| status.applied_commit.clone());
        let (None, Some(commit), false) = (&self.memory.wanted, applied, self.memory.looked_back) else { return };
        self.memory.looked_back = true;
        let kept = async {
            let reference = Reference::parse(&commit)?;
            let found = self.context.source.lookup(remote, &reference, Duration::MAX).await?;
            let snapshot = self.context.source.fetch(remote, &found).await?;
            self.decode(&snapshot, base_dir).await
        };
        match kept.await {
            Ok(objects) => self.keep(&objects),
            Err(refused) => {
                tracing::warn!(sync = &**self.owner, why = refused.message, "what was applied before cannot be read");
            }
        }
    }

    /// Hands unchanged objects to the backward loop.
    fn keep(&self, objects: &[Arc<Desired>]) {
        let kept = self.context.drift.kept(self.owner);
        let Some(inventory) = &self.memory.inventory else { return };
        for desired in objects {
            let entry = inventory.0.get(&desired.key).filter(|entry| plan::is_unchanged(desired, Some(entry)));
            let Some(entry) = entry else { continue };
            if kept.contains(&desired.key) {
                self.context.drift.renew(self.owner, desired);
            } else if let Some(digest) = entry.digest {
                let uid = entry.uid.map(super::inventory::uid_text);
                self.context.drift.expect(self.owner, desired, uid, digest);
            }
        }
    }

    async fn perform(&mut self, wanted: &Wanted, question: &Question, branch: &str) -> Result<Outcome, Refused> {
        let began = self.memory.seen.map_or_else(Instant::now, |(_, at)| at);
        let commit = question.commit.to_string();
        self.forget_old_failures(wanted);
        // What was created again since has another UID, by which it is known when it leaves.
        self.note_verified();
        let plan = self.plan(wanted, question, branch).await?;
        self.write_intentions(&plan).await?;
        self.accept(wanted, &plan);
        let mut tally = Tally { unchanged: plan.unchanged.len(), ..Tally::default() };
        self.memory.paused.clear();
        self.apply(&plan, &mut tally).await;
        self.note_refused(&plan);
        self.await_break_glass(&plan);
        let failed = self.memory.failed.values().any(|failed| failed.reason != Reason::PruneFailed);
        let may_prune = !failed && plan.refused.is_empty() && !self.memory.rebuilt;
        let mut held = plan.held.iter().map(|(key, why)| format!("{key}: {why}")).collect::<Vec<_>>();
        let mut pruning = 0;
        if may_prune {
            let now = Instant::now();
            let waits = |key: &&Key| self.memory.failed.get(*key).is_none_or(|failed| failed.again <= now);
            let due = plan.prune.iter().filter(waits).cloned().collect::<Vec<_>>();
            pruning = self.prune(&due, &mut held, &mut tally).await;
        } else {
            held.extend(plan.prune.iter().map(|key| format!("{key}: kept until everything else is applied")));
        }
        for key in &plan.handed_over {
            self.forget(key);
        }
        self.save_inventory().await?;
        self.memory.awaits_others = plan.refused.iter().any(|r| matches!(r.why, Why::AwaitsHandover(_)))
            || plan.held.iter().any(|(_, why)| *why == plan::AWAITS_SIBLINGS);
        let complete = self.memory.failed.is_empty() && plan.guard.is_none() && pruning == 0 && may_prune;
        if complete && !self.memory.awaits_others {
            self.complete(wanted, question, &tally, began);
        }
        let note = self.memory.rebuilt.then(|| {
            "the inventory was missing or damaged and was put together from labels; nothing is pruned in this round"
                .to_owned()
        });
        let since = match &self.memory.since {
            Some((of, since)) if *of == question.commit => *since,
            _ => Timestamp::now(),
        };
        self.memory.since = Some((question.commit, since));
        let guard = plan.guard.map(|guard| guard_text(guard, &plan, &commit));
        Ok(Outcome::Applied { failures: self.memory.failures(), held, guard, pruning, note, since })
    }

    async fn plan(&mut self, wanted: &Wanted, question: &Question, branch: &str) -> Result<Plan, Refused> {
        let now = Instant::now();
        let kept = self.context.drift.kept(self.owner);
        let inventory = self.memory.inventory.clone().unwrap_or_default();
        let mut waiting: HashSet<Key> =
            self.memory.failed.iter().filter(|(_, f)| f.again > now).map(|(key, _)| key.clone()).collect();
        let unknown = wanted
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
        let commit = question.commit.to_string();
        let allowed = question.allow_prune.as_deref() == Some(commit.as_str());
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let plan = self.context.registry.with(self.owner, |view| {
            let prune = if !self.sync.spec.prune {
                Prune::Off
            } else if view.siblings_pending(branch, &commit) {
                Prune::Deferred
            } else if allowed {
                Prune::Allowed
            } else {
                Prune::Guarded
            };
            let plan = plan::plan(&Facts {
                desired: &wanted.objects,
                inventory: &inventory,
                kept: &kept,
                waiting: &waiting,
                live: &live,
                claimed: &|key, label| view.claim(key, label, branch, &commit),
                wanted_elsewhere: &|key| view.wanted_elsewhere(key),
                prune,
                now: &now,
            });
            reserve(view.own(), &plan);
            plan
        });
        Ok(plan)
    }

    /// Writes the inventory with everything that is about to be created.
    async fn write_intentions(&mut self, plan: &Plan) -> Result<(), Refused> {
        let mut inventory = self.memory.inventory.take().unwrap_or_default();
        let mut grew = self.memory.written.is_empty() && plan.applies() > 0;
        for step in plan.stages.values().flatten() {
            let version = &step.desired.kind.version;
            inventory.0.entry(step.desired.key.clone()).or_insert_with(|| {
                grew = true;
                Entry { version: Arc::clone(version), ..Entry::default() }
            });
        }
        self.memory.inventory = Some(inventory);
        if grew { self.save_inventory().await } else { Ok(()) }
    }

    async fn save_inventory(&mut self) -> Result<(), Refused> {
        let inventory = self.memory.inventory.take().unwrap_or_default();
        let mut written = std::mem::take(&mut self.memory.written);
        let nothing = inventory.0.is_empty() && written.is_empty();
        let cluster = self.context.drift.cluster();
        let saved = if nothing {
            Ok(())
        } else {
            apply::write_inventory(cluster, &self.inventory_owner(), &inventory, &mut written).await
        };
        self.memory.written = written;
        self.memory.inventory = Some(inventory);
        self.publish_managed();
        saved.map_err(Refused::from)
    }

    /// Writes what the backward loop verified since (objects that were created again have another UID).
    pub(super) async fn save_verified(&mut self) -> Result<(), Refused> {
        if self.note_verified() { self.save_inventory().await } else { Ok(()) }
    }

    fn note_verified(&mut self) -> bool {
        let verified = self.context.drift.verified(self.owner);
        let Some(inventory) = &mut self.memory.inventory else { return false };
        let mut changed = false;
        for (key, entry) in &mut inventory.0 {
            let Some(known) = verified.get(key) else { continue };
            let now = apply::entry(&known.desired, &known.uid, known.digest);
            changed |= *entry != now;
            *entry = now;
        }
        changed
    }

    /// What failed and is no longer wanted, or is wanted again, has not failed.
    fn forget_old_failures(&mut self, wanted: &Wanted) {
        if self.memory.failed.is_empty() {
            return;
        }
        let keys = wanted.objects.iter().map(|d| &d.key).collect::<HashSet<_>>();
        self.memory.failed.retain(|key, failed| keys.contains(key) != (failed.reason == Reason::PruneFailed));
    }

    /// What is under break glass is applied when that ends.
    fn await_break_glass(&mut self, plan: &Plan) {
        for desired in &plan.paused {
            self.context.drift.await_resume(self.owner, desired);
            self.memory.paused.insert(desired.key.clone());
        }
    }

    /// The commit counts from now on: what left it is never brought back.
    fn accept(&self, wanted: &Wanted, plan: &Plan) {
        let gone = plan.prune.iter().chain(plan.held.iter().map(|(key, _)| key)).chain(&plan.handed_over);
        for key in gone {
            self.context.drift.tombstone(self.owner, key);
        }
        self.keep(&wanted.objects);
    }

    async fn apply(&mut self, plan: &Plan, tally: &mut Tally) {
        let drift = self.context.drift.clone();
        let owner = Arc::clone(self.owner);
        let mut definitions = false;
        for steps in plan.stages.values() {
            apply::stage(&drift, &owner, steps.clone(), |desired, applied| {
                definitions |= matches!(&*desired.key.kind, "Namespace" | "CustomResourceDefinition");
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
                self.memory.failed.remove(key);
                self.memory.paused.insert(key.clone());
                return;
            }
            Change::Terminating => {
                let message = "it is being deleted; it is created again when it is gone";
                self.fail(key, Class::NotReady, Reason::ApplyFailed, message.to_owned(), None);
                return;
            }
            Change::Created => tally.created += 1,
            Change::Changed => tally.changed += 1,
            Change::Unchanged => tally.unchanged += 1,
        }
        self.memory.failed.remove(key);
        let entry = apply::entry(desired, &put.uid, put.digest);
        if let Some(inventory) = &mut self.memory.inventory {
            inventory.0.insert(key.clone(), entry);
        }
    }

    fn fail(&mut self, key: &Key, class: Class, reason: Reason, message: String, after: Option<Duration>) {
        let attempts = self.memory.failed.get(key).map_or(1, |failed| failed.attempts + 1);
        let doubled = match class {
            Class::Conflict => class.again(attempts).unwrap_or(FIRST_WAIT),
            _ => FIRST_WAIT.saturating_mul(2u32.saturating_pow((attempts - 1).min(10))).min(LAST_WAIT),
        };
        let wait = doubled.mul_f64(0.9 + 0.2 * fastrand::f64()).max(after.unwrap_or_default());
        let failed = Failed { class, reason, message, attempts, again: Instant::now() + wait };
        self.memory.failed.insert(key.clone(), failed);
    }

    fn note_refused(&mut self, plan: &Plan) {
        for refused in &plan.refused {
            let (class, reason, message) = match &refused.why {
                Why::Claimed(other) => (
                    Class::Invalid,
                    Reason::OwnershipConflict,
                    format!("it is managed by GitSync {other} too; remove it from one of the two"),
                ),
                Why::AwaitsHandover(other) => {
                    (Class::NotReady, Reason::OwnershipConflict, format!("waiting for GitSync {other} to give it up"))
                }
                Why::Terminating => (Class::NotReady, Reason::ApplyFailed, "it is being deleted".to_owned()),
                Why::Controlled => (
                    Class::Invalid,
                    Reason::OwnershipConflict,
                    "a controller owns it; leave it out of the repository".to_owned(),
                ),
            };
            self.fail(&refused.key, class, reason, message, None);
        }
    }

    async fn prune(&mut self, leaving: &[Key], held: &mut Vec<String>, tally: &mut Tally) -> usize {
        let inventory = self.memory.inventory.clone().unwrap_or_default();
        let leaving = leaving.iter().filter_map(|key| Some((key.clone(), inventory.0.get(key)?.clone()))).collect();
        let (drift, label) = (self.context.drift.clone(), Arc::clone(self.label));
        let mut pruning = 0;
        apply::prune(&drift, &label, leaving, |key, pruned| match pruned {
            Pruned::Gone { deleted } => {
                tally.pruned += usize::from(deleted);
                self.memory.failed.remove(&key);
                self.forget(&key);
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

    fn forget(&mut self, key: &Key) {
        if let Some(inventory) = &mut self.memory.inventory {
            inventory.0.remove(key);
        }
        self.context.drift.forget(self.owner, key);
    }

    fn complete(&mut self, wanted: &Wanted, question: &Question, tally: &Tally, began: Instant) {
        let new = self.memory.applied.is_none_or(|(commit, _)| commit != question.commit);
        self.memory.applied = Some((question.commit, wanted.tree));
        let said = self.sync.status.as_ref().and_then(|s| s.applied_commit.clone());
        let restarted = said.as_deref() == Some(&question.commit.to_string()) && tally.touched() == 0;
        if (new && !restarted) || tally.touched() > 0 {
            let message = Message::CommitApplied {
                sync: self.owner.to_string(),
                commit: question.commit.to_string(),
                created: tally.created,
                changed: tally.changed,
                unchanged: tally.unchanged,
                pruned: tally.pruned,
                millis: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            };
            self.context.tell(self.owner, "Applied", &message);
        }
    }
}

impl Memory {
    /// The objects that failed, in the order of their keys.
    pub(super) fn failures(&self) -> Vec<(Class, Reason, Failure)> {
        let mut all = self.failed.iter().collect::<Vec<_>>();
        all.sort_by_key(|(key, _)| *key);
        let shown = |(key, failed): (&Key, &Failed)| {
            let reason = failed.reason.as_str();
            let message = failed.message.clone();
            (failed.class, failed.reason, Failure { object: key.to_string(), reason, message })
        };
        all.into_iter().map(shown).collect()
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

fn refused_for(problems: &[Problem]) -> Refused {
    let mut lines = problems.iter().take(SHOWN_PROBLEMS).map(ToString::to_string).collect::<Vec<_>>();
    if problems.len() > SHOWN_PROBLEMS {
        lines.push(format!("and {} more", problems.len() - SHOWN_PROBLEMS));
    }
    Refused::invalid(Reason::ManifestInvalid, lines.join("\n"))
}

fn guard_text(guard: Guard, plan: &Plan, commit: &str) -> String {
    let names = plan.held.iter().take(5).map(|(key, _)| key.to_string()).collect::<Vec<_>>().join(", ");
    let what = match guard {
        Guard::Everything => "the commit holds no objects; nothing is deleted".to_owned(),
        Guard::TooMany => format!("{} objects would be deleted, more than half of all; they are kept", plan.held.len()),
    };
    format!("{what} ({names}, …). To delete them, annotate the GitSync with {ALLOW_PRUNE}={commit}")
}
