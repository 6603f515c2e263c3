//! The listeners of other processes: the publisher of events, and the guard of the registry. Each runs with the memory
//! limit of its container.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use mainstay_function::registry::guard;
use rustls::ClientConfig;
use serde::Deserialize as _;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::listeners::{PATIENCE, deep, post, slow_senders, tell, tiny};
use mainstay_testkit::{
    limited_process::LimitedProcess,
    tls::PrivateCa,
    world::{NAMESPACE, World, free_address},
};

/// The memory limit of the containers in `manifests/eventing/deployment.yaml` and `manifests/registry/registry.yaml`,
/// in MiB.
const CONTAINER_MIB: u64 = 128;
/// Maximum bytes of an event.
const EVENT: usize = 65_536;
/// Headers of a body whose end never comes.
const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

/// Returns chunks of one byte.
fn single_bytes(count: usize) -> Vec<u8> {
    b"1\r\n0\r\n".repeat(count)
}

/// Starts the program with the environment of its container.
fn start(home: &Path, arguments: &[String]) -> LimitedProcess {
    let mut command: Command = mainstay_testkit::isolated(mainstay_testkit::program::executable());
    command.args(arguments).env_clear().env("MAINSTAY_EVENTING_DATA", home).stdin(Stdio::null());
    command.envs([("MALLOC_ARENA_MAX", "1"), ("MALLOC_TRIM_THRESHOLD_", "131072")]);
    LimitedProcess::start(&mut command, CONTAINER_MIB)
}

/// Waits until a port accepts connections.
async fn listens(address: SocketAddr) {
    let connected = async {
        while TcpStream::connect(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, connected).await.expect("it listens in time");
}

#[expect(clippy::print_stdout, reason = "figures, for those who look at them")]
fn judge(process: &mut LimitedProcess, what: &str, alone: u64, begun: Instant) {
    let place = if process.is_limited() { "in a cgroup" } else { "NOT in a cgroup: none can be made here" };
    let (peak, took) = (process.peak_mib(), begun.elapsed());
    println!("{what}: peak {alone} MiB one by one, {peak} MiB together, in {took:?}, {place}");
    assert_eq!(process.ended(), None, "{what}");
    assert!(peak <= CONTAINER_MIB, "{what}: {peak} MiB");
}

/// Returns a head for each endpoint that accepts events, and a maximal body.
fn events() -> Vec<(String, Vec<u8>)> {
    let data = r#"{"specversion":"1.0","id":"1","source":"s","type":"t","data":"#;
    let member = r#"{"specversion":"1.0","id":"1","source":"s","type":"t","a":"#;
    let first = r#"{"event-type":"a.b","event-type-version":"v1","event-time":"2020-04-02T21:37:00Z","data":"#;
    let mut all = Vec::new();
    for path in ["/publish", "/mock/events", "/namespaces/team/publish"] {
        let head = |length: usize| post(path, length, "").replace("application/json", "application/cloudevents+json");
        let mut bodies: Vec<_> = [data, member].into_iter().flat_map(|before| tiny(before, "}", EVENT)).collect();
        bodies.push(format!("{{{}\"\":0}}", r#""":0,"#.repeat(EVENT / 5 - 2)).into_bytes());
        all.extend(bodies.into_iter().map(|body| (head(body.len()), body)));
    }
    all.extend(tiny(first, "}", EVENT).into_iter().map(|body| (post("/mock/v1/events", body.len(), ""), body)));
    all.push((post("/mock/v1/events", EVENT, ""), deep(first, EVENT)));
    all
}

/// Sends bodies in single bytes, without their end, on very many connections simultaneously.
fn single_byte_senders(address: SocketAddr, paths: &[&str], connections: usize) -> JoinSet<()> {
    let mut all = JoinSet::new();
    let body: Arc<[u8]> = single_bytes(EVENT - 1).into();
    for path in paths.iter().cycle().take(connections) {
        let (head, body) = (post(path, 0, CHUNKED).replace("Content-Length: 0\r\n", ""), Arc::clone(&body));
        all.spawn(async move {
            let Ok(mut stream) = TcpStream::connect(address).await else { return };
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(&body).await;
            let _ = timeout(PATIENCE, stream.read(&mut [0; 1])).await;
        });
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_publisher_of_events_holds_its_bounds_against_the_smallest_values() {
    let (world, home, address) = (World::new().await, tempfile::tempdir().unwrap(), free_address());
    let definitions = serde_yaml::Deserializer::from_str(mainstay_eventing::DEFINITIONS);
    world.define_only(definitions.map(|one| serde_json::Value::deserialize(one).unwrap()).collect());
    let subscriber = json!({"ref": {"apiVersion": "v1", "kind": "Service", "name": "sink"}});
    let trigger = json!({
        "apiVersion": "eventing.knative.dev/v1alpha1", "kind": "Trigger", "metadata": {"name": "all"},
        "spec": {"broker": "default", "subscriber": subscriber},
    });
    world.create("eventing.knative.dev/v1alpha1", "triggers", NAMESPACE, trigger);
    let server = world.server.embedded();
    let serving = server.serve("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
    let kubeconfig = home.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig(serving.address(), None)).unwrap();
    // No server listens there, so that the events stay stored.
    let arguments = [
        "eventing".to_owned(),
        "run".to_owned(),
        format!("--listen={address}"),
        format!("--service={NAMESPACE}/sink:80={}", free_address()),
        "--allow-subscriptions=*=kyma-system".to_owned(),
        "--publisher-auth=none".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
    ];
    let mut process = start(home.path(), &arguments);
    let ready = async {
        while tell(address, "GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n", b"").await != "HTTP/1.1 200 OK" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, ready).await.expect("it accepts events in time");

    let (begun, events) = (Instant::now(), events());
    for (head, body) in &events {
        let answer = tell(address, head, body).await;
        let what = head.lines().next().unwrap();
        assert_eq!(process.ended(), None, "{what}");
        assert!(answer.starts_with("HTTP/1.1 2") || answer.starts_with("HTTP/1.1 4"), "{what}: {answer}");
    }
    let alone = process.peak_mib();
    let head = post("/publish", EVENT, "");
    let _slow = slow_senders(address, &head);
    let mut single = single_byte_senders(address, &["/publish", "/mock/v1/events", "/mock/events"], 240);
    let mut asked = JoinSet::new();
    for (head, body) in events {
        asked.spawn(async move { tell(address, &head, &body).await });
    }
    while asked.join_next().await.is_some() {}
    while single.join_next().await.is_some() {}
    assert_eq!(process.ended(), None, "single bytes");
    assert_eq!(tell(address, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", b"").await, "HTTP/1.1 200 OK");
    judge(&mut process, "publisher of events", alone, begun);
}

/// Key of the logins of namespaces.
const KEY: &str = "key-of-the-logins-of-namespaces";
/// Namespaces with a login.
const TEAMS: [&str; 3] = ["team-a", "team-b", "team-c"];
/// Bytes of a body that each sender offers. All bodies together are many times the limit.
const MOST: usize = 16 << 20;
/// Connections of each namespace: the maximum share of one namespace.
const SHARE: usize = 48;

/// A guard in front of a registry that reads no body and ends no response.
struct Guarded {
    process: LimitedProcess,
    address: SocketAddr,
    client: TlsConnector,
    _files: tempfile::TempDir,
    _registry: JoinSet<()>,
}

impl Guarded {
    async fn start() -> Self {
        let (ca, files, address) = (PrivateCa::new(), tempfile::tempdir().unwrap(), free_address());
        let pair = ca.issue("127.0.0.1");
        for (name, text) in [
            ("username", "admin"),
            ("password", "secret"),
            ("namespaceKey", KEY),
            ("tls.crt", pair.certificate.as_str()),
            ("tls.key", pair.key.as_str()),
        ] {
            std::fs::write(files.path().join(name), text).unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let behind = listener.local_addr().unwrap();
        let mut registry = JoinSet::new();
        registry.spawn(serve_slowly(listener));
        let arguments = [
            "registry".to_owned(),
            "guard".to_owned(),
            format!("--listen={address}"),
            format!("--registry={behind}"),
            format!("--login={}", files.path().display()),
        ];
        let process = start(files.path(), &arguments);
        listens(address).await;
        let config = ClientConfig::builder().with_root_certificates(ca.store()).with_no_client_auth();
        let client = TlsConnector::from(Arc::new(config));
        Self { process, address, client, _files: files, _registry: registry }
    }

    /// Connects over TLS; `None` if the guard refuses.
    async fn connect(&self) -> Option<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await.ok()?;
        self.client.connect(self.address.ip().into(), stream).await.ok()
    }

    /// Sends a request and returns the first line of the response.
    async fn asks(&self, head: &str, body: &[u8]) -> String {
        let mut stream = self.connect().await.expect("it accepts a connection");
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(body).await;
        let mut answer = vec![0; 4096];
        let read = timeout(PATIENCE, stream.read(&mut answer)).await.expect("an answer comes, or the end");
        let answer = String::from_utf8_lossy(&answer[..read.unwrap_or(0)]).into_owned();
        answer.lines().next().unwrap_or_default().to_owned()
    }
}

/// Answers `/v2/` of a registry. The registry reads no body of an upload and ends no response with a blob.
async fn serve_slowly(listener: TcpListener) {
    let mut all = JoinSet::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        all.spawn(async move {
            let mut head = vec![0; 16 << 10];
            let read = stream.read(&mut head).await.unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            if head.starts_with("GET /v2/ ") {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}").await;
                return;
            }
            if head.starts_with("GET ") {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
                send(&mut stream, &single_bytes(16 << 10)).await;
            }
            std::future::pending::<()>().await;
        });
    }
}

/// Sends these bytes again and again, until the other side reads no more of them for a while, or has read [`MOST`].
async fn send<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) {
    for _ in 0..MOST / bytes.len() {
        if !matches!(timeout(Duration::from_secs(3), stream.write_all(bytes)).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// Returns the headers of a request with the login of a namespace.
fn login_of(namespace: &str) -> String {
    let encoded = |text: &str| BASE64_STANDARD.encode(text);
    let data = json!({"namespaceKey": encoded(KEY), "registryAddress": encoded("registry:5000")});
    let copy = guard::of_namespace(&data, namespace).unwrap();
    let password = BASE64_STANDARD.decode(copy["password"].as_str().unwrap()).unwrap();
    let login = encoded(&format!("{namespace}:{}", String::from_utf8(password).unwrap()));
    format!("Host: registry\r\nAuthorization: Basic {login}\r\n")
}

/// Sends an endless body, or receives an endless response. The registry does not read the body, and this client does
/// not read the response. Returns the open connection.
async fn endless(mut stream: TlsStream<TcpStream>, namespace: &str, number: usize) -> TlsStream<TcpStream> {
    let (login, name) = (login_of(namespace), format!("{namespace}_fn"));
    let head = match number % 3 {
        0 => format!("GET /v2/{name}/blobs/sha256:1 HTTP/1.1\r\n{login}\r\n"),
        1 => format!("PATCH /v2/{name}/blobs/uploads/1 HTTP/1.1\r\n{login}{CHUNKED}\r\n"),
        _ => format!("PUT /v2/{name}/manifests/1 HTTP/1.1\r\n{login}{CHUNKED}\r\n"),
    };
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 15];
    if number.is_multiple_of(3) {
        timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("an answer begins").unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        return stream;
    }
    let large = [b"10000\r\n".as_slice(), &vec![b'0'; 64 << 10], b"\r\n"].concat();
    let body = if number.is_multiple_of(2) { large } else { single_bytes(4 << 10) };
    send(&mut stream, &body).await;
    let answered = timeout(Duration::from_millis(100), stream.read(&mut answer)).await;
    assert!(answered.is_err(), "the guard takes the body: {}", String::from_utf8_lossy(&answer));
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guard_of_the_registry_holds_its_bounds_against_the_smallest_values() {
    let mut guarded = Guarded::start().await;
    let begun = Instant::now();
    let version = format!(
        "GET /v2/ HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {}\r\n\r\n",
        BASE64_STANDARD.encode("admin:secret")
    );
    assert_eq!(guarded.asks(&version, b"").await, "HTTP/1.1 200 OK");
    let alone = guarded.process.peak_mib();
    // Half-sent heads of clients without a login.
    let half = format!("GET /v2/ HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(8 << 10));
    let _half = slow_senders(guarded.address, &half);
    let mut senders = JoinSet::new();
    for namespace in TEAMS {
        for number in 0..SHARE {
            let Some(stream) = guarded.connect().await else { continue };
            senders.spawn(endless(stream, namespace, number));
        }
    }
    let mut streams = Vec::new();
    while let Some(stream) = senders.join_next().await {
        streams.push(stream.unwrap());
    }
    assert_eq!(streams.len(), TEAMS.len() * SHARE);
    assert_eq!(guarded.process.ended(), None, "single bytes");
    assert_eq!(guarded.asks(&version, b"").await, "HTTP/1.1 200 OK");
    judge(&mut guarded.process, "guard of the registry", alone, begun);
}
