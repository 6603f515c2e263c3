//! Which GitSync waits for which: `spec.dependsOn`.
//!
//! A GitSync applies a commit once everything that it depends on is ready, as its own status says, and where both follow the
//! same reference of the same GitRepository, ready with that very commit; or, where an expression says when it is ready, once
//! that is true.
//!
//! Invariant: who waits is woken when what it waits for changes, and asks nobody meanwhile.
//! Invariant: a GitSync that exists is waited for until it is read: what the agent does not know yet is no answer.
//! Invariant: an expression is asked when its GitSync has a commit to apply, and while that waits, when one of the two changes.
//!
//! Deliberately absent: what becomes of the commit that waits (`attempt`).

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

/// Dependencies that one message names.
const NAMED: usize = 3;

/// All GitSyncs and what each depends on.
#[derive(Debug, Default)]
pub(super) struct Dependencies {
    nodes: Mutex<Nodes>,
    changed: watch::Sender<u64>,
}

/// The GitSyncs, and who depends on each: a change of one is no concern of the others, however many there are.
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

    /// Those that depend on a GitSync.
    fn dependants(&self, owner: &Owner) -> impl Iterator<Item = &Node> {
        let owners = self.dependants.get(owner).into_iter().flatten();
        owners.filter_map(|owner| self.by_owner.get(owner))
    }

    /// A GitSync, and those that depend on it, on one of these, and so on: whoever is in a ring with it is one of them.
    fn all_dependants<'n>(&'n self, owner: &'n Owner) -> impl Iterator<Item = &'n Node> {
        let (mut seen, mut next) = (HashSet::from([owner]), vec![owner]);
        while let Some(owner) = next.pop() {
            next.extend(self.dependants.get(owner).into_iter().flatten().filter(|owner| seen.insert(owner)));
        }
        seen.into_iter().filter_map(|owner| self.by_owner.get(owner))
    }

    /// A GitSync depends on these now, and no longer on others.
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
    /// Of each of them, the expression that says when it is ready, and its text.
    ready: Vec<Option<(String, Arc<Expression>)>>,
    /// As it was last seen; the watch keeps the same one.
    object: Option<Arc<GitSync>>,
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
        // What is suspended may be ready, and does not stay so: nothing is reverted.
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
}

/// What is known of all that a GitSync depends on.
enum Looked {
    /// Something of it is not read.
    Unread,
    /// It would wait for itself.
    Ring(String),
    /// What it waits for, or may wait for.
    Waits(Vec<Wait>),
}

enum Wait {
    For(String),
    Until(Evaluation),
}

/// Whether one GitSync is ready for another one.
struct Evaluation {
    of: String,
    /// Its place in `spec.dependsOn`.
    at: usize,
    expression: Arc<Expression>,
    dependant: Arc<GitSync>,
    dependency: Arc<GitSync>,
}

impl Wait {
    /// What is waited for; `None` if it is there.
    fn answer(self) -> Option<String> {
        match self {
            Self::For(what) => Some(what),
            Self::Until(Evaluation { of, at, expression, dependant, dependency }) => {
                let why = ready_expr::unready(&expression, &dependant, &dependency)?;
                Some(format!("GitSync {of}: spec.dependsOn[{at}].readyExpr {why}"))
            }
        }
    }
}

impl Node {
    /// What the expression for one that it depends on is to say, if it has one, and that can be read.
    fn evaluation(&self, at: usize, dependency: &Self) -> Option<Evaluation> {
        let (_, expression) = self.ready.get(at)?.as_ref()?;
        let is_known = matches!(dependency.state, State::Read { .. } | State::Deleting);
        let (dependant, dependency) = (self.object.clone()?, dependency.object.clone().filter(|_| is_known)?);
        Some(Evaluation { of: String::new(), at, expression: Arc::clone(expression), dependant, dependency })
    }

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
        if let Some(removed) = nodes.by_owner.remove(owner) {
            nodes.depend(owner, &removed.depends_on, &[]);
            self.wake_dependants(&nodes, owner);
        }
    }

    /// A GitSync as it is now, and what it depends on.
    pub(super) fn read(&self, owner: &Owner, sync: &Arc<GitSync>, depends_on: Vec<Owner>) {
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
        self.see(owner, sync);
    }

    /// Wakes whoever asks by expressions about a GitSync that is another one than it was.
    fn see(&self, owner: &Owner, sync: &Arc<GitSync>) {
        let mut nodes = self.nodes.lock();
        let Some(node) = nodes.get_mut(owner) else { return };
        let version = |sync: &GitSync| sync.metadata.resource_version.clone();
        let is_as_before = node.object.as_ref().is_some_and(|before| version(before) == version(sync));
        node.object = Some(Arc::clone(sync));
        let sources = sync.spec.depends_on.iter().map(|one| one.ready_expr.as_ref());
        let is_read = node.ready.iter().map(|one| one.as_ref().map(|(source, _)| source)).eq(sources.clone());
        if !is_read {
            // What cannot be read is refused before anything is asked.
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
        Arc::clone(&self.nodes.lock().by_owner.entry(owner.clone()).or_default().wake)
    }

    /// Whether another GitSync has begun to wait for this one since the last call.
    pub(super) fn take_awaited(&self, owner: &Owner) -> bool {
        self.nodes.lock().get_mut(owner).is_some_and(|node| std::mem::take(&mut node.is_awaited))
    }

    /// What keeps a GitSync from applying a commit. Waits until everything that it depends on, and exists, was read.
    pub(super) async fn unmet(&self, owner: &Owner, commit: &str) -> Option<Unmet> {
        let mut changed = self.changed.subscribe();
        let waits = loop {
            changed.mark_unchanged();
            match self.look(owner, commit) {
                Looked::Waits(waits) => break waits,
                Looked::Ring(ring) => return Some(Unmet::Ring(ring)),
                // The sender lives as long as all of this.
                Looked::Unread => drop(changed.changed().await),
            }
        };
        let answer = |waits: Vec<Wait>| waits.into_iter().filter_map(Wait::answer).collect::<Vec<_>>();
        let mut waits = if waits.iter().any(|wait| matches!(wait, Wait::Until(_))) {
            // Whole objects are asked about, which may be large.
            let answered = tokio::task::spawn_blocking(move || answer(waits)).await;
            answered.unwrap_or_else(|_| vec!["an answer to spec.dependsOn[].readyExpr".to_owned()])
        } else {
            answer(waits)
        };
        let more = waits.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        waits.truncate(NAMED);
        (!waits.is_empty()).then(|| Unmet::Waits(format!("{}{more}", waits.join("; for "))))
    }

    /// What is known of all that a GitSync depends on.
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
            let cause = node.map_or(Some(Cause::Missing), |node| node.cause(own, commit));
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
            // A ring may be closed or open now, for each of its members.
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

/// The shortest way from a GitSync back to itself; it begins and ends with it.
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
mod tests {
    use futures::FutureExt;

    use super::*;

    fn owner(number: usize) -> Owner {
        Owner::git_sync("shop", &format!("sync-{number}"))
    }

    #[test]
    fn a_change_of_one_of_many_wakes_those_alone_that_depend_on_it() {
        const ALL: usize = 300;
        let dependencies = Dependencies::default();
        let woken = |dependencies: &Dependencies| {
            let is_woken = |number: &usize| dependencies.listen(&owner(*number)).notified().now_or_never().is_some();
            (0..ALL).filter(is_woken).collect::<Vec<_>>()
        };
        (0..ALL).for_each(|number| dependencies.enter(&owner(number)));
        // All but the first depend on the first, the last ones on each other as well.
        for number in 1..ALL {
            let next = (number >= ALL - 3 && number + 1 < ALL).then(|| owner(number + 1));
            let on = std::iter::once(owner(0)).chain(next).collect::<Vec<_>>();
            dependencies.change(&owner(number), |node| node.depends_on = on);
            let by = woken(&dependencies);
            assert!(by.contains(&number) && by.len() <= 3, "{number}: {by:?}");
        }
        dependencies.change(&owner(5), |node| node.state = State::Refused);
        assert_eq!(woken(&dependencies), [0; 0]);
        dependencies.change(&owner(ALL - 1), |node| node.depends_on.push(owner(ALL - 3)));
        assert_eq!(woken(&dependencies), [ALL - 3, ALL - 2, ALL - 1], "a ring is closed");
        dependencies.change(&owner(ALL - 2), |node| node.depends_on.clear());
        assert_eq!(woken(&dependencies), [ALL - 3, ALL - 2, ALL - 1], "and open again");
        dependencies.change(&owner(0), |node| node.state = State::Refused);
        assert_eq!(woken(&dependencies).len(), ALL - 2);
        (0..ALL).for_each(|number| dependencies.remove(&owner(number)));
        let nodes = dependencies.nodes.lock();
        assert!(nodes.by_owner.is_empty() && nodes.dependants.is_empty());
    }
}
