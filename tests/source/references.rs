//! References of GitSyncs and Functions: version ranges, full names, and branches that are deleted or renamed.

use git2::Oid;
use mainstay_engine::notification::Message;
use serde_json::{Value, json};

use mainstay_testkit::{
    git_server::GitServer,
    remote::NAME,
    world::{World, config_map},
};

/// Returns a world whose repository is behind an HTTP server and named `web`.
async fn served() -> (World, GitServer) {
    let mut world = World::new().await;
    let server = GitServer::start(world.remote.root()).await;
    world.repository("web", &server.url(NAME));
    world.start();
    (world, server)
}

fn follow(world: &World, name: &str, reference: &str) {
    world.sync(name, json!({"gitRepository": "web", "reference": reference, "baseDir": "/apps"}));
}

/// Commits the ConfigMap `a` with this value.
fn release(world: &mut World, value: &str) -> String {
    world.remote.file("apps/a.yaml", config_map("a", value)).commit(value)
}

fn found_at(world: &World, sync: &str) -> Value {
    world.status(sync)["attemptedReference"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_follows_the_highest_version_in_a_range() {
    let (mut world, _server) = served().await;
    release(&mut world, "none");
    world.remote.tag("latest");
    follow(&world, "demo", "semver:>=1.0 <2");
    let none = "False SourceInvalid: look up semver:>=1.0 <2 at";
    world.condition_is("demo", "Ready", none).await;
    let said = world.condition("demo", "Ready");
    let why = "no tag is a version in this range; none of the 1 tags is a version such as v1.2.3";
    assert!(said.ends_with(why), "{said}");

    release(&mut world, "one");
    world.remote.annotated_tag("v1.9.0");
    let one = world.remote.head();
    release(&mut world, "two");
    world.remote.tag("v2.0.0").tag("v1.11.0-rc.1");
    world.ask("demo").await;
    world.ready_at("demo", &one).await;
    assert_eq!((world.data("a"), found_at(&world, "demo")), ("one".into(), json!("refs/tags/v1.9.0")));

    let ten = release(&mut world, "ten");
    world.remote.tag("1.10.0");
    world.ask("demo").await;
    world.ready_at("demo", &ten).await;
    assert_eq!((world.data("a"), found_at(&world, "demo")), ("ten".into(), json!("refs/tags/1.10.0")));

    // Without the newest tag, the previous one is used.
    world.remote.refer("refs/tags/other", Oid::from_str(&ten).unwrap());
    world.remote.drop_tag("1.10.0");
    world.ask("demo").await;
    world.ready_at("demo", &one).await;
    assert_eq!(found_at(&world, "demo"), "refs/tags/v1.9.0");

    // Without any tag, the applied objects stay.
    world.remote.drop_tag("v1.9.0");
    world.ask("demo").await;
    world.condition_is("demo", "Ready", none).await;
    let said = world.condition("demo", "Ready");
    assert!(said.ends_with("of 4 tags the highest version is v2.0.0"), "{said}");
    assert_eq!(world.data("a"), "one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_of_versions_has_a_field_of_its_own() {
    let (mut world, _server) = served().await;
    let one = release(&mut world, "one");
    world.remote.tag("v1.2.0");
    let two = release(&mut world, "two");
    world.remote.tag("v2.0.0");
    world.sync("demo", json!({"gitRepository": "web", "semver": ">=1.2 <2", "baseDir": "/apps"}));
    world.ready_at("demo", &one).await;
    assert_eq!(found_at(&world, "demo"), json!("refs/tags/v1.2.0"));
    world.edit("mainstay.dev/v1alpha1", "gitsyncs", "demo", json!({"spec": {"semver": "three"}}));
    world.condition_is("demo", "Ready", "False SourceInvalid").await;
    let said = world.condition("demo", "Ready");
    assert!(said.contains("a part of it is not a version such as `1.2.3`"), "{said}");
    // Without the range, the branch is used.
    world.edit("mainstay.dev/v1alpha1", "gitsyncs", "demo", json!({"spec": {"semver": null}}));
    world.ready_at("demo", &two).await;
    assert_eq!(world.data("a"), "two");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_lookup_serves_all_ranges_and_branches_of_a_remote() {
    let (mut world, server) = served().await;
    let old = release(&mut world, "old");
    world.remote.tag("v1.0.0");
    let new = release(&mut world, "new");
    world.remote.tag("v2.0.0");
    let all = [("one", "semver:1.x", &old), ("two", "semver:^2", &new), ("three", "main", &new)];
    for (name, reference, _) in all {
        follow(&world, name, reference);
        world.repository(&format!("unused-{name}"), "https://git.example.com/other.git");
    }
    for (name, _, commit) in all {
        let done = |w: &World| w.status(name)["attemptedCommit"] == **commit;
        world.until("the reference is found", done).await;
    }
    world.quiet().await;
    server.take_counts();
    world.look();
    world.quiet().await;
    let counts = server.take_counts();
    assert!(counts.requests <= 3 && counts.packs == 0, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_name_is_followed_wherever_it_is() {
    let (mut world, _server) = served().await;
    release(&mut world, "main");
    let pull = world.remote.branch("pull").file("apps/a.yaml", config_map("a", "pull")).commit("pull");
    world.remote.refer("refs/pull/1/head", Oid::from_str(&pull).unwrap());
    world.remote.branch("main").drop_branch("pull");
    follow(&world, "demo", "refs/pull/1/head");
    world.ready_at("demo", &pull).await;
    assert_eq!((world.data("a"), found_at(&world, "demo")), ("pull".into(), json!("refs/pull/1/head")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_follows_the_highest_version_in_a_range() {
    let mut world = World::with_functions().await;
    world.remote.file("hello/handler.js", "1").file("hello/package.json", "{}").commit("one");
    world.remote.tag("v1.0.0");
    let one = world.remote.head();
    world.remote.file("hello/handler.js", "2").commit("two");
    world.remote.tag("v2.0.0");
    world.start();
    world.git_function("hello", "/hello");
    world.edit_function("hello", json!({"spec": {"reference": "semver:>=1 <2"}}));
    world.until_function("the tag is found", &|w: &World| w.function_status("hello")["commit"] == *one).await;
    world.edit_function("hello", json!({"spec": {"reference": "semver:>=3"}}));
    let missing = "False SourceUpdateFailed: Sources update failed: reference not found: look up semver:>=3";
    world.says("hello", "ConfigurationReady", missing).await;
    world.edit_function("hello", json!({"spec": {"reference": "semver:3 or so"}}));
    world.until_function("it is told", &|w: &World| w.said("hello", "ConfigurationReady").contains("`1.x`")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renamed_default_branch_is_followed_as_head_and_named_to_those_who_follow_the_old_name() {
    let (mut world, _server) = served().await;
    let one = release(&mut world, "one");
    follow(&world, "head", "HEAD");
    world.ready_at("head", &one).await;
    assert_eq!(found_at(&world, "head"), "refs/heads/main");
    world.sync("named", json!({"gitRepository": "web", "baseDir": "/more"}));
    let two = world.remote.file("more/b.yaml", config_map("b", "1")).commit("two");
    world.ask("named").await;
    world.ready_at("named", &two).await;

    world.remote.branch("trunk").drop_branch("main").default_branch("trunk");
    let three = release(&mut world, "three");
    world.ask("head").await;
    world.ready_at("head", &three).await;
    assert_eq!((world.data("a"), found_at(&world, "head")), ("three".into(), json!("refs/heads/trunk")));
    world.ask("named").await;
    world.condition_is("named", "Ready", "False SourceInvalid: look up main at").await;
    let said = world.condition("named", "Ready");
    assert!(said.ends_with("there is no such branch or tag; the repository's default branch is trunk"), "{said}");
    assert_eq!(world.data("b"), "1", "nothing is deleted");
    world.change("named", json!({"reference": "trunk"})).await;
    world.ready_at("named", &three).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_is_deleted_and_comes_back_with_other_files_prunes_under_the_guards() {
    let (mut world, _server) = served().await;
    for number in 0..12 {
        world.remote.file(&format!("apps/{number}.yaml"), config_map(&format!("m{number}"), "1"));
    }
    let full = world.remote.commit("full");
    world.remote.branch("release");
    follow(&world, "demo", "release");
    world.ready_at("demo", &full).await;
    world.remote.branch("main").drop_branch("release");
    world.ask("demo").await;
    world.condition_is("demo", "Ready", "False SourceInvalid: look up release at").await;
    assert!(world.condition("demo", "Ready").ends_with("the repository's default branch is main"));
    assert_eq!(world.config_maps().len(), 12);

    for number in 2..12 {
        world.remote.remove(&format!("apps/{number}.yaml"));
    }
    let few = world.remote.orphan("few");
    world.remote.branch("release");
    world.ask("demo").await;
    world.condition_is("demo", "Ready", "False PruneHeld").await;
    assert_eq!(world.config_maps().len(), 12, "{few} would delete most of it");
    world.allow_prune("demo", &few).await;
    world.ready_at("demo", &few).await;
    assert_eq!(world.config_maps(), ["m0", "m1"]);
}

/// Returns the messages about rewritten branches.
fn rewritten(world: &mut World) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    while let Ok(message) = world.messages.try_recv() {
        if let Message::BranchRewritten { branch, old, new, .. } = message {
            all.push((branch, old, new));
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rewritten_branch_is_reported_and_an_advanced_one_is_not() {
    let (mut world, _server) = served().await;
    let base = release(&mut world, "base");
    follow(&world, "demo", "main");
    world.ready_at("demo", &base).await;
    let one = release(&mut world, "one");
    world.ask("demo").await;
    world.ready_at("demo", &one).await;
    assert_eq!(rewritten(&mut world), []);

    // The commit is amended.
    let two = world.remote.force(&base).file("apps/a.yaml", config_map("a", "two")).commit("two");
    world.ask("demo").await;
    world.ready_at("demo", &two).await;
    assert_eq!(rewritten(&mut world), [("main".to_owned(), one, two.clone())]);

    // The commit is removed while no agent runs.
    world.kill().await;
    world.remote.force(&base);
    world.start();
    world.ready_at("demo", &base).await;
    assert_eq!(rewritten(&mut world), [("main".to_owned(), two, base.clone())]);

    // A switch to another branch is not a rewrite.
    let other = world.remote.orphan("other");
    world.remote.branch("other");
    world.change("demo", json!({"reference": "other"})).await;
    world.ready_at("demo", &other).await;
    assert_eq!(rewritten(&mut world), []);
}
