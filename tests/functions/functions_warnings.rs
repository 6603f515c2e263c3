//! Warnings of working Functions. Each problem is emitted once, as a Warning Event, and listed in the status.

use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{DEPLOYMENTS, JOBS, inline},
    world::{NAMESPACE, World},
};

const PRESET: &str = "serverless.kyma-project.io/function-resources-preset";

/// Returns the Warning Events about a Function as `reason: note` with their counts, sorted.
fn warnings(world: &World, function: &str) -> Vec<(String, u64)> {
    let events = world.server.objects("events.k8s.io/v1", "events", Some(NAMESPACE));
    let about = events.iter().filter(|event| {
        let regarding = &event["regarding"];
        event["type"] == "Warning" && regarding["kind"] == "Function" && regarding["name"] == function
    });
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let shown = about.map(|event| {
        let count = event["series"]["count"].as_u64().unwrap_or(1);
        (format!("{}: {}", text(&event["reason"]), text(&event["note"])), count)
    });
    let mut shown = shown.collect::<Vec<_>>();
    shown.sort();
    shown
}

/// Returns the warnings in the status, sorted.
fn held(world: &World, function: &str) -> Vec<String> {
    let status = world.function_status(function);
    let mut held = status["warnings"].as_array().cloned().unwrap_or_default();
    held.sort_by_key(ToString::to_string);
    held.iter().map(|warning| warning.as_str().unwrap().to_owned()).collect()
}

fn memory(world: &World, function: &str) -> Value {
    world.child(function, DEPLOYMENTS)["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"]
        .clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_preset_is_reported_once_and_the_default_one_is_used() {
    let mut world = World::with_functions().await;
    let object = json!({
        "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function", "spec": inline("1"),
        "metadata": {"name": "hello", "namespace": NAMESPACE, "labels": {PRESET: "huge"}},
    });
    world.create("serverless.kyma-project.io/v1alpha1", "functions", NAMESPACE, object);
    world.start();
    world.runs("hello").await;
    assert_eq!(memory(&world, "hello"), "128Mi");
    let said = format!(
        "PresetUnknown: the label {PRESET} names the preset \"huge\", which does not exist; M is used. \
         There are: L, M, S, XL, XS"
    );
    let once = vec![(said.clone(), 1)];
    world.until_function("it is told", |w| warnings(w, "hello") == once).await;
    assert_eq!(held(&world, "hello"), [said]);
    // Another generation, another agent and another warning do not repeat the Event.
    world.edit_function("hello", json!({"spec": {"source": "2"}}));
    world.runs("hello").await;
    world.kill().await;
    world.start();
    world.edit_function("hello", json!({"spec": {"env": [{"name": "A"}, {"name": "A"}]}}));
    let both = |w: &World| warnings(w, "hello").len() == 2;
    world.until_function("the other one is told", both).await;
    world.runs("hello").await;
    world.quiet().await;
    let told = warnings(&world, "hello");
    assert!(told.len() == 2 && told.contains(&once[0]), "{told:?}");
    // A fixed problem is removed from the status. If the problem occurs again, it is reported again.
    world.edit_function("hello", json!({"metadata": {"labels": {PRESET: "L"}}, "spec": {"env": null}}));
    world.until_function("the preset is taken", |w| memory(w, "hello") == "256Mi").await;
    world.until_function("nothing is odd", |w| held(w, "hello").is_empty()).await;
    world.edit_function("hello", json!({"metadata": {"labels": {PRESET: "huge"}}}));
    world.until_function("it is told again", |w| held(w, "hello") == [once[0].0.clone()]).await;
    world.runs("hello").await;
    // The current agent writes the Event.
    let times = |w: &World| warnings(w, "hello").into_iter().filter(|(text, _)| *text == once[0].0).count();
    world.until_function("as an Event, too", |w| times(w) == 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_warning_is_reported_and_the_function_runs() {
    let mut world = World::with_functions().await;
    let spec = json!({
        "runtime": "python38", "source": "def main(event, context): pass", "minReplicas": 1, "maxReplicas": 1,
        "env": [{"name": "A", "value": "1"}, {"name": "PYTHONUNBUFFERED", "value": "0"}, {"name": "A", "value": "2"}],
        "labels": {"mainstay.dev/sync": "mainstay-tests.apps"},
        "resources": {"limits": {"memory": "20Mi"}, "requests": {"memory": "20Mi"}},
    });
    world.start();
    world.function("odd", spec);
    world.runs("odd").await;
    let reasons = ["EnvIgnored", "EnvIgnored", "LabelIgnored", "MemoryLow", "RuntimeDeprecated"];
    let told = |w: &World| {
        let told = warnings(w, "odd").into_iter();
        told.map(|(text, count)| (text.split(':').next().unwrap().to_owned(), count)).collect::<Vec<_>>()
    };
    let once = reasons.map(|reason| (reason.to_owned(), 1)).to_vec();
    world.until_function("each is told once", |w| told(w) == once).await;
    assert_eq!(held(&world, "odd"), warnings(&world, "odd").into_iter().map(|(text, _)| text).collect::<Vec<_>>());
    assert_eq!(memory(&world, "odd"), "20Mi", "what is said in so many words counts");
    // A Function that is refused for another reason keeps its warnings, and the correction does not repeat them.
    world.edit_function("odd", json!({"spec": {"minReplicas": 3}}));
    world.says("odd", "ConfigurationReady", "False SpecInvalid").await;
    assert_eq!(held(&world, "odd").len(), reasons.len());
    world.edit_function("odd", json!({"spec": {"minReplicas": 1}}));
    world.runs("odd").await;
    world.quiet().await;
    let refused = told(&world).into_iter().filter(|one| !once.contains(one)).collect::<Vec<_>>();
    assert_eq!((refused.len(), told(&world).len()), (1, reasons.len() + 1), "{refused:?}");
    assert_eq!(refused[0].0, "SpecInvalid");
    assert_eq!(world.children("odd", JOBS).len(), 1);
}
