//! `spec.dependsOn`: a GitSync applies a commit once its dependencies are ready at that commit.

use serde_json::{Value, json};

use mainstay_testkit::git_server::GitServer;
use mainstay_testkit::ownership::delete_sync;
use mainstay_testkit::remote::NAME;
use mainstay_testkit::world::{World, config_map, open_definition};

const WIDGETS: &str = "mainstay-tests.example.org/v1";
const LABEL_OF_OWNER: &str = "/metadata/labels/mainstay.dev~1sync";

fn widget(size: u32) -> String {
    format!("apiVersion: {WIDGETS}\nkind: Widget\nmetadata:\n  name: w\nspec:\n  size: {size}\n")
}

/// Sets whether the widget is ready.
fn set_widget(world: &World, status: &str) {
    let ready = json!({"type": "Ready", "status": status, "reason": "Any", "message": ""});
    world.edit(WIDGETS, "widgets", "w", json!({"status": {"conditions": [ready]}}));
}

fn depends_on(names: &[&str]) -> Value {
    let named: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
    json!(named)
}

/// Creates a platform with a definition and an unready widget, and apps with a ConfigMap that depend on it.
async fn platform_and_apps() -> (World, String) {
    let mut world = World::new().await;
    world.remote.file("platform/definition.yaml", open_definition()).file("platform/w.yaml", widget(1));
    world.remote.file("apps/a.yaml", config_map("a", "1"));
    let first = world.remote.commit("first");
    world.sync("platform", json!({"baseDir": "/platform"}));
    world.start();
    world.ready("platform").await;
    set_widget(&world, "False");
    world.condition_is("platform", "Ready", "Unknown Progressing").await;
    world.sync("apps", json!({"baseDir": "/apps", "dependsOn": depends_on(&["platform"])}));
    (world, first)
}

fn not_ready(commit: &str, why: &str) -> String {
    format!("False DependencyNotReady: commit {commit} waits for GitSync mainstay-tests/platform, which {why}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_applied_as_soon_as_their_dependency_is_ready_and_not_before() {
    let (mut world, first) = platform_and_apps().await;
    world.condition_is("apps", "Ready", &not_ready(&first, "is not ready (Progressing)")).await;
    world.condition_is("apps", "Reconciling", "True DependencyNotReady").await;
    assert_eq!(world.data("a"), "absent");
    // Both GitSyncs poll the repository once an hour, so only a wake-up explains the quick apply.
    set_widget(&world, "True");
    world.ready_at("apps", &first).await;
    assert_eq!(world.data("a"), "1");

    // The next commit is requested for only one of the GitSyncs, and the other GitSync is woken.
    set_widget(&world, "False");
    world.remote.file("platform/w.yaml", widget(2)).file("apps/a.yaml", config_map("a", "2"));
    let second = world.remote.commit("second");
    world.ask("apps").await;
    world.condition_is("apps", "Ready", &not_ready(&second, "")).await;
    world.until("the platform has the commit", |w| w.status("platform")["attemptedCommit"] == *second).await;
    assert_eq!(world.data("a"), "1", "what was applied before");
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "by hand"}}));
    world.until("the commit before is enforced meanwhile", |w| w.data("a") == "1").await;
    set_widget(&world, "True");
    world.ready_at("apps", &second).await;
    assert_eq!(world.data("a"), "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_of_one_come_before_the_objects_of_the_other() {
    let mut world = World::new().await;
    world.remote.file("crds/definition.yaml", open_definition()).file("apps/w.yaml", widget(1));
    world.remote.commit("first");
    world.sync("apps", json!({"baseDir": "/apps", "wait": false, "dependsOn": depends_on(&["platform"])}));
    world.start();
    world.condition_is("apps", "Ready", "False DependencyNotReady").await;
    let said = world.condition("apps", "Ready");
    assert!(said.ends_with("GitSync mainstay-tests/platform, which does not exist"), "{said}");
    world.sync("platform", json!({"baseDir": "/crds"}));
    world.ready("apps").await;
    assert!(world.get(WIDGETS, "widgets", "w").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ring_is_stalled_in_all_its_members_by_name_until_one_leaves_it() {
    let mut world = World::new().await;
    for name in ["a", "b", "c"] {
        world.remote.file(&format!("{name}/{name}.yaml"), config_map(name, "1"));
    }
    world.remote.commit("first");
    world.sync("a", json!({"baseDir": "/a", "dependsOn": depends_on(&["b"])}));
    world.sync("b", json!({"baseDir": "/b", "dependsOn": depends_on(&["c"])}));
    world.sync("c", json!({"baseDir": "/c", "dependsOn": depends_on(&["a"])}));
    world.start();
    let ring = "mainstay-tests/a → mainstay-tests/b → mainstay-tests/c → mainstay-tests/a";
    let stalled = format!("True DependencyCycle: spec.dependsOn forms a cycle: {ring}; remove one");
    world.condition_is("a", "Stalled", &stalled).await;
    for name in ["b", "c"] {
        world.condition_is(name, "Stalled", "True DependencyCycle").await;
    }
    assert_eq!(world.config_maps(), Vec::<String>::new());
    world.change("c", json!({"dependsOn": null})).await;
    for name in ["c", "b", "a"] {
        world.ready(name).await;
    }
    world.change("c", json!({"dependsOn": depends_on(&["c"])})).await;
    world.condition_is("c", "Stalled", "True DependencyCycle").await;
    assert_eq!(world.data("c"), "1", "what was applied stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_a_restart_nor_a_commit_for_others_makes_unready_what_was_ready() {
    let (mut world, first) = platform_and_apps().await;
    set_widget(&world, "True");
    world.ready_at("apps", &first).await;
    world.kill().await;
    set_widget(&world, "False");
    let before = world.condition("apps", "Ready");
    world.start();
    world.condition_is("platform", "Ready", "Unknown Progressing").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "by hand"}}));
    world.until("drift is reverted", |w| w.data("a") == "1").await;
    assert_eq!(world.condition("apps", "Ready"), before);

    world.remote.file("README.md", "nothing to apply");
    let second = world.remote.commit("for others");
    world.ask("apps").await;
    world.ready_at("apps", &second).await;
    world.condition_is("platform", "Ready", "Unknown Progressing").await;

    // A new object still waits.
    world.remote.file("apps/a.yaml", config_map("a", "3"));
    let third = world.remote.commit("third");
    world.ask("apps").await;
    world.condition_is("apps", "Ready", &not_ready(&third, "is not ready (Progressing)")).await;
    world.kill().await;
    world.start();
    world.look();
    set_widget(&world, "True");
    world.ready_at("apps", &third).await;
    assert_eq!(world.data("a"), "3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_move_both_ways_between_a_git_sync_and_the_one_that_it_depends_on() {
    let mut world = World::new().await;
    world.remote.file("platform/p.yaml", config_map("p", "1")).file("platform/down.yaml", config_map("down", "1"));
    world.remote.file("apps/a.yaml", config_map("a", "1")).file("apps/up.yaml", config_map("up", "1"));
    world.remote.commit("first");
    world.sync("platform", json!({"baseDir": "/platform"}));
    world.sync("apps", json!({"baseDir": "/apps", "dependsOn": depends_on(&["platform"])}));
    world.start();
    world.ready("apps").await;
    let uids = |w: &World| ["up", "down"].map(|name| w.uid("v1", "configmaps", name));
    let before = uids(&world);
    world.remote.remove("platform/down.yaml").remove("apps/up.yaml");
    world.remote.file("platform/up.yaml", config_map("up", "2")).file("apps/down.yaml", config_map("down", "2"));
    let second = world.remote.commit("each gives one to the other");
    world.ask("apps").await;
    world.ready_at("platform", &second).await;
    world.ready_at("apps", &second).await;
    assert_eq!((world.data("up"), world.data("down")), ("2".into(), "2".into()));
    assert_eq!(uids(&world), before, "nothing is deleted on the way");
    let owner = |w: &World, name| w.get("v1", "configmaps", name).unwrap().pointer(LABEL_OF_OWNER).cloned();
    assert_eq!(owner(&world, "up"), owner(&world, "p"));
    assert_eq!(owner(&world, "down"), owner(&world, "a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_dependency_holds_new_commits_and_leaves_applied_objects() {
    let (mut world, first) = platform_and_apps().await;
    set_widget(&world, "True");
    world.ready_at("apps", &first).await;
    delete_sync(&world, "platform");
    world.until("it is gone", |w| w.get("mainstay.dev/v1alpha1", "gitsyncs", "platform").is_none()).await;
    world.remote.file("apps/a.yaml", config_map("a", "2"));
    let second = world.remote.commit("second");
    world.ask("apps").await;
    world.condition_is("apps", "Ready", &not_ready(&second, "does not exist")).await;
    assert_eq!(world.data("a"), "1");
    world.change("apps", json!({"dependsOn": null})).await;
    world.ready_at("apps", &second).await;
    assert_eq!(world.data("a"), "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_and_its_dependency_share_one_lookup_and_one_fetch() {
    let mut world = World::new().await;
    let server = GitServer::start(world.remote.root()).await;
    world.repository("mono", &server.url(NAME));
    for name in ["a", "b", "c"] {
        world.remote.file(&format!("{name}/{name}.yaml"), config_map(name, "1"));
    }
    world.remote.commit("first");
    for (name, on) in [("a", &[][..]), ("b", &["a"][..]), ("c", &["a", "b"][..])] {
        let spec = json!({"gitRepository": "mono", "baseDir": format!("/{name}"), "dependsOn": depends_on(on)});
        world.sync(name, spec);
    }
    world.start();
    world.ready("c").await;
    world.quiet().await;
    server.take_counts();
    for name in ["a", "b", "c"] {
        world.remote.file(&format!("{name}/{name}.yaml"), config_map(name, "2"));
    }
    let second = world.remote.commit("second");
    world.ask("c").await;
    world.ready_at("c", &second).await;
    assert_eq!((world.data("a"), world.data("b"), world.data("c")), ("2".into(), "2".into(), "2".into()));
    let counts = server.take_counts();
    assert_eq!((counts.requests, counts.packs), (2, 1), "{counts:?}");
}
