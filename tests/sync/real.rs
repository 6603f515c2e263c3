//! Real manifests of public projects, and `kubectl` as an independent client. The manifests are optional and lie beside
//! the repository. Without them, these tests say so and check nothing.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize as _;
use serde_json::{Value, json};

use mainstay_testkit::kubectl::Kubectl;
use mainstay_testkit::world::{NAMESPACE, World};

/// Returns the directory of the manifests, if present.
#[expect(clippy::print_stderr, reason = "a test that had nothing to check says so")]
fn data(project: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data").join(project);
    if path.is_dir() {
        return Some(path);
    }
    eprintln!("{} is not there: nothing was checked", path.display());
    None
}

/// Returns the manifests of a project by file name, without its kustomization.
fn manifests(directory: &Path) -> Vec<(String, String)> {
    let mut files = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "yaml") && !path.ends_with("kustomization.yaml"))
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap()))
        .collect::<Vec<_>>();
    files.sort();
    files
}

/// Returns the live objects of the manifests, without fields that differ between clusters.
fn applied(world: &World, files: &[(String, String)]) -> Vec<Value> {
    let mut found = Vec::new();
    for (_, text) in files {
        for document in serde_yaml::Deserializer::from_str(text) {
            let document = Value::deserialize(document).unwrap();
            let Some(kind) = document["kind"].as_str() else { continue };
            let resource = match kind.strip_suffix('y') {
                Some(stem) => format!("{}ies", stem.to_lowercase()),
                None => format!("{}s", kind.to_lowercase()),
            };
            let name = document["metadata"]["name"].as_str().unwrap();
            let version = document["apiVersion"].as_str().unwrap();
            let object = world.get(version, &resource, name).unwrap_or_else(|| panic!("{kind} {name} is not there"));
            found.push(comparable(&object));
        }
    }
    found
}

fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "annotations"] {
        metadata.remove(field);
    }
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        labels.remove("mainstay.dev/sync");
        if labels.is_empty() {
            metadata.remove("labels");
        }
    }
    let root = object.as_object_mut().unwrap();
    root.remove("status");
    if let Some(spec) = root.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port.as_object_mut().unwrap().remove("nodePort");
        }
    }
    object
}

async fn synced(files: &[(String, String)]) -> World {
    let mut world = World::new().await;
    for (name, text) in files {
        world.remote.file(name, text);
    }
    world.remote.commit("real manifests");
    world.synced(json!({})).await;
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn online_boutique_is_the_same_through_kubectl_and_through_a_git_sync() {
    let Some(directory) = data("online-boutique") else { return };
    let files = manifests(&directory);
    let by_hand = World::new().await;
    let kubectl = Kubectl::of(by_hand.server.embedded(), NAMESPACE).await;
    kubectl.run(&["apply", "--server-side", "-f", directory.join("kubernetes-manifests.yaml").to_str().unwrap()]).await;
    let by_commit = synced(&files).await;
    let (theirs, ours) = (applied(&by_hand, &files), applied(&by_commit, &files));
    assert_eq!(theirs.len(), 35);
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!(theirs, ours);
    }
    assert_eq!(by_commit.status("demo")["objects"], 35);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kubectl_change_to_online_boutique_is_reverted_and_reported() {
    let Some(directory) = data("online-boutique") else { return };
    let files = manifests(&directory);
    let world = synced(&files).await;
    let before = applied(&world, &files);
    let kubectl = Kubectl::of(world.server.embedded(), NAMESPACE).await;
    kubectl.run(&["scale", "deployment", "loadgenerator", "--replicas", "7"]).await;
    // The repository does not set this replica count, so it is not reverted.
    kubectl.run(&["scale", "deployment", "frontend", "--replicas", "3"]).await;
    kubectl.run(&["delete", "service", "cartservice"]).await;
    kubectl.run(&["label", "--overwrite", "deployment", "adservice", "app=other"]).await;
    kubectl.run(&["delete", "serviceaccount", "currencyservice"]).await;
    kubectl
        .edit(&["edit", "deployment", "checkoutservice"], "sed -i s/checkoutservice:v/checkoutservice:edited-v/")
        .await;
    world.until("five reverts in the status", |w| w.status("demo")["reverted"].as_i64() >= Some(5)).await;
    let at = before.iter().position(|o| o["kind"] == "Deployment" && o["metadata"]["name"] == "frontend").unwrap();
    let mut expected = before;
    expected[at]["spec"]["replicas"] = json!(3);
    world.until("everything as it was", |w| applied(w, &files) == expected).await;
    let reverts = world.status("demo")["lastReverts"].as_array().unwrap().clone();
    let of = |object: &str| reverts.iter().find(|r| r["object"] == object).unwrap_or_else(|| panic!("{object}"));
    let scaled = of(&format!("Deployment.apps {NAMESPACE}/loadgenerator"));
    assert_eq!((&scaled["fields"], &scaled["who"]), (&json!(["spec.replicas"]), &json!("kubectl")));
    let labelled = of(&format!("Deployment.apps {NAMESPACE}/adservice"));
    assert_eq!((&labelled["fields"], &labelled["who"]), (&json!(["metadata.labels.app"]), &json!("kubectl-label")));
    assert_eq!(of(&format!("Service {NAMESPACE}/cartservice"))["fields"], json!(["(object)"]));
    assert_eq!(of(&format!("Deployment.apps {NAMESPACE}/checkoutservice"))["who"], "kubectl-edit");
    for revert in &reverts {
        assert!(revert["latencyMs"].is_i64() && revert["when"].is_string(), "{revert}");
    }
    kubectl.run(&["wait", "--for=condition=Ready", "gitsync/demo", "--timeout=60s"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_and_their_resources_come_in_one_commit() {
    let Some(directory) = data("crds-and-crs") else { return };
    let world = synced(&manifests(&directory)).await;
    assert_eq!(world.status("demo")["failed"], 0);
    let sources = world.server.objects("source.toolkit.fluxcd.io/v1", "gitrepositories", Some(NAMESPACE));
    assert_eq!(sources.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_applications_become_ready_and_an_autoscaler_keeps_its_replicas() {
    let Some(directory) = data("guestbook") else { return };
    let world = synced(&manifests(&directory)).await;
    assert_eq!(world.status("demo")["objects"], 2);
    let Some(directory) = data("podinfo") else { return };
    let world = synced(&manifests(&directory)).await;
    assert_eq!(world.status("demo")["objects"], 3);
}
