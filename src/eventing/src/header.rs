//! The form of an attribute of an event as a header of a delivery in binary mode.

use std::borrow::Cow;

/// Tracing headers, and the extensions that carry them.
pub(super) const TRACING: [(&str, &str); 7] = [
    ("traceparent", "traceparent"),
    ("tracestate", "tracestate"),
    ("x-b3-traceid", "b3traceid"),
    ("x-b3-spanid", "b3spanid"),
    ("x-b3-parentspanid", "b3parentspanid"),
    ("x-b3-sampled", "b3sampled"),
    ("x-b3-flags", "b3flags"),
];

/// Headers of common attributes. Each event has most of them, so they are not composed again.
const COMMON: [(&str, &str); 8] = [
    ("id", "ce-id"),
    ("source", "ce-source"),
    ("type", "ce-type"),
    ("time", "ce-time"),
    ("subject", "ce-subject"),
    ("dataschema", "ce-dataschema"),
    ("eventtypeversion", "ce-eventtypeversion"),
    ("datacontenttype", "content-type"),
];

/// Returns the header of an attribute.
pub(super) fn of_attribute<'v>(name: &str, value: &'v str) -> (Cow<'static, str>, Cow<'v, str>) {
    if let Some((header, _)) = TRACING.iter().find(|(_, extension)| *extension == name) {
        return (Cow::Borrowed(*header), Cow::Borrowed(value));
    }
    let header: Cow<'static, str> = match COMMON.iter().find(|(attribute, _)| *attribute == name) {
        Some((_, header)) => Cow::Borrowed(*header),
        None => Cow::Owned(format!("ce-{name}")),
    };
    let is_unchanged = name == "datacontenttype" || encoded_length(value) == value.len();
    (header, if is_unchanged { Cow::Borrowed(value) } else { Cow::Owned(encoded(value)) })
}

/// Whether a byte needs no percent-encoding in a header: all but space, `"`, `%` and what is not printable ASCII.
fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e) && !matches!(byte, b'"' | b'%')
}

/// Percent-encodes the value of a header.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(encoded_length(text));
    for byte in text.bytes() {
        if is_plain(byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Returns the length of the encoded value.
pub(super) fn encoded_length(text: &str) -> usize {
    text.bytes().map(|byte| if is_plain(byte) { 1 } else { 3 }).sum()
}

/// Decodes a header's value.
pub(super) fn decoded(value: &[u8]) -> Option<String> {
    if !value.contains(&b'%') {
        return std::str::from_utf8(value).ok().map(str::to_owned);
    }
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.extend(hex::decode(digits).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_an_encoded_event() {
        for text in ["", "a b", "%", "é\u{1F600}\n\t\"", "plain"] {
            assert_eq!(decoded(encoded(text).as_bytes()).as_deref(), Some(text));
            assert_eq!(encoded_length(text), encoded(text).len());
        }
    }

    #[test]
    fn an_attribute_has_one_header() {
        let check = |name: &str, value: &str, expected: (&str, &str)| {
            let (header, text) = of_attribute(name, value);
            assert_eq!((&*header, &*text), expected);
        };
        check("id", "a b", ("ce-id", "a%20b"));
        check("own", "a", ("ce-own", "a"));
        check("datacontenttype", "text/plain; a=b", ("content-type", "text/plain; a=b"));
        check("b3flags", "1", ("x-b3-flags", "1"));
        for (attribute, header) in COMMON.into_iter().filter(|(attribute, _)| *attribute != "datacontenttype") {
            assert_eq!(header, format!("ce-{attribute}"));
        }
    }
}
