//! Messages as Kubernetes Events: one about the GitSync or Function, one about the managed object.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use mainstay_api::names::REPORTER;
use mainstay_cluster::{Cluster, Event, EventRecorder, EventType, EventWriter, Regarding};
use mainstay_engine::apply::Announcement;
use mainstay_engine::notification::Severity;
use mainstay_object::{Owner, printable_lines};

/// Turns messages into Events. Clones share the queue.
#[derive(Clone)]
pub(super) struct Events {
    recorder: EventRecorder,
    /// The resource behind each owner.
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

    pub(super) fn clear_subjects(&self) {
        self.subjects.lock().clear();
    }

    pub(super) fn subjects(&self) -> Vec<Owner> {
        self.subjects.lock().keys().cloned().collect()
    }

    /// Writes an Event.
    pub(super) fn publish(&self, event: Event) {
        self.recorder.publish(event);
    }

    /// Writes the Events of a message; none for messages of severity `Debug`.
    pub(super) fn write(&self, announcement: &Announcement<'_>) {
        let description = announcement.message.describe();
        let kind = match description.severity {
            Severity::Debug => return,
            Severity::Info => EventType::Normal,
            Severity::Warning => EventType::Warning,
        };
        let subject = self.subjects.lock().get(announcement.owner).cloned();
        let object = announcement.object.clone();
        let named = announcement.message.object();
        let event = |regarding: Regarding, related: Option<Regarding>, note: String| Event {
            regarding,
            related,
            kind,
            reason: description.reason.clone(),
            action: description.action.to_owned(),
            aggregation_key: format!("{} {}", named.unwrap_or_default(), description.aggregation_key),
            note,
        };
        let text = &printable_lines(&description.text).into_owned();
        if let Some(subject) = &subject {
            let note = named.map_or_else(|| text.clone(), |object| format!("{object}: {text}"));
            self.recorder.publish(event(subject.clone(), object.clone(), note));
        }
        if let Some(object) = object {
            self.recorder.publish(event(object, subject, text.clone()));
        }
    }
}
