//! The form of an event in a message: the headers and body of a delivery in binary mode.

use std::borrow::Cow;

use async_nats::HeaderMap;
use bytes::Bytes;
use jiff::Timestamp;

use super::super::cloud_event::CloudEvent;

/// Prefix of the headers of the server.
const SERVER: &str = "Nats-";

/// Returns the headers of the message of an event.
pub(super) fn headers(event: &CloudEvent) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in event.delivery().filter(|(_, value)| is_text(value)) {
        headers.insert(&*name, &*value);
    }
    headers
}

/// Whether a value can be a header. An event with a different value is refused when it is accepted.
fn is_text(value: &str) -> bool {
    value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
}

/// Returns the event in a message, or the reason why the message contains no event.
pub(super) fn event(headers: Option<&HeaderMap>, body: Bytes) -> Result<CloudEvent, String> {
    let all = headers.into_iter().flat_map(HeaderMap::iter).flat_map(|(name, values)| {
        let name: &str = name.as_ref();
        values.iter().map(move |value| (name, value.as_str()))
    });
    let own = all.filter(|(name, _)| !name.starts_with(SERVER));
    let own = own.map(|(name, value)| {
        let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
        (if is_lower { Cow::Borrowed(name) } else { Cow::Owned(name.to_ascii_lowercase()) }, value)
    });
    CloudEvent::of_delivery(own, body).map_err(|refusal| refusal.to_string())
}

/// A delivery of a message by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delivered {
    /// Sequence number of the message in its stream.
    pub(super) number: u64,
    /// Number of times that the server has sent the message before. The subscriber may not have been asked.
    pub(super) before: u32,
    pub(super) published: Timestamp,
}

/// Reads the subject for the acknowledgement of a message. Newer servers add a domain and an account before the stream,
/// and may add parts at the end.
pub(super) fn delivered(subject: &str) -> Option<Delivered> {
    let parts = subject.strip_prefix("$JS.ACK.")?.split('.');
    let before = match parts.clone().count() {
        7 => 2,
        9.. => 4,
        _ => return None,
    };
    let mut parts = parts.skip(before);
    let before = parts.next()?.parse::<u64>().ok()?.saturating_sub(1);
    let number = parts.next()?.parse().ok()?;
    let published = Timestamp::from_nanosecond(parts.nth(1)?.parse().ok()?).ok()?;
    Some(Delivered { number, before: u32::try_from(before).unwrap_or(u32::MAX), published })
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
    fn names_of_headers_may_have_capital_letters_and_a_name_is_there_once() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("CE-SpecVersion", "1.0"), ("Ce-Id", "1"), ("ce-source", "s"), ("Ce-Type", "t")] {
            headers.insert(name, value);
        }
        headers.insert("Nats-Msg-Id", "2");
        let read = event(Some(&headers), Bytes::new()).unwrap();
        assert_eq!(read.attributes.values().collect::<Vec<_>>(), ["1", "s", "t"]);
        headers.append("ce-source", "u");
        assert!(event(Some(&headers), Bytes::new()).unwrap_err().contains("ce-source"));
    }

    #[test]
    fn a_tracing_header_wins_over_an_attribute_with_its_name() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "s"), ("ce-type", "t")] {
            headers.insert(name, value);
        }
        headers.insert("traceparent", "header");
        headers.insert("ce-traceparent", "attribute");
        assert_eq!(event(Some(&headers), Bytes::new()).unwrap().attribute("traceparent"), Some("header"));
    }

    #[test]
    fn a_delivery_has_its_number_and_the_number_of_earlier_ones() {
        let published = Timestamp::from_second(1_700_000_000).unwrap();
        let expected = Some(Delivered { number: 77, before: 2, published });
        let parts = "mainstay_events_team.trigger_mine.3.77.90.1700000000000000000.5";
        assert_eq!(delivered(&format!("$JS.ACK.{parts}")), expected);
        assert_eq!(delivered(&format!("$JS.ACK._.hash.{parts}")), expected);
        assert_eq!(delivered(&format!("$JS.ACK.hub.hash.{parts}.token.more")), expected);
        for subject in ["", "$JS.ACK.", "$JS.ACK.a.b.3.77.90.170", "$JS.ACK.a.b.c.77.90.17.5", "_INBOX.a.b.c.1.2.3.4.5"]
        {
            assert_eq!(delivered(subject), None, "{subject}");
        }
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
