//! What the store remembers of an owner: what it asks for all of its objects, and the reverts so far.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;

use super::health_rules::HealthRules;
use super::replacement::ReplacedKinds;
use super::verdict::{Reason, Verdict};
use mainstay_api::DriftPolicy;
use mainstay_api::git_sync::{Drifted, Replacement, Revert};
use mainstay_cluster::ServiceAccount;
use mainstay_object::Key;

/// How many reverts, and how many replacements, a GitSync's status shows.
const SHOWN: usize = 10;

/// What applies to all objects of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What to do about drift.
    pub drift: DriftPolicy,
    /// What people's tools add to its objects is taken back, where drift is reverted.
    pub additions: bool,
    /// Both loops are stopped.
    pub suspended: bool,
    /// It may touch only its own namespace: it takes no object from an owner that may touch everything.
    pub confined: bool,
    /// In whose name its objects are read and written; `None`: with the agent's own rights.
    pub acts_as: Option<ServiceAccount>,
}

impl Policy {
    /// Whether what people's tools add goes back.
    pub(crate) fn takes_back(&self) -> bool {
        self.additions && self.drift == DriftPolicy::Revert
    }
}

/// What an owner's status says of the time before this agent.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Reverts so far.
    pub reverted: i64,
    /// The last of them, newest first.
    pub last_reverts: Vec<Revert>,
    /// Replacements so far.
    pub replaced: i64,
    /// The last of them, newest first.
    pub last_replacements: Vec<Replacement>,
    /// Remaining drift.
    pub drifted: Vec<Drifted>,
}

/// What the store remembers of an owner.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) policy: Policy,
    pub(crate) reverted: i64,
    pub(crate) last_reverts: VecDeque<Revert>,
    pub(crate) replaced: i64,
    pub(crate) last_replacements: VecDeque<Replacement>,
    /// Kinds whose objects may be deleted and created anew.
    pub(crate) replaced_kinds: ReplacedKinds,
    /// How to tell whether objects are healthy, where that is not known by their kind.
    pub(crate) health_rules: Option<Arc<HealthRules>>,
    /// Workloads that autoscalers among its documents scale.
    pub(crate) scaled: HashSet<Key>,
    /// Remaining drift that an earlier agent knew of, of objects that this one does not keep yet.
    recalled: Vec<Drifted>,
    /// Objects of which changes stay, because with them the owner cannot read its repository, and since when.
    pub(crate) unread: BTreeMap<Key, Timestamp>,
}

impl Account {
    /// Of an owner whose status says this.
    pub(crate) fn new(policy: Policy, history: History) -> Self {
        let History { reverted, last_reverts, replaced, last_replacements, drifted } = history;
        Self {
            policy,
            reverted,
            last_reverts: last_reverts.into(),
            replaced,
            last_replacements: last_replacements.into(),
            replaced_kinds: ReplacedKinds::default(),
            health_rules: None,
            scaled: HashSet::new(),
            recalled: drifted,
            unread: BTreeMap::new(),
        }
    }

    /// The remaining drift that an earlier agent knew of an object.
    pub(crate) fn recall(&mut self, key: &Key) -> Option<Drifted> {
        if self.recalled.is_empty() {
            return None;
        }
        let object = key.to_string();
        let at = self.recalled.iter().position(|drifted| drifted.object == object)?;
        Some(self.recalled.swap_remove(at))
    }

    /// What becomes of a verdict on an object: whoever repairs what cannot be read must not be reverted.
    pub(crate) fn spare(&self, key: &Key, verdict: Verdict) -> Verdict {
        if verdict == Verdict::Revert && self.unread.contains_key(key) {
            return Verdict::LeaveAlone(Reason::Unread);
        }
        verdict
    }

    /// One more object was deleted, to be created anew.
    pub(crate) fn record_replacement(&mut self, replacement: Replacement) {
        self.replaced += 1;
        self.last_replacements.push_front(replacement);
        self.last_replacements.truncate(SHOWN);
    }

    /// One more revert.
    pub(crate) fn record(&mut self, revert: Revert) {
        self.reverted += 1;
        self.last_reverts.push_front(revert);
        self.last_reverts.truncate(SHOWN);
    }
}
