//! Objects of other owners with the labels or the name of a Function's child.

use std::time::Duration;

use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{DEPLOYMENTS, JOBS, SERVICES, inline, scaled},
    world::{NAMESPACE, World},
};

/// Creates a copy of a Function's Deployment, like `kubectl get -o yaml | sed | kubectl apply`.
fn copy(world: &World, name: &str, is_owned: bool) -> Value {
    let mut copy = (*world.child("hello", DEPLOYMENTS)).clone();
    copy.as_object_mut().unwrap().remove("status");
    let metadata = copy["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        metadata.remove(field);
    }
    metadata.insert("name".to_owned(), json!(name));
    if !is_owned {
        metadata.remove("ownerReferences");
    }
    world.create(DEPLOYMENTS.0, DEPLOYMENTS.1, NAMESPACE, copy)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_the_deployment_is_deleted_and_the_original_stays() {
    let world = World::running(scaled("1")).await;
    let name = world.child_name("hello", DEPLOYMENTS);
    let number = json!({"spec": {"replicas": 3}});
    world.edit(DEPLOYMENTS.0, DEPLOYMENTS.1, &name, number);
    let ready = |w: &World| w.get(DEPLOYMENTS.0, DEPLOYMENTS.1, &name).unwrap()["status"]["readyReplicas"] == 3;
    world.until_function("three pods", ready).await;
    world.runs("hello").await;
    world.quiet().await;
    let before = world.child("hello", DEPLOYMENTS);
    let mut events = world.server.embedded().subscribe();
    // Names before and after the original in alphabetical order.
    for copied in ["a-copy", "zz-copy"] {
        copy(&world, copied, true);
        world.until_function("the copy is gone", |w| w.get(DEPLOYMENTS.0, DEPLOYMENTS.1, copied).is_none()).await;
    }
    world.quiet().await;
    loop {
        let batch = events.take();
        assert!(!batch.missed);
        if batch.events.is_empty() {
            break;
        }
        let of_deployments = batch.events.iter().filter(|event| &*event.storage == "deployments.apps");
        for event in of_deployments {
            let known = event.old.as_ref().map(|old| old.value());
            if known.is_some_and(|known| known["metadata"]["name"] == *name) {
                let now = event.new.as_ref().expect("the one that serves is never gone").value();
                assert_eq!((&now["spec"]["replicas"], &now["status"]["readyReplicas"]), (&json!(3), &json!(3)));
            }
        }
    }
    let after = world.child("hello", DEPLOYMENTS);
    let kept = |object: &Value| (object["metadata"]["uid"].clone(), object["metadata"]["generation"].clone());
    assert_eq!(kept(&after), kept(&before));
    assert!(world.is_running("hello"));

    // A copy with only the labels belongs to its own owner.
    let theirs = copy(&world, "theirs", false);
    world.edit_function("hello", json!({"spec": {"env": [{"name": "A", "value": "1"}]}}));
    let changed = |w: &World| w.get(DEPLOYMENTS.0, DEPLOYMENTS.1, &name).unwrap().to_string().contains(r#""name":"A""#);
    world.until_function("ours is changed", changed).await;
    world.runs("hello").await;
    world.quiet().await;
    let left = world.get(DEPLOYMENTS.0, DEPLOYMENTS.1, "theirs").unwrap();
    assert_eq!((&left["metadata"]["uid"], &left["spec"]), (&theirs["metadata"]["uid"], &theirs["spec"]));
    assert_eq!(world.children("hello", JOBS).len(), 1, "nothing was built again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_runs_as_soon_as_the_conflicting_object_is_deleted() {
    let mut world = World::with_functions().await;
    world.functions.requeue = Duration::from_secs(3600);
    let theirs = || {
        let metadata = json!({"name": "hello", "namespace": NAMESPACE});
        let spec = json!({"selector": {"app": "theirs"}, "ports": [{"port": 80}]});
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    };
    world.create(SERVICES.0, SERVICES.1, NAMESPACE, theirs());
    world.start();
    world.function("hello", inline("1"));
    let refused = "False ServiceFailed: Service mainstay-tests/hello exists already and belongs to";
    world.says("hello", "Running", refused).await;
    world.until_function("its Deployment is ready", |w| w.function_status("hello")["image"].is_string()).await;
    // A change of the other object causes no message until it is deleted.
    world.quiet().await;
    let before = world.function_now("hello").unwrap()["metadata"]["resourceVersion"].clone();
    world.edit(SERVICES.0, SERVICES.1, "hello", json!({"metadata": {"labels": {"app": "theirs"}}}));
    world.quiet().await;
    assert_eq!(world.function_now("hello").unwrap()["metadata"]["resourceVersion"], before);
    world.delete(SERVICES.0, SERVICES.1, "hello");
    world.runs("hello").await;
    let ours = world.child("hello", SERVICES);
    assert_eq!(ours["spec"]["selector"]["serverless.kyma-project.io/function-name"], "hello");
    // The same holds for a new agent.
    world.stop().await;
    world.delete(SERVICES.0, SERVICES.1, "hello");
    world.create(SERVICES.0, SERVICES.1, NAMESPACE, theirs());
    world.start();
    world.says("hello", "Running", refused).await;
    world.delete(SERVICES.0, SERVICES.1, "hello");
    world.runs("hello").await;
    assert_eq!(world.children("hello", JOBS).len(), 1, "nothing was built again");
}
