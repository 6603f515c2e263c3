//! The watch decoder: splits the bytes of a watch into lines and decodes each line into an event.
//!
//! Invariant: at most one line is in memory, within the limits.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

use mainstay_object::Key;

use super::answer_limits::AnswerLimits;
use super::error::Cause;
use super::object::{self, Read};
use super::refusal::Refusal;

/// Annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The content of one line.
#[derive(Debug)]
pub(super) enum Decoded {
    /// An object exists, was added or was changed.
    Applied { object: Value, version: String },
    /// An object exists, was added or was changed, and cannot be parsed. The value is its identity.
    Unreadable { object: Value, version: String, cause: Cause },
    /// An object was deleted or is no longer selected. The value is at least its identity.
    Deleted { object: Value, version: String },
    /// A bookmark: all events up to this version were sent.
    Bookmark { version: String, ends_initial: bool },
    /// An error event: the server ends the watch.
    Refused(Refusal),
    /// An event of an unknown type.
    Unknown,
}

#[derive(Deserialize)]
struct Event<'l> {
    #[serde(rename = "type")]
    what: String,
    #[serde(borrow)]
    object: &'l RawValue,
}

/// Decodes one line. `key` decides whether texts of errors are redacted.
pub(super) fn decode(key: &Key, line: &[u8]) -> Result<Decoded, serde_json::Error> {
    let Event { what, object: raw } = serde_json::from_slice(line)?;
    if what == "ERROR" {
        return Ok(Decoded::Refused(Refusal::read(key, 500, None, raw.get().as_bytes())));
    }
    let (object, unreadable) = match object::read(raw.get())? {
        Read::Whole(object) => (object, None),
        Read::Identity(object, error) => (object, Some(error)),
    };
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    Ok(match &*what {
        "ADDED" | "MODIFIED" => match unreadable {
            None => Decoded::Applied { object, version },
            Some(error) => Decoded::Unreadable { object, version, cause: error.into() },
        },
        "DELETED" => Decoded::Deleted { object, version },
        "BOOKMARK" => {
            let ends_initial = object["metadata"]["annotations"][INITIAL_EVENTS_END] == "true";
            Decoded::Bookmark { version, ends_initial }
        }
        _ => Decoded::Unknown,
    })
}

/// The next item of a stream.
#[derive(Debug)]
pub(super) enum Next {
    /// A whole line.
    Line(Bytes),
    /// The server ended the stream.
    End,
    /// The stream broke, or exceeded the idle timeout.
    Cut(Cause),
}

/// Splits the body of a watch into lines.
pub(super) struct Lines {
    body: Body,
    buffer: BytesMut,
    /// The buffer has no line end before this position.
    scanned: usize,
    limits: AnswerLimits,
}

impl Lines {
    pub(super) fn new(body: Body, limits: AnswerLimits) -> Self {
        Self { body, buffer: BytesMut::new(), scanned: 0, limits }
    }

    /// Returns the next line that is not empty. An incomplete last line is dropped.
    pub(super) async fn next(&mut self, deadline: Instant) -> Next {
        loop {
            if let Some(end) = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.scanned + end + 1).freeze();
                self.scanned = 0;
                if self.buffer.is_empty() {
                    // An idle watch does not retain the memory of its largest line.
                    self.buffer = BytesMut::new();
                }
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return match self.limits.check(&line) {
                    Ok(()) => Next::Line(line),
                    Err(cause) => Next::Cut(cause),
                };
            }
            self.scanned = self.buffer.len();
            if self.scanned > self.limits.bytes {
                return Next::Cut(Cause::TooLarge(self.limits.bytes));
            }
            let waited = Instant::now();
            match tokio::time::timeout_at(deadline, self.body.frame()).await {
                Err(_) => return Next::Cut(Cause::TimedOut(waited.elapsed())),
                Ok(None) => return Next::End,
                Ok(Some(Err(error))) => return Next::Cut(Cause::Unreachable(Box::new(error))),
                Ok(Some(Ok(frame))) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind::tests::kind;
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn line(event: &Value) -> Decoded {
        let key = kind("v1", "ConfigMap", "configmaps", true).key(None, "");
        decode(&key, event.to_string().as_bytes()).expect("a watch event")
    }

    #[test]
    fn reads_what_happened() {
        let object = json!({ "kind": "ConfigMap", "metadata": { "name": "a", "resourceVersion": "7" } });
        let version = "7".to_owned();
        for (what, expected) in [
            ("ADDED", Decoded::Applied { object: object.clone(), version: version.clone() }),
            ("MODIFIED", Decoded::Applied { object: object.clone(), version: version.clone() }),
            ("DELETED", Decoded::Deleted { object: object.clone(), version: version.clone() }),
            ("BOOKMARK", Decoded::Bookmark { version: version.clone(), ends_initial: false }),
            ("SOMETHING", Decoded::Unknown),
        ] {
            let read = line(&json!({ "type": what, "object": object }));
            assert_eq!(format!("{read:?}"), format!("{expected:?}"), "{what}");
        }
    }

    #[test]
    fn reads_the_end_of_the_initial_events() {
        let object =
            json!({ "metadata": { "resourceVersion": "9", "annotations": { "k8s.io/initial-events-end": "true" } } });
        let expected = Decoded::Bookmark { version: "9".to_owned(), ends_initial: true };
        let read = line(&json!({ "type": "BOOKMARK", "object": object }));
        assert_eq!(format!("{read:?}"), format!("{expected:?}"));
    }

    #[test]
    fn reads_forgotten_history_as_a_refusal() {
        let status = json!({ "kind": "Status", "message": "too old resource version: 1 (1957)", "reason": "Expired", "code": 410 });
        let Decoded::Refused(refusal) = line(&json!({ "type": "ERROR", "object": status })) else { panic!("an error") };
        assert_eq!(refusal.code, 410);
    }

    #[tokio::test(start_paused = true)]
    async fn gives_up_a_stream_that_is_silent() {
        let (_server, body) = super::super::fake::stream().await;
        let mut lines = Lines::new(body, AnswerLimits::OWN);
        let deadline = Instant::now() + Duration::from_secs(9);
        assert!(matches!(lines.next(deadline).await, Next::Cut(Cause::TimedOut(_))));
    }

    #[tokio::test]
    async fn joins_what_arrives_in_pieces_and_drops_what_is_unfinished() {
        let (server, body) = super::super::fake::stream().await;
        for piece in ["{\"a\"", ":1}\n\n{\"b\":", "2}\n{\"c\""] {
            server.send(piece);
        }
        drop(server);
        let mut lines = Lines::new(body, AnswerLimits::OWN);
        let deadline = Instant::now() + Duration::from_secs(9);
        for expected in ["{\"a\":1}\n", "{\"b\":2}\n"] {
            let Next::Line(line) = lines.next(deadline).await else { panic!("a line") };
            assert_eq!(line, expected);
        }
        assert!(matches!(lines.next(deadline).await, Next::End));
    }
}
