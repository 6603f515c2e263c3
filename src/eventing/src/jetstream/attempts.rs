//! Counts the failed deliveries of events.
//!
//! The server counts how often it has sent a message to a process, also if that process ends before it asks the
//! subscriber. So a stream has the number of failed deliveries of each event that is retried, for all processes.
//!
//! Invariant: a number that is lost or invalid is 0, and a number that could not be read is not replaced. So an event can
//! be delivered more often, but is not given up before all of its deliveries have failed. Invariant: settings that an
//! administrator of NATS has changed are kept.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, LastRawMessageErrorKind, RetentionPolicy, StorageType};
use bytes::Bytes;
use jiff::Timestamp;
use tokio::time::{Instant, timeout};

use super::super::retry;
use super::super::subscriber::SubscriberId;
use super::counting::Uncreated;
use super::election::{NoResponse, Patience, has_no_peers, has_no_stream, is_passing};
use super::names;
use super::streams::{JetStream, Limits, Unmade, is_missing};
use mainstay_object::failure::chain;

/// Maximum time to read or store a number. The next event of the subscriber waits for it.
const LIMIT: Duration = Duration::from_secs(4);
/// Maximum time to correct an existing stream. Otherwise there would be no time to store a number.
const CORRECTION: Duration = Duration::from_secs(1);
/// Maximum age of a number. Deliveries of an event are given up after 24 hours.
const AGE: Duration = Duration::from_secs(25 * 3600);
/// Maximum size in bytes of all numbers. Beyond it, the oldest are removed.
const SIZE: i64 = 32 << 20;

impl JetStream {
    /// Returns the number of failed deliveries of an event; `None` if the read fails, and for some seconds afterwards.
    pub(super) async fn attempts(&self, to: &SubscriberId, number: u64, published: Timestamp) -> Option<u32> {
        if !self.0.counting.reads.are_permitted(Instant::now().into_std()) {
            return None;
        }
        let subject = names::attempts(to, number, published.as_nanosecond());
        let read = self.repeat(Patience::of(LIMIT), || self.read_attempts(&subject)).await;
        let has_begun = self.0.counting.reads.ended(read.is_ok(), Instant::now().into_std());
        let error = match read {
            Ok(attempts) => return Some(attempts),
            Err(error) => chain(&*error),
        };
        if has_begun {
            tracing::warn!(
                stream = names::ATTEMPTS,
                %error,
                "failed deliveries cannot be read from NATS: events can be delivered more than 100 times; check that the \
                 stream has a leader, and that the account of NATS permits requests to it"
            );
        } else {
            tracing::debug!(subscriber = %to, %error, "the failed deliveries of an event are not known");
        }
        None
    }

    pub(super) async fn read_attempts(&self, subject: &str) -> Result<u32, Unmade> {
        let stream = self.0.context.get_stream_no_info(names::ATTEMPTS).await?;
        match stream.get_last_raw_message_by_subject(subject).await {
            Ok(message) => Ok(parse(&message.payload)),
            Err(error) if has_no_number(&error.kind()) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Stores the number of failed deliveries of an event, before the server may send the event again. Stores none for some
    /// seconds after a failed write.
    pub(crate) async fn record_attempts(
        &self,
        to: &SubscriberId,
        (number, published): (u64, Timestamp),
        attempts: u32,
    ) {
        if !self.0.counting.writes.are_permitted(Instant::now().into_std()) {
            return;
        }
        let subject = names::attempts(to, number, published.as_nanosecond());
        let payload = Bytes::from(attempts.to_string());
        let stored = self.write_attempts(&subject, &payload, Patience::of(LIMIT)).await;
        let has_begun = self.0.counting.writes.ended(stored.is_ok(), Instant::now().into_std());
        let Err(error) = stored else { return };
        let error = chain(&*error);
        if has_begun {
            tracing::warn!(
                stream = names::ATTEMPTS,
                %error,
                "failed deliveries are not counted on NATS: events can be delivered more than 100 times; check that the \
                 account of NATS permits this stream, with 32 MiB for each replica, and messages to its subjects"
            );
        } else {
            tracing::debug!(subscriber = %to, %error, "a failed delivery is not counted");
        }
    }

    pub(super) async fn write_attempts(
        &self,
        subject: &str,
        payload: &Bytes,
        mut patience: Patience,
    ) -> Result<(), Unmade> {
        loop {
            self.create_attempts(patience).await?;
            match self.repeat(patience, || self.put_attempts(subject, payload)).await {
                // The stream has no leader, or a different program has deleted it.
                Err(error) if has_no_stream(&*error) => {
                    self.0.counting.forget();
                    if !patience.further().await {
                        return Err(error);
                    }
                }
                stored => return stored,
            }
        }
    }

    async fn put_attempts(&self, subject: &str, payload: &Bytes) -> Result<(), Unmade> {
        let sent = self.0.context.publish(subject.to_owned(), payload.clone()).await?;
        sent.await?;
        Ok(())
    }

    /// Creates the stream of the numbers if it is missing, unless this has failed recently.
    async fn create_attempts(&self, patience: Patience) -> Result<(), Unmade> {
        let counting = &self.0.counting;
        if counting.exists() {
            return Ok(());
        }
        let creating = timeout(patience.left(), counting.creating.lock()).await;
        let _creating = creating.map_err(|_| "the stream is still being created")?;
        if counting.exists() {
            return Ok(());
        }
        if let Some(why) = counting.failure(Instant::now().into_std()) {
            return Err(why.into());
        }
        let limits = self.0.limits.ok_or("the limits of the stream are not known")?;
        let created = self.repeat(patience, || self.ensure_attempts(limits)).await;
        let uncreated = |error: &Unmade| Uncreated { why: chain(&**error), passes: is_passing(&**error) };
        let result = created.as_ref().copied().map_err(uncreated);
        counting.created(result, Instant::now().into_std());
        created
    }

    /// Creates the stream, or changes what the numbers need.
    async fn ensure_attempts(&self, limits: Limits) -> Result<(), Unmade> {
        let found = match self.0.context.get_stream(names::ATTEMPTS).await {
            Ok(stream) => stream.cached_info().config.clone(),
            Err(error) if is_missing(&error) => {
                Box::pin(self.0.context.create_or_update_stream(config(limits))).await?;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        match corrected(&found, limits) {
            Some(wanted) => self.correct_attempts(&found, wanted).await,
            None => Ok(()),
        }
    }

    /// Changes the settings of the stream. A stream that cannot be changed is used as it is, if it stores the numbers.
    async fn correct_attempts(&self, found: &Config, wanted: Config) -> Result<(), Unmade> {
        let is_usable = found.subjects == wanted.subjects;
        let correcting = Box::pin(self.0.context.create_or_update_stream(wanted));
        let error: Unmade = match self.response(CORRECTION, correcting).await {
            Some(Ok(_)) => return Ok(()),
            Some(Err(error)) if is_passing(&error) && !has_no_peers(&error) => return Err(error.into()),
            Some(Err(error)) => error.into(),
            None => NoResponse.into(),
        };
        if !is_usable {
            return Err(error);
        }
        if self.0.counting.uncorrected() {
            tracing::warn!(
                stream = names::ATTEMPTS,
                error = chain(&*error),
                "the replicas or limits of the stream of failed deliveries cannot be corrected: it is used as it is; check \
                 that NATS has as many servers as --nats-replicas, and that the account permits updates of the stream"
            );
        }
        Ok(())
    }

    /// Removes the numbers of a deleted subscriber. If this fails, they expire.
    pub(super) async fn remove_attempts(&self, to: &SubscriberId) {
        let subjects = names::attempts_of(to);
        let removed = self.repeat(Patience::of(LIMIT), || self.purge_attempts(&subjects)).await;
        if let Err(error) = removed {
            tracing::debug!(subscriber = %to, %error, "the numbers of failed deliveries are not removed");
        }
    }

    async fn purge_attempts(&self, subjects: &str) -> Result<(), Unmade> {
        let stream = self.0.context.get_stream_no_info(names::ATTEMPTS).await?;
        stream.purge().filter(subjects).await?;
        Ok(())
    }
}

/// Whether an event has no number, or whether the stream does not exist.
fn has_no_number(kind: &LastRawMessageErrorKind) -> bool {
    match kind {
        LastRawMessageErrorKind::NoMessageFound => true,
        LastRawMessageErrorKind::JetStream(error) => error.code() == 404,
        _ => false,
    }
}

/// Returns a stored number. A number that Mainstay does not store is 0.
fn parse(payload: &[u8]) -> u32 {
    let number: Option<u32> = std::str::from_utf8(payload).ok().and_then(|text| text.parse().ok());
    number.filter(|number| *number <= retry::ATTEMPTS).unwrap_or(0)
}

/// Returns the configuration of the stream with the settings that the numbers need, or `None` if it has them. An
/// administrator of NATS can change the others, and can add replicas.
fn corrected(found: &Config, limits: Limits) -> Option<Config> {
    let wanted = config(limits);
    let of = |config: &Config| (config.subjects.clone(), config.max_messages_per_subject);
    if of(found) == of(&wanted) && found.num_replicas >= wanted.num_replicas {
        return None;
    }
    Some(Config {
        subjects: wanted.subjects,
        max_messages_per_subject: wanted.max_messages_per_subject,
        num_replicas: found.num_replicas.max(wanted.num_replicas),
        ..found.clone()
    })
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

    const LIMITS: Limits = Limits { share: 64 << 20, replicas: 3 };

    #[test]
    fn an_invalid_number_is_zero() {
        let invalid = ["", "-1", "many", "101", "4294967295", "99999999999"].map(|payload| (payload, 0));
        for (payload, expected) in [("7", 7), ("100", 100)].into_iter().chain(invalid) {
            assert_eq!(parse(payload.as_bytes()), expected, "{payload}");
        }
        assert_eq!(parse(&[0xff]), 0);
    }

    #[test]
    fn only_the_last_number_of_an_event_is_kept_and_none_is_refused() {
        let config = config(LIMITS);
        assert_eq!((config.max_messages_per_subject, config.discard, config.num_replicas), (1, DiscardPolicy::Old, 3));
    }

    #[test]
    fn only_settings_that_the_numbers_need_are_corrected() {
        let found = Config { max_bytes: 1 << 20, max_age: Duration::from_secs(60), num_replicas: 5, ..config(LIMITS) };
        assert_eq!(corrected(&found, LIMITS), None);
        let wrong = Config { num_replicas: 1, max_messages_per_subject: 9, subjects: Vec::new(), ..found.clone() };
        assert_eq!(corrected(&wrong, LIMITS), Some(Config { num_replicas: 3, ..found }));
    }
}
