//! What both loops tell becomes a message for listeners, a log line, and Kubernetes Events on the object and on its
//! GitSync.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::api::names::REPORTER;
use crate::cluster::{Cluster, Event, EventType, EventWriter, Recorder, Regarding};
use crate::drift::{Announcement, Desired, Owner};
use crate::notification::{Message, Teller};
use crate::object::Key;

/// Tells what is worth telling.
#[derive(Clone)]
pub(super) struct Announcer {
    teller: Teller,
    recorder: Recorder,
    /// UIDs of the GitSyncs, for Events about them.
    uids: Arc<Mutex<HashMap<Owner, String>>>,
}

impl Announcer {
    /// An announcer, and the task that writes its Events.
    pub(super) fn new(teller: Teller, cluster: &Cluster, identity: &str) -> (Self, EventWriter) {
        let (recorder, writer) = Recorder::new(cluster.clone(), REPORTER, identity);
        (Self { teller, recorder, uids: Arc::default() }, writer)
    }

    /// Remembers the UID of a GitSync, or forgets it.
    pub(super) fn know(&self, owner: &Owner, uid: Option<String>) {
        let mut uids = self.uids.lock().unwrap_or_else(PoisonError::into_inner);
        match uid {
            Some(uid) => uids.insert(Arc::clone(owner), uid),
            None => uids.remove(owner),
        };
    }

    /// Tells it.
    pub(super) fn announce(&self, announcement: &Announcement<'_>) {
        let message = announcement.message;
        log(message);
        self.teller.tell(message.clone());
        let Some(note) = note(message) else { return };
        let sync = self.git_sync(announcement.owner);
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
        let about_sync = match &object {
            Some(object) => format!("{}: {note}", object.key),
            None => note.clone(),
        };
        self.recorder.publish(event(sync.clone(), object.clone(), about_sync));
        if let Some(object) = object {
            self.recorder.publish(event(object, Some(sync), note));
        }
    }

    fn git_sync(&self, owner: &Owner) -> Regarding {
        let (namespace, name) = owner.split_once('/').unwrap_or(("", owner));
        let uids = self.uids.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Key {
            group: "mainstay.dev".into(),
            kind: "GitSync".into(),
            namespace: Some(namespace.into()),
            name: name.into(),
        };
        Regarding { key, api_version: "mainstay.dev/v1alpha1".to_owned(), uid: uids.get(owner).cloned() }
    }
}

fn regarding(desired: &Desired, live: &Value) -> Regarding {
    let uid = live.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
    Regarding { key: desired.key.clone(), api_version: desired.kind.api_version(), uid }
}

/// At most one line per happening at `info`.
fn log(message: &Message) {
    match message {
        Message::Failed { .. } | Message::Contended { .. } => tracing::warn!("{message}"),
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
        Message::Failed { problems, .. } => problems.join("\n"),
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
        Message::CommitSeen { commit, .. } | Message::CommitApplied { commit, .. } => commit.clone(),
        Message::Failed { problems, .. } => problems.first().cloned().unwrap_or_default(),
        Message::Paused { object, .. } => object.clone(),
    }
}

fn is_bad(message: &Message) -> bool {
    matches!(message, Message::Failed { .. } | Message::Contended { .. } | Message::DriftSeen { .. })
}

fn action(message: &Message) -> &'static str {
    match message {
        Message::Reverted { .. } | Message::DriftSeen { .. } | Message::Contended { .. } => "Revert",
        Message::Paused { .. } => "Pause",
        _ => "Apply",
    }
}
