//! The windows of a GitSync, for its page: what they do, when they begin, and whether they are active.
//!
//! The agent decides about windows (`windows` of gitsync). The page applies the same rules to the spec.

use jiff::Timestamp;
use serde_json::Value;

use crate::field::text_at;
use crate::text::{SHORT, plain};
use mainstay_api::Span;
use mainstay_api::git_sync::WindowKind;
use mainstay_object::window::{MOST_WINDOWS, TimeWindow, hold};

/// A window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// `Allow` or `Deny`.
    pub(crate) kind: String,
    pub(crate) schedule: String,
    pub(crate) duration: String,
    pub(crate) zone: String,
    /// Whether the window is active, or why this is unknown.
    pub(crate) phase: Result<Phase, String>,
}

/// Whether a window is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It ends at this time.
    Active(Timestamp),
    /// It begins at this time; `None` if it never begins.
    Inactive(Option<Timestamp>),
}

/// Returns the windows in the spec of a GitSync. Beyond the maximum number, one more shows that there are too many.
pub(crate) fn windows(live: &Value, now: Timestamp) -> Vec<Window> {
    let all = live.pointer("/spec/windows").and_then(Value::as_array).into_iter().flatten().take(MOST_WINDOWS + 1);
    let zone_in = |object: &Value| object.get("timeZone").and_then(Value::as_str).map(str::to_owned);
    let default = live.get("spec").and_then(zone_in);
    let window = |(at, one): (usize, &Value)| {
        let text = |pointer: &str| text_at(one, pointer, SHORT);
        let (schedule, duration) = (text("/schedule"), text("/duration"));
        let zone = zone_in(one).or_else(|| default.clone());
        let phase = if at < MOST_WINDOWS {
            phase(&schedule, &duration, zone.as_deref(), now).map_err(|why| plain(&why, SHORT))
        } else {
            Err(format!("there are more than {MOST_WINDOWS} windows"))
        };
        let zone = plain(zone.as_deref().unwrap_or("UTC"), SHORT);
        Window { kind: text("/kind"), schedule, duration, zone, phase }
    };
    all.enumerate().map(window).collect()
}

/// Returns whether new commits are held now; `None` if a window is invalid. The agent then applies no commit.
pub(crate) fn is_held(windows: &[Window]) -> Option<bool> {
    let mut all = Vec::with_capacity(windows.len());
    for window in windows {
        let kind = if window.kind == "Deny" { WindowKind::Deny } else { WindowKind::Allow };
        all.push((kind, matches!(window.phase.as_ref().ok()?, Phase::Active(_))));
    }
    Some(hold(&all).is_some())
}

fn phase(schedule: &str, duration: &str, zone: Option<&str>, now: Timestamp) -> Result<Phase, String> {
    let length = duration.parse::<Span>().map_err(|error| format!("its duration is invalid: {error}"))?.0;
    let times = TimeWindow::parse(schedule, length, zone).map_err(|(part, why)| format!("{part}{why}"))?;
    Ok(times.end(now).map_or_else(|| Phase::Inactive(times.next(now)), Phase::Active))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(spec: Value) -> Vec<Window> {
        windows(&json!({ "spec": spec }), "2026-01-01T12:00:00Z".parse().unwrap())
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_window_is_active_for_its_duration_in_its_time_zone() {
        let window = json!({"kind": "Allow", "schedule": "0 10 * * *", "duration": "3h"});
        let all = of(json!({"windows": [window]}));
        assert_eq!(
            (all[0].zone.as_str(), all[0].phase.clone()),
            ("UTC", Ok(Phase::Active(time("2026-01-01T13:00:00Z"))))
        );
        assert_eq!(is_held(&all), Some(false));
        let all = of(json!({"windows": [window], "timeZone": "Europe/Berlin"}));
        // 10:00 in Berlin is 09:00 in UTC, so it ended at 12:00.
        assert_eq!(all[0].phase, Ok(Phase::Inactive(Some(time("2026-01-02T09:00:00Z")))));
        assert_eq!(is_held(&all), Some(true));
    }

    #[test]
    fn an_active_window_that_denies_wins() {
        let at = |kind: &str, hour: u8| json!({"kind": kind, "schedule": format!("0 {hour} * * *"), "duration": "3h"});
        assert_eq!(is_held(&of(json!({"windows": [at("Allow", 10), at("Deny", 11)]}))), Some(true));
        assert_eq!(is_held(&of(json!({"windows": [at("Allow", 10), at("Deny", 15)]}))), Some(false));
        assert_eq!(is_held(&of(json!({"windows": [at("Deny", 15)]}))), Some(false));
        assert_eq!(is_held(&of(json!({"windows": [at("Allow", 10), at("Allow", 15)]}))), Some(false));
        assert_eq!(is_held(&[]), Some(false));
        let many = of(json!({"windows": vec![at("Deny", 15); MOST_WINDOWS + 1]}));
        assert_eq!(is_held(&many), None, "the agent refuses the spec");
    }

    #[test]
    fn an_invalid_or_hostile_window_says_why() {
        for window in [
            json!(null),
            json!({"schedule": "0 10 * *", "duration": "1h"}),
            json!({"schedule": "0 10 * * *", "duration": "soon"}),
            json!({"schedule": "0 10 * * *", "duration": "0s"}),
            json!({"schedule": "0 10 * * *", "duration": "1h", "timeZone": "../../etc/passwd"}),
            json!({"schedule": "0 10 * * *", "duration": "1h", "timeZone": ""}),
        ] {
            let all = of(json!({"windows": [window]}));
            assert!(all[0].phase.is_err() && is_held(&all).is_none(), "{all:?}");
        }
    }
}
