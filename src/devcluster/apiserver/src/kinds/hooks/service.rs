//! Services with their addresses and ports, Endpoints and EndpointSlices.

use serde_json::{Value, json};

use super::allocation::{Allocator, Held};
use super::fill::{Fill, Object, at, items, text};
use super::rules;
use crate::status::Cause;

pub(super) fn default_service(service: &mut Object) {
    if let Some(status) = service.inner("status") {
        status.value("loadBalancer", json!({}));
    }
    let Some(spec) = service.object("spec") else { return };
    spec.text("type", "ClusterIP");
    spec.text("sessionAffinity", "None");
    spec.drop_zero(&[
        "publishNotReadyAddresses",
        "externalIPs",
        "selector",
        "loadBalancerSourceRanges",
        "externalName",
    ]);
    match spec.str("sessionAffinity") {
        "None" => _ = spec.remove("sessionAffinityConfig"),
        "ClientIP" => spec.value("sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}})),
        _ => {}
    }
    let kind = spec.str("type").to_owned();
    if kind != "ExternalName" {
        spec.text("internalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        spec.text("externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        spec.value("allocateLoadBalancerNodePorts", true);
    }
    for port in spec.each("ports") {
        port.text("protocol", "TCP");
        port.drop_zero(&["name", "nodePort"]);
        if port.get("targetPort").is_none_or(|t| t == 0 || t == "")
            && let Some(number) = port.get("port").cloned()
        {
            port.insert("targetPort".into(), number);
        }
    }
}

fn kind_of(service: &Value) -> &str {
    text(service, &["spec", "type"])
}

fn needs_address(kind: &str) -> bool {
    kind != "ExternalName"
}

fn needs_node_port(spec: &Value) -> bool {
    match text(spec, &["type"]) {
        "NodePort" => true,
        "LoadBalancer" => spec["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

/// Returns the addresses and ports of a stored Service.
pub(super) fn held(service: &Value) -> Held {
    let cluster_ips = items(service, &["spec", "clusterIPs"])
        .iter()
        .filter_map(Value::as_str)
        .filter(|ip| *ip != "None" && !ip.is_empty())
        .map(str::to_owned)
        .collect();
    let node_ports = items(service, &["spec", "ports"])
        .iter()
        .filter_map(|p| p["nodePort"].as_u64().and_then(|n| u16::try_from(n).ok()))
        .collect();
    Held { cluster_ips, node_ports }
}

/// Sets the initial status and allocates addresses and node ports.
pub(super) fn prepare_create(service: &mut Value, allocator: &mut dyn Allocator) -> Vec<Cause> {
    service["status"] = json!({"loadBalancer": {}});
    let causes = rules::services::validate_addresses(service);
    if !causes.is_empty() {
        return causes;
    }
    allocate(service, &Held::default(), allocator)
}

/// Keeps the addresses and node ports of the old version, and allocates new ones.
pub(super) fn prepare_update(old: &Value, service: &mut Value, allocator: &mut dyn Allocator) -> Vec<Cause> {
    keep(old, service);
    allocate(service, &held(old), allocator)
}

fn keep(old: &Value, service: &mut Value) {
    let (was, is) = (kind_of(old).to_owned(), kind_of(service).to_owned());
    let had_node_ports = needs_node_port(&old["spec"]);
    let wants_node_ports = needs_node_port(&service["spec"]);
    let Some(spec) = service["spec"].as_object_mut() else { return };
    if needs_address(&was) && needs_address(&is) {
        if spec.str("clusterIP").is_empty() {
            spec.insert("clusterIP".into(), at(old, &["spec", "clusterIP"]).clone());
        }
        for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            let same = field != "clusterIPs" || spec.get("clusterIP") == old["spec"].get("clusterIP");
            if let Some(value) = old["spec"].get(field).filter(|_| same) {
                spec.value(field, value.clone());
            }
        }
    }
    if needs_address(&was) && !needs_address(&is) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            if spec.get(field) == old["spec"].get(field) {
                spec.remove(field);
            }
        }
    }
    let key = |p: &Value| (p["port"].clone(), p["protocol"].clone());
    let before = items(old, &["spec", "ports"]);
    let Some(Value::Array(ports)) = spec.get_mut("ports") else { return };
    if had_node_ports && wants_node_ports {
        let used: Vec<Value> = ports.iter().map(|p| p["nodePort"].clone()).collect();
        for port in ports.iter_mut().filter(|p| p["nodePort"].is_null()) {
            let same = before.iter().find(|o| key(o) == key(port) && !used.contains(&o["nodePort"]));
            if let Some(number) = same.map(|o| o["nodePort"].clone()).filter(|n| !n.is_null()) {
                port["nodePort"] = number;
            }
        }
    } else if had_node_ports {
        for port in ports.iter_mut().filter_map(Value::as_object_mut) {
            let unchanged = port.get("nodePort").is_some_and(|n| before.iter().any(|o| &o["nodePort"] == n));
            if unchanged {
                port.remove("nodePort");
            }
        }
        spec.remove("externalTrafficPolicy");
        spec.remove("allocateLoadBalancerNodePorts");
    }
}

fn allocate(service: &mut Value, held: &Held, allocator: &mut dyn Allocator) -> Vec<Cause> {
    let mut causes = Vec::new();
    let wants_node_ports = needs_node_port(&service["spec"]);
    let Some(spec) = service["spec"].as_object_mut() else { return causes };
    if needs_address(spec.str("type")) {
        let first = spec.get("clusterIPs").and_then(|ips| ips[0].as_str()).unwrap_or_default().to_owned();
        spec.text("clusterIP", &first);
        match spec.str("clusterIP").to_owned() {
            ip if ip.is_empty() => spec.text("clusterIP", &allocator.cluster_ip()),
            ip if ip == "None" || held.cluster_ips.contains(&ip) => {}
            ip => {
                if !allocator.claim_cluster_ip(&ip) {
                    let why = format!("failed to allocate IP {ip}: provided IP is already allocated");
                    causes.push(Cause::invalid("spec.clusterIPs", &json!([ip]), &why));
                }
            }
        }
        let ip = spec.str("clusterIP").to_owned();
        spec.value("clusterIPs", json!([ip]));
        let headless_without_selector = ip == "None" && !spec.contains_key("selector");
        let (policy, families) = if headless_without_selector {
            ("RequireDualStack", json!(["IPv4", "IPv6"]))
        } else {
            ("SingleStack", json!(["IPv4"]))
        };
        spec.text("ipFamilyPolicy", policy);
        spec.value("ipFamilies", families);
    }
    if wants_node_ports {
        for (index, port) in spec.each("ports").enumerate() {
            match port.get("nodePort").and_then(Value::as_u64).and_then(|n| u16::try_from(n).ok()) {
                None => port.value("nodePort", allocator.node_port()),
                Some(number) if held.node_ports.contains(&number) => {}
                Some(number) if !(30000..=32767).contains(&number) => causes.push(Cause::invalid(
                    format!("spec.ports[{index}].nodePort"),
                    &number.into(),
                    "provided port is not in the valid range. The range of valid ports is 30000-32767",
                )),
                Some(number) => {
                    if !allocator.claim_node_port(number) {
                        let field = format!("spec.ports[{index}].nodePort");
                        causes.push(Cause::invalid(field, &number.into(), "provided port is already allocated"));
                    }
                }
            }
        }
    }
    causes
}

pub(super) fn validate_service(service: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let spec = &service["spec"];
    let kind = kind_of(service);
    rules::services::validate(spec, causes);
    let Some(old) = old.filter(|old| needs_address(kind_of(old)) && needs_address(kind)) else { return };
    if at(old, &["spec", "clusterIPs"]) != &spec["clusterIPs"] && !at(old, &["spec", "clusterIP"]).is_null() {
        causes.push(Cause::invalid("spec.clusterIPs[0]", &spec["clusterIPs"], "may not change once set"));
    } else if at(old, &["spec", "clusterIP"]) != &spec["clusterIP"] {
        let changed = json!([spec["clusterIP"]]);
        causes.push(Cause::invalid("spec.clusterIPs[0]", &changed, "may not change once set"));
    }
}

pub(super) fn default_endpoints(endpoints: &mut Object) {
    for subset in endpoints.each("subsets") {
        subset.each("ports").for_each(|port| port.text("protocol", "TCP"));
    }
}

/// Sets the defaults of an EndpointSlice.
pub(super) fn default_slice(slice: &mut Object) {
    for port in slice.each("ports") {
        port.value("name", "");
        port.text("protocol", "TCP");
    }
    slice.each("endpoints").for_each(|endpoint| endpoint.value("conditions", json!({})));
}

/// Validates an EndpointSlice.
pub(super) fn validate_slice(slice: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let address_type = text(slice, &["addressType"]);
    if address_type.is_empty() {
        causes.push(Cause::required("addressType", ""));
    } else if !matches!(address_type, "IPv4" | "IPv6" | "FQDN") {
        causes.push(Cause::not_supported("addressType", &address_type.into(), &["FQDN", "IPv4", "IPv6"]));
    }
    if old.is_some_and(|old| old["addressType"] != slice["addressType"]) {
        causes.push(Cause::invalid("addressType", &slice["addressType"], "field is immutable"));
    }
}
