//! Builds that wait, fail, are retried, or end while no agent runs.

use std::time::Duration;

use devcluster::Options;
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{JOBS, PODS, inline},
    world::{NAMESPACE, World},
};

const SECRET: &str = "serverless-registry-config-default";
const NOW: Duration = Duration::ZERO;
const SOON: Duration = Duration::from_millis(300);
const NEVER: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_build_is_reported_with_its_cause_and_retried() {
    let mut world = World::with_functions().await;
    world.functions.requeue = SOON;
    world.builds_end("push", 1, r#"{"reason":"Registry","message":"no room left","retry":true}"#, NOW);
    world.start();
    world.function("hello", inline("1"));
    world.until_function("a second attempt", |w| w.function_status("hello")["builds"].as_i64() >= Some(2)).await;
    // The cause stays readable while the next attempt starts.
    assert!(
        world.said("hello", "BuildReady").contains("Registry: no room left"),
        "{}",
        world.said("hello", "BuildReady")
    );
    world.says("hello", "BuildReady", "False JobFailed: Job hello-build-").await;
    assert_eq!(world.said("hello", "Running"), "absent");
    world.builds_succeed();
    world.runs("hello").await;
    assert!(world.said("hello", "BuildReady").contains("RETRY"), "{}", world.said("hello", "BuildReady"));
    let status = world.function_status("hello");
    assert!(status["builds"].as_i64() >= Some(3) && status["retryAt"].is_null(), "{status:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_that_cannot_succeed_waits_for_other_inputs() {
    let mut world = World::with_functions().await;
    world.functions.requeue = SOON;
    world.builds_end("push", 1, r#"{"reason":"DependencyInvalid","message":"package.json is no JSON"}"#, NOW);
    world.start();
    world.function("hello", inline("1"));
    world.says("hello", "BuildReady", "False JobFailed").await;
    world.quiet().await;
    assert_eq!(world.function_status("hello")["builds"], 1);
    world.builds_succeed();
    world.edit_function("hello", json!({"spec": {"source": "2"}}));
    world.runs("hello").await;
    assert_eq!(world.function_status("hello")["builds"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrected_password_is_tried_at_once() {
    let mut world = World::with_functions().await;
    world.functions.requeue = NEVER;
    world.builds_end("push", 1, r#"{"reason":"RegistryAuthorization","message":"401","retry":true}"#, NOW);
    world.start();
    world.function("hello", inline("1"));
    world.says("hello", "BuildReady", "False JobFailed").await;
    world.builds_succeed();
    world.edit("v1", "secrets", SECRET, json!({"stringData": {"password": "better"}}));
    world.runs("hello").await;
    assert_eq!(world.function_status("hello")["builds"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_that_fails_after_its_password_was_corrected_is_tried_again_at_once() {
    let mut world = World::with_functions().await;
    world.functions.requeue = NEVER;
    let failure = r#"{"reason":"RegistryAuthorization","message":"401","retry":true}"#;
    world.builds_end("push", 1, failure, Duration::from_secs(2));
    world.start();
    world.function("hello", inline("1"));
    world.says("hello", "BuildReady", "Unknown JobRunning").await;
    let before = world.child("hello", JOBS);
    world.edit("v1", "secrets", SECRET, json!({"stringData": {"password": "better"}}));
    let has_failed = |job: &Value| {
        let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| condition["type"] == "Failed")
    };
    let name = before["metadata"]["name"].as_str().unwrap();
    world
        .until_function("the first one fails", |w| w.get(JOBS.0, JOBS.1, name).is_some_and(|job| has_failed(&job)))
        .await;
    world.builds_succeed();
    world.runs("hello").await;
    let builds = world.function_status("hello")["builds"].as_i64();
    assert!(builds >= Some(2), "{builds:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_whose_image_cannot_be_pulled_begins_again_when_the_password_is_corrected() {
    let mut world = World::with_functions().await;
    world.functions.builder_image = "registry.invalid/builder:1".to_owned();
    world.start();
    world.function("hello", inline("1"));
    let is_held_up = |w: &World| w.said("hello", "BuildReady").contains("ImagePullBackOff");
    world.until_function("the cause", is_held_up).await;
    let before = world.child_name("hello", JOBS);
    // An unrelated change has no effect.
    world.edit_function("hello", json!({"metadata": {"labels": {"team": "a"}}}));
    world.quiet().await;
    assert_eq!(world.child_name("hello", JOBS), before);
    world.edit("v1", "secrets", SECRET, json!({"stringData": {"password": "better"}}));
    let jobs = |w: &World| {
        let jobs = w.children("hello", JOBS);
        jobs.iter().map(|job| job["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    world.until_function("another one", |w| matches!(&jobs(w)[..], [job] if *job != before)).await;
    world.until_function("its number", |w| w.function_status("hello")["builds"] == 2).await;
    world.until_function("the cause", is_held_up).await;
    world.quiet().await;
    assert_eq!(jobs(&world).len(), 1, "once is enough");
    assert_eq!(world.function_status("hello")["builds"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_package_managers_log_is_reported_without_credentials() {
    let mut world = World::with_functions().await;
    world.functions.requeue = NEVER;
    let log = "npm http fetch GET 404 https://u:hunter2@r.example/x\n//r.example/:_authToken=hunter2\nnpm error 404 x";
    world.builds_end("install", 1, log, NOW);
    world.start();
    world.function("hello", inline("1"));
    world.says("hello", "BuildReady", "False JobFailed").await;
    let said = world.said("hello", "BuildReady");
    assert!(said.contains("install ended with exit code 1") && said.contains("npm error 404 x"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependencies_are_installed_again_without_the_last_image() {
    let mut world = World::with_functions().await;
    world.functions.requeue = NEVER;
    let report = r#"{"digest":"{digest}","dependencies":"abc","seconds":0.1}"#;
    world.builds_end("push", 0, report, NOW);
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    world.builds_end("push", 1, r#"{"reason":"PreviousGone","message":"gone","retry":true}"#, NOW);
    world.edit_function("hello", json!({"spec": {"source": "2"}}));
    let uses_previous = |w: &World| {
        let args = |job: &serde_json::Value| job["spec"]["template"]["spec"].to_string();
        let jobs = w.children("hello", JOBS);
        jobs.iter().map(|job| args(job).contains("--previous=")).collect::<Vec<_>>()
    };
    world.until_function("both kinds", |w| uses_previous(w).contains(&true) && uses_previous(w).contains(&false)).await;
    world.builds_end("push", 0, report, NOW);
    world.edit_function("hello", json!({"spec": {"source": "3"}}));
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_pod_that_cannot_start_is_reported_and_ended_by_its_deadline() {
    let mut world = World::with_functions().await;
    world.functions.requeue = NEVER;
    world.functions.build_deadline = Duration::from_secs(3);
    world.functions.builder_image = "registry.invalid/builder:1".to_owned();
    world.functions.max_simultaneous_jobs = 1;
    world.start();
    world.function("hello", inline("1"));
    world
        .until_function("the cause", |w| {
            let said = w.said("hello", "BuildReady");
            said.starts_with("Unknown JobRunning") && said.contains("ImagePullBackOff")
        })
        .await;
    // A held-up build does not block others, but the number of unfinished builds is limited.
    world.function("next", inline("1"));
    world.says("next", "BuildReady", "Unknown JobRunning").await;
    world.function("third", inline("1"));
    world.says("third", "BuildReady", "Unknown JobQueued").await;
    world.says("hello", "BuildReady", "False JobFailed").await;
    let said = world.said("hello", "BuildReady");
    assert!(said.contains("DeadlineExceeded") && said.contains("ImagePullBackOff"), "{said}");
    // The third build gets the free slot.
    world.says("third", "BuildReady", "Unknown JobRunning").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_builds_run_than_may_and_no_namespace_waits_for_another() {
    let mut world = World::with_functions().await;
    world.functions.max_simultaneous_jobs = 2;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
    world.create("v1", "namespaces", "", namespace);
    world.registry("other", "registry.example.org");
    world.builds_wait();
    let builds = world.builds();
    world.start();
    for n in 1..=2 {
        world.function(&format!("f{n}"), inline("1"));
    }
    world.says("f1", "BuildReady", "Unknown JobRunning").await;
    world.says("f2", "BuildReady", "Unknown JobRunning").await;
    for n in 3..=5 {
        let name = format!("f{n}");
        world.function(&name, inline("1"));
        world.says(&name, "BuildReady", "Unknown JobQueued").await;
        assert_eq!(world.function_status(&name)["queue"], n - 2);
    }
    world.function_in("other", "last", inline("1"));
    let last = |w: &World| {
        let function = w.server.object("serverless.kyma-project.io/v1alpha1", "functions", "other", "last").unwrap();
        function["status"].clone()
    };
    world.until_function("it waits", |w| last(w)["queue"].is_i64()).await;
    assert_eq!(last(&world)["queue"], 1, "it comes before the third one of the first namespace");
    // The build uses the newest inputs when it starts.
    world.edit_function("f5", json!({"spec": {"source": "2"}}));
    world.builds_succeed();
    for n in 1..=5 {
        world.runs(&format!("f{n}")).await;
    }
    world.until_function("the last one runs", |w| last(w)["image"].is_string()).await;
    assert_eq!(builds.most(), 2);
    let all = builds.all();
    assert_eq!((all.len(), all.values().map(Vec::len).max()), (6, Some(1)), "{all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_for_inputs_that_are_obsolete_is_cancelled() {
    let mut world = World::with_functions().await;
    world.builds_wait();
    world.start();
    world.function("hello", inline("1"));
    world.says("hello", "BuildReady", "Unknown JobRunning").await;
    let old = world.child_name("hello", JOBS);
    world.edit_function("hello", json!({"spec": {"source": "2"}}));
    world
        .until_function("another Job", |w| {
            let jobs = w.children("hello", JOBS);
            jobs.len() == 1 && jobs[0]["metadata"]["name"] != *old
        })
        .await;
    world.builds_succeed();
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_that_ended_while_no_agent_ran_is_not_built_again() {
    let mut world = World::with_functions().await;
    world.builds_wait();
    let builds = world.builds();
    world.start();
    world.function("hello", inline("1"));
    world.says("hello", "BuildReady", "Unknown JobRunning").await;
    world.kill().await;
    world.builds_succeed();
    let ended = |w: &World| w.children("hello", JOBS).iter().all(|job| job["status"]["succeeded"] == 1);
    world.until_function("it ended", ended).await;
    world.start();
    world.runs("hello").await;
    assert_eq!(builds.all().values().map(Vec::len).sum::<usize>(), 1);
    // The built image is known without the Job and its pod.
    world.kill().await;
    for kind in [JOBS, PODS] {
        let gone = world.children("hello", kind);
        for object in gone.iter().filter(|object| kind == JOBS || object["spec"]["restartPolicy"] == "Never") {
            world.delete(kind.0, kind.1, object["metadata"]["name"].as_str().unwrap());
        }
    }
    world.start();
    world.edit_function("hello", json!({"spec": {"env": [{"name": "A", "value": "1"}]}}));
    world.runs("hello").await;
    assert_eq!(builds.all().values().map(Vec::len).sum::<usize>(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_agent_writes_nothing() {
    let mut world = World::running(inline("1")).await;
    world.quiet().await;
    world.stop().await;
    let before = world.function_now("hello").unwrap()["metadata"]["resourceVersion"].clone();
    let versions = |w: &World| {
        let kinds = [("v1", "configmaps"), ("apps/v1", "deployments"), ("v1", "services")];
        kinds.map(|kind| w.child("hello", kind)["metadata"]["resourceVersion"].clone())
    };
    let children = versions(&world);
    world.start();
    // The new Function is handled after everything else.
    world.function("fence", inline("1"));
    world.runs("fence").await;
    world.quiet().await;
    assert_eq!(world.function_now("hello").unwrap()["metadata"]["resourceVersion"], before);
    assert_eq!(versions(&world), children);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_without_a_pod_is_reported_with_its_reason() {
    let room = 30;
    let mut world = World::with_functions_on(Options { most_pods: room, ..Options::default() });
    let fill = |n: usize| {
        let spec = json!({"containers": [{"name": "a", "image": "a"}]});
        let metadata = json!({"name": format!("p{n}"), "namespace": NAMESPACE});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    };
    for n in 0..room {
        world.create("v1", "pods", NAMESPACE, fill(n));
    }
    world.start();
    world.function("hello", inline("1"));
    world
        .until_function("the cause", |w| w.said("hello", "BuildReady").contains("FailedCreate: Error creating:"))
        .await;
    assert!(world.said("hello", "BuildReady").starts_with("Unknown JobRunning"));
    for n in 0..5 {
        world.delete("v1", "pods", &format!("p{n}"));
    }
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_base_image_that_is_named_by_a_tag_is_recorded_by_its_digest() {
    let mut world = World::with_functions().await;
    let (tagged, digest) = ("registry.example.org/base:3", "1".repeat(64));
    let report =
        |base: &str| json!({"digest": "{digest}", "base": base, "dependencies": "ab", "seconds": 0.1}).to_string();
    world.builds_end("push", 0, &report(&format!("{tagged}@sha256:{digest}")), Duration::ZERO);
    world.start();
    let mut spec = inline("1");
    spec["runtimeImageOverride"] = json!(tagged);
    world.function("hello", spec);
    world.runs("hello").await;
    let built = |w: &World| w.function_status("hello")["built"]["base"].clone();
    assert_eq!(built(&world), format!("{tagged}@sha256:{digest}"));
    let job = world.child("hello", JOBS);
    let install = &job["spec"]["template"]["spec"]["initContainers"][0];
    assert_eq!((&install["image"], &install["imagePullPolicy"]), (&json!(tagged), &json!("Always")));
    // The dependencies may come from another image of that tag. An invalid image name is not recorded.
    world.builds_end("push", 0, &report("$(rm)"), Duration::ZERO);
    world.edit_function("hello", json!({"spec": {"source": "2"}}));
    world.until_function("built anew", |w| w.is_running("hello") && built(w) == Value::Null).await;
    assert!(!world.child("hello", JOBS).to_string().contains("--previous="));
}
