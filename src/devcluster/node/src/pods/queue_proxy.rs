//! Knative's queue proxy: it probes the code of a Revision and counts its requests. It is a task, not a process.
//!
//! Invariant: the code is stopped when its last request has ended, or at the end of the grace period.
//!
//! Not here: metrics.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use loopback::{Listener, Reach, web};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::container::{Container, Update, stopped};
use super::probes::{self, Probing, Verdict};
use super::process::Program;
use super::status::{Ended, State};
use crate::gateway::serving::{self, Body};
use devcluster_apiserver::object::text;
use devcluster_apiserver::requests::QUEUE_PROXY;

/// Ports for requests and for the wait until they have ended.
const TRAFFIC: u16 = 8012;
const ADMIN: u16 = 8022;
/// Header of a readiness request.
const PROBE: &str = "k-network-probe";
/// Deadline of a probe of the code.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait for a request to the admin port after the last request.
const ASKED: Duration = Duration::from_secs(1);
/// Deadline of a request head.
const HEAD: Duration = Duration::from_secs(30);

/// Whether a container is a queue proxy.
pub(super) fn is_it(container: &Value) -> bool {
    text(container, "/image") == QUEUE_PROXY
}

struct Shared {
    address: Ipv4Addr,
    port: u16,
    /// Readiness probe of the code.
    probe: Value,
    under_way: watch::Sender<usize>,
    asked: watch::Sender<bool>,
    /// Limits concurrent requests of the code; `None` for no limit.
    permits: Option<Arc<Semaphore>>,
}

/// A request in progress.
struct UnderWay {
    shared: Arc<Shared>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.shared.under_way.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl Shared {
    fn of(container: &Container) -> Self {
        let env = |name: &str| {
            let all = container.spec["env"].as_array().into_iter().flatten();
            let found = all.into_iter().find(|one| one["name"] == name);
            found.map_or("", |found| text(found, "/value"))
        };
        let limit = env("CONTAINER_CONCURRENCY").parse().unwrap_or(0);
        Self {
            address: container.sandbox.address,
            port: env("USER_PORT").parse().unwrap_or(8080),
            probe: serde_json::from_str(env("SERVING_READINESS_PROBE")).unwrap_or_default(),
            under_way: watch::Sender::new(0),
            asked: watch::Sender::new(false),
            permits: (limit > 0).then(|| Arc::new(Semaphore::new(limit))),
        }
    }

    async fn drained(&self) {
        // Cannot fail: `self` owns the sender.
        let _ = self.under_way.subscribe().wait_for(|count| *count == 0).await;
    }

    async fn is_ready(&self) -> bool {
        if !self.probe.is_object() {
            return true;
        }
        probes::ask(&self.probe, &Value::Null, self.address, PATIENCE).await.is_ok()
    }

    /// Forwards a request to the code, or answers a readiness request.
    async fn traffic(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        if request.headers().contains_key(PROBE) {
            let is_ready = self.is_ready().await;
            return serving::said(if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, "");
        }
        if let Err(refusal) = web::judge(request.method(), request.uri(), request.headers(), web::is_in_cluster) {
            return serving::said(StatusCode::FORBIDDEN, &format!("{refusal}\n"));
        }
        self.under_way.send_modify(|count| *count += 1);
        let under_way = UnderWay { shared: Arc::clone(&self) };
        let permit = match &self.permits {
            Some(permits) => Arc::clone(permits).acquire_owned().await.ok(),
            None => None,
        };
        serving::relay(SocketAddr::from((self.address, self.port)), request, (under_way, permit)).await
    }

    /// Answers as soon as no request is in progress.
    async fn admin(self: Arc<Self>, _: Request<Incoming>) -> Response<Body> {
        self.asked.send_replace(true);
        self.drained().await;
        serving::said(StatusCode::OK, "")
    }
}

/// Runs the container until its pod terminates and its requests have ended.
pub(super) async fn run(mut container: Container) {
    live(&mut container).await;
    container.send(Update::Over).await;
}

async fn live(container: &mut Container) {
    let begun = Timestamp::now();
    let id = format!("devcluster://{:032x}{:032x}", fastrand::u128(..), fastrand::u128(..));
    let (uid, name) = (text(&container.pod, "/metadata/uid").to_owned(), text(&container.spec, "/name").to_owned());
    let log = container.ctx.node.logs.open(&uid, &name, container.sandbox.directory.clone());
    let shared = Arc::new(Shared::of(container));
    container.send(Update::Image(QUEUE_PROXY.to_owned())).await;
    let mut listeners = JoinSet::new();
    let listening = log.begin().and(listen(&shared, &mut listeners));
    if let Err(error) = listening {
        let state = State::Waiting("CreateContainerError", format!("the ports of the proxy: {error}"));
        container.send(Update::State(state, 0)).await;
        stopped(&mut container.stop).await;
        return;
    }
    container.send(Update::State(State::Running(begun, id.clone()), 0)).await;
    container.send(Update::Started).await;
    let grace = serve(container).await;
    container.send(Update::Ready(false)).await;
    let ending = async {
        shared.drained().await;
        let _ = tokio::time::timeout(ASKED, shared.asked.subscribe().wait_for(|asked| *asked)).await;
        shared.drained().await;
    };
    let _ = tokio::time::timeout(grace, ending).await;
    drop(listeners);
    log.end();
    let ended = Ended { code: 0, reason: "Completed", message: String::new(), begun, over: Timestamp::now(), id };
    container.send(Update::State(State::Ended(ended), 0)).await;
}

/// Runs the probes until the pod terminates. Returns the grace period.
async fn serve(container: &mut Container) -> Duration {
    // A placeholder: the probes here run no command.
    let program = Program {
        path: std::path::PathBuf::new(),
        name: String::new(),
        args: Vec::new(),
        env: Vec::new(),
        directory: std::path::PathBuf::new(),
    };
    let mut probing = Probing::start(&container.ctx, &container.spec, container.sandbox.address, &program);
    if probing.nothing_to_await() {
        container.send(Update::Ready(true)).await;
    }
    loop {
        tokio::select! {
            grace = stopped(&mut container.stop) => return grace,
            verdict = probing.next() => match verdict {
                Verdict::Ready(ready) => container.send(Update::Ready(ready)).await,
                Verdict::Failed(message) => container.event("Warning", "Unhealthy", &message),
                Verdict::Started | Verdict::Dead(_) => {}
            },
        }
    }
}

fn listen(shared: &Arc<Shared>, tasks: &mut JoinSet<()>) -> io::Result<()> {
    // The gateway and the Services already checked the hosts of requests that they forward.
    web::begin();
    for port in [TRAFFIC, ADMIN] {
        let listener = Listener::bind((shared.address, port).into(), Reach::SameUser)?;
        tasks.spawn(accept(Arc::clone(shared), listener, port));
    }
    Ok(())
}

async fn accept(shared: Arc<Shared>, listener: Listener, port: u16) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        let answering = service_fn(move |request: Request<Incoming>| {
            let shared = Arc::clone(&shared);
            let has_body = !request.body().is_end_stream();
            async move {
                let answer = if port == TRAFFIC { shared.traffic(request).await } else { shared.admin(request).await };
                Ok::<_, std::convert::Infallible>(loopback::last_of_connection(has_body, answer))
            }
        });
        tokio::spawn(async move {
            let mut builder = Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
            // The result does not matter: the connection is closed.
            let _ = builder.serve_connection(TokioIo::new(&mut stream), answering).await;
            loopback::finish(stream).await;
        });
    }
}
