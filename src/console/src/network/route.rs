//! Routes: which requests an Ingress, a route of the Gateway API, an APIRule, a VirtualService or a Service of Knative sends
//! to which Service.
//!
//! Invariant: hosts, paths and names are hostile. They are cut, and their numbers are limited.

use serde_json::Value;

use crate::facts::{Address, Facts, list, text, web};
use crate::field::text_at;
use crate::text::{SHORT, plain};
use mainstay_object::Key;
use mainstay_object::names::Scheme;

/// Maximum number of ways of a route, of hosts of a route, and of alternatives in the text of a way.
const WAYS: usize = 50;
const HOSTS: usize = 10;
const ALTERNATIVES: usize = 5;
/// Groups whose objects make routes. A page shows their own object instead.
const MAKERS: [&str; 3] = ["gateway.kyma-project.io/", "serving.knative.dev/", "networking.internal.knative.dev/"];
/// The host of a rule without one.
const ALL_HOSTS: &str = "all hosts";
const GATEWAY: &str = "gateway.networking.k8s.io";

/// The port of a Service that a route names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortRef {
    Number(u64),
    Name(String),
    /// The route has to name a port and does not.
    Absent,
    /// The route needs no port.
    Unneeded,
}

/// The receiver of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Service(Key, PortRef),
    /// A receiver that is not a Service, in words.
    Other(String),
}

/// A part of a route: some requests, and their receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// The host, if it is not that of the whole route.
    pub(crate) host: Option<Address>,
    /// The path of the requests, if the link of the host can have it: that of an Ingress.
    pub(crate) path: Option<String>,
    /// The requests, in words: a path, methods, or a share.
    pub(crate) requests: String,
    pub(crate) backend: Backend,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) key: Key,
    pub(crate) hosts: Vec<Address>,
    /// Whether the route has further hosts.
    pub(crate) has_more_hosts: bool,
    pub(crate) ways: Vec<Way>,
    /// Number of further ways.
    pub(crate) more: usize,
}

impl Route {
    /// Reads a route; `None` for other kinds, and for a route that an object with a route of its own has made.
    pub(crate) fn of(key: Key, live: &Value) -> Option<Self> {
        if is_made(live) {
            return None;
        }
        let mut ways = Ways::of(&key);
        let mut hosts = Facts::of(&key, live).addresses;
        match (&*key.group, &*key.kind) {
            ("networking.k8s.io", "Ingress") => ingress(live, &hosts, &mut ways),
            (GATEWAY, kind @ ("HTTPRoute" | "GRPCRoute" | "TLSRoute")) => {
                if kind != "HTTPRoute" {
                    hosts = texts(live, "/spec/hostnames");
                }
                gateway_route(kind, live, &mut ways);
            }
            ("gateway.kyma-project.io", "APIRule") => api_rule(live, &mut ways),
            ("networking.istio.io", "VirtualService") => {
                hosts = texts(live, "/spec/hosts");
                virtual_service(live, &mut ways);
            }
            ("serving.knative.dev", "Service") => {
                hosts = knative_host(live);
                knative_service(live, &mut ways);
            }
            _ => return None,
        }
        let has_more_hosts = hosts.len() > HOSTS;
        hosts.truncate(HOSTS);
        let Ways { all, more, .. } = ways;
        Some(Self { key, hosts, has_more_hosts, ways: all, more })
    }

    /// Returns the Services that the route names.
    pub(crate) fn services(&self) -> impl Iterator<Item = &Key> {
        self.ways.iter().filter_map(|way| match &way.backend {
            Backend::Service(key, _) => Some(key),
            Backend::Other(_) => None,
        })
    }

    /// Returns its approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let address = |one: &Address| match one {
            Address::InCluster(text) | Address::Text(text) => size_of::<Address>() + text.len(),
            Address::Web { host, url } => size_of::<Address>() + host.len() + url.len(),
        };
        let backend = |one: &Backend| match one {
            Backend::Service(key, _) => 100 + key.name.len(),
            Backend::Other(text) => text.len(),
        };
        let way = |one: &Way| {
            let texts = one.requests.len() + one.path.as_ref().map_or(0, String::len);
            size_of::<Way>() + one.host.as_ref().map_or(0, address) + texts + backend(&one.backend)
        };
        let ways: usize = self.ways.iter().map(way).sum();
        size_of::<Self>() + 100 + self.key.name.len() + self.hosts.iter().map(address).sum::<usize>() + ways
    }
}

/// The first ways of a route, and the number of the others.
struct Ways {
    namespace: String,
    all: Vec<Way>,
    more: usize,
}

impl Ways {
    fn of(key: &Key) -> Self {
        Self { namespace: key.namespace.as_deref().unwrap_or_default().to_owned(), all: Vec::new(), more: 0 }
    }

    fn add(&mut self, host: Option<Address>, requests: &str, backend: Backend) {
        self.push(Way { host, path: None, requests: plain(requests, SHORT), backend });
    }

    fn push(&mut self, way: Way) {
        if self.all.len() == WAYS {
            self.more += 1;
        } else {
            self.all.push(way);
        }
    }

    /// Returns the Service of this name; in the namespace of the route unless another one is given.
    fn service(&self, namespace: Option<&str>, name: &str, port: PortRef) -> Backend {
        let namespace = plain(namespace.unwrap_or(&self.namespace), SHORT);
        Backend::Service(Key::new("", "Service", Some(&namespace), plain(name, SHORT)), port)
    }
}

/// Returns strings of a list as hosts without links.
fn texts(live: &Value, pointer: &str) -> Vec<Address> {
    list(live, pointer)
        .filter_map(Value::as_str)
        .map(|host| Address::Text(plain(host, SHORT)))
        .take(HOSTS + 1)
        .collect()
}

fn is_made(live: &Value) -> bool {
    let mut owners = list(live, "/metadata/ownerReferences").filter_map(|owner| text(owner, "/apiVersion"));
    owners.any(|version| MAKERS.into_iter().any(|group| version.starts_with(group)))
}

/// Returns a port that has to be a number.
fn number(port: Option<&Value>) -> PortRef {
    port.and_then(Value::as_u64).map_or(PortRef::Absent, PortRef::Number)
}

/// Returns the receiver that an Ingress names.
fn ingress_backend(ways: &Ways, one: &Value) -> Backend {
    let Some(name) = text(one, "/service/name") else {
        let [kind, name] = ["/resource/kind", "/resource/name"].map(|pointer| text_at(one, pointer, SHORT));
        return Backend::Other(format!("{kind} {name}"));
    };
    let named = text(one, "/service/port/name").map(|name| PortRef::Name(plain(name, SHORT)));
    ways.service(None, name, named.unwrap_or_else(|| number(one.pointer("/service/port/number"))))
}

fn ingress(live: &Value, hosts: &[Address], ways: &mut Ways) {
    for rule in list(live, "/spec/rules") {
        let host =
            text(rule, "/host").map_or_else(|| Address::Text(ALL_HOSTS.to_owned()), |host| known_host(hosts, host));
        for path in list(rule, "/http/paths") {
            let of_path = text(path, "/path").unwrap_or("/");
            let requests = match text(path, "/pathType") {
                None | Some("Prefix") => of_path.to_owned(),
                Some(kind) => format!("{of_path} ({kind})"),
            };
            let backend = ingress_backend(ways, &path["backend"]);
            let (requests, path) = (plain(&requests, SHORT), Some(plain(of_path, SHORT)));
            ways.push(Way { host: Some(host.clone()), path, requests, backend });
        }
    }
    if let Some(one) = live.pointer("/spec/defaultBackend").filter(|one| one.is_object()) {
        let backend = ingress_backend(ways, one);
        ways.add(Some(Address::Text("other hosts".to_owned())), "and other paths", backend);
    }
}

/// Returns the address of a host of an Ingress.
fn known_host(hosts: &[Address], host: &str) -> Address {
    let is_it = |one: &&Address| match one {
        Address::Web { host: known, .. } => known.eq_ignore_ascii_case(host),
        Address::InCluster(_) | Address::Text(_) => false,
    };
    hosts.iter().find(is_it).cloned().unwrap_or_else(|| Address::Text(plain(host, SHORT)))
}

fn gateway_route(kind: &str, live: &Value, ways: &mut Ways) {
    for rule in list(live, "/spec/rules") {
        let requests = match kind {
            "HTTPRoute" => alternatives(list(rule, "/matches").map(http_match), "/"),
            "GRPCRoute" => alternatives(list(rule, "/matches").map(grpc_match), "all methods"),
            _ => String::new(),
        };
        let count = list(rule, "/backendRefs").take(2).count();
        if count == 0 {
            let mut filters = list(rule, "/filters").filter_map(|filter| text(filter, "/type"));
            let is_redirect = filters.any(|filter| filter == "RequestRedirect");
            let words = if is_redirect { "a redirect" } else { "no backend" };
            ways.add(None, &requests, Backend::Other(words.to_owned()));
        }
        for one in list(rule, "/backendRefs") {
            let name = text(one, "/name").unwrap_or_default();
            let backend = match (text(one, "/group"), text(one, "/kind")) {
                (None, None | Some("Service")) => ways.service(text(one, "/namespace"), name, number(one.get("port"))),
                (_, kind) => Backend::Other(plain(&format!("{} {name}", kind.unwrap_or_default()), SHORT)),
            };
            let weight = one.get("weight").and_then(Value::as_u64);
            ways.add(None, &shared(&requests, (count > 1 || weight == Some(0)).then(|| weight.unwrap_or(1))), backend);
        }
    }
}

/// Adds a weight to the requests of a way.
fn shared(requests: &str, weight: Option<u64>) -> String {
    match weight {
        None => requests.to_owned(),
        Some(weight) if requests.is_empty() => format!("weight {weight}"),
        Some(weight) => format!("{requests} (weight {weight})"),
    }
}

/// Joins the first alternatives. Without any, returns `all`.
fn alternatives(mut each: impl Iterator<Item = String>, all: &str) -> String {
    let first: Vec<String> = each.by_ref().take(ALTERNATIVES).collect();
    match (first.is_empty(), each.count()) {
        (true, _) => all.to_owned(),
        (false, 0) => first.join(", "),
        (false, more) => format!("{} and {more} more", first.join(", ")),
    }
}

fn http_match(one: &Value) -> String {
    let path = match (text(one, "/path/value").unwrap_or("/"), text(one, "/path/type")) {
        (path, None | Some("PathPrefix")) => path.to_owned(),
        (path, Some(kind)) => format!("{path} ({kind})"),
    };
    let method = text(one, "/method").map(|method| format!("{method} ")).unwrap_or_default();
    let has_more = ["/headers", "/queryParams"].into_iter().any(|pointer| list(one, pointer).next().is_some());
    format!("{method}{path}{}", if has_more { " with headers or parameters" } else { "" })
}

fn grpc_match(one: &Value) -> String {
    let part = |pointer| text(one, pointer).unwrap_or("*");
    format!("{}/{}", part("/method/service"), part("/method/method"))
}

fn api_rule(live: &Value, ways: &mut Ways) {
    for rule in list(live, "/spec/rules") {
        let methods = list(rule, "/methods").filter_map(Value::as_str).map(str::to_owned);
        let methods = alternatives(methods, "");
        let requests = format!("{methods} {}", text(rule, "/path").unwrap_or_default());
        let mut services = [rule.get("service"), live.pointer("/spec/service")].into_iter().flatten();
        let backend = match services.find_map(|service| Some((service, text(service, "/name")?))) {
            Some((service, name)) => ways.service(text(service, "/namespace"), name, number(service.get("port"))),
            None => Backend::Other("no Service".to_owned()),
        };
        ways.add(None, requests.trim(), backend);
    }
}

fn virtual_service(live: &Value, ways: &mut Ways) {
    for (pointer, all) in [("/spec/http", "/"), ("/spec/tls", "TLS"), ("/spec/tcp", "TCP")] {
        for rule in list(live, pointer) {
            let requests = if pointer == "/spec/http" {
                alternatives(list(rule, "/match").map(istio_match), all)
            } else {
                all.to_owned()
            };
            let count = list(rule, "/route").take(2).count();
            if count == 0 {
                ways.add(None, &requests, Backend::Other(without_route(&ways.namespace, rule)));
            }
            for one in list(rule, "/route") {
                let port = one.pointer("/destination/port/number");
                let port = port.map_or(PortRef::Unneeded, |port| number(Some(port)));
                let backend = destination(ways, text(one, "/destination/host").unwrap_or_default(), port);
                let weight = one.get("weight").and_then(Value::as_u64);
                ways.add(None, &shared(&requests, weight.filter(|_| count > 1)), backend);
            }
        }
    }
}

/// Returns the receiver of a rule of a VirtualService without routes, in words.
fn without_route(namespace: &str, rule: &Value) -> String {
    let Some(name) = text(rule, "/delegate/name") else { return "a redirect or a fixed response".to_owned() };
    let namespace = text(rule, "/delegate/namespace").unwrap_or(namespace);
    plain(&format!("routes of the VirtualService {namespace}/{name}"), SHORT)
}

fn istio_match(one: &Value) -> String {
    let forms = [("/uri/prefix", ""), ("/uri/exact", " (Exact)"), ("/uri/regex", " (Regex)")];
    let found = forms.into_iter().find_map(|(pointer, kind)| Some(format!("{}{kind}", text(one, pointer)?)));
    found.unwrap_or_else(|| "/ with conditions".to_owned())
}

/// Returns the Service that a host of Istio names. A name with a dot that is not of a Service is another host.
fn destination(ways: &Ways, host: &str, port: PortRef) -> Backend {
    let labels: Vec<&str> = host.split('.').take(6).collect();
    match labels.as_slice() {
        [name] if !name.is_empty() => ways.service(None, name, port),
        [name, namespace, "svc"] | [name, namespace, "svc", "cluster", "local"] => {
            ways.service(Some(*namespace), name, port)
        }
        _ => Backend::Other(format!("host {}", plain(host, SHORT))),
    }
}

fn knative_host(live: &Value) -> Vec<Address> {
    let (scheme, host) = text(live, "/status/url").and_then(|url| url.split_once("://")).unwrap_or_default();
    let scheme = if scheme == "https" { Scheme::Https } else { Scheme::Http };
    if host.is_empty() { Vec::new() } else { vec![web(scheme, host)] }
}

/// Adds the revisions of a Service of Knative. Each has a Service of the same name.
fn knative_service(live: &Value, ways: &mut Ways) {
    for one in list(live, "/status/traffic") {
        let Some(revision) = text(one, "/revisionName") else { continue };
        let percent = one.get("percent").and_then(Value::as_u64).unwrap_or_default();
        let tag = text(one, "/tag").map(|tag| format!(", tag {tag}")).unwrap_or_default();
        let backend = ways.service(None, revision, PortRef::Unneeded);
        ways.add(None, &format!("{percent} % of requests{tag}"), backend);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns each way of a route of the namespace `shop`, in one line.
    fn shown(group: &str, kind: &str, live: Value) -> Vec<String> {
        let route = Route::of(Key::new(group, kind, Some("shop"), "web"), &live).unwrap();
        let one = |way: Way| {
            let host = match way.host {
                Some(Address::Text(host) | Address::Web { host, .. } | Address::InCluster(host)) => format!("{host} "),
                None => String::new(),
            };
            let backend = match way.backend {
                Backend::Service(key, port) => {
                    format!("{}/{} {port:?}", key.namespace.as_deref().unwrap_or_default(), key.name)
                }
                Backend::Other(text) => format!("<{text}>"),
            };
            format!("{host}{} > {backend}", way.requests)
        };
        route.ways.into_iter().map(one).collect()
    }

    #[test]
    fn an_ingress_has_a_way_for_each_path_and_the_default_backend() {
        let backend = |name: &str, port: Value| json!({"service": {"name": name, "port": port}});
        let spec = json!({
            "rules": [{"host": "a.example.com", "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": backend("web", json!({"number": 80}))},
                {"path": "/x", "pathType": "Exact", "backend": backend("api", json!({"name": "http"}))},
                {"backend": {"resource": {"kind": "Bucket", "name": "static"}}}, null, 7,
            ]}}, {"host": 7, "http": {"paths": "x"}}],
            "defaultBackend": backend("rest", json!({})),
        });
        assert_eq!(
            shown("networking.k8s.io", "Ingress", json!({ "spec": spec }))[..3],
            [
                "a.example.com / > shop/web Number(80)",
                "a.example.com /x (Exact) > shop/api Name(\"http\")",
                "a.example.com / > <Bucket static>",
            ]
        );
        let all =
            shown("networking.k8s.io", "Ingress", json!({"spec": {"defaultBackend": backend("rest", json!({}))}}));
        assert_eq!(all, ["other hosts and other paths > shop/rest Absent"]);
        let rule = json!({"http": {"paths": [{"path": "/a", "backend": backend("web", json!({"number": 80}))}]}});
        let all = shown("networking.k8s.io", "Ingress", json!({"spec": {"rules": [rule]}}));
        assert_eq!(all, ["all hosts /a > shop/web Number(80)"]);
    }

    #[test]
    fn routes_of_the_gateway_api_name_services_of_their_own_and_of_other_namespaces() {
        let rule = json!({
            "matches": [{"path": {"value": "/a"}, "method": "GET"}, {"path": {"type": "Exact", "value": "/b"}, "headers": [{}]}],
            "backendRefs": [{"name": "web", "port": 80, "weight": 9}, {"name": "web", "namespace": "other"},
                {"group": "example.com", "kind": "Bucket", "name": "b"}],
        });
        let spec = json!({"spec": {"rules": [rule, {"filters": [{"type": "RequestRedirect"}]}, {}]}});
        assert_eq!(
            shown(GATEWAY, "HTTPRoute", spec),
            [
                "GET /a, /b (Exact) with headers or parameters (weight 9) > shop/web Number(80)",
                "GET /a, /b (Exact) with headers or parameters (weight 1) > other/web Absent",
                "GET /a, /b (Exact) with headers or parameters (weight 1) > <Bucket b>",
                "/ > <a redirect>",
                "/ > <no backend>",
            ]
        );
        let of = |matches: Value| json!({"spec": {"rules": [{"matches": matches, "backendRefs": [{"name": "a", "port": 1}]}]}});
        assert_eq!(
            shown(GATEWAY, "GRPCRoute", of(json!([{"method": {"service": "shop.Cart"}}]))),
            ["shop.Cart/* > shop/a Number(1)"]
        );
        assert_eq!(shown(GATEWAY, "TLSRoute", of(json!(null))), [" > shop/a Number(1)"]);
    }

    #[test]
    fn api_rules_virtual_services_and_knative_services_name_services() {
        let rule = json!({"spec": {"service": {"name": "web", "port": 80}, "rules": [
            {"path": "/.*", "methods": ["GET", "POST"]}, {"path": "/b", "service": {"name": "b", "namespace": "other", "port": 8080}},
        ]}});
        assert_eq!(
            shown("gateway.kyma-project.io", "APIRule", rule),
            ["GET, POST /.* > shop/web Number(80)", "/b > other/b Number(8080)"]
        );
        let to = |host: &str| json!({"destination": {"host": host}});
        let http = json!({"match": [{"uri": {"prefix": "/a"}}], "route": [to("web"), to("web.other.svc.cluster.local"), to("api.example.com")]});
        assert_eq!(
            shown("networking.istio.io", "VirtualService", json!({"spec": {"http": [http]}})),
            ["/a > shop/web Unneeded", "/a > other/web Unneeded", "/a > <host api.example.com>"]
        );
        let delegates =
            json!([{"delegate": {"name": "a"}}, {"delegate": {"name": "b", "namespace": "other"}}, {"redirect": {}}]);
        assert_eq!(
            shown("networking.istio.io", "VirtualService", json!({"spec": {"http": delegates}})),
            [
                "/ > <routes of the VirtualService shop/a>",
                "/ > <routes of the VirtualService other/b>",
                "/ > <a redirect or a fixed response>",
            ]
        );
        let traffic = json!({"status": {"url": "https://web.shop.example.com", "traffic": [{"revisionName": "web-1", "percent": 90}, {"latestRevision": true}]}});
        assert_eq!(shown("serving.knative.dev", "Service", traffic), ["90 % of requests > shop/web-1 Unneeded"]);
    }

    #[test]
    fn a_hostile_route_is_cut_and_one_that_an_object_has_made_is_left_out() {
        let path = json!({"path": "<b>".repeat(5000), "backend": {"service": {"name": "x".repeat(5000)}}});
        let live = json!({"spec": {"rules": [{"http": {"paths": vec![path; 200]}}]}});
        let key = Key::new("networking.k8s.io", "Ingress", Some("shop"), "web");
        let route = Route::of(key.clone(), &live).unwrap();
        assert_eq!((route.ways.len(), route.more), (WAYS, 150));
        assert!(route.bytes() < WAYS * 2 * 1024, "{}", route.bytes());
        assert_eq!(route.services().count(), WAYS);
        let made = json!({"metadata": {"ownerReferences": [{"apiVersion": "gateway.kyma-project.io/v1beta1"}]}});
        assert_eq!(Route::of(key, &made), None);
        assert_eq!(Route::of(Key::new("", "Service", Some("shop"), "web"), &json!({})), None);
    }
}
