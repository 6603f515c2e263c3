//! Decides which requests are retried, and when.
//!
//! Invariant: a refusal of the credentials or of the request itself is never retried.

use std::time::{Duration, Instant};

use super::{Client, Error, Fault};
use mainstay_object::failure::Class;

/// Delays between retries after a failure that is not an outage.
const DELAYS: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(2)];
/// Maximum delay between retries during an outage, unless the registry asks for a longer delay.
const LONGEST: Duration = Duration::from_secs(5);

/// Returns the delay before the next attempt; `None` if the failure is final. `retries` is the number of retries so
/// far, and `ago` the time since the first failure.
fn delay(fault: &Fault, retries: usize, ago: Duration, patience: Duration) -> Option<Duration> {
    if fault.class() != Class::Unavailable || !fault.may_pass() {
        return None;
    }
    if !fault.is_outage() {
        return DELAYS.get(retries).copied();
    }
    let own = DELAYS[0].saturating_mul(1 << retries.min(10)).min(LONGEST);
    let wait = fault.retry_after().map_or(own, |asked| asked.max(own));
    (ago.saturating_add(wait) <= patience).then_some(wait)
}

impl Client {
    /// Retries an attempt after temporary failures: up to the client's `patience` during an outage, and twice
    /// otherwise.
    ///
    /// # Errors
    /// Returns the failure of the last attempt.
    pub async fn again<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut first: Option<Instant> = None;
        let mut retries = 0;
        loop {
            let error = match attempt().await {
                Err(error) => error,
                done => return done,
            };
            let ago = first.get_or_insert_with(Instant::now).elapsed();
            let Some(wait) = delay(&error.fault, retries, ago, self.deadlines.patience) else { return Err(error) };
            tokio::time::sleep(wait).await;
            retries += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn status(status: u16, after: Option<u64>) -> Fault {
        Fault::Status { status, code: None, retry_after: after.map(Duration::from_secs) }
    }

    fn network(is_outage: bool) -> Fault {
        Fault::Network { what: "it broke".to_owned(), is_outage }
    }

    /// Returns how often an attempt that always fails is retried, and the time of the last retry in milliseconds.
    fn retries(fault: &Fault) -> (usize, u128) {
        let mut ago = Duration::ZERO;
        let mut count = 0;
        while let Some(wait) = delay(fault, count, ago, PATIENCE) {
            ago += wait;
            count += 1;
        }
        (count, ago.as_millis())
    }

    #[test]
    fn an_outage_is_waited_for_and_a_refusal_is_final() {
        for outage in [network(true), status(502, None), status(503, None), status(504, None), status(429, None)] {
            let (count, last) = retries(&outage);
            assert!(count >= 8 && (25_000..=30_000).contains(&last), "{outage:?}: {count} retries in {last} ms");
        }
        for other in [network(false), status(500, None), Fault::Digest { what: "a layer" }] {
            assert_eq!(retries(&other), (2, 2_300), "{other:?}");
        }
        let denied = |status| Fault::Denied { by: "the registry", status, anonymous: false };
        let finals = [denied(401), denied(403), status(400, None), status(404, None), Fault::Full { status: 507 }];
        for refusal in finals {
            assert_eq!(retries(&refusal), (0, 0), "{refusal:?}");
        }
    }

    #[test]
    fn the_delay_that_a_registry_asks_for_is_kept_within_the_patience() {
        assert_eq!(retries(&status(429, Some(12))), (2, 24_000));
        assert_eq!(retries(&status(503, Some(30))), (1, 30_000));
        assert_eq!(retries(&status(429, Some(31))), (0, 0));
        assert_eq!(delay(&status(429, Some(0)), 0, Duration::ZERO, PATIENCE), Some(DELAYS[0]), "no busy loop");
    }
}
