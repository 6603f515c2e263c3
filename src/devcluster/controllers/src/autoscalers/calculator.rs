//! Computes the replicas that a metric requires: number of pods × usage ÷ target usage.
//!
//! Invariant: on scale-up, missing and unready pods count as using nothing. On scale-down, a missing pod counts as
//! using its full request, or the target of an average.
//!
//! Not here: bounds, stabilisation and policies (`limits`).

use std::time::Duration;

use devcluster_apiserver::object::{conditions, is_terminating, text};
use jiff::Timestamp;
use serde_json::Value;

/// Age of a pod up to which its CPU usage may still be caused by its start-up.
const INITIALISATION: Duration = Duration::from_mins(5);
/// A pod that became unready within this time of its start counts as never ready.
const INITIAL_READINESS: Duration = Duration::from_secs(30);

/// The target usage of each pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Percent of the pod's request.
    Utilization(i64),
    /// Thousandths of a unit.
    Average(i64),
}

/// Deviation of the ratio from 1 below which nothing is scaled: downwards, upwards.
pub(super) type Tolerance = (f64, f64);

/// How a pod counts in the ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodUse {
    /// Ready, with its usage in thousandths.
    Ready(i64),
    /// Not ready for long enough to be measured.
    Unready,
    /// No measurement exists.
    Missing,
    /// Terminating or failed: does not count.
    Ignored,
}

/// A pod's usage and request.
pub(super) type Counted = (PodUse, i64);

/// The result of one metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Proposal {
    pub(super) replicas: i64,
    /// Percent of the requests; only for a `Utilization` target.
    pub(super) utilization: Option<i64>,
    /// Average per pod, in thousandths of a unit.
    pub(super) average: i64,
}

/// Classifies a pod by its usage, which was measured over `window` until `now`.
pub(super) fn pod_use(pod: &Value, usage: Option<i64>, is_cpu: bool, now: Timestamp, window: Duration) -> PodUse {
    if is_terminating(pod) || text(pod, "/status/phase") == "Failed" {
        return PodUse::Ignored;
    }
    if text(pod, "/status/phase") == "Pending" {
        return PodUse::Unready;
    }
    let Some(usage) = usage else { return PodUse::Missing };
    if is_cpu && !is_measured(pod, now, window) {
        return PodUse::Unready;
    }
    PodUse::Ready(usage)
}

/// Whether the CPU usage of a pod is valid, and not the usage of its start-up.
fn is_measured(pod: &Value, now: Timestamp, window: Duration) -> bool {
    let ready = conditions(pod).iter().find(|condition| condition["type"] == "Ready");
    let started = text(pod, "/status/startTime").parse::<Timestamp>();
    let (Some(ready), Ok(started)) = (ready, started) else { return false };
    let is_ready = ready["status"] == "True";
    let changed = text(ready, "/lastTransitionTime").parse().unwrap_or(now);
    if started + INITIALISATION > now {
        return is_ready && now >= changed + window;
    }
    is_ready || started + INITIAL_READINESS <= changed
}

/// Returns the replicas that a metric requires.
pub(super) fn replicas(
    current: i64,
    pods: &[Counted],
    target: Target,
    (below, above): Tolerance,
) -> Result<Proposal, &'static str> {
    let measured = || pods.iter().filter_map(|(used, request)| ready(*used).map(|usage| (usage, *request)));
    let (ratio, utilization, average) = ratio(measured(), target)?;
    let proposal = |replicas| Ok(Proposal { replicas, utilization, average });
    let within = |ratio: f64| ratio >= 1.0 - below && ratio <= 1.0 + above;
    let has = |wanted| pods.iter().any(|(used, _)| *used == wanted);
    let ups_with_unready = has(PodUse::Unready) && ratio > 1.0;
    if !ups_with_unready && !has(PodUse::Missing) {
        let ready = measured().count() as f64;
        return proposal(if within(ratio) { current } else { whole(ratio * ready) });
    }
    let assumed = |(used, request): &Counted| match (*used, target) {
        (PodUse::Ready(usage), _) => Some((usage, *request)),
        (PodUse::Missing, _) if ratio > 1.0 => Some((0, *request)),
        (PodUse::Missing, Target::Utilization(percent)) if ratio < 1.0 => {
            Some((request * percent.max(100) / 100, *request))
        }
        (PodUse::Missing, Target::Average(value)) if ratio < 1.0 => Some((value, *request)),
        (PodUse::Unready, _) if ups_with_unready => Some((0, *request)),
        _ => None,
    };
    let (careful, ..) = self::ratio(pods.iter().filter_map(assumed), target)?;
    if within(careful) || ratio < 1.0 && careful > 1.0 || ratio > 1.0 && careful < 1.0 {
        return proposal(current);
    }
    let replicas = whole(careful * pods.iter().filter_map(assumed).count() as f64);
    let is_backwards = careful < 1.0 && replicas > current || careful > 1.0 && replicas < current;
    proposal(if is_backwards { current } else { replicas })
}

fn ready(used: PodUse) -> Option<i64> {
    if let PodUse::Ready(usage) = used { Some(usage) } else { None }
}

#[expect(clippy::cast_possible_truncation, reason = "it is cut to what fits, and bounded afterwards")]
fn whole(replicas: f64) -> i64 {
    replicas.ceil() as i64
}

/// Returns usage ÷ target, percent of the requests, and the average usage.
fn ratio(pods: impl Iterator<Item = (i64, i64)>, target: Target) -> Result<(f64, Option<i64>, i64), &'static str> {
    let (mut used, mut requested, mut number) = (0_i64, 0_i64, 0_i64);
    for (usage, request) in pods {
        (used, requested, number) = (used.saturating_add(usage), requested.saturating_add(request), number + 1);
    }
    if number == 0 {
        return Err("did not receive metrics for targeted pods (pods might be unready)");
    }
    let average = used / number;
    match target {
        Target::Utilization(_) if requested == 0 => Err("no metrics returned matched known pods"),
        Target::Utilization(percent) => {
            let utilization = used.saturating_mul(100) / requested;
            Ok((utilization as f64 / percent.max(1) as f64, Some(utilization), average))
        }
        Target::Average(value) => Ok((average as f64 / value.max(1) as f64, None, average)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TOLERANCE: Tolerance = (0.1, 0.1);

    /// Replicas for pods with a request of 100m each and a target of 50 %.
    fn half(current: i64, pods: &[PodUse]) -> i64 {
        let pods: Vec<Counted> = pods.iter().map(|used| (*used, 100)).collect();
        replicas(current, &pods, Target::Utilization(50), TOLERANCE).unwrap().replicas
    }

    #[test]
    fn the_ratio_of_use_and_target_times_the_pods_is_asked_for() {
        use PodUse::Ready;
        assert_eq!(half(2, &[Ready(100), Ready(100)]), 4);
        assert_eq!(half(3, &[Ready(30), Ready(30), Ready(30)]), 2);
        assert_eq!(half(2, &[Ready(1), Ready(0)]), 0, "the bounds are somebody else's");
        // The tolerance is a tenth.
        assert_eq!(half(2, &[Ready(55), Ready(54)]), 2);
        assert_eq!(half(2, &[Ready(56), Ready(56)]), 3);
        let found = replicas(1, &[(Ready(75), 100)], Target::Average(25), TOLERANCE).unwrap();
        assert_eq!(found, Proposal { replicas: 3, utilization: None, average: 75 });
        let found = replicas(1, &[(Ready(75), 100)], Target::Utilization(50), (0.1, 0.5)).unwrap();
        assert_eq!(found, Proposal { replicas: 1, utilization: Some(75), average: 75 });
    }

    #[test]
    fn pods_that_are_not_measured_hold_it_back() {
        use PodUse::{Ignored, Missing, Ready, Unready};
        assert_eq!(half(3, &[Ready(100), Unready, Unready]), 3, "with nothing for those that start it is no more");
        assert_eq!(half(2, &[Ready(200), Unready]), 4);
        assert_eq!(half(3, &[Ready(20), Ready(20), Unready]), 1, "nothing starts where it scales down");
        assert_eq!(half(2, &[Ready(10), Missing]), 2, "it might use all that it asked for");
        assert_eq!(half(3, &[Ready(0), Ready(0), Missing]), 2);
        assert_eq!(half(2, &[Ready(90), Missing]), 2);
        assert_eq!(half(2, &[Ready(100), Ignored]), 2);
        let none = replicas(1, &[(Unready, 100)], Target::Utilization(50), TOLERANCE);
        assert_eq!(none, Err("did not receive metrics for targeted pods (pods might be unready)"));
    }

    #[test]
    fn a_pod_is_measured_once_it_has_been_ready_for_a_window() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let window = Duration::from_secs(15);
        let pod = |phase: &str, started: &str, ready: &str, since: &str| {
            json!({"status": {"phase": phase, "startTime": started, "conditions": [
                {"type": "Ready", "status": ready, "lastTransitionTime": since},
            ]}})
        };
        let of = |pod: &Value| pod_use(pod, Some(7), true, now, window);
        let young = "2026-01-01T00:59:00Z";
        assert_eq!(of(&pod("Running", young, "True", "2026-01-01T00:59:45Z")), PodUse::Ready(7));
        assert_eq!(of(&pod("Running", young, "True", "2026-01-01T00:59:46Z")), PodUse::Unready);
        assert_eq!(of(&pod("Running", young, "False", young)), PodUse::Unready);
        let old = "2026-01-01T00:00:00Z";
        assert_eq!(of(&pod("Running", old, "False", "2026-01-01T00:00:29Z")), PodUse::Unready, "it was never ready");
        assert_eq!(of(&pod("Running", old, "False", "2026-01-01T00:59:59Z")), PodUse::Ready(7));
        assert_eq!(of(&pod("Pending", old, "False", old)), PodUse::Unready);
        assert_eq!(of(&pod("Failed", old, "False", old)), PodUse::Ignored);
        assert_eq!(pod_use(&pod("Running", old, "True", old), None, true, now, window), PodUse::Missing);
        let starting = pod("Running", young, "False", young);
        assert_eq!(pod_use(&starting, Some(7), false, now, window), PodUse::Ready(7), "memory is memory");
    }
}
