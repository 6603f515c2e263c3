//! The endpoints of Services, which of them are ready, and why requests do not arrive at a pod.

use std::collections::{BTreeMap, BTreeSet};

use super::object::{Policy, Port, Service};
use super::route::{Backend, PortRef, Route, Way};
use super::seen::{Listed, Seen, Subject};
use mainstay_object::Key;

/// Maximum number of pods and of NetworkPolicies of a Service.
pub(super) const PODS: usize = 20;
pub(super) const POLICIES: usize = 20;

/// An endpoint of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The pod, if the endpoint is one.
    pub(crate) pod: Option<Key>,
    pub(crate) ip: String,
    pub(crate) is_ready: bool,
    /// The object that the pod belongs to, if it is known.
    pub(crate) workload: Option<Key>,
}

/// The endpoints of a Service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Behind<'s> {
    pub(crate) ready: usize,
    pub(crate) not_ready: usize,
    /// The first endpoints, those that are not ready before the others.
    pub(crate) endpoints: Vec<Endpoint>,
    /// The first NetworkPolicies that select a pod of the Service.
    pub(crate) policies: Vec<&'s Policy>,
    pub(crate) has_more_policies: bool,
    pub(crate) problem: Option<&'static str>,
    /// Notes about what is not known.
    pub(crate) notes: Vec<String>,
}

/// A way with its route.
pub(super) type RouteWay<'s> = (&'s Route, &'s Way);

/// The addresses of a Service by pod and address, and whether they are ready. The same pod may be in several slices.
type Addresses<'s> = BTreeMap<(Option<&'s Key>, &'s str), bool>;

/// The endpoints of all Services.
pub(super) struct Endpoints<'a, 's> {
    subject: &'a Subject,
    pub(super) seen: &'s Seen,
    addresses: BTreeMap<&'s Key, Addresses<'s>>,
    /// The names of the ports of the ready addresses of each Service.
    ready_ports: BTreeMap<&'s Key, BTreeSet<&'s str>>,
    /// The positions of the first policies that select a pod.
    policies: BTreeMap<&'s Key, Vec<usize>>,
}

impl<'a, 's> Endpoints<'a, 's> {
    /// Arranges the endpoints of all Services.
    pub(super) fn of(subject: &'a Subject, seen: &'s Seen) -> Self {
        let mut addresses: BTreeMap<&'s Key, Addresses<'s>> = BTreeMap::new();
        let mut ready_ports: BTreeMap<&'s Key, BTreeSet<&'s str>> = BTreeMap::new();
        for slice in &seen.slices {
            let publishes = seen.services.get(&slice.service).is_some_and(|service| service.publishes_not_ready);
            let known = addresses.entry(&slice.service).or_default();
            let mut has_ready = false;
            for one in &slice.addresses {
                let is_ready = if publishes { one.is_serving } else { one.is_ready };
                has_ready |= is_ready;
                let ip = if one.pod.is_some() { "" } else { one.ip.as_str() };
                *known.entry((one.pod.as_ref(), ip)).or_default() |= is_ready;
            }
            if has_ready {
                ready_ports.entry(&slice.service).or_default().extend(slice.ports.iter().map(String::as_str));
            }
        }
        Self { subject, seen, addresses, ready_ports, policies: BTreeMap::new() }
    }

    /// Reads which policies select the pods of a Service.
    pub(super) fn select_policies(&mut self, service: &Key) {
        let seen = self.seen;
        let pods = self.addresses.get(service).into_iter().flatten().filter_map(|((pod, _), _)| *pod);
        for pod in pods.filter_map(|pod| seen.pods.get(pod)) {
            let selecting = || {
                let all = seen.policies.iter().enumerate().filter(|(_, policy)| policy.selects(pod));
                // One more shows that there are further ones.
                all.map(|(at, _)| at).take(POLICIES + 1).collect()
            };
            self.policies.entry(&pod.key).or_insert_with(selecting);
        }
    }

    fn has_ready(&self, service: &Key) -> bool {
        self.addresses.get(service).is_some_and(|all| all.values().any(|is_ready| *is_ready))
    }

    fn has_ready_port(&self, service: &Key, name: &str) -> bool {
        self.ready_ports.get(service).is_some_and(|ports| ports.contains(name))
    }

    /// Returns whether requests to a Service do not arrive, as its flow says.
    pub(super) fn is_broken(&self, key: &Key, ways: &[RouteWay<'_>]) -> bool {
        let Some(service) = self.seen.services.get(key) else {
            return self.seen.unread(Listed::Services, key).is_none();
        };
        self.is_without_ready(service) || ways.iter().any(|(_, way)| self.way_problem(service, way).is_some())
    }

    /// Returns whether a Service has no ready endpoint, or none for any of its ports.
    fn is_without_ready(&self, service: &Service) -> bool {
        if service.is_external_name() || self.seen.unread(Listed::Slices, &service.key).is_some() {
            return false;
        }
        !self.has_ready(&service.key) || self.has_only_dead_ports(service)
    }

    fn has_only_dead_ports(&self, service: &Service) -> bool {
        let mut ports = service.ports.iter();
        !service.ports.is_empty()
            && !service.has_more_ports
            && ports.all(|port| !self.has_ready_port(&service.key, &port.name))
    }

    /// Returns why requests of a way do not reach a pod by their port.
    pub(super) fn way_problem(&self, service: &Service, way: &Way) -> Option<String> {
        let Backend::Service(_, port) = &way.backend else { return None };
        // A name of another host has the ports of that host.
        if service.has_more_ports || service.is_external_name() {
            return None;
        }
        let label = match port {
            PortRef::Unneeded => return None,
            PortRef::Absent => return Some("the route names no port".to_owned()),
            PortRef::Number(number) => number.to_string(),
            PortRef::Name(name) => name.clone(),
        };
        let is_it = |one: &&Port| match port {
            PortRef::Number(number) => one.number == *number,
            PortRef::Name(name) => one.name == *name,
            PortRef::Absent | PortRef::Unneeded => false,
        };
        let mut ports = service.ports.iter().filter(is_it).peekable();
        if ports.peek().is_none() {
            return Some(format!("port {label} is not a port of the Service"));
        }
        // Without any ready pod, the Service has the problem.
        let key = &service.key;
        let is_known = self.seen.unread(Listed::Slices, key).is_none() && self.has_ready(key);
        let is_dead = is_known && !ports.any(|one| self.has_ready_port(key, &one.name));
        is_dead.then(|| format!("no ready pod for port {label}"))
    }

    fn workload(&self, pod: &Key) -> Option<Key> {
        let owner = || self.seen.pods.get(pod).and_then(|pod| pod.owner.as_ref());
        self.subject.workloads.get(pod).or_else(owner).cloned()
    }

    /// Returns what is behind a Service.
    pub(super) fn of_service(&self, service: &Service) -> Behind<'s> {
        if service.is_external_name() {
            return Behind::default();
        }
        let known = self.addresses.get(&service.key);
        let mut all: Vec<(Option<&Key>, &str, bool)> =
            known.into_iter().flatten().map(|((pod, ip), is_ready)| (*pod, *ip, *is_ready)).collect();
        let ready = all.iter().filter(|(.., is_ready)| *is_ready).count();
        let not_ready = all.len() - ready;
        let positions: BTreeSet<usize> =
            all.iter().filter_map(|(pod, ..)| self.policies.get((*pod)?)).flatten().copied().collect();
        let problem = self.is_without_ready(service).then(|| match ready {
            0 => self.without_ready(service),
            _ => "no ready pod for any port of the Service",
        });
        let has_more_policies = positions.len() > POLICIES;
        all.sort_by_key(|(.., is_ready)| *is_ready);
        let endpoint = |(pod, ip, is_ready): (Option<&Key>, &str, bool)| Endpoint {
            pod: pod.cloned(),
            ip: ip.to_owned(),
            is_ready,
            workload: pod.and_then(|pod| self.workload(pod)),
        };
        Behind {
            ready,
            not_ready,
            endpoints: all.into_iter().take(PODS).map(endpoint).collect(),
            policies: positions.into_iter().take(POLICIES).filter_map(|at| self.seen.policies.get(at)).collect(),
            has_more_policies,
            problem,
            notes: self.notes(&service.key),
        }
    }

    /// Returns the problem of a Service without ready endpoints.
    fn without_ready(&self, service: &Service) -> &'static str {
        let mut pods = self.seen.pods.values().filter(|pod| pod.is_active());
        if service.selector.is_empty() {
            "no ready endpoint"
        } else if self.seen.unread(Listed::Pods, &service.key).is_some() || pods.any(|pod| service.selects(pod)) {
            "no ready pod"
        } else {
            "no ready pod: the Service selects none"
        }
    }

    /// Returns what is not known about the endpoints of a Service.
    fn notes(&self, service: &Key) -> Vec<String> {
        let unread = |listed| self.seen.unread(listed, service);
        let endpoints = unread(Listed::Slices).map(|why| format!("Not all endpoints are known: {why}."));
        let policies = unread(Listed::Policies).or_else(|| unread(Listed::Pods));
        let policies = policies.map(|why| format!("Not all NetworkPolicies of the pods are known: {why}."));
        endpoints.into_iter().chain(policies).collect()
    }
}
