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

use super::decide::{self, Reason, Verdict, Verified, decide, resource_version};
use super::desired::{Desired, Owner};
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

/// Something that was seen of an object and waits to be acted on.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The object as it was seen; `None` when it vanished from the watch.
    pub(super) live: Option<Value>,
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
        if self.objects.get(&key).is_some_and(|m| m.owner == *owner && !m.tombstoned) {
            return;
        }
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

    /// The keys of a kind's objects that a fresh list must show.
    pub(super) fn expected(&self, kind: &crate::cluster::Kind) -> HashSet<Key> {
        self.objects
            .values()
            .filter(|m| m.is_applied() && !m.in_flight && !m.tombstoned && m.is_of(kind) && m.paused.is_none())
            .map(|m| m.desired.key.clone())
            .collect()
    }

    /// Whether any object of this kind is kept.
    pub(super) fn keeps(&self, group: &str, version: &str, kind: &str) -> bool {
        let is_of = |own: &crate::cluster::Kind| &*own.group == group && &*own.version == version && &*own.kind == kind;
        self.objects.values().any(|m| is_of(&m.desired.kind))
    }

    /// An object is to be looked at, whatever its last event said.
    pub(super) fn look_now(&mut self, key: &Key, seen: Option<Seen>, at: Instant) -> Next {
        let Some(managed) = self.objects.get_mut(key) else { return Next::Nothing };
        let suspended = self.accounts.get(&managed.owner).is_none_or(|a| a.policy.suspended);
        if managed.tombstoned || suspended || managed.in_flight || !managed.is_applied() {
            return Next::Nothing;
        }
        managed.enqueue(seen.unwrap_or(Seen { live: None, at }))
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
            managed.pending = Some(Box::new(Seen { live: Some(live), at }));
            return Next::Nothing;
        }
        let Some(account) = self.accounts.get(&managed.owner) else { return Next::Nothing };
        if account.policy.suspended || !managed.is_applied() {
            return Next::Nothing;
        }
        managed.look(live, at, account.policy.drift, autoscaled, now)
    }

    /// An object vanished from the watch: deleted, or its label was taken off.
    pub(super) fn miss(&mut self, kind: &crate::cluster::Kind, key: &Key, live: Option<&Value>, at: Instant) -> Next {
        let Some(managed) = self.objects.get_mut(key) else { return Next::Nothing };
        let Some(account) = self.accounts.get(&managed.owner) else { return Next::Nothing };
        let stale = live.is_some_and(|live| managed.verified.has_seen(resource_version(live)));
        if managed.tombstoned || !managed.is_of(kind) || stale || !managed.is_applied() {
            return Next::Nothing;
        }
        if managed.in_flight {
            managed.pending = Some(Box::new(Seen { live: None, at }));
            return Next::Nothing;
        }
        if account.policy.suspended || account.policy.drift == DriftPolicy::Ignore {
            return Next::Nothing;
        }
        managed.enqueue(Seen { live: None, at })
    }

    /// Starts a write. `None` when the object is not kept, is tombstoned, or another write is under way.
    pub(super) fn begin(&mut self, key: &Key) -> Option<(Arc<Desired>, Option<Seen>)> {
        let managed = self.objects.get_mut(key)?;
        managed.queued = false;
        if managed.in_flight || managed.tombstoned {
            return None;
        }
        managed.in_flight = true;
        Some((Arc::clone(&managed.desired), managed.pending.take().map(|seen| *seen)))
    }

    /// Ends a write and returns what was seen of the object meanwhile.
    pub(super) fn end(&mut self, key: &Key) -> Option<Seen> {
        let managed = self.objects.get_mut(key)?;
        managed.in_flight = false;
        managed.pending.take().map(|seen| *seen)
    }

    /// The server's answer to an apply is what counts from now on.
    pub(super) fn verify(&mut self, key: &Key, desired: &Arc<Desired>, answer: &Value, sent: &Value) -> Option<Digest> {
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

    /// The objects whose last revert failed and that live in (or are) `namespace`.
    pub(super) fn failed_in(&self, namespace: &str) -> Vec<Key> {
        let failed = self.objects.iter().filter(|(_, m)| m.failure.is_some());
        failed.filter(|(key, _)| key.namespace.as_deref() == Some(namespace)).map(|(key, _)| key.clone()).collect()
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
                Health::Progressing(why) => summary.progressing.push((key.clone(), why.to_string())),
                Health::Failed(why) => summary.broken.push((key.clone(), why.to_string())),
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

    fn look(&mut self, live: Value, at: Instant, policy: DriftPolicy, autoscaled: bool, now: Timestamp) -> Next {
        if self.verified.resource_version.is_empty() {
            // An earlier agent verified it and remembered only the digest.
            let mut sent = self.desired.body();
            if autoscaled {
                super::desired::without_replicas(&mut sent);
            }
            self.verified.emptied = projection::emptied(&live, &sent);
        }
        if !self.verified.has_seen(resource_version(&live)) {
            self.health = crate::object::health(&self.desired.key, &live);
        }
        match decide(&self.verified, &live, policy, now) {
            Verdict::InSync => {
                if !self.verified.has_seen(resource_version(&live)) {
                    self.verified.resource_version = resource_version(&live).into();
                    self.verified.uid = decide::uid(&live).into();
                }
                self.reported = None;
                self.pending = None;
                if self.paused.take().is_some() { Next::Resumed } else { Next::Nothing }
            }
            Verdict::Revert => {
                self.paused = None;
                self.enqueue(Seen { live: Some(live), at })
            }
            Verdict::AwaitDeletion => {
                // The watch tells when it is gone.
                self.health = Health::Progressing("being deleted".into());
                self.pending = None;
                Next::Nothing
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
                self.pending = Some(Box::new(Seen { live: Some(live), at }));
                Next::Report
            }
            Verdict::LeaveAlone(Reason::Controlled | Reason::Ignore) => Next::Nothing,
        }
    }
}
