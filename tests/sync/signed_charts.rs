//! HelmCharts with a required signature: provenance files of the real Helm, and cosign's signatures of charts in registries.

use mainstay_testkit::docker_registry::Served;
use mainstay_testkit::signers::{Gpg, SshKey};
use mainstay_testkit::world::{World, condition_of};
use serde_json::{Value, json};
use std::path::PathBuf;

use crate::artifacts::Pushed;
use crate::chart_sources::{Helm, Repository, applied, change, said, status, world};
use crate::signatures::{Key, sign};

const CHART: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// Packs the chart `shop`, and signs it.
fn pack(helm: &Helm, version: &str, message: &str, signer: &Gpg) -> PathBuf {
    let keyring = tempfile::tempdir().unwrap();
    let keyring = keyring.path().join("secring.gpg").display().to_string();
    signer.run(&["--output", &keyring, "--export-secret-keys"], b"");
    helm.pack_with(version, message, &["--sign", "--key", "Alice", "--keyring", &keyring])
}

fn verified(world: &World) -> String {
    condition_of(&status(world), "SourceVerified")
}

/// Has the agent look up the chart before the interval ends.
fn look_again(world: &World) {
    let live = world.get("mainstay.dev/v1alpha1", "helmcharts", "web").unwrap();
    let other = if live["spec"]["timeout"] == "61s" { "62s" } else { "61s" };
    change(world, json!({"timeout": other}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_with_a_provenance_file_is_applied_only_if_a_key_of_the_secret_signed_it() {
    let (helm, signer, stranger) = (Helm::new(), Gpg::new("rsa2048", "never"), Gpg::new("rsa2048", "never"));
    let repository = Repository::start(helm.packed.path()).await;
    helm.pack("1.0.0", "Welcome");
    helm.index(&[]);
    let verify = json!({"provider": "helm", "secretRef": {"name": "signers"}});
    let world = world(json!({"repository": repository.url(), "verify": verify})).await;
    said(&world, "spec.verify.secretRef: the Secret signers does not exist").await;
    world.set_secret("signers", json!({"alice": SshKey::new("ed25519").public()}));
    said(&world, "the Secret signers has no OpenPGP key").await;
    world.set_secret("signers", json!({"alice": signer.public()}));
    said(&world, "it has no provenance file (.prov)").await;
    assert!(verified(&world).starts_with("False VerificationFailed"), "{}", status(&world));
    pack(&helm, "1.0.0", "Welcome", &stranger);
    helm.index(&[]);
    look_again(&world);
    said(&world, "which is not in Secret signers").await;
    let first = pack(&helm, "1.0.0", "Welcome", &signer);
    helm.index(&[]);
    look_again(&world);
    applied(&world, &helm.template(&first)).await;
    let shown = || status(&world).to_string();
    let part = "is signed by a key of the Secret signers";
    world.until_or(part, |world| verified(world).starts_with("True") && verified(world).contains(part), shown).await;
    // The archive is another one than the signed one.
    let second = pack(&helm, "1.1.0", "Good bye", &signer);
    let signature = std::fs::read(second.with_extension("tgz.prov")).unwrap();
    helm.pack("1.1.0", "Changed");
    std::fs::write(second.with_extension("tgz.prov"), &signature).unwrap();
    helm.index(&[]);
    look_again(&world);
    said(&world, "the archive does not have the digest in its provenance file").await;
    // The signed text was changed.
    let text = String::from_utf8(signature).unwrap().replace("version: 1.1.0", "version: 1.1.1");
    std::fs::write(second.with_extension("tgz.prov"), text).unwrap();
    look_again(&world);
    said(&world, "was made for something else, or was altered").await;
    std::fs::write(second.with_extension("tgz.prov"), vec![b'x'; 300 << 10]).unwrap();
    look_again(&world);
    said(&world, "the file is longer than 262144 bytes").await;
    std::fs::write(second.with_extension("tgz.prov"), "hunter2").unwrap();
    look_again(&world);
    said(&world, "it has no OpenPGP signature").await;
    // The index presents an older chart as a new version.
    std::fs::remove_file(second).unwrap();
    helm.index(&[]);
    let index = helm.packed.path().join("index.yaml");
    let text = std::fs::read_to_string(&index).unwrap();
    std::fs::write(&index, text.replace("version: 1.0.0", "version: 1.2.0")).unwrap();
    look_again(&world);
    said(&world, "is that of a different chart: it does not list shop-1.2.0.tgz").await;
    assert!(status(&world)["artifact"]["revision"].as_str().unwrap().starts_with("1.0.0@"), "{}", shown());
    assert!(world.condition("web", "Ready").starts_with("True") && !shown().contains("hunter2"), "{}", shown());
    change(&world, json!({"verify": {"provider": "cosign"}}));
    said(&world, "spec.verify.provider: must be helm").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_of_a_registry_is_verified_by_its_provenance_layer() {
    let (helm, signer) = (Helm::new(), Gpg::new("rsa2048", "never"));
    let pushed = Pushed::start(Served::Plainly).await;
    let address = format!("oci://{}/charts", pushed.registry.host());
    let push = |chart: &PathBuf| helm.run(&["push", &chart.display().to_string(), &address, "--plain-http"]);
    push(&helm.pack("1.0.0", "Welcome"));
    let verify = json!({"provider": "helm", "secretRef": {"name": "signers"}});
    let world = world(json!({"repository": address, "verify": verify})).await;
    world.set_secret("signers", json!({"alice.asc": signer.public()}));
    said(&world, "it has no provenance file (.prov)").await;
    let second = pack(&helm, "1.1.0+build.5", "Good bye", &signer);
    push(&second);
    look_again(&world);
    applied(&world, &helm.template(&second)).await;
    world.until("it is verified", |world| verified(world).starts_with("True")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_of_a_registry_is_verified_by_its_signature_of_cosign() {
    let (helm, key) = (Helm::new(), Key::new("P-256"));
    let pushed = Pushed::start(Served::Plainly).await;
    let (first, second) = (helm.pack("1.0.0", "Welcome"), helm.pack("1.1.0", "Good bye"));
    let signed = pushed.push("1.0.0", &[(CHART, &std::fs::read(&first).unwrap())]).await;
    sign(&pushed, &signed, &[&key]).await;
    let address = pushed.url().trim_end_matches("/web").to_owned();
    let spec: Value = json!({"repository": address, "name": "web", "verify": {"secretRef": {"name": "signers"}}});
    let world = world(spec).await;
    world.set_secret("signers", json!({"cosign.pub": key.public()}));
    applied(&world, &helm.template(&first)).await;
    let new = pushed.push("1.1.0", &[(CHART, &std::fs::read(&second).unwrap())]).await;
    look_again(&world);
    said(&world, "it is not signed; sign it with `cosign sign --key`").await;
    assert!(status(&world)["artifact"]["revision"].as_str().unwrap().starts_with("1.0.0@"), "{}", status(&world));
    sign(&pushed, &new, &[&key]).await;
    look_again(&world);
    applied(&world, &helm.template(&second)).await;
}
