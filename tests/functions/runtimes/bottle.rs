//! Requests, responses and functions of `bottle` in Python, compared with a plain Bottle application.

use mainstay_function::runtimes::{Language, libraries};
use serde::Deserialize;
use serde_json::Value;

use super::server::Server;
use mainstay_testkit::libraries::place;

const CASES: &str = include_str!("judges/bottle_cases.py");
const JUDGE: &str = include_str!("judges/bottle_judge.py");
const HANDLER: &str = "import bottle_cases\ndef main(event, context): return bottle_cases.run()\n";

#[derive(Deserialize)]
struct Asked {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

#[test]
fn every_name_of_bottle_does_what_it_does_in_bottle() {
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("digits.txt"), "0123456789").unwrap();
    std::fs::write(files.path().join(".hidden"), "secret").unwrap();
    std::fs::create_dir(files.path().join("sub")).unwrap();
    let packages = libraries::find(Language::Python, place().as_ref()).unwrap();
    let env = [
        ("FILES", files.path().to_str().unwrap()),
        ("PACKAGES", packages.to_str().unwrap()),
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ];
    let judge = Server::judge("python3", &[("judge.py", JUDGE), ("bottle_cases.py", CASES)], &env);
    let function = Server::with("python312", &[("handler.py", HANDLER), ("bottle_cases.py", CASES)], &env);
    let names: Value = serde_json::from_str(&judge.get("/names").body).unwrap();
    let asked: Value = serde_json::from_str(&judge.get("/requests").body).unwrap();
    let asked: Vec<Asked> = serde_json::from_value(asked["requests"].clone()).unwrap();
    for (kind, least) in [("request", 35), ("response", 20)] {
        let names: Vec<_> = names[kind].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        assert!(names.len() >= least, "what Bottle has: {names:?}");
        for name in names {
            let prefix = format!("/{kind}/{name}");
            let covers =
                |asked: &Asked| asked.path.split('?').next().unwrap_or("").split('/').take(3).eq(prefix.split('/'));
            assert!(asked.iter().any(covers), "no case for {kind}.{name}");
        }
    }
    let mut differ = Vec::new();
    for Asked { method, path, headers, body } in &asked {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let [ours, theirs] = [&function, &judge].map(|server| {
            let mut reply = server.ask(method, path, &headers, body.as_bytes());
            reply.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("server"));
            reply.full()
        });
        if ours != theirs {
            differ.push(format!("{method} {path} {headers:?}\n  function: {ours}\n  Bottle:   {theirs}"));
        }
    }
    assert!(differ.is_empty(), "{} of {} answers differ:\n{}", differ.len(), asked.len(), differ.join("\n"));
}

#[test]
fn metrics_of_a_function_with_prometheus_client_are_served() {
    let source = "from prometheus_client import Counter\norders = Counter('orders', 'Orders')\n\
        def main(event, context):\n    orders.inc()\n    return 'counted'\n";
    let server = Server::start("python312", source, &[]);
    assert_eq!(server.get("/").short(), "200 counted");
    let metrics = server.get("/metrics").body;
    for line in ["orders_total 1.0", "function_calls_total{method=\"GET\"} 1.0", "# TYPE python_info gauge"] {
        assert!(metrics.contains(line), "no {line} in:\n{metrics}");
    }
    assert_eq!(metrics.matches("# TYPE python_info gauge").count(), 1);
}

#[test]
fn trailers_must_be_headers_and_chunk_lines_must_end_in_crlf() {
    let server = Server::start("python312", "def main(event, context): return event['data']", &[]);
    let ask = |rest: &str| {
        let head = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
        server.raw(format!("{head}{rest}").as_bytes())
    };
    assert!(ask("2\r\nab\r\n0\r\nX-Sum: 1\r\n\r\n").starts_with("HTTP/1.1 200"));
    let many = format!("0\r\n{}\r\n", "a: b\r\n".repeat(100));
    for (rest, status) in [
        ("2\r\nab\r\n0\r\nGET / HTTP/1.1\r\n\r\n", "400"),
        ("2\r\nab\r\n0\r\nX: a\nb\r\n\r\n", "400"),
        ("2\n\r\nab\r\n0\r\n\r\n", "400"),
        ("2;a=\nb\r\nab\r\n0\r\n\r\n", "400"),
        (many.as_str(), "431"),
    ] {
        let answer = ask(rest);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{rest:?}: {answer}");
    }
}
