//! Reads CBOR: the part of it that signatures use.
//!
//! Invariant: the result is bounded: the depth is, lists and maps are, and nothing is reserved before it was read.

/// Maximum depth of lists, maps and tags.
const DEEPEST: usize = 8;
/// Maximum number of elements of a list or a map.
const MOST: u64 = 64;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    Integer(i64),
    Bytes(Vec<u8>),
    Text(String),
    List(Vec<Item>),
    /// Its keys are unique.
    Map(Vec<(Item, Item)>),
    Tag(u64, Box<Item>),
    /// A truth value, a number with a fraction, or nothing.
    Other,
}

impl Item {
    /// Reads a value without anything behind it. Values of unknown length are not supported.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let item = reader.item(0)?;
        reader.0.is_empty().then_some(item)
    }

    /// Returns the value of a map under a key.
    pub(super) fn get(&self, key: &Self) -> Option<&Self> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, length: u64) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    /// Returns the type of the next value, and its number or length.
    fn head(&mut self) -> Option<(u8, u64)> {
        let first = *self.take(1)?.first()?;
        let length = match first & 31 {
            small @ 0..=23 => return Some((first >> 5, u64::from(small))),
            24 => 1,
            25 => 2,
            26 => 4,
            27 => 8,
            _ => return None,
        };
        let number = self.take(length)?.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte));
        Some((first >> 5, number))
    }

    fn item(&mut self, depth: usize) -> Option<Item> {
        if depth > DEEPEST {
            return None;
        }
        let (kind, number) = self.head()?;
        match kind {
            0 => i64::try_from(number).ok().map(Item::Integer),
            1 => i64::try_from(number).ok().map(|number| Item::Integer(-1 - number)),
            2 => self.take(number).map(|bytes| Item::Bytes(bytes.to_vec())),
            3 => String::from_utf8(self.take(number)?.to_vec()).ok().map(Item::Text),
            4 if number <= MOST => (0..number).map(|_| self.item(depth + 1)).collect::<Option<_>>().map(Item::List),
            5 if number <= MOST => self.map(number, depth).map(Item::Map),
            6 => self.item(depth + 1).map(|item| Item::Tag(number, Box::new(item))),
            7 => Some(Item::Other),
            _ => None,
        }
    }

    fn map(&mut self, count: u64, depth: usize) -> Option<Vec<(Item, Item)>> {
        let mut entries: Vec<(Item, Item)> = Vec::new();
        for _ in 0..count {
            let (key, value) = (self.item(depth + 1)?, self.item(depth + 1)?);
            if entries.iter().any(|(known, _)| *known == key) {
                return None;
            }
            entries.push((key, value));
        }
        Some(entries)
    }
}

/// Appends a text or bytes. `kind` is 3 for a text, and 2 for bytes.
fn append(to: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    let length = bytes.len() as u64;
    let be = length.to_be_bytes();
    match length {
        0..24 => to.push((kind << 5) | be[7]),
        24..0x100 => to.extend([(kind << 5) | 0x18, be[7]]),
        0x100..0x1_0000 => to.extend([(kind << 5) | 0x19, be[6], be[7]]),
        0x1_0000..0x1_0000_0000 => to.extend([&[(kind << 5) | 0x1a][..], &be[4..]].concat()),
        _ => to.extend([&[(kind << 5) | 0x1b][..], &be[..]].concat()),
    }
    to.extend_from_slice(bytes);
}

/// Returns the bytes that a signature of COSE with one signer covers.
pub(super) fn signed(protected: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x84];
    append(&mut bytes, 3, b"Signature1");
    append(&mut bytes, 2, protected);
    append(&mut bytes, 2, b"");
    append(&mut bytes, 2, payload);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_each_kind_of_value() {
        let read = |hex: &str| Item::read(&hex::decode(hex).unwrap());
        let text = |text: &str| Item::Text(text.to_owned());
        for (hex, item) in [
            ("17", Item::Integer(23)),
            ("1903e8", Item::Integer(1000)),
            ("3824", Item::Integer(-37)),
            ("43010203", Item::Bytes(vec![1, 2, 3])),
            ("6161", text("a")),
            ("820102", Item::List(vec![Item::Integer(1), Item::Integer(2)])),
            ("a1016161", Item::Map(vec![(Item::Integer(1), text("a"))])),
            ("c11a514b67b0", Item::Tag(1, Box::new(Item::Integer(1_363_896_240)))),
            ("f6", Item::Other),
            ("fb3ff199999999999a", Item::Other),
        ] {
            assert_eq!(read(hex), Some(item), "{hex}");
        }
        let map = read("a2016161026162").unwrap();
        assert_eq!(map.get(&Item::Integer(2)), Some(&text("b")));
        assert_eq!(map.get(&Item::Integer(3)), None);
    }

    #[test]
    fn refuses_values_that_are_not_bounded() {
        for (hex, why) in [
            ("", "nothing"),
            ("0101", "something behind it"),
            ("4301", "too short"),
            ("61ff", "not UTF-8"),
            ("9f01ff", "of unknown length"),
            ("1bffffffffffffffff", "a large number"),
            ("a201010102", "the same key twice"),
            ("5bffffffffffffffff00", "a large length"),
            ("9a0001000001", "a large list"),
        ] {
            assert_eq!(Item::read(&hex::decode(hex).unwrap()), None, "{why}");
        }
        let nested = |depth: usize| Item::read(&[vec![0x81; depth], vec![1]].concat());
        assert!(nested(DEEPEST).is_some() && nested(DEEPEST + 1).is_none() && nested(100_000).is_none());
        let list = |count: u8| Item::read(&[vec![0x98, count], vec![1; usize::from(count)]].concat());
        assert!(list(64).is_some() && list(65).is_none());
    }

    #[test]
    fn writes_lengths_in_the_shortest_form() {
        for length in [0, 23, 24, 255, 256, 65_535, 65_536] {
            let (mut written, bytes) = (Vec::new(), vec![7; length]);
            append(&mut written, 2, &bytes);
            assert_eq!(Item::read(&written), Some(Item::Bytes(bytes)));
        }
        assert_eq!(hex::encode(signed(b"ab", b"c")), "846a5369676e617475726531426162404163");
    }

    proptest! {
        #[test]
        fn reads_any_bytes_without_panic(bytes: Vec<u8>) {
            let _ = Item::read(&bytes);
        }
    }
}
