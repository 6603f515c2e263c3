//! Services.

use super::{address_fault, network_fault, port_name, port_number};
use crate::kinds::hooks::{
    fill::{at, items, text},
    metadata::{NameRule, label_fault, labels, name_fault, qualified_faults},
    pod_rules::duplicate,
};
use crate::status::Cause;
use serde_json::{Value, json};
use std::net::IpAddr;

/// Validates the addresses that a Service requests, before allocation.
pub(in crate::kinds::hooks) fn validate_addresses(service: &Value) -> Vec<Cause> {
    let spec = &service["spec"];
    let mut causes = Vec::new();
    if text(spec, &["type"]) == "ExternalName" {
        if !text(spec, &["clusterIP"]).is_empty() || !items(spec, &["clusterIPs"]).is_empty() {
            causes.push(Cause::forbidden("spec.clusterIPs", "may not be set for ExternalName services"));
        }
        return causes;
    }
    let field = "spec.clusterIPs";
    let (first, all) = (text(spec, &["clusterIP"]), items(spec, &["clusterIPs"]));
    if first.is_empty() {
        if !all.is_empty() {
            let why = "must be empty when `clusterIP` is not specified";
            causes.push(Cause::invalid(field, &spec["clusterIPs"], why));
        }
    } else if all.first().is_some_and(|ip| ip != first) {
        causes.push(Cause::invalid(field, &spec["clusterIPs"], "first value must match `clusterIP`"));
    }
    families(spec, &mut causes);
    let derived = [Value::from(first)];
    let all = if all.is_empty() && !first.is_empty() { &derived[..] } else { all };
    for (index, value) in all.iter().enumerate() {
        let address = value.as_str().unwrap_or_default();
        if index == 0 && address == "None" {
            if all.len() > 1 {
                causes.push(Cause::invalid(
                    field,
                    &Value::from(all.to_vec()),
                    "'None' must be the first and only value",
                ));
            } else if let kind @ ("NodePort" | "LoadBalancer") = text(spec, &["type"]) {
                let why = format!("may not be set to 'None' for {kind} services");
                causes.insert(0, Cause::invalid(format!("{field}[0]"), value, &why));
            }
        } else if let Some(why) = address_fault(address) {
            causes.push(Cause::invalid(format!("{field}[{index}]"), value, why));
        }
    }
    if all.len() > 2 {
        causes.push(Cause::invalid(field, &Value::from(all.to_vec()), "may only hold up to 2 values"));
    }
    causes
}

fn families(spec: &Value, causes: &mut Vec<Cause>) {
    let wanted = items(spec, &["ipFamilies"]);
    for (index, family) in wanted.iter().enumerate() {
        let field = format!("spec.ipFamilies[{index}]");
        if family != "IPv4" && family != "IPv6" {
            causes.push(Cause::not_supported(&field, family, &["IPv4", "IPv6"]));
        }
        if wanted[..index].contains(family) {
            causes.push(duplicate(field, family));
        }
    }
    let policy = &spec["ipFamilyPolicy"];
    let known = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if policy.as_str().is_some_and(|policy| !known.contains(&policy)) {
        causes.push(Cause::not_supported("spec.ipFamilyPolicy", policy, &known));
    }
    if !causes.is_empty() {
        return;
    }
    // The cluster has IPv4 addresses only. A headless Service without a selector lists both families and gets no
    // address.
    let headless = spec["clusterIP"] == "None" && spec["selector"].is_null();
    if headless {
        return;
    }
    if policy == "RequireDualStack" {
        let why = "this cluster is not configured for dual-stack services";
        causes.push(Cause::invalid("spec.ipFamilyPolicy", policy, why));
    }
    if let Some(index) = wanted.iter().position(|family| family == "IPv6") {
        let why = "not configured on this cluster";
        causes.push(Cause::invalid(format!("spec.ipFamilies[{index}]"), &wanted[index], why));
    }
}

/// Validates a Service, except for its addresses and immutable fields.
pub(in crate::kinds::hooks) fn validate(spec: &Value, causes: &mut Vec<Cause>) {
    let kind = text(spec, &["type"]);
    let ports = items(spec, &["ports"]);
    if ports.is_empty() && kind != "ExternalName" && spec["clusterIP"] != "None" {
        causes.push(Cause::required("spec.ports", ""));
    }
    if kind == "ExternalName" {
        external_name(text(spec, &["externalName"]), causes);
    }
    let mut names: Vec<&str> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        service_port(port, &format!("spec.ports[{index}]"), ports.len() > 1, &names, causes);
        names.push(text(port, &["name"]));
    }
    labels("spec.selector", &spec["selector"], causes);
    affinity(spec, causes);
    for (index, value) in items(spec, &["externalIPs"]).iter().enumerate() {
        let address = value.as_str().unwrap_or_default();
        if let Some(why) = address_fault(address).map(str::to_owned).or_else(|| special(address)) {
            causes.push(Cause::invalid(format!("spec.externalIPs[{index}]"), value, &why));
        }
    }
    let known = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !known.contains(&kind) {
        causes.push(Cause::not_supported("spec.type", &kind.into(), &known));
    }
    port_pairs(kind, ports, causes);
    load_balancer(kind, spec, causes);
    traffic(kind, spec, causes);
}

fn external_name(name: &str, causes: &mut Vec<Cause>) {
    // A trailing dot marks a fully qualified name.
    let bare = name.strip_suffix('.').unwrap_or(name);
    if bare.is_empty() {
        causes.push(Cause::required("spec.externalName", ""));
    } else if let Some(why) = name_fault(bare, NameRule::Subdomain) {
        causes.push(Cause::invalid("spec.externalName", &bare.into(), &why));
    }
}

fn service_port(port: &Value, field: &str, several: bool, names: &[&str], causes: &mut Vec<Cause>) {
    let name = text(port, &["name"]);
    if !name.is_empty() {
        if let Some(why) = label_fault(name) {
            causes.push(Cause::invalid(format!("{field}.name"), &name.into(), &why));
        }
        if names.contains(&name) {
            causes.push(duplicate(format!("{field}.name"), &name.into()));
        }
    } else if several {
        causes.push(Cause::required(format!("{field}.name"), ""));
    }
    port_number(&format!("{field}.port"), &json!(port["port"].as_i64().unwrap_or(0)), causes);
    let protocol = text(port, &["protocol"]);
    if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
        causes.push(Cause::not_supported(format!("{field}.protocol"), &protocol.into(), &["SCTP", "TCP", "UDP"]));
    }
    match &port["targetPort"] {
        number @ Value::Number(_) => port_number(&format!("{field}.targetPort"), number, causes),
        name @ Value::String(_) => port_name(&format!("{field}.targetPort"), name, causes),
        _ => {}
    }
    if let Some(protocol) = port["appProtocol"].as_str() {
        let faults = qualified_faults(protocol);
        causes.extend(faults.iter().map(|why| Cause::invalid(format!("{field}.appProtocol"), &protocol.into(), why)));
    }
}

fn affinity(spec: &Value, causes: &mut Vec<Cause>) {
    let affinity = text(spec, &["sessionAffinity"]);
    let config = &spec["sessionAffinityConfig"];
    match affinity {
        "ClientIP" => {
            let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
            match at(config, &["clientIP", "timeoutSeconds"]).as_i64() {
                Some(seconds) if !(1..=86400).contains(&seconds) => {
                    let why = "must be greater than 0 and less than 86400";
                    causes.push(Cause::invalid(field, &seconds.into(), why));
                }
                _ => {}
            }
        }
        "None" => {
            if !config.is_null() {
                let why = "must not be set when session affinity is None";
                causes.push(Cause::forbidden("spec.sessionAffinityConfig", why));
            }
        }
        other => causes.push(Cause::not_supported("spec.sessionAffinity", &other.into(), &["ClientIP", "None"])),
    }
}

/// Returns the error of an address that no machine can have.
fn special(address: &str) -> Option<String> {
    let address: IpAddr = address.parse().ok()?;
    let link_local = match address {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    if address.is_unspecified() {
        Some(format!("may not be unspecified ({address})"))
    } else if address.is_loopback() {
        Some("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned())
    } else if link_local {
        Some("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned())
    } else if matches!(address, IpAddr::V4(four) if four.octets()[..3] == [224, 0, 0]) {
        Some("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned())
    } else {
        None
    }
}

fn port_pairs(kind: &str, ports: &[Value], causes: &mut Vec<Cause>) {
    if kind == "ClusterIP" {
        for (index, _) in ports.iter().enumerate().filter(|(_, port)| port["nodePort"].as_i64().unwrap_or(0) != 0) {
            let why = "may not be used when `type` is 'ClusterIP'";
            causes.push(Cause::forbidden(format!("spec.ports[{index}].nodePort"), why));
        }
    }
    let key = |port: &Value, field: &str| (port[field].as_i64().unwrap_or(0), text(port, &["protocol"]).to_owned());
    for (index, port) in ports.iter().enumerate() {
        let pair = key(port, "nodePort");
        if pair.0 != 0 && ports[..index].iter().any(|other| key(other, "nodePort") == pair) {
            causes.push(duplicate(format!("spec.ports[{index}].nodePort"), &pair.0.into()));
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let (number, protocol) = key(port, "port");
        if ports[..index].iter().any(|other| key(other, "port") == (number, protocol.clone())) {
            let printed = format!(
                "Duplicate value: {{\"Name\":\"\",\"Protocol\":{protocol:?},\"AppProtocol\":null,\"Port\":{number},\
                 \"TargetPort\":0,\"NodePort\":0}}"
            );
            causes.push(Cause::new("FieldValueDuplicate", format!("spec.ports[{index}]"), printed));
        }
    }
}

fn load_balancer(kind: &str, spec: &Value, causes: &mut Vec<Cause>) {
    let balanced = kind == "LoadBalancer";
    let only = "may only be used when `type` is 'LoadBalancer'";
    // A real server writes this field with a capital letter here.
    let field = "spec.LoadBalancerSourceRanges";
    let ranges = items(spec, &["loadBalancerSourceRanges"]);
    if !ranges.is_empty() && !balanced {
        causes.push(Cause::forbidden(field, only));
    }
    for (index, value) in ranges.iter().enumerate() {
        let range = value.as_str().unwrap_or_default().trim();
        if let Some(why) = network_fault(range) {
            causes.push(Cause::invalid(format!("{field}[{index}]"), &range.into(), why));
        }
    }
    if !spec["allocateLoadBalancerNodePorts"].is_null() && !balanced {
        causes.push(Cause::forbidden("spec.allocateLoadBalancerNodePorts", only));
    }
    if let Some(class) = spec["loadBalancerClass"].as_str() {
        if balanced {
            let faults = qualified_faults(class);
            causes.extend(faults.iter().map(|why| Cause::invalid("spec.loadBalancerClass", &class.into(), why)));
        } else {
            causes.push(Cause::forbidden("spec.loadBalancerClass", only));
        }
    }
}

fn traffic(kind: &str, spec: &Value, causes: &mut Vec<Cause>) {
    let exposed =
        matches!(kind, "NodePort" | "LoadBalancer") || kind == "ClusterIP" && !items(spec, &["externalIPs"]).is_empty();
    let policy = &spec["externalTrafficPolicy"];
    let policies = ["Cluster", "Local"];
    match policy.as_str() {
        Some(_) if !exposed => {
            let why = "may only be set for externally-accessible services";
            causes.push(Cause::invalid("spec.externalTrafficPolicy", policy, why));
        }
        Some(given) if !policies.contains(&given) => {
            causes.push(Cause::not_supported("spec.externalTrafficPolicy", policy, &policies));
        }
        _ => {}
    }
    let check = &spec["healthCheckNodePort"];
    if check.as_i64().unwrap_or(0) != 0 && !(kind == "LoadBalancer" && policy == "Local") {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        causes.push(Cause::invalid("spec.healthCheckNodePort", check, why));
    }
    let inner = &spec["internalTrafficPolicy"];
    if inner.as_str().is_some_and(|given| !policies.contains(&given)) {
        causes.push(Cause::not_supported("spec.internalTrafficPolicy", inner, &policies));
    }
    let distribution = &spec["trafficDistribution"];
    let known = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    if distribution.as_str().is_some_and(|given| !known.contains(&given)) {
        causes.push(Cause::not_supported("spec.trafficDistribution", distribution, &known));
    }
}
