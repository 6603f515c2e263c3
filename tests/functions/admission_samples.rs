//! The refusals of `kubectl apply` for every kind of mistake that Kyma's webhooks detected. Messages are those of
//! `resolve`, and refused objects are not stored.

use mainstay_api::Function;
use mainstay_function::{Credentials, resolve, text};
use serde_json::{Value, json};

use crate::v1alpha2::serving;
use mainstay_testkit::{
    functions::API,
    kubectl::Kubectl,
    world::{NAMESPACE, World},
};

const NEWER: &str = "serverless.kyma-project.io/v1alpha2";
const DENIED: &str = "denied the request: validation failed: ";

/// Functions of `v1alpha1`, in addition to `source: x`, and the beginnings of their messages.
fn samples() -> Vec<(Value, String)> {
    let env = |name: &str| json!({"env": [{"name": name, "value": "1"}]});
    let mut all: Vec<(Value, String)> = [
        (json!({"source": "  \n"}), "missing field(s): spec.source"),
        (json!({"source": ""}), "missing field(s): spec.source"),
        (env("1A"), "invalid key name \"1A\": spec.env\na valid environment variable name must consist of"),
        (env("."), "invalid key name \".\": spec.env\nmust not be '.'"),
        (env(".."), "invalid key name \"..\": spec.env\nmust not be '..'"),
        (env("..A"), "invalid key name \"..A\": spec.env\nmust not start with '..'"),
        (json!({"labels": {"should BE": "not OK"}}), "invalid value: spec.labels: Invalid value: "),
        (json!({"labels": {"a": "b".repeat(64)}}), "invalid value: spec.labels: Invalid value: "),
        (
            json!({"minReplicas": 2, "maxReplicas": 1}),
            "invalid value: maxReplicas(1) is less than minReplicas(2): spec.maxReplicas",
        ),
        (
            json!({"minReplicas": 0}),
            "invalid value: minReplicas(0) is less than the smallest allowed value(1): spec.minReplicas",
        ),
        (
            json!({"maxReplicas": 0}),
            "invalid value: maxReplicas(0) is less than the smallest allowed value(1): spec.maxReplicas",
        ),
        (json!({"deps": "{"}), "invalid value: deps should start with '{' and end with '}': spec.deps"),
        (json!({"deps": "test }"}), "invalid value: deps should start with '{' and end with '}': spec.deps"),
        (json!({"runtime": "cobol"}), "invalid value: cannot find runtime: cobol: spec.deps"),
        (json!({"type": "git", "source": "repo"}), "missing field(s): spec.baseDir, spec.reference"),
        (
            json!({"type": "git", "source": "repo", "baseDir": " ", "reference": "main"}),
            "missing field(s): spec.baseDir",
        ),
        (json!({"type": "git", "source": "repo", "baseDir": "/", "reference": ""}), "missing field(s): spec.reference"),
        (
            json!({"type": "git", "source": "", "gitRepository": {"url": "ftp://h/r"}, "baseDir": "/", "reference": "main"}),
            "invalid value: read the address of the repository: ",
        ),
    ]
    .map(|(spec, expected)| (spec, expected.to_owned()))
    .into();
    for name in ["FUNC_RUNTIME", "FUNC_HANDLER", "FUNC_PORT", "MOD_NAME", "NODE_PATH", "PYTHONPATH"] {
        let expected = format!("invalid key name \"{name}\": spec.env\nenv name is reserved for the serverless domain");
        all.push((env(name), expected));
    }
    let minima = [("resources", "cpu", "9m", "10m"), ("resources", "memory", "15Mi", "16Mi")];
    let of_builds = [("buildResources", "cpu", "199m", "200m"), ("buildResources", "memory", "199Mi", "200Mi")];
    for (field, name, amount, least) in minima.into_iter().chain(of_builds) {
        for part in ["requests", "limits"] {
            let spec = json!({field: {part: {name: amount}}});
            let why = format!("{part} {name}({amount}) should be higher than minimal value ({least})");
            all.push((spec, format!("invalid value: {why}: spec.{field}.{part}.{name}")));
        }
    }
    for (field, name, request, limit) in [
        ("resources", "cpu", "100m", "50m"),
        ("resources", "memory", "128Mi", "64Mi"),
        ("buildResources", "cpu", "800m", "700m"),
        ("buildResources", "memory", "800Mi", "700Mi"),
    ] {
        let spec = json!({field: {"requests": {name: request}, "limits": {name: limit}}});
        let why = format!("limits {name}({limit}) should be higher than requests {name}({request})");
        all.push((spec, format!("invalid value: {why}: spec.{field}.limits.{name}")));
    }
    all
}

fn function(version: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": version, "kind": "Function", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
}

/// Returns kubectl's messages for these objects, in order. The webhook must deny all of them.
async fn denials(world: &World, objects: &[Value]) -> Vec<String> {
    let kubectl = Kubectl::of(world.server.embedded(), NAMESPACE).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("all.yaml");
    let documents: Vec<String> = objects.iter().map(|object| serde_yaml::to_string(object).unwrap()).collect();
    std::fs::write(&file, documents.join("---\n")).unwrap();
    let said = kubectl.refused(&["apply", "-f", file.to_str().unwrap()]).await;
    let said: Vec<&str> = said.split("Error from server").skip(1).collect();
    assert_eq!(said.len(), objects.len(), "each is refused: {said:#?}");
    let words = |text: &&str| text.split_once(DENIED).unwrap_or_else(|| panic!("{text}")).1.trim_end().to_owned();
    said.iter().map(words).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_invalid_sample_is_denied_to_kubectl_in_the_words_of_resolve() {
    let mut world = World::with_functions().await;
    world.admit();
    world.start();
    world.admitting().await;
    let mut objects = Vec::new();
    let mut expected = Vec::new();
    for (number, (spec, begins)) in samples().into_iter().enumerate() {
        let mut whole = json!({"source": "x"});
        json_patch::merge(&mut whole, &spec);
        objects.push(function(API, &format!("sample-{number}"), &whole));
        expected.push(begins);
    }
    for (name, begins) in [
        ("1abc", "invalid value: metadata.name: Invalid value: \"1abc\": a DNS-1035 label must consist of"),
        ("a.b", "invalid value: metadata.name: Invalid value: \"a.b\": a DNS-1035 label must consist of"),
        (&*"a".repeat(64), "invalid value: metadata.name: Invalid value: "),
    ] {
        objects.push(function(API, name, &json!({"source": "x"})));
        expected.push(begins.to_owned());
    }
    let said = denials(&world, &objects).await;
    let settings = &world.functions;
    for ((object, said), begins) in objects.iter().zip(&said).zip(&expected) {
        assert!(said.starts_with(begins), "{}: {said}", object["spec"]);
        let read: Function = serde_json::from_value(object.clone()).unwrap();
        let resolved = resolve(&read, settings, &Credentials::new(settings, [])).unwrap_err();
        assert_eq!(*said, text(&resolved), "{}", object["spec"]);
    }
    assert_eq!(world.server.objects(API, "functions", Some(NAMESPACE)).len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_invalid_sample_of_v1alpha2_is_denied_to_kubectl_in_the_words_of_that_version() {
    let world = serving().await;
    let inline = |more: Value| {
        let mut spec = json!({"runtime": "nodejs22", "source": {"inline": {"source": "x"}}});
        json_patch::merge(&mut spec, &more);
        spec
    };
    let git = |more: Value| {
        let mut repository = json!({"url": "https://git.example.com/r.git", "reference": "main", "baseDir": "/"});
        json_patch::merge(&mut repository, &more);
        json!({"runtime": "nodejs22", "source": {"gitRepository": repository}})
    };
    let of = |part: &str, resources: Value| json!({"resourceConfiguration": {part: {"resources": resources}}});
    let samples = [
        (inline(json!({"source": {"inline": {"source": " "}}})), "missing field(s): spec.source.inline.source"),
        (
            inline(json!({"source": {"inline": {"dependencies": "{"}}})),
            "invalid value: deps should start with '{' and end with '}': spec.source.inline.dependencies",
        ),
        (
            inline(json!({"runtime": "cobol"})),
            "invalid value: cannot find runtime: cobol: spec.source.inline.dependencies",
        ),
        (inline(json!({"env": [{"name": "FUNC_PORT", "value": "1"}]})), "invalid key name \"FUNC_PORT\": spec.env"),
        (
            inline(json!({"scaleConfig": {"minReplicas": 2, "maxReplicas": 1}})),
            "invalid value: maxReplicas(1) is less than minReplicas(2): spec.scaleConfig.maxReplicas",
        ),
        (
            inline(of("function", json!({"requests": {"cpu": "9m"}}))),
            "invalid value: requests cpu(9m) should be higher than minimal value (10m): spec.resourceConfiguration.function.resources.requests.cpu",
        ),
        (
            inline(of("build", json!({"limits": {"memory": "199Mi"}}))),
            "invalid value: limits memory(199Mi) should be higher than minimal value (200Mi): spec.resourceConfiguration.build.resources.limits.memory",
        ),
        (inline(json!({"labels": {"should BE": "not OK"}})), "invalid value: spec.labels: Invalid value: "),
        (
            git(json!({"reference": "", "baseDir": " "})),
            "missing field(s): spec.source.gitRepository.baseDir, spec.source.gitRepository.reference",
        ),
        (
            git(json!({"auth": {"type": "basic", "secretName": ""}})),
            "missing field(s): spec.source.gitRepository.auth.secretName",
        ),
        (
            git(json!({"name": "repo"})),
            "invalid value: the repository has both an address and the name of a GitRepository: spec.source.gitRepository, \
             spec.source.gitRepository.name",
        ),
        (
            git(json!({"auth": {"type": "basic", "secretName": "serverless-registry-config"}})),
            "invalid value: the repository is read with Secret \"serverless-registry-config\", which holds the credentials for \
             the image registry: spec.source.gitRepository.auth.secretName",
        ),
    ];
    let named = |(number, (spec, _)): (usize, &(Value, &str))| function(NEWER, &format!("newer-{number}"), spec);
    let objects: Vec<Value> = samples.iter().enumerate().map(named).collect();
    let said = denials(&world, &objects).await;
    for ((spec, begins), said) in samples.iter().zip(&said) {
        assert!(said.starts_with(begins), "{spec}: {said}");
    }
    assert_eq!(world.server.objects(API, "functions", Some(NAMESPACE)).len(), 0);
}
