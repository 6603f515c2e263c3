//! Deliveries and statuses that fail, and their retries.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_deliveries_are_retried_and_refused_ones_are_dead_letters() {
    let events = Events::running().await;
    events.subscription("sub", &own_sink());
    events.subscription_is("sub", true).await;
    events.sink.seen.answers.lock().extend([500, 500]);
    assert_eq!(events.publish("again", TYPE, "1").await, 204);
    events.seen(3).await;
    assert_eq!(events.sink.headers("ce-id"), ["again"; 3]);
    let times: Vec<Instant> = events.sink.seen.calls.lock().iter().map(|call| call.at).collect();
    let gaps = (times[1] - times[0], times[2] - times[1]);
    let (second, two) = (Duration::from_millis(890), Duration::from_millis(1790));
    assert!(gaps.0 >= second && gaps.1 >= two, "{gaps:?}");

    events.sink.seen.answers.lock().push(400);
    assert_eq!(events.publish("refused", TYPE, "data").await, 204);
    let letters = || {
        let output = events.command(&["dead-letters", "--output", "json"]);
        serde_json::from_slice::<Vec<Value>>(&output.stdout).unwrap()
    };
    until("a dead letter is listed", || !letters().is_empty()).await;
    let all = letters();
    assert_eq!((all.len(), &all[0]["attributes"]["id"]), (1, &json!("refused")));
    let subscriber = format!("subscription/{NAMESPACE}/sub");
    assert_eq!((&all[0]["subscriber"], &all[0]["data"]), (&json!(subscriber), &json!("ZGF0YQ==")));
    assert_eq!(all[0]["reason"], "the subscriber has answered 400");
    assert_eq!(events.sink.count(), 4);
    let is_told = |w: &World| {
        let all = w.server.objects("v1", "events", Some(NAMESPACE));
        all.iter().any(|one| one["reason"] == "DeliveryFailed" && one["involvedObject"]["name"] == "sub")
    };
    events.world.until("an Event tells it", is_told).await;

    let replayed = events.command(&["replay", &subscriber]);
    assert_eq!(String::from_utf8(replayed.stdout).unwrap(), format!("1 delivered again to {subscriber}\n"));
    events.seen(5).await;
    assert_eq!(events.sink.headers("ce-id")[3..], ["refused", "refused"]);
    until("nothing is listed", || letters().is_empty()).await;
    let unknown = events.command(&["replay", "trigger/default/none"]);
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert!(unknown.status.code() == Some(2) && said.contains("there is no trigger/default/none"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_is_refused_is_tried_seldom_and_holds_up_no_other() {
    let events = Events::running().await;
    // This Subscription is the first in the order of writes.
    events.world.server.embedded().faults().fail_next(devcluster::fault_injection::Fault {
        resource: "subscriptions/status".into(),
        name: "a".into(),
        code: 403,
        message: "not today".into(),
        times: 1_000_000,
        ..Default::default()
    });
    let writes = || {
        let counts = events.world.server.embedded().faults().counts();
        let is_status = |resource: &str| resource.starts_with("subscriptions") && resource.ends_with("/status");
        let of_status = counts.iter().filter(|count| is_status(&count.resource));
        of_status.map(|count| count.count).sum::<u64>()
    };
    events.subscription("a", &own_sink());
    until("the first is tried", || writes() > 0).await;
    for name in ["b", "c", "d"] {
        events.subscription(name, &own_sink());
        events.subscription_is(name, true).await;
    }
    let begin = Instant::now();
    let before = writes();
    // Other changes do not cause a retry.
    for ready in (0..20).map(|number| number % 2 == 1) {
        let sink = if ready { own_sink() } else { "nowhere".to_owned() };
        events.world.edit(KYMA, "subscriptions", "b", json!({"spec": {"sink": sink}}));
        events.subscription_is("b", ready).await;
    }
    let refused = (writes() - before).saturating_sub(20);
    // At least 5 s between two attempts.
    let most = begin.elapsed().as_secs() / 5 + 1;
    assert!(refused <= most, "{refused} attempts within {:?}", begin.elapsed());
    events.world.server.embedded().faults().clear_faults();
    events.subscription_is("a", true).await;
}
