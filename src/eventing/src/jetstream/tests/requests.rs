//! Requests for messages. A test takes the part of JetStream, so that it decides how a request is answered.

use std::collections::HashSet;
use std::sync::atomic::AtomicUsize;

use async_nats::{Client, Message, Subject, Subscriber as Incoming};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::task::AbortOnDropHandle;

use super::super::memory::BUDGET;
use super::elections::{self, subscribe, without_jetstream};
use super::*;

/// Prefix of the subjects of requests for messages.
const NEXT: &str = "$JS.API.CONSUMER.MSG.NEXT";

/// Prefix of the reply subjects of a test. The server does not accept those of JetStream from a client, so they are
/// renamed on their way to the store.
const SENT: &str = "$XX.ACK.";
const RECEIVED: &str = "$JS.ACK.";

/// JetStream with a stream and a consumer. A test answers the requests for messages.
pub(super) struct Fake {
    server: Server,
    pub(super) client: Client,
    requests: Incoming,
    /// Number of requests to create a consumer.
    consumers: Arc<AtomicUsize>,
    /// A connection for messages with a status, which the client cannot send.
    raw: TcpStream,
    _answering: AbortOnDropHandle<()>,
}

/// A request for messages.
pub(super) struct Asked {
    pub(super) inbox: Subject,
    pub(super) batch: u64,
    max_bytes: u64,
}

impl Fake {
    pub(super) async fn start() -> (Self, Store) {
        Self::with_memory(BUDGET).await
    }

    /// Returns a store with a budget in bytes for messages.
    pub(super) async fn with_memory(budget: usize) -> (Self, Store) {
        let (server, client) = without_jetstream().await;
        let limits = Limits { share: 64 << 20, replicas: 1 };
        let connection = named(&server).await.connect(true).await.unwrap();
        let store = Store::JetStream(JetStream::on(connection, Some(limits), HashSet::new(), budget));
        let mut others = Vec::new();
        for subject in ["$JS.API.STREAM.INFO.*", "$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.INFO.>"] {
            others.push(subscribe(&client, subject).await);
        }
        let requests = subscribe(&client, &format!("{NEXT}.>")).await;
        let consumers = Arc::<AtomicUsize>::default();
        let answering = tokio::spawn(answer(client.clone(), others, Arc::clone(&consumers)));
        let mut raw = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).await.unwrap();
        raw.write_all(b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true}\r\n").await.unwrap();
        let answering = AbortOnDropHandle::new(answering);
        (Self { server, client, requests, consumers, raw, _answering: answering }, store)
    }

    async fn message_of(&mut self) -> Message {
        tokio::time::timeout(PATIENCE, self.requests.next()).await.expect("a request").unwrap()
    }

    /// Waits for a request for messages.
    pub(super) async fn request(&mut self) -> Asked {
        let request = self.message_of().await;
        let body: Value = serde_json::from_slice(&request.payload).unwrap();
        let number = |name: &str| body[name].as_u64().unwrap();
        Asked { batch: number("batch"), max_bytes: number("max_bytes"), inbox: request.reply.unwrap() }
    }

    /// Fails if a request was sent.
    pub(super) async fn expect_no_request(&mut self, store: &Store) {
        client_of(store).publish(format!("{NEXT}.marker"), Bytes::new()).await.unwrap();
        let subject = self.message_of().await.subject;
        assert!(subject.ends_with("marker"), "{subject}");
    }

    async fn status(&mut self, inbox: &Subject, status: &str) {
        self.send(inbox, &format!("NATS/1.0 {status}\r\n\r\n")).await;
    }

    /// Ends the server.
    pub(super) fn kill(&mut self) {
        self.server.kill();
    }

    /// Sends a message with this sequence number. It has a status, if `status` is not empty.
    pub(super) async fn message(&mut self, inbox: &Subject, number: u64, status: &str) {
        self.deliver(inbox, (number, 1), status).await;
    }

    /// Sends a message that was sent before.
    pub(super) async fn message_again(&mut self, inbox: &Subject, number: u64) {
        self.deliver(inbox, (number, 2), "").await;
    }

    /// Sends a message, with the number of times that it was sent.
    async fn deliver(&mut self, inbox: &Subject, (number, times): (u64, u64), status: &str) {
        let reply = format!("{SENT}mainstay_events_team.trigger_mine.{times}.{number}.{number}.1700000000000000000.0");
        let event = format!("ce-specversion: 1.0\r\nce-id: {number}\r\nce-source: s\r\nce-type: t\r\n\r\n");
        self.send(&format!("{inbox} {reply}"), &format!("NATS/1.0{status}\r\n{event}")).await;
    }

    /// Sends a message without a body, and waits until the server has it.
    async fn send(&mut self, subjects: &str, headers: &str) {
        let length = headers.len();
        let frame = format!("HPUB {subjects} {length} {length}\r\n{headers}\r\nPING\r\n");
        self.raw.write_all(frame.as_bytes()).await.unwrap();
        let (mut answer, mut room) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&answer).contains("PONG") {
            let length = tokio::time::timeout(PATIENCE, self.raw.read(&mut room)).await.expect("an answer").unwrap();
            assert!(length > 0, "the server has closed the connection: {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&room[..length]);
        }
    }
}

/// Forwards connections to a server. Renames the reply subjects in the responses.
async fn named(server: &Server) -> Nats {
    let (listener, to) = (listener().await, server.port);
    let url = format!("nats://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await.unwrap();
            let (mut requests, back) = client.into_split();
            let (responses, mut on) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut requests, &mut on).await });
            tokio::spawn(rename(responses, back));
        }
    });
    Nats { url, credentials: None }
}

/// Copies responses. Both prefixes have the same length. A part at the end that may be the beginning of a prefix waits for
/// its rest.
async fn rename(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let (mut all, mut room) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = from.read(&mut room).await {
        all.extend_from_slice(&room[..length]);
        for at in 0..all.len() {
            if all[at..].starts_with(SENT.as_bytes()) {
                all[at..at + SENT.len()].copy_from_slice(RECEIVED.as_bytes());
            }
        }
        let kept = (1..SENT.len()).rev().find(|kept| all.ends_with(&SENT.as_bytes()[..*kept])).unwrap_or(0);
        let rest = all.split_off(all.len() - kept);
        if to.write_all(&all).await.is_err() {
            return;
        }
        all = rest;
    }
}

/// Answers requests for streams and consumers.
async fn answer(client: Client, requests: Vec<Incoming>, consumers: Arc<AtomicUsize>) {
    let mut all = stream::select_all(requests);
    while let Some(request) = all.next().await {
        let answer = if request.subject.contains(".CONSUMER.INFO.") {
            json!({"type": "error", "error": {"code": 404, "err_code": 10014, "description": "consumer not found"}})
        } else if request.subject.contains(".CONSUMER.CREATE.") {
            consumer(&request.payload, consumers.fetch_add(1, Ordering::SeqCst))
        } else if request.subject.ends_with(names::ATTEMPTS) {
            elections::error(404, 10059)
        } else if request.subject.contains("events") {
            elections::stream(Contents::Events)
        } else {
            elections::stream(Contents::Letters)
        };
        client.publish(request.reply.unwrap(), answer.to_string().into()).await.unwrap();
    }
}

/// Returns the description of a consumer. Each one has another time of its creation.
fn consumer(request: &[u8], number: usize) -> Value {
    let request: Value = serde_json::from_slice(request).unwrap();
    let sequence = json!({"consumer_seq": 0, "stream_seq": 0});
    json!({
        "stream_name": request["stream_name"], "name": request["config"]["durable_name"], "config": request["config"],
        "created": format!("2025-01-01T00:00:{number:02}Z"), "delivered": sequence, "ack_floor": sequence,
        "num_ack_pending": 0, "num_redelivered": 0, "num_waiting": 0, "num_pending": 0,
    })
}

pub(super) fn client_of(store: &Store) -> Client {
    let Store::JetStream(jetstream) = store else { panic!("another store") };
    jetstream.client()
}

pub(super) fn mine() -> SubscriberId {
    id("team", "mine")
}

/// Returns the next acknowledgement that is no confirmation of progress: its subject and its kind.
pub(super) async fn acknowledgement(all: &mut Incoming) -> (String, String) {
    loop {
        let message = tokio::time::timeout(PATIENCE, all.next()).await.expect("an acknowledgement").unwrap();
        if message.payload != "+WPI" {
            return (message.subject.to_string(), String::from_utf8_lossy(&message.payload).into_owned());
        }
    }
}

/// Takes the event with this number, for which a further request is sent.
async fn take(fake: &mut Fake, source: &mut Source, number: u64) -> Taken {
    let sending = async {
        let inbox = fake.request().await.inbox;
        fake.message(&inbox, number, "").await;
    };
    let (taken, ()) = tokio::join!(next(source), sending);
    assert_eq!(taken.number, number);
    taken
}

#[tokio::test]
async fn a_request_is_repeated_at_the_same_inbox_after_an_error_that_passes() {
    let (mut fake, store) = Fake::start().await;
    let mut source = store.deliverable(&mine());
    let answers = [
        "408 Request Timeout",
        "404 No Messages",
        "409 Leadership Change",
        "409 Server Shutdown",
        "409 Exceeded MaxWaiting",
        "409 Message Size Exceeds MaxBytes",
    ];
    let answering = async {
        let inbox = fake.request().await.inbox;
        for status in answers {
            fake.status(&inbox, status).await;
            assert_eq!(fake.request().await.inbox, inbox, "{status}");
        }
        assert_eq!(fake.consumers.load(Ordering::SeqCst), 1);
    };
    tokio::select! {
        _ = source.next(2) => panic!("there is no event"),
        () = answering => {}
    }
}

#[tokio::test]
async fn a_consumer_is_created_again_if_it_may_be_gone() {
    let (mut fake, store) = Fake::start().await;
    let mut source = store.deliverable(&mine());
    let answering = async {
        let mut inbox = fake.request().await.inbox;
        for (number, status) in ["503", "409 Consumer Deleted"].into_iter().enumerate() {
            fake.status(&inbox, status).await;
            let other = fake.request().await.inbox;
            assert_ne!(other, inbox, "{status}");
            inbox = other;
            assert_eq!(fake.consumers.load(Ordering::SeqCst), number + 2, "{status}");
        }
    };
    tokio::select! {
        _ = source.next(2) => panic!("there is no event"),
        () = answering => {}
    }
}

#[tokio::test]
async fn a_request_without_an_answer_is_repeated_at_another_inbox() {
    let (mut fake, store) = Fake::start().await;
    let mut source = store.deliverable(&mine());
    let waiting = async {
        let inbox = fake.request().await.inbox;
        assert_ne!(fake.request().await.inbox, inbox);
        assert_eq!(fake.consumers.load(Ordering::SeqCst), 1);
    };
    tokio::select! {
        _ = source.next(2) => panic!("there is no event"),
        () = waiting => {}
    }
}

#[tokio::test]
async fn a_request_grows_with_the_size_of_the_messages() {
    let (mut fake, store) = Fake::start().await;
    let mut source = store.deliverable(&mine());
    let answering = async {
        let mut sizes = Vec::new();
        for answer in ["409 Message Size Exceeds MaxBytes", "409 Message Size Exceeds MaxBytes", ""] {
            let Asked { inbox, batch, max_bytes } = fake.request().await;
            sizes.push((batch, max_bytes));
            if answer.is_empty() {
                fake.message(&inbox, 1, "").await;
            } else {
                fake.status(&inbox, answer).await;
            }
        }
        sizes
    };
    let taking = async { tokio::time::timeout(PATIENCE, source.next(2)).await.expect("an event") };
    let (taken, sizes) = tokio::join!(taking, answering);
    assert_eq!(sizes, [(2, 16 << 10), (2, 128 << 10), (1, 0)]);
    tokio::select! {
        _ = source.next(2) => panic!("there is no further event"),
        asked = fake.request() => assert_eq!((asked.batch, asked.max_bytes), (2, 128 << 10)),
    }
    assert_eq!(taken.number, 1);
}

#[tokio::test]
async fn messages_that_come_after_the_status_belong_to_their_request() {
    let (mut fake, store) = Fake::start().await;
    let mut source = store.deliverable(&mine());
    let sending = async {
        let inbox = fake.request().await.inbox;
        fake.status(&inbox, "409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 1").await;
        fake.message(&inbox, 1, "").await;
        fake.message(&inbox, 2, "").await;
    };
    let taking = async {
        let first = tokio::time::timeout(PATIENCE, source.next(3)).await.expect("an event");
        let second = tokio::time::timeout(PATIENCE, source.next(3)).await.expect("an event of the same request");
        [first, second]
    };
    let (taken, ()) = tokio::join!(taking, sending);
    assert_eq!(taken.each_ref().map(|one| one.number), [1, 2]);
    tokio::select! {
        _ = source.next(3) => panic!("there is no further event"),
        asked = fake.request() => assert_eq!((asked.batch, asked.max_bytes), (3, 128 << 10)),
    }
}

#[tokio::test]
async fn a_message_whose_headers_look_like_a_status_is_a_message() {
    let (mut fake, store) = Fake::start().await;
    let mut source = store.deliverable(&mine());
    let sending = async {
        let inbox = fake.request().await.inbox;
        fake.message(&inbox, 7, " 408 Request Timeout").await;
    };
    let (taken, ()) = tokio::join!(next(&mut source), sending);
    assert_eq!((taken.number, number(&store, &taken).await), (7, 7));
}

#[tokio::test]
async fn no_event_is_requested_if_none_is_wanted_and_one_is_held() {
    let (mut fake, store) = Fake::start().await;
    let mut source = store.deliverable(&mine());
    let taking = async {
        let first = tokio::time::timeout(PATIENCE, source.next(2)).await.expect("an event");
        let second = tokio::time::timeout(PATIENCE, source.next(0)).await.expect("an event of the same request");
        [first, second]
    };
    let sending = async {
        let inbox = fake.request().await.inbox;
        fake.message(&inbox, 1, "").await;
        fake.message(&inbox, 2, "").await;
    };
    let (held, ()) = tokio::join!(taking, sending);
    tokio::select! {
        biased;
        _ = source.next(0) => panic!("no event is requested"),
        () = fake.expect_no_request(&store) => {}
    }
    // Without a held event, one is requested: other events of the subscriber may fill its room.
    drop(held);
    tokio::select! {
        _ = source.next(0) => panic!("there is no further event"),
        asked = fake.request() => assert_eq!(asked.batch, 1),
    }
}

#[tokio::test]
async fn an_acknowledgement_for_a_former_consumer_is_not_sent() {
    let (mut fake, store) = Fake::start().await;
    let mut source = store.deliverable(&mine());
    let mut acknowledgements = subscribe(&fake.client, "$JS.ACK.>").await;
    let former = take(&mut fake, &mut source, 1).await;
    let deleting = async {
        let inbox = fake.request().await.inbox;
        fake.status(&inbox, "409 Consumer Deleted").await;
        let inbox = fake.request().await.inbox;
        fake.message(&inbox, 1, "").await;
    };
    let (current, ()) = tokio::join!(next(&mut source), deleting);
    store.ended(&former, &mine()).await;
    client_of(&store).publish("$JS.ACK.marker", Bytes::new()).await.unwrap();
    assert_eq!(acknowledgement(&mut acknowledgements).await.0, "$JS.ACK.marker");
    store.ended(&current, &mine()).await;
    assert_eq!(acknowledgement(&mut acknowledgements).await.1, "+ACK");
}

#[tokio::test]
async fn events_that_are_not_in_flight_are_returned_at_the_end() {
    let (mut fake, store) = Fake::start().await;
    let mut source = store.deliverable(&mine());
    let mut acknowledgements = subscribe(&fake.client, "$JS.ACK.>").await;
    let mut marker = client_of(&store).subscribe("marker").await.unwrap();
    let sending = async {
        let inbox = fake.request().await.inbox;
        for number in 1..=3 {
            fake.message(&inbox, number, "").await;
        }
        // The other messages have arrived before the marker.
        client_of(&store).publish("marker", Bytes::new()).await.unwrap();
        tokio::time::timeout(PATIENCE, marker.next()).await.expect("the marker").unwrap();
    };
    let taking = async { tokio::time::timeout(PATIENCE, source.next(3)).await.expect("an event") };
    let (taken, ()) = tokio::join!(taking, sending);
    store.release(&taken).await;
    source.release().await;
    for expected in 1..=3 {
        let (subject, kind) = acknowledgement(&mut acknowledgements).await;
        assert!(subject.contains(&format!(".{expected}.{expected}.")), "{subject}");
        assert_eq!(kind, "-NAK");
    }
}
