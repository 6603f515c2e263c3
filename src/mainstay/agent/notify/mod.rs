//! Sends each message of the controllers to every sink.
//!
//! A sink is one file here and one variant of [`Sink`]. Metrics and the terminal of `mainstay dev` subscribe to the
//! stream instead, because their lifetimes differ from a leader's term.
//!
//! Invariant: no sink blocks.

mod event_metadata;
mod events;
mod line;
mod log;
mod matching;
mod notice;
mod outbox;
mod table;

use std::sync::Arc;

use mainstay_cluster::{Cluster, Event, EventWriter, Regarding};
use mainstay_engine::apply::Announcement;
use mainstay_engine::notification::Emitter;
use mainstay_object::Owner;

pub(super) use event_metadata::event_metadata;
use events::Events;
pub(super) use line::Line;
pub(super) use matching::Matching;
pub(super) use outbox::Outbox;
pub(super) use table::Labels;

/// The destinations of messages.
enum Sink {
    /// The process's log.
    Log,
    /// Kubernetes Events about the owner and the object.
    Events(Events),
    /// The stream inside the process.
    Stream(Emitter),
    /// The queues of Providers.
    Outbox(Outbox),
}

/// Sends messages to all sinks. Clones share the sinks.
#[derive(Clone)]
pub(super) struct Notifier {
    sinks: Arc<[Sink]>,
    events: Events,
    outbox: Outbox,
}

impl Notifier {
    /// Returns a notifier, and the task that writes its Events.
    pub(super) fn new(emitter: Emitter, cluster: &Cluster, identity: &str) -> (Self, EventWriter) {
        let (events, writer) = Events::new(cluster, identity);
        let outbox = Outbox::default();
        let sinks = [Sink::Log, Sink::Stream(emitter), Sink::Events(events.clone()), Sink::Outbox(outbox.clone())];
        (Self { sinks: sinks.into(), events, outbox }, writer)
    }

    /// Sets or removes the resource of an owner.
    pub(super) fn set_subject(&self, owner: &Owner, resource: Option<Regarding>) {
        self.events.set_subject(owner, resource);
    }

    /// Sets the labels of an owner.
    pub(super) fn set_labels(&self, owner: &Owner, labels: Option<&Labels>) {
        self.outbox.set_labels(owner, labels);
    }

    /// Sets the fields of messages about an owner.
    pub(super) fn set_event_metadata(&self, owner: &Owner, metadata: Labels) {
        self.outbox.set_event_metadata(owner, metadata);
    }

    /// Returns the queues of Providers.
    pub(super) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Removes all resources. The resources are listed again in the next term.
    pub(super) fn clear_subjects(&self) {
        self.outbox.clear();
        self.events.clear_subjects();
    }

    /// Returns all existing GitSyncs and Functions.
    pub(super) fn subjects(&self) -> Vec<Owner> {
        self.events.subjects()
    }

    /// Publishes an Event about an object that is not an owner.
    pub(super) fn publish(&self, event: Event) {
        self.events.publish(event);
    }

    /// Sends a message to every sink.
    pub(super) fn notify(&self, announcement: &Announcement<'_>) {
        for sink in &*self.sinks {
            match sink {
                Sink::Log => log::write(announcement.message),
                Sink::Events(events) => events.write(announcement),
                Sink::Stream(emitter) => emitter.emit(announcement.message.clone()),
                Sink::Outbox(outbox) => {
                    let subject = self.events.subject(announcement.owner);
                    outbox.offer(announcement, subject.as_ref().or(announcement.object.as_ref()));
                }
            }
        }
    }
}
