//! Manifests of Flux after a change of their `apiVersion`: those of `tests/flux-examples` work, or are refused with a
//! message. `docs/start/fields-of-flux.md` lists each field.

use std::collections::BTreeMap;
use std::path::Path;

use devcluster::{Action, Call};
use mainstay_testkit::docker_registry::{ECR_HOST, Served};
use mainstay_testkit::files::files_below;
use mainstay_testkit::git_server::GitServer;
use mainstay_testkit::remote::NAME;
use mainstay_testkit::signers::Gpg;
use mainstay_testkit::webhooks::listening;
use mainstay_testkit::world::{NAMESPACE, World, condition_of, config_map};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::artifacts::{CONTENT, Pushed, packed};
use crate::cloud_identities::ecr;
use crate::notation;
use crate::signatures::{Key, sign};

const OURS: &str = "mainstay.dev/v1alpha1";
/// The kinds with their plurals, and the fields of `spec` that Flux's API reference lists.
const KINDS: [(&str, &str, &[&str]); 7] = [
    (
        "Provider",
        "providers",
        &[
            "address",
            "certSecretRef",
            "channel",
            "commitStatusExpr",
            "interval",
            "proxy",
            "proxySecretRef",
            "secretRef",
            "serviceAccountName",
            "suspend",
            "timeout",
            "type",
            "username",
        ],
    ),
    (
        "Alert",
        "alerts",
        &[
            "eventMetadata",
            "eventSeverity",
            "eventSources",
            "exclusionList",
            "inclusionList",
            "providerRef",
            "summary",
            "suspend",
        ],
    ),
    (
        "Receiver",
        "receivers",
        &["events", "interval", "oidcProviders", "resourceFilter", "resources", "secretRef", "suspend", "type"],
    ),
    (
        "OCIRepository",
        "ocirepositories",
        &[
            "certSecretRef",
            "ignore",
            "insecure",
            "interval",
            "layerSelector",
            "provider",
            "proxySecretRef",
            "ref",
            "secretRef",
            "serviceAccountName",
            "suspend",
            "timeout",
            "url",
            "verify",
        ],
    ),
    (
        "ImageRepository",
        "imagerepositories",
        &[
            "accessFrom",
            "certSecretRef",
            "exclusionList",
            "image",
            "insecure",
            "interval",
            "provider",
            "proxySecretRef",
            "secretRef",
            "serviceAccountName",
            "suspend",
            "timeout",
        ],
    ),
    (
        "ImageUpdateAutomation",
        "imageupdateautomations",
        &["git", "interval", "policySelector", "sourceRef", "suspend", "update"],
    ),
    (
        "ImagePolicy",
        "imagepolicies",
        &["digestReflectionPolicy", "filterTags", "imageRepositoryRef", "interval", "policy", "suspend"],
    ),
];

/// A manifest of Flux with the expected message; `None` if it works.
struct Example {
    file: String,
    refused: Option<String>,
    objects: Vec<Value>,
}

/// Returns the examples, in the namespace of the test. `registry` takes the place of the registry in Secrets, `key` that
/// of the public key, `private` that of the private key, and `root` that of the certificate of an authority.
fn examples(registry: &str, key: &str, private: &str, root: &str) -> Vec<Example> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/flux-examples");
    let mut examples: Vec<Example> = files_below(&directory)
        .into_iter()
        .map(|(file, content)| {
            let text =
                String::from_utf8(content).unwrap().replace("flux-system", NAMESPACE).replace("ghcr.io", registry);
            let text = text.replace("PUBLIC-KEY", &serde_json::to_string(key).unwrap());
            let text = text.replace("TRUSTED-ROOT", &serde_json::to_string(root).unwrap());
            let text = text.replace("PRIVATE-KEY", &serde_json::to_string(private).unwrap());
            let text = if text.contains(GOOGLE_KEY) { text.replace(GOOGLE_KEY, &google_key()) } else { text };
            let outcome = text.lines().next().unwrap().strip_prefix("# ").unwrap();
            let refused = outcome.strip_prefix("refused: ").map(str::to_owned);
            assert!(refused.is_some() || outcome == "works", "{file}: {outcome}");
            let documents = serde_yaml::Deserializer::from_str(&text);
            Example { file, refused, objects: documents.map(|one| Value::deserialize(one).unwrap()).collect() }
        })
        .collect();
    examples.sort_by(|one, two| one.file.cmp(&two.file));
    assert!(examples.len() > 50);
    examples
}

/// The place of a key of a service account of Google in an example.
const GOOGLE_KEY: &str = "GOOGLE-KEY";

/// Returns a new key of a service account of Google, as a string of JSON with JSON.
fn google_key() -> String {
    let key = json!({
        "type": "service_account", "private_key": mainstay_testkit::rsa_key(), "client_email": "flux@my-project.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.googleapis.com/token",
    });
    serde_json::to_string(&key.to_string()).unwrap()
}

fn plural(kind: &str) -> &'static str {
    KINDS.iter().find(|(known, ..)| *known == kind).map_or("secrets", |(_, plural, _)| plural)
}

/// Creates an object of an example. Returns the message of the API server if it is refused.
fn create(world: &World, object: &Value, pushed: &Pushed) -> Result<(), String> {
    let (kind, mut object) = (object["kind"].as_str().unwrap(), object.clone());
    let mut api_version = "v1";
    if kind != "Secret" {
        api_version = OURS;
        object["apiVersion"] = OURS.into();
    }
    let is_of_aws = object["spec"]["provider"] == "aws";
    let image = if is_of_aws { format!("oci://{ECR_HOST}/shop/web") } else { pushed.url() };
    match kind {
        "OCIRepository" => object["spec"]["url"] = image.into(),
        "ImageRepository" => object["spec"]["image"] = image.trim_start_matches("oci://").into(),
        _ => {}
    }
    if matches!(kind, "OCIRepository" | "ImageRepository") && !is_of_aws {
        // This registry of the test serves HTTP.
        object["spec"]["insecure"] = true.into();
    }
    let call = Call::new(api_version, plural(kind), NAMESPACE, "", Action::Create(object.clone()));
    let made = world.try_as("kubectl", call).map_err(|status| format!("{status:?}"))?;
    for (field, value) in object["spec"].as_object().into_iter().flatten() {
        assert!(holds(&made["spec"][field], value), "{kind} {field}: {made}");
    }
    Ok(())
}

/// Returns whether no field of `wanted` was dropped.
fn holds(made: &Value, wanted: &Value) -> bool {
    match (made, wanted) {
        (Value::Object(made), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| made.get(key).is_some_and(|made| holds(made, value)))
        }
        (Value::Array(made), Value::Array(wanted)) => {
            made.len() == wanted.len() && made.iter().zip(wanted).all(|(made, wanted)| holds(made, wanted))
        }
        _ => made == wanted,
    }
}

fn ready(world: &World, object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().unwrap();
    let live = world.get(OURS, plural(object["kind"].as_str().unwrap()), name);
    live.map(|live| condition_of(&live["status"], "Ready")).unwrap_or_default()
}

/// Creates the GitRepository `podinfo`, and the Secret `podinfo-write` with write access to it.
async fn podinfo(world: &mut World) -> GitServer {
    world.remote.configure("http.receivepack", "true").file("web.yaml", config_map("web", "1")).commit("one");
    let server = GitServer::start(world.remote.root()).await;
    world.set_secret("podinfo-write", json!({"username": "flux", "password": "sesame"}));
    let api_version = "serverless.kyma-project.io/v1alpha1";
    let repository = json!({
        "apiVersion": api_version, "kind": "GitRepository",
        "metadata": {"name": "podinfo", "namespace": NAMESPACE}, "spec": {"url": server.url(NAME)},
    });
    world.create(api_version, "gitrepositories", NAMESPACE, repository);
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifests_of_flux_work_or_are_refused_with_a_message() {
    let (pushed, key) = (Pushed::start(Served::Plainly).await, Key::new("P-256"));
    let signer = notation::Signer::new("flux");
    for tag in ["latest", "6.1.8", "5.1.4", "main-2c36fb2f5-1611906956", "RELEASE.2021-01-30T00-20-58Z"] {
        let layer = packed(&[("web.yaml", config_map("web", "1").as_bytes())]);
        let signed = pushed.push(tag, &[(CONTENT, &layer)]).await;
        sign(&pushed, &signed, &[&key]).await;
        signer.sign(&pushed, &signed).await;
    }
    let mut world = World::new().await;
    world.receive = Some(listening());
    let (_git, _ecr, gpg) = (podinfo(&mut world).await, ecr(&mut world).await, Gpg::new("ed25519", "never"));
    let (mut expected, mut wrong) = (Vec::new(), Vec::new());
    let url = pushed.url();
    let registry = url.trim_start_matches("oci://").split('/').next().unwrap();
    let examples = examples(registry, &key.public(), &gpg.private(""), signer.root());
    for Example { file, refused, objects } in &examples {
        for object in objects {
            match (create(&world, object, &pushed), refused) {
                (Ok(()), _) if object["kind"] == "Secret" => {}
                (Ok(()), _) if file.starts_with("alert-") && object["kind"] == "Provider" => {}
                (Ok(()), _) => expected.push((file, object, refused)),
                (Err(message), Some(part)) if message.contains(part) => {}
                (Err(message), _) => wrong.push(format!("{file}: {message}")),
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    world.start();
    let is_as_expected = |world: &World, object: &Value, refused: &Option<String>| {
        let ready = ready(world, object);
        refused.as_ref().map_or(ready.starts_with("True"), |part| ready.starts_with("False") && ready.contains(part))
    };
    let open = |world: &World| -> Vec<String> {
        let open = expected.iter().filter(|(_, object, refused)| !is_as_expected(world, object, refused));
        open.map(|(file, object, _)| format!("{file}: {}\n", ready(world, object))).collect()
    };
    world.until_or("all examples", |world| open(world).is_empty(), || open(&world).concat()).await;
}

/// The rows of the page: kind and field, with the first word of the comparison.
fn table() -> BTreeMap<(String, String), String> {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/start/fields-of-flux.md"));
    let mut rows = BTreeMap::new();
    for line in page.unwrap().lines().filter(|line| line.starts_with("| ") && line.contains('`')) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let word = cells[2].split([',', ':', ' ']).next().unwrap().to_owned();
        assert!(["same", "different", "refused"].contains(&word.as_str()), "{line}");
        for field in cells[1].split(", ") {
            let row = (cells[0].to_owned(), field.trim_matches('`').to_owned());
            assert!(rows.insert(row, word.clone()).is_none(), "{line}");
        }
    }
    rows
}

/// Returns the schema of `spec` of a kind; `None` if there is no such kind.
fn schema(kind: &str) -> Option<Value> {
    let definitions = mainstay_api::definitions().into_iter().map(|one| serde_json::to_value(one).unwrap());
    let definition = definitions
        .into_iter()
        .find(|one| one["spec"]["group"] == "mainstay.dev" && one["spec"]["names"]["kind"] == kind)?;
    Some(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].clone())
}

#[test]
fn the_page_lists_each_field_of_flux_as_the_schema_has_it() {
    let rows = table();
    let listed: Vec<(String, String)> = rows.keys().cloned().collect();
    let mut all: Vec<(String, String)> = KINDS
        .iter()
        .flat_map(|(kind, _, fields)| fields.iter().map(|field| ((*kind).to_owned(), (*field).to_owned())))
        .collect();
    all.sort();
    assert_eq!(listed, all);
    for ((kind, field), word) in &rows {
        let found = schema(kind).map_or(Value::Null, |schema| schema[field].clone());
        let is_refused = found["description"].as_str().is_none_or(|text| text.starts_with("Not supported"));
        assert_eq!(word == "refused", found.is_null() || is_refused, "{kind} {field}: {word}");
    }
    // The examples use no other fields.
    for Example { file, objects, .. } in examples("ghcr.io", "", "", "") {
        for object in objects.iter().filter(|object| object["kind"] != "Secret") {
            for (field, _) in object["spec"].as_object().unwrap() {
                let row = (object["kind"].as_str().unwrap().to_owned(), field.clone());
                assert!(rows.contains_key(&row), "{file}: {field}");
            }
        }
    }
}
