//! Fuzz targets for untrusted input. Each accepts any bytes, terminates quickly, does not panic, and checks its
//! invariants.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cloud_event::CloudEvent;
use crate::subscriber::Target;
use crate::subscription::Subscription;
use crate::trigger::Trigger;

/// The namespace of each object.
const NAMESPACE: &str = "team";

/// Parses a request, whose headers end with an empty line. An accepted event must be deliverable.
pub fn cloud_event(bytes: &[u8]) {
    let end = bytes.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = end.map_or((bytes, &[][..]), |end| (&bytes[..end], &bytes[end + 2..]));
    let mut headers = HeaderMap::new();
    for line in head.split(|byte| *byte == b'\n').take(100) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(&line[..colon]), value) {
            headers.append(name, value);
        }
    }
    let Ok(parsed) = CloudEvent::parse(&headers, Bytes::copy_from_slice(body)) else { return };
    assert!(parsed.event.check().is_ok(), "an event that is accepted is within the limits");
    assert!(parsed.event.headers().len() > parsed.event.attributes.len(), "each attribute is a header");
}

/// Parses a Trigger, or a string as name and URL of its subscriber. A valid Trigger must refer to a Service of its own
/// namespace.
pub fn trigger(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let reference = json!({"apiVersion": "v1", "kind": "Service", "name": text});
    let known = json!({"apiVersion": "v1", "kind": "Service", "name": "f"});
    let subscribers = [json!({"ref": reference}), json!({"ref": known, "uri": text}), json!({"uri": text})];
    let specs = subscribers.map(|subscriber| json!({"subscriber": subscriber}));
    for object in objects(bytes, specs) {
        let trigger = Trigger::read(&object);
        trigger.target().iter().for_each(|target| leads_to_its_namespace(target));
        trigger.subscriber(true, None);
        trigger.status(true, None, &json!(1), &object["status"], Timestamp::UNIX_EPOCH);
    }
}

/// Parses a Subscription, or a string as its sink and type. A valid Subscription must refer to a Service of its own
/// namespace.
pub fn subscription(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let sink = "http://f.team.svc.cluster.local";
    let filter = |value: &str| json!({"filters": [{"eventType": {"value": value}}]});
    let specs = [
        json!({"sink": text, "filter": filter("sap.kyma.custom.a.b.c.v1")}),
        json!({"sink": sink, "filter": filter(&text)}),
    ];
    for object in objects(bytes, specs) {
        let subscription = Subscription::read(&object);
        subscription.target().iter().for_each(|target| leads_to_its_namespace(target));
        subscription.subscriber(None);
        subscription.status(None, &json!(1), &object["status"], Timestamp::UNIX_EPOCH);
    }
}

/// Returns the object in the bytes, and objects with these specs, all in one namespace.
fn objects<const N: usize>(bytes: &[u8], specs: [Value; N]) -> Vec<Value> {
    let metadata = json!({"namespace": NAMESPACE, "name": "mine"});
    let mut all: Vec<Value> = specs.map(|spec| json!({"metadata": metadata, "spec": spec})).into();
    if let Ok(Value::Object(mut object)) = serde_json::from_slice(bytes) {
        object.insert("metadata".to_owned(), metadata);
        all.push(object.into());
    }
    all
}

fn leads_to_its_namespace(target: &Target) {
    assert_eq!(target.host().namespace().as_str(), NAMESPACE, "the namespace is that of the object");
    let Ok(url) = target.url().parse::<reqwest::Url>() else { return };
    assert_eq!(url.host_str(), Some(target.host().to_string().as_str()), "the client has the same host");
    assert_eq!(url.port_or_known_default(), Some(target.address.port.get()), "and the same port");
    assert!(url.username().is_empty() && url.password().is_none() && url.fragment().is_none(), "and nothing else");
}
