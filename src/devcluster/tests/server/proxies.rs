//! Proxying to the pods of a node, and addresses that must not be proxied to.

use crate::machine::{HOST, Machine, PODS};
use crate::world::{Answer, World};
use devcluster::Options;
use serde_json::{Value, json};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const PROXY: &str = "/api/v1/namespaces/default/services/http:web:main/proxy";

/// A server that echoes requests, redirects, or upgrades the connection.
const ECHO: &str = r"
import http.server, json, os, socketserver
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def answer(self):
        if self.headers.get('upgrade') == 'echo':
            self.wfile.write(b'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n')
            while True:
                data = self.rfile.read1(1024)
                if not data:
                    return
                self.wfile.write(data.upper())
        body = self.rfile.read(int(self.headers.get('content-length') or 0)).decode()
        if self.path.startswith('/away'):
            self.send_response(302)
            self.send_header('location', self.path.split('?', 1)[1])
            self.send_header('content-length', '0')
            self.end_headers()
            return
        if self.path.startswith('/endless'):
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b'x' * 65536)
            except OSError:
                open(os.environ['LAST_WORDS'], 'w').write('left')
                self.close_connection = True
                return
        seen = {name.lower(): value for name, value in self.headers.items()}
        text = json.dumps({'method': self.command, 'path': self.path, 'headers': seen, 'body': body}).encode()
        self.send_response(418 if self.path.startswith('/teapot') else 200)
        self.send_header('content-length', str(len(text)))
        self.send_header('access-control-allow-origin', '*')
        self.send_header('connection', 'x-hop')
        self.send_header('x-hop', '1')
        self.send_header('x-kept', '1')
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(text)
    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer((os.environ['POD_ADDRESS'], 8080), Answer).serve_forever()
";

/// A machine with a serving pod and its Service.
async fn machine() -> Machine {
    let machine = Machine::new();
    let ports = json!([{"name": "main", "containerPort": 8080}]);
    let container = json!({
        "name": "main", "image": HOST, "command": ["python3", "-c", ECHO], "ports": ports,
        "readinessProbe": {"tcpSocket": {"port": "main"}},
    });
    let spec = json!({"terminationGracePeriodSeconds": 0, "containers": [container]});
    let pod = json!({"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": spec});
    machine.world.post(PODS, pod).await.expect(201);
    let ports = json!([{"name": "main", "port": 80, "targetPort": "main"}]);
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": ports}});
    machine.world.post(SERVICES, service).await.expect(201);
    until_served(&machine.world, PROXY).await;
    machine
}

/// Waits until the proxy returns the pod's response.
async fn until_served(world: &World, proxy: &str) {
    let mut changes = world.server.subscribe();
    while world.get(&format!("{proxy}/")).await.code != 200 {
        let changed = tokio::time::timeout(Duration::from_secs(30), changes.next()).await;
        changed.expect("the service gets a pod");
    }
}

async fn ask(machine: &Machine, method: &str, path: &str, body: &str) -> Answer {
    machine.world.ask(method, &format!("{PROXY}{path}"), "text/plain", "", body.to_owned()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_passes_requests_and_answers_on() {
    let machine = machine().await;
    let answer = ask(&machine, "POST", "/a%20b/..%2Fc//d/?x=%2F&y=1", "hello").await;
    let seen = answer.expect(200);
    assert_eq!(
        (&seen["method"], &seen["path"], &seen["body"]),
        (&json!("POST"), &json!("/c/d/?x=%2F&y=1"), &json!("hello"))
    );
    assert_eq!(seen["headers"]["content-type"], "text/plain");
    assert_eq!(seen["headers"]["x-forwarded-uri"], format!("{PROXY}/a%20b/..%2Fc//d/").as_str());
    assert_eq!(answer.headers.get("x-kept").unwrap(), "1");
    for gone in ["access-control-allow-origin", "x-hop"] {
        assert_eq!(answer.headers.get(gone), None, "{gone}");
    }
    assert_eq!(ask(&machine, "GET", "/teapot", "").await.expect(418)["path"], "/teapot");
    for method in ["PUT", "PATCH", "DELETE", "OPTIONS"] {
        assert_eq!(ask(&machine, method, "/", "b").await.expect(200)["method"], method);
    }
    let head = ask(&machine, "HEAD", "/", "").await;
    assert_eq!((head.code, head.text.as_str()), (200, ""));
    let long = ask(&machine, "POST", "/", &"x".repeat(4 << 20)).await;
    long.refused(413, "RequestEntityTooLarge", "limit is 3145728");
    let pod = machine.world.get(&format!("{PODS}/web/proxy/deep")).await.expect(200);
    assert_eq!(pod["path"], "/deep");
    let numbered = machine.world.get(&format!("{SERVICES}/web:80/proxy/")).await.expect(200);
    assert_eq!(numbered["path"], "/");
    let closed = machine.world.get(&format!("{PODS}/web:1/proxy/")).await;
    closed.refused(503, "ServiceUnavailable", "connect: connection refused");
    let secure = machine.world.get(&format!("{SERVICES}/https:web:main/proxy/")).await;
    secure.refused(503, "ServiceUnavailable", "speaks no TLS to pods");
    for (path, wanted) in [("web:99999", "address 99999: invalid port"), ("web:x", "unknown port")] {
        machine.world.get(&format!("{PODS}/{path}/proxy/")).await.refused(503, "ServiceUnavailable", wanted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn links_of_a_pod_lead_through_its_proxy() {
    let machine = machine().await;
    for (link, expected) in [
        ("/a/?b=c".to_owned(), format!("{PROXY}/a/?b=c")),
        ("a".to_owned(), "a".to_owned()),
        ("http://example.com/a".to_owned(), "http://example.com/a".to_owned()),
    ] {
        let answer = ask(&machine, "GET", &format!("/away?{link}"), "").await;
        assert_eq!((answer.code, answer.headers["location"].to_str().unwrap()), (302, expected.as_str()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reaches_a_service_and_secrets_stay_here() {
    let machine = machine().await;
    let kubectl = machine.serve().await;
    let seen: Value =
        serde_json::from_str(&kubectl.run(&["get", "--raw", &format!("{PROXY}/path?q=1")]).await).unwrap();
    assert_eq!(seen["path"], "/path?q=1");
    assert_eq!(seen["headers"]["x-forwarded-for"], "127.0.0.1");
    for secret in ["authorization", "impersonate-user"] {
        assert_eq!(seen["headers"][secret], Value::Null, "{secret}");
    }
    let request = format!(
        "GET {PROXY}/ HTTP/1.1\r\nHost: {}\r\nConnection: X-Mine, close\r\nX-Mine: 1\r\nX-Other: 1\r\nTE: trailers\r\n\r\n",
        kubectl.host()
    );
    let mut stream = TcpStream::connect(kubectl.host()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let seen: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!((&seen["headers"]["x-other"], &seen["headers"]["x-mine"]), (&json!("1"), &Value::Null), "{seen}");
    assert_eq!((&seen["headers"]["te"], &seen["headers"]["host"]), (&Value::Null, &json!(kubectl.host())), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_carries_other_protocols() {
    let machine = machine().await;
    let kubectl = machine.serve().await;
    let mut stream = TcpStream::connect(kubectl.host()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head =
        format!("GET {PROXY}/ HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", kubectl.host());
    stream.write_all(head.as_bytes()).unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        read.push(byte[0]);
    }
    assert!(read.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&read));
    stream.write_all(b"hello").unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HELLO");
    let refused = head.replace("Upgrade: echo", "Upgrade: other");
    let mut stream = TcpStream::connect(kubectl.host()).unwrap();
    stream.write_all(refused.replace("Connection: Upgrade", "Connection: Upgrade, close").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("invalid upgrade response: status code 200"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_end_ends_with_its_reader() {
    let machine = machine().await;
    let kubectl = machine.serve().await;
    let mut stream = TcpStream::connect(kubectl.host()).unwrap();
    let request = format!("GET {PROXY}/endless HTTP/1.1\r\nHost: {}\r\n\r\n", kubectl.host());
    stream.write_all(request.as_bytes()).unwrap();
    stream.read_exact(&mut vec![0; 1 << 20]).unwrap();
    drop(stream);
    // The program notices the closed connection and writes its termination message.
    let begun = std::time::Instant::now();
    loop {
        let words = glob_last_words(machine.directory.path());
        if words.iter().any(|text| text == "left") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "the pod still writes: {words:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns the texts of all small files below a directory.
fn glob_last_words(directory: &std::path::Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let of = |path: std::path::PathBuf| match std::fs::symlink_metadata(&path) {
        Ok(found) if found.is_dir() => glob_last_words(&path),
        Ok(found) if found.is_file() && found.len() < 16 => std::fs::read_to_string(&path).into_iter().collect(),
        _ => Vec::new(),
    };
    entries.flatten().flat_map(|entry| of(entry.path())).collect()
}

/// Returns a listener that must never receive a connection, and its port.
fn trap() -> (std::net::TcpListener, u16) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_that_clients_write_lead_nowhere() {
    let (listener, port) = trap();
    let world = World::with(Options::default());
    let container = json!({"name": "c", "image": "x:1", "ports": [{"containerPort": port}]});
    let spec = json!({"schedulerName": "nobody", "containers": [container]});
    world.post(PODS, json!({"metadata": {"name": "p"}, "spec": spec})).await.expect(201);
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "web", "port": port}]}});
    world.post(SERVICES, service).await.expect(201);
    for (ip, code, why) in [
        ("127.0.0.1", 400, "address not allowed"),
        ("10.0.0.1", 503, "connect: no route to host"),
        ("::ffff:127.0.0.1", 503, "connect: no route to host"),
    ] {
        let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}});
        world.merge(&format!("{PODS}/p/status"), status).await.expect(200);
        for id in [format!("p:{port}"), "p".to_owned(), format!("http:p:{port}")] {
            let answer = world.get(&format!("{PODS}/{id}/proxy/")).await;
            assert_eq!(answer.code, code, "{ip} {}", answer.text);
            assert!(answer.text.contains(why), "{}", answer.text);
        }
        let target = json!({"kind": "Pod", "namespace": "default", "name": "p"});
        let ports = json!([{"name": "web", "port": port}]);
        let subsets = json!([{"addresses": [{"ip": ip, "targetRef": target}], "ports": ports}]);
        let endpoints = json!({"metadata": {"name": "s"}, "subsets": subsets});
        world.put("/api/v1/namespaces/default/endpoints/s", endpoints).await;
        let answer = world.get(&format!("{SERVICES}/s:web/proxy/")).await;
        assert_eq!(answer.code, 503, "{}", answer.text);
    }
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "somebody has connected");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_the_node_is_reached_only_where_it_is() {
    let machine = machine().await;
    let (listener, port) = trap();
    let pod = machine.world.get(&format!("{PODS}/web")).await.expect(200);
    let forged = json!({"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
    machine.world.merge(&format!("{PODS}/web/status"), forged).await.expect(200);
    let answer = machine.world.get(&format!("{PODS}/web:{port}/proxy/")).await;
    answer.refused(400, "BadRequest", "address not allowed");
    // A pod that claims another pod's address does not receive its requests either.
    let spec = json!({"schedulerName": "nobody", "containers": [{"name": "c", "image": "x:1"}]});
    machine.world.post(PODS, json!({"metadata": {"name": "liar"}, "spec": spec})).await.expect(201);
    let ip = &pod["status"]["podIP"];
    let forged = json!({"status": {"podIP": ip, "podIPs": [{"ip": ip}]}});
    machine.world.merge(&format!("{PODS}/liar/status"), forged).await.expect(200);
    let answer = machine.world.get(&format!("{PODS}/liar:8080/proxy/")).await;
    answer.refused(400, "BadRequest", "address not allowed");
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "somebody has connected");
}
