//! Arranges the objects of a network: one flow for each Service, from the routes to the pods, with its problems.
//!
//! Invariant: an object is called missing only if the list of its namespace was read as a whole. Invariant: the number of
//! flows, of routes and of pods is limited, and the picture has the number of those that are left out.

use std::collections::{BTreeMap, BTreeSet};

use super::object::{Pod, Policy, Service};
use super::route::{Backend, PortRef, Route, Way};
use super::seen::{Listed, Seen, Subject};
use mainstay_object::Key;

/// Maximum number of flows and of routes, and of pods and of routes of a flow.
const FLOWS: usize = 100;
const ROUTES: usize = 100;
const PODS: usize = 20;
const ARRIVALS: usize = 20;

/// The ways of a route to one target.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals<'s> {
    pub(crate) route: &'s Route,
    /// The ways, each with its problem.
    pub(crate) ways: Vec<(&'s Way, Option<String>)>,
}

/// The receiver of the requests of a flow.
#[derive(Clone, Debug)]
pub(crate) enum Target<'s> {
    Service(&'s Service),
    /// A Service that does not exist.
    Missing(Key),
    /// A Service that was not read, and the reason.
    Unread(Key, String),
    /// A receiver that is not a Service, in words.
    Other(&'s str),
}

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
    /// The NetworkPolicies that select a pod of the Service.
    pub(crate) policies: Vec<&'s Policy>,
    pub(crate) problem: Option<&'static str>,
    /// Notes about what is not known.
    pub(crate) notes: Vec<String>,
}

/// Requests on their way: routes, their target, and what is behind it.
#[derive(Clone, Debug)]
pub(crate) struct Flow<'s> {
    pub(crate) arrivals: Vec<Arrivals<'s>>,
    /// Number of further routes to the target.
    pub(crate) more: usize,
    /// A note if not all routes to the target are known.
    pub(crate) note: Option<String>,
    pub(crate) target: Target<'s>,
    pub(crate) behind: Behind<'s>,
}

impl Flow<'_> {
    /// Returns whether requests do not arrive.
    pub(crate) fn is_broken(&self) -> bool {
        let is_wrong = |arrivals: &Arrivals<'_>| arrivals.ways.iter().any(|(_, problem)| problem.is_some());
        matches!(self.target, Target::Missing(_)) || self.behind.problem.is_some() || self.arrivals.iter().any(is_wrong)
    }
}

/// The picture of a network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Picture<'s> {
    /// The flows, the broken ones first.
    pub(crate) flows: Vec<Flow<'s>>,
    /// Number of Services and other targets that are left out.
    pub(crate) more_flows: usize,
    pub(crate) routes: usize,
    /// Number of routes that are left out.
    pub(crate) more_routes: usize,
}

/// Arranges what was read about an application.
pub(crate) fn picture<'s>(subject: &Subject, seen: &'s Seen) -> Picture<'s> {
    let services = services(subject, seen);
    let mut routes: Vec<&Route> = seen
        .routes
        .iter()
        .filter(|route| subject.own.contains(&route.key) || route.services().any(|key| services.contains(key)))
        .collect();
    routes.sort_by_cached_key(|route| (!subject.own.contains(&route.key), route.key.clone()));
    let more_routes = routes.len().saturating_sub(ROUTES);
    routes.truncate(ROUTES);
    let behind = Endpoints::of(subject, seen);
    let mut flows: Vec<Flow<'s>> = services.into_iter().map(|key| flow(key, &routes, &behind)).collect();
    flows.extend(others(subject, &routes));
    flows.sort_by_key(|flow| !flow.is_broken());
    let more_flows = flows.len().saturating_sub(FLOWS);
    flows.truncate(FLOWS);
    Picture { flows, more_flows, routes: routes.len(), more_routes }
}

/// Returns the Services of the application: its own, those that select one of its pods, and those that its routes name.
fn services(subject: &Subject, seen: &Seen) -> BTreeSet<Key> {
    let mut all: BTreeSet<Key> = subject.own.iter().filter(|key| key.is("", "Service")).cloned().collect();
    let pods: Vec<&Pod> = seen.pods.values().filter(|pod| subject.own.contains(&pod.key)).collect();
    let selecting = seen.services.values().filter(|service| pods.iter().any(|pod| service.selects(pod)));
    all.extend(selecting.map(|service| service.key.clone()));
    let own = seen.routes.iter().filter(|route| subject.own.contains(&route.key));
    all.extend(own.flat_map(Route::services).cloned());
    all
}

/// Returns the flow of a Service.
fn flow<'s>(key: Key, routes: &[&'s Route], behind: &Endpoints<'_, 's>) -> Flow<'s> {
    let seen = behind.seen;
    let target = match (seen.services.get(&key), seen.unread(Listed::Services, &key)) {
        (Some(service), _) => Target::Service(service),
        (None, None) => Target::Missing(key.clone()),
        (None, Some(why)) => Target::Unread(key.clone(), why.to_owned()),
    };
    let problem = |port: &PortRef| match &target {
        Target::Service(service) => port_problem(service, port),
        Target::Missing(_) | Target::Unread(..) | Target::Other(_) => None,
    };
    let arrives = |&route: &&'s Route| {
        let ways = route.ways.iter().filter_map(|way| match &way.backend {
            Backend::Service(to, port) if *to == key => Some((way, problem(port))),
            Backend::Service(..) | Backend::Other(_) => None,
        });
        let ways: Vec<_> = ways.collect();
        (!ways.is_empty()).then_some(Arrivals { route, ways })
    };
    let mut arrivals: Vec<Arrivals<'s>> = routes.iter().filter_map(arrives).collect();
    let more = arrivals.len().saturating_sub(ARRIVALS);
    arrivals.truncate(ARRIVALS);
    let behind = match &target {
        Target::Service(service) => behind.of_service(service),
        Target::Missing(_) | Target::Unread(..) | Target::Other(_) => Behind::default(),
    };
    let note = seen.unread(Listed::Routes, &key).map(|why| format!("Not all routes are known: {why}."));
    Flow { arrivals, more, note, target, behind }
}

/// Returns a flow for each way of the application's routes that does not end at a Service.
fn others<'s>(subject: &Subject, routes: &[&'s Route]) -> Vec<Flow<'s>> {
    let own = routes.iter().filter(|route| subject.own.contains(&route.key));
    let mut all: BTreeMap<(&Key, &'s str), Flow<'s>> = BTreeMap::new();
    for route in own.copied() {
        for way in &route.ways {
            let Backend::Other(words) = &way.backend else { continue };
            let words = words.as_str();
            let flow = all.entry((&route.key, words)).or_insert_with(|| Flow {
                arrivals: vec![Arrivals { route, ways: Vec::new() }],
                more: 0,
                note: None,
                target: Target::Other(words),
                behind: Behind::default(),
            });
            flow.arrivals[0].ways.push((way, None));
        }
    }
    all.into_values().collect()
}

/// Returns why a Service has no such port.
fn port_problem(service: &Service, port: &PortRef) -> Option<String> {
    // A name of another host has the ports of that host.
    if service.has_more_ports || service.is_external_name() {
        return None;
    }
    match port {
        PortRef::Unneeded => None,
        PortRef::Absent => Some("the route names no port".to_owned()),
        PortRef::Number(number) => {
            let has_port = service.ports.iter().any(|one| one.number == *number);
            (!has_port).then(|| format!("port {number} is not a port of the Service"))
        }
        PortRef::Name(name) => {
            let has_port = service.ports.iter().any(|one| one.name == *name);
            (!has_port).then(|| format!("port {name} is not a port of the Service"))
        }
    }
}

/// The addresses of a Service by pod and address, and whether they are ready. The same pod may be in several slices.
type Addresses<'s> = BTreeMap<(Option<&'s Key>, &'s str), bool>;

/// The endpoints of all Services.
struct Endpoints<'a, 's> {
    subject: &'a Subject,
    seen: &'s Seen,
    addresses: BTreeMap<&'s Key, Addresses<'s>>,
    /// The positions of the policies that select a pod.
    policies: BTreeMap<&'s Key, Vec<usize>>,
}

impl<'a, 's> Endpoints<'a, 's> {
    fn of(subject: &'a Subject, seen: &'s Seen) -> Self {
        let mut addresses: BTreeMap<&'s Key, Addresses<'s>> = BTreeMap::new();
        for slice in &seen.slices {
            let known = addresses.entry(&slice.service).or_default();
            for one in &slice.addresses {
                let ip = if one.pod.is_some() { "" } else { one.ip.as_str() };
                *known.entry((one.pod.as_ref(), ip)).or_default() |= one.is_ready;
            }
        }
        let selecting = |pod: &Pod| -> Vec<usize> {
            let all = seen.policies.iter().enumerate();
            all.filter(|(_, policy)| policy.selects(pod)).map(|(at, _)| at).collect()
        };
        let policies = seen.pods.values().map(|pod| (&pod.key, selecting(pod))).collect();
        Self { subject, seen, addresses, policies }
    }

    fn workload(&self, pod: &Key) -> Option<Key> {
        let owner = || self.seen.pods.get(pod).and_then(|pod| pod.owner.as_ref());
        self.subject.workloads.get(pod).or_else(owner).cloned()
    }

    fn of_service(&self, service: &Service) -> Behind<'s> {
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
        let unread = self.seen.unread(Listed::Slices, &service.key);
        let problem = (ready == 0 && unread.is_none()).then(|| self.without_ready(service));
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
            policies: positions.into_iter().filter_map(|at| self.seen.policies.get(at)).collect(),
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::seen::Part;
    use super::*;

    const ALL: [Listed; 5] = [Listed::Routes, Listed::Services, Listed::Slices, Listed::Pods, Listed::Policies];

    /// An object with its list, its group, its kind, and `NAMESPACE/NAME`.
    type Live<'a> = (Listed, &'a str, &'a str, &'a str, Value);

    /// Returns what was read of the namespaces `shop` and `other`.
    fn seen(objects: &[Live<'_>]) -> Seen {
        let mut seen = Seen::default();
        for (listed, group, kind, name, live) in objects {
            let (namespace, name) = name.split_once('/').unwrap();
            seen.add(Part::of(*listed, Key::new(*group, *kind, Some(namespace), name), live).unwrap());
        }
        for (listed, namespace) in ALL.into_iter().flat_map(|listed| [(listed, "shop"), (listed, "other")]) {
            seen.set_read(listed, namespace, None);
        }
        seen
    }

    fn service(name: &str, spec: Value) -> Live<'_> {
        (Listed::Services, "", "Service", name, json!({ "spec": spec }))
    }

    fn slice(name: &str, endpoints: Value) -> Live<'_> {
        let labels = json!({"kubernetes.io/service-name": name.split_once('/').unwrap().1});
        let live = json!({"metadata": {"labels": labels}, "endpoints": endpoints});
        (Listed::Slices, "discovery.k8s.io", "EndpointSlice", name, live)
    }

    fn pod<'a>(name: &'a str, app: &str) -> Live<'a> {
        (Listed::Pods, "", "Pod", name, json!({"metadata": {"labels": {"app": app}}}))
    }

    /// Returns an Ingress with a way for each Service and port.
    fn ingress<'a>(name: &'a str, backends: &[(&str, Value)]) -> Live<'a> {
        let path = |(name, port): &(&str, Value)| json!({"backend": {"service": {"name": name, "port": port}}});
        let paths: Vec<Value> = backends.iter().map(path).collect();
        (Listed::Routes, "networking.k8s.io", "Ingress", name, json!({"spec": {"rules": [{"http": {"paths": paths}}]}}))
    }

    fn endpoint(pod: &str, is_ready: bool) -> Value {
        json!({"addresses": ["10.0.0.1"], "conditions": {"ready": is_ready}, "targetRef": {"kind": "Pod", "name": pod}})
    }

    /// Returns an application of these objects, each `GROUP KIND NAME` of the namespace `shop`.
    fn subject(own: &[(&str, &str, &str)]) -> Subject {
        let keys = own.iter().map(|(group, kind, name)| Key::new(*group, *kind, Some("shop"), *name));
        Subject { own: keys.collect(), ..Subject::default() }
    }

    fn target(flow: &Flow<'_>) -> String {
        match &flow.target {
            Target::Service(service) => service.key.to_string(),
            Target::Missing(key) => format!("missing {key}"),
            Target::Unread(key, why) => format!("unread {key}: {why}"),
            Target::Other(words) => format!("<{words}>"),
        }
    }

    /// Returns the flows: routes, problems of their ways, target, counts and problem of the endpoints.
    fn shown(picture: &Picture<'_>) -> Vec<String> {
        let one = |flow: &Flow<'_>| {
            let ways = |one: &Arrivals<'_>| {
                let problems: Vec<&str> = one.ways.iter().filter_map(|(_, problem)| problem.as_deref()).collect();
                format!("{}[{}]", one.route.key.name, problems.join("; "))
            };
            let routes: Vec<String> = flow.arrivals.iter().map(ways).collect();
            let Behind { ready, not_ready, problem, .. } = &flow.behind;
            format!("{} > {} > {ready}+{not_ready} {}", routes.join(" "), target(flow), problem.unwrap_or("fine"))
        };
        picture.flows.iter().map(one).collect()
    }

    const OWN_INGRESS: (&str, &str, &str) = ("networking.k8s.io", "Ingress", "web");

    #[test]
    fn a_flow_goes_from_the_route_over_the_service_to_ready_pods() {
        let ports = json!({"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]});
        let all = seen(&[
            ingress("shop/web", &[("web", json!({"number": 80})), ("web", json!({"name": "http"}))]),
            service("shop/web", ports.clone()),
            service("shop/foreign", json!({"selector": {"app": "foreign"}})),
            slice("shop/web", json!([endpoint("web-1", true), endpoint("web-2", false), endpoint("web-1", false)])),
            pod("shop/web-1", "web"),
            pod("shop/foreign-1", "foreign"),
            (Listed::Policies, "networking.k8s.io", "NetworkPolicy", "shop/deny", json!({"spec": {"podSelector": {}}})),
            (
                Listed::Policies,
                "networking.k8s.io",
                "NetworkPolicy",
                "other/deny",
                json!({"spec": {"podSelector": {}}}),
            ),
        ]);
        for own in [OWN_INGRESS, ("", "Service", "web"), ("", "Pod", "web-1")] {
            let subject = subject(&[own]);
            let picture = picture(&subject, &all);
            assert_eq!(shown(&picture), ["web[] > Service shop/web > 1+1 fine"], "{own:?}");
            let behind = &picture.flows[0].behind;
            let names: Vec<_> = behind.endpoints.iter().map(|one| one.pod.clone().unwrap().name.to_string()).collect();
            assert_eq!(names, ["web-2", "web-1"], "a pod that is not ready is the first");
            let policies: Vec<String> = behind.policies.iter().map(|one| one.key.to_string()).collect();
            assert_eq!(policies, ["NetworkPolicy.networking.k8s.io shop/deny"]);
        }
        assert_eq!(shown(&picture(&Subject::default(), &all)), Vec::<String>::new());
    }

    #[test]
    fn missing_services_wrong_ports_and_services_without_pods_are_problems() {
        let number = |port: u64| json!({ "number": port });
        let all = seen(&[
            ingress(
                "shop/web",
                &[("gone", number(80)), ("web", number(8080)), ("web", json!({"name": "x"})), ("web", json!({}))],
            ),
            service("shop/web", json!({"selector": {"app": "web"}, "ports": [{"port": 80}]})),
        ]);
        let of_web =
            "port 8080 is not a port of the Service; port x is not a port of the Service; the route names no port";
        let subject = subject(&[OWN_INGRESS]);
        assert_eq!(
            shown(&picture(&subject, &all)),
            [
                "web[] > missing Service shop/gone > 0+0 fine".to_owned(),
                format!("web[{of_web}] > Service shop/web > 0+0 no ready pod: the Service selects none"),
            ]
        );
        let own = Subject { own: [Key::new("", "Service", Some("shop"), "db")].into(), ..Subject::default() };
        let check = |spec: Value, more: &[Live<'_>], expected: &str| {
            let all = seen(&[&[service("shop/db", spec.clone())][..], more].concat());
            assert_eq!(shown(&picture(&own, &all)), [format!(" > Service shop/db > {expected}")], "{spec}");
        };
        check(json!({"selector": {}}), &[], "0+0 no ready endpoint");
        check(json!({"selector": {}}), &[slice("shop/db", json!([{"addresses": ["192.0.2.1"]}]))], "1+0 fine");
        check(json!({"selector": {"app": "db"}}), &[pod("shop/db-1", "db")], "0+0 no ready pod");
        check(json!({"type": "ExternalName", "externalName": "db.example.com"}), &[], "0+0 fine");
        check(
            json!({"clusterIP": "None", "selector": {"app": "db"}}),
            &[slice("shop/db", json!([endpoint("db-1", true)]))],
            "1+0 fine",
        );
    }

    #[test]
    fn a_service_is_missing_only_if_its_namespace_was_read() {
        let rule = json!({"backendRefs": [{"name": "a", "namespace": "other", "port": 1}, {"name": "b", "namespace": "third", "port": 1},
            {"group": "example.com", "kind": "Bucket", "name": "c"}]});
        let route =
            (Listed::Routes, "gateway.networking.k8s.io", "HTTPRoute", "shop/web", json!({"spec": {"rules": [rule]}}));
        let mut all = seen(&[route]);
        let subject = subject(&[("gateway.networking.k8s.io", "HTTPRoute", "web")]);
        assert_eq!(all.namespaces_of_backends(&subject).into_iter().collect::<Vec<_>>(), ["other", "third"]);
        let third = "web[] > unread Service third/b: this page does not read its namespace > 0+0 fine";
        let other = "web[] > <Bucket c> > 0+0 fine";
        assert_eq!(shown(&picture(&subject, &all)), ["web[] > missing Service other/a > 0+0 fine", third, other]);
        all.set_read(Listed::Services, "other", Some("you may not".to_owned()));
        let unread = "web[] > unread Service other/a: you may not > 0+0 fine";
        assert_eq!(shown(&picture(&subject, &all)), [unread, third, other]);
        let notes: Vec<_> = picture(&subject, &all).flows.into_iter().map(|flow| flow.note).collect();
        let third = "Not all routes are known: this page does not read its namespace.".to_owned();
        assert_eq!(notes, [None, Some(third), None]);
    }

    #[test]
    fn unknown_endpoints_are_no_problem_and_large_networks_are_cut() {
        let mut all = seen(&[service("shop/web", json!({"selector": {"app": "web"}}))]);
        all.set_read(Listed::Slices, "shop", Some("you may not".to_owned()));
        let own = subject(&[("", "Service", "web")]);
        let unknown = picture(&own, &all);
        assert_eq!(shown(&unknown), [" > Service shop/web > 0+0 fine"]);
        assert_eq!(unknown.flows[0].behind.notes, ["Not all endpoints are known: you may not."]);

        let names: Vec<(String, String)> = (0..150).map(|at| (format!("shop/s{at}"), format!("shop/i{at}"))).collect();
        let objects: Vec<_> = names
            .iter()
            .flat_map(|(of_service, of_ingress)| {
                let endpoints: Vec<Value> = (0..30).map(|at| endpoint(&format!("p{at}"), true)).collect();
                [
                    service(of_service, json!({})),
                    ingress(of_ingress, &[("s0", json!({}))]),
                    slice(of_service, json!(endpoints)),
                ]
            })
            .collect();
        let all = seen(&objects);
        let own = Subject { own: all.services.keys().cloned().collect(), ..Subject::default() };
        let picture = picture(&own, &all);
        assert_eq!((picture.flows.len(), picture.more_flows), (FLOWS, 50));
        assert_eq!((picture.routes, picture.more_routes), (ROUTES, 50));
        let first = &picture.flows[0];
        assert_eq!((first.arrivals.len(), first.more), (ARRIVALS, ROUTES - ARRIVALS));
        assert_eq!((first.behind.ready, first.behind.endpoints.len()), (30, PODS));
    }
}
