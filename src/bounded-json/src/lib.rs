//! Reads JSON that others send: a text becomes a value only after all of it was counted.
//!
//! The memory that a text takes once it is read follows from its values, not from its bytes: `0,` has two bytes and takes 32,
//! and `{"":0},` has seven and takes 700. So [`Bounds`] count what a tree of the text would hold, and refuse it before anything
//! is kept.
//!
//! Invariant: counting keeps nothing of a text and takes time in proportion to its bytes.
//! Invariant: a text within [`Bounds`] takes at most [`EACH`] bytes of memory for each value that they allow, besides its bytes.
//!
//! Deliberately absent: reading from a connection; whoever does that has bounds on bytes and time.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

use serde::Deserialize;

/// The deepest nesting that `serde_json` reads, in levels.
pub const DEPTH: usize = 128;
/// Memory that a value takes at most, in bytes: lists grow by doubling.
pub const EACH: usize = 64;
/// An object with members takes as much memory as so many values more.
const OBJECT: usize = 8;

/// Bounds of a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes.
    pub bytes: usize,
    /// Values, names of members, and eight more for each object that has any.
    pub values: usize,
    /// Levels of nesting.
    pub depth: usize,
}

/// Why a text is not read. It quotes nothing of the text.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It is too long.
    #[error("the JSON has more than {0} bytes")]
    TooLong(usize),
    /// It has too many values.
    #[error("the JSON has more than {0} values")]
    TooManyValues(usize),
    /// It is nested too deep.
    #[error("the JSON is nested deeper than {0} levels")]
    TooDeep(usize),
    /// It is no JSON, or none of this type.
    #[error("the JSON cannot be read")]
    Malformed(#[source] serde_json::Error),
}

impl Bounds {
    /// Bounds with the usual depth.
    #[must_use]
    pub const fn new(bytes: usize, values: usize) -> Self {
        Self { bytes, values, depth: DEPTH }
    }

    /// Reads a text.
    ///
    /// # Errors
    /// If it is out of bounds, or no JSON of this type.
    pub fn read<'t, T: Deserialize<'t>>(self, text: &'t [u8]) -> Result<T, Unreadable> {
        self.check(text)?;
        serde_json::from_slice(text).map_err(Unreadable::Malformed)
    }

    /// Refuses a text that is out of bounds.
    ///
    /// # Errors
    /// If it is.
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

/// What a JSON text has. Of a text that is no JSON it is what the beginning of it may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    values: usize,
    members: usize,
    /// Objects that have members.
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

    /// What is skipped is not bounded by the parser.
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
