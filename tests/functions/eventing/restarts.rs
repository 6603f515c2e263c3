//! Accepted events survive the end of a process, and a change from the journal to NATS.

use std::collections::HashMap;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_events_are_delivered_by_the_next_process() {
    let mut events = Events::stopped().await;
    events.start().await;
    events.subscription("sub", &own_sink());
    events.subscription_is("sub", true).await;
    assert_eq!(events.publish("1", TYPE, "kept").await, 204);
    events.kill();
    events.sink.start().await;
    events.start().await;
    events.seen(1).await;
    assert_eq!(events.sink.bodies(), ["kept"]);
    // The new process knows delivered and published events.
    assert_eq!(events.publish("2", TYPE, "more").await, 204);
    events.seen(2).await;
    // Deliveries in progress are repeated after a kill, so the test waits until there are none.
    until("both are noted as delivered", || events.noted() == 2).await;
    events.kill();
    events.start().await;
    assert_eq!(events.publish("1", TYPE, "kept").await, 204);
    assert_eq!(events.publish("3", TYPE, "last").await, 204);
    events.seen(3).await;
    assert_eq!(events.sink.bodies(), ["kept", "more", "last"]);
}

/// Events without a ready subscriber, then a subscriber that stops midway, and a killed process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_events_survive_a_rolled_subscriber_and_a_killed_process() {
    const EVENTS: usize = 10_000;
    const PUBLISHERS: usize = 32;
    let mut events = Events::stopped().await;
    events.start().await;
    events.subscription("sub", &own_sink());
    events.subscription_is("sub", true).await;
    let idle = events.peak();
    let data = "x".repeat(1000);
    let began = Instant::now();
    let publishing = (0..PUBLISHERS).map(|publisher| {
        let (client, url, data) = (events.client.clone(), events.url("/publish"), data.clone());
        tokio::spawn(async move {
            for number in (publisher..EVENTS).step_by(PUBLISHERS) {
                let status = publish(&client, &url, &number.to_string(), TYPE, &data).await;
                assert_eq!(status.unwrap(), 204, "{number}");
            }
        })
    });
    for publisher in publishing.collect::<Vec<_>>() {
        publisher.await.unwrap();
    }
    let published = began.elapsed();
    let first = events.peak();
    events.sink.start().await;
    events.seen(EVENTS / 3).await;
    events.sink.stop().await;
    events.sink.start().await;
    events.seen(EVENTS * 2 / 3).await;
    events.kill();
    events.start().await;
    let ids = || {
        let mut counts: HashMap<String, usize> = HashMap::new();
        events.sink.headers("ce-id").into_iter().for_each(|id| *counts.entry(id).or_default() += 1);
        counts
    };
    until("every event is delivered", || events.sink.count() >= EVENTS && ids().len() == EVENTS).await;
    let second = events.peak();
    let twice = ids().values().filter(|count| **count > 1).count();
    println!(
        "{EVENTS} events of 1 kB: accepted in {published:?}, delivered twice: {twice}, peak memory: {} MiB before, then {} and {} MiB",
        idle >> 10,
        first >> 10,
        second >> 10
    );
    // At most the deliveries in progress when the subscriber and the process stopped.
    assert!(twice <= 2 * 10 + 32, "{twice} were delivered twice");
    // The 10 MB of data are on disk.
    let most = first.max(second);
    assert!(most < idle + (40 << 10), "{idle}, then {first} and {second} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_journal_are_delivered_after_a_change_to_nats() {
    let mut events = Events::stopped().await;
    events.nats = None;
    events.start().await;
    events.subscription("sub", &own_sink());
    events.subscription_is("sub", true).await;
    assert_eq!(events.publish("1", TYPE, "in the journal").await, 204);
    events.kill();
    events.nats = Some(NatsServers::one());
    events.start().await;
    assert_eq!(events.publish("2", TYPE, "on NATS").await, 204);
    events.sink.start().await;
    events.seen(2).await;
    let mut bodies = events.sink.bodies();
    bodies.sort();
    assert_eq!(bodies, ["in the journal", "on NATS"]);
}
