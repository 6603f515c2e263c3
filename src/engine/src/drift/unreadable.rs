//! The states of objects that cannot be parsed and were announced.
//!
//! Invariant: a state is announced once while its watch runs, for a limited number of objects.

use std::collections::HashMap;

use mainstay_object::Key;

/// Maximum number of recorded objects. The states of others are announced whenever a list shows them.
const MOST: usize = 1000;

/// The announced states: the resource versions of the objects.
#[derive(Debug, Default)]
pub(super) struct Unreadable(HashMap<Key, Box<str>>);

impl Unreadable {
    /// Records the state of an object with this resource version. Returns whether it was not recorded yet.
    pub(super) fn is_new(&mut self, key: &Key, version: &str) -> bool {
        if !version.is_empty() && self.0.get(key).is_some_and(|known| **known == *version) {
            return false;
        }
        if self.0.len() < MOST || self.0.contains_key(key) {
            self.0.insert(key.clone(), version.into());
        }
        true
    }

    /// Forgets an object that is gone or can be parsed.
    pub(super) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_is_new_once() {
        let (mut unreadable, key) = (Unreadable::default(), Key::new("", "ConfigMap", Some("shop"), "a"));
        let mut news = |versions: [&str; 3]| versions.map(|version| unreadable.is_new(&key, version));
        assert_eq!(news(["5", "5", "6"]), [true, false, true]);
        assert_eq!(news(["", "", "6"]), [true, true, true], "an unknown version is always new");
        unreadable.forget(&key);
        assert!(unreadable.is_new(&key, "6"));
    }

    #[test]
    fn the_number_of_recorded_objects_is_limited() {
        let mut unreadable = Unreadable::default();
        for number in 0..=MOST {
            let key = Key::new("", "ConfigMap", Some("shop"), number.to_string());
            assert!(unreadable.is_new(&key, "5"));
        }
        assert_eq!(unreadable.0.len(), MOST);
    }
}
