//! Services, EndpointSlices, pods and NetworkPolicies, as far as a picture of the network needs them.
//!
//! Invariant: names, labels and addresses are hostile. They are cut, and their numbers are limited.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::facts::{list, text};
use crate::field::text_at;
use crate::text::{SHORT, plain};
use mainstay_object::{Key, counted, split_api_version};

/// Maximum number of ports and of external addresses of a Service.
const PORTS: usize = 20;
/// Maximum number of endpoints of a slice. Kubernetes permits as many.
const ENDPOINTS: usize = 1000;
/// Maximum number of ports of a slice. Kubernetes permits as many.
const SLICE_PORTS: usize = 100;
/// Maximum number of labels of a pod, and of requirements of a selector and their values.
const LABELS: usize = 100;
const SERVICE_NAME: &str = "/metadata/labels/kubernetes.io~1service-name";

/// Labels, or the labels that a selector requires.
type Labels = BTreeMap<String, String>;

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) number: u64,
    pub(crate) name: String,
    /// The whole port, in words.
    pub(crate) text: String,
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) key: Key,
    /// The type, such as `ClusterIP`.
    pub(crate) kind: String,
    /// The address within the cluster: `None` for a headless Service; empty if there is none.
    pub(crate) cluster_ip: String,
    /// The target of a Service of type `ExternalName`; empty for other types.
    pub(crate) external_name: String,
    /// Addresses for clients outside of the cluster.
    pub(crate) external: Vec<String>,
    pub(crate) ports: Vec<Port>,
    /// Whether the Service has further ports, which are not known.
    pub(crate) has_more_ports: bool,
    /// The labels of its pods; empty if it selects none.
    pub(crate) selector: Labels,
    /// Whether pods that are not ready receive requests, too.
    pub(super) publishes_not_ready: bool,
}

impl Service {
    fn of(key: Key, live: &Value) -> Self {
        let kind = text(live, "/spec/type").unwrap_or("ClusterIP");
        let is_external = kind == "ExternalName";
        let outside = list(live, "/status/loadBalancer/ingress")
            .filter_map(|one| text(one, "/hostname").or_else(|| text(one, "/ip")));
        let outside = outside.chain(list(live, "/spec/externalIPs").filter_map(Value::as_str));
        let external_name = if is_external { text_at(live, "/spec/externalName", SHORT) } else { String::new() };
        Self {
            key,
            kind: plain(kind, SHORT),
            cluster_ip: text_at(live, "/spec/clusterIP", SHORT),
            external_name,
            external: outside.take(PORTS).map(|one| plain(one, SHORT)).collect(),
            ports: list(live, "/spec/ports").take(PORTS).map(port).collect(),
            has_more_ports: list(live, "/spec/ports").nth(PORTS).is_some(),
            selector: if is_external { Labels::new() } else { labels(live.pointer("/spec/selector")) },
            publishes_not_ready: live.pointer("/spec/publishNotReadyAddresses") == Some(&Value::Bool(true)),
        }
    }

    /// Returns whether clients get the addresses of pods instead of one address.
    pub(crate) fn is_headless(&self) -> bool {
        self.cluster_ip == "None"
    }

    /// Returns whether the Service is a name of another host.
    pub(crate) fn is_external_name(&self) -> bool {
        self.kind == "ExternalName"
    }

    /// Returns whether the Service selects a pod.
    pub(crate) fn selects(&self, pod: &Pod) -> bool {
        !self.selector.is_empty() && self.key.namespace == pod.key.namespace && has_all(&pod.labels, &self.selector)
    }

    /// Returns its approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let ports: usize = self.ports.iter().map(|port| size_of::<Port>() + port.name.len() + port.text.len()).sum();
        let external: usize = self.external.iter().map(|one| size_of::<String>() + one.len()).sum();
        let texts = self.kind.len() + self.cluster_ip.len() + self.external_name.len();
        size_of::<Self>() + 100 + self.key.name.len() + texts + ports + external + bytes_of(&self.selector)
    }
}

/// An address behind a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The pod, if the address is one of a pod.
    pub(crate) pod: Option<Key>,
    pub(crate) ip: String,
    pub(crate) is_ready: bool,
    /// Whether the pod is ready, even if the Service calls all its endpoints ready.
    pub(super) is_serving: bool,
}

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) service: Key,
    pub(crate) addresses: Vec<Address>,
    /// The names of the ports that the addresses have. A port of the Service without a port of the pod is missing.
    pub(super) ports: BTreeSet<String>,
}

impl Slice {
    /// Reads a slice; `None` without a Service.
    fn of(key: &Key, live: &Value) -> Option<Self> {
        let namespace = key.namespace.as_deref();
        let service = Key::new("", "Service", namespace, text_at(live, SERVICE_NAME, SHORT));
        if service.name.is_empty() {
            return None;
        }
        let one = |endpoint: &Value| {
            let pod = text(endpoint, "/targetRef/name").filter(|_| text(endpoint, "/targetRef/kind") == Some("Pod"));
            let of_pod = text(endpoint, "/targetRef/namespace").or(namespace);
            // Without a condition, the endpoint is ready.
            let is_ready = endpoint.pointer("/conditions/ready") != Some(&Value::Bool(false));
            let serving = endpoint.pointer("/conditions/serving").and_then(Value::as_bool);
            Address {
                pod: pod.map(|pod| Key::new("", "Pod", of_pod, plain(pod, SHORT))),
                ip: text_at(endpoint, "/addresses/0", SHORT),
                is_ready,
                is_serving: serving.unwrap_or(is_ready),
            }
        };
        let addresses = list(live, "/endpoints").take(ENDPOINTS).map(one).collect();
        let ports = list(live, "/ports").take(SLICE_PORTS).map(|port| text_at(port, "/name", SHORT)).collect();
        Some(Self { service, addresses, ports })
    }

    fn bytes(&self) -> usize {
        let one = |address: &Address| {
            size_of::<Address>() + address.ip.len() + address.pod.as_ref().map_or(0, |pod| 150 + pod.name.len())
        };
        let ports: usize = self.ports.iter().map(|port| size_of::<String>() + port.len()).sum();
        size_of::<Self>() + 100 + self.service.name.len() + self.addresses.iter().map(one).sum::<usize>() + ports
    }
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) key: Key,
    pub(crate) labels: Labels,
    pub(crate) phase: String,
    /// The object that made the pod.
    pub(crate) owner: Option<Key>,
}

impl Pod {
    fn of(key: Key, live: &Value) -> Self {
        let owner =
            list(live, "/metadata/ownerReferences").find(|one| one.get("controller") == Some(&Value::Bool(true)));
        let owner = owner.and_then(|owner| {
            let (group, _) = split_api_version(text(owner, "/apiVersion")?);
            let [group, kind, name] =
                [group, text(owner, "/kind")?, text(owner, "/name")?].map(|one| plain(one, SHORT));
            Some(Key::new(group, kind, key.namespace.as_deref(), name))
        });
        Self {
            labels: labels(live.pointer("/metadata/labels")),
            phase: text_at(live, "/status/phase", SHORT),
            owner,
            key,
        }
    }

    /// Returns whether the pod has not ended.
    pub(crate) fn is_active(&self) -> bool {
        !matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    fn bytes(&self) -> usize {
        let owner = self.owner.as_ref().map_or(0, |owner| 150 + owner.name.len());
        size_of::<Self>() + 100 + self.key.name.len() + self.phase.len() + owner + bytes_of(&self.labels)
    }
}

/// A NetworkPolicy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) key: Key,
    /// Its effect on traffic to the pods, in words.
    pub(crate) ingress: String,
    labels: Labels,
    requirements: Vec<Requirement>,
}

/// A requirement of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    label: String,
    operator: String,
    values: BTreeSet<String>,
}

impl Requirement {
    fn of(live: &Value) -> Self {
        Self {
            label: text_at(live, "/key", SHORT),
            operator: text_at(live, "/operator", SHORT),
            values: list(live, "/values").take(LABELS).filter_map(Value::as_str).map(|one| plain(one, SHORT)).collect(),
        }
    }

    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.label);
        let is_listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator.as_str() {
            "In" => is_listed,
            "NotIn" => !is_listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

impl Policy {
    fn of(key: Key, live: &Value) -> Self {
        let requirements = list(live, "/spec/podSelector/matchExpressions").take(LABELS).map(Requirement::of).collect();
        Self {
            key,
            ingress: ingress(live),
            labels: labels(live.pointer("/spec/podSelector/matchLabels")),
            requirements,
        }
    }

    /// Returns whether the policy selects a pod. An empty selector selects all pods of the namespace.
    pub(crate) fn selects(&self, pod: &Pod) -> bool {
        self.key.namespace == pod.key.namespace
            && has_all(&pod.labels, &self.labels)
            && self.requirements.iter().all(|one| one.matches(&pod.labels))
    }

    fn bytes(&self) -> usize {
        let one = |one: &Requirement| {
            let values: usize = one.values.iter().map(|value| size_of::<String>() + value.len()).sum();
            size_of::<Requirement>() + one.label.len() + one.operator.len() + values
        };
        let requirements: usize = self.requirements.iter().map(one).sum();
        size_of::<Self>() + 100 + self.key.name.len() + self.ingress.len() + bytes_of(&self.labels) + requirements
    }
}

/// An object behind a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Service(Service),
    Slice(Slice),
    Pod(Pod),
    Policy(Policy),
}

impl Object {
    /// Reads an object; `None` for other kinds, and for a slice without a Service.
    pub(crate) fn of(key: Key, live: &Value) -> Option<Self> {
        match (&*key.group, &*key.kind) {
            ("", "Service") => Some(Self::Service(Service::of(key, live))),
            ("discovery.k8s.io", "EndpointSlice") => Slice::of(&key, live).map(Self::Slice),
            ("", "Pod") => Some(Self::Pod(Pod::of(key, live))),
            ("networking.k8s.io", "NetworkPolicy") => Some(Self::Policy(Policy::of(key, live))),
            _ => None,
        }
    }

    /// Returns its approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Service(one) => one.bytes(),
            Self::Slice(one) => one.bytes(),
            Self::Pod(one) => one.bytes(),
            Self::Policy(one) => one.bytes(),
        }
    }
}

fn port(live: &Value) -> Port {
    let number = live.get("port").and_then(Value::as_u64).unwrap_or_default();
    let name = text_at(live, "/name", SHORT);
    let protocol = plain(text(live, "/protocol").unwrap_or("TCP"), SHORT);
    let target = match live.get("targetPort") {
        Some(Value::String(name)) => plain(name, SHORT),
        Some(Value::Number(target)) if target.as_u64() != Some(number) => target.to_string(),
        _ => String::new(),
    };
    let target = if target.is_empty() { target } else { format!(" → {target}") };
    let node =
        live.get("nodePort").and_then(Value::as_u64).map(|node| format!(", node port {node}")).unwrap_or_default();
    let named = if name.is_empty() { String::new() } else { format!("{name}: ") };
    Port { number, text: format!("{named}{number}{target}/{protocol}{node}"), name }
}

/// Returns the effect of a NetworkPolicy on traffic to its pods.
fn ingress(live: &Value) -> String {
    let mut types = list(live, "/spec/policyTypes").peekable();
    if types.peek().is_some() && !types.any(|one| one == "Ingress") {
        return "does not limit ingress".to_owned();
    }
    let is_empty = |rule: &Value, field| list(rule, field).next().is_none();
    let rules = list(live, "/spec/ingress").count();
    if rules == 0 {
        "permits no ingress".to_owned()
    } else if list(live, "/spec/ingress").any(|rule| is_empty(rule, "/from") && is_empty(rule, "/ports")) {
        "permits all ingress".to_owned()
    } else {
        format!("limits ingress: {}", counted(rules, "rule"))
    }
}

fn labels(live: Option<&Value>) -> Labels {
    let all = live.and_then(Value::as_object).into_iter().flatten().take(LABELS);
    all.filter_map(|(label, value)| Some((plain(label, SHORT), plain(value.as_str()?, SHORT)))).collect()
}

fn has_all(labels: &Labels, wanted: &Labels) -> bool {
    wanted.iter().all(|(label, value)| labels.get(label) == Some(value))
}

fn bytes_of(labels: &Labels) -> usize {
    labels.iter().map(|(label, value)| size_of::<(String, String)>() + label.len() + value.len()).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(group: &str, kind: &str) -> Key {
        Key::new(group, kind, Some("shop"), "web")
    }

    fn service(live: Value) -> Service {
        Service::of(key("", "Service"), &live)
    }

    fn pod(labels: Value) -> Pod {
        Pod::of(key("", "Pod"), &json!({"metadata": {"labels": labels}}))
    }

    #[test]
    fn a_service_has_its_ports_and_addresses_in_words() {
        let one = service(json!({
            "spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1", "selector": {"app": "web"}, "externalIPs": ["192.0.2.9"], "ports": [
                {"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}, {"port": 53, "protocol": "UDP", "targetPort": "dns"},
                {"port": 90, "targetPort": 90}, null,
            ]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "lb.example.com", "ip": "192.0.2.2"}, 7]}},
        }));
        let ports: Vec<&str> = one.ports.iter().map(|port| port.text.as_str()).collect();
        assert_eq!(ports, ["http: 80 → 8080/TCP, node port 30080", "53 → dns/UDP", "90/TCP", "0/TCP"]);
        assert_eq!(one.external, ["192.0.2.1", "lb.example.com", "192.0.2.9"]);
        assert!(one.selects(&pod(json!({"app": "web", "tier": "a"}))) && !one.selects(&pod(json!({"app": "api"}))));
        let all =
            json!({"spec": {"type": "ExternalName", "externalName": "db.example.com", "selector": {"app": "web"}}});
        let external = service(all);
        assert!(external.is_external_name() && external.external_name == "db.example.com");
        assert!(!external.selects(&pod(json!({"app": "web"}))));
        let headless = service(json!({"spec": {"clusterIP": "None", "selector": {}}}));
        assert!(headless.is_headless() && !headless.selects(&pod(json!({}))), "an empty selector selects no pod");
        let many = service(json!({"spec": {"ports": vec![json!({"port": 1, "name": "x".repeat(5000)}); 1000]}}));
        assert!(many.ports.len() == PORTS && many.has_more_ports && many.bytes() < 64 << 10, "{}", many.bytes());
    }

    #[test]
    fn an_endpoint_is_ready_unless_its_condition_says_otherwise() {
        let slice = json!({
            "metadata": {"labels": {"kubernetes.io/service-name": "web"}},
            "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "targetRef": {"kind": "Pod", "name": "web-1"}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false}, "targetRef": {"kind": "Pod", "name": "web-2", "namespace": "other"}},
                {"addresses": ["10.0.0.3"], "targetRef": {"kind": "Node", "name": "n"}},
                null,
            ],
        });
        let slice = Slice::of(&key("discovery.k8s.io", "EndpointSlice"), &slice).unwrap();
        let shown = |one: &Address| {
            (one.pod.as_ref().map(ToString::to_string).unwrap_or_default(), one.ip.clone(), one.is_ready)
        };
        let all: Vec<_> = slice.addresses.iter().map(shown).collect();
        let [of_shop, of_other] = ["Pod shop/web-1", "Pod other/web-2"].map(str::to_owned);
        let ip = |last: u8| format!("10.0.0.{last}");
        let expected = vec![
            (of_shop, ip(1), true),
            (of_other, ip(2), false),
            (String::new(), ip(3), true),
            (String::new(), String::new(), true),
        ];
        assert_eq!(all, expected);
        assert_eq!(Slice::of(&key("discovery.k8s.io", "EndpointSlice"), &json!({})), None);
        assert!(slice.ports.is_empty());
    }

    #[test]
    fn a_slice_has_the_names_of_its_ports_and_what_serves() {
        let slice = json!({
            "metadata": {"labels": {"kubernetes.io/service-name": "web"}},
            "ports": [{"name": "http", "port": 80}, {"port": 81}, null],
            "endpoints": [{"conditions": {"ready": true, "serving": false}}, {"conditions": {"ready": false}}, {}],
        });
        let slice = Slice::of(&key("discovery.k8s.io", "EndpointSlice"), &slice).unwrap();
        assert_eq!(slice.ports.iter().map(String::as_str).collect::<Vec<_>>(), ["", "http"]);
        let all: Vec<_> = slice.addresses.iter().map(|one| (one.is_ready, one.is_serving)).collect();
        assert_eq!(all, [(true, false), (false, false), (true, true)]);
    }

    #[test]
    fn a_policy_selects_pods_by_labels_and_requirements_and_says_whether_it_limits_them() {
        let check = |spec: Value, expected: &str, is_selected: bool| {
            let policy = Policy::of(key("networking.k8s.io", "NetworkPolicy"), &json!({ "spec": spec }));
            let selects = policy.selects(&pod(json!({"app": "web", "tier": "front"})));
            assert_eq!((&*policy.ingress, selects), (expected, is_selected), "{spec}");
        };
        let by = |operator: &str, values: Value| json!({"podSelector": {"matchExpressions": [{"key": "app", "operator": operator, "values": values}]}});
        check(json!({"podSelector": {}}), "permits no ingress", true);
        check(
            json!({"podSelector": {"matchLabels": {"app": "api"}}, "policyTypes": ["Egress"]}),
            "does not limit ingress",
            false,
        );
        check(json!({"ingress": [{}], "policyTypes": ["Ingress"]}), "permits all ingress", true);
        check(json!({"ingress": [{"from": [{}]}, {"ports": [{}]}]}), "limits ingress: 2 rules", true);
        check(by("In", json!(["web"])), "permits no ingress", true);
        check(by("NotIn", json!(["web"])), "permits no ingress", false);
        check(by("Exists", json!(null)), "permits no ingress", true);
        check(by("DoesNotExist", json!(null)), "permits no ingress", false);
        check(by("Strange", json!([])), "permits no ingress", false);
    }

    #[test]
    fn a_pod_has_the_object_that_made_it() {
        let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": true});
        let live = json!({"metadata": {"ownerReferences": [{"kind": "x"}, owner]}, "status": {"phase": "Failed"}});
        let pod = Pod::of(key("", "Pod"), &live);
        assert_eq!(pod.owner, Some(Key::new("apps", "StatefulSet", Some("shop"), "db")));
        assert!(!pod.is_active());
    }
}
