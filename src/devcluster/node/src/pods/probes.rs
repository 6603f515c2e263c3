//! Startup, readiness and liveness probes of a container.
//!
//! Delays, periods and thresholds are the kubelet's, with one exception: before its first success, a startup or
//! readiness probe over the network also runs between periods, so that a pod becomes ready early. Failures between
//! periods do not count.
//!
//! Not here: certificates of `HTTPS` probes and the protocol of `grpc` probes. A connection suffices.

use std::net::Ipv4Addr;
use std::time::Duration;

use http::{Request, header};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::context::Context;
use super::process::{Program, command, run};

use devcluster_apiserver::object::text;

/// First and longest delay between probes that do not count.
const EAGER: Duration = Duration::from_millis(20);
const LONGEST_EAGER: Duration = Duration::from_secs(1);

/// The result of probing a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The startup probe succeeded.
    Started,
    /// Whether the container is ready.
    Ready(bool),
    /// A probe failed; the message of the Event.
    Failed(String),
    /// The probe with this name requires that the container be killed.
    Dead(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Startup,
    Readiness,
    Liveness,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Readiness => "readiness",
            Self::Liveness => "liveness",
        }
    }
}

/// The probes of a running container. Dropping the value ends the probes.
pub(super) struct Probing {
    verdicts: mpsc::Receiver<Verdict>,
    startup: bool,
    readiness: bool,
    _workers: JoinSet<()>,
    _started: watch::Sender<bool>,
}

impl Probing {
    /// Starts the probes.
    pub(super) fn start(ctx: &Context, container: &Value, address: Ipv4Addr, program: &Program) -> Self {
        let (sender, verdicts) = mpsc::channel(16);
        let startup = container["startupProbe"].is_object();
        let (started, _) = watch::channel(!startup);
        let mut workers = JoinSet::new();
        let begun = Instant::now();
        for (field, kind) in
            [("startupProbe", Kind::Startup), ("readinessProbe", Kind::Readiness), ("livenessProbe", Kind::Liveness)]
        {
            if container[field].is_object() {
                let probe = Probe {
                    ctx: ctx.clone(),
                    spec: container[field].clone(),
                    container: container.clone(),
                    address,
                    program: program.clone(),
                    kind,
                };
                workers.spawn(probe.ask_on(begun, started.clone(), sender.clone()));
            }
        }
        let readiness = container["readinessProbe"].is_object();
        Self { verdicts, startup, readiness, _workers: workers, _started: started }
    }

    /// Whether the container has no startup probe.
    pub(super) fn nothing_to_start(&self) -> bool {
        !self.startup
    }

    /// Whether the container has neither a startup nor a readiness probe.
    pub(super) fn nothing_to_await(&self) -> bool {
        !self.startup && !self.readiness
    }

    /// Waits for the next result; forever if there is no probe.
    pub(super) async fn next(&mut self) -> Verdict {
        match self.verdicts.recv().await {
            Some(verdict) => verdict,
            None => std::future::pending().await,
        }
    }
}

struct Probe {
    ctx: Context,
    spec: Value,
    container: Value,
    address: Ipv4Addr,
    program: Program,
    kind: Kind,
}

impl Probe {
    fn seconds(&self, field: &str, default: u64) -> Duration {
        seconds(self.spec[field].as_u64().unwrap_or(default))
    }

    fn threshold(&self, field: &str, default: u64) -> u64 {
        self.spec[field].as_u64().unwrap_or(default).max(1)
    }

    async fn once(&self) -> Result<(), String> {
        let most = self.seconds("timeoutSeconds", 1).max(Duration::from_secs(1));
        if self.spec["exec"].is_object() {
            let command = command(&self.spec["exec"], &self.program);
            let (code, output) = run(&self.ctx.node.watchdog, &command, most).await?;
            return if code == 0 { Ok(()) } else { Err(output) };
        }
        ask(&self.spec, &self.container, self.address, most).await
    }

    async fn ask_on(self, begun: Instant, started: watch::Sender<bool>, sender: mpsc::Sender<Verdict>) {
        if self.kind != Kind::Startup && started.subscribe().wait_for(|started| *started).await.is_err() {
            return;
        }
        let period = self.seconds("periodSeconds", 10).max(Duration::from_secs(1));
        let mut due = (begun + self.seconds("initialDelaySeconds", 0)).max(Instant::now());
        let alone = self.threshold("successThreshold", 1) == 1;
        let eager = self.kind != Kind::Liveness && alone && !self.spec["exec"].is_object();
        let (mut passed, mut successes, mut failures, mut pause) = (false, 0, 0, EAGER);
        tokio::time::sleep_until(due).await;
        if eager {
            due += period;
        }
        loop {
            let counts = Instant::now() >= due;
            if counts {
                due += period;
            }
            match self.once().await {
                Ok(()) => {
                    (successes, failures) = (successes + 1, 0);
                    if !passed && successes >= self.threshold("successThreshold", 1) {
                        passed = true;
                        self.pass(&started, &sender).await;
                        if self.kind == Kind::Startup {
                            return;
                        }
                    }
                }
                Err(why) if counts => {
                    (successes, failures) = (0, failures + 1);
                    let last = failures == self.threshold("failureThreshold", 3);
                    if failures == 1 || last {
                        let name = self.kind.name();
                        let message = format!("{}{} probe failed: {why}", name[..1].to_uppercase(), &name[1..]);
                        let _ = sender.send(Verdict::Failed(message)).await;
                    }
                    if last && self.kind != Kind::Readiness {
                        let _ = sender.send(Verdict::Dead(self.kind.name())).await;
                        return;
                    }
                    if last && passed {
                        passed = false;
                        let _ = sender.send(Verdict::Ready(false)).await;
                    }
                }
                Err(_) => successes = 0,
            }
            let mut next = due;
            if eager && !passed {
                next = due.min(Instant::now() + pause);
                pause = (pause * 5 / 4).min(LONGEST_EAGER);
            }
            tokio::time::sleep_until(next).await;
        }
    }

    async fn pass(&self, started: &watch::Sender<bool>, sender: &mpsc::Sender<Verdict>) {
        // A send fails if the container is gone.
        match self.kind {
            Kind::Startup => {
                started.send_replace(true);
                let _ = sender.send(Verdict::Started).await;
                if !self.container["readinessProbe"].is_object() {
                    let _ = sender.send(Verdict::Ready(true)).await;
                }
            }
            Kind::Readiness => {
                let _ = sender.send(Verdict::Ready(true)).await;
            }
            Kind::Liveness => {}
        }
    }
}

/// Runs a network probe: `httpGet`, `tcpSocket` or `grpc`.
pub(super) async fn ask(handler: &Value, container: &Value, address: Ipv4Addr, most: Duration) -> Result<(), String> {
    let get = &handler["httpGet"];
    let target = [get, &handler["tcpSocket"], &handler["grpc"]].into_iter().find(|target| target.is_object());
    let Some(target) = target else { return Err("the probe asks nothing".to_owned()) };
    let port = port(&target["port"], container).ok_or("the port of the probe is unknown")?;
    let host = match text(target, "/host") {
        "" => address.to_string(),
        given => given.to_owned(),
    };
    let plain_http = get.is_object() && text(get, "/scheme") != "HTTPS";
    let asking = async {
        let stream =
            TcpStream::connect((host.as_str(), port)).await.map_err(|e| format!("dial tcp {host}:{port}: {e}"))?;
        if plain_http { get_over(stream, get, &format!("{host}:{port}")).await } else { Ok(()) }
    };
    let late = || format!("Get \"http://{host}:{port}{}\": context deadline exceeded", text(get, "/path"));
    tokio::time::timeout(most, asking).await.map_err(|_| late())?
}

async fn get_over(stream: TcpStream, get: &Value, host: &str) -> Result<(), String> {
    let path = match text(get, "/path") {
        "" => "/",
        given => given,
    };
    let mut request = Request::get(path).header(header::HOST, host).header(header::USER_AGENT, "kube-probe/1.36");
    request = request.header(header::ACCEPT, "*/*").header(header::CONNECTION, "close");
    for field in get["httpHeaders"].as_array().into_iter().flatten() {
        request = request.header(text(field, "/name"), text(field, "/value"));
    }
    let request = request.body(Empty::<bytes::Bytes>::new()).map_err(|e| e.to_string())?;
    let failed = |e: hyper::Error| format!("Get \"http://{host}{path}\": {e}");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let mut answer = std::pin::pin!(sender.send_request(request));
    let response = tokio::select! {
        response = &mut answer => response,
        // A server that closes the connection may have answered at the same moment.
        _ = connection => answer.await,
    };
    let response = response.map_err(failed)?;
    let code = response.status().as_u16();
    if (200..400).contains(&code) { Ok(()) } else { Err(format!("HTTP probe failed with statuscode: {code}")) }
}

/// Resolves a port by number or by its name in the container.
fn port(port: &Value, container: &Value) -> Option<u16> {
    let number = port.as_u64().or_else(|| {
        let ports = container["ports"].as_array().into_iter().flatten();
        let named = ports.into_iter().find(|p| port.is_string() && p["name"] == *port)?;
        named["containerPort"].as_u64()
    });
    number.and_then(|number| u16::try_from(number).ok())
}

/// Converts seconds to a duration of at most a year, so that adding it to the present time cannot overflow.
pub(super) fn seconds(given: u64) -> Duration {
    Duration::from_secs(given.min(365 * 24 * 3600))
}
