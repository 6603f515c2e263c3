//! Counts the failed deliveries of events.
//!
//! The server counts how often it has sent a message to a process, also if that process ends before it asks the
//! subscriber. So a stream has the number of failed deliveries of each event that is retried, for all processes.
//!
//! Invariant: a number that is lost or cannot be read is 0. So an event can be delivered more often, but is not given up
//! before all of its deliveries have failed.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, LastRawMessageErrorKind, RetentionPolicy, StorageType};
use bytes::Bytes;
use jiff::Timestamp;

use super::super::subscriber::SubscriberId;
use super::election::{Patience, has_no_stream};
use super::names;
use super::streams::{JetStream, Limits, Unmade};

/// Maximum time to read or store a number. The next event of the subscriber waits for it.
const LIMIT: Duration = Duration::from_secs(4);
/// Maximum age of a number. Deliveries of an event are given up after 24 hours.
const AGE: Duration = Duration::from_secs(25 * 3600);
/// Maximum size in bytes of all numbers. Beyond it, the oldest are removed.
const SIZE: i64 = 32 << 20;

impl JetStream {
    /// Returns the number of failed deliveries of an event.
    pub(super) async fn attempts(&self, to: &SubscriberId, number: u64, published: Timestamp) -> u32 {
        let subject = names::attempts(to, number, published.as_nanosecond());
        let read = self.repeat(Patience::of(LIMIT), || self.read_attempts(&subject)).await;
        read.unwrap_or_else(|error| {
            tracing::debug!(subscriber = %to, %error, "the failed deliveries of an event are not known");
            0
        })
    }

    async fn read_attempts(&self, subject: &str) -> Result<u32, Unmade> {
        let stream = self.0.context.get_stream_no_info(names::ATTEMPTS).await?;
        match stream.get_last_raw_message_by_subject(subject).await {
            Ok(message) => Ok(parse(&message.payload)),
            Err(error) if is_missing(&error.kind()) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Stores the number of failed deliveries of an event, before the server may send the event again.
    pub(crate) async fn record_attempts(
        &self,
        to: &SubscriberId,
        (number, published): (u64, Timestamp),
        attempts: u32,
    ) {
        let subject = names::attempts(to, number, published.as_nanosecond());
        let payload = Bytes::from(attempts.to_string());
        if let Err(error) = self.write_attempts(&subject, &payload).await {
            tracing::debug!(subscriber = %to, %error, "a failed delivery is not counted");
        }
    }

    async fn write_attempts(&self, subject: &str, payload: &Bytes) -> Result<(), Unmade> {
        let patience = Patience::of(LIMIT);
        self.0.counting.get_or_try_init(|| self.create_attempts(patience)).await?;
        let write = || self.put_attempts(subject, payload);
        match self.repeat(patience, write).await {
            // A different program has deleted the stream.
            Err(error) if has_no_stream(&*error) => {
                self.create_attempts(patience).await?;
                self.repeat(patience, write).await
            }
            written => written,
        }
    }

    async fn put_attempts(&self, subject: &str, payload: &Bytes) -> Result<(), Unmade> {
        let sent = self.0.context.publish(subject.to_owned(), payload.clone()).await?;
        sent.await?;
        Ok(())
    }

    /// Creates the stream of the numbers, or updates its limits.
    async fn create_attempts(&self, patience: Patience) -> Result<(), Unmade> {
        let limits = self.0.limits.ok_or("the limits of the stream are not known")?;
        self.repeat(patience, || self.put_stream(limits)).await
    }

    async fn put_stream(&self, limits: Limits) -> Result<(), Unmade> {
        self.0.context.create_or_update_stream(config(limits)).await?;
        Ok(())
    }
}

/// Whether an event has no number, or whether the stream does not exist.
fn is_missing(kind: &LastRawMessageErrorKind) -> bool {
    match kind {
        LastRawMessageErrorKind::NoMessageFound => true,
        LastRawMessageErrorKind::JetStream(error) => error.code() == 404,
        _ => false,
    }
}

fn parse(payload: &[u8]) -> u32 {
    std::str::from_utf8(payload).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn config(Limits { replicas, .. }: Limits) -> Config {
    Config {
        name: names::ATTEMPTS.to_owned(),
        description: Some("Mainstay: numbers of failed deliveries of events that are retried".to_owned()),
        subjects: vec![names::all_attempts()],
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::Old,
        storage: StorageType::File,
        num_replicas: replicas,
        max_age: AGE,
        max_bytes: SIZE,
        max_messages_per_subject: 1,
        max_messages: -1,
        max_consumers: -1,
        ..Config::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_cannot_be_read_is_zero() {
        for (payload, expected) in [("7", 7), ("", 0), ("-1", 0), ("many", 0), ("99999999999", 0)] {
            assert_eq!(parse(payload.as_bytes()), expected, "{payload}");
        }
        assert_eq!(parse(&[0xff]), 0);
    }

    #[test]
    fn only_the_last_number_of_an_event_is_kept_and_none_is_refused() {
        let config = config(Limits { share: 64 << 20, replicas: 3 });
        assert_eq!((config.max_messages_per_subject, config.discard, config.num_replicas), (1, DiscardPolicy::Old, 3));
    }
}
