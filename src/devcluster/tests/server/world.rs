//! An in-process cluster, with requests and watches.

use devcluster::{Cluster, Options, service::Body};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use std::time::Duration;
use tower::ServiceExt as _;

/// Deadline of waiting.
const PATIENCE: Duration = Duration::from_secs(60);

/// One cluster.
pub(crate) struct World {
    pub(crate) server: Cluster,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// Checks the code and returns the body.
    #[track_caller]
    pub(crate) fn expect(&self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.text);
        self.json()
    }

    /// Checks code, reason and message of a refusal.
    #[track_caller]
    pub(crate) fn refused(&self, code: u16, reason: &str, message: &str) {
        let body = self.expect(code);
        assert_eq!(body["reason"].as_str().unwrap_or_default(), reason, "{body}");
        let said = body["message"].as_str().unwrap_or_default();
        assert!(said.contains(message), "{said:?} does not say {message:?}");
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Options { future_wait: Duration::from_millis(50), ..Options::default() })
    }

    pub(crate) fn with(options: Options) -> Self {
        Self { server: Cluster::new(options) }
    }

    pub(crate) async fn send(&self, request: Request<Full<bytes::Bytes>>) -> http::Response<Body> {
        let Ok(response) = self.server.client_service().oneshot(request).await;
        response
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, media: &str, accept: &str, body: String) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", media)
            .header("accept", accept)
            .header("user-agent", "tester/1.0")
            .body(Full::new(body.into()))
            .expect("the request is well-formed");
        let response = self.send(request).await;
        let (parts, body) = response.into_parts();
        let Ok(body) = body.collect().await;
        let text = String::from_utf8(body.to_bytes().to_vec()).expect("answers are text");
        Answer { code: parts.status.as_u16(), headers: parts.headers, text }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", "", String::new()).await
    }

    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.ask("GET", path, "", accept, String::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.ask("POST", path, "application/json", "", body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.ask("PUT", path, "application/json", "", body.to_string()).await
    }

    pub(crate) async fn merge(&self, path: &str, body: Value) -> Answer {
        self.ask("PATCH", path, "application/merge-patch+json", "", body.to_string()).await
    }

    pub(crate) async fn apply(&self, path: &str, body: Value) -> Answer {
        self.ask("PATCH", path, "application/apply-patch+yaml", "", body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str, options: Value) -> Answer {
        self.ask("DELETE", path, "application/json", "", options.to_string()).await
    }

    /// Creates a ConfigMap in `default`.
    pub(crate) async fn map(&self, name: &str, labels: Value) -> Value {
        let body = json!({"metadata": {"name": name, "labels": labels}, "data": {"k": "v"}});
        self.post(MAPS, body).await.expect(201)
    }

    pub(crate) async fn watch(&self, path: &str) -> Watch {
        let request = Request::get(path).body(Full::default()).expect("the request is well-formed");
        let response = self.send(request).await;
        assert_eq!(response.status(), 200);
        Watch { body: response.into_body(), rest: String::new() }
    }
}

/// ConfigMaps of the namespace `default`.
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The resource version of an object or list.
pub(crate) fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).expect("there is a resource version")
}

/// An open watch.
pub(crate) struct Watch {
    body: Body,
    rest: String,
}

impl Watch {
    /// Returns the next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.find('\n') {
                let line: String = self.rest.drain(..=end).collect();
                return Some(serde_json::from_str(&line).expect("a line is an event"));
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("something comes in time");
            let Ok(frame) = frame?;
            let data = frame.into_data().expect("there are no trailers");
            self.rest.push_str(std::str::from_utf8(&data).expect("events are text"));
        }
    }

    /// Returns the next event as `TYPE name`, bookmarks as `BOOKMARK`.
    pub(crate) async fn short(&mut self) -> String {
        let Some(event) = self.next().await else { return "end".to_owned() };
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        format!("{} {name}", event["type"].as_str().unwrap_or_default()).trim().to_owned()
    }
}
