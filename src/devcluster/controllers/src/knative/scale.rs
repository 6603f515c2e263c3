//! Computes the size of a Revision from its concurrent requests.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::settings::Settings;
use devcluster_apiserver::requests::Load;

/// The panic window is the stable window divided by this.
const RUSH: u32 = 10;
/// Ratio of required to ready pods from which a rush is assumed (Knative's panic threshold).
const RUSH_FACTOR: f64 = 2.0;

/// The recent load of a Revision.
#[derive(Debug)]
pub(super) struct Seen {
    begun: Instant,
    samples: VecDeque<(Instant, f64)>,
}

impl Seen {
    /// Starts without samples at `begun`.
    pub(super) fn since(begun: Instant) -> Self {
        Self { begun, samples: VecDeque::new() }
    }

    /// Restarts the idle time, because the first pods have just become ready.
    pub(super) fn restart(&mut self, now: Instant) {
        self.begun = now;
    }

    /// Adds a sample.
    pub(super) fn observe(&mut self, now: Instant, load: Load, window: Duration) {
        self.samples.push_back((now, load.seconds));
        // Keep one sample older than the window, so that the window is fully covered.
        while self.samples.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= window) {
            self.samples.pop_front();
        }
    }

    /// Average concurrent requests over a window.
    fn average(&self, window: Duration) -> f64 {
        let Some((now, last)) = self.samples.back() else { return 0.0 };
        let within = |(at, _): &&(Instant, f64)| now.saturating_duration_since(*at) <= window;
        let first = self.samples.iter().find(within).unwrap_or(&self.samples[0]);
        let time = now.saturating_duration_since(first.0).as_secs_f64();
        if time > 0.0 { (last - first.1) / time } else { 0.0 }
    }

    /// Whether the whole window had no requests.
    fn is_idle(&self, now: Instant, window: Duration) -> bool {
        let first = self.samples.front();
        let is_whole = first.is_some_and(|(at, _)| now.saturating_duration_since(*at) >= window);
        is_whole && now.saturating_duration_since(self.begun) >= window && self.average(window * 2) <= 0.0
    }
}

/// Whether requests can reach the Revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// A Route sends requests to the Revision, or may do so.
    Reachable,
    /// No Route sends requests to the Revision.
    Unreachable,
}

/// The state of a Revision's pods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) min: i64,
    /// Maximum; 0 for no limit.
    pub(super) max: i64,
    /// Initial size.
    pub(super) first: i64,
    /// Whether the initial size was reached.
    pub(super) is_initialized: bool,
    pub(super) reach: Reach,
    /// Present size.
    pub(super) replicas: i64,
    /// Number of ready pods.
    pub(super) ready: i64,
    /// Whether the pods exceeded their deadline.
    pub(super) timed_out: bool,
    /// Concurrent requests per pod; 0 for no limit.
    pub(super) concurrency: i64,
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    pub(super) replicas: i64,
    pub(super) state: State,
}

/// Whether a Revision serves requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Pods serve requests.
    Active,
    /// Requests wait for pods.
    Activating,
    /// Scaled to zero without requests.
    Inactive,
    /// Pods did not become ready in time.
    TimedOut,
}

/// Decides the size of a Revision.
pub(super) fn decide(facts: &Facts, seen: &Seen, load: Load, now: Instant, settings: &Settings) -> Scale {
    if facts.timed_out {
        return Scale { replicas: 0, state: State::TimedOut };
    }
    let least = if facts.reach == Reach::Reachable { facts.min } else { 0 };
    let limit = |replicas: i64| if facts.max > 0 { replicas.min(facts.max.max(least)) } else { replicas };
    let replicas = if !facts.is_initialized {
        facts.first
    } else if facts.reach == Reach::Unreachable && load.under_way == 0 {
        0
    } else {
        let mut wanted = by_load(facts, seen, settings);
        if load.under_way > 0 || facts.replicas > 0 && !seen.is_idle(now, settings.stable_window) {
            wanted = wanted.max(1);
        }
        if !settings.scales_to_zero {
            wanted = wanted.max(1);
        }
        limit(wanted.max(least))
    };
    let needed = if facts.is_initialized { least.max(1) } else { facts.first };
    let state = match replicas {
        0 => State::Inactive,
        _ if facts.ready >= needed => State::Active,
        _ => State::Activating,
    };
    Scale { replicas, state }
}

/// Returns the number of pods for the target load of each.
fn by_load(facts: &Facts, seen: &Seen, settings: &Settings) -> i64 {
    #[expect(clippy::cast_precision_loss, reason = "there are not so many")]
    let (limit, ready) = (facts.concurrency as f64, facts.ready.max(1) as f64);
    let target = if limit > 0.0 { limit } else { settings.target } * settings.utilisation;
    let pods = |average: f64| (average / target.max(0.01)).ceil();
    let (usual, rush) = (pods(seen.average(settings.stable_window)), pods(seen.average(settings.stable_window / RUSH)));
    let wanted = if rush >= ready * RUSH_FACTOR { usual.max(rush) } else { usual };
    #[expect(clippy::cast_possible_truncation, reason = "it is between the two")]
    let wanted = wanted.clamp(0.0, 10_000.0) as i64;
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knative::settings::Retention;

    fn settings() -> Settings {
        Settings {
            domain: "localhost".to_owned(),
            stable_window: Duration::from_secs(60),
            tick: Duration::from_secs(2),
            scales_to_zero: true,
            target: 100.0,
            utilisation: 0.7,
            progress_deadline: Duration::from_mins(10),
            initial_scale: 1,
            retention: Retention { since_created: None, since_routed: None, least: 20, most: None },
        }
    }

    const FACTS: Facts = Facts {
        min: 0,
        max: 0,
        first: 1,
        is_initialized: true,
        reach: Reach::Reachable,
        replicas: 1,
        ready: 1,
        timed_out: false,
        concurrency: 0,
    };

    /// Size and state after so many seconds with constant concurrent requests.
    fn after(facts: Facts, seconds: u32, under_way: u32) -> (i64, State) {
        let start = Instant::now();
        let mut seen = Seen::since(start);
        let mut load = Load { under_way: under_way.into(), seconds: 0.0 };
        let mut now = start;
        for second in (0..=seconds).step_by(2) {
            now = start + Duration::from_secs(second.into());
            load.seconds = f64::from(second) * f64::from(under_way);
            seen.observe(now, load, settings().stable_window);
        }
        let scale = decide(&facts, &seen, load, now, &settings());
        (scale.replicas, scale.state)
    }

    #[test]
    fn after_a_minute_without_requests_there_are_no_pods() {
        assert_eq!(after(FACTS, 58, 0), (1, State::Active));
        assert_eq!(after(FACTS, 60, 0), (0, State::Inactive));
        assert_eq!(after(FACTS, 120, 1), (1, State::Active));
        assert_eq!(after(Facts { min: 2, ready: 2, ..FACTS }, 120, 0), (2, State::Active));
    }

    #[test]
    fn a_request_has_the_first_pod_made_at_once() {
        let none = Facts { replicas: 0, ready: 0, ..FACTS };
        assert_eq!(after(none, 0, 0), (0, State::Inactive));
        assert_eq!(after(none, 0, 1), (1, State::Activating));
        assert_eq!(after(Facts { max: 2, ..none }, 0, 20), (1, State::Activating));
    }

    #[test]
    fn there_are_as_many_pods_as_the_requests_take_and_no_more_than_allowed() {
        assert_eq!(after(FACTS, 60, 141).0, 3);
        assert_eq!(after(Facts { max: 2, ..FACTS }, 60, 141).0, 2);
        assert_eq!(after(Facts { concurrency: 1, ..FACTS }, 60, 7).0, 10);
        assert_eq!(after(FACTS, 6, 200).0, 3, "a rush is answered early");
    }

    #[test]
    fn an_unrouted_revision_loses_its_pods_once_its_requests_have_ended() {
        let left = Facts { reach: Reach::Unreachable, min: 2, replicas: 2, ready: 2, ..FACTS };
        assert_eq!(after(left, 2, 0), (0, State::Inactive));
        assert_eq!(after(left, 2, 1).0, 1);
    }

    #[test]
    fn a_revision_begins_with_its_first_pods_and_gives_up_when_they_never_come() {
        let new = Facts { is_initialized: false, first: 2, replicas: 2, ready: 1, ..FACTS };
        assert_eq!(after(new, 90, 0), (2, State::Activating));
        assert_eq!(after(Facts { ready: 2, ..new }, 0, 0), (2, State::Active));
        assert_eq!(after(Facts { timed_out: true, ..new }, 90, 1), (0, State::TimedOut));
    }
}
