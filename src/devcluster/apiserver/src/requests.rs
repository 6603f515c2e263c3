//! Counts of requests in progress to each Knative Revision. The gateway counts them; the autoscaler reads them.
//!
//! Invariant: a request counts from its arrival until its response has ended, also while it waits for a pod.
//!
//! Not here: the use of these numbers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::store::Key;

/// The image of a Revision's sidecar, which needs no process.
pub const QUEUE_PROXY: &str = "gcr.io/knative-releases/knative.dev/serving/cmd/queue";

/// The counts of a cluster.
#[derive(Debug, Default)]
pub struct Requests {
    revisions: Mutex<HashMap<Key, Count>>,
    /// Revisions for which a request started to wait.
    waited_for: watch::Sender<BTreeSet<Key>>,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    under_way: u64,
    /// Total seconds of all requests until `counted`.
    seconds: f64,
    counted: Instant,
}

impl Count {
    fn until(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.counted).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "there are not so many requests")]
        let under_way = self.under_way as f64;
        self.seconds += under_way * since;
        self.counted = now;
    }
}

/// The request load of a Revision.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Number of requests in progress.
    pub under_way: u64,
    /// Total duration of all requests so far, in seconds.
    pub seconds: f64,
}

impl Requests {
    /// Starts to count a request to a Revision, until the returned value is dropped.
    pub fn begin(self: &Arc<Self>, revision: Key, now: Instant) -> UnderWay {
        let mut revisions = self.revisions.lock();
        let count = revisions.entry(revision.clone()).or_insert(Count { under_way: 0, seconds: 0.0, counted: now });
        count.until(now);
        count.under_way += 1;
        drop(revisions);
        UnderWay { requests: Arc::clone(self), revision }
    }

    /// Returns the load of a Revision until now.
    pub fn load(&self, revision: &Key, now: Instant) -> Load {
        let mut revisions = self.revisions.lock();
        let Some(count) = revisions.get_mut(revision) else { return Load::default() };
        count.until(now);
        Load { under_way: count.under_way, seconds: count.seconds }
    }

    /// Drops the counts of a Revision that is gone and has no requests in progress.
    pub fn forget(&self, revision: &Key) {
        self.revisions.lock().retain(|known, count| known != revision || count.under_way > 0);
    }

    /// Records that a request waits for a pod of this Revision.
    pub fn wait_for(&self, revision: &Key) {
        self.waited_for.send_modify(|all| {
            all.insert(revision.clone());
        });
    }

    /// Notifies when a request starts to wait.
    pub fn waits(&self) -> watch::Receiver<BTreeSet<Key>> {
        self.waited_for.subscribe()
    }

    /// Takes the Revisions for which a request started to wait since the last call.
    pub fn take_waited_for(&self) -> BTreeSet<Key> {
        let mut taken = BTreeSet::new();
        self.waited_for.send_if_modified(|all| {
            taken = std::mem::take(all);
            false
        });
        taken
    }
}

/// A request in progress.
#[derive(Debug)]
pub struct UnderWay {
    requests: Arc<Requests>,
    revision: Key,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut revisions = self.requests.revisions.lock();
        if let Some(count) = revisions.get_mut(&self.revision) {
            count.until(Instant::now());
            count.under_way = count.under_way.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_request_counts_from_its_beginning_to_its_end() {
        let requests = Arc::new(Requests::default());
        let (key, start) = (Key::new("default", "hello-00001"), Instant::now());
        let first = requests.begin(key.clone(), start);
        let _second = requests.begin(key.clone(), start + Duration::from_secs(1));
        let load = requests.load(&key, start + Duration::from_secs(3));
        assert_eq!(load, Load { under_way: 2, seconds: 5.0 });
        drop(first);
        assert_eq!(requests.load(&key, start).under_way, 1);
        assert_eq!(requests.load(&Key::new("default", "other"), start), Load::default());
    }

    #[test]
    fn a_finished_request_wakes_its_waiter_once() {
        let requests = Requests::default();
        let mut waits = requests.waits();
        requests.wait_for(&Key::new("default", "hello-00001"));
        assert!(waits.has_changed().unwrap());
        waits.mark_unchanged();
        assert_eq!(requests.take_waited_for().len(), 1);
        assert!(!waits.has_changed().unwrap());
        assert!(requests.take_waited_for().is_empty());
    }
}
