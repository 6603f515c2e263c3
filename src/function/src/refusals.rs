//! The refused write that ended a reconcile: when the write is retried, and which condition reports the refusal.
//!
//! A Function is reconciled after every change of its children and its status. Such a reconcile does not repeat a
//! refused write before the backoff of the write's [class](Class) is over. A write with a different document is sent
//! immediately. The same write is sent immediately after a change of the Function or a credential, or after a quota was
//! raised.
//!
//! Invariant: the message of the first refusal stays while later refusals have the same cause: the same code and
//! reason, and more than half of the words in common. So varying messages of webhooks and quotas do not cause status
//! writes.
//!
//! Not here: clocks and randomness, which are arguments.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use super::child_kind::ChildKind;
use super::stage::{ConditionUpdate, Step};
use mainstay_cluster::{Denial, Error};
use mainstay_engine::managed::Desired;
use mainstay_object::failure::{Class, jitter};
use mainstay_object::{Digest, Key};

/// Maximum delay, in case the clock jumps back.
const MAX_WAIT: Duration = Duration::from_secs(2 * 3600);

/// A write to one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    key: Key,
    deed: Deed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Deed {
    /// The write applies the document with this digest.
    Apply(Digest),
    Delete,
    HandOver,
    Transfer,
    CleanUp,
}

impl Write {
    /// Returns the apply of a document.
    pub fn apply(desired: &Desired) -> Self {
        Self { key: desired.key.clone(), deed: Deed::Apply(desired.source()) }
    }

    /// Returns the write of a step, for a Function in this namespace.
    pub fn of(step: &Step, namespace: &str) -> Option<Self> {
        match step {
            Step::Put(put) => Some(Self::apply(&put.desired)),
            Step::Delete { child_kind, identity } => {
                Some(Self { key: child_kind.kind().key(Some(namespace), &identity.name), deed: Deed::Delete })
            }
            Step::HandOver { deployment, .. } => {
                Some(Self { key: ChildKind::Deployment.kind().key(Some(namespace), deployment), deed: Deed::HandOver })
            }
            Step::GiveAddress { knative, .. } => {
                Some(Self { key: ChildKind::Service.kind().key(Some(namespace), &knative.name), deed: Deed::Transfer })
            }
            Step::TakeAddress { name, .. } => {
                Some(Self { key: ChildKind::Service.kind().key(Some(namespace), name), deed: Deed::Transfer })
            }
            Step::CleanUp { knative } => Some(Self {
                key: ChildKind::KnativeService.kind().key(Some(namespace), &knative.name),
                deed: Deed::CleanUp,
            }),
            Step::SetCondition(_)
            | Step::ConfirmCondition(_)
            | Step::SetConditionUnlessWritten(_)
            | Step::Suspend { .. }
            | Step::Refused(_) => None,
        }
    }
}

/// Why a write was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalCause {
    class: Class,
    /// Code and reason of the response.
    answer: Option<(u16, String)>,
    /// The server's message.
    text: String,
    /// The server's `Retry-After`.
    retry_after: Option<Duration>,
    /// Whether a quota is exhausted.
    is_quota: bool,
}

impl RefusalCause {
    /// Returns the cause of a failed write.
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

    /// Returns the cause for an object of another owner.
    pub fn foreign() -> Self {
        Self { class: Class::Invalid, answer: None, text: String::new(), retry_after: None, is_quota: false }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.class == other.class && self.answer == other.answer && is_similar(&self.text, &other.text)
    }
}

/// Whether two strings have more than half of their words in common.
fn is_similar(one: &str, other: &str) -> bool {
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

/// A refused write, and when to retry it.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedWrite {
    write: Write,
    cause: RefusalCause,
    /// Number of consecutive attempts to send the write.
    tries: u32,
    /// Time of the next attempt.
    again: Timestamp,
    /// The condition update that reports the refusal; `None` for deletions.
    update: Option<ConditionUpdate>,
}

impl RefusedWrite {
    /// Records a refused write, after `before`. The delay follows from the class, or is `slow` if only a change of an
    /// input can help. `chance` (0 to 1) adds jitter. The delay is at least the server's `Retry-After`.
    pub fn after(
        before: Option<&Self>,
        write: Write,
        cause: RefusalCause,
        update: Option<ConditionUpdate>,
        (now, slow, chance): (Timestamp, Duration, f64),
    ) -> Self {
        let before = before.filter(|before| before.write == write);
        let tries = before.map_or(0, |before| before.tries).saturating_add(1);
        let delay = cause.class.backoff().map_or(slow, |backoff| backoff.delay(tries));
        let again = now + jitter(delay, chance).max(cause.retry_after.unwrap_or_default());
        match before.filter(|before| before.cause.is_same(&cause)) {
            Some(known) => Self { tries, again, ..known.clone() },
            None => Self { write, cause, tries, again, update },
        }
    }

    /// Returns how long this write has to wait; `None` if it may be sent.
    pub fn holds(&self, write: &Write, now: Timestamp) -> Option<Duration> {
        let wait = Duration::try_from(self.again.duration_since(now)).ok()?;
        (self.write == *write && !wait.is_zero() && wait <= MAX_WAIT).then_some(wait)
    }

    /// Whether a quota refused the write.
    pub(crate) fn is_by_quota(&self) -> bool {
        self.cause.is_quota
    }

    /// Allows the write immediately and resets the backoff, because an input changed.
    pub(crate) fn reset_backoff(&mut self) {
        (self.tries, self.again) = (0, Timestamp::MIN);
    }

    /// Returns the condition update that reports the refusal.
    pub fn update(&self) -> Option<&ConditionUpdate> {
        self.update.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_api::function_conditions::{Reason, Status, Type};
    use mainstay_cluster::{Kind, Scope};

    const SLOW: Duration = Duration::from_secs(60);
    const CLASSES: [Class; 6] =
        [Class::Conflict, Class::NotReady, Class::Unavailable, Class::Denied, Class::Invalid, Class::Bug];

    fn write(document: &str) -> Write {
        let key = Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced).key(Some("a"), "b");
        Write { key, deed: Deed::Apply(Digest::of(document.as_bytes())) }
    }

    fn cause(class: Class, text: &str) -> RefusalCause {
        RefusalCause {
            class,
            answer: Some((403, "Forbidden".into())),
            text: text.into(),
            retry_after: None,
            is_quota: false,
        }
    }

    fn update(text: &str) -> ConditionUpdate {
        ConditionUpdate::new(Type::BuildReady, Status::False, Reason::ApplyFailed, text)
    }

    /// Returns the times at which a write is attempted that is refused for this many seconds.
    fn tries(cause: &RefusalCause, seconds: i64, chance: f64) -> Vec<f64> {
        let mut now = Timestamp::UNIX_EPOCH;
        let (mut known, mut tries): (Option<RefusedWrite>, _) = (None, Vec::new());
        while now.as_second() < seconds {
            tries.push(now.as_duration().as_secs_f64());
            let next =
                RefusedWrite::after(known.as_ref(), write("1"), cause.clone(), Some(update("no")), (now, SLOW, chance));
            now += next.holds(&write("1"), now).unwrap();
            assert_eq!(next.holds(&write("1"), now), None, "it may be tried when its wait is over");
            known = Some(next);
        }
        tries
    }

    #[test]
    fn retries_are_few_in_the_first_minute_and_fewer_later_for_every_class() {
        let counts = CLASSES.map(|class| {
            let all = tries(&cause(class, "no"), 600, 0.5);
            (all.iter().filter(|at| **at < 60.0).count(), all.iter().filter(|at| **at >= 540.0).count())
        });
        assert_eq!(counts, [(18, 12), (6, 0), (6, 0), (3, 0), (1, 1), (2, 0)]);
    }

    #[test]
    fn honours_retry_after() {
        let patient = RefusalCause { retry_after: Some(Duration::from_secs(90)), ..cause(Class::Unavailable, "no") };
        assert_eq!(tries(&patient, 300, 0.0), [0.0, 90.0, 180.0, 270.0]);
    }

    #[test]
    fn another_write_does_not_wait_and_a_clock_that_jumps_back_delays_nothing() {
        let now = Timestamp::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let refused =
            RefusedWrite::after(None, write("1"), cause(Class::Denied, "no"), Some(update("no")), (now, SLOW, 0.5));
        assert_eq!(refused.holds(&write("1"), now), Some(Duration::from_secs(10)));
        assert_eq!(refused.holds(&write("2"), now), None);
        assert_eq!(refused.holds(&Write { deed: Deed::Delete, ..write("1") }, now), None);
        assert_eq!(refused.holds(&write("1"), Timestamp::UNIX_EPOCH), None);
        let mut hurried = refused.clone();
        hurried.reset_backoff();
        assert_eq!(hurried.holds(&write("1"), now), None);
        let other = RefusedWrite::after(Some(&refused), write("2"), cause(Class::Denied, "no"), None, (now, SLOW, 0.5));
        assert_eq!(other.holds(&write("2"), now), Some(Duration::from_secs(10)), "it begins anew");
    }

    #[test]
    fn the_first_text_is_kept_until_the_cause_changes() {
        let denied = |text: &str| cause(Class::Denied, text);
        let first = "admission webhook \"a\" denied the request: not today (request 17)";
        let kept = |second: &RefusalCause| {
            let now = (Timestamp::UNIX_EPOCH, SLOW, 0.5);
            let known = RefusedWrite::after(None, write("1"), denied(first), Some(update("first")), now);
            let next = RefusedWrite::after(Some(&known), write("1"), second.clone(), Some(update("second")), now);
            next.update().is_some_and(|update| update.message == "first")
        };
        assert!(kept(&denied("admission webhook \"a\" denied the request: not today (request 18)")));
        assert!(!kept(&denied("exceeded quota: small, requested: count=1")));
        assert!(!kept(&cause(Class::NotReady, first)));
        assert!(!kept(&RefusalCause { answer: Some((429, "TooManyRequests".into())), ..denied(first) }));
        assert!(!kept(&denied("")));
    }
}
