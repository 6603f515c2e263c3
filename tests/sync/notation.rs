//! Signatures of the Notary Project: those that the real notation made, in `tests/notation`, and those of a signer of the test.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use mainstay_testkit::docker_registry::Served;
use mainstay_testkit::world::{NAMESPACE, World, condition_of};
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

use crate::artifacts::{MANIFEST, Pushed, applied, digest, refused, status, world};
use crate::chart_sources;
use crate::cosign::{Registry, serve, verified};

const OURS: &str = "mainstay.dev/v1alpha1";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const HOLDER: &str = "application/vnd.cncf.notary.signature";
const ENVELOPE: &str = "application/jose+json";
const PAYLOAD: &str = "application/vnd.cncf.notary.payload.v1+json";
const CHART: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// A signer whose certificate an authority has issued.
pub(super) struct Signer {
    /// The certificate of the authority in PEM.
    root: String,
    /// The certificates in DER.
    chain: [Vec<u8>; 2],
    key: KeyPair,
}

fn parameters(name: &str, usage: KeyUsagePurpose) -> CertificateParams {
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
    parameters.key_usages = vec![usage];
    parameters
}

impl Signer {
    pub(super) fn new(name: &str) -> Self {
        let mut authority = parameters("root", KeyUsagePurpose::KeyCertSign);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let (above, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let root = authority.self_signed(&above).unwrap();
        let issuer = Issuer::new(authority, above);
        let own = parameters(name, KeyUsagePurpose::DigitalSignature).signed_by(&key, &issuer).unwrap();
        Self { root: root.pem(), chain: [own.der().to_vec(), root.der().to_vec()], key }
    }

    /// Returns the certificate of the authority in PEM.
    pub(super) fn root(&self) -> &str {
        &self.root
    }

    /// Returns a signature of a manifest.
    fn envelope(&self, signed: &str, size: usize) -> String {
        let payload = json!({"targetArtifact": {"mediaType": MANIFEST, "digest": signed, "size": size}});
        let protected = json!({
            "alg": "ES256", "cty": PAYLOAD, "crit": ["io.cncf.notary.signingScheme"],
            "io.cncf.notary.signingScheme": "notary.x509", "io.cncf.notary.signingTime": "2026-01-01T00:00:00Z",
        });
        let encoded = |document: &Value| BASE64_URL_SAFE_NO_PAD.encode(document.to_string());
        let (protected, payload) = (encoded(&protected), encoded(&payload));
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &self.key.serialize_der(), &random);
        let made = pair.unwrap().sign(&random, format!("{protected}.{payload}").as_bytes()).unwrap();
        let certificates = self.chain.each_ref().map(|der| BASE64_STANDARD.encode(der));
        json!({
            "payload": payload, "protected": protected, "header": {"x5c": certificates},
            "signature": BASE64_URL_SAFE_NO_PAD.encode(made.as_ref()),
        })
        .to_string()
    }

    /// Signs a manifest.
    pub(super) async fn sign(&self, pushed: &Pushed, signed: &str) {
        let size = pushed.size(signed).await;
        push(pushed, signed, &[self.envelope(signed, size)]).await;
    }
}

/// Pushes envelopes as the signatures of a manifest.
async fn push(pushed: &Pushed, signed: &str, envelopes: &[String]) {
    let mut members = Vec::new();
    for envelope in envelopes {
        let mut config = pushed.blob(b"{}").await;
        config["mediaType"] = HOLDER.into();
        let mut layer = pushed.blob(envelope.as_bytes()).await;
        layer["mediaType"] = ENVELOPE.into();
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
        let bytes = manifest.to_string();
        let named = pushed.put(&digest(bytes.as_bytes()), MANIFEST, &manifest).await;
        members.push(json!({"mediaType": MANIFEST, "digest": named, "size": bytes.len(), "artifactType": HOLDER}));
    }
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": members});
    pushed.put(&signed.replace(':', "-"), INDEX, &index).await;
}

/// Returns a trust policy for all repositories, or one of them.
fn policy(scope: &str, level: &str) -> String {
    let statement = json!({
        "name": "shop", "registryScopes": [scope], "signatureVerification": {"level": level},
        "trustStores": ["ca:shop"], "trustedIdentities": ["x509.subject: C=US, ST=WA, O=Example"],
    });
    json!({"version": "1.0", "trustPolicies": [statement]}).to_string()
}

fn change(world: &World, spec: Value) {
    world.edit(OURS, "ocirepositories", "web", json!({"spec": spec}));
}

/// Has the agent look up an object before the interval ends.
fn look_again(world: &World, plural: &str) {
    let live = world.get(OURS, plural, "web").unwrap();
    let other = if live["spec"]["timeout"] == "61s" { "62s" } else { "61s" };
    world.edit(OURS, plural, "web", json!({"spec": {"timeout": other}}));
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/notation")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signatures_of_the_real_notation_are_verified() {
    let file = |name: &str| std::fs::read_to_string(directory().join(name)).unwrap();
    let mut world = World::new().await;
    let policy = policy("*", "strict");
    let trusted = json!({"root.crt": file("root.crt"), "rsa.pem": file("rsa.crt"), "trustpolicy.json": policy});
    world.set_secret("signers", trusted);
    world.set_secret("strangers", json!({"root.crt": file("stranger.crt"), "trustpolicy.json": policy}));
    world.sync("web", json!({"gitRepository": null, "sourceRef": {"kind": "OCIRepository", "name": "web"}}));
    world.start();
    for (format, referrers) in [("jws", None), ("jws", Some(HOLDER)), ("cose", None), ("p521", None), ("rsa", None)] {
        let url = serve(Registry { directory: Arc::new(directory().join(format)), referrers }).await;
        let spec = |secret: &str| {
            let verify = json!({"provider": "notation", "secretRef": {"name": secret}});
            json!({"url": url, "insecure": true, "interval": "10s", "ref": {"tag": format}, "verify": verify})
        };
        let object = json!({
            "apiVersion": OURS, "kind": "OCIRepository", "metadata": {"name": "web", "namespace": NAMESPACE},
            "spec": spec("strangers"),
        });
        world.create(OURS, "ocirepositories", NAMESPACE, object);
        refused(&world, "and none of its certificates is in the Secret strangers").await;
        change(&world, spec("signers"));
        applied(&world, format).await;
        verified(&world, format, &format!("is signed by the certificate \"CN={format},")).await;
        world.delete(OURS, "ocirepositories", "web");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applies_only_artifacts_whose_signature_the_trust_policy_accepts() {
    let pushed = Pushed::start(Served::Plainly).await;
    let first = pushed.push_value("latest", "one").await;
    let (signer, stranger) = (Signer::new("web"), Signer::new("web"));
    let world = world(&pushed, json!({"verify": {"provider": "notation", "secretRef": {"name": "signers"}}})).await;
    let trust = |policy: &str| json!({"root.crt": signer.root(), "trustpolicy.json": policy});
    refused(&world, "spec.verify.secretRef: the Secret signers does not exist").await;
    world.set_secret("signers", json!({"root.crt": signer.root()}));
    refused(&world, "the Secret signers has no key trustpolicy.json").await;
    world.set_secret("signers", trust("hunter2"));
    refused(&world, "value trustpolicy.json of the Secret signers is not a trust policy").await;
    world.set_secret("signers", trust(&policy("registry.example.org/shop/web", "strict")));
    refused(&world, "no statement of the trust policy in the Secret signers applies to it").await;
    let repository = pushed.url().trim_start_matches("oci://").to_owned();
    world.set_secret("signers", trust(&policy(&repository, "strict")));
    refused(&world, "it is not signed with notation; sign it with `notation sign`").await;
    let verification = |world: &World| condition_of(&status(world), "SourceVerified");
    assert!(verification(&world).starts_with("False VerificationFailed"), "{}", status(&world));
    assert!(status(&world)["artifact"].is_null() && !world.config_maps().contains(&"web".to_owned()));
    stranger.sign(&pushed, &first).await;
    look_again(&world, "ocirepositories");
    refused(&world, "and none of its certificates is in the Secret signers").await;
    // One valid signature is enough, also behind others.
    let size = pushed.size(&first).await;
    let (own, other) = (signer.envelope(&first, size), stranger.envelope(&first, size));
    push(&pushed, &first, &["hunter2".to_owned(), "x".repeat(300 << 10), other, own.clone()]).await;
    look_again(&world, "ocirepositories");
    applied(&world, "one").await;
    verified(&world, "latest", "is signed by the certificate \"CN=web,O=Example,ST=WA,C=US\"").await;
    // A signature behind more of them than are read is not found, and the message says so.
    let junk = vec!["hunter2".to_owned(); 32];
    let third = pushed.push_value("latest", "three").await;
    push(&pushed, &third, &[junk, vec![signer.envelope(&third, pushed.size(&third).await)]].concat()).await;
    look_again(&world, "ocirepositories");
    refused(&world, "the registry lists more signatures than are read (at most 32 of each kind)").await;
    // The signature of another artifact does not count, and the last artifact stays.
    let second = pushed.push_value("latest", "two").await;
    push(&pushed, &second, &[own]).await;
    look_again(&world, "ocirepositories");
    refused(&world, "its signature is that of a different artifact; sign it with `notation sign`").await;
    assert_eq!(world.data("web"), "one");
    assert!(!status(&world).to_string().contains("hunter2"), "{}", status(&world));
    // The trust policy accepts any artifact, and none of them counts as signed.
    world.fail_next("patch", "ocirepositories.mainstay.dev/status", "web", 500, 1);
    world.set_secret("signers", trust(&policy(&repository, "skip")));
    applied(&world, "two").await;
    // A refused status and further lookups do not bring back the condition of the last signed artifact.
    look_again(&world, "ocirepositories");
    let shown = || status(&world).to_string();
    world.until_or("no condition", |world| !status(world).to_string().contains("SourceVerified"), shown).await;
    let generation = || world.get(OURS, "ocirepositories", "web").unwrap()["metadata"]["generation"].clone();
    let is_current = |world: &World| status(world)["observedGeneration"] == generation();
    world.until_or("looked up again", is_current, shown).await;
    assert!(!shown().contains("SourceVerified"), "{}", shown());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_does_not_outlive_the_signers_and_the_address() {
    let mut pushed = Pushed::start(Served::Plainly).await;
    let first = pushed.push_value("latest", "one").await;
    let signer = Signer::new("web");
    signer.sign(&pushed, &first).await;
    let world = world(&pushed, json!({"verify": {"provider": "notation", "secretRef": {"name": "signers"}}})).await;
    let trust = |policy: &str| json!({"root.crt": signer.root(), "trustpolicy.json": policy});
    let strict = trust(&policy("*", "strict"));
    world.set_secret("signers", strict.clone());
    applied(&world, "one").await;
    verified(&world, "latest", "is signed by").await;
    let shown = || status(&world).to_string();
    let is_unknown = |world: &World| condition_of(&status(world), "SourceVerified").starts_with("Unknown NotVerified");
    // The policy cannot be read.
    world.set_secret("signers", trust("hunter2"));
    refused(&world, "is not a trust policy").await;
    world.until_or("unknown: no policy", is_unknown, shown).await;
    world.set_secret("signers", strict.clone());
    verified(&world, "latest", "is signed by").await;
    // The Secret does not exist, and a spec is invalid.
    change(&world, json!({"verify": {"secretRef": {"name": "missing"}}}));
    world.until_or("unknown: no Secret", is_unknown, shown).await;
    change(&world, json!({"verify": {"secretRef": {"name": "signers"}}}));
    verified(&world, "latest", "is signed by").await;
    change(&world, json!({"verify": {"provider": "other"}}));
    world.until_or("unknown: invalid", is_unknown, shown).await;
    change(&world, json!({"verify": {"provider": "notation"}}));
    verified(&world, "latest", "is signed by").await;
    // The registry is away when the policy changes.
    pushed.kill().await;
    world.set_secret("signers", trust(&policy("*", "permissive")));
    world.until_or("unknown: no registry", is_unknown, shown).await;
    assert_eq!(world.data("web"), "one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_stays_while_another_secret_is_missing() {
    let mut pushed = Pushed::start(Served::Plainly).await;
    let first = pushed.push_value("latest", "one").await;
    let signer = Signer::new("web");
    signer.sign(&pushed, &first).await;
    let world = world(&pushed, json!({"verify": {"provider": "notation", "secretRef": {"name": "signers"}}})).await;
    world.set_secret("signers", json!({"root.crt": signer.root(), "trustpolicy.json": policy("*", "strict")}));
    applied(&world, "one").await;
    verified(&world, "latest", "is signed by").await;
    // Without the registry, no artifact can be verified again.
    pushed.kill().await;
    let is_verified = |world: &World| condition_of(&status(world), "SourceVerified").starts_with("True Verified");
    change(&world, json!({"secretRef": {"name": "login"}}));
    refused(&world, "spec.secretRef: the Secret login does not exist").await;
    assert!(is_verified(&world), "{}", status(&world));
    change(&world, json!({"secretRef": null, "proxySecretRef": {"name": "proxy"}}));
    refused(&world, "spec.proxySecretRef: the Secret proxy does not exist").await;
    assert!(is_verified(&world), "{}", status(&world));
    change(&world, json!({"proxySecretRef": null}));
    let is_away = |world: &World| condition_of(&status(world), "Ready").starts_with("False ArtifactFailed");
    world.until_or("no registry", is_away, || status(&world).to_string()).await;
    assert!(is_verified(&world), "{}", status(&world));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_does_not_outlive_a_restart_without_the_registry() {
    let mut pushed = Pushed::start(Served::Plainly).await;
    let first = pushed.push_value("latest", "one").await;
    let signer = Signer::new("web");
    signer.sign(&pushed, &first).await;
    let mut world = world(&pushed, json!({"verify": {"provider": "notation", "secretRef": {"name": "signers"}}})).await;
    let trust = |signer: &Signer| json!({"root.crt": signer.root(), "trustpolicy.json": policy("*", "strict")});
    world.set_secret("signers", trust(&signer));
    applied(&world, "one").await;
    verified(&world, "latest", "is signed by").await;
    // The signer is removed while no agent runs.
    world.stop().await;
    world.set_secret("signers", trust(&Signer::new("other")));
    pushed.kill().await;
    world.start();
    let is_unknown = |world: &World| condition_of(&status(world), "SourceVerified").starts_with("Unknown NotVerified");
    world.until_or("unknown: no registry", is_unknown, || status(&world).to_string()).await;
    assert_eq!(world.data("web"), "one");
    pushed.registry.restart().await;
    look_again(&world, "ocirepositories");
    refused(&world, "none of its certificates is in the Secret signers").await;
    let is_refused = |world: &World| condition_of(&status(world), "SourceVerified").starts_with("False Verification");
    assert!(is_refused(&world), "{}", status(&world));
    world.set_secret("signers", trust(&signer));
    verified(&world, "latest", "is signed by").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_of_a_registry_is_verified_by_its_signature_of_notation() {
    let (helm, signer) = (chart_sources::Helm::new(), Signer::new("shop"));
    let pushed = Pushed::start(Served::Plainly).await;
    let (first, second) = (helm.pack("1.0.0", "Welcome"), helm.pack("1.1.0", "Good bye"));
    let signed = pushed.push("1.0.0", &[(CHART, &std::fs::read(&first).unwrap())]).await;
    signer.sign(&pushed, &signed).await;
    let verify = json!({"provider": "notation", "secretRef": {"name": "signers"}});
    let address = pushed.url().trim_end_matches("/web").to_owned();
    let world = chart_sources::world(json!({"repository": address, "name": "web", "verify": verify})).await;
    world.set_secret("signers", json!({"root.crt": signer.root(), "trustpolicy.json": policy("*", "strict")}));
    chart_sources::applied(&world, &helm.template(&first)).await;
    let new = pushed.push("1.1.0", &[(CHART, &std::fs::read(&second).unwrap())]).await;
    look_again(&world, "helmcharts");
    chart_sources::said(&world, "it is not signed with notation").await;
    let kept = chart_sources::status(&world)["artifact"]["revision"].as_str().unwrap().starts_with("1.0.0@");
    assert!(kept, "{}", chart_sources::status(&world));
    signer.sign(&pushed, &new).await;
    look_again(&world, "helmcharts");
    chart_sources::applied(&world, &helm.template(&second)).await;
}
