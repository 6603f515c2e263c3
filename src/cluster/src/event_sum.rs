//! Sums up an Event about several objects: `15 objects pruned: ConfigMap a, ConfigMap b and 13 more`.
//!
//! Invariant: memory is bounded.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Maximum number of objects that the note lists.
const NAMED: usize = 10;
/// Maximum number of counted objects; the note says "over" if there are more.
const COUNTED: usize = 2048;

/// The objects of an Event.
#[derive(Default)]
pub(super) struct Sum {
    named: Vec<String>,
    counted: HashSet<u64>,
    is_more: bool,
}

impl Sum {
    pub(super) fn add(&mut self, object: &str) {
        let mut hasher = DefaultHasher::new();
        object.hash(&mut hasher);
        if self.counted.len() >= COUNTED {
            self.is_more = true;
        } else if self.counted.insert(hasher.finish()) && self.named.len() < NAMED {
            self.named.push(object.to_owned());
        }
    }

    /// Whether this is the only object.
    pub(super) fn is_only(&self, object: &str) -> bool {
        self.counted.len() == 1 && self.named.first().is_some_and(|named| named == object)
    }

    pub(super) fn is_several(&self) -> bool {
        self.counted.len() > 1
    }

    /// Returns the note of the Event; `note` is the text about each object.
    pub(super) fn note<'n>(&self, note: &'n str) -> Cow<'n, str> {
        let names = self.named.join(", ");
        match self.counted.len() {
            0 => Cow::Borrowed(note),
            1 => Cow::Owned(format!("{names}: {note}")),
            count => {
                let over = if self.is_more { "over " } else { "" };
                let more = match count.saturating_sub(self.named.len()) {
                    0 => String::new(),
                    more => format!(" and {over}{more} more"),
                };
                Cow::Owned(format!("{over}{count} objects {note}: {names}{more}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(objects: usize) -> String {
        let mut sum = Sum::default();
        for object in 0..objects {
            sum.add(&format!("ConfigMap {object}"));
            sum.add(&format!("ConfigMap {object}"));
        }
        sum.note("pruned").into_owned()
    }

    #[test]
    fn several_objects_are_counted_and_the_first_are_named() {
        assert_eq!(note(0), "pruned");
        assert_eq!(note(1), "ConfigMap 0: pruned");
        assert_eq!(note(2), "2 objects pruned: ConfigMap 0, ConfigMap 1");
        let many = note(500);
        assert!(many.starts_with("500 objects pruned: ConfigMap 0, "), "{many}");
        assert!(many.ends_with(", ConfigMap 9 and 490 more"), "{many}");
        assert!(note(COUNTED + 1).starts_with("over 2048 objects pruned: "));
    }
}
