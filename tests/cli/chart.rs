//! The Helm chart in `manifests/chart` renders the objects that `mainstay install` prints, for the same choices.

mod choices;
mod releases;
mod templates;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Output;

use serde::Deserialize as _;
use serde_json::{Value, json};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/chart");
/// The annotation that makes Helm keep an object that is no longer in its release.
const KEEP: &str = "helm.sh/resource-policy";

/// Runs Helm without the user's configuration.
fn helm(arguments: &[&str], values: &[impl AsRef<OsStr>]) -> Output {
    let mut command = mainstay_testkit::isolated("helm");
    command.args(arguments).args(values).output().expect("helm is needed: https://helm.sh/docs/intro/install")
}

/// Renders the chart with its namespace.
fn chart(values: &[impl AsRef<OsStr>]) -> Objects {
    let arguments = ["template", "mainstay", CHART, "--namespace=mainstay-system", "--set=createNamespace=true"];
    objects(&printed(&helm(&arguments, values)))
}

/// Returns the output of `mainstay install`.
fn install(flags: &[impl AsRef<OsStr>]) -> String {
    let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
    printed(&command.arg("install").args(flags).output().unwrap())
}

/// Returns the objects of `mainstay install`.
fn installed(flags: &[impl AsRef<OsStr>]) -> Objects {
    objects(&install(flags))
}

/// Returns the output of a program, which must succeed.
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Objects by kind, namespace and name.
type Objects = BTreeMap<String, Value>;

/// Parses a stream of objects. The objects that the agent should create are compared as parsed YAML, not as text.
fn objects(stream: &str) -> Objects {
    let mut objects = Objects::new();
    for document in serde_yaml::Deserializer::from_str(stream) {
        let mut object = Value::deserialize(document).unwrap();
        if object.is_null() {
            continue;
        }
        if let Some(Value::String(text)) = object.pointer_mut("/data/objects.yaml") {
            let followed: Vec<_> =
                serde_yaml::Deserializer::from_str(text).map(|one| Value::deserialize(one).unwrap()).collect();
            object["data"]["objects.yaml"] = json!(followed);
        }
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let key = format!("{} {namespace}/{}", object["kind"].as_str().unwrap(), metadata["name"].as_str().unwrap());
        assert!(objects.insert(key.clone(), object).is_none(), "{key} is there twice");
    }
    objects
}

/// Removes the annotation that keeps objects. Returns the keys of objects that had it.
fn take_keep(objects: &mut Objects) -> BTreeSet<String> {
    let mut kept = BTreeSet::new();
    for (key, object) in objects {
        let metadata = object["metadata"].as_object_mut().unwrap();
        let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { continue };
        if let Some(policy) = annotations.remove(KEEP) {
            assert_eq!(policy, "keep", "{key}");
            kept.insert(key.clone());
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    kept
}

#[track_caller]
fn assert_same(chart: &Objects, install: &Objects, choice: &str) {
    let keys = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(chart), keys(install), "{choice}");
    // Equal objects have the same text. Printing all of them takes longer than the comparison.
    for (key, expected) in install.iter().filter(|(key, expected)| chart[*key] != **expected) {
        let yaml = |object: &Value| serde_yaml::to_string(object).unwrap();
        let (expected, actual) = (yaml(expected), yaml(&chart[key]));
        let difference = similar::TextDiff::from_lines(&expected, &actual);
        assert!(expected == actual, "{choice}: {key} of the chart differs:\n{}", difference.unified_diff());
    }
}

/// Returns the leaves of the schema by path, and its objects.
fn values_of_schema() -> (BTreeMap<String, Value>, Vec<Value>) {
    let text = fs::read_to_string(Path::new(CHART).join("values.schema.json")).unwrap();
    let (mut leaves, mut parents) = (BTreeMap::new(), Vec::new());
    let mut open = vec![(String::new(), serde_json::from_str::<Value>(&text).unwrap())];
    while let Some((path, schema)) = open.pop() {
        let Some(properties) = schema["properties"].as_object() else {
            leaves.insert(path, schema);
            continue;
        };
        let dot = if path.is_empty() { "" } else { "." };
        open.extend(properties.iter().map(|(name, schema)| (format!("{path}{dot}{name}"), schema.clone())));
        parents.push(schema);
    }
    (leaves, parents)
}

/// The definitions and data are kept when the release is uninstalled, and when values exclude them.
#[test]
fn keeps_definitions_and_data_when_a_release_goes() {
    let mut all = chart(&["--set=git.url=git@github.com:team/shop.git,v1alpha2=true"]);
    let kept = take_keep(&mut all);
    let names_data = |key: &&String| {
        let (kind, name) = (key.split(' ').next().unwrap(), key.rsplit('/').next().unwrap());
        matches!(kind, "CustomResourceDefinition" | "Namespace")
            || matches!(name, "serverless-docker-registry" | "shop-git")
    };
    assert_eq!(kept, all.keys().filter(names_data).cloned().collect::<BTreeSet<_>>());
    assert!(kept.len() > 8, "{kept:?}");
}

#[test]
fn leaves_out_the_namespace_and_the_repository_by_default() {
    let mut alone = objects(&printed(&helm(&["template", "mainstay", CHART], &["--namespace=flux"])));
    take_keep(&mut alone);
    let mut all = installed(&["--git-url=https://h/x", "--namespace=flux"]);
    all.remove("Namespace /flux").unwrap();
    all.remove("ConfigMap flux/mainstay-bootstrap").unwrap();
    assert_same(&alone, &all, "the agent alone");
}

#[test]
fn passes_the_linter_with_the_version_of_the_program() {
    printed(&helm(&["lint", "--strict"], &[CHART]));
    let text = fs::read_to_string(Path::new(CHART).join("Chart.yaml")).unwrap();
    let chart: Value = serde_yaml::from_str(&text).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(version), &json!(version)));
    // Mainstay's own renderer refuses links, hooks, and output that varies.
    let render = || printed(&helm(&["template", "mainstay", CHART], &["--set=git.url=git@h:x"]));
    let once = render();
    assert!(once == render() && !once.contains("helm.sh/hook"));
}
