//! The interface of a controller: events in, objects to reconcile out, one reconcile at a time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::work_queue::WorkQueue;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::Event;
use devcluster_apiserver::store::Key;

/// The work queue as one controller fills it.
pub(super) struct Queue<'a> {
    queue: &'a mut WorkQueue,
    controller: usize,
}

impl<'a> Queue<'a> {
    /// The queue for the controller with this number.
    pub(super) fn of(queue: &'a mut WorkQueue, controller: usize) -> Self {
        Self { queue, controller }
    }

    /// Adds an object to be reconciled as soon as possible.
    pub(super) fn add(&mut self, subject: Subject) {
        self.add_after(subject, Duration::ZERO);
    }

    /// Adds an object to be reconciled after a while.
    pub(super) fn add_after(&mut self, subject: Subject, delay: Duration) {
        self.queue.add(self.controller, subject, Instant::now() + delay);
    }
}

/// One controller.
pub(super) trait Controller: Send {
    /// Adds the objects that an event concerns; cheap, because it is called for every write of the cluster.
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>);

    /// Adds what has to do with Revisions that a request waits for.
    fn waited_for(&mut self, _: &BTreeSet<Key>, _: &mut Queue<'_>) {}

    /// Reads the state of the world about one object, and brings it one step nearer to what it should be.
    fn reconcile(&mut self, client: &Client, subject: &Subject, queue: &mut Queue<'_>);
}
