//! A gate between an agent and its cluster. It counts requests, fails or delays them, and can stop all traffic after a
//! number of writes, as if the agent were killed at that point.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use devcluster::{
    fault_injection::{Asked, Fault, FaultInjection},
    route::{Query, Route, route},
    service::fault,
};
use futures::future::BoxFuture;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::external::External;
use crate::PATIENCE;

/// Body of a response.
type Answer = UnsyncBoxBody<Bytes, kube::Error>;

/// The settings for requests of a world's agents.
#[derive(Clone, Debug)]
pub struct Gate {
    /// Remaining writes before the gate closes; with `None`, there is no limit.
    left: Arc<Mutex<Option<u64>>>,
    shut: Arc<watch::Sender<bool>>,
    /// The recorded requests, if recording is on.
    heard: Arc<Mutex<Option<Vec<Heard>>>>,
    levers: Arc<FaultInjection>,
    /// The token that every request uses; `None` for the administrator's credentials.
    token: Arc<Mutex<Option<String>>>,
    /// A string in responses, and its replacement.
    replaced: Arc<Mutex<Option<(String, String)>>>,
    /// Requests that resulted in 401 or 403.
    forbidden: Arc<Mutex<Vec<String>>>,
    /// Verb, resource and name of requests at which the caller panics once. An empty name matches all.
    panics: Arc<Mutex<Vec<[String; 3]>>>,
    interferences: Arc<Mutex<Vec<Interference>>>,
    holds: Arc<Mutex<Vec<Hold>>>,
}

/// Requests that wait until their [`Held`] lets them pass.
struct Hold {
    is_held: Arc<dyn Fn(&Heard) -> bool + Send + Sync>,
    state: Arc<watch::Sender<Holding>>,
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.state)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Holding {
    is_reached: bool,
    is_open: bool,
}

/// Holds requests until it is dropped.
#[derive(Debug)]
pub struct Held(Arc<watch::Sender<Holding>>);

impl Held {
    /// Waits until a request is held.
    pub async fn reached(&self) {
        let mut state = self.0.subscribe();
        let reached = tokio::time::timeout(PATIENCE, state.wait_for(|state| state.is_reached)).await;
        assert!(reached.is_ok(), "no request was held within {PATIENCE:?}");
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.send_modify(|state| state.is_open = true);
    }
}

/// An action of another client immediately before a request.
struct Interference {
    /// Verb, resource and name of the request. An empty name matches all.
    asked: [String; 3],
    act: Arc<dyn Fn() + Send + Sync>,
    times: u32,
}

impl fmt::Debug for Interference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} times before {:?}", self.times, self.asked)
    }
}

/// A request, and the received part of its response.
#[derive(Clone, Debug)]
pub struct Heard {
    /// Method and path, for example `GET /api/v1/pods?watch=true`.
    pub asked: String,
    /// The body of the request.
    pub sent: Bytes,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl Heard {
    /// Returns the body of the response.
    pub fn answer(&self) -> String {
        String::from_utf8_lossy(&self.answer.lock()).into_owned()
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            left: Arc::default(),
            shut: Arc::new(watch::Sender::new(false)),
            heard: Arc::default(),
            levers: Arc::default(),
            token: Arc::default(),
            replaced: Arc::default(),
            forbidden: Arc::default(),
            panics: Arc::default(),
            interferences: Arc::default(),
            holds: Arc::default(),
        }
    }
}

impl Gate {
    /// Closes the gate after this many writes. The response to the last write is lost.
    pub fn shut_after(&self, writes: u64) {
        *self.left.lock() = Some(writes);
        self.shut.send_replace(false);
    }

    /// Opens the gate.
    pub fn open(&self) {
        *self.left.lock() = None;
        self.shut.send_replace(false);
    }

    /// Waits until the gate is closed.
    pub async fn shut(&self) {
        self.shut.subscribe().wait_for(|shut| *shut).await.unwrap();
    }

    /// Returns the fault injection and the counts for the agents' requests.
    pub fn levers(&self) -> &FaultInjection {
        &self.levers
    }

    /// Makes every request use a token.
    pub fn bear(&self, token: &str) {
        *self.token.lock() = Some(token.to_owned());
    }

    /// In later responses, replaces this string value by a value with 200 nested levels. Parsers refuse this depth, but
    /// servers allow it.
    pub fn deepen(&self, text: &str) {
        let deep = format!("{}1{}", "{\"a\":".repeat(200), "}".repeat(200));
        *self.replaced.lock() = Some((format!("\"{text}\""), deep));
    }

    /// In later responses, replaces this string value by a different one, so that the agent never receives it.
    pub fn hide(&self, text: &str) {
        *self.replaced.lock() = Some((format!("\"{text}\""), "\"Hidden\"".to_owned()));
    }

    fn with_replaced(&self, answer: Response<Answer>) -> Response<Answer> {
        let Some((text, other)) = self.replaced.lock().clone() else { return answer };
        let replace = move |data: Bytes| match std::str::from_utf8(&data) {
            Ok(whole) if whole.contains(&text) => Bytes::from(whole.replace(&text, &other)),
            _ => data,
        };
        answer.map(|body| body.map_frame(move |frame| frame.map_data(&replace)).boxed_unsync())
    }

    /// Makes the task that sends the next such request panic. An empty name matches all.
    pub fn panic_at(&self, verb: &str, resource: &str, name: &str) {
        self.panics.lock().push([verb, resource, name].map(str::to_owned));
    }

    /// Whether all panics have happened.
    pub fn has_panicked(&self) -> bool {
        self.panics.lock().is_empty()
    }

    /// Runs an action immediately before the next `times` such requests: after the agent has read the state and before
    /// it acts. An empty name matches all.
    pub fn before(&self, [verb, resource, name]: [&str; 3], times: u32, act: impl Fn() + Send + Sync + 'static) {
        let asked = [verb, resource, name].map(str::to_owned);
        self.interferences.lock().push(Interference { asked, act: Arc::new(act), times });
    }

    /// Holds the recorded requests that match, before they are sent. The agent waits for their responses.
    pub fn hold(&self, is_held: impl Fn(&Heard) -> bool + Send + Sync + 'static) -> Held {
        let state = Arc::new(watch::Sender::new(Holding::default()));
        self.holds.lock().push(Hold { is_held: Arc::new(is_held), state: Arc::clone(&state) });
        Held(state)
    }

    async fn wait_if_held(&self, heard: &Heard) {
        let holding = |hold: &Hold| (hold.is_held)(heard).then(|| Arc::clone(&hold.state));
        let states: Vec<_> = self.holds.lock().iter().filter_map(holding).collect();
        for state in states {
            state.send_modify(|state| state.is_reached = true);
            // An error is impossible: `state` is the sender.
            let _ = state.subscribe().wait_for(|state| state.is_open).await;
        }
    }

    /// Returns the number of actions before requests that remain.
    pub fn interferences_left(&self) -> u32 {
        self.interferences.lock().iter().map(|one| one.times).sum()
    }

    fn interfere(&self, asked: &Asked<'_>) {
        let mut all = self.interferences.lock();
        let Some(one) = all.iter_mut().find(|one| one.times > 0 && is_asked(&one.asked, asked)) else { return };
        one.times -= 1;
        let act = Arc::clone(&one.act);
        drop(all);
        act();
    }

    fn panic(&self, asked: &Asked<'_>) {
        let mut panics = self.panics.lock();
        let Some(at) = panics.iter().position(|one| is_asked(one, asked)) else { return };
        let resource = resource_name(asked);
        panics.swap_remove(at);
        drop(panics);
        panic!("injected at {} {resource}", asked.verb);
    }

    /// Returns the requests that resulted in 401 or 403.
    pub fn forbidden(&self) -> Vec<String> {
        self.forbidden.lock().clone()
    }

    fn sign(&self, request: &mut Request<Body>) {
        if let Some(token) = &*self.token.lock() {
            request.headers_mut().insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        }
    }

    /// Records requests and responses from now on.
    pub fn record(&self) {
        *self.heard.lock() = Some(Vec::new());
    }

    /// Returns the recorded requests.
    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().clone().unwrap_or_default()
    }

    fn is_recording(&self) -> bool {
        self.heard.lock().is_some()
    }

    /// Records a request with this body, if recording is on. Returns the record, with the buffer for the response.
    fn hear(&self, request: &Request<Body>, sent: Bytes) -> Option<Heard> {
        let mut heard = self.heard.lock();
        let asked = format!("{} {}", request.method(), request.uri().path_and_query()?);
        let one = Heard { asked, sent, answer: Arc::default() };
        heard.as_mut()?.push(one.clone());
        Some(one)
    }

    /// Whether a request gets a response. Counts writes. Returns `None` if the request must not be executed.
    fn pass(&self, writes: bool) -> Option<bool> {
        let mut left = self.left.lock();
        match left.as_mut() {
            Some(0) => None,
            Some(left) if writes => {
                *left -= 1;
                Some(*left > 0)
            }
            _ => Some(true),
        }
    }
}

/// Closes a gate when the last allowed write is done, or when the caller of that write stops waiting.
struct Shuts(Gate);

impl Drop for Shuts {
    fn drop(&mut self) {
        self.0.shut.send_replace(true);
    }
}

/// A client's connection to the cluster through a gate.
#[derive(Clone)]
pub struct Gated {
    cluster: kube::Client,
    gate: Gate,
    killed: CancellationToken,
}

impl Gated {
    /// Returns a client that uses a gate. Once its agent is `killed`, it sends no request: tasks of an aborted agent end
    /// between two of their steps, some time later. Needs a runtime.
    pub fn client(cluster: kube::Client, gate: &Gate, killed: &CancellationToken) -> kube::Client {
        let namespace = cluster.default_namespace().to_owned();
        kube::Client::new(Self { cluster, gate: gate.clone(), killed: killed.clone() }, namespace)
    }

    /// Counts a request, and executes it or applies its fault.
    async fn ask(&self, request: Request<Body>) -> Result<Response<Answer>, kube::Error> {
        let Route::Resource(address) = route(request.uri().path()) else {
            self.gate.levers.count("get", request.uri().path(), "");
            return self.perform(request).await;
        };
        let query = request.uri().query().unwrap_or_default().to_owned();
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let asked = Asked {
            verb: fault::verb(request.method(), address.name.is_empty(), Query::parse(&query).flag("watch"), kind),
            group: &address.group,
            resource: &address.resource,
            subresource: &address.subresource,
            namespace: &address.namespace,
            name: &address.name,
            query: &query,
        };
        self.gate.levers.count(asked.verb, &resource_name(&asked), "");
        self.gate.panic(&asked);
        self.gate.interfere(&asked);
        let Some(met) = self.gate.levers.fault(&asked) else { return self.perform(request).await };
        tokio::time::sleep(met.delay()).await;
        let Fault { code: 1.., after, .. } = met else { return self.perform(request).await };
        if after {
            // The request takes effect, and only its response is lost.
            self.perform(request).await?;
        }
        Ok(fault::answer(&asked, &met).map(|body| body.map_err(|never| match never {}).boxed_unsync()))
    }

    async fn perform(&self, request: Request<Body>) -> Result<Response<Answer>, kube::Error> {
        Ok(self.cluster.send(request).await?.map(BodyExt::boxed_unsync))
    }
}

/// Whether a request has this verb, resource and name. An empty name matches all.
fn is_asked([verb, resource, name]: &[String; 3], asked: &Asked<'_>) -> bool {
    verb == asked.verb && *resource == resource_name(asked) && (name.is_empty() || name == asked.name)
}

/// Returns the plural name with its group and subresource.
fn resource_name(asked: &Asked<'_>) -> String {
    let mut name = asked.resource.to_owned();
    for (sign, part) in [('.', asked.group), ('/', asked.subresource)] {
        if !part.is_empty() {
            name.push(sign);
            name.push_str(part);
        }
    }
    name
}

impl Service<Request<Body>> for Gated {
    type Response = Response<Answer>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let writes = request.method() != Method::GET;
        let (cluster, gate) = (self.clone(), self.gate.clone());
        Box::pin(async move {
            if cluster.killed.is_cancelled() {
                return std::future::pending().await;
            }
            let answered = gate.pass(writes);
            if answered.is_none() {
                return std::future::pending().await;
            }
            let shuts = (answered == Some(false)).then(|| Shuts(gate.clone()));
            let heard = if gate.is_recording() {
                let (parts, body) = request.into_parts();
                let sent = body.collect().await?.to_bytes();
                request = Request::from_parts(parts, Body::from(sent.to_vec()));
                gate.hear(&request, sent)
            } else {
                None
            };
            if let Some(heard) = &heard {
                gate.wait_if_held(heard).await;
            }
            let heard = heard.map(|heard| heard.answer);
            gate.sign(&mut request);
            let asked = format!("{} {}", request.method(), request.uri());
            let answer = cluster.ask(request).await;
            if let Ok(answer) = &answer
                && matches!(answer.status().as_u16(), 401 | 403)
            {
                gate.forbidden.lock().push(asked);
            }
            if let Some(shuts) = shuts {
                drop(shuts);
                return std::future::pending().await;
            }
            let answer = answer.map(|answer| gate.with_replaced(answer));
            let Some(heard) = heard else { return answer };
            answer.map(|answer| {
                answer.map(|body| {
                    let note = move |frame: http_body::Frame<Bytes>| {
                        heard.lock().extend(frame.data_ref().into_iter().flatten());
                        frame
                    };
                    body.map_frame(note).boxed_unsync()
                })
            })
        })
    }
}

/// Number of concurrent scenarios, each on its own cluster.
const TOGETHER: u64 = 8;

/// Number of writes between scenarios on an external cluster, where they run in sequence and take seconds.
const STRIDE: u64 = 4;

/// Runs a scenario several times: it is cut off after the first write, then after the second write, and so on, until it
/// completes.
pub async fn after_every_write<F: Future<Output = bool>>(scenario: impl Fn(u64) -> F, at_least: u64) {
    let (together, stride) = if External::is_named() { (1, STRIDE) } else { (TOGETHER, 1) };
    let mut writes = 1;
    while futures::future::join_all((writes..writes + together).map(&scenario)).await.contains(&true) {
        writes += together * stride;
    }
    assert!(writes + together * stride > at_least, "the scenario made fewer than {at_least} writes");
}
