//! Versions of Functions that cannot be loaded. Each reports the cause, and none replaces a serving version. A GitSync
//! fails at once and names the cause.

use serde_json::{Value, json};

use mainstay_testkit::{
    functions::PODS,
    world::{NAMESPACE, World},
};

const SECRET: &str = "correct-horse-battery";

fn spec(runtime: &str, source: &str) -> Value {
    let secret = json!({"secretKeyRef": {"name": "database", "key": "password"}});
    json!({
        "runtime": runtime, "source": source, "minReplicas": 1, "maxReplicas": 1,
        "env": [{"name": "PAYMENT_SERVICE_KEY", "valueFrom": secret}],
    })
}

/// Runtime, a version that answers `one`, one that answers `two`, and versions that cannot be loaded, with the cause.
type Language = (&'static str, &'static str, &'static str, [(&'static str, &'static str); 3]);

const LANGUAGES: [Language; 2] = [
    (
        "nodejs22",
        "exports.main = () => 'one'",
        "exports.main = () => 'two'",
        [
            ("require('of-nothing')", "the module fails: handler.js:1: Error: Cannot find module 'of-nothing'"),
            ("throw new Error('wrong: ' + process.env.PAYMENT_SERVICE_KEY)", "handler.js:1: Error: wrong: ***"),
            ("exports.other = () => 1", "the module exports no function \"main\""),
        ],
    ),
    (
        "python312",
        "def main(event, context): return 'one'",
        "def main(event, context): return 'two'",
        [
            ("import of_nothing", "the module fails: handler.py:1: ModuleNotFoundError: No module named 'of_nothing'"),
            (
                "import os\nraise ValueError('wrong: ' + os.environ['PAYMENT_SERVICE_KEY'])",
                "handler.py:2: ValueError: wrong: ***",
            ),
            ("x = 1", "the module 'handler' has no function 'main'"),
        ],
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_cannot_be_loaded_says_why_and_the_old_one_serves() {
    let mut world = World::with_processes().await;
    world.secret("database", json!({"password": SECRET}));
    world.start();
    for (runtime, one, two, broken) in LANGUAGES {
        world.function(runtime, spec(runtime, one));
        world.runs(runtime).await;
        world.answers(runtime, "200 one").await;
        let image = world.function_status(runtime)["image"].clone();
        let generation = world.function_status(runtime)["servedGeneration"].as_i64().unwrap();
        for (source, cause) in broken {
            world.edit_function(runtime, json!({"spec": {"source": source}}));
            let told = |w: &World| {
                let said = w.said(runtime, "Running");
                said.starts_with("True DeploymentWaiting") && said.contains(cause) && said.contains("previous version")
            };
            world.until_function(cause, told).await;
            assert_eq!(world.call(runtime).await, "200 one", "{source}");
            assert_eq!(world.function_status(runtime)["image"], image);
            assert_eq!(world.function_status(runtime)["servedGeneration"], generation, "{source}");
        }
        world.edit_function(runtime, json!({"spec": {"source": two}}));
        world.runs(runtime).await;
        world.answers(runtime, "200 two").await;
        assert_ne!(world.function_status(runtime)["image"], image);
        assert_eq!(world.function_status(runtime)["servedGeneration"], generation + 4);
    }
    // The first version of a Function reports its own cause. So does each later version while earlier pods still exist.
    let (runtime, _, two, [first, second, third]) = LANGUAGES[0];
    world.function("first", spec(runtime, first.0));
    for (source, cause) in [first, third, second] {
        world.edit_function("first", json!({"spec": {"source": source}}));
        let told = |w: &World| {
            let said = w.said("first", "Running");
            said.starts_with("Unknown DeploymentWaiting") && said.contains(cause)
        };
        world.until_function(cause, told).await;
        assert_eq!(world.function_status("first")["image"], Value::Null);
        assert_eq!(world.function_status("first")["servedGeneration"], Value::Null);
    }
    world.edit_function("first", json!({"spec": {"source": two}}));
    world.runs("first").await;
    for (version, resource) in [PODS, ("serverless.kyma-project.io/v1alpha1", "functions"), ("v1", "events")] {
        for object in world.server.objects(version, resource, Some(NAMESPACE)) {
            assert!(!object.to_string().contains(SECRET), "{object:#}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_fails_at_once_if_a_function_cannot_be_built_or_loaded() {
    let mut world = World::with_processes().await;
    world.secret("database", json!({"password": SECRET}));
    let manifest = |source: &str| {
        let metadata = json!({"name": "hello"});
        let api_version = "serverless.kyma-project.io/v1alpha1";
        json!({"apiVersion": api_version, "kind": "Function", "metadata": metadata, "spec": spec("nodejs22", source)})
    };
    let (runtime, one, two, [missing, ..]) = LANGUAGES[0];
    assert_eq!(runtime, "nodejs22");
    let syntax = ("exports.main = () => (", "SourceInvalid: handler.js:1: SyntaxError");
    world.remote.file("hello.yaml", manifest(syntax.0).to_string()).commit("a first version with a syntax error");
    world.start();
    world.sync("demo", json!({}));
    let failed = |w: &World, cause: &str| {
        let ready = w.condition("demo", "Ready");
        let is_current = w.status("demo")["appliedCommit"] == w.remote.head();
        is_current && ready.starts_with("False ObjectFailed") && ready.contains(cause)
    };
    // The timeout of the GitSync is longer than the patience of the test.
    world.until("the syntax error is reported", |w| failed(w, syntax.1)).await;
    for (source, cause) in [missing, syntax] {
        world.remote.file("hello.yaml", manifest(one).to_string());
        world.commit("demo", "a version that runs").await;
        world.answers("hello", "200 one").await;
        world.remote.file("hello.yaml", manifest(source).to_string());
        world.try_commit("demo", "a version that cannot start").await;
        world.until("the cause is reported", |w| failed(w, cause)).await;
        assert_eq!(world.call("hello").await, "200 one", "{source}");
    }
    world.remote.file("hello.yaml", manifest(two).to_string());
    world.commit("demo", "another version that runs").await;
    world.answers("hello", "200 two").await;
}
