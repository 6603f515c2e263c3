//! The queue of one Provider, which its task empties.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use mainstay_notification::{Next, Notice, Outcome, ProviderType, Queue};

/// The queue of one Provider.
#[derive(Debug)]
pub(in crate::agent) struct Line {
    pub(super) kind: ProviderType,
    queue: Mutex<Queue>,
    /// Notified after an offer.
    pub(in crate::agent) offered: Notify,
    began: Instant,
}

impl Line {
    /// Returns an empty queue.
    pub(super) fn new(kind: ProviderType) -> Self {
        Self { kind, queue: Mutex::default(), offered: Notify::new(), began: Instant::now() }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Adds a notice of this time.
    pub(super) fn offer(&self, notice: Notice, offered: Instant) {
        if self.kind.takes(&notice) {
            self.queue.lock().offer(notice, offered.saturating_duration_since(self.began));
            self.offered.notify_one();
        }
    }

    /// Counts notices like this one, and sends none of them.
    pub(super) fn count(&self, notice: Notice, times: u64) {
        if self.kind.takes(&notice) {
            self.queue.lock().count(notice, times, self.now());
            self.offered.notify_one();
        }
    }

    /// Returns the next step. If the next step is to wait, the result includes the remaining time.
    pub(in crate::agent) fn next(&self) -> Next {
        let now = self.now();
        match self.queue.lock().next(now) {
            Next::Wait(until) => Next::Wait(until.saturating_sub(now)),
            other => other,
        }
    }

    /// Records the outcome of the notice in flight.
    pub(in crate::agent) fn settle(&self, outcome: &Outcome) {
        self.queue.lock().settle(outcome, self.now());
    }

    /// Applies changed settings. A notice in flight is sent again.
    pub(in crate::agent) fn set(&self, per_minute: Option<u32>) {
        let mut queue = self.queue.lock();
        queue.set_budget(per_minute);
        queue.settle(&Outcome::Retry { why: String::new(), after: None }, self.now());
        queue.retry_now();
    }
}
