//! Readers of hostile input, for a fuzzer: each takes any bytes, ends soon, does not panic, and keeps its promise.

pub use crate::managed::fuzz::inventory;

/// Reads a line of a watch, and judges the object in it.
pub fn watch_line(bytes: &[u8]) {
    if let Some(live) = mainstay_cluster::fuzz::watch_line(bytes) {
        crate::managed::fuzz::live_object(&live);
    }
}
