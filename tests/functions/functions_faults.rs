//! Invalid Functions, and missing dependencies of valid Functions. Each problem is reported, the serving version
//! continues, and there is no build.

use std::time::Duration;

use devcluster::fault_injection::Fault;
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{CONFIG_MAPS, DEPLOYMENTS, JOBS, PODS, SERVICES, inline},
    git_server::GitServer,
    remote::NAME,
    world::{NAMESPACE, World},
};

const NEVER: Duration = Duration::from_secs(3600);
/// Maximum bytes of a ConfigMap.
const MEBIBYTE: usize = 1 << 20;
const DEFAULT_REGISTRY: &str = "serverless-registry-config-default";

/// Makes a Function invalid, checks the message, and corrects it. The serving version must be unchanged.
async fn refused(world: &World, name: &str, bad: Value, good: Value, beginning: &str) {
    let before = (world.function_status(name)["image"].clone(), version_of_deployment(world, name));
    world.edit_function(name, json!({"spec": bad}));
    world.says(name, "ConfigurationReady", beginning).await;
    assert!(world.said(name, "Running").starts_with("True"), "{beginning}: {}", world.said(name, "Running"));
    world.edit_function(name, json!({"spec": good}));
    world.runs(name).await;
    let after = (world.function_status(name)["image"].clone(), version_of_deployment(world, name));
    assert_eq!(before, after, "{beginning}");
    assert_eq!(world.children(name, JOBS).len(), 1, "{beginning}");
}

/// Returns the Deployment's generation, which changes with its pods.
fn version_of_deployment(world: &World, name: &str) -> Value {
    world.child(name, DEPLOYMENTS)["metadata"]["generation"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_change_is_reported_and_the_old_version_serves() {
    let mut world = World::with_functions().await;
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    let of = |name: &str, value: &str| json!([{"name": name, "value": value}]);
    let largest = "x".repeat(128 * 1024 - "A=".len() - 1);
    let invalid = "False SpecInvalid: invalid value: ";
    let cases = [
        (
            json!({"env": of("FUNC_PORT", "1")}),
            "False SpecInvalid: invalid key name \"FUNC_PORT\": spec.env\nenv name is reserved",
        ),
        (json!({"env": of("NODE_PATH", "/")}), "False SpecInvalid: invalid key name \"NODE_PATH\""),
        (json!({"env": of("1 A", "1")}), "False SpecInvalid: invalid key name \"1 A\": spec.env"),
        (
            json!({"env": of("A", &(largest.clone() + "x"))}),
            "False SpecInvalid: invalid value: the value of env A has 131070 bytes",
        ),
        (
            json!({"deps": "{\"dependencies\": {"}),
            "False SpecInvalid: invalid value: deps should start with '{' and end with '}'",
        ),
        (json!({"deps": "{\"dependencies\": nothing}"}), "False SpecInvalid: invalid value: deps is not JSON"),
        (json!({"deps": "{}\n\u{0}}"}), invalid),
        (
            json!({"source": "/".repeat(MEBIBYTE + 1)}),
            "False SpecInvalid: invalid value: source and deps have 1048579 bytes",
        ),
        (json!({"source": " \n"}), "False SpecInvalid: missing field(s): spec.source"),
        (json!({"type": "oci"}), invalid),
        (json!({"minReplicas": 3, "maxReplicas": 2}), "False SpecInvalid"),
    ];
    let good = json!({"env": null, "deps": null, "source": "1", "type": null, "minReplicas": 1, "maxReplicas": 1});
    for (bad, beginning) in cases {
        refused(&world, "hello", bad, good.clone(), beginning).await;
    }
    // The largest valid size is accepted.
    let twice = json!([{"name": "A", "value": "1"}, {"name": "A", "value": largest}]);
    world.edit_function("hello", json!({"spec": {"env": twice}}));
    let shown = |w: &World| {
        let container = w.child("hello", DEPLOYMENTS)["spec"]["template"]["spec"]["containers"][0].clone();
        let all = container["env"].as_array().unwrap().clone();
        all.into_iter().filter(|entry| entry["name"] == "A").map(|entry| entry["value"].clone()).collect::<Vec<_>>()
    };
    world.until_function("the last one counts", |w| shown(w) == [json!(largest)]).await;
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_just_fits_is_kept_and_one_byte_more_is_refused() {
    let mut world = World::with_functions().await;
    world.start();
    let deps = r#"{"name":"x"}"#;
    let mut spec = inline(&"/".repeat(MEBIBYTE - deps.len()));
    spec["deps"] = json!(deps);
    world.function("full", spec.clone());
    world.runs("full").await;
    let kept = &world.child("full", CONFIG_MAPS)["data"];
    assert_eq!(kept["source"].as_str().unwrap().len() + kept["dependencies"].as_str().unwrap().len(), MEBIBYTE);
    spec["deps"] = json!(r#"{"name":"xy"}"#);
    world.function("fuller", spec);
    world.says("fuller", "ConfigurationReady", "False SpecInvalid: invalid value: source and deps have 1048577").await;
    assert_eq!(world.children("fuller", CONFIG_MAPS).len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_of_63_characters_runs_and_a_longer_one_is_refused() {
    let mut world = World::with_functions().await;
    world.start();
    let (longest, longer) = ("a".repeat(63), "b".repeat(64));
    let mut spec = inline("1");
    spec["maxReplicas"] = json!(2);
    world.function(&longest, spec.clone());
    world.function(&longer, spec);
    world.runs(&longest).await;
    for kind in [CONFIG_MAPS, JOBS, DEPLOYMENTS, SERVICES, PODS] {
        for child in world.children(&longest, kind) {
            let name = child["metadata"]["name"].as_str().unwrap();
            assert!(name.len() <= 63 || kind == PODS, "{kind:?} {name}");
        }
    }
    assert_eq!(world.child_name(&longest, SERVICES), longest);
    let said = format!(
        "False SpecInvalid: invalid value: metadata.name: Invalid value: \"{longer}\": must be no more than 63"
    );
    world.says(&longer, "ConfigurationReady", &said).await;
    assert_eq!(world.children(&longer, CONFIG_MAPS).len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_directory_is_reported_and_the_old_version_serves() {
    let mut world = World::with_functions().await;
    world.functions.git_interval = NEVER;
    world.remote.file("fn/handler.js", "1").file("fn/package.json", "{}").file("notes", "x").file("sub/x", "x");
    world.remote.symlink("link", "fn").submodule("module").commit("one");
    world.start();
    world.git_function("hello", "/fn");
    world.runs("hello").await;
    let failed = "False SourceUpdateFailed: Sources update failed: ";
    let cases = [
        ("/gone", format!("{failed}baseDir not found")),
        ("/link", format!("{failed}baseDir not found")),
        ("/link/handler.js", format!("{failed}baseDir not found")),
        ("/notes", format!("{failed}baseDir not found")),
        ("/module", format!("{failed}baseDir not found")),
        ("../fn", "False SpecInvalid: ".to_owned()),
        ("/fn/../sub", "False SpecInvalid: ".to_owned()),
        ("/fn\u{7}", "False SpecInvalid: ".to_owned()),
    ];
    for (bad, beginning) in cases {
        refused(&world, "hello", json!({"baseDir": bad}), json!({"baseDir": "/fn"}), &beginning).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependencies_of_a_function_may_be_deleted_while_it_builds_or_runs() {
    let mut world = World::with_functions().await;
    world.functions.git_interval = NEVER;
    world.functions.git_fetch_requeue = NEVER;
    world.remote.file("hello/handler.js", "1").file("hello/package.json", "{}").commit("one");
    let server = GitServer::start(world.remote.root()).await;
    server.require("u", "p-of-git");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"username": "u", "password": "p-of-git"},
        "metadata": {"name": "git", "namespace": NAMESPACE},
    });
    let repository = json!({
        "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository",
        "metadata": {"name": "private", "namespace": NAMESPACE},
        "spec": {"url": server.url(NAME), "auth": {"type": "basic", "secretName": "git"}},
    });
    let builds = world.builds();
    let put = |w: &World, resource: &str| match resource {
        "secrets" => drop(w.create("v1", "secrets", NAMESPACE, secret.clone())),
        "registry" => w.registry(NAMESPACE, "registry.example.org"),
        _ => drop(w.create("serverless.kyma-project.io/v1alpha1", resource, NAMESPACE, repository.clone())),
    };
    let take = |w: &World, resource: &str| match resource {
        "secrets" => w.delete("v1", "secrets", "git"),
        "registry" => w.delete("v1", "secrets", DEFAULT_REGISTRY),
        _ => w.delete("serverless.kyma-project.io/v1alpha1", resource, "private"),
    };
    let words = [
        ("gitrepositories", "False SourceUpdateFailed: Reading git options failed: GitRepository \"private\" does not"),
        ("secrets", "False SourceUpdateFailed: Reading git options failed: "),
        ("registry", "False RegistryNotConfigured: "),
    ];
    put(&world, "gitrepositories");
    put(&world, "secrets");
    world.builds_wait();
    world.start();
    world.git_function_of("private", "hello", "/hello");
    world.says("hello", "BuildReady", "Unknown JobRunning").await;
    for (resource, beginning) in words {
        take(&world, resource);
        world.says("hello", "ConfigurationReady", beginning).await;
        put(&world, resource);
        world.says("hello", "ConfigurationReady", "True").await;
    }
    // The build ends while its repository is missing. The result is used once the repository is back.
    take(&world, "gitrepositories");
    world.says("hello", "ConfigurationReady", words[0].1).await;
    world.builds_succeed();
    let ended = |w: &World| w.children("hello", JOBS).iter().all(|job| job["status"]["succeeded"] == 1);
    world.until_function("the build ends", ended).await;
    put(&world, "gitrepositories");
    world.runs("hello").await;
    for (resource, beginning) in words {
        take(&world, resource);
        world.says("hello", "ConfigurationReady", beginning).await;
        assert!(world.said("hello", "Running").starts_with("True"), "{beginning}: {}", world.said("hello", "Running"));
        put(&world, resource);
        world.runs("hello").await;
    }
    let all = builds.all();
    assert_eq!((all.len(), all.values().map(Vec::len).sum::<usize>()), (1, 1), "{all:?}");
    assert!(!world.function_status("hello").to_string().contains("p-of-git"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unschedulable_pods_are_reported_and_the_old_ones_serve() {
    let mut world = World::with_functions().await;
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    let name = world.child_name("hello", DEPLOYMENTS);
    let outcome =
        |what: Value| json!({"spec": {"template": {"metadata": {"annotations": {"devcluster.dev/outcome": what}}}}});
    world.edit("apps/v1", "deployments", &name, outcome(json!("pending")));
    world
        .until_function("the cause", |w| w.said("hello", "Running").contains("Unschedulable: 0/1 nodes are available"))
        .await;
    let available = &world.child("hello", DEPLOYMENTS)["status"]["availableReplicas"];
    assert_eq!(*available, 1, "the old pod serves");
    world.edit("apps/v1", "deployments", &name, outcome(Value::Null));
    world.runs("hello").await;
    assert_eq!(world.children("hello", JOBS).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_of_namespaces_with_similar_names_differ() {
    let mut world = World::with_functions().await;
    let builds = world.builds();
    let both = [("a-b", "c"), ("a", "b-c")];
    for (namespace, _) in both {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        world.create("v1", "namespaces", "", object);
        world.registry(namespace, "registry.example.org");
    }
    world.start();
    for (namespace, name) in both {
        world.function_in(namespace, name, inline("1"));
    }
    let image = |w: &World, (namespace, name): (&str, &str)| {
        let function = w.server.object("serverless.kyma-project.io/v1alpha1", "functions", namespace, name);
        function.and_then(|function| Some(function["status"]["image"].as_str()?.to_owned()))
    };
    world.until_function("both run", |w| both.iter().all(|one| image(w, *one).is_some())).await;
    let images = both.map(|one| image(&world, one).unwrap());
    let repositories = images.each_ref().map(|image| image.split_once(':').unwrap().0);
    assert_eq!(repositories, ["registry.example.org/a-b_c", "registry.example.org/a-b-c"]);
    assert_eq!(builds.all().len(), 2, "each is built for itself, under a tag of its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_somebody_else_creates_concurrently_is_not_adopted() {
    let mut world = World::with_functions().await;
    world.functions.requeue = NEVER;
    world.start();
    world.function("early", inline("1"));
    world.runs("early").await;
    // Delays the agent's write until the other Service exists.
    let held = Fault {
        verb: "apply".into(),
        resource: "services".into(),
        name: "hello".into(),
        delay_millis: 1500,
        ..Fault::default()
    };
    world.levers().fail_next(held);
    world.function("hello", inline("1"));
    let asked = |w: &World| w.requests().iter().any(|(what, n)| what == "apply services" && *n >= 2);
    world.until_function("the agent has seen that there is none", asked).await;
    // This Service has no field that conflicts with the agent's.
    let theirs = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "hello", "namespace": NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "theirs.example.org"},
    });
    world.create("v1", "services", NAMESPACE, theirs);
    world
        .says("hello", "Running", "False ServiceFailed: Service mainstay-tests/hello exists already and belongs to")
        .await;
    let service = world.get("v1", "services", "hello").unwrap();
    assert_eq!(
        service["spec"],
        json!({"type": "ExternalName", "externalName": "theirs.example.org", "sessionAffinity": "None"})
    );
    let metadata = &service["metadata"];
    assert!(metadata["ownerReferences"].is_null() && metadata["labels"].is_null(), "{metadata:#}");
    world.delete_function("hello");
    world.until_function("its children are gone", |w| w.children("hello", DEPLOYMENTS).is_empty()).await;
    assert!(world.get("v1", "services", "hello").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_secret_that_cannot_be_read_is_not_taken_for_a_missing_one() {
    let mut world = World::with_functions().await;
    let data = json!({
        "registryAddress": "external.example.org/team", "serverAddress": "external.example.org", "username": "u", "password": "p",
    });
    let external = json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": data,
        "metadata": {"name": "serverless-registry-config", "namespace": NAMESPACE},
    });
    world.create("v1", "secrets", NAMESPACE, external);
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    let image = world.function_status("hello")["image"].clone();
    assert!(image.as_str().unwrap().starts_with("external.example.org/team/"), "{image}");
    let job = world.child_name("hello", JOBS);
    world.kill().await;
    world.fail_next("watch", "secrets", "", 503, 10_000);
    world.fail_next("list", "secrets", "", 503, 10_000);
    world.start();
    world.says("hello", "ConfigurationReady", "False RegistryNotConfigured").await;
    let said = world.said("hello", "ConfigurationReady");
    assert!(said.contains("\"serverless-registry-config\" cannot be read"), "{said}");
    assert!(world.said("hello", "Running").starts_with("True"), "what is built serves");
    world.levers().clear_faults();
    world.runs("hello").await;
    assert_eq!(world.function_status("hello")["image"], image);
    assert_eq!(world.children("hello", JOBS).len(), 1, "nothing is built for the default registry");
    assert_eq!(world.child_name("hello", JOBS), job);
}
