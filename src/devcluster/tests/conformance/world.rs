//! The environment of a claim: its namespace, requests, responses and watches.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use futures::FutureExt as _;
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};

use crate::cluster::Cluster;

/// Deadline of waiting. A busy cluster deletes the namespaces of all claims concurrently.
const PATIENCE: Duration = Duration::from_mins(2);
/// The server's `Retry-After` while it initializes a cache.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A client and a namespace for one claim.
pub(crate) struct World {
    client: reqwest::Client,
    url: String,
    /// The claim's own namespace.
    pub(crate) ns: String,
    cleanup: Mutex<Vec<String>>,
}

/// Runs a claim in a new namespace and removes its objects, even on failure.
pub(crate) fn claim(body: impl AsyncFnOnce(&World)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(async {
        let cluster = Cluster::get();
        let world = World {
            client: cluster.client(),
            url: cluster.url.clone(),
            ns: format!("claim-{}", uuid::Uuid::new_v4().simple()),
            cleanup: Mutex::default(),
        };
        let namespace = json!({"metadata": {"name": world.ns}});
        world.post("/api/v1/namespaces", namespace).await.code(201);
        let outcome = AssertUnwindSafe(body(&world)).catch_unwind().await;
        let mut paths = world.cleanup.lock().clone();
        paths.push(format!("/api/v1/namespaces/{}", world.ns));
        for path in paths {
            world.delete(&path, json!({"propagationPolicy": "Background"})).await;
        }
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
    });
}

impl World {
    /// `/api/v1/namespaces/<ns>/<resource>` or `/apis/<group>/<version>/namespaces/<ns>/<resource>`.
    pub(crate) fn path(&self, api_version: &str, resource: &str) -> String {
        let root = if api_version.contains('/') { "apis" } else { "api" };
        format!("/{root}/{api_version}/namespaces/{}/{resource}", self.ns)
    }

    /// Returns the path of the claim's ConfigMaps, or of one of them.
    pub(crate) fn maps(&self, name: &str) -> String {
        let slash = if name.is_empty() || name.starts_with('?') { "" } else { "/" };
        self.path("v1", &format!("configmaps{slash}{name}"))
    }

    /// Registers a path for deletion at the end of the claim; for objects outside its namespace.
    pub(crate) fn forget_later(&self, path: &str) {
        self.cleanup.lock().push(path.to_owned());
    }

    /// Sends a request, and retries it by `Retry-After` while the server initializes the cache of a new CRD.
    pub(crate) async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let answer = Answer::of(self.open(method.clone(), path, headers, body).await).await;
            if !answer.is_initializing() || tokio::time::Instant::now() > deadline {
                return answer;
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }

    async fn open(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> reqwest::Response {
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !body.is_empty() {
            request = request.body(body.to_owned());
        }
        tokio::time::timeout(PATIENCE, request.send()).await.expect("the server answers").expect("the request arrives")
    }

    /// GET.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], "").await
    }

    /// Sends a request without the cluster's credentials.
    pub(crate) async fn send_as_stranger(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = Cluster::get().stranger().request(method, format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::of(request.body(body.to_owned()).send().await.expect("the request arrives")).await
    }

    /// Sends a request with a bearer token instead of the cluster's credentials.
    pub(crate) async fn bear(&self, token: &str, method: Method, path: &str, body: Value) -> Answer {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let bearer = format!("Bearer {token}");
        self.send_as_stranger(method, path, &[("Authorization", &bearer), ("Content-Type", kind)], &body).await
    }

    /// GET with `Accept`.
    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.send(Method::GET, path, &[("Accept", accept)], "").await
    }

    async fn json(&self, method: Method, path: &str, kind: &str, body: Value) -> Answer {
        self.send(method, path, &[("Content-Type", kind)], &body.to_string()).await
    }

    /// POST.
    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.json(Method::POST, path, "application/json", body).await
    }

    /// PUT.
    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.json(Method::PUT, path, "application/json", body).await
    }

    /// DELETE with DeleteOptions.
    pub(crate) async fn delete(&self, path: &str, options: Value) -> Answer {
        self.json(Method::DELETE, path, "application/json", options).await
    }

    /// JSON merge patch.
    pub(crate) async fn merge(&self, path: &str, patch: Value) -> Answer {
        self.json(Method::PATCH, path, "application/merge-patch+json", patch).await
    }

    /// JSON patch.
    pub(crate) async fn json_patch(&self, path: &str, patch: Value) -> Answer {
        self.json(Method::PATCH, path, "application/json-patch+json", patch).await
    }

    /// Strategic merge patch.
    pub(crate) async fn strategic(&self, path: &str, patch: Value) -> Answer {
        self.json(Method::PATCH, path, "application/strategic-merge-patch+json", patch).await
    }

    /// Server-side apply as `manager`. `path` may contain a query.
    pub(crate) async fn apply(&self, path: &str, manager: &str, config: Value) -> Answer {
        let join = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{join}fieldManager={manager}");
        self.json(Method::PATCH, &path, "application/apply-patch+yaml", config).await
    }

    /// Server-side apply with `force`.
    pub(crate) async fn force(&self, path: &str, manager: &str, config: Value) -> Answer {
        self.apply(&format!("{path}?force=true"), manager, config).await
    }

    /// Opens a watch.
    pub(crate) async fn watch(&self, path: &str) -> Watch {
        self.watch_as(path, "application/json").await
    }

    /// Opens a watch with `Accept`.
    pub(crate) async fn watch_as(&self, path: &str, accept: &str) -> Watch {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let response = self.open(Method::GET, path, &[("Accept", accept)], "").await;
            if response.status().as_u16() == 200 {
                return Watch { response, buffer: Vec::new() };
            }
            let answer = Answer::of(response).await;
            assert!(
                answer.is_initializing() && tokio::time::Instant::now() < deadline,
                "{path}: {} {}",
                answer.code,
                answer.text
            );
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }

    /// GETs `path` until `done` returns true. Fails after a deadline.
    pub(crate) async fn until(&self, path: &str, what: &str, done: impl Fn(&Answer) -> bool) -> Answer {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path).await;
            if done(&answer) {
                return answer;
            }
            assert!(tokio::time::Instant::now() < deadline, "waited in vain for: {what}; last: {}", answer.text);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits for an Event with this reason and returns its core form.
    pub(crate) async fn event(&self, kind: &str, name: &str, reason: &str) -> Value {
        let selector = format!("involvedObject.kind%3D{kind},involvedObject.name%3D{name},reason%3D{reason}");
        let path = self.path("v1", &format!("events?fieldSelector={selector}"));
        let told = |a: &Answer| a.body["items"][0].is_object();
        let list = self.until(&path, &format!("{kind} {name} has an event {reason}"), told).await;
        list.body["items"][0].clone()
    }

    /// Creates a ConfigMap with `data`.
    pub(crate) async fn map(&self, name: &str, data: Value) -> Value {
        self.post(&self.maps(""), json!({"metadata": {"name": name}, "data": data})).await.code(201).body
    }

    /// Creates a namespaced CRD with this schema for `spec` and waits until it is served.
    pub(crate) async fn custom(&self, spec_schema: Value, version: Value) -> Custom {
        let group = format!("{}.example.com", self.ns);
        let mut version_object = json!({
            "name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": spec_schema,
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }}},
        });
        for (field, value) in version.as_object().into_iter().flatten() {
            version_object[field] = value.clone();
        }
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("widgets.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
                "versions": [version_object],
            },
        });
        let crd = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{group}");
        self.forget_later(&crd);
        let created = self.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
        created.code(201);
        let api_version = format!("{group}/v1");
        let path = self.path(&api_version, "widgets");
        self.until(&crd, "the definition is established", |a| condition(&a.body, "Established") == "True").await;
        self.until(&path, "the resource is served", |a| a.code == 200).await;
        Custom { api_version, path, crd, group }
    }
}

/// A custom resource of one claim.
pub(crate) struct Custom {
    /// `<group>/v1`.
    pub(crate) api_version: String,
    /// Path of the claim's collection.
    pub(crate) path: String,
    /// Name of the CRD.
    pub(crate) crd: String,
    /// API group.
    pub(crate) group: String,
}

impl Custom {
    /// Builds a Widget.
    pub(crate) fn widget(&self, name: &str, spec: Value) -> Value {
        json!({"apiVersion": self.api_version, "kind": "Widget", "metadata": {"name": name}, "spec": spec})
    }

    /// Returns the path of a Widget.
    pub(crate) fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }
}

/// Returns the `status` of a condition; empty if it is missing.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|c| c["type"] == kind);
    found.and_then(|c| c["status"].as_str()).unwrap_or_default()
}

/// Returns the `reason` of a condition; empty if it is missing.
pub(crate) fn reason<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|c| c["type"] == kind);
    found.and_then(|c| c["reason"].as_str()).unwrap_or_default()
}

/// Replaces every time by `TIME`.
pub(crate) fn timeless(value: &Value) -> Value {
    match value {
        Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => "TIME".into(),
        Value::Array(list) => list.iter().map(timeless).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), timeless(value))).collect(),
        other => other.clone(),
    }
}

/// A response of the API.
pub(crate) struct Answer {
    /// HTTP status.
    pub(crate) code: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    /// Body; null if it is not JSON.
    pub(crate) body: Value,
    /// Body as text.
    pub(crate) text: String,
}

impl Answer {
    async fn of(response: reqwest::Response) -> Self {
        let code = response.status().as_u16();
        let headers = response.headers().clone();
        let text = response.text().await.expect("an answer has a body");
        Self { code, headers, body: serde_json::from_str(&text).unwrap_or(Value::Null), text }
    }

    /// Whether the server initializes the cache of a CRD and requires a retry.
    fn is_initializing(&self) -> bool {
        self.code == 429 && self.message() == "storage is (re)initializing"
    }

    /// Checks the status code.
    #[track_caller]
    pub(crate) fn code(self, code: u16) -> Self {
        assert_eq!(self.code, code, "{}", self.text);
        self
    }

    /// Checks code, reason and message of a Status.
    #[track_caller]
    pub(crate) fn refused(self, code: u16, reason: &str, message: &str) -> Self {
        let found = (self.code, self.reason(), self.message());
        assert_eq!(found, (code, reason, message), "{}", self.text);
        assert_eq!(self.body["kind"], "Status");
        assert_eq!(self.body["apiVersion"], "v1");
        assert_eq!(self.body["status"], "Failure");
        assert_eq!(self.body["code"], code);
        self
    }

    /// Checks code, reason and the beginning of the message.
    #[track_caller]
    pub(crate) fn refused_like(self, code: u16, reason: &str, start: &str) -> Self {
        assert_eq!((self.code, self.reason()), (code, reason), "{}", self.text);
        assert!(self.message().starts_with(start), "{}", self.message());
        self
    }

    /// Checks for 200 or 201 and returns the object.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(matches!(self.code, 200 | 201), "{} {}", self.code, self.text);
        self.body
    }

    /// Returns `reason` of a Status.
    pub(crate) fn reason(&self) -> &str {
        self.body["reason"].as_str().unwrap_or_default()
    }

    /// Returns `message` of a Status.
    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    /// Returns `reason field: message` of each cause.
    pub(crate) fn causes(&self) -> Vec<String> {
        let causes = self.body["details"]["causes"].as_array();
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let line = |c: &Value| format!("{} {}: {}", text(&c["reason"]), text(&c["field"]), text(&c["message"]));
        causes.into_iter().flatten().map(line).collect()
    }

    /// Checks for a 422 with a cause of this reason and field. Its message is not compared.
    #[track_caller]
    pub(crate) fn invalid(self, reason: &str, field: &str) -> Self {
        assert_eq!((self.code, self.reason()), (422, "Invalid"), "{}", self.text);
        let start = format!("{reason} {field}: ");
        assert!(self.causes().iter().any(|cause| cause.starts_with(&start)), "no {start} in {}", self.text);
        self
    }

    /// Returns the `Warning` headers.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.headers.get_all("warning").iter().map(|w| w.to_str().unwrap_or_default().to_owned()).collect()
    }
}

/// Returns `metadata.resourceVersion`.
#[track_caller]
pub(crate) fn rv(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().expect("an object has a resourceVersion");
    text.parse().expect("a resourceVersion is a number")
}

/// Returns the `fieldsV1` of a manager's entry, or null.
pub(crate) fn fields(object: &Value, manager: &str, operation: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array();
    let found = entries.into_iter().flatten().find(|e| e["manager"] == manager && e["operation"] == operation);
    found.map(|e| e["fieldsV1"].clone()).unwrap_or_default()
}

/// Returns `manager/operation[/subresource]` of every entry, sorted.
pub(crate) fn managers(object: &Value) -> Vec<String> {
    let mut all: Vec<String> = object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|e| {
            let part = |f: &str| e[f].as_str().unwrap_or_default().to_owned();
            let sub = part("subresource");
            format!("{}/{}{}{sub}", part("manager"), part("operation"), if sub.is_empty() { "" } else { "/" })
        })
        .collect();
    all.sort();
    all
}

/// An open watch.
pub(crate) struct Watch {
    response: reqwest::Response,
    buffer: Vec<u8>,
}

impl Watch {
    /// Returns the next event; `None` at the end of the stream. Fails after a deadline.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("a watch line is JSON"));
            }
            match tokio::time::timeout(PATIENCE, self.response.chunk()).await.expect("a watch event comes") {
                Ok(Some(bytes)) => self.buffer.extend_from_slice(&bytes),
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Returns the next event as type, name and object.
    pub(crate) async fn event(&mut self) -> (String, String, Value) {
        let event = self.next().await.expect("the watch goes on");
        let object = event["object"].clone();
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&object["metadata"]["name"]), object)
    }

    /// Checks that the next events have these types and names. Bookmarks are ignored.
    pub(crate) async fn expect(&mut self, expected: &[(&str, &str)]) -> Vec<Value> {
        let mut objects = Vec::new();
        while objects.len() < expected.len() {
            let (kind, name, object) = self.event().await;
            if kind == "BOOKMARK" {
                continue;
            }
            assert_eq!((kind.as_str(), name.as_str()), expected[objects.len()], "{object}");
            objects.push(object);
        }
        objects
    }
}
