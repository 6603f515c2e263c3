//! Processes that accept events are asked whether they know a subscriber.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use serde_json::json;

use super::super::super::subscriber::Version;
use super::super::super::subscription::Subscription;
use super::*;

/// Returns a table with this generation of a Subscription.
fn knowing(generation: i64) -> Arc<Table> {
    let object = json!({
        "metadata": {"name": "mine", "namespace": "team", "uid": "1", "generation": generation},
        "spec": {"sink": "http://sink.team.svc.cluster.local", "source": "shop", "types": ["order.created.v1"]},
    });
    let subscriber = Subscription::read(&object).subscriber(None);
    assert!(subscriber.route.is_some(), "{subscriber:?}");
    Arc::new(Table([(subscriber.id.clone(), Arc::new(subscriber))].into(), Arc::default()))
}

/// A process that accepts events.
struct Publisher {
    known: watch::Sender<Option<Arc<Table>>>,
    stop: CancellationToken,
    answering: tokio::task::JoinHandle<()>,
}

impl Publisher {
    async fn start(server: &Server, instance: &str) -> Self {
        let store = server.jet_stream(64 << 20).await;
        let (known, table) = watch::channel(None);
        let stop = CancellationToken::new();
        let (questions, announcement) = store.questions(instance).await.unwrap();
        let answering = tokio::spawn(questions.answer(table, stop.clone()));
        announcement.send().await.unwrap();
        store.client().flush().await.unwrap();
        Self { known, stop, answering }
    }
}

#[tokio::test]
async fn a_subscriber_is_known_when_each_process_that_accepts_events_knows_it() {
    let server = Server::start().await;
    let id = SubscriberId::new(SubscriberKind::Subscription, "team", "mine");
    let version = |generation| Version { id: id.clone(), uid: "1".to_owned(), generation };
    let (roll_call, following) = server.jet_stream(64 << 20).await.roll_call().await.unwrap();
    tokio::spawn(following);
    assert_eq!(roll_call.knows(&version(1)).await, Ok(()), "no process accepts events");
    let (one, two) = (Publisher::start(&server, "one").await, Publisher::start(&server, "two").await);
    one.known.send_replace(Some(knowing(2)));
    let lacks = |name: &str| Err(format!("the publisher {name} does not know the subscriber yet"));
    let until = async |generation, expected: &Result<(), String>| {
        let asking = async { while roll_call.knows(&version(generation)).await != *expected {} };
        tokio::time::timeout(PATIENCE, asking).await.expect("the expected answer");
    };
    // The table of the second process is not complete yet.
    until(1, &lacks("two")).await;
    two.known.send_replace(Some(knowing(1)));
    until(1, &Ok(())).await;
    assert_eq!(roll_call.knows(&version(2)).await, lacks("two"), "the second process knows an older generation");
    let other = Version { uid: "2".to_owned(), ..version(1) };
    assert_eq!(roll_call.knows(&other).await, lacks("one"), "an object with this name was deleted");
    // A process that ends is no longer asked.
    two.stop.cancel();
    two.answering.await.unwrap();
    until(2, &Ok(())).await;
    // A killed one counts as present for some seconds.
    one.answering.abort();
    until(3, &lacks("one")).await;
}
