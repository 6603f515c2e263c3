//! JSON from publishers: the members of an object, and the nesting depth of a document.

use std::fmt;

use bounded_json::{Bounds, Unreadable};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Maximum nesting depth. It is the limit of `serde_json`, and lower than that of all Function runtimes.
pub(super) const DEPTH: usize = 128;
/// Maximum size of a body in bytes.
pub(super) const LONGEST: usize = 65_536;
/// Bounds of a body. Values of data and of attributes are not parsed at first, so neither their number nor their depth
/// costs memory.
pub(super) const BODY: Bounds = Bounds { bytes: LONGEST, values: usize::MAX, depth: usize::MAX };
/// Bounds of a string, a number or a boolean.
pub(super) const SCALAR: Bounds = Bounds { bytes: LONGEST, values: 1, depth: 1 };
/// Bounds of data that runtimes can read.
const DATA: Bounds = Bounds { bytes: LONGEST, values: usize::MAX, depth: DEPTH };

/// The members of an object with their unparsed values, including duplicates.
#[derive(Debug)]
pub(super) struct Members<'b>(pub(super) Vec<(String, &'b RawValue)>);

impl<'b> Members<'b> {
    /// # Errors
    /// Returns why the body is not an object.
    pub(super) fn read(body: &'b [u8]) -> Result<Self, String> {
        read(BODY, body)
    }
}

impl<'b> Deserialize<'b> for Members<'b> {
    fn deserialize<D: Deserializer<'b>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'b> Visitor<'b> for All {
            type Value = Members<'b>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'b>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(member) = map.next_entry()? {
                    all.push(member);
                }
                Ok(Members(all))
            }
        }
        deserializer.deserialize_map(All)
    }
}

/// Parses a JSON document within bounds.
///
/// # Errors
/// Returns why the text cannot be read, in at most 200 characters.
pub(super) fn read<'t, T: Deserialize<'t>>(bounds: Bounds, text: &'t [u8]) -> Result<T, String> {
    let shortened = |why: &dyn fmt::Display| why.to_string().chars().take(200).collect();
    bounds.read(text).map_err(|error| match error {
        Unreadable::Malformed(cause) => shortened(&cause),
        other => shortened(&other),
    })
}

/// Whether a JSON document is nested deeper than [`DEPTH`].
pub(super) fn is_deeper(json: &str) -> bool {
    matches!(DATA.check(json.as_bytes()), Err(Unreadable::TooDeep(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_there_as_often_as_they_are_written() {
        let Members(all) = Members::read(br#"{"a":1,"\u0061":[ 2 ],"b":null}"#).unwrap();
        let shown: Vec<_> = all.iter().map(|(name, value)| format!("{name}={}", value.get())).collect();
        assert_eq!(shown, ["a=1", "a=[ 2 ]", "b=null"]);
        let error = |body: &str| Members::read(body.as_bytes()).unwrap_err();
        assert_eq!(error("[]"), "invalid type: sequence, expected an object at line 1 column 0");
        assert_eq!(error(&format!("\"{}\"", "x".repeat(9999))).len(), 200);
    }

    #[test]
    fn brackets_in_texts_are_no_levels() {
        let nested = |depth: usize| format!("{}1{}", r#"{"a":["#.repeat(depth / 2), "]}".repeat(depth / 2));
        assert!(!is_deeper(&nested(DEPTH)) && is_deeper(&nested(DEPTH + 2)));
        assert!(!is_deeper(&format!(r#"["{}\"{}"]"#, "[".repeat(500), "{".repeat(500))));
        let flat = format!("[{}1]", "[],".repeat(500));
        assert!(!is_deeper(&flat));
    }
}
