//! Validation rules that the schema cannot express, about fields and their combinations. Each group of kinds has a
//! file; shared rules are here.
//!
//! Invariant: causes have the order of a real server, which is the order of its checks, not of the fields.
//!
//! Not here: immutable fields (the hooks of the kinds).

pub(super) mod autoscalers;
pub(super) mod budgets;
pub(super) mod ingresses;
pub(super) mod jobs;
pub(super) mod network_policies;
pub(super) mod services;
pub(super) mod workloads;

use super::{
    fill::{items, text},
    metadata::{label_value_faults, labels, qualified_faults},
};
use crate::status::Cause;
use serde_json::Value;
use std::net::IpAddr;

const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

/// Validates that numeric fields below `path` are not negative.
fn nonnegative(path: &str, object: &Value, fields: &[&str], causes: &mut Vec<Cause>) {
    for field in fields {
        if object[*field].as_i64().is_some_and(|n| n < 0) {
            let why = "must be greater than or equal to 0";
            causes.push(Cause::invalid(format!("{path}.{field}"), &object[*field], why));
        }
    }
}

/// Returns the number in a percentage such as `25%`.
fn percent(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(i64::MAX))
}

/// Validates a non-negative number or a percentage.
fn count_or_percent(path: &str, value: &Value, causes: &mut Vec<Cause>) {
    match value {
        Value::String(text) if percent(text).is_none() => causes.push(Cause::invalid(path, value, PERCENT)),
        Value::Number(n) if n.as_i64().is_some_and(|n| n < 0) => {
            causes.push(Cause::invalid(path, value, "must be greater than or equal to 0"));
        }
        _ => {}
    }
}

/// Validates that a percentage is at most 100%.
fn at_most_all(path: &str, value: &Value, causes: &mut Vec<Cause>) {
    if value.as_str().and_then(percent).is_some_and(|n| n > 100) {
        causes.push(Cause::invalid(path, value, "must not be greater than 100%"));
    }
}

/// Returns whether a number or percentage is zero or invalid.
fn is_none(value: &Value) -> bool {
    match value {
        Value::String(text) => percent(text).is_none_or(|n| n == 0),
        other => other.as_i64().unwrap_or(0) == 0,
    }
}

/// Validates a label selector. Returns false if it is invalid.
pub(in crate::kinds::hooks) fn label_selector(path: &str, selector: &Value, causes: &mut Vec<Cause>) -> bool {
    let before = causes.len();
    labels(&format!("{path}.matchLabels"), &selector["matchLabels"], causes);
    for (index, expression) in items(selector, &["matchExpressions"]).iter().enumerate() {
        let here = format!("{path}.matchExpressions[{index}]");
        let values = items(expression, &["values"]);
        match text(expression, &["operator"]) {
            "In" | "NotIn" => {
                if values.is_empty() {
                    let why = "must be specified when `operator` is 'In' or 'NotIn'";
                    causes.push(Cause::required(format!("{here}.values"), why));
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    causes.push(Cause::forbidden(format!("{here}.values"), why));
                }
            }
            other => {
                causes.push(Cause::invalid(format!("{here}.operator"), &other.into(), "not a valid selector operator"));
            }
        }
        let key = text(expression, &["key"]);
        let faults = qualified_faults(key);
        causes.extend(faults.iter().map(|why| Cause::invalid(format!("{here}.key"), &key.into(), why)));
        for (place, value) in values.iter().enumerate() {
            let faults = label_value_faults(value.as_str().unwrap_or_default());
            causes.extend(faults.iter().map(|why| Cause::invalid(format!("{here}.values[{place}]"), value, why)));
        }
    }
    causes.len() == before
}

/// Validates a port number.
fn port_number(path: &str, value: &Value, causes: &mut Vec<Cause>) {
    if !value.as_i64().is_some_and(|n| (1..=65535).contains(&n)) {
        causes.push(Cause::invalid(path, value, "must be between 1 and 65535, inclusive"));
    }
}

/// Validates a port name.
fn port_name(path: &str, value: &Value, causes: &mut Vec<Cause>) {
    let name = value.as_str().unwrap_or_default();
    let mut refuse = |why: &str| causes.push(Cause::invalid(path, value, why));
    if name.len() > 15 {
        refuse("must be no more than 15 bytes");
    }
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        refuse("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.bytes().any(|b| b.is_ascii_lowercase()) {
        refuse("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        refuse("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        refuse("must not begin or end with a hyphen");
    }
}

/// Validates an IP address.
fn address_fault(text: &str) -> Option<&'static str> {
    if text.parse::<IpAddr>().is_ok() {
        return None;
    }
    let short = |part: &str| part.trim_start_matches('0').to_owned();
    let stripped: Vec<String> =
        text.split('.').map(|p| if short(p).is_empty() { "0".to_owned() } else { short(p) }).collect();
    let sloppy = text.split('.').all(|part| !part.is_empty()) && stripped.join(".").parse::<IpAddr>().is_ok();
    Some(if sloppy {
        "must not have leading 0s"
    } else {
        "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
    })
}

/// An IP address and the length of its prefix.
#[derive(Clone, Copy)]
struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let (address, prefix) = (address.parse::<IpAddr>().ok()?, prefix.parse().ok()?);
        let longest = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= longest).then_some(Self { address, prefix })
    }

    /// Returns the bits of the prefix, shifted down.
    fn head(self, prefix: u8) -> u128 {
        let (bits, length) = match self.address {
            IpAddr::V4(four) => (u128::from(four.to_bits()), 32),
            IpAddr::V6(six) => (six.to_bits(), 128),
        };
        bits.checked_shr(u32::from(length - prefix)).unwrap_or(0)
    }

    /// Returns whether the address has bits beyond the prefix.
    fn has_host_bits(self) -> bool {
        let (bits, length) = match self.address {
            IpAddr::V4(four) => (u128::from(four.to_bits()), 32),
            IpAddr::V6(six) => (six.to_bits(), 128),
        };
        self.head(self.prefix).checked_shl(u32::from(length - self.prefix)).unwrap_or(0) != bits
    }

    /// Returns whether the other network is a proper subset of this one.
    fn strictly_contains(self, other: Self) -> bool {
        self.address.is_ipv4() == other.address.is_ipv4()
            && self.prefix < other.prefix
            && self.head(self.prefix) == other.head(self.prefix)
    }
}

/// Validates a CIDR.
fn network_fault(text: &str) -> Option<&'static str> {
    match Network::parse(text) {
        None => Some("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
        Some(network) if network.has_host_bits() => Some("must not have bits set beyond the prefix length"),
        Some(_) => None,
    }
}

/// Returns the cause `Unsupported value: …`, with the value as Go prints it.
fn unsupported(path: impl Into<String>, printed: &str, supported: &[&str]) -> Cause {
    let list = supported.iter().map(|s| format!("\"{s}\"")).collect::<Vec<_>>().join(", ");
    let message = format!("Unsupported value: {printed}: supported values: {list}");
    Cause::new("FieldValueNotSupported", path, message)
}

/// Returns the cause `Invalid value: …`, with the value as Go prints it, or without it if `printed` is empty.
fn invalid(path: impl Into<String>, printed: &str, why: &str) -> Cause {
    let shown = if printed.is_empty() { String::new() } else { format!("{printed}: ") };
    Cause::new("FieldValueInvalid", path, format!("Invalid value: {shown}{why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_networks() {
        let network = |text| Network::parse(text).unwrap();
        assert_eq!(network_fault("10.0.0.0/8"), None);
        assert_eq!(network_fault("0.0.0.0/0"), None);
        assert_eq!(network_fault("::/0"), None);
        assert_eq!(network_fault("10.0.0.1/8"), Some("must not have bits set beyond the prefix length"));
        assert!(network_fault("10.0.0.0/33").is_some());
        assert!(network("0.0.0.0/0").strictly_contains(network("10.0.0.0/8")));
        assert!(network("10.0.0.0/8").strictly_contains(network("10.1.0.0/16")));
        assert!(!network("10.0.0.0/8").strictly_contains(network("11.0.0.0/16")));
        assert!(!network("10.0.0.0/8").strictly_contains(network("10.0.0.0/8")));
    }

    #[test]
    fn knows_addresses() {
        assert_eq!(address_fault("10.0.0.7"), None);
        assert_eq!(address_fault("::1"), None);
        assert_eq!(address_fault("10.0.0.07"), Some("must not have leading 0s"));
        assert!(address_fault("x").is_some_and(|why| why.starts_with("must be a valid IP")));
    }
}
