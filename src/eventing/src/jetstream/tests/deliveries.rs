//! The task of a subscriber, with an HTTP server as the subscriber. A test decides how requests for messages are
//! answered.

use std::net::SocketAddr;

use async_nats::{Subject, Subscriber as Incoming};
use bytes::Bytes;
use futures::StreamExt as _;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::super::super::attempt::Delivery;
use super::super::super::metrics::Metrics;
use super::super::super::send::{Resolve, Sender};
use super::super::super::trigger::Trigger;
use super::super::super::work::{Work, work};
use super::elections::subscribe;
use super::requests::{Asked, Fake, acknowledgement, client_of, mine};
use super::*;

/// A task that delivers to a server.
struct Worker {
    fake: Fake,
    store: Store,
    sink: tokio::net::TcpListener,
    acknowledgements: Incoming,
    stop: CancellationToken,
    working: JoinHandle<()>,
    _subscriber: watch::Sender<Arc<Subscriber>>,
}

impl Worker {
    async fn start(in_flight: usize) -> Self {
        let (fake, store) = Fake::start().await;
        let acknowledgements = subscribe(&fake.client, "$JS.ACK.>").await;
        let sink = listener().await;
        let delivery = delivery(&store, sink.local_addr().unwrap());
        let (subscriber, watched) = watch::channel(Arc::new(Subscriber { in_flight, ..trigger() }));
        let stop = CancellationToken::new();
        let source = store.deliverable(&mine());
        let working = tokio::spawn(work(Work::new(delivery, source), watched, stop.clone()));
        Self { fake, store, sink, acknowledgements, stop, working, _subscriber: subscriber }
    }

    /// Waits for a delivery. Returns the id of the event, and the connection.
    async fn delivered(&self) -> (String, TcpStream) {
        let accepted = tokio::time::timeout(PATIENCE, self.sink.accept()).await.expect("a delivery");
        let (mut connection, _) = accepted.unwrap();
        let (mut head, mut room) = (Vec::new(), [0; 4096]);
        while !head.ends_with(b"\r\n\r\n") {
            let length = connection.read(&mut room).await.unwrap();
            assert!(length > 0, "the request has ended: {}", String::from_utf8_lossy(&head));
            head.extend_from_slice(&room[..length]);
        }
        let head = String::from_utf8(head).unwrap();
        let id = head.lines().find_map(|line| line.strip_prefix("ce-id: ")).unwrap();
        (id.to_owned(), connection)
    }

    /// Waits until the task has received all messages that were sent to it.
    async fn received(&self) {
        let client = client_of(&self.store);
        let mut marker = client.subscribe("marker").await.unwrap();
        client.publish("marker", Bytes::new()).await.unwrap();
        tokio::time::timeout(PATIENCE, marker.next()).await.expect("the marker").unwrap();
    }
}

fn delivery(store: &Store, sink: SocketAddr) -> Arc<Delivery> {
    let resolve: Resolve = Arc::new(move |_: &str, _: &str, _: u16| vec![sink]);
    let (_, table) = watch::channel(None);
    Arc::new(Delivery {
        store: store.clone(),
        answers: store.clone(),
        sender: Arc::new(Sender::new(Arc::default(), Some(resolve)).unwrap()),
        table,
        failed: Arc::new(|_: &Subscriber, _: &DeadLetter| {}),
        exists: Arc::new(|_: SubscriberId| ready(Ok::<_, async_nats::Error>(true)).boxed()),
        metrics: Metrics::default(),
    })
}

fn trigger() -> Subscriber {
    let reference = json!({"apiVersion": "v1", "kind": "Service", "name": "sink"});
    let spec = json!({"filter": {"attributes": {}}, "subscriber": {"ref": reference}});
    let trigger = json!({"metadata": {"namespace": "team", "name": "mine"}, "spec": spec});
    let subscriber = Trigger::read(&trigger).subscriber(true, None);
    assert!(subscriber.route.is_some(), "{subscriber:?}");
    subscriber
}

/// Accepts an event.
async fn accept(mut connection: TcpStream) {
    connection.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await.unwrap();
}

#[tokio::test]
async fn a_copy_of_an_event_in_flight_is_not_delivered_after_it() {
    let mut worker = Worker::start(10).await;
    let inbox: Subject = worker.fake.request().await.inbox;
    worker.fake.message(&inbox, 1, "").await;
    let (id, first) = worker.delivered().await;
    assert_eq!(id, "1");
    // The server believes that the connection was lost. The delivery of the next event shows that the copy has come.
    worker.fake.message(&inbox, 1, "").await;
    worker.fake.message(&inbox, 2, "").await;
    let (id, second) = worker.delivered().await;
    assert_eq!(id, "2");
    accept(first).await;
    let (subject, kind) = acknowledgement(&mut worker.acknowledgements).await;
    assert!(subject.contains(".1.1.") && kind == "+ACK", "{subject}: {kind}");
    worker.fake.message(&inbox, 3, "").await;
    assert_eq!(worker.delivered().await.0, "3", "no second delivery of the first event");
    accept(second).await;
}

#[tokio::test]
async fn events_that_are_taken_in_advance_are_returned_at_the_end() {
    let mut worker = Worker::start(2).await;
    let Asked { inbox, batch, .. } = worker.fake.request().await;
    assert_eq!(batch, 5);
    for number in 1..=5 {
        worker.fake.message(&inbox, number, "").await;
    }
    let both = [worker.delivered().await, worker.delivered().await];
    worker.received().await;
    worker.stop.cancel();
    tokio::time::timeout(PATIENCE, &mut worker.working).await.expect("the task ends").unwrap();
    for number in 3..=5 {
        let (subject, kind) = acknowledgement(&mut worker.acknowledgements).await;
        assert!(subject.contains(&format!(".{number}.{number}.")) && kind == "-NAK", "{subject}: {kind}");
    }
    client_of(&worker.store).publish("$JS.ACK.marker", Bytes::new()).await.unwrap();
    assert_eq!(acknowledgement(&mut worker.acknowledgements).await.0, "$JS.ACK.marker");
    drop(both);
}

#[tokio::test]
async fn a_failed_delivery_is_not_counted_if_the_earlier_ones_are_not_known() {
    let mut worker = Worker::start(1).await;
    let Store::JetStream(jetstream) = worker.store.clone() else { panic!("another store") };
    // The first number that is stored would create the stream.
    let mut created = subscribe(&worker.fake.client, "$JS.API.STREAM.UPDATE.*").await;
    // No number is read in the next hour.
    jetstream.0.counting.reads.ended(false, std::time::Instant::now() + Duration::from_secs(3600));
    let inbox = worker.fake.request().await.inbox;
    worker.fake.message_again(&inbox, 1).await;
    let (id, mut connection) = worker.delivered().await;
    assert_eq!(id, "1");
    let answer = b"HTTP/1.1 500 Internal Server Error\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    connection.write_all(answer).await.unwrap();
    let (subject, kind) = acknowledgement(&mut worker.acknowledgements).await;
    assert!(subject.contains(".1.1.") && kind.starts_with("-NAK"), "{subject}: {kind}");
    jetstream.client().publish("$JS.API.STREAM.UPDATE.marker", Bytes::new()).await.unwrap();
    let request = tokio::time::timeout(PATIENCE, created.next()).await.expect("the marker").unwrap();
    assert_eq!(request.subject.as_str(), "$JS.API.STREAM.UPDATE.marker");
}

#[tokio::test]
async fn one_event_is_taken_for_a_subscriber_that_receives_one_at_a_time() {
    let mut worker = Worker::start(1).await;
    let Asked { inbox, batch, .. } = worker.fake.request().await;
    assert_eq!(batch, 1);
    worker.fake.message(&inbox, 1, "").await;
    let (_, connection) = worker.delivered().await;
    worker.received().await;
    let store = worker.store.clone();
    worker.fake.expect_no_request(&store).await;
    accept(connection).await;
    assert_eq!(worker.fake.request().await.batch, 1);
}
