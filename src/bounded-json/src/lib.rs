//! Reads untrusted JSON within bounds: a text is parsed only after its size in memory was counted.
//!
//! The memory of a parsed text depends on its values, not on its bytes: `0,` has two bytes and takes 32, and `{"":0},`
//! has seven and takes 700. [`Bounds`] therefore counts the values of a text, and refuses the text before anything is
//! allocated.
//!
//! Invariant: counting allocates nothing and takes time in proportion to the bytes of the text.
//! Invariant: a text within [`Bounds`] takes at most [`EACH`] bytes of memory for each allowed value, in addition to
//! the bytes of the text.
//!
//! Not here: reading from a connection. The caller bounds the bytes and the time.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

use serde::Deserialize;

/// The deepest nesting that `serde_json` reads, in levels.
pub const DEPTH: usize = 128;
/// Maximum memory of one value, in bytes. Lists grow by doubling.
pub const EACH: usize = 64;
/// Number of values that an object with members counts as, in addition to its members, because it takes more memory.
const OBJECT: usize = 8;

/// Bounds of a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of bytes.
    pub bytes: usize,
    /// Maximum number of values. A member's name counts as a value, and an object with members as eight more.
    pub values: usize,
    /// Maximum levels of nesting.
    pub depth: usize,
}

/// Error of a text that is not read. The error quotes no part of the text.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The text is too long.
    #[error("the JSON has more than {0} bytes")]
    TooLong(usize),
    /// The text has too many values.
    #[error("the JSON has more than {0} values")]
    TooManyValues(usize),
    /// The text is nested too deep.
    #[error("the JSON is nested deeper than {0} levels")]
    TooDeep(usize),
    /// The text is not JSON, or not of the requested type.
    #[error("the JSON cannot be read")]
    Malformed(#[source] serde_json::Error),
}

impl Bounds {
    /// Returns bounds with the depth `DEPTH`.
    #[must_use]
    pub const fn new(bytes: usize, values: usize) -> Self {
        Self { bytes, values, depth: DEPTH }
    }

    /// Parses a text as `T`.
    ///
    /// # Errors
    /// If the text is out of bounds, or is not JSON of this type.
    pub fn read<'t, T: Deserialize<'t>>(self, text: &'t [u8]) -> Result<T, Unreadable> {
        self.check(text)?;
        serde_json::from_slice(text).map_err(Unreadable::Malformed)
    }

    /// Checks the bounds of a text without parsing it.
    ///
    /// # Errors
    /// If the text is out of bounds.
    pub fn check(self, text: &[u8]) -> Result<(), Unreadable> {
        if text.len() > self.bytes {
            return Err(Unreadable::TooLong(self.bytes));
        }
        let count = Count::of(text);
        if count.depth > self.depth {
            return Err(Unreadable::TooDeep(self.depth));
        }
        if count.weight() > self.values {
            return Err(Unreadable::TooManyValues(self.values));
        }
        Ok(())
    }
}

/// Counts of a JSON text. For malformed JSON, they are estimates for the part that a parser may read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    values: usize,
    members: usize,
    /// Number of objects that have members.
    objects: usize,
    depth: usize,
}

impl Count {
    fn of(text: &[u8]) -> Self {
        let mut count = Self { values: 1, ..Self::default() };
        let (mut depth, mut in_string, mut escaped, mut opened) = (0_usize, false, false, false);
        for byte in text {
            if in_string {
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' => escaped = true,
                    b'"' => in_string = false,
                    _ => {}
                }
                continue;
            }
            if byte.is_ascii_whitespace() {
                continue;
            }
            count.objects += usize::from(std::mem::take(&mut opened) && *byte != b'}');
            match byte {
                b'"' => in_string = true,
                b',' => count.values += 1,
                b':' => count.members += 1,
                b'[' | b'{' => {
                    count.values += 1;
                    depth += 1;
                    count.depth = count.depth.max(depth);
                    opened = *byte == b'{';
                }
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        count
    }

    fn weight(self) -> usize {
        self.values + self.members + OBJECT * self.objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn weight(text: &str) -> usize {
        Count::of(text.as_bytes()).weight()
    }

    #[test]
    fn strings_are_one_value_each_whatever_they_hold() {
        assert_eq!(weight(&json!("[,]{:}\\\"".repeat(1000)).to_string()), 1);
        assert_eq!(weight(r#"{"a": [1, 2], "b": "x,y:[{\"z\",\\"}"#), 1 + 1 + 1 + 1 + 1 + 2 + 8);
    }

    #[test]
    fn an_object_without_members_weighs_as_little_as_any_value() {
        assert_eq!((weight("{}"), weight("{ \n}"), weight("[]")), (2, 2, 2));
        assert_eq!(weight(r#"{"":0}"#), 11);
    }

    #[test]
    fn texts_are_refused_before_they_are_read() {
        let bounds = Bounds { bytes: 1000, values: 100, depth: 8 };
        let why = |text: &str| bounds.read::<Value>(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(why(&format!("\"{}\"", "x".repeat(1000))), "the JSON has more than 1000 bytes");
        assert_eq!(why(&format!("[{}0]", "0,".repeat(200))), "the JSON has more than 100 values");
        assert_eq!(why(&format!("[{}0]", r#"{"":0},"#.repeat(20))), "the JSON has more than 100 values");
        assert_eq!(why(&"[".repeat(9)), "the JSON is nested deeper than 8 levels");
        assert_eq!(why("hunter2"), "the JSON cannot be read");
        assert_eq!(bounds.read::<Vec<u8>>(b"[1, 2]").unwrap(), [1, 2]);
    }

    /// The parser itself does not bound members that it skips.
    #[test]
    fn members_that_a_type_does_not_have_are_bounded_too() {
        #[derive(Debug, Deserialize)]
        struct Small {
            a: u8,
        }
        let deep = |depth: usize| format!(r#"{{"x": {}{}, "a": 1}}"#, "[".repeat(depth), "]".repeat(depth));
        let bounds = Bounds::new(10_000, 10_000);
        assert_eq!(bounds.read::<Small>(deep(DEPTH - 1).as_bytes()).unwrap().a, 1);
        assert!(matches!(bounds.read::<Small>(deep(DEPTH).as_bytes()), Err(Unreadable::TooDeep(DEPTH))));
    }
}
