//! Publishes events at a fixed rate, each until it is accepted.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
};

use super::{
    event::{CONTENT, Ids},
    tally::Tally,
    tenant::Tenant,
};
use crate::{Error, events::publisher::TYPE};

/// Maximum number of concurrent requests. Beyond it, the next event waits.
const CLIENTS: usize = 128;
/// Timeout of a request. A publisher responds earlier.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Pause after a request that has failed.
const PAUSE: Duration = Duration::from_millis(50);
/// Time after which an event is given up.
const GIVEN_UP: Duration = Duration::from_mins(2);

/// The sender.
pub(super) struct Sender {
    client: reqwest::Client,
    publishers: Vec<SocketAddr>,
    rate: u32,
    ids: Ids,
    tally: Arc<Mutex<Tally>>,
    failures: Mutex<Failures>,
}

/// Requests that have failed. All but those of given up events were repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Failures {
    /// Number of refused requests, by their status.
    pub statuses: BTreeMap<u16, usize>,
    /// Number of requests without a response.
    pub unanswered: usize,
    /// Number of events that were given up.
    pub given_up: usize,
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (status, count) in &self.statuses {
            write!(f, "{count} requests refused with {status}, ")?;
        }
        write!(f, "{} requests without a response, {} events given up", self.unanswered, self.given_up)
    }
}

impl Sender {
    pub(super) fn new(
        publishers: Vec<SocketAddr>,
        rate: u32,
        ids: Ids,
        tally: &Arc<Mutex<Tally>>,
    ) -> Result<Arc<Self>, Error> {
        let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().map_err(Error::Client)?;
        let (tally, failures) = (Arc::clone(tally), Mutex::default());
        Ok(Arc::new(Self { client, publishers, rate, ids, tally, failures }))
    }

    /// Returns the failures so far.
    pub(super) fn failures(&self) -> Failures {
        self.failures.lock().clone()
    }

    /// Publishes events until `stop` is true. Events that were late are sent as fast as they are accepted. Returns the
    /// time until the last response.
    pub(super) async fn send(self: Arc<Self>, stop: watch::Receiver<bool>) -> Duration {
        let (begun, permits) = (tokio::time::Instant::now(), Arc::new(Semaphore::new(CLIENTS)));
        let mut requests = JoinSet::new();
        for count in 0_u32.. {
            tokio::time::sleep_until(begun + Duration::from_secs(1) * count / self.rate).await;
            let permit = Arc::clone(&permits).acquire_owned().await;
            if *stop.borrow() {
                break;
            }
            let sender = Arc::clone(&self);
            requests.spawn(async move {
                sender.publish().await;
                drop(permit);
            });
            while requests.try_join_next().is_some() {}
        }
        while requests.join_next().await.is_some() {}
        begun.elapsed()
    }

    /// Publishes the next event to one publisher, and after a failure to the other one, as through a Service.
    async fn publish(&self) {
        let (number, begun) = (self.tally.lock().begin(), Instant::now());
        let namespace = Tenant::of(number).namespace();
        let first = number as usize / Tenant::ALL.len();
        for attempt in 0_usize.. {
            let address = self.publishers[(first + attempt) % self.publishers.len()];
            let request = self.client.post(format!("http://{address}/namespaces/{namespace}/publish"));
            let request = request.header("ce-specversion", "1.0").header("ce-source", namespace);
            let request = request.header("ce-type", TYPE).header("ce-id", self.ids.id(number));
            match request.body(Bytes::from_static(&CONTENT)).send().await.map(|answer| answer.status()) {
                Ok(status) if status.is_success() => {
                    self.tally.lock().accept(number);
                    return;
                }
                Ok(status) => *self.failures.lock().statuses.entry(status.as_u16()).or_default() += 1,
                Err(_) => self.failures.lock().unanswered += 1,
            }
            if begun.elapsed() > GIVEN_UP {
                self.failures.lock().given_up += 1;
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_named_by_their_status() {
        let none = Failures::default();
        assert_eq!(none.to_string(), "0 requests without a response, 0 events given up");
        let some = Failures { statuses: BTreeMap::from([(503, 2), (507, 1)]), unanswered: 3, given_up: 4 };
        assert_eq!(
            some.to_string(),
            "2 requests refused with 503, 1 requests refused with 507, 3 requests without a response, 4 events given up"
        );
    }
}
