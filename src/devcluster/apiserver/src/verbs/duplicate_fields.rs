//! Parses JSON and reports duplicate fields. As in Go, the last value counts.
//!
//! Not here: YAML, where a duplicate key is a syntax error.

use bounded_json::{Bounds, Unreadable};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// Parses JSON within bounds. Returns the value and the paths of duplicate fields, such as `data.a`.
pub fn parse(bytes: &[u8], bounds: Bounds) -> Result<(Value, Vec<String>), Unreadable> {
    bounds.check(bytes)?;
    let mut found = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = Node { path: &Path::Root, found: &mut found }.deserialize(&mut reader);
    let value = read.and_then(|value| reader.end().map(|()| value)).map_err(Unreadable::Malformed)?;
    Ok((value, found))
}

/// A position in the document, which is formatted only for a report.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, at) => write!(f, "{parent}[{at}]"),
        }
    }
}

struct Node<'a> {
    path: &'a Path<'a>,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = Path::Item(self.path, list.len());
            match items.next_element_seed(Node { path: &path, found: self.found })? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = Path::Field(self.path, &name);
            let value = fields.next_value_seed(Node { path: &path, found: self.found })?;
            if map.contains_key(&name) {
                self.found.push(path.to_string());
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const BOUNDS: Bounds = Bounds::new(1000, 1000);

    #[test]
    fn notices_duplicate_fields_at_any_depth() {
        let text = br#"{"a":1,"b":{"c":"x","c":"y"},"d":[{"e":null,"e":true}],"a":-2.5}"#;
        let (value, found) = parse(text, BOUNDS).unwrap();
        assert_eq!(value, json!({"a": -2.5, "b": {"c": "y"}, "d": [{"e": true}]}));
        assert_eq!(found, ["b.c", "d[0].e", "a"]);
    }

    #[test]
    fn reads_json_as_the_plain_parser_does() {
        for text in ["{}", "[1,\"\\u00e9\",18446744073709551615,-1]", "{\"a\":{\"b\":[]}}", "{\"a\":}", "{} x", ""] {
            let plain = serde_json::from_str::<Value>(text).ok();
            assert_eq!(parse(text.as_bytes(), BOUNDS).ok().map(|(value, _)| value), plain, "{text}");
        }
    }
}
