//! Services of a node: their addresses, and the targets of connections.

use crate::machine::{HOST, Machine, PODS, eventually};
use serde_json::{Value, json};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// A server that returns the variable `TEXT` and drains on SIGTERM.
const WEB: &str = r"
import http.server, os, signal, sys, threading
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = (os.environ['TEXT'] + ' ' + self.server.server_address[0]).encode()
        self.send_response(200)
        self.send_header('content-length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer((os.environ['POD_ADDRESS'], 8080), Answer)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
";

fn template(text: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{
            "name": "main", "image": HOST, "command": ["python3", "-c", WEB], "env": [{"name": "TEXT", "value": text}],
            "ports": [{"name": "http", "containerPort": 8080}],
            "readinessProbe": {"httpGet": {"path": "/", "port": "http"}},
        }]},
    })
}

async fn deploy(machine: &Machine, replicas: u32) -> String {
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template("one")});
    machine.world.post(DEPLOYMENTS, json!({"metadata": {"name": "web"}, "spec": spec})).await.expect(201);
    let ports = json!([{"name": "http", "port": 8000, "targetPort": "http"}]);
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": ports}});
    let service = machine.world.post(SERVICES, service).await.expect(201);
    let address = service["spec"]["clusterIP"].as_str().unwrap().to_owned();
    ready(machine, replicas.into()).await;
    format!("{address}:8000")
}

async fn ready(machine: &Machine, replicas: u64) {
    let kubectl = machine.serve().await;
    kubectl.run(&["rollout", "status", "deployment/web", "--timeout=60s"]).await;
    let endpoints = || {
        let slices = machine.world.server.objects("discovery.k8s.io/v1", "endpointslices", Some("default"));
        slices.iter().map(|s| s["endpoints"].as_array().map_or(0, Vec::len) as u64).sum::<u64>()
    };
    eventually("all pods are endpoints", || endpoints() == replicas).await;
}

/// Sends a request on a new connection.
fn ask(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let text = answer.rsplit("\r\n\r\n").next().filter(|_| answer.starts_with("HTTP/1.0 200")).map(str::to_owned);
    text.ok_or_else(|| std::io::Error::other(format!("answered {answer:?}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_balances_over_ready_pods_with_addresses_of_their_own() {
    let machine = Machine::new();
    let address = deploy(&machine, 2).await;
    assert!(address.starts_with("127.") && !address.starts_with("127.0."), "{address}");
    assert_eq!(machine.world.server.service_urls("default", "web"), [format!("http://{address}")]);
    let mut seen: Vec<String> = (0..4).map(|_| ask(&address).unwrap()).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 2, "{seen:?}");
    let pod = machine.world.get(PODS).await.expect(200)["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    let kubectl = machine.serve().await;
    kubectl.run(&["scale", "deployment/web", "--replicas=0"]).await;
    machine.until(&pod, "gone", Value::is_null).await;
    eventually("nobody answers", || ask(&address).is_err()).await;
    machine.world.delete(&format!("{SERVICES}/web"), json!({})).await.expect(200);
    eventually("nothing listens", || TcpStream::connect(&address).is_err()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_update_keeps_serving() {
    let machine = Machine::new();
    let address = deploy(&machine, 2).await;
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let client = {
        let (address, stop, served) = (address.clone(), stop.clone(), served.clone());
        std::thread::spawn(move || {
            let mut refused = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                match ask(&address) {
                    Ok(_) => served.fetch_add(1, Ordering::Relaxed),
                    Err(error) => {
                        refused.push(error.to_string());
                        0
                    }
                };
            }
            refused
        })
    };
    for text in ["two", "three"] {
        let change = json!({"spec": {"template": template(text)}});
        machine.world.merge(&format!("{DEPLOYMENTS}/web"), change).await.expect(200);
        ready(&machine, 2).await;
        eventually("only the new answers", || ask(&address).is_ok_and(|answer| answer.starts_with(text))).await;
    }
    stop.store(true, Ordering::Relaxed);
    let refused = tokio::task::spawn_blocking(|| client.join().unwrap()).await.unwrap();
    assert_eq!(refused, Vec::<String>::new());
    assert!(served.load(Ordering::Relaxed) > 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_takes_rights_is_listened_on_or_said_to_be_elsewhere() {
    let machine = Machine::new();
    let service = json!({"metadata": {"name": "low"}, "spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]}});
    let service = machine.world.post(SERVICES, service).await.expect(201);
    let address = service["spec"]["clusterIP"].as_str().unwrap();
    let urls = || machine.world.server.service_urls("default", "low");
    eventually("it is listened on", || !urls().is_empty()).await;
    let may = std::net::TcpListener::bind("127.1.2.3:80").is_ok();
    let (port, said) = if may { ("80", Value::Null) } else { ("8080", json!(format!("http://{address}:8080"))) };
    assert_eq!(urls(), [format!("http://{address}:{port}").trim_end_matches(":80")]);
    assert!(TcpStream::connect(format!("{address}:{port}")).is_ok());
    let service = machine.world.get(&format!("{SERVICES}/low")).await.expect(200);
    assert_eq!(service["metadata"]["annotations"]["devcluster.dev/url"], said);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_listened_on_when_it_is_free() {
    let machine = Machine::new();
    let service = |name: &str, port: u16| json!({"metadata": {"name": name}, "spec": {"selector": {"app": "x"}, "ports": [{"port": port}]}});
    let first = machine.world.post(SERVICES, service("first", 9_999)).await.expect(201);
    let address: std::net::Ipv4Addr = first["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
    let next = std::net::Ipv4Addr::from(u32::from(address) + 1);
    let taken = std::net::TcpListener::bind((next, 9_998)).unwrap();
    let second = machine.world.post(SERVICES, service("second", 9_998)).await.expect(201);
    assert_eq!(second["spec"]["clusterIP"], next.to_string());
    let told = || {
        let events = machine.world.server.objects("v1", "events", Some("default"));
        events.iter().filter(|event| event["reason"] == "FailedToListen").count()
    };
    eventually("it is told", || told() == 1).await;
    drop(taken);
    eventually("it is listened on", || TcpStream::connect((next, 9_998)).is_ok()).await;
    assert_eq!(told(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_without_a_selector_leads_to_its_endpoints_on_this_machine() {
    let machine = Machine::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // The thread ends with the process.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]).and_then(|_| stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nno pod"));
        }
    });
    let spec = json!({"ports": [{"name": "http", "port": 8000}, {"name": "other", "port": 8001}]});
    let service = machine.world.post(SERVICES, json!({"metadata": {"name": "host"}, "spec": spec})).await.expect(201);
    let address = service["spec"]["clusterIP"].as_str().unwrap();
    let far = json!({"addresses": [{"ip": "10.1.2.3"}], "ports": [{"name": "http", "port": port}]});
    let near = json!({"addresses": [{"ip": "127.0.0.1"}], "ports": [{"name": "http", "port": port}]});
    let endpoints = json!({"metadata": {"name": "host"}, "subsets": [far, near]});
    machine.world.post("/api/v1/namespaces/default/endpoints", endpoints).await.expect(201);
    let urls = || machine.world.server.service_urls("default", "host").len();
    eventually("it is listened on", || urls() == 2).await;
    assert_eq!(ask(&format!("{address}:8000")).unwrap(), "no pod");
    assert!(ask(&format!("{address}:8001")).is_err(), "a port that no endpoint has");
    machine.world.delete("/api/v1/namespaces/default/endpoints/host", json!({})).await.expect(200);
    eventually("it is listened on no longer", || urls() == 0).await;
}
