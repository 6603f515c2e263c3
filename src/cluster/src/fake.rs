//! A fake API server for tests: each request waits until the test responds to it.

use bytes::Bytes;
use futures::channel::{mpsc, oneshot};
use futures::{FutureExt, StreamExt};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use super::connect::Cluster;
use super::count::Verb;

type Pieces = mpsc::UnboundedReceiver<Result<Frame<Bytes>, std::io::Error>>;
type Answer = Result<Response<StreamBody<Pieces>>, std::io::Error>;

/// Receives the requests of the cluster under test.
pub(super) struct Server(mpsc::UnboundedReceiver<Asked>);

/// One request.
pub(super) struct Asked {
    pub request: Request<Body>,
    answer: oneshot::Sender<Answer>,
}

/// The rest of a response body. Dropping it ends the body.
pub(super) struct Pipe(mpsc::UnboundedSender<Result<Frame<Bytes>, std::io::Error>>);

/// Returns a cluster, and the server that receives its requests.
pub(super) fn cluster() -> (Cluster, Server) {
    let (asked, server) = mpsc::unbounded();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (answer, answered) = oneshot::channel();
        let sent = asked.unbounded_send(Asked { request, answer }).map_err(drop);
        answered.map(move |answer: Result<Answer, _>| {
            sent.map_err(|()| std::io::Error::other("the test is over"))?;
            answer.map_err(std::io::Error::other)?
        })
    });
    let client = Client::new(service, "default");
    (Cluster::from_clients(client.clone(), client), Server(server))
}

/// Returns a body, and the pipe that fills it.
pub(super) async fn stream() -> (Pipe, Body) {
    let (cluster, mut server) = cluster();
    let request = Request::get("/").body(Body::empty()).expect("a request");
    let client = cluster.client(Verb::Get);
    let (response, pipe) = tokio::join!(client.send(request), async { server.next().await.stream() });
    (pipe, response.expect("a response").into_body())
}

impl Server {
    /// Waits for the next request.
    pub(super) async fn next(&mut self) -> Asked {
        self.0.next().await.expect("the cluster lives")
    }
}

impl Asked {
    /// Returns method, path and query.
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.request.method(), self.request.uri())
    }

    /// Returns a query parameter, decoded as far as the requests of this crate need.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let query = self.request.uri().query()?;
        let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
        Some(value.replace("%3D", "=").replace("%2F", "/"))
    }

    /// Responds with JSON; returns the request's body.
    pub(super) async fn json(self, code: u16, body: &Value) -> Value {
        self.text(code, &body.to_string()).await
    }

    /// Responds with a text; returns the request's body.
    pub(super) async fn text(self, code: u16, body: &str) -> Value {
        self.answer(Response::builder().status(code), body).await
    }

    /// Responds with 429 and a `Retry-After`; returns the request's body.
    pub(super) async fn busy(self, body: &str, seconds: u32) -> Value {
        self.answer(Response::builder().status(429).header("Retry-After", seconds), body).await
    }

    async fn answer(self, response: http::response::Builder, body: &str) -> Value {
        let asked = self.request.into_body().collect().await.expect("a body").to_bytes();
        let (pieces, receiver) = mpsc::unbounded();
        let _ = pieces.unbounded_send(Ok(Frame::data(Bytes::from(body.to_owned()))));
        let response = response.body(StreamBody::new(receiver)).expect("a response");
        let _ = self.answer.send(Ok(response));
        serde_json::from_slice(&asked).unwrap_or(Value::Null)
    }

    /// Responds with 200 and a body that the test sends in pieces.
    pub(super) fn stream(self) -> Pipe {
        let (pieces, receiver) = mpsc::unbounded();
        let _ = self.answer.send(Ok(Response::new(StreamBody::new(receiver))));
        Pipe(pieces)
    }

    /// Breaks the connection instead of responding.
    pub(super) fn cut(self) {
        let _ = self.answer.send(Err(std::io::Error::other("connection refused")));
    }
}

impl Pipe {
    pub(super) fn send(&self, piece: &str) {
        let _ = self.0.unbounded_send(Ok(Frame::data(Bytes::from(piece.to_owned()))));
    }

    /// Sends one watch event.
    pub(super) fn event(&self, what: &str, object: &Value) {
        self.send(&format!("{}\n", serde_json::json!({ "type": what, "object": object })));
    }

    /// Breaks the connection.
    pub(super) fn cut(self) {
        let _ = self.0.unbounded_send(Err(std::io::Error::other("connection reset")));
    }
}
