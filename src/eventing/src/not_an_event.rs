//! Why a request contains no valid event, and the limits of an event.

use super::json::DEPTH;

/// Maximum number of attributes of an event.
pub(super) const ATTRIBUTES: usize = 64;
/// Maximum size in bytes of all attributes as headers of a delivery. Node.js accepts 16 KiB of headers.
pub(super) const HEADERS: usize = 12 << 10;

/// Why a request contains no valid event. The messages equal those of the specification's libraries, if these have a
/// message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotAnEvent {
    #[error(
        "unknown Message encoding: send headers from `ce-specversion: 1.0` on, or a body of application/cloudevents+json"
    )]
    NoEncoding,
    #[error("batches of events are not accepted: send one event per request")]
    Batch,
    #[error("not JSON: {0}")]
    Json(String),
    #[error("unsupported cloudevents version: specversion is {0:?}, and must be \"1.0\"")]
    Version(String),
    #[error("{0}: the name of an attribute must consist of lower case letters and digits")]
    Name(String),
    #[error("data: this name is reserved for the body; rename the attribute")]
    Reserved,
    #[error("{0}: the value of an attribute must be a string, a number or a boolean")]
    Value(String),
    #[error("{0}: the value is not percent-encoded UTF-8")]
    Encoding(String),
    #[error("{0} is sent more than once: send it once")]
    Twice(String),
    #[error("data and data_base64 are both set: send one of them")]
    TwoData,
    #[error("data is nested deeper than {DEPTH} levels")]
    TooDeep,
    #[error("{0}: the value has control characters, which no attribute may have")]
    Control(String),
    #[error(
        "datacontenttype: the data must not be an event itself, because subscribers would read the inner event; send its \
         parts as data of application/json"
    )]
    Nested,
    #[error("{0}: the value must be printable ASCII")]
    NotAscii(&'static str),
    #[error("{0} is not understood: send application/cloudevents+json, or headers from `ce-specversion: 1.0` on")]
    Format(String),
    #[error("content-encoding: a compressed body is not accepted: send it as it is")]
    Compressed,
    #[error(
        "the attributes of the event are longer than {HEADERS} bytes as HTTP headers; move long values into its data"
    )]
    TooLong,
    #[error("an event must have at most {ATTRIBUTES} attributes")]
    TooMany,
    #[error("data_base64: {0}")]
    Base64(String),
    #[error("{0}")]
    Attributes(String),
}

impl NotAnEvent {
    /// Whether the format of the body is not supported.
    pub(super) fn is_unsupported(&self) -> bool {
        matches!(self, Self::Compressed | Self::Format(_))
    }
}
