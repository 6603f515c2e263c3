//! Windows of time that recur: a window begins at each time of a cron expression, and lasts for a duration.
//!
//! Invariant: an invalid window is never active.
//!
//! Not here: the clock. The caller passes the time.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::cron::Cron;
use mainstay_api::conditions::cut;
use mainstay_api::git_sync::WindowKind;

/// Maximum number of windows of a GitSync.
pub const MOST_WINDOWS: usize = 50;
/// Maximum duration of a window.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// A window.
#[derive(Clone, Debug)]
pub struct TimeWindow {
    cron: Cron,
    duration: SignedDuration,
}

/// The reason why new commits are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// This `Deny` window is active.
    Denied(usize),
    /// There are `Allow` windows, and none is active.
    NotAllowed,
}

impl TimeWindow {
    /// Parses a window. Without a time zone, the times are those of UTC.
    ///
    /// # Errors
    /// The invalid field, with the text after its name in a message.
    pub fn parse(schedule: &str, duration: Duration, zone: Option<&str>) -> Result<Self, (&'static str, String)> {
        let zone = time_zone(zone).map_err(|why| ("timeZone", format!(": {why}")))?;
        let cron = Cron::parse(schedule, zone).map_err(|why| ("schedule", format!(" {schedule:?}: {why}")))?;
        if duration.is_zero() || duration > LONGEST {
            let days = LONGEST.as_secs() / 86_400;
            return Err(("duration", format!(": write more than 0 and at most {days} days")));
        }
        let duration = SignedDuration::try_from(duration).map_err(|_| ("duration", " is too long".to_owned()))?;
        Ok(Self { cron, duration })
    }

    /// Returns the end of the window if it is active at `now`.
    pub fn end(&self, now: Timestamp) -> Option<Timestamp> {
        let end = self.cron.previous(now)?.checked_add(self.duration).ok()?;
        (end > now).then_some(end)
    }

    /// Returns the next begin of the window after `now`; `None` if there is none.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        self.cron.next(now)
    }
}

/// Returns whether windows hold new commits. Each is given by its kind and whether it is active.
pub fn hold(windows: &[(WindowKind, bool)]) -> Option<Hold> {
    if let Some(denies) = windows.iter().position(|window| *window == (WindowKind::Deny, true)) {
        return Some(Hold::Denied(denies));
    }
    let mut allows = windows.iter().filter(|(kind, _)| *kind == WindowKind::Allow).peekable();
    (allows.peek().is_some() && !allows.any(|(_, is_active)| *is_active)).then_some(Hold::NotAllowed)
}

/// Returns the time zone with this name; without a name, UTC.
///
/// # Errors
/// The name is unknown.
pub fn time_zone(name: Option<&str>) -> Result<TimeZone, String> {
    let Some(name) = name else { return Ok(TimeZone::UTC) };
    let is_name = name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"/_+-".contains(&b));
    let found = if is_name { TimeZone::get(name).ok() } else { None };
    found.ok_or_else(|| {
        let shown = cut(name, 64);
        format!("{shown:?} is not a time zone; write a name such as Europe/Berlin, or UTC")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_active_window_that_denies_wins_and_one_that_allows_is_enough() {
        let (allow, deny) = (WindowKind::Allow, WindowKind::Deny);
        for (windows, expected) in [
            (vec![], None),
            (vec![(deny, false)], None),
            (vec![(allow, true), (deny, true)], Some(Hold::Denied(1))),
            (vec![(allow, true), (allow, false)], None),
            (vec![(allow, false), (deny, false)], Some(Hold::NotAllowed)),
        ] {
            assert_eq!(hold(&windows), expected, "{windows:?}");
        }
    }

    #[test]
    fn an_unknown_time_zone_is_refused() {
        assert!(time_zone(None).is_ok() && time_zone(Some("Europe/Berlin")).is_ok());
        for name in ["", "Nowhere", "../../etc/passwd", &"a".repeat(65)] {
            assert!(time_zone(Some(name)).is_err(), "{name:?}");
        }
    }
}
