//! Built kustomizations equal the output of `kubectl kustomize`, although a build has only a copy of the files that it
//! reads.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use mainstay_manifest::render::{Built, Kustomize, Words};
use serde::Deserialize as _;
use serde_json::Value;

use super::*;
use mainstay_testkit::files::files_below;

/// Annotation with the file of an object.
const ORIGIN: &str = "config.kubernetes.io/origin";

/// Runs a program in a directory, and returns its output.
fn run(directory: &Path, program: &str, arguments: &[&str]) -> String {
    let output = mainstay_testkit::isolated(program).args(arguments).current_dir(directory).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; install it, or run .ci/test, which does"));
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn documents(text: &str) -> Vec<Value> {
    serde_yaml::Deserializer::from_str(text).map(|document| Value::deserialize(document).unwrap()).collect()
}

/// Builds each of these kustomizations like the agent, and with the tool in a checkout, and compares the results.
async fn are_built_as_kubectl_does(origin: &mut Origin, files: &[String]) {
    origin.commit("kustomizations");
    let checkout = tempfile::tempdir().unwrap();
    run(checkout.path(), "git", &["clone", "--quiet", &origin.path().to_string_lossy(), "."]);
    let mirrors = tempfile::tempdir().unwrap();
    let mut allowing = settings(mirrors.path());
    allowing.allow_local = true;
    let source = Source::new(allowing);
    let scratch = mirrors.path().join("render");
    let path: OsString = std::env::var_os("PATH").unwrap();
    let kustomize = Kustomize::new(Some(&path), scratch.clone());
    let snapshot = sync(&source, &anonymous(origin.path().to_str().unwrap()), "main").await.unwrap();
    for file in files {
        let (directory, _) = file.rsplit_once('/').expect("it is in a directory");
        let built = kustomize.build("shop", &snapshot, Built::Kustomization(file, None), None).await.unwrap();
        let ours = built.documents.expect("it is new").unwrap_or_else(|problems| panic!("{directory}: {problems:?}"));
        let ours = documents(&String::from_utf8(ours).unwrap());
        let theirs = documents(&run(checkout.path(), "kubectl", &["kustomize", directory]));
        assert!(!theirs.is_empty(), "{directory}");
        let asks = theirs.iter().any(|object| object["metadata"]["annotations"][ORIGIN].is_string());
        assert_eq!(if asks { ours } else { without_origins(ours) }, theirs, "{directory}");
    }
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0, "nothing stays behind");
}

/// Returns objects without the annotation of their origin, which the build requests.
fn without_origins(mut objects: Vec<Value>) -> Vec<Value> {
    for metadata in objects.iter_mut().filter_map(|object| object.get_mut("metadata")?.as_object_mut()) {
        let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { continue };
        if annotations.remove(ORIGIN).is_some() && annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    objects
}

/// The examples of kustomize's documentation in `tests/kustomizations`, one directory each, most of them with a shared
/// base.
#[tokio::test]
async fn documented_kustomizations_are_built_as_by_kubectl() {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/kustomizations");
    let mut origin = small();
    for (path, content) in files_below(&own) {
        origin.file(&format!("examples/{path}"), content);
    }
    let built = files_below(&own).into_iter().filter(|(path, _)| path.ends_with("/build/kustomization.yaml"));
    let mut kustomizations: Vec<_> = built.map(|(path, _)| format!("examples/{path}")).collect();
    kustomizations.sort_unstable();
    assert!(kustomizations.len() >= 15, "{kustomizations:?}");
    are_built_as_kubectl_does(&mut origin, &kustomizations).await;
}

/// Real manifests that a developer may have beside the repository. The files of a directory without a kustomization
/// become the resources of a new kustomization.
#[tokio::test]
async fn real_manifests_are_built_as_kubectl_does() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let mut origin = small();
    let mut kustomizations = Vec::new();
    for folder in ["online-boutique", "crds-and-crs", "guestbook", "podinfo"] {
        if !data.join(folder).is_dir() {
            println!("{folder} was not there");
            continue;
        }
        let files = files_below(&data.join(folder));
        let mut names: Vec<_> = files.iter().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        for (path, content) in files {
            origin.file(&format!("data/{folder}/{path}"), content);
        }
        let file = format!("data/{folder}/kustomization.yaml");
        if !names.iter().any(|name| name == "kustomization.yaml") {
            origin.file(&file, format!("resources: {}\n", serde_json::to_string(&names).unwrap()));
        }
        kustomizations.push(file);
        // An overlay reads the same files from outside of its directory, and changes each object.
        let overlay =
            format!("resources: [../../data/{folder}]\nnamePrefix: real-\nlabels: [{{pairs: {{team: shop}}}}]\n");
        let file = format!("overlays/{folder}/kustomization.yml");
        origin.file(&file, overlay);
        kustomizations.push(file);
    }
    if !kustomizations.is_empty() {
        are_built_as_kubectl_does(&mut origin, &kustomizations).await;
    }
}

#[tokio::test]
async fn the_words_of_the_tool_are_shown_in_full_on_a_developers_machine_only() {
    let mut origin = small();
    let replicas = "replicas: [{name: hush, count: 2}]\n";
    origin.file("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
    origin.file("kustomization.yaml", format!("resources: [a.yaml]\n{replicas}")).commit("a count for no object");
    let mirrors = tempfile::tempdir().unwrap();
    let mut allowing = settings(mirrors.path());
    allowing.allow_local = true;
    let source = Source::new(allowing);
    let path: OsString = std::env::var_os("PATH").unwrap();
    let snapshot = sync(&source, &anonymous(origin.path().to_str().unwrap()), "main").await.unwrap();
    for words in [Words::Reduced, Words::Full] {
        let kustomize = Kustomize::new(Some(&path), mirrors.path().join("render")).showing(words);
        let built = Built::Kustomization("kustomization.yaml", None);
        let built = kustomize.build("shop", &snapshot, built, None).await.unwrap();
        let problem = built.documents.expect("it is new").unwrap_err().remove(0).to_string();
        assert!(problem.starts_with("kustomization.yaml: kustomize refuses it"), "{problem}");
        let shows_all = problem.contains("name hush") && !problem.contains("in a checkout");
        assert_eq!(shows_all, words == Words::Full, "{problem}");
    }
}
