//! The contract for functions of every language.

use std::{io::Write, net::TcpListener, thread};

use super::server::{Server, read_request};

const HELLO: [(&str, &str); 2] = [
    ("nodejs22", "module.exports = { main: function (event, context) { return 'Hello World!' } }"),
    ("python312", "def main(event, context):\n    return 'Hello World!'\n"),
];

/// One function per language whose response depends on the path: `/throws`, `/data`, and so on.
const MANY: [(&str, &str); 2] = [
    (
        "nodejs22",
        "const handlers = {
            throws: () => { throw new Error('the cause') }, boom: () => { throw 'a text' },
            rejects: async () => { throw new Error('rejected') },
            later: () => new Promise((resolve) => setTimeout(() => resolve('later'), 20)),
            never: () => new Promise(() => {}), context: (event, context) => context,
            data: (event) => ({ kind: typeof event.data, data: event.data }),
            event: (event) => ({ type: event['ce-type'], source: event['ce-source'], id: event['ce-id'],
                version: event['ce-specversion'], of: event['ce-eventtypeversion'], time: event['ce-time'],
                data: event.data }),
        };
        module.exports.main = (event, context) =>
            handlers[event.extensions.request.path.slice(1) || 'data'](event, context);",
    ),
    (
        "python312",
        "import asyncio, time
async def later(event, context):
    await asyncio.sleep(0.02)
    return 'later'
def throws(event, context): raise ValueError('the cause')
def never(event, context): time.sleep(3600)
def context(event, context): return context
def data(event, context):
    data = event['data']
    return {'kind': type(data).__name__, 'data': data.decode() if isinstance(data, bytes) else data}
def event(event, context):
    names = {'type': 'ce-type', 'source': 'ce-source', 'id': 'ce-id', 'version': 'ce-specversion',
             'of': 'ce-eventtypeversion', 'time': 'ce-time', 'data': 'data'}
    found = {name: event[key] for name, key in names.items() if event[key] is not None}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}
def main(event_, context_):
    return globals()[event_['extensions']['request'].path[1:] or 'data'](event_, context_)
",
    ),
];

const ORDER: &[(&str, &str)] = &[
    ("ce-type", "order.created"),
    ("ce-source", "shop"),
    ("ce-id", "7"),
    ("ce-specversion", "1.0"),
    ("ce-eventtypeversion", "v1"),
    ("Content-Type", "application/json"),
];

#[test]
fn answers_what_a_function_returns_and_probes_without_it() {
    for (runtime, source) in HELLO {
        let server = Server::start(runtime, source, &[]);
        assert_eq!(server.get("/").short(), "200 Hello World!", "{runtime}");
        assert_eq!(server.ask("POST", "/any/path?x=1", &[], b"{}").short(), "200 Hello World!", "{runtime}");
        assert_eq!(server.get("/healthz").short(), "200 OK", "{runtime}");
        assert!(server.get("/healthz").header("content-type").to_lowercase().starts_with("text/html"), "{runtime}");
        assert_eq!(server.ask("HEAD", "/healthz", &[], b"").short(), "200 ", "{runtime}");
        assert_eq!(
            server.ask("POST", "/healthz", &[], b"").short(),
            "200 Hello World!",
            "{runtime}: only GET is a probe"
        );
        let head = server.ask("HEAD", "/", &[], b"");
        assert_eq!(head.short(), "200 ", "{runtime}");
    }
}

#[test]
fn an_old_name_runs_on_a_maintained_row_and_the_pod_gets_its_old_name() {
    let server = Server::start("nodejs12", "exports.main = (event, context) => context", &[("FUNC_TIMEOUT", "30")]);
    assert_eq!(server.get("/").body, r#"{"function-name":"main","timeout":30,"runtime":"nodejs12"}"#);
    let server = Server::start("python38", "def main(event, context): return context", &[]);
    let context = r#"{"function-name": "main", "timeout": 180.0, "runtime": "python38", "memory-limit": null}"#;
    assert_eq!(server.get("/").body, context);
}

#[test]
fn the_module_and_the_function_may_have_other_names() {
    let env = [("MOD_NAME", "other"), ("FUNC_HANDLER", "run")];
    let server = Server::with("nodejs22", &[("other.js", "exports.run = () => 'ran'")], &env);
    assert_eq!(server.get("/").short(), "200 ran");
    let server = Server::with("python312", &[("other.py", "def run(event, context): return 'ran'")], &env);
    assert_eq!(server.get("/").short(), "200 ran");
}

#[test]
fn dependencies_are_found_where_a_build_puts_them() {
    let files = [
        ("handler.js", "exports.main = () => require('greeting')('Ann') + require('./own')"),
        ("own.js", "module.exports = '!'"),
        ("node_modules/greeting/index.js", "module.exports = (name) => `Hi ${name}`"),
    ];
    assert_eq!(Server::with("nodejs22", &files, &[]).get("/").short(), "200 Hi Ann!");
    let files = [
        ("handler.py", "import greeting, own\ndef main(event, context): return greeting.hi('Ann') + own.MARK"),
        ("own.py", "MARK = '!'"),
        ("lib/python/greeting/__init__.py", "def hi(name): return 'Hi ' + name"),
    ];
    assert_eq!(Server::with("python312", &files, &[]).get("/").short(), "200 Hi Ann!");
}

#[test]
fn the_content_type_decides_how_data_is_parsed() {
    let node = Server::start(MANY[0].0, MANY[0].1, &[]);
    let data = |kind: &str, body: &str| node.post(kind, body).body;
    assert_eq!(data("application/json", r#"{"a":1}"#), r#"{"kind":"object","data":{"a":1}}"#);
    assert_eq!(data("application/json; charset=utf-8", "42"), r#"{"kind":"number","data":42}"#);
    assert_eq!(data("text/plain", "é"), r#"{"kind":"string","data":"é"}"#);
    assert_eq!(data("application/xml", "<a/>"), r#"{"kind":"string","data":"<a/>"}"#);
    let form = r#"{"kind":"object","data":{"a":["1","3"],"b":{"c":"é 2"}}}"#;
    assert_eq!(data("application/x-www-form-urlencoded", "a=1&b[c]=%C3%A9+2&a=3"), form);
    let bytes = r#"{"kind":"object","data":{"type":"Buffer","data":[97,98]}}"#;
    assert_eq!(data("application/octet-stream", "ab"), bytes);
    assert_eq!(node.ask("POST", "/", &[], b"ab").body, bytes);
    for nothing in [data("multipart/form-data; boundary=x", "--x--"), data("text/plain", ""), node.get("/").body] {
        assert_eq!(nothing, r#"{"kind":"undefined"}"#);
    }
    let nested = format!("a{}=1", "[b]".repeat(40));
    assert!(data("application/x-www-form-urlencoded", &nested).starts_with("Bad Request: the names in the form"));
    let status = node.post("application/x-www-form-urlencoded", &"a&".repeat(1001)).status;
    assert_eq!(status, 413, "more fields than Express' parser takes");
    let python = Server::start(MANY[1].0, MANY[1].1, &[]);
    let data = |kind: &str, body: &str| python.post(kind, body).body;
    assert_eq!(data("application/json", r#"{"a":1}"#), r#"{"kind": "dict", "data": {"a": 1}}"#);
    assert_eq!(data("application/json; charset=utf-8", "42"), r#"{"kind": "int", "data": 42}"#);
    assert_eq!(data("application/json", ""), r#"{"kind": "NoneType", "data": null}"#);
    assert_eq!(data("text/plain", "x"), r#"{"kind": "bytes", "data": "x"}"#);
    assert_eq!(python.get("/").body, r#"{"kind": "bytes", "data": ""}"#);
}

#[test]
fn events_come_in_headers_or_as_a_whole() {
    for (runtime, source) in MANY {
        let server = Server::start(runtime, source, &[]);
        let compact = |body: &str| body.replace(' ', "");
        let expected = r#"{"type":"order.created","source":"shop","id":"7","version":"1.0","of":"v1","data":{"n":1}}"#;
        let binary = server.ask("POST", "/event", ORDER, br#"{"n":1}"#);
        assert_eq!((binary.status, compact(&binary.body).as_str()), (200, expected), "{runtime}");
        let whole = r#"{"specversion":"1.0","type":"order.created","source":"shop","id":"7","eventtypeversion":"v1",
            "datacontenttype":"application/json","data":{"n":1}}"#;
        for kind in ["application/cloudevents+json", "application/cloudevents+json; charset=UTF-8"] {
            let reply = server.ask("POST", "/event", &[("Content-Type", kind)], whole.as_bytes());
            assert_eq!((reply.status, compact(&reply.body).as_str()), (200, expected), "{runtime} {kind}");
        }
    }
}

#[test]
fn an_incomplete_event_is_the_callers_error() {
    for (runtime, source) in MANY {
        let server = Server::start(runtime, source, &[]);
        let incomplete = server.ask("POST", "/event", &[("ce-type", "t"), ("ce-source", "s")], b"x");
        assert_eq!(incomplete.status, 400, "{runtime}");
        assert!(incomplete.body.contains("ce-specversion"), "{runtime}: {}", incomplete.body);
        for body in ["{}", "[]", "null", "", "{", r#"{"specversion":"1.0","type":"t","source":"s","id":7}"#] {
            assert_eq!(server.post("application/cloudevents+json", body).status, 400, "{runtime} {body}");
        }
        assert_eq!(server.post("application/json", "{").status, 400, "{runtime}");
        let one = server.ask("POST", "/event", &[("ce-type", "t")], b"x");
        assert_eq!(one.status, 200, "{runtime}: a type alone makes no event");
    }
}

#[test]
fn a_function_that_fails_answers_500_and_goes_on() {
    for (runtime, source) in MANY {
        let mut server = Server::start(runtime, source, &[]);
        let reply = server.get("/throws");
        assert_eq!(reply.status, 500, "{runtime}");
        assert_eq!(reply.body.to_lowercase(), "internal server error", "{runtime}: the cause is for the log alone");
        server.await_log("the cause");
        assert_eq!(server.get("/later").short(), "200 later", "{runtime}");
        assert!(server.is_running());
    }
    let node = Server::start(MANY[0].0, MANY[0].1, &[]);
    assert_eq!(node.get("/rejects").status, 500);
    assert_eq!(node.get("/boom").status, 500);
    assert_eq!(node.get("/throws").header("content-type"), "text/html; charset=utf-8");
}

#[test]
fn a_function_that_does_not_answer_in_time_answers_408() {
    let bodies = ["Request Timeout", "Timeout while processing the function"];
    for ((runtime, source), body) in MANY.into_iter().zip(bodies) {
        let mut server = Server::start(runtime, source, &[("FUNC_TIMEOUT", "0.5")]);
        let reply = server.get("/never");
        assert_eq!(reply.status, 408, "{runtime}");
        assert!(reply.body.contains(body), "{runtime}: {}", reply.body);
        assert_eq!(server.get("/later").short(), "200 later", "{runtime}");
        assert!(server.is_running(), "{runtime}");
    }
}

#[test]
fn the_time_of_the_first_call_begins_after_the_modules_that_it_needs_are_loaded() {
    let node = "const modules = require('module');\nconst load = modules._load;\nmodules._load = function (name, ...rest) {\n\
        const end = Date.now() + (name === './express' ? 4000 : 0);\nwhile (Date.now() < end);\nreturn load.call(this, name, ...rest) };\n\
        exports.main = () => 'fine';";
    let python = "def main(event, context): return 'fine'";
    // This module is not Bottle, so the server imports its own Bottle afterwards.
    let slow = "import time\ntime.sleep(4)\n";
    for (runtime, files) in [
        ("nodejs22", vec![("handler.js", node)]),
        ("python312", vec![("handler.py", python), ("lib/python/bottle.py", slow)]),
    ] {
        let mut server = Server::with(runtime, &files, &[("FUNC_TIMEOUT", "2")]);
        assert_eq!(server.get("/").short(), "200 fine", "{runtime}");
        assert!(server.is_running(), "{runtime}");
    }
}

#[test]
fn metrics_count_calls_and_failures_and_time_by_method() {
    let labels = [r#"method="handler-GET""#, r#"method="GET""#];
    for ((runtime, source), label) in MANY.into_iter().zip(labels) {
        let server = Server::start(runtime, source, &[]);
        for path in ["/later", "/throws", "/healthz", "/metrics"] {
            server.get(path);
        }
        let reply = server.get("/metrics");
        assert!(reply.header("content-type").starts_with("text/plain"), "{runtime}");
        let value = |name: &str| {
            let line = reply.body.lines().find(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
            line.unwrap_or_else(|| panic!("{name} in\n{}", reply.body))
                .rsplit(' ')
                .next()
                .unwrap()
                .parse::<f64>()
                .unwrap()
        };
        let infinite = format!(r#"function_duration_seconds_bucket{{le="+Inf",{label}}} 2"#);
        assert!(reply.body.contains(&infinite), "{runtime}: {}", reply.body);
        assert!((value("function_calls_total") - 2.0).abs() < 1e-9, "{runtime}");
        assert!((value("function_failures_total") - 1.0).abs() < 1e-9, "{runtime}");
        assert!((value("function_duration_seconds_count") - 2.0).abs() < 1e-9, "{runtime}");
        assert!(value("function_duration_seconds_sum") >= 0.02, "{runtime}");
        for line in reply.body.lines().filter(|line| !line.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{runtime}: {line}");
        }
    }
}

#[test]
fn functions_publish_events_and_answer_with_events() {
    let sources = [
        (
            "nodejs22",
            "exports.main = async (event) => {
                await event.emitCloudEvent('order.paid', 'shop', { n: 1 }, { eventtypeversion: 'v2' });
                event.setResponseHeader('X-A', '1');
                event.setResponseStatus(202);
                return event.buildResponseCloudEvent('8', 'order.seen', { n: 2 });
            }",
        ),
        (
            "python312",
            "def main(event, context):
    event.emitCloudEvent('order.paid', 'shop', {'n': 1}, {'eventtypeversion': 'v2'})
    event['extensions']['response'].status = 202
    return event.buildResponseCloudEvent('8', 'order.seen', {'n': 2})
",
        ),
    ];
    for (runtime, source) in sources {
        let publisher = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/publish", publisher.local_addr().unwrap());
        let published = thread::spawn(move || {
            let (mut stream, _) = publisher.accept().unwrap();
            let request = read_request(&mut stream);
            stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").unwrap();
            request
        });
        let server = Server::start(runtime, source, &[("PUBLISHER_PROXY_ADDRESS", &address)]);
        let reply = server.ask("POST", "/", ORDER, b"{}");
        let answered: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(reply.status, 202, "{runtime}");
        assert_eq!(
            answered,
            serde_json::json!({"id": "8", "type": "order.seen", "source": "shop", "specversion": "1.0",
                "eventtypeversion": "v1", "data": {"n": 2}, "datacontenttype": "application/json"}),
            "{runtime}"
        );
        let (head, body) = published.join().unwrap();
        assert!(head.starts_with("POST /publish HTTP/1.1\r\n"), "{runtime}: {head}");
        assert!(head.to_lowercase().contains("content-type: application/cloudevents+json\r\n"), "{runtime}: {head}");
        let event: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&event["type"], &event["source"]), (&"order.paid".into(), &"shop".into()), "{runtime}");
        assert_eq!((&event["data"]["n"], &event["eventtypeversion"]), (&1.into(), &"v2".into()), "{runtime}");
        assert_eq!((event["specversion"].as_str(), event["id"].is_string()), (Some("1.0"), true), "{runtime}");
        assert!(event["time"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{runtime}");
    }
}

#[test]
fn accesses_are_logged_when_asked_for() {
    for (runtime, source) in HELLO {
        let server = Server::start(runtime, source, &[("KYMA_INTERNAL_LOGGER_ENABLED", "true")]);
        server.ask("GET", "/path?x=1", &[("User-Agent", "a \"b\""), ("Referer", "http://r/")], b"");
        let log = server.await_log("\"GET /path?x=1 HTTP/1.1\" 200 ");
        let line = log.lines().find(|line| line.contains("/path")).unwrap();
        assert!(line.starts_with("127.0.0.1 - - ["), "{runtime}: {line}");
        assert!(line.ends_with(r#" "http://r/" "a \"b\"""#), "{runtime}: {line}");
        let quiet = Server::start(runtime, source, &[]);
        quiet.get("/path");
        quiet.get("/healthz");
        assert!(!quiet.log().contains("/path"), "{runtime}");
    }
}

#[test]
fn without_an_address_it_listens_on_all_and_a_taken_port_is_an_error() {
    for (runtime, source) in HELLO {
        let server = Server::start(runtime, source, &[("FUNC_HOST", "")]);
        assert_eq!(server.get("/").short(), "200 Hello World!", "{runtime}");
        let file = if runtime.starts_with("node") { "handler.js" } else { "handler.py" };
        let taken = Server::start(runtime, source, &[]);
        let mut second = Server::launch(runtime, &[(file, source)], &[("FUNC_PORT", &taken.port.to_string())]);
        assert_eq!(second.await_exit(), Some(1), "{runtime}");
        assert!(second.log().contains("The server cannot listen on port"), "{runtime}: {}", second.log());
    }
}

#[test]
fn the_tracer_of_an_event_makes_spans_with_the_context_of_the_caller() {
    let node = "exports.main = async (event, context) => {
            const span = event.tracer.startSpan('one', { kind: 2 });
            span.setAttribute('a', 1).addEvent('b').setStatus({ code: 1 });
            span.recordException(new Error('c'));
            span.end();
            const trace = await event.tracer.startActiveSpan('two', {}, async (inner) => inner.spanContext().traceId);
            return `${trace} ${span.spanContext().spanId} ${span.spanContext().traceFlags} ${context.namespace}`;
        };";
    let python = "def main(event, context):
    with event.tracer.start_as_current_span('one', kind=2) as span:
        span.set_attribute('a', 1)
        span.add_event('b', {'c': 1})
        at = event.tracer.start_span('two').get_span_context()
        return '%032x %016x %d %s' % (at.trace_id, at.span_id, at.trace_flags, context['namespace'])";
    let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    for (runtime, source) in [("nodejs22", node), ("python312", python)] {
        let server = Server::start(runtime, source, &[("SERVICE_NAMESPACE", "shop")]);
        let parent = format!("00-{trace}-{span}-01");
        let b3 = [("X-B3-TraceId", trace), ("X-B3-SpanId", span), ("X-B3-Sampled", "1")];
        let expected = format!("200 {trace} {span} 1 shop");
        assert_eq!(server.ask("GET", "/", &[("traceparent", &parent)], b"").short(), expected, "{runtime}");
        assert_eq!(server.ask("GET", "/", &b3, b"").short(), expected, "{runtime}");
        let nothing = format!("200 {} {} 0 shop", "0".repeat(32), "0".repeat(16));
        for wrong in ["", "00-xyz-b7ad6b7169203331-01", "b7ad6b71"] {
            assert_eq!(server.ask("GET", "/", &[("traceparent", wrong)], b"").short(), nothing, "{runtime}: {wrong}");
        }
    }
}
