//! Tests the store with a real server, `nats-server`, which is killed during the tests.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream::stream::Config;
use futures::future::{FutureExt as _, ready};
use jiff::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::cloud_event::CloudEvent;
use super::super::dead_letters::DeadLetter;
use super::super::journal::Refused;
use super::super::store::{Source, Store, Taken};
use super::super::subscriber::{Subscriber, SubscriberId, SubscriberKind};
use super::super::table::{Routed, Table};
use super::names::{self, Contents};
use super::streams::config;
use super::{JetStream, Limits, Nats, dead_letters_on, replay_on};

mod attempts;
mod deliveries;
mod elections;
mod held;
mod orders;
mod requests;
mod roll_calls;

/// Timeout of each step.
const PATIENCE: Duration = Duration::from_secs(120);

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// A server with its data in a directory.
struct Server {
    child: Child,
    port: u16,
    room: tempfile::TempDir,
}

impl Server {
    /// Starts a server on a free port. If another process takes the port first, a different port is tried.
    async fn start() -> Self {
        loop {
            let port = free_port();
            let room = tempfile::tempdir().unwrap();
            let mut server = Self { child: spawn(port, Some(room.path())), port, room };
            if server.is_ready().await {
                return server;
            }
        }
    }

    /// Waits until the server responds. Returns false if the server ends before.
    async fn is_ready(&mut self) -> bool {
        loop {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            if let Ok(connection) = self.nats().connect(false).await
                && connection.context.query_account().await.is_ok()
            {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn nats(&self) -> Nats {
        Nats { url: format!("nats://127.0.0.1:{}", self.port), credentials: None }
    }

    /// Kills the server with SIGKILL.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    async fn restart(&mut self) {
        loop {
            self.child = spawn(self.port, Some(self.room.path()));
            if self.is_ready().await {
                return;
            }
        }
    }

    async fn store(&self, share: u64) -> Store {
        Store::JetStream(self.jet_stream(share).await)
    }

    async fn jet_stream(&self, share: u64) -> JetStream {
        JetStream::new(&self.nats(), Limits { share, replicas: 1 }).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a server, with JetStream if it has a directory.
fn spawn(port: u16, room: Option<&Path>) -> Child {
    // `.ci/test` builds the server at this path.
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/nats-server");
    let program = if Path::new(built).is_file() { built } else { "nats-server" };
    let mut command = Command::new(program);
    command.args(["--addr", "127.0.0.1", "--port", &port.to_string()]);
    if let Some(room) = room {
        command.args(["--jetstream", "--store_dir"]).arg(room);
    }
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("`nats-server` is missing; `.ci/test --install` installs it")
}

fn id(namespace: &str, name: &str) -> SubscriberId {
    SubscriberId::new(SubscriberKind::Trigger, namespace, name)
}

fn routed(number: usize, data: &str, to: &[SubscriberId]) -> Vec<Routed> {
    let attributes = [("id", number.to_string()), ("source", "s".to_owned()), ("type", "t".to_owned())];
    let attributes = attributes.map(|(name, value)| (name.to_owned(), value)).into();
    let event = CloudEvent { attributes, data: data.to_owned().into() };
    vec![Routed { event, to: to.to_vec(), ordered: Vec::new() }]
}

/// Publishes an event until it is accepted, as a client does.
async fn publish(store: &Store, number: usize, to: &SubscriberId) {
    while store.publish(routed(number, "data", std::slice::from_ref(to)), false).await.is_err() {
        tokio::task::yield_now().await;
    }
}

async fn next(source: &mut Source) -> Taken {
    tokio::time::timeout(PATIENCE, source.next(1)).await.expect("an event")
}

async fn number(store: &Store, taken: &Taken) -> usize {
    store.read(taken).await.unwrap().unwrap().event.attribute("id").unwrap().parse().unwrap()
}

fn table(ids: &[SubscriberId]) -> Table {
    let subscriber = |id: &SubscriberId| {
        let id = id.clone();
        let ordering = super::super::ordering::Ordering::None;
        let (uid, broker) = (String::new(), None);
        let subscriber =
            Subscriber { id: id.clone(), uid, generation: 1, broker, route: None, in_flight: 10, ordering };
        (id, Arc::new(subscriber))
    };
    Table(ids.iter().map(subscriber).collect(), Arc::default())
}

#[tokio::test]
async fn events_outlive_kills_of_the_server_and_of_the_process_that_delivers() {
    let mut server = Server::start().await;
    let (mut store, to) = (server.store(64 << 20).await, id("team", "my.own"));
    let mut source = store.deliverable(&to);
    let mut missing: std::collections::BTreeSet<usize> = (0..30).collect();
    for number in 0..30 {
        publish(&store, number, &to).await;
        if number == 10 {
            server.kill();
            server.restart().await;
        }
        if number == 20 {
            // A second process delivers now. The event that the first process had taken is delivered again.
            let _at_hand = next(&mut source).await;
            store = server.store(64 << 20).await;
            source = store.deliverable(&to);
        }
    }
    while !missing.is_empty() {
        let taken = next(&mut source).await;
        missing.remove(&number(&store, &taken).await);
        store.ended(&taken, &to).await;
    }
}

#[tokio::test]
async fn a_failed_delivery_is_retried_and_counted_and_an_event_that_comes_again_is_not_stored() {
    let server = Server::start().await;
    let (store, to) = (server.store(64 << 20).await, id("team", "mine"));
    let mut source = store.deliverable(&to);
    for number in [1, 1, 2] {
        publish(&store, number, &to).await;
    }
    let mut first = next(&mut source).await;
    assert_eq!((number(&store, &first).await, first.attempts), (1, Some(0)));
    let second = next(&mut source).await;
    assert_eq!(number(&store, &second).await, 2, "an event at hand does not hold up others");
    first.attempts = Some(1);
    store.tried(&first, &to, Duration::from_millis(100)).await;
    drop(first);
    store.ended(&second, &to).await;
    let again = next(&mut source).await;
    assert_eq!((number(&store, &again).await, again.attempts), (1, Some(1)));
    store.ended(&again, &to).await;
}

#[tokio::test]
async fn one_request_takes_several_events_also_while_no_further_one_is_wanted() {
    let server = Server::start().await;
    let (store, to) = (server.store(64 << 20).await, id("team", "mine"));
    let mut source = store.deliverable(&to);
    for expected in 0..4 {
        publish(&store, expected, &to).await;
    }
    // The first call asks for two events, and the third one for two others.
    for (expected, most) in [2, 0, 2, 0].into_iter().enumerate() {
        let taken = tokio::time::timeout(PATIENCE, source.next(most)).await.expect("an event");
        assert_eq!(number(&store, &taken).await, expected);
        store.ended(&taken, &to).await;
    }
}

#[tokio::test]
async fn a_namespace_that_fills_its_share_is_refused_by_name_and_leaves_room_for_others() {
    let server = Server::start().await;
    let (store, large) = (server.store(1 << 20).await, "x".repeat(60_000));
    let (full, other) = (id("full", "mine"), id("other", "mine"));
    let mut kept = 0;
    let refused = loop {
        match store.publish(routed(kept, &large, std::slice::from_ref(&full)), false).await {
            Ok(()) => kept += 1,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, Refused::Share { .. }) && (10..20).contains(&kept), "{kept}: {refused}");
    assert!(refused.to_string().contains("namespace full:"), "{refused}");
    // A shared event becomes a dead letter for the namespace whose share is used up.
    store.publish(routed(1000, &large, &[full.clone(), other.clone()]), false).await.unwrap();
    let mut source = store.deliverable(&other);
    assert_eq!(number(&store, &next(&mut source).await).await, 1000);
    let letters = dead_letters_on(&server.nats()).await.unwrap();
    assert_eq!(letters.iter().map(|letter| letter.subscriber.as_str()).collect::<Vec<_>>(), ["trigger/full/mine"]);
}

#[tokio::test]
async fn dead_letters_are_listed_and_delivered_again() {
    let server = Server::start().await;
    let (store, to) = (server.store(64 << 20).await, id("team", "mine"));
    let mut source = store.deliverable(&to);
    publish(&store, 1, &to).await;
    let taken = next(&mut source).await;
    let event = store.read(&taken).await.unwrap().unwrap().event;
    let letter = DeadLetter::new(&to, &event, "why", 1, Timestamp::now());
    store.bury(&to, &letter).await.unwrap();
    store.ended(&taken, &to).await;
    assert_eq!(dead_letters_on(&server.nats()).await.unwrap(), [letter]);
    assert!(replay_on(&server.nats(), &id("team", "other")).await.unwrap_err().to_string().contains("there is no"));
    assert_eq!(replay_on(&server.nats(), &to).await.unwrap(), 1);
    assert_eq!(number(&store, &next(&mut source).await).await, 1);
    assert_eq!(dead_letters_on(&server.nats()).await.unwrap(), []);
}

#[tokio::test]
async fn a_deleted_subscriber_leaves_no_consumer_and_no_events() {
    let server = Server::start().await;
    let (gone, stays, left) = (id("team", "gone"), id("team", "stays"), id("left", "mine"));
    let store = server.store(64 << 20).await;
    for to in [&gone, &stays, &left] {
        publish(&store, 1, to).await;
        next(&mut store.deliverable(to)).await;
    }
    let Store::JetStream(jetstream) = &store else { panic!("another store") };
    // Another process knows of `new` already, and publishes for it.
    let (new, early) = (id("team", "new"), id("early", "mine"));
    for to in [&new, &early] {
        publish(&store, 1, to).await;
    }
    let known = [new.clone(), early.clone()];
    let exists = move |to: SubscriberId| ready(Ok(known.contains(&to))).boxed();
    jetstream.sweep(&table(std::slice::from_ref(&stays)), &exists).await.unwrap();
    for to in [&new, &early] {
        assert_eq!(number(&store, &next(&mut store.deliverable(to)).await).await, 1, "{to}");
    }
    let context = server.nats().connect(false).await.unwrap().context;
    let mut events = context.get_stream("mainstay_events_team").await.unwrap();
    assert!(events.consumer_info("trigger_gone").await.is_err());
    assert!(events.consumer_info("trigger_stays").await.is_ok());
    assert_eq!(events.info().await.unwrap().state.messages, 2);
    assert!(context.get_stream("mainstay_events_left").await.is_err());
    // The streams are recreated for the next event.
    publish(&store, 2, &left).await;
    assert_eq!(number(&store, &next(&mut store.deliverable(&left)).await).await, 2);
}

#[tokio::test]
async fn an_event_whose_confirmation_was_lost_is_sent_again() {
    let mut server = Server::start().await;
    let (store, to) = (server.store(64 << 20).await, id("team", "mine"));
    publish(&store, 1, &to).await;
    let Store::JetStream(jetstream) = &store else { panic!("another store") };
    let statistics = jetstream.0.context.client().statistics();
    let sent = || statistics.out_messages.load(Ordering::Relaxed);
    // A suspended server takes the message and does not confirm it.
    let id = server.child.id().to_string();
    assert!(Command::new("kill").args(["-STOP", &id]).status().unwrap().success());
    let before = sent();
    let event = routed(2, "data", std::slice::from_ref(&to));
    let replacing = async {
        while sent() == before {
            tokio::task::yield_now().await;
        }
        server.kill();
        server.restart().await;
    };
    let (stored, ()) = tokio::join!(store.publish(event, false), replacing);
    stored.unwrap();
    let mut events = store.deliverable(&to);
    for expected in [1, 2] {
        let taken = next(&mut events).await;
        assert_eq!(number(&store, &taken).await, expected);
        store.ended(&taken, &to).await;
    }
}

async fn listener() -> tokio::net::TcpListener {
    tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap()
}

/// Forwards connections to a server. Discards the next response if `loses` is true.
async fn lossy(server: &Server, loses: Arc<AtomicBool>) -> Nats {
    let (listener, to) = (listener().await, server.port);
    let url = format!("nats://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await.unwrap();
            let (mut requests, mut back) = client.into_split();
            let (mut responses, mut on) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut requests, &mut on).await });
            let loses = Arc::clone(&loses);
            tokio::spawn(async move {
                let mut room = vec![0; 1 << 16];
                while let Ok(length @ 1..) = responses.read(&mut room).await {
                    if !loses.swap(false, Ordering::SeqCst) {
                        back.write_all(&room[..length]).await.unwrap();
                    }
                }
            });
        }
    });
    Nats { url, credentials: None }
}

#[tokio::test]
async fn a_request_whose_response_is_lost_is_sent_again() {
    let (server, loses) = (Server::start().await, Arc::new(AtomicBool::new(false)));
    let nats = lossy(&server, Arc::clone(&loses)).await;
    let jetstream = JetStream::new(&nats, Limits { share: 64 << 20, replicas: 1 }).await.unwrap();
    let (store, to) = (Store::JetStream(jetstream.clone()), id("team", "mine"));
    jetstream.0.context.query_account().await.unwrap();
    // The first request reads the stream, the second stores the event.
    for number in [1, 2] {
        loses.store(true, Ordering::SeqCst);
        publish(&store, number, &to).await;
        assert!(!loses.load(Ordering::SeqCst), "no response was lost");
    }
    let mut events = store.deliverable(&to);
    for expected in [1, 2] {
        let taken = next(&mut events).await;
        assert_eq!(number(&store, &taken).await, expected);
        store.ended(&taken, &to).await;
    }
    let stream = jetstream.0.context.get_stream(Contents::Events.stream("team")).await.unwrap();
    assert_eq!(stream.cached_info().state.last_sequence, 2, "each event is stored once");
    // So are an event that is delivered again, and a dead letter.
    for _ in 0..2 {
        loses.store(true, Ordering::SeqCst);
        store.publish(routed(1, "data", std::slice::from_ref(&to)), true).await.unwrap();
    }
    let event = routed(1, "data", &[]).remove(0).event;
    loses.store(true, Ordering::SeqCst);
    jetstream.bury(&to, &DeadLetter::new(&to, &event, "why", 1, Timestamp::now())).await.unwrap();
    for (contents, expected) in [(Contents::Events, 4), (Contents::Letters, 1)] {
        let stream = jetstream.0.context.get_stream(contents.stream("team")).await.unwrap();
        assert_eq!(stream.cached_info().state.last_sequence, expected, "{contents:?}");
    }
}

#[tokio::test]
async fn events_that_come_during_a_removal_are_kept() {
    let server = Server::start().await;
    let (store, other, to) = (server.store(64 << 20).await, server.store(64 << 20).await, id("team", "mine"));
    publish(&store, 1, &to).await;
    let taken = next(&mut store.deliverable(&to)).await;
    store.ended(&taken, &to).await;
    // The cluster does not have the subscriber, until another process publishes for it.
    let exists = {
        let (other, to) = (other.clone(), to.clone());
        move |_| {
            let (other, to) = (other.clone(), to.clone());
            async move {
                publish(&other, 2, &to).await;
                Ok(false)
            }
            .boxed()
        }
    };
    let Store::JetStream(jetstream) = &store else { panic!("another store") };
    jetstream.sweep(&table(&[]), &exists).await.unwrap();
    assert_eq!(number(&store, &next(&mut store.deliverable(&to)).await).await, 2);
}

#[tokio::test]
async fn a_stream_that_is_being_removed_takes_no_event() {
    let server = Server::start().await;
    let (store, to) = (server.store(64 << 20).await, id("team", "mine"));
    publish(&store, 1, &to).await;
    let context = server.nats().connect(false).await.unwrap().context;
    let mark = |seconds: i64| {
        let config = config(Contents::Events, "team", Limits { share: 64 << 20, replicas: 1 });
        let subjects = vec![names::mark(&config.name, seconds)];
        context.update_stream(Config { subjects, ..config })
    };
    mark(Timestamp::now().as_second()).await.unwrap();
    let refused = store.publish(routed(2, "data", std::slice::from_ref(&to)), false).await.unwrap_err();
    assert!(refused.to_string().contains("is being removed; publish again"), "{refused}");
    // The process that should remove it has ended.
    mark(1_700_000_000).await.unwrap();
    store.publish(routed(2, "data", std::slice::from_ref(&to)), false).await.unwrap();
}
