//! Serves the webhooks over HTTPS.
//!
//! Invariant: every replica, leader or not, responds to requests from the request and the settings alone. No request
//! goes to the cluster. Invariant: all bodies together take at most [`ROOM`] bytes, plus one converted list of at most
//! [`MAX_LIST`]. One request is validated at a time. A request that waits longer than [`PATIENCE`] fails. The API
//! server then accepts the write (`failurePolicy: Ignore`), and the reconcile validates it. Invariant: contents of
//! requests are not logged. Invariant: a path without a configured webhook returns 404 before its body is read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use parking_lot::{Mutex, RwLock};
use rustls::RootCertStore;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::conversion_review::{self, MAX_LIST};
use super::hook::Hook;
use super::review::{Review, Verdict};
use crate::Settings;
use loopback::Listener;
use mainstay_cluster::listener::{self, Limits};
use mainstay_cluster::{ServedCertificate, body};
use mainstay_object::failure::caught_now;

/// Maximum bytes of a body: two objects of etcd's maximum size, with space for escapes.
const MAX_BODY: usize = 4 << 20;
/// Maximum bytes of all other bodies together.
const ROOM: usize = 8 << 20;
/// Unit of `ROOM`, in bytes.
const UNIT: usize = 1 << 10;
/// Maximum wait for memory, and for a body. The API server's timeout is 3 s.
const PATIENCE: Duration = Duration::from_secs(2);
/// Limits for clients. An API server opens few connections, and closes idle ones after 90 s.
const LIMITS: Limits = Limits {
    connections: 64,
    spare: 0,
    head: Duration::from_secs(3),
    whole: Duration::from_secs(10),
    kept: Some(Duration::from_secs(100)),
    farewell: Duration::from_secs(5),
    idle: None,
};

/// The webhooks, and what they need to respond to requests.
#[derive(Debug)]
pub struct Admission {
    /// The operator's settings, once they are known.
    settings: RwLock<Option<Arc<Settings>>>,
    pub(super) served: Arc<ServedCertificate>,
    /// The CAs of the API servers' client certificates, if they have any.
    authorities: Option<Arc<RootCertStore>>,
    /// The webhooks that the cluster has configured.
    configured: RwLock<BTreeSet<Hook>>,
    room: Semaphore,
    list: Semaphore,
    judging: Semaphore,
    counts: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
}

/// The number of requests with the same webhook and outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Name of the webhook; `unknown` for a path without one.
    pub webhook: &'static str,
    /// `allowed`, `explained`, `changed`, `denied`, `converted` or `failed`.
    pub outcome: &'static str,
    /// Number of requests.
    pub count: u64,
}

/// A request that fails with this HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failed(StatusCode, &'static str);

impl Admission {
    /// Returns webhooks that respond only after a certificate, settings and a configuration are set. With
    /// `authorities`, only clients with a certificate of these CAs are served.
    pub fn new(authorities: Option<Arc<RootCertStore>>) -> Self {
        Self {
            settings: RwLock::default(),
            served: Arc::default(),
            authorities,
            configured: RwLock::default(),
            room: Semaphore::new(ROOM / UNIT),
            list: Semaphore::new(1),
            judging: Semaphore::new(1),
            counts: Mutex::default(),
        }
    }

    /// Sets the webhooks that are served.
    pub(super) fn set_configured(&self, configured: BTreeSet<Hook>) {
        *self.configured.write() = configured;
    }

    /// Sets the settings for validation.
    pub fn set_settings(&self, settings: Settings) {
        *self.settings.write() = Some(Arc::new(settings));
    }

    /// Returns the outcomes of the requests since the start.
    pub fn counts(&self) -> Vec<Count> {
        let counts = self.counts.lock();
        counts.iter().map(|(&(webhook, outcome), &count)| Count { webhook, outcome, count }).collect()
    }

    /// Serves until `stop`.
    pub async fn serve(self: Arc<Self>, listener: Listener, stop: CancellationToken) {
        let Some(config) = Arc::clone(&self.served).config(self.authorities.clone()) else {
            tracing::error!("TLS cannot be set up: Functions are validated only when they are reconciled");
            return stop.cancelled().await;
        };
        let answer = move |request| Arc::clone(&self).answer(request);
        listener::serve_tls(listener, TlsAcceptor::from(Arc::new(config)), LIMITS, answer, stop).await;
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let hook = Hook::at(head.uri.path()).filter(|(hook, _)| self.configured.read().contains(hook));
        let answered = match hook {
            None => Err(Failed(StatusCode::NOT_FOUND, "there is no webhook at this path")),
            Some((hook, _)) => self.judge(hook, &head, body).await,
        };
        let (outcome, response) = match answered {
            Ok((outcome, bytes)) => (outcome, response(StatusCode::OK, "application/json", bytes)),
            Err(Failed(code, why)) => {
                ("failed", response(code, "text/plain; charset=utf-8", format!("{why}\n").into()))
            }
        };
        *self.counts.lock().entry((hook.map_or("unknown", |(_, label)| label), outcome)).or_default() += 1;
        response
    }

    async fn judge(&self, hook: Hook, head: &Parts, mut body: Incoming) -> Result<(&'static str, Bytes), Failed> {
        // API servers present a client certificate for admission, but not for conversion.
        let is_open = self.authorities.is_none() || hook == Hook::ConvertFunction;
        if !is_open && !listener::has_certificate(head) {
            return Err(Failed(StatusCode::UNAUTHORIZED, "a webhook wants the client certificate of an API server"));
        }
        if head.method != Method::POST {
            return Err(Failed(StatusCode::METHOD_NOT_ALLOWED, "a webhook takes POST only"));
        }
        if head.headers.get(header::CONTENT_TYPE).is_none_or(|media| media != "application/json") {
            return Err(Failed(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid Content-Type, want `application/json`"));
        }
        let Some(size) = body.size_hint().exact().and_then(|size| usize::try_from(size).ok()) else {
            return Err(Failed(StatusCode::LENGTH_REQUIRED, "a webhook wants a Content-Length"));
        };
        let (room, units, most) = match hook {
            Hook::ConvertFunction if size > MAX_BODY => (&self.list, 1, MAX_LIST),
            _ => (&self.room, size.div_ceil(UNIT), MAX_BODY),
        };
        if size > most {
            let why = if most == MAX_LIST {
                "the list is larger than 24 MiB: ask for less at a time (kubectl --chunk-size)"
            } else {
                "the review is larger than 4 MiB"
            };
            return Err(Failed(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        let busy = Failed(StatusCode::SERVICE_UNAVAILABLE, "there are too many reviews at the same time");
        let units = u32::try_from(units).map_err(|_| busy)?;
        let room = timeout(PATIENCE, room.acquire_many(units)).await;
        let _room = room.map_err(|_| busy)?.map_err(|_| busy)?;
        let slow = Failed(StatusCode::REQUEST_TIMEOUT, "the review did not come in time");
        let read = timeout(PATIENCE, body::read(&mut body, most, |_| true)).await.map_err(|_| slow)?;
        let body = read.map_err(|_| slow)?;
        let judging = timeout(PATIENCE, self.judging.acquire()).await;
        let _judging = judging.map_err(|_| busy)?.map_err(|_| busy)?;
        // A panic fails only this request. The panic is not reported as a denial.
        let judged = caught_now(|| self.verdict(hook, &body));
        judged.unwrap_or_else(|panicked| {
            tracing::error!(
                reason = "InternalError",
                why = panicked.to_string(),
                "an admission review was not evaluated"
            );
            Err(Failed(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"))
        })
    }

    fn verdict(&self, hook: Hook, body: &[u8]) -> Result<(&'static str, Bytes), Failed> {
        if hook == Hook::ConvertFunction {
            let answer = conversion_review::answer(body).map_err(|why| Failed(StatusCode::BAD_REQUEST, why.text()))?;
            return Ok((if answer.0 { "converted" } else { "failed" }, answer.1.into()));
        }
        let unreadable = |why: super::review::Unreadable| Failed(StatusCode::BAD_REQUEST, why.text());
        let review = Review::read(body).map_err(unreadable)?;
        let settings = self.settings.read().clone();
        let starting = Failed(StatusCode::SERVICE_UNAVAILABLE, "the settings for Functions are not known yet");
        let verdict = hook.verdict(&review, &*settings.ok_or(starting)?).map_err(unreadable)?;
        let outcome = match verdict {
            Verdict::Allowed => "allowed",
            Verdict::Explained(_) => "explained",
            Verdict::Patched(_) => "changed",
            Verdict::Denied { .. } => "denied",
        };
        Ok((outcome, review.answer(&verdict).to_string().into()))
    }
}

fn response(code: StatusCode, media: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}
