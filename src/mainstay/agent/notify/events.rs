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

    /// Publishes the Events of a message. Messages of severity `Debug` have no Events. Commits that do not concern their
    /// GitSync have none either, because all GitSyncs of a repository would write one for each commit.
    pub(super) fn write(&self, announcement: &Announcement<'_>) {
        if announcement.message.has_no_effect() {
            return;
        }
        let description = announcement.message.describe();
        let Some((kind, priority)) = urgency(description.severity, announcement.message.object().is_some()) else {
            return;
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

/// Returns the type and the priority of an Event; `None` if the message has no Event. `has_object` is true for a
/// message about a managed object.
fn urgency(severity: Severity, has_object: bool) -> Option<(EventType, Priority)> {
    match severity {
        Severity::Debug => None,
        Severity::Warning => Some((EventType::Warning, Priority::Failure)),
        Severity::Info if has_object => Some((EventType::Normal, Priority::Routine)),
        Severity::Info => Some((EventType::Normal, Priority::State)),
    }
}

/// Returns the key for aggregation. Routine Events of one owner that differ only in the object have the same key.
fn aggregation_key(message: &Message, key: &str, priority: Priority) -> String {
    match message.object() {
        Some(named) if priority != Priority::Routine => format!("{named} {key}"),
        _ => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::notice::notice;
    use super::*;
    use mainstay_api::function_conditions;
    use mainstay_engine::notification::WhyPruned;
    use mainstay_notification::Priority as Rank;

    #[test]
    fn failures_precede_routine_events_with_and_without_an_object() {
        for has_object in [true, false] {
            let failure = urgency(Severity::Warning, has_object);
            assert!(matches!(failure, Some((EventType::Warning, Priority::Failure))), "an object: {has_object}");
            assert!(urgency(Severity::Debug, has_object).is_none(), "an object: {has_object}");
        }
        assert!(matches!(urgency(Severity::Info, true), Some((EventType::Normal, Priority::Routine))));
        assert!(matches!(urgency(Severity::Info, false), Some((EventType::Normal, Priority::State))));
    }

    #[test]
    fn guards_and_recoveries_precede_routine_messages_in_events_and_alerts() {
        let (subject, commit) = (|| Owner::git_sync("shop", "demo"), "0".repeat(40));
        let (object, why) = (|| "Service shop/api".to_owned(), || "a guard holds it".to_owned());
        let stage = |status: &str, reason: function_conditions::Reason| Message::Stage {
            subject: Owner::function("shop", "hello"),
            condition: "Running".to_owned(),
            status: status.to_owned(),
            reason: reason.into(),
            message: why(),
        };
        let applied = Message::CommitApplied {
            subject: subject(),
            commit: commit.clone(),
            created: 0,
            changed: 1,
            unchanged: 0,
            pruned: 0,
            millis: 1,
            is_elsewhere: false,
        };
        for (message, expected) in [
            (
                Message::NotPruned { subject: subject(), object: object(), why: why() },
                (Priority::Failure, Rank::Failure),
            ),
            (
                Message::NoManifests { subject: subject(), commit: commit.clone(), why: why() },
                (Priority::Failure, Rank::Failure),
            ),
            (stage("False", function_conditions::Reason::JobFailed), (Priority::Failure, Rank::Failure)),
            (
                Message::CommitHeld { subject: subject(), commit: commit.clone(), why: why() },
                (Priority::State, Rank::State),
            ),
            (stage("True", function_conditions::Reason::DeploymentReady), (Priority::State, Rank::State)),
            (applied, (Priority::State, Rank::State)),
            (
                Message::Pruned { subject: subject(), object: object(), why: WhyPruned::Left(commit.clone()) },
                (Priority::Routine, Rank::Routine),
            ),
        ] {
            let of_event = urgency(message.describe().severity, message.object().is_some()).map(|(_, one)| one);
            let of_alert = notice(message.subject(), &message, None, Timestamp::UNIX_EPOCH).map(|one| one.priority);
            assert_eq!((of_event, of_alert), (Some(expected.0), Some(expected.1)), "{message}");
        }
    }
}
