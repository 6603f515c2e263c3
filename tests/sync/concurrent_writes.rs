//! Objects that another client creates between Mainstay's read and its write. Such objects are read again, then adopted
//! or left like any existing object.

use devcluster::{Action, Call, fault_injection::Fault};
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{SERVICES, inline},
    ownership::{LABEL, label_of},
    world::{NAMESPACE, World, config_map},
};

/// Delays the agent's next write of an object until another client has written first.
fn hold_up(world: &World, resource: &str, name: &str) {
    world.levers().fail_next(Fault {
        verb: "apply".into(),
        resource: resource.into(),
        name: name.into(),
        delay_millis: 1500,
        ..Fault::default()
    });
}

/// Waits until this many applies of a resource have started.
async fn until_applies(world: &World, resource: &str, applies: u64) {
    let what = format!("apply {resource}");
    let asked = |w: &World| w.requests().iter().any(|(asked, count)| *asked == what && *count >= applies);
    world.until(&format!("{applies} times: {what}"), asked).await;
}

fn theirs(name: &str, metadata: &Value) -> Value {
    let mut map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE},
        "data": {"theirs": "x"},
    });
    json_patch::merge(&mut map["metadata"], metadata);
    map
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_created_concurrently_is_adopted() {
    let mut world = World::new().await;
    let controller = world.create("v1", "configmaps", NAMESPACE, theirs("controller", &json!({})));
    let names = ["plain", "paused", "controlled"];
    for name in names {
        world.remote.file(&format!("{name}.yaml"), config_map(name, "1"));
    }
    world.gate.record();
    let held = names.map(|name| {
        let path = format!("/configmaps/{name}?");
        world.gate.hold(move |heard| heard.asked.starts_with("PATCH ") && heard.asked.contains(&path))
    });
    world.remote.commit("one");
    world.sync("demo", json!({}));
    world.start();
    for one in &held {
        one.reached().await;
    }
    let paused = json!({"annotations": {"mainstay.dev/reconcile": "disabled"}});
    let controlled = json!({"ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "controller", "uid": controller["metadata"]["uid"], "controller": true,
    }]});
    for (name, metadata) in [("plain", json!({})), ("paused", paused), ("controlled", controlled)] {
        let create = Action::Create(theirs(name, &metadata));
        world.try_as("kubectl-create", Call::new("v1", "configmaps", NAMESPACE, "", create)).unwrap();
    }
    let uid = world.uid("v1", "configmaps", "plain");
    drop(held);

    world.condition_is("demo", "Ready", "False OwnershipConflict").await;
    world.until("what nobody keeps from us is taken over", |w| w.data("plain") == "1").await;
    let data = |name: &str| world.get("v1", "configmaps", name).unwrap()["data"].clone();
    assert_eq!(data("plain"), json!({"key": "1"}), "with what kubectl left in it taken out");
    assert_eq!(
        (world.uid("v1", "configmaps", "plain"), label_of(&world, "plain")),
        (uid, "mainstay-tests.demo".into())
    );
    for name in ["paused", "controlled"] {
        assert_eq!((data(name), label_of(&world, name)), (json!({"theirs": "x"}), Value::Null), "{name}");
    }
    let said = world.failure("demo", "ConfigMap mainstay-tests/controlled");
    assert!(said.contains("a controller owns it"), "{said}");

    let resumed = json!({"metadata": {"annotations": {"mainstay.dev/reconcile": null}}});
    world.edit("v1", "configmaps", "paused", resumed);
    world.until("break glass is over", |w| w.data("paused") == "1").await;
    assert_eq!(data("controlled"), json!({"theirs": "x"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_a_function_creates_concurrently_stays_its_own() {
    let mut world = World::with_functions().await;
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: hello}\nspec:\n  ports: [{port: 9}]\n";
    world.remote.file("objects/service.yaml", service).commit("one");
    world.start();
    hold_up(&world, "services", "hello");
    world.function("hello", inline("1"));
    until_applies(&world, "services", 1).await;
    world.sync("demo", json!({"baseDir": "/objects"}));
    world.condition_is("demo", "Ready", "False OwnershipConflict").await;
    world.runs("hello").await;
    let service = world.child("hello", SERVICES);
    assert_eq!(
        (&service["spec"]["ports"][0]["port"], &service["metadata"]["labels"][LABEL]),
        (&json!(80), &Value::Null)
    );
    let said = world.failure("demo", "Service mainstay-tests/hello");
    assert!(said.contains("a controller owns it"), "{said}");
}
