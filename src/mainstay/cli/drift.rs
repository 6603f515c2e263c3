//! Formats remaining drift for commands.

use jiff::Timestamp;

use super::syncs::ago;
use mainstay_api::GitSyncStatus;
use mainstay_api::git_sync::{Change, DriftReason, Drifted, UNKNOWN};
use mainstay_object::{hide_changed_logins, hide_logins, printable};

/// Returns the number of drifted objects as a suffix for a list of other counts.
pub(super) fn count(status: &GitSyncStatus) -> String {
    if status.drifted_objects == 0 { String::new() } else { format!(", {} drifted", status.drifted_objects) }
}

/// Returns the drift of an object in several lines: fields, duration, and why it was not reverted.
pub(super) fn row(drifted: &Drifted, now: Timestamp) -> String {
    let what = match drifted.fields.as_slice() {
        _ if drifted.is_absent() => " does not exist".to_owned(),
        [] => String::new(),
        all => format!(": {}", fields(all)),
    };
    let text = format!("{}{what}, {}", drifted.object, circumstances(drifted, now));
    let changes = drifted.changes.iter();
    let changes = changes.map(change);
    // Names of fields may contain line breaks.
    let lines = std::iter::once(text).chain(changes).map(|line| printable(&line).into_owned());
    lines.collect::<Vec<_>>().join("\n      ")
}

/// Returns names of fields in one line, without the logins of URLs. An earlier agent did not hide these.
pub(super) fn fields(all: &[String]) -> String {
    all.iter().map(|field| hide_logins(field)).collect::<Vec<_>>().join(", ")
}

/// Returns a changed field with both values, without the logins of URLs.
pub(super) fn change(change: &Change) -> String {
    let (found, restored) = hide_changed_logins(&change.found, &change.restored);
    format!("{}: {found} → {restored}", hide_logins(&change.field))
}

/// Returns how long an object has drifted, who changed it, why it was not reverted, and when the next attempt is.
pub(super) fn circumstances(drifted: &Drifted, now: Timestamp) -> String {
    let since = ago(now.duration_since(drifted.since.0).as_secs());
    let who = if drifted.who == UNKNOWN { String::new() } else { format!(", by {}", drifted.who) };
    let mut text = format!("for {since}{who}: {}", why(drifted.reason));
    if let Some(next) = &drifted.next_attempt {
        let left = next.0.duration_since(now).as_secs();
        text.push_str(&if left > 0 {
            format!("; next attempt in {}", ago(left))
        } else {
            "; next attempt now".to_owned()
        });
    }
    text
}

/// Returns why an object was not reverted.
fn why(reason: DriftReason) -> &'static str {
    match reason {
        DriftReason::Report => "spec.drift is Report",
        DriftReason::Paused => "paused",
        DriftReason::Backoff => "it keeps being changed",
        DriftReason::RevertFailed => "it could not be reverted",
        DriftReason::Unread => "the repository could not be read while this object was as in Git",
    }
}
