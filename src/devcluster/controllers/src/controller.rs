//! The interface of a controller: events in, objects to reconcile out, one reconcile at a time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::work_queue::WorkQueue;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::Event;
use devcluster_apiserver::store::Key;

/// The work queue from the view of one controller.
pub(super) struct Queue<'a> {
    queue: &'a mut WorkQueue,
    controller: usize,
}

impl<'a> Queue<'a> {
    /// Returns the queue of the controller with this index.
    pub(super) fn of(queue: &'a mut WorkQueue, controller: usize) -> Self {
        Self { queue, controller }
    }

    /// Enqueues an object immediately.
    pub(super) fn add(&mut self, subject: Subject) {
        self.add_after(subject, Duration::ZERO);
    }

    /// Enqueues an object after a delay.
    pub(super) fn add_after(&mut self, subject: Subject, delay: Duration) {
        self.queue.add(self.controller, subject, Instant::now() + delay);
    }
}

/// One controller.
pub(super) trait Controller: Send {
    /// Enqueues the objects that an event concerns. Called for every write of the cluster, so it must be cheap.
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>);

    /// Enqueues the objects of Revisions that a request waits for.
    fn waited_for(&mut self, _: &BTreeSet<Key>, _: &mut Queue<'_>) {}

    /// Reads the state of an object and moves it one step towards its desired state.
    fn reconcile(&mut self, client: &Client, subject: &Subject, queue: &mut Queue<'_>);
}
