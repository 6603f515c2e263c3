//! The number of failed deliveries, over processes that take an event and do not deliver it.

use std::time::Instant;

use async_nats::Subscriber as Requests;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::TryStreamExt as _;
use serde_json::json;

use super::super::election::Patience;
use super::super::memory::Size;
use super::elections::{answer_all, error, stream_of_numbers, subscribe, without_jetstream};
use super::requests::{Asked, Fake, client_of, mine};
use super::*;

/// An event for which numbers are read and stored.
const EVENT: (u64, Timestamp) = (1, Timestamp::UNIX_EPOCH);

/// Sends a marker after the requests of a store.
async fn mark(store: &JetStream, prefix: &str) {
    store.client().publish(format!("{prefix}.marker"), Bytes::new()).await.unwrap();
}

/// Returns the subjects of the requests between the next two markers.
async fn between(requests: &mut Requests) -> Vec<String> {
    let (mut markers, mut seen) = (0, Vec::new());
    while markers < 2 {
        let request = tokio::time::timeout(PATIENCE, requests.next()).await.expect("a marker").unwrap();
        if request.subject.ends_with(".marker") {
            markers += 1;
        } else if markers == 1 {
            seen.push(request.subject.to_string());
        }
    }
    seen
}

/// Waits until the client has received all messages that were sent to it.
async fn received(store: &Store) {
    let mut marker = client_of(store).subscribe("marker").await.unwrap();
    client_of(store).publish("marker", Bytes::new()).await.unwrap();
    tokio::time::timeout(PATIENCE, marker.next()).await.expect("the marker").unwrap();
}

/// Returns the number of messages that a process confirms as in progress.
fn in_progress(store: &Store) -> usize {
    let Store::JetStream(jetstream) = store else { panic!("another store") };
    jetstream.0.in_progress.count()
}

/// Returns a store that reads the number of failed deliveries of its first message, while a second one has arrived.
async fn reading() -> (Fake, Store, Source, Asked) {
    let (mut fake, store) = Fake::start().await;
    let mut source = store.deliverable(&mine());
    let asked = tokio::select! {
        _ = source.next(3) => panic!("there is no event"),
        asked = fake.request() => asked,
    };
    fake.message_again(&asked.inbox, 1).await;
    fake.message(&asked.inbox, 2, "").await;
    received(&store).await;
    assert!(source.next(3).now_or_never().is_none(), "the number is not read");
    (fake, store, source, asked)
}

#[tokio::test]
async fn an_event_that_is_returned_a_hundred_times_has_no_failed_delivery() {
    let server = Server::start().await;
    let (store, to) = (server.store(64 << 20).await, id("team", "my.own"));
    let mut source = store.deliverable(&to);
    publish(&store, 1, &to).await;
    for _ in 0..100 {
        let taken = next(&mut source).await;
        assert_eq!(taken.attempts, Some(0));
        store.release(&taken).await;
    }
    let context = server.nats().connect(false).await.unwrap().context;
    let stream = context.get_stream(Contents::Events.stream("team")).await.unwrap();
    let sent = stream.consumer_info(names::consumer(&to)).await.unwrap().delivered.consumer_sequence;
    assert!(sent >= 100, "the server has sent it {sent} times");
}

#[tokio::test]
async fn failed_deliveries_are_known_to_another_process() {
    let server = Server::start().await;
    let to = id("team", "mine");
    let first = server.store(64 << 20).await;
    publish(&first, 1, &to).await;
    let mut source = first.deliverable(&to);
    for failed in 0..3 {
        let mut taken = next(&mut source).await;
        assert_eq!(taken.attempts, Some(failed));
        taken.attempts = Some(failed + 1);
        first.tried(&taken, &to, Duration::from_millis(1)).await;
    }
    // The process ends before it asks the subscriber again.
    let taken = next(&mut source).await;
    first.release(&taken).await;
    source.release().await;
    let Store::JetStream(jetstream) = &first else { panic!("another store") };
    jetstream.flush().await.unwrap();
    let second = server.store(64 << 20).await;
    let again = next(&mut second.deliverable(&to)).await;
    assert_eq!((number(&second, &again).await, again.attempts), (1, Some(3)));
}

#[tokio::test]
async fn failed_deliveries_are_counted_again_after_a_different_program_has_deleted_their_stream() {
    let server = Server::start().await;
    let (store, to) = (server.store(64 << 20).await, id("team", "mine"));
    let mut source = store.deliverable(&to);
    publish(&store, 1, &to).await;
    let context = server.nats().connect(false).await.unwrap().context;
    for (round, expected) in [0, 0, 1].into_iter().enumerate() {
        let mut taken = next(&mut source).await;
        assert_eq!(taken.attempts, Some(expected));
        taken.attempts = Some(expected + 1);
        store.tried(&taken, &to, Duration::from_millis(1)).await;
        drop(taken);
        // Only the first number is lost.
        if round == 0 {
            context.delete_stream(names::ATTEMPTS).await.unwrap();
        }
    }
}

#[tokio::test]
async fn further_messages_are_in_progress_while_the_number_of_the_first_is_read() {
    let (mut fake, store, mut source, asked) = reading().await;
    assert_eq!(in_progress(&store), 2);
    fake.message(&asked.inbox, 3, "").await;
    received(&store).await;
    let _polled = source.next(3).now_or_never();
    assert_eq!(in_progress(&store), 3);
}

#[tokio::test]
async fn messages_that_have_arrived_are_dropped_with_the_connection() {
    let (mut fake, store, mut source, _) = reading().await;
    let mut losses = source.losses();
    fake.kill();
    tokio::time::timeout(PATIENCE, losses.changed()).await.expect("a loss").unwrap();
    let _polled = source.next(3).now_or_never();
    assert_eq!(in_progress(&store), 0);
}

#[tokio::test]
async fn no_number_is_read_soon_after_a_failed_read() {
    let (server, client) = without_jetstream().await;
    let store = server.jet_stream(64 << 20).await;
    let mut reads = subscribe(&client, "$JS.API.STREAM.MSG.GET.*").await;
    let answers = [error(500, 10039)];
    let read = |name: &'static str| {
        let store = store.clone();
        async move { store.attempts(&id("team", name), EVENT.0, EVENT.1).await }
    };
    tokio::select! {
        read = read("one") => assert_eq!(read, None),
        () = answer_all(&client, &mut reads, &answers) => panic!("the server has ended"),
    }
    mark(&store, "$JS.API.STREAM.MSG.GET").await;
    assert_eq!(read("other").await, None);
    mark(&store, "$JS.API.STREAM.MSG.GET").await;
    assert!(between(&mut reads).await.is_empty());
}

#[tokio::test]
async fn no_number_is_stored_soon_after_a_failed_write() {
    let (server, client) = without_jetstream().await;
    let store = server.jet_stream(64 << 20).await;
    let mut streams = subscribe(&client, "$JS.API.STREAM.INFO.*").await;
    let mut numbers = subscribe(&client, "mainstay.attempts.>").await;
    let (to, found, refused) = (mine(), [stream_of_numbers()], [error(500, 10077)]);
    tokio::select! {
        () = store.record_attempts(&to, EVENT, 1) => {}
        () = answer_all(&client, &mut streams, &found) => panic!("the server has ended"),
        () = answer_all(&client, &mut numbers, &refused) => panic!("the server has ended"),
    }
    mark(&store, "mainstay.attempts").await;
    store.record_attempts(&id("team", "other"), EVENT, 1).await;
    mark(&store, "mainstay.attempts").await;
    assert!(between(&mut numbers).await.is_empty());
}

#[tokio::test]
async fn a_number_that_could_not_be_read_is_not_replaced() {
    let server = Server::start().await;
    let (store, to) = (server.store(64 << 20).await, id("team", "mine"));
    let Store::JetStream(jetstream) = &store else { panic!("another store") };
    let mut source = store.deliverable(&to);
    publish(&store, 1, &to).await;
    let mut taken = next(&mut source).await;
    taken.attempts = Some(57);
    store.tried(&taken, &to, Duration::from_millis(1)).await;
    drop(taken);
    // No number is read in the next hour.
    jetstream.0.counting.reads.ended(false, Instant::now() + Duration::from_secs(3600));
    let unknown = next(&mut source).await;
    assert_eq!(unknown.attempts, None);
    store.tried(&unknown, &to, Duration::from_millis(1)).await;
    drop(unknown);
    jetstream.0.counting.reads.ended(true, Instant::now());
    assert_eq!(next(&mut source).await.attempts, Some(57));
}

#[tokio::test]
async fn the_stream_is_created_soon_after_an_election_that_was_too_long() {
    let (server, client) = without_jetstream().await;
    let store = server.jet_stream(64 << 20).await;
    let mut streams = subscribe(&client, "$JS.API.STREAM.INFO.*").await;
    let (subject, payload) = (names::attempts(&mine(), 1, 0), Bytes::from_static(b"1"));
    let electing = [error(503, 10008)];
    tokio::select! {
        written = store.write_attempts(&subject, &payload, Patience::of(Duration::from_secs(1))) => {
            written.unwrap_err();
        }
        () = answer_all(&client, &mut streams, &electing) => panic!("the server has ended"),
    }
    assert_eq!(store.0.counting.failure(Instant::now() + Duration::from_secs(10)), None);
}

#[tokio::test]
async fn a_stream_that_cannot_get_its_replicas_is_used_as_it_is() {
    let (server, client) = without_jetstream().await;
    let limits = Limits { share: 64 << 20, replicas: 3 };
    let store = JetStream::new(&server.nats(), limits).await.unwrap();
    let mut streams = subscribe(&client, "$JS.API.STREAM.INFO.*").await;
    let mut updates = subscribe(&client, "$JS.API.STREAM.UPDATE.*").await;
    let mut numbers = subscribe(&client, "mainstay.attempts.>").await;
    let (subject, payload) = (names::attempts(&mine(), 1, 0), Bytes::from_static(b"1"));
    let (found, refused) = ([stream_of_numbers()], [error(400, 10005)]);
    let stored = [json!({"stream": names::ATTEMPTS, "seq": 1})];
    tokio::select! {
        written = store.write_attempts(&subject, &payload, Patience::of(PATIENCE)) => written.unwrap(),
        () = answer_all(&client, &mut streams, &found) => panic!("the server has ended"),
        () = answer_all(&client, &mut updates, &refused) => panic!("the server has ended"),
        () = answer_all(&client, &mut numbers, &stored) => panic!("the server has ended"),
    }
    assert!(!store.0.counting.uncorrected(), "a warning was logged");
}

#[tokio::test]
async fn a_request_that_waits_for_memory_holds_up_no_other_while_a_number_is_read() {
    // The memory of one request.
    let (mut fake, store) = Fake::with_memory(17 << 10).await;
    let Store::JetStream(jetstream) = &store else { panic!("another store") };
    let grant = || jetstream.0.memory.share().grant(Size::Small, 1).now_or_never().unwrap();
    let all = grant();
    let mut source = store.deliverable(&mine());
    let sending = async {
        let inbox = fake.request().await.inbox;
        fake.message(&inbox, 1, "").await;
        inbox
    };
    let (first, inbox) = tokio::join!(next(&mut source), sending);
    assert!(source.next(1).now_or_never().is_none(), "the next request waits for memory");
    fake.message_again(&inbox, 2).await;
    received(&store).await;
    assert!(source.next(1).now_or_never().is_none(), "the number is not read");
    // The request gets the memory of the first message, and leaves the budget to others.
    drop(first);
    assert!(source.next(1).now_or_never().is_none(), "the number is not read");
    drop(all);
    assert_eq!(grant().limit(), Some(16 << 10));
}

#[tokio::test]
async fn a_stream_for_which_there_is_no_room_is_created_once_for_several_events() {
    let (server, client) = without_jetstream().await;
    let (store, to) = (server.jet_stream(64 << 20).await, mine());
    let mut requests = subscribe(&client, "$JS.API.STREAM.>").await;
    let answering = async {
        while let Some(request) = requests.next().await {
            let error = if request.subject.contains(".CREATE.") { error(500, 10047) } else { error(404, 10059) };
            client.publish(request.reply.unwrap(), error.to_string().into()).await.unwrap();
        }
    };
    tokio::select! {
        () = store.record_attempts(&to, EVENT, 1) => {}
        () = answering => panic!("the server has ended"),
    }
    mark(&store, "$JS.API.STREAM").await;
    for number in 2..=3 {
        // The pause after a failed write is over.
        store.0.counting.writes.ended(true, Instant::now());
        store.record_attempts(&to, (number, EVENT.1), 1).await;
    }
    mark(&store, "$JS.API.STREAM").await;
    assert!(between(&mut requests).await.is_empty());
}

#[tokio::test]
async fn changes_of_an_administrator_to_the_stream_are_kept() {
    let (server, event) = (Server::start().await, (1, Timestamp::now()));
    server.jet_stream(64 << 20).await.record_attempts(&mine(), event, 3).await;
    let context = server.nats().connect(false).await.unwrap().context;
    let found = context.get_stream(names::ATTEMPTS).await.unwrap().cached_info().config.clone();
    let description = Some("changed".to_owned());
    let changed = Config { max_bytes: 1 << 20, max_age: Duration::from_secs(3600), description, ..found };
    context.update_stream(&changed).await.unwrap();
    // A further process begins to count.
    let other = server.jet_stream(64 << 20).await;
    other.record_attempts(&mine(), event, 4).await;
    assert_eq!(other.attempts(&mine(), event.0, event.1).await, Some(4));
    let kept = context.get_stream(names::ATTEMPTS).await.unwrap().cached_info().config.clone();
    let of = |config: Config| (config.max_bytes, config.max_age, config.description);
    assert_eq!(of(kept), of(changed));
}

#[tokio::test]
async fn a_deleted_subscriber_leaves_no_number_of_failed_deliveries() {
    let server = Server::start().await;
    let (store, gone, stays) = (server.store(64 << 20).await, id("team", "my.gone"), id("team", "gone"));
    for to in [&gone, &stays] {
        publish(&store, 1, to).await;
        let mut taken = next(&mut store.deliverable(to)).await;
        taken.attempts = Some(1);
        store.tried(&taken, to, Duration::from_secs(60)).await;
    }
    let Store::JetStream(jetstream) = &store else { panic!("another store") };
    let exists = |_: SubscriberId| ready(Ok(false)).boxed();
    jetstream.sweep(&table(std::slice::from_ref(&stays)), &exists).await.unwrap();
    let stream = jetstream.0.context.get_stream(names::ATTEMPTS).await.unwrap();
    let all = stream.info_with_subjects(">").await.unwrap();
    let subjects: Vec<(String, usize)> = all.try_collect().await.unwrap();
    assert!(subjects.len() == 1 && subjects[0].0.ends_with(".trigger.gone"), "{subjects:?}");
}
