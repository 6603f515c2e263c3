//! The known state of the cluster: served kinds, routing objects, Services, and the holders of hosts.
//!
//! Invariant: no decision is made before all needed lists are complete. Listed objects stay known during a relist.
//! Invariant: an APIRule is notified only of changes that may affect it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::child::{ChildKind, Place};
use super::guarded::Guarded;
use super::host_conflict::Hosts;
use super::index::{Affected, Index};
use super::listed::{Lacking, Listed, Name, Watched};
use super::no_target::{NoTarget, NoTargets, has_selector, leads_to_pods, service_of};
use super::seen::Seen;
use super::served::{Means, Served};
use super::workload::have_proxies;
use mainstay_cluster::reflector::List;
use mainstay_engine::managed::verdict::resource_version;
use mainstay_object::Owner;

/// The known facts about the cluster.
#[derive(Clone, Debug)]
pub(super) enum Facts {
    /// Some lists are not complete yet.
    NotYet,
    /// A list fails, for this reason.
    Failing(String),
    /// All lists are complete.
    Known(Option<(Means, Served)>),
}

/// Why an APIRule cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// Another owner uses the host.
    Host,
    /// The other APIRules of the namespace have this many paths with a guard.
    Namespace(usize),
}

/// An existing Service.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Service {
    version: Box<str>,
    leads_to_pods: bool,
    has_selector: bool,
}

/// The known state.
#[derive(Default)]
pub(super) struct Known {
    /// The served version of each kind; `None` if the kind is not served. A missing entry means that this is unknown.
    served: HashMap<ChildKind, Option<Served>>,
    index: Index,
    services: HashMap<Name, Service>,
    /// EndpointSlices that a user wrote, and the Service of each.
    written: BTreeMap<Name, String>,
    /// Namespaces whose pods have Istio's proxy.
    proxied: HashSet<String>,
    listed: Listed,
    hosts: Hosts,
    guarded: Guarded,
    /// The Services that each APIRule references.
    rules: HashMap<Owner, BTreeSet<String>>,
    /// The APIRules to reconcile.
    woken: BTreeSet<Owner>,
}

impl Known {
    /// Adds an APIRule.
    pub(super) fn enter(&mut self, owner: Owner) {
        self.rules.entry(owner).or_default();
    }

    /// Removes an APIRule.
    pub(super) fn leave(&mut self, owner: &Owner) {
        self.rules.remove(owner);
        self.withdraw(owner);
        self.guarded.leave(owner);
        self.release(owner);
        self.keep_only(owner, None);
    }

    /// Returns the APIRules to reconcile, and removes them from the state.
    pub(super) fn take_woken(&mut self) -> BTreeSet<Owner> {
        std::mem::take(&mut self.woken)
    }

    /// Returns the served version of a kind.
    pub(super) fn served(&self, kind: ChildKind) -> Option<Served> {
        self.served.get(&kind).cloned().flatten()
    }

    /// Returns an existing object.
    pub(super) fn seen(&self, place: &Place) -> Option<Seen> {
        self.index.get(place).cloned()
    }

    /// Returns the objects of an APIRule.
    pub(super) fn children(&self, owner: &Owner, uid: &str) -> Vec<(Place, Seen)> {
        self.index.of_rule(owner, uid)
    }

    /// Returns which of these Services of a namespace are not valid targets. `may_be_written` means that users may
    /// write the endpoints of Services. The APIRule is notified when one of them changes.
    pub(super) fn no_targets(&mut self, owner: &Owner, services: BTreeSet<String>, may_be_written: bool) -> NoTargets {
        let namespace = owner.resource().namespace();
        let why = |name: &String| match self.services.get(&(namespace.to_owned(), name.clone())) {
            None => Some(NoTarget::NotFound),
            Some(service) if !service.leads_to_pods => Some(NoTarget::Type),
            Some(_) if may_be_written => None,
            Some(service) if !service.has_selector => Some(NoTarget::NoSelector),
            Some(_) => self.written_of(namespace, name).map(NoTarget::Written),
        };
        let found = services.iter().filter_map(|name| Some((name.clone(), why(name)?))).collect();
        if let Some(named) = self.rules.get_mut(owner) {
            *named = services;
        }
        found
    }

    /// Returns the first EndpointSlice of a Service that a user wrote.
    fn written_of(&self, namespace: &str, service: &str) -> Option<String> {
        let of_namespace = self.written.range((namespace.to_owned(), String::new())..);
        let mut slices = of_namespace.take_while(|((of, _), _)| of == namespace);
        slices.find(|(_, of)| *of == service).map(|((_, name), _)| name.clone())
    }

    /// Whether a namespace has Services.
    pub(super) fn has_services(&self, namespace: &str) -> bool {
        self.services.keys().any(|(of, _)| of == namespace)
    }

    /// Returns the version of an existing Service.
    pub(super) fn service_version(&self, namespace: &str, name: &str) -> Option<Box<str>> {
        self.services.get(&(namespace.to_owned(), name.to_owned())).map(|service| service.version.clone())
    }

    /// Whether pods of a namespace have Istio's proxy.
    pub(super) fn have_proxies(&self, namespace: &str) -> bool {
        self.proxied.contains(namespace)
    }

    /// Whether another owner uses a host or is the next candidate for it. Registers the caller as a candidate for the
    /// host.
    pub(super) fn is_occupied(&mut self, owner: &Owner, uid: &str, created: Option<Timestamp>, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let woken = self.hosts.want(owner, created, &host);
        self.wake(&woken);
        self.index.is_served_for_others(owner, uid, &host) || self.hosts.is_others(owner, &host)
    }

    /// Takes a host, and room for this many paths that Oathkeeper guards.
    pub(super) fn take(&mut self, owner: &Owner, uid: &str, host: &str, guarded: usize) -> Result<(), Full> {
        let host = host.to_ascii_lowercase();
        if self.index.is_served_for_others(owner, uid, &host) || self.hosts.is_others(owner, &host) {
            return Err(Full::Host);
        }
        if let Some(others) = self.guarded.lacks_room(owner, guarded, &self.index) {
            return Err(Full::Namespace(others));
        }
        self.hosts.take(owner, &host);
        if self.guarded.hold(owner, guarded) {
            self.wake_fitting(owner);
        }
        Ok(())
    }

    /// Releases the room for paths of an APIRule that is not served.
    pub(super) fn release(&mut self, owner: &Owner) {
        if self.guarded.release(owner) {
            self.wake_fitting(owner);
        }
    }

    /// Releases all hosts except one.
    pub(super) fn keep_only(&mut self, owner: &Owner, host: Option<&str>) {
        let host = host.map(str::to_ascii_lowercase);
        let woken = self.hosts.keep_only(owner, host.as_deref());
        self.wake(&woken);
    }

    /// Removes the APIRule as a candidate for hosts.
    pub(super) fn withdraw(&mut self, owner: &Owner) {
        let woken = self.hosts.withdraw(owner);
        self.wake(&woken);
    }

    /// Sets the served version of a kind. Returns whether it changed.
    pub(super) fn set_served(&mut self, kind: ChildKind, served: Option<Served>) -> bool {
        let version = |served: Option<&Served>| served.map(|served| Arc::clone(&served.kind.version));
        let known = self.served.get(&kind).map(|known| version(known.as_ref()));
        let is_other = known != Some(version(served.as_ref()));
        self.served.insert(kind, served);
        if is_other {
            // The known objects were read in a different version.
            let places: Vec<Place> = self.index.of_kind(kind).cloned().collect();
            for place in &places {
                let affected = self.index.remove(place);
                self.wake_affected(affected);
            }
            self.listed.forget(Watched::Children(kind));
            if kind == ChildKind::AuthorizationPolicy {
                self.listed.forget(Watched::Namespaces);
            }
            self.wake_all();
        }
        is_other
    }

    /// Completes a list: removes the objects that the list lacks, unless they were written after the list. Forgets the
    /// versions from before a restore of the server.
    pub(super) fn complete(&mut self, watched: Watched, list: &List<Name>) {
        match watched {
            Watched::Services => {
                let gone: Vec<Name> = self.services.keys().filter(|name| list.lacks(name)).cloned().collect();
                for name in gone {
                    self.put_service(name, None);
                }
            }
            Watched::Written => {
                let gone: Vec<Name> = self.written.keys().filter(|name| list.lacks(name)).cloned().collect();
                for name in gone {
                    self.put_written(name, None);
                }
            }
            Watched::Namespaces => {
                let lacks = |name: &&String| list.lacks(&(String::new(), (*name).clone()));
                let gone: Vec<String> = self.proxied.iter().filter(lacks).cloned().collect();
                for name in &gone {
                    self.set_proxied(name, false);
                }
            }
            Watched::Children(kind) => {
                if list.went_back() {
                    self.index.forget_versions(kind);
                }
                let at = list.version().parse::<u64>().ok();
                let is_newer = |seen: &Seen| seen.version().zip(at).is_some_and(|(version, at)| version > at);
                let is_gone = |place: &&Place| {
                    list.lacks(&(place.1.clone(), place.2.clone())) && !self.index.get(place).is_some_and(is_newer)
                };
                let gone: Vec<Place> = self.index.of_kind(kind).filter(is_gone).cloned().collect();
                for place in &gone {
                    let affected = self.index.remove(place);
                    self.wake_affected(affected);
                }
            }
            Watched::Definition(_) => {}
        }
        if self.listed.complete(watched) {
            self.wake_all();
        }
    }

    /// Records a failed watch.
    pub(super) fn failed(&mut self, watched: Watched, why: String) {
        if self.listed.fail(watched, why) {
            self.wake_all();
        }
    }

    /// Records an existing object.
    pub(super) fn see(&mut self, kind: ChildKind, live: &Value) {
        let name = name_of(live);
        let affected = self.index.insert((kind, name.0, name.1), Seen::of(kind, live));
        self.wake_affected(affected);
    }

    /// Records a written object. Returns its state; `None` if the object may already be deleted.
    pub(super) fn wrote(&mut self, kind: ChildKind, live: &Value) -> Option<Seen> {
        let (new, name) = (Seen::of(kind, live), name_of(live));
        let place = (kind, name.0.clone(), name.1.clone());
        // The watch may be ahead of the response.
        if self.index.may_be_gone(&place, &new) {
            return None;
        }
        let affected = self.index.insert(place, new.clone());
        self.wake_affected(affected);
        Some(new)
    }

    /// Records a deleted object.
    pub(super) fn gone(&mut self, kind: ChildKind, live: &Value) {
        let (namespace, name) = name_of(live);
        let affected = self.index.gone(&(kind, namespace, name), &Seen::of(kind, live));
        self.wake_affected(affected);
    }

    /// Records an existing or deleted Service.
    pub(super) fn set_service(&mut self, live: &Value, is_there: bool) {
        let name = name_of(live);
        let service = || Service {
            version: resource_version(live).into(),
            leads_to_pods: leads_to_pods(live),
            has_selector: has_selector(live),
        };
        self.put_service(name, is_there.then(service));
    }

    /// Records an existing or deleted EndpointSlice that a user wrote.
    pub(super) fn set_written(&mut self, live: &Value, is_there: bool) {
        let name = name_of(live);
        let service = service_of(live).filter(|_| is_there).map(str::to_owned);
        self.put_written(name, service);
    }

    /// Records an existing or deleted namespace.
    pub(super) fn set_namespace(&mut self, live: &Value, is_there: bool) {
        let (_, name) = name_of(live);
        self.set_proxied(&name, is_there && have_proxies(&live["metadata"]["labels"]));
    }

    /// Returns the known facts.
    pub(super) fn facts(&self) -> Facts {
        match self.listed.lacks(|kind| self.serves(kind)) {
            Some(Lacking::NotYet) => Facts::NotYet,
            Some(Lacking::Failing(why)) => Facts::Failing(why),
            None => Facts::Known(Means::of(|kind| self.served(kind))),
        }
    }

    fn serves(&self, kind: ChildKind) -> bool {
        self.served.get(&kind).is_some_and(Option::is_some)
    }

    /// Marks the affected APIRules and candidates for reconciliation.
    fn wake_affected(&mut self, affected: Affected) {
        self.wake(&affected.owners);
        affected.owners.iter().for_each(|owner| self.wake_fitting(owner));
        for host in affected.hosts {
            let wanted = self.hosts.candidates(&host);
            self.wake(&wanted);
        }
    }

    /// Notifies the APIRules of this one's namespace whose paths did not fit and fit now.
    fn wake_fitting(&mut self, owner: &Owner) {
        let fitting = self.guarded.fitting(owner.resource().namespace(), &self.index);
        self.wake(&fitting);
    }

    fn put_service(&mut self, name: Name, service: Option<Service>) {
        // From now on, a URL with this namespace in its host points into the cluster.
        if service.is_some() && !self.has_services(&name.0) {
            self.wake_all();
        }
        let is_new = match service {
            Some(service) => self.services.insert(name.clone(), service.clone()) != Some(service),
            None => self.services.remove(&name).is_some(),
        };
        if is_new {
            self.wake_named(&name.0, &name.1);
        }
    }

    fn put_written(&mut self, name: Name, service: Option<String>) {
        let namespace = name.0.clone();
        let old = match service.clone() {
            Some(service) => self.written.insert(name, service),
            None => self.written.remove(&name),
        };
        if old != service {
            [old, service].into_iter().flatten().for_each(|service| self.wake_named(&namespace, &service));
        }
    }

    /// Notifies the APIRules that reference a Service.
    fn wake_named(&mut self, namespace: &str, service: &str) {
        let is_named = |owner: &Owner, services: &BTreeSet<String>| {
            owner.resource().namespace() == namespace && services.contains(service)
        };
        let named = self.rules.iter().filter(|(owner, services)| is_named(owner, services));
        self.woken.extend(named.map(|(owner, _)| owner.clone()));
    }

    fn set_proxied(&mut self, namespace: &str, is_proxied: bool) {
        let is_new =
            if is_proxied { self.proxied.insert(namespace.to_owned()) } else { self.proxied.remove(namespace) };
        if is_new {
            let of_it = self.rules.keys().filter(|owner| owner.resource().namespace() == namespace);
            self.woken.extend(of_it.cloned());
        }
    }

    fn wake(&mut self, owners: &[Owner]) {
        self.woken.extend(owners.iter().filter(|owner| self.rules.contains_key(owner)).cloned());
    }

    fn wake_all(&mut self) {
        self.woken.extend(self.rules.keys().cloned());
    }
}

fn name_of(live: &Value) -> Name {
    let text = |path: &str| live.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/metadata/namespace"), text("/metadata/name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use mainstay_cluster::WatchEvent;
    use mainstay_cluster::reflector::{self, Delta, Shown};

    #[test]
    fn an_object_that_a_restored_server_lacks_is_gone_whatever_its_version_was() {
        let (mut known, mut shown, kind) = (Known::default(), Shown::default(), ChildKind::VirtualService);
        let metadata = json!({"namespace": "shop", "name": "web", "uid": "v", "resourceVersion": "901"});
        known.see(kind, &json!({"metadata": metadata}));
        let place = (kind, "shop".to_owned(), "web".to_owned());
        for (version, is_there) in [("900", true), ("100", false)] {
            shown.take(WatchEvent::Begin, reflector::name_of);
            let complete = shown.take(WatchEvent::Synced(version.to_owned()), reflector::name_of);
            let Some(Delta::Complete(list)) = complete else { panic!("the list is complete") };
            known.complete(Watched::Children(kind), &list);
            assert_eq!(known.seen(&place).is_some(), is_there, "at {version}");
        }
    }
}
