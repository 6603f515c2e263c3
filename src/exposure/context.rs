//! What all APIRules share: what the cluster serves, the routes that are there, the Services, and whose each host is.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::sync::{Notify, Semaphore, watch};

use super::child::{ChildKind, Place};
use super::host_conflict::Hosts;
use super::resolve::Settings;
use super::seen::Seen;
use super::served::{Means, Served};
use super::workload::have_proxies;
use crate::apply::Writer;
use crate::liveness::Component;
use crate::managed::verdict::resource_version;
use crate::notification::Message;
use crate::object::Owner;

/// Objects that are written at the same time.
const AT_ONCE: usize = 8;

type Emit = dyn Fn(&Owner, &Message) + Send + Sync;

/// What all APIRules of an agent share.
pub struct Context {
    pub(super) writer: Writer,
    pub(super) settings: Settings,
    pub(super) liveness: Component,
    pub(super) permits: Semaphore,
    emit: Box<Emit>,
    /// Whether there was an APIRule.
    is_used: watch::Sender<bool>,
    state: Mutex<State>,
}

/// What is known of the cluster.
#[derive(Clone, Debug)]
pub(super) enum Facts {
    /// Not all that is needed.
    NotYet,
    /// The cluster does not say, for this reason.
    Failing(String),
    /// Everything.
    Known(Option<(Means, Served)>),
}

#[derive(Default)]
struct State {
    /// What is served of each kind; `None`: it is not known.
    served: HashMap<ChildKind, Option<Served>>,
    seen: HashMap<Place, Seen>,
    /// The objects of each APIRule, by its UID.
    of_rules: HashMap<Box<str>, BTreeSet<Place>>,
    /// Who has a host in an object.
    of_hosts: HashMap<Box<str>, BTreeSet<Place>>,
    /// The Services, and their versions.
    services: HashMap<(String, String), Box<str>>,
    /// The namespaces whose pods get Istio's proxy.
    proxied: HashSet<String>,
    /// What is being listed: what was known before, and has not come yet.
    stale: HashMap<Watched, HashSet<(String, String)>>,
    complete: HashSet<Watched>,
    /// The newest version at which an object of a kind was gone.
    gone: HashMap<ChildKind, u64>,
    failing: HashMap<Watched, String>,
    hosts: Hosts,
    rules: HashMap<Owner, Rule>,
}

/// A kind of objects that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Watched {
    Definition(ChildKind),
    Children(ChildKind),
    Services,
    Namespaces,
}

#[derive(Default)]
struct Rule {
    notify: Arc<Notify>,
    /// The Services that it names.
    services: BTreeSet<String>,
}

impl Context {
    /// A context in which nothing is known yet. `emit` must not block.
    pub fn new(
        writer: Writer,
        settings: Settings,
        liveness: Component,
        emit: impl Fn(&Owner, &Message) + Send + Sync + 'static,
    ) -> Self {
        let (is_used, state) = (watch::Sender::new(false), Mutex::default());
        Self { writer, settings, liveness, permits: Semaphore::new(AT_ONCE), emit: Box::new(emit), is_used, state }
    }

    /// The writer of what is made for APIRules.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// An APIRule is there. Notifies when it is to be looked at.
    pub(super) fn enter(&self, owner: &Owner) -> Arc<Notify> {
        self.is_used.send_replace(true);
        Arc::clone(&self.state().rules.entry(owner.clone()).or_default().notify)
    }

    /// An APIRule is gone.
    pub(super) fn leave(&self, owner: &Owner) {
        let mut state = self.state();
        state.rules.remove(owner);
        let woken = [state.hosts.withdraw(owner), state.hosts.keep_only(owner, None)].concat();
        state.wake(&woken);
    }

    /// Whether there was an APIRule.
    pub(super) fn is_used(&self) -> watch::Receiver<bool> {
        self.is_used.subscribe()
    }

    pub(super) fn emit(&self, owner: &Owner, message: &Message) {
        (self.emit)(owner, message);
    }

    /// What is known of the cluster.
    pub(super) fn facts(&self) -> Facts {
        self.state().facts()
    }

    /// What is served of a kind.
    pub(super) fn served(&self, kind: ChildKind) -> Option<Served> {
        self.state().served.get(&kind).cloned().flatten()
    }

    /// An object, if it is there.
    pub(super) fn seen(&self, place: &Place) -> Option<Seen> {
        self.state().seen.get(place).cloned()
    }

    /// The objects of an APIRule.
    pub(super) fn children(&self, owner: &Owner, uid: &str) -> Vec<(Place, Seen)> {
        let state = self.state();
        let places = state.of_rules.get(uid).into_iter().flatten();
        let seen = places.filter_map(|place| Some((place.clone(), state.seen.get(place)?.clone())));
        seen.filter(|(_, seen)| seen.is_of(owner, uid)).collect()
    }

    /// Which of these Services of a namespace do not exist. It is looked at again when one of them comes or goes.
    pub(super) fn missing_services(&self, owner: &Owner, services: BTreeSet<String>) -> Vec<String> {
        let (mut state, namespace) = (self.state(), owner.resource().namespace());
        let is_missing = |name: &&String| !state.services.contains_key(&(namespace.to_owned(), (*name).clone()));
        let missing = services.iter().filter(is_missing).cloned().collect();
        if let Some(rule) = state.rules.get_mut(owner) {
            rule.services = services;
        }
        missing
    }

    /// The version of a Service that is there.
    pub(super) fn service_version(&self, namespace: &str, name: &str) -> Option<Box<str>> {
        self.state().services.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Whether pods of a namespace get Istio's proxy.
    pub(super) fn have_proxies(&self, namespace: &str) -> bool {
        self.state().proxied.contains(namespace)
    }

    /// Whether a host is served for somebody else, or is next for somebody else. Who asks wants it from now on.
    pub(super) fn is_occupied(&self, owner: &Owner, uid: &str, created: Option<Timestamp>, host: &str) -> bool {
        let (mut state, host) = (self.state(), host.to_ascii_lowercase());
        let woken = state.hosts.want(owner, created, &host);
        state.wake(&woken);
        state.is_served_for_others(owner, uid, &host) || state.hosts.is_others(owner, &host)
    }

    /// Takes a host. Whether it is had now.
    pub(super) fn take(&self, owner: &Owner, uid: &str, host: &str) -> bool {
        let (mut state, host) = (self.state(), host.to_ascii_lowercase());
        !state.is_served_for_others(owner, uid, &host) && state.hosts.take(owner, &host)
    }

    /// Gives up all hosts but one.
    pub(super) fn keep_only(&self, owner: &Owner, host: Option<&str>) {
        let (mut state, host) = (self.state(), host.map(str::to_ascii_lowercase));
        let woken = state.hosts.keep_only(owner, host.as_deref());
        state.wake(&woken);
    }

    /// Wants no host any more.
    pub(super) fn withdraw(&self, owner: &Owner) {
        let mut state = self.state();
        let woken = state.hosts.withdraw(owner);
        state.wake(&woken);
    }

    /// A definition serves this. Whether that is another version than before.
    pub(super) fn set_served(&self, kind: ChildKind, served: Option<Served>) -> bool {
        let mut state = self.state();
        let version = |served: Option<&Served>| served.map(|served| Arc::clone(&served.kind.version));
        let known = state.served.get(&kind).map(|known| version(known.as_ref()));
        let is_other = known != Some(version(served.as_ref()));
        state.served.insert(kind, served);
        if is_other {
            // What is known of its objects was read in another version, if at all.
            let places: Vec<Place> = state.seen.keys().filter(|place| place.0 == kind).cloned().collect();
            for place in &places {
                state.remove(place);
            }
            state.complete.remove(&Watched::Children(kind));
            state.failing.remove(&Watched::Children(kind));
            if kind == ChildKind::AuthorizationPolicy {
                state.complete.remove(&Watched::Namespaces);
                state.failing.remove(&Watched::Namespaces);
            }
            state.wake_all();
        }
        is_other
    }

    /// A list begins.
    pub(super) fn begin(&self, watched: Watched) {
        let mut state = self.state();
        let known = match watched {
            Watched::Services => state.services.keys().cloned().collect(),
            Watched::Namespaces => state.proxied.iter().map(|name| (String::new(), name.clone())).collect(),
            Watched::Children(kind) => {
                let of_kind = state.seen.keys().filter(|place| place.0 == kind);
                of_kind.map(|(_, namespace, name)| (namespace.clone(), name.clone())).collect()
            }
            Watched::Definition(_) => HashSet::new(),
        };
        state.stale.insert(watched, known);
    }

    /// A list is complete.
    pub(super) fn synced(&self, watched: Watched) {
        let mut state = self.state();
        for (namespace, name) in state.stale.remove(&watched).unwrap_or_default() {
            match watched {
                Watched::Services => state.set_service((namespace, name), None),
                Watched::Namespaces => state.set_proxied(&name, false),
                Watched::Children(kind) => state.remove(&(kind, namespace, name)),
                Watched::Definition(_) => {}
            }
        }
        let was_failing = state.failing.remove(&watched).is_some();
        if state.complete.insert(watched) || was_failing {
            state.wake_all();
        }
    }

    /// A watch fails.
    pub(super) fn failed(&self, watched: Watched, why: String) {
        let mut state = self.state();
        let is_new = state.failing.insert(watched, why).is_none();
        if is_new && !state.complete.contains(&watched) {
            state.wake_all();
        }
    }

    /// An object is there.
    pub(super) fn see(&self, kind: ChildKind, live: &Value) {
        let (mut state, new) = (self.state(), Seen::of(kind, live));
        let (namespace, name) = name_of(live);
        state.not_stale(Watched::Children(kind), &namespace, &name);
        state.insert((kind, namespace, name), new);
    }

    /// An object was written. What is remembered of it; `None` if it may be gone by now.
    pub(super) fn wrote(&self, kind: ChildKind, live: &Value) -> Option<Seen> {
        let (mut state, new, (namespace, name)) = (self.state(), Seen::of(kind, live), name_of(live));
        let place = (kind, namespace, name);
        // The watch may be ahead of the answer.
        let is_past = new.version().zip(state.gone.get(&kind)).is_some_and(|(this, gone)| this <= *gone);
        if is_past && !state.seen.contains_key(&place) {
            return None;
        }
        state.not_stale(Watched::Children(kind), &place.1, &place.2);
        state.insert(place, new.clone());
        Some(new)
    }

    /// An object is gone.
    pub(super) fn gone(&self, kind: ChildKind, live: &Value) {
        let (mut state, (namespace, name)) = (self.state(), name_of(live));
        if let Some(version) = Seen::of(kind, live).version() {
            let newest = state.gone.entry(kind).or_default();
            *newest = version.max(*newest);
        }
        state.remove(&(kind, namespace, name));
    }

    /// A Service is there, or not.
    pub(super) fn set_service(&self, live: &Value, is_there: bool) {
        let (mut state, (namespace, name)) = (self.state(), name_of(live));
        state.not_stale(Watched::Services, &namespace, &name);
        let version = resource_version(live).into();
        state.set_service((namespace, name), is_there.then_some(version));
    }

    /// A namespace is there, or not.
    pub(super) fn set_namespace(&self, live: &Value, is_there: bool) {
        let (mut state, (_, name)) = (self.state(), name_of(live));
        state.not_stale(Watched::Namespaces, "", &name);
        state.set_proxied(&name, is_there && have_proxies(&live["metadata"]["labels"]));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn facts(&self) -> Facts {
        let needed = |watched: &Watched| match watched {
            Watched::Children(kind) => self.serves(*kind),
            Watched::Namespaces => self.serves(ChildKind::AuthorizationPolicy),
            Watched::Definition(_) | Watched::Services => true,
        };
        let kinds = ChildKind::ALL.into_iter();
        let all = kinds.flat_map(|kind| [Watched::Definition(kind), Watched::Children(kind)]);
        let all = all.chain([Watched::Services, Watched::Namespaces]);
        let unknown: Vec<Watched> = all.filter(needed).filter(|one| !self.complete.contains(one)).collect();
        if let Some(why) = unknown.iter().find_map(|one| self.failing.get(one)) {
            return Facts::Failing(why.clone());
        }
        if !unknown.is_empty() {
            return Facts::NotYet;
        }
        let of = |kind: ChildKind| self.served.get(&kind).cloned().flatten();
        let has_policies = self.serves(ChildKind::RequestAuthentication) && self.serves(ChildKind::AuthorizationPolicy);
        let means = match (of(ChildKind::VirtualService), of(ChildKind::AccessRule), of(ChildKind::HttpRoute)) {
            (Some(routes), Some(_), _) => Some((Means::Oathkeeper, routes)),
            (Some(routes), None, _) if has_policies => Some((Means::IstioPolicies, routes)),
            (Some(routes), None, _) => Some((Means::Istio, routes)),
            (None, _, Some(routes)) => Some((Means::Gateway, routes)),
            (None, _, None) => None,
        };
        Facts::Known(means)
    }

    fn serves(&self, kind: ChildKind) -> bool {
        self.served.get(&kind).is_some_and(Option::is_some)
    }

    fn is_served_for_others(&self, owner: &Owner, uid: &str, host: &str) -> bool {
        let places = self.of_hosts.get(host).into_iter().flatten();
        let mut seen = places.filter_map(|place| Some((place.0, self.seen.get(place)?)));
        // Several HTTPRoutes may have one host, but not for two APIRules.
        seen.any(|(kind, seen)| !seen.is_of(owner, uid) && (kind == ChildKind::VirtualService || seen.rule.is_some()))
    }

    fn insert(&mut self, place: Place, new: Seen) {
        match self.seen.get(&place) {
            Some(known) if new.is_older_than(known) => return,
            Some(known) if !new.differs(known) => {
                self.seen.insert(place, new);
                return;
            }
            _ => self.remove(&place),
        }
        if let Some((owner, uid)) = &new.rule {
            self.of_rules.entry(uid.clone()).or_default().insert(place.clone());
            self.wake(std::slice::from_ref(owner));
        }
        for host in &new.hosts {
            self.of_hosts.entry(host.clone()).or_default().insert(place.clone());
            let wanted = self.hosts.candidates(host);
            self.wake(&wanted);
        }
        self.seen.insert(place, new);
    }

    fn remove(&mut self, place: &Place) {
        let Some(old) = self.seen.remove(place) else { return };
        if let Some((owner, uid)) = &old.rule {
            remove_from(&mut self.of_rules, uid, place);
            self.wake(std::slice::from_ref(owner));
        }
        for host in &old.hosts {
            remove_from(&mut self.of_hosts, host, place);
            let wanted = self.hosts.candidates(host);
            self.wake(&wanted);
        }
    }

    fn set_service(&mut self, service: (String, String), version: Option<Box<str>>) {
        let name = service.clone();
        let is_new = match version {
            Some(version) => self.services.insert(service, version.clone()) != Some(version),
            None => self.services.remove(&service).is_some(),
        };
        if is_new {
            let names = |(owner, rule): &(&Owner, &Rule)| {
                owner.resource().namespace() == name.0 && rule.services.contains(&name.1)
            };
            self.rules.iter().filter(names).for_each(|(_, rule)| rule.notify.notify_one());
        }
    }

    fn set_proxied(&mut self, namespace: &str, is_proxied: bool) {
        let is_new =
            if is_proxied { self.proxied.insert(namespace.to_owned()) } else { self.proxied.remove(namespace) };
        if is_new {
            let of_it = self.rules.iter().filter(|(owner, _)| owner.resource().namespace() == namespace);
            of_it.for_each(|(_, rule)| rule.notify.notify_one());
        }
    }

    fn not_stale(&mut self, watched: Watched, namespace: &str, name: &str) {
        if let Some(stale) = self.stale.get_mut(&watched) {
            stale.remove(&(namespace.to_owned(), name.to_owned()));
        }
    }

    fn wake(&self, owners: &[Owner]) {
        owners.iter().filter_map(|owner| self.rules.get(owner)).for_each(|rule| rule.notify.notify_one());
    }

    fn wake_all(&self) {
        self.rules.values().for_each(|rule| rule.notify.notify_one());
    }
}

fn remove_from(index: &mut HashMap<Box<str>, BTreeSet<Place>>, of: &str, place: &Place) {
    if let Some(places) = index.get_mut(of) {
        places.remove(place);
        if places.is_empty() {
            index.remove(of);
        }
    }
}

fn name_of(live: &Value) -> (String, String) {
    let text = |path: &str| live.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/metadata/namespace"), text("/metadata/name"))
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("settings", &self.settings).finish_non_exhaustive()
    }
}
