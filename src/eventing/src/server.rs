//! Accepts events over HTTP.
//!
//! Invariant: a success response means that the event is stored, on disk or in NATS. Invariant: a body has at most 64
//! KiB. A body is read only if the client may publish.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderValue, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::json;
use tokio::sync::watch;
use uuid::Uuid;

use super::cloud_event::CloudEvent;
use super::grants::SHARED;
use super::jetstream::Answers;
use super::journal::Refused;
use super::json::LONGEST;
use super::legacy;
use super::metrics::Metrics;
use super::publishers::{Denied, Publishers};
use super::request::{Asked, asked};
use super::role::Role;
use super::send::TTL;
use super::store::Store;
use super::table::{Routed, Table};
use mainstay_cluster::body::{self, BodyFault};
use mainstay_cluster::listener::Limits;
use mainstay_object::failure::chain;

/// Timeouts for reading a body, and for storing an event.
const BODY: Duration = Duration::from_secs(5);
const DISK: Duration = Duration::from_secs(30);

/// Content type of metrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Limits for clients. With bodies of maximum size, these clients use 16 MiB.
pub(super) const LIMITS: Limits = Limits {
    connections: 256,
    spare: 0,
    head: Duration::from_secs(5),
    whole: Duration::from_secs(45),
    kept: Some(Duration::from_secs(30)),
    farewell: Duration::from_secs(5),
    idle: None,
};

/// The HTTP server's state.
pub(super) struct Server {
    pub(super) store: Store,
    /// All subscribers, once they are known.
    pub(super) table: watch::Receiver<Option<Arc<Table>>>,
    pub(super) publishers: Publishers,
    pub(super) role: Role,
    /// Whether NATS responds, if it stores the events.
    pub(super) nats: Option<watch::Receiver<Answers>>,
    pub(super) metrics: Metrics,
}

type Answer = Response<Full<Bytes>>;

/// The reason why a body was not read.
enum NoBody {
    TooLarge,
    Unread,
}

impl Server {
    /// Responds to a request.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (began, (parts, body)) = (Instant::now(), request.into_parts());
        let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let asked = asked(&parts.method, parts.uri.path(), parts.uri.query(), host);
        let pattern = asked.pattern();
        let answer = self.respond(&parts, body, asked).await;
        let (method, code) = (parts.method.as_str(), answer.status().as_u16());
        self.metrics.requested(method, pattern, code, began.elapsed());
        answer
    }

    /// Responds to a request for metrics.
    pub(super) fn scrape(&self, request: &Request<Incoming>) -> Answer {
        if request.method() != Method::GET || request.uri().path() != "/metrics" {
            return empty(StatusCode::NOT_FOUND);
        }
        let is_answered = self.nats.as_ref().is_none_or(|nats| nats.borrow().is_ok());
        self.metrics.set_health(is_answered && self.table.borrow().is_some());
        match self.metrics.text() {
            Ok(metrics) => {
                let mut answer = text(StatusCode::OK, "");
                *answer.body_mut() = Full::from(metrics);
                answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
                answer
            }
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }

    async fn respond(&self, parts: &Parts, body: Incoming, asked: Asked<'_>) -> Answer {
        if !self.role.accepts() && !matches!(asked, Asked::Alive | Asked::Ready) {
            return text(StatusCode::NOT_FOUND, "this process delivers events; publish to eventing-publisher-proxy");
        }
        let Some(table) = self.table.borrow().clone() else {
            return match asked {
                Asked::Alive => empty(StatusCode::OK),
                Asked::Nowhere => empty(StatusCode::NOT_FOUND),
                _ => text(StatusCode::SERVICE_UNAVAILABLE, "the subscribers are not known yet"),
            };
        };
        if let Asked::PublishIn(namespace) | Asked::Broker(namespace, _) = asked
            && let Err(denied) = self.publishers.check(&parts.headers, namespace).await
        {
            return refused(&denied);
        }
        match asked {
            Asked::Alive => empty(StatusCode::OK),
            Asked::Ready => match self.nats.as_ref().map(|nats| nats.borrow().clone()) {
                Some(Err(why)) => text(StatusCode::SERVICE_UNAVAILABLE, &why),
                Some(Ok(())) | None => empty(StatusCode::OK),
            },
            Asked::Nowhere => empty(StatusCode::NOT_FOUND),
            Asked::WrongMethod => empty(StatusCode::METHOD_NOT_ALLOWED),
            Asked::Subscribed(application) => {
                let all = table.wanted_of(SHARED, application).into_iter();
                let all: Vec<_> = all.map(|(name, version)| json!({"name": name, "version": version})).collect();
                json_of(200, json!({"eventsInfo": all}).to_string())
            }
            Asked::Legacy(application) => {
                let answer = match read(body).await {
                    Ok(body) => self.legacy(&table, application, &body).await,
                    Err(NoBody::TooLarge) => legacy::too_large(),
                    Err(NoBody::Unread) => legacy::failed(400, "the body could not be read"),
                };
                json_of(answer.status, answer.body)
            }
            Asked::Publish | Asked::PublishIn(_) | Asked::Events(_) | Asked::Broker(..) => match read(body).await {
                Ok(body) => self.publish(&table, &asked, &parts.headers, body).await,
                Err(NoBody::TooLarge) => text(StatusCode::PAYLOAD_TOO_LARGE, "an event must have at most 65536 bytes"),
                Err(NoBody::Unread) => text(StatusCode::BAD_REQUEST, "the body could not be read"),
            },
        }
    }

    async fn publish(&self, table: &Table, asked: &Asked<'_>, headers: &http::HeaderMap, body: Bytes) -> Answer {
        let parsed = match CloudEvent::parse(headers, body) {
            Ok(parsed) => parsed,
            Err(refusal) if refusal.is_unsupported() => {
                return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, &refusal.to_string());
            }
            Err(refusal) => return text(StatusCode::BAD_REQUEST, &refusal.to_string()),
        };
        // Publishers must not set the hop count.
        let mut event = parsed.event.without(TTL);
        if parsed.has_prefixed_keys {
            tracing::warn!(
                id = event.attribute("id"),
                "an event's body has keys that begin with `ce-`, as headers do: Kyma refuses it; write `specversion` and so on"
            );
        }
        if let Asked::Events(application) = asked {
            event = event.with("source", application);
        }
        let of = [event.event_type(), event.attribute("source").unwrap_or_default()].map(str::to_owned);
        let (routed, status) = match asked {
            Asked::Broker(namespace, name) => (Ok(table.of_broker(namespace, name, event)), StatusCode::ACCEPTED),
            Asked::PublishIn(namespace) => (table.of_namespace(namespace, event), StatusCode::NO_CONTENT),
            _ => (table.of_namespace(SHARED, event), StatusCode::NO_CONTENT),
        };
        let routed = match routed {
            Ok(routed) => routed,
            Err(unclean) => return text(StatusCode::BAD_REQUEST, &unclean.to_string()),
        };
        match self.keep(routed, &of, status).await {
            Ok(()) => empty(status),
            Err((code, why)) => text(code, &why),
        }
    }

    async fn legacy(&self, table: &Table, application: &str, body: &[u8]) -> legacy::Answer {
        let event = match legacy::parse(application, body, &Uuid::new_v4().to_string()) {
            Ok(event) => event,
            Err(answer) => return answer,
        };
        let id = event.id.clone();
        let of = [event.plain.event_type(), event.plain.attribute("source").unwrap_or_default()].map(str::to_owned);
        match self.keep(table.of_legacy(SHARED, event), &of, StatusCode::OK).await {
            Ok(()) => legacy::accepted(&id),
            Err((code, why)) => legacy::failed(code.as_u16(), &why),
        }
    }

    /// Stores events, or returns the status and message of a failure. Counts the event of this type and source; `status`
    /// is that of a success.
    async fn keep(
        &self,
        routed: Vec<Routed>,
        [event_type, source]: &[String; 2],
        status: StatusCode,
    ) -> Result<(), (StatusCode, String)> {
        let began = Instant::now();
        let kept = self.store(routed).await;
        let code = kept.as_ref().err().map_or(status, |(code, _)| *code).as_u16();
        self.metrics.published(event_type, source, code, self.store.name(), began.elapsed());
        kept
    }

    async fn store(&self, routed: Vec<Routed>) -> Result<(), (StatusCode, String)> {
        if routed.is_empty() {
            return Ok(());
        }
        match tokio::time::timeout(DISK, self.store.publish(routed, false)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(refused)) => {
                let code = match refused {
                    Refused::Full | Refused::Share { .. } => StatusCode::INSUFFICIENT_STORAGE,
                    Refused::Io(_) => StatusCode::INTERNAL_SERVER_ERROR,
                    Refused::Ending | Refused::Broker(_) => StatusCode::SERVICE_UNAVAILABLE,
                };
                tracing::warn!(why = chain(&refused), "an event is refused");
                Err((code, refused.to_string()))
            }
            Err(_) => Err((StatusCode::SERVICE_UNAVAILABLE, "the store timed out".to_owned())),
        }
    }
}

/// Returns the response for a client that may not publish.
fn refused(denied: &Denied) -> Answer {
    let status = match denied {
        Denied::NoToken { .. } => StatusCode::UNAUTHORIZED,
        Denied::Elsewhere { .. } => StatusCode::FORBIDDEN,
        Denied::Unchecked => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut answer = text(status, &denied.to_string());
    if status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    answer
}

/// Reads the whole body. Many small frames cost no additional memory.
async fn read(mut body: Incoming) -> Result<Bytes, NoBody> {
    match tokio::time::timeout(BODY, body::read(&mut body, LONGEST, |_| true)).await {
        Ok(Ok(whole)) => Ok(whole.into_boxed_slice().into()),
        Ok(Err(BodyFault::TooLarge)) => Err(NoBody::TooLarge),
        Ok(Err(BodyFault::NoRoom | BodyFault::Broken)) | Err(_) => Err(NoBody::Unread),
    }
}

fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer
}

fn text(status: StatusCode, text: &str) -> Answer {
    let mut answer = Response::new(Full::from(format!("{text}\n")));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

fn json_of(status: u16, body: String) -> Answer {
    let mut answer = Response::new(Full::from(body));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
