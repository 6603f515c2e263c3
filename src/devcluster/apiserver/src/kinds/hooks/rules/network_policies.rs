//! NetworkPolicies.

use super::{Network, label_selector, network_fault, port_name, port_number};
use crate::kinds::hooks::fill::{items, text};
use crate::status::Cause;
use serde_json::Value;

/// Validates the spec of a NetworkPolicy.
pub(in crate::kinds::hooks) fn validate(spec: &Value, causes: &mut Vec<Cause>) {
    label_selector("spec.podSelector", &spec["podSelector"], causes);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in items(spec, &[direction]).iter().enumerate() {
            let here = format!("spec.{direction}[{index}]");
            for (place, entry) in items(rule, &["ports"]).iter().enumerate() {
                port(entry, &format!("{here}.ports[{place}]"), causes);
            }
            for (place, entry) in items(rule, &[peers]).iter().enumerate() {
                peer(entry, &format!("{here}.{peers}[{place}]"), causes);
            }
        }
    }
    let known = ["Ingress", "Egress"];
    let types = items(spec, &["policyTypes"]);
    if types.len() > known.len() {
        let why = "may not specify more than two policyTypes";
        causes.push(Cause::invalid("spec.policyTypes", &spec["policyTypes"], why));
        return;
    }
    for (index, kind) in types.iter().enumerate() {
        if !known.contains(&kind.as_str().unwrap_or_default()) {
            causes.push(Cause::not_supported(format!("spec.policyTypes[{index}]"), kind, &known));
        }
    }
}

fn port(port: &Value, here: &str, causes: &mut Vec<Cause>) {
    let known = ["TCP", "UDP", "SCTP"];
    if port["protocol"].as_str().is_some_and(|protocol| !known.contains(&protocol)) {
        causes.push(Cause::not_supported(format!("{here}.protocol"), &port["protocol"], &known));
    }
    let (first, last) = (&port["port"], &port["endPort"]);
    let (first_field, last_field) = (format!("{here}.port"), format!("{here}.endPort"));
    match first {
        Value::Number(_) => {
            port_number(&first_field, first, causes);
            if let Some(end) = last.as_i64() {
                if first.as_i64().is_some_and(|start| end < start) {
                    // A real server reports the value of `port` here.
                    causes.push(Cause::invalid(&last_field, first, "must be greater than or equal to `port`"));
                }
                port_number(&last_field, last, causes);
            }
        }
        Value::String(_) => {
            if !last.is_null() {
                causes.push(Cause::invalid(&last_field, last, "may not be specified when `port` is non-numeric"));
            }
            port_name(&first_field, first, causes);
        }
        _ if !last.is_null() => {
            causes.push(Cause::invalid(&last_field, last, "may not be specified when `port` is not specified"));
        }
        _ => {}
    }
}

fn peer(peer: &Value, here: &str, causes: &mut Vec<Cause>) {
    let mut found = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if !peer[field].is_null() {
            found += 1;
            label_selector(&format!("{here}.{field}"), &peer[field], causes);
        }
    }
    let block = &peer["ipBlock"];
    if !block.is_null() {
        found += 1;
        ip_block(block, &format!("{here}.ipBlock"), causes);
    }
    if found == 0 {
        causes.push(Cause::required(here, "must specify a peer"));
    } else if found > 1 && !block.is_null() {
        causes.push(Cause::forbidden(here, "may not specify both ipBlock and another peer"));
    }
}

fn ip_block(block: &Value, here: &str, causes: &mut Vec<Cause>) {
    let whole = text(block, &["cidr"]);
    if whole.is_empty() {
        causes.push(Cause::required(format!("{here}.cidr"), ""));
        return;
    }
    if let Some(why) = network_fault(whole) {
        causes.push(Cause::invalid(format!("{here}.cidr"), &whole.into(), why));
    }
    let Some(network) = Network::parse(whole) else { return };
    for (index, value) in items(block, &["except"]).iter().enumerate() {
        let field = format!("{here}.except[{index}]");
        let text = value.as_str().unwrap_or_default();
        if let Some(why) = network_fault(text) {
            causes.push(Cause::invalid(&field, value, why));
        }
        if Network::parse(text).is_some_and(|part| !network.strictly_contains(part)) {
            causes.push(Cause::invalid(field, value, "must be a strict subset of `cidr`"));
        }
    }
}
