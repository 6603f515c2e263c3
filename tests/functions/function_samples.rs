//! Sample manifests from the documentation of Functions, applied unchanged. Each resolves or is refused with a message.

use std::{fs, path::PathBuf};

use devcluster::{Action, Call, Caller, Cluster as EmbeddedCluster, Options, verbs::patch::Form};
use mainstay_api::{Function, GitRepository};
use mainstay_function::{BaseImage, Code, Credentials, ResolvedFunction, Settings, resolve, text};
use serde_json::{Value, json};

use mainstay_testkit::kubectl::Kubectl;

const GROUP: &str = "serverless.kyma-project.io/v1alpha1";

/// All samples with their results.
const SAMPLES: [(&str, &str); 7] = [
    ("complete.yaml", "nodejs12 3..3 500m/500Mi 1/1Gi builds with 1/1Gi 2/2Gi"),
    ("env-from-config-map.yaml", "nodejs22 1..1 50m/64Mi 100m/128Mi builds with 200m/200Mi 1100m/1100Mi"),
    ("env-nodejs.yaml", "nodejs22 1..1 50m/64Mi 100m/128Mi builds with 200m/200Mi 1100m/1100Mi"),
    ("env-python.yaml", "nodejs22 1..1 50m/64Mi 100m/128Mi builds with 200m/200Mi 1100m/1100Mi"),
    ("git.yaml", "nodejs12 1..1 50m/64Mi 100m/128Mi builds with 200m/200Mi 1100m/1100Mi"),
    ("knative.yaml", "nodejs22 3..3 500m/500Mi 1/1Gi builds with 200m/200Mi 1100m/1100Mi"),
    ("repository.yaml", "git@github.com:sample-organization/sample-repo.git with the Secret kyma-git-creds"),
];

fn path(sample: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(sample)
}

fn read(sample: &str) -> String {
    fs::read_to_string(path(sample)).unwrap()
}

fn settings() -> Settings {
    Settings { base_images: [("*".to_owned(), BaseImage::Scratch)].into(), ..Settings::default() }
}

fn cluster() -> EmbeddedCluster {
    let server = EmbeddedCluster::new(Options::default());
    for definition in mainstay_api::definitions() {
        let object = serde_json::to_value(&definition).unwrap();
        create(&server, "apiextensions.k8s.io/v1", "customresourcedefinitions", "", object);
    }
    server
}

fn create(server: &EmbeddedCluster, version: &str, resource: &str, namespace: &str, object: Value) -> Value {
    server.call(&Caller::new("test"), Call::new(version, resource, namespace, "", Action::Create(object))).unwrap()
}

fn summary(found: &ResolvedFunction) -> String {
    let sizes = |resources: &mainstay_api::function::Resources| {
        let of = |part: &Option<mainstay_api::Amounts>| {
            let of = |name| part.as_ref().unwrap().get(name).unwrap();
            format!("{}/{}", of("cpu"), of("memory"))
        };
        format!("{} {}", of(&resources.requests), of(&resources.limits))
    };
    format!(
        "{} {}..{} {} builds with {}",
        found.runtime.name,
        found.replicas.min,
        found.replicas.max,
        sizes(&found.resources),
        sizes(&found.build_resources)
    )
}

#[test]
fn every_sample_resolves_as_its_documentation_says() {
    let on_disk: Vec<_> = {
        let mut names: Vec<_> = fs::read_dir(path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names.into_iter().map(|name| name.into_string().unwrap()).collect()
    };
    assert_eq!(on_disk, SAMPLES.map(|(name, _)| name), "every sample is in the table");
    for (name, expected) in SAMPLES {
        let found = if name == "repository.yaml" {
            let repository: GitRepository = serde_yaml::from_str(&read(name)).unwrap();
            format!("{} with the Secret {}", repository.spec.url, repository.spec.auth.unwrap().secret_name)
        } else {
            let function: Function = serde_yaml::from_str(&read(name)).unwrap();
            summary(
                &resolve(&function, &settings(), &Credentials::default())
                    .unwrap_or_else(|all| panic!("{name}: {}", text(&all))),
            )
        };
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn the_git_sample_follows_its_branch_at_the_root_of_the_repository() {
    let function: Function = serde_yaml::from_str(&read("git.yaml")).unwrap();
    let found = resolve(&function, &settings(), &Credentials::default()).unwrap();
    let Code::Git { repository, reference, base_dir } = found.code else { panic!("not a Git Function") };
    assert_eq!(
        (&*repository.to_string(), reference.to_string(), base_dir.to_string()),
        ("auth-basic", "branchA".into(), "/".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies_every_sample_strictly_and_shows_the_columns_that_users_know() {
    let server = cluster();
    let kubectl = Kubectl::of(&server, "default").await;
    for (name, _) in SAMPLES {
        let file = path(name);
        kubectl.run(&["apply", "--validate=strict", "-f", file.to_str().unwrap()]).await;
        kubectl
            .run(&["apply", "--validate=strict", "--server-side", "--force-conflicts", "-f", file.to_str().unwrap()])
            .await;
    }
    let table = kubectl.run(&["get", "functions"]).await;
    let columns: Vec<_> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(columns, ["NAME", "CONFIGURED", "BUILT", "RUNNING", "RUNTIME", "VERSION", "AGE", "SERVES"]);
    assert_eq!(table.lines().count(), 1 + 3, "three names among the six samples:\n{table}");
    // A Function is stored as written, without defaults.
    let stored: Value =
        serde_json::from_str(&kubectl.run(&["get", "function", "my-test-function", "-o", "json"]).await).unwrap();
    assert_eq!(stored["spec"]["minReplicas"], 3);
    assert_eq!(stored["spec"]["resources"]["limits"]["cpu"], 1);
}

#[test]
fn the_schema_admits_invalid_functions_and_the_resolution_refuses_them() {
    let server = cluster();
    for (number, spec, words) in [
        (1, json!({ "source": "x", "type": "oci" }), "neither \"inline\" nor \"git\": spec.type"),
        (2, json!({ "source": "x", "runtime": "cobol85" }), "cannot find runtime: cobol85"),
        (3, json!({ "source": "x", "minReplicas": 0 }), "minReplicas(0) is less than the smallest allowed value(1)"),
        (4, json!({ "source": "x", "maxReplicas": 99_999_999_999_i64 }), "is more than 2147483647"),
        (5, json!({ "source": "x", "resources": { "limits": { "cpu": "much" } } }), "quantities must match"),
        (6, json!({ "source": "", "type": "git" }), "missing field(s): spec.baseDir, spec.reference, spec.source"),
    ] {
        let object = json!({ "apiVersion": GROUP, "kind": "Function", "metadata": { "name": format!("f{number}") }, "spec": spec });
        let stored = create(&server, GROUP, "functions", "default", object);
        let function: Function = serde_json::from_value(stored).unwrap();
        let said = text(&resolve(&function, &settings(), &Credentials::default()).unwrap_err());
        assert!(said.contains(words), "{said}");
    }
    let fraction = json!({ "source": "x", "resources": { "limits": { "cpu": 0.5 } }, "env": null, "labels": null });
    let object = json!({ "apiVersion": GROUP, "kind": "Function", "metadata": { "name": "f7" }, "spec": fraction });
    let function: Function = serde_json::from_value(create(&server, GROUP, "functions", "default", object)).unwrap();
    assert_eq!(
        resolve(&function, &settings(), &Credentials::default()).unwrap().resources.limits.unwrap().get("cpu"),
        Some(&mainstay_api::Amount::from("0.5"))
    );
}

#[test]
fn a_status_of_another_controller_can_be_read_and_changed() {
    let server = cluster();
    let object =
        json!({ "apiVersion": GROUP, "kind": "Function", "metadata": { "name": "old" }, "spec": { "source": "x" } });
    create(&server, GROUP, "functions", "default", object);
    let status = json!({ "status": {
        "conditions": [{ "type": "Running", "status": "True" }, { "type": "BuildReady", "status": "Unknown", "reason": null }],
        "runtime": "nodejs12", "source": "x"
    }});
    let mut call = Call::new(GROUP, "functions", "default", "old", Action::Patch(Form::Merge, status));
    call.subresource = "status".to_owned();
    let stored = server.call(&Caller::new("test"), call).unwrap();
    let function: Function = serde_json::from_value(stored).unwrap();
    let status = function.status.as_ref().unwrap();
    assert_eq!((status.conditions.len(), status.conditions[0].status.as_str()), (2, "True"));
    assert_eq!(
        resolve(&function, &settings(), &Credentials::default()).unwrap().runtime.name,
        "nodejs12",
        "it keeps what it was built with"
    );
}
