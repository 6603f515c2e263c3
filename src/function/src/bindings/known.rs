//! The known usages, bindings and Functions, and the effects of a change on each other.
//!
//! Invariant: a Function receives no bindings until all needed objects are listed. Invariant: a Function is notified
//! only if its bindings differ from those that it read last.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::bound::{Bound, Function, MAX_USAGES, Name, Taken};
use super::decide::{Decision, Facts, decide};
use super::listed::{Defined, Listed, Watched};
use super::task::{Task, task};
use super::usage::{Binding, Usage, name_of};
use mainstay_cluster::Kind;
use mainstay_cluster::reflector::List;

/// The known objects.
#[derive(Default)]
pub(super) struct Known {
    usages: BTreeMap<Name, Usage>,
    bindings: BTreeMap<Name, Binding>,
    functions: HashMap<Name, Function>,
    /// The kind of usages, if it is served.
    kind: Option<Arc<Kind>>,
    pub(super) listed: Listed,
    /// The usages to reconcile.
    dirty: BTreeSet<Name>,
    /// Functions whose bindings may have changed.
    woken: BTreeSet<Name>,
    /// The time of the last reconcile of a usage.
    now: Timestamp,
}

impl Known {
    /// Adds a Function.
    pub(super) fn enter(&mut self, function: Name) {
        self.look_at_users(&function);
        self.functions.entry(function).or_default();
    }

    /// Removes a Function.
    pub(super) fn leave(&mut self, function: &Name) {
        self.functions.remove(function);
        self.look_at_users(function);
    }

    /// Returns the bindings of a Function, by the names of their usages. `labels` are the usage UIDs in the Function's
    /// labels.
    pub(super) fn of(&mut self, key: &Name, labels: HashSet<String>) -> Vec<Bound> {
        let was_elsewhere = self.is_elsewhere(&key.0);
        if let Some(function) = self.functions.get_mut(key) {
            function.labels = labels;
        }
        if self.is_elsewhere(&key.0) != was_elsewhere {
            self.look_at_all(&key.0);
        }
        let bound = self.bound(key);
        if let Some(function) = self.functions.get_mut(key) {
            function.bound.clone_from(&bound);
        }
        bound
    }

    /// Sets which bindings a Function accepted or refused.
    pub(super) fn taken(&mut self, key: &Name, taken: Vec<(Bound, Taken)>) {
        let Some(function) = self.functions.get_mut(key).filter(|function| function.taken != taken) else { return };
        function.taken = taken;
        self.look_at_users(key);
    }

    /// Returns the kind of usages, if it is served.
    pub(super) fn kind(&self) -> Option<Arc<Kind>> {
        self.kind.clone()
    }

    /// Sets whether a CRD exists. `kind` is the kind of usages, if it is served.
    pub(super) fn set_defined(&mut self, defined: Defined, is_there: bool, kind: Option<Arc<Kind>>) {
        if defined == Defined::Usages {
            self.kind = kind;
        }
        if !self.listed.define(defined, is_there) {
            return;
        }
        if !is_there {
            match defined {
                Defined::Usages => self.usages.clear(),
                Defined::Bindings => self.bindings.clear(),
                Defined::PodPresets => {}
            }
        }
        self.everything_may_be_other();
    }

    /// Completes a list: removes the objects that the list lacks.
    pub(super) fn complete(&mut self, watched: Watched, list: &List<Name>) {
        match watched {
            Watched::Usages => {
                let gone: Vec<Name> = self.usages.keys().filter(|key| list.lacks(key)).cloned().collect();
                for key in gone {
                    self.set_usage(key, None);
                }
            }
            Watched::Bindings => {
                let gone: Vec<Name> = self.bindings.keys().filter(|key| list.lacks(key)).cloned().collect();
                for key in &gone {
                    self.set_binding(key, None);
                }
            }
            Watched::Definition(_) => {}
        }
        if self.listed.complete(watched) {
            self.everything_may_be_other();
        }
    }

    /// Sets or removes a usage or binding.
    pub(super) fn see(&mut self, watched: Watched, live: &Value, is_there: bool) {
        let key = name_of(live);
        match watched {
            Watched::Usages => self.set_usage(key, is_there.then(|| Usage::of(live))),
            Watched::Bindings => self.set_binding(&key, is_there.then(|| Binding::of(live))),
            Watched::Definition(_) => {}
        }
    }

    /// Whether there are usages to reconcile.
    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Returns the usages to reconcile, and removes them from the state.
    pub(super) fn take_dirty(&mut self) -> BTreeSet<Name> {
        std::mem::take(&mut self.dirty)
    }

    /// Returns the Functions whose bindings changed, and removes them from the state.
    pub(super) fn take_woken(&mut self) -> BTreeSet<Name> {
        std::mem::take(&mut self.woken)
    }

    /// Returns the task for a usage.
    pub(super) fn task(&mut self, key: &Name, now: Timestamp) -> Task {
        self.now = self.now.max(now);
        let Some(usage) = self.usages.get(key).filter(|_| self.listed.is_enough()).cloned() else {
            return Task::Nothing;
        };
        let decision = self.decide(key, &usage, self.is_elsewhere(&key.0));
        if matches!(decision, Decision::Binds(_)) {
            self.wake(&key.0, &BTreeSet::from([usage.user.clone()]));
        }
        let of_namespace = |name: &str| (key.0.clone(), name.to_owned());
        let function = self.functions.get(&of_namespace(&usage.user));
        let binding = self.bindings.get(&of_namespace(&usage.binding));
        task(key, usage, decision, function, binding)
    }

    fn set_usage(&mut self, key: Name, new: Option<Usage>) {
        let was_elsewhere = self.is_elsewhere(&key.0);
        let old = match new.clone() {
            Some(new) => self.usages.insert(key.clone(), new),
            None => self.usages.remove(&key),
        };
        if old == new {
            return;
        }
        let users: BTreeSet<String> = [old, new].into_iter().flatten().map(|usage| usage.user).collect();
        self.wake(&key.0, &users);
        if self.is_elsewhere(&key.0) == was_elsewhere {
            self.dirty.insert(key);
        } else {
            self.look_at_all(&key.0);
        }
    }

    fn set_binding(&mut self, key: &Name, new: Option<Binding>) {
        let old = match new.clone() {
            Some(new) => self.bindings.insert(key.clone(), new),
            None => self.bindings.remove(key),
        };
        if old != new {
            self.look_at(&key.0, |usage| usage.binding == key.1);
        }
    }

    /// Schedules a reconcile of the usages of a Function, without notifying the Function.
    fn look_at_users(&mut self, function: &Name) {
        let of_function = self.in_namespace(&function.0).filter(|(_, usage)| usage.user == function.1);
        let names: Vec<Name> = of_function.map(|(name, _)| name.clone()).collect();
        self.dirty.extend(names);
    }

    fn look_at_all(&mut self, namespace: &str) {
        self.look_at(namespace, |_| true);
    }

    /// Schedules a reconcile of matching usages of a namespace, and notifies their Functions.
    fn look_at(&mut self, namespace: &str, which: impl Fn(&Usage) -> bool) {
        let all = self.in_namespace(namespace).filter(|(_, usage)| which(usage));
        let (names, users): (Vec<Name>, BTreeSet<String>) =
            all.map(|(name, usage)| (name.clone(), usage.user.clone())).unzip();
        self.dirty.extend(names);
        self.wake(namespace, &users);
    }

    fn everything_may_be_other(&mut self) {
        if !self.listed.is_enough() {
            return;
        }
        let all: Vec<Name> = self.functions.keys().cloned().collect();
        for (namespace, name) in all {
            self.wake(&namespace, &BTreeSet::from([name]));
        }
        self.dirty.extend(self.usages.keys().cloned());
    }

    /// Notifies the Functions whose bindings changed.
    fn wake(&mut self, namespace: &str, users: &BTreeSet<String>) {
        if !self.listed.is_enough() {
            return;
        }
        for user in users {
            let key = (namespace.to_owned(), user.clone());
            if self.functions.get(&key).is_some_and(|function| function.bound != self.bound(&key)) {
                self.woken.insert(key);
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
        let facts =
            Facts { is_elsewhere, may_be_elsewhere: self.listed.is_defined(Defined::PodPresets).unwrap_or_default() };
        decide(&key.0, usage, self.bindings.get(&(key.0.clone(), usage.binding.clone())), facts, self.now)
    }

    /// Returns the bindings of a Function.
    fn bound(&self, function: &Name) -> Vec<Bound> {
        if !self.listed.is_enough() {
            return Vec::new();
        }
        let is_elsewhere = self.is_elsewhere(&function.0);
        let usages = self.in_namespace(&function.0).filter(|(_, usage)| usage.user == function.1);
        let all = usages.filter_map(|(key, usage)| match self.decide(key, usage, is_elsewhere) {
            Decision::Binds(secret) => Some(Bound::of(key, usage, secret)),
            _ => None,
        });
        all.take(MAX_USAGES).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::usage::FUNCTIONS;
    use super::*;

    fn name(name: &str) -> Name {
        ("ns".to_owned(), name.to_owned())
    }

    fn usage(name: &str, function: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {"serviceBindingRef": {"name": "redis"}, "usedBy": {"kind": FUNCTIONS, "name": function}},
        })
    }

    fn binding() -> Value {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        json!({"metadata": {"name": "redis", "namespace": "ns", "uid": "b"}, "status": {"conditions": ready}})
    }

    /// Returns a state with the Functions `f` and `g`, the binding `redis`, and these usages, fully listed.
    fn listed(usages: &[Value]) -> Known {
        let mut known = Known::default();
        for function in ["f", "g"] {
            known.enter(name(function));
        }
        for (defined, is_there) in [(Defined::Usages, true), (Defined::Bindings, true), (Defined::PodPresets, false)] {
            known.set_defined(defined, is_there, None);
        }
        for (watched, all) in [(Watched::Usages, usages), (Watched::Bindings, &[binding()])] {
            assert!(!known.listed.is_enough() && known.bound(&name("f")).is_empty() && known.woken.is_empty());
            for live in all {
                known.see(watched, live, true);
            }
            known.complete(watched, &all.iter().map(name_of).collect());
        }
        known
    }

    fn woken(known: &mut Known) -> Vec<String> {
        known.take_woken().into_iter().map(|(_, name)| name).collect()
    }

    fn ask(known: &mut Known, function: &str) -> Vec<String> {
        known.of(&name(function), HashSet::new()).into_iter().map(|bound| bound.usage).collect()
    }

    #[test]
    fn the_last_list_wakes_only_functions_that_get_a_binding() {
        let mut known = listed(&[usage("a", "f")]);
        assert_eq!(woken(&mut known), ["f"]);
        assert_eq!(ask(&mut known, "f"), ["a"]);
        known.see(Watched::Bindings, &binding(), true);
        known.see(Watched::Usages, &usage("a", "f"), true);
        assert_eq!(woken(&mut known), Vec::<String>::new());
        known.see(Watched::Usages, &usage("a", "g"), true);
        assert_eq!(woken(&mut known), ["f", "g"], "who had it, and who has it");
    }

    #[test]
    fn objects_absent_from_a_later_list_are_gone_once_it_is_complete() {
        let mut known = listed(&[usage("a", "f"), usage("b", "f")]);
        assert_eq!(ask(&mut known, "f"), ["a", "b"]);
        known.take_woken();
        known.see(Watched::Usages, &usage("b", "f"), true);
        assert_eq!((woken(&mut known), ask(&mut known, "f")), (Vec::new(), vec!["a".to_owned(), "b".to_owned()]));
        known.take_dirty();
        known.complete(Watched::Usages, &List::from_iter([name("b")]));
        assert_eq!((woken(&mut known), ask(&mut known, "f")), (vec!["f".to_owned()], vec!["b".to_owned()]));
        assert_eq!(known.take_dirty(), BTreeSet::from([name("a")]));
    }

    #[test]
    fn a_label_of_another_controller_takes_the_whole_namespace_and_gives_it_back_with_it() {
        let mut known = listed(&[usage("a", "f"), usage("b", "g")]);
        ask(&mut known, "f");
        ask(&mut known, "g");
        known.take_woken();
        known.take_dirty();
        assert_eq!(known.of(&name("f"), HashSet::from(["a".to_owned()])), []);
        assert!(woken(&mut known).contains(&"g".to_owned()));
        assert_eq!((ask(&mut known, "g").len(), known.take_dirty().len()), (0, 2));
        assert_eq!(known.task(&name("b"), Timestamp::UNIX_EPOCH), Task::Nothing);
        assert_eq!(ask(&mut known, "f"), ["a"]);
        assert!(woken(&mut known).contains(&"g".to_owned()));
    }

    #[test]
    fn a_surplus_binding_is_injected_once_there_is_room() {
        let all: Vec<Value> = (0..=MAX_USAGES).map(|at| usage(&format!("u{at:02}"), "f")).collect();
        let (mut known, last) = (listed(&all), name(&format!("u{MAX_USAGES}")));
        assert_eq!(ask(&mut known, "f").len(), MAX_USAGES);
        let Task::Fail(_, failure) = known.task(&last, Timestamp::UNIX_EPOCH) else { panic!("there is no room") };
        assert_eq!(failure.detail, "Function \"f\" has 32 usages already, and may have no more");
        known.take_woken();
        known.see(Watched::Usages, &all[0], false);
        assert_eq!((woken(&mut known), ask(&mut known, "f").last()), (vec!["f".to_owned()], Some(&last.1)));
        assert_eq!(known.task(&last, Timestamp::UNIX_EPOCH), Task::Nothing, "its pods get it soon");
    }
}
