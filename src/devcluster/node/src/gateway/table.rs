//! The index of all routes and Rules by host.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::http_route::{self, HttpRoute};
use super::rule::{self, Rule};
use super::virtual_service::{self, VirtualService};

/// Namespace and name of an object.
type Name = (String, String);

/// An index of objects by name and by host.
#[derive(Debug)]
struct Index<T> {
    by_name: HashMap<Name, (Vec<String>, Arc<T>)>,
    by_host: HashMap<String, BTreeMap<Name, Arc<T>>>,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self { by_name: HashMap::new(), by_host: HashMap::new() }
    }
}

impl<T> Index<T> {
    fn set(&mut self, name: Name, read: Option<(Vec<String>, T)>) {
        if let Some((hosts, _)) = self.by_name.remove(&name) {
            for host in hosts {
                if let Some(all) = self.by_host.get_mut(&host) {
                    all.remove(&name);
                    if all.is_empty() {
                        self.by_host.remove(&host);
                    }
                }
            }
        }
        let Some((hosts, read)) = read else { return };
        let read = Arc::new(read);
        for host in &hosts {
            self.by_host.entry(host.clone()).or_default().insert(name.clone(), Arc::clone(&read));
        }
        self.by_name.insert(name, (hosts, read));
    }

    /// Returns the objects of a host, or else of the longest matching wildcard.
    fn of(&self, host: &str) -> Vec<Arc<T>> {
        let wildcards = host.match_indices('.').map(|(at, _)| format!("*{}", &host[at..]));
        let found = std::iter::once(host.to_owned()).chain(wildcards).find_map(|name| self.by_host.get(&name));
        found.into_iter().flat_map(BTreeMap::values).cloned().collect()
    }
}

/// The routes and Rules of a cluster.
#[derive(Debug, Default)]
pub(super) struct Table {
    virtual_services: Index<VirtualService>,
    http_routes: Index<HttpRoute>,
    rules: Index<Rule>,
}

/// The indexed kinds: storage, API version and plural.
pub(super) const KINDS: [(&str, &str, &str); 3] = [
    ("virtualservices.networking.istio.io", "networking.istio.io/v1beta1", "virtualservices"),
    ("rules.oathkeeper.ory.sh", "oathkeeper.ory.sh/v1alpha1", "rules"),
    ("httproutes.gateway.networking.k8s.io", "gateway.networking.k8s.io/v1", "httproutes"),
];

impl Table {
    /// Adds, replaces or removes an object.
    pub(super) fn set(&mut self, storage: &str, namespace: &str, name: &str, object: Option<&Value>) {
        let key = (namespace.to_owned(), name.to_owned());
        if storage == KINDS[0].0 {
            let read = object.and_then(|object| virtual_service::read(object, namespace));
            self.virtual_services.set(key, read.map(|read| (read.hosts.clone(), read)));
        } else if storage == KINDS[1].0 {
            self.rules.set(key, object.and_then(rule::read).map(|read| (vec![read.host.clone()], read)));
        } else if storage == KINDS[2].0 {
            let read = object.and_then(|object| http_route::read(object, namespace));
            self.http_routes.set(key, read.map(|read| (read.hosts.clone(), read)));
        }
    }

    pub(super) fn virtual_services(&self, host: &str) -> Vec<Arc<VirtualService>> {
        self.virtual_services.of(host)
    }

    pub(super) fn http_routes(&self, host: &str) -> Vec<Arc<HttpRoute>> {
        self.http_routes.of(host)
    }

    /// Whether a host has routes.
    pub(super) fn has(&self, host: &str) -> bool {
        !self.virtual_services(host).is_empty() || !self.http_routes(host).is_empty()
    }

    /// Returns the Rules of exactly this host.
    pub(super) fn rules(&self, host: &str) -> Vec<Arc<Rule>> {
        self.rules.by_host.get(host).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_host_goes_before_wildcards_and_longer_ones_before_others() {
        let mut table = Table::default();
        let of =
            |host: &str| json!({"spec": {"hosts": [host], "http": [{"route": [{"destination": {"host": "web"}}]}]}});
        for host in ["*.local", "*.kyma.local", "web.kyma.local"] {
            table.set(KINDS[0].0, "shop", host, Some(&of(host)));
        }
        let found =
            |table: &Table, host: &str| table.virtual_services(host).first().map(|found| found.hosts[0].clone());
        assert_eq!(found(&table, "web.kyma.local").unwrap(), "web.kyma.local");
        assert_eq!(found(&table, "a.kyma.local").unwrap(), "*.kyma.local");
        assert_eq!(found(&table, "a.b.local").unwrap(), "*.local");
        assert_eq!(found(&table, "local"), None);
        table.set(KINDS[0].0, "shop", "web.kyma.local", None);
        assert_eq!(found(&table, "web.kyma.local").unwrap(), "*.kyma.local");
        table.set(KINDS[0].0, "shop", "*.local", Some(&of("other")));
        assert_eq!(found(&table, "a.b.local"), None);
    }
}
