//! The operator's settings in a ConfigMap. They apply without a restart to the Functions that they affect, and an
//! invalid ConfigMap changes nothing.

use mainstay_function::BaseImage;
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{DEPLOYMENTS, JOBS, inline},
    program::mainstay,
    world::{NAMESPACE, World},
};

const SETTINGS: &str = "mainstay-settings";
const PRESET: &str = "webhook.values.function.resources.defaultPreset";

/// Helpers of these tests.
trait SettingsWorld {
    fn set(&self, data: Value);
    /// Returns the last note of Events with a reason about the settings.
    fn noted(&self, reason: &str) -> String;
    fn limit_of(&self, function: &str) -> Value;
    fn generation_of(&self, function: &str) -> Value;
}

impl SettingsWorld for World {
    fn set(&self, data: Value) {
        let metadata = json!({"name": SETTINGS, "namespace": NAMESPACE});
        if self.get("v1", "configmaps", SETTINGS).is_some() {
            self.edit("v1", "configmaps", SETTINGS, json!({"data": data}));
        } else {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
            self.create("v1", "configmaps", NAMESPACE, map);
        }
    }

    fn noted(&self, reason: &str) -> String {
        let events = self.server.objects("v1", "events", Some(NAMESPACE));
        let about = events.iter().filter(|e| e["involvedObject"]["name"] == SETTINGS && e["reason"] == reason);
        let last = about.max_by_key(|e| e["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap());
        last.map(|e| e["message"].as_str().unwrap().to_owned()).unwrap_or_default()
    }

    fn limit_of(&self, function: &str) -> Value {
        let deployed = self.child(function, DEPLOYMENTS);
        deployed["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"].clone()
    }

    fn generation_of(&self, function: &str) -> Value {
        self.child(function, DEPLOYMENTS)["metadata"]["generation"].clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_preset_reaches_its_functions_and_a_mistake_none() {
    let mut world = World::with_functions().await;
    world.start();
    world.function("plain", inline("1"));
    let mut sized = inline("1");
    sized["resources"] = json!({
        "limits": {"cpu": "300m", "memory": "300Mi"}, "requests": {"cpu": "30m", "memory": "30Mi"},
    });
    world.function("sized", sized);
    world.runs("plain").await;
    world.runs("sized").await;
    assert_eq!(world.limit_of("plain"), "100m");
    let (sized, job) = (world.generation_of("sized"), world.child_name("plain", JOBS));

    world.set(json!({PRESET: "L"}));
    world.until_function("the preset holds", |w| w.limit_of("plain") == "200m").await;
    world.runs("plain").await;
    // The Event of the change may be written a little later.
    world.until_function("it is told", |w| w.noted("SettingsApplied") == "1 settings apply").await;
    assert_eq!((world.generation_of("sized"), world.child_name("plain", JOBS)), (sized, job), "and nothing is built");

    let rolled = world.generation_of("plain");
    world.set(json!({PRESET: "HUGE", "webhook.values.function.replicas.minvalue": "1"}));
    let told = |w: &World| {
        let note = w.noted("SettingsInvalid");
        note.starts_with("2 mistakes, so the last valid settings stay: ")
            && note.contains("the preset \"HUGE\" does not exist")
            && note.contains("did you mean webhook.values.function.replicas.minValue?")
    };
    world.until_function("the mistakes are told", told).await;
    let (code, said) = mainstay(&world, &["check"]).await;
    let wrong = format!("wrong  ConfigMap {NAMESPACE}/{SETTINGS}: ");
    assert!(code == 2 && said.matches(&wrong).count() == 2, "{said}");
    // A new agent, which knows no earlier settings, does not change anything either.
    world.kill().await;
    world.start();
    world.function("new", inline("1"));
    world.runs("new").await;
    assert_eq!((world.limit_of("new"), world.generation_of("plain")), (json!("200m"), rolled));

    world.set(json!({PRESET: "S", "webhook.values.function.replicas.minvalue": null}));
    world.until_function("corrected", |w| w.limit_of("plain") == "50m" && w.limit_of("new") == "50m").await;
    world.delete("v1", "configmaps", SETTINGS);
    world.until_function("the agent's own hold", |w| w.limit_of("plain") == "100m").await;
    world.runs("plain").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_base_image_builds_the_functions_of_its_runtime_and_no_others() {
    let base = |digit: &str| format!("registry.example.org/base@sha256:{}", digit.repeat(64));
    let mut world = World::with_functions().await;
    world.functions.base_images = [("*".to_owned(), BaseImage::parse(&base("1")).unwrap())].into();
    let builds = world.builds();
    world.start();
    world.function("node", inline("1"));
    let mut python = inline("def main(event, context):\n    return 'hi'\n");
    python["runtime"] = json!("python312");
    world.function("python", python);
    world.runs("node").await;
    world.runs("python").await;
    let other = world.generation_of("node");
    world.set(json!({
        "images.runtimes.python312.repository": "registry.example.org/base",
        "images.runtimes.python312.tag": format!("sha256:{}", "2".repeat(64)),
    }));
    let on = |w: &World| {
        let jobs = w.children("python", JOBS);
        jobs.iter().any(|job| job.to_string().contains(&base("2"))) && w.is_running("python")
    };
    world.until_function("built on the other base", on).await;
    world.until("three images are built", |_| builds.all().len() == 3).await;
    assert_eq!(world.generation_of("node"), other);
    // A tag is refused, because it can move.
    world.set(json!({"images.runtimes.python312.tag": "3.12"}));
    world.until_function("refused", |w| w.noted("SettingsInvalid").contains("pinned by its digest")).await;
    world.quiet().await;
    assert_eq!(builds.all().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_builds_may_run_and_other_namespaces_get_copies_without_a_restart() {
    let mut world = World::with_functions().await;
    world.functions.max_simultaneous_jobs = 1;
    world.builds_wait();
    world.create("v1", "namespaces", "", json!({"metadata": {"name": "mainstay-tests-a"}}));
    let metadata = json!({
        "name": "shared", "namespace": NAMESPACE, "labels": {"serverless.kyma-project.io/config": "credentials"},
    });
    world.create("v1", "secrets", NAMESPACE, json!({"metadata": metadata}));
    world.set(json!({"containers.manager.envs.namespaceExcludedNames.value": "mainstay-tests-a, default"}));
    world.start();
    world.function("one", inline("1"));
    world.function("two", inline("2"));
    let jobs = |w: &World| w.children("one", JOBS).len() + w.children("two", JOBS).len();
    world.until_function("one is built", |w| jobs(w) == 1).await;
    world.quiet().await;
    assert_eq!(jobs(&world), 1);
    let copy = |w: &World| w.server.object("v1", "secrets", "mainstay-tests-a", "shared").is_some();
    assert!(!copy(&world));
    world.set(json!({
        "containers.manager.envs.functionBuildMaxSimultaneousJobs.value": "2",
        "containers.manager.envs.namespaceExcludedNames.value": "default",
    }));
    world.until_function("both are built", |w| jobs(w) == 2).await;
    world.until("copied", copy).await;
    world.set(json!({"containers.manager.envs.namespaceExcludedNames.value": "mainstay-tests-a,default"}));
    world.until("taken away", |w| !copy(w)).await;
}
