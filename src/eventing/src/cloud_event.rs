//! A CloudEvent (1.0): parsed from a request in binary or structured mode, and written as the headers and body of a
//! delivery.
//!
//! Structured bodies with the prefix `ce-` in their keys, as in a tutorial of Kyma, are accepted. The result reports
//! the use of this form.
//!
//! Not here: batches, formats other than JSON, and older versions of the specification. The crate `cloudevents-sdk`
//! lacks the known error messages, `ce-` keys in bodies and percent-encoding of headers, and would add a second library
//! for times.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use jiff::Timestamp;

use super::header::{TRACING, decoded, encoded_length, of_attribute};
use super::json::{Members, SCALAR, is_deeper, read};
use super::not_an_event::{ATTRIBUTES, HEADERS, NotAnEvent};

/// Maximum length of an attribute's name in bytes.
const NAME: usize = 64;

/// Prefix of the media types of events.
const EVENTS: &str = "application/cloudevents";

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CloudEvent {
    /// Context attributes and extensions, without `specversion`, which is 1.0.
    pub(super) attributes: BTreeMap<String, String>,
    /// The body of the delivery.
    pub(super) data: Bytes,
}

/// A parsed event, and whether its keys had the prefix `ce-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) event: CloudEvent,
    pub(super) has_prefixed_keys: bool,
}

impl CloudEvent {
    /// Returns an attribute or extension.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    /// Returns the attribute `type`.
    pub(super) fn event_type(&self) -> &str {
        self.attribute("type").unwrap_or_default()
    }

    /// Returns the event with a different value of an attribute.
    pub(super) fn with(&self, name: &str, value: &str) -> Self {
        let mut event = self.clone();
        event.attributes.insert(name.to_owned(), value.to_owned());
        event
    }

    /// Returns the event without an attribute.
    pub(super) fn without(mut self, name: &str) -> Self {
        self.attributes.remove(name);
        self
    }

    /// Parses a request.
    pub(super) fn parse(headers: &HeaderMap, body: Bytes) -> Result<Parsed, NotAnEvent> {
        let is_own = |name: &&HeaderName| *name == CONTENT_TYPE || name.as_str().starts_with("ce-");
        if let Some(name) = headers.keys().filter(is_own).find(|name| headers.get_all(*name).iter().nth(1).is_some()) {
            return Err(NotAnEvent::Twice(name.as_str().chars().take(NAME).collect()));
        }
        if headers.get_all(CONTENT_ENCODING).iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(NotAnEvent::Compressed);
        }
        let content = headers.get(CONTENT_TYPE).map(HeaderValue::to_str).transpose();
        let content = content.map_err(|_| NotAnEvent::NotAscii("content-type"))?.unwrap_or_default();
        let media = media(content);
        let mut parsed = if media == "application/cloudevents+json" {
            structured(&body)?
        } else if media.starts_with("application/cloudevents-batch") {
            return Err(NotAnEvent::Batch);
        } else if media.starts_with(EVENTS) {
            return Err(NotAnEvent::Format(media.chars().take(NAME).collect()));
        } else if headers.contains_key("ce-specversion") {
            Parsed { event: binary(headers, content, body)?, has_prefixed_keys: false }
        } else {
            return Err(NotAnEvent::NoEncoding);
        };
        for (header, extension) in TRACING {
            if let Some(value) = headers.get(header).and_then(|value| value.to_str().ok()) {
                parsed.event.attributes.insert(extension.to_owned(), value.to_owned());
            }
        }
        parsed.event.check_all()?;
        Ok(parsed)
    }

    /// Parses the headers of a delivery in binary mode. The names are in lower case. The body is plain data, whatever
    /// its content type is.
    pub(super) fn of_delivery<'h>(
        headers: impl Iterator<Item = (Cow<'h, str>, &'h str)>,
        data: Bytes,
    ) -> Result<Self, NotAnEvent> {
        let mut attributes: BTreeMap<String, String> = BTreeMap::new();
        let (mut content, mut has_version, mut tracing) = (None, false, Vec::new());
        for (header, value) in headers {
            let header = &*header;
            let (name, text) = if let Some(name) = header.strip_prefix("ce-") {
                has_version |= name == "specversion";
                (name, decoded(value.as_bytes()).ok_or_else(|| NotAnEvent::Encoding(name.to_owned()))?)
            } else if header == CONTENT_TYPE.as_str() {
                content.get_or_insert(value);
                continue;
            } else if let Some((_, extension)) = TRACING.iter().find(|(of, _)| *of == header) {
                tracing.push((*extension, value));
                continue;
            } else if header == CONTENT_ENCODING.as_str() && !value.eq_ignore_ascii_case("identity") {
                return Err(NotAnEvent::Compressed);
            } else {
                continue;
            };
            if attributes.contains_key(name) {
                return Err(NotAnEvent::Twice(header.chars().take(NAME).collect()));
            }
            insert(&mut attributes, name, text)?;
        }
        // As in a request, these headers win over attributes with their names.
        attributes.extend(tracing.into_iter().map(|(extension, value)| (extension.to_owned(), value.to_owned())));
        let mut event = Self { attributes, data };
        if !has_version {
            return Err(NotAnEvent::NoEncoding);
        }
        event.check_all()?;
        if let Some(content) = content.filter(|content| content.is_ascii() && !content.contains(char::is_control)) {
            event.attributes.insert("datacontenttype".to_owned(), content.to_owned());
        }
        Ok(event)
    }

    /// Checks a parsed event.
    fn check_all(&self) -> Result<(), NotAnEvent> {
        self.check()?;
        let problems = self.problems();
        if problems.is_empty() { Ok(()) } else { Err(NotAnEvent::Attributes(problems.join("\n"))) }
    }

    /// Checks that the event can be delivered: each attribute must be valid as a header, and all headers together must
    /// not be too long.
    pub(super) fn check(&self) -> Result<(), NotAnEvent> {
        if self.attributes.len() > ATTRIBUTES {
            return Err(NotAnEvent::TooMany);
        }
        if let Some((name, _)) = self.attributes.iter().find(|(_, value)| value.contains(char::is_control)) {
            return Err(NotAnEvent::Control(name.clone()));
        }
        // In a delivery, the content type determines where a client finds the attributes, such as the number of hops.
        if self.attribute("datacontenttype").is_some_and(|content| media(content).starts_with(EVENTS)) {
            return Err(NotAnEvent::Nested);
        }
        // These headers are not percent-encoded.
        let plain = TRACING.into_iter().map(|(_, extension)| extension).chain(["datacontenttype"]);
        let mut plain = plain.filter(|name| self.attribute(name).is_some_and(|value| !value.is_ascii()));
        if let Some(name) = plain.next() {
            return Err(NotAnEvent::NotAscii(name));
        }
        let length: usize = self.attributes.iter().map(|(name, value)| name.len() + encoded_length(value)).sum();
        if length > HEADERS { Err(NotAnEvent::TooLong) } else { Ok(()) }
    }

    fn problems(&self) -> Vec<String> {
        let is_empty = |name: &str| self.attribute(name).is_none_or(str::is_empty);
        let mut problems = Vec::new();
        if is_empty("id") {
            problems.push("id: MUST be a non-empty string".to_owned());
        }
        if is_empty("source") {
            problems.push("source: REQUIRED".to_owned());
        }
        if is_empty("type") {
            problems.push("type: MUST be a non-empty string".to_owned());
        }
        if self.attribute("time").is_some_and(|time| time.parse::<Timestamp>().is_err()) {
            problems.push("time: MUST be a time as in RFC 3339".to_owned());
        }
        problems
    }

    /// Returns the names and values of the headers of a delivery in binary mode.
    pub(super) fn delivery(&self) -> impl Iterator<Item = (Cow<'static, str>, Cow<'_, str>)> {
        let version = (Cow::Borrowed("ce-specversion"), Cow::Borrowed("1.0"));
        std::iter::once(version).chain(self.attributes.iter().map(|(name, value)| of_attribute(name, value)))
    }

    /// Returns the headers of a delivery in binary mode.
    pub(super) fn headers(&self) -> HeaderMap {
        // A delivery has a few headers of its own.
        let mut headers = HeaderMap::with_capacity(self.attributes.len() + 4);
        for (name, value) in self.delivery() {
            let name = match name {
                Cow::Borrowed(name) => Ok(HeaderName::from_static(name)),
                Cow::Owned(name) => HeaderName::try_from(name),
            };
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&value)) {
                headers.insert(name, value);
            }
        }
        headers
    }
}

fn binary(headers: &HeaderMap, content: &str, body: Bytes) -> Result<CloudEvent, NotAnEvent> {
    let mut attributes = BTreeMap::new();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix("ce-") else { continue };
        let text = decoded(value.as_bytes()).ok_or_else(|| NotAnEvent::Encoding(name.to_owned()))?;
        insert(&mut attributes, name, text)?;
    }
    if !content.is_empty() {
        attributes.insert("datacontenttype".to_owned(), content.to_owned());
    }
    Ok(CloudEvent { attributes, data: body })
}

fn structured(body: &Bytes) -> Result<Parsed, NotAnEvent> {
    let Members(members) = Members::read(body).map_err(NotAnEvent::Json)?;
    let has = |name: &str| members.iter().any(|(key, _)| key == name);
    let has_prefixed_keys = !has("specversion") && has("ce-specversion");
    if !has_prefixed_keys && !has("specversion") {
        version(None)?;
    }
    let (mut attributes, mut data, mut encoded) = (BTreeMap::new(), None, None);
    let mut names = BTreeSet::new();
    for (key, value) in &members {
        let name = if has_prefixed_keys { key.strip_prefix("ce-").unwrap_or(key) } else { key };
        if !names.insert(name) {
            return Err(NotAnEvent::Twice(name.chars().take(NAME).collect()));
        }
        match name {
            "data" => data = Some(value.get()),
            "data_base64" => encoded = Some(value.get()),
            name => {
                if let Some(text) =
                    text_of(value.get()).ok_or_else(|| NotAnEvent::Value(name.chars().take(NAME).collect()))?
                {
                    insert(&mut attributes, name, text)?;
                }
            }
        }
    }
    // In structured mode, data without a content type is JSON.
    let content = attributes.entry("datacontenttype".to_owned()).or_insert_with(|| "application/json".to_owned());
    if data.is_some_and(is_deeper) {
        return Err(NotAnEvent::TooDeep);
    }
    let data = match (data.filter(|data| *data != "null"), encoded) {
        (Some(_), Some(_)) => return Err(NotAnEvent::TwoData),
        (None, Some(encoded)) => {
            let text: String = read(SCALAR, encoded.as_bytes()).map_err(NotAnEvent::Base64)?;
            BASE64_STANDARD.decode(text).map_err(|error| NotAnEvent::Base64(error.to_string()))?.into()
        }
        (Some(data), None) if !is_json(content) && data.starts_with('"') => {
            let text: String = read(SCALAR, data.as_bytes()).map_err(NotAnEvent::Json)?;
            text.into()
        }
        (Some(data), None) => Bytes::copy_from_slice(data.as_bytes()),
        (None, None) => {
            attributes.remove("datacontenttype");
            Bytes::new()
        }
    };
    Ok(Parsed { event: CloudEvent { attributes, data }, has_prefixed_keys })
}

/// Adds an attribute. For `specversion`, only checks the version.
fn insert(attributes: &mut BTreeMap<String, String>, name: &str, value: String) -> Result<(), NotAnEvent> {
    if name == "specversion" {
        return version(Some(&value));
    }
    if name == "data" {
        return Err(NotAnEvent::Reserved);
    }
    let is_name = !name.is_empty()
        && name.len() <= NAME
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if !is_name {
        return Err(NotAnEvent::Name(name.chars().take(NAME).collect()));
    }
    attributes.insert(name.to_owned(), value);
    if attributes.len() > ATTRIBUTES { Err(NotAnEvent::TooMany) } else { Ok(()) }
}

fn version(value: Option<&str>) -> Result<(), NotAnEvent> {
    match value {
        Some("1.0") => Ok(()),
        other => Err(NotAnEvent::Version(other.unwrap_or_default().chars().take(NAME).collect())),
    }
}

/// Returns an attribute as a string; `Some(None)` for `null`.
fn text_of(json: &str) -> Option<Option<String>> {
    match SCALAR.read(json.as_bytes()).ok()? {
        serde_json::Value::Null => Some(None),
        serde_json::Value::String(text) => Some(Some(text)),
        serde_json::Value::Bool(_) | serde_json::Value::Number(_) => Some(Some(json.to_owned())),
        _ => None,
    }
}

fn is_json(content: &str) -> bool {
    let media = media(content);
    media.ends_with("/json") || media.ends_with("+json")
}

/// Returns a media type without its parameters.
fn media(content: &str) -> String {
    content.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::super::json::DEPTH;
    use super::*;

    fn parse(headers: &[(&'static str, &str)], body: &str) -> Result<Parsed, NotAnEvent> {
        let headers = headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        CloudEvent::parse(&headers.collect(), Bytes::copy_from_slice(body.as_bytes()))
    }

    fn structured(body: &str) -> Result<Parsed, NotAnEvent> {
        parse(&[("content-type", "application/cloudevents+json; charset=UTF-8")], body)
    }

    fn shown(parsed: &Parsed) -> String {
        let pairs: Vec<_> = parsed.event.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{} | {}", pairs.join(" "), String::from_utf8_lossy(&parsed.event.data))
    }

    #[test]
    fn headers_make_an_event() {
        let parsed = parse(
            &[
                ("ce-specversion", "1.0"),
                ("ce-id", "A 1%20b%C3%A9"),
                ("ce-source", "kyma"),
                ("ce-type", "t"),
                ("content-type", "application/json"),
                ("x-b3-traceid", "abc"),
            ],
            "\"123\"",
        );
        let expected = "b3traceid=abc datacontenttype=application/json id=A 1 bé source=kyma type=t | \"123\"";
        assert_eq!(shown(&parsed.unwrap()), expected);
    }

    #[test]
    fn a_body_makes_an_event() {
        let check = |body: &str, expected: &str| assert_eq!(shown(&structured(body).unwrap()), expected, "{body}");
        check(
            r#"{"specversion":"1.0","id":"1","source":"s","type":"t","n":7,"b":true,"x":null,"data":{"a": 1.50}}"#,
            r#"b=true datacontenttype=application/json id=1 n=7 source=s type=t | {"a": 1.50}"#,
        );
        check(
            r#"{"specversion":"1.0","id":"1","source":"s","type":"t","datacontenttype":"text/plain","data":"a\nb"}"#,
            "datacontenttype=text/plain id=1 source=s type=t | a\nb",
        );
        check(
            r#"{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"YWJj"}"#,
            "datacontenttype=application/json id=1 source=s type=t | abc",
        );
        check(r#"{"specversion":"1.0","id":"1","source":"s","type":"t"}"#, "id=1 source=s type=t | ");
    }

    #[test]
    fn keys_with_the_prefix_of_headers_are_understood() {
        let parsed = structured(
            r#"{"ce-specversion":"1.0","ce-id":"1","ce-source":"s","ce-type":"t","ce-eventtypeversion":"v1","data":"x"}"#,
        );
        let parsed = parsed.unwrap();
        assert!(parsed.has_prefixed_keys);
        let expected = "datacontenttype=application/json eventtypeversion=v1 id=1 source=s type=t | \"x\"";
        assert_eq!(shown(&parsed), expected);
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        let check = |result: Result<Parsed, NotAnEvent>, expected: &str| {
            assert_eq!(result.unwrap_err().to_string().lines().next(), Some(expected));
        };
        let with = |more: &str| structured(&format!(r#"{{"specversion":"1.0","source":"s","type":"t"{more}}}"#));
        check(with(""), "id: MUST be a non-empty string");
        check(with(r#","id":"1","time":"now""#), "time: MUST be a time as in RFC 3339");
        check(
            with(r#","id":"1","Upper":"1""#),
            "Upper: the name of an attribute must consist of lower case letters and digits",
        );
        check(with(r#","id":{}"#), "id: the value of an attribute must be a string, a number or a boolean");
        check(structured("{}"), r#"unsupported cloudevents version: specversion is "", and must be "1.0""#);
        check(
            structured(r#"{"specversion":"0.3"}"#),
            r#"unsupported cloudevents version: specversion is "0.3", and must be "1.0""#,
        );
        check(structured("{"), "not JSON: EOF while parsing an object at line 1 column 1");
        check(parse(&[("ce-specversion", "1.0"), ("ce-id", "%zz")], ""), "id: the value is not percent-encoded UTF-8");
        assert_eq!(parse(&[], "{}"), Err(NotAnEvent::NoEncoding));
        let many: Vec<_> = (0..70).map(|n| format!(r#","a{n}":"1""#)).collect();
        assert_eq!(with(&many.concat()), Err(NotAnEvent::TooMany));
    }

    #[test]
    fn an_attribute_is_there_once_and_can_be_a_header() {
        let check = |result: Result<Parsed, NotAnEvent>, expected: NotAnEvent| assert_eq!(result, Err(expected));
        let own = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "s"), ("ce-type", "t")];
        let binary = |more: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in own.iter().chain(more) {
                headers.append(*name, value.parse().unwrap());
            }
            CloudEvent::parse(&headers, Bytes::new())
        };
        let with =
            |more: &str| structured(&format!(r#"{{"specversion":"1.0","id":"1","source":"s","type":"t"{more}}}"#));
        check(binary(&[("ce-id", "2")]), NotAnEvent::Twice("ce-id".into()));
        check(with(r#","type":"u""#), NotAnEvent::Twice("type".into()));
        check(binary(&[("ce-a", "%0d%0Ab")]), NotAnEvent::Control("a".into()));
        check(with(r#","data":1,"datacontenttype":"a/b\r\nc: d""#), NotAnEvent::Control("datacontenttype".into()));
        check(with(r#","data":1,"datacontenttype":"a/\u00e9""#), NotAnEvent::NotAscii("datacontenttype"));
        check(binary(&[("content-encoding", "gzip")]), NotAnEvent::Compressed);
        check(
            binary(&[("content-type", "application/cloudevents+avro")]),
            NotAnEvent::Format("application/cloudevents+avro".into()),
        );
        check(with(r#","data":1,"data_base64":"eA==""#), NotAnEvent::TwoData);
        assert!(with(r#","data":null,"data_base64":"eA==""#).is_ok());
        let nested = |depth: usize| format!(r#","data":{}{}"#, "[".repeat(depth), "]".repeat(depth));
        assert!(with(&nested(DEPTH)).is_ok());
        check(with(&nested(DEPTH + 1)), NotAnEvent::TooDeep);
        // The encoded string is six times as long.
        let subject = |length: usize| format!(r#","subject":"{}""#, "\u{e9}".repeat(length));
        assert!(with(&subject(HEADERS / 6 - 10)).is_ok());
        check(with(&subject(HEADERS / 6)), NotAnEvent::TooLong);
    }

    #[test]
    fn an_event_is_not_delivered_in_place_of_the_one_that_contains_it() {
        let inner = r#"{"specversion":"1.0","id":"2","source":"s","type":"t","knativebrokerttl":"255"}"#;
        for content in
            ["application/cloudevents+json", " Application/CloudEvents; a=b", "application/cloudevents-batch+json"]
        {
            let outer = format!(
                r#"{{"specversion":"1.0","id":"1","source":"s","type":"t","datacontenttype":"{content}","data":{inner}}}"#
            );
            assert_eq!(structured(&outer), Err(NotAnEvent::Nested), "{content}");
        }
    }

    #[test]
    fn a_delivery_is_in_binary_mode() {
        let parsed = structured(
            r#"{"specversion":"1.0","id":"a \"b\" 100% é","source":"s","type":"t","traceparent":"00-1","data":1}"#,
        );
        let headers = parsed.unwrap().event.headers();
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(text("ce-id"), Some("a%20%22b%22%20100%25%20%C3%A9"));
        assert_eq!(text("content-type"), Some("application/json"));
        assert_eq!((text("ce-datacontenttype"), text("ce-specversion")), (None, Some("1.0")));
        assert_eq!((text("traceparent"), text("ce-traceparent")), (Some("00-1"), None));
    }
}
