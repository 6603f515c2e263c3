//! Writes messages as log lines, one each, at the level of the message's severity. The kind of the subject is first, so
//! that `mainstay logs` finds the lines of an object.

use mainstay_engine::notification::{Message, Severity};
use mainstay_object::printable_lines;

/// Logs a message.
pub(super) fn write(message: &Message) {
    let text = format!("{} {message}", message.subject().key().kind);
    let text = printable_lines(&text);
    match message.describe().severity {
        Severity::Debug => tracing::debug!("{text}"),
        Severity::Info => tracing::info!("{text}"),
        Severity::Warning => tracing::warn!("{text}"),
    }
}
