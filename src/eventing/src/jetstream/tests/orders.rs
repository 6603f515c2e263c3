//! Partitions: the order of the events of a source, and changes of the annotation.

use std::collections::BTreeMap;

use super::super::super::ordering::SourceDigest;
use super::*;

/// Publishes an event of a source, in order.
async fn publish_of(store: &Store, source: &str, number: usize, to: &SubscriberId, is_ordered: bool) {
    let mut routed = routed(number, "data", std::slice::from_ref(to));
    routed[0].event = routed[0].event.clone().with("source", source);
    routed[0].ordered = is_ordered.then(|| to.clone()).into_iter().collect();
    store.publish(routed, false).await.unwrap();
}

async fn source_and_number(store: &Store, taken: &Taken) -> (String, usize) {
    let event = store.read(taken).await.unwrap().unwrap().event;
    (event.attribute("source").unwrap().to_owned(), event.attribute("id").unwrap().parse().unwrap())
}

/// Two sources of different partitions.
const SOURCES: [&str; 2] = ["shop", "crm"];

#[tokio::test]
async fn a_retried_event_holds_its_partition_and_no_other_even_with_two_processes() {
    let [first, second] = SOURCES.map(|source| SourceDigest::of(source).partition());
    assert_ne!(first, second);
    let server = Server::start().await;
    let (stores, to) = ([server.store(64 << 20).await, server.store(64 << 20).await], id("team", "my.own"));
    let mut sources = stores.each_ref().map(|store| store.deliverable(&to));
    sources.iter_mut().for_each(Source::with_partitions);
    for number in 0..20 {
        for source in SOURCES {
            publish_of(&stores[0], source, number, &to, true).await;
        }
    }
    let mut seen: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut has_failed = false;
    while seen.values().map(Vec::len).sum::<usize>() < 40 {
        let [one, two] = &mut sources;
        let (mut taken, store) = tokio::select! {
            taken = next(one) => (taken, &stores[0]),
            taken = next(two) => (taken, &stores[1]),
        };
        let (source, number) = source_and_number(store, &taken).await;
        if source == SOURCES[0] && number == 5 && taken.attempts == Some(0) {
            has_failed = true;
            taken.attempts = Some(1);
            store.tried(&taken, &to, Duration::from_secs(1)).await;
            continue;
        }
        seen.entry(source).or_default().push(number);
        store.ended(&taken, &to).await;
    }
    assert!(has_failed);
    let expected: Vec<usize> = (0..20).collect();
    assert_eq!(seen, SOURCES.map(|source| (source.to_owned(), expected.clone())).into());
}

#[tokio::test]
async fn a_change_of_the_annotation_loses_no_event() {
    let server = Server::start().await;
    let (store, to) = (server.store(64 << 20).await, id("team", "mine"));
    let (mut number, mut seen) = (0, std::collections::BTreeSet::new());
    // Each change finds events that wait under the other order.
    for is_ordered in [false, true, false, true] {
        for _ in 0..3 {
            publish_of(&store, "shop", number, &to, is_ordered).await;
            number += 1;
        }
        let mut source = store.deliverable(&to);
        if is_ordered || source.was_partitioned().await {
            source.with_partitions();
        }
        let taken = next(&mut source).await;
        seen.insert(source_and_number(&store, &taken).await.1);
        store.ended(&taken, &to).await;
    }
    // A process that starts without the annotation delivers the rest.
    let mut source = store.deliverable(&to);
    assert!(source.was_partitioned().await);
    source.with_partitions();
    while seen.len() < number {
        let taken = next(&mut source).await;
        seen.insert(source_and_number(&store, &taken).await.1);
        store.ended(&taken, &to).await;
    }
    let Store::JetStream(jetstream) = &store else { panic!("another store") };
    let state =
        async || jetstream.0.context.get_stream("mainstay_events_team").await.unwrap().cached_info().state.clone();
    let empty = async {
        while state().await.messages > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, empty).await.expect("all acknowledgements arrive");
    // A deleted subscriber leaves nothing in its partitions.
    publish_of(&store, "shop", number, &to, true).await;
    let exists = |_| ready(Ok(false)).boxed();
    jetstream.sweep(&table(&[id("team", "other")]), &exists).await.unwrap();
    let left = state().await;
    assert_eq!((left.messages, left.consumer_count), (0, 0));
}
