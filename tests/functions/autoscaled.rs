//! An autoscaler owns the replicas of the Deployment that it scales.

use devcluster::{
    Action, Call,
    verbs::{delete::DeleteOptions, patch::Form},
};
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};

use mainstay_testkit::{
    external::External,
    functions,
    server::Changes,
    world::{NAMESPACE, World, config_map, deployment},
};

const FUNCTIONS: (&str, &str) = ("serverless.kyma-project.io/v1alpha1", "functions");

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

/// Returns the replica counts of the Deployment until it has `last`.
async fn counts_until(changes: &mut Changes, last: i64) -> Vec<i64> {
    let mut counts = Vec::new();
    while counts.last() != Some(&last) {
        for object in changes.next().await {
            if object["metadata"]["namespace"] == NAMESPACE {
                counts.extend(object["spec"]["replicas"].as_i64());
            }
        }
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_that_leaves_the_manifest_stays_for_the_autoscaler_of_the_same_commit() {
    let mut world = World::new().await;
    world.remote.file("web.yaml", deployment("web", "nginx:1", 4)).commit("one");
    world.synced(json!({"wait": false})).await;
    let mut changes = world.server.changes("apps/v1", "deployments");
    let mut hpa = autoscaler("web");
    hpa["spec"]["minReplicas"] = 3.into();
    let without = deployment("web", "nginx:2", 4).replace("  replicas: 4\n", "");
    world.remote.file("web.yaml", without).file("hpa.yaml", hpa.to_string());
    world.commit("demo", "the count is the autoscaler's").await;
    assert_eq!(replicas(&world), 4);
    // Another commit with the known autoscaler. Then the autoscaler scales.
    world.remote.file("web.yaml", deployment("web", "nginx:3", 4).replace("  replicas: 4\n", ""));
    world.commit("demo", "another image").await;
    scale(&world, 5);
    let counts = counts_until(&mut changes, 5).await;
    assert!(counts.iter().all(|count| [4, 5].contains(count)), "{counts:?}");
    // Without an autoscaler, the count of the branch applies again.
    world.remote.remove("hpa.yaml").file("web.yaml", deployment("web", "nginx:3", 2));
    world.commit("demo", "no autoscaler").await;
    world.until("Git's count holds", |w| replicas(w) == 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_of_a_function_stays_for_the_autoscaler_of_the_same_commit() {
    let mut world = World::new().await;
    let function = |spec: &Value| {
        let metadata = json!({"name": "web", "namespace": NAMESPACE});
        json!({"apiVersion": FUNCTIONS.0, "kind": "Function", "metadata": metadata, "spec": spec}).to_string()
    };
    let mut spec = functions::scaled("1");
    spec["replicas"] = json!(4);
    world.remote.file("web.json", function(&spec)).commit("one");
    world.synced(json!({"wait": false})).await;
    let mut hpa = autoscaler("web");
    hpa["spec"]["scaleTargetRef"] = json!({"apiVersion": FUNCTIONS.0, "kind": "Function", "name": "web"});
    world.remote.file("web.json", function(&functions::scaled("2"))).file("hpa.json", hpa.to_string());
    world.commit("demo", "the count is the autoscaler's").await;
    // Without a count a Function scales by itself, so the server sets none.
    assert_eq!(world.get(FUNCTIONS.0, FUNCTIONS.1, "web").unwrap()["spec"]["replicas"], 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_that_leaves_the_manifest_stays_for_an_autoscaler_that_comes_later() {
    type Brings = fn(&mut World, String) -> LocalBoxFuture<'_, ()>;
    let brings: [(&str, Brings); 3] = [
        ("a person", |world, hpa| {
            let hpa = serde_json::from_str(&hpa).unwrap();
            world.create("autoscaling/v2", "horizontalpodautoscalers", NAMESPACE, hpa);
            Box::pin(async {})
        }),
        ("another GitSync", |world, hpa| {
            world.remote.file("others/hpa.yaml", hpa).commit("an autoscaler");
            world.sync("other", json!({"baseDir": "others"}));
            Box::pin(world.ready("other"))
        }),
        ("a later commit", |world, hpa| {
            world.remote.file("app/hpa.yaml", hpa);
            Box::pin(world.commit("demo", "an autoscaler"))
        }),
    ];
    for (whose, brings) in brings {
        let mut world = World::new().await;
        world.remote.file("app/web.yaml", deployment("web", "nginx:1", 4)).commit("one");
        world.synced(json!({"baseDir": "app", "wait": false})).await;
        let mut changes = world.server.changes("apps/v1", "deployments");
        world.remote.file("app/web.yaml", deployment("web", "nginx:2", 4).replace("  replicas: 4\n", ""));
        if whose == "a person" {
            // A new agent does not know what the previous agent applied.
            world.kill().await;
            world.remote.commit("the count leaves");
            world.start();
            world.ready("demo").await;
        } else {
            world.commit("demo", "the count leaves").await;
        }
        let mut hpa = autoscaler("web");
        hpa["spec"]["minReplicas"] = 3.into();
        brings(&mut world, hpa.to_string()).await;
        world
            .until("the autoscaler is there", |w| w.get("autoscaling/v2", "horizontalpodautoscalers", "web").is_some())
            .await;
        scale(&world, 5);
        let counts = counts_until(&mut changes, 5).await;
        assert!(counts.iter().all(|count| [4, 5].contains(count)), "{whose}: {counts:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_of_zero_that_leaves_the_manifest_becomes_the_default_of_the_server() {
    let mut world = World::new().await;
    world.remote.file("web.yaml", deployment("web", "nginx:1", 0)).commit("one");
    world.synced(json!({"wait": false})).await;
    assert_eq!(replicas(&world), 0);
    world.remote.file("web.yaml", deployment("web", "nginx:1", 0).replace("  replicas: 0\n", ""));
    world.commit("demo", "the count leaves").await;
    assert_eq!(replicas(&world), 1);
}

/// Scales the Deployment like `kubectl scale`.
fn scale_by_hand(world: &World, count: i64) {
    let patch = Action::Patch(Form::Merge, json!({"spec": {"replicas": count}}));
    let call = Call::new("apps/v1", "deployments", NAMESPACE, "web", patch).on("scale");
    world.try_as("kubectl", call).unwrap();
}

/// Waits until all earlier events of Deployments are handled.
async fn fence(world: &World) {
    let spec = |w: &World| w.get("apps/v1", "deployments", "fence").unwrap()["spec"].clone();
    let before = spec(world);
    for seconds in [7, 8] {
        let edit = json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": format!("other:{seconds}")}]}}}});
        let of = ("apps/v1", "deployments", "fence");
        mainstay_testkit::drift::patch_as(world, "kubectl-edit", of, Form::Strategic, edit);
        world.until("the fence is reverted", |w| spec(w) == before).await;
    }
}

/// Returns a world with a Deployment whose replicas belong to an autoscaler.
async fn scaled(document: String, autoscaler: Value, spec: Value) -> World {
    let mut world = World::new().await;
    world.remote.file("web.yaml", document).file("hpa.yaml", autoscaler.to_string());
    world.remote.commit("one");
    world.synced(spec).await;
    world
}

fn without_count(document: String) -> String {
    document.replace("  replicas: 3\n", "")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_scaled_to_zero_by_hand_returns_to_its_autoscaler() {
    let mut least = autoscaler("web");
    least["spec"]["minReplicas"] = json!(2);
    for (document, autoscaler, back) in [
        (deployment("web", "nginx:1", 3), autoscaler("web"), 3),
        (without_count(deployment("web", "nginx:1", 3)), least, 2),
    ] {
        let mut world = scaled(document, autoscaler, json!({})).await;
        // The controller of a real cluster raises the count to the minimum, and must not do so between the next writes.
        if External::is_named() {
            world.until("its autoscaler has acted", |w| replicas(w) == back).await;
        }
        scale(&world, 5);
        scale_by_hand(&world, 0);
        let told = mainstay_testkit::drift::revert_of(&mut world, "web").await;
        // A Scale with 0 replicas omits the number, so it has no owner.
        assert_eq!(told, ("unknown".to_owned(), vec!["spec.replicas".to_owned()]));
        assert_eq!(replicas(&world), back);
        world.condition_is("demo", "Ready", "True").await;
        // The autoscaler owns the replicas again.
        scale(&world, 7);
        world.remote.file("more.yaml", config_map("more", "1"));
        world.commit("demo", "something else").await;
        assert_eq!(replicas(&world), 7);
        // A change while no agent runs.
        world.kill().await;
        scale_by_hand(&world, 0);
        world.start();
        world.until("the next agent wakes it", |w| replicas(w) == back).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_autoscaler_wakes_a_deployment_at_zero() {
    let mut world = World::new().await;
    world.remote.file("web.yaml", without_count(deployment("web", "nginx:1", 3))).commit("one");
    world.synced(json!({})).await;
    scale_by_hand(&world, 0);
    world.condition_is("demo", "Ready", "True").await;
    world.create("autoscaling/v2", "horizontalpodautoscalers", NAMESPACE, autoscaler("web"));
    world.until("it is awake", |w| replicas(w) == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zero_replicas_of_git_or_the_autoscaler_stay() {
    let mut world = scaled(deployment("web", "nginx:1", 0), autoscaler("web"), json!({})).await;
    world.remote.file("fence.yaml", deployment("fence", "nginx:1", 1));
    world.commit("demo", "a fence").await;
    scale(&world, 4);
    scale_by_hand(&world, 0);
    fence(&world).await;
    assert_eq!(replicas(&world), 0);
    drop(world);
    let mut other = World::new().await;
    let mut keda = autoscaler("web");
    keda["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web", "uid": "u", "controller": true,
    }]);
    other
        .remote
        .file("web.yaml", deployment("web", "nginx:1", 3))
        .file("fence.yaml", deployment("fence", "nginx:1", 1));
    other.remote.commit("one");
    other.create("autoscaling/v2", "horizontalpodautoscalers", NAMESPACE, keda);
    other.synced(json!({})).await;
    scale_by_hand(&other, 0);
    fence(&other).await;
    assert_eq!(replicas(&other), 0, "its scaler scales to 0 by itself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zero_of_one_replica_is_not_healthy() {
    let world = scaled(deployment("web", "nginx:1", 3), autoscaler("web"), json!({"drift": "Report"})).await;
    scale_by_hand(&world, 0);
    let said = format!("Unknown Progressing: Deployment.apps {NAMESPACE}/web: 0 of 3 replicas are wanted");
    world.condition_is("demo", "Healthy", &said).await;
    assert_eq!(replicas(&world), 0, "it is only reported");
    scale_by_hand(&world, 1);
    world.condition_is("demo", "Healthy", "True").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_is_scaled_to_zero_by_hand_serves_again() {
    let world = World::running(functions::scaled("1")).await;
    let name = world.child_name("hello", functions::DEPLOYMENTS);
    let count = |w: &World| w.child("hello", functions::DEPLOYMENTS)["spec"]["replicas"].as_i64().unwrap();
    let least = count(&world);
    for _ in 0..2 {
        let patch = Action::Patch(Form::Merge, json!({"spec": {"replicas": 0}}));
        let call = Call::new("apps/v1", "deployments", NAMESPACE, &name, patch).on("scale");
        world.try_as("kubectl", call).unwrap();
        world.until_function("it is awake", |w| count(w) == least).await;
        world.runs("hello").await;
    }
    // A Function that cannot be scaled up does not run.
    world.fail_next("apply", "deployments", &name, 422, 10_000);
    let patch = Action::Patch(Form::Merge, json!({"spec": {"replicas": 0}}));
    let call = Call::new("apps/v1", "deployments", NAMESPACE, &name, patch).on("scale");
    world.try_as("kubectl", call).unwrap();
    world.until_function("it does not run", |w| !w.said("hello", "Running").starts_with("True")).await;
    world.levers().clear_faults();
    world.runs("hello").await;
}
