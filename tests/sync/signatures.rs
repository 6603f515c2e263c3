//! Artifacts and charts with a required signature: only those are applied that a key of the Secret has signed.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use mainstay_testkit::docker_registry::Served;
use mainstay_testkit::world::{World, condition_of};
use serde_json::{Value, json};

use crate::artifacts::{MANIFEST, Pushed, applied, digest, refused, status, world};

const OURS: &str = "mainstay.dev/v1alpha1";
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// A key that `openssl` made.
pub(super) struct Key {
    directory: tempfile::TempDir,
    algorithm: &'static str,
}

impl Key {
    /// Returns a new key: `P-256`, `P-384`, `P-521`, `RSA`, `RSA-PSS` (an RSA key whose signatures are PSS), or `ED25519`.
    pub(super) fn new(algorithm: &'static str) -> Self {
        let key = Self { directory: tempfile::tempdir().unwrap(), algorithm };
        let curve;
        let options = match algorithm {
            "ED25519" => vec!["-algorithm", "ED25519"],
            "RSA" | "RSA-PSS" => vec!["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
            other => {
                curve = format!("ec_paramgen_curve:{other}");
                vec!["-algorithm", "EC", "-pkeyopt", &curve]
            }
        };
        key.openssl(&[&["genpkey", "-out", "key.pem"], &options[..]].concat());
        key.openssl(&["pkey", "-in", "key.pem", "-pubout", "-out", "key.pub"]);
        key
    }

    fn openssl(&self, arguments: &[&str]) {
        let mut command = mainstay_testkit::isolated("openssl");
        let output = command.args(arguments).current_dir(self.directory.path()).output();
        let output = output.expect("openssl is missing: run .ci/test --install");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.directory.path().join(name)).unwrap()
    }

    /// Returns the public key in PEM.
    pub(super) fn public(&self) -> String {
        String::from_utf8(self.file("key.pub")).unwrap()
    }

    /// Returns a signature in Base64.
    fn sign(&self, message: &[u8]) -> String {
        std::fs::write(self.directory.path().join("message"), message).unwrap();
        let mut arguments =
            vec!["pkeyutl", "-sign", "-rawin", "-inkey", "key.pem", "-in", "message", "-out", "signature"];
        match self.algorithm {
            "ED25519" => {}
            "RSA-PSS" => arguments.extend(["-digest", "sha256", "-pkeyopt", "rsa_padding_mode:pss"]),
            _ => arguments.extend(["-digest", "sha256"]),
        }
        if self.algorithm == "RSA-PSS" {
            arguments.extend(["-pkeyopt", "rsa_pss_saltlen:digest"]);
        }
        self.openssl(&arguments);
        BASE64_STANDARD.encode(self.file("signature"))
    }
}

/// Returns the payload that cosign signs for a manifest.
fn payload(signed: &str) -> Vec<u8> {
    let image = json!({"docker-manifest-digest": signed});
    let purpose = "cosign container image signature";
    let critical = json!({"identity": {"docker-reference": "registry/shop/web"}, "image": image, "type": purpose});
    json!({"critical": critical, "optional": null}).to_string().into_bytes()
}

/// Pushes the signatures of a manifest under the tag for them: payloads, each with a signature.
async fn push_signatures(pushed: &Pushed, signed: &str, signatures: &[Signed]) {
    let mut layers = Vec::new();
    for (payload, signature) in signatures {
        let mut layer = pushed.blob(payload).await;
        layer["mediaType"] = PAYLOAD.into();
        layer["annotations"] = json!({"dev.cosignproject.cosign/signature": signature});
        layers.push(layer);
    }
    let mut config = pushed.blob(b"{}").await;
    config["mediaType"] = "application/vnd.oci.image.config.v1+json".into();
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
    pushed.put(&format!("{}.sig", signed.replace(':', "-")), MANIFEST, &manifest).await;
}

/// Signs a manifest with these keys.
pub(super) async fn sign(pushed: &Pushed, signed: &str, keys: &[&Key]) {
    let signatures: Vec<_> = keys.iter().map(|key| (payload(signed), key.sign(&payload(signed)))).collect();
    push_signatures(pushed, signed, &signatures).await;
}

/// Pushes a bundle of cosign 3 for a manifest, with a predicate of this type. Returns it as a layer.
async fn bundle(pushed: &Pushed, signed: &str, key: &Key, predicate: &str) -> Value {
    const STATEMENT: &str = "application/vnd.in-toto+json";
    let subject = json!([{"digest": {"sha256": signed.trim_start_matches("sha256:")}}]);
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1", "subject": subject, "predicateType": predicate, "predicate": {},
    });
    let statement = statement.to_string();
    let signature =
        key.sign(format!("DSSEv1 {} {STATEMENT} {} {statement}", STATEMENT.len(), statement.len()).as_bytes());
    let payload = BASE64_STANDARD.encode(&statement);
    let envelope = json!({"payload": payload, "payloadType": STATEMENT, "signatures": [{"sig": signature}]});
    let bundle = json!({"mediaType": BUNDLE, "verificationMaterial": {}, "dsseEnvelope": envelope}).to_string();
    let mut layer = pushed.blob(bundle.as_bytes()).await;
    layer["mediaType"] = BUNDLE.into();
    layer
}

/// Pushes an image with a bundle that refers to a manifest.
async fn push_bundle(pushed: &Pushed, signed: &str, key: &Key, predicate: &str) {
    let layer = bundle(pushed, signed, key, predicate).await;
    push_referrers(pushed, signed, &[layer], 1).await;
}

/// Pushes an image with these layers, and an index that lists it so many times as one that refers to a manifest.
async fn push_referrers(pushed: &Pushed, signed: &str, layers: &[Value], times: usize) {
    let mut config = pushed.blob(b"{}").await;
    config["mediaType"] = "application/vnd.oci.empty.v1+json".into();
    let manifest =
        json!({"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": BUNDLE, "config": config, "layers": layers});
    let bytes = manifest.to_string();
    let named = pushed.put(&digest(bytes.as_bytes()), MANIFEST, &manifest).await;
    let member = json!({"mediaType": MANIFEST, "digest": named, "size": bytes.len(), "artifactType": BUNDLE});
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": vec![member; times]});
    pushed.put(&signed.replace(':', "-"), INDEX, &index).await;
}

/// A payload and the signature over it in Base64.
type Signed = (Vec<u8>, String);

fn verified(world: &World) -> String {
    condition_of(&status(world), "SourceVerified")
}

fn change(world: &World, spec: Value) {
    world.edit(OURS, "ocirepositories", "web", json!({"spec": spec}));
}

/// Has the agent look up the artifact before the interval ends.
fn look_again(world: &World) {
    let live = world.get(OURS, "ocirepositories", "web").unwrap();
    let other = if live["spec"]["timeout"] == "61s" { "62s" } else { "61s" };
    change(world, json!({"timeout": other}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applies_only_artifacts_that_a_key_of_the_secret_has_signed() {
    let pushed = Pushed::start(Served::Plainly).await;
    let first = pushed.push_value("latest", "one").await;
    let (key, stranger) = (Key::new("P-256"), Key::new("P-256"));
    let world = world(&pushed, json!({"verify": {"provider": "cosign", "secretRef": {"name": "signers"}}})).await;
    refused(&world, "spec.verify.secretRef: the Secret signers does not exist").await;
    world.set_secret("signers", json!({"cosign.key": "hunter2"}));
    refused(&world, "the Secret signers has no value whose name ends in .pub").await;
    world.set_secret("signers", json!({"cosign.pub": "hunter2"}));
    refused(&world, "value cosign.pub of the Secret signers holds no public key").await;
    world.set_secret("signers", json!({"cosign.pub": key.public()}));
    refused(&world, "it is not signed; sign it with `cosign sign --key`").await;
    assert!(verified(&world).starts_with("False VerificationFailed"), "{}", status(&world));
    assert!(status(&world)["artifact"].is_null() && !world.config_maps().contains(&"web".to_owned()));
    sign(&pushed, &first, &[&stranger]).await;
    look_again(&world);
    refused(&world, "its 1 signatures are by keys that are not in the Secret signers").await;
    sign(&pushed, &first, &[&stranger, &key]).await;
    look_again(&world);
    applied(&world, "one").await;
    let expected = format!("latest@{first} is signed by the key cosign.pub of the Secret signers");
    let shown = || status(&world).to_string();
    let is_verified = |world: &World| verified(world).starts_with("True") && verified(world).contains(&expected);
    world.until_or("verified", is_verified, shown).await;
    // The signature of another artifact does not count, and the last artifact stays.
    let second = pushed.push_value("latest", "two").await;
    push_signatures(&pushed, &second, &[(payload(&first), key.sign(&payload(&first)))]).await;
    look_again(&world);
    refused(&world, "its signature by the key cosign.pub of the Secret signers is that of a different artifact").await;
    assert!(verified(&world).starts_with("False"), "{}", status(&world));
    assert_eq!(
        (world.data("web"), &status(&world)["artifact"]["revision"]),
        ("one".into(), &format!("latest@{first}").into())
    );
    world.condition_is("web", "Ready", "True").await;
    sign(&pushed, &second, &[&key]).await;
    look_again(&world);
    applied(&world, "two").await;
    // A change of the Secret verifies again.
    world.set_secret("signers", json!({"cosign.pub": stranger.public()}));
    refused(&world, "are by keys that are not in the Secret").await;
    assert_eq!(world.data("web"), "two");
    world.set_secret("signers", json!({"more.pub": key.public()}));
    world.until_or("verified", |world| verified(world).contains("the key more.pub"), shown).await;
    world.until_or("ready", |world| condition_of(&status(world), "Ready").starts_with("True"), shown).await;
    assert!(!shown().contains("hunter2") && !shown().contains("BEGIN"), "{}", shown());
    change(&world, json!({"verify": null}));
    let has_condition = |world: &World| status(world)["conditions"].to_string().contains("SourceVerified");
    world.until_or("not required", |world| !has_condition(world), shown).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuses_signatures_that_cannot_be_read_and_keeps_the_last_artifact() {
    let pushed = Pushed::start(Served::Plainly).await;
    let (key, first) = (Key::new("ED25519"), pushed.push_value("good", "good").await);
    sign(&pushed, &first, &[&key]).await;
    let bad = pushed.push_value("bad", "bad").await;
    let verify = json!({"secretRef": {"name": "signers"}});
    let world = world(&pushed, json!({"verify": verify, "ref": {"tag": "good"}})).await;
    world.set_secret("signers", json!({"cosign.pub": key.public()}));
    applied(&world, "good").await;
    let tag = bad.replace(':', "-");
    let signed = |payload: Vec<u8>| {
        let signature = key.sign(&payload);
        (payload, signature)
    };
    let purpose = String::from_utf8(payload(&bad)).unwrap().replace("cosign container image", "another");
    let huge = signed([payload(&bad), vec![b' '; 300 << 10]].concat());
    let stranger = Key::new("ED25519");
    let many = vec![(payload(&bad), stranger.sign(&payload(&bad))); 40];
    let cases: [(&[Signed], &str); 6] = [
        (&[(payload(&bad), "no Base64!".into())], "it is not in Base64"),
        (&[signed(purpose.into_bytes())], "is that of a document that is not the signature of an artifact"),
        (&[(payload(&bad), String::new())], "its 1 signatures are by keys"),
        (&[signed(b"{".to_vec())], "is that of a document that is not the signature of an artifact"),
        (&[huge], "or it is too large"),
        (&many, "its 32 signatures are by keys"),
    ];
    change(&world, json!({"ref": {"tag": "bad"}}));
    for (signatures, part) in cases {
        push_signatures(&pushed, &bad, signatures).await;
        look_again(&world);
        refused(&world, part).await;
    }
    // An image without signatures, and an index that lists an attestation by the same key.
    let config = pushed.blob(b"{}").await;
    let none = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": []});
    pushed.put(&format!("{tag}.sig"), MANIFEST, &none).await;
    look_again(&world);
    refused(&world, "it is not signed").await;
    push_bundle(&pushed, &bad, &key, "https://slsa.dev/provenance/v1").await;
    look_again(&world);
    refused(&world, "is that of a document that is not the signature of an artifact").await;
    push_bundle(&pushed, &bad, &stranger, "https://sigstore.dev/cosign/sign/v1").await;
    look_again(&world);
    refused(&world, "its 1 signatures are by keys").await;
    // Signatures of many manifests are limited like those of one.
    let layer = bundle(&pushed, &bad, &stranger, "https://sigstore.dev/cosign/sign/v1").await;
    push_referrers(&pushed, &bad, &vec![layer; 20], 3).await;
    look_again(&world);
    refused(&world, "its 32 signatures are by keys").await;
    assert_eq!(world.data("web"), "good");
    push_bundle(&pushed, &bad, &key, "https://sigstore.dev/cosign/sign/v1").await;
    look_again(&world);
    applied(&world, "bad").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verifies_signatures_of_each_algorithm() {
    const ALGORITHMS: [&str; 5] = ["P-256", "P-384", "RSA", "RSA-PSS", "ED25519"];
    let pushed = Pushed::start(Served::Plainly).await;
    let first = pushed.push_value("P-521", "P-521").await;
    let verify = json!({"secretRef": {"name": "signers"}});
    let world = world(&pushed, json!({"verify": verify, "ref": {"tag": "P-521"}})).await;
    let long = Key::new("P-521");
    sign(&pushed, &first, &[&long]).await;
    world.set_secret("signers", json!({"own.pub": long.public()}));
    refused(&world, "value own.pub of the Secret signers holds a key that is not supported").await;
    let keys = ALGORITHMS.map(Key::new);
    for key in &keys {
        let pushed_as = pushed.push_value(key.algorithm, key.algorithm).await;
        sign(&pushed, &pushed_as, &[key]).await;
    }
    let all: Value = keys.iter().map(|key| (format!("{}.pub", key.algorithm), Value::from(key.public()))).collect();
    world.set_secret("signers", all);
    world.set_secret("signers", json!({"own.pub": keys[0].public()}));
    for algorithm in ALGORITHMS.into_iter().skip(1) {
        change(&world, json!({"ref": {"tag": algorithm}}));
        applied(&world, algorithm).await;
        let shown = || status(&world).to_string();
        world.until_or(algorithm, |world| verified(world).contains(&format!("the key {algorithm}.pub")), shown).await;
    }
}
