//! Messages as log lines: one each, at the level of its severity.

use crate::notification::{Message, Severity};

/// Logs a message.
pub(super) fn write(message: &Message) {
    match message.describe().severity {
        Severity::Debug => tracing::debug!("{message}"),
        Severity::Info => tracing::info!("{message}"),
        Severity::Warning => tracing::warn!("{message}"),
    }
}
