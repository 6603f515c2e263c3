//! Objects of a tree, and the facts of a live object that a tree keeps instead of the whole object.

use jiff::Timestamp;
use serde_json::Value;

use mainstay_console::Facts;
use mainstay_engine::managed::health_rules::HealthRules;
use mainstay_object::{Health, Key, health};

/// Maximum number of owners of a child.
const OWNERS: usize = 10;

/// An object of a tree.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Node {
    /// The object.
    pub(in crate::cli) key: Key,
    /// The state of the object.
    pub(in crate::cli) state: State,
    /// The time at which the object was created; `None` if it was not read.
    pub(in crate::cli) created: Option<Timestamp>,
    /// Addresses and containers for the web page; empty if the object was not read.
    pub(in crate::cli) facts: Facts,
    /// The objects that this object owns.
    pub(in crate::cli) children: Vec<Node>,
}

/// The state of an object.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) enum State {
    /// The object exists.
    There(Health),
    /// The object is being deleted.
    Terminating,
    /// The inventory contains the object, but the cluster does not.
    Absent,
    /// The object ran to completion and was deleted afterwards.
    Ended,
    /// The object was not read, for this reason.
    Unknown(String),
}

impl Node {
    /// Returns whether the GitSync and all its objects are healthy. Children do not count, because the health of a
    /// parent includes the health of its children.
    pub(super) fn is_healthy(&self) -> bool {
        let is_fine = |node: &Node| matches!(node.state, State::There(Health::Healthy) | State::Ended);
        is_fine(self) && self.children.iter().all(is_fine)
    }
}

/// The facts of a live object.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) uid: String,
    pub(super) state: State,
    pub(super) created: Option<Timestamp>,
    pub(super) facts: Facts,
    /// The UIDs of its owners.
    pub(super) owners: Vec<String>,
}

impl Seen {
    /// Reads the facts of a live object.
    pub(super) fn of(key: &Key, live: &Value, rules: &HealthRules) -> Self {
        let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let references = live.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let uids = references.into_iter().flatten().filter_map(|owner| owner.get("uid").and_then(Value::as_str));
        let mut owners: Vec<String> = Vec::new();
        for uid in uids.take(OWNERS) {
            if !owners.iter().any(|owner| owner == uid) {
                owners.push(uid.to_owned());
            }
        }
        Self {
            uid: text("/metadata/uid").to_owned(),
            state: state_of(key, live, rules),
            created: text("/metadata/creationTimestamp").parse().ok(),
            facts: Facts::of(key, live),
            owners,
        }
    }

    /// Returns the approximate memory of the facts with the names of the object, in bytes.
    pub(super) fn bytes(&self, key: &Key) -> usize {
        let reason = match &self.state {
            State::There(Health::Progressing(why) | Health::Failed(why)) | State::Unknown(why) => why.len(),
            State::There(Health::Healthy) | State::Terminating | State::Absent | State::Ended => 0,
        };
        let names = 128 + key.name.len() + key.namespace.as_deref().map_or(0, str::len);
        let owners: usize = self.owners.iter().map(|uid| 64 + uid.len()).sum();
        size_of::<Self>() + size_of::<Node>() + names + reason + self.uid.len() + owners + self.facts.bytes()
    }
}

fn state_of(key: &Key, live: &Value, rules: &HealthRules) -> State {
    let is_terminating = live.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
    if is_terminating {
        State::Terminating
    } else {
        State::There(rules.health(key, live).unwrap_or_else(|| health(key, live)))
    }
}
