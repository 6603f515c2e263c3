//! Malicious or broken functions and clients. The server answers, or the process ends with a reason.

use std::{io::Write, net::TcpStream, thread};

use super::server::{Server, parse, read_one, request};

#[test]
fn a_loop_in_nodejs_is_answered_and_ends_the_process() {
    for blocking in ["for (;;);", "/^(a+)+$/.test('a'.repeat(64) + 'b');"] {
        let source = format!(
            "exports.main = (event) => {{
                if (event.extensions.request.path === '/wait') {{ console.log('waiting'); return new Promise(() => {{}}) }}
                {blocking}
            }}"
        );
        let mut server = Server::start("nodejs22", &source, &[("FUNC_TIMEOUT", "1")]);
        let mut other = server.connect();
        other.write_all(&request("GET", "/wait", &[], b"")).unwrap();
        server.await_log("waiting");
        assert_eq!(server.get("/").short(), "408 Request Timeout", "{blocking}");
        assert_eq!(read_one(&mut other).unwrap().short(), "408 Request Timeout", "{blocking}: nobody is left waiting");
        assert_eq!(server.await_exit(), Some(1), "{blocking}");
        assert!(server.log().contains("The function has not come back for 1 s: the process ends"), "{}", server.log());
    }
}

#[test]
fn a_loop_after_the_answer_ends_the_process_too() {
    let source = "exports.main = () => { setTimeout(() => { for (;;); }, 10); return 'answered' }";
    let mut server = Server::start("nodejs22", source, &[("FUNC_TIMEOUT", "1")]);
    assert_eq!(server.get("/").short(), "200 answered");
    assert_eq!(server.await_exit(), Some(1));
}

#[test]
fn blocking_native_code_ends_the_process() {
    let source = "exports.main = () => { Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0) }";
    let mut server = Server::start("nodejs22", source, &[("FUNC_TIMEOUT", "1")]);
    assert_eq!(server.get("/").short(), "408 Request Timeout");
    assert_ne!(server.await_exit(), Some(0));
}

#[test]
fn a_loop_in_python_is_interrupted() {
    let source = "import time
n = 0
def main(event, context):
    path = event['extensions']['request'].path
    if path == '/loop':
        while True: pass
    if path == '/deaf':
        while True:
            try: time.sleep(0.001)
            except BaseException: pass
    return 'fine'
";
    let env = [("FUNC_TIMEOUT", "0.5"), ("CHERRYPY_NUMTHREADS", "2")];
    let mut server = Server::start("python312", source, &env);
    for _ in 0..4 {
        assert_eq!(server.get("/loop").status, 408);
    }
    assert_eq!(server.get("/").short(), "200 fine", "interrupted loops do not use up the threads");
    assert!(server.is_running());
    assert_eq!(server.get("/deaf").status, 408);
    assert_eq!(server.get("/").short(), "200 fine", "another thread takes the place of one that is lost");
    assert_eq!(server.get("/deaf").status, 408);
    assert_eq!(server.await_exit(), Some(1));
    assert!(server.log().contains("2 calls have never come back: the process ends"), "{}", server.log());
}

#[test]
fn native_code_that_stops_all_of_python_ends_the_process() {
    let source = "import re\ndef main(event, context): return str(re.match('(a+)+$', 'a' * 64 + 'b'))";
    let mut server = Server::start("python312", source, &[("FUNC_TIMEOUT", "1")]);
    let mut stream = server.connect();
    stream.write_all(&request("GET", "/", &[], b"")).unwrap();
    assert_eq!(server.await_exit(), Some(1));
    assert!(server.log().contains("Timeout (") && server.log().contains("in main"), "{}", server.log());
}

#[test]
fn a_function_that_ends_the_process_is_named_in_the_log() {
    let source = "exports.main = () => { process.exit(3) }";
    let mut server = Server::start("nodejs22", source, &[]);
    assert_eq!(server.get("/").short(), "500 Internal Server Error");
    assert_eq!(server.await_exit(), Some(3));
    assert!(server.log().contains("The function ended the process with exit code 3"));
    let mut server = Server::start("python312", "import sys\ndef main(event, context): sys.exit(3)", &[]);
    assert_eq!(server.get("/").short(), "500 Internal server error");
    assert_eq!(server.await_exit(), Some(3));
    assert!(server.log().contains("The function ended the process: SystemExit(3)"));
}

#[test]
fn background_failures_are_logged_and_survived() {
    let source = "exports.main = () => {
        setTimeout(() => { throw new Error('detached') }, 1);
        Promise.reject(new Error('unhandled'));
        return 'fine';
    }";
    let mut server = Server::start("nodejs22", source, &[]);
    assert_eq!(server.get("/").short(), "200 fine");
    server.await_log("detached");
    server.await_log("unhandled");
    assert_eq!(server.get("/").short(), "200 fine");
    assert!(server.is_running());
    let source = "import threading\ndef fail(): raise ValueError('detached')\n\
        def main(event, context):\n    threading.Thread(target=fail).start()\n    return 'fine'";
    let mut server = Server::start("python312", source, &[]);
    assert_eq!(server.get("/").short(), "200 fine");
    server.await_log("detached");
    assert_eq!(server.get("/").short(), "200 fine");
    assert!(server.is_running());
}

#[test]
fn a_function_that_answers_twice_or_late_does_no_harm() {
    let source = "exports.main = (event) => {
        const s = event.extensions.response;
        s.send('first');
        setTimeout(() => s.status(500).send('second'), 5);
        s.end();
        return 'third';
    }";
    let server = Server::start("nodejs22", source, &[]);
    for _ in 0..3 {
        assert_eq!(server.get("/").short(), "200 first");
    }
    server.await_log("ERR_HTTP_HEADERS_SENT");
    assert_eq!(server.get("/").short(), "200 first");
}

#[test]
fn printing_without_end_fills_no_memory() {
    let sources = [
        (
            "nodejs22",
            "exports.main = () => { for (let i = 0; i < 1e5; i++) console.log('x'.repeat(100)); return 'printed' }",
        ),
        ("python312", "def main(event, context):\n    for _ in range(100000): print('x' * 100)\n    return 'printed'"),
    ];
    for (runtime, source) in sources {
        let server = Server::start(runtime, source, &[]);
        assert_eq!(server.get("/").short(), "200 printed", "{runtime}");
        let before = server.resident();
        for _ in 0..8 {
            assert_eq!(server.get("/").short(), "200 printed", "{runtime}");
        }
        let grown = server.resident().saturating_sub(before);
        assert!(grown < 32 << 20, "{runtime}: 80 MB of output have taken {grown} bytes of memory");
    }
}

#[test]
fn half_requests_do_not_keep_others_waiting() {
    for (runtime, source) in
        [("nodejs22", "exports.main = () => 'fine'"), ("python312", "def main(event, context): return 'fine'")]
    {
        let mut server = Server::start(runtime, source, &[("CHERRYPY_NUMTHREADS", "2")]);
        let halves: Vec<TcpStream> = (0..200)
            .map(|at| {
                let mut stream = server.connect();
                let half: &[u8] = match at % 3 {
                    0 => b"GET / HTTP/1.1\r\nHost: ",
                    1 => b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc",
                    _ => b"",
                };
                stream.write_all(half).unwrap();
                stream
            })
            .collect();
        assert_eq!(server.get("/").short(), "200 fine", "{runtime}");
        assert_eq!(server.get("/healthz").short(), "200 OK", "{runtime}");
        drop(halves);
        assert_eq!(server.get("/").short(), "200 fine", "{runtime}: callers that are gone leave nothing behind");
        server.terminate();
        assert_eq!(server.await_exit(), Some(0), "{runtime}");
    }
}

#[test]
fn a_body_that_never_ends_is_timed() {
    for (runtime, source) in [
        ("nodejs22", "exports.main = () => 'never called'"),
        ("python312", "def main(event, context): return 'never called'"),
    ] {
        let server = Server::start(runtime, source, &[("FUNC_TIMEOUT", "1")]);
        let reply = server.raw(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc");
        assert_eq!(parse(&reply).unwrap().status, 408, "{runtime}");
    }
}

#[test]
fn many_callers_at_once_are_all_answered() {
    for (runtime, source) in [
        ("nodejs22", "exports.main = (event) => event.extensions.request.query.n"),
        ("python312", "def main(event, context): return event['extensions']['request'].query.n"),
    ] {
        let server = Server::start(runtime, source, &[]);
        thread::scope(|scope| {
            for caller in 0..16 {
                let server = &server;
                scope.spawn(move || {
                    for turn in 0..25 {
                        let n = caller * 100 + turn;
                        assert_eq!(server.get(&format!("/?n={n}")).short(), format!("200 {n}"), "{runtime}");
                    }
                });
            }
        });
    }
}
