//! The backward loop, end to end: persistent other writers, and failing servers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use devcluster::{Action, Call, Caller, fault_injection::Fault, verbs::patch::Form};
use mainstay_engine::notification::Message;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use mainstay_testkit::{
    drift::{fence, revert_of, synced},
    ownership::LABEL,
    server::TestServer,
    world::{NAMESPACE, World, config_map},
};

const A: (&str, &str, &str) = ("v1", "configmaps", "a");

/// Writes its own value every 10 ms until `stop` is set.
fn fight(server: &TestServer, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (server, stop) = (server.clone(), Arc::clone(stop));
    tokio::spawn(async move {
        let mut every = tokio::time::interval(Duration::from_millis(10));
        while !stop.load(Ordering::Relaxed) {
            every.tick().await;
            let theirs = Action::Patch(Form::Merge, json!({"data": {"key": "theirs"}}));
            // The object may be missing for a moment.
            let _ = server.call(&Caller::new("autopilot"), Call::new(A.0, A.1, NAMESPACE, A.2, theirs));
        }
    })
}

fn count(world: &World, what: &str) -> u64 {
    world.requests().iter().filter(|(asked, _)| asked == what).map(|(_, count)| *count).sum()
}

fn fault(verb: &str, resource: &str, name: &str, code: u16) -> Fault {
    Fault { verb: verb.into(), resource: resource.into(), name: name.into(), code, ..Fault::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fight_is_slowed_named_and_over_with_a_commit_that_changes_the_object() {
    let mut world = synced(&[("a.yaml", config_map("a", "1")), ("b.yaml", config_map("b", "1"))]).await;
    world.levers().reset_counts();
    let (stop, began) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let writer = fight(&world.server, &stop);
    world.condition_is("demo", "Contended", "True").await;
    let condition = world.condition("demo", "Contended");
    assert!(condition.contains("autopilot keeps writing to ConfigMap mainstay-tests/a: data.key"), "{condition}");
    // Other objects are not delayed.
    for _ in 0..3 {
        world.edit(A.0, A.1, "b", json!({"data": {"key": "changed"}}));
        let edited = Instant::now();
        revert_of(&mut world, "b").await;
        assert!(edited.elapsed() < Duration::from_secs(10), "{:?}", edited.elapsed());
    }
    // From the fifth revert on, the backoff doubles: 0.25 s, 0.5 s, 1 s … 16 reverts would take two minutes.
    let applies = count(&world, "apply configmaps");
    let most = 5.0 + (1.0 + began.elapsed().as_secs_f64() / 0.25).log2().ceil() + 1.0 + 3.0 + 2.0;
    assert!(applies as f64 <= most, "{applies} applies in {:?}", began.elapsed());
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    world.remote.file("a.yaml", config_map("a", "2"));
    world.commit("demo", "two").await;
    world.condition_is("demo", "Contended", "False").await;
    assert_eq!(world.data("a"), "2");
    let edited = Instant::now();
    world.edit(A.0, A.1, "a", json!({"data": {"key": "changed"}}));
    world.until("reverted at once", |w| w.data("a") == "2").await;
    assert!(edited.elapsed() < Duration::from_secs(10), "{:?}", edited.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_persistent_writer_is_reported_a_few_times_under_the_policy_report() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.change("demo", json!({"drift": "Report"})).await;
    let told = |world: &mut World| {
        let mut seen = 0;
        while let Ok(message) = world.messages.try_recv() {
            seen += u32::from(matches!(message, Message::DriftSeen { .. }));
        }
        seen
    };
    told(&mut world);
    world.levers().reset_counts();
    let began = Instant::now();
    let (mut writes, mut every) = (0, tokio::time::interval(Duration::from_millis(10)));
    while writes < 300 || !world.condition("demo", "Contended").starts_with("True") {
        assert!(began.elapsed() < world.patience, "{}", world.status("demo"));
        // Without its label, the object leaves the watch for a moment and has to be read. The object differs as before.
        let label = if writes % 2 == 0 { Value::Null } else { json!("mainstay-tests.demo") };
        let theirs = json!({"metadata": {"labels": {LABEL: label}}, "data": {"key": format!("theirs {writes}")}});
        let call = Call::new(A.0, A.1, NAMESPACE, A.2, Action::Patch(Form::Merge, theirs));
        world.try_as("autopilot", call).unwrap();
        writes += 1;
        every.tick().await;
    }
    let condition = world.condition("demo", "Contended");
    assert!(condition.contains("autopilot keeps writing to ConfigMap mainstay-tests/a: "), "{condition}");
    // As for reverts, the backoff doubles from the fifth attempt on. Each attempt is a dry run and is reported once.
    let (told, asked) = (told(&mut world), count(&world, "apply configmaps"));
    let most = 5.0 + (1.0 + began.elapsed().as_secs_f64() / 0.25).log2().ceil() + 1.0;
    assert!((5.0..=most).contains(&f64::from(told)), "{told} reports of {writes} writes in {:?}", began.elapsed());
    assert!(asked as f64 <= most + 1.0, "{asked} dry runs of {writes} writes in {:?}", began.elapsed());
    assert_eq!(world.data("a"), format!("theirs {}", writes - 1), "nothing is reverted");

    world.change("demo", json!({"drift": "Revert"})).await;
    world.until("what waited to be reported is reverted when it is to be", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_does_not_wait_for_a_fight() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = fight(&world.server, &stop);
    world.condition_is("demo", "Contended", "True").await;
    for n in 0..200 {
        world.remote.file(&format!("m{n}.yaml"), config_map(&format!("m{n}"), "1"));
    }
    let began = Instant::now();
    world.commit("demo", "many").await;
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    world.until("the last word is ours", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_of_the_api_server_is_honoured() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.levers().fail_next(Fault { retry_after: Some(7), ..fault("apply", "configmaps", "a", 429) });
    let edited = Instant::now();
    world.edit(A.0, A.1, A.2, json!({"data": {"key": "changed"}}));
    world.until("the failure is told", |w| w.status("demo").to_string().contains("RevertFailed")).await;
    // Further events do not shorten the wait.
    world.edit(A.0, A.1, A.2, json!({"data": {"key": "changed again"}}));
    revert_of(&mut world, "a").await;
    assert!(edited.elapsed() >= Duration::from_secs(7), "{:?}", edited.elapsed());
    world.until("the failure is over", |w| w.status("demo")["failed"] == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_revert_is_tried_again_and_shown_until_it_succeeds() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.levers().fail_next(Fault { times: 3, ..fault("apply", "configmaps", "a", 500) });
    world.edit(A.0, A.1, A.2, json!({"data": {"key": "changed"}}));
    world
        .until("the failure is shown", |w| w.failure("demo", "ConfigMap mainstay-tests/a").starts_with("RevertFailed"))
        .await;
    revert_of(&mut world, "a").await;
    world.until("the failure is over", |w| w.status("demo")["failed"] == 0 && w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revert_whose_answer_is_lost_is_confirmed_by_the_watch() {
    let world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.levers().fail_next(Fault { after: true, ..fault("apply", "configmaps", "a", 504) });
    world.edit(A.0, A.1, A.2, json!({"data": {"key": "changed"}}));
    world.until("it is reverted", |w| w.data("a") == "1").await;
    fence(&world).await;
    world.until("nothing has failed", |w| w.status("demo")["failed"] == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_first_revert_of_an_object_does_not_wait_for_the_five_seconds_between_two_statuses() {
    let mut world = synced(&[("a.yaml", config_map("a", "1")), ("b.yaml", config_map("b", "1"))]).await;
    let (began, before) = (Instant::now(), count(&world, "patch gitsyncs.mainstay.dev/status"));
    let mut reverts = 0;
    for _ in 0..4 {
        for name in ["a", "b"] {
            world.edit(A.0, A.1, name, json!({"data": {"key": "changed"}}));
            revert_of(&mut world, name).await;
            reverts += 1;
        }
    }
    world.until("all are counted", |w| w.status("demo")["reverted"] == reverts).await;
    let writes = count(&world, "patch gitsyncs.mainstay.dev/status") - before;
    let most = 2 + began.elapsed().as_secs() / 5;
    assert!((1..=most).contains(&writes), "{writes} in {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_agent_sends_no_request() {
    let world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    // The last Events and the status may still be pending.
    fence(&world).await;
    world.until("the status is written", |w| w.status("demo")["reverted"] == 2).await;
    let mut last = (world.requests(), Instant::now());
    let quiet = std::cell::RefCell::new(&mut last);
    world
        .until("three seconds without a request", |w| {
            let mut quiet = quiet.borrow_mut();
            let now = w.requests();
            if now != quiet.0 {
                **quiet = (now, Instant::now());
            }
            quiet.1.elapsed() > Duration::from_secs(3)
        })
        .await;
    // Status changes and additions of other clients cause no requests, either.
    let before = world.requests();
    let theirs: Value = json!({"metadata": {"annotations": {"note": "x"}}});
    world.edit(A.0, A.1, A.2, theirs);
    let began = Instant::now();
    world.until("two more seconds", |_| began.elapsed() > Duration::from_secs(2)).await;
    assert_eq!(world.requests(), before);
}
