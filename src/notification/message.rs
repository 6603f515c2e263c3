//! The messages, serialised as one JSON object each.

use std::fmt;

use serde::Serialize;
use tokio::sync::broadcast;

use crate::api::git_sync::{UNKNOWN, WHOLE_OBJECT};

/// How many messages a slow listener may lag behind before it misses some.
const CAPACITY: usize = 1024;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Message {
    /// The remote's ref moved.
    CommitSeen {
        /// `namespace/name` of the GitSync.
        sync: String,
        /// Full commit id.
        commit: String,
    },
    /// A commit was applied in full.
    CommitApplied {
        /// `namespace/name` of the GitSync.
        sync: String,
        /// Full commit id.
        commit: String,
        /// Objects that were created.
        created: usize,
        /// Objects that were changed.
        changed: usize,
        /// Objects that were already as the commit says.
        unchanged: usize,
        /// Objects that were deleted.
        pruned: usize,
        /// From the moment the ref was seen to the last write's answer.
        millis: u64,
    },
    /// An object was put back.
    Reverted {
        /// `namespace/name` of the GitSync.
        sync: String,
        /// The object.
        object: String,
        /// The field paths that were put back; `(object)` when it had been deleted.
        fields: Vec<String>,
        /// What was found and restored; empty for Secrets.
        changes: Vec<Change>,
        /// Field manager that made the change, or `unknown`.
        who: String,
        /// From the receipt of the change to the answer of the restoring write.
        millis: f64,
    },
    /// Drift was seen and, by policy, left.
    DriftSeen {
        /// `namespace/name` of the GitSync.
        sync: String,
        /// The object.
        object: String,
        /// The field paths that differ.
        fields: Vec<String>,
        /// Field manager that made the change, or `unknown`.
        who: String,
    },
    /// Somebody keeps writing to the same fields; the reverts are slowed.
    Contended {
        /// `namespace/name` of the GitSync.
        sync: String,
        /// The object.
        object: String,
        /// The field paths fought over.
        fields: Vec<String>,
        /// The other manager.
        who: String,
    },
    /// An object could not be put back, and not for the first time.
    NotPutBack {
        /// `namespace/name` of the GitSync.
        sync: String,
        /// The object.
        object: String,
        /// The field paths that stay changed.
        fields: Vec<String>,
        /// Why, without values.
        cause: String,
    },
    /// An attempt failed, in whole or in part.
    Failed {
        /// `namespace/name` of the GitSync.
        sync: String,
        /// The commit, where one was known.
        commit: Option<String>,
        /// What and why, one line each.
        problems: Vec<String>,
    },
    /// A Function came further, or did not.
    Stage {
        /// `function namespace/name`.
        function: String,
        /// Type of the condition.
        condition: String,
        /// `True`, `False` or `Unknown`.
        status: String,
        /// Reason of the condition.
        reason: String,
        /// Message of the condition.
        message: String,
    },
    /// A Function works, but perhaps not as it was meant.
    Noticed {
        /// `function namespace/name`.
        function: String,
        /// CamelCase word for what was found.
        reason: String,
        /// What was found and what is done about it.
        message: String,
    },
    /// Break glass began or ended on an object.
    Paused {
        /// `namespace/name` of the GitSync.
        sync: String,
        /// The object.
        object: String,
        /// Whether it is paused now.
        paused: bool,
    },
}

/// One field of a revert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Path of the field.
    pub field: String,
    /// What was found, as compact JSON, or `absent`.
    pub found: String,
    /// What was restored, as compact JSON, or `absent`.
    pub restored: String,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |commit: &str| commit.chars().take(8).collect::<String>();
        match self {
            Self::CommitSeen { sync, commit } => write!(f, "{sync}: commit {} seen", short(commit)),
            Self::CommitApplied { sync, commit, created, changed, unchanged, pruned, millis } => write!(
                f,
                "{sync}: commit {} applied: {created} created, {changed} changed, {unchanged} unchanged, {pruned} pruned \
                 ({millis} ms)",
                short(commit)
            ),
            Self::Reverted { sync, object, fields, who, millis, .. } if fields == &[WHOLE_OBJECT] => {
                let who = if who == UNKNOWN { "somebody" } else { who };
                write!(f, "{sync}: {object} created again (deleted by {who}, {millis:.1} ms)")
            }
            Self::Reverted { sync, object, fields, who, millis, changes } => {
                write!(f, "{sync}: {object} put back: {} (changed by {who}, {millis:.1} ms)", fields.join(", "))?;
                for change in changes {
                    write!(f, "\n    {}: {} → {}", change.field, change.found, change.restored)?;
                }
                Ok(())
            }
            Self::DriftSeen { sync, object, fields, who } => {
                write!(f, "{sync}: {object} differs and is left so: {} (changed by {who})", fields.join(", "))
            }
            Self::Contended { sync, object, fields, who } => {
                write!(f, "{sync}: {who} keeps writing to {object}: {}; slowing down", fields.join(", "))
            }
            Self::NotPutBack { sync, object, fields, cause } => {
                write!(f, "{sync}: {object} cannot be put back: {}: {cause}", fields.join(", "))
            }
            Self::Failed { sync, commit, problems } => {
                write!(f, "{sync}: failed")?;
                if let Some(commit) = commit {
                    write!(f, " at commit {}", short(commit))?;
                }
                for problem in problems {
                    write!(f, "\n    {problem}")?;
                }
                Ok(())
            }
            Self::Stage { function, condition, reason, message, .. } => {
                write!(f, "{function}  {condition}  {reason}  {}", message.replace('\n', "\n    "))
            }
            Self::Noticed { function, reason, message } => write!(f, "{function}  {reason}  {message}"),
            Self::Paused { sync, object, paused } => {
                write!(f, "{sync}: {object} {}", if *paused { "paused" } else { "resumed" })
            }
        }
    }
}

/// Sends messages to whoever listens.
#[derive(Clone, Debug)]
pub struct Teller(broadcast::Sender<Message>);

impl Default for Teller {
    fn default() -> Self {
        Self(broadcast::Sender::new(CAPACITY))
    }
}

impl Teller {
    /// Tells it to everyone who listens now.
    pub fn tell(&self, message: Message) {
        // An error only says that nobody listens.
        let _ = self.0.send(message);
    }

    /// Listens from now on.
    pub fn listen(&self) -> broadcast::Receiver<Message> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reverted(field: &str, who: &str, changes: Vec<Change>) -> Message {
        let (sync, object) = ("a/b".to_owned(), "Service shop/api".to_owned());
        Message::Reverted { sync, object, fields: vec![field.to_owned()], who: who.to_owned(), millis: 2.04, changes }
    }

    #[test]
    fn what_was_deleted_is_told_from_what_was_changed() {
        let deleted = reverted(WHOLE_OBJECT, UNKNOWN, Vec::new());
        assert_eq!(deleted.to_string(), "a/b: Service shop/api created again (deleted by somebody, 2.0 ms)");
        let change = Change { field: "spec.type".into(), found: "x".into(), restored: "y".into() };
        let told = "a/b: Service shop/api put back: spec.type (changed by kubectl, 2.0 ms)\n    spec.type: x → y";
        assert_eq!(reverted("spec.type", "kubectl", vec![change]).to_string(), told);
    }

    #[test]
    fn lines_after_the_first_are_indented() {
        let text = || "x".to_owned();
        let (kind, message) = ("ApplyFailed".to_owned(), "one\ntwo".to_owned());
        let stage = Message::Stage { function: text(), condition: text(), status: text(), reason: kind, message };
        assert_eq!(stage.to_string(), "x  x  ApplyFailed  one\n    two");
    }
}
