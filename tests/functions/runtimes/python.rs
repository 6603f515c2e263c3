//! Functions in Python: results and exceptions, and the behaviour of Bottle for handlers.

use super::server::Server;

/// Starts a function whose handlers are listed by name; `q` is the request, `e` the event.
fn handlers(list: &str) -> Server {
    let source = format!(
        "import bottle
from bottle import HTTPResponse, HTTPError, abort, redirect
def fail(error): raise error
def changed(response, **more):
    for name, value in more.items(): setattr(response, name, value)
    return response
HANDLERS = {{{list}}}
def main(event, context):
    request = event['extensions']['request']
    return HANDLERS[request.path[1:].split('/')[0]](request, event)
"
    );
    Server::start("python312", &source, &[])
}

#[test]
fn the_documented_sample_runs() {
    // The printed sample has a full stop between its arguments.
    let source = "def main(event, context): return \"Hello World!\"";
    let server = Server::start("python38", source, &[("FUNC_MEMFILE_MAX", "1048576")]);
    assert_eq!(server.get("/").full(), "200 | content-type: text/html; charset=UTF-8 | Hello World!");
}

/// Recorded responses of Bottle 0.13.4 to the same handlers, except for a shorter page after failures.
#[test]
fn every_kind_of_result_has_its_body_and_type() {
    let server = handlers(
        "'str': lambda q, e: 'hé', 'dict': lambda q, e: {'a': [1, None]}, 'none': lambda q, e: None,
        'zero': lambda q, e: 0, 'false': lambda q, e: False, 'elist': lambda q, e: [], 'list': lambda q, e: ['a', 'bé'],
        'tuple': lambda q, e: (b'a', b'b'), 'gen': lambda q, e: (x for x in 'ab'),
        'made': lambda q, e: HTTPResponse('made', 201), 'gone': lambda q, e: HTTPResponse(status=204),
        'line': lambda q, e: HTTPResponse('x', '299 Odd Thing'),
        'typed': lambda q, e: HTTPResponse('x', headers={'X-A': '1', 'Content-Type': 'text/plain'}),
        'more': lambda q, e: HTTPResponse('x', X_Custom='1', content_type='application/xml'),
        'rdict': lambda q, e: HTTPResponse({'a': 1}, 202), 'raised': lambda q, e: fail(HTTPResponse('raised', 403)),
        'abort': lambda q, e: abort(404, 'nope <b>'), 'error': lambda q, e: HTTPError(401, 'who', WWW_Authenticate='Basic'),
        'moved': lambda q, e: redirect('/x?y=1'), 'num': lambda q, e: 42, 'true': lambda q, e: True,
        'ilist': lambda q, e: [1, 2], 'evil': lambda q, e: HTTPResponse('x', headers={'X': 'a\\r\\nb: c'}),
        'own': lambda q, e: changed(e['extensions']['response'], status=202, content_type='text/csv') and 'a,b',
        'global': lambda q, e: changed(bottle.response, status=418) and bottle.request.method,
        'cookie': lambda q, e: (lambda r: r.set_cookie('a', 'v', path='/p', max_age=5, httponly=True) or r)(HTTPResponse('c')),",
    );
    for (path, expected) in [
        ("str", "200 | content-type: text/html; charset=UTF-8 | hé"),
        ("dict", r#"200 | content-type: application/json | {"a": [1, null]}"#),
        ("none", "200 | content-type: text/html; charset=UTF-8 | "),
        ("zero", "200 | content-type: text/html; charset=UTF-8 | "),
        ("false", "200 | content-type: text/html; charset=UTF-8 | "),
        ("elist", "200 | content-type: text/html; charset=UTF-8 | "),
        ("list", "200 | content-type: text/html; charset=UTF-8 | abé"),
        ("tuple", "200 | content-type: text/html; charset=UTF-8 | ab"),
        ("gen", "200 | content-type: text/html; charset=UTF-8 | ab"),
        ("made", "201 | content-type: text/html; charset=UTF-8 | made"),
        ("gone", "204 | "),
        ("line", "299 | content-type: text/html; charset=UTF-8 | x"),
        ("typed", "200 | content-type: text/plain | x-a: 1 | x"),
        ("more", "200 | content-type: application/xml | x-custom: 1 | x"),
        ("rdict", r#"202 | content-type: application/json | {"a": 1}"#),
        ("raised", "403 | content-type: text/html; charset=UTF-8 | raised"),
        ("moved", "303 | content-type: text/html; charset=UTF-8 | location: http://fn.example.com/x?y=1 | "),
        ("own", "202 | content-type: text/csv | a,b"),
        ("global", "418 | content-type: text/html; charset=UTF-8 | GET"),
        ("cookie", "200 | content-type: text/html; charset=UTF-8 | set-cookie: a=v; HttpOnly; Max-Age=5; Path=/p | c"),
        ("num", "500 | content-type: text/html; charset=UTF-8 | Internal server error"),
        ("true", "500 | content-type: text/html; charset=UTF-8 | Internal server error"),
        ("ilist", "500 | content-type: text/html; charset=UTF-8 | Internal server error"),
        ("evil", "500 | content-type: text/html; charset=UTF-8 | Internal server error"),
    ] {
        assert_eq!(server.get(&format!("/{path}")).full(), expected, "{path}");
    }
    let page = server.get("/abort");
    assert_eq!(page.status, 404);
    assert!(page.body.contains("Error: 404 Not Found") && page.body.contains("nope &lt;b&gt;"), "{}", page.body);
    assert_eq!(server.get("/error").header("www-authenticate"), "Basic");
}

/// Recorded behaviour of Bottle 0.13.4 for the same requests.
#[test]
fn the_request_behaves_like_that_of_bottle() {
    let server = handlers(
        "'fields': lambda q, e: {'f': [q.method, q.path, q.query_string, q.url, q.content_type, q.content_length, q.is_xhr,
            q.auth, q.remote_addr, q.remote_route, q.chunked, q.get_header('x-test'), q.headers['X-TEST']]},
        'query': lambda q, e: {'q': [q.query.a, q.query.get('a'), q.query.getall('a'), q.query.zz, q.query.get('zz'),
            q.query.get('n', type=int), q.query.get('a', 7, type=int), sorted(q.params.allitems())]},
        'json': lambda q, e: {'j': q.json}, 'body': lambda q, e: q.body.read() + q.body.read(),
        'forms': lambda q, e: {'f': sorted(q.forms.allitems()), 'up': [(k, f.filename, f.raw_filename, f.content_type,
            f.file.read().decode()) for k, f in q.files.allitems()]},
        'cookies': lambda q, e: {'c': sorted(q.cookies.items()), 'd': q.get_cookie('zz', 'd')},
        'environ': lambda q, e: {'e': [q['PATH_INFO'], q.get('none', 'd'), q.environ['HTTP_X_TEST']]},",
    );
    let headers = [
        ("X-Test", "v"),
        ("X-Requested-With", "XMLHttpRequest"),
        ("Authorization", "Basic dTpwOnE="),
        ("X-Forwarded-For", "1.1.1.1, 2.2.2.2"),
        ("X-Forwarded-Proto", "https"),
        ("Content-Type", "Text/X"),
    ];
    assert_eq!(
        server.ask("POST", "/fields/sub%20x?z=1", &headers, b"x").body,
        r#"{"f": ["POST", "/fields/sub x", "z=1", "https://fn.example.com/fields/sub%20x?z=1", "text/x", 1, true, ["u", "p:q"], "1.1.1.1", ["1.1.1.1", "2.2.2.2"], false, "v", "v"]}"#
    );
    assert_eq!(
        server.get("/query?a=1&a=%C3%A9+x&n=5").body,
        r#"{"q": ["\u00e9 x", "\u00c3\u00a9 x", ["1", "\u00c3\u00a9 x"], "", null, 5, 7, [["a", "1"], ["a", "\u00c3\u00a9 x"], ["n", "5"]]]}"#
    );
    let typed =
        |path: &str, kind: &str, body: &str| server.ask("POST", path, &[("Content-Type", kind)], body.as_bytes());
    assert_eq!(typed("/json", "application/json; charset=utf-8", r#"{"a":1}"#).body, r#"{"j": {"a": 1}}"#);
    assert_eq!(typed("/json", "text/plain", r#"{"a":1}"#).body, r#"{"j": null}"#);
    assert_eq!(typed("/body", "text/plain", "twice").body, "twicetwice");
    let form = "application/x-www-form-urlencoded";
    assert_eq!(
        typed("/forms", form, "a=1&a=2&b=x+y").body,
        r#"{"f": [["a", "1"], ["a", "2"], ["b", "x y"]], "up": []}"#
    );
    let parts = "--XX\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\ntext\r\n--XX\r\nContent-Disposition: form-data; \
        name=\"f\"; filename=\"../my file.txt\"\r\nContent-Type: text/plain\r\n\r\nline1\r\nline2\r\n--XX--\r\n";
    assert_eq!(
        typed("/forms", "multipart/form-data; boundary=XX", parts).body,
        r#"{"f": [["a", "text"]], "up": [["f", "my-file.txt", "../my file.txt", "text/plain", "line1\r\nline2"]]}"#
    );
    assert_eq!(typed("/forms", "multipart/form-data; boundary=XX", &parts[..60]).status, 400);
    let cookies = server.ask("GET", "/cookies", &[("Cookie", "a=1; b=\"q x\"; c=d=e")], b"");
    assert_eq!(cookies.body, r#"{"c": [["a", "1"], ["b", "q x"], ["c", "d=e"]], "d": "d"}"#);
    let environ = server.ask("GET", "/environ", &[("X-Test", "v")], b"");
    assert_eq!(environ.body, r#"{"e": ["/environ", "d", "v"]}"#);
}

#[test]
fn an_installed_bottle_takes_the_place_of_ours() {
    let own = "class BaseResponse:\n    status_line = '203 Mine'\n    status_code = 203\n    charset = 'utf8'\n    body = 'theirs'\n    \
        headerlist = [('Content-Type', 'text/x')]\nclass HTTPResponse(BaseResponse, Exception): pass\n";
    let handler = "import bottle\ndef main(event, context): raise bottle.HTTPResponse()";
    let server = Server::with("python312", &[("handler.py", handler), ("lib/python/bottle.py", own)], &[]);
    assert_eq!(server.get("/").full(), "203 | content-type: text/x | theirs");
}

#[test]
fn a_pod_is_ready_before_bottle_is_loaded_and_each_call_has_it() {
    let source = "import sys, threading, time\nfirst = 'bottle' in sys.modules\n\
        def wait():\n    while 'bottle' not in sys.modules: time.sleep(0.005)\n    print('Bottle is loaded')\n\
        threading.Thread(target=wait, daemon=True).start()\n\
        def main(event, context):\n    return '%s %s' % (first, event['extensions']['request'].query.id)\n";
    let server = Server::start("python312", source, &[]);
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.get("/?id=7").short(), "200 False 7", "the first call");
    let server = Server::start("python312", source, &[]);
    for _ in 0..2 {
        assert_eq!(server.get("/healthz").status, 200);
    }
    server.await_log("Bottle is loaded");
    assert_eq!(server.get("/?id=8").short(), "200 False 8");
}

#[test]
fn a_function_may_set_its_own_limits_of_bottle() {
    let limit = |lines: &str| {
        let source = format!(
            "{lines}\ndef main(event, context):\n    import bottle\n    return str(bottle.BaseRequest.MEMFILE_MAX)\n"
        );
        Server::start("python312", &source, &[("FUNC_MEMFILE_MAX", "4096")]).get("/").body
    };
    assert_eq!(limit(""), "4096");
    assert_eq!(limit("import bottle"), "4096");
    assert_eq!(limit("import bottle\nbottle.BaseRequest.MEMFILE_MAX = 77"), "77");
}

#[test]
fn methods_are_those_that_http_gives_a_meaning() {
    let server =
        Server::start("python312", "def main(event, context): return event['extensions']['request'].method", &[]);
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        assert_eq!(server.ask(method, "/", &[], b"").short(), format!("200 {method}"));
    }
    for method in ["TRACE", "CONNECT", "NONSENSE"] {
        let reply = server.ask(method, "/", &[], b"x");
        assert_eq!((reply.status, reply.header("allow")), (405, "DELETE,GET,OPTIONS,PATCH,POST,PUT"), "{method}");
    }
}

#[test]
fn state_of_the_module_is_shared_by_all_calls() {
    let server = Server::start(
        "python312",
        "n = 0\ndef main(event, context):\n    global n\n    n += 1\n    return str(n)",
        &[],
    );
    assert_eq!([server.get("/").body, server.get("/").body, server.get("/").body], ["1", "2", "3"]);
}

#[test]
fn a_function_that_cannot_be_loaded_ends_the_process_with_the_reason() {
    for (source, said, left) in [
        ("def main(", "SyntaxError", "the module fails: handler.py:1: SyntaxError: '(' was never closed"),
        (
            "\nimport no_such_package",
            "No module named 'no_such_package'",
            "the module fails: handler.py:2: ModuleNotFoundError: No module named 'no_such_package'",
        ),
        ("def other(event, context): pass", "has no function 'main'", "the module 'handler' has no function 'main'"),
        ("raise SystemExit(0)", "SystemExit", "the module fails: handler.py:1: SystemExit: 0"),
        (
            "import os\nraise ValueError('at load ' + os.environ['PASSWORD'] + ' battery staple\\nmore')",
            "at load",
            "the module fails: handler.py:2: ValueError: at load *** ***",
        ),
        ("class E(Exception):\n    def __str__(self): raise self\nraise E()", "E", "it raises what cannot be shown"),
        (
            "from os import environ as e\nraise ValueError(
    ' '.join([e['SERVICE_NAMESPACE'], e['TRACE_COLLECTOR_ENDPOINT'], e['PUBLISHER_PROXY_ADDRESS']]))",
            "shop",
            "the module fails: handler.py:2: ValueError: shop http://traces.local ***",
        ),
        ("raise ValueError('x' * 100000)", "xxx", "xxx…"),
    ] {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("termination-log");
        std::fs::write(&file, "").unwrap();
        let env = [
            ("PASSWORD", "correct horse"),
            ("OTHER", "first line\nbattery staple"),
            ("SERVICE_NAMESPACE", "shop"),
            ("TRACE_COLLECTOR_ENDPOINT", "http://traces.local"),
            ("PUBLISHER_PROXY_ADDRESS", "http://me:secret@events.local/publish"),
            ("MAINSTAY_TERMINATION_LOG", file.to_str().unwrap()),
        ];
        let mut server = Server::launch("python312", &[("handler.py", source)], &env);
        assert_eq!(server.await_exit(), Some(1), "{source}");
        let log = server.log();
        assert!(log.contains(said) && log.contains("The function cannot be loaded"), "{source}: {log}");
        let message = std::fs::read_to_string(&file).unwrap();
        assert!(message.starts_with("the function cannot be loaded: "), "{source}: {message}");
        assert!(message.ends_with(left) && message.len() < 800, "{source}: {message}");
    }
}
