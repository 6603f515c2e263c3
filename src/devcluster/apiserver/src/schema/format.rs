//! The string formats of custom resources' schemas.
//!
//! Not here: formats that a real server does not check. They accept everything.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine as _;

/// Returns whether `text` matches the format. Unknown formats accept everything.
pub(super) fn accepts(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.contains(['T', 't']) && text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => is_duration(text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => is_uuid(text),
        "email" => text.split_once('@').is_some_and(|(who, at)| !who.is_empty() && is_host(at)),
        "hostname" => is_host(text),
        "uri" => text.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some() || text.starts_with('/')),
        _ => true,
    }
}

/// Returns whether the text is a Go duration (`1h30m`) or has the units of a real server's parser (`3 days`).
fn is_duration(text: &str) -> bool {
    let units = ["ns", "us", "µs", "μs", "ms", "s", "m", "h", "d", "w"];
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    if text == "0" {
        return true;
    }
    let mut rest = text;
    while !rest.is_empty() {
        let after_number = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        if after_number.len() == rest.len() {
            return false;
        }
        let after_unit = after_number.trim_start_matches(|c: char| !c.is_ascii_digit() && c != '.');
        let unit = after_number[..after_number.len() - after_unit.len()].trim();
        let words = ["second", "seconds", "minute", "minutes", "hour", "hours", "day", "days", "week", "weeks"];
        if !units.contains(&unit) && !words.contains(&unit) {
            return false;
        }
        rest = after_unit;
    }
    !text.is_empty()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    match (address.parse::<IpAddr>(), bits.parse::<u8>()) {
        (Ok(IpAddr::V4(_)), Ok(bits)) => bits <= 32,
        (Ok(IpAddr::V6(_)), Ok(bits)) => bits <= 128,
        _ => false,
    }
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    matches!(parts.len(), 6 | 8 | 20) && parts.iter().all(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_uuid(text: &str) -> bool {
    let plain: String = text.chars().filter(|c| *c != '-').collect();
    plain.len() == 32 && plain.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_host(text: &str) -> bool {
    let label = |l: &str| {
        !l.is_empty()
            && l.len() <= 63
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    text.len() <= 253 && text.split('.').all(label)
}
