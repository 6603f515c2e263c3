//! Parses events in Kyma's oldest format, posted to `/{application}/v1/events`, and builds the responses.
//!
//! Each event becomes three CloudEvents. In the CloudEvent for Triggers, the type is unchanged and the source is the
//! application. In the CloudEvent for Subscriptions, type and source follow Kyma's later format. In the one for
//! Subscriptions by source and type (`v1alpha2`), the type ends with the version.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::cloud_event::CloudEvent;
use super::event_type::{self, PREFIX};
use super::json::{BODY, is_deeper, read};
use super::not_an_event::NotAnEvent;

/// A response with a status and a JSON body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

/// A parsed event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LegacyEvent {
    pub(super) id: String,
    /// The event for Triggers.
    pub(super) plain: CloudEvent,
    /// The event for Subscriptions; `None` if its type is not valid in Kyma.
    pub(super) cleaned: Option<CloudEvent>,
    /// The event for Subscriptions by source and type.
    pub(super) versioned: CloudEvent,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
struct Written<'b> {
    event_type: String,
    event_type_version: String,
    event_time: String,
    event_id: String,
    #[serde(borrow)]
    data: Option<&'b RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Refusal<'r> {
    status: u16,
    r#type: &'r str,
    message: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    more_info: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<[Detail<'r>; 1]>,
}

#[derive(Serialize)]
struct Detail<'r> {
    field: &'r str,
    r#type: &'r str,
    message: &'r str,
}

/// Parses the event of an application. An event without an ID gets `new_id`.
pub(super) fn parse(application: &str, body: &[u8], new_id: &str) -> Result<LegacyEvent, Answer> {
    const BAD: &str = "Bad payload syntax";
    let bad = |more: &str| refusal(400, "bad_payload_syntax", BAD, more);
    if body.is_empty() {
        return Err(bad(BAD));
    }
    let written: Written = read(BODY, body).map_err(|error| bad(&error))?;
    let Written { event_type, event_type_version: version, event_time: time, event_id, data } = written;
    if event_type.is_empty() {
        return Err(missing("event-type"));
    }
    if version.is_empty() {
        return Err(missing("event-type-version"));
    }
    if !version.contains(|c: char| c.is_ascii_alphanumeric()) {
        return Err(invalid("event-type-version"));
    }
    if time.is_empty() {
        return Err(missing("event-time"));
    }
    if time.parse::<Timestamp>().is_err() {
        return Err(invalid("event-time"));
    }
    if !event_id.is_empty() && !is_id(&event_id) {
        return Err(invalid("event-id"));
    }
    let data = data.map(RawValue::get).filter(|data| !matches!(*data, "null" | "\"\""));
    let data = data.ok_or_else(|| missing("data"))?;
    if is_deeper(data) {
        return Err(bad(&NotAnEvent::TooDeep.to_string()));
    }
    let data = Bytes::copy_from_slice(data.as_bytes());
    let id = if event_id.is_empty() { new_id.to_owned() } else { event_id };
    let attributes = [
        ("id", &*id),
        ("type", &*event_type),
        ("source", application),
        ("sourceid", application),
        ("time", &*time),
        ("datacontenttype", "application/json"),
        ("eventtypeversion", &*version),
    ];
    let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let plain = CloudEvent { attributes, data };
    plain.check().map_err(|refusal| bad(&refusal.to_string()))?;
    let application = event_type::without_marks(application);
    let name = event_type::cleaned(&format!("{PREFIX}.{application}.{event_type}.{version}"));
    let cleaned = name.ok().map(|name| {
        let mut event = plain.with("type", &name).with("source", "kyma");
        event.attributes.remove("sourceid");
        event
    });
    let versioned = plain.with("type", &format!("{event_type}.{version}")).without("sourceid");
    Ok(LegacyEvent { id, plain, cleaned, versioned })
}

/// Returns the response for an accepted event.
pub(super) fn accepted(id: &str) -> Answer {
    Answer { status: 200, body: format!("{{\"event-id\":{},\"status\":\"\",\"reason\":\"\"}}\n", json_text(id)) }
}

/// Returns the response for a body that is too large.
pub(super) fn too_large() -> Answer {
    refusal(413, "request_body_too_large", "Request body too large", "http: request body too large")
}

/// Returns the response for an event that cannot be stored.
pub(super) fn failed(status: u16, why: &str) -> Answer {
    Answer { status, body: format!("{{\"status\":{status},\"message\":{}}}\n", json_text(why)) }
}

/// Whether a string has the form of a UUID.
fn is_id(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn missing(field: &str) -> Answer {
    violation(field, "Missing field", "missing_field")
}

fn invalid(field: &str) -> Answer {
    violation(field, "Invalid field", "invalid_field")
}

fn violation(field: &str, message: &str, kind: &str) -> Answer {
    let details = Some([Detail { field, r#type: kind, message }]);
    written(&Refusal { status: 400, r#type: "validation_violation", message, more_info: None, details })
}

fn refusal(status: u16, kind: &str, message: &str, more: &str) -> Answer {
    written(&Refusal { status, r#type: kind, message, more_info: Some(more), details: None })
}

fn written(refusal: &Refusal<'_>) -> Answer {
    // Serialising strings and numbers cannot fail.
    let body = serde_json::to_string(refusal).unwrap_or_default();
    Answer { status: refusal.status, body: body + "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "11111111-2222-3333-4444-555555555555";

    fn refused(body: &str) -> String {
        let answer = parse("mock", body.as_bytes(), NEW).unwrap_err();
        assert_eq!(answer.status, 400);
        answer.body
    }

    #[test]
    fn an_event_is_two_cloud_events() {
        let body = br#"{"event-type":"order.item.created","event-type-version":"v1","event-time":"2020-04-02T21:37:00Z","data":"123"}"#;
        let event = parse("my-app", body, NEW).unwrap();
        assert_eq!(event.id, NEW);
        let plain = |name: &str| event.plain.attribute(name);
        assert_eq!((plain("type"), plain("source")), (Some("order.item.created"), Some("my-app")));
        assert_eq!((plain("eventtypeversion"), plain("time")), (Some("v1"), Some("2020-04-02T21:37:00Z")));
        assert_eq!(event.plain.data, "\"123\"");
        let cleaned = event.cleaned.unwrap();
        assert_eq!(cleaned.event_type(), "sap.kyma.custom.myapp.orderitem.created.v1");
        assert_eq!(cleaned.attribute("source"), Some("kyma"));
        assert_eq!(accepted(NEW).body, format!("{{\"event-id\":\"{NEW}\",\"status\":\"\",\"reason\":\"\"}}\n"));
    }

    #[test]
    fn a_name_with_one_segment_is_for_triggers_only() {
        let body = br#"{"event-type":"user","event-type-version":"v1","event-time":"2020-04-02T21:37:00Z","data":1}"#;
        assert_eq!(parse("mock", body, NEW).unwrap().cleaned, None);
    }

    #[test]
    fn refusals_are_kymas() {
        let violation = |field: &str, message: &str, kind: &str| {
            format!(
                "{{\"status\":400,\"type\":\"validation_violation\",\"message\":\"{message}\",\"details\":[{{\"field\":\"{field}\",\"type\":\"{kind}\",\"message\":\"{message}\"}}]}}\n"
            )
        };
        let missing = |field: &str| violation(field, "Missing field", "missing_field");
        let invalid = |field: &str| violation(field, "Invalid field", "invalid_field");
        let with = |more: &str| format!(r#"{{"event-type":"user.created","event-type-version":"v1"{more}}}"#);
        assert_eq!(refused("{}"), missing("event-type"));
        assert_eq!(refused(r#"{"event-type":"a"}"#), missing("event-type-version"));
        assert_eq!(refused(r#"{"event-type":"a","event-type-version":"--"}"#), invalid("event-type-version"));
        assert_eq!(refused(&with("")), missing("event-time"));
        assert_eq!(refused(&with(r#","event-time":"now""#)), invalid("event-time"));
        let timed = |more: &str| with(&format!(r#","event-time":"2020-04-02T21:37:00Z"{more}"#));
        assert_eq!(refused(&timed(r#","event-id":"1","data":1"#)), invalid("event-id"));
        for data in ["", r#","data":null"#, r#","data":"""#] {
            assert_eq!(refused(&timed(data)), missing("data"));
        }
        assert_eq!(
            refused(""),
            "{\"status\":400,\"type\":\"bad_payload_syntax\",\"message\":\"Bad payload syntax\",\"moreInfo\":\"Bad payload syntax\"}\n"
        );
        assert!(refused("{").contains("\"moreInfo\":\"EOF while parsing"));
        assert_eq!(
            too_large().body,
            "{\"status\":413,\"type\":\"request_body_too_large\",\"message\":\"Request body too large\",\"moreInfo\":\"http: request body too large\"}\n"
        );
    }
}
