//! The network of a GitSync or of a Function: from routes over Services to pods.
//!
//! Each flow is an item of a list with three parts. CSS draws the lines between the parts, so the page needs no script and no
//! picture.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::facts::address as host;
use super::parts;
use crate::address;
use crate::facts::Address;
use crate::network::{Arrivals, Behind, Endpoint, Flow, Picture, Policy, Service, Target};
use crate::text::{SHORT, plain};
use mainstay_object::{Key, counted};

/// Contents of the page.
pub(crate) struct NetworkPage<'p> {
    /// The GitSync or the Function.
    pub(crate) key: &'p Key,
    /// The picture; `None` for objects of a remote cluster, which are not read.
    pub(crate) picture: Option<&'p Picture<'p>>,
    pub(crate) notes: &'p [String],
}

/// Returns the page.
pub(crate) fn network(page: &NetworkPage<'_>) -> Markup {
    let NetworkPage { key, picture, notes } = page;
    html! {
        (parts::place(key, Some(html! { a href=(address::of_object(key)) { (key.name) } })))
        h1 { "Network of " (key.kind) " " (key.name) }
        p.quiet { "The hosts and paths that reach a Service, the Service, and the pods behind it." }
        @match picture {
            None => p.note {
                "The objects of this GitSync are in a remote cluster (" code { "spec.kubeConfig" } "). This page reads the network of its own cluster only."
            },
            Some(picture) => {
                @for note in *notes { (parts::note(note)) }
                (flows(picture))
            },
        }
    }
}

fn flows(picture: &Picture<'_>) -> Markup {
    let broken = picture.flows.iter().filter(|flow| flow.is_broken()).count();
    html! {
        @if picture.flows.is_empty() {
            p { "No Service and no route of it is known." }
        } @else {
            p.quiet role="status" {
                (counted(picture.flows.len(), "target")) ", " (counted(picture.routes, "route")) ", "
                @if broken == 0 { (parts::sign("good", "✔", "no problem is known")) }
                @else { (parts::sign("bad", "✖", &format!("{} with a problem", counted(broken, "target")))) }
            }
            ol.flows { @for flow in &picture.flows { (flow_of(flow)) } }
        }
        @if picture.more_flows > 0 { p.note { "and " (counted(picture.more_flows, "target")) " more" } }
        @if picture.more_routes > 0 { p.note { "and " (counted(picture.more_routes, "route")) " more" } }
    }
}

/// Returns the name of an object without its group.
fn name(key: &Key) -> String {
    let namespace = key.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    plain(&format!("{} {namespace}{}", key.kind, key.name), SHORT)
}

fn link(key: &Key) -> Markup {
    html! { a href=(address::of_object(key)) { (name(key)) } }
}

fn problem(text: &str) -> Markup {
    parts::sign("bad", "✖", text)
}

fn has_wrong_way(flow: &Flow<'_>) -> bool {
    flow.arrivals.iter().any(|one| one.ways.iter().any(|(_, wrong)| wrong.is_some()))
}

fn has_no_route(flow: &Flow<'_>) -> bool {
    flow.arrivals.is_empty() && flow.note.is_none()
}

fn flow_of(flow: &Flow<'_>) -> Markup {
    let label = match &flow.target {
        Target::Service(service) => name(&service.key),
        Target::Missing(key) | Target::Unread(key, _) => name(key),
        Target::Other(words) => (*words).to_owned(),
    };
    html! {
        li.flow.broken[flow.is_broken()] aria-label={ "Traffic to " (label) } {
            div.hop.broken[has_wrong_way(flow)].none[has_no_route(flow)] {
                p.hop-title { "Hosts and paths" }
                @if has_no_route(flow) { p.quiet { "No route of the kinds that this page reads leads here. Clients in the cluster may use it." } }
                @for one in &flow.arrivals { (arrivals(one, &flow.target)) }
                @if flow.more > 0 { p.quiet { "and " (counted(flow.more, "route")) " more" } }
                @if let Some(note) = &flow.note { p.quiet { (note) } }
            }
            div.hop.broken[matches!(flow.target, Target::Missing(_))] {
                p.hop-title { "Service" }
                @match &flow.target {
                    Target::Service(service) => (service_of(service)),
                    Target::Missing(key) => { p { (name(key)) } p { (problem("no such Service")) } },
                    Target::Unread(key, why) => { p { (name(key)) } p.quiet { "Not known: " (why) "." } },
                    Target::Other(words) => { p { (words) } p.quiet { "This target is not a Service." } },
                }
            }
            @if let Target::Service(service) = &flow.target {
                div.hop.broken[flow.behind.problem.is_some()] {
                    p.hop-title { "Behind the Service" }
                    @if service.is_external_name() { p { "The host " code { (service.external_name) } ", which this page does not check." } }
                    @else { (behind(&flow.behind)) }
                }
            }
        }
    }
}

/// Returns the ways of a route to a target.
fn arrivals(one: &Arrivals<'_>, target: &Target<'_>) -> Markup {
    let Arrivals { route, ways } = one;
    let to = match target {
        Target::Service(service) => service.key.namespace.as_deref(),
        Target::Missing(key) | Target::Unread(key, _) => key.namespace.as_deref(),
        Target::Other(_) => route.key.namespace.as_deref(),
    };
    let needs_grant = &*route.key.group == "gateway.networking.k8s.io" && to != route.key.namespace.as_deref();
    let of_ways = ways.iter().any(|(way, _)| way.host.is_some());
    html! {
        div.route {
            p { (link(&route.key)) }
            @if !route.hosts.is_empty() && !of_ways {
                p {
                    @for (at, one) in route.hosts.iter().enumerate() { @if at > 0 { ", " } (host(one)) }
                    @if route.has_more_hosts { " and more" }
                }
            }
            ul.ways {
                @for (way, wrong) in ways {
                    li {
                        @if let Some(one) = &way.host { (host_of(one, way.path.as_deref())) " " }
                        @if way.requests.is_empty() { "all requests" } @else { code { (way.requests) } }
                        @if let Some(wrong) = wrong { div { (problem(wrong)) } }
                    }
                }
            }
            @if route.more > 0 { p.quiet { (counted(route.more, "path")) " of this route are not shown" } }
            @if needs_grant { p.quiet { "needs a ReferenceGrant in " (plain(to.unwrap_or_default(), SHORT)) } }
        }
    }
}

/// Returns the host of a way. Its link opens the path of the way. With a path that may be a pattern, the host is no link.
fn host_of(one: &Address, path: Option<&str>) -> Markup {
    let is_plain = |path: &str| path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte));
    match (one, path) {
        (Address::Web { host: name, url }, Some(path)) if is_plain(path) && path.starts_with('/') => {
            host(&Address::Web { host: name.clone(), url: format!("{}{path}", url.trim_end_matches('/')) })
        }
        (Address::Web { host: name, .. }, Some(_)) => host(&Address::Text(name.clone())),
        _ => host(one),
    }
}

fn service_of(service: &Service) -> Markup {
    let kind = if service.is_headless() { "headless" } else { service.kind.as_str() };
    html! {
        p { (link(&service.key)) }
        p {
            (kind)
            @if !service.cluster_ip.is_empty() && !service.is_headless() { ", " code { (service.cluster_ip) } }
            @if service.selector.is_empty() && !service.is_external_name() { ", without a selector" }
        }
        @if !service.ports.is_empty() {
            ul.ways aria-label="Ports" {
                @for port in &service.ports { li { code { (port.text) } } }
                @if service.has_more_ports { li.quiet { "and more" } }
            }
        }
        @if service.external.is_empty() {
            @if service.kind == "LoadBalancer" { p { (parts::sign("wait", "◌", "no external address yet")) } }
        } @else {
            p { "From outside: " @for (at, one) in service.external.iter().enumerate() { @if at > 0 { ", " } code { (one) } } }
        }
    }
}

fn behind(behind: &Behind<'_>) -> Markup {
    let Behind { ready, not_ready, endpoints, policies, has_more_policies, problem: wrong, notes } = behind;
    let hidden = (ready + not_ready).saturating_sub(endpoints.len());
    html! {
        @if let Some(wrong) = wrong { p { (problem(wrong)) } }
        @if ready + not_ready > 0 { p { (ready) " ready, " (not_ready) " not ready" } }
        @for (workload, of_workload) in by_workload(endpoints) {
            div.route {
                @if let Some(workload) = workload { p { (link(workload)) } }
                ul.ways { @for one in of_workload { li { (endpoint(one)) } } }
            }
        }
        @if hidden > 0 { p.quiet { "and " (counted(hidden, "endpoint")) " more" } }
        @for policy in policies { p { (policy_of(policy)) } }
        @if *has_more_policies { p.quiet { "and more NetworkPolicies" } }
        @for note in notes { p.quiet { (note) } }
    }
}

/// Returns the endpoints of each workload.
fn by_workload(endpoints: &[Endpoint]) -> BTreeMap<Option<&Key>, Vec<&Endpoint>> {
    let mut all: BTreeMap<Option<&Key>, Vec<&Endpoint>> = BTreeMap::new();
    for one in endpoints {
        all.entry(one.workload.as_ref()).or_default().push(one);
    }
    all
}

fn endpoint(one: &Endpoint) -> Markup {
    let (class, symbol, word) = if one.is_ready { ("good", "✔", "ready") } else { ("wait", "◌", "not ready") };
    html! {
        @match &one.pod {
            Some(pod) => (link(pod)),
            None if one.ip.is_empty() => "an address",
            None => code { (one.ip) },
        }
        " " (parts::sign(class, symbol, word))
    }
}

fn policy_of(policy: &Policy) -> Markup {
    html! { (link(&policy.key)) " " (policy.ingress) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::network::{Listed, Part, Seen, Subject, picture};

    const HOSTILE: &str = "\"><script>x</script>";

    /// Returns the page of the Function `web` of the namespace `shop` with these objects.
    fn page(objects: &[(Listed, &str, &str, &str, Value)], unread: Option<Listed>) -> String {
        let mut seen = Seen::default();
        for (listed, group, kind, name, live) in objects {
            seen.add(Part::of(*listed, Key::new(*group, *kind, Some("shop"), *name), live).unwrap());
        }
        for one in [Listed::Routes, Listed::Services, Listed::Slices, Listed::Pods, Listed::Policies] {
            seen.set_read(one, "shop", (unread == Some(one)).then(|| "you may not".to_owned()));
        }
        let key = Key::new("serverless.kyma-project.io", "Function", Some("shop"), "web");
        let picture = picture(&Subject::of_function(&key), &seen);
        network(&NetworkPage { key: &key, picture: Some(&picture), notes: &[HOSTILE.to_owned()] }).into_string()
    }

    fn service(spec: Value) -> (Listed, &'static str, &'static str, &'static str, Value) {
        (Listed::Services, "", "Service", "web", json!({ "spec": spec }))
    }

    #[test]
    fn a_flow_has_its_hosts_ports_pods_and_policies() {
        let rule = json!({"host": "shop.example.com", "http": {"paths": [
            {"path": "/a", "backend": {"service": {"name": "web", "port": {"number": 81}}}},
        ]}});
        let labels = json!({"kubernetes.io/service-name": "web"});
        let endpoints = json!([
            {"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": "web-1"}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false}, "targetRef": {"kind": "Pod", "name": "web-2"}},
        ]);
        let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true});
        let pod = json!({"metadata": {"labels": {"app": "web"}, "ownerReferences": [owner]}});
        let all = [
            (Listed::Routes, "networking.k8s.io", "Ingress", "web", json!({"spec": {"rules": [rule]}})),
            service(
                json!({"type": "LoadBalancer", "clusterIP": "10.1.0.1", "selector": {"app": "web"}, "ports": [{"port": 80}]}),
            ),
            (
                Listed::Slices,
                "discovery.k8s.io",
                "EndpointSlice",
                "web-x",
                json!({"metadata": {"labels": labels}, "endpoints": endpoints, "ports": [{"port": 80}]}),
            ),
            (Listed::Pods, "", "Pod", "web-1", pod),
            (Listed::Policies, "networking.k8s.io", "NetworkPolicy", "deny", json!({"spec": {"podSelector": {}}})),
        ];
        let text = page(&all, None);
        for part in [
            "<li class=\"flow broken\" aria-label=\"Traffic to Service shop/web\">",
            "<a href=\"http://shop.example.com/a\" rel=\"noopener noreferrer\">shop.example.com</a>",
            "<code>/a</code>",
            "port 81 is not a port of the Service",
            "LoadBalancer, <code>10.1.0.1</code>",
            "no external address yet",
            "<code>80/TCP</code>",
            "1 ready, 1 not ready",
            "StatefulSet shop/web</a>",
            "Pod shop/web-2</a>",
            "NetworkPolicy shop/deny</a> permits no ingress",
            "1 target, 1 route, ",
            "1 target with a problem",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("style=") && !text.contains("<script>"), "{text}");
        let unread = page(&all, Some(Listed::Slices));
        assert!(unread.contains("Not all endpoints are known: you may not."), "{unread}");
    }

    #[test]
    fn the_link_of_a_host_opens_the_path_of_its_way() {
        let web = Address::Web { host: "a.example".to_owned(), url: "https://a.example/".to_owned() };
        let href = |path: Option<&str>| {
            let text = host_of(&web, path).into_string();
            assert!(text.contains("a.example"), "{text}");
            text.split("href=\"").nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned)
        };
        assert_eq!(href(Some("/shop/v1.2")).as_deref(), Some("https://a.example/shop/v1.2"));
        assert_eq!(href(Some("/")).as_deref(), Some("https://a.example/"));
        assert_eq!(href(None).as_deref(), Some("https://a.example/"));
        for pattern in ["/shop(/|$)(.*)", "/*", "/a\"b", "/a?b", "/a b", "", "x"] {
            assert_eq!(href(Some(pattern)), None, "{pattern}");
        }
    }

    #[test]
    fn a_host_with_a_path_with_a_space_is_no_link_to_another_path() {
        let path = |path: &str, kind: &str| json!({"path": path, "pathType": kind, "backend": {"service": {"name": "web", "port": {"number": 80}}}});
        let rule =
            json!({"host": "shop.example.com", "http": {"paths": [path("/admin b", "Exact"), path("/shop", "Exact")]}});
        let all = [
            (Listed::Routes, "networking.k8s.io", "Ingress", "web", json!({"spec": {"rules": [rule]}})),
            service(json!({"selector": {"app": "web"}, "ports": [{"port": 80}]})),
        ];
        let text = page(&all, None);
        assert!(text.contains("/admin b (Exact)") && !text.contains("shop.example.com/admin"), "{text}");
        assert!(text.contains("href=\"http://shop.example.com/shop\""), "{text}");
    }

    #[test]
    fn services_of_other_hosts_and_missing_services_have_words() {
        let external = page(&[service(json!({"type": "ExternalName", "externalName": HOSTILE}))], None);
        assert!(external.contains("ExternalName") && external.contains("no problem is known"), "{external}");
        assert!(external.contains("The host <code>&quot;&gt;&lt;script&gt;"), "{external}");
        let headless = page(&[service(json!({"clusterIP": "None"}))], None);
        assert!(
            headless.contains("headless, without a selector") && headless.contains("no ready endpoint"),
            "{headless}"
        );
        let missing = page(&[], None);
        assert!(missing.contains("no such Service"), "{missing}");
        let unread = page(&[], Some(Listed::Services));
        assert!(unread.contains("Not known: you may not.") && !unread.contains("no such Service"), "{unread}");
    }

    #[test]
    fn a_remote_cluster_has_a_note_and_no_picture() {
        let key = Key::new("mainstay.dev", "GitSync", Some("shop"), "far");
        let text = network(&NetworkPage { key: &key, picture: None, notes: &[] }).into_string();
        assert!(text.contains("in a remote cluster") && !text.contains("class=\"flow"), "{text}");
    }
}
