//! EndpointSlices and Endpoints: the pods that a Service routes to.
//!
//! Not here: Services without a selector. `endpoint_mirrors` handles their manually created Endpoints.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Value, json};

use super::controller::{Controller, Queue};
use devcluster_apiserver::client::{CONTROLLER, subject};
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
use devcluster_apiserver::kinds::hooks;
use devcluster_apiserver::object::{conditions, controller_reference, is_terminating, is_true, text};
use devcluster_apiserver::store::{Key, Stored};

const SERVICES: &str = "services";
const SLICES: &str = "endpointslices.discovery.k8s.io";
const ENDPOINTS: &str = "endpoints";
const SERVICE: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const HEADLESS: &str = "service.kubernetes.io/headless";
const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// A namespace, a label and its value.
type Asked = (String, String, String);

/// The controller of EndpointSlices. Its index limits the cost of a pod event to the Services that may select the pod.
#[derive(Default)]
pub(super) struct Endpoints {
    /// One label of each Service's selector. All its pods have that label.
    labels: HashMap<Key, Asked>,
    services: HashMap<Asked, BTreeSet<Key>>,
}

impl Endpoints {
    /// Updates the index; `None` for a deleted Service.
    fn learn(&mut self, key: &Key, service: Option<&Value>) {
        if let Some(asked) = self.labels.remove(key)
            && let Some(services) = self.services.get_mut(&asked)
        {
            services.remove(key);
            if services.is_empty() {
                self.services.remove(&asked);
            }
        }
        if let Some((label, value)) = service.and_then(rarest) {
            let asked = (key.namespace().to_owned(), label.to_owned(), value.to_owned());
            self.services.entry(asked.clone()).or_default().insert(key.clone());
            self.labels.insert(key.clone(), asked);
        }
    }

    /// Services that may select a pod.
    fn leading_to(&self, namespace: &str, pod: &Stored) -> impl Iterator<Item = &Key> {
        let asked = |(label, value): &(String, String)| (namespace.to_owned(), label.clone(), value.clone());
        pod.labels.iter().filter_map(move |pair| self.services.get(&asked(pair))).flatten()
    }
}

impl Controller for Endpoints {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        match &*event.storage {
            SERVICES => {
                self.learn(&event.key, event.new.as_ref().map(|stored| stored.value()).as_deref());
                queue.add(Subject::of(event));
            }
            // The Endpoints were deleted with their owner or by a user.
            ENDPOINTS if event.change() == Change::Deleted => {
                queue.add(Subject { storage: SERVICES.into(), key: event.key.clone() });
            }
            "pods" => {
                for pod in event.old.iter().chain(&event.new) {
                    for service in self.leading_to(event.key.namespace(), pod) {
                        queue.add(Subject { storage: SERVICES.into(), key: service.clone() });
                    }
                }
            }
            _ => {}
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, _: &mut Queue<'_>) {
        let Some(service) = client.get(subject) else {
            let twin = Subject { storage: ENDPOINTS.into(), key: subject.key.clone() };
            if let Some(endpoints) = client.get(&twin).filter(|endpoints| !is_terminating(endpoints)) {
                client.delete(&twin, &endpoints, None, None);
            }
            return;
        };
        if let Some((label, value)) = rarest(&service).filter(|_| !is_terminating(&service)) {
            let mut pods = client.pods_labelled(subject.key.namespace(), label, value);
            let labels = json!({"matchLabels": selector(&service)});
            let counts = |pod: &Value| {
                !text(pod, "/status/podIP").is_empty() && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
            };
            pods.retain(|pod| hooks::selects(&labels, &pod["metadata"]["labels"]) && counts(pod));
            publish(client, &service, &pods);
            publish_twin(client, &service, &pods);
        }
    }
}

fn selector(service: &Value) -> Option<&Value> {
    service["spec"].get("selector").filter(|s| s.as_object().is_some_and(|s| !s.is_empty()))
}

/// Returns the selector's label with the longest value, which is probably on the fewest pods.
fn rarest(service: &Value) -> Option<(&str, &str)> {
    let pairs = selector(service)?.as_object()?.iter();
    pairs.filter_map(|(label, value)| Some((label.as_str(), value.as_str()?))).max_by_key(|(_, value)| value.len())
}

/// Whether a pod receives traffic.
fn takes_traffic(service: &Value, pod: &Value) -> bool {
    service["spec"]["publishNotReadyAddresses"] == true || is_true(pod, "Ready") && !is_terminating(pod)
}

/// The labels of a Service's Endpoints: those of the Service and `more`.
fn labels(service: &Value, more: &[(&str, &str)]) -> Value {
    let mut labels = service["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.remove(HEADLESS);
    if text(service, "/spec/clusterIP") == "None" {
        labels.insert(HEADLESS.to_owned(), "".into());
    }
    labels.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())));
    Value::Object(labels)
}

/// The time of the last change: creation of the Service, or a change of a pod's readiness.
fn trigger(service: &Value, pods: &[Arc<Value>]) -> Value {
    let ready = pods.iter().flat_map(|pod| conditions(pod)).filter(|c| c["type"] == "Ready");
    let times = ready.map(|c| text(c, "/lastTransitionTime"));
    times.chain([text(service, "/metadata/creationTimestamp")]).max().unwrap_or_default().into()
}

/// Writes the EndpointSlice of a Service.
fn publish(client: &Client, service: &Value, pods: &[Arc<Value>]) {
    let (namespace, name) = (text(service, "/metadata/namespace"), text(service, "/metadata/name"));
    let empty_is_null = |list: Vec<Value>| if list.is_empty() { Value::Null } else { Value::Array(list) };
    let endpoints = empty_is_null(pods.iter().map(|pod| endpoint(service, pod)).collect());
    let mut ports: Vec<Value> = Vec::new();
    for port in service["spec"]["ports"].as_array().into_iter().flatten() {
        if let Some(number) = pods.iter().find_map(|pod| target(port, pod)) {
            let mut found = json!({"name": text(port, "/name"), "port": number, "protocol": port["protocol"]});
            if let Some(protocol) = port.get("appProtocol") {
                found["appProtocol"] = protocol.clone();
            }
            ports.push(found);
        }
    }
    let ports = empty_is_null(ports);
    let labels = labels(service, &[(SERVICE, name), (MANAGED_BY, "endpointslice-controller.k8s.io")]);
    let known = client.controlled(SLICES, namespace, service);
    if let Some(slice) = known.first() {
        let same = slice["endpoints"] == endpoints && slice["ports"] == ports;
        if !same || slice["metadata"]["labels"] != labels {
            let mut next = (**slice).clone();
            next["endpoints"] = endpoints;
            next["ports"] = ports;
            next["metadata"]["labels"] = labels;
            next["metadata"]["annotations"][TRIGGER] = trigger(service, pods);
            client.update(CONTROLLER, &subject(SLICES, slice), next);
        }
        return;
    }
    let object = json!({
        "metadata": {
            "generateName": format!("{name}-"), "ownerReferences": [controller_reference(service)], "labels": labels,
            "annotations": {TRIGGER: trigger(service, pods)},
        },
        "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
    });
    // Fails if the namespace terminates. The next event of the Service or its pods retries.
    let _ = client.create(CONTROLLER, SLICES, namespace, object);
}

/// Writes the Endpoints of a Service.
fn publish_twin(client: &Client, service: &Value, pods: &[Arc<Value>]) {
    let (namespace, name) = (text(service, "/metadata/namespace"), text(service, "/metadata/name"));
    let labels = labels(service, &[("endpoints.kubernetes.io/managed-by", "endpoint-controller")]);
    let subsets = subsets(service, pods);
    let twin = Subject::new(ENDPOINTS, namespace, name);
    let Some(known) = client.get(&twin) else {
        let annotations = json!({TRIGGER: trigger(service, pods)});
        let metadata = json!({"name": name, "labels": labels, "annotations": annotations});
        // Fails if the namespace terminates, and is retried like the EndpointSlice above.
        let _ = client.create(CONTROLLER, ENDPOINTS, namespace, json!({"metadata": metadata, "subsets": subsets}));
        return;
    };
    let now = known["subsets"].as_array().map_or(&[][..], Vec::as_slice);
    if now != subsets || known["metadata"]["labels"] != labels {
        let mut next = (*known).clone();
        next["subsets"] = subsets.into();
        next["metadata"]["labels"] = labels;
        next["metadata"]["annotations"][TRIGGER] = trigger(service, pods);
        client.update(CONTROLLER, &twin, next);
    }
}

/// Groups pods by their ports.
fn subsets(service: &Value, pods: &[Arc<Value>]) -> Vec<Value> {
    let mut subsets: Vec<(Vec<Value>, [Vec<Value>; 2])> = Vec::new();
    for pod in pods {
        let mut ports = Vec::new();
        for port in service["spec"]["ports"].as_array().into_iter().flatten() {
            let Some(number) = target(port, pod) else { continue };
            let mut found = json!({"port": number, "protocol": port["protocol"]});
            for field in ["name", "appProtocol"] {
                if let Some(value) = port.get(field) {
                    found[field] = value.clone();
                }
            }
            ports.push(found);
        }
        let has_ports = service["spec"]["ports"].as_array().is_some_and(|ports| !ports.is_empty());
        if ports.is_empty() && (has_ports || text(service, "/spec/clusterIP") != "None") {
            continue;
        }
        let mut address = json!({"ip": pod["status"]["podIP"], "targetRef": reference(pod)});
        if let Some(node) = pod["spec"].get("nodeName") {
            address["nodeName"] = node.clone();
        }
        if let Some(hostname) = hostname(service, pod) {
            address["hostname"] = hostname.clone();
        }
        let place = usize::from(!takes_traffic(service, pod));
        if let Some((_, addresses)) = subsets.iter_mut().find(|(known, _)| *known == ports) {
            addresses[place].push(address);
        } else {
            let mut addresses = [Vec::new(), Vec::new()];
            addresses[place].push(address);
            subsets.push((ports, addresses));
        }
    }
    let subset = |(ports, addresses): (Vec<Value>, [Vec<Value>; 2])| {
        let mut subset = json!({});
        for (field, mut list) in ["addresses", "notReadyAddresses"].into_iter().zip(addresses) {
            list.sort_by_key(|address| text(address, "/ip").to_owned());
            if !list.is_empty() {
                subset[field] = list.into();
            }
        }
        if !ports.is_empty() {
            subset["ports"] = ports.into();
        }
        subset
    };
    subsets.into_iter().map(subset).collect()
}

fn reference(pod: &Value) -> Value {
    json!({
        "kind": "Pod", "namespace": pod["metadata"]["namespace"], "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
    })
}

/// A pod's hostname below its headless Service.
fn hostname<'a>(service: &Value, pod: &'a Value) -> Option<&'a Value> {
    let here = text(pod, "/spec/subdomain") == text(service, "/metadata/name");
    pod["spec"].get("hostname").filter(|name| here && name.as_str().is_some_and(|name| !name.is_empty()))
}

fn endpoint(service: &Value, pod: &Value) -> Value {
    let conditions = json!({
        "ready": takes_traffic(service, pod), "serving": is_true(pod, "Ready"), "terminating": is_terminating(pod),
    });
    let mut endpoint = json!({
        "addresses": [pod["status"]["podIP"]], "nodeName": pod["spec"]["nodeName"],
        "conditions": conditions, "targetRef": reference(pod),
    });
    if let Some(hostname) = hostname(service, pod) {
        endpoint["hostname"] = hostname.clone();
    }
    endpoint
}

/// Resolves a target port to a number.
fn target(port: &Value, pod: &Value) -> Option<i64> {
    let Some(name) = port["targetPort"].as_str() else {
        return port["targetPort"].as_i64().or_else(|| port["port"].as_i64());
    };
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut ports = containers.flat_map(|c| c["ports"].as_array().into_iter().flatten());
    ports.find(|p| p["name"] == name).and_then(|p| p["containerPort"].as_i64())
}
