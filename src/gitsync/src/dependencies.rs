//! The graph of `spec.dependsOn`.
//!
//! A GitSync applies a commit once all its dependencies are ready by their status. If both follow the same reference of
//! the same GitRepository, the dependency must be ready with that commit. A `readyExpr` replaces these rules.
//!
//! Invariant: a waiting GitSync is woken when a dependency changes, and does not poll.
//! Invariant: an existing dependency that the agent has not read yet is waited for.
//! Invariant: an expression is evaluated when its GitSync has a commit to apply. While that commit waits, it is
//! evaluated again when one of the two GitSyncs changes.
//!
//! Not here: the commit that waits (`attempt`).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::ready_expr;
use mainstay_api::GitSync;
use mainstay_api::conditions::{self, Type};
use mainstay_api::git_sync::GitSyncStatus;
use mainstay_object::Owner;
use mainstay_object::expression::Expression;

/// Maximum number of dependencies in one message.
const NAMED: usize = 3;
/// Maximum size of a state that is kept without memory for its object, in bytes.
const SMALL: usize = 4 << 10;

/// All GitSyncs with their dependencies.
#[derive(Debug, Default)]
pub(super) struct Dependencies {
    nodes: Mutex<Nodes>,
    changed: watch::Sender<u64>,
}

/// The GitSyncs, with an index of dependants. A change affects only the dependants, however many GitSyncs there are.
#[derive(Debug, Default)]
struct Nodes {
    by_owner: HashMap<Owner, Node>,
    dependants: HashMap<Owner, HashSet<Owner>>,
}

impl Nodes {
    fn get(&self, owner: &Owner) -> Option<&Node> {
        self.by_owner.get(owner)
    }

    fn get_mut(&mut self, owner: &Owner) -> Option<&mut Node> {
        self.by_owner.get_mut(owner)
    }

    /// Returns the direct dependants of a GitSync.
    fn dependants(&self, owner: &Owner) -> impl Iterator<Item = &Node> {
        let owners = self.dependants.get(owner).into_iter().flatten();
        owners.filter_map(|owner| self.by_owner.get(owner))
    }

    /// Returns a GitSync and its direct and indirect dependants. All members of its dependency cycle are among them.
    fn all_dependants<'n>(&'n self, owner: &'n Owner) -> impl Iterator<Item = &'n Node> {
        let (mut seen, mut next) = (HashSet::from([owner]), vec![owner]);
        while let Some(owner) = next.pop() {
            next.extend(self.dependants.get(owner).into_iter().flatten().filter(|owner| seen.insert(owner)));
        }
        seen.into_iter().filter_map(|owner| self.by_owner.get(owner))
    }

    /// Replaces the dependencies of a GitSync.
    fn depend(&mut self, owner: &Owner, before: &[Owner], now: &[Owner]) {
        for on in before.iter().filter(|on| !now.contains(on)) {
            if let Some(dependants) = self.dependants.get_mut(on) {
                dependants.remove(owner);
                if dependants.is_empty() {
                    self.dependants.remove(on);
                }
            }
        }
        for on in now.iter().filter(|on| !before.contains(on)) {
            self.dependants.entry(on.clone()).or_default().insert(owner.clone());
        }
    }
}

#[derive(Debug, Default)]
struct Node {
    depends_on: Vec<Owner>,
    /// The parsed `readyExpr` of each dependency, with its source.
    ready: Vec<Option<(String, Arc<Expression>)>>,
    /// The last seen object, shared with the watch.
    object: Option<Arc<GitSync>>,
    /// Whether there is no memory for the object. Then no expression can be evaluated.
    lacks_memory: bool,
    /// Whether another agent looks after the GitSync.
    is_of_other_agent: bool,
    /// Namespace, name of the GitRepository, and reference.
    follows: Option<(String, String, String)>,
    state: State,
    /// Wakes the task of the GitSync.
    wake: Arc<Notify>,
    /// Whether another GitSync waits until this GitSync looks up the reference.
    is_awaited: bool,
}

/// The known state of a GitSync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    /// The GitSync exists and was not read yet.
    #[default]
    Unread,
    /// The GitSync exists and cannot be read.
    Refused,
    /// The GitSync is being deleted.
    Deleting,
    /// The GitSync exists and was read.
    Read { generation: Option<i64>, status: Said },
}

/// The fields of a status that dependants use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    generation: Option<i64>,
    is_ready: bool,
    reason: String,
    attempted: Option<String>,
    applied: Option<String>,
}

/// The reason why a GitSync does not apply a commit yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unmet {
    /// The unmet dependencies as a text.
    Waits(String),
    /// A dependency cycle: the path from the GitSync back to itself.
    Ring(String),
}

/// The reason why one dependency is not met.
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
        // A suspended GitSync may be Ready, but its drift is not reverted, so it may not remain ready.
        let suspended = conditions::status(&status.conditions, Type::Suspended).filter(|it| it.status == "True");
        let ready = suspended.or_else(|| conditions::status(&status.conditions, Type::Ready));
        Self {
            generation: status.observed_generation,
            is_ready: suspended.is_none() && ready.is_some_and(|ready| ready.status == "True"),
            reason: ready.map(|ready| ready.reason.clone()).unwrap_or_default(),
            attempted: status.attempted_commit.clone(),
            applied: status.applied_commit.clone(),
        }
    }

    /// Returns the size of the strings.
    fn bytes(&self) -> usize {
        let commits = [&self.attempted, &self.applied].into_iter().flatten().map(String::len);
        self.reason.len() + commits.sum::<usize>()
    }
}

/// The result of a check of all dependencies.
enum Looked {
    /// A dependency is not read yet.
    Unread,
    /// A dependency cycle.
    Ring(String),
    /// The dependencies that are not met, or whose expression must be evaluated.
    Waits(Vec<Wait>),
}

enum Wait {
    For(String),
    Until(Evaluation),
}

/// The evaluation of a `readyExpr`.
struct Evaluation {
    of: String,
    /// Index in `spec.dependsOn`.
    at: usize,
    expression: Arc<Expression>,
    dependant: Arc<GitSync>,
    dependency: Arc<GitSync>,
}

impl Wait {
    /// Returns the description of the unmet dependency; `None` if the dependency is met.
    fn answer(self) -> Option<String> {
        match self {
            Self::For(what) => Some(what),
            Self::Until(Evaluation { of, at, expression, dependant, dependency }) => {
                let why = ready_expr::unready(&expression, &dependant, &dependency)?;
                Some(format!("GitSync {of}, for which spec.dependsOn[{at}].readyExpr {why}"))
            }
        }
    }
}

impl Node {
    /// Returns the evaluation for a dependency, if there is a `readyExpr` and the dependency is known.
    fn evaluation(&self, at: usize, dependency: &Self) -> Option<Evaluation> {
        let (_, expression) = self.ready.get(at)?.as_ref()?;
        let is_known = matches!(dependency.state, State::Read { .. } | State::Deleting);
        let (dependant, dependency) = (self.object.clone()?, dependency.object.clone().filter(|_| is_known)?);
        Some(Evaluation { of: String::new(), at, expression: Arc::clone(expression), dependant, dependency })
    }

    /// Returns why this GitSync is not ready for `commit` of its dependant; `None` if this GitSync is ready.
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

    /// Whether this GitSync has not attempted the commit of its dependant yet.
    fn has_not_seen(&self, dependant: &Self, commit: &str) -> bool {
        let State::Read { status, .. } = &self.state else { return false };
        self.follows == dependant.follows && status.attempted.as_deref() != Some(commit)
    }
}

impl Dependencies {
    /// Adds a GitSync.
    pub(super) fn enter(&self, owner: &Owner) {
        self.change(owner, |_| {});
    }

    /// Adds a GitSync that cannot be read, without its last state.
    pub(super) fn refuse(&self, owner: &Owner) {
        self.change(owner, |node| (node.state, node.object) = (State::Refused, None));
    }

    /// Removes a GitSync.
    pub(super) fn remove(&self, owner: &Owner) {
        let mut nodes = self.nodes.lock();
        if let Some(removed) = nodes.by_owner.remove(owner) {
            nodes.depend(owner, &removed.depends_on, &[]);
            self.wake_dependants(&nodes, owner);
        }
    }

    /// Updates a GitSync of another agent for which there is no memory. Its object is forgotten, but its state is kept,
    /// so that dependants do not wait for ever. `sync` is the newest state with the dependencies, if it is known.
    pub(super) fn refuse_of_other_agent(&self, owner: &Owner, sync: Option<(&GitSync, Vec<Owner>)>) {
        self.change(owner, |node| {
            (node.object, node.lacks_memory) = (None, true);
            if node.state == State::Unread {
                node.state = State::Refused;
            }
        });
        let Some((sync, depends_on)) = sync else { return };
        let said = Said::new(&sync.status.clone().unwrap_or_default());
        let names = depends_on.iter().map(|on| on.resource().as_str().len()).sum::<usize>();
        let source = sync.spec.source().1.len() + sync.spec.followed_reference().len();
        if said.bytes() + names + source > SMALL {
            return self.change(owner, |node| (node.state, node.follows) = (State::Refused, None));
        }
        self.take(owner, sync, depends_on);
        self.report_of_other_agent(owner, sync);
    }

    /// Updates a GitSync and its dependencies.
    pub(super) fn read(&self, owner: &Owner, sync: &Arc<GitSync>, depends_on: Vec<Owner>) {
        self.take(owner, sync, depends_on);
        self.see(owner, sync);
    }

    /// Updates a GitSync and its dependencies, without its object.
    fn take(&self, owner: &Owner, sync: &GitSync, depends_on: Vec<Owner>) {
        let spec = &sync.spec;
        let namespace = sync.metadata.namespace.clone().unwrap_or_default();
        let (kind, name) = spec.source();
        let follows = (namespace, format!("{kind} {name}"), spec.followed_reference().into_owned());
        let is_deleted = sync.metadata.deletion_timestamp.is_some();
        let said = || Said::new(&sync.status.clone().unwrap_or_default());
        self.change(owner, |node| {
            node.is_of_other_agent = false;
            node.depends_on = depends_on;
            node.follows = Some(follows);
            node.state = match &node.state {
                _ if is_deleted => State::Deleting,
                // The status that its task reported is newer than that of the object.
                State::Read { status, .. } => {
                    State::Read { generation: sync.metadata.generation, status: status.clone() }
                }
                _ => State::Read { generation: sync.metadata.generation, status: said() },
            };
        });
    }

    /// Updates a GitSync of another agent, which only the watch shows.
    pub(super) fn read_of_other_agent(&self, owner: &Owner, sync: &Arc<GitSync>, depends_on: Vec<Owner>) {
        self.read(owner, sync, depends_on);
        self.report_of_other_agent(owner, sync);
    }

    fn report_of_other_agent(&self, owner: &Owner, sync: &GitSync) {
        self.change(owner, |node| node.is_of_other_agent = true);
        let status = sync.status.clone().unwrap_or_default();
        let plan = status.shared.as_ref().filter(|plan| plan.carried_out);
        self.report(owner, &status, plan.map(|plan| plan.commit.clone()));
    }

    /// Returns the GitSyncs of other agents.
    pub(super) fn of_other_agents(&self) -> Vec<(Owner, Arc<GitSync>)> {
        let nodes = self.nodes.lock();
        let others = nodes.by_owner.iter().filter(|(_, node)| node.is_of_other_agent);
        others.filter_map(|(owner, node)| Some((owner.clone(), Arc::clone(node.object.as_ref()?)))).collect()
    }

    /// Stores the object. Wakes dependants with expressions if the object changed.
    fn see(&self, owner: &Owner, sync: &Arc<GitSync>) {
        let mut nodes = self.nodes.lock();
        let Some(node) = nodes.get_mut(owner) else { return };
        let version = |sync: &GitSync| sync.metadata.resource_version.clone();
        let is_as_before = node.object.as_ref().is_some_and(|before| version(before) == version(sync));
        (node.object, node.lacks_memory) = (Some(Arc::clone(sync)), false);
        let sources = sync.spec.depends_on.iter().map(|one| one.ready_expr.as_ref());
        let is_read = node.ready.iter().map(|one| one.as_ref().map(|(source, _)| source)).eq(sources.clone());
        if !is_read {
            // Invalid expressions are refused before any evaluation.
            let read = |source: &String| Some((source.clone(), Arc::new(ready_expr::parse(source).ok()?)));
            node.ready = sources.map(|source| source.and_then(read)).collect();
        }
        if is_as_before {
            return;
        }
        let asks = |node: &Node| {
            let asked = node.depends_on.iter().zip(&node.ready);
            asked.into_iter().any(|(other, ready)| other == owner && ready.is_some())
        };
        let own = nodes.get(owner).filter(|node| node.ready.iter().any(Option::is_some));
        nodes.dependants(owner).filter(|node| asks(node)).chain(own).for_each(|node| node.wake.notify_one());
    }

    /// Updates the status of a GitSync. `applied` is the commit that the GitSync has applied, even if handovers to
    /// other GitSyncs are pending. The receiving GitSync may depend on this GitSync.
    pub(super) fn report(&self, owner: &Owner, status: &GitSyncStatus, applied: Option<String>) {
        let mut said = Said::new(status);
        said.applied = applied.or(said.applied);
        self.change(owner, |node| {
            if let State::Read { status, .. } = &mut node.state {
                *status = said;
            }
        });
    }

    /// Returns the notification of a GitSync's task. The notification fires when a dependency changes, or when another
    /// GitSync waits for this GitSync.
    pub(super) fn listen(&self, owner: &Owner) -> Arc<Notify> {
        Arc::clone(&self.nodes.lock().by_owner.entry(owner.clone()).or_default().wake)
    }

    /// Whether another GitSync has begun to wait for this GitSync since the last call.
    pub(super) fn take_awaited(&self, owner: &Owner) -> bool {
        self.nodes.lock().get_mut(owner).is_some_and(|node| std::mem::take(&mut node.is_awaited))
    }

    /// Whether a dependant reads the written status: one of another agent, or one with an expression. The others receive
    /// the status by [`Self::report`] before it is written.
    pub(super) fn is_status_read(&self, owner: &Owner) -> bool {
        let nodes = self.nodes.lock();
        nodes.dependants(owner).any(|node| node.is_of_other_agent || node.ready.iter().any(Option::is_some))
    }

    /// Returns the unmet dependencies of a commit. Waits until every existing dependency was read.
    pub(super) async fn unmet(&self, owner: &Owner, commit: &str) -> Option<Unmet> {
        let mut changed = self.changed.subscribe();
        let waits = loop {
            changed.mark_unchanged();
            match self.look(owner, commit) {
                Looked::Waits(waits) => break waits,
                Looked::Ring(ring) => return Some(Unmet::Ring(ring)),
                // The sender lives as long as `self`.
                Looked::Unread => drop(changed.changed().await),
            }
        };
        let answer = |waits: Vec<Wait>| waits.into_iter().filter_map(Wait::answer).collect::<Vec<_>>();
        let mut waits = if waits.iter().any(|wait| matches!(wait, Wait::Until(_))) {
            // Expressions read whole objects, which may be large, so they are evaluated on a blocking thread.
            let answered = tokio::task::spawn_blocking(move || answer(waits)).await;
            answered.unwrap_or_else(|_| vec!["the result of spec.dependsOn[].readyExpr".to_owned()])
        } else {
            answer(waits)
        };
        let more = waits.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        waits.truncate(NAMED);
        (!waits.is_empty()).then(|| Unmet::Waits(format!("{}{more}", waits.join("; for "))))
    }

    /// Checks all dependencies of a GitSync.
    fn look(&self, owner: &Owner, commit: &str) -> Looked {
        let mut nodes = self.nodes.lock();
        let Some(own) = nodes.get(owner).filter(|node| !node.depends_on.is_empty()) else {
            return Looked::Waits(Vec::new());
        };
        if let Some(ring) = ring(&nodes, owner) {
            let ring = ring.iter().map(|owner| owner.resource().to_string()).collect::<Vec<_>>().join(" → ");
            return Looked::Ring(ring);
        }
        let (mut waits, mut asked) = (Vec::new(), Vec::new());
        for (at, other) in own.depends_on.iter().enumerate() {
            let node = nodes.get(other);
            if node.is_some_and(|node| node.state == State::Unread) {
                return Looked::Unread;
            }
            if node.is_some_and(|node| node.has_not_seen(own, commit)) {
                asked.push(other.clone());
            }
            if let Some(evaluation) = node.and_then(|node| own.evaluation(at, node)) {
                waits.push(Wait::Until(Evaluation { of: other.resource().to_string(), ..evaluation }));
                continue;
            }
            let has_expression = own.ready.get(at).is_some_and(Option::is_some);
            let cause = match node {
                None => Some(Cause::Missing),
                Some(node) if node.lacks_memory && has_expression => Some(Cause::Refused),
                Some(node) => node.cause(own, commit),
            };
            waits.extend(cause.map(|cause| Wait::For(format!("GitSync {}, {cause}", other.resource()))));
        }
        for other in asked {
            if let Some(node) = nodes.get_mut(&other) {
                node.is_awaited = true;
                node.wake.notify_one();
            }
        }
        Looked::Waits(waits)
    }

    fn change(&self, owner: &Owner, change: impl FnOnce(&mut Node)) {
        let mut nodes = self.nodes.lock();
        let is_new = nodes.get(owner).is_none();
        let node = nodes.by_owner.entry(owner.clone()).or_default();
        let before = (node.depends_on.clone(), node.state.clone());
        change(node);
        let (are_others, is_other) = (node.depends_on != before.0, node.state != before.1 || is_new);
        if are_others {
            let now = node.depends_on.clone();
            nodes.depend(owner, &before.0, &now);
            // The change may close or open a cycle, so all its members are woken.
            nodes.all_dependants(owner).for_each(|node| node.wake.notify_one());
        }
        if is_other {
            self.wake_dependants(&nodes, owner);
        }
    }

    fn wake_dependants(&self, nodes: &Nodes, owner: &Owner) {
        nodes.dependants(owner).for_each(|node| node.wake.notify_one());
        self.changed.send_modify(|count| *count += 1);
    }
}

/// Returns the shortest cycle through a GitSync. It begins and ends with the GitSync.
fn ring(nodes: &Nodes, from: &Owner) -> Option<Vec<Owner>> {
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

#[cfg(test)]
mod tests;
