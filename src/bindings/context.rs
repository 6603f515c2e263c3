//! What is known of usages and bindings, and which Function gets what.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::decide::{Decision, Facts, Failure, decide};
use super::usage::{Binding, Usage, name_of};
use crate::api::names::{BINDING_DEFINITION, POD_PRESET_DEFINITION, USAGE_DEFINITION, USE_LABEL_PREFIX};
use crate::cluster::Kind;
use crate::liveness::Component;

/// Most usages of one Function: each is a watch of a Secret, and all its variables are in every pod.
const MAX_USAGES: usize = 32;

/// Namespace and name.
pub(super) type Name = (String, String);

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Watched {
    Definition(Defined),
    Usages,
    Bindings,
}

/// What a definition defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Defined {
    Usages,
    Bindings,
    /// Without them no other controller of usages works.
    PodPresets,
}

impl Defined {
    /// Name of the definition.
    pub(super) const fn definition(self) -> &'static str {
        match self {
            Self::Usages => USAGE_DEFINITION,
            Self::Bindings => BINDING_DEFINITION,
            Self::PodPresets => POD_PRESET_DEFINITION,
        }
    }
}

/// A Secret whose keys the pods of a Function get as environment variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Name of the usage.
    pub usage: String,
    /// UID of the usage.
    pub uid: String,
    /// What stands before each key.
    pub prefix: String,
    /// Name of the Secret.
    pub secret: String,
}

/// What a Function makes of a [`Bound`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Its pods get it.
    Bound,
    /// Its code may not have it, for this reason.
    Refused(String),
}

/// What all usages share.
pub struct Bindings {
    pub(super) liveness: Component,
    state: Mutex<State>,
    /// Whether it is known what is bound.
    known: watch::Sender<bool>,
    /// There are usages to look at.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct State {
    usages: BTreeMap<Name, Usage>,
    bindings: BTreeMap<Name, Binding>,
    functions: HashMap<Name, Function>,
    /// What serves usages, if anything does.
    kind: Option<Arc<Kind>>,
    /// What is defined, as far as that is known.
    defined: HashMap<Defined, bool>,
    /// Lists that came once.
    complete: HashSet<Watched>,
    /// What is being listed: what was known before, and has not come yet.
    stale: HashMap<Watched, HashSet<Name>>,
    dirty: BTreeSet<Name>,
    /// When a usage was looked at last.
    now: Timestamp,
}

/// A Function that is there.
#[derive(Default)]
struct Function {
    notify: Arc<Notify>,
    /// What it asked for last.
    bound: Vec<Bound>,
    taken: Vec<(Bound, Taken)>,
    /// UIDs of usages whose label another controller has given to it.
    labels: HashSet<String>,
}

/// What is to be done about a usage.
pub(super) enum Task {
    /// Nothing, or nothing now.
    Nothing,
    /// To look at it again then.
    Wait(Timestamp),
    /// To say that it cannot be used.
    Fail(Usage, Failure),
    /// To see whether the Function is there at all.
    Find(Usage, String),
    /// To make this binding its owner, and to say that it is in use.
    Succeed(Usage, String),
}

impl Bindings {
    /// Nothing is known yet.
    pub fn new(liveness: Component) -> Self {
        Self { liveness, state: Mutex::default(), known: watch::Sender::new(false), changed: Notify::new() }
    }

    /// A Function is there. Notifies when what it gets may be another.
    pub fn enter(&self, namespace: &str, name: &str) -> Arc<Notify> {
        let (mut state, key) = (self.state.lock(), (namespace.to_owned(), name.to_owned()));
        let notify = Arc::clone(&state.functions.entry(key.clone()).or_default().notify);
        self.look_at_users(&mut state, &key);
        notify
    }

    /// A Function is gone.
    pub fn leave(&self, namespace: &str, name: &str) {
        let (mut state, key) = (self.state.lock(), (namespace.to_owned(), name.to_owned()));
        state.functions.remove(&key);
        self.look_at_users(&mut state, &key);
    }

    /// Waits until it is known what is bound.
    pub async fn known(&self) {
        // The sender lives as long as this.
        let _ = self.known.subscribe().wait_for(|known| *known).await;
    }

    /// What a Function with these labels on its pods gets, in the order of the usages' names.
    pub fn of<'l>(&self, namespace: &str, name: &str, labels: impl Iterator<Item = &'l String>) -> Vec<Bound> {
        let (mut state, key) = (self.state.lock(), (namespace.to_owned(), name.to_owned()));
        let labels = labels.filter_map(|label| label.strip_prefix(USE_LABEL_PREFIX)).map(str::to_owned).collect();
        let was_elsewhere = state.is_elsewhere(namespace);
        if let Some(function) = state.functions.get_mut(&key) {
            function.labels = labels;
        }
        if state.is_elsewhere(namespace) != was_elsewhere {
            self.look_at_all(&mut state, namespace);
        }
        let bound = state.bound(&key);
        if let Some(function) = state.functions.get_mut(&key) {
            function.bound.clone_from(&bound);
        }
        bound
    }

    /// What the Function makes of that.
    pub fn taken(&self, namespace: &str, name: &str, taken: Vec<(Bound, Taken)>) {
        let (mut state, key) = (self.state.lock(), (namespace.to_owned(), name.to_owned()));
        let Some(function) = state.functions.get_mut(&key).filter(|function| function.taken != taken) else { return };
        function.taken = taken;
        self.look_at_users(&mut state, &key);
    }

    /// What serves usages.
    pub(super) fn kind(&self) -> Option<Arc<Kind>> {
        self.state.lock().kind.clone()
    }

    /// Something is defined, or not; `kind` serves the usages.
    pub(super) fn set_defined(&self, defined: Defined, is_there: bool, kind: Option<Arc<Kind>>) {
        let mut state = self.state.lock();
        if defined == Defined::Usages {
            state.kind = kind;
        }
        if state.defined.insert(defined, is_there) == Some(is_there) {
            return;
        }
        if !is_there {
            match defined {
                Defined::Usages => state.usages.clear(),
                Defined::Bindings => state.bindings.clear(),
                Defined::PodPresets => {}
            }
        }
        self.everything_may_be_other(&mut state);
    }

    /// A list begins.
    pub(super) fn begin(&self, watched: Watched) {
        let mut state = self.state.lock();
        let known = match watched {
            Watched::Usages => state.usages.keys().cloned().collect(),
            Watched::Bindings => state.bindings.keys().cloned().collect(),
            Watched::Definition(_) => HashSet::new(),
        };
        state.stale.insert(watched, known);
    }

    /// A list is complete.
    pub(super) fn synced(&self, watched: Watched) {
        let mut state = self.state.lock();
        for key in state.stale.remove(&watched).unwrap_or_default() {
            match watched {
                Watched::Usages => self.set_usage(&mut state, key, None),
                Watched::Bindings => self.set_binding(&mut state, key, None),
                Watched::Definition(_) => {}
            }
        }
        if state.complete.insert(watched) {
            self.everything_may_be_other(&mut state);
        }
    }

    /// The agent may not see what there is, so it does nothing about it; Functions go on without.
    pub(super) fn denied(&self, watched: Watched) {
        let state = self.state.lock();
        if !state.complete.contains(&watched) {
            self.known.send_replace(true);
        }
    }

    /// A usage or binding is there, or not.
    pub(super) fn see(&self, watched: Watched, live: &Value, is_there: bool) {
        let (mut state, key) = (self.state.lock(), name_of(live));
        if let Some(stale) = state.stale.get_mut(&watched) {
            stale.remove(&key);
        }
        match watched {
            Watched::Usages => self.set_usage(&mut state, key, is_there.then(|| Usage::of(live))),
            Watched::Bindings => self.set_binding(&mut state, key, is_there.then(|| Binding::of(live))),
            Watched::Definition(_) => {}
        }
    }

    /// The usages to look at.
    pub(super) fn take_dirty(&self) -> BTreeSet<Name> {
        std::mem::take(&mut self.state.lock().dirty)
    }

    /// What is to be done about a usage.
    pub(super) fn task(&self, key: &Name, now: Timestamp) -> Task {
        let mut state = self.state.lock();
        state.now = state.now.max(now);
        let Some(usage) = state.usages.get(key).filter(|_| state.is_listed()) else { return Task::Nothing };
        let secret = match state.decide(key, usage, state.is_elsewhere(&key.0)) {
            Decision::LeftAlone => return Task::Nothing,
            Decision::LeftUntil(until) => return Task::Wait(until),
            Decision::Fails(failure) => return Task::Fail(usage.clone(), failure),
            Decision::Binds(secret) => secret,
        };
        let Some(function) = state.functions.get(&(key.0.clone(), usage.user.clone())) else {
            return Task::Find(usage.clone(), usage.user.clone());
        };
        state.wake(&key.0, &BTreeSet::from([usage.user.clone()]));
        let bound = bound(key, usage, secret);
        if let Some((_, taken)) = function.taken.iter().find(|(known, _)| *known == bound) {
            let uid = state.bindings.get(&(key.0.clone(), usage.binding.clone())).map(|binding| binding.uid.clone());
            return match (taken, uid) {
                (Taken::Bound, Some(uid)) => Task::Succeed(usage.clone(), uid),
                (Taken::Refused(why), _) => Task::Fail(usage.clone(), Failure::refused(why)),
                (Taken::Bound, None) => Task::Nothing,
            };
        }
        if function.bound.len() >= MAX_USAGES && !function.bound.contains(&bound) {
            let why = format!("Function \"{}\" has {MAX_USAGES} usages already, and may have no more", usage.user);
            return Task::Fail(usage.clone(), Failure::refused(why));
        }
        Task::Nothing
    }

    fn set_usage(&self, state: &mut State, key: Name, new: Option<Usage>) {
        let was_elsewhere = state.is_elsewhere(&key.0);
        let old = match new.clone() {
            Some(new) => state.usages.insert(key.clone(), new),
            None => state.usages.remove(&key),
        };
        if old == new {
            return;
        }
        let users: BTreeSet<String> = [&old, &new].into_iter().flatten().map(|usage| usage.user.clone()).collect();
        state.wake(&key.0, &users);
        if state.is_elsewhere(&key.0) == was_elsewhere {
            state.dirty.insert(key);
            self.changed.notify_one();
        } else {
            self.look_at_all(state, &key.0);
        }
    }

    fn set_binding(&self, state: &mut State, key: Name, new: Option<Binding>) {
        let old = match new.clone() {
            Some(new) => state.bindings.insert(key.clone(), new),
            None => state.bindings.remove(&key),
        };
        if old == new {
            return;
        }
        let of_namespace = state.in_namespace(&key.0).filter(|(_, usage)| usage.binding == key.1);
        let usages: Vec<(Name, String)> =
            of_namespace.map(|(name, usage)| (name.clone(), usage.user.clone())).collect();
        let users = usages.iter().map(|(_, user)| user.clone()).collect();
        state.dirty.extend(usages.into_iter().map(|(name, _)| name));
        state.wake(&key.0, &users);
        self.changed.notify_one();
    }

    /// Looks at the usages of a Function.
    fn look_at_users(&self, state: &mut State, function: &Name) {
        let of_function = state.in_namespace(&function.0).filter(|(_, usage)| usage.user == function.1);
        let names: Vec<Name> = of_function.map(|(name, _)| name.clone()).collect();
        if !names.is_empty() {
            state.dirty.extend(names);
            self.changed.notify_one();
        }
    }

    fn look_at_all(&self, state: &mut State, namespace: &str) {
        let all = state.in_namespace(namespace).map(|(name, usage)| (name.clone(), usage.user.clone()));
        let (names, users): (Vec<Name>, BTreeSet<String>) = all.unzip();
        state.dirty.extend(names);
        state.wake(namespace, &users);
        self.changed.notify_one();
    }

    fn everything_may_be_other(&self, state: &mut State) {
        if !state.is_listed() {
            return;
        }
        self.known.send_replace(true);
        let all: Vec<Name> = state.functions.keys().cloned().collect();
        for (namespace, name) in all {
            state.wake(&namespace, &BTreeSet::from([name]));
        }
        state.dirty.extend(state.usages.keys().cloned().collect::<Vec<_>>());
        self.changed.notify_one();
    }
}

impl State {
    /// Wakes those of the Functions that get something else now.
    fn wake(&self, namespace: &str, users: &BTreeSet<String>) {
        if !self.is_listed() {
            return;
        }
        for user in users {
            let key = (namespace.to_owned(), user.clone());
            if let Some(function) = self.functions.get(&key).filter(|function| function.bound != self.bound(&key)) {
                function.notify.notify_one();
            }
        }
    }

    /// Whether everything is known that a decision needs.
    fn is_listed(&self) -> bool {
        let is = |defined| self.defined.get(&defined).copied();
        match is(Defined::Usages) {
            None => false,
            Some(false) => true,
            Some(true) => {
                is(Defined::PodPresets).is_some()
                    && self.complete.contains(&Watched::Usages)
                    && is(Defined::Bindings)
                        .is_some_and(|is_there| !is_there || self.complete.contains(&Watched::Bindings))
            }
        }
    }

    fn in_namespace<'s>(&'s self, namespace: &'s str) -> impl Iterator<Item = (&'s Name, &'s Usage)> {
        let from = (namespace.to_owned(), String::new());
        self.usages.range(from..).take_while(move |((other, _), _)| other == namespace)
    }

    /// Whether another controller serves the usages of a namespace.
    fn is_elsewhere(&self, namespace: &str) -> bool {
        self.in_namespace(namespace).any(|(_, usage)| {
            let function = || self.functions.get(&(namespace.to_owned(), usage.user.clone()));
            usage.is_foreign || function().is_some_and(|function| function.labels.contains(&usage.uid))
        })
    }

    fn decide(&self, key: &Name, usage: &Usage, is_elsewhere: bool) -> Decision {
        let facts = Facts {
            is_elsewhere,
            may_be_elsewhere: self.defined.get(&Defined::PodPresets).copied().unwrap_or_default(),
        };
        decide(&key.0, usage, self.bindings.get(&(key.0.clone(), usage.binding.clone())), facts, self.now)
    }

    /// What a Function gets.
    fn bound(&self, function: &Name) -> Vec<Bound> {
        if !self.is_listed() {
            return Vec::new();
        }
        let is_elsewhere = self.is_elsewhere(&function.0);
        let usages = self.in_namespace(&function.0).filter(|(_, usage)| usage.user == function.1);
        let all = usages.filter_map(|(key, usage)| match self.decide(key, usage, is_elsewhere) {
            Decision::Binds(secret) => Some(bound(key, usage, secret)),
            _ => None,
        });
        all.take(MAX_USAGES).collect()
    }
}

fn bound(key: &Name, usage: &Usage, secret: String) -> Bound {
    Bound { usage: key.1.clone(), uid: usage.uid.clone(), prefix: usage.prefix.clone(), secret }
}

impl fmt::Debug for Bindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bindings").finish_non_exhaustive()
    }
}
