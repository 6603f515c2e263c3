//! Tests of requests: probes, ends of sessions, and tokens that are refused during a request.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Extension;
use axum::body::to_bytes;
use http::HeaderValue;
use hyper::body::Incoming;
use loopback::Reach;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::*;
use crate::serve::session::Its;
use crate::serve::session::tests::{session, session_of};
use crate::session::Owner;
use mainstay_cluster::{Kind, Scope};

#[tokio::test]
async fn only_a_form_may_have_had_an_effect_when_its_session_ends() {
    let session = session(&RowMemory::default());
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Reach::Anyone).unwrap();
    let settings = Settings {
        users: Users::Own(session.cluster.clone()),
        cluster_name: String::new(),
        namespace: "a".to_owned(),
        readers: session.readers.clone(),
    };
    let Console { shared, .. } = Console::new(settings, listener, CancellationToken::new()).unwrap();
    let origin = shared.gate.origins[0].clone();
    for (method, is_form) in [(Method::GET, false), (Method::HEAD, false), (Method::POST, true)] {
        let asked = Asked { method, uri: Uri::from_static("/"), headers: HeaderMap::new() };
        let response = shared.ended(&asked, &origin).await;
        assert_eq!(response.status(), 401);
        let text = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let text = String::from_utf8_lossy(&text);
        assert_eq!(text.contains("while the form was processed"), is_form, "{text}");
    }
}

/// Returns a session whose API server responds to a patch, and refuses the token of each later request. Earlier
/// requests get no response.
fn patching(memory: &RowMemory) -> Session {
    let is_patched = AtomicBool::new(false);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let is_patch = *request.method() == Method::PATCH;
        let is_answered = is_patched.fetch_or(is_patch, Ordering::Relaxed) || is_patch;
        async move {
            if !is_answered {
                std::future::pending::<()>().await;
            }
            let status = if is_patch { 200_u16 } else { 401 };
            Ok::<_, Infallible>(http::Response::builder().status(status).body(Body::from("{}")).unwrap())
        }
    });
    session_of(memory, kube::Client::new(service, "default"))
}

/// Patches an object, and reads its user.
async fn patch(Extension(session): Its) -> Response {
    let kind = Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced);
    let written = session.cluster.send_merge(&kind, Some("a"), "b", &serde_json::json!({})).await;
    assert!(written.is_ok() && session.cluster.user_name().await.is_err());
    answer::page(StatusCode::OK, "done".to_owned())
}

#[tokio::test]
async fn a_form_whose_token_is_refused_after_its_effect_says_what_to_check() {
    for (method, expected) in [(Method::POST, "check whether the form had its effect"), (Method::GET, "Token refused")]
    {
        let session = patching(&RowMemory::default());
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Reach::Anyone).unwrap();
        let server = ApiServer::at(&Uri::from_static("https://127.0.0.1:1"), None).unwrap();
        let origin = WebOrigin::of_this_machine("localhost", 1);
        let settings = Settings {
            users: Users::Proxy(server, vec![origin.clone()]),
            cluster_name: String::new(),
            namespace: "a".to_owned(),
            readers: session.readers.clone(),
        };
        let Console { mut shared, .. } = Console::new(settings, listener, CancellationToken::new()).unwrap();
        shared.router = Router::new().route("/", get(patch).post(patch));
        let (session, now) = (Arc::new(session), Timestamp::now());
        let stop = session.stop.clone();
        shared.sessions.lock().open(TokenDigest::of("t"), Owner::of("alice"), (session, stop), None, now);
        let request = http::Request::builder().method(method).uri("/").header("host", "localhost:1");
        let request = request.header("origin", origin.text()).header("authorization", "Bearer t");
        let response = shared.answer(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), 401);
        let text = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains(expected), "{text}");
    }
}

/// Sends a request on a new connection.
async fn ask(address: std::net::SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
    stream
}

/// Returns the response until the server closes the connection, in lower case.
async fn response(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text.to_ascii_lowercase()
}

#[tokio::test]
async fn probes_get_a_response_while_each_connection_is_busy() {
    const BUSY: usize = 40;
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Reach::Anyone).unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let (begun, mut begins) = mpsc::unbounded_channel();
    let answer = move |request: http::Request<Incoming>| {
        let begun = begun.clone();
        async move {
            if let Some(response) = early(&request) {
                return response;
            }
            let _ = begun.send(());
            std::future::pending().await
        }
    };
    let serving = tokio::spawn(listener::serve(listener, limits(BUSY), answer, stop.clone()));
    let mut busy = Vec::new();
    for _ in 0..BUSY {
        busy.push(ask(address, "/").await);
        begins.recv().await.unwrap();
    }
    for _ in 0..2 * SPARE {
        let probe = response(ask(address, HEALTH).await).await;
        assert!(probe.starts_with("http/1.1 200 ok\r\n") && probe.ends_with("\r\n\r\nok\n"), "{probe}");
        let other = response(ask(address, "/").await).await;
        assert!(other.starts_with("http/1.1 503 ") && other.contains("\r\nretry-after: 5\r\n"), "{other}");
    }
    assert!(begins.try_recv().is_err(), "no further request has begun");
    // A connection that ends makes way for a page.
    drop(busy.pop());
    let _page = loop {
        let page = ask(address, "/").await;
        let mut first = [0];
        tokio::select! {
            _ = begins.recv() => break page,
            _ = page.peek(&mut first) => {}
        }
    };
    stop.cancel();
    assert!(serving.await.is_ok());
}

#[test]
fn a_browser_reads_a_busy_page_again_and_sends_no_form_again() {
    let refresh = |method: Method, delay: Option<&'static str>| {
        let mut response = answer::message(StatusCode::SERVICE_UNAVAILABLE, "Busy", "");
        if let Some(delay) = delay {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(delay));
        }
        let response = read_again(response, &method);
        response.headers().get(header::REFRESH).map(|delay| delay.to_str().unwrap().to_owned())
    };
    assert_eq!(refresh(Method::GET, Some("5")).as_deref(), Some("5"));
    assert_eq!(refresh(Method::POST, Some("5")), None);
    assert_eq!(refresh(Method::GET, None), None);
}
