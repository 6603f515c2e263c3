//! API servers without streaming lists, and kinds that cannot be watched.

use devcluster::fault_injection::Fault;
use serde_json::json;

use mainstay_testkit::world::{World, config_map};

/// Adds the ConfigMap `a`.
fn with_a(world: &mut World) {
    world.remote.file("a.yaml", config_map("a", "1"));
    world.remote.commit("one");
}

fn fault(verb: &str, resource: &str, code: u16) -> Fault {
    Fault { verb: verb.into(), resource: resource.into(), code, times: 10_000, ..Fault::default() }
}

/// The agent applies and reverts, although streaming lists fail like this.
async fn works_without_streaming_lists(how: Fault) {
    let mut world = World::new().await;
    with_a(&mut world);
    world.levers().fail_next(Fault { query: "sendInitialEvents=true".into(), ..how });
    world.synced(json!({})).await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("the edit is reverted", |w| w.data("a") == "1").await;
    world.delete("v1", "configmaps", "a");
    world.until("what was deleted is back", |w| w.data("a") == "1").await;
    world.remote.file("a.yaml", config_map("a", "2"));
    world.commit("demo", "two").await;
    assert_eq!(world.data("a"), "2");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_works_where_streaming_lists_are_refused() {
    for code in [500, 422, 400, 403] {
        works_without_streaming_lists(fault("watch", "", code)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_works_where_a_streaming_list_hangs() {
    works_without_streaming_lists(Fault { delay_millis: 600_000, ..fault("watch", "configmaps", 0) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_cannot_be_watched_is_reported_by_the_git_syncs_with_such_objects() {
    let mut world = World::new().await;
    world.remote.file("maps/a.yaml", config_map("a", "1"));
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n";
    world.remote.file("other/service.yaml", service);
    world.remote.commit("one");
    world.levers().fail_next(fault("watch", "configmaps", 500));
    world.sync("other", json!({"baseDir": "/other"}));
    world.sync("demo", json!({"baseDir": "/maps"}));
    world.start();
    world.condition_is("demo", "Ready", "False WatchFailed: applied commit ").await;
    let said = world.condition("demo", "Ready");
    assert!(said.contains("configmaps cannot be watched") && said.contains("500"), "{said}");
    world.ready("other").await;
    world.levers().clear_faults();
    world.ready("demo").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("the edit is reverted", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_git_repositories_are_not_reported_as_missing() {
    let mut world = World::new().await;
    with_a(&mut world);
    for verb in ["watch", "list"] {
        world.levers().fail_next(fault(verb, "gitrepositories", 403));
    }
    world.sync("demo", json!({}));
    world.start();
    let said = "False ClusterUnavailable: GitRepository repo cannot be read: could not list gitrepositories";
    world.condition_is("demo", "Ready", said).await;
    world.levers().clear_faults();
    world.ready("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_whose_storage_is_initialising_is_retried() {
    let definition = r"apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.mainstay-tests.example.org}
spec:
  group: mainstay-tests.example.org
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
";
    let api = "mainstay-tests.example.org/v1";
    let widget = format!("apiVersion: {api}\nkind: Widget\nmetadata: {{name: w}}\nspec: {{size: 3}}\n");
    let mut world = World::new().await;
    world.remote.file("crd.yaml", definition).file("w.yaml", widget).commit("one");
    for verb in ["get", "list", "watch", "apply"] {
        world.levers().fail_next(Fault {
            times: 2,
            message: "storage is (re)initializing".into(),
            retry_after: Some(1),
            ..fault(verb, "widgets.mainstay-tests.example.org", 429)
        });
    }
    world.synced(json!({})).await;
    let size = |w: &World| w.get(api, "widgets", "w").map(|widget| widget["spec"]["size"].clone());
    assert_eq!(size(&world), Some(json!(3)));
    world.edit(api, "widgets", "w", json!({"spec": {"size": 4}}));
    world.until("the edit is reverted", |w| size(w) == Some(json!(3))).await;
    let applies = world.requests().into_iter().find(|(asked, _)| asked.starts_with("apply widgets."));
    assert!(applies.is_some_and(|(_, count)| count > 2), "it was refused at first");
    world.stop().await;
}
