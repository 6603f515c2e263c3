//! Stands between the agent and the API server: delays, refuses, throttles and repeats requests, and loses responses.
//! Each write is checked ([`checks`](super::checks)) when it begins and after it is executed.
//!
//! Invariant: the fate of a request follows from the seed, the request, and how often it was sent. Removing a step of a
//! schedule therefore changes the rest as little as possible.

use std::collections::{BTreeMap, HashMap};
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use devcluster::fault_injection::{Asked, Fault};
use devcluster::route::{Query, Route, route};
use devcluster::service::fault;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, BodyStream, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use mainstay_testkit::server::TestServer;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;
use tower::Service;

use super::broken::{self, Rule};
use super::checks::{self, Checks};
use super::schedule::OBJECTS;
use super::virtual_time::{elapsed, mixed};

type Answer = UnsyncBoxBody<Bytes, kube::Error>;

/// Verbs that [`Step::Fail`](super::schedule::Step::Fail) numbers.
const VERBS: [&str; 6] = ["apply", "get", "list", "watch", "patch", "delete"];

/// A request of the agent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) verb: &'static str,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) is_dry_run: bool,
    pub(crate) body: Value,
    /// The agent that sent the request.
    pub(crate) agent: u32,
}

impl Sent {
    /// Whether the request may change an object.
    pub(crate) fn is_write(&self) -> bool {
        !self.is_dry_run && !matches!(self.verb, "get" | "list" | "watch")
    }

    /// Returns the object of the schedule that the request concerns.
    pub(crate) fn object(&self) -> Option<usize> {
        let is = |one: &super::schedule::Object| {
            one.resource == self.resource && one.name == self.name && one.namespace == self.namespace
        };
        OBJECTS.iter().position(is)
    }

    pub(crate) fn text(&self) -> String {
        let subresource = if self.subresource.is_empty() { String::new() } else { format!("/{}", self.subresource) };
        let dry = if self.is_dry_run { " (dry run)" } else { "" };
        format!("{} {}{subresource} {}/{}{dry}", self.verb, self.resource, self.namespace, self.name)
    }
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Done,
    /// Executed twice, as by a proxy that repeats requests.
    Twice,
    /// Refused with a code, after the execution (`true`) or instead of it.
    Refused(u16, bool),
    /// The connection breaks, after the execution (`true`) or instead of it.
    Broken(bool),
}

/// When an agent dies.
#[derive(Clone, Copy, Debug)]
struct Death {
    requests: u8,
    is_done: bool,
}

/// The state that the wires of all agents share.
pub(crate) struct Shared {
    pub(crate) server: TestServer,
    pub(crate) checks: Checks,
    seed: u64,
    noise: Mutex<u8>,
    counts: Mutex<HashMap<String, u64>>,
    /// The code and the end of refusals, by object.
    refused: Mutex<BTreeMap<usize, (u16, u64)>>,
    fails: Mutex<Vec<(&'static str, u16, bool)>>,
    throttled: Mutex<u64>,
    death: Mutex<Option<Death>>,
    pub(crate) died: watch::Sender<bool>,
    /// The rule that the agent breaks.
    pub(crate) breaks: Option<Rule>,
}

impl Shared {
    pub(crate) fn new(server: TestServer, checks: Checks, (seed, noise): (u32, u8), breaks: Option<Rule>) -> Arc<Self> {
        Arc::new(Self {
            server,
            checks,
            seed: seed.into(),
            noise: Mutex::new(noise),
            counts: Mutex::default(),
            refused: Mutex::default(),
            fails: Mutex::default(),
            throttled: Mutex::new(0),
            death: Mutex::new(None),
            died: watch::Sender::new(false),
            breaks,
        })
    }

    pub(crate) fn refuse(&self, object: usize, code: u16, until: u64) {
        self.refused.lock().insert(object, (code, until));
    }

    pub(crate) fn fail(&self, verb: u8, code: u16, is_done: bool) {
        self.fails.lock().push((VERBS[usize::from(verb) % VERBS.len()], code, is_done));
    }

    pub(crate) fn throttle(&self, until: u64) {
        *self.throttled.lock() = until;
    }

    pub(crate) fn kill_after(&self, requests: u8, is_done: bool) {
        self.died.send_replace(false);
        *self.death.lock() = Some(Death { requests, is_done });
    }

    /// Lets the next agent live.
    pub(crate) fn live(&self) {
        *self.death.lock() = None;
    }

    /// Ends all faults.
    pub(crate) fn calm(&self) {
        *self.noise.lock() = 0;
        self.refused.lock().clear();
        self.fails.lock().clear();
        *self.throttled.lock() = 0;
    }

    /// Returns a number that follows from a request and how often it was sent.
    fn chance(&self, request: &Sent) -> u64 {
        let text = request.text();
        let mut counts = self.counts.lock();
        let count = counts.entry(text.clone()).or_default();
        *count += 1;
        let start = mixed(self.seed ^ (*count << 32));
        text.bytes().fold(start, |all, byte| mixed(all ^ u64::from(byte)))
    }

    fn fate(&self, request: &Sent, chance: u64) -> Fate {
        if request.resource == "leases" {
            return Fate::Done;
        }
        let now = elapsed();
        if let Some((code, until)) = request.object().and_then(|object| self.refused.lock().get(&object).copied())
            && now < until
            && !matches!(request.verb, "get" | "list" | "watch")
        {
            return Fate::Refused(code, false);
        }
        if now < *self.throttled.lock() {
            return Fate::Refused(429, false);
        }
        let mut fails = self.fails.lock();
        if let Some(at) = fails.iter().position(|(verb, ..)| *verb == request.verb) {
            let (_, code, is_done) = fails.remove(at);
            return Fate::Refused(code, is_done);
        }
        let noise = u64::from(*self.noise.lock());
        match chance % 128 {
            at if at >= noise * 8 => Fate::Done,
            at => match (at / 2) % 6 {
                0 => Fate::Refused(503, chance & 1024 == 0),
                1 => Fate::Refused(429, false),
                2 => Fate::Refused(504, chance & 1024 == 0),
                3 => Fate::Broken(false),
                4 => Fate::Broken(true),
                _ if request.is_write() && request.verb != "create" => Fate::Twice,
                _ => Fate::Refused(500, false),
            },
        }
    }

    /// Returns whether the agent dies with this request: after (`true`) or before (`false`) it is executed; `None` if
    /// not.
    fn dies(&self) -> Option<bool> {
        let mut death = self.death.lock();
        let one = death.as_mut()?;
        if one.requests > 0 {
            one.requests -= 1;
            return None;
        }
        Some(one.is_done)
    }
}

/// The connection of one agent to the server.
#[derive(Clone)]
pub(crate) struct Wire {
    cluster: kube::Client,
    shared: Arc<Shared>,
    agent: u32,
}

impl Wire {
    pub(crate) fn client(cluster: kube::Client, shared: &Arc<Shared>, agent: u32) -> kube::Client {
        let namespace = cluster.default_namespace().to_owned();
        kube::Client::new(Self { cluster, shared: Arc::clone(shared), agent }, namespace)
    }

    async fn ask(self, request: Request<Body>) -> Result<Response<Answer>, kube::Error> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let Some(asked) = self.read(&parts, &bytes) else {
            let request = Request::from_parts(parts, Body::from(bytes.to_vec()));
            return Ok(self.cluster.send(request).await?.map(BodyExt::boxed_unsync));
        };
        let shared = Arc::clone(&self.shared);
        let (mut parts, mut bytes, mut asked) = (parts, bytes, asked);
        if let Some(rule) = shared.breaks
            && let Some(answer) = self.clone().break_rule(rule, &mut parts, &mut bytes, &mut asked).await
        {
            return answer;
        }
        let asked = Arc::new(asked);
        let dies = shared.dies();
        if dies == Some(false) {
            shared.died.send_replace(true);
            return pending().await;
        }
        let chance = shared.chance(&asked);
        let fate = shared.fate(&asked, chance);
        let under_way = shared.checks.begin(&shared.server, &asked);
        let wait = |bits: u64| Duration::from_micros((bits & 0xfff) * if bits & 0xf000 == 0 { 400 } else { 2 });
        let before = wait(chance >> 16);
        let is_done = matches!(fate, Fate::Done | Fate::Twice | Fate::Refused(_, true) | Fate::Broken(true));
        let mut answer = Ok(None);
        if is_done {
            let (wire, asked, twice) = (self.clone(), Arc::clone(&asked), fate == Fate::Twice);
            let carried = tokio::spawn(async move {
                sleep(before).await;
                let answer = wire.carry_out(&asked, parts.clone(), bytes.clone()).await;
                if twice {
                    let _ = wire.carry_out(&asked, parts, bytes).await;
                }
                answer
            });
            // A request whose caller is gone is executed or cancelled.
            let carried = waited(carried, chance & 2048 == 0);
            answer = carried.done().await.map(Some);
        } else {
            sleep(before).await;
        }
        if dies == Some(true) {
            shared.died.send_replace(true);
            return pending().await;
        }
        sleep(wait(chance >> 32)).await;
        let code = match (&answer, fate) {
            (_, Fate::Refused(code, _)) => code,
            (_, Fate::Broken(_)) => 0,
            (Ok(Some(answer)), _) => answer.status().as_u16(),
            _ => 1,
        };
        shared.checks.answered(&asked, code);
        drop(under_way);
        match fate {
            Fate::Done | Fate::Twice => answer.map(|answer| answer.expect("it was carried out")),
            Fate::Refused(code, _) => Ok(refusal(&asked, code)),
            Fate::Broken(_) => Err(kube::Error::Service(Box::new(io::Error::from(io::ErrorKind::ConnectionReset)))),
        }
    }

    async fn carry_out(
        &self,
        asked: &Sent,
        parts: http::request::Parts,
        bytes: Bytes,
    ) -> Result<Response<Answer>, kube::Error> {
        let checks = &self.shared.checks;
        let before = asked.is_write().then(|| Checks::before(&self.shared.server, asked));
        let answer = self.cluster.send(Request::from_parts(parts, Body::from(bytes.to_vec()))).await?;
        if let Some(before) = before
            && answer.status().is_success()
        {
            checks.carried_out(&self.shared.server, asked, &before);
        }
        let breaks = self.shared.breaks;
        if asked.verb != "watch" {
            return Ok(answer.map(|body| body.map_frame(move |frame| broken::seen(breaks, frame)).boxed_unsync()));
        }
        let seed = self.shared.chance(asked);
        let is_deaf = breaks == Some(Rule::Watch) && OBJECTS.iter().any(|one| one.resource == asked.resource);
        Ok(answer.map(|body| {
            let body = body.map_frame(move |frame| broken::seen(breaks, frame));
            let heard = move |(_, frame): &(usize, Result<http_body::Frame<Bytes>, _>)| {
                let data = frame.as_ref().ok().and_then(|frame| frame.data_ref());
                std::future::ready(!is_deaf || data.is_none_or(|data| !broken::is_edited(data)))
            };
            let frames = BodyStream::new(body).enumerate().filter(heard).then(move |(number, frame)| async move {
                let chance = mixed(seed ^ number as u64);
                sleep(Duration::from_micros(chance & if chance & 0xf_0000 == 0 { 0xf_ffff } else { 0xfff })).await;
                frame
            });
            StreamBody::new(frames).boxed_unsync()
        }))
    }

    /// Acts as an agent that breaks a rule. Returns a response if that replaces the request.
    async fn break_rule(
        self,
        rule: Rule,
        parts: &mut http::request::Parts,
        bytes: &mut Bytes,
        asked: &mut Sent,
    ) -> Option<Result<Response<Answer>, kube::Error>> {
        let shared = Arc::clone(&self.shared);
        let live = asked.object().and_then(|object| checks::live(&shared.server, object));
        if !asked.is_write() {
            return None;
        }
        match rule {
            Rule::Preconditions if asked.verb == "delete" && asked.object().is_some() => {
                asked.body = Value::Object(serde_json::Map::new());
                *bytes = Bytes::from_static(b"{}");
                None
            }
            Rule::Handover if broken::moves(asked, live.as_deref()) => {
                let live = live?;
                let delete = broken::deletion(asked, &live);
                let under_way = shared.checks.begin(&shared.server, &delete);
                let request = broken::request(&delete, parts);
                let _ = self.carry_out(&delete, request, Bytes::from(delete.body.to_string())).await;
                drop(under_way);
                None
            }
            Rule::Proof if checks::is_inventory(asked) => {
                for delete in broken::unlabelled(&shared.server, asked) {
                    let request = broken::request(&delete, parts);
                    let _ = self.carry_out(&delete, request, Bytes::from(delete.body.to_string())).await;
                }
                None
            }
            Rule::Lock if asked.verb == "apply" && asked.object().is_some() => {
                let (asked, shared) = (asked.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    let under_way = shared.checks.begin(&shared.server, &asked);
                    sleep(Duration::from_millis(50)).await;
                    drop(under_way);
                });
                None
            }
            Rule::Backoff if asked.verb == "apply" && asked.object().is_some() => {
                let (asked, shared) = (asked.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    for _ in 0..8 {
                        sleep(Duration::from_millis(100)).await;
                        let chance = shared.chance(&asked);
                        let Fate::Refused(code, _) = shared.fate(&asked, chance) else { return };
                        drop(shared.checks.begin(&shared.server, &asked));
                        shared.checks.answered(&asked, code);
                    }
                });
                None
            }
            Rule::Fights if asked.verb == "apply" && asked.object().is_some() && live.is_some() => {
                let (wire, asked, parts, bytes) = (self.clone(), asked.clone(), parts.clone(), bytes.clone());
                tokio::spawn(async move {
                    for _ in 0..40 {
                        sleep(Duration::from_millis(500)).await;
                        wire.shared.checks.count_revert(&asked);
                        let _ = wire.carry_out(&asked, parts.clone(), bytes.clone()).await;
                    }
                });
                None
            }
            Rule::Intent if checks::is_inventory(asked) => Some(self.late(parts, bytes, asked).await),
            Rule::Stages if live.is_none() && asked.object().is_some_and(|one| OBJECTS[one].stage < 4) => {
                Some(self.late(parts, bytes, asked).await)
            }
            Rule::Inventory if checks::is_inventory(asked) => {
                *bytes = Bytes::from(broken::forgetful(&asked.body)?.to_string());
                None
            }
            _ => None,
        }
    }

    /// Answers immediately, and executes the request some time later.
    async fn late(
        self,
        parts: &http::request::Parts,
        bytes: &Bytes,
        asked: &Sent,
    ) -> Result<Response<Answer>, kube::Error> {
        let (wire, asked, later, body) = (self.clone(), asked.clone(), parts.clone(), bytes.clone());
        tokio::spawn(async move {
            sleep(Duration::from_secs(3)).await;
            let under_way = wire.shared.checks.begin(&wire.shared.server, &asked);
            let _ = wire.carry_out(&asked, later, body).await;
            drop(under_way);
        });
        let mut dry = parts.clone();
        dry.uri = format!("{}&dryRun=All", parts.uri).parse().unwrap();
        let answer = self.cluster.send(Request::from_parts(dry, Body::from(bytes.to_vec()))).await?;
        Ok(answer.map(BodyExt::boxed_unsync))
    }

    fn read(&self, parts: &http::request::Parts, bytes: &Bytes) -> Option<Sent> {
        let Route::Resource(address) = route(parts.uri.path()) else { return None };
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let verb = fault::verb(&parts.method, address.name.is_empty(), query.flag("watch"), kind);
        let body: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let named = body["metadata"]["name"].as_str().filter(|_| parts.method == Method::POST);
        let name = named.map_or(address.name, str::to_owned);
        let group = if address.group.is_empty() { String::new() } else { format!("{}/", address.group) };
        Some(Sent {
            verb,
            version: format!("{group}{}", address.version),
            resource: address.resource,
            subresource: address.subresource,
            namespace: address.namespace,
            name,
            is_dry_run: !query.text("dryRun").is_empty() || body["dryRun"].is_array(),
            body,
            agent: self.agent,
        })
    }
}

/// A task that may end with its caller.
struct Waited<T> {
    task: Option<tokio::task::JoinHandle<T>>,
    ends: bool,
}

fn waited<T>(task: tokio::task::JoinHandle<T>, ends: bool) -> Waited<T> {
    Waited { task: Some(task), ends }
}

impl<T> Waited<T> {
    async fn done(mut self) -> T {
        let done = self.task.as_mut().expect("it is waited for once").await.unwrap();
        self.task = None;
        done
    }
}

impl<T> Drop for Waited<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take().filter(|_| self.ends) {
            task.abort();
        }
    }
}

fn refusal(asked: &Sent, code: u16) -> Response<Answer> {
    let of = Asked {
        verb: asked.verb,
        group: "",
        resource: &asked.resource,
        subresource: &asked.subresource,
        namespace: &asked.namespace,
        name: &asked.name,
        query: "",
    };
    let fault = Fault { code, retry_after: (code == 429).then_some(1), ..Fault::default() };
    fault::answer(&of, &fault).map(|body| body.map_err(|never| match never {}).boxed_unsync())
}

impl Service<Request<Body>> for Wire {
    type Response = Response<Answer>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().ask(request))
    }
}
