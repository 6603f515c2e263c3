//! The first list of a kind, in the order of age. If there is too little memory for all objects, the oldest are kept.
//!
//! Invariant: at most [`HELD`] bytes are held in memory. A longer list is read in portions, each in the order of age.

use serde_json::Value;

use jiff::Timestamp;

use super::kept::since_of;

/// Maximum total size in bytes of the objects that are held until the list is complete.
const HELD: usize = 8 << 20;

/// Objects of a list that is not complete yet, as JSON.
#[derive(Debug, Default)]
pub(super) struct Initial {
    objects: Vec<(Timestamp, Box<[u8]>)>,
    bytes: usize,
}

impl Initial {
    /// Holds an object. Returns whether there is memory for it.
    pub(super) fn add(&mut self, object: &Value) -> bool {
        let Ok(text) = serde_json::to_vec(object) else { return false };
        if self.bytes + text.len() > HELD {
            return false;
        }
        self.bytes += text.len();
        self.objects.push((since_of(object), text.into()));
        true
    }

    /// Returns all held objects, the oldest first. Objects that were created in the same second stay in the order of
    /// the list.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Value> + use<> {
        let mut objects = std::mem::take(self).objects;
        objects.sort_by_key(|(since, _)| *since);
        objects.into_iter().filter_map(|(_, text)| serde_json::from_slice(&text).ok())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, second: i64, text: &str) -> Value {
        let since = Timestamp::from_second(second).unwrap().to_string();
        json!({"metadata": {"name": name, "creationTimestamp": since}, "spec": text})
    }

    fn names(initial: &mut Initial) -> Vec<String> {
        initial.take().map(|value| value["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_oldest_of_a_list_comes_first_whatever_its_name() {
        let mut initial = Initial::default();
        for (name, second) in [("a", 30), ("b", 10), ("c", 10), ("d", 20)] {
            assert!(initial.add(&object(name, second, "")));
        }
        assert_eq!(names(&mut initial), ["b", "c", "d", "a"]);
        assert!(names(&mut initial).is_empty());
    }

    #[test]
    fn a_list_of_fat_objects_is_taken_in_by_portions() {
        let (mut initial, fat) = (Initial::default(), "x".repeat(HELD / 2));
        assert!(initial.add(&object("a", 2, &fat)) && !initial.add(&object("b", 1, &fat)));
        assert_eq!(names(&mut initial), ["a"]);
        assert!(initial.add(&object("b", 1, &fat)));
    }
}
