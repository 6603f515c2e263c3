//! Rollouts under load. No request is refused or cut off, although proxies learn late of ending pods.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

use mainstay_testkit::{
    functions::{PODS, inline},
    machine::REGISTRY_PASSWORD,
    world::{NAMESPACE, World},
};

/// Delay until proxies learn that a pod ends: shorter than the server waits, longer than the node waits.
const LATE: Duration = Duration::from_secs(2);
/// Delay between two requests of a caller. Eight callers send 80 per second.
const BETWEEN: Duration = Duration::from_millis(100);

/// The results of all callers.
#[derive(Default)]
struct Seen {
    answered: AtomicUsize,
    failures: parking_lot::Mutex<Vec<String>>,
    over: AtomicBool,
}

#[derive(Clone, Copy, PartialEq)]
enum Connections {
    New,
    KeptAlive,
}

/// Sends one request on a connection. Returns whether another request may follow.
async fn ask(stream: &mut TcpStream) -> Result<bool, String> {
    let wrong = |error: std::io::Error| error.to_string();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.map_err(wrong)?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let field =
                |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<String>().ok());
            let length: usize = field("content-length:").and_then(|length| length.parse().ok()).unwrap_or_default();
            if body.len() >= length {
                let is_fine = head.starts_with("http/1.1 200");
                let kept = field("connection:").is_none_or(|word| word != "close");
                return if is_fine { Ok(kept) } else { Err(text) };
            }
        }
        match stream.read(&mut buffer).await.map_err(wrong)? {
            0 => return Err(format!("closed after {} bytes", bytes.len())),
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

/// Sends requests until the end of the load.
async fn call(address: String, connections: Connections, seen: Arc<Seen>) {
    let mut open: Option<TcpStream> = None;
    while !seen.over.load(Ordering::Relaxed) {
        let asked = async {
            let mut stream = match open.take() {
                Some(stream) => stream,
                None => TcpStream::connect(&address).await.map_err(|error| error.to_string())?,
            };
            let may_follow = ask(&mut stream).await?;
            Ok::<_, String>(Some(stream).filter(|_| may_follow && connections == Connections::KeptAlive))
        };
        match asked.await {
            Ok(stream) => {
                open = stream;
                seen.answered.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => seen.failures.lock().push(error),
        }
        tokio::time::sleep(BETWEEN).await;
    }
}

/// The callers of a Function.
struct Load {
    seen: Arc<Seen>,
    callers: JoinSet<()>,
}

impl Load {
    fn on(world: &World, name: &str) -> Self {
        let url = world.server.embedded().service_urls(NAMESPACE, name).remove(0);
        let address = url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
        let address = if address.contains(':') { address } else { address + ":80" };
        let (seen, mut callers) = (Arc::new(Seen::default()), JoinSet::new());
        for at in 0..8 {
            let connections = if at % 2 == 0 { Connections::New } else { Connections::KeptAlive };
            callers.spawn(call(address.clone(), connections, Arc::clone(&seen)));
        }
        Self { seen, callers }
    }

    fn answered(&self) -> usize {
        self.seen.answered.load(Ordering::Relaxed)
    }

    /// Ends the load and checks that no request failed.
    async fn ends(self, name: &str) {
        let answered = self.answered();
        self.seen.over.store(true, Ordering::Relaxed);
        self.callers.join_all().await;
        let failures = self.seen.failures.lock().clone();
        assert!(failures.is_empty(), "{name}: {} of {answered} failed: {failures:?}", failures.len());
    }
}

/// Returns the UIDs of a Function's serving pods.
fn serving(world: &World, name: &str) -> Vec<Value> {
    let all = world.children(name, PODS).into_iter();
    let serving = all.filter(|pod| pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet");
    serving.map(|pod| pod["metadata"]["uid"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_during_a_rollout_with_slow_proxies() {
    let mut world = World::with_node(|node| {
        node.endpoint_delay = LATE;
        // The servers use their default delay.
        node.env.retain(|(name, _)| name != "FUNC_DRAIN_DELAY");
    })
    .await;
    world.start();
    for (name, runtime, source) in [
        ("node", "nodejs22", "exports.main = () => 'here'"),
        ("snake", "python312", "def main(event, context):\n    return 'here'"),
    ] {
        let spec = json!({"runtime": runtime, "source": source, "minReplicas": 1, "maxReplicas": 1});
        world.function(name, spec);
    }
    for name in ["node", "snake"] {
        world.runs(name).await;
        world.answers(name, "200 here").await;
        let load = Load::on(&world, name);
        for round in ["1", "2"] {
            let before = load.answered();
            let old = serving(&world, name);
            world.edit_function(name, json!({"spec": {"env": [{"name": "ROUND", "value": round}]}}));
            world.runs(name).await;
            // The old pod has ended, and callers continued for a while.
            let is_gone = |w: &World| !serving(w, name).iter().any(|pod| old.contains(pod));
            world.until_function("the old pod is gone", is_gone).await;
            let went_on = |_: &World| load.answered() > before + 100;
            world.until_function("callers are answered", went_on).await;
        }
        load.ends(name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_a_function_moves_to_another_registry_and_back() {
    let mut world = World::with_node(|node| {
        node.endpoint_delay = LATE;
        node.env.retain(|(name, _)| name != "FUNC_DRAIN_DELAY");
    })
    .await;
    // Another registry with another address and other repositories.
    let password = || REGISTRY_PASSWORD.to_owned();
    let other = world.server.embedded().serve("127.0.0.1:0".parse().unwrap(), Some(password())).await.unwrap();
    let (home, other) = (world.machine().registry(), other.address().to_string());
    let secret = json!({
        "registryAddress": format!("{other}/team"), "serverAddress": other, "username": "anyone", "password": password(),
    });
    let builds = world.builds();
    world.start();
    world.function("hello", inline("exports.main = () => 'here'"));
    world.runs("hello").await;
    world.answers("hello", "200 here").await;
    let image = |w: &World| w.function_status("hello")["image"].as_str().unwrap_or_default().to_owned();
    let digest = |image: &str| image.split_once('@').map(|(_, digest)| digest.to_owned());
    let first = image(&world);
    let load = Load::on(&world, "hello");
    for address in [format!("{other}/team/"), format!("{home}/")] {
        let (before, old) = (load.answered(), serving(&world, "hello"));
        if address.contains("team") {
            world.secret("serverless-registry-config", secret.clone());
        } else {
            world.delete("v1", "secrets", "serverless-registry-config");
        }
        let moved = |w: &World| image(w).starts_with(&address) && w.is_running("hello");
        world.until_function(&format!("an image of {address}"), moved).await;
        assert_eq!(digest(&image(&world)), digest(&first), "the same image, of which it is known what it is made of");
        assert!(world.said("hello", "BuildReady").contains("REGISTRY"), "{}", world.said("hello", "BuildReady"));
        let is_gone = |w: &World| !serving(w, "hello").iter().any(|pod| old.contains(pod));
        world.until_function("the old pod is gone", is_gone).await;
        world.until_function("callers are answered", |_| load.answered() > before + 100).await;
    }
    assert_eq!(image(&world), first);
    load.ends("hello").await;
    let built: Vec<usize> = builds.all().values().map(Vec::len).collect();
    assert_eq!(built.iter().sum::<usize>(), 3, "one build each way: {:?}", builds.all());
}
