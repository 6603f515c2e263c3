//! Forwards a request to a pod, and the pod's response to the client.

use super::{
    fault::unreachable,
    headers::{self, Links},
    place::Place,
};
use crate::{
    body::Body,
    service::{request::Asked, stream::Connection},
    status::Status,
};
use bytes::Bytes;
use futures::stream;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::{
    body::Incoming,
    client::conn::http1,
    upgrade::{OnUpgrade, on},
};
use hyper_util::rt::TokioIo;
use std::{convert::Infallible, io, net::SocketAddr, time::Duration};
use tokio::{
    io::copy_bidirectional,
    net::TcpStream,
    time::{Instant, timeout, timeout_at},
};

/// Maximum time for a pod to accept a connection.
const CONNECTING: Duration = Duration::from_secs(10);
/// Maximum time without data from a pod.
const SILENCE: Duration = Duration::from_mins(5);
/// Maximum duration of a response.
const LONGEST: Duration = Duration::from_hours(1);

/// Forwards a request to the pod at `address`.
pub(super) async fn carry(
    asked: &Asked,
    address: SocketAddr,
    place: &Place,
    path: &str,
    upgrade: bool,
    links: &Links<'_>,
) -> Result<Response<Body>, Status> {
    let dial = |why: String| unreachable(&format!("dial tcp {}: {why}", place.host));
    let connected = timeout(CONNECTING, TcpStream::connect(address)).await;
    let stream = connected.map_err(|_| dial("i/o timeout".to_owned()))?.map_err(|error| {
        dial(match error.kind() {
            io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
            _ => format!("connect: {error}"),
        })
    })?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(&error.to_string()))?;
    let client = asked.parts.extensions.get::<Connection>().cloned();
    let mut stopped = client.as_ref().map(|client| client.stopped.clone());
    tokio::spawn(async move {
        let ended = async {
            match &mut stopped {
                Some(stopped) => drop(stopped.wait_for(|stop| *stop).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // An error reaches the reader of the response.
            _ = connection.with_upgrades() => {}
            () = ended => {}
        }
    });
    let target = asked.parts.uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let mut request = Request::new(Full::new(asked.body.clone()));
    *request.method_mut() = asked.parts.method.clone();
    *request.uri_mut() = target.parse().map_err(|_| Status::bad_request("the path of the request is none"))?;
    let local = client.as_ref().is_some_and(|client| client.loopback);
    let path = asked.parts.uri.path();
    *request.headers_mut() = headers::of_request(&asked.parts.headers, path, &place.host, upgrade, local);
    let answer = timeout(SILENCE, sender.send_request(request)).await;
    let answer = answer.map_err(|_| unreachable("net/http: timeout awaiting response headers"))?;
    let answer = answer.map_err(|error| unreachable(&error.to_string()))?;
    if upgrade { switch(asked, client, answer, links) } else { Ok(shown(answer, links)) }
}

/// Streams the response of a pod.
fn shown(answer: Response<Incoming>, links: &Links<'_>) -> Response<Body> {
    let (mut parts, body) = answer.into_parts();
    headers::of_answer(&mut parts.headers, links);
    parts.version = http::Version::HTTP_11;
    parts.extensions = http::Extensions::new();
    let end = Instant::now() + LONGEST;
    let pieces = stream::unfold(body, move |mut body| async move {
        loop {
            let by = end.min(Instant::now() + SILENCE);
            let frame = timeout_at(by, body.frame()).await.ok()??.ok()?;
            // Trailers belong to the connection to the pod.
            if let Ok(piece) = frame.into_data() {
                return Some((Ok::<_, Infallible>(Frame::data(piece)), body));
            }
        }
    });
    Response::from_parts(parts, StreamBody::new(pieces).boxed_unsync())
}

/// Joins both connections if the pod switches protocols, too. Otherwise returns the pod's response.
fn switch(
    asked: &Asked,
    client: Option<Connection>,
    mut answer: Response<Incoming>,
    links: &Links<'_>,
) -> Result<Response<Body>, Status> {
    let code = answer.status();
    if code != StatusCode::SWITCHING_PROTOCOLS {
        if code.as_u16() < 400 {
            return Err(Status::new(500, "", format!("invalid upgrade response: status code {}", code.as_u16())));
        }
        return Ok(shown(answer, links));
    }
    let own = asked.parts.extensions.get::<OnUpgrade>().cloned().zip(client);
    let (own, mut client) = own.ok_or_else(|| Status::new(500, "", "request connection cannot be hijacked"))?;
    let pod = on(&mut answer);
    let mut response = Response::new(Empty::<Bytes>::new().boxed_unsync());
    *response.status_mut() = code;
    *response.headers_mut() = answer.headers().clone();
    tokio::spawn(async move {
        let joined = async {
            if let (Ok(own), Ok(pod)) = tokio::join!(own, pod) {
                // After an error, both sides are closed as well.
                let _ = copy_bidirectional(&mut TokioIo::new(own), &mut TokioIo::new(pod)).await;
            }
        };
        tokio::select! {
            () = joined => {}
            _ = client.stopped.wait_for(|stop| *stop) => {}
        }
    });
    Ok(response)
}
