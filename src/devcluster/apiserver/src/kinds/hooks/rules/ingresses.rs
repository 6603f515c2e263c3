//! Ingresses.

use super::{invalid, port_name, port_number};
use crate::kinds::hooks::{
    fill::{at, items, text},
    metadata::{NameRule, label_fault, name_fault},
};
use crate::status::Cause;
use serde_json::Value;
use std::net::IpAddr;

const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Validates the spec of an Ingress.
pub(in crate::kinds::hooks) fn validate(spec: &Value, causes: &mut Vec<Cause>) {
    let rules = items(spec, &["rules"]);
    if rules.is_empty() && spec["defaultBackend"].is_null() {
        let printed = if spec["rules"].is_array() { "[]" } else { "null" };
        causes.push(invalid("spec", printed, "either `defaultBackend` or `rules` must be specified"));
    }
    if !spec["defaultBackend"].is_null() {
        backend(&spec["defaultBackend"], "spec.defaultBackend", causes);
    }
    for (index, rule) in rules.iter().enumerate() {
        let here = format!("spec.rules[{index}]");
        let name = text(rule, &["host"]);
        if !name.is_empty() {
            let field = format!("{here}.host");
            if name.parse::<IpAddr>().is_ok() {
                causes.push(Cause::invalid(&field, &name.into(), "must be a DNS name, not an IP address"));
            }
            host(&field, name, causes);
        }
        if rule["http"].is_null() {
            continue;
        }
        let paths = items(rule, &["http", "paths"]);
        if paths.is_empty() {
            causes.push(Cause::required(format!("{here}.http.paths"), ""));
        }
        for (place, path) in paths.iter().enumerate() {
            http_path(path, &format!("{here}.http.paths[{place}]"), causes);
        }
    }
    for (index, entry) in items(spec, &["tls"]).iter().enumerate() {
        for (place, name) in items(entry, &["hosts"]).iter().enumerate() {
            host(&format!("spec.tls[{index}].hosts[{place}]"), name.as_str().unwrap_or_default(), causes);
        }
        let secret = text(entry, &["secretName"]);
        if !secret.is_empty() {
            subdomain(&format!("spec.tls[{index}].secretName"), secret, causes);
        }
    }
    if let Some(class) = spec["ingressClassName"].as_str() {
        subdomain("spec.ingressClassName", class, causes);
    }
}

fn subdomain(field: &str, name: &str, causes: &mut Vec<Cause>) {
    if let Some(why) = name_fault(name, NameRule::Subdomain) {
        causes.push(Cause::invalid(field, &name.into(), &why));
    }
}

fn host(field: &str, name: &str, causes: &mut Vec<Cause>) {
    if !name.contains('*') {
        subdomain(field, name, causes);
    } else if name.strip_prefix("*.").is_none_or(|rest| name_fault(rest, NameRule::Subdomain).is_some()) {
        causes.push(Cause::invalid(field, &name.into(), WILDCARD));
    }
}

fn http_path(path: &Value, here: &str, causes: &mut Vec<Cause>) {
    let known = ["Exact", "ImplementationSpecific", "Prefix"];
    let route = text(path, &["path"]);
    let field = format!("{here}.path");
    let mut refuse = |why: &str| causes.push(Cause::invalid(&field, &route.into(), why));
    match path["pathType"].as_str() {
        None => {
            causes.push(Cause::required(format!("{here}.pathType"), "pathType must be specified"));
            return;
        }
        Some("Exact" | "Prefix") => {
            if !route.starts_with('/') {
                refuse("must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|part| route.contains(**part)) {
                refuse(&format!("must not contain '{part}'"));
            }
            for end in ["/..", "/."].iter().filter(|end| route.ends_with(**end)) {
                refuse(&format!("cannot end with '{end}'"));
            }
        }
        Some("ImplementationSpecific") => {
            if !route.is_empty() && !route.starts_with('/') {
                refuse("must be an absolute path");
            }
        }
        Some(other) => causes.push(Cause::not_supported(format!("{here}.pathType"), &other.into(), &known)),
    }
    backend(&path["backend"], &format!("{here}.backend"), causes);
}

fn backend(backend: &Value, here: &str, causes: &mut Vec<Cause>) {
    let (resource, service) = (&backend["resource"], &backend["service"]);
    match (resource.is_null(), service.is_null()) {
        (false, false) => causes.push(invalid(here, "\"\"", "cannot set both resource and service backends")),
        (true, true) => causes.push(invalid(here, "\"\"", "resource or service backend is required")),
        (false, true) => {
            if let Some(group) = resource["apiGroup"].as_str() {
                subdomain(&format!("{here}.resource.apiGroup"), group, causes);
            }
            for part in ["kind", "name"] {
                let (field, value) = (format!("{here}.resource.{part}"), text(resource, &[part]));
                if value.is_empty() {
                    causes.push(Cause::required(field, ""));
                } else if let Some(why) = name_fault(value, NameRule::PathSegment) {
                    causes.push(Cause::invalid(field, &value.into(), &why));
                }
            }
        }
        (true, false) => {
            let name = text(service, &["name"]);
            let field = format!("{here}.service.name");
            if name.is_empty() {
                causes.push(Cause::required(field, ""));
            } else if let Some(why) = label_fault(name) {
                causes.push(Cause::invalid(field, &name.into(), &why));
            }
            service_port(service, here, causes);
        }
    }
}

fn service_port(service: &Value, here: &str, causes: &mut Vec<Cause>) {
    let (name, number) = (at(service, &["port", "name"]), at(service, &["port", "number"]));
    let named = name.as_str().is_some_and(|name| !name.is_empty());
    let numbered = number.as_i64().is_some_and(|number| number != 0);
    match (named, numbered) {
        (true, true) => causes.push(invalid(here, "\"\"", "cannot set both port name & port number")),
        (true, false) => port_name(&format!("{here}.service.port.name"), name, causes),
        (false, true) => port_number(&format!("{here}.service.port.number"), number, causes),
        (false, false) => causes.push(Cause::required(here, "port name or number is required")),
    }
}
