//! Streamed responses of Python functions, and slow clients.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use super::server::{Reply, Server, parse, request};

/// A function with generators by path. `/go` lets them continue, `/state` returns counts.
const SOURCE: &str = "import bottle, io, os, tempfile, threading, time
go = threading.Event()
made = closed = 0
def steps(q):
    yield 'a'
    go.wait()
    yield q.query.b + bottle.request.query.b
def late(q):
    bottle.response.content_type = 'text/event-stream'
    bottle.response.status = 202
    yield ''
    yield 'data: 1'
def early(q):
    raise RuntimeError('before the first piece')
    yield ''
def refused(q):
    raise bottle.HTTPResponse('no', 403)
    yield ''
def broken(q):
    yield 'a'
    raise RuntimeError('after the first piece')
def wrong(q):
    yield 'a'
    yield 1
def looping(q):
    yield 'a'
    while True: pass
def endless(q):
    global made, closed
    try:
        while True:
            made += 1
            yield b'x' * 65536
    finally:
        closed += 1
def sized(length):
    return lambda q: bottle.HTTPResponse((x for x in ('abc', 'def')), headers={'Content-Length': str(length)})
def static(q):
    return bottle.static_file('big', root=os.environ['FOLDER'])
HANDLERS = {'steps': steps, 'late': late, 'early': early, 'refused': refused, 'broken': broken, 'wrong': wrong,
    'looping': looping, 'endless': endless, 'exact': sized(6), 'short': sized(9), 'long': sized(4), 'static': static,
    'file': lambda q: io.BytesIO(b'y' * 200000), 'text': lambda q: io.StringIO('z\\u00e9'),
    'empty': lambda q: iter(()), 'gone': lambda q: bottle.HTTPResponse((x for x in 'ab'), 204),
    'go': lambda q: go.set() or 'gone on', 'state': lambda q: {'made': made, 'closed': closed}}
def main(event, context):
    request = event['extensions']['request']
    return HANDLERS[request.path[1:]](request)
";

fn start(env: &[(&str, &str)]) -> Server {
    Server::start("python312", SOURCE, env)
}

fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut all = Vec::new();
    let mut byte = [0; 1];
    while !all.ends_with(end.as_bytes()) && stream.read(&mut byte).unwrap() == 1 {
        all.push(byte[0]);
    }
    String::from_utf8(all).unwrap()
}

/// Returns a count of the function once it is stable.
fn settled(server: &Server, name: &str) -> u64 {
    let count =
        || serde_json::from_str::<serde_json::Value>(&server.get("/state").body).unwrap()[name].as_u64().unwrap();
    let mut last = count();
    loop {
        thread::sleep(Duration::from_millis(100));
        let now = count();
        if now == last {
            return now;
        }
        last = now;
    }
}

#[test]
fn a_piece_is_sent_when_it_is_made() {
    let server = start(&[]);
    let mut stream = server.connect();
    stream.write_all(&request("GET", "/steps?b=b", &[], b"")).unwrap();
    let begun = read_until(&mut stream, "1\r\na\r\n");
    assert!(begun.contains("Transfer-Encoding: chunked\r\n") && !begun.contains("Content-Length"), "{begun}");
    assert_eq!(server.get("/go").short(), "200 gone on");
    assert_eq!(read_until(&mut stream, "\r\n0\r\n\r\n"), "2\r\nbb\r\n0\r\n\r\n");
}

#[test]
fn until_the_first_piece_a_function_can_change_its_answer() {
    let server = start(&[]);
    assert_eq!(server.get("/late").full(), "202 | content-type: text/event-stream | data: 1");
    assert_eq!(server.get("/early").status, 500);
    assert_eq!(server.get("/refused").short(), "403 no");
    assert_eq!(server.get("/empty").full(), "200 | content-type: text/html; charset=UTF-8 | ");
    assert_eq!(server.get("/empty").header("content-length"), "0");
    assert_eq!(server.get("/gone").full(), "204 | ");
}

#[test]
fn an_answer_that_fails_later_is_cut() {
    let server = start(&[("FUNC_TIMEOUT", "1")]);
    for (path, why) in [
        ("/broken", "after the first piece"),
        ("/wrong", "unsupported response type"),
        ("/looping", "no more of an answer within 1 s"),
    ] {
        let all = server.raw(&request("GET", path, &[], b""));
        assert!(all.starts_with("HTTP/1.1 200 OK\r\n") && all.ends_with("\r\n1\r\na\r\n"), "{path}: {all}");
        server.await_log(why);
        assert_eq!(server.get("/go").short(), "200 gone on", "{path}");
    }
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains(r#"function_failures_total{method="GET"} 3"#), "{metrics}");
}

#[test]
fn a_promised_length_is_kept_or_the_connection_ends() {
    let server = start(&[]);
    let exact = server.get("/exact");
    assert_eq!((exact.short(), exact.header("content-length")), ("200 abcdef".to_owned(), "6"));
    assert_eq!(exact.header("transfer-encoding"), "");
    assert_eq!(server.get("/long").short(), "200 abcd");
    server.await_log("longer than its Content-Length");
    let short = parse(&server.raw(b"GET /short HTTP/1.1\r\nHost: a\r\n\r\n")).unwrap();
    assert_eq!((short.short(), short.header("content-length")), ("200 abcdef".to_owned(), "9"));
    server.await_log("3 bytes shorter than its Content-Length");
}

#[test]
fn head_and_old_clients_get_what_they_understand() {
    let server = start(&[]);
    let head = server.ask("HEAD", "/exact", &[], b"");
    assert_eq!((head.short(), head.header("content-length")), ("200 ".to_owned(), "6"));
    let head = server.ask("HEAD", "/late", &[], b"");
    assert_eq!(head.full(), "202 | content-type: text/event-stream | ");
    assert_eq!((head.header("content-length"), head.header("transfer-encoding")), ("", ""));
    let old = parse(&server.raw(b"GET /file HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")).unwrap();
    assert_eq!((old.body.len(), old.header("transfer-encoding"), old.header("connection")), (200_000, "", "close"));
}

#[test]
fn files_are_sent_in_pieces_and_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let big: String = (0..3_000_000u32).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
    std::fs::write(folder.path().join("big"), &big).unwrap();
    let server = start(&[("FOLDER", folder.path().to_str().unwrap())]);
    let whole = server.get("/static");
    assert_eq!((whole.status, whole.header("content-length"), whole.body == big), (200, "3000000", true));
    let part = server.ask("GET", "/static", &[("Range", "bytes=1000000-1999999")], b"");
    assert_eq!((part.status, part.body == big[1_000_000..2_000_000]), (206, true));
    let same = server.ask("GET", "/static", &[("If-None-Match", whole.header("etag"))], b"");
    assert_eq!(same.short(), "304 ");
    assert_eq!(server.get("/file").body, "y".repeat(200_000));
    assert_eq!(server.get("/text").short(), "200 zé");
}

#[test]
fn pieces_are_made_no_faster_than_they_are_taken_and_no_thread_waits_for_clients() {
    let server = start(&[("CHERRYPY_NUMTHREADS", "2")]);
    let mut clients: Vec<_> = (0..8)
        .map(|_| {
            let mut client = server.connect();
            client.write_all(&request("GET", "/endless", &[], b"")).unwrap();
            client
        })
        .collect();
    let made = settled(&server, "made");
    // The amount fits into the buffers of both ends, which the kernel grows to some megabytes.
    assert!((8..8 * 200).contains(&made), "{made}");
    let mut taken = vec![0; 20 << 20];
    clients[0].read_exact(&mut taken).unwrap();
    assert!(settled(&server, "made") > made, "it goes on");
    let before = server.resident();
    drop(clients);
    for _ in 0..600 {
        if settled(&server, "closed") == 8 {
            break;
        }
    }
    assert_eq!(settled(&server, "closed"), 8, "what has no reader is closed");
    assert!(before < 200 << 20, "{before}");
}

#[test]
fn slow_requests_on_all_connections_exclude_no_client() {
    let server = start(&[]);
    let slow: Vec<_> = (0..1200)
        .map(|_| {
            let mut client = server.connect();
            let _ = client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nslow");
            client
        })
        .collect();
    let reply: Reply = server.get("/state");
    assert_eq!(reply.status, 200);
    drop(slow);
    assert_eq!(server.get("/state").status, 200);
}
