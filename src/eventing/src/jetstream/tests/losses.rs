//! Losses of the connection, while the server works.

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::super::work::{Work, work};
use super::deliveries::{accept, delivered, delivery, trigger};
use super::requests::{client_of, mine};
use super::*;

/// Forwards connections to a server. Ends all connections when the value changes, and forwards further ones.
async fn unstable(server: &Server) -> (Nats, watch::Sender<()>) {
    let (listener, to) = (listener().await, server.port);
    let url = format!("nats://{}", listener.local_addr().unwrap());
    let (cut, cuts) = watch::channel(());
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut cuts = cuts.clone();
            cuts.mark_unchanged();
            tokio::spawn(async move {
                let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                    _ = cuts.changed() => {}
                }
            });
        }
    });
    (Nats { url, credentials: None }, cut)
}

/// Waits until the client has received all messages that were sent to it.
async fn received(store: &Store) {
    let client = client_of(store);
    let mut marker = client.subscribe("marker").await.unwrap();
    client.publish("marker", bytes::Bytes::new()).await.unwrap();
    tokio::time::timeout(PATIENCE, futures::StreamExt::next(&mut marker)).await.expect("the marker").unwrap();
}

/// Waits until this number of events are taken and not acknowledged. Returns how often the server has sent events.
async fn unacknowledged(server: &Server, expected: usize) -> u64 {
    let context = server.nats().connect(false).await.unwrap().context;
    let waiting = async {
        loop {
            let stream = context.get_stream(Contents::Events.stream("team")).await.unwrap();
            if let Ok(info) = stream.consumer_info(names::consumer(&mine())).await
                && info.num_ack_pending == expected
                && info.num_pending == 0
            {
                return info.delivered.consumer_sequence;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the events are taken or acknowledged")
}

#[tokio::test]
async fn events_that_were_taken_are_delivered_once_after_a_short_loss_of_the_connection() {
    let server = Server::start().await;
    let (nats, cut) = unstable(&server).await;
    let jetstream = JetStream::new(&nats, Limits { share: 64 << 20, replicas: 1 }).await.unwrap();
    let (store, direct) = (Store::JetStream(jetstream.clone()), server.store(64 << 20).await);
    for number in 1..=5 {
        direct.publish(routed(number, "", &[mine()]), false).await.unwrap();
    }
    let sink = listener().await;
    let subscriber = Arc::new(Subscriber { in_flight: 2, ..trigger() });
    let (_subscriber, watched) = watch::channel(subscriber);
    let stop = CancellationToken::new();
    let delivery = delivery(&store, sink.local_addr().unwrap());
    let working = tokio::spawn(work(Work::new(delivery, store.deliverable(&mine())), watched, stop.clone()));
    let (one, two) = (delivered(&sink).await, delivered(&sink).await);
    assert_eq!(unacknowledged(&server, 5).await, 5);
    received(&store).await;
    let mut losses = jetstream.losses();
    cut.send(()).unwrap();
    tokio::time::timeout(PATIENCE, losses.changed()).await.expect("a loss").unwrap();
    // Two events are in flight, and three are taken.
    let mut seen = vec![one.0, two.0];
    for connection in [one.1, two.1] {
        accept(connection).await;
    }
    for _ in 0..3 {
        let (id, connection) = delivered(&sink).await;
        seen.push(id);
        accept(connection).await;
    }
    seen.sort();
    assert_eq!(seen, ["1", "2", "3", "4", "5"]);
    assert_eq!(unacknowledged(&server, 0).await, 5, "no event is sent again");
    stop.cancel();
    tokio::time::timeout(PATIENCE, working).await.expect("the task ends").unwrap();
}

#[tokio::test]
async fn the_server_holds_events_after_a_loss_only_for_a_process_that_confirms_them_in_time() {
    let mut server = Server::start().await;
    let store = server.store(64 << 20).await;
    publish(&store, 1, &mine()).await;
    let mut source = store.deliverable(&mine());
    let taken = next(&mut source).await;
    let subjects = || taken.subject().into_iter().collect::<Vec<_>>();
    assert!(source.holds(subjects(), tokio::time::Instant::now()).await);
    server.kill();
    assert!(!source.holds(subjects(), tokio::time::Instant::now()).await, "there is no connection");
}
