//! The state of an owner in the store: its policy for all of its objects, and the reverts so far.
//!
//! A suspension is part of the policy. While an owner is suspended, none of its objects is checked, reverted or
//! recreated, and events only update what the store knows (`events`, `object`). Its objects stay in the store. When the
//! suspension ends, they are listed again, and the drift policy applies to their drift and to missing ones.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;

use super::health_rules::HealthRules;
use super::recalled::Recalled;
use super::replacement::ReplacedKinds;
use super::verdict::{Reason, Verdict};
use mainstay_api::DriftPolicy;
use mainstay_api::git_sync::{Decision, Drifted, Pause, Replacement, Revert};
use mainstay_cluster::ServiceAccount;
use mainstay_object::Key;

/// Maximum number of reverts, and of replacements, in the status of a GitSync.
const SHOWN: usize = 10;

/// The policy for all objects of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Handling of drift.
    pub drift: DriftPolicy,
    /// Whether fields that users' tools add are reverted. Needs a drift policy that reverts.
    pub additions: bool,
    /// Whether commits and drift are not reconciled.
    pub suspended: bool,
    /// Whether the owner is confined to its own namespace. Such an owner takes no object from an unconfined one.
    pub confined: bool,
    /// The impersonated ServiceAccount; `None` stands for the agent's own permissions.
    pub acts_as: Option<ServiceAccount>,
}

impl Policy {
    /// Whether fields that users' tools add are reverted.
    pub(crate) fn takes_back(&self) -> bool {
        self.additions && self.drift == DriftPolicy::Revert
    }
}

/// The history in an owner's status, from before the agent started.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Reverts so far.
    pub reverted: i64,
    /// The last reverts, newest first.
    pub last_reverts: Vec<Revert>,
    /// Replacements so far.
    pub replaced: i64,
    /// The last replacements, newest first.
    pub last_replacements: Vec<Replacement>,
    /// The last other decisions, newest first. The store keeps them apart from the account.
    pub last_decisions: Vec<Decision>,
    /// Remaining drift.
    pub drifted: Vec<Drifted>,
    /// Paused objects.
    pub paused: Vec<Pause>,
    /// Whether more objects were paused or had drifted than these.
    pub has_unlisted: bool,
}

/// The state of an owner.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) policy: Policy,
    pub(crate) reverted: i64,
    pub(crate) last_reverts: VecDeque<Revert>,
    pub(crate) replaced: i64,
    pub(crate) last_replacements: VecDeque<Replacement>,
    /// Kinds whose objects may be replaced.
    pub(crate) replaced_kinds: ReplacedKinds,
    /// The owner's health rules, which override the rules by kind.
    pub(crate) health_rules: Option<Arc<HealthRules>>,
    /// Workloads that are the targets of autoscalers in the owner's manifests.
    pub(crate) scaled: HashSet<Key>,
    /// Remaining drift from the status, of objects that are not in the store yet.
    recalled: Vec<Drifted>,
    /// The pauses and the reported drift of the status.
    pub(super) known: Recalled,
    /// Objects that are exempt from reverts, with the start of the exemption: the owner needs them to read its
    /// repository, and that read fails.
    pub(crate) unread: BTreeMap<Key, Timestamp>,
}

impl Account {
    /// Returns the account of an owner with this history.
    pub(crate) fn new(policy: Policy, history: History) -> Self {
        let History { reverted, last_reverts, replaced, last_replacements, drifted, paused, has_unlisted, .. } =
            history;
        Self {
            policy,
            reverted,
            last_reverts: last_reverts.into(),
            replaced,
            last_replacements: last_replacements.into(),
            replaced_kinds: ReplacedKinds::default(),
            health_rules: None,
            scaled: HashSet::new(),
            known: Recalled::new(paused, &drifted, has_unlisted),
            recalled: drifted,
            unread: BTreeMap::new(),
        }
    }

    /// Takes the remaining drift of an object that came from the status.
    pub(crate) fn recall(&mut self, key: &Key) -> Option<Drifted> {
        if self.recalled.is_empty() {
            return None;
        }
        let object = key.to_string();
        let at = self.recalled.iter().position(|drifted| drifted.object == object)?;
        Some(self.recalled.swap_remove(at))
    }

    /// Changes the verdict to revert an exempt object, because its change may repair access to the repository.
    pub(crate) fn spare(&self, key: &Key, verdict: Verdict) -> Verdict {
        if verdict == Verdict::Revert && self.unread.contains_key(key) {
            return Verdict::LeaveAlone(Reason::Unread);
        }
        verdict
    }

    /// Records a replacement.
    pub(crate) fn record_replacement(&mut self, replacement: Replacement) {
        self.replaced += 1;
        self.last_replacements.push_front(replacement);
        self.last_replacements.truncate(SHOWN);
    }

    /// Records a revert.
    pub(crate) fn record(&mut self, revert: Revert) {
        self.reverted += 1;
        self.last_reverts.push_front(revert);
        self.last_reverts.truncate(SHOWN);
    }
}
