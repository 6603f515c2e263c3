//! Tests the deciders with cases in YAML, without a cluster: which objects are applied, deleted, kept, handed over and
//! reverted, and the reported status.
//!
//! Each folder beside a file of this test contains cases as `*.yaml`, several documents in a file. The expected
//! decisions are in a `*.txt` of the same name, which `UPDATE_GOLDEN=1` rewrites.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use mainstay_cluster::{Kind, Scope};
use mainstay_engine::managed::{Desired, Mark};
use mainstay_object::{Key, Object, Place, split_api_version};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

mod build_queue;
mod placement;
mod plan;
mod status;
mod verdict;

/// Namespace of the GitSync under test, and the label of its objects.
const NAMESPACE: &str = "shop";
const LABEL: &str = "shop.demo";

/// Decides all cases of a folder, and compares the decisions with the expected ones.
fn check<C: DeserializeOwned>(folder: &str, decide: impl Fn(&C) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder);
    let files = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    let mut files = files.filter(|file| file.extension().is_some_and(|ext| ext == "yaml")).collect::<Vec<_>>();
    files.sort();
    assert!(!files.is_empty(), "{} holds no cases", path.display());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let mut decided = String::new();
        for document in serde_yaml::Deserializer::from_str(&text) {
            let document = Value::deserialize(document).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let title = document["case"].as_str().unwrap_or_else(|| panic!("{}: no title", file.display())).to_owned();
            let case = serde_json::from_value(document).unwrap_or_else(|error| panic!("{title}: {error}"));
            let _ = writeln!(decided, "# {title}\n{}\n", decide(&case).trim_end());
        }
        let name = file.file_stem().unwrap().to_str().unwrap();
        mainstay_testkit::golden::check_golden(&format!("{folder}/{name}.txt"), &format!("{}\n", decided.trim_end()));
    }
}

/// Returns a kind as discovery would report it.
fn kind(api_version: &str, kind: &str) -> Arc<Kind> {
    const CLUSTER_SCOPED: [&str; 5] =
        ["Namespace", "PersistentVolume", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"];
    let scope = if CLUSTER_SCOPED.contains(&kind) { Scope::Cluster } else { Scope::Namespaced };
    Arc::new(Kind::fixed(api_version, kind, &format!("{}s", kind.to_lowercase()), scope))
}

/// Parses a key such as `Deployment.apps shop/web`.
fn key(text: &str) -> Key {
    let (kind, place) = text.split_once(' ').unwrap_or_else(|| panic!("{text} is no key"));
    let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
    let (namespace, name) = place.split_once('/').map_or((None, place), |(namespace, name)| (Some(namespace), name));
    Key::new(group, kind, namespace, name)
}

fn word<'v>(object: &'v Value, path: &str) -> &'v str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the desired object of a document.
fn desired(document: &Value) -> Arc<Desired> {
    let kind = kind(word(document, "/apiVersion"), word(document, "/kind"));
    let namespace = Some(word(document, "/metadata/namespace")).filter(|n| !n.is_empty()).unwrap_or(NAMESPACE);
    let key = kind.key(kind.namespaced.then_some(namespace), word(document, "/metadata/name"));
    let object = Arc::new(Object::from_value(document, Place::file("objects.yaml")).unwrap());
    Arc::new(Desired { key, kind, object, mark: Mark::Label(LABEL.into()), ignored: None })
}

/// Returns the key of a live object.
fn key_of(live: &Value) -> Key {
    let (group, _) = split_api_version(word(live, "/apiVersion"));
    Key::new(
        group,
        word(live, "/kind"),
        live.pointer("/metadata/namespace").and_then(Value::as_str),
        word(live, "/metadata/name"),
    )
}
