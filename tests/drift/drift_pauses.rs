//! The backward loop, end to end: pauses, policies and suspension.

use devcluster::verbs::patch::Form;
use jiff::{Timestamp, ToSpan};
use mainstay_engine::notification::{Message, Severity};
use serde_json::{Value, json};

use mainstay_testkit::{
    drift::{fence, patch_as, revert_of, synced},
    world::{NAMESPACE, World, config_map},
};

const A: (&str, &str, &str) = ("v1", "configmaps", "a");

fn glass(until: Option<&str>) -> Value {
    json!({"metadata": {"annotations": {"mainstay.dev/reconcile": "disabled", "mainstay.dev/until": until}}})
}

fn over() -> Value {
    json!({"metadata": {"annotations": {"mainstay.dev/reconcile": null, "mainstay.dev/until": null}}})
}

fn changed() -> Value {
    json!({"data": {"key": "changed"}})
}

async fn drift_seen(world: &mut World) -> Vec<String> {
    let seen = async {
        loop {
            if let Message::DriftSeen { fields, .. } = world.messages.recv().await.unwrap() {
                return fields;
            }
        }
    };
    tokio::time::timeout(mainstay_testkit::PATIENCE, seen).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_break_glass_an_object_is_left_alone_until_the_annotation_goes() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.edit(A.0, A.1, A.2, glass(None));
    world.edit(A.0, A.1, A.2, changed());
    fence(&world).await;
    assert_eq!(world.data("a"), "changed");
    world
        .until("the status shows it", |w| {
            w.status("demo")["paused"] == json!([{"object": "ConfigMap mainstay-tests/a"}])
        })
        .await;
    world.edit(A.0, A.1, A.2, over());
    assert_eq!(revert_of(&mut world, "a").await.1, ["data.key"]);
    world.until("the status shows nothing", |w| w.status("demo").get("paused").is_none_or(Value::is_null)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_reaches_an_object_under_break_glass_when_that_is_over() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.edit(A.0, A.1, A.2, glass(None));
    fence(&world).await;
    world.remote.file("a.yaml", config_map("a", "2"));
    world.commit("demo", "two").await;
    assert_eq!(world.data("a"), "1");
    world.edit(A.0, A.1, A.2, over());
    world.until("the commit has reached it", |w| w.data("a") == "2").await;
    // The agent enforces the new state without a further write of the object.
    world.until("it is in the inventory", |w| w.status("demo").get("paused").is_none_or(Value::is_null)).await;
    world.edit(A.0, A.1, A.2, changed());
    world.until("reverted to the new state", |w| w.data("a") == "2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_glass_outlasts_that_the_object_leaves_the_repository_and_comes_back() {
    let mut world = synced(&[("a.yaml", config_map("a", "1")), ("b.yaml", config_map("b", "1"))]).await;
    world.change("demo", json!({"prune": false})).await;
    world.remote.remove("a.yaml");
    world.try_commit("demo", "a leaves, and is kept").await;
    world.edit(A.0, A.1, A.2, glass(None));
    world.edit(A.0, A.1, A.2, changed());
    fence(&world).await;
    world.remote.file("a.yaml", config_map("a", "2"));
    world.try_commit("demo", "a is back").await;
    assert_eq!(world.data("a"), "changed");
    world.edit(A.0, A.1, A.2, over());
    world.until("the commit has reached it", |w| w.data("a") == "2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn break_glass_ends_by_itself_at_its_time_and_an_unreadable_time_keeps_it_on() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.edit(A.0, A.1, A.2, glass(Some("tomorrow, perhaps")));
    world.edit(A.0, A.1, A.2, changed());
    fence(&world).await;
    assert_eq!(world.data("a"), "changed");
    let past = (Timestamp::now() - 1.hour()).to_string();
    world.edit(A.0, A.1, A.2, glass(Some(&past)));
    assert_eq!(revert_of(&mut world, "a").await.1, ["data.key"]);
    let soon = Timestamp::now() + 2.seconds();
    world.edit(A.0, A.1, A.2, glass(Some(&soon.to_string())));
    world.edit(A.0, A.1, A.2, changed());
    assert_eq!(revert_of(&mut world, "a").await.1, ["data.key"]);
    assert!(Timestamp::now() >= soon);
    assert_eq!(world.data("a"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_under_break_glass_that_lost_its_label_is_still_seen() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.edit(A.0, A.1, A.2, glass(None));
    fence(&world).await;
    let unlabelled = json!({"metadata": {"labels": {"mainstay.dev/sync": null}}, "data": {"key": "changed"}});
    world.edit(A.0, A.1, A.2, unlabelled);
    fence(&world).await;
    assert_eq!(world.data("a"), "changed");
    // An agent that did not see the change finds the object, too.
    world.stop().await;
    world.start();
    fence(&world).await;
    assert_eq!(world.data("a"), "changed");
    world.edit(A.0, A.1, A.2, over());
    world.until("it is kept again", |w| w.data("a") == "1").await;
    assert_eq!(world.get(A.0, A.1, A.2).unwrap()["metadata"]["labels"]["mainstay.dev/sync"], "mainstay-tests.demo");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn label_and_break_glass_may_go_in_one_write() {
    let world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.edit(A.0, A.1, A.2, glass(None));
    world.edit(A.0, A.1, A.2, changed());
    fence(&world).await;
    let mut both = over();
    both["metadata"]["labels"] = json!({"mainstay.dev/sync": null});
    world.edit(A.0, A.1, A.2, both);
    world.until("it is kept again", |w| w.data("a") == "1").await;
    let paused = |w: &World| w.status("demo")["paused"].clone();
    world.until("nothing is paused", |w| paused(w).is_null()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_deleted_under_break_glass_is_created_again() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.edit(A.0, A.1, A.2, glass(None));
    fence(&world).await;
    world.delete(A.0, A.1, A.2);
    assert_eq!(revert_of(&mut world, "a").await.1, ["(object)"]);
    world.edit(A.0, A.1, A.2, changed());
    world.until("it is kept", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reported_drift_is_emitted_once_and_stays() {
    let mut world = synced(&[("a.yaml", config_map("a", "1")), ("b.yaml", config_map("b", "1"))]).await;
    world.change("demo", json!({"drift": "Report"})).await;
    world.edit(A.0, A.1, A.2, changed());
    assert_eq!(drift_seen(&mut world).await, ["data.key"]);
    // Later additions of other clients are not further drift.
    world.edit(A.0, A.1, A.2, json!({"data": {"theirs": "x"}}));
    world.delete(A.0, A.1, "b");
    assert_eq!(drift_seen(&mut world).await, ["(object)"]);
    assert_eq!((world.data("a"), world.data("b")), ("changed".to_owned(), "absent".to_owned()));
    // A commit still applies its changes.
    world.remote.file("a.yaml", config_map("a", "2"));
    world.commit("demo", "two").await;
    assert_eq!((world.data("a"), world.data("b")), ("2".to_owned(), "absent".to_owned()));
    world.change("demo", json!({"drift": "Revert"})).await;
    world.until("what was only reported is reverted", |w| w.data("b") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reported_drift_is_reported_again_after_a_pause() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.change("demo", json!({"drift": "Report"})).await;
    let reason = |w: &World| w.status("demo")["drifted"][0]["reason"].clone();
    world.edit(A.0, A.1, A.2, changed());
    assert_eq!(drift_seen(&mut world).await, ["data.key"]);
    world.until("the status has the drift", |w| reason(w) == "Report").await;
    world.edit(A.0, A.1, A.2, glass(None));
    world.until("the object is paused", |w| reason(w) == "Paused").await;
    world.edit(A.0, A.1, A.2, over());
    assert_eq!(drift_seen(&mut world).await, ["data.key"]);
    world.until("the status has the drift again", |w| reason(w) == "Report" && !is_paused(w)).await;
}

fn is_paused(world: &World) -> bool {
    world.status("demo")["paused"].as_array().is_some_and(|paused| !paused.is_empty())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_ends_at_its_time_if_drift_is_reported_or_ignored() {
    for drift in ["Report", "Ignore"] {
        let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
        world.change("demo", json!({"drift": drift})).await;
        world.edit(A.0, A.1, A.2, glass(None));
        world.edit(A.0, A.1, A.2, changed());
        world.until("the object is paused", is_paused).await;
        let soon = Timestamp::now() + 2.seconds();
        world.edit(A.0, A.1, A.2, glass(Some(&soon.to_string())));
        world.until("the pause is over", |w| !is_paused(w)).await;
        assert!(Timestamp::now() >= soon, "{drift}");
        assert_eq!(world.data("a"), "changed", "{drift}");
        let newest = |w: &World| w.status("demo")["lastDecisions"].clone();
        let has_resumed = |w: &World| newest(w).to_string().contains("Resumed");
        world.until("the end of the pause is recorded", has_resumed).await;
        world.remote.file("a.yaml", config_map("a", "2"));
        world.try_commit("demo", "two").await;
        world.until("the commit is applied", |w| w.data("a") == "2").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pause_of_a_deleted_object_ends_and_its_absence_is_ignored() {
    let world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.change("demo", json!({"drift": "Ignore"})).await;
    world.edit(A.0, A.1, A.2, glass(None));
    world.until("the object is paused", is_paused).await;
    world.delete(A.0, A.1, A.2);
    world.until("the pause is over", |w| !is_paused(w)).await;
    world.ask("demo").await;
    assert_eq!(world.data("a"), "absent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_is_reverted_when_it_is_no_longer_ignored() {
    let world = synced(&[("a.yaml", config_map("a", "1")), ("b.yaml", config_map("b", "1"))]).await;
    world.change("demo", json!({"drift": "Ignore"})).await;
    world.edit(A.0, A.1, A.2, changed());
    world.delete(A.0, A.1, "b");
    world.ask("demo").await;
    assert_eq!((world.data("a"), world.data("b")), ("changed".to_owned(), "absent".to_owned()));
    world.change("demo", json!({"drift": "Revert"})).await;
    world.until("both are back", |w| w.data("a") == "1" && w.data("b") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspension_stops_both_loops_and_its_end_catches_up() {
    let mut world = synced(&[("a.yaml", config_map("a", "1")), ("b.yaml", config_map("b", "1"))]).await;
    world.change("demo", json!({"suspend": true})).await;
    world.condition_is("demo", "Suspended", "True Suspended").await;
    world.edit(A.0, A.1, A.2, changed());
    world.delete(A.0, A.1, "b");
    world.remote.file("c.yaml", config_map("c", "1")).commit("one more");
    world.ask("demo").await;
    assert_eq!(
        (world.data("a"), world.data("b"), world.data("c")),
        ("changed".into(), "absent".into(), "absent".into())
    );
    world.change("demo", json!({"suspend": false})).await;
    world.until("all is as committed", |w| ["a", "b", "c"].iter().all(|name| w.data(name) == "1")).await;
    world.ready("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspension_reaches_a_revert_that_waits_out_a_fight() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    for round in 0..5 {
        patch_as(&world, "other", A, Form::Merge, json!({"data": {"key": format!("theirs {round}")}}));
        revert_of(&mut world, "a").await;
    }
    // Enough reverts to cause a backoff, which ends long after the suspension.
    for round in 5..8 {
        patch_as(&world, "other", A, Form::Merge, json!({"data": {"key": format!("theirs {round}")}}));
        revert_of(&mut world, "a").await;
    }
    world.edit(A.0, A.1, A.2, changed());
    world.change("demo", json!({"suspend": true})).await;
    let began = std::time::Instant::now();
    world.until("the wait would be over", |_| began.elapsed().as_secs() >= 3).await;
    assert_eq!(world.data("a"), "changed");
}

const SYNC: (&str, &str, &str) = ("mainstay.dev/v1alpha1", "gitsyncs", "demo");
const REPOSITORY: (&str, &str, &str) = ("serverless.kyma-project.io/v1alpha1", "gitrepositories", "repo");

fn own_sync(reference: &str, team: &str) -> String {
    json!({
        "apiVersion": SYNC.0, "kind": "GitSync", "metadata": {"name": "demo", "labels": {"team": team}},
        "spec": {"gitRepository": "repo", "interval": "1h", "reference": reference},
    })
    .to_string()
}

fn own_repository(url: &str) -> String {
    json!({"apiVersion": REPOSITORY.0, "kind": "GitRepository", "metadata": {"name": "repo"}, "spec": {"url": url}})
        .to_string()
}

fn spec(world: &World, of: (&str, &str, &str), field: &str) -> Value {
    world.get(of.0, of.1, of.2).unwrap()["spec"][field].clone()
}

/// Waits until the agent has handled all events: it answers a request and reverts a hand edit.
async fn settled(world: &World) {
    world.ask("demo").await;
    fence(world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_cannot_read_lets_itself_be_repaired() {
    let mut world = synced(&[("own.yaml", own_sync("main", "red"))]).await;
    world.remote.file("own.yaml", own_sync("wrong", "red")).commit("a mistake");
    world.request("demo");
    world.until("it cannot read", |w| w.condition("demo", "Ready").contains("wrong")).await;
    let said = world.condition("demo", "Ready");
    let advice = "this GitSync manages GitSync.mainstay.dev mainstay-tests/demo itself: correct it with kubectl";
    assert!(said.starts_with("False") && said.contains(advice), "{said}");
    let unread = |w: &World| w.status("demo")["unread"][0]["object"].clone();
    assert_eq!(unread(&world), "GitSync.mainstay.dev mainstay-tests/demo");
    world.edit(SYNC.0, SYNC.1, SYNC.2, json!({"spec": {"reference": "main"}}));
    world.ready("demo").await;
    // The newest commit still differs, and so does the state that the next agent reads.
    settled(&world).await;
    assert_eq!(spec(&world, SYNC, "reference"), "main");
    world.stop().await;
    world.start();
    settled(&world).await;
    assert_eq!(spec(&world, SYNC, "reference"), "main");
    assert_eq!(unread(&world), "GitSync.mainstay.dev mainstay-tests/demo");
    world.remote.file("own.yaml", own_sync("main", "blue"));
    world.commit("demo", "it is right again").await;
    world.until("it is kept like any other object", |w| unread(w).is_null()).await;
    world.edit(SYNC.0, SYNC.1, SYNC.2, json!({"metadata": {"labels": {"team": "green"}}}));
    let team = |w: &World| w.get(SYNC.0, SYNC.1, SYNC.2).unwrap()["metadata"]["labels"]["team"].clone();
    world.until("its label is reverted", |w| team(w) == "blue").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_repository_that_cannot_be_read_lets_itself_be_repaired() {
    let mut world = World::new().await;
    let url = world.remote.path().display().to_string();
    world.remote.file("fence.yaml", config_map("fence", "1")).file("repo.yaml", own_repository(&url)).commit("one");
    world.synced(json!({})).await;
    world.remote.file("repo.yaml", own_repository("/nowhere/at/all")).commit("a mistake");
    world.request("demo");
    let unread = |w: &World| w.status("demo")["unread"][0]["object"].clone();
    let object = format!("GitRepository.serverless.kyma-project.io {NAMESPACE}/repo");
    world.until("it cannot read", |w| unread(w) == *object).await;
    world.edit(REPOSITORY.0, REPOSITORY.1, REPOSITORY.2, json!({"spec": {"url": url}}));
    world.ready("demo").await;
    settled(&world).await;
    assert_eq!(spec(&world, REPOSITORY, "url"), url);
    world.remote.file("repo.yaml", own_repository(&url));
    world.commit("demo", "it is right again").await;
    world.until("it is kept like any other object", |w| unread(w).is_null()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_readable_reference_is_reverted() {
    let mut world = synced(&[("own.yaml", own_sync("main", "red"))]).await;
    world.remote.branch("release").file("other.yaml", config_map("other", "1")).commit("elsewhere");
    world.remote.branch("main");
    for reference in ["release", "nonsense"] {
        world.edit(SYNC.0, SYNC.1, SYNC.2, json!({"spec": {"reference": reference}}));
        world.until("it is reverted", |w| spec(w, SYNC, "reference") == "main").await;
    }
    world.ready("demo").await;
    world.until("nothing is left as it is", |w| w.status("demo")["unread"].is_null()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_whose_end_is_no_time_lasts_and_is_reported() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.edit(A.0, A.1, A.2, glass(Some("tomorrow")));
    let told = async {
        loop {
            let message = world.messages.recv().await.unwrap();
            if matches!(message, Message::Paused { .. }) {
                return message.describe();
            }
        }
    };
    let told = tokio::time::timeout(mainstay_testkit::PATIENCE, told).await.unwrap();
    assert_eq!(told.severity, Severity::Warning);
    assert!(told.text.contains("mainstay.dev/until is not a time such as 2026-01-31T18:00:00Z"), "{}", told.text);
    let problem = |w: &World| w.status("demo")["paused"][0]["problem"].as_str().map(str::to_owned);
    world.until("the status tells it", |w| problem(w).is_some_and(|text| text.contains("is not a time"))).await;
    world.edit(A.0, A.1, A.2, glass(Some("2999-01-01T00:00:00Z")));
    world.until("the status shows the end", |w| w.status("demo")["paused"][0]["until"].is_string()).await;
    assert_eq!(problem(&world), None);
}
