//! Entry points for a fuzzer. Each accepts any bytes, terminates soon, does not panic, and checks its invariants.

pub use crate::managed::fuzz::inventory;

/// Parses a line of a watch and decides about its object.
pub fn watch_line(bytes: &[u8]) {
    if let Some(live) = mainstay_cluster::fuzz::watch_line(bytes) {
        crate::managed::fuzz::live_object(&live);
    }
}
