//! An HTTPS server of admission webhooks on loopback for tests. It records the calls that it receives.

use std::sync::Arc;
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

/// The names in the certificate.
const NAMES: [&str; 2] = ["127.0.0.1", "judge.default.svc"];

/// The response of a webhook.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// HTTP status.
    pub(crate) code: u16,
    /// Body.
    pub(crate) body: String,
    /// Delay before the response.
    pub(crate) delay: Duration,
    /// Notification to wait for before the response.
    pub(crate) held: Option<Arc<Notify>>,
    /// Whether the server closes the connection after the response.
    pub(crate) closes: bool,
}

/// One call of a webhook.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Path and query.
    pub(crate) path: String,
    /// Header User-Agent.
    pub(crate) agent: String,
    /// The AdmissionReview.
    pub(crate) review: Value,
    /// Number of the connection.
    pub(crate) connection: usize,
}

impl Asked {
    /// Returns `request` of the review.
    pub(crate) fn request(&self) -> &Value {
        &self.review["request"]
    }
}

/// A server of webhooks. It ends with the process.
pub(crate) struct Hooks {
    url: String,
    bundle: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// Returns a response that allows the request, with more fields.
pub(crate) fn allow(review: &Value, more: Value) -> Reply {
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    for (field, value) in more.as_object().into_iter().flatten() {
        response[field] = value.clone();
    }
    respond(&response)
}

/// Returns an AdmissionReview with a response.
pub(crate) fn respond(response: &Value) -> Reply {
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Reply { code: 200, body: body.to_string(), delay: Duration::ZERO, held: None, closes: false }
}

/// Returns a response with a JSON patch.
pub(crate) fn patch(review: &Value, operations: Value) -> Reply {
    allow(review, json!({"patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string())}))
}

impl Hooks {
    /// Starts the server. `answer` receives the path without its query, and the review.
    pub(crate) fn start(answer: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static) -> Self {
        let key = rcgen::generate_simple_self_signed(NAMES.map(str::to_owned)).expect("a certificate can be made");
        let bundle = STANDARD.encode(key.cert.pem());
        let certificate = key.cert.der().clone();
        let private =
            rustls::pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der()).expect("a key is one");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the protocols are known")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], private)
            .expect("the certificate fits its key");
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("a listener can be polled");
        let url = format!("https://{}", listener.local_addr().expect("a listener has an address"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let shared = (Arc::new(answer), asked.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("the listener is polled");
                for connection in 0.. {
                    let Ok((stream, _)) = listener.accept().await else { return };
                    let (acceptor, (answer, asked)) = (acceptor.clone(), shared.clone());
                    tokio::spawn(async move {
                        let Ok(stream) = acceptor.accept(stream).await else { return };
                        let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
                            serve(request, connection, answer.clone(), asked.clone())
                        });
                        let io = hyper_util::rt::TokioIo::new(stream);
                        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
                    });
                }
            });
        });
        Self { url, bundle, asked }
    }

    /// Returns all calls so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }

    /// Returns the calls of a path.
    pub(crate) fn asked_at(&self, path: &str) -> Vec<Asked> {
        let all = self.asked();
        all.into_iter().filter(|asked| asked.path.split('?').next() == Some(path)).collect()
    }

    /// Clears the recorded calls.
    pub(crate) fn forget(&self) {
        self.asked.lock().clear();
    }

    /// Returns the URL of the server.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the certificate as a `caBundle`.
    pub(crate) fn bundle(&self) -> &str {
        &self.bundle
    }
}

async fn serve(
    request: hyper::Request<Incoming>,
    connection: usize,
    answer: Arc<impl Fn(&str, &Value) -> Reply>,
    asked: Arc<Mutex<Vec<Asked>>>,
) -> Result<hyper::Response<Full<Bytes>>, hyper::Error> {
    let path = request.uri().to_string();
    let agent = request.headers().get("user-agent").and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let reply = answer(path.split('?').next().unwrap_or_default(), &review);
    asked.lock().push(Asked { path, agent, review, connection });
    tokio::time::sleep(reply.delay).await;
    if let Some(held) = &reply.held {
        held.notified().await;
    }
    let mut response = hyper::Response::new(Full::new(Bytes::from(reply.body)));
    *response.status_mut() = hyper::StatusCode::from_u16(reply.code).unwrap_or_default();
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
    if reply.closes {
        response.headers_mut().insert("connection", hyper::header::HeaderValue::from_static("close"));
    }
    Ok(response)
}
