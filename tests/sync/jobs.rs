//! Finite work runs once: finished and collected Jobs and Pods, and objects whose owner is gone.

use std::time::Duration;

use devcluster::Simulation;
use serde_json::{Value, json};

use mainstay_testkit::world::{World, config_map};

const BATCH: &str = "batch/v1";
const IMAGE: &str = "example.org/job:1";

/// Returns a Job `migrate` that runs a command.
fn job(command: &str, ttl: Option<u32>, rerun: Option<&str>) -> String {
    let ttl = ttl.map(|ttl| format!("  ttlSecondsAfterFinished: {ttl}\n")).unwrap_or_default();
    let rerun = rerun.map(|token| format!("  annotations: {{mainstay.dev/rerun: '{token}'}}\n")).unwrap_or_default();
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: migrate\n{rerun}spec:\n  backoffLimit: 0\n{ttl}  template:\n    \
         spec:\n      restartPolicy: Never\n      containers: [{{name: main, image: '{IMAGE}', command: [{command}]}}]\n"
    )
}

/// Creates a world with a ConfigMap and a manifest whose container ends with an exit code.
async fn with(manifest: &str, exit_code: i32) -> World {
    let mut world = World::new().await;
    // The container runs until the agent watches Jobs and Pods. On a machine with other work, this may take seconds, and
    // a Job that ends earlier is collected before the agent has seen it.
    let simulation = Simulation { exit_code, termination_message: None, after: Duration::from_secs(3) };
    world.server.simulate(IMAGE, "main", simulation);
    world.remote.file("work.yaml", manifest).file("map.yaml", config_map("map", "1")).commit("one");
    world.sync("demo", json!({}));
    world.start();
    world
}

fn migrate(world: &World) -> Option<std::sync::Arc<Value>> {
    world.get(BATCH, "jobs", "migrate")
}

/// Returns whether the Job has finished.
fn is_finished(world: &World) -> bool {
    let conditions = migrate(world).map(|job| job["status"]["conditions"].to_string()).unwrap_or_default();
    conditions.contains(r#""Complete""#) || conditions.contains(r#""Failed""#)
}

/// Waits until the agent has reverted a hand edit and answered a request, so that earlier work is done.
async fn settled(world: &World) {
    let reverted = world.status("demo")["reverted"].as_i64().unwrap_or(0);
    world.edit("v1", "configmaps", "map", json!({"data": {"key": "changed"}}));
    world.until("the ConfigMap is reverted", |w| w.data("map") == "1").await;
    world.ask("demo").await;
    world.until("nothing else was reverted", |w| w.status("demo")["reverted"] == reverted + 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_was_collected_does_not_run_again() {
    let mut world = with(&job("once", Some(0), None), 0).await;
    world.until("it is known", |w| w.status("demo")["objects"] == 2).await;
    world.until("it is collected", |w| migrate(w).is_none()).await;
    world.ready("demo").await;
    settled(&world).await;
    assert!(migrate(&world).is_none());
    let status = world.status("demo");
    assert_eq!((&status["reverted"], &status["healthy"]), (&json!(1), &json!(2)), "{status:#}");
    world.stop().await;
    world.start();
    settled(&world).await;
    world.remote.file("map.yaml", config_map("map", "1")).file("more.yaml", config_map("more", "1"));
    world.commit("demo", "more").await;
    assert!(migrate(&world).is_none(), "an agent that was restarted remembers it");
    assert_eq!((&world.status("demo")["reverted"], &world.status("demo")["healthy"]), (&json!(2), &json!(3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_failed_and_was_collected_stays_failed() {
    let mut world = with(&job("once", Some(0), None), 1).await;
    world.until("it is known", |w| w.status("demo")["objects"] == 2).await;
    world.until("it is collected", |w| migrate(w).is_none()).await;
    world.condition_is("demo", "Ready", "False ObjectFailed").await;
    world.stop().await;
    world.start();
    settled(&world).await;
    world.condition_is("demo", "Ready", "False ObjectFailed").await;
    assert!(migrate(&world).is_none());
    assert!(world.condition("demo", "Ready").contains("Job.batch mainstay-tests/migrate"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_content_runs_it_again() {
    let mut world = with(&job("once", None, None), 0).await;
    world.ready("demo").await;
    world.delete(BATCH, "jobs", "migrate");
    settled(&world).await;
    assert!(migrate(&world).is_none(), "it finished");
    world.remote.file("work.yaml", job("twice", None, None));
    world.commit("demo", "another command").await;
    assert_eq!(migrate(&world).unwrap()["spec"]["template"]["spec"]["containers"][0]["command"], json!(["twice"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finished_job_is_replaced_only_when_the_repository_asks_for_it() {
    let mut world = with(&job("once", None, None), 0).await;
    world.ready("demo").await;
    let first = world.uid(BATCH, "jobs", "migrate");
    world.remote.file("work.yaml", job("twice", None, None));
    world.try_commit("demo", "another command").await;
    world
        .until("that is refused", |w| w.failure("demo", "Job.batch mainstay-tests/migrate").starts_with("Immutable"))
        .await;
    assert!(world.failure("demo", "Job.batch mainstay-tests/migrate").contains("mainstay.dev/rerun"));
    assert_eq!(world.uid(BATCH, "jobs", "migrate"), first);
    world.remote.file("work.yaml", job("twice", None, Some("1")));
    world.commit("demo", "asked for").await;
    let second = world.uid(BATCH, "jobs", "migrate");
    assert_ne!(second, first);
    assert_eq!(migrate(&world).unwrap()["spec"]["template"]["spec"]["containers"][0]["command"], json!(["twice"]));
    world.remote.file("more.yaml", config_map("more", "1"));
    world.commit("demo", "something else").await;
    assert_eq!(world.uid(BATCH, "jobs", "migrate"), second, "once for each token");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_annotation_of_the_git_sync_runs_it_again() {
    let world = with(&job("once", None, None), 0).await;
    world.ready("demo").await;
    let first = world.uid(BATCH, "jobs", "migrate");
    let rerun = async |value: &str| {
        world.annotate_sync("demo", "mainstay.dev/rerun", value);
        world.until("it is answered", |w| w.status("demo")["lastHandledRerun"] == value).await;
    };
    rerun("migrate one").await;
    world.until("it runs again", |w| migrate(w).is_some_and(|job| job["metadata"]["uid"] != *first)).await;
    world.until("it finished", is_finished).await;
    world.ready("demo").await;
    world.delete(BATCH, "jobs", "migrate");
    settled(&world).await;
    assert!(migrate(&world).is_none(), "it finished");
    rerun("mainstay-tests/migrate two").await;
    world.until("it is created", |w| migrate(w).is_some()).await;
    world.until("it finished", is_finished).await;
    world.ready("demo").await;
    let third = world.uid(BATCH, "jobs", "migrate");
    let refused = |w: &World, why: &str| {
        let events = w.server.objects("v1", "events", Some("mainstay-tests"));
        events.iter().any(|e| e["reason"] == "AnnotationInvalid" && e["message"].to_string().contains(why))
    };
    rerun("nothing three").await;
    world.until("what names no Job is refused aloud", |w| refused(w, "manages no Job and no Pod")).await;
    world.edit(BATCH, "jobs", "migrate", json!({"metadata": {"annotations": {"mainstay.dev/reconcile": "disabled"}}}));
    rerun("migrate four").await;
    world.until("what is under break glass stays", |w| refused(w, "is paused")).await;
    assert_eq!(world.uid(BATCH, "jobs", "migrate"), third);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_ended_is_not_created_again_and_one_that_ran_is() {
    let pod = |name: &str, image: &str, restarts: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  restartPolicy: {restarts}\n  containers: \
             [{{name: main, image: '{image}'}}]\n"
        )
    };
    let both = format!("{}---\n{}", pod("ends", IMAGE, "Never"), pod("runs", "example.org/server:1", "Always"));
    let world = with(&both, 0).await;
    world
        .until("one ended", |w| w.get("v1", "pods", "ends").is_some_and(|pod| pod["status"]["phase"] == "Succeeded"))
        .await;
    world.ready("demo").await;
    let runs = world.uid("v1", "pods", "runs");
    world.delete("v1", "pods", "ends");
    world.until("it is gone", |w| w.get("v1", "pods", "ends").is_none()).await;
    settled(&world).await;
    assert!(world.get("v1", "pods", "ends").is_none());
    world.delete("v1", "pods", "runs");
    let again = |w: &World| w.get("v1", "pods", "runs").is_some_and(|pod| pod["metadata"]["uid"] != *runs);
    world.until("the other one is reverted", again).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_whose_owner_is_gone_is_created_again_rarely_and_says_why() {
    let owner = "  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: nobody, uid: 00000000-0000-4000-8000-000000000001}]";
    let owned = config_map("owned", "1").replace("metadata:\n", &format!("metadata:\n{owner}\n"));
    let owned = if owned.contains("ownerReferences") {
        owned
    } else {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: owned\n{owner}\ndata: {{key: '1'}}\n")
    };
    let world = with(&owned, 0).await;
    let says = |w: &World| {
        let ready = w.condition("demo", "Ready");
        ready.starts_with("False RevertFailed") && ready.contains("its owner ConfigMap nobody")
    };
    world.until("Ready names the owner", says).await;
    let reverted = world.status("demo")["reverted"].as_i64().unwrap();
    assert!(reverted <= 1, "{reverted}");
}
