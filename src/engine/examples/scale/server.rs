//! A modelled API server: it answers as a real one would, after a service time, from almost no memory.
//!
//! It keeps the version, the digest and the image of each object, and builds the object from them. Inventories are
//! kept whole. Requests of the other agents delay those of this agent.
//!
//! Not here: schemas, other clients, other field managers, and failures.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc;
use futures::stream::{self, BoxStream};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use kube::client::Body;
use mainstay_api::names::MANAGER;
use mainstay_object::{Digest, Names};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::fleet::{Fleet, sync_in};
use crate::measure;

/// Watch events of a Deployment during a rollout, besides the event of the apply.
const ROLLOUT: u64 = 4;

/// Objects of a list that a watch receives in a second.
pub(crate) const LISTED: usize = 20_000;

type Frames = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// How fast a server answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Time of one request.
    pub(crate) service: Duration,
    /// Time between two requests of this agent under load: the service time, divided by the requests that the server
    /// executes concurrently, times the number of agents that use it.
    pub(crate) spacing: Duration,
}

/// Clones are the same server.
#[derive(Clone)]
pub(crate) struct Server(Arc<Inner>);

struct Inner {
    fleet: Arc<Fleet>,
    syncs: Range<usize>,
    state: Mutex<State>,
}

struct State {
    pace: Pace,
    /// Earliest time of the next request.
    free: Instant,
    version: u64,
    objects: Vec<Stored>,
    inventories: HashMap<String, (u64, Bytes)>,
    /// Bytes on the heap that the inventories take.
    kept: isize,
    watches: Vec<Watch>,
    requests: BTreeMap<&'static str, usize>,
}

/// An object; absent if the version is 0.
#[derive(Clone, Copy, Default)]
struct Stored {
    version: u64,
    digest: Option<Digest>,
    image: u32,
}

struct Watch {
    selected: Selected,
    sender: mpsc::UnboundedSender<Bytes>,
}

/// The objects that a watch selects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Selected {
    Kind(usize),
    Inventories,
    /// A kind without objects.
    Nothing,
}

/// The target of a request.
enum Target {
    Object(usize, usize),
    Inventory(String),
    Status,
}

impl Server {
    /// Returns a server without objects. It has room for those of these GitSyncs.
    pub(crate) fn new(fleet: &Arc<Fleet>, syncs: Range<usize>) -> Self {
        let state = State {
            pace: Pace::default(),
            free: Instant::now(),
            version: 1,
            objects: vec![Stored::default(); syncs.len() * fleet.objects],
            inventories: HashMap::new(),
            kept: 0,
            watches: Vec::new(),
            requests: BTreeMap::new(),
        };
        Self(Arc::new(Inner { fleet: Arc::clone(fleet), syncs, state: Mutex::new(state) }))
    }

    /// Returns a client of the server.
    pub(crate) fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request| server.clone().answer(request));
        kube::Client::new(service, "default")
    }

    pub(crate) fn set_pace(&self, pace: Pace) {
        self.0.state.lock().pace = pace;
    }

    /// Returns the number of requests of each verb since the last call.
    pub(crate) fn take_requests(&self) -> BTreeMap<&'static str, usize> {
        std::mem::take(&mut self.0.state.lock().requests)
    }

    /// Returns the bytes on the heap that are the server's.
    pub(crate) fn kept(&self) -> isize {
        self.0.state.lock().kept
    }

    /// Returns the number of Deployments with an image.
    pub(crate) fn running(&self, image: u32) -> usize {
        self.0.state.lock().objects.iter().step_by(self.0.fleet.objects).filter(|one| one.image == image).count()
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<Frames>, Infallible> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let at = measure::apart(|| self.0.state.lock().begin(verb(&parts)));
        tokio::time::sleep_until(at).await;
        Ok(measure::apart(|| self.respond(&parts, &body)))
    }

    fn respond(&self, parts: &http::request::Parts, body: &Bytes) -> Response<Frames> {
        let query = parts.uri.query().unwrap_or_default();
        if parameter(query, "watch").is_some() {
            return response(StatusCode::OK, self.watch(parts.uri.path(), query));
        }
        let answer = match (self.target(parts.uri.path()), &parts.method) {
            (Some(Target::Object(sync, number)), &Method::PATCH) => self.apply(sync, number, query, body),
            (Some(Target::Object(sync, number)), _) => self.live(sync, number).ok_or(StatusCode::NOT_FOUND),
            (Some(Target::Inventory(name)), &Method::PATCH) => Ok(self.store_inventory(&name, body)),
            (Some(Target::Inventory(name)), _) => self.inventory(&name).ok_or(StatusCode::NOT_FOUND),
            (Some(Target::Status), &Method::PATCH) => Ok(read(body)),
            _ => Err(StatusCode::METHOD_NOT_ALLOWED),
        };
        let (code, value) = match answer {
            Ok(value) => (StatusCode::OK, value),
            Err(code) => {
                let reason = if code == StatusCode::CONFLICT { "Conflict" } else { "NotFound" };
                let text = format!("{} {}", parts.method, parts.uri.path());
                (
                    code,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
                    "message": text, "code": code.as_u16()}),
                )
            }
        };
        response(code, stream::iter([Bytes::from(value.to_string())]).boxed())
    }

    fn target(&self, path: &str) -> Option<Target> {
        let (_, rest) = path.split_once("/namespaces/")?;
        let mut segments = rest.split('/');
        let (namespace, plural, name) = (segments.next()?, segments.next()?, segments.next()?);
        if plural == "gitsyncs" {
            return Some(Target::Status);
        }
        if name.starts_with("mainstay-inventory-") {
            return Some(Target::Inventory(namespace.to_owned()));
        }
        let number = self.0.fleet.number(self.0.fleet.kind_named(plural)?, name)?;
        Some(Target::Object(sync_in(namespace)?, number))
    }

    fn slot(&self, sync: usize, number: usize) -> usize {
        (sync - self.0.syncs.start) * self.0.fleet.objects + number
    }

    /// Returns an object as the server has it.
    fn live(&self, sync: usize, number: usize) -> Option<Value> {
        let stored = self.0.state.lock().objects[self.slot(sync, number)];
        if stored.version == 0 {
            return None;
        }
        let manifest = Fleet::manifest(sync, number, stored.image);
        let desired = self.0.fleet.desired(sync, number, &manifest, &mut Names::default());
        Some(complete(desired.whole_body(), (sync, number), stored.version))
    }

    fn apply(&self, sync: usize, number: usize, query: &str, body: &Bytes) -> Result<Value, StatusCode> {
        let mut body = read(body);
        let metadata = body["metadata"].as_object_mut().ok_or(StatusCode::BAD_REQUEST)?;
        metadata.remove("uid");
        let expected = metadata.remove("resourceVersion");
        let slot = self.slot(sync, number);
        let mut state = self.0.state.lock();
        let stored = state.objects[slot];
        let is_expected = expected.is_none_or(|version| version.as_str().map(str::parse) == Some(Ok(stored.version)));
        if stored.version > 0 && !is_expected {
            return Err(StatusCode::CONFLICT);
        }
        let digest = Some(Digest::of(body.to_string().as_bytes()));
        if stored.digest == digest || parameter(query, "dryRun").is_some() {
            return Ok(complete(body, (sync, number), stored.version.max(1)));
        }
        let what = if stored.version == 0 { "ADDED" } else { "MODIFIED" };
        let image = body.pointer("/spec/template/spec/containers/0/image").and_then(Value::as_str);
        let image = image.and_then(|image| image.rsplit('.').next()?.parse().ok()).unwrap_or_default();
        let kind = number.min(3);
        let answer = complete(body.clone(), (sync, number), state.version + 1);
        state.emit(Selected::Kind(kind), what, &answer);
        if number == 0 {
            for _ in 0..ROLLOUT {
                let event = complete(body.clone(), (sync, number), state.version + 1);
                state.emit(Selected::Kind(kind), "MODIFIED", &event);
            }
        }
        state.objects[slot] = Stored { version: state.version, digest, image };
        Ok(answer)
    }

    fn store_inventory(&self, namespace: &str, body: &Bytes) -> Value {
        let mut state = self.0.state.lock();
        let before = measure::heap();
        let stored = Bytes::from(read(body).to_string());
        let version = state.version + 1;
        state.inventories.insert(namespace.to_owned(), (version, stored));
        state.kept += measure::heap().cast_signed() - before.cast_signed();
        drop(state);
        let map = self.inventory(namespace).unwrap_or_default();
        self.0.state.lock().emit(Selected::Inventories, "MODIFIED", &partial(&map));
        map
    }

    fn inventory(&self, namespace: &str) -> Option<Value> {
        let state = self.0.state.lock();
        let (version, body) = state.inventories.get(namespace)?;
        let mut map = read(body);
        map["metadata"]["uid"] = namespace.into();
        map["metadata"]["resourceVersion"] = version.to_string().into();
        Some(map)
    }

    fn watch(&self, path: &str, query: &str) -> BoxStream<'static, Bytes> {
        let plural = path.rsplit('/').next().unwrap_or_default();
        let selector = parameter(query, "labelSelector").unwrap_or_default();
        let selected = match self.0.fleet.kind_named(plural) {
            _ if selector.contains("inventory") => Selected::Inventories,
            Some(kind) => Selected::Kind(kind),
            None => Selected::Nothing,
        };
        let (sender, receiver) = mpsc::unbounded();
        let mut state = self.0.state.lock();
        state.watches.retain(|watch| !watch.sender.is_closed());
        state.watches.push(Watch { selected, sender });
        let synced = state.version;
        drop(state);
        let is_list = parameter(query, "sendInitialEvents").is_some();
        let after = parameter(query, "resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
        let end = is_list.then(|| {
            let metadata =
                json!({"resourceVersion": synced.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}});
            line("BOOKMARK", &json!({"kind": "Any", "apiVersion": "v1", "metadata": metadata}))
        });
        let seconds = parameter(query, "timeoutSeconds").and_then(|seconds| seconds.parse().ok()).unwrap_or(300);
        let over = tokio::time::sleep(Duration::from_secs(seconds));
        let listed = stream::iter(self.since(selected, after)).enumerate().then(|(at, event)| async move {
            // The clock has a resolution of a millisecond.
            if at % (LISTED / 1000) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            event
        });
        listed.chain(stream::iter(end)).chain(receiver).take_until(over).boxed()
    }

    /// Returns events for the objects that changed after a version, one at a time.
    fn since(&self, selected: Selected, after: u64) -> Box<dyn Iterator<Item = Bytes> + Send> {
        let server = self.clone();
        match selected {
            Selected::Nothing => Box::new(std::iter::empty()),
            Selected::Inventories => {
                let state = self.0.state.lock();
                let newer = state.inventories.iter().filter(|(_, (version, _))| *version > after);
                let names = newer.map(|(name, _)| name.clone()).collect::<Vec<_>>();
                drop(state);
                let event = move |name: String| Some(line("ADDED", &partial(&server.inventory(&name)?)));
                Box::new(names.into_iter().filter_map(move |name| measure::apart(|| event(name))))
            }
            Selected::Kind(kind) => {
                let numbers = self.0.fleet.numbers(kind);
                let all = self.0.syncs.clone().flat_map(move |sync| numbers.clone().map(move |number| (sync, number)));
                let event = move |sync, number| {
                    let stored = server.0.state.lock().objects[server.slot(sync, number)];
                    (stored.version > after).then(|| server.live(sync, number)).flatten()
                };
                Box::new(all.filter_map(move |(sync, number)| {
                    measure::apart(|| event(sync, number).map(|live| line("ADDED", &live)))
                }))
            }
        }
    }
}

impl State {
    /// Counts a request. Returns the time of its answer.
    fn begin(&mut self, verb: &'static str) -> Instant {
        *self.requests.entry(verb).or_default() += 1;
        let start = self.free.max(Instant::now());
        self.free = start + self.pace.spacing;
        start + self.pace.service
    }

    /// Begins the next version and sends its event to the watches.
    fn emit(&mut self, selected: Selected, what: &str, object: &Value) {
        self.version += 1;
        let event = line(what, object);
        for watch in self.watches.iter().filter(|watch| watch.selected == selected) {
            // A closed watch is removed when the next one opens.
            let _ = watch.sender.unbounded_send(event.clone());
        }
    }
}

/// Returns the name under which a request is counted.
fn verb(parts: &http::request::Parts) -> &'static str {
    let query = parts.uri.query().unwrap_or_default();
    match parts.method {
        Method::GET if parameter(query, "watch").is_some() => "watch",
        Method::GET => "get",
        Method::PATCH if parameter(query, "dryRun").is_some() => "dry run",
        Method::PATCH if parts.uri.path().ends_with("/status") => "status",
        Method::PATCH if parts.uri.path().contains("/mainstay-inventory-") => "inventory",
        Method::PATCH => "apply",
        _ => "other",
    }
}

fn parameter<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

fn read(body: &Bytes) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}

fn line(what: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": what, "object": object})))
}

/// Returns the metadata of a ConfigMap, as a watch for metadata shows it.
fn partial(map: &Value) -> Value {
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": map["metadata"]})
}

fn response(code: StatusCode, body: BoxStream<'static, Bytes>) -> Response<Frames> {
    let mut response = Response::new(StreamBody::new(body.map(|bytes| Ok(Frame::data(bytes))).boxed()));
    *response.status_mut() = code;
    response
}

/// Returns an applied body with the fields that a server and its controllers set.
fn complete(mut body: Value, (sync, number): (usize, usize), version: u64) -> Value {
    let fields = owned(&body);
    body["metadata"]["managedFields"] = json!([{
        "manager": MANAGER, "operation": "Apply", "apiVersion": body["apiVersion"], "time": "2026-03-02T08:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    }]);
    body["metadata"]["uid"] = format!("{sync:08x}-0000-4000-8000-{number:012x}").into();
    body["metadata"]["resourceVersion"] = version.to_string().into();
    body["metadata"]["creationTimestamp"] = "2026-03-02T08:00:00Z".into();
    if number == 0 {
        body["metadata"]["generation"] = 1.into();
        body["status"] = json!({
            "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
            "conditions": [{"type": "Available", "status": "True"}],
        });
    }
    body
}

/// Returns the field set of an applied body.
fn owned(body: &Value) -> Value {
    let mut body = body.clone();
    if let Some(root) = body.as_object_mut() {
        root.retain(|name, _| name != "apiVersion" && name != "kind");
        if let Some(metadata) = root.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|name, _| name != "name" && name != "namespace");
        }
    }
    inside(&body)
}

fn inside(value: &Value) -> Value {
    let mut fields = Map::new();
    match value {
        Value::Object(map) => fields.extend(map.iter().map(|(name, value)| (format!("f:{name}"), inside(value)))),
        Value::Array(items) if items.iter().all(|item| item.get("name").is_some()) => {
            let key = |item: &Value| format!("k:{}", json!({"name": item["name"]}));
            let item = |item: &Value| {
                let mut fields = inside(item);
                fields["."] = json!({});
                fields
            };
            fields.extend(items.iter().map(|one| (key(one), item(one))));
        }
        _ => {}
    }
    Value::Object(fields)
}
