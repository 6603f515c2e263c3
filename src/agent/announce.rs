//! What both loops tell becomes a message for listeners, a log line, and Kubernetes Events on the object and on what it
//! is managed for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::api::function_conditions::Reason as FunctionReason;
use crate::api::names::REPORTER;
use crate::cluster::{Cluster, Event, EventType, EventWriter, Recorder, Regarding};
use crate::drift::{Announcement, Desired, Owner};
use crate::notification::{Message, Teller};

/// Tells what is worth telling.
#[derive(Clone)]
pub(super) struct Announcer {
    teller: Teller,
    recorder: Recorder,
    /// What each owner is, for Events about it.
    subjects: Arc<Mutex<HashMap<Owner, Regarding>>>,
}

impl Announcer {
    /// An announcer, and the task that writes its Events.
    pub(super) fn new(teller: Teller, cluster: &Cluster, identity: &str) -> (Self, EventWriter) {
        let (recorder, writer) = Recorder::new(cluster.clone(), REPORTER, identity);
        (Self { teller, recorder, subjects: Arc::default() }, writer)
    }

    /// Remembers what an owner is, or forgets it.
    pub(super) fn know(&self, owner: &Owner, subject: Option<Regarding>) {
        let mut subjects = self.subjects.lock().unwrap_or_else(PoisonError::into_inner);
        match subject {
            Some(subject) => subjects.insert(Arc::clone(owner), subject),
            None => subjects.remove(owner),
        };
    }

    /// Tells it.
    pub(super) fn announce(&self, announcement: &Announcement<'_>) {
        let message = announcement.message;
        log(message);
        self.teller.tell(message.clone());
        let Some(note) = note(message) else { return };
        let subject = self.subjects.lock().unwrap_or_else(PoisonError::into_inner).get(announcement.owner).cloned();
        let object = announcement.object.map(|(desired, live)| regarding(desired, live));
        let event = |regarding: Regarding, related: Option<Regarding>, note: String| Event {
            regarding,
            related,
            kind: if is_bad(message) { EventType::Warning } else { EventType::Normal },
            reason: announcement.reason.to_owned(),
            action: action(message).to_owned(),
            note_key: note_key(message),
            note,
        };
        if let Some(subject) = &subject {
            let about_subject = match &object {
                Some(object) => format!("{}: {note}", object.key),
                None => note.clone(),
            };
            self.recorder.publish(event(subject.clone(), object.clone(), about_subject));
        }
        if let Some(object) = object {
            self.recorder.publish(event(object, subject, note));
        }
    }
}

fn regarding(desired: &Desired, live: &Value) -> Regarding {
    let uid = live.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
    Regarding { key: desired.key.clone(), api_version: desired.kind.api_version(), uid }
}

/// At most one line per happening at `info`.
fn log(message: &Message) {
    match message {
        Message::Failed { .. } | Message::Contended { .. } | Message::NotPutBack { .. } | Message::Noticed { .. } => {
            tracing::warn!("{message}");
        }
        Message::CommitSeen { .. } => tracing::debug!("{message}"),
        _ => tracing::info!("{message}"),
    }
}

/// What an Event says; `None` for what is not worth one.
fn note(message: &Message) -> Option<String> {
    Some(match message {
        Message::CommitSeen { .. } => return None,
        Message::CommitApplied { commit, created, changed, unchanged, pruned, .. } => {
            format!("commit {commit}: {created} created, {changed} changed, {unchanged} unchanged, {pruned} pruned")
        }
        Message::Reverted { fields, who, .. } => format!("put back {} (changed by {who})", fields.join(", ")),
        Message::DriftSeen { fields, who, .. } => format!("differs in {} (changed by {who})", fields.join(", ")),
        Message::Contended { fields, who, .. } => format!("{who} keeps writing to {}", fields.join(", ")),
        Message::NotPutBack { fields, cause, .. } => format!("cannot put back {}: {cause}", fields.join(", ")),
        Message::Failed { problems, .. } => problems.join("\n"),
        Message::Stage { message, .. } | Message::Noticed { message, .. } => message.clone(),
        Message::Paused { object, paused: true, .. } => format!("{object}: left alone (break glass)"),
        Message::Paused { object, paused: false, .. } => format!("{object}: kept again"),
    })
}

/// What has to be equal for two Events to be one series.
fn note_key(message: &Message) -> String {
    match message {
        Message::Reverted { object, fields, who, .. }
        | Message::DriftSeen { object, fields, who, .. }
        | Message::Contended { object, fields, who, .. } => format!("{object} {} {who}", fields.join(",")),
        Message::NotPutBack { object, fields, .. } => format!("{object} {}", fields.join(",")),
        Message::CommitSeen { commit, .. } | Message::CommitApplied { commit, .. } => commit.clone(),
        Message::Failed { problems, .. } => problems.first().cloned().unwrap_or_default(),
        Message::Paused { object, .. } => object.clone(),
        // A position in a queue changes too often to be an Event each time.
        Message::Stage { reason, .. } if *reason == FunctionReason::JobQueued.as_str() => reason.clone(),
        Message::Stage { message, .. } | Message::Noticed { message, .. } => message.clone(),
    }
}

fn is_bad(message: &Message) -> bool {
    match message {
        Message::Failed { .. }
        | Message::Contended { .. }
        | Message::NotPutBack { .. }
        | Message::DriftSeen { .. }
        | Message::Noticed { .. } => true,
        Message::Stage { status, .. } => status == "False",
        _ => false,
    }
}

fn action(message: &Message) -> &'static str {
    match message {
        Message::Reverted { .. }
        | Message::DriftSeen { .. }
        | Message::Contended { .. }
        | Message::NotPutBack { .. } => "Revert",
        Message::Paused { .. } => "Pause",
        Message::Stage { .. } | Message::Noticed { .. } => "Reconcile",
        _ => "Apply",
    }
}
