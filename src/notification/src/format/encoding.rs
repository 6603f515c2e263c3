//! Encodings of strings in requests.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Returns the value of the header `authorization` for a user name and a password.
pub(super) fn basic(username: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{username}:{password}")))
}

/// Returns a string, percent-encoded as a path segment.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
