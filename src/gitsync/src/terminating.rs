//! Removed or replaced objects that are still being deleted: their text in the status, and the time of an Event.
//!
//! Invariant: an object that exceeds the timeout is reported once.
//!
//! Not here: the deletions, and the clock.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use mainstay_api::git_sync;
use mainstay_cluster::Terminating;
use mainstay_engine::managed::{Listed, SHOWN};
use mainstay_engine::notification::waits_for;
use mainstay_object::Key;

/// Maximum number of objects in the message of a condition.
const NAMED: usize = 3;

/// Objects that are still being deleted, as last seen.
#[derive(Debug, Default)]
pub(super) struct TerminatingObjects(BTreeMap<Key, (Terminating, Reported)>);

/// Whether the exceeded timeout of an object was reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reported {
    #[default]
    No,
    Yes,
}

impl TerminatingObjects {
    /// Replaces the set with the objects of a round.
    pub(super) fn replace(&mut self, found: Vec<(Key, Terminating)>) {
        let keys = found.iter().map(|(key, _)| key.clone()).collect::<HashSet<_>>();
        self.retain(|key| keys.contains(key));
        for (key, now) in found {
            self.insert(key, now);
        }
    }

    /// Adds or updates an object. Returns whether it is new.
    pub(super) fn insert(&mut self, key: Key, now: Terminating) -> bool {
        // A recreated object of the same name has a different deletion time.
        let before = self.0.get(&key).filter(|(then, _)| then.since == now.since);
        let reported = before.map_or(Reported::No, |(_, reported)| *reported);
        self.0.insert(key, (now, reported)).is_none()
    }

    /// Drops the objects that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(&Key) -> bool) {
        self.0.retain(|key, _| is_there(key));
    }

    pub(super) fn keys(&self) -> HashSet<Key> {
        self.0.keys().cloned().collect()
    }

    /// Returns the list for the status.
    pub(super) fn listed(&self) -> Listed<git_sync::Terminating> {
        let shown = self.0.iter().take(SHOWN).map(|(key, (terminating, _))| git_sync::Terminating {
            object: key.to_string(),
            finalizers: terminating.finalizers.clone(),
            since: Time(terminating.since),
        });
        Listed { count: self.0.len(), first: shown.collect() }
    }

    /// Returns the objects that exceed `timeout` at `now` and were not reported yet, and marks them as reported.
    pub(super) fn take_stuck(&mut self, timeout: Duration, now: Timestamp) -> Vec<(Key, Terminating)> {
        let unreported = self.0.iter_mut().filter(|(_, (_, reported))| *reported == Reported::No);
        let stuck = unreported.filter(|(_, (terminating, _))| left(terminating, timeout, now).is_zero());
        let report = |(key, (terminating, reported)): (&Key, &mut (Terminating, Reported))| {
            *reported = Reported::Yes;
            (key.clone(), terminating.clone())
        };
        stuck.map(report).collect()
    }

    /// Returns the time until the next object exceeds `timeout`.
    pub(super) fn next_stuck(&self, timeout: Duration, now: Timestamp) -> Option<Duration> {
        let unreported = self.0.values().filter(|(_, reported)| *reported == Reported::No);
        unreported.map(|(terminating, _)| left(terminating, timeout, now)).min()
    }
}

/// Returns the remaining time of an object.
fn left(terminating: &Terminating, timeout: Duration, now: Timestamp) -> Duration {
    let passed = now.duration_since(terminating.since);
    // The deletion time may be in the future because of a grace period.
    if passed.is_negative() { timeout + passed.unsigned_abs() } else { timeout.saturating_sub(passed.unsigned_abs()) }
}

/// Returns the text of a message about objects that are still being deleted.
pub(super) fn named(objects: &Listed<git_sync::Terminating>) -> Option<String> {
    let name = |one: &git_sync::Terminating| format!("{} ({})", one.object, waits_for(&one.finalizers));
    let names = objects.first.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", ");
    let more = match objects.count.saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = if objects.count == 1 { "1 removed object is" } else { "removed objects are" };
    let count = if objects.count == 1 { String::new() } else { format!("{} ", objects.count) };
    (objects.count > 0).then(|| format!("{count}{what} still being deleted: {names}{more}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn found(name: &str, since: i64) -> (Key, Terminating) {
        let finalizers = vec!["example.org/wait".to_owned()];
        (Key::new("", "ConfigMap", Some("shop"), name), Terminating { finalizers, since: at(since) })
    }

    #[test]
    fn each_object_is_reported_once_when_it_takes_longer_than_the_timeout() {
        let (minute, mut objects) = (Duration::from_secs(60), TerminatingObjects::default());
        objects.replace(vec![found("a", 0), found("b", 30)]);
        assert!(objects.take_stuck(minute, at(59)).is_empty());
        assert_eq!(objects.next_stuck(minute, at(59)), Some(Duration::from_secs(1)));
        assert_eq!(objects.take_stuck(minute, at(60)), [found("a", 0)]);
        objects.replace(vec![found("a", 0), found("b", 30)]);
        assert!(objects.take_stuck(minute, at(61)).is_empty());
        assert_eq!(objects.next_stuck(minute, at(61)), Some(Duration::from_secs(29)));
        objects.replace(vec![found("a", 70)]);
        assert_eq!(objects.take_stuck(minute, at(200)), [found("a", 70)], "it is another object");
    }

    #[test]
    fn a_grace_period_is_no_part_of_the_timeout() {
        let mut objects = TerminatingObjects::default();
        objects.replace(vec![found("a", 30)]);
        assert_eq!(objects.next_stuck(Duration::from_secs(60), at(0)), Some(Duration::from_secs(90)));
    }

    #[test]
    fn a_message_names_the_first_of_them_with_their_finalizers() {
        let mut objects = TerminatingObjects::default();
        assert_eq!(named(&objects.listed()), None);
        objects.replace(vec![found("a", 0)]);
        let text = "1 removed object is still being deleted: ConfigMap shop/a (waits for the finalizer \
            example.org/wait, which only its controller should take off)";
        assert_eq!(named(&objects.listed()).unwrap(), text);
        objects.replace(["a", "b", "c", "d"].map(|name| found(name, 0)).into());
        let text = named(&objects.listed()).unwrap();
        assert!(text.starts_with("4 removed objects are still") && text.ends_with(" and 1 more"), "{text}");
    }
}
