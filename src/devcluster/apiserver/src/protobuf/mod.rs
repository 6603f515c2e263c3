//! Decodes protobuf bodies into JSON, for the kinds that `kubectl create <kind>`, `kubectl auth` and Helm send only as
//! protobuf.
//!
//! The envelope (`k8s\0` and a `runtime.Unknown`) names the kind; [`tables`] lists its fields. Go marshals every
//! non-pointer field, so a zero value of such a field means unset.
//!
//! Invariant: a field that is in no table is refused unless it is zero; fields are never dropped silently.
//!
//! Not here: encoding. Clients that send protobuf also accept JSON.

mod tables;

use std::cell::Cell;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};
use tables::{Field, Message};

/// The first bytes of a body.
const MAGIC: &[u8] = b"k8s\0";
/// Maximum depth of nested messages.
const MAX_DEPTH: usize = 32;
/// The number of values that a message counts as, by its memory use.
const MESSAGE: usize = 10;

/// Why a body cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes are not a protobuf message, or end early.
    #[error("the body is no protobuf message")]
    Malformed,
    /// The body has too many values.
    #[error("the body has too many values")]
    TooManyValues,
    /// The kind has no table.
    #[error("protobuf bodies of kind {0} are not decoded here")]
    Kind(String),
    /// A field is set, but the table of its message does not list the field.
    #[error("field {number} of {message} is not decoded here")]
    Unknown {
        /// Name of the message or field that contains the unknown field.
        message: String,
        /// Field number.
        number: u64,
    },
}

/// Decodes a body with at most `most` values. A message counts as ten.
pub fn decode(bytes: &[u8], most: usize) -> Result<Value, Error> {
    let envelope = bytes.strip_prefix(MAGIC).ok_or(Error::Malformed)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    let mut reader = Reader(envelope);
    while let Some((number, wire)) = reader.field()? {
        match (number, wire) {
            (1, Wire::Bytes(meta)) => {
                let mut meta = Reader(meta);
                while let Some((number, wire)) = meta.field()? {
                    match (number, wire) {
                        (1, Wire::Bytes(bytes)) => api_version = text(bytes)?,
                        (2, Wire::Bytes(bytes)) => kind = text(bytes)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let message = tables::of(&api_version, &kind).ok_or_else(|| Error::Kind(kind.clone()))?;
    let mut object = read(message, &kind, raw, &Nested { depth: 0, left: &Cell::new(most) })?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

/// The encoded value of one field.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl Wire<'_> {
    fn is_zero(self) -> bool {
        match self {
            Self::Number(number) => number == 0,
            // A message of zero fields, such as an unset status, counts as unset.
            Self::Bytes(bytes) => bytes.is_empty() || only_zeros(bytes, 0),
        }
    }
}

fn only_zeros(bytes: &[u8], depth: usize) -> bool {
    if depth > MAX_DEPTH {
        return false;
    }
    let mut reader = Reader(bytes);
    loop {
        match reader.field() {
            Ok(Some((_, Wire::Number(0) | Wire::Bytes([])))) => {}
            Ok(Some((_, Wire::Bytes(inner)))) if only_zeros(inner, depth + 1) => {}
            Ok(None) => return true,
            _ => return false,
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn field(&mut self) -> Result<Option<(u64, Wire<'a>)>, Error> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let wire = match key & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Number(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| Error::Malformed)?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Error::Malformed)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Number(u64::from(u32::from_le_bytes(self.take(4)?.try_into().map_err(|_| Error::Malformed)?))),
            _ => return Err(Error::Malformed),
        };
        Ok(Some((key >> 3, wire)))
    }

    fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take(1)? else { return Err(Error::Malformed) };
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (head, rest) = self.0.split_at_checked(length).ok_or(Error::Malformed)?;
        self.0 = rest;
        Ok(head)
    }
}

fn text(bytes: &[u8]) -> Result<String, Error> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Error::Malformed)
}

/// The depth of a message, and the number of values that may follow.
struct Nested<'a> {
    depth: usize,
    left: &'a Cell<usize>,
}

impl Nested<'_> {
    fn deeper(&self) -> Result<Self, Error> {
        self.spend(MESSAGE)?;
        let depth = self.depth + 1;
        if depth > MAX_DEPTH { Err(Error::Malformed) } else { Ok(Nested { depth, left: self.left }) }
    }

    fn spend(&self, values: usize) -> Result<(), Error> {
        self.left.set(self.left.get().checked_sub(values).ok_or(Error::TooManyValues)?);
        Ok(())
    }
}

fn read(message: Message, name: &str, bytes: &[u8], at: &Nested<'_>) -> Result<Map<String, Value>, Error> {
    let mut object = Map::new();
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.field()? {
        let Some((_, field, form)) = message.iter().find(|(n, _, _)| *n == number) else {
            if wire.is_zero() {
                continue;
            }
            return Err(Error::Unknown { message: name.to_owned(), number });
        };
        at.spend(1)?;
        insert(&mut object, field, *form, wire, at)?;
    }
    Ok(object)
}

fn insert(
    object: &mut Map<String, Value>,
    name: &str,
    form: Field,
    wire: Wire<'_>,
    at: &Nested<'_>,
) -> Result<(), Error> {
    match form {
        Field::List(inner) => {
            let item = value(*inner, name, wire, at)?;
            if let Value::Array(list) = object.entry(name).or_insert_with(|| Value::Array(Vec::new())) {
                list.push(item);
            }
        }
        Field::Map(inner) => {
            let Wire::Bytes(entry) = wire else { return Err(Error::Malformed) };
            let (mut key, mut item) = (String::new(), value(*inner, name, Wire::Bytes(&[]), at)?);
            let mut reader = Reader(entry);
            while let Some((number, wire)) = reader.field()? {
                match (number, wire) {
                    (1, Wire::Bytes(bytes)) => key = text(bytes)?,
                    (2, wire) => item = value(*inner, name, wire, at)?,
                    _ => return Err(Error::Malformed),
                }
            }
            if let Value::Object(map) = object.entry(name).or_insert_with(|| Value::Object(Map::new())) {
                map.insert(key, item);
            }
        }
        Field::Message(_) if name.is_empty() => {
            if let Value::Object(inner) = value(form, name, wire, at)? {
                object.extend(inner);
            }
        }
        Field::Text | Field::Count | Field::Flag if wire.is_zero() => {}
        _ => {
            object.insert(name.to_owned(), value(form, name, wire, at)?);
        }
    }
    Ok(())
}

fn value(form: Field, name: &str, wire: Wire<'_>, at: &Nested<'_>) -> Result<Value, Error> {
    Ok(match (form, wire) {
        (Field::Text, Wire::Bytes(bytes)) => Value::String(text(bytes)?),
        (Field::Bytes, Wire::Bytes(bytes)) => Value::String(STANDARD.encode(bytes)),
        (Field::Number | Field::Count, Wire::Number(number)) => Value::from(number.cast_signed()),
        (Field::Bool | Field::Flag, Wire::Number(number)) => Value::Bool(number != 0),
        (Field::Message(message), Wire::Bytes(bytes)) => Value::Object(read(message, name, bytes, &at.deeper()?)?),
        (Field::Quantity, Wire::Bytes(bytes)) => {
            let inner = read(&[(1, "string", Field::Text)], name, bytes, &at.deeper()?)?;
            inner.get("string").cloned().unwrap_or_else(|| "0".into())
        }
        (Field::IntOrText, Wire::Bytes(bytes)) => {
            let table: Message = &[(1, "type", Field::Number), (2, "number", Field::Number), (3, "text", Field::Text)];
            let mut inner = read(table, name, bytes, &at.deeper()?)?;
            let part = if inner.get("type").and_then(Value::as_i64) == Some(1) { "text" } else { "number" };
            inner.remove(part).unwrap_or_else(|| 0.into())
        }
        _ => return Err(Error::Malformed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn decode_all(bytes: &[u8]) -> Result<Value, Error> {
        decode(bytes, 1000)
    }

    /// Encodes a length-delimited field.
    fn field(number: u8, inner: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(inner.len()).unwrap()], inner].concat()
    }

    fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &meta), &field(2, raw)].concat()
    }

    #[test]
    fn decodes_maps_texts_and_skips_zeros() {
        let metadata = [field(1, b"a"), field(2, b""), vec![7 << 3, 0], field(8, b"")].concat();
        let entry = [field(1, b"k"), field(2, b"v")].concat();
        let raw = [field(1, &metadata), field(2, &entry)].concat();
        let decoded = decode_all(&body("v1", "ConfigMap", &raw)).unwrap();
        assert_eq!(
            decoded,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}})
        );
        let secret = decode_all(&body("v1", "Secret", &field(2, &entry))).unwrap();
        assert_eq!(secret["data"]["k"], "dg==");
    }

    #[test]
    fn embedded_messages_are_their_parents() {
        let path = field(1, &field(1, b"/a"));
        let rule = [field(1, b"h"), field(2, &field(1, &path))].concat();
        let ingress = decode_all(&body("networking.k8s.io/v1", "Ingress", &field(2, &field(3, &rule)))).unwrap();
        assert_eq!(ingress["spec"], json!({"rules": [{"host": "h", "http": {"paths": [{"path": "/a"}]}}]}));
    }

    #[test]
    fn decodes_the_options_of_a_deletion_in_each_group() {
        let raw = [vec![1 << 3, 0], field(2, &field(1, b"u")), field(4, b"Background")].concat();
        for group in ["v1", "apps/v1"] {
            let decoded = decode_all(&body(group, "DeleteOptions", &raw)).unwrap();
            let options =
                json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}, "propagationPolicy": "Background"});
            assert!(options.as_object().unwrap().iter().all(|(name, value)| decoded[name] == *value), "{decoded}");
        }
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        assert_eq!(decode_all(b"{}"), Err(Error::Malformed));
        assert_eq!(decode_all(&body("v1", "Nothing", b"")), Err(Error::Kind("Nothing".to_owned())));
        let odd = decode_all(&body("v1", "ConfigMap", &field(15, b"x")));
        assert_eq!(odd, Err(Error::Unknown { message: "ConfigMap".to_owned(), number: 15 }));
        let mut cut = body("v1", "ConfigMap", &field(1, b"abc"));
        cut.truncate(cut.len() - 1);
        assert_eq!(decode_all(&cut), Err(Error::Malformed));
    }
    #[test]
    fn many_small_messages_are_not_kept() {
        let rules = |count: usize| field(2, &field(3, b"").repeat(count));
        let ingress = |count: usize| decode(&body("networking.k8s.io/v1", "Ingress", &rules(count)), 500);
        assert!(ingress(20).is_ok());
        assert_eq!(ingress(50), Err(Error::TooManyValues));
    }
}
