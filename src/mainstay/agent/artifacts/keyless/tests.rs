//! Tests of keyless signatures: valid, hostile and changed ones.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use mainstay_api::oci_repository::OidcIdentity;

/// Signatures that `tests/cosign/keyless/make` made, and two trusted roots.
const SIGNATURES: &str = include_str!("../../../../../tests/cosign/keyless/hostile.json");
const OWN: &str = include_str!("../../../../../tests/cosign/keyless/trusted_root.json");
const STRANGER: &str = include_str!("../../../../../tests/cosign/keyless/stranger.json");
/// A real attestation of the public instance, by a workflow of `prefix-dev/sigstore-example` at GitHub.
const PUBLIC_ATTESTATION: &str = include_str!("../../../../../tests/cosign/keyless/public.json");
const ISSUER: &str = "^https://ci\\.example\\.org$";
const SUBJECT: &str = "^https://ci\\.example\\.org/shop/web/[^@]+@refs/heads/main$";

fn keyless(root: &str, issuer: &str, subject: &str) -> Keyless {
    let one = OidcIdentity { issuer: issuer.to_owned(), subject: subject.to_owned() };
    Keyless::new(Arc::new(Root::read(root).unwrap()), Identities::read(&[one]).unwrap())
}

fn made(name: &str) -> Value {
    let all: Vec<Value> = serde_json::from_str(SIGNATURES).unwrap();
    all.into_iter().find(|one| one["name"] == name).unwrap()
}

/// Returns a signature in the format of cosign 2, and the signed digest.
fn simple(made: &Value) -> (Signature, Digest) {
    let annotation = |name: &str| made["annotations"][name].as_str().map(str::to_owned);
    let payload = made["payload"].as_str().unwrap();
    let document: Value = serde_json::from_str(payload).unwrap();
    let digest = document["critical"]["image"]["docker-manifest-digest"].as_str().unwrap().parse().unwrap();
    let proof = Proof {
        certificate: annotation("dev.sigstore.cosign/certificate"),
        entry: annotation("dev.sigstore.cosign/bundle"),
    };
    let signature = annotation("dev.cosignproject.cosign/signature").unwrap();
    (Signature::Simple { payload: payload.as_bytes().to_vec(), signature, proof }, digest)
}

/// Returns a signature in the format of cosign 3, and the signed digest. `kind` is `bundle` with a log of Rekor 1, and
/// `stamped` with a log of Rekor 2 and a timestamp.
fn bundle(made: &Value, kind: &str) -> (Signature, Digest) {
    let payload = made[kind]["dsseEnvelope"]["payload"].as_str().unwrap();
    let statement: Value = serde_json::from_slice(&BASE64_STANDARD.decode(payload).unwrap()).unwrap();
    let hex = statement["subject"][0]["digest"]["sha256"].as_str().unwrap();
    (Signature::Bundle(made[kind].to_string().into_bytes()), format!("sha256:{hex}").parse().unwrap())
}

fn all(made: &Value) -> [(Signature, Digest); 3] {
    [simple(made), bundle(made, "bundle"), bundle(made, "stamped")]
}

#[test]
fn accepts_signatures_of_an_identity_in_each_format() {
    let trusted = keyless(OWN, ISSUER, SUBJECT);
    for (signature, digest) in all(&made("good")) {
        let signer = trusted.judge(&signature, &digest).unwrap();
        let subject = "https://ci.example.org/shop/web/release.yaml@refs/heads/main";
        assert_eq!(signer, format!("{subject} of the issuer https://ci.example.org"));
        assert!(keyless(OWN, "ci", "shop").judge(&signature, &digest).is_ok(), "a part is enough, as in Flux");
    }
}

#[test]
fn refuses_other_identities() {
    for (signature, digest) in all(&made("good")) {
        for (issuer, subject) in [(ISSUER, "^https://ci\\.example\\.org/shop$"), ("^https://other", SUBJECT)] {
            let flaw = keyless(OWN, issuer, subject).judge(&signature, &digest).unwrap_err();
            assert!(matches!(&flaw, Flaw::Stranger(signer) if signer.contains("release.yaml@")), "{flaw:?}");
        }
    }
}

#[test]
fn refuses_each_hostile_signature() {
    let trusted = keyless(OWN, ISSUER, SUBJECT);
    for name in
        ["expired", "early", "other log", "other authority", "unlisted certificate", "certificate in another log"]
    {
        for (signature, digest) in all(&made(name)) {
            let flaw = trusted.judge(&signature, &digest).unwrap_err();
            assert!(matches!(flaw, Flaw::Unverified(_)), "{name}: {flaw:?}");
        }
    }
    let (signature, digest) = bundle(&made("other clock"), "stamped");
    assert!(matches!(trusted.judge(&signature, &digest), Err(Flaw::Unverified(_))), "other clock");
    for (signature, digest) in all(&made("attestation")) {
        let flaw = trusted.judge(&signature, &digest).unwrap_err();
        assert!(matches!(flaw, Flaw::Other(..)), "{flaw:?}");
    }
    for (signature, digest) in all(&made("good")) {
        let flaw = keyless(STRANGER, ISSUER, SUBJECT).judge(&signature, &digest).unwrap_err();
        assert!(matches!(flaw, Flaw::Unverified(_)), "another instance: {flaw:?}");
        let flaw = trusted.judge(&signature, &Digest::of(b"other")).unwrap_err();
        assert!(matches!(flaw, Flaw::Unverified(_) | Flaw::Other(..)), "another artifact: {flaw:?}");
    }
}

#[test]
fn refuses_changed_parts_of_a_signature() {
    let trusted = keyless(OWN, ISSUER, SUBJECT);
    let (good, expired) = (made("good"), made("expired"));
    let refused = |what: &str, (signature, digest): (Signature, Digest)| {
        assert!(trusted.judge(&signature, &digest).is_err(), "{what}");
    };
    let material = "/bundle/verificationMaterial";
    for (part, value) in [
        (format!("{material}/tlogEntries"), json!([])),
        (format!("{material}/tlogEntries/0/integratedTime"), json!("1748779201")),
        (format!("{material}/tlogEntries/0/logIndex"), json!("8")),
        (format!("{material}/tlogEntries/0/inclusionPromise"), Value::Null),
        (format!("{material}/tlogEntries/0/inclusionProof"), Value::Null),
        (format!("{material}/tlogEntries/0"), expired["bundle"]["verificationMaterial"]["tlogEntries"][0].clone()),
        (
            format!("{material}/certificate"),
            made("unlisted certificate")["bundle"]["verificationMaterial"]["certificate"].clone(),
        ),
        ("/bundle/dsseEnvelope/signatures".to_owned(), expired["bundle"]["dsseEnvelope"]["signatures"].clone()),
    ] {
        let mut changed = good.clone();
        *changed.pointer_mut(&part).unwrap() = value;
        refused(&part, bundle(&changed, "bundle"));
    }
    for (part, value) in [
        ("tlogEntries", json!([])),
        ("tlogEntries/0/logIndex", json!("1")),
        ("tlogEntries/0/inclusionProof", Value::Null),
        ("timestampVerificationData", Value::Null),
        ("timestampVerificationData", expired["stamped"]["verificationMaterial"]["timestampVerificationData"].clone()),
    ] {
        let mut changed = good.clone();
        *changed.pointer_mut(&format!("/stamped/verificationMaterial/{part}")).unwrap() = value;
        refused(part, bundle(&changed, "stamped"));
    }
    for (name, value) in [
        ("dev.sigstore.cosign/certificate", Value::Null),
        ("dev.sigstore.cosign/bundle", Value::Null),
        ("dev.sigstore.cosign/bundle", expired["annotations"]["dev.sigstore.cosign/bundle"].clone()),
        ("dev.cosignproject.cosign/signature", expired["annotations"]["dev.cosignproject.cosign/signature"].clone()),
    ] {
        let mut changed = good.clone();
        changed["annotations"][name] = value;
        refused(name, simple(&changed));
    }
    let mut changed = good.clone();
    let entry = good["annotations"]["dev.sigstore.cosign/bundle"].as_str().unwrap();
    let moved = entry.replace("\"integratedTime\":1748779200", "\"integratedTime\":1748779201");
    assert_ne!(entry, moved);
    changed["annotations"]["dev.sigstore.cosign/bundle"] = moved.into();
    refused("another time", simple(&changed));
}

/// Encodes a value of DER.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length: Vec<u8> = content.len().to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
    let size = u8::try_from(length.len()).unwrap();
    let prefix = if content.len() < 0x80 { Vec::new() } else { vec![0x80 | size] };
    [&[tag][..], &prefix, &length, content].concat()
}

/// Returns the beginning of a certificate whose issuer has a set of names in descending order.
fn slow_certificate(names: u16) -> Vec<u8> {
    let name = |number: u16| der(0x30, &[&der(0x06, &[0x2a, 0x03])[..], &der(0x04, &number.to_be_bytes())].concat());
    let names: Vec<u8> = (0..names).rev().flat_map(name).collect();
    let issuer = der(0x30, &der(0x31, &names));
    let (version, serial) = (der(0xa0, &der(0x02, &[2])), der(0x02, &[1]));
    let algorithm = der(0x30, &der(0x06, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02]));
    der(0x30, &der(0x30, &[version, serial, algorithm, issuer].concat()))
}

#[test]
fn refuses_certificates_that_take_long_to_read() {
    let trusted = keyless(OWN, ISSUER, SUBJECT);
    let refused = |(signature, digest): (Signature, Digest), why: &'static str| {
        assert_eq!(trusted.judge(&signature, &digest), Err(Flaw::Unreadable(why)));
    };
    let too_long = "its certificate is longer than 8 KiB";
    for (names, why) in [(4_000, too_long), (20_000, "an annotation of its layer is longer than 64 KiB")] {
        let certificate = BASE64_STANDARD.encode(slow_certificate(names));
        let mut changed = made("good");
        for kind in ["bundle", "stamped"] {
            changed[kind]["verificationMaterial"]["certificate"]["rawBytes"] = certificate.clone().into();
            refused(bundle(&changed, kind), too_long);
        }
        let pem = format!("-----BEGIN CERTIFICATE-----\n{certificate}\n-----END CERTIFICATE-----\n");
        changed["annotations"]["dev.sigstore.cosign/certificate"] = pem.into();
        refused(simple(&changed), why);
    }
    let certificate = slow_certificate(100);
    assert!(certificate.len() < 8 << 10);
    let certificate = BASE64_STANDARD.encode(certificate);
    let mut changed = made("good");
    changed["bundle"]["verificationMaterial"]["certificate"]["rawBytes"] = certificate.into();
    refused(bundle(&changed, "bundle"), "its certificate cannot be read, or has a set with more than 8 elements");
}

#[test]
fn refuses_parts_that_are_too_long_or_too_many() {
    let trusted = keyless(OWN, ISSUER, SUBJECT);
    let refused = |(signature, digest): (Signature, Digest), why: &'static str| {
        assert_eq!(trusted.judge(&signature, &digest), Err(Flaw::Unreadable(why)));
    };
    let good = made("good");
    let long = "A".repeat(32 << 10);
    let material = &good["stamped"]["verificationMaterial"];
    let (entry, timestamps) = (&material["tlogEntries"][0], &material["timestampVerificationData"]);
    let checkpoint = entry["inclusionProof"]["checkpoint"]["envelope"].as_str().unwrap();
    for (part, value, why) in [
        ("tlogEntries", json!(vec![entry; 5]), "it has more than 4 entries of transparency logs"),
        (
            "tlogEntries/0/inclusionProof/checkpoint/envelope",
            json!(format!("{checkpoint}\n{long}")),
            "its checkpoint is longer than 16 KiB",
        ),
        (
            "timestampVerificationData/rfc3161Timestamps",
            json!(vec![&timestamps["rfc3161Timestamps"][0]; 5]),
            "it has more than 4 timestamps",
        ),
        (
            "timestampVerificationData/rfc3161Timestamps/0/signedTimestamp",
            json!(long),
            "its timestamp is longer than 16 KiB",
        ),
    ] {
        let mut changed = good.clone();
        *changed.pointer_mut(&format!("/stamped/verificationMaterial/{part}")).unwrap() = value;
        refused(bundle(&changed, "stamped"), why);
    }
    let mut changed = good.clone();
    let content = changed["bundle"]["verificationMaterial"].as_object_mut().unwrap();
    let certificate = content.remove("certificate").unwrap();
    content.insert("x509CertificateChain".to_owned(), json!({"certificates": vec![certificate; 6]}));
    refused(bundle(&changed, "bundle"), "it has more than 5 certificates");
    for name in ["dev.sigstore.cosign/certificate", "dev.sigstore.cosign/bundle", "dev.cosignproject.cosign/signature"]
    {
        let mut changed = good.clone();
        changed["annotations"][name] = "A".repeat((64 << 10) + 1).into();
        refused(simple(&changed), "an annotation of its layer is longer than 64 KiB");
    }
}

#[test]
fn a_bundle_of_any_version_needs_a_proof_of_inclusion_for_each_entry() {
    let trusted = keyless(OWN, ISSUER, SUBJECT);
    let judge = |changed: &Value| {
        let (signature, digest) = bundle(changed, "bundle");
        trusted.judge(&signature, &digest)
    };
    let (version, entries) = ("/bundle/mediaType", "/bundle/verificationMaterial/tlogEntries");
    for kind in ["+json;version=0.1", "+json;version=0.2", ".v0.3+json"] {
        let mut changed = made("good");
        *changed.pointer_mut(version).unwrap() = json!(format!("application/vnd.dev.sigstore.bundle{kind}"));
        assert!(judge(&changed).is_ok(), "{kind}");
        let proven = changed.pointer(entries).unwrap()[0].clone();
        let mut promised = proven.clone();
        promised["inclusionProof"] = Value::Null;
        for listed in [json!([]), json!([promised]), json!([proven, promised])] {
            *changed.pointer_mut(entries).unwrap() = listed;
            assert_eq!(judge(&changed), Err(NO_INCLUSION), "{kind}");
        }
    }
}

#[test]
fn certificates_of_authorities_count_only_in_the_trusted_root() {
    let mut root: Value = serde_json::from_str(OWN).unwrap();
    let chain = root["certificateAuthorities"][0]["certChain"]["certificates"].as_array_mut().unwrap();
    let issuing = chain.remove(0);
    let mut sent = made("good");
    let material = sent["bundle"]["verificationMaterial"].as_object_mut().unwrap();
    let certificate = material.remove("certificate").unwrap();
    material.insert("x509CertificateChain".to_owned(), json!({"certificates": [certificate, issuing]}));
    sent["bundle"]["mediaType"] = json!("application/vnd.dev.sigstore.bundle+json;version=0.2");
    let pem = |name: &str| sent["annotations"][name].as_str().unwrap().to_owned();
    let both = format!("{}{}", pem("dev.sigstore.cosign/certificate"), pem("dev.sigstore.cosign/chain"));
    sent["annotations"]["dev.sigstore.cosign/certificate"] = both.into();
    for (signature, digest) in [simple(&sent), bundle(&sent, "bundle")] {
        assert!(keyless(OWN, ISSUER, SUBJECT).judge(&signature, &digest).is_ok());
        let flaw = keyless(&root.to_string(), ISSUER, SUBJECT).judge(&signature, &digest).unwrap_err();
        assert!(matches!(flaw, Flaw::Unverified(_)), "{flaw:?}");
    }
}

#[test]
fn a_signature_of_cosign_2_is_over_the_sha256_of_its_payload() {
    let (Signature::Simple { payload, signature, proof }, _) = simple(&made("good")) else { panic!() };
    let bundle = bundle_of(&payload, &signature, &proof).unwrap();
    let SignatureContent::MessageSignature(signed) = bundle.content else { panic!() };
    let signed = signed.message_digest.unwrap();
    assert_eq!(signed.algorithm.to_string(), "SHA2_256");
    assert_eq!(format!("sha256:{}", hex::encode(signed.digest.as_bytes())), Digest::of(&payload).to_string());
}

#[test]
fn certificates_need_no_log_if_the_root_lists_none() {
    let mut root: Value = serde_json::from_str(OWN).unwrap();
    root["ctlogs"] = json!([]);
    for (signature, digest) in all(&made("unlisted certificate")) {
        assert!(keyless(&root.to_string(), ISSUER, SUBJECT).judge(&signature, &digest).is_ok());
    }
}

#[test]
fn reads_the_public_root_and_refuses_a_root_without_authorities_or_logs() {
    assert!(Root::public().is_ok());
    let refused = |json: &str| Root::read(json).err().unwrap();
    assert!(refused("{}").starts_with("is not a trusted root of Sigstore: "), "{}", refused("{}"));
    for (part, why) in [("certificateAuthorities", "no certificate authority"), ("tlogs", "no transparency log")] {
        let mut root: Value = serde_json::from_str(OWN).unwrap();
        root[part] = json!([]);
        assert!(refused(&root.to_string()).contains(why));
    }
    for (signature, digest) in all(&made("good")) {
        let one = OidcIdentity { issuer: ".".to_owned(), subject: ".".to_owned() };
        let public = Keyless::new(Root::public().unwrap(), Identities::read(&[one]).unwrap());
        assert!(matches!(public.judge(&signature, &digest), Err(Flaw::Unverified(_))));
    }
}

#[test]
fn the_public_root_proves_an_identity_of_the_public_instance() {
    let digest: Digest = "sha256:54303491a8418fbed24344b513546182c29b43bf282ceb433af65e2299f9271f".parse().unwrap();
    let judge = |issuer: &str| {
        let one = OidcIdentity { issuer: issuer.to_owned(), subject: "^https://github\\.com/prefix-dev/".to_owned() };
        let public = Keyless::new(Root::public().unwrap(), Identities::read(&[one]).unwrap());
        public.judge(&Signature::Bundle(PUBLIC_ATTESTATION.as_bytes().to_vec()), &digest).unwrap_err()
    };
    // The signature is valid, but it is not the signature of an image.
    let flaw = judge("^https://token\\.actions\\.githubusercontent\\.com$");
    assert!(matches!(&flaw, Flaw::Other(signer, _) if signer.contains("action.yaml@refs/heads/main")), "{flaw:?}");
    let flaw = judge("^https://other");
    assert!(matches!(flaw, Flaw::Stranger(_)), "{flaw:?}");
}

proptest! {
    #[test]
    fn reads_any_signature_without_panic(bytes: Vec<u8>, text in "[\\[{\"a-z0:,}\\]]{0,60}") {
        let (trusted, digest) = (keyless(OWN, ISSUER, SUBJECT), Digest::of(b"x"));
        let part = Some(text.clone());
        let proof = Proof { certificate: part.clone(), entry: part };
        let simple = Signature::Simple { payload: bytes.clone(), signature: text.clone(), proof };
        for signature in [Signature::Bundle(bytes), Signature::Bundle(text.clone().into_bytes()), simple] {
            prop_assert!(trusted.judge(&signature, &digest).is_err());
        }
    }
}
