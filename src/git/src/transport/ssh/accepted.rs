//! The accepted host keys, for display.
//!
//! Invariant: these keys are only displayed, never trusted.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Maximum number of remembered hosts.
const MOST: usize = 1000;

/// Fingerprint and type of the accepted key of each host. Clones share the keys.
#[derive(Clone, Debug, Default)]
pub(super) struct AcceptedKeys(Arc<Mutex<HashMap<String, String>>>);

impl AcceptedKeys {
    /// Records the accepted key of a host.
    pub(super) fn insert(&self, host: &str, fingerprint: String) {
        let mut all = self.0.lock();
        if all.len() >= MOST && !all.contains_key(host) {
            all.clear();
        }
        all.insert(host.to_owned(), fingerprint);
    }

    /// Returns the accepted key of a host.
    pub(super) fn of(&self, host: &str) -> Option<String> {
        self.0.lock().get(host).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_last_key_of_a_bounded_number_of_hosts() {
        let keys = AcceptedKeys::default();
        keys.insert("a", "1".to_owned());
        keys.insert("a", "2".to_owned());
        assert_eq!((keys.of("a").as_deref(), keys.of("b")), (Some("2"), None));
        for number in 0..2 * MOST {
            keys.insert(&number.to_string(), "x".to_owned());
        }
        assert!(keys.0.lock().len() <= MOST);
    }
}
