//! `mainstay convert`: the API server accepts the output, which applies the same objects as kustomize builds for Flux.

use std::fs;
use std::path::Path;

use serde::Deserialize as _;
use serde_json::Value;

use mainstay_testkit::{
    program::executable,
    remote::NAME,
    world::{NAMESPACE, World},
};

const BASE: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: 'web:1'}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {region: '${region}', size: '${size:=small}'}
";
const OVERLAY: &str = "resources: [../../base]\nnamePrefix: prod-\nimages: [{name: web, newTag: '2'}]\n";
const FLUX: &str = "\
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: fleet, namespace: flux-system}
spec: {url: 'URL', interval: 1h, ref: {branch: main}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: apps, namespace: flux-system}
spec:
  interval: 1h
  sourceRef: {kind: GitRepository, name: fleet}
  path: ./apps/prod
  prune: true
  targetNamespace: mainstay-tests
  commonMetadata: {labels: {team: shop}}
  patches:
    - patch: |
        - {op: add, path: /spec/replicas, value: 3}
      target: {kind: Deployment}
  postBuild: {substitute: {region: eu}}
";
/// The kustomization that kustomize-controller generates from the fields.
const BUILT_BY_FLUX: &str = "\
resources: [../apps/prod]
namespace: mainstay-tests
patches:
  - patch: |
      - {op: add, path: /spec/replicas, value: 3}
    target: {kind: Deployment}
";

/// Runs a program. Returns exit code, standard output and standard error.
fn run(program: &Path, arguments: &[&str], directory: &Path) -> (i32, String, String) {
    let output = mainstay_testkit::isolated(program).args(arguments).current_dir(directory).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn objects(text: &str) -> Vec<Value> {
    let documents = serde_yaml::Deserializer::from_str(text).map(|document| Value::deserialize(document).unwrap());
    documents.filter(Value::is_object).collect()
}

/// Whether `live` contains everything in `expected`.
fn holds(live: &Value, expected: &Value) -> bool {
    match (live, expected) {
        (Value::Object(live), Value::Object(expected)) => {
            expected.iter().all(|(key, value)| live.get(key).is_some_and(|live| holds(live, value)))
        }
        (Value::Array(live), Value::Array(expected)) => {
            live.len() == expected.len() && live.iter().zip(expected).all(|(live, expected)| holds(live, expected))
        }
        (live, expected) => live == expected,
    }
}

fn resource(kind: &str) -> (&'static str, &'static str) {
    match kind {
        "GitRepository" => ("serverless.kyma-project.io/v1alpha1", "gitrepositories"),
        "GitSync" => ("mainstay.dev/v1alpha1", "gitsyncs"),
        "Receiver" => ("mainstay.dev/v1alpha1", "receivers"),
        "Provider" => ("mainstay.dev/v1alpha1", "providers"),
        "Alert" => ("mainstay.dev/v1alpha1", "alerts"),
        "ImageRepository" => ("mainstay.dev/v1alpha1", "imagerepositories"),
        "ImagePolicy" => ("mainstay.dev/v1alpha1", "imagepolicies"),
        "ImageUpdateAutomation" => ("mainstay.dev/v1alpha1", "imageupdateautomations"),
        "Deployment" => ("apps/v1", "deployments"),
        "ConfigMap" => ("v1", "configmaps"),
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_converted_kustomization_applies_what_flux_would() {
    let mut world = World::new().await;
    world.remote.file("base/all.yaml", BASE).file("base/kustomization.yaml", "resources: [all.yaml]\n");
    world.remote.file("apps/prod/kustomization.yaml", OVERLAY);
    let head = world.remote.commit("one");
    world.start();

    let room = tempfile::tempdir().unwrap();
    let url = world.remote.root().join(NAME).display().to_string();
    fs::create_dir(room.path().join("clusters")).unwrap();
    fs::write(room.path().join("clusters/fleet.yaml"), FLUX.replace("URL", &format!("ssh://git{url}"))).unwrap();
    let (code, printed, report) = run(executable(), &["convert", "flux", "clusters", "-n", NAMESPACE], room.path());
    assert_eq!(code, 0, "{report}");
    for mut object in objects(&printed) {
        if object["kind"] == "GitRepository" {
            // The remote of the test is a directory, which Flux does not know.
            object["spec"]["url"] = url.as_str().into();
        }
        let (version, resource) = resource(object["kind"].as_str().unwrap());
        let made = world.create(version, resource, NAMESPACE, object.clone());
        assert!(holds(&made["spec"], &object["spec"]), "{made:#}\n{object:#}");
    }
    world.until("the objects are there", |w| w.status("apps")["appliedCommit"] == *head).await;

    for (path, content) in [
        ("base/all.yaml", BASE),
        ("base/kustomization.yaml", "resources: [all.yaml]\n"),
        ("apps/prod/kustomization.yaml", OVERLAY),
        ("built/kustomization.yaml", BUILT_BY_FLUX),
    ] {
        let file = room.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }
    let (code, built, error) = run(Path::new("kubectl"), &["kustomize", "built"], room.path());
    assert_eq!(code, 0, "{error}");
    let built = objects(&built.replace("${region}", "eu").replace("${size:=small}", "small"));
    assert_eq!(built.len(), 2);
    for mut expected in built {
        expected["metadata"]["labels"]["team"] = "shop".into();
        let (version, resource) = resource(expected["kind"].as_str().unwrap());
        let live = world.get(version, resource, expected["metadata"]["name"].as_str().unwrap()).unwrap();
        assert!(holds(&live, &expected), "{live:#}\n{expected:#}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn printed_objects_are_accepted_whole_and_losses_give_the_exit_code_1() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/mainstay/cli/convert/tests");
    let room = tempfile::tempdir().unwrap();
    let world = World::new().await;
    for (tool, file) in [("flux", "flux.yaml"), ("argocd", "argocd.yaml")] {
        let file = examples.join(file);
        let (code, printed, report) =
            run(executable(), &["convert", tool, file.to_str().unwrap(), "-n", NAMESPACE], room.path());
        assert_eq!(code, 1, "{report}");
        for object in objects(&printed) {
            let (version, resource) = resource(object["kind"].as_str().unwrap());
            let made = world.create(version, resource, NAMESPACE, object.clone());
            assert!(holds(&made["spec"], &object["spec"]), "{made:#}\n{object:#}");
        }
    }
    let (code, printed, error) = run(executable(), &["convert", "flux", "."], room.path());
    assert_eq!((code, printed.as_str()), (2, ""), "{error}");
    assert!(error.contains(". has no objects of Flux"), "{error}");
}
