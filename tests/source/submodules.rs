//! Submodules and Git LFS in GitSyncs.

use serde_json::json;

use mainstay_testkit::{
    git_server::GitServer,
    large_files::LargeFile,
    remote::{NAME, Remote as Origin},
    world::{NAMESPACE, World, config_map},
};

const REPOSITORIES: &str = "serverless.kyma-project.io/v1alpha1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submodule_is_named_and_is_applied_when_the_repository_says_so() {
    let mut lib = Origin::new();
    let commit = lib.file("lib.yaml", config_map("from-lib", "1")).commit("lib");
    let libs = GitServer::start(lib.root()).await;
    let mut world = World::new().await;
    let modules = format!("[submodule \"lib\"]\n\tpath = apps/lib\n\turl = {}\n", libs.url(NAME));
    world.remote.file("apps/a.yaml", config_map("own", "1")).file(".gitmodules", modules);
    world.remote.submodule_at("apps/lib", &commit).commit("one");
    world.sync("demo", json!({"baseDir": "/apps"}));
    world.start();
    let problem = "apps/lib: the submodule is not fetched (set `submodules: true` in the GitRepository and list the submodule in \
                   .gitmodules, or list it in .mainstayignore)";
    world.condition_is("demo", "Ready", &format!("False ManifestInvalid: {problem}")).await;
    assert_eq!(libs.take_counts().requests, 0);

    world.edit(REPOSITORIES, "gitrepositories", "repo", json!({"spec": {"submodules": true}}));
    world.ready("demo").await;
    assert_eq!((world.data("own"), world.data("from-lib")), ("1".to_owned(), "1".to_owned()));

    let commit = lib.file("lib.yaml", config_map("from-lib", "2")).commit("lib");
    world.remote.submodule_at("apps/lib", &commit);
    world.commit("demo", "two").await;
    assert_eq!(world.data("from-lib"), "2");

    world.remote.submodule_at("apps/lib", &"1".repeat(40));
    world.try_commit("demo", "three").await;
    let shown = world.condition("demo", "Ready");
    assert!(
        shown.contains("fetch the submodule apps/lib: fetch commit 1111111111111111111111111111111111111111 from "),
        "{shown}"
    );
    assert_eq!(world.data("from-lib"), "2", "what was applied stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_in_git_lfs_is_named() {
    let mut world = World::new().await;
    world
        .remote
        .file("big.yaml", LargeFile::of(config_map("big", "1")).pointer)
        .file("a.yaml", config_map("a", "1"))
        .commit("one");
    world.sync("demo", json!({}));
    world.start();
    let problem = "big.yaml: the file is kept in Git LFS, which is not fetched (set `spec.lfs: true` in the \
                   GitRepository, or list it in .mainstayignore)";
    world.condition_is("demo", "Ready", &format!("False ManifestInvalid: {problem}")).await;
    assert!(world.get("v1", "configmaps", "a").is_none(), "{NAMESPACE}");
    world.remote.file(".mainstayignore", "big.yaml\n");
    world.commit("demo", "two").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_in_git_lfs_is_applied_when_the_repository_says_so() {
    let content = config_map("big", "1");
    let file = LargeFile::of(&content);
    let mut world = World::new().await;
    world.remote.file("big.yaml", &file.pointer).commit("one");
    let server = GitServer::start(world.remote.root()).await;
    server.keep(&file.oid, content.as_bytes());
    world.repository("large", &server.url(NAME));
    world.sync("demo", json!({"gitRepository": "large"}));
    world.start();
    let problem = "False ManifestInvalid: big.yaml: the file is kept in Git LFS";
    world.condition_is("demo", "Ready", problem).await;
    assert_eq!(server.take_large_requests(), (0, 0));
    world.edit(REPOSITORIES, "gitrepositories", "large", json!({"spec": {"lfs": true}}));
    world.ready("demo").await;
    assert_eq!(world.data("big"), "1");
    world.edit(REPOSITORIES, "gitrepositories", "large", json!({"spec": {"lfs": false}}));
    world.condition_is("demo", "Ready", problem).await;
    assert_eq!(world.data("big"), "1", "what was applied stays");
}
