//! Authentication of TCP clients.

use devcluster::{Cluster, Options};
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

/// Sends a raw request and returns the status line.
async fn ask(address: SocketAddr, headers: &'static str) -> String {
    let line = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET /api/v1/namespaces/default HTTP/1.1\r\nConnection: close\r\n{headers}\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.lines().next().unwrap_or_default().to_owned()
    });
    line.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_loopback_hosts_and_no_web_pages() {
    let server = Cluster::new(Options::default());
    let serving = server.serve("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
    let address = serving.address();
    assert_eq!(ask(address, "Host: localhost\r\n").await, "HTTP/1.1 200 OK");
    assert_eq!(ask(address, "Host: evil.example.com\r\n").await, "HTTP/1.1 403 Forbidden");
    assert_eq!(ask(address, "Host: localhost\r\nOrigin: http://localhost\r\n").await, "HTTP/1.1 403 Forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn wants_the_token_it_was_given() {
    let server = Cluster::new(Options::default());
    let serving = server.serve("127.0.0.1:0".parse().unwrap(), Some("secret".to_owned())).await.unwrap();
    let address = serving.address();
    assert_eq!(ask(address, "Host: localhost\r\n").await, "HTTP/1.1 401 Unauthorized");
    assert_eq!(ask(address, "Host: localhost\r\nAuthorization: Bearer wrong\r\n").await, "HTTP/1.1 401 Unauthorized");
    assert_eq!(ask(address, "Host: localhost\r\nAuthorization: Bearer secret\r\n").await, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn listens_beyond_loopback_only_with_a_token() {
    let server = Cluster::new(Options::default());
    let refused = server.serve("0.0.0.0:0".parse().unwrap(), None).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
}
