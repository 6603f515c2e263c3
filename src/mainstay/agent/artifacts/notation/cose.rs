//! Reads envelopes in CBOR (COSE with one signer, `application/cose`).

use super::algorithm::Algorithm;
use super::attributes::{AUTHENTIC_TIME, EXPIRY, Envelope, PLUGIN, SCHEME, SIGNING_TIME, Written};
use super::cbor::{Item, signed};

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
    let Some(Item::Tag(SIGN_1, message)) = Item::read(bytes) else { return Err(INVALID.to_owned()) };
    let Item::List(parts) = *message else { return Err(INVALID.to_owned()) };
    let [Item::Bytes(protected), unprotected, Item::Bytes(payload), Item::Bytes(signature)] = &parts[..] else {
        return Err(INVALID.to_owned());
    };
    let attributes = written(&Item::read(protected).ok_or(INVALID)?)?.check()?;
    let certificates: Option<Vec<Vec<u8>>> = match unprotected.get(&Item::Integer(CERTIFICATES)) {
        Some(Item::List(certificates)) => certificates.iter().map(bytes_of).collect(),
        _ => None,
    };
    Ok(Envelope {
        signed: signed(protected, payload),
        signature: signature.clone(),
        certificates: certificates.ok_or("has no certificate")?,
        attributes,
        payload: payload.clone(),
    })
}

fn bytes_of(item: &Item) -> Option<Vec<u8>> {
    if let Item::Bytes(bytes) = item { Some(bytes.clone()) } else { None }
}

fn text_of(item: &Item) -> Option<String> {
    if let Item::Text(text) = item { Some(text.clone()) } else { None }
}

fn time_of(item: &Item) -> Option<i64> {
    match item {
        Item::Tag(TIME, time) => match **time {
            Item::Integer(seconds) => Some(seconds),
            _ => None,
        },
        _ => None,
    }
}

fn texts_of(item: &Item) -> Option<Vec<String>> {
    if let Item::List(items) = item { items.iter().map(text_of).collect() } else { None }
}

fn written(protected: &Item) -> Result<Written, String> {
    let named = |name: &str| protected.get(&Item::Text(name.to_owned()));
    let labelled = |label: i64| protected.get(&Item::Integer(label));
    let time = |name: &str| {
        let wrong = || format!("has a wrong attribute {name}: it must be a time");
        named(name).map(|item| time_of(item).ok_or_else(wrong)).transpose()
    };
    let algorithm = match labelled(ALGORITHM) {
        Some(Item::Integer(number)) => Algorithm::of_cose(*number),
        _ => None,
    };
    let critical = labelled(CRITICAL).map(|item| texts_of(item).ok_or("has critical attributes without a name"));
    Ok(Written {
        algorithm,
        content_type: labelled(CONTENT_TYPE).and_then(text_of),
        scheme: named(SCHEME).and_then(text_of),
        critical: critical.transpose()?.unwrap_or_default(),
        signing_time: time(SIGNING_TIME)?,
        authentic_time: time(AUTHENTIC_TIME)?,
        expiry: time(EXPIRY)?,
        has_plugin: named(PLUGIN).is_some(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(text: &str) -> Item {
        Item::Text(text.to_owned())
    }

    fn protected() -> Vec<(Item, Item)> {
        vec![
            (Item::Integer(ALGORITHM), Item::Integer(-7)),
            (Item::Integer(CRITICAL), Item::List(vec![text(SCHEME)])),
            (Item::Integer(CONTENT_TYPE), text("text/plain")),
            (text(SCHEME), text("notary.x509")),
            (text(SIGNING_TIME), Item::Tag(TIME, Box::new(Item::Integer(1000)))),
        ]
    }

    #[test]
    fn reads_the_attributes() {
        let found = written(&Item::Map(protected())).unwrap().check().unwrap();
        assert_eq!((found.algorithm, found.signing_time), (Algorithm::Es256, 1000));
    }

    #[test]
    fn refuses_attributes_that_cannot_be_read() {
        let untagged = Item::Integer(1000);
        let early = Item::Tag(0, Box::new(text("1970-01-01T00:00:00Z")));
        for (at, value, why) in [
            (0, Item::Integer(-257), "has an algorithm that is not PS256"),
            (1, Item::List(vec![Item::Integer(1)]), "has critical attributes without a name"),
            (1, Item::List(vec![text(SCHEME), text("org.example")]), "has a critical attribute that is not supported"),
            (2, Item::Integer(1), "has no content type"),
            (3, Item::Other, "has a signing scheme that is not supported"),
            (4, untagged, "has a wrong attribute io.cncf.notary.signingTime"),
            (4, early, "has a wrong attribute io.cncf.notary.signingTime"),
        ] {
            let mut changed = protected();
            changed[at].1 = value;
            let found = written(&Item::Map(changed)).and_then(Written::check).unwrap_err();
            assert!(found.starts_with(why), "{why}: {found}");
        }
        for hex in ["", "80", "d2", "d280", "d28440a04040", "d18440a04040", "d284a0a04040"] {
            assert!(read(&hex::decode(hex).unwrap()).is_err(), "{hex}");
        }
    }

    proptest! {
        #[test]
        fn reads_any_envelope_without_panic(bytes: Vec<u8>) {
            prop_assert!(read(&bytes).is_err());
        }
    }
}
