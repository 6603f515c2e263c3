//! Functions in `v1alpha2`: a Function written in one version is shown in both, to users and to GitSyncs.

use devcluster::verbs::patch::Form;
use devcluster::{Action, Call};
use mainstay_engine::notification::Message;
use serde_json::{Value, json};

use mainstay_testkit::functions::inline;
use mainstay_testkit::world::{NAMESPACE, World, config_map};

const NEWER: &str = "serverless.kyma-project.io/v1alpha2";
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io/v1", "customresourcedefinitions");
const DEFINITION: &str = "functions.serverless.kyma-project.io";

/// Enables or disables the conversion of Functions and the version v1alpha2. A test disables both at its end, because
/// another cluster would send requests to the ended agent.
pub(crate) fn serve(world: &World, newer: bool) {
    let address = world.admit.as_ref().unwrap().address().unwrap();
    let client = json!({"url": format!("https://{address}/convert")});
    let conversion = if newer {
        json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client}})
    } else {
        json!({"strategy": "None"})
    };
    world.server.rewrite("test", DEFINITIONS, "", DEFINITION, |definition| {
        for version in definition["spec"]["versions"].as_array_mut().unwrap() {
            version["served"] = (newer || version["storage"] == true).into();
        }
        definition["spec"]["conversion"] = conversion.clone();
    });
}

/// Returns a world whose API server serves Functions in both versions.
pub(crate) async fn serving() -> World {
    let mut world = World::with_functions().await;
    world.admit();
    world.start();
    world.admitting().await;
    serve(&world, true);
    let converts = |w: &World| {
        let probe = |action| w.try_as("test", Call::new(NEWER, "functions", NAMESPACE, "probe", action));
        // A previous look may have created it before it could be read.
        let created = probe(Action::Create(newer("probe", "1")));
        let is_there = created.err().is_none_or(|status| status.reason == "AlreadyExists");
        is_there && probe(Action::Get).is_ok()
    };
    world.until("Functions are converted", converts).await;
    world.delete(NEWER, "functions", "probe");
    world
}

fn newer(name: &str, source: &str) -> Value {
    json!({
        "apiVersion": NEWER, "kind": "Function", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "runtime": "nodejs22", "source": {"inline": {"source": source}}, "scaleConfig": {"minReplicas": 1, "maxReplicas": 2},
            "resourceConfiguration": {"function": {"profile": "L"}},
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_of_either_version_runs_and_is_shown_in_both() {
    let world = serving().await;
    world.create(NEWER, "functions", NAMESPACE, newer("newer", "1"));
    world.function("older", inline("2"));
    world.runs("newer").await;
    world.runs("older").await;
    let shown = |version: &str, name: &str| world.get(version, "functions", name).unwrap();
    let older = world.function_now("newer").unwrap();
    assert_eq!((&older["spec"]["source"], &older["spec"]["maxReplicas"]), (&json!("1"), &json!(2)));
    // The profile's value, set by the webhook for v1alpha1.
    let limit = "/spec/resourceConfiguration/function/resources/limits/memory";
    assert_eq!(shown(NEWER, "newer").pointer(limit), older.pointer("/spec/resources/limits/memory"));
    assert!(shown(NEWER, "newer").pointer(limit).is_some());
    let other = shown(NEWER, "older");
    assert_eq!((&other["apiVersion"], &other["spec"]["source"]["inline"]["source"]), (&json!(NEWER), &json!("2")));
    assert_eq!(other["status"]["conditions"].as_array().unwrap().len(), 3);
    // Scaling, edits and denials work in both versions.
    world.edit(NEWER, "functions", "older", json!({"spec": {"source": {"inline": {"source": "3"}}}}));
    world.until_function("the edit is built", |w| w.function_now("older").unwrap()["spec"]["source"] == "3").await;
    world.runs("older").await;
    let mut scale =
        Call::new(NEWER, "functions", NAMESPACE, "newer", Action::Patch(Form::Merge, json!({"spec": {"replicas": 2}})));
    scale.subresource = "scale".to_owned();
    world.try_as("kubectl", scale).unwrap();
    assert_eq!(world.function_now("newer").unwrap()["spec"]["replicas"], 2);
    assert_eq!(shown(NEWER, "newer")["spec"]["replicas"], 2);
    let mut invalid = newer("invalid", "1");
    invalid["spec"]["scaleConfig"] = json!({"minReplicas": 2, "maxReplicas": 1});
    let refused =
        world.try_as("kubectl", Call::new(NEWER, "functions", NAMESPACE, "", Action::Create(invalid))).unwrap_err();
    let words = "maxReplicas(1) is less than minReplicas(2): spec.scaleConfig.maxReplicas";
    assert!(refused.message.ends_with(words), "in the words of this version: {refused:?}");
    serve(&world, false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gitsync_applies_v1alpha2_and_takes_edits_of_either_version_back() {
    let mut world = serving().await;
    let mut function = newer("hello", "1");
    function["metadata"].as_object_mut().unwrap().remove("namespace");
    world.remote.file("f.yaml", function.to_string()).file("a.yaml", config_map("a", "1")).commit("a Function");
    world.synced(json!({})).await;
    world.runs("hello").await;
    assert_eq!(world.function_now("hello").unwrap()["spec"]["source"], "1");
    let image = world.function_status("hello")["image"].clone();
    assert!(image.is_string(), "{image}");
    // The writes of the webhook and the conversion are not drift.
    while let Ok(message) = world.messages.try_recv() {
        assert!(!matches!(message, Message::Reverted { .. }), "{message:?}");
    }
    for (version, patch) in [
        (NEWER, json!({"spec": {"source": {"inline": {"source": "evil"}}}})),
        ("serverless.kyma-project.io/v1alpha1", json!({"spec": {"source": "evil"}})),
    ] {
        world.edit(version, "functions", "hello", patch);
        world.until("it is reverted", |w| w.function_now("hello").unwrap()["spec"]["source"] == "1").await;
    }
    // An edit that stayed long enough may have been built, but the branch's image runs.
    world.until_function("the image is as before", |w| w.function_status("hello")["image"] == image).await;
    world.runs("hello").await;
    world.remote.remove("f.yaml");
    world.commit("demo", "without it").await;
    world.until("it is pruned", |w| w.function_now("hello").is_none()).await;
    serve(&world, false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_many_large_functions_is_converted() {
    let world = serving().await;
    let source = "x".repeat(300 << 10);
    for number in 0..20 {
        world.create(NEWER, "functions", NAMESPACE, newer(&format!("large-{number}"), &source));
    }
    let all = world.server.objects(NEWER, "functions", Some(NAMESPACE));
    assert_eq!(all.len(), 20);
    assert!(all.iter().all(|one| one["spec"]["source"]["inline"]["source"] == *source));
    serve(&world, false);
}
