//! Judges signatures of cosign by public keys of a Secret, without a network.
//!
//! A signature is a simple-signing payload with a detached signature, or a Sigstore bundle with a DSSE envelope.
//!
//! Invariant: a document is parsed only after a trusted key's signature over its exact bytes was verified, except for the
//! envelope that holds it. Invariant: a valid signature names the digest of the manifest, and its purpose is to sign an
//! image: attestations that the same key has signed do not count.
//!
//! Not here: signatures without a key of one's own, which have a certificate (`keyless`).

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use webpki::{ALL_VERIFICATION_ALGS, RawPublicKeyEntity};

use mainstay_cluster::secrets::SecretData;
use mainstay_function::registry::Digest;

/// Ending of the names of values that hold public keys.
const ENDING: &str = ".pub";
/// Maximum number of keys of a Secret.
const MOST_KEYS: usize = 16;
/// The purposes in payloads that sign an image.
const PURPOSES: [&str; 2] = ["cosign container image signature", SIGNED];
/// The type of predicates that sign an image.
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";
/// The type of statements in an envelope.
const STATEMENT: &str = "application/vnd.in-toto+json";

/// Public keys of a Secret.
pub(super) struct Keys {
    /// Name of the Secret, for messages.
    secret: String,
    /// The keys, each with the name of its value.
    keys: Vec<(String, SubjectPublicKeyInfoDer<'static>)>,
}

/// A signature as the registry has it.
pub(super) enum Signature {
    /// A payload with the signature over it in Base64.
    Simple { payload: Vec<u8>, signature: String, proof: Proof },
    /// A Sigstore bundle.
    Bundle(Vec<u8>),
}

/// The proof of the signer's identity, from the annotations of the layer.
#[derive(Debug, Default)]
pub(super) struct Proof {
    /// The signer's certificate in PEM.
    pub(super) certificate: Option<String>,
    /// The entry of the transparency log, in JSON.
    pub(super) entry: Option<String>,
}

/// Why a signature does not count. The later a variant, the more it tells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Flaw {
    /// It cannot be read.
    Unreadable(&'static str),
    /// No key of the Secret made it.
    UnknownKey,
    /// The certificate, the entry of the log or the signature is not valid.
    Unverified(String),
    /// It is valid, and this signer made it, who is not accepted.
    Stranger(String),
    /// An accepted signer signed something else.
    Other(String, &'static str),
}

impl Keys {
    /// Reads the public keys of a Secret. A value that cannot be read is an error, not a missing key.
    pub(super) fn read(secret: &str, data: &SecretData) -> Result<Self, String> {
        let mut keys = Vec::new();
        for (name, value) in data.iter().filter(|(name, _)| name.ends_with(ENDING)) {
            let unusable = |why: &str| format!("value {name} of the Secret {secret} {why}");
            let before = keys.len();
            for key in SubjectPublicKeyInfoDer::pem_slice_iter(&value.0) {
                let key = key.map_err(|_| unusable("is not valid PEM"))?;
                RawPublicKeyEntity::try_from(&key).map_err(|_| unusable("holds a key that cannot be read"))?;
                if !is_supported(&key) {
                    return Err(unusable(
                        "holds a key that is not supported; use ECDSA P-256 or P-384, RSA or Ed25519",
                    ));
                }
                keys.push((name.clone(), key));
                if keys.len() > MOST_KEYS {
                    return Err(format!("the Secret {secret} holds more than {MOST_KEYS} public keys"));
                }
            }
            if keys.len() == before {
                return Err(unusable("holds no public key in PEM (-----BEGIN PUBLIC KEY-----)"));
            }
        }
        if keys.is_empty() {
            let create = "create it with `kubectl create secret generic NAME --from-file=cosign.pub`";
            return Err(format!("the Secret {secret} has no value whose name ends in {ENDING}; {create}"));
        }
        Ok(Self { secret: secret.to_owned(), keys })
    }

    /// Returns the name of the Secret.
    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// Returns the name of the value whose key made a signature.
    fn signer(&self, message: &[u8], signature: &[u8]) -> Option<&str> {
        let made = |key: &SubjectPublicKeyInfoDer<'_>| {
            let Ok(key) = RawPublicKeyEntity::try_from(key) else { return false };
            ALL_VERIFICATION_ALGS.iter().any(|by| key.verify_signature(*by, message, signature).is_ok())
        };
        self.keys.iter().find(|(_, key)| made(key)).map(|(name, _)| &**name)
    }

    /// Returns the name of the value whose key signed the manifest with a digest.
    pub(super) fn judge(&self, signature: &Signature, digest: &Digest) -> Result<&str, Flaw> {
        match signature {
            Signature::Simple { payload, signature, .. } => {
                let signature = decoded(signature).ok_or(Flaw::Unreadable("it is not in Base64"))?;
                let signer = self.signer(payload, &signature).ok_or(Flaw::UnknownKey)?;
                of_payload(payload, digest).map(|()| signer).map_err(|why| Flaw::Other(signer.to_owned(), why))
            }
            Signature::Bundle(bundle) => {
                let unreadable = Flaw::Unreadable(NO_ENVELOPE);
                let bundle: Bundle = serde_json::from_slice(bundle).map_err(|_| unreadable.clone())?;
                let Envelope { payload, payload_type, signatures } = bundle.dsse_envelope;
                let [made] = &signatures[..] else { return Err(unreadable) };
                let (payload, signature) = decoded(&payload).zip(decoded(&made.sig)).ok_or(unreadable)?;
                let signer = self.signer(&encoded(&payload_type, &payload), &signature).ok_or(Flaw::UnknownKey)?;
                let judged = of_statement(&payload_type, &payload, digest);
                judged.map(|()| signer).map_err(|why| Flaw::Other(signer.to_owned(), why))
            }
        }
    }
}

/// Returns whether an algorithm fits a key.
fn is_supported(key: &SubjectPublicKeyInfoDer<'_>) -> bool {
    let Ok(key) = RawPublicKeyEntity::try_from(key) else { return false };
    let fits = |error: webpki::Error| matches!(error, webpki::Error::InvalidSignatureForPublicKey);
    ALL_VERIFICATION_ALGS.iter().any(|by| key.verify_signature(*by, b"", b"").is_err_and(fits))
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(text.trim()).ok()
}

/// Returns the bytes that the signature of a DSSE envelope covers.
fn encoded(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

#[derive(Deserialize)]
struct Simple {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    #[serde(rename = "type")]
    purpose: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

pub(super) const NO_ENVELOPE: &str = "the bundle holds no envelope with one signature";
const OTHER_DIGEST: &str = "a different artifact";
const OTHER_PURPOSE: &str = "a document that is not the signature of an artifact";

pub(super) fn of_payload(payload: &[u8], digest: &Digest) -> Result<(), &'static str> {
    let Simple { critical } = serde_json::from_slice(payload).map_err(|_| OTHER_PURPOSE)?;
    if !PURPOSES.contains(&&*critical.purpose) {
        return Err(OTHER_PURPOSE);
    }
    if critical.image.digest == digest.as_str() { Ok(()) } else { Err(OTHER_DIGEST) }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    dsse_envelope: Envelope,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<Made>,
}

#[derive(Deserialize)]
struct Made {
    sig: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    subject: Vec<Subject>,
    predicate_type: String,
}

#[derive(Deserialize)]
struct Subject {
    digest: BTreeMap<String, String>,
}

pub(super) fn of_statement(payload_type: &str, payload: &[u8], digest: &Digest) -> Result<(), &'static str> {
    if payload_type != STATEMENT {
        return Err(OTHER_PURPOSE);
    }
    let statement: Statement = serde_json::from_slice(payload).map_err(|_| OTHER_PURPOSE)?;
    if statement.predicate_type != SIGNED {
        return Err(OTHER_PURPOSE);
    }
    let is_about = |subject: &Subject| subject.digest.get("sha256").is_some_and(|hex| hex == digest.hex());
    if statement.subject.iter().any(is_about) { Ok(()) } else { Err(OTHER_DIGEST) }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn keys(values: &[(&str, &str)]) -> Result<Keys, String> {
        let data = values.iter().map(|(name, value)| ((*name).to_owned(), ByteString(value.as_bytes().to_vec())));
        Keys::read("signers", &data.collect())
    }

    fn public() -> String {
        rcgen::KeyPair::generate().unwrap().public_key_pem()
    }

    #[test]
    fn reads_the_keys_whose_names_end_in_pub() {
        let (one, two) = (public(), public());
        let read = keys(&[("a.pub", &format!("{one}{two}")), ("b.pub", &one), ("cosign.key", "secret")]).unwrap();
        assert_eq!(read.keys.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["a.pub", "a.pub", "b.pub"]);
        let refused = |values: &[(&str, &str)]| keys(values).err().unwrap();
        assert!(refused(&[("a", &one)]).contains("no value whose name ends in .pub"));
        assert!(refused(&[("a.pub", &one), ("b.pub", "x")]).starts_with("value b.pub of the Secret signers holds no"));
        assert!(refused(&[("a.pub", &one.repeat(17))]).contains("more than 16 public keys"));
        let broken = one.replace("MFkw", "MFkx");
        assert!(refused(&[("a.pub", &broken)]).contains("cannot be read"), "{}", refused(&[("a.pub", &broken)]));
        assert!(refused(&[("a.pub", "-----BEGIN PUBLIC KEY-----\n!\n")]).contains("not valid PEM"));
    }

    #[test]
    fn a_document_signs_only_the_artifact_that_it_names() {
        let (digest, other) = (Digest::of(b"x"), Digest::of(b"y"));
        let payload = |purpose: &str| {
            let critical = json!({"type": purpose, "image": {"docker-manifest-digest": digest.as_str()}});
            json!({"critical": critical}).to_string()
        };
        assert_eq!(of_payload(payload(PURPOSES[0]).as_bytes(), &digest), Ok(()));
        assert_eq!(of_payload(payload(SIGNED).as_bytes(), &other), Err(OTHER_DIGEST));
        assert_eq!(of_payload(payload("atomic container signature").as_bytes(), &digest), Err(OTHER_PURPOSE));
        let statement = |purpose: &str| {
            let subject = json!([{"digest": {"sha256": digest.hex()}}]);
            json!({"subject": subject, "predicateType": purpose}).to_string()
        };
        assert_eq!(of_statement(STATEMENT, statement(SIGNED).as_bytes(), &digest), Ok(()));
        assert_eq!(of_statement(STATEMENT, statement(SIGNED).as_bytes(), &other), Err(OTHER_DIGEST));
        assert_eq!(of_statement(STATEMENT, statement("x").as_bytes(), &digest), Err(OTHER_PURPOSE));
        assert_eq!(of_statement("text/plain", statement(SIGNED).as_bytes(), &digest), Err(OTHER_PURPOSE));
    }

    proptest! {
        #[test]
        fn reads_any_document_without_panic(bytes: Vec<u8>, text in "[\\[{\"a-z0:,}\\]]{0,60}") {
            let (keys, digest) = (keys(&[("a.pub", &public())]).unwrap(), Digest::of(b"x"));
            for document in [bytes, text.clone().into_bytes()] {
                let _ = (of_payload(&document, &digest), of_statement(STATEMENT, &document, &digest));
                prop_assert!(keys.judge(&Signature::Bundle(document.clone()), &digest).is_err());
                let simple =
                    Signature::Simple { payload: document, signature: text.clone(), proof: Proof::default() };
                prop_assert!(keys.judge(&simple, &digest).is_err());
            }
        }
    }
}
