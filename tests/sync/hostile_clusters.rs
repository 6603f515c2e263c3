//! Hostile responses of a remote cluster (`spec.kubeConfig`): false data and floods affect only the GitSyncs of that
//! cluster.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use devcluster::{Cluster, Options, Serving};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use mainstay_testkit::world::{World, config_map, free_address};

/// Returns a false response to the request with this request line; `None`: the cluster's own response.
type Lie = Arc<dyn Fn(&str) -> Option<Answer> + Send + Sync>;

enum Answer {
    /// Status line with headers, and a body.
    Whole(String, Vec<u8>),
    /// 200, and this text forever. An increasing number replaces `{}`.
    Endless(String),
}

/// How long a list of 100 000 objects may take on a machine with other work.
const WHOLE_LIST: Duration = Duration::from_secs(300);

/// A proxy in front of a cluster that can give false responses.
struct Liar {
    address: SocketAddr,
    lie: Arc<Mutex<Option<Lie>>>,
    lies: Arc<AtomicUsize>,
    /// Number of bytes of endless responses that the agent has read.
    taken: Arc<AtomicUsize>,
    _server: Cluster,
    _serving: Serving,
}

impl Liar {
    async fn new() -> Self {
        let server = Cluster::new(Options::default());
        server.start_controllers();
        let behind = free_address();
        let serving = server.serve(behind, None).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (lie, lies, taken) = (Arc::<Mutex<Option<Lie>>>::default(), Arc::default(), Arc::default());
        let liar = Self {
            address,
            lie: Arc::clone(&lie),
            lies: Arc::clone(&lies),
            taken: Arc::clone(&taken),
            _server: server,
            _serving: serving,
        };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (lie, lies, taken) = (Arc::clone(&lie), Arc::clone(&lies), Arc::clone(&taken));
                // The agent may close the connection early.
                tokio::spawn(async move { drop(answer(stream, behind, &lie, &lies, &taken).await) });
            }
        });
        liar
    }

    fn kubeconfig(&self) -> String {
        format!(
            "current-context: it\nclusters: [{{name: it, cluster: {{server: \"http://{}\"}}}}]\n\
             users: [{{name: it, user: {{token: x}}}}]\ncontexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n",
            self.address
        )
    }

    fn lies(&self, lie: impl Fn(&str) -> Option<Answer> + Send + Sync + 'static) {
        *self.lie.lock() = Some(Arc::new(lie));
    }

    fn lies_told(&self) -> usize {
        self.lies.load(Ordering::SeqCst)
    }
}

/// Answers one request of a connection and closes it.
async fn answer(
    mut stream: TcpStream,
    behind: SocketAddr,
    lie: &Mutex<Option<Lie>>,
    lies: &AtomicUsize,
    taken: &AtomicUsize,
) -> std::io::Result<()> {
    let mut asked = Vec::new();
    let end = loop {
        if stream.read_buf(&mut asked).await? == 0 {
            return Ok(());
        }
        if let Some(end) = asked.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
    };
    let line = String::from_utf8_lossy(&asked).lines().next().unwrap_or_default().to_owned();
    let lie = lie.lock().clone();
    let Some(told) = lie.and_then(|lie| lie(&line)) else {
        let mut honest = TcpStream::connect(behind).await?;
        honest.write_all(&asked[..end]).await?;
        honest.write_all(b"\r\nconnection: close").await?;
        honest.write_all(&asked[end..]).await?;
        tokio::io::copy_bidirectional(&mut stream, &mut honest).await?;
        return Ok(());
    };
    lies.fetch_add(1, Ordering::SeqCst);
    match told {
        Answer::Whole(head, body) => {
            let length = body.len();
            let head = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&body).await
        }
        Answer::Endless(piece) => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).await?;
            let mut number: usize = 0;
            loop {
                let more: String =
                    (number..number + 64).map(|number| piece.replace("{}", &number.to_string())).collect();
                number += 64;
                stream.write_all(more.as_bytes()).await?;
                taken.fetch_add(more.len(), Ordering::SeqCst);
            }
        }
    }
}

fn json_of(value: &Value) -> Answer {
    Answer::Whole("200 OK\r\ncontent-type: application/json".to_owned(), value.to_string().into_bytes())
}

/// Creates a world with the GitSync `demo` in its own cluster and the GitSync `abroad` in a remote cluster without
/// false responses yet. Both are Ready.
async fn worlds() -> (World, Liar) {
    let (mut world, liar) = (World::new().await, Liar::new().await);
    world.set_secret("other", json!({"value": liar.kubeconfig()}));
    world.remote.file("own/a.yaml", config_map("a", "1")).file("there/b.yaml", config_map("b", "1")).commit("one");
    let there =
        json!({"baseDir": "there", "interval": "1s", "kubeConfig": {"secretRef": {"name": "other"}}, "timeout": "5s"});
    world.sync("abroad", there);
    world.synced(json!({"baseDir": "own"})).await;
    world.ready("abroad").await;
    (world, liar)
}

/// Checks that the agent's own cluster is unaffected.
async fn own_goes_on(world: &World) {
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "edited"}}));
    world.until("it is reverted", |w| w.data("a") == "1").await;
}

/// Waits until the agent has received this many further false responses.
async fn told(world: &World, liar: &Liar, at_least: usize) {
    let before = liar.lies_told();
    world.until("it is asked again", |_| liar.lies_told() >= before + at_least).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_without_end_are_not_read_to_the_end() {
    let (mut world, liar) = worlds().await;
    liar.lies(|_| Some(Answer::Endless(" ".repeat(64))));
    world.remote.file("there/b.yaml", config_map("b", "2")).commit("two");
    told(&world, &liar, 3).await;
    let (before, lies) = (liar.taken.load(Ordering::SeqCst), liar.lies_told());
    told(&world, &liar, 3).await;
    let (taken, lies) = (liar.taken.load(Ordering::SeqCst) - before, liar.lies_told() - lies);
    // Data in kernel buffers counts, too.
    assert!(taken / lies.max(1) < 10 << 20, "{taken} bytes of {lies} answers");
    own_goes_on(&world).await;
    let large =
        "False ApplyFailed: 1 of the objects failed: ConfigMap mainstay-tests/b: the response is larger than 4194304";
    world.condition_is("abroad", "Ready", large).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_without_end_are_asked_for_until_there_are_too_many() {
    let (mut world, liar) = worlds().await;
    world.patience = WHOLE_LIST;
    world.stop().await;
    let forbidden = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "no", "code": 403});
    liar.lies(move |line| {
        // A list is only needed where the watch of inventories shows nothing.
        if line.starts_with("GET /api/v1/configmaps") {
            let head = "403 Forbidden\r\ncontent-type: application/json".to_owned();
            return Some(Answer::Whole(head, forbidden.to_string().into_bytes()));
        }
        let is_list = line.starts_with("GET /api/v1/") && line.contains("limit=");
        is_list.then(|| {
            json_of(&json!({"kind": "List", "metadata": {"resourceVersion": "1", "continue": "more"}, "items": []}))
        })
    });
    world.start();
    told(&world, &liar, 50).await;
    own_goes_on(&world).await;
    let endless = "True ClusterUnavailable: could not list configmaps in mainstay-tests: the API server returned a list with too many objects";
    world.condition_is("abroad", "Reconciling", endless).await;
    *liar.lie.lock() = None;
    world.condition_is("abroad", "Reconciling", "False").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed_and_no_answer_is_repeated() {
    let (mut world, liar) = worlds().await;
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = elsewhere.local_addr().unwrap();
    let body = json!({"kind": "Status", "status": "Failure", "message": "canary\u{1b}[31m\u{202e}of a liar ".repeat(1000), "code": 500});
    liar.lies(move |line| {
        Some(if line.contains("watch=") {
            Answer::Whole(format!("307 Temporary Redirect\r\nlocation: http://{to}/"), Vec::new())
        } else if line.starts_with("GET") {
            Answer::Whole(format!("301 Moved\r\nlocation: http://{to}/"), Vec::new())
        } else {
            Answer::Whole("500 x\r\ncontent-type: application/json".into(), body.to_string().into_bytes())
        })
    });
    world.remote.file("there/b.yaml", config_map("b", "2")).commit("two");
    told(&world, &liar, 3).await;
    world.condition_is("abroad", "Ready", "False").await;
    own_goes_on(&world).await;
    let condition = world.condition("abroad", "Ready");
    assert!(condition.len() < 2000 && !condition.contains(['\u{1b}', '\u{202e}']), "{condition:?}");
    assert!(tokio::time::timeout(Duration::from_millis(1), elsewhere.accept()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_another_one_each_time_deletes_nothing_and_fills_nothing() {
    let (world, liar) = worlds().await;
    let count = AtomicUsize::new(0);
    liar.lies(move |line| {
        line.contains("/namespaces/kube-system").then(|| {
            let uid = format!("{}-{}", "x".repeat(100_000), count.fetch_add(1, Ordering::SeqCst));
            json_of(&json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"name": "kube-system", "uid": uid}}))
        })
    });
    for at in 0..3 {
        let kubeconfig = liar.kubeconfig().replace("token: x", &format!("token: x{at}"));
        world.set_secret("other", json!({"value": kubeconfig}));
        told(&world, &liar, 1).await;
    }
    own_goes_on(&world).await;
    world.condition_is("abroad", "Ready", "False ClusterUnavailable").await;
    let status = world.status("abroad").to_string();
    assert!(status.len() < 10_000, "{}", status.len());
    *liar.lie.lock() = None;
    world.set_secret("other", json!({"value": liar.kubeconfig()}));
    world.ready("abroad").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unrequested_objects_and_kinds_have_no_owner() {
    let (mut world, liar) = worlds().await;
    world.stop().await;
    liar.lies(|line| {
        let deep =
            || Answer::Whole("200 OK\r\ncontent-type: application/json".into(), "[".repeat(100_000).into_bytes());
        match line {
            _ if line.starts_with("PATCH") => Some(json_of(&json!({"kind": "Secret", "metadata": {"name": 7}}))),
            _ if line.contains("/openapi") || line.starts_with("GET /version") => Some(deep()),
            _ if line.starts_with("GET /apis ") => Some(deep()),
            _ => None,
        }
    });
    world.start();
    world.remote.file("there/b.yaml", config_map("b", "2")).commit("two");
    told(&world, &liar, 2).await;
    let deep = "True ClusterUnavailable: could not ask for the kinds of the cluster: the response cannot be parsed";
    world.condition_is("abroad", "Reconciling", deep).await;
    own_goes_on(&world).await;
    *liar.lie.lock() = None;
    world.ready("abroad").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_very_many_values_is_not_parsed() {
    let (mut world, liar) = worlds().await;
    let values = format!("[{}0]", "0,".repeat(1 << 20)).into_bytes();
    liar.lies(move |line| {
        let json = "200 OK\r\ncontent-type: application/json".to_owned();
        line.starts_with("PATCH").then(|| Answer::Whole(json, values.clone()))
    });
    world.remote.file("there/b.yaml", config_map("b", "2")).commit("two");
    let many = "False ApplyFailed: 1 of the objects failed: ConfigMap mainstay-tests/b: the response has more than \
                500000 values";
    world.condition_is("abroad", "Ready", many).await;
    own_goes_on(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_never_ends_is_given_up_and_reported() {
    let (mut world, liar) = worlds().await;
    world.patience = WHOLE_LIST;
    world.stop().await;
    let event = json!({"type": "ADDED", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata":
        {"namespace": "mainstay-tests", "name": "x-{}", "resourceVersion": "{}", "labels": {"mainstay.dev/sync": "x"}}}});
    liar.lies(move |line| line.contains("sendInitialEvents").then(|| Answer::Endless(format!("{event}\n"))));
    world.start();
    told(&world, &liar, 2).await;
    own_goes_on(&world).await;
    world
        .until("it is told", |w| {
            w.status("abroad").to_string().contains("the API server returned a list with too many objects")
        })
        .await;
}
