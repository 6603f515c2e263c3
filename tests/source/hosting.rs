//! Repository servers that are unavailable, are slow or lie; passwords; and missing branches.

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use devcluster::{Action, Call, fault_injection::Fault as Refusal, verbs::patch::Form};
use serde_json::{Value, json};

use mainstay_testkit::{
    git_server::{Fault, GitServer, On},
    remote::NAME,
    world::{NAMESPACE, World, config_map},
};

/// Returns a world whose repository is behind an HTTP server, with one applied commit.
async fn served(spec: Value) -> (World, GitServer) {
    let mut world = World::new().await;
    let server = GitServer::start(world.remote.root()).await;
    world.repository("web", &server.url(NAME));
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.deadlines.lookup = Duration::from_secs(3);
    world.deadlines.silence = Duration::from_secs(2);
    let mut whole = json!({"gitRepository": "web"});
    json_patch::merge(&mut whole, &spec);
    world.sync("demo", whole);
    (world, server)
}

fn password(world: &World, password: &str) -> Value {
    let body = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "git", "namespace": NAMESPACE},
        "data": {"username": BASE64_STANDARD.encode("robot"), "password": BASE64_STANDARD.encode(password)},
    });
    if world.get("v1", "secrets", "git").is_some() {
        return world.edit("v1", "secrets", "git", body);
    }
    world.create("v1", "secrets", NAMESPACE, body)
}

fn repository_uses(world: &World, spec: Value) {
    world.edit("serverless.kyma-project.io/v1alpha1", "gitrepositories", "web", json!({"spec": spec}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_another_git_repository_causes_no_lookup() {
    let (mut world, server) = served(json!({"interval": "1h"})).await;
    server.require("robot", "right-pass");
    world.start();
    world.condition_is("demo", "Ready", "False GitAuthorizationFailed").await;
    for _ in 0..4 {
        // There are so many failures that the next automatic retry is far away.
        world.ask("demo").await;
    }
    world.quiet().await;
    server.take_counts();
    for number in 0..3 {
        world.repository(&format!("other-{number}"), "https://git.example.com/other.git");
        world.quiet().await;
    }
    // This GitSync comes after the others, so they have been handled too.
    world.sync("last", json!({"gitRepository": "nowhere"}));
    world.until("the last one is told", |w| w.condition("last", "Ready").contains("nowhere")).await;
    assert_eq!(server.take_counts().requests, 0);
    assert_eq!(world.data("a"), "absent");
    password(&world, "right-pass");
    repository_uses(&world, json!({"auth": {"type": "basic", "secretName": "git"}}));
    world.until("the one that is its own counts at once", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_be_reached_is_named_and_a_corrected_address_works_at_once() {
    let (mut world, server) = served(json!({"interval": "1h"})).await;
    repository_uses(&world, json!({"url": "http://127.0.0.1:9/repo.git"}));
    world.start();
    world.condition_is("demo", "Ready", "False SourceUnavailable").await;
    assert!(world.condition("demo", "Ready").contains("127.0.0.1:9"), "{}", world.condition("demo", "Ready"));
    assert!(world.condition("demo", "Reconciling").starts_with("True"));
    assert!(world.condition("demo", "Stalled").starts_with("False"));
    repository_uses(&world, json!({"url": server.url(NAME)}));
    world.ready("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_object_does_not_cause_lookups_of_a_silent_remote() {
    let (mut world, server) = served(json!({"interval": "1h"})).await;
    let of_a = Refusal { verb: "apply".into(), resource: "configmaps".into(), name: "a".into(), ..Refusal::default() };
    world.levers().fail_next(Refusal { code: 403, reason: "Forbidden".into(), times: 1000, ..of_a });
    world.start();
    world.condition_is("demo", "Ready", "False ApplyFailed").await;
    server.fail(On::Everything, Fault::Status(503));
    server.forget_arrivals();
    // The failed object is due immediately, but cannot be retried while Git is unavailable.
    world.ask("demo").await;
    world.condition_is("demo", "Ready", "False SourceUnavailable").await;
    let asked_often = async {
        while server.arrivals().len() < 30 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(4), asked_often).await.is_err(), "30 requests within 4 s");
    world.levers().clear_faults();
    server.heal();
    world.ask("demo").await;
    world.ready("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_reported_and_the_corrected_secret_works_at_once() {
    let (mut world, server) = served(json!({"interval": "1h"})).await;
    server.require("robot", "right-pass");
    password(&world, "wrong-pass-tupelo");
    repository_uses(&world, json!({"auth": {"type": "basic", "secretName": "git"}}));
    world.start();
    world.condition_is("demo", "Ready", "False GitAuthorizationFailed").await;
    let said = world.condition("demo", "Ready");
    assert!(!said.contains("wrong-pass") && !said.contains("robot"), "{said}");
    assert_eq!(world.data("a"), "absent");
    password(&world, "right-pass");
    world.until("the object is applied", |w| w.data("a") == "1").await;
    world.ready("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_secret_is_named_and_works_once_it_is_there() {
    let (mut world, server) = served(json!({"interval": "1h"})).await;
    server.require("robot", "right-pass");
    repository_uses(&world, json!({"auth": {"type": "basic", "secretName": "git"}}));
    world.start();
    world.condition_is("demo", "Ready", "False SecretNotFound: Secret git ").await;
    password(&world, "right-pass");
    world.until("the object is applied", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forbidden_secret_is_not_reported_as_missing_and_works_once_it_may_be_read() {
    let (mut world, server) = served(json!({"interval": "1h"})).await;
    server.require("robot", "right-pass");
    password(&world, "right-pass");
    repository_uses(&world, json!({"auth": {"type": "basic", "secretName": "git"}}));
    world.fail_next("watch", "secrets", "", 403, 1000);
    world.fail_next("list", "secrets", "", 403, 1000);
    world.start();
    world.condition_is("demo", "Ready", "False SpecInvalid: Secret git with the credentials may not be read").await;
    world.levers().clear_faults();
    world.until("the object is applied", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalling_or_lying_server_does_not_change_applied_objects() {
    let (mut world, server) = served(json!({"interval": "1h"})).await;
    world.start();
    world.ready("demo").await;
    let first = world.remote.head();
    world.remote.file("a.yaml", config_map("a", "2")).file("b.yaml", config_map("b", "1")).commit("two");
    let faults = [
        (On::Everything, Fault::Stall),
        (On::Everything, Fault::Html),
        (On::Everything, Fault::Status(500)),
        (On::References, Fault::Answer(b"0000".to_vec())),
        (On::References, Fault::Truncate(30)),
        (On::Packs, Fault::Truncate(60)),
        (On::Packs, Fault::Scramble(7)),
        (On::Packs, Fault::Answer(b"PACK".to_vec())),
    ];
    for (on, fault) in faults {
        server.heal();
        server.fail(on, fault.clone());
        world.ask("demo").await;
        assert_eq!(world.status("demo")["appliedCommit"], *first, "{on:?} {fault:?}");
        assert_eq!((world.data("a"), world.data("b")), ("1".into(), "absent".into()), "{on:?} {fault:?}");
        let said = ["Reconciling", "Stalled"].map(|kind| world.condition("demo", kind));
        let named = |said: &String| said.starts_with("True Source") || said.starts_with("True GitAuthorizationFailed");
        assert!(said.iter().any(named), "{on:?} {fault:?}: {said:?}");
        world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
        world.until("what was applied is still enforced", |w| w.data("a") == "1").await;
    }
    server.heal();
    world.ask("demo").await;
    world.ready("demo").await;
    assert_eq!((world.data("a"), world.data("b")), ("2".into(), "1".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_agent_without_git_enforces_applied_objects() {
    let (mut world, server) = served(json!({"interval": "1h"})).await;
    world.start();
    world.ready("demo").await;
    world.kill().await;
    server.fail(On::Everything, Fault::Status(503));
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.start();
    world.until("reverted without Git", |w| w.data("a") == "1").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed again"}}));
    world.until("reverted again", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_branch_is_named_deletes_nothing_and_is_followed_once_it_is_there() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.sync("demo", json!({"reference": "release"}));
    world.start();
    world.condition_is("demo", "Ready", "False SourceInvalid").await;
    assert!(world.condition("demo", "Ready").contains("release"));
    assert!(world.condition("demo", "Stalled").starts_with("True"));
    world.remote.branch("release");
    world.ask("demo").await;
    world.ready("demo").await;
    world.remote.branch("main");
    world.remote.drop_branch("release");
    world.ask("demo").await;
    world.condition_is("demo", "Ready", "False SourceInvalid").await;
    assert_eq!(world.data("a"), "1");
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("what was applied is still enforced", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_git_repository_is_named_and_works_once_it_is_there() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.sync("demo", json!({"gitRepository": "later"}));
    world.start();
    world.condition_is("demo", "Ready", "False SourceNotFound: GitRepository later does not exist").await;
    world.repository("later", &world.remote.path().display().to_string());
    world.until("the object is applied", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_force_push_is_followed_back_and_forth() {
    let mut world = World::new().await;
    let first = world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    world.remote.file("a.yaml", config_map("a", "2")).file("b.yaml", config_map("b", "1"));
    world.commit("demo", "two").await;
    world.remote.force(&first);
    world.ask("demo").await;
    world.ready("demo").await;
    assert_eq!((world.data("a"), world.data("b")), ("1".into(), "absent".into()));
    world.remote.file("c.yaml", config_map("c", "1")).orphan("another history");
    world.ask("demo").await;
    world.ready("demo").await;
    assert_eq!(world.config_maps(), ["a", "c"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_not_answered_for_an_hour_shows_in_ready_and_what_was_applied_stays_enforced() {
    let (mut world, server) = served(json!({"interval": "1s"})).await;
    world.start();
    world.ready("demo").await;
    server.fail(On::Everything, Fault::Status(503));
    world.until("it is counted", |w| w.status("demo")["unreachableSince"].is_string()).await;
    assert!(world.condition("demo", "Ready").starts_with("True Applied"), "{}", world.condition("demo", "Ready"));
    world.stop().await;
    let since = (jiff::Timestamp::now() - Duration::from_secs(3600)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let patch = Action::Patch(Form::Merge, json!({"status": {"unreachableSince": since}}));
    let call = Call::new("mainstay.dev/v1alpha1", "gitsyncs", NAMESPACE, "demo", patch).on("status");
    world.try_as("test", call).unwrap();
    world.start();
    let said = format!("Unknown SourceUnavailable: the repository has not responded since {since}; commit ");
    world.condition_is("demo", "Ready", &said).await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("what was applied is still enforced", |w| w.data("a") == "1").await;
    server.heal();
    world.ready("demo").await;
    assert_eq!(world.status("demo")["unreachableSince"], serde_json::Value::Null);
}
