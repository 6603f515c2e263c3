//! Knative's settings: the ConfigMaps of its namespace.
//!
//! A missing or invalid setting gets Knative's default.

use std::time::Duration;

use super::kinds::NAMESPACE;
use devcluster_apiserver::client::{Client, Subject};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    /// Domain of public addresses. Default: `localhost`, which resolves to this machine, instead of Knative's
    /// `example.com`.
    pub(super) domain: String,
    /// Time without requests before a scale to zero. Default: 60 s.
    pub(super) stable_window: Duration,
    /// Interval of autoscaling. Default: 2 s.
    pub(super) tick: Duration,
    /// Whether a scale to zero is allowed. Default: true.
    pub(super) scales_to_zero: bool,
    /// Concurrent requests per pod if the Revision sets no limit. Default: 100.
    pub(super) target: f64,
    /// Fraction of the maximum of concurrent requests to aim at. Default: 0.7.
    pub(super) utilisation: f64,
    /// Time for pods to become ready. Default: 600 s.
    pub(super) progress_deadline: Duration,
    /// Initial size of a Revision. Default: 1.
    pub(super) initial_scale: i64,
    /// Retention of unused Revisions.
    pub(super) retention: Retention,
}

/// When an unused Revision is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Retention {
    /// Minimum age. Default: 48 h.
    pub(super) since_created: Option<Duration>,
    /// Minimum time since the last traffic of the Revision. Default: 15 h.
    pub(super) since_routed: Option<Duration>,
    /// Number of unused Revisions that are always kept. Default: 20.
    pub(super) least: usize,
    /// Maximum number of unused Revisions. Default: 1000.
    pub(super) most: Option<usize>,
}

impl Settings {
    /// Reads the present settings.
    pub(super) fn read(client: &Client) -> Self {
        let map = |name: &str| {
            let map = client.get(&Subject::new("configmaps", NAMESPACE, name));
            move |key: &str| map.as_ref().and_then(|map| map["data"][key].as_str().map(|text| text.trim().to_owned()))
        };
        let (scaling, deployment, gc) = (map("config-autoscaler"), map("config-deployment"), map("config-gc"));
        let time = |text: Option<String>, default: u64| {
            text.and_then(|text| duration(&text)).unwrap_or(Duration::from_secs(default))
        };
        let share = |text: Option<String>, default: f64| {
            let given = text.and_then(|text| text.trim_end_matches('%').parse::<f64>().ok());
            given.filter(|given| given.is_finite() && *given > 0.0).unwrap_or(default)
        };
        let limit = |key: &str, default: u64| match gc(key).as_deref() {
            Some("disabled") => None,
            text => Some(text.and_then(duration).unwrap_or(Duration::from_secs(default))),
        };
        let utilisation = share(scaling("container-concurrency-target-percentage"), 70.0);
        Self {
            domain: domain(client).unwrap_or_else(|| "localhost".to_owned()),
            stable_window: time(scaling("stable-window"), 60).max(Duration::from_secs(6)),
            tick: time(scaling("tick-interval"), 2).max(Duration::from_millis(100)),
            scales_to_zero: scaling("enable-scale-to-zero").as_deref() != Some("false"),
            target: share(scaling("container-concurrency-target-default"), 100.0),
            utilisation: if utilisation > 1.0 { utilisation / 100.0 } else { utilisation },
            progress_deadline: time(deployment("progress-deadline"), 600).max(Duration::from_secs(1)),
            initial_scale: scaling("initial-scale").and_then(|text| text.parse().ok()).unwrap_or(1),
            retention: Retention {
                since_created: limit("retain-since-create-time", 48 * 3600),
                since_routed: limit("retain-since-last-active-time", 15 * 3600),
                least: gc("min-non-active-revisions").and_then(|text| text.parse().ok()).unwrap_or(20),
                most: match gc("max-non-active-revisions").as_deref() {
                    Some("disabled") => None,
                    text => Some(text.and_then(|text| text.parse().ok()).unwrap_or(1000)),
                },
            },
        }
    }
}

/// Returns the first configured domain without a selector.
fn domain(client: &Client) -> Option<String> {
    let map = client.get(&Subject::new("configmaps", NAMESPACE, "config-domain"))?;
    let all = map["data"].as_object()?.iter();
    let mut all =
        all.filter(|(name, value)| !name.starts_with('_') && value.as_str().is_some_and(|v| v.trim().is_empty()));
    all.next().map(|(name, _)| name.clone())
}

/// Parses a Go duration such as `1h30m`, `10s` or `500ms`.
fn duration(text: &str) -> Option<Duration> {
    let (mut rest, mut sum) = (text, Duration::ZERO);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let after = &rest[digits..];
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let seconds = match &after[..unit] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        sum = sum.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = &after[unit..];
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_read_as_go_writes_it() {
        let check = |text: &str, millis: Option<u64>| {
            assert_eq!(duration(text), millis.map(Duration::from_millis), "{text}");
        };
        check("10s", Some(10_000));
        check("1h30m", Some(5_400_000));
        check("500ms", Some(500));
        check("1.5s", Some(1_500));
        for bad in ["", "10", "s", "10 s", "-1s", "1d", "99999999999999999999h"] {
            check(bad, None);
        }
    }
}
