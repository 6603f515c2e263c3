//! Reads envelopes in JSON (JWS, `application/jose+json`).

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::algorithm::Algorithm;
use super::attributes::{AUTHENTIC_TIME, EXPIRY, Envelope, PLUGIN, SCHEME, SIGNING_TIME, Written};

#[derive(Deserialize)]
struct Document {
    payload: String,
    protected: String,
    signature: String,
    header: Header,
}

/// The attributes that are not signed.
#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    x5c: Vec<String>,
}

/// Reads an envelope. An error is the end of a sentence about the signature.
pub(super) fn read(bytes: &[u8]) -> Result<Envelope, String> {
    const INVALID: &str = "is not a JWS in JSON";
    let document: Document = serde_json::from_slice(bytes).map_err(|_| INVALID)?;
    let part = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| "has a part that is not in Base64");
    let (protected, payload, signature) =
        (part(&document.protected)?, part(&document.payload)?, part(&document.signature)?);
    let protected: Map<String, Value> = serde_json::from_slice(&protected).map_err(|_| INVALID)?;
    let attributes = written(&protected)?.check()?;
    let certificates = document.header.x5c.iter().map(|text| BASE64_STANDARD.decode(text)).collect::<Result<_, _>>();
    Ok(Envelope {
        signed: format!("{}.{}", document.protected, document.payload).into_bytes(),
        signature,
        certificates: certificates.map_err(|_| "has a certificate that is not in Base64")?,
        attributes,
        payload,
    })
}

fn written(protected: &Map<String, Value>) -> Result<Written, String> {
    let text = |name: &str| match protected.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(format!("has a wrong attribute {name}: it must be a string")),
    };
    let time = |name: &str| match text(name)?.map(str::parse::<Timestamp>).transpose() {
        Ok(time) => Ok(time.map(Timestamp::as_second)),
        Err(_) => Err(format!("has a wrong attribute {name}: it must be a time")),
    };
    let critical = match protected.get("crit") {
        None => Vec::new(),
        Some(listed) => {
            Vec::deserialize(listed).map_err(|_| "has a wrong attribute crit: it must be a list of strings")?
        }
    };
    Ok(Written {
        algorithm: text("alg")?.and_then(Algorithm::of_jws),
        content_type: text("cty")?.map(str::to_owned),
        scheme: text(SCHEME)?.map(str::to_owned),
        critical,
        signing_time: time(SIGNING_TIME)?,
        authentic_time: time(AUTHENTIC_TIME)?,
        expiry: time(EXPIRY)?,
        has_plugin: protected.contains_key(PLUGIN),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn envelope(protected: &Value) -> Value {
        let encoded = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        let header = json!({"x5c": [BASE64_STANDARD.encode("certificate")]});
        json!({
            "payload": encoded("{}"), "protected": encoded(&protected.to_string()), "header": header,
            "signature": encoded("signature"),
        })
    }

    fn protected() -> Value {
        json!({"alg": "ES256", "cty": "text/plain", "crit": [SCHEME], SCHEME: "notary.x509",
            SIGNING_TIME: "2026-01-02T03:04:05+01:00"})
    }

    #[test]
    fn reads_an_envelope() {
        let written = envelope(&protected());
        let found = read(written.to_string().as_bytes()).unwrap();
        let text = |field: &str| written[field].as_str().unwrap();
        assert_eq!(found.signed, format!("{}.{}", text("protected"), text("payload")).into_bytes());
        assert_eq!((&*found.payload, &*found.signature), (&b"{}"[..], &b"signature"[..]));
        assert_eq!(found.certificates, [b"certificate".to_vec()]);
        assert_eq!((found.attributes.algorithm, found.attributes.signing_time), (Algorithm::Es256, 1_767_319_445));
    }

    #[test]
    fn refuses_parts_that_cannot_be_read() {
        let refused = |envelope: &Value, why: &str| {
            let found = read(envelope.to_string().as_bytes()).err().unwrap();
            assert!(found.contains(why), "{why}: {found}");
        };
        for (name, value, why) in [
            ("payload", json!("="), "a part that is not in Base64"),
            ("signature", json!("a.b"), "a part that is not in Base64"),
            ("signature", json!(1), "is not a JWS in JSON"),
            ("protected", json!("e30x"), "is not a JWS in JSON"),
            ("header", json!({"x5c": ["!"]}), "a certificate that is not in Base64"),
        ] {
            let mut changed = envelope(&protected());
            changed[name] = value;
            refused(&changed, why);
        }
        for (name, value, why) in [
            ("alg", json!("none"), "an algorithm that is not PS256"),
            ("alg", json!(1), "a wrong attribute alg: it must be a string"),
            ("crit", json!([1]), "a wrong attribute crit"),
            ("crit", Value::Null, "a wrong attribute crit"),
            (SIGNING_TIME, json!("yesterday"), "it must be a time"),
            (EXPIRY, json!(1), "it must be a string"),
            (PLUGIN, json!("com.example"), "needs a plugin of notation"),
        ] {
            let mut changed = protected();
            changed[name] = value;
            refused(&envelope(&changed), why);
        }
    }

    proptest! {
        #[test]
        fn reads_any_envelope_without_panic(bytes: Vec<u8>, text in "[\\[{\"a-z0:,}\\]]{0,60}") {
            prop_assert!(read(&bytes).is_err() && read(text.as_bytes()).is_err());
        }
    }
}
