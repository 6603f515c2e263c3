//! Accepts events over HTTP.
//!
//! Invariant: a success response means that the event is stored, on disk or in NATS. Invariant: a body has at most 64
//! KiB. A body is read only if the client may publish.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderValue, WWW_AUTHENTICATE};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::json;
use tokio::sync::watch;
use uuid::Uuid;

use super::cloud_event::CloudEvent;
use super::grants::SHARED;
use super::journal::Refused;
use super::json::LONGEST;
use super::legacy;
use super::publishers::{Denied, Publishers};
use super::request::{Asked, asked};
use super::send::TTL;
use super::store::Store;
use super::table::{Routed, Table};
use mainstay_cluster::body::{self, BodyFault};
use mainstay_cluster::listener::Limits;
use mainstay_object::failure::chain;

/// Timeouts for reading a body, and for storing an event.
const BODY: Duration = Duration::from_secs(5);
const DISK: Duration = Duration::from_secs(30);

/// Limits for clients. With bodies of maximum size, these clients use 16 MiB.
pub(super) const LIMITS: Limits = Limits {
    connections: 256,
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
        let (parts, body) = request.into_parts();
        let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let asked = asked(&parts.method, parts.uri.path(), parts.uri.query(), host);
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
            Asked::Alive | Asked::Ready => empty(StatusCode::OK),
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
        let (routed, status) = match asked {
            Asked::Broker(namespace, name) => (Ok(table.of_broker(namespace, name, event)), StatusCode::ACCEPTED),
            Asked::PublishIn(namespace) => (table.of_namespace(namespace, event), StatusCode::NO_CONTENT),
            _ => (table.of_namespace(SHARED, event), StatusCode::NO_CONTENT),
        };
        let routed = match routed {
            Ok(routed) => routed,
            Err(unclean) => return text(StatusCode::BAD_REQUEST, &unclean.to_string()),
        };
        match self.keep(routed).await {
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
        match self.keep(table.of_legacy(SHARED, event)).await {
            Ok(()) => legacy::accepted(&id),
            Err((code, why)) => legacy::failed(code.as_u16(), &why),
        }
    }

    /// Stores events, or returns the status and message of a failure.
    async fn keep(&self, routed: Vec<Routed>) -> Result<(), (StatusCode, String)> {
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
