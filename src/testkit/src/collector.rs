//! An OpenTelemetry collector that keeps the spans of requests over HTTP.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::Notify;
use tokio::time::timeout;

/// The collector. It ends with the test.
#[derive(Clone, Default)]
pub struct Collector(Arc<Mutex<Received>>, Arc<Notify>);

#[derive(Default)]
struct Received {
    spans: Vec<Span>,
    services: Vec<String>,
}

impl Collector {
    /// Starts a collector. Also returns its URL.
    pub async fn start() -> (Self, String) {
        let collector = Self::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = Router::new().route("/v1/traces", post(receive)).with_state(collector.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        (collector, url)
    }

    /// Returns all spans so far.
    pub fn spans(&self) -> Vec<Span> {
        self.0.lock().spans.clone()
    }

    /// Returns the services that sent spans.
    pub fn services(&self) -> Vec<String> {
        self.0.lock().services.clone()
    }

    /// Waits until there are this many traces whose first span has this name. Returns them.
    pub async fn wait_for(&self, name: &str, count: usize) -> Vec<(Span, Vec<Span>)> {
        let reached = async {
            loop {
                let received = self.1.notified();
                let found = self.traces(name);
                if found.len() >= count {
                    return found;
                }
                received.await;
            }
        };
        let found = timeout(crate::PATIENCE, reached).await;
        let found = found.unwrap_or_else(|_| panic!("no {count} traces of a {name} in {:#?}", self.spans()));
        assert_eq!(found.len(), count, "{found:#?}");
        found
    }

    /// Returns the traces whose first span has this name, each with that span and the spans below it.
    pub fn traces(&self, name: &str) -> Vec<(Span, Vec<Span>)> {
        let spans = self.spans();
        let mut below: HashMap<Vec<u8>, Vec<Span>> = HashMap::new();
        for span in &spans {
            below.entry(span.parent_span_id.clone()).or_default().push(span.clone());
        }
        let roots = spans.into_iter().filter(|span| span.name == name);
        roots.map(|root| (root.clone(), below.remove(&root.span_id).unwrap_or_default())).collect()
    }
}

async fn receive(State(collector): State<Collector>, headers: HeaderMap, body: Bytes) -> StatusCode {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let mut received = collector.0.lock();
    for resource in request.resource_spans {
        let attributes = resource.resource.into_iter().flat_map(|resource| resource.attributes);
        received.services.extend(attributes.filter(|a| a.key == "service.name").map(|a| format!("{:?}", a.value)));
        received.spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
    }
    collector.1.notify_waiters();
    StatusCode::OK
}
