//! Readers of hostile input, for a fuzzer: each takes any bytes, ends soon, does not panic, and keeps its promise.
//!
//! Built by `cargo fuzz`, which sets `cfg(fuzzing)`, and for the tests, which feed every one of them with random bytes.

use jiff::{Timestamp, tz::TimeZone};

use crate::gitsync::cron::Cron;

pub use crate::receiver::fuzz::receiver_body;
pub use crate::source::fuzz::{known_hosts, pkt_line, ssh_key, url};

/// The moments around which times are asked for, in seconds since 1970.
const MOMENTS: [i64; 3] = [0, 951_782_400, 4_102_444_799];

/// A cron line in UTC: its times are in order.
pub fn cron(bytes: &[u8]) {
    let Ok(cron) = Cron::parse(&String::from_utf8_lossy(bytes), TimeZone::UTC) else { return };
    for now in MOMENTS.into_iter().filter_map(|second| Timestamp::from_second(second).ok()) {
        assert!(cron.next(now).is_none_or(|next| next > now), "the next time is later");
        assert!(cron.previous(now).is_none_or(|previous| previous <= now), "the previous time is not");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_reader_takes_any_bytes(bytes: Vec<u8>, text: String) {
            for bytes in [&bytes[..], text.as_bytes()] {
                for read in [super::cron, super::known_hosts, super::pkt_line, super::receiver_body, super::ssh_key, super::url] {
                    read(bytes);
                }
            }
        }
    }
}
