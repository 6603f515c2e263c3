//! Writes messages as Kubernetes Events: one Event about the GitSync or Function, and one about the managed object.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use mainstay_api::names::REPORTER;
use mainstay_cluster::{Cluster, Event, EventRecorder, EventType, EventWriter, Priority, Regarding};
use mainstay_engine::apply::Announcement;
use mainstay_engine::notification::{Message, Severity};
use mainstay_object::{Owner, printable_lines};

/// Turns messages into Events. Clones share the queue.
#[derive(Clone)]
pub(super) struct Events {
    recorder: EventRecorder,
    /// The resource of each owner.
    subjects: Arc<Mutex<HashMap<Owner, Regarding>>>,
}

impl Events {
    pub(super) fn new(cluster: &Cluster, identity: &str) -> (Self, EventWriter) {
        let (recorder, writer) = EventRecorder::new(cluster.clone(), REPORTER, identity);
        (Self { recorder, subjects: Arc::default() }, writer)
    }

    pub(super) fn set_subject(&self, owner: &Owner, resource: Option<Regarding>) {
        let mut subjects = self.subjects.lock();
        match resource {
            Some(resource) => subjects.insert(owner.clone(), resource),
            None => subjects.remove(owner),
        };
    }

    pub(super) fn subject(&self, owner: &Owner) -> Option<Regarding> {
        self.subjects.lock().get(owner).cloned()
    }

    pub(super) fn clear_subjects(&self) {
        self.subjects.lock().clear();
    }

    pub(super) fn subjects(&self) -> Vec<Owner> {
        self.subjects.lock().keys().cloned().collect()
    }

    /// Publishes an Event.
    pub(super) fn publish(&self, event: Event) {
        self.recorder.publish(event);
    }

    /// Publishes the Events of a message; messages of severity `Debug` have no Events.
    pub(super) fn write(&self, announcement: &Announcement<'_>) {
        let description = announcement.message.describe();
        let (kind, priority) = match (description.severity, announcement.message.object()) {
            (Severity::Debug, _) => return,
            (Severity::Warning, _) => (EventType::Warning, Priority::Failure),
            (Severity::Info, None) => (EventType::Normal, Priority::State),
            (Severity::Info, Some(_)) => (EventType::Normal, Priority::Routine),
        };
        let subject = self.subject(announcement.owner);
        let object = announcement.object.clone();
        let text = printable_lines(&description.text).into_owned();
        let event = |regarding: Regarding, related: Option<Regarding>| Event {
            regarding,
            related,
            kind,
            priority,
            reason: description.reason,
            action: description.action.to_owned(),
            aggregation_key: aggregation_key(announcement.message, &description.aggregation_key, priority),
            note: text.clone(),
            about: None,
        };
        let is_summed_up = priority == Priority::Routine && subject.is_some();
        if let Some(subject) = &subject {
            let event = event(subject.clone(), object.clone());
            self.recorder.publish(match announcement.message.object() {
                Some(named) if is_summed_up => Event { about: Some(named.to_owned()), ..event },
                Some(named) => Event { note: format!("{named}: {text}"), ..event },
                None => event,
            });
        }
        if let Some(object) = object {
            let event = event(object, subject);
            let priority = if is_summed_up { Priority::Detail } else { priority };
            self.recorder.publish(Event { priority, ..event });
        }
    }
}

/// Returns the key for aggregation. Routine Events of one owner that differ only in the object have the same key.
fn aggregation_key(message: &Message, key: &str, priority: Priority) -> String {
    match message.object() {
        Some(named) if priority != Priority::Routine => format!("{named} {key}"),
        _ => key.to_owned(),
    }
}
