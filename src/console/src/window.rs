//! The windows of a GitSync, for its page: what they do, when they begin, and whether they are active.
//!
//! The agent decides about windows (`windows` of gitsync). The page computes the times with the same cron expressions.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::field::text_at;
use crate::text::{SHORT, plain};
use mainstay_api::Span;
use mainstay_object::cron::Cron;

/// Maximum number of windows on the page, and maximum duration of a window.
const MOST: usize = 50;
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

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

/// Returns the windows in the spec of a GitSync.
pub(crate) fn windows(live: &Value, now: Timestamp) -> Vec<Window> {
    let all = live.pointer("/spec/windows").and_then(Value::as_array).into_iter().flatten().take(MOST);
    let default = text_at(live, "/spec/timeZone", SHORT);
    let window = |one: &Value| {
        let text = |pointer: &str| text_at(one, pointer, SHORT);
        let (schedule, duration, own) = (text("/schedule"), text("/duration"), text("/timeZone"));
        let zones = [own.as_str(), default.as_str(), "UTC"];
        let zone = zones.into_iter().find(|zone| !zone.is_empty()).unwrap_or_default().to_owned();
        let phase = phase(&schedule, &duration, &zone, now).map_err(|why| plain(&why, SHORT));
        Window { kind: text("/kind"), schedule, duration, zone, phase }
    };
    all.map(window).collect()
}

/// Returns whether new commits are held now; `None` if a window is invalid. The agent then applies no commit.
pub(crate) fn is_held(windows: &[Window]) -> Option<bool> {
    let mut all = Vec::with_capacity(windows.len());
    for window in windows {
        all.push((window.kind.as_str(), matches!(window.phase.as_ref().ok()?, Phase::Active(_))));
    }
    let allows = |is_active: Option<bool>| {
        all.iter().any(|(kind, active)| *kind == "Allow" && is_active.is_none_or(|wanted| *active == wanted))
    };
    let is_denied = all.iter().any(|(kind, is_active)| *kind == "Deny" && *is_active);
    Some(is_denied || (allows(None) && !allows(Some(true))))
}

fn phase(schedule: &str, duration: &str, zone: &str, now: Timestamp) -> Result<Phase, String> {
    let is_name = zone.len() <= 64 && zone.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_+-".contains(&byte));
    let found = if is_name { TimeZone::get(zone).ok() } else { None };
    let found = found.ok_or("its time zone is unknown")?;
    let cron = Cron::parse(schedule, found).map_err(|why| format!("its schedule is invalid: {why}"))?;
    let length = duration.parse::<Span>().map_err(|error| format!("its duration is invalid: {error}"))?.0;
    if length.is_zero() || length > LONGEST {
        return Err("its duration must be more than 0 and at most 366 days".to_owned());
    }
    let length = SignedDuration::try_from(length).map_err(|error| error.to_string())?;
    let end = cron.previous(now).and_then(|begin| begin.checked_add(length).ok()).filter(|end| *end > now);
    Ok(end.map_or_else(|| Phase::Inactive(cron.next(now)), Phase::Active))
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
    }

    #[test]
    fn an_invalid_or_hostile_window_says_why() {
        for window in [
            json!(null),
            json!({"schedule": "0 10 * *", "duration": "1h"}),
            json!({"schedule": "0 10 * * *", "duration": "soon"}),
            json!({"schedule": "0 10 * * *", "duration": "0s"}),
            json!({"schedule": "0 10 * * *", "duration": "1h", "timeZone": "../../etc/passwd"}),
        ] {
            let all = of(json!({"windows": [window]}));
            assert!(all[0].phase.is_err() && is_held(&all).is_none(), "{all:?}");
        }
    }
}
