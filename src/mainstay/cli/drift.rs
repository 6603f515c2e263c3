//! Remaining drift as commands show it.

use jiff::Timestamp;

use super::syncs::ago;
use mainstay_api::GitSyncStatus;
use mainstay_api::git_sync::{DriftReason, Drifted, UNKNOWN};
use mainstay_object::printable;

/// How many objects differ, beside the other counts.
pub(super) fn count(status: &GitSyncStatus) -> String {
    if status.drifted_objects == 0 { String::new() } else { format!(", {} drifted", status.drifted_objects) }
}

/// What differs in an object, for how long, and why it was not reverted, in several lines.
pub(super) fn row(drifted: &Drifted, now: Timestamp) -> String {
    let what = match drifted.fields.as_slice() {
        _ if drifted.is_absent() => " does not exist".to_owned(),
        [] => String::new(),
        fields => format!(": {}", fields.join(", ")),
    };
    let text = format!("{}{what}, {}", drifted.object, circumstances(drifted, now));
    let changes = drifted.changes.iter();
    let changes = changes.map(|change| format!("{}: {} → {}", change.field, change.found, change.restored));
    // A field's name may hold anything, also the end of a line.
    let lines = std::iter::once(text).chain(changes).map(|line| printable(&line).into_owned());
    lines.collect::<Vec<_>>().join("\n      ")
}

/// For how long an object differs, by whom, why it was not reverted, and when that is tried again.
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

/// Why an object was not reverted.
fn why(reason: DriftReason) -> &'static str {
    match reason {
        DriftReason::Report => "spec.drift is Report",
        DriftReason::Paused => "paused",
        DriftReason::Backoff => "it keeps being changed",
        DriftReason::RevertFailed => "it could not be reverted",
        DriftReason::Unread => "the repository could not be read with it",
    }
}
