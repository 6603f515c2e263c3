//! The count of a Deployment that an autoscaler scales is the autoscaler's.

use devcluster::{
    Action, Call,
    verbs::{delete::DeleteOptions, patch::Form},
};
use serde_json::{Value, json};

use crate::support::world::{NAMESPACE, World, config_map, deployment};

fn autoscaler(target: &str) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"minReplicas": 1, "maxReplicas": 10,
                 "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}},
    })
}

fn replicas(world: &World) -> i64 {
    world.get("apps/v1", "deployments", "web").unwrap()["spec"]["replicas"].as_i64().unwrap()
}

fn scale(world: &World, count: i64) {
    let patch = Action::Patch(Form::Merge, json!({"spec": {"replicas": count}}));
    let call = Call::new("apps/v1", "deployments", NAMESPACE, "web", patch).on("scale");
    world.try_as("kube-controller-manager", call).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_autoscaled_count_is_not_drift_and_never_dips() {
    let mut world = World::new().await;
    world.remote.file("web.yaml", deployment("web", "nginx:1", 3)).commit("one");
    world.synced(json!({"wait": false})).await;
    let lowest = std::sync::Arc::new(std::sync::atomic::AtomicI64::new(i64::MAX));
    let watching = {
        let (lowest, mut changes) = (std::sync::Arc::clone(&lowest), world.server.changes("apps/v1", "deployments"));
        tokio::spawn(async move {
            loop {
                for object in changes.next().await {
                    if object["metadata"]["namespace"] != NAMESPACE {
                        continue;
                    }
                    let replicas = object["spec"]["replicas"].as_i64().unwrap();
                    lowest.fetch_min(replicas, std::sync::atomic::Ordering::Relaxed);
                }
            }
        })
    };
    world.create("autoscaling/v2", "horizontalpodautoscalers", NAMESPACE, autoscaler("web"));
    world
        .until("the count is no longer ours", |w| {
            let web = w.get("apps/v1", "deployments", "web").unwrap();
            let fields = web["metadata"]["managedFields"].as_array().unwrap().clone();
            fields.iter().all(|e| e["manager"] != "mainstay" || e["fieldsV1"]["f:spec"].get("f:replicas").is_none())
        })
        .await;
    scale(&world, 7);
    world.remote.file("web.yaml", deployment("web", "nginx:2", 3));
    world.commit("demo", "another image").await;
    assert_eq!(replicas(&world), 7);
    scale(&world, 6);
    world.edit(
        "apps/v1",
        "deployments",
        "web",
        json!({"spec": {"minReadySeconds": 0, "template": {"metadata": {"labels": {"app": "web"}}}}}),
    );
    world.remote.file("more.yaml", config_map("more", "1"));
    world.commit("demo", "something else").await;
    assert_eq!(replicas(&world), 6);
    assert_eq!(lowest.load(std::sync::atomic::Ordering::Relaxed), 3, "it never fell below what was there");
    watching.abort();
    let delete = Action::Delete(DeleteOptions::default());
    world.try_as("kubectl", Call::new("autoscaling/v2", "horizontalpodautoscalers", NAMESPACE, "web", delete)).unwrap();
    world.until("Git's count holds again", |w| replicas(w) == 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_autoscaler_in_the_same_commit_gets_the_count_without_a_dip() {
    let mut world = World::new().await;
    world.remote.file("web.yaml", deployment("web", "nginx:1", 3)).file("hpa.yaml", autoscaler("web").to_string());
    world.remote.commit("one");
    world.synced(json!({"wait": false})).await;
    world
        .until("the count is no longer ours", |w| {
            let web = w.get("apps/v1", "deployments", "web").unwrap();
            let fields = web["metadata"]["managedFields"].as_array().unwrap().clone();
            fields.iter().all(|e| e["manager"] != "mainstay" || e["fieldsV1"]["f:spec"].get("f:replicas").is_none())
        })
        .await;
    assert_eq!(replicas(&world), 3);
    scale(&world, 5);
    world.kill().await;
    scale(&world, 6);
    world.start();
    world.remote.file("web.yaml", deployment("web", "nginx:2", 3));
    world.commit("demo", "another image").await;
    assert_eq!(replicas(&world), 6, "nor does a new agent touch it");
}
