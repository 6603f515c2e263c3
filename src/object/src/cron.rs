//! Standard cron expressions: computes times from five fields in a time zone.
//!
//! The fields have the meaning of Vixie's cron and of CronJobs. Sunday is 0 or 7. If both the day of the month and the
//! day of the week are restricted, a day matches if either does. The `cron` crate differs: it has six fields, days of
//! the week from 1, and both must match. It is used here for local times without a zone. A time that the clock skips in
//! spring moves forward by the skipped time (02:30 becomes 03:30). If a time occurs twice in autumn, only the first one
//! counts.
//!
//! Not here: seconds, years, `L`, `W`, `#`, `?`, `@every` and `TZ=` prefixes.

use std::collections::BTreeSet;
use std::str::FromStr;

use jiff::civil;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Unit};

/// Maximum length of an expression, in bytes.
const LONGEST: usize = 200;
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A field: its name, its range, and the names of its values.
struct Field {
    name: &'static str,
    first: u8,
    last: u8,
    names: &'static [&'static str],
}

const MINUTE: Field = Field { name: "minute", first: 0, last: 59, names: &[] };
const HOUR: Field = Field { name: "hour", first: 0, last: 23, names: &[] };
const DAY: Field = Field { name: "day of the month", first: 1, last: 31, names: &[] };
const MONTH: Field = Field { name: "month", first: 1, last: 12, names: &MONTHS };
const WEEKDAY: Field = Field { name: "day of the week", first: 0, last: 7, names: &DAYS };

/// A cron expression in a time zone.
#[derive(Clone, Debug, PartialEq)]
pub struct Cron {
    /// One schedule, or two if a time needs to match only one of them.
    schedules: Vec<cron::Schedule>,
    zone: TimeZone,
}

impl Cron {
    /// Parses five fields, or one of `@hourly`, `@daily`, `@midnight`, `@weekly`, `@monthly`, `@yearly`, `@annually`.
    ///
    /// # Errors
    /// The invalid field, and the allowed values.
    pub fn parse(expression: &str, zone: TimeZone) -> Result<Self, String> {
        if expression.len() > LONGEST {
            return Err(format!("it has {} bytes; at most {LONGEST} are read", expression.len()));
        }
        let written = expression.trim();
        let expanded = match written {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            other => other,
        };
        if written.starts_with("TZ=") || written.starts_with("CRON_TZ=") {
            return Err("set the time zone in the field timeZone, not in the expression".to_owned());
        }
        if expanded.starts_with('@') {
            return Err("the supported names with @ are @hourly, @daily, @weekly, @monthly and @yearly".to_owned());
        }
        let fields = expanded.split_ascii_whitespace().collect::<Vec<_>>();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(format!(
                "it has {} fields; write five: minute, hour, day of the month, month, day of the week",
                fields.len()
            ));
        };
        let (minutes, hours) = (MINUTE.values(minute)?, HOUR.values(hour)?);
        let (days, months) = (DAY.values(day)?, MONTH.values(month)?);
        // The crate numbers days from Sunday = 1.
        let weekdays = WEEKDAY.values(weekday)?.into_iter().map(|day| day % 7 + 1).collect::<BTreeSet<_>>();
        let schedule = |days: &str, weekdays: &str| {
            let text = format!("0 {} {} {days} {} {weekdays}", list(&minutes), list(&hours), list(&months));
            cron::Schedule::from_str(&text).map_err(|_| format!("{written:?} is not a cron expression"))
        };
        let (days, weekdays) = (list(&days), list(&weekdays));
        let schedules = match (day.starts_with('*'), weekday.starts_with('*')) {
            (false, false) => vec![schedule(&days, "*")?, schedule("*", &weekdays)?],
            _ => vec![schedule(&days, &weekdays)?],
        };
        let cron = Self { schedules, zone };
        if cron.next(Timestamp::UNIX_EPOCH).is_none() {
            return Err("no day matches".to_owned());
        }
        Ok(cron)
    }

    /// Returns the first time after `now`.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let begin = self.clock(now - self.slack(now));
        let of = |schedule: &cron::Schedule| {
            schedule.after(&begin).map_while(|time| self.instant(time)).find(|instant| *instant > now)
        };
        self.schedules.iter().filter_map(of).min()
    }

    /// Returns the last time at or before `now`.
    pub fn previous(&self, now: Timestamp) -> Option<Timestamp> {
        let begin = self.clock(now + self.slack(now) + SignedDuration::from_secs(1));
        let of = |schedule: &cron::Schedule| {
            schedule.after(&begin).rev().map_while(|time| self.instant(time)).find(|instant| *instant <= now)
        };
        self.schedules.iter().filter_map(of).max()
    }

    /// Returns how far from `now` local times may be out of order, because a skipped hour maps two local times to one
    /// instant, and a repeated hour goes back. Zero unless the offset changes.
    fn slack(&self, now: Timestamp) -> SignedDuration {
        let around = SignedDuration::from_hours(3);
        let offset = |at: Timestamp| self.zone.to_offset(at);
        let changes = offset(now - around) != offset(now) || offset(now) != offset(now + around);
        if changes { around } else { SignedDuration::ZERO }
    }

    /// Returns the local time of an instant in the form that the crate expects: as if it were UTC.
    fn clock(&self, at: Timestamp) -> chrono::DateTime<chrono::Utc> {
        let shown = self.zone.to_datetime(at).to_zoned(TimeZone::UTC);
        let seconds = shown.map_or(at, |shown| shown.timestamp()).as_second();
        chrono::DateTime::from_timestamp(seconds, 0).unwrap_or_default()
    }

    fn instant(&self, time: chrono::DateTime<chrono::Utc>) -> Option<Timestamp> {
        let shown: civil::DateTime = TimeZone::UTC.to_datetime(Timestamp::from_second(time.timestamp()).ok()?);
        let zoned = self.zone.to_ambiguous_zoned(shown).compatible().ok()?;
        zoned.timestamp().round(Unit::Second).ok()
    }
}

impl Field {
    /// Parses the values of a field.
    fn values(&self, text: &str) -> Result<BTreeSet<u8>, String> {
        let mut values = BTreeSet::new();
        for part in text.split(',') {
            let (range, step) = match part.split_once('/') {
                Some((range, step)) => (range, Some(self.step(step, text)?)),
                None => (part, None),
            };
            let (first, last) = match range.split_once('-') {
                _ if range == "*" => (self.first, self.last),
                Some((first, last)) => (self.value(first, text)?, self.value(last, text)?),
                None => {
                    let first = self.value(range, text)?;
                    (first, if step.is_some() { self.last } else { first })
                }
            };
            if first > last {
                return Err(format!("{}: {range} in {text:?} ends before it begins", self.name));
            }
            values.extend((first..=last).step_by(usize::from(step.unwrap_or(1))));
        }
        Ok(values)
    }

    fn value(&self, word: &str, text: &str) -> Result<u8, String> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(word));
        let named = named.and_then(|at| u8::try_from(at).ok()).map(|at| at + self.first);
        let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        let value = named.or_else(|| if is_number { word.parse().ok() } else { None });
        value.filter(|value| (self.first..=self.last).contains(value)).ok_or_else(|| {
            let names = match (self.names.first(), self.names.last()) {
                (Some(first), Some(last)) => format!(" or {first} to {last}"),
                _ => String::new(),
            };
            format!("{}: {word:?} in {text:?} is not one of {} to {}{names}", self.name, self.first, self.last)
        })
    }

    fn step(&self, word: &str, text: &str) -> Result<u8, String> {
        let step = word.parse().ok().filter(|step| *step > 0 && !word.starts_with('+'));
        step.ok_or_else(|| format!("{}: the step {word:?} in {text:?} is not a number from 1 on", self.name))
    }
}

fn list(values: &BTreeSet<u8>) -> String {
    values.iter().map(u8::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cron(expression: &str, zone: &str) -> Cron {
        Cron::parse(expression, TimeZone::get(zone).unwrap()).unwrap()
    }

    /// Returns the next `count` times after `from`, in the zone.
    fn after(expression: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let (cron, mut at) = (cron(expression, zone), from.parse::<Timestamp>().unwrap());
        let mut all = Vec::new();
        for _ in 0..count {
            let next = cron.next(at).unwrap();
            assert_eq!(cron.previous(next), Some(next), "{expression}");
            assert!(cron.previous(next - SignedDuration::from_secs(1)).unwrap() < next, "{expression}");
            all.push(next.to_zoned(cron.zone.clone()).strftime("%a %F %T %z").to_string());
            at = next;
        }
        all
    }

    #[test]
    fn sunday_is_0_and_7_and_monday_is_1() {
        for expression in ["0 9 * * 0", "0 9 * * 7", "0 9 * * sun", "0 9 * * SUN"] {
            assert_eq!(after(expression, "UTC", "2026-11-16T00:00:00Z", 1), ["Sun 2026-11-22 09:00:00 +0000"]);
        }
        assert_eq!(after("0 9 * * 1", "UTC", "2026-11-22T00:00:00Z", 1), ["Mon 2026-11-23 09:00:00 +0000"]);
        let weekend = after("0 0 * * 5-7", "UTC", "2026-11-18T00:00:00Z", 4);
        assert_eq!(weekend.iter().map(|day| &day[..3]).collect::<Vec<_>>(), ["Fri", "Sat", "Sun", "Fri"]);
    }

    #[test]
    fn a_restricted_day_of_the_month_or_of_the_week_counts() {
        let either = after("0 0 13 * 5", "UTC", "2026-11-01T00:00:00Z", 4);
        let expected = ["Fri 2026-11-06", "Fri 2026-11-13", "Fri 2026-11-20", "Fri 2026-11-27"];
        assert_eq!(either.iter().map(|day| &day[..14]).collect::<Vec<_>>(), expected);
        let either = after("0 0 1 * mon", "UTC", "2026-11-24T00:00:00Z", 3);
        assert_eq!(
            either.iter().map(|day| &day[..14]).collect::<Vec<_>>(),
            ["Mon 2026-11-30", "Tue 2026-12-01", "Mon 2026-12-07"]
        );
        // If a star has a step, both fields must match, as in Vixie's cron.
        let both = after("0 0 */2 * mon", "UTC", "2026-11-01T00:00:00Z", 2);
        assert_eq!(both, ["Mon 2026-11-09 00:00:00 +0000", "Mon 2026-11-23 00:00:00 +0000"]);
    }

    #[test]
    fn steps_lists_ranges_and_names_are_read() {
        let times = after("5/20,50 8-10/2 * jan-mar,12 *", "UTC", "2026-03-31T10:30:00Z", 4);
        let expected = [
            "Tue 2026-03-31 10:45:00",
            "Tue 2026-03-31 10:50:00",
            "Tue 2026-12-01 08:05:00",
            "Tue 2026-12-01 08:25:00",
        ];
        assert_eq!(times.iter().map(|time| &time[..23]).collect::<Vec<_>>(), expected);
        assert_eq!(after("@weekly", "UTC", "2026-11-16T00:00:00Z", 1), ["Sun 2026-11-22 00:00:00 +0000"]);
    }

    #[test]
    fn a_time_that_the_clock_skips_comes_an_hour_later() {
        // Berlin skips 02:00 to 03:00 on 2027-03-28.
        let times = after("30 2 * * *", "Europe/Berlin", "2027-03-27T00:00:00Z", 3);
        let expected =
            ["Sat 2027-03-27 02:30:00 +0100", "Sun 2027-03-28 03:30:00 +0200", "Mon 2027-03-29 02:30:00 +0200"];
        assert_eq!(times, expected);
        let opens = after("0 22 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z", 2);
        assert_eq!(opens, ["Sat 2027-03-27 22:00:00 +0100", "Sun 2027-03-28 22:00:00 +0200"]);
    }

    #[test]
    fn a_time_that_the_clock_shows_twice_comes_once() {
        // Berlin repeats 02:00 to 03:00 on 2026-10-25.
        let times = after("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
        assert_eq!(times, ["Sun 2026-10-25 02:30:00 +0200", "Mon 2026-10-26 02:30:00 +0100"]);
        let hours = after("0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", 3);
        assert_eq!(
            hours,
            ["Sun 2026-10-25 02:00:00 +0200", "Sun 2026-10-25 03:00:00 +0100", "Sun 2026-10-25 04:00:00 +0100"]
        );
    }

    #[test]
    fn wrong_expressions_say_which_field_and_what_is_allowed() {
        let refused = |text: &str| Cron::parse(text, TimeZone::UTC).unwrap_err();
        assert_eq!(
            refused("0 0 9 * * 1"),
            "it has 6 fields; write five: minute, hour, day of the month, month, day of the week"
        );
        assert_eq!(refused("60 * * * *"), "minute: \"60\" in \"60\" is not one of 0 to 59");
        assert_eq!(refused("0 5-1 * * *"), "hour: 5-1 in \"5-1\" ends before it begins");
        assert_eq!(refused("0 0 L * *"), "day of the month: \"L\" in \"L\" is not one of 1 to 31");
        assert_eq!(refused("0 0 * 13 *"), "month: \"13\" in \"13\" is not one of 1 to 12 or jan to dec");
        assert_eq!(refused("0 0 * * 5#2"), "day of the week: \"5#2\" in \"5#2\" is not one of 0 to 7 or sun to sat");
        assert_eq!(refused("*/0 * * * *"), "minute: the step \"0\" in \"*/0\" is not a number from 1 on");
        assert_eq!(refused("0 0 31 2 *"), "no day matches");
        assert_eq!(refused("TZ=UTC 0 0 * * *"), "set the time zone in the field timeZone, not in the expression");
        for hostile in [
            "",
            "*",
            "@every 1s",
            "1,,2 * * * *",
            "-1 * * * *",
            "+1 * * * *",
            "1- * * * *",
            "*/ * * * *",
            "0 0 * * * \u{0}",
            "１ * * * *",
            &"1,".repeat(200),
        ] {
            refused(hostile);
        }
    }

    /// Generates a field of an expression, mostly a valid one.
    fn field() -> impl Strategy<Value = String> {
        let part = "(\\*|[0-9]{1,2}|[0-9]{1,2}-[0-9]{1,2})(/[0-9]{1,2})?|[A-Za-z]{3}|[#-/:-@]";
        proptest::collection::vec(part, 1..4).prop_map(|parts| parts.join(","))
    }

    proptest! {
        #[test]
        fn reads_any_line_without_panic_and_its_times_are_in_order(
            fields in proptest::collection::vec(field(), 4..7), noise in "\\PC{0,3}", at in 0i64..4_000_000_000,
        ) {
            let now = Timestamp::from_second(at).unwrap();
            let _ = Cron::parse(&format!("{noise}{}", fields.join(" ")), TimeZone::UTC);
            if let Ok(cron) = Cron::parse(&fields.join(" "), TimeZone::UTC) {
                prop_assert!(cron.next(now).is_none_or(|next| next > now));
                prop_assert!(cron.previous(now).is_none_or(|previous| previous <= now));
            }
        }
    }
}
