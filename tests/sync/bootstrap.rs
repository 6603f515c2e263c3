//! The objects that `mainstay install` makes the agent create, when some are refused at first.

use serde_json::{Value, json};

use mainstay_testkit::world::{NAMESPACE, World};

const SERVERLESS: &str = "serverless.kyma-project.io/v1alpha1";
const MAINSTAY: &str = "mainstay.dev/v1alpha1";
const OBJECTS: &str = "
apiVersion: serverless.kyma-project.io/v1alpha1
kind: GitRepository
metadata: {name: shop}
spec: {url: 'https://git.example.com/shop.git'}
---
apiVersion: mainstay.dev/v1alpha1
kind: GitSync
metadata: {name: refused}
spec: {gitRepository: shop, suspend: true}
---
apiVersion: mainstay.dev/v1alpha1
kind: GitSync
metadata: {name: last}
spec: {gitRepository: shop, suspend: true}
";

fn annotation(world: &World, name: &str) -> Value {
    world.get("v1", "configmaps", "mainstay-bootstrap").unwrap()["metadata"]["annotations"][name].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn created_objects_are_not_created_again_while_others_are_refused() {
    let mut world = World::new().await;
    world.fail_next("apply", "gitsyncs", "refused", 403, 1000);
    let metadata = json!({"name": "mainstay-bootstrap", "namespace": NAMESPACE});
    let data = json!({"objects.yaml": OBJECTS});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    world.create("v1", "configmaps", NAMESPACE, map);
    world.start();
    // A refused object does not delay the others.
    world.until("the last one is there", |w| w.get(MAINSTAY, "gitsyncs", "last").is_some()).await;
    world.until("that is recorded", |w| annotation(w, "mainstay.dev/bootstrapping").is_string()).await;
    world.delete(SERVERLESS, "gitrepositories", "shop");
    world.kill().await;
    world.delete(MAINSTAY, "gitsyncs", "last");
    world.start();
    world
        .until("it was tried again", |w| {
            w.levers().counts().iter().filter(|c| c.verb == "apply").map(|c| c.count).sum::<u64>() >= 4
        })
        .await;
    world.levers().clear_faults();
    world.until("the one that was refused is there", |w| w.get(MAINSTAY, "gitsyncs", "refused").is_some()).await;
    world.until("all is done", |w| annotation(w, "mainstay.dev/bootstrapped").is_string()).await;
    assert!(world.get(SERVERLESS, "gitrepositories", "shop").is_none(), "it stays deleted");
    assert!(world.get(MAINSTAY, "gitsyncs", "last").is_none(), "it stays deleted, for another agent, too");
    assert_eq!(annotation(&world, "mainstay.dev/bootstrapping"), Value::Null);
}
