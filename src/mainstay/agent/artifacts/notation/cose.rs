//! Reads envelopes in CBOR (COSE with one signer, `application/cose`).
//!
//! Invariant: the depth of an envelope and the number of its attributes are limited, and no attribute occurs twice.

use ciborium::Value;
use ciborium::de::from_reader_with_recursion_limit;

use super::algorithm::Algorithm;
use super::attributes::{AUTHENTIC_TIME, EXPIRY, Envelope, PLUGIN, SCHEME, SIGNING_TIME, Written};

/// Maximum depth of lists, maps and tags.
const DEEPEST: usize = 16;
/// Maximum number of attributes.
const MOST: usize = 64;
/// The tag of a message with one signer.
const SIGN_1: u64 = 18;
/// The tag of a time in seconds.
const TIME: u64 = 1;
/// The labels of headers.
const ALGORITHM: i64 = 1;
const CRITICAL: i64 = 2;
const CONTENT_TYPE: i64 = 3;
const CERTIFICATES: i64 = 33;

/// Reads an envelope. An error is the end of a sentence about the signature.
pub(super) fn read(bytes: &[u8]) -> Result<Envelope, String> {
    const INVALID: &str = "is not a COSE message with one signer";
    let [protected, unprotected, payload, signature] = message(bytes).ok_or(INVALID)?;
    let (Value::Bytes(protected), Value::Bytes(payload), Value::Bytes(signature)) = (protected, payload, signature)
    else {
        return Err(INVALID.to_owned());
    };
    let unprotected = Headers::of(unprotected).ok_or(INVALID)?;
    let attributes = written(&value(&protected).and_then(Headers::of).ok_or(INVALID)?)?.check()?;
    let certificates: Option<Vec<Vec<u8>>> = match unprotected.get(CERTIFICATES) {
        Some(Value::Array(certificates)) => certificates.iter().map(|one| one.as_bytes().cloned()).collect(),
        _ => None,
    };
    Ok(Envelope {
        signed: signed(protected, payload.clone()).ok_or(INVALID)?,
        signature,
        certificates: certificates.ok_or("has no certificate")?,
        attributes,
        payload,
    })
}

/// Reads a value without anything behind it.
fn value(mut bytes: &[u8]) -> Option<Value> {
    let value = from_reader_with_recursion_limit(&mut bytes, DEEPEST).ok()?;
    bytes.is_empty().then_some(value)
}

/// Returns the four parts of a message with one signer.
fn message(bytes: &[u8]) -> Option<[Value; 4]> {
    let (tag, message) = value(bytes)?.into_tag().ok()?;
    if tag != SIGN_1 {
        return None;
    }
    message.into_array().ok()?.try_into().ok()
}

/// Returns the bytes that the signature covers.
fn signed(protected: Vec<u8>, payload: Vec<u8>) -> Option<Vec<u8>> {
    let parts = ["Signature1".into(), Value::Bytes(protected), Value::Bytes(Vec::new()), Value::Bytes(payload)];
    let mut bytes = Vec::new();
    ciborium::into_writer(&Value::Array(parts.into()), &mut bytes).ok()?;
    Some(bytes)
}

/// Attributes by their label.
struct Headers(Vec<(Value, Value)>);

impl Headers {
    /// Returns `None` if there are too many attributes, or one occurs twice.
    fn of(map: Value) -> Option<Self> {
        let entries = map.into_map().ok().filter(|entries| entries.len() <= MOST)?;
        let is_unique = |at: usize| entries[..at].iter().all(|(known, _)| *known != entries[at].0);
        (0..entries.len()).all(is_unique).then_some(Self(entries))
    }

    fn get(&self, label: impl Into<Value>) -> Option<&Value> {
        let label = label.into();
        self.0.iter().find(|(known, _)| *known == label).map(|(_, value)| value)
    }
}

fn text_of(value: &Value) -> Option<String> {
    value.as_text().map(str::to_owned)
}

fn texts_of(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(text_of).collect()
}

fn number_of(value: &Value) -> Option<i64> {
    i64::try_from(value.as_integer()?).ok()
}

fn time_of(value: &Value) -> Option<i64> {
    value.as_tag().filter(|(tag, _)| *tag == TIME).and_then(|(_, time)| number_of(time))
}

fn written(protected: &Headers) -> Result<Written, String> {
    let time = |name: &str| {
        let wrong = || format!("has a wrong attribute {name}: it must be a time");
        protected.get(name).map(|value| time_of(value).ok_or_else(wrong)).transpose()
    };
    let critical = protected.get(CRITICAL).map(|value| texts_of(value).ok_or("has critical attributes without a name"));
    Ok(Written {
        algorithm: protected.get(ALGORITHM).and_then(number_of).and_then(Algorithm::of_cose),
        content_type: protected.get(CONTENT_TYPE).and_then(text_of),
        scheme: protected.get(SCHEME).and_then(text_of),
        critical: critical.transpose()?.unwrap_or_default(),
        signing_time: time(SIGNING_TIME)?,
        authentic_time: time(AUTHENTIC_TIME)?,
        expiry: time(EXPIRY)?,
        has_plugin: protected.get(PLUGIN).is_some(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::attributes::Attributes;
    use super::*;

    fn protected() -> Vec<(Value, Value)> {
        vec![
            (ALGORITHM.into(), (-7).into()),
            (CRITICAL.into(), Value::Array(vec![SCHEME.into()])),
            (CONTENT_TYPE.into(), "text/plain".into()),
            (SCHEME.into(), "notary.x509".into()),
            (SIGNING_TIME.into(), Value::Tag(TIME, Box::new(1000.into()))),
        ]
    }

    fn check(protected: Vec<(Value, Value)>) -> Result<Attributes, String> {
        written(&Headers::of(Value::Map(protected)).ok_or("no headers")?)?.check()
    }

    #[test]
    fn reads_the_attributes() {
        let found = check(protected()).unwrap();
        assert_eq!((found.algorithm, found.signing_time), (Algorithm::Es256, 1000));
    }

    #[test]
    fn refuses_attributes_that_cannot_be_read() {
        let untagged = Value::from(1000);
        let early = Value::Tag(0, Box::new("1970-01-01T00:00:00Z".into()));
        for (at, value, why) in [
            (0, Value::from(-257), "has an algorithm that is not PS256"),
            (1, Value::Array(vec![1.into()]), "has critical attributes without a name"),
            (
                1,
                Value::Array(vec![SCHEME.into(), "org.example".into()]),
                "has a critical attribute that is not supported",
            ),
            (2, Value::from(1), "has no content type"),
            (3, Value::Null, "has a signing scheme that is not supported"),
            (4, untagged, "has a wrong attribute io.cncf.notary.signingTime"),
            (4, early, "has a wrong attribute io.cncf.notary.signingTime"),
        ] {
            let mut changed = protected();
            changed[at].1 = value;
            let found = check(changed).unwrap_err();
            assert!(found.starts_with(why), "{why}: {found}");
        }
        for hex in ["", "80", "d2", "d280", "d28440a04040", "d18440a04040", "d284a0a04040"] {
            assert!(read(&hex::decode(hex).unwrap()).is_err(), "{hex}");
        }
    }

    #[test]
    fn refuses_attributes_that_occur_twice_or_are_too_many() {
        // The number 1 in its short and in a long form.
        for hex in ["a201010102", "a2010118010a", "a2016161016162"] {
            assert!(value(&hex::decode(hex).unwrap()).and_then(Headers::of).is_none(), "{hex}");
        }
        let numbered = |count: i64| Headers::of(Value::Map((0..count).map(|at| (at.into(), Value::Null)).collect()));
        assert!(numbered(64).is_some() && numbered(65).is_none());
    }

    #[test]
    fn refuses_values_that_are_not_whole_or_too_deep() {
        for (hex, why) in [
            ("", "nothing"),
            ("0101", "something behind it"),
            ("4301", "too short"),
            ("61ff", "not UTF-8"),
            ("5bffffffffffffffff00", "a large length"),
            ("9bffffffffffffffff00", "a large list"),
        ] {
            assert_eq!(value(&hex::decode(hex).unwrap()), None, "{why}");
        }
        let nested = |depth: usize| value(&[vec![0x81; depth], vec![1]].concat());
        assert!(nested(8).is_some() && nested(DEEPEST + 1).is_none() && nested(100_000).is_none());
    }

    #[test]
    fn a_signature_covers_the_attributes_and_the_payload() {
        let signed = signed(b"ab".to_vec(), b"c".to_vec()).unwrap();
        assert_eq!(hex::encode(signed), "846a5369676e617475726531426162404163");
    }

    proptest! {
        #[test]
        fn reads_any_envelope_without_panic(bytes: Vec<u8>) {
            prop_assert!(read(&bytes).is_err());
        }
    }
}
