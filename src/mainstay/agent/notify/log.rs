//! Writes each message as one log line, at the level of the message's severity. A line begins with the kind of the
//! subject, so that `mainstay logs` finds the lines of an object.

use mainstay_engine::notification::{Message, Severity};
use mainstay_object::printable_lines;

/// Logs a message.
pub(super) fn write(message: &Message) {
    let line = line(message);
    let text = printable_lines(&line);
    match message.describe().severity {
        Severity::Debug => tracing::debug!("{text}"),
        Severity::Info => tracing::info!("{text}"),
        Severity::Warning => tracing::warn!("{text}"),
    }
}

/// Returns the line of a message, which begins with `Kind namespace/name`.
fn line(message: &Message) -> String {
    let (subject, text) = (message.subject(), message.to_string());
    let rest = text.strip_prefix(&subject.to_string()).unwrap_or(&text);
    format!("{} {}{rest}", subject.key().kind, subject.resource())
}

#[cfg(test)]
mod tests {
    use mainstay_object::Owner;

    use super::*;

    #[test]
    fn a_line_begins_with_the_kind_and_the_name_of_its_subject() {
        for (subject, expected) in [
            (Owner::git_sync("team", "shop"), "GitSync team/shop: failed: refused"),
            (Owner::function("team", "shop"), "Function team/shop: failed: refused"),
            (Owner::receiver("team", "shop"), "Receiver team/shop: failed: refused"),
            (Owner::git_repository("team", "shop"), "GitRepository team/shop: failed: refused"),
            (Owner::api_rule("team", "shop"), "APIRule team/shop: failed: refused"),
            (Owner::oci_repository("team", "shop"), "OCIRepository team/shop: failed: refused"),
            (Owner::helm_chart("team", "shop"), "HelmChart team/shop: failed: refused"),
        ] {
            let message = Message::Failed { subject, commit: None, problems: vec!["refused".to_owned()] };
            assert_eq!(line(&message), expected);
        }
    }
}
