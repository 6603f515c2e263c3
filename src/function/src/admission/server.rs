//! Serves the webhooks over HTTPS.
//!
//! Invariant: every replica, leader or not, responds to requests from the request and the settings alone. No request
//! goes to the cluster. Invariant: all bodies together take a bounded memory (`bodies`), and a list at most
//! [`MAX_LIST`]. One request is validated at a time. A request that waits longer than [`PATIENCE`] fails. The API
//! server then accepts the write (`failurePolicy: Ignore`), and the reconcile validates it. Invariant: a client whose
//! body does not arrive gives way to a new client. A client that waits for memory does not: one of the bodies that hold the
//! memory is validated, or its client is slow and gives way. Invariant: contents of requests are not logged. Invariant: a
//! path without a configured webhook returns 404 before its body is read.

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

use super::bodies::{Bodies, CONNECTIONS, Fault, MAX_BODY, WITHIN};
use super::conversion_review::{self, MAX_LIST};
use super::hook::Hook;
use super::review::{Review, Verdict};
use crate::Settings;
use loopback::Listener;
use mainstay_cluster::ServedCertificate;
use mainstay_cluster::listener::{self, Limits, Receiving};
use mainstay_object::failure::caught_now;

/// Maximum time for a body, and for the wait for validation. The API server's timeout is 3 s.
const PATIENCE: Duration = Duration::from_secs(2);
/// Limits for clients. An API server opens few connections, and closes idle ones after 90 s.
const LIMITS: Limits = Limits {
    connections: CONNECTIONS,
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
    bodies: Bodies,
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
            bodies: Bodies::default(),
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
        let (head, body) = listener::receive(request, 2 * WITHIN).into_parts();
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

    async fn judge(
        &self,
        hook: Hook,
        head: &Parts,
        mut body: Receiving<Incoming>,
    ) -> Result<(&'static str, Bytes), Failed> {
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
        let most = if hook == Hook::ConvertFunction { MAX_LIST } else { MAX_BODY };
        if size > most {
            let why = if most == MAX_LIST {
                "the list is larger than 24 MiB: ask for less at a time (kubectl --chunk-size)"
            } else {
                "the review is larger than 4 MiB"
            };
            return Err(Failed(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        let busy = Failed(StatusCode::SERVICE_UNAVAILABLE, "there are too many reviews at the same time");
        let received = self.bodies.read(&mut body, size).await.map_err(|fault| match fault {
            Fault::NoMemory => busy,
            Fault::Late => Failed(StatusCode::REQUEST_TIMEOUT, "the review did not come in time"),
        })?;
        let judging = timeout(PATIENCE, self.judging.acquire()).await;
        let _judging = judging.map_err(|_| busy)?.map_err(|_| busy)?;
        // A panic fails only this request. The panic is not reported as a denial.
        let judged = caught_now(|| self.verdict(hook, received.bytes()));
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
