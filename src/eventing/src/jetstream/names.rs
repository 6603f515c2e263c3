//! Names of streams, subjects and consumers.
//!
//! Names of Kubernetes objects may contain dots but no underscores. Names of streams and consumers may contain
//! underscores but no dots.

use std::fmt::Display;

use sha2::{Digest as _, Sha256};

use super::super::subscriber::SubscriberId;

/// Prefixes of streams. A namespace follows.
const EVENTS: &str = "mainstay_events_";
const LETTERS: &str = "mainstay_dead-letters_";
/// Prefixes of subjects. Namespace, kind and name of a subscriber follow.
const EVENT: &str = "mainstay.events";
const LETTER: &str = "mainstay.dead-letters";
/// Follows the namespace in the subject of a partition, in place of a kind.
const PARTITION: &str = "partition";
/// Prefix of the subject of a stream that is being deleted. The stream's name and the time in seconds follow.
const MARK: &str = "mainstay.removed";
/// The stream with the numbers of failed deliveries.
pub(super) const ATTEMPTS: &str = "mainstay_attempts";
/// Prefix of its subjects. Namespace, number and time of an event, and kind and name of its subscriber follow.
const ATTEMPT: &str = "mainstay.attempts";
/// Maximum length of a consumer's name in bytes; longer names are shortened. The server permits 255 bytes.
const LONGEST: usize = 200;

/// The contents of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    Events,
    Letters,
}

impl Contents {
    /// Returns the stream of a namespace.
    pub(super) fn stream(self, namespace: &str) -> String {
        let prefix = match self {
            Self::Events => EVENTS,
            Self::Letters => LETTERS,
        };
        format!("{prefix}{namespace}")
    }

    /// Returns the namespace of a stream.
    pub(super) fn namespace(self, stream: &str) -> Option<&str> {
        let prefix = match self {
            Self::Events => EVENTS,
            Self::Letters => LETTERS,
        };
        stream.strip_prefix(prefix)
    }

    fn subjects(self) -> &'static str {
        match self {
            Self::Events => EVENT,
            Self::Letters => LETTER,
        }
    }

    /// Returns the subject of a subscriber.
    pub(super) fn subject(self, to: &SubscriberId) -> String {
        let (kind, namespace, name) = to.parts();
        format!("{}.{namespace}.{}.{name}", self.subjects(), kind.word())
    }

    /// Returns the subject of a partition of a subscriber that receives the events of each source in order, or with `*`
    /// the pattern for all of its partitions.
    pub(super) fn partition(self, to: &SubscriberId, partition: impl Display) -> String {
        let (kind, namespace, name) = to.parts();
        format!("{}.{namespace}.{PARTITION}.{partition}.{}.{name}", self.subjects(), kind.word())
    }

    /// Returns the pattern for all subjects of a namespace.
    pub(super) fn all_subjects(self, namespace: &str) -> String {
        format!("{}.{namespace}.>", self.subjects())
    }

    /// Returns the subscriber to which a subject belongs.
    pub(super) fn subscriber(self, subject: &str) -> Option<SubscriberId> {
        let rest = subject.strip_prefix(self.subjects())?.strip_prefix('.')?;
        let (namespace, rest) = rest.split_once('.')?;
        let partitioned = rest.strip_prefix(PARTITION).and_then(|rest| rest.strip_prefix('.')?.split_once('.'));
        let (kind, name) = partitioned.map_or(rest, |(_, rest)| rest).split_once('.')?;
        SubscriberId::parse(&format!("{kind}/{namespace}/{name}"))
    }
}

/// Returns the subject of a stream that is being deleted.
pub(super) fn mark(stream: &str, seconds: i64) -> String {
    format!("{MARK}.{stream}.{seconds}")
}

/// Returns the subject of the number of failed deliveries of an event. Numbers of events repeat after their stream was
/// created again, with a different time.
pub(super) fn attempts(to: &SubscriberId, number: u64, nanoseconds: i128) -> String {
    let (kind, namespace, name) = to.parts();
    format!("{ATTEMPT}.{namespace}.{number}.{nanoseconds}.{}.{name}", kind.word())
}

/// Returns the pattern for the subjects of a subscriber's numbers of failed deliveries.
pub(super) fn attempts_of(to: &SubscriberId) -> String {
    let (kind, namespace, name) = to.parts();
    format!("{ATTEMPT}.{namespace}.*.*.{}.{name}", kind.word())
}

/// Returns the pattern for the subjects of all numbers of failed deliveries.
pub(super) fn all_attempts() -> String {
    format!("{ATTEMPT}.>")
}

/// Returns the time of a mark in seconds.
pub(super) fn marked_at(subject: &str) -> Option<i64> {
    let (_, seconds) = subject.strip_prefix(MARK)?.rsplit_once('.')?;
    seconds.parse().ok()
}

/// Returns the name of a subscriber's consumer.
pub(super) fn consumer(to: &SubscriberId) -> String {
    let (kind, _, name) = to.parts();
    let plain = format!("{}_{}", kind.word(), name.replace('.', "_"));
    if plain.len() <= LONGEST {
        return plain;
    }
    // A plain name never has two underscores after the kind, because the name of an object does not begin with a dot.
    format!("{}__{}", kind.word(), hex::encode(&Sha256::digest(name)[..16]))
}

/// Returns the name of the consumer of a partition.
pub(super) fn partition_consumer(to: &SubscriberId, partition: u8) -> String {
    // A name in a plain name of a consumer never has two underscores.
    format!("{}__p{partition}", consumer(to))
}

/// Returns the ID that detects duplicates of an event for a subscriber.
pub(super) fn message_id(to: &SubscriberId, source: &str, id: &str) -> String {
    let mut digest = Sha256::new();
    for text in [to.as_str(), source, id] {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    }
    hex::encode(&digest.finalize()[..16])
}

#[cfg(test)]
mod tests {
    use super::super::super::subscriber::SubscriberKind;
    use super::*;

    #[test]
    fn subjects_name_their_subscriber() {
        for name in ["mine", "my.own", "a.trigger.b"] {
            let to = SubscriberId::new(SubscriberKind::Trigger, "team", name);
            for contents in [Contents::Events, Contents::Letters] {
                assert_eq!(contents.subscriber(&contents.subject(&to)), Some(to.clone()), "{name}");
                assert_eq!(contents.subscriber(&contents.partition(&to, 15)), Some(to.clone()), "{name}");
            }
            assert_eq!(Contents::Letters.subscriber(&Contents::Events.subject(&to)), None);
        }
        for subject in
            ["", "mainstay.events", "mainstay.events.team", "mainstay.events.team.other.a", "other.team.trigger.a"]
        {
            assert_eq!(Contents::Events.subscriber(subject), None, "{subject}");
        }
    }

    #[test]
    fn streams_name_their_namespace() {
        for namespace in ["team", "dead-letters"] {
            assert_eq!(Contents::Events.namespace(&Contents::Events.stream(namespace)), Some(namespace));
            assert_eq!(Contents::Letters.namespace(&Contents::Events.stream(namespace)), None);
            assert_eq!(Contents::Events.namespace(&Contents::Letters.stream(namespace)), None);
        }
    }

    #[test]
    fn a_mark_has_its_time() {
        let subject = mark(&Contents::Events.stream("team"), 1_700_000_000);
        assert_eq!((marked_at(&subject), Contents::Events.subscriber(&subject)), (Some(1_700_000_000), None));
        assert_eq!(marked_at("mainstay.events.team.5"), None);
    }

    #[test]
    fn the_failed_deliveries_of_an_event_have_a_subject_of_their_own() {
        let to = SubscriberId::new(SubscriberKind::Trigger, "team", "my.own");
        let subject = attempts(&to, 7, 1_700_000_000_000_000_000);
        assert_eq!(subject, "mainstay.attempts.team.7.1700000000000000000.trigger.my.own");
        assert_eq!(attempts_of(&to), "mainstay.attempts.team.*.*.trigger.my.own");
        for contents in [Contents::Events, Contents::Letters] {
            assert_eq!((contents.subscriber(&subject), contents.namespace(ATTEMPTS)), (None, None));
        }
    }

    #[test]
    fn names_of_consumers_are_valid_and_different() {
        let of = |kind, name: &str| consumer(&SubscriberId::new(kind, "team", name));
        let long = "a".repeat(250);
        let names = [
            of(SubscriberKind::Trigger, "a-b"),
            of(SubscriberKind::Trigger, "a.b"),
            of(SubscriberKind::Subscription, "a.b"),
            of(SubscriberKind::Trigger, &long),
            of(SubscriberKind::Trigger, &long[1..]),
        ];
        let partitions = [
            partition_consumer(&SubscriberId::new(SubscriberKind::Trigger, "team", "a"), 1),
            partition_consumer(&SubscriberId::new(SubscriberKind::Trigger, "team", "a"), 11),
            partition_consumer(&SubscriberId::new(SubscriberKind::Trigger, "team", "a.p1"), 1),
            partition_consumer(&SubscriberId::new(SubscriberKind::Trigger, "team", &long), 1),
        ];
        let names: Vec<String> = names.into_iter().chain(partitions).collect();
        let different: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len());
        for name in names {
            assert!(name.len() <= 255 && !name.contains(['.', '*', '>', '/', ' ']), "{name}");
        }
    }
}
