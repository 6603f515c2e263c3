//! Tests of signatures of notation: those of the real program in `tests/notation`, and hostile ones.

use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use k8s_openapi::ByteString;
use proptest::prelude::*;
use rcgen::{
    BasicConstraints, CertificateParams, CrlDistributionPoint, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

use super::attributes::{AUTHENTIC_TIME, EXPIRY, SCHEME, SIGNING_TIME};
use super::*;

const REPOSITORY: &str = "registry.example.org/shop/web";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/notation")
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    time("2030-01-01T00:00:00Z")
}

/// Returns a trust policy after a change of its statement.
fn policy(change: &Value) -> Vec<u8> {
    let mut statement = json!({
        "name": "shop", "registryScopes": [REPOSITORY], "signatureVerification": {"level": "strict"},
        "trustStores": ["ca:shop"], "trustedIdentities": ["x509.subject: C=US, ST=WA, O=Example"],
    });
    json_patch::merge(&mut statement, change);
    json!({"version": "1.0", "trustPolicies": [statement]}).to_string().into_bytes()
}

fn read(values: &[(&str, Vec<u8>)]) -> Result<Notation, String> {
    let data = values.iter().map(|(name, value)| ((*name).to_owned(), ByteString(value.clone())));
    Notation::read("signers", &data.collect())
}

fn notation(trusted: &[u8], change: Value) -> Notation {
    read(&[("root.crt", trusted.to_vec()), (POLICY, policy(&change))]).unwrap()
}

fn judge(notation: &Notation, envelope: (Format, &[u8]), target: &Target, now: Timestamp) -> Result<Verdict, String> {
    let Some(Demand::Signature(rules)) = notation.demand(REPOSITORY) else { panic!("no signature is needed") };
    notation.judge(rules, envelope, target, now).map_err(Flaw::into_text)
}

/// Returns the envelope and the manifest of a directory of `tests/notation`.
fn made_by_notation(directory: &str) -> (Format, Vec<u8>, Target) {
    let directory = files().join(directory);
    for file in std::fs::read_dir(directory.join("manifests")).unwrap() {
        let document: Value = serde_json::from_slice(&std::fs::read(file.unwrap().path()).unwrap()).unwrap();
        let layer = &document["layers"][0];
        let Some(format) = layer["mediaType"].as_str().and_then(Format::of) else { continue };
        let hex = layer["digest"].as_str().unwrap().trim_start_matches("sha256:");
        let subject = &document["subject"];
        let target = Target {
            media_type: subject["mediaType"].as_str().unwrap().to_owned(),
            digest: subject["digest"].as_str().unwrap().parse().unwrap(),
            size: subject["size"].as_u64().unwrap(),
        };
        return (format, std::fs::read(directory.join("blobs").join(hex)).unwrap(), target);
    }
    panic!("no signature in {}", directory.display());
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(files().join(name)).unwrap()
}

#[test]
fn accepts_signatures_of_the_real_notation() {
    for (directory, root) in [("jws", "root.crt"), ("cose", "root.crt"), ("p521", "root.crt"), ("rsa", "rsa.crt")] {
        let (format, envelope, target) = made_by_notation(directory);
        let trusted = notation(&file(root), json!({}));
        let Verdict::Trusted(signer) = judge(&trusted, (format, &envelope), &target, now()).unwrap() else { panic!() };
        assert!(signer.starts_with("the certificate ") && signer.contains(&format!("CN={directory}")), "{signer}");
        let any = notation(&file(root), json!({"trustedIdentities": ["*"]}));
        assert!(judge(&any, (format, &envelope), &target, now()).is_ok(), "{directory}");
    }
}

#[test]
fn refuses_signatures_of_the_real_notation_by_others_and_of_others() {
    for directory in ["jws", "cose", "p521"] {
        let (format, envelope, target) = made_by_notation(directory);
        let refused = |trusted: &Notation, envelope: &[u8], target: &Target, at: &str, why: &str| {
            let found = judge(trusted, (format, envelope), target, time(at)).unwrap_err();
            assert!(found.contains(why), "{directory}: {why}: {found}");
        };
        let (at, trusted) = ("2030-01-01T00:00:00Z", notation(&file("root.crt"), json!({})));
        let stranger = notation(&file("stranger.crt"), json!({}));
        refused(&stranger, &envelope, &target, at, "none of its certificates is in the Secret signers");
        let other = notation(&file("root.crt"), json!({"trustedIdentities": ["x509.subject:C=US,ST=WA,O=Other"]}));
        refused(&other, &envelope, &target, at, "trustedIdentities of the trust policy does not accept");
        let authority = notation(&file("root.crt"), json!({"trustStores": ["signingAuthority:shop"]}));
        refused(&authority, &envelope, &target, at, "needs a store of the type ca");
        for at in ["2019-12-31T00:00:00Z", "2120-01-02T00:00:00Z"] {
            refused(&trusted, &envelope, &target, at, "that is not valid now: it is valid from 2020-01-01T00:00:00Z");
        }
        for other in [
            Target { digest: Digest::of(b"other"), ..target.clone() },
            Target { size: target.size + 1, ..target.clone() },
            Target { media_type: "application/vnd.oci.image.index.v1+json".to_owned(), ..target.clone() },
        ] {
            refused(&trusted, &envelope, &other, at, "is that of a different artifact");
        }
    }
    // Each byte matters: those of the payload, of the attributes, of the signature and of the certificates.
    let (_, envelope, target) = made_by_notation("cose");
    let trusted = notation(&file("root.crt"), json!({}));
    let find = |text: &[u8]| envelope.windows(text.len()).position(|part| part == text).unwrap();
    // The name of the program that signed is not signed.
    let unsigned = find(b"io.cncf.notary.signingAgent") - 2..find(b"{\"targetArtifact\"") - 2;
    for at in (0..envelope.len()).step_by(7).filter(|at| !unsigned.contains(at)) {
        let mut changed = envelope.clone();
        changed[at] ^= 1;
        assert!(judge(&trusted, (Format::Cose, &changed), &target, now()).is_err(), "byte {at}");
    }
}

#[test]
fn the_trust_policy_says_whether_an_expired_signature_counts() {
    let (format, envelope, target) = made_by_notation("expired");
    let judge_by = |level: &str| {
        let trusted = notation(&file("root.crt"), json!({"signatureVerification": {"level": level}}));
        judge(&trusted, (format, &envelope), &target, now())
    };
    assert!(judge_by("strict").unwrap_err().starts_with("expired at 20"));
    let Ok(Verdict::Trusted(signer)) = judge_by("permissive") else { panic!() };
    assert!(signer.contains("; the trust policy tolerates that the signature expired at 20"), "{signer}");
}

/// A certificate that issues others.
struct Authority {
    certificate: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

/// Certificates with the key of the signer.
struct Signer {
    chain: Vec<Vec<u8>>,
    key: KeyPair,
}

fn parameters(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    for (kind, value) in [
        (DnType::CountryName, "US"),
        (DnType::StateOrProvinceName, "WA"),
        (DnType::OrganizationName, "Example"),
        (DnType::CommonName, name),
    ] {
        parameters.distinguished_name.push(kind, value);
    }
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters
}

fn authority(name: &str) -> CertificateParams {
    let mut authority = parameters(name);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    authority
}

impl Authority {
    fn root(parameters: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap().der().to_vec();
        Self { certificate, issuer: Issuer::new(parameters, key) }
    }

    fn below(&self, parameters: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap().der().to_vec();
        Self { certificate, issuer: Issuer::new(parameters, key) }
    }

    /// Returns a signer whose chain ends with these authorities.
    fn signer(&self, parameters: &CertificateParams, above: &[&Self]) -> Signer {
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap().der().to_vec();
        let above = above.iter().map(|one| one.certificate.clone());
        let chain = [certificate, self.certificate.clone()].into_iter().chain(above).collect();
        Signer { chain, key }
    }
}

fn target() -> Target {
    Target { media_type: MANIFEST.to_owned(), digest: Digest::of(b"manifest"), size: 8 }
}

fn protected() -> Value {
    json!({"alg": "ES256", "cty": PAYLOAD, "crit": [SCHEME], SCHEME: "notary.x509",
        SIGNING_TIME: "2026-01-01T00:00:00Z"})
}

fn payload() -> Value {
    let target = target();
    json!({"targetArtifact": {"mediaType": MANIFEST, "digest": target.digest.as_str(), "size": target.size}})
}

impl Signer {
    fn sign(&self, protected: &Value, payload: &Value) -> Vec<u8> {
        let encoded = |document: &Value| BASE64_URL_SAFE_NO_PAD.encode(document.to_string());
        let (protected, payload) = (encoded(protected), encoded(payload));
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &self.key.serialize_der(), &random);
        let made = pair.unwrap().sign(&random, format!("{protected}.{payload}").as_bytes()).unwrap();
        let certificates: Vec<String> = self.chain.iter().map(|der| BASE64_STANDARD.encode(der)).collect();
        json!({
            "payload": payload, "protected": protected, "header": {"x5c": certificates},
            "signature": BASE64_URL_SAFE_NO_PAD.encode(made.as_ref()),
        })
        .to_string()
        .into_bytes()
    }
}

/// Judges the signature of a signer, whose last certificate is trusted.
fn outcome(signer: &Signer, change: Value) -> Result<Verdict, String> {
    let trusted = notation(signer.chain.last().unwrap(), change);
    judge(&trusted, (Format::Jws, &signer.sign(&protected(), &payload())), &target(), now())
}

#[track_caller]
fn refused(signer: &Signer, why: &str) {
    let found = outcome(signer, json!({})).unwrap_err();
    assert!(found.contains(why), "{why}: {found}");
}

#[test]
fn accepts_chains_with_and_without_authorities_between() {
    let root = Authority::root(authority("root"));
    let between = root.below(authority("between"));
    for signer in [root.signer(&parameters("web"), &[]), between.signer(&parameters("web"), &[&root])] {
        assert!(matches!(outcome(&signer, json!({})), Ok(Verdict::Trusted(_))));
    }
    // A trusted authority in the middle is enough, as in Flux.
    let signer = between.signer(&parameters("web"), &[&root]);
    let trusted = notation(&between.certificate, json!({}));
    assert!(judge(&trusted, (Format::Jws, &signer.sign(&protected(), &payload())), &target(), now()).is_ok());
    let mut own = parameters("web");
    own.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
    let key = KeyPair::generate().unwrap();
    let alone = Signer { chain: vec![own.self_signed(&key).unwrap().der().to_vec()], key };
    assert!(matches!(outcome(&alone, json!({})), Ok(Verdict::Trusted(_))));
}

#[test]
fn refuses_signers_whose_certificate_is_not_for_signatures() {
    let root = Authority::root(authority("root"));
    let refused = |change: &dyn Fn(&mut CertificateParams), why: &str| {
        let mut changed = parameters("web");
        change(&mut changed);
        refused(&root.signer(&changed, &[]), why);
    };
    refused(&|one| one.is_ca = IsCa::Ca(BasicConstraints::Unconstrained), "that is that of an authority");
    refused(&|one| one.key_usages.clear(), "that has no key usage");
    refused(&|one| one.key_usages = vec![KeyUsagePurpose::ContentCommitment], "its key usage has no digitalSignature");
    for other in [
        KeyUsagePurpose::KeyEncipherment,
        KeyUsagePurpose::DataEncipherment,
        KeyUsagePurpose::KeyAgreement,
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
    ] {
        refused(&|one| one.key_usages.push(other), "its key usage has more than digitalSignature");
    }
    let lax = |one: &mut CertificateParams| {
        one.key_usages.clear();
        one.custom_extensions.push(CustomExtension::from_oid_content(&[2, 5, 29, 15], vec![3, 2, 7, 0x80]));
    };
    refused(&lax, "that has a key usage that is not critical");
    for other in [
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
        ExtendedKeyUsagePurpose::EmailProtection,
        ExtendedKeyUsagePurpose::TimeStamping,
        ExtendedKeyUsagePurpose::OcspSigning,
    ] {
        let change = |one: &mut CertificateParams| {
            one.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning, other.clone()];
        };
        refused(&change, "see its extended key usage");
    }
    let odd = |one: &mut CertificateParams| {
        let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
        extension.set_criticality(true);
        one.custom_extensions.push(extension);
    };
    refused(&odd, "the critical extension 1.2.3.4, which is not supported");
    refused(&|one| one.not_after = date_time_ymd(2029, 1, 1), "that is not valid now: it is valid from");
    refused(&|one| one.not_before = date_time_ymd(2031, 1, 1), "that is not valid now: it is valid from 2031");
    refused(&|one| one.distinguished_name.push(DnType::CustomDnType(vec![1, 2, 3, 4]), "x"), "the attribute 1.2.3.4");
    refused(&|one| one.distinguished_name = DistinguishedName::new(), "whose subject has no C");
}

#[test]
fn refuses_certificates_that_are_not_a_chain() {
    let root = Authority::root(authority("root"));
    let mut not_an_authority = authority("between");
    not_an_authority.is_ca = IsCa::ExplicitNoCa;
    let between = root.below(not_an_authority);
    refused(&between.signer(&parameters("web"), &[&root]), "its basic constraints have no CA");
    let mut no_issuer = authority("between");
    no_issuer.key_usages = vec![KeyUsagePurpose::CrlSign];
    let between = root.below(no_issuer);
    refused(&between.signer(&parameters("web"), &[&root]), "its key usage has no keyCertSign");
    let mut short = authority("root");
    short.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let short = Authority::root(short);
    assert!(outcome(&short.signer(&parameters("web"), &[]), json!({})).is_ok());
    let between = short.below(authority("between"));
    refused(&between.signer(&parameters("web"), &[&short]), "does not permit so many authorities below it");
    let between = root.below(authority("between"));
    refused(&between.signer(&parameters("web"), &[]), "do not end with a self-signed one");
    let other = Authority::root(authority("root"));
    refused(&between.signer(&parameters("web"), &[&other]), "(number 2) that the next one has not issued");
    let mut signer = root.signer(&parameters("web"), &[]);
    signer.chain[1] = other.certificate.clone();
    refused(&signer, "(number 1) that the next one has not issued");
    refused(&root.signer(&parameters("web"), &[&root]), "a self-signed certificate (number 2) before the last one");
    signer.chain.truncate(1);
    refused(&signer, "do not end with a self-signed one");
    signer.chain = vec![root.certificate.clone(); 9];
    let empty = Signer { chain: Vec::new(), key: KeyPair::generate().unwrap() };
    for (signer, why) in [(&signer, "has more than 8 certificates"), (&empty, "has no certificate")] {
        let trusted = notation(&root.certificate, json!({}));
        let envelope = signer.sign(&protected(), &payload());
        assert_eq!(judge(&trusted, (Format::Jws, &envelope), &target(), now()), Err(why.to_owned()));
    }
}

#[test]
fn refuses_envelopes_that_the_signer_did_not_make_so() {
    let root = Authority::root(authority("root"));
    let signer = root.signer(&parameters("web"), &[]);
    let trusted = notation(&root.certificate, json!({}));
    let refused = |envelope: &[u8], why: &str| {
        let found = judge(&trusted, (Format::Jws, envelope), &target(), now()).unwrap_err();
        assert!(found.contains(why), "{why}: {found}");
    };
    let with = |name: &str, value: Value| {
        let mut changed = protected();
        changed[name] = value;
        changed
    };
    refused(&signer.sign(&with("alg", json!("ES384")), &payload()), "has an algorithm that is not that of its key");
    refused(&signer.sign(&with("cty", json!("text/plain")), &payload()), "a document that is not the signature");
    refused(&signer.sign(&protected(), &json!({"targetArtifact": {}})), "a document that is not the signature");
    refused(
        &signer.sign(&with("crit", json!([SCHEME, "x"])), &payload()),
        "a critical attribute that is not supported",
    );
    let mut expired = with(EXPIRY, json!("2029-01-01T00:00:00Z"));
    expired["crit"] = json!([SCHEME, EXPIRY]);
    refused(&signer.sign(&expired, &payload()), "expired at 2029-01-01T00:00:00Z");
    let other = Signer { chain: signer.chain.clone(), key: KeyPair::generate().unwrap() };
    refused(&other.sign(&protected(), &payload()), "was not made by the key of its certificate");
    let mut envelope: Value = serde_json::from_slice(&signer.sign(&protected(), &payload())).unwrap();
    envelope["protected"] = BASE64_URL_SAFE_NO_PAD.encode(expired.to_string()).into();
    refused(envelope.to_string().as_bytes(), "was not made by the key of its certificate");
}

#[test]
fn a_subject_in_a_message_is_quoted_and_printable() {
    let root = Authority::root(authority("root"));
    let signer = root.signer(&parameters("web\u{202e}gnp\u{2028}\"; it is trusted"), &[]);
    let Ok(Verdict::Trusted(accepted)) = outcome(&signer, json!({})) else { panic!() };
    let refused = outcome(&signer, json!({"trustedIdentities": ["x509.subject:C=US,ST=WA,O=Other"]})).unwrap_err();
    for message in [accepted, refused] {
        assert!(!message.contains(mainstay_object::is_unprintable), "{message:?}");
        assert!(message.contains("the certificate \"CN=web?gnp?"), "{message:?}");
        assert_eq!(message.matches('"').count(), 2, "{message:?}");
    }
}

#[test]
fn an_authority_of_signatures_vouches_for_their_time() {
    let root = Authority::root(authority("root"));
    let mut short = parameters("web");
    (short.not_before, short.not_after) = (date_time_ymd(2025, 1, 1), date_time_ymd(2027, 1, 1));
    let signer = root.signer(&short, &[]);
    refused(&signer, "that is not valid now");
    let trusted = notation(&root.certificate, json!({"trustStores": ["signingAuthority:shop"]}));
    let judge_at = |time: &str| {
        let protected = json!({"alg": "ES256", "cty": PAYLOAD, "crit": [SCHEME, AUTHENTIC_TIME],
            SCHEME: "notary.x509.signingAuthority", AUTHENTIC_TIME: time});
        judge(&trusted, (Format::Jws, &signer.sign(&protected, &payload())), &target(), now())
    };
    assert!(matches!(judge_at("2026-01-01T00:00:00Z"), Ok(Verdict::Trusted(_))));
    let found = judge_at("2028-01-01T00:00:00Z").unwrap_err();
    assert!(found.contains("that is not valid at the time of the signature"), "{found}");
}

#[test]
fn a_certificate_that_can_be_revoked_is_refused_unless_the_policy_permits_it() {
    let root = Authority::root(authority("root"));
    let mut listed = parameters("web");
    listed.crl_distribution_points = vec![CrlDistributionPoint { uris: vec!["http://crl.example.org".to_owned()] }];
    let mut asked = parameters("web");
    // An access description with the method OCSP, and the URL `http://a`.
    let responder = hex::decode("30163014 06082b06010505073001 8608687474703a2f2f61".replace(' ', "")).unwrap();
    asked.custom_extensions.push(CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], responder));
    for certificate in [&listed, &asked] {
        let signer = root.signer(certificate, &[]);
        refused(&signer, "set signatureVerification.override.revocation of the trust policy to log or skip");
        let by = |action: &str| {
            let verification = json!({"signatureVerification": {"override": {"revocation": action}}});
            match outcome(&signer, verification).unwrap() {
                Verdict::Trusted(signer) => signer,
                Verdict::Tolerated(why) => panic!("{why}"),
            }
        };
        assert!(!by("skip").contains("tolerates"), "{}", by("skip"));
        assert!(by("log").contains("tolerates that the signature has a certificate (number 1)"), "{}", by("log"));
    }
}

#[test]
fn the_level_audit_tolerates_a_signer_but_no_other_artifact() {
    let (root, other) = (Authority::root(authority("root")), Authority::root(authority("other")));
    let signer = root.signer(&parameters("web"), &[]);
    let trusted = notation(&other.certificate, json!({"signatureVerification": {"level": "audit"}}));
    let envelope = signer.sign(&protected(), &payload());
    let found = judge(&trusted, (Format::Jws, &envelope), &target(), now()).unwrap();
    assert!(matches!(&found, Verdict::Tolerated(why) if why.contains("none of its certificates")), "{found:?}");
    let changed = Target { size: 9, ..target() };
    assert!(judge(&trusted, (Format::Jws, &envelope), &changed, now()).is_err());
    let broken = signer.sign(&protected(), &json!({}));
    assert!(judge(&trusted, (Format::Jws, &broken), &target(), now()).is_err());
}

#[test]
fn refuses_certificates_that_take_long_to_read() {
    let root = Authority::root(authority("root"));
    let mut long = parameters("web");
    long.custom_extensions.push(CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![0; 9 << 10]));
    refused(&root.signer(&long, &[]), "has a certificate (number 1) that is longer than 8 KiB");
    // The attributes of one part of a name are a set.
    let name = [&[0x31_u8, 18][..], &[5_u8, 0].repeat(9)].concat();
    let wide = [&[0x30_u8, 22, 0x30, 20][..], &name].concat();
    let signer = Signer { chain: vec![wide, root.certificate.clone()], key: KeyPair::generate().unwrap() };
    refused(&signer, "has a certificate (number 1) that has a set with more than 8 elements");
    let found = read(&[("a.crt", vec![0; 9 << 10]), (POLICY, policy(&json!({})))]).err().unwrap();
    assert_eq!(found, "value a.crt of the Secret signers holds a certificate that is longer than 8 KiB");
}

#[test]
fn names_each_value_of_the_secret_that_is_missing_or_cannot_be_read() {
    let (root, policy) = (|| file("root.crt"), || policy(&json!({})));
    let refused = |values: &[(&str, Vec<u8>)], why: &str| {
        let found = read(values).err().unwrap();
        assert!(found.contains(why), "{why}: {found}");
    };
    refused(&[("root.crt", root())], "the Secret signers has no key trustpolicy.json");
    refused(&[("root", root()), (POLICY, policy())], "no value with certificates whose name ends in .crt or .pem");
    refused(&[("root.crt", root()), (POLICY, b"{}".to_vec())], "value trustpolicy.json of the Secret signers is not a");
    refused(
        &[("a.pem", b"x".to_vec()), (POLICY, policy())],
        "value a.pem of the Secret signers holds a certificate that",
    );
    let key = b"-----BEGIN PRIVATE KEY-----\nMA==\n-----END PRIVATE KEY-----\n".to_vec();
    refused(&[("a.pem", key), (POLICY, policy())], "holds no certificate in PEM");
    let cut = b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n".to_vec();
    refused(&[("a.pem", cut), (POLICY, policy())], "value a.pem of the Secret signers is not valid PEM");
    let names: Vec<String> = (0..65).map(|number| format!("{number}.crt")).collect();
    let mut many: Vec<(&str, Vec<u8>)> = names.iter().map(|name| (&**name, root())).collect();
    many.push((POLICY, policy()));
    refused(&many, "the Secret signers holds more than 64 certificates");
    let both = read(&[("a.pem", root()), ("rsa.crt", file("rsa.crt")), (POLICY, policy())]).unwrap();
    assert_eq!((both.trusted.len(), both.secret()), (2, "signers"));
    assert!(both.demand("registry.example.org/other").is_none());
}

#[test]
fn trusts_one_certificate_of_each_value() {
    let bundle = [file("root.crt"), file("stranger.crt")].concat();
    let found = read(&[("bundle.pem", bundle), (POLICY, policy(&json!({})))]).err().unwrap();
    let why =
        "value bundle.pem of the Secret signers holds more than one certificate; store each certificate under a name";
    assert!(found.starts_with(why), "{found}");
    let der = Authority::root(authority("root")).certificate;
    assert_eq!(read(&[("a.crt", der.clone()), (POLICY, policy(&json!({})))]).unwrap().trusted, [der]);
}

proptest! {
    #[test]
    fn reads_any_signature_without_panic(bytes: Vec<u8>, text in "[\\[{\"a-z0:,}\\]]{0,60}") {
        let trusted = notation(&file("root.crt"), json!({}));
        for format in [Format::Jws, Format::Cose] {
            prop_assert!(judge(&trusted, (format, &bytes), &target(), now()).is_err());
            prop_assert!(judge(&trusted, (format, text.as_bytes()), &target(), now()).is_err());
        }
    }

    #[test]
    fn reads_any_certificate_without_panic(bytes: Vec<u8>, at in 0..400_usize, byte: u8) {
        prop_assert!(Certificate::read(&bytes).is_err());
        let mut changed = BASE64_STANDARD.decode(
            String::from_utf8(file("root.crt")).unwrap().lines().filter(|line| !line.starts_with('-')).collect::<String>(),
        ).unwrap();
        changed[at] = byte;
        let _ = Certificate::read(&changed);
    }
}
