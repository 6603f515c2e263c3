//! Writes messages as log lines, one each, at the level of the message's severity.

use mainstay_engine::notification::{Message, Severity};
use mainstay_object::printable_lines;

/// Logs a message.
pub(super) fn write(message: &Message) {
    let text = message.to_string();
    let text = printable_lines(&text);
    match message.describe().severity {
        Severity::Debug => tracing::debug!("{text}"),
        Severity::Info => tracing::info!("{text}"),
        Severity::Warning => tracing::warn!("{text}"),
    }
}
