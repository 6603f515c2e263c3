//! The marks of a time axis: whole minutes, hours or days, with their names in UTC.

use jiff::Timestamp;

/// Maximum number of marks.
const MOST: i64 = 4;
/// The distance of a mark from the right end below which it is omitted, as a part of the width. The name `now` is there.
const MARGIN: i64 = 16;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// The distances between marks, in seconds.
const STEPS: [i64; 19] = [
    1,
    5,
    15,
    30,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    4 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    30 * DAY,
    90 * DAY,
    365 * DAY,
];

/// A mark of the axis.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tick {
    /// Its place in units.
    pub(crate) at: i64,
    pub(crate) label: String,
}

/// Returns the marks of an axis of this width in units. An axis of several centuries has none.
pub(crate) fn ticks(begin: Timestamp, end: Timestamp, width: i64) -> Vec<Tick> {
    let (from, to) = (begin.as_second(), end.as_second());
    let whole = to - from;
    let step = STEPS.into_iter().find(|step| whole / step <= MOST);
    let Some(step) = step.filter(|_| whole > 0) else { return Vec::new() };
    let first = from.div_euclid(step) + 1;
    let last = to.div_euclid(step);
    let tick = |number: i64| {
        let second = number * step;
        let at = (second - from) * width / whole;
        let label = Timestamp::from_second(second).ok()?.strftime(format_of(second, step)).to_string();
        (at <= width - width / MARGIN).then_some(Tick { at, label })
    };
    (first..=last).filter_map(tick).collect()
}

/// Returns the format of the name of a mark: a day at midnight, and a time otherwise.
const fn format_of(second: i64, step: i64) -> &'static str {
    match step {
        _ if step >= 90 * DAY => "%b %Y",
        _ if second % DAY == 0 => "%b %-d",
        _ if step < MINUTE => "%H:%M:%S",
        _ => "%H:%M",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(begin: &str, end: &str, expected: &[(i64, &str)]) {
        let all = ticks(begin.parse().unwrap(), end.parse().unwrap(), 1000);
        let all: Vec<(i64, &str)> = all.iter().map(|tick| (tick.at, tick.label.as_str())).collect();
        assert_eq!(all, expected, "{begin} {end}");
    }

    #[test]
    fn marks_are_whole_units_of_time_and_leave_room_for_the_right_end() {
        check(
            "2030-01-01T10:00:00Z",
            "2030-01-01T10:01:00Z",
            &[(250, "10:00:15"), (500, "10:00:30"), (750, "10:00:45")],
        );
        check(
            "2030-01-01T22:30:00Z",
            "2030-01-02T02:30:00Z",
            &[(125, "23:00"), (375, "Jan 2"), (625, "01:00"), (875, "02:00")],
        );
        check(
            "2030-01-01T12:00:00Z",
            "2030-01-05T12:00:00Z",
            &[(125, "Jan 2"), (375, "Jan 3"), (625, "Jan 4"), (875, "Jan 5")],
        );
        check("2030-01-01T09:00:00Z", "2030-01-01T11:01:00Z", &[(247, "09:30"), (495, "10:00"), (743, "10:30")]);
    }

    #[test]
    fn an_axis_of_any_length_has_few_marks_within_its_width() {
        let now = Timestamp::from_second(1_900_000_000).unwrap();
        let mut seconds = 1_i64;
        while let Ok(begin) = Timestamp::from_second(now.as_second() - seconds) {
            let all = ticks(begin, now, 1000);
            assert!(all.len() <= 5, "{seconds}: {all:?}");
            assert!(all.iter().all(|tick| (0..=1000).contains(&tick.at)), "{seconds}: {all:?}");
            seconds = seconds * 3 / 2 + 1;
        }
        assert!(ticks(now, now, 1000).is_empty());
        assert!(ticks(now, Timestamp::UNIX_EPOCH, 1000).is_empty());
        assert!(ticks(Timestamp::MIN, Timestamp::MAX, 1000).is_empty());
    }
}
