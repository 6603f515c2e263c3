//! The servers' HTTP: framing, limits, connections, and the end of the process.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use super::server::{Server, read_one};

/// Answers with the length of the body. `/wait` waits for another request.
const ECHO: [(&str, &str); 2] = [
    (
        "nodejs22",
        "let release; exports.main = (event) => {
            const { request } = event.extensions;
            if (request.path === '/wait') { console.log('waiting'); return new Promise((done) => { release = done }) }
            if (request.path === '/release') { release('released'); return 'done' }
            return `${request.method} ${(request.rawBody || '').length}`;
        }",
    ),
    (
        "python312",
        "import threading
released = threading.Event()
def main(event, context):
    request = event['extensions']['request']
    if request.path == '/wait':
        print('waiting')
        released.wait()
        return 'released'
    if request.path == '/release':
        released.set()
        return 'done'
    return '%s %d' % (request.method, len(request.body.read()))
",
    ),
];

fn send(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).unwrap();
}

#[test]
fn connections_are_kept_and_requests_may_be_sent_ahead() {
    for (runtime, source) in ECHO {
        let server = Server::start(runtime, source, &[]);
        let mut stream = server.connect();
        for _ in 0..3 {
            send(&mut stream, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
            assert_eq!(read_one(&mut stream).unwrap().short(), "200 POST 3", "{runtime}");
        }
        send(&mut stream, &"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na".repeat(20));
        for _ in 0..20 {
            assert_eq!(read_one(&mut stream).unwrap().short(), "200 POST 1", "{runtime}");
        }
        send(&mut stream, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert_eq!(read_one(&mut stream).unwrap().short(), "200 GET 0", "{runtime}");
        assert_eq!(read_one(&mut stream), None, "{runtime}: closed as asked");
        assert!(server.raw(b"GET / HTTP/1.0\r\n\r\n").ends_with("GET 0"), "{runtime}: HTTP/1.0 closes by itself");
    }
}

#[test]
fn an_answer_is_one_write() {
    for (runtime, source) in ECHO {
        let server = Server::start(runtime, source, &[]);
        let mut stream = server.connect();
        for _ in 0..20 {
            send(&mut stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let mut buffer = [0; 4096];
            let first = stream.read(&mut buffer).unwrap();
            assert!(buffer[..first].ends_with(b"GET 0"), "{runtime}: head and body come together");
        }
    }
}

#[test]
fn bodies_may_come_in_chunks_and_after_permission() {
    for (runtime, source) in ECHO {
        let server = Server::start(runtime, source, &[]);
        let chunked = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
            3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nTrailer: t\r\n\r\n";
        assert!(server.raw(chunked.as_bytes()).ends_with("POST 5"), "{runtime}");
        let mut stream = server.connect();
        send(&mut stream, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
        let mut buffer = [0; 25];
        stream.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"HTTP/1.1 100 Continue\r\n\r\n", "{runtime}");
        send(&mut stream, "abc");
        assert_eq!(read_one(&mut stream).unwrap().short(), "200 POST 3", "{runtime}");
        let other = server
            .raw(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: magic\r\nConnection: close\r\n\r\n");
        assert!(other.starts_with("HTTP/1.1 417"), "{runtime}: {other}");
        // A slow request, byte by byte, is still valid.
        let mut stream = server.connect();
        for byte in chunked.bytes() {
            stream.write_all(&[byte]).unwrap();
        }
        assert_eq!(read_one(&mut stream).unwrap().short(), "200 POST 5", "{runtime}");
    }
}

#[test]
fn bodies_that_are_too_large_are_refused() {
    let limits = [("REQ_MB_LIMIT", "2", 2 << 20), ("FUNC_MEMFILE_MAX", "1000", 1000)];
    for ((runtime, source), (name, value, limit)) in ECHO.into_iter().zip(limits) {
        let server = Server::start(runtime, source, &[(name, value)]);
        let most = vec![b'x'; limit];
        assert_eq!(server.ask("POST", "/", &[], &most).short(), format!("200 POST {limit}"), "{runtime}");
        assert_eq!(server.ask("POST", "/", &[], &[&most[..], b"x"].concat()).status, 413, "{runtime}");
        let permission =
            format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n", limit + 1);
        assert!(server.raw(permission.as_bytes()).starts_with("HTTP/1.1 413"), "{runtime}: refused before it is sent");
        let chunk = format!("{limit:x}\r\n{}\r\n1\r\nx\r\n0\r\n\r\n", "x".repeat(limit));
        let chunked = format!("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}");
        assert!(server.raw(chunked.as_bytes()).starts_with("HTTP/1.1 413"), "{runtime}: however it is framed");
        assert_eq!(server.get("/").short(), "200 GET 0", "{runtime}");
    }
    let server = Server::start(ECHO[0].0, ECHO[0].1, &[]);
    assert_eq!(server.ask("POST", "/", &[], &vec![b'x'; (1 << 20) + 1]).status, 413, "1 MiB without a setting");
}

#[test]
fn a_client_that_is_still_sending_when_it_is_refused_can_send_the_rest() {
    let limits = [("REQ_MB_LIMIT", "2"), ("FUNC_MEMFILE_MAX", "1000")];
    for ((runtime, source), (name, value)) in ECHO.into_iter().zip(limits) {
        let server = Server::start(runtime, source, &[(name, value)]);
        let mut stream = server.connect();
        send(&mut stream, &format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 3 << 20));
        assert_eq!(read_one(&mut stream).unwrap().status, 413, "{runtime}");
        // The second write fails if the first one was answered with a reset.
        for _ in 0..3 {
            stream.write_all(&vec![b'x'; 1 << 20]).unwrap_or_else(|error| panic!("{runtime}: {error}"));
        }
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "{runtime}: the connection ends after the response");
    }
}

#[test]
fn encoded_bodies_are_decoded_within_the_limit() {
    use std::io::Write as _;
    let server = Server::start(ECHO[0].0, "exports.main = (event) => event.data.toString()", &[]);
    let gzip = |data: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    };
    let ask = |encoding: &str, body: &[u8]| server.ask("POST", "/", &[("Content-Encoding", encoding)], body).short();
    assert_eq!(ask("gzip", &gzip(b"plain")), "200 plain");
    assert!(ask("gzip", b"not gzip").starts_with("400 "));
    assert!(ask("secret", b"x").starts_with("415 "));
    assert!(ask("gzip", &gzip(&vec![0; 64 << 20])).starts_with("413 "), "64 MiB of nothing in 64 KiB");
}

#[test]
fn invalid_http_is_refused() {
    for (runtime, source) in ECHO {
        let mut server = Server::start(runtime, source, &[]);
        let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "x".repeat(20_000));
        let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "a: b\r\n".repeat(10_000));
        for (bytes, status) in [
            ("nonsense\r\n\r\n", "400"),
            ("GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\nHost : x\r\n\r\n", "400"),
            ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "400"),
            ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na", "400"),
            (
                "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
                "400",
            ),
            ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"),
            (&long, "431"),
            (&many, "431"),
        ] {
            let reply = server.raw(bytes.as_bytes());
            let shown: String = bytes.chars().take(90).collect();
            assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{runtime}: {shown:?} gave {reply:?}");
            assert_eq!(reply.matches("HTTP/1.1 ").count(), 1, "{runtime}: the rest of {shown:?} is not a request");
        }
        assert_eq!(server.get("/").short(), "200 GET 0", "{runtime}");
        assert!(server.is_running());
    }
}

#[test]
fn termination_lets_calls_in_flight_finish() {
    for (runtime, source) in ECHO {
        let mut server = Server::start(runtime, source, &[]);
        let mut waiting = server.connect();
        send(&mut waiting, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
        // A second call has started and will release the first.
        let mut releasing = server.connect();
        send(&mut releasing, "POST /release HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n");
        let mut idle = server.connect();
        send(&mut idle, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(read_one(&mut idle).unwrap().short(), "200 OK", "{runtime}");
        server.await_log("waiting");
        server.terminate();
        server.await_log("Shutting down..");
        assert_eq!(read_one(&mut idle), None, "{runtime}: idle connections are closed");
        assert!(TcpStream::connect(("127.0.0.1", server.port)).is_err(), "{runtime}: nothing new is accepted");
        send(&mut releasing, "x");
        assert_eq!(read_one(&mut releasing).unwrap().short(), "200 done", "{runtime}");
        let reply = read_one(&mut waiting).unwrap();
        assert_eq!((reply.short().as_str(), reply.header("connection")), ("200 released", "close"), "{runtime}");
        assert_eq!(server.await_exit(), Some(0), "{runtime}");
        assert!(server.log().contains("Server stopped"), "{runtime}");
    }
}

#[test]
fn late_requests_during_termination_are_answered() {
    for (runtime, source) in ECHO {
        let mut server = Server::start(runtime, source, &[("FUNC_DRAIN_DELAY", "3600")]);
        let mut kept = server.connect();
        send(&mut kept, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(read_one(&mut kept).unwrap().short(), "200 OK", "{runtime}");
        server.terminate();
        server.await_log("Shutting down..");
        let mut new = server.connect();
        for connection in [&mut kept, &mut new] {
            send(connection, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let reply = read_one(connection).unwrap();
            assert_eq!((reply.short().as_str(), reply.header("connection")), ("200 GET 0", "close"), "{runtime}");
            assert_eq!(read_one(connection), None, "{runtime}");
        }
        assert_eq!(server.get("/healthz").status, 503, "{runtime}: it is not ready");
        // A second signal ends the process without waiting.
        server.terminate();
        assert_eq!(server.await_exit(), Some(0), "{runtime}");
    }
}

#[test]
fn termination_of_an_idle_server_is_immediate() {
    for (runtime, source) in ECHO {
        let mut server = Server::start(runtime, source, &[]);
        server.terminate();
        assert_eq!(server.await_exit(), Some(0), "{runtime}");
    }
}
