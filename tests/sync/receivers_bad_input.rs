//! Invalid input to the agent's listeners is refused and does not affect other clients.

use std::time::Duration;

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use mainstay_testkit::{
    listener::page,
    webhooks::{client, deliver, listening, push, send, signature},
    world::{World, config_map, free_address},
};

const TOKEN: &str = "a token of enough bytes";

/// Creates a world with a Receiver. Also returns its URL.
async fn receiving(connections: usize) -> (World, String) {
    let mut world = World::new().await;
    world.listen = Some(free_address());
    world.receive = Some(listening());
    world.clients.connections = connections;
    world.clients.head = Duration::from_secs(2);
    world.set_secret("hook", json!({"token": TOKEN}));
    world.receiver("hook", json!({}));
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.sync("demo", json!({}));
    world.start();
    world.ready("demo").await;
    let url = world.receiver_url("hook").await;
    (world, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_bad_delivery_is_refused_with_its_status() {
    let (world, url) = receiving(64).await;
    let body = push(&world.remote.path().display().to_string(), "refs/heads/main");
    let right = signature(TOKEN, &body);
    let post = |url: &str| client().post(url).header("X-GitHub-Event", "push").body(body.clone());
    let signed = |url: &str| post(url).header("X-Hub-Signature-256", &right);
    assert_eq!(send(signed(&url)).await, (200, "looking up the remote for GitSync demo".into()));

    let missing = "the header X-Hub-Signature-256 is missing: set the Receiver's token as the secret of the webhook";
    assert_eq!(send(post(&url)).await, (400, missing.into()));
    let wrong = "the header X-Hub-Signature-256 does not match the token of the Receiver";
    let forged = signature("guess", &body);
    assert_eq!(send(post(&url).header("X-Hub-Signature-256", forged)).await, (400, wrong.into()));
    assert_eq!(send(signed(&url).body(format!("{body} "))).await, (400, wrong.into()), "another body");
    let (status, text) = deliver(&url, TOKEN, "{").await;
    assert_eq!((status, text.starts_with("the body is not a payload")), (400, true), "{text}");

    // All unknown paths have the same response.
    let nobody = (404, "not found".to_owned());
    let path = world.receiver_status("hook")["webhookPath"].as_str().unwrap().to_owned();
    let base = url.strip_suffix(&path).unwrap();
    for other in [
        "/".into(),
        "/hook/".into(),
        "/hook".into(),
        format!("{path}x"),
        path[..69].to_owned(),
        format!("{path}/"),
        format!("/{path}"),
    ] {
        assert_eq!(send(signed(&format!("{base}{other}"))).await, nobody, "{other}");
    }
    assert_eq!(send(signed(&format!("{url}?a=b"))).await, nobody, "a query");
    assert_eq!(send(client().get(format!("{base}/metrics"))).await, nobody, "the other listener's");

    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        let request = client().request(method.parse().unwrap(), &url);
        assert_eq!(send(request).await, (405, "deliveries are sent with POST".into()), "{method}");
    }

    let large = vec![b'x'; 4 << 20];
    let too_large = (413, "the body is larger than 3 MiB".to_owned());
    assert_eq!(send(signed(&url).body(large.clone())).await, too_large);
    let chunks = large.chunks(64 << 10).map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec())).collect::<Vec<_>>();
    let chunked = reqwest::Body::wrap_stream(futures::stream::iter(chunks));
    assert_eq!(send(signed(&url).body(chunked)).await, too_large, "of unknown length");

    let ping = r#"{"zen": "Keep it logically awesome."}"#;
    let ping = client()
        .post(&url)
        .header("X-GitHub-Event", "ping")
        .header("X-Hub-Signature-256", signature(TOKEN, ping))
        .body(ping);
    assert_eq!(send(ping).await, (200, "pong".into()));
    let issues = signed(&url).header("X-GitHub-Event", "issues");
    assert_eq!(send(issues).await.0, 200);

    world.change_receiver("hook", json!({"suspend": true}));
    world.receiver_is("hook", "False Suspended").await;
    assert_eq!(send(signed(&url)).await, (503, "this Receiver is suspended".into()));
    world.change_receiver("hook", json!({"suspend": false}));
    world.receiver_is("hook", "True Receiving").await;
    assert_eq!(send(signed(&url)).await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_bodies_of_one_receiver_do_not_delay_another() {
    let (mut world, url) = receiving(64).await;
    world.receiver("other", json!({}));
    let other = world.receiver_url("other").await;
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("POST /{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 3000001\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        held.push(tokio::spawn(async move {
            // Most of the clients cannot send everything: the memory for bodies is limited.
            let _ = stream.write_all(&vec![b'x'; 3_000_000]).await;
            std::future::pending::<()>().await;
            drop(stream);
        }));
    }
    world.remote.file("a.yaml", config_map("a", "2")).commit("two");
    let body = push(&world.remote.path().display().to_string(), "refs/heads/main");
    assert_eq!(deliver(&other, TOKEN, &body).await.0, 200);
    world.until("the push is applied", |w| w.data("a") == "2").await;
    held.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Sends bytes and waits. Returns the response.
async fn dribble(address: &str, sent: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(sent).await.unwrap();
    let mut answer = Vec::new();
    // A closed connection ends the response, too.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn most_of_many_slow_bodies_for_one_receiver_are_refused_at_once() {
    let (world, url) = receiving(64).await;
    world.receiver("other", json!({}));
    let other = world.receiver_url("other").await;
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let slow = format!("POST /{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{");
    let slow = futures::future::join_all((0..40).map(|_| dribble(address, slow.as_bytes())));
    let body = push(&world.remote.path().display().to_string(), "refs/heads/main");
    let (answers, (status, _)) = tokio::join!(slow, deliver(&other, TOKEN, &body));
    assert_eq!(status, 200);
    let with = |status: &str| answers.iter().filter(|answer| answer.starts_with(status)).collect::<Vec<_>>();
    let (held, refused) = (with("HTTP/1.1 408 "), with("HTTP/1.1 503 "));
    assert_eq!((held.len(), refused.len()), (16, 24));
    assert!(refused.iter().all(|answer| answer.contains("\r\nretry-after: 5\r\n")), "{}", refused[0]);
    assert_eq!(deliver(&url, TOKEN, &body).await.0, 200, "there is room again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_send_slowly_are_cut_off() {
    let (world, url) = receiving(64).await;
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let own = world.listen.unwrap().to_string();
    let head = format!("POST /{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n");
    let patience = tokio::time::timeout(mainstay_testkit::PATIENCE, async {
        let long = format!("{head}X: {}\r\n\r\n", "x".repeat(64 << 10));
        let many = format!("{head}{}\r\n", "X: y\r\n".repeat(1000));
        let body = format!("{head}\r\n{{");
        tokio::join!(
            dribble(address, b""),
            dribble(address, b"POST /"),
            dribble(address, head.as_bytes()),
            dribble(&own, b"GET /metrics HTTP/1.1\r\n"),
            dribble(address, long.as_bytes()),
            dribble(&own, long.as_bytes()),
            dribble(address, many.as_bytes()),
            dribble(address, body.as_bytes()),
        )
    });
    let (nothing, line, half, other, long, own_long, many, body) = patience.await.expect("all of them are cut off");
    assert_eq!([nothing, line, half, other], ["", "", "", ""]);
    for answer in [long, own_long, many] {
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
    assert!(body.starts_with("HTTP/1.1 408 "), "{body}");
    assert_eq!(page(&world, "/readyz").await.unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_clients_do_not_block_others() {
    let (mut world, url) = receiving(4).await;
    let address = url.strip_prefix("http://").unwrap().split_once('/').unwrap().0;
    let own = world.listen.unwrap();
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(address).await.unwrap());
        silent.push(TcpStream::connect(own).await.unwrap());
    }
    world.remote.file("a.yaml", config_map("a", "2")).commit("two");
    let body = push(&world.remote.path().display().to_string(), "refs/heads/main");
    assert_eq!(deliver(&url, TOKEN, &body).await.0, 200);
    world.until("the push is applied", |w| w.data("a") == "2").await;
    assert_eq!(page(&world, "/healthz").await.unwrap().0, 200);
    drop(silent);
}
