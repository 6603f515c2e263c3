//! The number of failed deliveries, over processes that take an event and do not deliver it.

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::TryStreamExt as _;

use super::elections::{answer, error, subscribe, without_jetstream};
use super::requests::{Asked, Fake, client_of, mine};
use super::*;

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
        assert_eq!(taken.attempts, 0);
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
        assert_eq!(taken.attempts, failed);
        taken.attempts += 1;
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
    assert_eq!((number(&second, &again).await, again.attempts), (1, 3));
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
        assert_eq!(taken.attempts, expected);
        taken.attempts += 1;
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
    let read = |name: &'static str| {
        let store = store.clone();
        async move { store.attempts(&id("team", name), 1, Timestamp::UNIX_EPOCH).await }
    };
    let answers = [error(500, 10039)];
    assert_eq!(tokio::join!(read("one"), answer(&client, &mut reads, &answers)).0, 0);
    assert_eq!(read("other").await, 0);
    store.client().publish("$JS.API.STREAM.MSG.GET.marker", Bytes::new()).await.unwrap();
    let further = tokio::time::timeout(PATIENCE, reads.next()).await.expect("the marker").unwrap();
    assert_eq!(further.subject.as_str(), "$JS.API.STREAM.MSG.GET.marker");
}

#[tokio::test]
async fn a_stream_for_which_there_is_no_room_is_created_once_for_several_events() {
    let (server, client) = without_jetstream().await;
    let (store, to) = (server.jet_stream(64 << 20).await, mine());
    let mut requests = subscribe(&client, "$JS.API.STREAM.>").await;
    let mut seen = Vec::new();
    let answering = async {
        while let Some(request) = requests.next().await {
            let action = request.subject.split('.').nth(3).unwrap_or_default().to_owned();
            let error = if action == "CREATE" { error(500, 10047) } else { error(404, 10059) };
            seen.push(action);
            client.publish(request.reply.unwrap(), error.to_string().into()).await.unwrap();
        }
    };
    let recording = async {
        for number in 1..=3 {
            store.record_attempts(&to, (number, Timestamp::UNIX_EPOCH), 1).await;
        }
    };
    tokio::select! {
        () = recording => {}
        () = answering => panic!("the server has ended"),
    }
    assert_eq!(seen, ["INFO", "UPDATE", "CREATE"]);
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
    assert_eq!(other.attempts(&mine(), event.0, event.1).await, 4);
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
        taken.attempts += 1;
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
