//! Limits a recommendation: stabilisation over earlier recommendations, then policies and bounds.
//!
//! Not here: computing the recommendation (`calculator`).

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

/// Default stabilisation window for scale-down, in seconds.
const DOWN_WINDOW: i64 = 300;
/// Longest window and longest period that the API allows, in seconds.
const LONGEST_WINDOW: u64 = 3600;
const LONGEST_PERIOD: u64 = 1800;
/// Without policies a scale-up may double the replicas, or go to this number if that is more.
const FREELY: i64 = 4;

/// Recent recommendations and changes of an autoscaler.
#[derive(Debug, Default)]
pub(super) struct History {
    recommendations: Vec<(Timestamp, i64)>,
    /// Each change of the replicas, as a difference.
    changes: Vec<(Timestamp, i64)>,
}

/// A condition's reason and message.
pub(super) type Said = (&'static str, &'static str);

/// A recommendation after its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limited {
    pub(super) replicas: i64,
    /// Reason and message of AbleToScale, which is True.
    pub(super) able: Said,
    /// Status, reason and message of ScalingLimited.
    pub(super) is_cut: bool,
    pub(super) bound: Said,
}

impl History {
    /// Records the present replicas as the first recommendation.
    pub(super) fn begin(&mut self, current: i64, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, current));
        }
    }

    /// Records that the target was scaled.
    pub(super) fn scaled(&mut self, from: i64, to: i64, now: Timestamp) {
        self.changes.retain(|(at, _)| is_within(*at, LONGEST_PERIOD.cast_signed(), now));
        self.changes.push((now, to - from));
    }

    /// Limits a recommendation, and records it.
    pub(super) fn limit(&mut self, spec: &Value, current: i64, desired: i64, now: Timestamp) -> Limited {
        let behavior = &spec["behavior"];
        let stable = self.stabilise(behavior, current, desired, now);
        let able = match stable == desired {
            true => ("ReadyForNewScale", "recommended size matches current size"),
            false if desired >= current && !behavior.is_null() => (
                "ScaleUpStabilized",
                "recent recommendations were lower than current one, applying the lowest recent recommendation",
            ),
            false => (
                "ScaleDownStabilized",
                "recent recommendations were higher than current one, applying the highest recent recommendation",
            ),
        };
        let (replicas, limit) = self.bound(spec, current, stable, now);
        let bound = limit.unwrap_or(("DesiredWithinRange", "the desired count is within the acceptable range"));
        Limited { replicas, able, is_cut: limit.is_some(), bound }
    }

    /// Clamps the recommendation between the lowest and the highest recent recommendation.
    fn stabilise(&mut self, behavior: &Value, current: i64, desired: i64, now: Timestamp) -> i64 {
        let window = |direction: &str, default: i64| {
            behavior[direction]["stabilizationWindowSeconds"].as_i64().unwrap_or(default)
        };
        let (up, down) = (window("scaleUp", 0), window("scaleDown", DOWN_WINDOW));
        self.recommendations.retain(|(at, _)| is_within(*at, LONGEST_WINDOW.cast_signed(), now));
        let recent = |seconds: i64| {
            let recent = self.recommendations.iter().filter(move |(at, _)| is_within(*at, seconds, now));
            recent.map(|(_, replicas)| *replicas).chain([desired])
        };
        let (lowest, highest) = (recent(up).min().unwrap_or(desired), recent(down).max().unwrap_or(desired));
        self.recommendations.push((now, desired));
        if behavior.is_null() { highest } else { current.max(lowest).min(highest) }
    }

    /// Applies bounds and policies. Also returns the limit that took effect.
    fn bound(&self, spec: &Value, current: i64, desired: i64, now: Timestamp) -> (i64, Option<Said>) {
        let (least, most) = (spec["minReplicas"].as_i64().unwrap_or(1), spec["maxReplicas"].as_i64().unwrap_or(1));
        let few = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
        let many = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
        let fast = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
        let behavior = &spec["behavior"];
        let upper = if behavior.is_null() {
            (current * 2).max(FREELY)
        } else {
            self.rate(&behavior["scaleUp"], Direction::Up, current, now)
        };
        if desired > current || behavior.is_null() {
            let (bound, why) = if most > upper { (upper, fast) } else { (most, many) };
            if desired > bound {
                return (bound, Some(why));
            }
        }
        if desired < current && !behavior.is_null() {
            let lower = self.rate(&behavior["scaleDown"], Direction::Down, current, now);
            let slow = ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
            let (bound, why) = if least < lower { (lower, slow) } else { (least, few) };
            return if desired < bound { (bound, Some(why)) } else { (desired, None) };
        }
        if desired < least { (least, Some(few)) } else { (desired, None) }
    }

    /// Returns the furthest number of replicas that the policies of a direction allow.
    fn rate(&self, rules: &Value, direction: Direction, current: i64, now: Timestamp) -> i64 {
        let select = rules["selectPolicy"].as_str().unwrap_or("Max");
        let given = rules["policies"].as_array().map_or(&[][..], Vec::as_slice);
        let policies = if given.is_empty() { direction.policies() } else { given.iter().map(Policy::of).collect() };
        let reach = policies.iter().map(|policy| {
            let changed = self.changes.iter().filter(|(at, _)| is_within(*at, policy.period, now));
            let before = current - changed.map(|(_, change)| change).sum::<i64>();
            direction.reach(before, policy)
        });
        let furthest = match (select, direction) {
            ("Disabled", _) => None,
            ("Min", Direction::Up) | ("Max", Direction::Down) => reach.min(),
            _ => reach.max(),
        };
        match direction {
            Direction::Up => furthest.unwrap_or(current).max(current),
            Direction::Down => furthest.unwrap_or(current).min(current),
        }
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Up,
    Down,
}

/// Maximum change of the replicas in a period.
struct Policy {
    is_percent: bool,
    value: i64,
    /// Seconds.
    period: i64,
}

impl Policy {
    fn of(policy: &Value) -> Self {
        let number = |field: &str| policy[field].as_i64().unwrap_or(0);
        Self { is_percent: policy["type"] == "Percent", value: number("value"), period: number("periodSeconds") }
    }
}

impl Direction {
    /// Default policies.
    fn policies(self) -> Vec<Policy> {
        let double = Policy { is_percent: true, value: 100, period: 15 };
        match self {
            Self::Up => vec![Policy { is_percent: false, value: 4, period: 15 }, double],
            Self::Down => vec![double],
        }
    }

    fn reach(self, before: i64, policy: &Policy) -> i64 {
        match (self, policy.is_percent) {
            (Self::Up, false) => before + policy.value,
            (Self::Up, true) => {
                (before * (100 + policy.value)).div_euclid(100) + i64::from(before * policy.value % 100 != 0)
            }
            (Self::Down, false) => before - policy.value,
            (Self::Down, true) => before * (100 - policy.value) / 100,
        }
    }
}

fn is_within(at: Timestamp, seconds: i64, now: Timestamp) -> bool {
    at > now - Duration::from_secs(seconds.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    #[test]
    fn without_behaviour_it_at_most_doubles_and_goes_down_after_five_minutes() {
        let spec = json!({"minReplicas": 1, "maxReplicas": 20});
        let mut history = History::default();
        history.begin(1, at(0));
        let limited = history.limit(&spec, 1, 9, at(0));
        assert_eq!((limited.replicas, limited.is_cut, limited.bound.0), (4, true, "ScaleUpLimit"));
        let limited = history.limit(&spec, 4, 9, at(15));
        assert_eq!((limited.replicas, limited.bound.0), (8, "ScaleUpLimit"));
        let limited = history.limit(&spec, 8, 30, at(30));
        assert_eq!((limited.replicas, limited.bound.0), (16, "ScaleUpLimit"));
        let limited = history.limit(&spec, 16, 30, at(45));
        assert_eq!((limited.replicas, limited.bound.0), (20, "TooManyReplicas"));
        let limited = history.limit(&spec, 20, 2, at(60));
        assert_eq!((limited.replicas, limited.able.0), (20, "ScaleDownStabilized"), "30 was asked for just before");
        let limited = history.limit(&spec, 20, 2, at(345));
        assert_eq!((limited.replicas, limited.able.0, limited.is_cut), (2, "ReadyForNewScale", false));
        let limited = history.limit(&spec, 2, 0, at(1000));
        assert_eq!((limited.replicas, limited.bound.0), (1, "TooFewReplicas"));
    }

    #[test]
    fn a_new_controller_does_not_scale_down_before_the_window_is_over() {
        let spec = json!({"minReplicas": 1, "maxReplicas": 9});
        let mut history = History::default();
        history.begin(5, at(0));
        assert_eq!(history.limit(&spec, 5, 1, at(0)).replicas, 5);
        assert_eq!(history.limit(&spec, 5, 1, at(301)).replicas, 1);
    }

    #[test]
    fn behaviour_says_how_long_and_how_fast() {
        let policy = |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 60});
        let spec = json!({"minReplicas": 1, "maxReplicas": 100, "behavior": {
            "scaleUp": {"stabilizationWindowSeconds": 30, "policies": [policy("Pods", 2), policy("Percent", 50)]},
            "scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": "Min", "policies": [policy("Pods", 3), policy("Percent", 50)]},
        }});
        let mut history = History::default();
        history.begin(10, at(0));
        let limited = history.limit(&spec, 10, 40, at(1));
        assert_eq!((limited.replicas, limited.able.0), (10, "ScaleUpStabilized"));
        let limited = history.limit(&spec, 10, 40, at(31));
        assert_eq!((limited.replicas, limited.bound.0), (15, "ScaleUpLimit"), "the larger of 2 and a half");
        history.scaled(10, 15, at(31));
        assert_eq!(history.limit(&spec, 15, 40, at(62)).replicas, 15, "as much as a minute allows");
        assert_eq!(history.limit(&spec, 15, 40, at(92)).replicas, 23, "half of 15, rounded up");
        let limited = history.limit(&spec, 15, 1, at(200));
        assert_eq!((limited.replicas, limited.bound.0), (12, "ScaleDownLimit"), "the smaller of 3 and a half");
        history.scaled(15, 12, at(200));
        assert_eq!(history.limit(&spec, 12, 1, at(230)).replicas, 12);
        let never = json!({"minReplicas": 1, "maxReplicas": 9, "behavior": {"scaleDown": {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}}});
        assert_eq!(history.limit(&never, 5, 1, at(300)).replicas, 5);
    }
}
