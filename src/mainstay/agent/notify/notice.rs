//! Turns a message into a [`Notice`] for Alerts.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use mainstay_api::conditions::cut;
use mainstay_cluster::Regarding;
use mainstay_engine::notification::{Message, Severity};
use mainstay_notification::{CommitState, Notice, Priority, Severity as Level};
use mainstay_object::{Owner, printable_lines};

/// Maximum length of a message and of a value, in bytes.
const TEXT: usize = 4 << 10;
const VALUE: usize = 512;
/// The names of facts in [`details`].
pub(super) const FACTS: [&str; 5] = ["revision", "object", "who", "fields", "duration"];

/// Returns the notice of a message; `None` for severity `Debug`.
pub(super) fn notice(owner: &Owner, message: &Message, subject: Option<&Regarding>, time: Timestamp) -> Option<Notice> {
    let description = message.describe();
    let (severity, priority) = match (description.severity, message.object()) {
        (Severity::Debug, _) => return None,
        (Severity::Warning, _) => (Level::Error, Priority::Failure),
        (Severity::Info, None) => (Level::Info, Priority::State),
        (Severity::Info, Some(_)) => (Level::Info, Priority::Routine),
    };
    let key = owner.key();
    let mut text = printable_lines(&description.text).into_owned();
    if let Some(object) = message.object() {
        text = format!("{object}: {text}");
    }
    let mut digest = Sha256::new();
    let reason = description.reason.to_string();
    for part in [&owner.to_string(), message.object().unwrap_or_default(), &reason, &description.aggregation_key] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    if let Message::Reverted { changes, .. } = message {
        for change in changes {
            // Secrets have no changes with values.
            let line = format!("\n{}: {} → {}", change.field, change.found, change.restored);
            digest.update(&line);
            text.push_str(&printable_lines(&line));
        }
    }
    Some(Notice {
        kind: key.kind.to_string(),
        api_version: subject.map_or_else(|| key.group.to_string(), |subject| subject.api_version.clone()),
        namespace: owner.resource().namespace().to_owned(),
        name: owner.resource().name().to_owned(),
        uid: subject.and_then(|subject| subject.uid.clone()),
        object: message.object().map(|object| cut(object, VALUE).to_owned()),
        severity,
        priority,
        reason,
        message: cut(&text, TEXT).to_owned(),
        time,
        commit: commit(message),
        details: details(message),
        metadata: BTreeMap::new(),
        alert: None,
        key: hex::encode(&digest.finalize()[..16]),
    })
}

/// Returns the commit whose state a message reports.
fn commit(message: &Message) -> Option<(String, CommitState)> {
    match message {
        Message::CommitApplied { commit, .. }
        | Message::NoManifests { commit, .. }
        | Message::Recovered { commit, .. } => Some((commit.clone(), CommitState::Success)),
        Message::Failed { commit: Some(commit), .. } | Message::Unhealthy { commit, .. } => {
            Some((commit.clone(), CommitState::Failure))
        }
        Message::CommitHeld { commit, .. } => Some((commit.clone(), CommitState::Pending)),
        _ => None,
    }
}

/// Returns facts of the message as fields of the notice.
fn details(message: &Message) -> BTreeMap<String, String> {
    let revision = match message {
        Message::CommitSeen { commit, .. } | Message::WindowOverridden { commit, .. } => Some(commit.clone()),
        Message::BranchRewritten { new, .. } => Some(new.clone()),
        _ => commit(message).map(|(commit, _)| commit),
    };
    let (who, fields) = match message {
        Message::Reverted { who, fields, .. }
        | Message::DriftSeen { who, fields, .. }
        | Message::DriftMissed { who, fields, .. }
        | Message::Contended { who, fields, .. } => (Some(who.clone()), Some(fields.join(", "))),
        Message::WindowOverridden { who, .. } => (Some(who.clone()), None),
        Message::NotPutBack { fields, .. } => (None, Some(fields.join(", "))),
        _ => (None, None),
    };
    let millis = if let Message::Reverted { millis, .. } = message { Some(format!("{millis:.1} ms")) } else { None };
    let revision = revision.map(|commit| format!("sha1:{commit}"));
    let all = [revision, message.object().map(str::to_owned), who, fields, millis];
    let present = FACTS.into_iter().zip(all).filter_map(|(name, value)| Some((name, value?)));
    present.map(|(name, value)| (name.to_owned(), cut(&printable_lines(&value), VALUE).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_engine::notification::Change;

    fn reverted(found: &str, millis: f64) -> Message {
        Message::Reverted {
            subject: Owner::git_sync("shop", "demo"),
            object: "Service shop/api".to_owned(),
            fields: vec!["spec.type".to_owned()],
            changes: vec![Change { field: "spec.type".into(), found: found.into(), restored: "y".into() }],
            who: "kubectl".to_owned(),
            millis,
        }
    }

    fn of(message: &Message) -> Notice {
        notice(message.subject(), message, None, Timestamp::UNIX_EPOCH).unwrap()
    }

    #[test]
    fn unhealthy_objects_fail_their_commit_until_they_recover() {
        let (subject, commit, why) =
            (Owner::git_sync("shop", "demo"), "0".repeat(40), "Job shop/a failed: x".to_owned());
        let reason = mainstay_api::conditions::Reason::ObjectFailed.into();
        let unhealthy = of(&Message::Unhealthy { subject: subject.clone(), commit: commit.clone(), reason, why });
        assert_eq!(unhealthy.commit, Some((commit.clone(), CommitState::Failure)));
        assert_eq!(unhealthy.message, "commit 000000000000: Job shop/a failed: x");
        assert_eq!(unhealthy.severity, Level::Error);
        let recovered = of(&Message::Recovered { subject, commit: commit.clone() });
        assert_eq!(recovered.commit, Some((commit, CommitState::Success)));
        assert_ne!(recovered.key, unhealthy.key);
    }

    #[test]
    fn a_revert_tells_who_changed_which_field_to_which_value_and_how_long_it_took() {
        let one = of(&reverted("x", 2.04));
        assert_eq!(one.message, "Service shop/api: reverted spec.type (changed by kubectl, 2.0 ms)\nspec.type: x → y");
        let expected =
            [("duration", "2.0 ms"), ("fields", "spec.type"), ("object", "Service shop/api"), ("who", "kubectl")];
        assert!(one.details.iter().map(|(name, value)| (&**name, &**value)).eq(expected), "{:?}", one.details);
        assert_eq!(one.key, of(&reverted("x", 7.0)).key, "the duration makes no other message");
        assert_ne!(one.key, of(&reverted("z", 2.0)).key);
    }

    #[test]
    fn a_failed_commit_is_a_failure_with_the_state_of_the_commit() {
        let subject = Owner::git_sync("shop", "demo");
        let failed = Message::Failed { subject, commit: Some("0".repeat(40)), problems: vec!["x".repeat(9000)] };
        let one = of(&failed);
        assert_eq!((one.severity, one.priority), (Level::Error, Priority::Failure));
        assert_eq!(one.commit, Some(("0".repeat(40), CommitState::Failure)));
        assert_eq!(one.details["revision"], format!("sha1:{}", "0".repeat(40)));
        assert!(one.message.len() <= TEXT);
    }
}
