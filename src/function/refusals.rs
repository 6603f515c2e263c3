//! The write that a reconcile ended with because it was refused: when it is tried again, and what is said until then.
//!
//! A Function is reconciled whenever one of its children or its own status changes. The refused write is not repeated
//! for that: it waits as long as its [class](Class) says, longer after each try. Another document is another write, and
//! is sent at once; so is the same one after somebody has changed the Function or a credential, or when there is room again
//! in a quota.
//!
//! Invariant: the text of the first refusal is kept for as long as later ones have the same cause: code and reason of
//! the answer, and more than half of its words. Texts that admission webhooks or quotas make new each time do not write
//! the status each time.
//!
//! Deliberately absent: clocks and chance, which come in as arguments.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use super::family::What;
use super::stage::{Said, Step};
use crate::cluster::{Denial, Error};
use crate::drift::Desired;
use crate::failure::{Class, jitter};
use crate::object::{Digest, Key};

/// Longest wait that counts: after a jump of the clock nobody waits until it has come back.
const LONGEST_WAIT: Duration = Duration::from_secs(2 * 3600);

/// What was to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    key: Key,
    deed: Deed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Deed {
    /// To be as the document with this digest says.
    Apply(Digest),
    Delete,
    HandOver,
}

impl Write {
    /// That an object be as its document says.
    pub fn apply(desired: &Desired) -> Self {
        Self { key: desired.key.clone(), deed: Deed::Apply(desired.source()) }
    }

    /// What a step writes of a Function in this namespace.
    pub fn of(step: &Step, namespace: &str) -> Option<Self> {
        match step {
            Step::Put(put) => Some(Self::apply(&put.desired)),
            Step::Delete { what, identity } => {
                Some(Self { key: what.kind().key(Some(namespace), &identity.name), deed: Deed::Delete })
            }
            Step::HandOver { deployment, .. } => {
                Some(Self { key: What::Deployment.kind().key(Some(namespace), deployment), deed: Deed::HandOver })
            }
            Step::Say(_) | Step::Affirm(_) | Step::SayUnlessChanged(_) | Step::Refused(_) => None,
        }
    }
}

/// Why a write was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    class: Class,
    /// Code and reason of the answer.
    answer: Option<(u16, String)>,
    /// What the server said.
    text: String,
    /// How long it wants to be left alone.
    retry_after: Option<Duration>,
    /// Whether a quota is used up.
    is_quota: bool,
}

impl Cause {
    /// What is known of a failed write.
    pub fn of(error: &Error) -> Self {
        let answer = error.refusal();
        Self {
            class: error.class(),
            answer: answer.map(|answer| (answer.code, answer.reason.clone())),
            text: answer.map(|answer| answer.message.clone()).unwrap_or_default(),
            retry_after: error.retry_after(),
            is_quota: answer.is_some_and(|answer| answer.denial == Some(Denial::Quota)),
        }
    }

    /// The object is somebody else's.
    pub fn anothers() -> Self {
        Self { class: Class::Invalid, answer: None, text: String::new(), retry_after: None, is_quota: false }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.class == other.class && self.answer == other.answer && says_the_same(&self.text, &other.text)
    }
}

/// Whether two texts have more than half of their words in common.
fn says_the_same(one: &str, other: &str) -> bool {
    let mut words = HashMap::<&str, usize>::new();
    one.split_whitespace().for_each(|word| *words.entry(word).or_default() += 1);
    let (mut common, mut count) = (0, 0);
    for word in other.split_whitespace() {
        count += 1;
        if let Some(left) = words.get_mut(word).filter(|left| **left > 0) {
            *left -= 1;
            common += 1;
        }
    }
    one == other || 2 * common > count.max(one.split_whitespace().count())
}

/// A write that was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    write: Write,
    cause: Cause,
    /// How often in a row.
    tries: u32,
    /// Not before.
    again: Timestamp,
    /// What is said of it; nothing of what only takes away.
    said: Option<Said>,
}

impl Refused {
    /// A write was refused, after `before`. It is tried again as its class says, after `slow` where only another input
    /// helps; a tenth earlier or later as `chance` (0 to 1) has it, and never before the server wants it.
    pub fn after(
        before: Option<&Self>,
        write: Write,
        cause: Cause,
        said: Option<Said>,
        (now, slow, chance): (Timestamp, Duration, f64),
    ) -> Self {
        let before = before.filter(|before| before.write == write);
        let tries = before.map_or(0, |before| before.tries).saturating_add(1);
        let delay = cause.class.backoff().map_or(slow, |backoff| backoff.delay(tries));
        let again = now + jitter(delay, chance).max(cause.retry_after.unwrap_or_default());
        match before.filter(|before| before.cause.is_same(&cause)) {
            Some(known) => Self { tries, again, ..known.clone() },
            None => Self { write, cause, tries, again, said },
        }
    }

    /// How long this write has to wait; `None` when it may be tried.
    pub fn holds(&self, write: &Write, now: Timestamp) -> Option<Duration> {
        let wait = Duration::try_from(self.again.duration_since(now)).ok()?;
        (self.write == *write && !wait.is_zero() && wait <= LONGEST_WAIT).then_some(wait)
    }

    /// Whether it was refused for want of room in a quota.
    pub fn is_by_quota(&self) -> bool {
        self.cause.is_quota
    }

    /// Whoever changed something wants it tried now, and begins anew.
    pub fn hurry(&mut self) {
        (self.tries, self.again) = (0, Timestamp::MIN);
    }

    /// What is said of it.
    pub fn said(&self) -> Option<&Said> {
        self.said.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::function_conditions::{Reason, Status, Type};
    use crate::cluster::{Kind, Scope};

    const SLOW: Duration = Duration::from_secs(60);
    const CLASSES: [Class; 6] =
        [Class::Conflict, Class::NotReady, Class::Unavailable, Class::Denied, Class::Invalid, Class::Bug];

    fn write(document: &str) -> Write {
        let key = Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced).key(Some("a"), "b");
        Write { key, deed: Deed::Apply(Digest::of(document.as_bytes())) }
    }

    fn cause(class: Class, text: &str) -> Cause {
        Cause { class, answer: Some((403, "Forbidden".into())), text: text.into(), retry_after: None, is_quota: false }
    }

    fn said(text: &str) -> Said {
        Said::new(Type::BuildReady, Status::False, Reason::ApplyFailed, text)
    }

    /// Times of the tries of a write that is refused like this for so many seconds, from the first one on.
    fn tries(cause: &Cause, seconds: i64, chance: f64) -> Vec<f64> {
        let mut now = Timestamp::UNIX_EPOCH;
        let (mut known, mut tries): (Option<Refused>, _) = (None, Vec::new());
        while now.as_second() < seconds {
            tries.push(now.as_duration().as_secs_f64());
            let next = Refused::after(known.as_ref(), write("1"), cause.clone(), Some(said("no")), (now, SLOW, chance));
            now += next.holds(&write("1"), now).unwrap();
            assert_eq!(next.holds(&write("1"), now), None, "it may be tried when its wait is over");
            known = Some(next);
        }
        tries
    }

    #[test]
    fn whatever_the_cause_is_there_are_few_tries_in_the_first_minute_and_fewer_later() {
        let counts = CLASSES.map(|class| {
            let all = tries(&cause(class, "no"), 600, 0.5);
            (all.iter().filter(|at| **at < 60.0).count(), all.iter().filter(|at| **at >= 540.0).count())
        });
        assert_eq!(counts, [(18, 12), (6, 0), (6, 0), (3, 0), (1, 1), (2, 0)]);
    }

    #[test]
    fn a_server_is_left_alone_for_as_long_as_it_asks() {
        let patient = Cause { retry_after: Some(Duration::from_secs(90)), ..cause(Class::Unavailable, "no") };
        assert_eq!(tries(&patient, 300, 0.0), [0.0, 90.0, 180.0, 270.0]);
    }

    #[test]
    fn another_write_does_not_wait_and_a_clock_that_jumps_back_holds_nothing_up() {
        let now = Timestamp::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let refused = Refused::after(None, write("1"), cause(Class::Denied, "no"), Some(said("no")), (now, SLOW, 0.5));
        assert_eq!(refused.holds(&write("1"), now), Some(Duration::from_secs(10)));
        assert_eq!(refused.holds(&write("2"), now), None);
        assert_eq!(refused.holds(&Write { deed: Deed::Delete, ..write("1") }, now), None);
        assert_eq!(refused.holds(&write("1"), Timestamp::UNIX_EPOCH), None);
        let mut hurried = refused.clone();
        hurried.hurry();
        assert_eq!(hurried.holds(&write("1"), now), None);
        let other = Refused::after(Some(&refused), write("2"), cause(Class::Denied, "no"), None, (now, SLOW, 0.5));
        assert_eq!(other.holds(&write("2"), now), Some(Duration::from_secs(10)), "it begins anew");
    }

    #[test]
    fn the_first_text_is_kept_until_there_is_another_cause() {
        let denied = |text: &str| cause(Class::Denied, text);
        let first = "admission webhook \"a\" denied the request: not today (request 17)";
        let kept = |second: &Cause| {
            let now = (Timestamp::UNIX_EPOCH, SLOW, 0.5);
            let known = Refused::after(None, write("1"), denied(first), Some(said("first")), now);
            let next = Refused::after(Some(&known), write("1"), second.clone(), Some(said("second")), now);
            next.said().is_some_and(|said| said.message == "first")
        };
        assert!(kept(&denied("admission webhook \"a\" denied the request: not today (request 18)")));
        assert!(!kept(&denied("exceeded quota: small, requested: count=1")));
        assert!(!kept(&cause(Class::NotReady, first)));
        assert!(!kept(&Cause { answer: Some((429, "TooManyRequests".into())), ..denied(first) }));
        assert!(!kept(&denied("")));
    }
}
