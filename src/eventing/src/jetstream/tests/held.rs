//! Events that are held for long, and the memory for them.

use std::collections::HashSet;

use futures::StreamExt as _;
use futures::future::select_all;

use super::*;

#[tokio::test]
async fn an_event_that_is_held_for_longer_than_the_server_waits_is_delivered_once() {
    let server = Server::start().await;
    let (store, other, to) = (server.store(64 << 20).await, server.store(64 << 20).await, id("team", "mine"));
    let context = server.nats().connect(false).await.unwrap().context;
    let mut confirmations = context.client().subscribe("$JS.ACK.>").await.unwrap();
    publish(&store, 1, &to).await;
    let taken = next(&mut store.deliverable(&to)).await;
    // The fourth confirmation comes after more than 10 s.
    let confirmed = async {
        for _ in 0..4 {
            let confirmation = tokio::time::timeout(PATIENCE, confirmations.next()).await.expect("a confirmation");
            assert_eq!(confirmation.unwrap().payload, "+WPI");
        }
    };
    let mut elsewhere = other.deliverable(&to);
    tokio::select! {
        _ = elsewhere.next(1) => panic!("the event is held"),
        () = confirmed => {}
    }
    let stream = context.get_stream(Contents::Events.stream("team")).await.unwrap();
    let info = stream.consumer_info(names::consumer(&to)).await.unwrap();
    assert_eq!((info.num_redelivered, info.delivered.consumer_sequence, info.num_ack_pending), (0, 1, 1));
    store.ended(&taken, &to).await;
}

#[tokio::test]
async fn events_of_subscribers_that_do_not_respond_stay_within_the_memory_and_each_has_one() {
    const BUDGET: usize = 512 << 10;
    const SUBSCRIBERS: usize = 8;
    const EVENTS: usize = 6;
    let server = Server::start().await;
    let limits = Limits { share: 64 << 20, replicas: 1 };
    let connection = server.nats().connect(true).await.unwrap();
    let jetstream = JetStream::on(connection, Some(limits), HashSet::new(), BUDGET);
    let store = Store::JetStream(jetstream.clone());
    let ids: Vec<_> = (0..SUBSCRIBERS).map(|number| id("team", &format!("s{number}"))).collect();
    let large = "x".repeat(60_000);
    for number in 0..EVENTS {
        store.publish(routed(number, &large, &ids), false).await.unwrap();
    }
    let mut sources: Vec<_> = ids.iter().map(|to| store.deliverable(to)).collect();
    let (mut seen, mut taken) = ([0; SUBSCRIBERS], Vec::new());
    while seen.iter().sum::<usize>() < SUBSCRIBERS * EVENTS {
        let is_first = seen == [0; SUBSCRIBERS];
        let before = seen;
        // Each subscriber gets a further event, although none of the others responds.
        while (0..SUBSCRIBERS).any(|which| seen[which] == before[which] && seen[which] < EVENTS) {
            let all = sources.iter_mut().enumerate();
            let all = all.map(|(which, source)| async move { (which, source.next(18).await) }.boxed());
            let ((which, one), _, _) = tokio::time::timeout(PATIENCE, select_all(all)).await.expect("an event");
            seen[which] += 1;
            taken.push((which, one));
        }
        if is_first {
            let stream = jetstream.0.context.get_stream(Contents::Events.stream("team")).await.unwrap();
            let mut pending = 0;
            for to in &ids {
                pending += stream.consumer_info(names::consumer(to)).await.unwrap().num_ack_pending;
            }
            assert!(pending * large.len() <= BUDGET + SUBSCRIBERS * (64 << 10), "{pending} events are in memory");
        }
        for (which, one) in taken.drain(..) {
            store.ended(&one, &ids[which]).await;
        }
    }
}
