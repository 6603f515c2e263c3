//! Arranges the objects of a network: one flow for each Service, from the routes to the pods, with its problems.
//!
//! Invariant: an object is called missing only if the list of its namespace was read as a whole. Invariant: the number of
//! flows, of routes and of pods is limited, and the picture has the number of those that are left out.

use std::collections::{BTreeMap, BTreeSet};

use super::endpoints::{Behind, Endpoints, RouteWay};
use super::object::{Pod, Service};
use super::route::{Backend, Route, Way};
use super::seen::{Listed, Seen, Subject};
use mainstay_object::Key;

/// Maximum number of flows and of routes, and of routes of a flow.
const FLOWS: usize = 100;
const ROUTES: usize = 100;
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
    let ways = ways_of(&routes);
    let ways_to = |key: &Key| ways.get(key).map(Vec::as_slice).unwrap_or_default();
    let mut endpoints = Endpoints::of(subject, seen);
    // Only the flows of the page are built.
    let is_fine = |key: &Key| !endpoints.is_broken(key, ways_to(key));
    let mut services: Vec<(bool, Key)> = services.into_iter().map(|key| (is_fine(&key), key)).collect();
    services.sort_by_key(|(is_fine, _)| *is_fine);
    let mut others = others(subject, &routes);
    let more_flows = (services.len() + others.len()).saturating_sub(FLOWS);
    services.truncate(FLOWS);
    others.truncate(FLOWS - services.len());
    for (_, key) in &services {
        endpoints.select_policies(key);
    }
    let mut flows: Vec<Flow<'s>> = services.iter().map(|(_, key)| flow(ways_to(key), key, &endpoints)).collect();
    flows.extend(others);
    Picture { flows, more_flows, routes: routes.len(), more_routes }
}

/// Returns the ways to each Service, in the order of the routes.
fn ways_of<'s>(routes: &[&'s Route]) -> BTreeMap<&'s Key, Vec<RouteWay<'s>>> {
    let mut all: BTreeMap<&'s Key, Vec<RouteWay<'s>>> = BTreeMap::new();
    for route in routes.iter().copied() {
        for way in &route.ways {
            if let Backend::Service(to, _) = &way.backend {
                all.entry(to).or_default().push((route, way));
            }
        }
    }
    all
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

/// Returns the flow of a Service. The routes with a problem come first.
fn flow<'s>(ways: &[RouteWay<'s>], key: &Key, endpoints: &Endpoints<'_, 's>) -> Flow<'s> {
    let seen = endpoints.seen;
    let service = seen.services.get(key);
    let mut arrivals: Vec<Arrivals<'s>> = Vec::new();
    for &(route, way) in ways {
        let problem = service.and_then(|service| endpoints.way_problem(service, way));
        match arrivals.last_mut() {
            Some(last) if std::ptr::eq(last.route, route) => last.ways.push((way, problem)),
            _ => arrivals.push(Arrivals { route, ways: vec![(way, problem)] }),
        }
    }
    arrivals.sort_by_key(|one| one.ways.iter().all(|(_, problem)| problem.is_none()));
    let more = arrivals.len().saturating_sub(ARRIVALS);
    arrivals.truncate(ARRIVALS);
    let behind = service.map(|service| endpoints.of_service(service)).unwrap_or_default();
    let note = seen.unread(Listed::Routes, key).map(|why| format!("Not all routes are known: {why}."));
    let target = match (service, seen.unread(Listed::Services, key)) {
        (Some(service), _) => Target::Service(service),
        (None, None) => Target::Missing(key.clone()),
        (None, Some(why)) => Target::Unread(key.clone(), why.to_owned()),
    };
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::endpoints::{PODS, POLICIES};
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
        let ports = json!([{"name": "", "port": 80}, {"name": "http", "port": 8080}]);
        let live = json!({"metadata": {"labels": labels}, "endpoints": endpoints, "ports": ports});
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
    fn a_port_without_a_ready_pod_is_a_problem_of_its_ways() {
        let named = |name: &str| json!({ "name": name });
        // No pod has the port `web`.
        let ports = json!([{"name": "http", "port": 80}, {"name": "admin", "port": 81, "targetPort": "web"}]);
        let spec = json!({"selector": {"app": "web"}, "ports": ports});
        let routes =
            ingress("shop/web", &[("web", named("http")), ("web", named("admin")), ("web", json!({"number": 81}))]);
        let objects = [routes, service("shop/web", spec), slice("shop/web", json!([endpoint("web-1", true)]))];
        let subject = subject(&[OWN_INGRESS]);
        let mut all = seen(&objects);
        let of_admin = "no ready pod for port admin; no ready pod for port 81";
        assert_eq!(shown(&picture(&subject, &all)), [format!("web[{of_admin}] > Service shop/web > 1+0 fine")]);
        all.set_read(Listed::Slices, "shop", Some("you may not".to_owned()));
        assert_eq!(shown(&picture(&subject, &all)), ["web[] > Service shop/web > 1+0 fine"]);
        let dead = json!({"selector": {"app": "web"}, "ports": [{"name": "admin", "port": 81, "targetPort": "web"}]});
        let objects = [service("shop/web", dead), slice("shop/web", json!([endpoint("web-1", true)]))];
        let own = Subject { own: [Key::new("", "Service", Some("shop"), "web")].into(), ..Subject::default() };
        let expected = [" > Service shop/web > 1+0 no ready pod for any port of the Service"];
        assert_eq!(shown(&picture(&own, &seen(&objects))), expected);
    }

    #[test]
    fn a_service_that_publishes_pods_which_are_not_ready_needs_one_that_serves() {
        let own = Subject { own: [Key::new("", "Service", Some("shop"), "db")].into(), ..Subject::default() };
        let check = |publishes: bool, serving: bool, expected: &str| {
            let mut one = endpoint("db-1", true);
            one["conditions"]["serving"] = json!(serving);
            let spec = json!({"selector": {"app": "db"}, "publishNotReadyAddresses": publishes});
            let all = seen(&[service("shop/db", spec), slice("shop/db", json!([one])), pod("shop/db-1", "db")]);
            assert_eq!(shown(&picture(&own, &all)), [format!(" > Service shop/db > {expected}")]);
        };
        check(true, true, "1+0 fine");
        check(true, false, "0+1 no ready pod");
        check(false, false, "1+0 fine");
    }

    #[test]
    fn the_policies_of_a_service_are_limited() {
        let names: Vec<String> = (0..POLICIES + 5).map(|at| format!("shop/p{at}")).collect();
        let policy =
            |name| (Listed::Policies, "networking.k8s.io", "NetworkPolicy", name, json!({"spec": {"podSelector": {}}}));
        for (count, has_more) in [(POLICIES, false), (POLICIES + 1, true), (POLICIES + 5, true)] {
            let mut objects: Vec<Live<'_>> = names[..count].iter().map(|name| policy(name.as_str())).collect();
            objects.extend([
                service("shop/web", json!({"selector": {"app": "web"}})),
                slice("shop/web", json!([endpoint("web-1", true), endpoint("web-2", true)])),
                pod("shop/web-1", "web"),
                pod("shop/web-2", "web"),
            ]);
            let all = seen(&objects);
            let own = subject(&[("", "Service", "web")]);
            let picture = picture(&own, &all);
            let behind = &picture.flows[0].behind;
            assert_eq!((behind.policies.len(), behind.has_more_policies), (POLICIES, has_more));
        }
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
