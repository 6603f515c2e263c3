//! JSON from publishers: the members of an object, and the nesting depth of a text.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Maximum nesting depth. It is the limit of `serde_json`, and lower than that of all Function runtimes.
pub(super) const DEPTH: usize = 128;

/// The members of an object with their unparsed values, including duplicates.
#[derive(Debug)]
pub(super) struct Members<'b>(pub(super) Vec<(String, &'b RawValue)>);

impl<'b> Members<'b> {
    /// # Errors
    /// Returns why the text is not an object.
    pub(super) fn read(body: &'b [u8]) -> Result<Self, String> {
        serde_json::from_slice(body).map_err(|error| error.to_string().chars().take(200).collect())
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

/// Whether a JSON text is nested deeper than [`DEPTH`].
pub(super) fn is_deeper(json: &str) -> bool {
    let (mut depth, mut in_text, mut is_escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => depth += 1,
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH {
            return true;
        }
    }
    false
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
