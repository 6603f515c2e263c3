//! The number of failed deliveries, over processes that take an event and do not deliver it.

use super::*;

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
