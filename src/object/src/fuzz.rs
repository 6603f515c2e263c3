//! Fuzz targets for parsers of untrusted input. Each accepts any bytes, ends soon, does not panic, and checks an
//! invariant.

use jiff::{Timestamp, tz::TimeZone};

use crate::cron::Cron;

/// Times near which schedules are checked, in seconds since 1970.
const MOMENTS: [i64; 3] = [0, 951_782_400, 4_102_444_799];

/// Parses a cron expression in UTC, and checks that its times are in order.
pub fn cron(bytes: &[u8]) {
    let Ok(cron) = Cron::parse(&String::from_utf8_lossy(bytes), TimeZone::UTC) else { return };
    for now in MOMENTS.into_iter().filter_map(|second| Timestamp::from_second(second).ok()) {
        assert!(cron.next(now).is_none_or(|next| next > now), "the next time is later");
        assert!(cron.previous(now).is_none_or(|previous| previous <= now), "the previous time is not");
    }
}
