//! The settings of Knative: the ConfigMaps of its namespace, as they are now.
//!
//! What is not set, or cannot be read, is as Knative ships it.

use std::time::Duration;

use super::kinds::NAMESPACE;
use devcluster_apiserver::client::{Client, Subject};

/// The settings.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    /// The domain of what is published; `example.com`… of a default installation, here one that leads to this machine.
    pub(super) domain: String,
    /// How long without requests until there are no pods; 60 s.
    pub(super) stable_window: Duration,
    /// How often an autoscaler looks; 2 s.
    pub(super) tick: Duration,
    /// Whether there may be no pods; yes.
    pub(super) scales_to_zero: bool,
    /// Requests under way per pod, where a Revision sets no limit; 100.
    pub(super) target: f64,
    /// The part of that which is aimed at; 70 %.
    pub(super) utilisation: f64,
    /// How long pods may take to become ready; 600 s.
    pub(super) progress_deadline: Duration,
    /// How many pods a Revision begins with; 1.
    pub(super) initial_scale: i64,
    /// What becomes of Revisions that nobody needs.
    pub(super) retention: Retention,
}

/// When a Revision that gets no requests goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Retention {
    /// Since it was made; 48 h.
    pub(super) since_created: Option<Duration>,
    /// Since it last got requests; 15 h.
    pub(super) since_routed: Option<Duration>,
    /// How many stay in any case; 20.
    pub(super) least: usize,
    /// How many there may be in any case; 1000.
    pub(super) most: Option<usize>,
}

impl Settings {
    /// The settings as they are now.
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

/// The first domain that is configured for everything.
fn domain(client: &Client) -> Option<String> {
    let map = client.get(&Subject::new("configmaps", NAMESPACE, "config-domain"))?;
    let all = map["data"].as_object()?.iter();
    let mut all =
        all.filter(|(name, value)| !name.starts_with('_') && value.as_str().is_some_and(|v| v.trim().is_empty()));
    all.next().map(|(name, _)| name.clone())
}

/// A duration as Go writes it: `1h30m`, `10s`, `500ms`.
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
