//! `examples/private`: the unchanged GitRepository with an SSH key, for a GitSync and for a Function.

use std::{fs, os::unix::fs::symlink, path::Path};

use serde_json::{Value, json};

use mainstay_testkit::{
    functions::JOBS,
    remote::NAME,
    ssh_server::{SshServer, generate},
    world::{NAMESPACE, World, config_map},
};

const SERVERLESS: &str = "serverless.kyma-project.io/v1alpha1";

/// Returns a file of the example.
fn example(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/private").join(name);
    let mut object: Value = serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    object["metadata"]["namespace"] = NAMESPACE.into();
    object
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_works_unchanged_for_a_git_sync_and_a_function() {
    let mut world = World::with_functions().await;
    world.remote.file("deploy/a.yaml", config_map("a", "1"));
    world.remote.file("hello/handler.js", "1").file("hello/package.json", "{}").commit("one");
    // A server that the agent takes for github.com.
    let server = SshServer::start_on_port_22(world.remote.root()).await;
    server.add_git();
    world.hosts.insert("github.com".to_owned(), (server.ip(), 0).into());
    let organization = world.remote.root().join("sample-organization");
    fs::create_dir(&organization).unwrap();
    symlink(world.remote.root().join(NAME), organization.join("sample-repo.git")).unwrap();
    let path = world.remote.root().join("key");
    generate(&path, "ed25519", &[]);
    server.authorize(&fs::read_to_string(path.with_extension("pub")).unwrap());

    world.create(SERVERLESS, "gitrepositories", NAMESPACE, example("repository.yaml"));
    world.create("mainstay.dev/v1alpha1", "gitsyncs", NAMESPACE, example("sync.yaml"));
    world.create(SERVERLESS, "functions", NAMESPACE, example("function.yaml"));
    world.set_secret("kyma-git-creds", json!({"key": fs::read_to_string(&path).unwrap()}));
    world.start();
    // The server is not the real github.com.
    let changed = format!(
        "the host key of github.com has changed: it presented {}, known is \
         SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU (ED25519) (published by its operator)",
        server.fingerprint("ed25519")
    );
    let refused = "look up main at git@github.com:sample-organization/sample-repo.git: ";
    world.condition_is("sample", "Ready", &format!("False GitAuthorizationFailed: {refused}{changed}")).await;
    let denied = format!("False GitAuthorizationFailed: Authorization to git server failed: {refused}{changed}");
    world.says("hello", "ConfigurationReady", &denied).await;

    world.set_secret("kyma-git-creds", json!({"known_hosts": format!("github.com {}\n", server.host_key("ed25519"))}));
    world.ready("sample").await;
    assert_eq!(world.data("a"), "1");
    world.runs("hello").await;
    let job = world.child("hello", JOBS).to_string();
    assert!(job.contains("--url=git@github.com:sample-organization/sample-repo.git"), "{job}");
}
