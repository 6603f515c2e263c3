//! Owners of a Function's replicas: `kubectl scale`, another autoscaler, the Function's own, or Git.

use devcluster::{
    Action, Call,
    verbs::{delete::DeleteOptions, patch::Form},
};
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{AUTOSCALERS, DEPLOYMENTS, JOBS, PODS, inline, scaled},
    world::{NAMESPACE, World},
};

const FUNCTIONS: (&str, &str) = ("serverless.kyma-project.io/v1alpha1", "functions");

/// Scales like `kubectl scale`.
fn scale(world: &World, (api_version, resource): (&str, &str), name: &str, count: i64) {
    let patch = Action::Patch(Form::Merge, json!({"spec": {"replicas": count}}));
    world.try_as("kubectl", Call::new(api_version, resource, NAMESPACE, name, patch).on("scale")).unwrap();
}

/// Returns the desired replicas of the Deployment of `hello`.
fn wanted(world: &World) -> i64 {
    world.child("hello", DEPLOYMENTS)["spec"]["replicas"].as_i64().unwrap()
}

/// Creates another owner's autoscaler with at least two pods.
fn autoscaler(world: &World, target: (&str, &str), kind: &str, name: &str) {
    autoscaler_of(world, target, kind, name, json!([]));
}

/// Creates the same autoscaler with owner references.
fn autoscaler_of(world: &World, (api_version, _): (&str, &str), kind: &str, name: &str, owners: Value) {
    let target = json!({"apiVersion": api_version, "kind": kind, "name": name});
    let spec = json!({"minReplicas": 2, "maxReplicas": 5, "scaleTargetRef": target});
    let metadata = json!({"name": "theirs", "namespace": NAMESPACE, "ownerReferences": owners});
    let kinds = ("autoscaling/v2", "horizontalpodautoscalers");
    let object = json!({"apiVersion": kinds.0, "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec});
    world.create(kinds.0, kinds.1, NAMESPACE, object);
}

/// Waits until `hello` runs with this number of pods, which its Scale reports.
async fn runs_with(world: &World, count: usize) {
    let counted = |w: &World| w.function_status("hello")["replicas"] == count && w.is_running("hello");
    world.until_function(&format!("{count} pods"), counted).await;
    let get = Call::new(FUNCTIONS.0, FUNCTIONS.1, NAMESPACE, "hello", Action::Get).on("scale");
    let Ok(read) = world.try_as("kubectl", get) else { return };
    let selector = read["status"]["selector"].as_str().unwrap();
    assert_eq!(selector, world.function_status("hello")["podSelector"]);
    let selected = |pod: &Value| {
        let labels = &pod["metadata"]["labels"];
        pod["metadata"]["deletionTimestamp"].is_null()
            && selector.split(',').all(|term| term.split_once('=').is_some_and(|(name, value)| labels[name] == value))
    };
    let pods = world.server.objects(PODS.0, PODS.1, Some(NAMESPACE));
    assert_eq!(pods.iter().filter(|pod| selected(pod)).count(), count, "{selector}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_scale_sets_the_number_of_pods_and_builds_nothing() {
    let world = World::running(inline("1")).await;
    let job = world.child("hello", JOBS);
    for count in [3, 0, 1] {
        scale(&world, FUNCTIONS, "hello", count);
        world.until("the Deployment is scaled", |w| wanted(w) == count).await;
        runs_with(&world, usize::try_from(count).unwrap()).await;
    }
    assert_eq!(world.child("hello", JOBS), job, "nothing is built");
    // Manual scaling of the Deployment is reverted.
    scale(&world, (DEPLOYMENTS.0, DEPLOYMENTS.1), &world.child_name("hello", DEPLOYMENTS), 4);
    world.until("the Function's number holds", |w| wanted(w) == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_somebody_has_set_ends_the_scaling_by_cpu_until_it_is_removed() {
    let world = World::running(scaled("1")).await;
    assert_eq!(world.children("hello", AUTOSCALERS).len(), 1);
    scale(&world, FUNCTIONS, "hello", 2);
    let without = |w: &World| wanted(w) == 2 && w.children("hello", AUTOSCALERS).is_empty();
    world.until_function("a fixed number", without).await;
    runs_with(&world, 2).await;
    let warning = world.function_status("hello")["warnings"][0].as_str().unwrap().to_owned();
    assert!(warning.starts_with("ScalingOff: spec.replicas is 2"), "{warning}");
    world.edit_function("hello", json!({"spec": {"replicas": null}}));
    world.until_function("its autoscaler", |w| w.children("hello", AUTOSCALERS).len() == 1).await;
    world.runs("hello").await;
    assert_eq!(wanted(&world), 2, "the autoscaler begins with what there is");
    assert_eq!(world.function_status("hello")["warnings"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn autoscalers_of_others_scale_a_function_or_its_deployment() {
    let world = World::running(inline("1")).await;
    let deployment = world.child_name("hello", DEPLOYMENTS);
    autoscaler(&world, (DEPLOYMENTS.0, DEPLOYMENTS.1), "Deployment", &deployment);
    world.until("the Deployment is scaled", |w| wanted(w) == 2).await;
    runs_with(&world, 2).await;
    world.edit_function("hello", json!({"spec": {"env": [{"name": "A", "value": "1"}]}}));
    world.runs("hello").await;
    assert_eq!(wanted(&world), 2, "a roll-out leaves the number alone");
    let delete = Action::Delete(DeleteOptions::default());
    let theirs = Call::new("autoscaling/v2", "horizontalpodautoscalers", NAMESPACE, "theirs", delete);
    world.try_as("kubectl", theirs).unwrap();
    world.until("the Function's number holds again", |w| wanted(w) == 1).await;
    // Scaling the Function itself. Like every custom resource, it needs a number first.
    scale(&world, FUNCTIONS, "hello", 1);
    autoscaler(&world, FUNCTIONS, "Function", "hello");
    world.until("the Function is scaled", |w| w.function_now("hello").unwrap()["spec"]["replicas"] == 2).await;
    runs_with(&world, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_that_a_scaled_object_scaled_to_zero_is_healthy() {
    let world = World::running(inline("1")).await;
    let owner = json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "hello", "uid": "s", "controller": true,
    });
    let deployment = world.child_name("hello", DEPLOYMENTS);
    autoscaler_of(&world, (DEPLOYMENTS.0, DEPLOYMENTS.1), "Deployment", &deployment, json!([owner]));
    runs_with(&world, 2).await;
    scale(&world, (DEPLOYMENTS.0, DEPLOYMENTS.1), &deployment, 0);
    world.until_function("no pods", |w| w.said("hello", "Running").ends_with("is scaled to 0")).await;
    assert!(world.said("hello", "Running").starts_with("True DeploymentReady"), "{}", world.said("hello", "Running"));
    world.edit_function("hello", json!({"spec": {"env": [{"name": "A", "value": "1"}]}}));
    world.runs("hello").await;
    assert_eq!(wanted(&world), 0, "it stays there");
}

fn document(replicas: &str) -> String {
    format!(
        "apiVersion: {}\nkind: Function\nmetadata:\n  name: hello\nspec:\n  runtime: nodejs22\n  source: '1'\n  \
         minReplicas: 1\n  maxReplicas: 1\n{replicas}",
        FUNCTIONS.0
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_in_git_hold_and_absent_ones_are_left_to_the_scaler() {
    let mut world = World::with_functions().await;
    world.remote.file("hello.yaml", document("")).commit("without a number");
    world.synced(json!({})).await;
    world.runs("hello").await;
    scale(&world, FUNCTIONS, "hello", 3);
    world.until("the Deployment is scaled", |w| wanted(w) == 3).await;
    world.remote.file("hello.yaml", document("  labels: {a: b}\n"));
    world.commit("demo", "something else").await;
    runs_with(&world, 3).await;
    assert_eq!(wanted(&world), 3, "Git says nothing of it");
    world.remote.file("hello.yaml", document("  replicas: 1\n"));
    world.commit("demo", "a number").await;
    world.until("Git's number", |w| wanted(w) == 1).await;
    scale(&world, FUNCTIONS, "hello", 3);
    let told = mainstay_testkit::drift::revert_of(&mut world, "hello").await;
    assert_eq!(told.1, ["spec.replicas"]);
    world.until("Git's number again", |w| wanted(w) == 1).await;
    autoscaler(&world, FUNCTIONS, "Function", "hello");
    let is_gits = |w: &World| {
        let fields = w.function_now("hello").unwrap()["metadata"]["managedFields"].clone();
        fields
            .as_array()
            .unwrap()
            .iter()
            .any(|entry| entry["manager"] == "mainstay" && entry["fieldsV1"]["f:spec"].get("f:replicas").is_some())
    };
    world.until("the autoscaler's number", |w| wanted(w) == 2 && !is_gits(w)).await;
    world.remote.file("hello.yaml", document("  replicas: 1\n  labels: {a: c}\n"));
    world.commit("demo", "another label").await;
    runs_with(&world, 2).await;
    assert!(!is_gits(&world));
}
