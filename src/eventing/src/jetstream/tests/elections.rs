//! Servers that elect a leader. A test takes the part of JetStream on a real server without it, so that it decides what a
//! request is answered.

use async_nats::{Client, Subscriber as Requests};
use bytes::Bytes;
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::super::election::Patience;
use super::*;

/// A server without JetStream, and a client that answers in its place.
pub(super) async fn without_jetstream() -> (Server, Client) {
    loop {
        let port = free_port();
        let mut server = Server { child: spawn(port, None), port, room: tempfile::tempdir().unwrap() };
        while server.child.try_wait().unwrap().is_none() {
            if let Ok(connection) = server.nats().connect(false).await {
                let client = connection.context.client().clone();
                return (server, client);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub(super) fn error(code: u16, number: u64) -> Value {
    json!({"type": "error", "error": {"code": code, "err_code": number, "description": "there is no leader"}})
}

/// Answers the next requests. Returns the IDs of their messages.
pub(super) async fn answer(client: &Client, requests: &mut Requests, answers: &[Value]) -> Vec<String> {
    let mut ids = Vec::new();
    for answer in answers {
        let request = tokio::time::timeout(PATIENCE, requests.next()).await.expect("a request").unwrap();
        let id = request.headers.as_ref().and_then(|headers| headers.get("Nats-Msg-Id"));
        ids.push(id.map(ToString::to_string).unwrap_or_default());
        client.publish(request.reply.unwrap(), answer.to_string().into()).await.unwrap();
    }
    ids
}

/// Answers all requests. The last answer is repeated, for requests that are sent again because a response was late.
pub(super) async fn answer_all(client: &Client, requests: &mut Requests, answers: &[Value]) {
    for number in 0.. {
        let Some(request) = requests.next().await else { return };
        let answer = answers.get(number).or(answers.last()).unwrap();
        client.publish(request.reply.unwrap(), answer.to_string().into()).await.unwrap();
    }
}

pub(super) async fn subscribe(client: &Client, subject: &str) -> Requests {
    let requests = client.subscribe(subject.to_owned()).await.unwrap();
    client.flush().await.unwrap();
    requests
}

/// Returns the description of a stream.
pub(super) fn stream(contents: Contents) -> Value {
    let state = json!({
        "messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0, "consumer_count": 0,
        "first_ts": "0001-01-01T00:00:00Z", "last_ts": "0001-01-01T00:00:00Z",
    });
    let config = config(contents, "team", Limits { share: 64 << 20, replicas: 1 });
    json!({"config": config, "created": "2025-01-01T00:00:00Z", "state": state})
}

/// Returns the description of the stream with the numbers of failed deliveries.
pub(super) fn stream_of_numbers() -> Value {
    let mut found = stream(Contents::Letters);
    found["config"]["name"] = json!(names::ATTEMPTS);
    found["config"]["subjects"] = json!([names::all_attempts()]);
    found["config"]["max_msgs_per_subject"] = json!(1);
    found
}

#[tokio::test]
async fn an_event_waits_for_the_election_of_a_leader_and_keeps_its_id() {
    let (server, client) = without_jetstream().await;
    let (store, to) = (server.store(64 << 20).await, id("team", "mine"));
    let electing = async {
        // At first, no server answers. Then no server is the leader, or each believes that another one is.
        let mut streams = subscribe(&client, "$JS.API.STREAM.INFO.*").await;
        let both = [stream(Contents::Events), stream(Contents::Letters)];
        let errors = [10005, 10006, 10007, 10008, 10009].map(|number| error(503, number));
        answer(&client, &mut streams, &[&errors[..], &both].concat()).await;
        // The stream itself has no leader, so its subject has no server.
        answer(&client, &mut streams, &both).await;
        let mut events = subscribe(&client, "mainstay.events.>").await;
        let rest = async {
            // Streams are read again after each message without a server.
            while let Some(request) = streams.next().await {
                let is_event = request.subject.contains("events");
                let which = if is_event { Contents::Events } else { Contents::Letters };
                client.publish(request.reply.unwrap(), stream(which).to_string().into()).await.unwrap();
            }
        };
        let stored = json!({"stream": "mainstay_events_team", "seq": 1});
        let answers = [error(503, 10008), error(503, 0), stored];
        tokio::select! {
            ids = answer(&client, &mut events, &answers) => ids,
            () = rest => Vec::new(),
        }
    };
    let event = routed(1, "data", std::slice::from_ref(&to));
    let (stored, ids) = tokio::join!(store.publish(event, false), electing);
    stored.unwrap();
    assert_eq!(ids, vec![names::message_id(&to, "s", "1"); 3]);
}

#[tokio::test]
async fn a_consumer_waits_for_the_election_of_a_leader() {
    let (server, client) = without_jetstream().await;
    let (store, to) = (server.store(64 << 20).await, id("team", "mine"));
    let mut source = store.deliverable(&to);
    let electing = async {
        let mut streams = subscribe(&client, "$JS.API.STREAM.INFO.*").await;
        let mut consumers = subscribe(&client, "$JS.API.CONSUMER.CREATE.>").await;
        answer(&client, &mut streams, &[Contents::Events, Contents::Letters].map(stream)).await;
        // A request that is repeated does not read the streams again.
        answer(&client, &mut consumers, &[error(503, 10008), error(500, 10009), error(500, 10007)]).await;
        tokio::time::timeout(PATIENCE, consumers.next()).await.expect("a further request").unwrap()
    };
    tokio::select! {
        _ = source.next(1) => panic!("there is no event"),
        request = electing => assert!(request.subject.contains("trigger_mine"), "{}", request.subject),
    }
}

#[tokio::test]
async fn failed_deliveries_are_read_and_stored_after_the_election_of_a_leader() {
    let (server, client) = without_jetstream().await;
    let store = server.jet_stream(64 << 20).await;
    let subject = names::attempts(&id("team", "mine"), 1, 0);
    let mut reads = subscribe(&client, "$JS.API.STREAM.MSG.GET.*").await;
    let message = json!({"subject": "any", "seq": 1, "data": "Nw==", "time": "2025-01-01T00:00:00Z"});
    let answers = [error(503, 10008), error(503, 10009), json!({"message": message})];
    tokio::select! {
        read = store.repeat(Patience::of(PATIENCE), || store.read_attempts(&subject)) => assert_eq!(read.unwrap(), 7),
        () = answer_all(&client, &mut reads, &answers) => panic!("the server has ended"),
    }
    let mut streams = subscribe(&client, "$JS.API.STREAM.INFO.*").await;
    let mut numbers = subscribe(&client, "mainstay.attempts.>").await;
    let streams_after = [error(503, 10008), stream_of_numbers()];
    let stored = [error(503, 10008), error(503, 0), json!({"stream": names::ATTEMPTS, "seq": 1})];
    let payload = Bytes::from_static(b"1");
    tokio::select! {
        written = store.write_attempts(&subject, &payload, Patience::of(PATIENCE)) => written.unwrap(),
        () = answer_all(&client, &mut streams, &streams_after) => panic!("the server has ended"),
        () = answer_all(&client, &mut numbers, &stored) => panic!("the server has ended"),
    }
}

#[tokio::test]
async fn an_error_is_reported_in_time_without_a_leader_and_at_once_if_it_is_final() {
    let (server, client) = without_jetstream().await;
    let (store, to) = (server.store(64 << 20).await, id("team", "mine"));
    let publish = || async {
        let began = std::time::Instant::now();
        let refused = store.publish(routed(1, "data", std::slice::from_ref(&to)), false).await.unwrap_err();
        assert!(matches!(refused, Refused::Broker(_)), "{refused}");
        (refused.to_string(), began.elapsed())
    };
    let (refused, took) = publish().await;
    assert!(refused.contains("NATS did not store the event: "), "{refused}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    let mut streams = subscribe(&client, "$JS.API.STREAM.INFO.*").await;
    let forbidden = error(500, 10039);
    let answers = [forbidden];
    let ((refused, _), _) = tokio::join!(publish(), answer(&client, &mut streams, &answers));
    // A repeated request would have had no response.
    assert!(refused.contains("there is no leader"), "{refused}");
}
