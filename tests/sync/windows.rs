//! Windows, schedules and temporary suspensions: the time when a commit is applied.

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use mainstay_engine::notification::Message;
use serde_json::{Value, json};

use mainstay_testkit::drift::{revert_of, synced};
use mainstay_testkit::world::{NAMESPACE, World, config_map};

const A: (&str, &str, &str) = ("v1", "configmaps", "a");

/// Returns a window that is always active.
fn closed() -> Value {
    json!([{"kind": "Deny", "schedule": "* * * * *", "duration": "1h"}])
}

/// Returns a window that is active now and ends after about this many seconds.
fn closed_for(seconds: i64) -> Value {
    let now = Timestamp::now();
    let clock = now.to_zoned(TimeZone::UTC);
    let duration = format!("{}s", i64::from(clock.second()) + seconds);
    json!([{"kind": "Deny", "schedule": format!("{} {} * * *", clock.minute(), clock.hour()), "duration": duration}])
}

fn changed() -> Value {
    json!({"data": {"key": "changed"}})
}

/// Waits for the next message that `pick` accepts.
async fn message<T>(world: &mut World, pick: impl Fn(Message) -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = pick(world.messages.recv().await.unwrap()) {
                return found;
            }
        }
    };
    tokio::time::timeout(mainstay_testkit::PATIENCE, found).await.expect("the message comes")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_waits_for_a_window_while_hand_edits_go_back() {
    let mut world = synced(&[("a.yaml", config_map("a", "1")), ("b.yaml", config_map("b", "1"))]).await;
    let first = world.remote.head();
    world.change("demo", json!({"windows": closed()})).await;
    world.condition_is("demo", "Frozen", "False WindowOpen").await;
    world.remote.file("a.yaml", config_map("a", "2")).remove("b.yaml").file("c.yaml", config_map("c", "2"));
    let second = world.try_commit("demo", "two").await;
    let status = world.status("demo");
    assert_eq!((&status["appliedCommit"], &status["attemptedCommit"]), (&json!(first), &json!(second)));
    assert_eq!(status["frozen"]["commit"], *second);
    let frozen = world.condition("demo", "Frozen");
    let expected = format!(
        "True WindowClosed: commit {second} is held back: the window Deny \"* * * * *\" for 1h (UTC) is active, \
         spec.windows never opens (correct it); `mainstay sync demo -n {NAMESPACE} --override-window` applies it now"
    );
    assert_eq!(frozen, expected);
    let ready = world.condition("demo", "Ready");
    assert!(
        ready.starts_with(&format!("True Applied: applied commit {first}; commit {second} is held back")),
        "{ready}"
    );
    assert_eq!((world.data("a"), world.data("b"), world.data("c")), ("1".into(), "1".into(), "absent".into()));

    world.edit(A.0, A.1, A.2, changed());
    assert_eq!(revert_of(&mut world, "a").await.1, ["data.key"]);
    assert_eq!(world.data("a"), "1", "as the commit before says");
    world.delete("v1", "configmaps", "b");
    world.until("what only the commit before has is back", |w| w.data("b") == "1").await;

    world.change("demo", json!({"windows": null})).await;
    world.ready("demo").await;
    assert_eq!((world.data("a"), world.data("b"), world.data("c")), ("2".into(), "absent".into(), "2".into()));
    world.until("nothing waits", |w| w.status("demo").get("frozen").is_none_or(Value::is_null)).await;
    world.condition_is("demo", "Frozen", "False WindowOpen").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_starts_in_a_closed_window_keeps_the_commit_before() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.change("demo", json!({"windows": closed()})).await;
    world.kill().await;
    world.edit(A.0, A.1, A.2, changed());
    world.remote.file("a.yaml", config_map("a", "2")).commit("two");
    world.start();
    world.until("the edit went back", |w| w.data("a") == "1").await;
    world.condition_is("demo", "Frozen", "True WindowClosed").await;
    world.edit(A.0, A.1, A.2, changed());
    world.until("and the next one too", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_commit_is_applied_by_itself_when_the_window_ends() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.change("demo", json!({"windows": closed_for(20)})).await;
    world.remote.file("a.yaml", config_map("a", "2"));
    let second = world.try_commit("demo", "two").await;
    let held = message(&mut world, |message| match message {
        Message::CommitHeld { commit, .. } => Some(commit),
        _ => None,
    });
    assert_eq!(held.await, second);
    let until = world.status("demo")["frozen"]["until"].as_str().unwrap().parse::<Timestamp>().unwrap();
    world.remote.file("a.yaml", config_map("a", "3")).commit("three, which nobody asks for");
    world.ready("demo").await;
    assert_eq!(world.data("a"), "3");
    assert!(Timestamp::now() >= until, "not before the window ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_override_is_for_one_commit_and_is_recorded() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.change("demo", json!({"windows": closed()})).await;
    world.remote.file("a.yaml", config_map("a", "2"));
    let second = world.try_commit("demo", "two").await;
    world.annotate_sync("demo", "mainstay.dev/override-window", &second);
    world.ready("demo").await;
    assert_eq!(world.data("a"), "2");
    let said = message(&mut world, |message| match message {
        Message::WindowOverridden { commit, window, who, .. } => Some((commit, window, who)),
        _ => None,
    })
    .await;
    let window = "the window Deny \"* * * * *\" for 1h (UTC) is active";
    assert_eq!(said, (second.clone(), window.to_owned(), "kubectl-edit".to_owned()));
    let events = |world: &World| world.server.objects("v1", "events", None);
    let is_told = |event: &Value| event["reason"] == "WindowOverridden";
    world.until("there is an Event", |w| events(w).iter().any(|event| is_told(event))).await;
    let told: Vec<_> = events(&world).into_iter().filter(|event| is_told(event)).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    let (about, text) = (
        &told[0]["involvedObject"],
        format!("commit {} is applied although {window}: requested by kubectl-edit", &second[..12]),
    );
    assert_eq!(
        (&about["kind"], &about["name"], &told[0]["type"]),
        (&json!("GitSync"), &json!("demo"), &json!("Warning"))
    );
    assert_eq!(told[0]["message"], text);
    let recorded = world.status("demo")["windowOverride"].clone();
    let expected = (json!(second), json!(window), json!("kubectl-edit"));
    assert_eq!((recorded["commit"].clone(), recorded["window"].clone(), recorded["who"].clone()), expected);
    world.remote.file("a.yaml", config_map("a", "3"));
    let third = world.try_commit("demo", "three").await;
    assert_eq!((world.data("a"), world.status("demo")["frozen"]["commit"].clone()), ("2".into(), json!(third)));
    assert_eq!(world.status("demo")["windowOverride"], recorded, "it stays recorded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_commit_waits_and_its_problems_are_reported_at_once() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", "a: [1\nb: 2\n").commit("one");
    world.sync("demo", json!({"windows": closed()}));
    world.start();
    world.condition_is("demo", "Ready", "False ManifestInvalid").await;
    world.remote.file("a.yaml", config_map("a", "1"));
    world.try_commit("demo", "two").await;
    world.condition_is("demo", "Ready", "False WindowClosed").await;
    assert_eq!(world.data("a"), "absent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_without_changes_does_not_wait() {
    let mut world = World::new().await;
    world.remote.file("web/a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({"baseDir": "/web"})).await;
    world.change("demo", json!({"windows": closed()})).await;
    world.remote.file("elsewhere.txt", "x");
    world.commit("demo", "two").await;
    assert!(world.status("demo").get("frozen").is_none_or(Value::is_null));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_window_holds_commits_back_and_is_reported() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    let wrong = json!([{"kind": "Allow", "schedule": "0 9 * * 1-5 2027", "duration": "8h"}]);
    world.change("demo", json!({"windows": wrong})).await;
    world.remote.file("a.yaml", config_map("a", "2"));
    world.try_commit("demo", "two").await;
    let ready = world.condition("demo", "Ready");
    let expected = "False SpecInvalid: spec.windows[0].schedule \"0 9 * * 1-5 2027\": it has 6 fields; write five: minute, \
                    hour, day of the month, month, day of the week";
    assert_eq!(ready, expected);
    assert!(world.condition("demo", "Stalled").starts_with("True SpecInvalid"));
    assert_eq!(world.data("a"), "1");
    world.edit(A.0, A.1, A.2, changed());
    world.until("what was applied is enforced", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduled_time_triggers_a_lookup() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.change("demo", json!({"schedule": "* * * * *"})).await;
    world.remote.file("a.yaml", config_map("a", "2")).commit("two");
    world.ready("demo").await;
    assert_eq!(world.data("a"), "2", "within a minute, although the interval is an hour");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspension_ends_by_itself() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    let until = Timestamp::now() + SignedDuration::from_secs(8);
    let text = until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    world.change("demo", json!({"suspendUntil": text})).await;
    let suspended = world.condition("demo", "Suspended");
    assert_eq!(
        suspended,
        format!("True Suspended: suspended until {text}: nothing is applied and nothing is reverted")
    );
    assert!(world.condition("demo", "Ready").starts_with("True Applied: "), "Ready stays as it was");
    world.edit(A.0, A.1, A.2, changed());
    world.remote.file("b.yaml", config_map("b", "1")).commit("two");
    world.until("both loops run again", |w| w.data("a") == "1" && w.data("b") == "1").await;
    assert!(Timestamp::now() + SignedDuration::from_secs(1) >= until, "not before the end");
    world.ready("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_user_who_says_to_override_a_window_is_recorded_as_no_more_than_that() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.change("demo", json!({"windows": closed()})).await;
    world.remote.file("a.yaml", config_map("a", "2"));
    let second = world.try_commit("demo", "two").await;
    let annotate = |world: &World, commit: &str, by: &str| {
        let annotations = json!({"mainstay.dev/override-window": commit, "mainstay.dev/override-window-by": by});
        let patch = json!({"metadata": {"annotations": annotations}});
        world.edit("mainstay.dev/v1alpha1", "gitsyncs", "demo", patch);
    };
    annotate(&world, &second, &format!("{second} alice@example.com\u{7}"));
    world.ready("demo").await;
    let recorded = |world: &World, field: &str| world.status("demo")["windowOverride"][field].clone();
    assert_eq!(recorded(&world, "claimedUser"), json!("alice@example.com"));
    assert_eq!(recorded(&world, "who"), json!("kubectl-edit"));
    // A claim about another commit does not apply to the third commit.
    world.remote.file("a.yaml", config_map("a", "3"));
    let third = world.try_commit("demo", "three").await;
    annotate(&world, &third, &format!("{second} alice@example.com"));
    world.ready("demo").await;
    assert_eq!((recorded(&world, "commit"), recorded(&world, "claimedUser")), (json!(third), json!(null)));
}
