//! Which GitSync waits for which: `spec.dependsOn`.
//!
//! A GitSync applies a commit once everything that it depends on is ready, as its own status says, and where both follow the
//! same reference of the same GitRepository, ready with that very commit.
//!
//! Invariant: who waits is woken when what it waits for changes, and asks nobody meanwhile.
//! Invariant: a GitSync that exists is waited for until it is read: what the agent does not know yet is no answer.
//!
//! Deliberately absent: what becomes of the commit that waits (`attempt`).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::api::GitSync;
use crate::api::conditions::{self, Type};
use crate::api::git_sync::GitSyncStatus;
use crate::object::Owner;

/// Dependencies that one message names.
const NAMED: usize = 3;

/// All GitSyncs and what each depends on.
#[derive(Debug, Default)]
pub(super) struct Dependencies {
    nodes: Mutex<HashMap<Owner, Node>>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Node {
    depends_on: Vec<Owner>,
    /// Namespace, name of the GitRepository, and reference.
    follows: Option<(String, String, String)>,
    state: State,
    /// Wakes its task.
    wake: Arc<Notify>,
    /// Another one waits for it to look the reference up.
    is_awaited: bool,
}

/// What is known of a GitSync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    /// It is there, and was not read yet.
    #[default]
    Unread,
    /// It is there, and cannot be read.
    Refused,
    /// It is being deleted.
    Deleting,
    /// It is there.
    Read { generation: Option<i64>, status: Said },
}

/// What a status says, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    generation: Option<i64>,
    is_ready: bool,
    reason: String,
    attempted: Option<String>,
    applied: Option<String>,
}

/// Why a GitSync does not apply a commit yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unmet {
    /// What it waits for, as a text.
    Waits(String),
    /// It would wait for itself: the way back to it, which begins and ends with it.
    Ring(String),
}

/// What keeps one dependency from being met.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    Missing,
    Refused,
    Deleting,
    Unobserved,
    NotReady(String),
    Behind,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("which does not exist"),
            Self::Refused => f.write_str("which cannot be read"),
            Self::Deleting => f.write_str("which is being deleted"),
            Self::Unobserved => f.write_str("which has just been changed"),
            Self::NotReady(reason) if reason.is_empty() => f.write_str("which is not ready"),
            Self::NotReady(reason) => write!(f, "which is not ready ({reason})"),
            Self::Behind => f.write_str("which has not applied this commit yet"),
        }
    }
}

impl Said {
    fn new(status: &GitSyncStatus) -> Self {
        let ready = conditions::status(&status.conditions, Type::Ready);
        Self {
            generation: status.observed_generation,
            is_ready: ready.is_some_and(|ready| ready.status == "True"),
            reason: ready.map(|ready| ready.reason.clone()).unwrap_or_default(),
            attempted: status.attempted_commit.clone(),
            applied: status.applied_commit.clone(),
        }
    }
}

impl Node {
    /// What keeps it from being met for `commit`, which its dependant found where it looks.
    fn cause(&self, dependant: &Self, commit: &str) -> Option<Cause> {
        let (generation, status) = match &self.state {
            State::Unread | State::Refused => return Some(Cause::Refused),
            State::Deleting => return Some(Cause::Deleting),
            State::Read { generation, status } => (generation, status),
        };
        if status.generation != *generation {
            return Some(Cause::Unobserved);
        }
        if !status.is_ready {
            return Some(Cause::NotReady(status.reason.clone()));
        }
        let is_behind = self.follows == dependant.follows && status.applied.as_deref() != Some(commit);
        is_behind.then_some(Cause::Behind)
    }

    /// Whether it has yet to see the commit that its dependant found.
    fn has_not_seen(&self, dependant: &Self, commit: &str) -> bool {
        let State::Read { status, .. } = &self.state else { return false };
        self.follows == dependant.follows && status.attempted.as_deref() != Some(commit)
    }
}

impl Dependencies {
    /// A GitSync is there.
    pub(super) fn enter(&self, owner: &Owner) {
        self.change(owner, |_| {});
    }

    /// A GitSync is there that cannot be read.
    pub(super) fn refuse(&self, owner: &Owner) {
        self.change(owner, |node| node.state = State::Refused);
    }

    /// A GitSync is gone.
    pub(super) fn remove(&self, owner: &Owner) {
        let mut nodes = self.nodes.lock();
        if nodes.remove(owner).is_some() {
            self.wake_dependants(&nodes, owner);
        }
    }

    /// A GitSync as it is now, and what it depends on.
    pub(super) fn read(&self, owner: &Owner, sync: &GitSync, depends_on: Vec<Owner>) {
        let spec = &sync.spec;
        let namespace = sync.metadata.namespace.clone().unwrap_or_default();
        let follows = (namespace, spec.git_repository.clone(), spec.followed_reference().into_owned());
        let is_deleted = sync.metadata.deletion_timestamp.is_some();
        let said = || Said::new(&sync.status.clone().unwrap_or_default());
        self.change(owner, |node| {
            node.depends_on = depends_on;
            node.follows = Some(follows);
            node.state = match &node.state {
                _ if is_deleted => State::Deleting,
                // What its task has said since is newer than the object.
                State::Read { status, .. } => {
                    State::Read { generation: sync.metadata.generation, status: status.clone() }
                }
                _ => State::Read { generation: sync.metadata.generation, status: said() },
            };
        });
    }

    /// What a GitSync's status says now, and the commit that it has applied, perhaps but for what others are to take over from
    /// it: one of them may wait for this.
    pub(super) fn report(&self, owner: &Owner, status: &GitSyncStatus, applied: Option<String>) {
        let mut said = Said::new(status);
        said.applied = applied.or(said.applied);
        self.change(owner, |node| {
            if let State::Read { status, .. } = &mut node.state {
                *status = said;
            }
        });
    }

    /// Wakes the task of a GitSync when it may have to act: something that it depends on changed, or another one waits for it.
    pub(super) fn listen(&self, owner: &Owner) -> Arc<Notify> {
        Arc::clone(&self.nodes.lock().entry(owner.clone()).or_default().wake)
    }

    /// Whether another GitSync has begun to wait for this one since the last call.
    pub(super) fn take_awaited(&self, owner: &Owner) -> bool {
        self.nodes.lock().get_mut(owner).is_some_and(|node| std::mem::take(&mut node.is_awaited))
    }

    /// What keeps a GitSync from applying a commit. Waits until everything that it depends on, and exists, was read.
    pub(super) async fn unmet(&self, owner: &Owner, commit: &str) -> Option<Unmet> {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            if let Some(unmet) = self.look(owner, commit) {
                return unmet;
            }
            // The sender lives as long as all of this.
            let _ = changed.changed().await;
        }
    }

    /// The same; `None` as long as something is not read.
    fn look(&self, owner: &Owner, commit: &str) -> Option<Option<Unmet>> {
        let mut nodes = self.nodes.lock();
        let Some(own) = nodes.get(owner).filter(|node| !node.depends_on.is_empty()) else { return Some(None) };
        if let Some(ring) = ring(&nodes, owner) {
            let ring = ring.iter().map(|owner| owner.resource().to_string()).collect::<Vec<_>>().join(" → ");
            return Some(Some(Unmet::Ring(ring)));
        }
        let (mut waits, mut asked) = (Vec::new(), Vec::new());
        for other in &own.depends_on {
            let node = nodes.get(other);
            if node.is_some_and(|node| node.state == State::Unread) {
                return None;
            }
            if node.is_some_and(|node| node.has_not_seen(own, commit)) {
                asked.push(other.clone());
            }
            let cause = node.map_or(Some(Cause::Missing), |node| node.cause(own, commit));
            waits.extend(cause.map(|cause| format!("GitSync {}, {cause}", other.resource())));
        }
        for other in asked {
            if let Some(node) = nodes.get_mut(&other) {
                node.is_awaited = true;
                node.wake.notify_one();
            }
        }
        let more = waits.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        waits.truncate(NAMED);
        Some((!waits.is_empty()).then(|| Unmet::Waits(format!("{}{more}", waits.join("; for ")))))
    }

    fn change(&self, owner: &Owner, change: impl FnOnce(&mut Node)) {
        let mut nodes = self.nodes.lock();
        let is_new = !nodes.contains_key(owner);
        let node = nodes.entry(owner.clone()).or_default();
        let before = (node.depends_on.clone(), node.state.clone());
        change(node);
        let (are_others, is_other) = (node.depends_on != before.0, node.state != before.1 || is_new);
        if are_others {
            // A ring may be closed or open now, for each of its members.
            nodes.values().filter(|node| !node.depends_on.is_empty()).for_each(|node| node.wake.notify_one());
        }
        if is_other {
            self.wake_dependants(&nodes, owner);
        }
    }

    fn wake_dependants(&self, nodes: &HashMap<Owner, Node>, owner: &Owner) {
        nodes.values().filter(|node| node.depends_on.contains(owner)).for_each(|node| node.wake.notify_one());
        self.changed.send_modify(|count| *count += 1);
    }
}

/// The shortest way from a GitSync back to itself; it begins and ends with it.
fn ring(nodes: &HashMap<Owner, Node>, from: &Owner) -> Option<Vec<Owner>> {
    let mut came_from: HashMap<&Owner, &Owner> = HashMap::new();
    let (mut front, mut seen) = (vec![from], HashSet::new());
    while !front.is_empty() {
        let mut next = Vec::new();
        for at in front {
            for to in nodes.get(at).map(|node| &*node.depends_on).unwrap_or_default() {
                if to == from {
                    let mut way = vec![from.clone()];
                    let mut step = at;
                    while step != from {
                        way.push(step.clone());
                        step = came_from[step];
                    }
                    way.push(from.clone());
                    way.reverse();
                    return Some(way);
                }
                if seen.insert(to) {
                    came_from.insert(to, at);
                    next.push(to);
                }
            }
        }
        front = next;
    }
    None
}
