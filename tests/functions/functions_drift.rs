//! Manual changes of the children of Functions.

use mainstay_engine::notification::Message;
use serde_json::{Value, json};

use mainstay_testkit::{
    external::External,
    functions::{AUTOSCALERS, CONFIG_MAPS, DEPLOYMENTS, JOBS, Kind, SERVICES, inline, scaled},
    world::World,
};

/// Returns object, fields and author of the next revert.
async fn reverted(world: &mut World) -> (String, String, Vec<String>, String) {
    loop {
        let message = tokio::time::timeout(mainstay_testkit::PATIENCE, world.messages.recv());
        let message = message.await.expect("a revert is told within 30 s").unwrap();
        if let Message::Reverted { subject, object, fields, who, .. } = message {
            return (subject.to_string(), object, fields, who);
        }
    }
}

async fn check(world: &mut World, kind: Kind, patch: Value, field: &str, path: &str) {
    let name = world.child_name("hello", kind);
    let before = world.child("hello", kind).pointer(path).cloned();
    world.edit(kind.0, kind.1, &name, patch);
    let (owner, object, fields, who) = reverted(world).await;
    assert_eq!((owner.as_str(), who.as_str()), ("function mainstay-tests/hello", "kubectl-edit"));
    assert!(object.contains(&name) && fields.iter().any(|f| f == field), "{object} {fields:?}");
    world
        .until_function("it is reverted", |w| {
            w.children("hello", kind).len() == 1 && w.child("hello", kind).pointer(path) == before.as_ref()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_child_that_is_changed_by_hand_is_reverted_at_once() {
    let mut world = World::running(scaled("1")).await;
    let w = &mut world;
    check(w, CONFIG_MAPS, json!({"data": {"source": "evil"}}), "data.source", "/data/source").await;
    let patch = json!({"spec": {"template": {"spec": {"securityContext": {"fsGroup": 5}}}}});
    let path = "/spec/template/spec/securityContext/fsGroup";
    check(w, DEPLOYMENTS, patch, "spec.template.spec.securityContext.fsGroup", path).await;
    check(
        w,
        SERVICES,
        json!({"spec": {"selector": {"app": "x", "serverless.kyma-project.io/function-name": "y"}}}),
        "spec.selector",
        "/spec/selector/serverless.kyma-project.io~1function-name",
    )
    .await;
    check(w, AUTOSCALERS, json!({"spec": {"maxReplicas": 50}}), "spec.maxReplicas", "/spec/maxReplicas").await;
    // Removes the label that identifies the child.
    let label = "serverless.kyma-project.io/managed-by";
    let name = w.child_name("hello", CONFIG_MAPS);
    w.edit("v1", "configmaps", &name, json!({"metadata": {"labels": {label: null}}}));
    let (_, object, ..) = reverted(w).await;
    assert!(object.contains(&name), "{object}");
    w.until_function("labelled again", |w| {
        w.child("hello", CONFIG_MAPS)["metadata"]["labels"][label] == "function-controller"
    })
    .await;
    assert_eq!(w.children("hello", JOBS).len(), 1, "nothing was built again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_agent_applies_only_changed_children() {
    let mut world = World::with_functions().await;
    world.start();
    for (name, spec) in [("scaled", scaled("1")), ("fixed", inline("1"))] {
        world.function(name, spec);
        world.runs(name).await;
    }
    world.stop().await;
    let name = world.child_name("fixed", CONFIG_MAPS);
    world.edit("v1", "configmaps", &name, json!({"data": {"source": "evil"}}));
    world.edit("v1", "services", "scaled", json!({"metadata": {"labels": {"theirs": "1"}}}));
    world.levers().reset_counts();
    world.start();
    world.until_function("it is reverted", |w| w.child("fixed", CONFIG_MAPS)["data"]["source"] != "evil").await;
    // The autoscaler is the last stage.
    world.edit_function("scaled", json!({"spec": {"maxReplicas": 4}}));
    world.until_function("it is scaled", |w| w.child("scaled", AUTOSCALERS)["spec"]["maxReplicas"] == 4).await;
    world.edit_function("fixed", json!({"spec": {"labels": {"new": "1"}}}));
    world
        .until_function("it has the label", |w| {
            w.child("fixed", DEPLOYMENTS)["spec"]["template"]["metadata"]["labels"]["new"] == "1"
        })
        .await;
    let applied = |world: &World| {
        let requests = world.requests().into_iter();
        requests.filter(|(asked, _)| asked.starts_with("apply")).collect::<Vec<_>>()
    };
    // Controllers of a real cluster write the same objects, so an apply may be repeated there.
    let repeated = if External::is_named() { 2 } else { 1 };
    let applied = applied(&world);
    assert!(applied.iter().all(|(_, count)| (1..=repeated).contains(count)), "{applied:?}");
    let applied: Vec<&str> = applied.iter().map(|(asked, _)| asked.as_str()).collect();
    let expected = ["apply configmaps", "apply deployments.apps", "apply horizontalpodautoscalers.autoscaling"];
    assert_eq!(applied, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_child_that_is_deleted_comes_back_and_nothing_is_built_again() {
    let mut world = World::running(scaled("1")).await;
    for kind in [CONFIG_MAPS, DEPLOYMENTS, SERVICES, AUTOSCALERS] {
        let name = world.child_name("hello", kind);
        let uid = world.uid(kind.0, kind.1, &name);
        world.delete(kind.0, kind.1, &name);
        let (owner, object, fields, _) = reverted(&mut world).await;
        assert_eq!(
            (owner.as_str(), fields.as_slice()),
            ("function mainstay-tests/hello", &["(object)".to_owned()][..]),
            "{object}"
        );
        world
            .until_function("it is back", |w| {
                w.get(kind.0, kind.1, &name).is_some_and(|o| o["metadata"]["uid"] != *uid)
            })
            .await;
        world.runs("hello").await;
    }
    let job = world.child_name("hello", JOBS);
    world.delete("batch/v1", "jobs", &job);
    world.edit_function("hello", json!({"spec": {"env": [{"name": "A", "value": "1"}]}}));
    world.runs("hello").await;
    assert_eq!(world.children("hello", JOBS).len(), 0, "a finished Job that is deleted does not build again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_build_that_is_deleted_begins_again() {
    let mut world = World::with_functions().await;
    world.builds_wait();
    world.start();
    world.function("hello", inline("1"));
    world.says("hello", "BuildReady", "Unknown JobRunning").await;
    let job = world.child_name("hello", JOBS);
    let uid = world.uid("batch/v1", "jobs", &job);
    world.delete("batch/v1", "jobs", &job);
    world
        .until_function("it is back", |w| w.get("batch/v1", "jobs", &job).is_some_and(|o| o["metadata"]["uid"] != *uid))
        .await;
    world.builds_succeed();
    world.runs("hello").await;
    assert_eq!(world.children("hello", JOBS).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_and_annotations_of_others_stay() {
    let world = World::running(inline("1")).await;
    let name = world.child_name("hello", DEPLOYMENTS);
    let theirs = json!({"metadata": {"labels": {"argocd": "x"}}, "spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}});
    world.edit("apps/v1", "deployments", &name, theirs);
    world.edit_function("hello", json!({"spec": {"env": [{"name": "A", "value": "1"}]}}));
    world
        .until_function("the variable is there", |w| {
            w.child("hello", DEPLOYMENTS).to_string().contains(r#""name":"A""#)
        })
        .await;
    let deployment = world.child("hello", DEPLOYMENTS);
    assert_eq!(deployment["metadata"]["labels"]["argocd"], "x");
    assert_eq!(deployment["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"], "now");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_of_children_while_no_agent_runs_is_reverted_by_the_next_one() {
    let mut world = World::running(inline("1")).await;
    let (config_map, service) = (world.child_name("hello", CONFIG_MAPS), world.child_name("hello", SERVICES));
    world.kill().await;
    world.edit("v1", "configmaps", &config_map, json!({"data": {"source": "evil"}}));
    world.delete("v1", "services", &service);
    world.start();
    world
        .until_function("both are reverted", |w| {
            w.children("hello", CONFIG_MAPS).iter().all(|map| map["data"]["source"] == "1")
                && w.children("hello", SERVICES).len() == 1
        })
        .await;
    assert_eq!(world.children("hello", JOBS).len(), 1, "nothing was built again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_under_break_glass_is_left_alone_by_the_next_agent_too() {
    let mut world = World::running(inline("1")).await;
    let config_map = world.child_name("hello", CONFIG_MAPS);
    let source = |w: &World| w.child("hello", CONFIG_MAPS)["data"]["source"].clone();
    let glass = |state: Value| json!({"metadata": {"annotations": {"mainstay.dev/reconcile": state}}});
    world.kill().await;
    world.edit("v1", "configmaps", &config_map, glass(json!("disabled")));
    world.edit("v1", "configmaps", &config_map, json!({"data": {"source": "tried by hand"}}));
    world.start();
    // The revert of a child that is not paused shows that the agent has checked all.
    let service = world.child_name("hello", SERVICES);
    world.delete("v1", "services", &service);
    world.until_function("the Service is back", |w| w.children("hello", SERVICES).len() == 1).await;
    world.quiet().await;
    assert_eq!(source(&world), "tried by hand");
    world.edit("v1", "configmaps", &config_map, glass(Value::Null));
    world.until_function("break glass is over", |w| source(w) == "1").await;
}
