//! Objects nested more deeply than the agent reads, which an API server accepts. Their owners have to fix them, and all
//! other objects stay visible.

use serde_json::json;

use mainstay_testkit::{
    functions::inline,
    world::{NAMESPACE, World},
};

const API: &str = "mainstay-tests.example.org/v1";

/// A placeholder for something deeper than parsers allow, which the embedded server would refuse.
const DEEP: &str = "two hundred levels";

/// Returns the number of watches and lists of a kind that the agent started.
fn begun(world: &World, resource: &str) -> u64 {
    let requests = world.requests().into_iter();
    let begun =
        requests.filter(|(asked, _)| *asked == format!("watch {resource}") || *asked == format!("list {resource}"));
    begun.map(|(_, count)| count).sum()
}

/// Waits for an Event about an unreadable object of this kind and name.
async fn told(world: &World, kind: &str, name: &str) {
    let is_told = |w: &World| {
        w.server.objects("v1", "events", Some(NAMESPACE)).iter().any(|event| {
            let about = &event["involvedObject"];
            let is_about = about["kind"] == kind && about["name"] == name;
            is_about
                && event["reason"] == "Unreadable"
                && event["type"] == "Warning"
                && !event.to_string().contains(DEEP)
        })
    };
    world.until(&format!("an Event tells of {kind} {name}"), is_told).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_cannot_be_read_keeps_no_other_from_being_run() {
    let mut world = World::with_functions().await;
    world.gate.deepen(DEEP);
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    world.levers().reset_counts();
    let mut spec = inline("1");
    spec["resources"] = json!({"limits": {"example.org/deep": DEEP}});
    world.function("deep", spec);
    world.function("second", inline("1"));
    world.runs("second").await;
    told(&world, "Function", "deep").await;
    assert!(begun(&world, "functions.serverless.kyma-project.io") <= 1, "{:?}", world.requests());
    // Deletions are noticed, too: a new object with the same name starts afresh.
    world.delete_function("second");
    world.until_function("it is gone", |w| w.function_now("second").is_none()).await;
    world.function("second", inline("2"));
    world.runs("second").await;
    // The next agent is not blocked, either. It lists all of these objects together.
    world.stop().await;
    world.start();
    world.edit_function("hello", json!({"spec": {"source": "2"}}));
    world.function("third", inline("1"));
    world.runs("third").await;
    world.delete_function("deep");
    world.until_function("it is gone", |w| w.function_now("deep").is_none()).await;
    world.function("deep", inline("1"));
    world.runs("deep").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_repository_or_receiver_is_reported_where_people_look() {
    let mut world = World::with_functions().await;
    world.gate.deepen(DEEP);
    world.start();
    let functions = "serverless.kyma-project.io/v1alpha1";
    world.git_function_of("deep", "hello", "/");
    world.sync("deep", json!({"gitRepository": "deep"}));
    world.condition_is("deep", "Ready", "False SourceNotFound: GitRepository deep does not exist").await;
    world.repository("deep", &format!("https://{DEEP}.example.org"));
    world.edit(functions, "gitrepositories", "deep", json!({"metadata": {"annotations": {"example.org/a": DEEP}}}));
    told(&world, "GitRepository", "deep").await;
    world.condition_is("deep", "Ready", "False SpecInvalid: GitRepository deep cannot be read").await;
    let said = |w: &World| w.said("hello", "ConfigurationReady");
    world.until_function("the Function says so", |w| said(w).contains("GitRepository \"deep\" cannot be read")).await;
    // The Secrets that such a repository names are unknown, too.
    let mut spec = inline("1");
    spec["env"] = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "shop", "key": "token"}}}]);
    world.function("reads", spec);
    let unknown =
        "False SourceUpdateFailed: it is unknown which Secrets in spec.env hold credentials: GitRepository deep";
    world.says("reads", "ConfigurationReady", unknown).await;
    // Once the repository is readable again, everything recovers.
    let readable = json!({"metadata": {"annotations": {"example.org/a": null}}, "spec": {"url": world.remote.path()}});
    world.edit(functions, "gitrepositories", "deep", readable);
    world.until("the GitSync reads it", |w| !w.condition("deep", "Ready").contains("cannot be read")).await;
    world.runs("reads").await;

    let api = "mainstay.dev/v1alpha1";
    let metadata = json!({"name": "hook", "annotations": {"example.org/a": DEEP}});
    let spec = json!({"type": "github", "secretRef": {"name": "shop"}});
    let hook = json!({"apiVersion": api, "kind": "Receiver", "metadata": metadata, "spec": spec});
    world.create(api, "receivers", NAMESPACE, hook);
    told(&world, "Receiver", "hook").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_object_keeps_no_other_of_its_kind_from_being_reverted() {
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
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
";
    let widget = format!("apiVersion: {API}\nkind: Widget\nmetadata: {{name: w}}\nspec: {{size: 3}}\n");
    let mut world = World::new().await;
    world.gate.deepen(DEEP);
    world.remote.file("crd.yaml", definition).file("w.yaml", widget).commit("one");
    world.synced(json!({})).await;
    let size = |w: &World| w.get(API, "widgets", "w").map(|widget| widget["spec"]["size"].clone());
    let labels = world.get(API, "widgets", "w").unwrap()["metadata"]["labels"].clone();
    let metadata = json!({"name": "deep", "namespace": NAMESPACE, "labels": labels});
    world.levers().reset_counts();
    world.create(
        API,
        "widgets",
        NAMESPACE,
        json!({"apiVersion": API, "kind": "Widget", "metadata": metadata, "spec": {"deep": DEEP}}),
    );
    world.edit(API, "widgets", "w", json!({"spec": {"size": 4}}));
    world.until("the edit is reverted", |w| size(w) == Some(json!(3))).await;
    assert_eq!(begun(&world, "widgets.mainstay-tests.example.org"), 0, "{:?}", world.requests());
    world.stop().await;
    world.start();
    world.ask("demo").await;
    world.edit(API, "widgets", "w", json!({"spec": {"size": 5}}));
    world.until("the next agent reverts it as well", |w| size(w) == Some(json!(3))).await;
    assert!(world.get(API, "widgets", "deep").is_some());
    // A managed object is reported to the owner of its GitSync and to its own owner.
    world.edit(API, "widgets", "w", json!({"spec": {"deep": DEEP}}));
    told(&world, "Widget", "w").await;
    told(&world, "GitSync", "demo").await;
}
