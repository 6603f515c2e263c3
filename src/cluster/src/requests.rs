//! A queue of requests that keeps one request per subject.
//!
//! A sender never waits and no request is lost: a newer request replaces the one for the same subject, at the same
//! position in the queue. The number of subjects bounds the queue.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Returns the two ends of an empty queue.
pub fn queue<S, R>() -> (RequestSender<S, R>, RequestReceiver<S, R>) {
    let shared = Arc::new(Shared {
        waiting: Mutex::new(Waiting { order: BTreeMap::new(), places: HashMap::new(), next: 0 }),
        added: Notify::new(),
    });
    (RequestSender(Arc::downgrade(&shared)), RequestReceiver(shared))
}

/// The sender of requests `R` about subjects `S`. Once the receiver is dropped, requests are discarded.
#[derive(Debug)]
pub struct RequestSender<S, R>(Weak<Shared<S, R>>);

/// The receiver of requests.
#[derive(Debug)]
pub struct RequestReceiver<S, R>(Arc<Shared<S, R>>);

#[derive(Debug)]
struct Shared<S, R> {
    waiting: Mutex<Waiting<S, R>>,
    added: Notify,
}

#[derive(Debug)]
struct Waiting<S, R> {
    order: BTreeMap<u64, (S, R)>,
    places: HashMap<S, u64>,
    next: u64,
}

impl<S: Clone + Eq + Hash, R> RequestSender<S, R> {
    /// Sends a request. It replaces a waiting request for the same subject.
    pub fn send(&self, subject: S, request: R) {
        self.send_over(&[], subject, request);
    }

    /// Sends a request, and removes the waiting requests for the `obsolete` subjects.
    pub fn send_over(&self, obsolete: &[S], subject: S, request: R) {
        let Some(shared) = self.0.upgrade() else { return };
        // Replaced requests are dropped after the lock is released, because dropping one may run arbitrary code.
        let replaced = shared.waiting.lock().put(obsolete, subject, request);
        drop(replaced);
        shared.added.notify_one();
    }
}

impl<S: Eq + Hash, R> RequestReceiver<S, R> {
    /// Waits for the next request.
    pub async fn next(&mut self) -> R {
        loop {
            let first = self.0.waiting.lock().pop();
            match first {
                Some(request) => return request,
                None => self.0.added.notified().await,
            }
        }
    }
}

impl<S: Eq + Hash, R> Waiting<S, R> {
    fn put(&mut self, obsolete: &[S], subject: S, request: R) -> Vec<(S, R)>
    where
        S: Clone,
    {
        let places = obsolete.iter().filter_map(|subject| self.places.remove(subject));
        let mut replaced: Vec<_> = places.filter_map(|place| self.order.remove(&place)).collect();
        let next = self.next;
        let place = *self.places.entry(subject.clone()).or_insert(next);
        self.next += u64::from(place == next);
        replaced.extend(self.order.insert(place, (subject, request)));
        replaced
    }

    fn pop(&mut self) -> Option<R> {
        let (_, (subject, request)) = self.order.pop_first()?;
        self.places.remove(&subject);
        if self.order.is_empty() {
            // After a flood of requests, the memory is released.
            self.places.shrink_to(KEPT);
        }
        Some(request)
    }
}

/// Capacity that an empty queue retains.
const KEPT: usize = 64;

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn all(receiver: &mut RequestReceiver<&'static str, u64>) -> Vec<u64> {
        std::iter::from_fn(|| receiver.next().now_or_never()).collect()
    }

    #[test]
    fn a_request_replaces_the_one_for_its_subject_in_place() {
        let (sender, mut receiver) = queue();
        for round in 0..100_000 {
            sender.send("a", round);
            sender.send("b", round + 1_000_000);
        }
        assert_eq!(receiver.0.waiting.lock().order.len(), 2);
        assert_eq!(all(&mut receiver), [99_999, 1_099_999]);
        assert_eq!(all(&mut receiver), [0; 0]);
    }

    #[test]
    fn a_request_removes_those_that_it_makes_obsolete() {
        let (sender, mut receiver) = queue();
        sender.send("watch", 1);
        sender.send("other", 2);
        sender.send_over(&["watch", "end"], "end", 3);
        sender.send("watch", 4);
        assert_eq!(all(&mut receiver), [2, 3, 4]);
        sender.send("end", 5);
        sender.send_over(&["end"], "end", 6);
        assert_eq!(all(&mut receiver), [6]);
    }

    #[tokio::test]
    async fn a_receiver_wakes_for_a_request_and_a_sender_outlives_it() {
        let (sender, mut receiver) = queue();
        let waiting = tokio::spawn(async move { (receiver.next().await, receiver) });
        tokio::task::yield_now().await;
        sender.send("a", 1);
        let (request, receiver) = waiting.await.unwrap();
        assert_eq!(request, 1);
        drop(receiver);
        assert!(sender.0.upgrade().is_none(), "a sender keeps no requests that nobody receives");
        sender.send("a", 2);
    }
}
