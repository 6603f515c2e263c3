//! The windows in which new commits may be applied.
//!
//! A window is active for its duration after each time of its schedule. New commits are held while a `Deny` window is
//! active, or if there are `Allow` windows and none is active. The applied commit stays enforced.
//!
//! Invariant: an invalid window allows nothing.
//!
//! Not here: the clock. The caller passes the time.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};

use mainstay_api::conditions::{self, Reason, Type};
use mainstay_api::git_sync::{GitSyncSpec, GitSyncStatus, UNKNOWN, Window, WindowKind};
use mainstay_api::names::{OVERRIDE_WINDOW, OVERRIDE_WINDOW_BY};
use mainstay_object::cron::Cron;
use mainstay_object::window::{Hold, MOST_WINDOWS, TimeWindow, hold, time_zone};

/// Reasons of Ready while a commit is applied in part.
const IN_PART: [Reason; 5] =
    [Reason::ApplyFailed, Reason::Immutable, Reason::OwnershipConflict, Reason::PruneFailed, Reason::PruneHeld];

/// Maximum number of starts and ends, over all windows, that are checked to find the end of a hold. Beyond that the end
/// is unknown. The limit protects the agent from expensive specs.
const LOOKED_AT: usize = 400;
/// Minimum number of checked starts and ends, for any number of windows.
const LOOKED_AT_LEAST: usize = 8;

/// The validated windows and schedule of a GitSync.
#[derive(Clone, Debug)]
pub struct Windows {
    windows: Vec<Active>,
    schedule: Option<Cron>,
}

#[derive(Clone, Debug)]
struct Active {
    kind: WindowKind,
    times: TimeWindow,
    /// The name in messages.
    name: String,
}

/// A hold of new commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// The window that holds new commits.
    pub by: String,
    /// The end of the hold, if it is known.
    pub until: Option<Timestamp>,
}

impl Windows {
    /// Parses the windows and the schedule of a spec.
    ///
    /// # Errors
    ///
    /// The invalid field, its error, and the allowed values.
    pub fn parse(spec: &GitSyncSpec) -> Result<Self, String> {
        let count = spec.windows.len();
        if count > MOST_WINDOWS {
            return Err(format!("spec.windows has {count} windows; at most {MOST_WINDOWS} are allowed"));
        }
        let schedule = match &spec.schedule {
            Some(text) => {
                let zone = time_zone(spec.time_zone.as_deref()).map_err(|why| format!("spec.timeZone: {why}"))?;
                Some(Cron::parse(text, zone).map_err(|why| format!("spec.schedule {text:?}: {why}"))?)
            }
            None => None,
        };
        let active = |(at, window): (usize, &Window)| Active::parse(at, window, spec.time_zone.as_deref());
        Ok(Self { windows: spec.windows.iter().enumerate().map(active).collect::<Result<_, _>>()?, schedule })
    }

    /// Whether new commits may be applied at `now`.
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.holder(now).is_none()
    }

    /// Returns the hold of new commits at `now`; `None` while they may be applied.
    pub fn freeze(&self, now: Timestamp) -> Option<Freeze> {
        let by = self.holder(now)?;
        let mut at = now;
        for _ in 0..(LOOKED_AT / self.windows.len()).max(LOOKED_AT_LEAST) {
            let Some(next) = self.boundary(at) else { break };
            if self.holder(next).is_none() {
                return Some(Freeze { by, until: Some(next) });
            }
            at = next;
        }
        Some(Freeze { by, until: None })
    }

    /// Returns the time of the next check: a scheduled sync, or the start or end of a window.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let scheduled = self.schedule.as_ref().and_then(|schedule| schedule.next(now));
        [scheduled, self.boundary(now)].into_iter().flatten().min()
    }

    /// Whether a sync was scheduled after `since` and until `now`.
    pub fn is_due(&self, since: Timestamp, now: Timestamp) -> bool {
        let last = self.schedule.as_ref().and_then(|schedule| schedule.previous(now));
        last.is_some_and(|last| last > since)
    }

    fn holder(&self, now: Timestamp) -> Option<String> {
        let all: Vec<_> = self.windows.iter().map(|one| (one.kind, one.times.end(now).is_some())).collect();
        if let Hold::Denied(at) = hold(&all)? {
            return Some(format!("the window {} is active", self.windows.get(at)?.name));
        }
        let allows: Vec<_> = self.windows.iter().filter(|one| one.kind == WindowKind::Allow).collect();
        Some(match allows.as_slice() {
            [only] => format!("the window {} is not active", only.name),
            all => format!("none of the {} Allow windows is active", all.len()),
        })
    }

    /// Returns the next start or end of a window after `now`.
    fn boundary(&self, now: Timestamp) -> Option<Timestamp> {
        self.windows.iter().flat_map(|one| [one.times.end(now), one.times.next(now)]).flatten().min()
    }
}

/// Whether an earlier agent began to apply a commit, by its status.
pub(crate) fn was_begun(status: Option<&GitSyncStatus>, commit: &str) -> bool {
    let Some(status) = status else { return false };
    if status.applied_commit.as_deref() == Some(commit) {
        return true;
    }
    is_in_part(&status.conditions) && status.frozen.is_none() && status.attempted_commit.as_deref() == Some(commit)
}

/// Whether Ready shows that a commit is applied in part.
pub(super) fn is_in_part(all: &[Condition]) -> bool {
    conditions::status(all, Type::Ready).is_some_and(|ready| IN_PART.iter().any(|part| part.as_str() == ready.reason))
}

/// Returns the field manager that set the annotation on a GitSync.
pub(crate) fn who_overrides(meta: &ObjectMeta) -> String {
    let path = format!("/f:metadata/f:annotations/f:{}", OVERRIDE_WINDOW.replace('/', "~1"));
    let mut entries = meta.managed_fields.iter().flatten();
    let entry = entries.find(|entry| entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer(&path).is_some()));
    entry.and_then(|entry| entry.manager.clone()).unwrap_or_else(|| UNKNOWN.to_owned())
}

/// Maximum length of a recorded user name.
const LONGEST_USER: usize = 256;

/// Returns the user who, according to the annotation, asked to apply this commit.
pub fn claimed_user(meta: &ObjectMeta, commit: &str) -> Option<String> {
    let claimed = meta.annotations.as_ref()?.get(OVERRIDE_WINDOW_BY)?;
    let user = claimed.strip_prefix(commit)?.strip_prefix(' ')?;
    let user: String = user.chars().filter(|c| !c.is_control()).collect();
    Some(conditions::cut(user.trim(), LONGEST_USER).to_owned()).filter(|user| !user.is_empty())
}

impl Active {
    fn parse(at: usize, window: &Window, default_zone: Option<&str>) -> Result<Self, String> {
        let field = format!("spec.windows[{at}]");
        let zone_name = window.time_zone.as_deref().or(default_zone);
        let times = TimeWindow::parse(&window.schedule, window.duration.0, zone_name);
        let times = times.map_err(|(part, why)| format!("{field}.{part}{why}"))?;
        let name =
            format!("{:?} {:?} for {} ({})", window.kind, window.schedule, window.duration, zone_name.unwrap_or("UTC"));
        Ok(Self { kind: window.kind, times, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn windows(spec: serde_json::Value) -> Result<Windows, String> {
        let mut whole = json!({ "gitRepository": "shop" });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        Windows::parse(&serde_json::from_value(whole).unwrap())
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// Returns the earliest time, from `now` on, at which commits may be applied; `open` if they may be now.
    fn until(windows: &Windows, now: &str) -> String {
        match windows.freeze(at(now)) {
            None => "open".to_owned(),
            Some(freeze) => freeze.until.map_or_else(|| "no end".to_owned(), |until| until.to_string()),
        }
    }

    #[test]
    fn a_deny_window_holds_commits_from_its_start_until_its_end() {
        let denied = windows(json!({ "windows": [{ "kind": "Deny", "schedule": "0 16 * * fri", "duration": "65h" }] }));
        let denied = denied.unwrap();
        assert_eq!(until(&denied, "2026-11-20T15:59:59Z"), "open");
        assert_eq!(until(&denied, "2026-11-20T16:00:00Z"), "2026-11-23T09:00:00Z");
        assert_eq!(until(&denied, "2026-11-23T08:59:59Z"), "2026-11-23T09:00:00Z");
        assert_eq!(until(&denied, "2026-11-23T09:00:00Z"), "open");
        let by = denied.freeze(at("2026-11-21T00:00:00Z")).unwrap().by;
        assert_eq!(by, "the window Deny \"0 16 * * fri\" for 65h (UTC) is active");
        assert_eq!(denied.next(at("2026-11-20T00:00:00Z")), Some(at("2026-11-20T16:00:00Z")));
        assert_eq!(denied.next(at("2026-11-21T00:00:00Z")), Some(at("2026-11-23T09:00:00Z")));
    }

    #[test]
    fn outside_of_all_allow_windows_commits_are_held() {
        let one = json!({ "kind": "Allow", "schedule": "0 9 * * 1-5", "duration": "8h" });
        let allowed = windows(json!({ "windows": [one] })).unwrap();
        assert_eq!(until(&allowed, "2026-11-20T17:00:00Z"), "2026-11-23T09:00:00Z", "from Friday to Monday");
        assert_eq!(until(&allowed, "2026-11-23T09:00:00Z"), "open");
        let by = |windows: &Windows| windows.freeze(at("2026-11-21T00:00:00Z")).unwrap().by;
        assert_eq!(by(&allowed), "the window Allow \"0 9 * * 1-5\" for 8h (UTC) is not active");
        let other = json!({ "kind": "Allow", "schedule": "0 12 * * sat", "duration": "1h" });
        let both = windows(json!({ "windows": [one, other] })).unwrap();
        assert_eq!(until(&both, "2026-11-20T17:00:00Z"), "2026-11-21T12:00:00Z");
        assert_eq!(by(&both), "none of the 2 Allow windows is active");
    }

    #[test]
    fn deny_wins_over_allow() {
        let both = windows(json!({ "windows": [
            { "kind": "Allow", "schedule": "0 0 * * *", "duration": "24h" },
            { "kind": "Deny", "schedule": "0 12 * * *", "duration": "30m" },
            { "kind": "Deny", "schedule": "15 12 * * *", "duration": "1h" },
        ] }));
        let both = both.unwrap();
        assert_eq!(until(&both, "2026-11-20T11:00:00Z"), "open");
        assert_eq!(until(&both, "2026-11-20T12:10:00Z"), "2026-11-20T13:15:00Z", "one ends while another is active");
        let always = json!({ "kind": "Deny", "schedule": "0 * * * *", "duration": "1h" });
        let always = windows(json!({ "windows": [always] })).unwrap();
        assert_eq!(until(&always, "2026-11-20T11:00:00Z"), "no end");
    }

    #[test]
    fn no_window_holds_nothing() {
        let none = windows(json!({})).unwrap();
        assert_eq!((none.freeze(at("2026-11-20T11:00:00Z")), none.next(at("2026-11-20T11:00:00Z"))), (None, None));
    }

    #[test]
    fn windows_open_on_time_in_their_zone_when_the_clock_changes() {
        let night = json!({ "kind": "Allow", "schedule": "0 22 * * *", "duration": "6h", "timeZone": "Europe/Berlin" });
        let night = windows(json!({ "windows": [night] })).unwrap();
        assert_eq!(until(&night, "2026-10-24T12:00:00Z"), "2026-10-24T20:00:00Z", "summer time");
        assert_eq!(until(&night, "2026-10-25T12:00:00Z"), "2026-10-25T21:00:00Z", "winter time");
        assert_eq!(until(&night, "2027-03-27T12:00:00Z"), "2027-03-27T21:00:00Z", "winter time");
        assert_eq!(until(&night, "2027-03-28T12:00:00Z"), "2027-03-28T20:00:00Z", "summer time");
        // A duration is elapsed time: six hours from 22:00 end at 05:00 in that night.
        assert_eq!(until(&night, "2027-03-28T02:59:59Z"), "open");
        assert_eq!(until(&night, "2027-03-28T03:00:00Z"), "2027-03-28T20:00:00Z");
    }

    #[test]
    fn a_scheduled_sync_is_due_once() {
        let daily = windows(json!({ "schedule": "0 6 * * *", "timeZone": "Asia/Tokyo" })).unwrap();
        let six = at("2026-11-20T21:00:00Z");
        assert_eq!(daily.next(at("2026-11-20T12:00:00Z")), Some(six));
        assert!(daily.is_due(at("2026-11-20T20:59:59Z"), six));
        assert!(!daily.is_due(six, at("2026-11-21T20:59:59Z")));
        assert!(!windows(json!({})).unwrap().is_due(at("1970-01-01T00:00:00Z"), six));
    }

    #[test]
    fn wrong_windows_say_which_field_and_what_to_write() {
        let refused = |spec| windows(spec).unwrap_err();
        let window = |schedule: &str, duration: &str, zone: &str| {
            refused(json!({ "windows": [
                { "kind": "Deny", "schedule": "0 0 * * *", "duration": "1h" },
                { "kind": "Deny", "schedule": schedule, "duration": duration, "timeZone": zone },
            ] }))
        };
        assert_eq!(
            window("61 * * * *", "1h", "UTC"),
            "spec.windows[1].schedule \"61 * * * *\": minute: \"61\" in \"61\" is not one of 0 to 59"
        );
        assert_eq!(
            window("0 0 * * *", "0s", "UTC"),
            "spec.windows[1].duration: write more than 0 and at most 366 days"
        );
        let expected = |zone: &str| {
            format!("spec.windows[1].timeZone: {zone:?} is not a time zone; write a name such as Europe/Berlin, or UTC")
        };
        for zone in ["Mars/Olympus", "", "../../etc/passwd", "CET\n"] {
            assert_eq!(window("0 0 * * *", "1h", zone), expected(zone));
        }
        let schedule = refused(json!({ "schedule": "hourly" }));
        assert!(schedule.starts_with("spec.schedule \"hourly\": it has 1 fields"), "{schedule}");
        let window = json!({ "kind": "Deny", "schedule": "0 0 * * *", "duration": "1h" });
        let many = refused(json!({ "windows": vec![window; 51] }));
        assert_eq!(many, "spec.windows has 51 windows; at most 50 are allowed");
    }

    #[test]
    fn many_windows_that_are_always_active_are_looked_at_in_bounded_time() {
        let dense =
            json!({ "kind": "Deny", "schedule": "* * 1-31 * 0-6", "duration": "1m", "timeZone": "Europe/Berlin" });
        let dense = windows(json!({ "windows": vec![dense; 50] })).unwrap();
        let evaluations = (LOOKED_AT / dense.windows.len()).max(LOOKED_AT_LEAST) * dense.windows.len();
        assert!(evaluations <= LOOKED_AT, "{evaluations}");
        for day in ["2026-11-20T11:00:00Z", "2027-03-28T00:30:00Z"] {
            assert_eq!(until(&dense, day), "no end");
        }
    }

    #[test]
    fn a_commit_was_begun_if_it_was_applied_in_full_or_in_part() {
        let status = |reason: &str, frozen: bool| -> GitSyncStatus {
            let frozen = frozen.then(|| json!({ "commit": "c2", "by": "a window" }));
            serde_json::from_value(json!({
                "appliedCommit": "c1", "attemptedCommit": "c2", "frozen": frozen,
                "conditions": [{
                    "type": "Ready", "status": "False", "reason": reason, "message": "",
                    "lastTransitionTime": "2026-11-22T00:00:00Z",
                }],
            }))
            .unwrap()
        };
        let begun = |status: &GitSyncStatus, commit: &str| was_begun(Some(status), commit);
        assert!(begun(&status("ApplyFailed", false), "c1") && begun(&status("ApplyFailed", false), "c2"));
        assert!(!begun(&status("ApplyFailed", false), "c3"));
        assert!(!begun(&status("ApplyFailed", true), "c2"), "it waited");
        assert!(!begun(&status("Applied", false), "c2"), "its files could not be fetched");
        assert!(!begun(&status("ManifestInvalid", false), "c2") && !was_begun(None, "c1"));
    }
}
