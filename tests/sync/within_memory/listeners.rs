//! Every listener of the agent and of `mainstay dev`, against bodies of the maximum size: made of the smallest values,
//! nested as deeply as possible, sent as slowly as possible, on very many connections.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

use mainstay_testkit::{
    admission::WebhookClient,
    dev::Dev,
    limited_agent::{LimitedAgent, POD_MIB},
    webhooks::signature,
    world::{World, free_address},
};

const TOKEN: &str = "token-of-the-receiver";
const MIB: usize = 1 << 20;
/// Number of open connections of each kind.
const CONNECTIONS: usize = 150;
/// Upper bound for every wait, beside slow tests.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a body of at most `size` bytes: `{before}[{item},{item},…]{after}`.
fn many(before: &str, item: &str, after: &str, size: usize) -> Vec<u8> {
    let room = size - before.len() - after.len() - 2 - item.len();
    let items = format!("{item},").repeat(room / (item.len() + 1));
    format!("{before}[{items}{item}]{after}").into_bytes()
}

/// Returns a body of `size` bytes that is nested throughout.
pub(super) fn deep(before: &str, size: usize) -> Vec<u8> {
    format!("{before}{}", "[".repeat(size - before.len())).into_bytes()
}

/// Returns bodies with the smallest JSON values, between two texts.
pub(super) fn tiny(before: &str, after: &str, size: usize) -> Vec<Vec<u8>> {
    let mut all: Vec<_> =
        ["0", "{}", "[]", r#"{"":0}"#, r#""""#].iter().map(|item| many(before, item, after, size)).collect();
    all.push(deep(before, size));
    all
}

/// Sends bytes to a port. Returns the first line of the response.
pub(super) async fn tell(address: SocketAddr, head: &str, body: &[u8]) -> String {
    let Ok(mut stream) = TcpStream::connect(address).await else { return String::new() };
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(body).await;
    let mut answer = vec![0; 4096];
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut answer)).await.expect("an answer comes, or the end");
    let answer = String::from_utf8_lossy(&answer[..read.unwrap_or(0)]).into_owned();
    answer.lines().next().unwrap_or_default().to_owned()
}

pub(super) fn post(path: &str, length: usize, headers: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n"
    )
}

/// Opens connections that send a head and then a body byte by byte, as long as the server accepts it.
pub(super) fn slow_senders(address: SocketAddr, head: &str) -> JoinSet<()> {
    let mut all = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let head = head.to_owned();
        all.spawn(async move {
            let Ok(mut stream) = TcpStream::connect(address).await else { return };
            if stream.write_all(head.as_bytes()).await.is_ok() {
                while stream.write_all(b"0").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        });
    }
    all
}

fn address_of(url: &str) -> SocketAddr {
    url.split("//").nth(1).unwrap().split('/').next().unwrap().parse().unwrap()
}

/// A running agent with all of its listeners, a Receiver, and its webhooks configured.
struct Listeners {
    world: World,
    agent: LimitedAgent,
    receive: String,
    webhooks: WebhookClient,
}

async fn listeners() -> Listeners {
    let world = World::new().await;
    let (receive, admit) = (free_address(), free_address());
    world.configure_webhooks(admit);
    world.convert_at(Some(format!("https://{admit}/convert")));
    world.set_secret("hook", json!({"token": TOKEN}));
    world.receiver("hook", json!({}));
    let arguments =
        [format!("--receive={receive}"), format!("--receiver-url=http://{receive}"), format!("--admit={admit}")];
    let agent = LimitedAgent::start_with(&world, &[], &arguments).await;
    let receive = world.receiver_url("hook").await;
    let client = || WebhookClient::new(&world, admit, None);
    world.until("the webhooks are trusted", |_| client().is_some()).await;
    let webhooks = client().unwrap();
    for path in ["/validation/function", "/defaulting/functions", "/convert"] {
        let end = Instant::now() + PATIENCE;
        while !webhooks.post(path, b"{}").await.starts_with("400") {
            assert!(Instant::now() < end, "{path} is not answered\n{}", agent.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Listeners { world, agent, receive, webhooks }
}

/// Returns reviews of both kinds.
fn reviews() -> Vec<(&'static str, Vec<u8>)> {
    let head =
        |kind: &str, group: &str| format!(r#"{{"apiVersion":"{group}/v1","kind":"{kind}","request":{{"uid":"u","#);
    let convert = head("ConversionReview", "apiextensions.k8s.io")
        + r#""desiredAPIVersion":"serverless.kyma-project.io/v1alpha2","objects":"#;
    let admit = head("AdmissionReview", "admission.k8s.io") + r#""operation":"UPDATE","object":"#;
    let mut all: Vec<_> = tiny(&convert, "}}", 24 * MIB).into_iter().map(|body| ("/convert", body)).collect();
    // Functions that grow during conversion.
    let function = |name: usize| {
        let numbers = String::from_utf8(many("", "1e15", "", 64 << 10)).unwrap();
        format!(
            r#"{{"apiVersion":"serverless.kyma-project.io/v1alpha1","kind":"Function","metadata":{{"name":"{name}"}},"x":{numbers}}}"#
        )
    };
    let functions: Vec<_> = (0..340).map(function).collect();
    all.push(("/convert", format!("{convert}[{}]}}}}", functions.join(",")).into_bytes()));
    for path in ["/validation/function", "/defaulting/functions"] {
        all.extend(tiny(&format!("{admit}{{\"metadata\":"), "}}}", 4 * MIB - 10).into_iter().map(|body| (path, body)));
    }
    all
}

/// Returns the head of a signed delivery to a Receiver.
fn delivery(path: &str, body: &[u8]) -> String {
    let headers = format!(
        "X-GitHub-Event: push\r\nX-Hub-Signature-256: {}\r\n",
        signature(TOKEN, std::str::from_utf8(body).unwrap())
    );
    post(path, body.len(), &headers)
}

/// Starts endless senders to all listeners of an agent.
fn slow_senders_to(agent: &LimitedAgent, hooks: (SocketAddr, &str), webhooks: &WebhookClient) -> JoinSet<()> {
    let mut slow = slow_senders(agent.listen, &post("/metrics", 24 * MIB, ""));
    let said = post(hooks.1, 3 * MIB, "");
    let chunked = said.replace(&format!("Content-Length: {}", 3 * MIB), "Transfer-Encoding: chunked");
    for head in [said, chunked] {
        slow.spawn(async move { while slow_senders(hooks.0, &head).join_next().await.is_some() {} });
    }
    for (path, size) in [("/convert", 24 * MIB), ("/validation/function", 4 * MIB)] {
        let (client, head) = (webhooks.clone(), post(path, size, ""));
        slow.spawn(async move {
            let mut streams = Vec::new();
            for _ in 0..CONNECTIONS / 3 {
                let Some(mut stream) = client.connect().await else { continue };
                let _ = stream.write_all(head.as_bytes()).await;
                streams.push(stream);
            }
            std::future::pending::<()>().await;
        });
    }
    slow
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_of_the_agent_hold_their_bounds_against_the_smallest_values() {
    let Listeners { world: _world, mut agent, receive, webhooks } = listeners().await;
    let hooks = address_of(&receive);
    let path = receive.split_once(&hooks.to_string()).unwrap().1.to_owned();
    let deliveries = tiny(r#"{"ref": "refs/heads/main", "commits":"#, "}", 3 * MIB);
    let begun = Instant::now();
    // Each body is first sent alone. The whole body is read and validated.
    for (path, body) in reviews() {
        let answer = webhooks.post(path, &body).await;
        agent.assert_alive(path);
        let is_judged = answer.starts_with("400 ") || answer.contains("much larger once it is converted");
        assert!(is_judged, "{path}: {}: {answer}", String::from_utf8_lossy(&body[body.len() - 20..]));
    }
    for body in &deliveries {
        let answer = tell(hooks, &delivery(&path, body), body).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") || answer.starts_with("HTTP/1.1 200 "), "a Receiver: {answer}");
    }
    let alone = agent.peak_mib();
    // All reviews and deliveries together, beside endless senders.
    let _slow = slow_senders_to(&agent, (hooks, &path), &webhooks);
    let mut asked = JoinSet::new();
    for (path, body) in reviews() {
        let webhooks = webhooks.clone();
        asked.spawn(async move { (path.to_owned(), webhooks.post(path, &body).await) });
    }
    for body in deliveries {
        let head = delivery(&path, &body);
        asked.spawn(async move { ("a Receiver".to_owned(), tell(hooks, &head, &body).await) });
    }
    while let Some(answered) = asked.join_next().await {
        let (what, answer) = answered.unwrap();
        agent.assert_alive(&what);
        assert!(!answer.contains("InternalError"), "{what}: {answer}");
    }
    let alive = tell(agent.listen, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", b"").await;
    assert_eq!(alive, "HTTP/1.1 200 OK");
    let place = if agent.is_limited() { "in a cgroup" } else { "NOT in a cgroup: none can be made here" };
    let (peak, took) = (agent.peak_mib(), begun.elapsed());
    println!("listeners of the agent: peak {alone} MiB one by one, {peak} MiB together, in {took:?}, {place}");
    agent.assert_alive("all of it");
    assert!(peak <= POD_MIB, "{peak} MiB");
}

/// Returns the request head of a client of the embedded cluster.
fn write(method: &str, path: &str, media: &str, length: usize, token: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nContent-Type: {media}\r\nContent-Length: \
         {length}\r\n\r\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_of_the_embedded_cluster_hold_their_bounds_against_the_smallest_values() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    let home = tempfile::tempdir().unwrap();
    let mut dev = Dev::start(home.path(), &["--listen", "127.0.0.1:0"]);
    let is_limited = dev.limit_memory(POD_MIB);
    let config = std::fs::read_to_string(&dev.kubeconfig).unwrap();
    let quoted = |before: &str| config.split_once(before).unwrap().1.split('"').next().unwrap().to_owned();
    let (address, token) = (address_of(&quoted("server: \"")), quoted("token: \""));
    let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"x":"#;
    let begun = Instant::now();
    let mut requests = Vec::new();
    for body in tiny(object, "}", 3 * MIB) {
        for (method, path, media) in [
            ("POST", MAPS.to_owned(), "application/json"),
            ("POST", MAPS.to_owned(), "application/yaml"),
            ("PATCH", format!("{MAPS}/a"), "application/merge-patch+json"),
            ("PATCH", format!("{MAPS}/a?fieldManager=a"), "application/apply-patch+yaml"),
            ("PATCH", format!("{MAPS}/a"), "application/json-patch+json"),
        ] {
            requests.push((write(method, &path, media, body.len(), &token), body.clone()));
        }
    }
    let lines = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\nx:\n{}", "- 0\n".repeat(700_000));
    requests.push((write("POST", MAPS, "application/yaml", lines.len(), &token), lines.into_bytes()));
    for body in tiny(r#"{"schemaVersion":2,"x":"#, "}", 4 * MIB) {
        requests.push((write("PUT", "/v2/hello/manifests/1", MANIFEST, body.len(), &token), body));
    }
    for (head, body) in &requests {
        let answer = tell(address, head, body).await;
        let what = head.lines().next().unwrap();
        assert_eq!(dev.ended(), None, "{what}");
        assert!(
            answer.starts_with("HTTP/1.1 4"),
            "{what}: {}: {answer}",
            String::from_utf8_lossy(&body[body.len() - 20..])
        );
    }
    let alone = dev.peak_mib();
    let _slow = [
        slow_senders(address, &write("POST", MAPS, "application/json", 3 * MIB, &token)),
        slow_senders(address, &write("PUT", "/v2/hello/manifests/1", MANIFEST, 4 * MIB, &token)),
    ];
    let mut asked = JoinSet::new();
    for (head, body) in requests {
        asked.spawn(async move {
            let sent = async {
                let mut stream = TcpStream::connect(address).await?;
                stream.write_all(head.as_bytes()).await?;
                stream.write_all(&body[..body.len() - 1]).await?;
                // The last byte is never sent.
                stream.read(&mut [0; 1]).await
            };
            let _ = tokio::time::timeout(Duration::from_secs(3), sent).await;
        });
    }
    while asked.join_next().await.is_some() {}
    let version = format!("GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n");
    assert_eq!(tell(address, &version, b"").await, "HTTP/1.1 200 OK");
    let place = if is_limited { "in a cgroup" } else { "NOT in a cgroup: none can be made here" };
    let (peak, took) = (dev.peak_mib(), begun.elapsed());
    println!(
        "listeners of the embedded cluster: peak {alone} MiB one by one, {peak} MiB together, in {took:?}, {place}"
    );
    assert_eq!(dev.ended(), None);
    assert!(peak <= POD_MIB, "{peak} MiB");
}
