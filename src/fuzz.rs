//! Readers of hostile input, for a fuzzer: each takes any bytes, ends soon, does not panic, and keeps its promise.
//!
//! Built by `cargo fuzz`, which sets `cfg(fuzzing)`, and for the tests, which feed every one of them with random bytes.

use jiff::{Timestamp, tz::TimeZone};

use crate::gitsync::cron::Cron;

pub use crate::cluster::fuzz::watch_line;
pub use crate::managed::fuzz::inventory;
pub use crate::manifest::fuzz::{ignore, manifest};
pub use crate::receiver::fuzz::receiver_body;
pub use crate::registry::fuzz::{docker_config, registry_answer};
pub use crate::source::fuzz::{known_hosts, pack, pkt_line, ssh_key, url};

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
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;
    use proptest::sample::Index;

    /// A target of `tests/fuzz`.
    type Target = (&'static str, fn(&[u8]));

    const TARGETS: [Target; 13] = [
        ("cron", super::cron),
        ("docker_config", super::docker_config),
        ("ignore", super::ignore),
        ("inventory", super::inventory),
        ("known_hosts", super::known_hosts),
        ("manifest", super::manifest),
        ("pack", super::pack),
        ("pkt_line", super::pkt_line),
        ("receiver_body", super::receiver_body),
        ("registry_answer", super::registry_answer),
        ("ssh_key", super::ssh_key),
        ("url", super::url),
        ("watch_line", super::watch_line),
    ];

    fn fuzz() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz"))
    }

    /// The inputs of a target that are kept.
    fn seeds(target: &str) -> Vec<Vec<u8>> {
        let files = fs::read_dir(fuzz().join("seeds").join(target)).into_iter().flatten();
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        files.iter().map(|file| fs::read(file).unwrap()).collect()
    }

    /// What becomes of an input by a change at a place: another byte, one more, one less, or the end.
    fn change(bytes: &mut Vec<u8>, (place, byte, how): (Index, u8, u8)) {
        if bytes.is_empty() {
            return bytes.push(byte);
        }
        let at = place.index(bytes.len());
        match how {
            0 => bytes[at] = byte,
            1 => bytes[at] ^= 1 << (byte % 8),
            2 => bytes.insert(at, byte),
            3 => drop(bytes.remove(at)),
            _ => bytes.truncate(at),
        }
    }

    #[test]
    fn every_target_is_built_and_has_inputs() {
        let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
        let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
        for (name, read) in TARGETS {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} in Cargo.toml");
            let target = fs::read_to_string(fuzz().join(format!("targets/{name}.rs"))).unwrap();
            assert!(target.contains(&format!("mainstay::fuzz::{name}(bytes)")), "{target}");
            assert!(readme.contains(&format!("`{name}`")), "{name} in the README");
            let seeds = seeds(name);
            assert!(!seeds.is_empty(), "{name}");
            for seed in seeds {
                read(&seed);
            }
        }
    }

    proptest! {
        #[test]
        fn every_reader_takes_any_bytes(bytes: Vec<u8>, text: String) {
            for bytes in [&bytes[..], text.as_bytes()] {
                for (_, read) in TARGETS {
                    read(bytes);
                }
            }
        }

        #[test]
        fn every_reader_takes_what_was_right_before_it_was_changed(
            seed: Index,
            changes in prop::collection::vec((any::<Index>(), any::<u8>(), 0..5_u8), 1..8),
        ) {
            for (name, read) in TARGETS {
                let seeds = seeds(name);
                let mut bytes = seeds[seed.index(seeds.len())].clone();
                for one in &changes {
                    change(&mut bytes, *one);
                }
                read(&bytes);
            }
        }
    }
}
