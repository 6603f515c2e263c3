//! The health of all objects of a GitSync over time: since when it is bad, and which messages were emitted about it.
//!
//! Invariant: a commit causes one message about unhealthy objects until all of them are healthy again.
//!
//! Not here: the health of an object.

use jiff::Timestamp;

/// The health as far as it was reported.
#[derive(Debug, Default)]
pub(super) struct HealthReport {
    /// Since when not all objects are healthy.
    unhealthy_since: Option<Timestamp>,
    /// The commit of the last message about unhealthy objects, until all are healthy.
    reported: Option<String>,
}

/// The health of the objects of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// Objects have failed or are not healthy in time.
    Unhealthy,
    /// All objects are healthy.
    Healthy,
    /// Anything else.
    Unknown,
}

impl HealthReport {
    /// Records whether all objects are healthy at `now`. Returns the time since which they are not. For a commit that was
    /// healthy before, the health timeout starts at this time.
    pub(super) fn observe(&mut self, is_healthy: bool, now: Timestamp) -> Option<Timestamp> {
        self.unhealthy_since = if is_healthy { None } else { self.unhealthy_since.or(Some(now)) };
        self.unhealthy_since
    }

    /// Forgets the health of objects in a different cluster.
    pub(super) fn forget_cluster(&mut self) {
        self.unhealthy_since = None;
    }

    /// Records the health of the objects of an applied commit in a written status. Returns whether a message reports it.
    /// `stored` is the commit of a message of an earlier agent.
    pub(super) fn report(&mut self, commit: &str, health: Health, stored: impl FnOnce() -> Option<String>) -> bool {
        let known = self.reported.take().or_else(stored);
        match health {
            Health::Unhealthy => {
                let is_new = known.as_deref() != Some(commit);
                self.reported = Some(commit.to_owned());
                is_new
            }
            Health::Healthy => known.is_some(),
            Health::Unknown => {
                self.reported = known;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unhealthy_objects_are_reported_once_for_a_commit_and_once_when_they_recover() {
        let mut report = HealthReport::default();
        let mut is_reported = |commit: &str, health: Health| report.report(commit, health, || None);
        assert!(!is_reported("1", Health::Healthy));
        assert!(is_reported("1", Health::Unhealthy));
        assert!(!is_reported("1", Health::Unknown));
        assert!(!is_reported("1", Health::Unhealthy));
        assert!(is_reported("2", Health::Unhealthy));
        assert!(is_reported("2", Health::Healthy));
        assert!(!is_reported("2", Health::Healthy));
    }

    #[test]
    fn the_message_of_an_earlier_agent_counts_until_this_agent_emits_one() {
        let stored = || Some("1".to_owned());
        let mut report = HealthReport::default();
        assert!(!report.report("1", Health::Unhealthy, stored));
        assert!(HealthReport::default().report("2", Health::Unhealthy, stored));
        assert!(HealthReport::default().report("1", Health::Healthy, stored));
    }

    #[test]
    fn objects_are_unhealthy_since_the_first_time_until_all_are_healthy() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut report = HealthReport::default();
        assert_eq!([1, 2].map(|second| report.observe(false, at(second))), [Some(at(1)); 2]);
        assert_eq!(report.observe(true, at(3)), None);
        assert_eq!(report.observe(false, at(4)), Some(at(4)));
        report.forget_cluster();
        assert_eq!(report.observe(false, at(5)), Some(at(5)));
    }
}
