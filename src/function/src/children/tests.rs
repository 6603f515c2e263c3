//! Names of children, and thresholds of probes.

use serde_json::json;

use crate::resolve::SecretsDigest;
use crate::settings::SecretKey;
use crate::{BaseImage, Builder, Credentials, ResolvedFunction, Settings, resolve};
use mainstay_api::{Function, FunctionSpec};

use super::job::{Build, Origin};
use super::{build_job, deployment, job, knative_service, name};
use mainstay_api::function::EnvVar;

fn function(name: &str, uid: &str) -> ResolvedFunction {
    let mut function = Function::new(name, FunctionSpec { source: "x".into(), ..FunctionSpec::default() });
    function.metadata.namespace = Some("default".into());
    function.metadata.uid = Some(uid.into());
    let settings = Settings { base_images: [("*".to_owned(), BaseImage::Scratch)].into(), ..Settings::default() };
    resolve(&function, &settings, &Credentials::new(&settings, [])).unwrap()
}

fn build(tag: &str, attempt: i64) -> Build<'_> {
    Build {
        tag,
        attempt,
        causes: &[],
        repository: "r/default-a",
        registry_secret: "s",
        transport: crate::registry::Transport::default(),
        from: Origin::ConfigMap("c"),
        previous: None,
    }
}

fn is_dns(name: &str) -> bool {
    name.len() <= 63
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.ends_with('-')
}

#[test]
fn names_end_in_five_characters_that_last_as_long_as_the_function() {
    let named = name(&function("hello", "1"));
    assert_eq!(named, name(&function("hello", "1")));
    assert!(named.starts_with("hello-") && named.len() == "hello-".len() + 5, "{named}");
    assert_ne!(named, name(&function("hello", "2")), "another Function of the same name has other children");
}

#[test]
fn every_tag_and_every_attempt_has_a_job_of_its_own() {
    let hello = function("hello", "1");
    let first = job::name(&hello, &build("a", 1));
    assert!(first.starts_with("hello-build-") && first.len() == "hello-build-".len() + 5, "{first}");
    assert_eq!(first, job::name(&hello, &build("a", 1)));
    assert_ne!(first, job::name(&hello, &build("a", 2)));
    assert_ne!(first, job::name(&hello, &build("b", 1)));
    let other = Build { repository: "other/default-a", ..build("a", 1) };
    assert_ne!(first, job::name(&hello, &other));
}

#[test]
fn long_names_are_cut_so_that_every_child_can_have_one() {
    for length in 45..=63 {
        let long = format!("a{}", "-b".repeat(31));
        let named = long[..length].trim_end_matches('-');
        let long = function(named, "1");
        for child in [name(&long), job::name(&long, &build("a", 1))] {
            assert!(is_dns(&child), "{child}");
            assert!(!child.contains("--"), "{child}");
        }
    }
}

#[test]
fn the_liveness_probe_waits_for_as_long_as_a_call_may_take() {
    let patience = |timeout: Option<&str>| {
        let mut function = function("hello", "1");
        let variable = |value| EnvVar { name: "FUNC_TIMEOUT".into(), value, value_from: None };
        function.env.push(variable(timeout.map(str::to_owned)));
        let document = deployment::build(&function, "hello", "image", "secret", &Settings::default());
        let probe = &document["spec"]["template"]["spec"]["containers"][0]["livenessProbe"];
        probe["periodSeconds"].as_u64().unwrap() * probe["failureThreshold"].as_u64().unwrap()
    };
    for timeout in [None, Some(""), Some("1"), Some("180"), Some("-5"), Some("NaN"), Some("inf"), Some("soon")] {
        assert_eq!(patience(timeout), 200, "{timeout:?}");
    }
    assert_eq!([patience(Some("600")), patience(Some("181.5")), patience(Some("1e18"))], [620, 210, 3620]);
}

#[test]
fn builds_trust_the_ca_bundle_of_base_images_and_nothing_else_gets_it() {
    let base_ca = Some(SecretKey { secret: "corporate".into(), key: "bundle.pem".into() });
    let kaniko = Settings { builder: Builder::Kaniko, executor_image: Some("kaniko".into()), ..Settings::default() };
    let mut function = function("hello", "1");
    function.base = BaseImage::Image(format!("base.example.com:5000/node@sha256:{}", "0".repeat(64)));
    for (settings, reads, argument) in [
        (Settings::default(), "push", "--base-ca=/base-ca/ca.crt"),
        (kaniko, "executor", "--registry-certificate=base.example.com:5000=/base-ca/ca.crt"),
    ] {
        let pod = |settings: &Settings| {
            build_job::build(&function, &build("a", 1), settings)["spec"]["template"]["spec"].clone()
        };
        assert!(!pod(&settings).to_string().contains("base-ca"));
        let pod = pod(&Settings { base_ca: base_ca.clone(), ..settings });
        let volume = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "base-ca").unwrap();
        let items = json!([{"key": "bundle.pem", "path": "ca.crt"}]);
        assert_eq!(volume["secret"], json!({"secretName": "corporate", "items": items, "optional": true}));
        for container in ["initContainers", "containers"].iter().flat_map(|list| pod[list].as_array().unwrap()) {
            let mounts = container["volumeMounts"].as_array().unwrap();
            let mount = json!({"name": "base-ca", "mountPath": "/base-ca", "readOnly": true});
            assert_eq!(mounts.contains(&mount), container["name"] == reads, "{container}");
            assert_eq!(container["args"].to_string().contains(argument), container["name"] == reads, "{container}");
        }
    }
}

#[test]
fn nodes_pull_the_image_of_a_build_with_the_login_that_it_needs() {
    let secrets = |settings: &Settings| {
        let job = build_job::build(&function("hello", "1"), &build("a", 1), settings);
        let all = job["spec"]["template"]["spec"]["imagePullSecrets"].as_array().unwrap().clone();
        all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(secrets(&Settings::default()), ["s"]);
    let with = |name: &str| Settings { image_pull_secret: Some(name.to_owned()), ..Settings::default() };
    assert_eq!(secrets(&with("harbor")), ["s", "harbor"]);
    assert_eq!(secrets(&with("s")), ["s"], "the login of the registry may be the same");
    let kaniko = Settings { builder: Builder::Kaniko, executor_image: Some("kaniko".into()), ..with("harbor") };
    assert_eq!(secrets(&kaniko), ["s", "harbor"]);
    // The Function's code must not read the Secret for pulling the builder's image.
    assert_eq!(Credentials::new(&with("harbor"), []).purpose("harbor"), Some("the image of the builder"));
}

#[test]
fn another_secret_is_another_template_wherever_the_function_runs() {
    let settings = Settings::default();
    let mut function = function("hello", "u");
    let documents = |function: &ResolvedFunction| {
        let deployment = deployment::build(function, "hello-x", "image", "pull", &settings);
        let knative = knative_service::build(function, "image", "pull", true, &settings);
        [deployment, knative]
    };
    let digests = |document: &serde_json::Value| {
        let (own, template) = (&document["metadata"]["annotations"], &document["spec"]["template"]);
        [own, &template["metadata"]["annotations"]].map(|all| all[mainstay_api::names::SECRETS_DIGEST].clone())
    };
    let before = documents(&function);
    let digest = |record: &str| Some(SecretsDigest { total: "d1".to_owned(), record: Some(record.to_owned()) });
    function.secrets_digest = digest("r1");
    let after = documents(&function);
    function.secrets_digest = digest("r2");
    for ((before, after), last) in before.iter().zip(&after).zip(documents(&function)) {
        assert_eq!(digests(before), [json!(null), json!(null)]);
        assert_eq!(digests(after), [json!("r1"), json!("d1")]);
        assert_eq!(last["spec"], after["spec"], "the record restarts no pods");
    }
    assert_eq!(after[1]["metadata"]["annotations"][mainstay_api::names::ADDRESS], "knative");
}
