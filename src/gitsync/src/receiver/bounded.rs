//! A list in a payload. Only its beginning is kept.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

/// Maximum number of items that are kept.
pub(super) const MOST: usize = 500;

/// The first items of a list, and whether it had more.
#[derive(Debug)]
pub(super) struct Bounded<T> {
    pub(super) items: Vec<T>,
    pub(super) is_cut: bool,
}

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self { items: Vec::new(), is_cut: false }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Bounded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

struct Items<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
    type Value = Bounded<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Bounded<T>, A::Error> {
        let mut kept = Bounded::default();
        while kept.items.len() < MOST {
            let Some(item) = list.next_element()? else { return Ok(kept) };
            kept.items.push(item);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            kept.is_cut = true;
        }
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_beginning_of_a_long_list() {
        let read = |length: usize| serde_json::from_str::<Bounded<u8>>(&format!("[{}0]", "0,".repeat(length - 1)));
        let kept = |length| read(length).map(|list| (list.items.len(), list.is_cut)).unwrap();
        assert_eq!(kept(3), (3, false));
        assert_eq!(kept(MOST), (MOST, false));
        assert_eq!(kept(100_000), (MOST, true));
        assert!(serde_json::from_str::<Bounded<u8>>("{}").is_err());
    }
}
