//! The form of an event in a message: the headers and body of a delivery in binary mode.

use async_nats::HeaderMap;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue};

use super::super::cloud_event::CloudEvent;

/// Returns the headers of the message of an event.
pub(super) fn headers(event: &CloudEvent) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &event.headers() {
        if let Ok(value) = value.to_str() {
            headers.insert(name.as_str(), value);
        }
    }
    headers
}

/// Returns the event in a message, or the reason why the message contains no event.
pub(super) fn event(headers: Option<&HeaderMap>, body: Bytes) -> Result<CloudEvent, String> {
    let mut found = http::HeaderMap::new();
    for (name, values) in headers.into_iter().flat_map(HeaderMap::iter) {
        let name: &str = name.as_ref();
        for value in values {
            let name = HeaderName::try_from(name).map_err(|error| format!("header {name:?}: {error}"))?;
            let value = HeaderValue::try_from(value.as_str()).map_err(|error| format!("header {name}: {error}"))?;
            found.append(name, value);
        }
    }
    // The body is parsed as plain data, whatever its content type is.
    let content = found.remove(CONTENT_TYPE);
    let event = CloudEvent::parse(&found, body).map_err(|refusal| refusal.to_string())?.event;
    Ok(match content.as_ref().and_then(|content| content.to_str().ok()) {
        Some(content) => event.with("datacontenttype", content),
        None => event,
    })
}

/// The reason why the server did not store a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unstored {
    /// The stream of the namespace has reached its limits.
    Full,
    /// A different reason. The event can be published again.
    Other(String),
}

/// Error code of the server if a stream cannot store a message. The description of the error contains the reason.
const STORE_FAILED: u64 = 10077;

/// Returns the meaning of an error of the server.
pub(super) fn unstored(code: u64, description: &str) -> Unstored {
    let is_full = code == STORE_FAILED && description.contains("maximum");
    if is_full { Unstored::Full } else { Unstored::Other(description.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::super::super::send::TTL;
    use super::*;

    #[test]
    fn an_event_is_read_as_it_was_written() {
        let data = r#"{"specversion":"1.0","id":"2","source":"s","type":"t"}"#;
        // Even with the second content type, the data must not be parsed as an event.
        for content in ["application/json; charset=utf-8", "application/cloudevents+json"] {
            let attributes = [
                ("id", "1 \"2\" 3%"),
                ("source", "/süd"),
                ("type", "t"),
                ("datacontenttype", content),
                ("empty", ""),
                ("traceparent", "00-abc-01"),
                (TTL, "3"),
            ];
            let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let written = CloudEvent { attributes, data: data.into() };
            assert_eq!(event(Some(&headers(&written)), written.data.clone()), Ok(written), "{content}");
        }
    }

    #[test]
    fn a_message_of_another_program_is_no_event() {
        assert!(event(None, "text".into()).is_err());
        let mut other = HeaderMap::new();
        other.insert("ce-specversion", "1.0");
        assert!(event(Some(&other), Bytes::new()).unwrap_err().contains("id"));
    }

    #[test]
    fn only_a_limit_of_the_stream_is_full() {
        for description in ["maximum bytes exceeded", "maximum messages per subject exceeded"] {
            assert_eq!(unstored(STORE_FAILED, description), Unstored::Full);
        }
        assert_eq!(unstored(STORE_FAILED, "no space left"), Unstored::Other("no space left".into()));
        assert_eq!(unstored(10008, "maximum"), Unstored::Other("maximum".into()));
    }
}
