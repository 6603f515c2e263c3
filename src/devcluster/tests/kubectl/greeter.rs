//! A small HTTP server on this machine, to which the ports of a pod forward.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;

/// Starts the server for the whole test run and returns its port.
pub(crate) fn start() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(|| {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let port = listener.local_addr().expect("a listener has an address").port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that disconnects early is ignored.
                std::thread::spawn(move || answer(&stream).unwrap_or_default());
            }
        });
        port
    })
}

fn answer(mut stream: &TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let asked = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let body = if asked.contains("/large") { "0123456789abcdef".repeat(1 << 16) } else { "hello\n".to_owned() };
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}
