//! Functions whose source is in Git.

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{CONFIG_MAPS, DEPLOYMENTS, JOBS, inline},
    git_server::{Fault, GitServer, On},
    remote::NAME,
    world::{NAMESPACE, World},
};

const REPOSITORIES: &str = "serverless.kyma-project.io/v1alpha1";

const NEVER: Duration = Duration::from_secs(3600);

async fn world() -> World {
    let mut world = World::with_functions().await;
    world.functions.git_interval = NEVER;
    world.remote.file("hello/handler.js", "1").file("hello/package.json", "{}").file("other/a", "1").commit("one");
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_function_follows_its_directory_and_nothing_else() {
    let mut world = world().await;
    world.start();
    world.git_function("hello", "/hello");
    world.runs("hello").await;
    let first = world.remote.head();
    let expected = [
        "SourceUpdated",
        "JobCreated",
        "JobRunning",
        "JobFinished",
        "DeploymentCreated",
        "ServiceCreated",
        "DeploymentWaiting",
        "DeploymentReady",
    ];
    world.told("hello", &expected).await;
    let status = world.function_status("hello");
    assert_eq!(
        (&status["commit"], &status["reference"], &status["baseDir"]),
        (&json!(first), &json!("main"), &json!("/hello"))
    );
    let said = world.said("hello", "BuildReady");
    assert!(said.ends_with(&format!("(0.1 s: SOURCE {}… in /hello)", &first[..7])), "{said}");
    let version = world.function_now("hello").unwrap()["metadata"]["resourceVersion"].clone();

    world.remote.file("other/a", "2").commit("elsewhere");
    world.look();
    world.quiet().await;
    assert_eq!(world.function_now("hello").unwrap()["metadata"]["resourceVersion"], version, "nothing was written");

    let second = { world.remote.file("hello/handler.js", "2").commit("here") };
    world.look();
    world.until_function("the new commit is built", |w| w.function_status("hello")["commit"] == *second).await;
    world.runs("hello").await;
    let expected = [
        "SourceUpdated",
        "JobsDeleted",
        "JobCreated",
        "JobRunning",
        "JobFinished",
        "DeploymentUpdated",
        "DeploymentWaiting",
        "DeploymentReady",
    ];
    world.told("hello", &expected).await;

    // A new agent knows the commit in which the current source appeared.
    world.remote.file("other/a", "3").commit("elsewhere again");
    world.kill().await;
    world.start();
    world.quiet().await;
    assert_eq!(world.function_status("hello")["commit"], *second);
    assert_eq!(world.children("hello", JOBS).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn problems_of_the_source_are_reported_by_kind() {
    let mut world = world().await;
    world.start();
    world.git_function("hello", "/nowhere");
    let failed = "False SourceUpdateFailed: Sources update failed: ";
    world.says("hello", "ConfigurationReady", &format!("{failed}baseDir not found")).await;
    world.edit_function("hello", json!({"spec": {"baseDir": "/hello", "reference": "nobranch"}}));
    world.says("hello", "ConfigurationReady", &format!("{failed}reference not found")).await;
    world.edit_function("hello", json!({"spec": {"reference": "main", "source": "norepo"}}));
    let missing = "False SourceUpdateFailed: Reading git options failed: GitRepository \"norepo\" does not exist";
    world.says("hello", "ConfigurationReady", missing).await;
    // The Function works as soon as the GitRepository exists.
    world.repository("norepo", &world.remote.path().display().to_string());
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_is_built_again_when_files_in_git_lfs_are_to_be_fetched() {
    let mut world = world().await;
    let server = GitServer::start(world.remote.root()).await;
    world.repository("large", &server.url(NAME));
    world.start();
    world.git_function_of("large", "hello", "/hello");
    world.runs("hello").await;
    let args = |world: &World| format!("{:?}", world.children("hello", JOBS));
    let image =
        |world: &World| world.child("hello", DEPLOYMENTS)["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    let before = image(&world);
    assert!(!args(&world).contains("--lfs"));
    world.edit(REPOSITORIES, "gitrepositories", "large", json!({"spec": {"lfs": true}}));
    world.until_function("it is built again", |w| image(w) != before).await;
    world.runs("hello").await;
    assert!(args(&world).contains("--lfs"));

    // A failed build uses the LFS server that the repository names now.
    let large = image(&world);
    world.remote.file(".lfsconfig", format!("[lfs]\nurl = {}/lfs\n", server.base()));
    let named = world.remote.commit("beside the directory");
    world.look();
    world.until_function("it is built from the commit", |w| args(w).contains(&named) && image(w) != large).await;
    world.runs("hello").await;

    // Another agent builds nothing else while Git is unavailable.
    let (serving, jobs) = (image(&world), args(&world));
    world.stop().await;
    server.fail(On::Everything, Fault::Status(503));
    world.start();
    world.says("hello", "ConfigurationReady", "False SourceUpdateFailed: Sources update failed").await;
    world.edit_function("hello", json!({"metadata": {"labels": {"a": "b"}}}));
    world.quiet().await;
    assert_eq!((image(&world), args(&world)), (serving, jobs));
    server.heal();
    world.look();
    world.runs("hello").await;
    world.edit(REPOSITORIES, "gitrepositories", "large", json!({"spec": {"lfs": false}}));
    world.until_function("the first image serves again", |w| image(w) == before).await;
}

/// Returns a remote that requires the user `u` with the password `right`, and the Function `hello` from it. Its Secret
/// `git` does not exist, and the remote is not polled at an interval.
async fn private() -> (World, GitServer) {
    let mut world = world().await;
    world.functions.git_fetch_requeue = NEVER;
    let server = GitServer::start(world.remote.root()).await;
    server.require("u", "right");
    let repository = json!({
        "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository",
        "metadata": {"name": "private", "namespace": NAMESPACE},
        "spec": {"url": server.url(NAME), "auth": {"type": "basic", "secretName": "git"}},
    });
    world.create("serverless.kyma-project.io/v1alpha1", "gitrepositories", NAMESPACE, repository);
    world.git_function("hello", "/hello");
    world.edit_function("hello", json!({"spec": {"source": "private"}}));
    (world, server)
}

fn password(text: &str) -> Value {
    json!({"username": BASE64_STANDARD.encode("u"), "password": BASE64_STANDARD.encode(text)})
}

fn create_secret(world: &World, text: &str) {
    let metadata = json!({"name": "git", "namespace": NAMESPACE});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": password(text), "metadata": metadata});
    world.create("v1", "secrets", NAMESPACE, secret);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrected_git_password_works_at_once_and_what_serves_goes_on() {
    let (mut world, server) = private().await;
    world.start();
    let missing = "False SourceUpdateFailed: Reading git options failed: Secret \"git\" does not exist";
    world.says("hello", "ConfigurationReady", missing).await;
    create_secret(&world, "wrong");
    let denied = "False GitAuthorizationFailed: Authorization to git server failed";
    world.says("hello", "ConfigurationReady", denied).await;
    assert!(!world.function_status("hello").to_string().contains("wrong"));
    world.edit("v1", "secrets", "git", json!({"data": password("right")}));
    world.runs("hello").await;
    let job = world.child("hello", JOBS).to_string();
    assert!(job.contains("--auth=basic") && job.contains(r#""secretName":"git""#) && !job.contains("right"), "{job}");

    // Git is unavailable, so the known commit is used.
    server.fail(On::Everything, Fault::Status(503));
    world.look();
    world.says("hello", "ConfigurationReady", "False SourceUpdateFailed: Sources update failed").await;
    world.edit_function("hello", json!({"spec": {"env": [{"name": "A", "value": "1"}]}}));
    world
        .until_function("the variable is there", |w| {
            w.child("hello", DEPLOYMENTS).to_string().contains(r#""name":"A""#)
                && w.said("hello", "Running").starts_with("True")
        })
        .await;
    server.heal();
    world.look();
    world.runs("hello").await;
    assert_eq!(world.children("hello", JOBS).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_functions_of_a_repository_are_looked_up_together() {
    let mut world = world().await;
    let server = GitServer::start(world.remote.root()).await;
    world.repository("shared", &server.url(NAME));
    world.start();
    for n in 0..8 {
        let name = format!("f{n}");
        world.git_function(&name, if n % 2 == 0 { "/hello" } else { "/other" });
        world.edit_function(&name, json!({"spec": {"source": "shared"}}));
    }
    for n in 0..8 {
        world.runs(&format!("f{n}")).await;
    }
    world.quiet().await;
    server.take_counts();
    world.remote.file("hello/handler.js", "2").commit("two");
    let head = world.remote.head();
    world.look();
    for n in [0, 2, 4, 6] {
        world.until_function("built", |w| w.function_status(&format!("f{n}"))["commit"] == *head).await;
        world.runs(&format!("f{n}")).await;
    }
    let counts = server.take_counts();
    assert!(counts.packs <= 2 && counts.requests <= 8, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_moved_on_is_looked_up_again_for_the_build() {
    let mut world = world().await;
    world.functions.requeue = NEVER;
    world.builds_wait();
    world.start();
    world.git_function("hello", "/hello");
    world.says("hello", "BuildReady", "Unknown JobRunning").await;
    let head = world.remote.file("hello/handler.js", "2").commit("two");
    // Only the build, which cannot find the commit any more, informs the agent.
    world.builds_end("push", 1, r#"{"reason":"BranchMoved","message":"moved","retry":true}"#, Duration::ZERO);
    world.until_function("the new commit", |w| w.function_status("hello")["commit"] == *head).await;
    world.builds_succeed();
    world.edit_function("hello", json!({"metadata": {"annotations": {"mainstay.dev/rebuild": "1"}}}));
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_moves_to_git_loses_its_config_map() {
    let mut world = world().await;
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    assert_eq!(world.children("hello", CONFIG_MAPS).len(), 1);
    let git = json!({"spec": {"type": "git", "source": "repo", "reference": "main", "baseDir": "/hello"}});
    world.edit_function("hello", git);
    world.runs("hello").await;
    assert_eq!(world.children("hello", CONFIG_MAPS).len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_moves_from_git_is_built_from_its_text_while_the_old_image_serves() {
    let mut world = world().await;
    let builds = world.builds();
    world.start();
    world.git_function("hello", "/hello");
    world.runs("hello").await;
    assert_eq!(world.children("hello", CONFIG_MAPS).len(), 0);
    let served = |w: &World| w.child("hello", DEPLOYMENTS)["spec"]["template"]["spec"].clone();
    let (image, before) = (world.function_status("hello")["image"].clone(), served(&world));
    world.builds_wait();
    let inline = json!({"spec": {"type": null, "source": "2", "reference": null, "baseDir": null}});
    world.edit_function("hello", inline);
    world.says("hello", "BuildReady", "Unknown JobRunning").await;
    assert_eq!(world.child("hello", CONFIG_MAPS)["data"]["source"], "2");
    assert!(world.said("hello", "Running").starts_with("True"), "the old image serves");
    assert_eq!((world.function_status("hello")["image"].clone(), served(&world)), (image.clone(), before));
    world.builds_succeed();
    world.runs("hello").await;
    let status = world.function_status("hello");
    assert_ne!(status["image"], image);
    let of_git = ["commit", "reference", "baseDir", "tree"];
    assert_eq!(of_git.map(|field| status[field].clone()), [const { Value::Null }; 4], "it is not in Git any more");
    // Changes of the repository have no effect any more.
    world.remote.file("hello/handler.js", "3").commit("three");
    world.look();
    world.quiet().await;
    assert!(world.is_running("hello"));
    let all = builds.all();
    assert_eq!((all.len(), all.values().map(Vec::len).sum::<usize>()), (2, 2), "{all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_password_is_reported_and_its_correction_works_at_once() {
    let (mut world, server) = private().await;
    create_secret(&world, "right");
    world.start();
    world.runs("hello").await;
    server.require("u", "newer");
    world.look();
    world.says("hello", "ConfigurationReady", "False GitAuthorizationFailed").await;
    world.edit("v1", "secrets", "git", json!({"data": password("newer")}));
    world.says("hello", "ConfigurationReady", "True").await;

    world.delete("v1", "secrets", "git");
    let missing = "False SourceUpdateFailed: Reading git options failed: Secret \"git\" does not exist";
    world.says("hello", "ConfigurationReady", missing).await;
    create_secret(&world, "newer");
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forbidden_git_secret_is_not_reported_as_missing() {
    let (mut world, _server) = private().await;
    create_secret(&world, "right");
    // Only the reads in this namespace are refused. The Secrets of the registries may be read.
    for verb in ["watch", "list"] {
        world.levers().fail_next(devcluster::fault_injection::Fault {
            verb: verb.into(),
            resource: "secrets".into(),
            namespace: NAMESPACE.into(),
            code: 403,
            times: 1000,
            ..Default::default()
        });
    }
    world.start();
    let refused = "False SourceUpdateFailed: Reading git options failed: Secret \"git\" may not be read";
    world.says("hello", "ConfigurationReady", refused).await;
    world.levers().clear_faults();
    world.runs("hello").await;
}
