//! Schedules of CronJobs: computes the next and the last time.
//!
//! A schedule has five fields (minute, hour, day of the month, month, day of the week), or is `@hourly` and the like,
//! or `@every 5m`. If both day fields are restricted, one match suffices.
//!
//! Not here: errors of a schedule (validation reports them), and the crate `cron`. Its dialect differs: it requires
//! seconds, counts Sunday as 1, and requires both day fields to match.

use std::time::Duration;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _};

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Days to search before giving up on a schedule that never matches, such as the 31st of February.
const PATIENCE: usize = 5 * 366;

/// A parsed schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    /// A fixed interval after the last time.
    Every(Duration),
    /// Calendar times.
    Calendar(Box<Calendar>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Calendar {
    minutes: Field,
    hours: Field,
    days: Field,
    months: Field,
    weekdays: Field,
    zone: TimeZone,
}

/// The values that a field matches, as a bit set, and whether the field is `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    bits: u64,
    star: bool,
}

impl Field {
    fn has(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|value| self.bits & 1_u64.checked_shl(value).unwrap_or(0) != 0)
    }

    fn parse(text: &str, low: u32, high: u32, names: &[&str]) -> Option<Self> {
        let mut field = Self { bits: 0, star: false };
        for part in text.split(',') {
            let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
            let step: usize = step.map_or(Some(1), |step| step.parse().ok())?;
            let number = |text: &str| {
                let named = names.iter().position(|name| name.eq_ignore_ascii_case(text));
                named.and_then(|place| u32::try_from(place).ok()).map(|place| place + low).or_else(|| text.parse().ok())
            };
            let (from, to) = match range.split_once('-') {
                _ if matches!(range, "*" | "?") => {
                    field.star |= step == 1;
                    (low, high)
                }
                Some((from, to)) => (number(from)?, number(to)?),
                // `5/10` extends to the maximum.
                None if part.contains('/') => (number(range)?, high),
                None => (number(range)?, number(range)?),
            };
            if step == 0 || from < low || to > high || from > to {
                return None;
            }
            (from..=to).step_by(step).for_each(|value| field.bits |= 1 << value);
        }
        Some(field)
    }
}

impl Schedule {
    /// Parses a CronJob's schedule; `None` if it is invalid.
    pub(super) fn parse(text: &str, zone: TimeZone) -> Option<Self> {
        let text = text.trim();
        if let Some(every) = text.strip_prefix("@every ") {
            return Some(Self::Every(duration(every.trim())?));
        }
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            fields => fields,
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else { return None };
        Some(Self::Calendar(Box::new(Calendar {
            minutes: Field::parse(minutes, 0, 59, &[])?,
            hours: Field::parse(hours, 0, 23, &[])?,
            days: Field::parse(days, 1, 31, &[])?,
            months: Field::parse(months, 1, 12, &MONTHS)?,
            weekdays: Field::parse(weekdays, 0, 6, &DAYS)?,
            zone,
        })))
    }

    /// Returns the first time after `after`; `None` if the schedule never matches.
    pub(super) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Every(pause) => {
                let whole = Timestamp::from_second(after.as_second()).ok()?;
                whole.checked_add(SignedDuration::try_from(*pause).ok()?).ok()
            }
            Self::Calendar(calendar) => calendar.next(after),
        }
    }

    /// Returns the last time in `since`..=`now`, excluding `since`; `None` if there is none.
    pub(super) fn last(&self, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let first = self.next(since).filter(|first| *first <= now)?;
        let pause = match self.next(first) {
            Some(second) if second <= now => second.duration_since(first).as_secs().max(1),
            _ => return Some(first),
        };
        // The missed times may span years, so the search skips most of the missed times.
        let missed = (now.duration_since(first).as_secs() / pause - 1).max(0);
        let mut last = None;
        let mut at = first.checked_add(SignedDuration::from_secs(missed.saturating_mul(pause))).ok()?;
        if missed == 0 {
            last = Some(first);
        }
        while let Some(next) = self.next(at).filter(|next| *next <= now) {
            (at, last) = (next, Some(next));
        }
        last.or(Some(first))
    }
}

impl Calendar {
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let start = self.zone.to_datetime(after).with().second(0).subsec_nanosecond(0).build().ok()?;
        let start = start.checked_add(1.minute()).ok()?;
        let mut date = start.date();
        for _ in 0..PATIENCE {
            if self.has_day(date) {
                let from = if date == start.date() { (start.hour(), start.minute()) } else { (0, 0) };
                if let Some(found) = self.time_of(date, from, after) {
                    return Some(found);
                }
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let day = self.days.has(date.day());
        let weekday = self.weekdays.has(date.weekday().to_sunday_zero_offset());
        let either = if self.days.star || self.weekdays.star { day && weekday } else { day || weekday };
        self.months.has(date.month()) && either
    }

    /// Returns the first time of a day at or after an hour and minute, and after `after`.
    fn time_of(&self, date: Date, from: (i8, i8), after: Timestamp) -> Option<Timestamp> {
        let hours = (from.0..24).filter(|hour| self.hours.has(*hour));
        let mut times = hours.flat_map(|hour| {
            let first = if hour == from.0 { from.1 } else { 0 };
            (first..60).filter(|minute| self.minutes.has(*minute)).map(move |minute| (hour, minute))
        });
        times.find_map(|(hour, minute)| {
            let time: DateTime = date.at(hour, minute, 0, 0);
            let found = self.zone.to_timestamp(time).ok()?;
            (found > after).then_some(found)
        })
    }
}

/// Parses a Go duration such as `1h30m` or `1.5s`. The result is at least a second.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit = rest[end..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |length| end + length);
        seconds += number
            * match &rest[end..unit] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 0.001,
                "us" | "µs" => 0.000_001,
                "ns" => 0.000_000_001,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    let whole = Duration::try_from_secs_f64(seconds.floor().max(1.0)).ok()?;
    (!text.is_empty()).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schedule: &str, after: &str, expected: &str) {
        let parsed = Schedule::parse(schedule, TimeZone::UTC).unwrap();
        let next = parsed.next(after.parse().unwrap()).map(|next| next.to_string());
        assert_eq!(next.as_deref(), (!expected.is_empty()).then_some(expected), "{schedule} after {after}");
    }

    #[test]
    fn finds_the_next_time() {
        check("* * * * *", "2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z");
        check("*/15 3 * * *", "2026-01-01T03:45:00Z", "2026-01-02T03:00:00Z");
        check("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z");
        check("30 8 * * MON-FRI", "2026-11-20T09:00:00Z", "2026-11-23T08:30:00Z");
        check("0 0 13 * 5", "2026-11-01T00:00:00Z", "2026-11-06T00:00:00Z");
        check("5/20 * * * *", "2026-01-01T00:06:00Z", "2026-01-01T00:25:00Z");
        check("59 23 31 2 *", "2026-01-01T00:00:00Z", "");
        check("@every 90s", "2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z");
        check("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
    }

    #[test]
    fn knows_time_zones() {
        let zone = TimeZone::fixed(jiff::tz::offset(5));
        let daily = Schedule::parse("0 6 * * *", zone).unwrap();
        let next = daily.next("2026-01-01T00:30:00Z".parse().unwrap()).unwrap();
        assert_eq!(next.to_string(), "2026-01-01T01:00:00Z");
    }

    #[test]
    fn finds_the_last_of_many_missed_times() {
        let last = |schedule: &str, since: &str, now: &str| {
            let parsed = Schedule::parse(schedule, TimeZone::UTC).unwrap();
            parsed.last(since.parse().unwrap(), now.parse().unwrap()).map(|last| last.to_string())
        };
        let since = "2026-01-01T00:00:00Z";
        assert_eq!(last("@hourly", since, "2026-01-01T00:59:00Z"), None);
        assert_eq!(last("@hourly", since, "2026-01-01T01:59:00Z").as_deref(), Some("2026-01-01T01:00:00Z"));
        assert_eq!(last("@hourly", since, "2026-01-01T02:00:00Z").as_deref(), Some("2026-01-01T02:00:00Z"));
        assert_eq!(last("* * * * *", since, "2029-01-01T00:00:30Z").as_deref(), Some("2029-01-01T00:00:00Z"));
        assert_eq!(last("@every 2s", since, "2026-01-01T00:00:05Z").as_deref(), Some("2026-01-01T00:00:04Z"));
    }

    #[test]
    fn an_invalid_schedule_has_no_times() {
        for nonsense in ["", "* * * *", "61 * * * *", "a * * * *", "*/0 * * * *", "@never", "@every x", "5-1 * * * *"] {
            assert_eq!(Schedule::parse(nonsense, TimeZone::UTC), None, "{nonsense}");
        }
    }
}
