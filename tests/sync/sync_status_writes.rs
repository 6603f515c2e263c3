//! The delay until a GitSync's status is current, the number of writes, and the history.

use std::time::{Duration, Instant};

use devcluster::fault_injection::Fault;
use serde_json::{Value, json};

use mainstay_testkit::program::Program;
use mainstay_testkit::world::{NAMESPACE, World, config_map, deployment, open_definition};

const WIDGETS: &str = "mainstay-tests.example.org/v1";

/// Returns the number of status writes so far.
fn writes(world: &World) -> u64 {
    let requests = world.requests().into_iter();
    requests.filter(|(what, _)| what == "patch gitsyncs.mainstay.dev/status").map(|(_, count)| count).sum()
}

/// Returns the time until two reverts, two commits and a failure are in the status.
async fn five_changes() -> Duration {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1"));
    world.remote.file("web.yaml", deployment("web", "nginx:1", 1)).commit("one");
    world.synced(json!({"drift": "Revert"})).await;
    let start = Instant::now();
    for (number, name) in ["a", "b"].into_iter().enumerate() {
        world.edit("v1", "configmaps", name, json!({"data": {"key": "changed"}}));
        let count = number + 1;
        world.until("the revert is in the status", |w| w.status("demo")["reverted"] == count).await;
    }
    // No sync is requested: such changes are reported as fast.
    let second = world.remote.file("a.yaml", config_map("a", "2")).commit("two");
    world.look();
    world.until("the commit is in the status", |w| w.status("demo")["appliedCommit"] == *second).await;
    world.remote.file("a.yaml", "kind: [").commit("broken");
    world.look();
    world.condition_is("demo", "Ready", "False ManifestInvalid").await;
    world.remote.file("a.yaml", config_map("a", "3")).commit("repaired");
    world.look();
    world.ready("demo").await;
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_readiness_failures_and_first_reverts_follow_each_other_without_waiting_for_counters() {
    // Each change once waited up to 5 s for the previous change.
    const FAST: Duration = Duration::from_secs(10);
    // A busy machine is slow sometimes; a wait is slow every time.
    let mut took = Vec::new();
    while took.len() < 3 && took.last().is_none_or(|last| *last >= FAST) {
        took.push(five_changes().await);
    }
    assert!(took.iter().any(|took| *took < FAST), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_an_edit_and_a_first_sync_cost_one_write_each() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    assert_eq!(writes(&world), 1, "objects that are healthy at once: {:?}", world.requests());
    world.remote.file("a.yaml", config_map("a", "2")).commit("two");
    world.look();
    world.ready("demo").await;
    assert_eq!(writes(&world), 2);
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("the revert is in the status", |w| w.status("demo")["reverted"] == 1).await;
    assert_eq!(writes(&world), 3);
    world.kill().await;
    world.start();
    world.ask("demo").await;
    assert_eq!(writes(&world), 4, "a new agent answers, and Ready stays as it was");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_attempt_shows_its_step_until_its_report() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).commit("one");
    world.synced(json!({})).await;
    let before = writes(&world);
    // The response is late, so that the attempt lasts several times longer than one that is not shown.
    let of_b = Fault { verb: "apply".into(), resource: "configmaps".into(), name: "b".into(), ..Fault::default() };
    world.levers().fail_next(Fault { delay_millis: 12_000, ..of_b });
    let second = world.remote.file("a.yaml", config_map("a", "2")).file("b.yaml", config_map("b", "2")).commit("two");
    world.look();
    let step = format!("True Progressing: applying 1 of 2 objects of commit {second}; running since ");
    world.until("the step is shown", |w| w.condition("demo", "Reconciling").starts_with(&step)).await;
    let ready = world.condition("demo", "Ready");
    assert!(ready.starts_with("True Applied: applied commit ") && !ready.contains(&second), "{ready}");
    let status = Program::of(&world).await.run(&["status", "demo", "-n", NAMESPACE]).await;
    assert!(status.1.contains("reconciling True, Progressing: applying 1 of 2 objects"), "{status:?}");
    world.until("it is applied", |w| w.status("demo")["appliedCommit"] == *second).await;
    world.condition_is("demo", "Reconciling", "False Applied").await;
    assert!(world.condition("demo", "Ready").contains(&second));
    assert!((2..=3).contains(&(writes(&world) - before)), "{} writes", writes(&world) - before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_sync_says_why_it_is_not_ready_yet() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    let of_a = Fault { resource: "configmaps".into(), name: "a".into(), ..Fault::default() };
    world.levers().fail_next(Fault { delay_millis: 12_000, ..of_a });
    world.sync("demo", json!({}));
    world.start();
    world.condition_is("demo", "Ready", "Unknown Progressing: applying 0 of 1 object of commit ").await;
    world.ready("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_becomes_healthy_and_unhealthy_all_the_time_costs_a_bounded_number_of_writes() {
    let mut world = World::new().await;
    let widget = "apiVersion: mainstay-tests.example.org/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3}\n";
    world.remote.file("a.yaml", widget).file("b.yaml", open_definition()).commit("one");
    world.synced(json!({})).await;
    let health = |world: &World, status: &str| {
        let ready = json!({"type": "Ready", "status": status, "reason": "Any", "message": ""});
        world.edit(WIDGETS, "widgets", "w", json!({"status": {"conditions": [ready]}}));
    };
    let (before, start) = (writes(&world), Instant::now());
    for round in 0..60 {
        health(&world, if round % 2 == 0 { "False" } else { "True" });
        // The pause between two changes is longer than the time for which the status writer collects changes.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (count, allowed) = (writes(&world) - before, 5 + start.elapsed().as_secs() + 1);
    assert!((2..=allowed).contains(&count), "{count} writes of {allowed}");
    health(&world, "False");
    world.condition_is("demo", "Ready", "Unknown Progressing").await;
    health(&world, "True");
    world.ready("demo").await;
}

/// Returns commit, subject, and numbers of created, changed, unchanged and pruned objects in `status.history`.
fn history(world: &World) -> Vec<(String, String, [i64; 4])> {
    let status = world.status("demo");
    let entries = status["history"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let numbers =
        |entry: &Value| ["created", "changed", "unchanged", "pruned"].map(|field| entry[field].as_i64().unwrap());
    entries.iter().map(|entry| (text(entry, "commit"), text(entry, "subject"), numbers(entry))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_has_the_last_five_commits_that_changed_the_directory() {
    let mut world = World::new().await;
    world.remote.file("app/a.yaml", config_map("a", "0")).file("app/b.yaml", config_map("b", "0"));
    let first = world.remote.commit("first: two objects");
    world.synced(json!({"baseDir": "/app"})).await;
    assert_eq!(history(&world), [(first.clone(), "first: two objects".to_owned(), [2, 0, 0, 0])]);
    let status = world.status("demo");
    assert_eq!(status["history"][0]["reference"], "refs/heads/main");

    world.remote.file("app/a.yaml", config_map("a", "1")).remove("app/b.yaml");
    let second = world.try_commit("demo", "change one, remove the other").await;
    world.until("the second is in the history", |w| history(w).len() == 2).await;
    let expected = (second, "change one, remove the other".to_owned(), [0, 1, 0, 1]);
    assert_eq!(history(&world), [expected, (first.clone(), "first: two objects".to_owned(), [2, 0, 0, 0])]);

    // A commit that changes only another directory adds no entry to the history, and neither does a restart.
    world.remote.file("elsewhere/c.yaml", config_map("c", "1"));
    world.try_commit("demo", "elsewhere").await;
    world.kill().await;
    world.start();
    for number in 2..7 {
        world.remote.file("app/a.yaml", config_map("a", &number.to_string()));
        world.try_commit("demo", &format!("number {number}")).await;
    }
    let subjects = |w: &World| history(w).into_iter().map(|(_, subject, _)| subject).collect::<Vec<_>>();
    let expected = (2..7).rev().map(|number| format!("number {number}")).collect::<Vec<_>>();
    world.until_or("the history has the last five", |w| subjects(w) == expected, || subjects(&world).join("\n")).await;
}

/// Returns the objects that the newest entry of `status.history` names, each with its change.
fn named(world: &World) -> Vec<String> {
    let status = world.status("demo");
    let objects = status["history"][0]["objects"].as_array().cloned().unwrap_or_default();
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
    objects.iter().map(|one| format!("{} {}", text(one, "change"), text(one, "object"))).collect()
}

/// Returns the change of an object in the namespace of the tests.
fn change_of(change: &str, kind: &str, name: &str) -> String {
    format!("{change} {kind} {NAMESPACE}/{name}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_names_exactly_the_objects_that_a_commit_changed() {
    let mut world = World::new().await;
    for name in ["kept", "old", "same"] {
        world.remote.file(&format!("{name}.yaml"), config_map(name, "0"));
    }
    world.remote.commit("one");
    world.synced(json!({})).await;
    assert_eq!(named(&world), ["kept", "old", "same"].map(|name| change_of("Created", "ConfigMap", name)));

    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {password: hunter2}\n";
    world.remote.file("login.yaml", secret).file("new.yaml", config_map("new", "0"));
    world.remote.file("kept.yaml", config_map("kept", "1")).remove("old.yaml");
    world.try_commit("demo", "two").await;
    world.until("the second is in the history", |w| history(w).len() == 2).await;
    let expected = [
        change_of("Created", "ConfigMap", "new"),
        change_of("Created", "Secret", "login"),
        change_of("Changed", "ConfigMap", "kept"),
        change_of("Pruned", "ConfigMap", "old"),
    ];
    assert_eq!(named(&world), expected);
    assert_eq!(history(&world)[0].2, [2, 1, 1, 1]);
    assert!(!world.status("demo").to_string().contains("hunter2"));

    // A comment changes a file and no object.
    world.remote.file("new.yaml", format!("# A comment.\n{}", config_map("new", "0")));
    world.try_commit("demo", "three").await;
    world.until("the third is in the history", |w| history(w).len() == 3).await;
    assert_eq!((named(&world), history(&world)[0].2), (Vec::new(), [0, 0, 4, 0]));

    // The next agent reads the earlier entries with their objects, and a revert writes no history.
    world.kill().await;
    world.start();
    world.remote.file("new.yaml", config_map("new", "1"));
    world.try_commit("demo", "four").await;
    world.until("the fourth is in the history", |w| history(w).len() == 4).await;
    assert_eq!(named(&world), [change_of("Changed", "ConfigMap", "new")]);
    let entries = world.status("demo")["history"].clone();
    assert_eq!(entries[2]["objects"].as_array().map(Vec::len), Some(4), "{entries}");
    world.edit("v1", "configmaps", "same", json!({"data": {"key": "edited"}}));
    world.until("the revert is in the status", |w| w.status("demo")["reverted"] == 1).await;
    assert_eq!(world.status("demo")["history"], entries);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_names_ten_of_5000_objects() {
    let mut world = World::new().await;
    world.patience *= 3;
    let maps: Vec<String> = (0..5000).map(|number| config_map(&format!("map-{number:04}"), "0")).collect();
    for (number, some) in maps.chunks(200).enumerate() {
        world.remote.file(&format!("maps-{number}.yaml"), some.join("---\n"));
    }
    world.remote.commit("one");
    world.synced(json!({})).await;
    let expected: Vec<String> =
        (0..10).map(|number| change_of("Created", "ConfigMap", &format!("map-000{number}"))).collect();
    assert_eq!(named(&world), expected);
    assert_eq!(history(&world)[0].2, [5000, 0, 0, 0]);
}
