//! The cost of one change of a Function, and its messages.

use devcluster::{Action, Call, verbs::patch::Form};
use mainstay_engine::notification::Message;
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{AUTOSCALERS, CONFIG_MAPS, DEPLOYMENTS, JOBS, Kind, SERVICES, inline, scaled},
    world::{NAMESPACE, World},
};

const CHILDREN: [Kind; 4] = [CONFIG_MAPS, DEPLOYMENTS, SERVICES, AUTOSCALERS];

/// Returns the reasons of Functions' messages since the last call.
fn heard(world: &mut World) -> Vec<String> {
    let messages = std::iter::from_fn(|| world.messages.try_recv().ok());
    let reason = |message| if let Message::Stage { reason, .. } = message { Some(reason.to_string()) } else { None };
    messages.filter_map(reason).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_label_is_one_write_for_each_child_and_one_event() {
    let mut world = World::running(scaled("1")).await;
    let job = world.child("hello", JOBS);
    for kind in CHILDREN {
        let name = world.child_name("hello", kind);
        world.edit(kind.0, kind.1, &name, json!({"metadata": {"labels": {"argocd.example.org/instance": "theirs"}}}));
    }
    for team in ["a", "b"] {
        world.quiet().await;
        heard(&mut world);
        world.levers().reset_counts();
        world.edit_function("hello", json!({"metadata": {"labels": {"team": team}}}));
        let reasons = ["ConfigMapUpdated", "DeploymentUpdated", "ServiceUpdated", "HorizontalPodAutoscalerUpdated"];
        world.told("hello", &[&reasons[..], &["DeploymentReady"]].concat()).await;
        world.quiet().await;
        assert_eq!(heard(&mut world), [""; 0], "nothing is told again");
        assert!(world.is_running("hello"));
        let expected = [
            ("apply configmaps", 1),
            ("apply deployments.apps", 1),
            ("apply horizontalpodautoscalers.autoscaling", 1),
            ("apply services", 1),
            ("patch functions.serverless.kyma-project.io/status", 2),
        ];
        let asked = world.requests().into_iter().filter(|(what, _)| !what.contains("events"));
        assert_eq!(asked.collect::<Vec<_>>(), expected.map(|(what, times)| (what.to_owned(), times)));
        for kind in CHILDREN {
            let labels = world.child("hello", kind)["metadata"]["labels"].clone();
            assert_eq!(labels["team"], team);
            assert_eq!(labels["argocd.example.org/instance"], "theirs", "labels of others stay");
        }
    }
    assert_eq!(world.child("hello", JOBS), job, "what is finished is left as it is");
    assert_eq!(world.child("hello", DEPLOYMENTS)["metadata"]["generation"], 1, "no pod is made anew");
}

/// Returns the generation of a condition of `hello`.
fn speaks_of(world: &World, condition: &str) -> Value {
    let status = world.function_status("hello");
    let all = status["conditions"].as_array().unwrap();
    all.iter().find(|one| one["type"] == condition).unwrap()["observedGeneration"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_change_is_built_the_status_says_which_generation_and_which_image_serve() {
    let mut world = World::running(inline("1")).await;
    let image = world.function_status("hello")["image"].clone();
    let first_serves = |w: &World| {
        assert!(w.said("hello", "Running").starts_with("True DeploymentReady"), "{}", w.said("hello", "Running"));
        let status = w.function_status("hello");
        assert_eq!((speaks_of(w, "Running"), &status["image"]), (json!(1), &image));
        assert_eq!(w.child("hello", DEPLOYMENTS)["spec"]["template"]["spec"]["containers"][0]["image"], image);
    };
    let seen = |generation: i64| {
        move |w: &World| {
            let building = w.said("hello", "BuildReady").starts_with("Unknown JobRunning");
            building && w.function_status("hello")["observedGeneration"] == generation
        }
    };
    world.builds_wait();
    world.edit_function("hello", json!({"spec": {"source": "2", "env": [{"name": "A", "value": "2"}]}}));
    world.until_function("it is built", seen(2)).await;
    first_serves(&world);
    assert_eq!([speaks_of(&world, "ConfigurationReady"), speaks_of(&world, "BuildReady")], [2, 2]);
    // The same holds for a new agent, a failing build, and an invalid Function.
    world.stop().await;
    world.start();
    world.quiet().await;
    first_serves(&world);
    world.builds_end("push", 1, r#"{"reason":"DependencyInvalid","message":"no"}"#, std::time::Duration::ZERO);
    world.says("hello", "BuildReady", "False JobFailed").await;
    first_serves(&world);
    world.edit_function("hello", json!({"spec": {"runtime": "cobol"}}));
    world.says("hello", "ConfigurationReady", "False RuntimeNotSupported").await;
    assert_eq!(world.function_status("hello")["observedGeneration"], 3);
    first_serves(&world);
    world.builds_wait();
    world.edit_function("hello", json!({"spec": {"runtime": "nodejs22", "source": "4"}}));
    world.until_function("it is built", seen(4)).await;
    first_serves(&world);
    world.builds_succeed();
    world.runs("hello").await;
    let status = world.function_status("hello");
    assert_eq!((&status["observedGeneration"], speaks_of(&world, "Running")), (&json!(4), json!(4)));
    assert_ne!(status["image"], image);
    assert_eq!(
        world.child("hello", DEPLOYMENTS)["spec"]["template"]["spec"]["containers"][0]["image"],
        status["image"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_is_undone_during_its_build_is_ready_at_once() {
    let world = World::running(inline("1")).await;
    let (image, deployment) = (world.function_status("hello")["image"].clone(), world.child("hello", DEPLOYMENTS));
    world.builds_wait();
    world.edit_function("hello", json!({"spec": {"source": "2"}}));
    world.says("hello", "BuildReady", "Unknown JobRunning").await;
    world.edit_function("hello", json!({"spec": {"source": "1"}}));
    world.runs("hello").await;
    assert_eq!((speaks_of(&world, "Running"), world.function_status("hello")["image"].clone()), (json!(3), image));
    let metadata = |object: &Value| object["metadata"]["resourceVersion"].clone();
    assert_eq!(metadata(&world.child("hello", DEPLOYMENTS)), metadata(&deployment));
    world.until_function("the build for what nobody wants is gone", |w| w.children("hello", JOBS).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_any_name_are_rolled_out_without_a_build_and_reverted() {
    let mut spec = inline("1");
    spec["resources"] = json!({"limits": {"ephemeral-storage": "2Gi"}});
    let world = World::running(spec).await;
    let job = world.child_name("hello", JOBS);
    let limit = |w: &World, name: &str| {
        let deployment = w.child("hello", DEPLOYMENTS);
        deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][name].clone()
    };
    assert_eq!((limit(&world, "ephemeral-storage"), limit(&world, "memory")), (json!("2Gi"), json!("128Mi")));
    let (storage, gpu) = ("ephemeral-storage", "nvidia.com/gpu");
    let changes = [
        (json!({storage: "3Gi"}), storage, json!("3Gi")),
        (json!({gpu: 1}), gpu, json!("1")),
        (json!({gpu: "2"}), gpu, json!("2")),
        (json!({storage: null}), storage, Value::Null),
    ];
    for (limits, name, expected) in changes {
        world.edit_function("hello", json!({"spec": {"resources": {"limits": limits}}}));
        world.until_function(&format!("{name}: {expected}"), |w| limit(w, name) == expected).await;
        world.runs("hello").await;
    }
    // Manual changes of all kinds.
    let name = world.child_name("hello", DEPLOYMENTS);
    for (limits, requests) in [(json!({gpu: null}), json!({})), (json!({gpu: "7", storage: "1Gi"}), json!({gpu: "7"}))]
    {
        let container = json!({"name": "function", "resources": {"limits": limits, "requests": requests}});
        let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
        let call = Call::new("apps/v1", "deployments", NAMESPACE, &name, Action::Patch(Form::Strategic, patch));
        let changed = world.try_as("kubectl-edit", call).unwrap();
        assert_ne!(changed["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][gpu], "2");
        world.until_function(&format!("{name} without {limits}"), |w| limit(w, gpu) == "2").await;
        world.runs("hello").await;
    }
    assert_eq!(world.child_name("hello", JOBS), job, "nothing was built again");
}
