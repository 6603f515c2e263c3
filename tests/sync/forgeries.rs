//! Forged data in the cluster that should mislead the agent: false inventories and labels, and servers that demand too
//! much. The agent deletes and holds no object because of it.

use mainstay_engine::managed::inventory::{Entry, Inventory, uid_bytes};
use mainstay_object::Key;
use serde_json::{Value, json};

use mainstay_testkit::{
    git_server::{Fault, GitServer, On},
    remote::NAME,
    world::{NAMESPACE, World, config_map},
};

/// Writes an inventory that lists ConfigMap `bystander` of the test's namespace.
fn forge(world: &World, namespace: &str, label: &str, owner_uid: Option<&str>, listed_uid: Option<&str>) {
    let entry = Entry { version: "v1".into(), uid: listed_uid.map(uid_bytes), ..Entry::default() };
    let key = Key::new("", "ConfigMap", Some(NAMESPACE), "bystander");
    let shards = Inventory([(key, entry)].into()).encode();
    let owners = owner_uid
        .map(|uid| json!([{"apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "name": "demo", "uid": uid}]));
    let content = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, &shards[0].content);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "mainstay-inventory-demo-0", "namespace": namespace, "ownerReferences": owners,
            "labels": {"mainstay.dev/inventory": label},
        },
        "binaryData": {"inventory": content},
    });
    world.create("v1", "configmaps", namespace, map);
}

/// Creates a ConfigMap of another user with the label of a GitSync.
fn bystander(world: &World, label: &str) -> String {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "theirs"},
        "metadata": {"name": "bystander", "namespace": NAMESPACE, "labels": {"mainstay.dev/sync": label}},
    });
    let created = world.create("v1", "configmaps", NAMESPACE, map);
    created["metadata"]["uid"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inventory_of_an_earlier_git_sync_of_that_name_deletes_nothing() {
    let mut world = World::new().await;
    let uid = bystander(&world, "mainstay-tests.demo");
    forge(&world, NAMESPACE, "mainstay-tests.demo", None, Some(&uid));
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    assert_eq!(world.data("bystander"), "theirs");
    assert_eq!(world.status("demo")["objects"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_without_uid_deletes_nothing_that_we_never_applied() {
    let mut world = World::new().await;
    bystander(&world, "mainstay-tests.demo");
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.sync("demo", json!({}));
    let owner = world.uid("mainstay.dev/v1alpha1", "gitsyncs", "demo");
    forge(&world, NAMESPACE, "mainstay-tests.demo", Some(&owner), None);
    world.start();
    world.ready("demo").await;
    assert_eq!(world.data("bystander"), "theirs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inventory_reaches_no_further_than_its_git_sync() {
    let mut world = World::new().await;
    let object = |kind: &str, spec: Value| {
        let version = if kind == "GitSync" { "mainstay.dev/v1alpha1" } else { "serverless.kyma-project.io/v1alpha1" };
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": "demo", "namespace": "mainstay-tests-team"}, "spec": spec})
    };
    world.create(
        "v1",
        "namespaces",
        "",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mainstay-tests-team"}}),
    );
    let url = world.remote.path().display().to_string();
    let repository = object("GitRepository", json!({"url": url}));
    world.create("serverless.kyma-project.io/v1alpha1", "gitrepositories", "mainstay-tests-team", repository);
    let sync = object("GitSync", json!({"gitRepository": "demo", "baseDir": "/team"}));
    let sync = world.create("mainstay.dev/v1alpha1", "gitsyncs", "mainstay-tests-team", sync);
    let uid = bystander(&world, "mainstay-tests-team.demo");
    forge(&world, "mainstay-tests-team", "mainstay-tests-team.demo", sync["metadata"]["uid"].as_str(), Some(&uid));
    world.remote.file("team/a.yaml", config_map("a", "1")).file("own/b.yaml", config_map("bystander", "ours"));
    world.remote.commit("one");
    world.start();
    let done = |w: &World| {
        let sync = w.server.object("mainstay.dev/v1alpha1", "gitsyncs", "mainstay-tests-team", "demo").unwrap();
        sync["status"]["held"].to_string().contains("bystander")
    };
    world.until("it is said that the object is left alone", done).await;
    assert_eq!(world.data("bystander"), "theirs", "what is out of reach is not deleted");
    world.sync("owner", json!({"baseDir": "/own"}));
    world.ready("owner").await;
    assert_eq!(world.data("bystander"), "ours", "nor does an inventory keep others from what is out of its reach");
    let action = devcluster::Action::Delete(devcluster::verbs::delete::DeleteOptions::default());
    let call = devcluster::Call::new("mainstay.dev/v1alpha1", "gitsyncs", "mainstay-tests-team", "demo", action);
    world.try_as("kubectl", call).unwrap();
    let gone =
        |w: &World| w.server.object("mainstay.dev/v1alpha1", "gitsyncs", "mainstay-tests-team", "demo").is_none();
    world.until("the GitSync is gone", gone).await;
    assert_eq!(world.data("bystander"), "ours");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_retry_after_of_a_git_server_delays_nothing_else() {
    let mut world = World::new().await;
    let server = GitServer::start(world.remote.root()).await;
    server.fail(On::Everything, Fault::RetryAfter(u64::MAX));
    world.repository("web", &server.url(NAME));
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.sync("patient", json!({"gitRepository": "web"}));
    world.start();
    world.condition_is("patient", "Ready", "False SourceUnavailable").await;
    world.sync("demo", json!({}));
    world.ready("demo").await;
    world.stop().await;
}
