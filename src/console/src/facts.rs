//! Facts of an object that pages show beside its health: how many containers of a pod are ready, and the addresses at
//! which an object can be reached.
//!
//! Invariant: names and hosts are hostile. An address is built from checked names only. Other hosts stay texts.

use serde_json::Value;

use crate::text::{SHORT, plain};
use mainstay_object::Key;
use mainstay_object::names::{DnsLabel, HostName, Scheme, ServiceHost, ServiceName};

/// Maximum number of addresses of an object.
const ADDRESSES: usize = 20;
/// Maximum number of containers of a pod that are counted.
const CONTAINERS: usize = 100;

/// The containers of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Containers {
    pub(crate) ready: usize,
    pub(crate) all: usize,
    /// Number of restarts of all containers.
    pub(crate) restarts: i64,
}

/// An address at which an object can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// Host and port of a Service, for programs in the cluster.
    InCluster(String),
    /// A host and its URL.
    Web { host: String, url: String },
    /// A host without a URL: a wildcard, or a label below a domain that the object does not name.
    Text(String),
}

/// Facts of a live object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The containers, if the object is a pod.
    pub(crate) containers: Option<Containers>,
    pub(crate) addresses: Vec<Address>,
}

impl Facts {
    /// Reads the facts of a live object.
    pub fn of(key: &Key, live: &Value) -> Self {
        let containers = key.is("", "Pod").then(|| Containers::of(live));
        Self { containers, addresses: addresses(key, live) }
    }

    /// Returns the approximate memory of the addresses in bytes.
    pub fn bytes(&self) -> usize {
        let text = |address: &Address| match address {
            Address::InCluster(text) | Address::Text(text) => text.len(),
            Address::Web { host, url } => host.len() + url.len(),
        };
        self.addresses.iter().map(|address| size_of::<Address>() + text(address)).sum()
    }
}

impl Containers {
    /// Counts the containers of a pod.
    pub(crate) fn of(pod: &Value) -> Self {
        let statuses = || list(pod, "/status/containerStatuses").take(CONTAINERS);
        let all = list(pod, "/spec/containers").take(CONTAINERS).count();
        let is_ready = |one: &&Value| one.get("ready") == Some(&Value::Bool(true));
        let restarts = statuses().filter_map(|one| one.get("restartCount")?.as_i64());
        Self {
            ready: statuses().filter(is_ready).count().min(all),
            all,
            restarts: restarts.fold(0, i64::saturating_add).max(0),
        }
    }
}

/// Returns the items of a list at a JSON pointer.
pub(crate) fn list<'v>(live: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> + use<'v> {
    live.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// Returns a string at a JSON pointer that is not empty.
pub(crate) fn text<'v>(live: &'v Value, pointer: &str) -> Option<&'v str> {
    live.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Returns the addresses of a Service, an Ingress, an HTTPRoute or an APIRule.
fn addresses(key: &Key, live: &Value) -> Vec<Address> {
    if key.is("", "Service") {
        of_service(key, live)
    } else if key.is("networking.k8s.io", "Ingress") {
        of_ingress(live)
    } else if key.is("gateway.networking.k8s.io", "HTTPRoute") {
        of_http_route(live)
    } else if key.is("gateway.kyma-project.io", "APIRule") {
        of_api_rule(live)
    } else {
        Vec::new()
    }
}

fn of_service(key: &Key, live: &Value) -> Vec<Address> {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let (Ok(service), Ok(namespace)) = (ServiceName::parse(&key.name), DnsLabel::parse(namespace)) else {
        return Vec::new();
    };
    let host = ServiceHost::new(service, namespace).to_string();
    let number = |port: &Value| u16::try_from(port.get("port")?.as_u64()?).ok().filter(|port| *port > 0);
    let ports: Vec<u16> = list(live, "/spec/ports").filter_map(number).take(ADDRESSES).collect();
    if ports.is_empty() {
        return vec![Address::InCluster(host)];
    }
    ports.into_iter().map(|port| Address::InCluster(format!("{host}:{port}"))).collect()
}

fn of_ingress(live: &Value) -> Vec<Address> {
    let covers = |pattern: &str, host: &str| {
        pattern == host || pattern.strip_prefix('*').is_some_and(|rest| rest.len() > 1 && host.ends_with(rest))
    };
    let is_secure = |host: &str| {
        list(live, "/spec/tls").any(|one| {
            let mut hosts = list(one, "/hosts").peekable();
            hosts.peek().is_none() || hosts.filter_map(Value::as_str).any(|pattern| covers(pattern, host))
        })
    };
    let hosts = list(live, "/spec/rules").filter_map(|rule| text(rule, "/host")).take(ADDRESSES);
    hosts.map(|host| web(if is_secure(host) { Scheme::Https } else { Scheme::Http }, host)).collect()
}

/// Returns the hosts of a route. Its gateway has the scheme, so the port or the listener of the route decides.
fn of_http_route(live: &Value) -> Vec<Address> {
    let is_plain = |parent: &Value| {
        parent.get("port").and_then(Value::as_u64) == Some(80) || text(parent, "/sectionName") == Some("http")
    };
    let scheme = if list(live, "/spec/parentRefs").any(is_plain) { Scheme::Http } else { Scheme::Https };
    let hosts = list(live, "/spec/hostnames").filter_map(Value::as_str).take(ADDRESSES);
    hosts.map(|host| web(scheme, host)).collect()
}

fn of_api_rule(live: &Value) -> Vec<Address> {
    let several = list(live, "/spec/hosts").filter_map(Value::as_str).take(ADDRESSES);
    let one = text(live, "/spec/host").or_else(|| text(live, "/spec/service/host"));
    several.chain(one).map(|host| web(Scheme::Https, host)).collect()
}

/// Returns a host with its URL, or without one if the host is not a valid name.
pub(crate) fn web(scheme: Scheme, host: &str) -> Address {
    match HostName::parse(host) {
        Ok(name) => Address::Web { url: format!("{}://{name}/", scheme.as_str()), host: name.to_string() },
        Err(_) => Address::Text(plain(host, SHORT)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the addresses of an object in the namespace `shop`, links in brackets.
    fn shown(group: &str, kind: &str, name: &str, spec: Value) -> Vec<String> {
        let key = Key::new(group, kind, Some("shop"), name);
        let one = |address: Address| match address {
            Address::InCluster(text) | Address::Text(text) => text,
            Address::Web { host, url } => format!("{host} [{url}]"),
        };
        Facts::of(&key, &json!({ "spec": spec })).addresses.into_iter().map(one).collect()
    }

    #[test]
    fn a_service_has_an_address_for_each_port() {
        let ports =
            json!({"ports": [{"port": 80}, {"port": 0}, {"port": 70_000}, {"port": "x"}, null, {"port": 9000}]});
        let host = "web.shop.svc.cluster.local";
        assert_eq!(shown("", "Service", "web", ports), [format!("{host}:80"), format!("{host}:9000")]);
        assert_eq!(shown("", "Service", "web", json!({"externalName": "evil.example"})), [host]);
        assert_eq!(shown("", "Service", "web/../x", json!({})), Vec::<String>::new());
        assert_eq!(shown("example.com", "Service", "web", json!({})), Vec::<String>::new());
    }

    #[test]
    fn hosts_are_links_of_the_scheme_that_serves_them() {
        let rules = json!([{"host": "a.example.com"}, {"host": "b.example.com"}, {"host": "*.example.com"}, {}]);
        let of = |tls: Value| shown("networking.k8s.io", "Ingress", "web", json!({"rules": rules, "tls": tls}));
        let [a, b, any] =
            ["a.example.com [http://a.example.com/]", "b.example.com [http://b.example.com/]", "*.example.com"];
        assert_eq!(of(json!(null)), [a, b, any]);
        assert_eq!(of(json!([{"hosts": ["b.example.com"]}])), [a, "b.example.com [https://b.example.com/]", any]);
        for all in [json!([{"hosts": ["*.example.com"]}]), json!([{"secretName": "tls"}])] {
            assert_eq!(of(all)[0], "a.example.com [https://a.example.com/]");
        }
        let route = |parent: Value| {
            let spec = json!({"parentRefs": [parent], "hostnames": ["web.example.com"]});
            shown("gateway.networking.k8s.io", "HTTPRoute", "web", spec)
        };
        assert_eq!(route(json!({"name": "g"})), ["web.example.com [https://web.example.com/]"]);
        assert_eq!(route(json!({"port": 80})), ["web.example.com [http://web.example.com/]"]);
        let rule = |spec: Value| shown("gateway.kyma-project.io", "APIRule", "web", spec);
        for spec in [
            json!({"host": "web.example.com"}),
            json!({"service": {"host": "web.example.com"}}),
            json!({"hosts": ["web.example.com"]}),
        ] {
            assert_eq!(rule(spec), ["web.example.com [https://web.example.com/]"]);
        }
        assert_eq!(rule(json!({"host": "web"})), ["web"], "its domain is not known");
    }

    #[test]
    fn a_hostile_host_is_never_a_link() {
        for host in [
            "javascript:alert(1)",
            "evil.example/path",
            "evil.example:8080",
            "user@evil.example",
            "evil.example?a",
            "evil.example#a",
            "\"onclick=x",
            "<script>",
            "a b.example",
            "gіthub.com",
            "127.0.0.1",
            "2130706433",
            "0x7f.1",
            "[::1]",
            "-a.example",
            "*",
            "..",
        ] {
            let spec = json!({"hosts": [host]});
            let all =
                Facts::of(&Key::new("gateway.kyma-project.io", "APIRule", Some("a"), "b"), &json!({ "spec": spec }));
            assert!(matches!(&all.addresses[..], [Address::Text(_)]), "{host}: {all:?}");
        }
        let many = vec![json!("a.example"); 1000];
        let all = shown("gateway.networking.k8s.io", "HTTPRoute", "web", json!({ "hostnames": many }));
        assert_eq!(all.len(), ADDRESSES);
        assert!(shown("gateway.kyma-project.io", "APIRule", "web", json!({"host": "x".repeat(5000)}))[0].len() < 600);
    }

    #[test]
    fn containers_of_a_pod_are_counted() {
        let of = |pod: Value| Facts::of(&Key::new("", "Pod", Some("shop"), "web-1"), &pod).containers.unwrap();
        let pod = json!({
            "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
            "status": {"containerStatuses": [{"ready": true, "restartCount": 2}, {"ready": false, "restartCount": 3}, null]},
        });
        assert_eq!(of(pod), Containers { ready: 1, all: 2, restarts: 5 });
        let forged = json!({"spec": {"containers": [1]}, "status": {"containerStatuses": vec![json!({"ready": true, "restartCount": i64::MAX}); 5]}});
        assert_eq!(of(forged), Containers { ready: 1, all: 1, restarts: i64::MAX });
        assert_eq!(of(json!({"spec": {"containers": {}}})), Containers::default());
        assert_eq!(Facts::of(&Key::new("apps", "Deployment", Some("a"), "b"), &json!({})).containers, None);
    }
}
