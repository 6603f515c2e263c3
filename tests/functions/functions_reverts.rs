//! Manual changes of children that cannot be reverted.

use devcluster::{Action, Call, verbs::patch::Form};
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{CONFIG_MAPS, DEPLOYMENTS, JOBS, Kind, SERVICES, inline},
    world::{NAMESPACE, World},
};

/// Changes a child while writes are refused. A condition reports it until writes succeed.
async fn held_up(world: &World, kind: Kind, patch: Value, condition: &str, beginning: &str) {
    let name = world.child_name("hello", kind);
    let before = world.said("hello", condition);
    world.fail_next("apply", kind.1, &name, 422, 10_000);
    world.edit(kind.0, kind.1, &name, patch);
    let expected = format!("False {beginning} {name} cannot be reverted: ");
    world.says("hello", condition, &expected).await;
    // Later messages do not differ.
    world.quiet().await;
    assert!(world.said("hello", condition).starts_with(&expected), "{}", world.said("hello", condition));
    world.levers().clear_faults();
    world.runs("hello").await;
    assert!(before.starts_with("True") && world.said("hello", condition).starts_with("True"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_cannot_be_reverted_is_reported_until_it_is() {
    let world = World::running(inline("1")).await;
    let source = json!({"data": {"source": "evil"}});
    held_up(&world, CONFIG_MAPS, source, "ConfigurationReady", "ApplyFailed: ConfigMap").await;
    assert_eq!(world.child("hello", CONFIG_MAPS)["data"]["source"], "1");
    let selector = json!({"spec": {"selector": {"serverless.kyma-project.io/function-name": "y"}}});
    held_up(&world, SERVICES, selector, "Running", "ServiceFailed: Service").await;
    let path = "/spec/selector/serverless.kyma-project.io~1function-name";
    assert_eq!(world.child("hello", SERVICES).pointer(path), Some(&json!("hello")));
    let replicas = json!({"spec": {"replicas": 5}});
    held_up(&world, DEPLOYMENTS, replicas, "Running", "ApplyFailed: Deployment").await;
    assert_eq!(world.child("hello", DEPLOYMENTS)["spec"]["replicas"], 1);
    assert_eq!(world.children("hello", JOBS).len(), 1, "nothing was built again");
}

/// Changes the pods of a Deployment.
fn edit_pods(world: &World, patch: &Value) -> Value {
    let name = world.child_name("hello", DEPLOYMENTS);
    let patch = json!({"spec": {"template": patch}});
    let call = Call::new("apps/v1", "deployments", NAMESPACE, &name, Action::Patch(Form::Strategic, patch));
    world.try_as("kubectl-edit", call).unwrap()["spec"]["template"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflicting_field_of_a_child_is_removed() {
    let mut spec = inline("1");
    spec["env"] = json!([{"name": "A", "value": "1"}]);
    let mut world = World::running(spec).await;
    let template = |w: &World| w.child("hello", DEPLOYMENTS)["spec"]["template"].clone();
    let restarted = json!({"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}});
    let before = edit_pods(&world, &restarted);
    let theirs = json!({"name": "A", "value": null, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
    let probe = json!({"httpGet": null, "tcpSocket": {"port": 8080}});
    let volume = json!({"name": "tmp-dir", "emptyDir": null, "hostPath": {"path": "/"}});
    let containers = |container: Value| json!({"spec": {"containers": [container]}});
    let edits = [
        containers(json!({"name": "function", "env": [theirs]})),
        containers(json!({"name": "function", "livenessProbe": probe})),
        json!({"spec": {"volumes": [volume]}}),
    ];
    for edit in &edits {
        assert_ne!(edit_pods(&world, edit), before);
        world.until_function(&format!("without {edit}"), |w| template(w) == before).await;
    }
    // All changes together, while no agent runs.
    world.runs("hello").await;
    world.stop().await;
    for edit in &edits {
        edit_pods(&world, edit);
    }
    world.start();
    world.until_function("the next agent reverts it", |w| template(w) == before).await;
    world.runs("hello").await;
    assert_eq!(world.children("hello", JOBS).len(), 1, "nothing was built again");
}
