//! The ledger: of every managed object what it must be, what was verified of it, and what is going on with it.
//!
//! Events and outcomes go in, verdicts come out. It is a value behind one short lock; nothing here waits.
//!
//! Invariant: an object is in the ledger from the moment its first apply begins until it is forgotten, and whatever is
//! not in it is ignored everywhere.
//! Invariant: at most one write to an object is under way; what is seen of it meanwhile is looked at afterwards.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use serde_json::Value;
use tokio_util::sync::DropGuard;

use super::decide::{self, Reason, Verdict, Verified, decide, resource_version};
use super::desired::{Desired, Mark, Owner};
use super::heat::Heat;
use super::projection;
use crate::api::DriftPolicy;
use crate::api::git_sync::{Failure, Revert};
use crate::object::{Digest, Health, Key};

/// How many reverts a GitSync's status shows.
const SHOWN_REVERTS: usize = 10;

/// What applies to all objects of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What to do about drift.
    pub drift: DriftPolicy,
    /// Both loops are stopped.
    pub suspended: bool,
}

/// Who watches an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    /// We do, by its label.
    ByUs,
    /// Its owner does.
    ByOwner,
}

impl Watched {
    fn by(mark: &Mark) -> Self {
        match mark {
            Mark::Label(_) => Self::ByUs,
            Mark::Controller { .. } => Self::ByOwner,
        }
    }
}

/// Something that was seen of an object and waits to be acted on.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The object as it was seen; `None` when it vanished from the watch.
    pub(super) live: Option<Value>,
    /// At which resource version it was not there; `None` when it has to be read whatever is known of it by then.
    pub(super) gone_at: Option<Box<str>>,
    /// When.
    pub(super) at: Instant,
}

/// One managed object.
#[derive(Debug)]
pub(super) struct Managed {
    pub(super) owner: Owner,
    pub(super) desired: Arc<Desired>,
    pub(super) verified: Verified,
    pub(super) health: Health,
    pub(super) heat: Option<Box<Heat>>,
    pub(super) paused: Option<Option<Timestamp>>,
    pub(super) failure: Option<Box<Failure>>,
    pub(super) attempts: u32,
    pub(super) tombstoned: bool,
    /// A write is under way.
    pub(super) in_flight: bool,
    /// A revert is waiting its turn.
    pub(super) queued: bool,
    /// Which of the reverts that were put on the queue counts; older ones have been overtaken.
    pub(super) ticket: u32,
    /// A revert that failed is not tried again before.
    pub(super) not_before: Option<Instant>,
    /// What the object must be has not been applied yet: it is to be, whatever is seen of the object.
    pub(super) stale: bool,
    /// The object is watched by name, since it lost our label; that ends when this is dropped.
    pub(super) followed: Option<DropGuard>,
    pub(super) pending: Option<Box<Seen>>,
    /// Fields fought over and the other manager, while contended.
    pub(super) contended: Option<Box<(Vec<String>, String)>>,
    /// Digest of the drift that was last reported and left.
    pub(super) reported: Option<Option<Digest>>,
}

/// What the ledger remembers of an owner.
#[derive(Debug)]
struct Account {
    policy: Policy,
    reverted: i64,
    last_reverts: VecDeque<Revert>,
}

/// What to do after an event.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// Nothing.
    Nothing,
    /// Put the object on the queue of reverts.
    Queue,
    /// Break glass began; look again when it ends.
    Paused(Option<Timestamp>),
    /// Break glass ended and nothing else is to do.
    Resumed,
    /// Drift was seen that the policy leaves.
    Report,
}

/// What a GitSync's status says of its objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Objects in the ledger that were applied.
    pub objects: usize,
    /// Of them, how many are healthy.
    pub healthy: usize,
    /// Objects that failed for good by their own word, with the reason.
    pub broken: Vec<(Key, String)>,
    /// Objects that are not healthy yet, with the reason.
    pub progressing: Vec<(Key, String)>,
    /// Reverts that failed.
    pub failures: Vec<Failure>,
    /// Objects under break glass.
    pub paused: Vec<(Key, Option<Timestamp>)>,
    /// Objects that are fought over, with the fields and the other manager.
    pub contended: Vec<(Key, Vec<String>, String)>,
    /// Reverts so far.
    pub reverted: i64,
    /// The last ones, newest first.
    pub last_reverts: Vec<Revert>,
}

/// The ledger.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    objects: HashMap<Key, Managed>,
    accounts: HashMap<Owner, Account>,
    /// Workloads that an autoscaler scales.
    autoscaled: HashSet<Key>,
}

impl Ledger {
    pub(super) fn get(&self, key: &Key) -> Option<&Managed> {
        self.objects.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Managed> {
        self.objects.get_mut(key)
    }

    pub(super) fn set_policy(&mut self, owner: &Owner, policy: Policy, reverted: i64, last: Vec<Revert>) {
        self.accounts
            .entry(Arc::clone(owner))
            .and_modify(|account| account.policy = policy)
            .or_insert_with(|| Account { policy, reverted, last_reverts: last.into() });
    }

    pub(super) fn policy(&self, owner: &Owner) -> Option<Policy> {
        self.accounts.get(owner).map(|account| account.policy)
    }

    /// Begins to keep an object at what an earlier agent verified, or (`verified` default) at what will be applied.
    /// An object that is already kept for the same owner keeps what is known of it.
    pub(super) fn hold(&mut self, owner: &Owner, desired: Arc<Desired>, verified: Verified) {
        let key = desired.key.clone();
        let says_nothing_new = |m: &Managed| m.is_applied() || verified == Verified::default();
        if self.objects.get(&key).is_some_and(|m| m.owner == *owner && !m.tombstoned && says_nothing_new(m)) {
            return;
        }
        // Whoever waits with an older ticket waits for an object that is no longer kept like that.
        let ticket = self.objects.get(&key).map_or(0, |m| m.ticket.wrapping_add(1));
        self.objects.insert(
            key,
            Managed {
                owner: Arc::clone(owner),
                desired,
                verified,
                health: Health::Progressing("not seen yet".into()),
                heat: None,
                paused: None,
                failure: None,
                attempts: 0,
                tombstoned: false,
                in_flight: false,
                queued: false,
                ticket,
                not_before: None,
                stale: false,
                followed: None,
                pending: None,
                contended: None,
                reported: None,
            },
        );
    }

    /// Drops an object, if `owner` is the one that keeps it.
    pub(super) fn forget(&mut self, owner: &Owner, key: &Key) {
        if self.objects.get(key).is_some_and(|m| m.owner == *owner) {
            self.objects.remove(key);
        }
    }

    pub(super) fn forget_owner(&mut self, owner: &Owner) {
        self.objects.retain(|_, m| m.owner != *owner);
        self.accounts.remove(owner);
    }

    /// From now on the backward loop leaves the object alone: it left the repository.
    pub(super) fn tombstone(&mut self, owner: &Owner, key: &Key) {
        if let Some(managed) = self.objects.get_mut(key).filter(|m| m.owner == *owner) {
            managed.tombstoned = true;
            managed.pending = None;
        }
    }

    /// What a list at this version, of a kind's objects with this kind of mark, had to show and did not. What was
    /// applied after the list is not missing: nothing has to be read for it. What is followed by name need not be shown.
    pub(super) fn missing(
        &self,
        kind: &crate::cluster::Kind,
        watched: Watched,
        shown: &HashSet<Key>,
        version: &str,
    ) -> Vec<Key> {
        self.objects
            .values()
            .filter(|m| watched == Watched::by(&m.desired.mark) && m.is_of(kind) && m.is_expected())
            .filter(|m| m.followed.is_none() && !m.verified.has_seen(version) && !shown.contains(&m.desired.key))
            .map(|m| m.desired.key.clone())
            .collect()
    }

    /// Whether any object of this kind is kept that we watch by its label.
    pub(super) fn keeps(&self, group: &str, version: &str, kind: &str) -> bool {
        let is_of = |own: &crate::cluster::Kind| &*own.group == group && &*own.version == version && &*own.kind == kind;
        self.objects.values().any(|m| m.desired.label().is_some() && is_of(&m.desired.kind))
    }

    /// An object is to be looked at, whatever its last event said.
    pub(super) fn look_now(&mut self, key: &Key, at: Instant) -> Next {
        let Some(managed) = self.objects.get_mut(key).filter(|m| m.is_expected()) else { return Next::Nothing };
        let Some(account) = self.accounts.get(&managed.owner) else { return Next::Nothing };
        managed.lose_sight(None, at, account.policy)
    }

    /// What an object must be has changed without a new document.
    pub(super) fn is_stale(&mut self, key: &Key) {
        if let Some(managed) = self.objects.get_mut(key) {
            managed.stale = true;
        }
    }

    /// An object was seen.
    pub(super) fn see(
        &mut self,
        kind: &crate::cluster::Kind,
        key: &Key,
        live: Value,
        at: Instant,
        now: Timestamp,
    ) -> Next {
        let autoscaled = self.autoscaled.contains(key);
        let Some(managed) = self.objects.get_mut(key) else { return Next::Nothing };
        if managed.tombstoned || !managed.is_of(kind) {
            return Next::Nothing;
        }
        if managed.in_flight {
            managed.pending = Some(Box::new(Seen { live: Some(live), gone_at: None, at }));
            return Next::Nothing;
        }
        let Some(account) = self.accounts.get(&managed.owner) else { return Next::Nothing };
        if account.policy.suspended || !managed.is_applied() {
            return Next::Nothing;
        }
        managed.look(live, at, account.policy.drift, autoscaled, now)
    }

    /// An object vanished from the watch by this version: deleted, or its label was taken off.
    pub(super) fn miss(&mut self, kind: &crate::cluster::Kind, key: &Key, version: Option<&str>, at: Instant) -> Next {
        let Some(managed) = self.objects.get_mut(key).filter(|m| m.is_of(kind) && m.is_expected()) else {
            return Next::Nothing;
        };
        let Some(account) = self.accounts.get(&managed.owner) else { return Next::Nothing };
        if version.is_some_and(|version| managed.verified.has_seen(version)) {
            return Next::Nothing;
        }
        managed.lose_sight(version, at, account.policy)
    }

    /// What to do about an object that was read because its last event did not say.
    pub(super) fn judge(&mut self, key: &Key, live: &Value, now: Timestamp) -> Verdict {
        let autoscaled = self.autoscaled.contains(key);
        let left = Verdict::LeaveAlone(Reason::Ignore);
        let Some(managed) = self.objects.get_mut(key).filter(|m| !m.tombstoned) else { return left };
        let Some(account) = self.accounts.get(&managed.owner) else { return left };
        if account.policy.suspended { left } else { managed.judge(live, account.policy.drift, autoscaled, now) }
    }

    /// Starts a revert. `None` when the object is not kept, is tombstoned, or the ticket is not the one that counts.
    /// Nothing was seen when the owner's policy has come to leave the object alone meanwhile.
    pub(super) fn begin_revert(&mut self, key: &Key, ticket: u32) -> Option<(Arc<Desired>, Option<Seen>)> {
        let managed = self.objects.get_mut(key).filter(|m| m.ticket == ticket)?;
        let policy = self.accounts.get(&managed.owner)?.policy;
        if policy.suspended || (policy.drift != DriftPolicy::Revert && !managed.stale) {
            managed.pending = None;
        }
        managed.queued = false;
        self.begin(key)
    }

    /// Starts a write. `None` when the object is not kept, is tombstoned, or another write is under way.
    pub(super) fn begin(&mut self, key: &Key) -> Option<(Arc<Desired>, Option<Seen>)> {
        let managed = self.objects.get_mut(key)?;
        if managed.in_flight || managed.tombstoned {
            return None;
        }
        managed.in_flight = true;
        Some((Arc::clone(&managed.desired), managed.pending.take().map(|seen| *seen)))
    }

    /// Starts a write that makes the object what the forward loop wants. `None` when it is under break glass: then that
    /// is what it will be afterwards. What was seen of the object before the write says nothing once it has succeeded.
    pub(super) fn begin_put(&mut self, owner: &Owner, desired: &Arc<Desired>) -> Option<(String, Option<Box<Seen>>)> {
        self.hold(owner, Arc::clone(desired), Verified::default());
        let managed = self.objects.get_mut(&desired.key)?;
        managed.tombstoned = false;
        if managed.paused.is_some() {
            managed.desired = Arc::clone(desired);
            managed.stale = true;
            return None;
        }
        managed.in_flight = true;
        managed.queued = false;
        managed.ticket = managed.ticket.wrapping_add(1);
        Some((managed.verified.resource_version.to_string(), managed.pending.take()))
    }

    /// A write of the forward loop failed. If it may have been carried out all the same, the object must become what
    /// was written; else it stays what it was, and what was seen before counts again.
    pub(super) fn put_failed(&mut self, desired: &Arc<Desired>, before: Option<Box<Seen>>, is_unknown: bool) {
        let Some(managed) = self.objects.get_mut(&desired.key) else { return };
        if is_unknown && managed.is_applied() {
            managed.desired = Arc::clone(desired);
            managed.stale = true;
        }
        if managed.pending.is_none() {
            managed.pending = before;
        }
    }

    /// A revert failed: what was seen counts again, but not before `not_before`.
    pub(super) fn revert_failed(&mut self, key: &Key, seen: Seen, failure: Failure) -> Option<(Owner, u32)> {
        let managed = self.objects.get_mut(key)?;
        managed.attempts += 1;
        managed.failure = Some(Box::new(failure));
        managed.pending.get_or_insert_with(|| Box::new(seen));
        Some((Arc::clone(&managed.owner), managed.attempts))
    }

    /// What failed is tried at once; the ticket for it, where something waits.
    pub(super) fn hurry(&mut self, key: &Key) -> bool {
        let Some(managed) = self.objects.get_mut(key) else { return false };
        managed.not_before = None;
        managed.ticket = managed.ticket.wrapping_add(1);
        managed.queued = managed.pending.is_some() && !managed.in_flight;
        managed.queued
    }

    /// Ends a write and returns what was seen of the object meanwhile.
    pub(super) fn end(&mut self, key: &Key) -> Option<Seen> {
        let managed = self.objects.get_mut(key)?;
        managed.in_flight = false;
        managed.pending.take().map(|seen| *seen)
    }

    /// The server's answer to an apply is what counts from now on.
    pub(super) fn verify(&mut self, key: &Key, desired: &Arc<Desired>, answer: &Value, sent: &Value) -> Option<Digest> {
        let autoscaled = self.autoscaled.contains(key);
        let managed = self.objects.get_mut(key)?;
        let emptied = projection::emptied(answer, sent);
        let digest = projection::digest(answer, &emptied);
        managed.desired = Arc::clone(desired);
        managed.health = crate::object::health(key, answer);
        managed.verified = Verified {
            uid: decide::uid(answer).into(),
            resource_version: resource_version(answer).into(),
            digest,
            emptied,
        };
        managed.failure = None;
        managed.attempts = 0;
        managed.not_before = None;
        // An autoscaler may have come while the count was on its way.
        managed.stale = autoscaled && desired.sets_replicas(sent);
        managed.paused = None;
        managed.reported = None;
        digest
    }

    pub(super) fn record(&mut self, owner: &Owner, revert: Revert) {
        if let Some(account) = self.accounts.get_mut(owner) {
            account.reverted += 1;
            account.last_reverts.push_front(revert);
            account.last_reverts.truncate(SHOWN_REVERTS);
        }
    }

    /// Replaces the set of autoscaled workloads; returns the kept ones for which that changes what is applied.
    pub(super) fn set_autoscaled(&mut self, workloads: HashSet<Key>) -> Vec<Key> {
        let old = std::mem::replace(&mut self.autoscaled, workloads);
        let changed = old.symmetric_difference(&self.autoscaled);
        changed.filter(|key| self.objects.contains_key(*key)).cloned().collect()
    }

    pub(super) fn is_autoscaled(&self, key: &Key) -> bool {
        self.autoscaled.contains(key)
    }

    /// The objects whose last revert failed, of those that `concerns` names.
    pub(super) fn failed(&self, concerns: impl Fn(&Key) -> bool) -> Vec<Key> {
        let failed = self.objects.iter().filter(|(_, m)| m.failure.is_some());
        failed.filter(|(key, _)| concerns(key)).map(|(key, _)| key.clone()).collect()
    }

    /// All objects kept for an owner, with what was verified of them.
    pub(super) fn kept_for<'a>(&'a self, owner: &'a Owner) -> impl Iterator<Item = (&'a Key, &'a Managed)> {
        self.objects.iter().filter(move |(_, m)| m.owner == *owner)
    }

    /// What an owner's status says.
    pub(super) fn summary(&mut self, owner: &Owner, clock: f64) -> Summary {
        let mut summary = Summary::default();
        if let Some(account) = self.accounts.get(owner) {
            summary.reverted = account.reverted;
            summary.last_reverts = account.last_reverts.iter().cloned().collect();
        }
        for (key, managed) in self.objects.iter_mut().filter(|(_, m)| m.owner == *owner && !m.tombstoned) {
            if let Some(until) = managed.paused {
                summary.paused.push((key.clone(), until));
            }
            if !managed.is_applied() {
                continue;
            }
            summary.objects += 1;
            match &managed.health {
                Health::Healthy => summary.healthy += 1,
                Health::Progressing(why) => summary.progressing.push((key.clone(), why.clone())),
                Health::Failed(why) => summary.broken.push((key.clone(), why.clone())),
            }
            summary.failures.extend(managed.failure.as_deref().cloned());
            if !managed.heat.as_mut().is_some_and(|heat| heat.contended(clock)) {
                managed.contended = None;
            }
            if managed.heat.as_ref().is_some_and(|heat| heat.cold(clock)) {
                managed.heat = None;
            }
            if let Some(contended) = &managed.contended {
                summary.contended.push((key.clone(), contended.0.clone(), contended.1.clone()));
            }
        }
        summary.progressing.sort_unstable();
        summary.broken.sort_unstable();
        summary.paused.sort_unstable();
        summary.contended.sort_unstable();
        summary
    }
}

impl Verified {
    /// Whether a state with this resource version is the verified one or an older one.
    pub(super) fn has_seen(&self, version: &str) -> bool {
        match (self.resource_version.parse::<u64>(), version.parse::<u64>()) {
            (Ok(known), Ok(seen)) => seen < known,
            _ => false,
        }
    }
}

impl Managed {
    /// Whether anything was ever verified of it, by us or by an agent before us.
    pub(super) fn is_applied(&self) -> bool {
        self.verified.digest.is_some() || !self.verified.resource_version.is_empty()
    }

    /// Whether it counts what is seen of it, now or once the first write of it is answered.
    fn is_expected(&self) -> bool {
        !self.tombstoned && (self.is_applied() || self.in_flight)
    }

    fn is_of(&self, kind: &crate::cluster::Kind) -> bool {
        let own = &self.desired.kind;
        own.kind == kind.kind && own.group == kind.group && own.version == kind.version
    }

    fn enqueue(&mut self, seen: Seen) -> Next {
        // The first sight of a change is when its latency began; the newest state is what is compared.
        let at = self.pending.as_ref().filter(|_| self.queued).map_or(seen.at, |p| p.at);
        self.pending = Some(Box::new(Seen { at, ..seen }));
        if std::mem::replace(&mut self.queued, true) { Next::Nothing } else { Next::Queue }
    }

    /// The object has to be read: nothing says what it is now.
    fn lose_sight(&mut self, version: Option<&str>, at: Instant, policy: Policy) -> Next {
        let seen = Seen { live: None, gone_at: version.map(Into::into), at };
        if self.in_flight {
            self.pending = Some(Box::new(seen));
            return Next::Nothing;
        }
        match policy.drift {
            _ if policy.suspended => Next::Nothing,
            DriftPolicy::Revert => self.enqueue(seen),
            _ if self.stale => self.enqueue(seen),
            DriftPolicy::Ignore => Next::Nothing,
            DriftPolicy::Report => {
                self.pending = Some(Box::new(seen));
                Next::Report
            }
        }
    }

    /// What to do about the object as it was seen, and what is known of it from then on.
    fn judge(&mut self, live: &Value, policy: DriftPolicy, autoscaled: bool, now: Timestamp) -> Verdict {
        if self.verified.resource_version.is_empty() {
            // An earlier agent verified it and remembered only the digest.
            let mut sent = self.desired.body();
            if autoscaled {
                super::desired::without_replicas(&mut sent);
            }
            self.verified.emptied = projection::emptied(live, &sent);
        }
        let is_news = !self.verified.has_seen(resource_version(live));
        if is_news {
            self.health = crate::object::health(&self.desired.key, live);
        }
        let verdict = match decide(&self.verified, &self.desired.mark, live, policy, now) {
            Verdict::InSync | Verdict::LeaveAlone(Reason::Report | Reason::Ignore) if self.stale => Verdict::Revert,
            verdict => verdict,
        };
        match &verdict {
            Verdict::InSync => {
                if is_news {
                    self.verified.resource_version = resource_version(live).into();
                    self.verified.uid = decide::uid(live).into();
                }
                self.reported = None;
                self.failure = None;
                self.attempts = 0;
                self.not_before = None;
            }
            // The watch tells when it is gone.
            Verdict::AwaitDeletion => self.health = Health::Progressing("being deleted".into()),
            Verdict::Revert | Verdict::LeaveAlone(_) => {}
        }
        verdict
    }

    fn look(&mut self, live: Value, at: Instant, policy: DriftPolicy, autoscaled: bool, now: Timestamp) -> Next {
        match self.judge(&live, policy, autoscaled, now) {
            Verdict::InSync => {
                self.pending = None;
                if self.paused.take().is_some() { Next::Resumed } else { Next::Nothing }
            }
            Verdict::Revert => {
                self.paused = None;
                self.enqueue(Seen { live: Some(live), gone_at: None, at })
            }
            Verdict::LeaveAlone(Reason::BreakGlass(until)) => {
                self.pending = None;
                let new = self.paused.replace(until) != Some(until);
                if new { Next::Paused(until) } else { Next::Nothing }
            }
            Verdict::LeaveAlone(Reason::Report) => {
                let digest = projection::digest(&live, &self.verified.emptied);
                if self.reported.replace(digest) == Some(digest) {
                    return Next::Nothing;
                }
                self.pending = Some(Box::new(Seen { live: Some(live), gone_at: None, at }));
                Next::Report
            }
            Verdict::AwaitDeletion | Verdict::LeaveAlone(Reason::Controlled | Reason::Ignore) => {
                self.pending = None;
                Next::Nothing
            }
        }
    }
}
