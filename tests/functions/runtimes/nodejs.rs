//! Functions in Node.js: the documented samples, and the behaviour of Express for handlers.

use super::server::{Reply, Server};

/// Starts a function whose handlers are listed by name; `s` is the response, `q` the request.
fn handlers(list: &str) -> Server {
    let source = format!(
        "const handlers = {{ {list} }};
        exports.main = (event) => {{
            const {{ request: q, response: s }} = event.extensions;
            return handlers[q.path.slice(1)](q, s, event);
        }};"
    );
    Server::start("nodejs22", &source, &[])
}

#[test]
fn documented_samples_run_unchanged() {
    let custom = "module.exports = { main: function (event, context) { if (event.extensions.request.query.id === undefined) { res = event.extensions.response; res.status(400) return } return \"42\" }}";
    // The printed sample lacks the line break after `res.status(400)`. A manifest has it.
    let server = Server::start("nodejs12", &custom.replace("res.status(400) return", "res.status(400)\nreturn"), &[]);
    assert_eq!(server.get("/").short(), "400 ");
    assert_eq!(server.get("/?id=1").short(), "200 42");
    let named = "module.exports = {\n  main: function(event, context) {\n    const name = process.env.PERSON_NAME;\n    return 'Hello ' + name;\n  }\n}";
    assert_eq!(Server::start("nodejs12", named, &[("PERSON_NAME", "John")]).get("/").short(), "200 Hello John");
    let logged =
        "module.exports = { main: function (event, context) { console.log(\"User created: \", event.data); } }";
    let server = Server::start("nodejs12", logged, &[]);
    assert_eq!(server.post("application/json", "123456789").short(), "200 ");
    server.await_log("User created:  123456789");
}

#[test]
fn every_kind_of_result_has_its_body_and_type() {
    let server = handlers(
        "string: () => 'hé', empty: () => '', object: () => ({ a: 'é' }), array: () => [1, 2], nothing: () => null,
        missing: () => undefined, number: () => 42, zero: () => 0, yes: () => true, no: () => false,
        bytes: () => Buffer.from('ab'), function: () => () => 1, symbol: () => Symbol('x'), big: () => 10n,
        circle: () => { const a = {}; a.a = a; return a }, thenable: () => ({ then: (done) => done('then') }),
        answered: (q, s) => { s.status(201).send('own'); return 'ignored' }, itself: (q, s) => s.status(202),
        status: (q, s) => { s.status(400) }, gone: (q, s) => { s.status(204); return 'dropped' },
        written: (q, s) => { s.write('a'); s.write('b') },",
    );
    for (name, expected) in [
        ("string", "200 | hé"),
        ("empty", "200 | "),
        ("missing", "200 | "),
        ("number", "200 | 42"),
        ("zero", "200 | 0"),
        ("yes", "200 | true"),
        ("no", "200 | false"),
        ("function", "200 | "),
        ("symbol", "200 | "),
        ("thenable", "200 | then"),
        ("itself", "202 | "),
        ("status", "400 | "),
        ("gone", "204 | "),
        ("written", "200 | ab"),
        ("big", "500 | content-type: text/html; charset=utf-8 | Internal Server Error"),
        ("circle", "500 | content-type: text/html; charset=utf-8 | Internal Server Error"),
    ] {
        assert_eq!(server.get(&format!("/{name}")).full(), expected, "{name}");
    }
    for (name, body) in [
        ("object", r#"{"a":"é"}"#),
        ("array", "[1,2]"),
        ("nothing", "null"),
        ("bytes", r#"{"type":"Buffer","data":[97,98]}"#),
    ] {
        let reply = server.get(&format!("/{name}"));
        assert_eq!(reply.short(), format!("200 {body}"));
        assert_eq!(reply.header("content-type"), "application/json; charset=utf-8", "{name}");
    }
    assert_eq!(server.get("/answered").short(), "201 own");
}

/// Recorded responses of Express 4.22.3 to the same handlers.
#[test]
fn the_response_behaves_like_that_of_express() {
    let server = handlers(
        r#"send: (q, s) => { s.send('<b>hé</b>') }, bytes: (q, s) => { s.send(Buffer.from('abc')) },
        json: (q, s) => { s.status(201).json({ a: 1 }) }, plain: (q, s) => { s.type('text').send('plain') },
        latin: (q, s) => { s.set('Content-Type', 'text/plain; charset=latin1').send('plain') },
        svg: (q, s) => { s.type('svg').send('<a/>') }, unknown: (q, s) => { s.type('weird').send('x') },
        sendStatus: (q, s) => { s.sendStatus(404) }, none: (q, s) => { s.send(null) },
        jsonp: (q, s) => { s.jsonp({ a: '\u2028x' }) }, tag: (q, s) => { s.set('ETag', '"v1"').send('x') },
        set: (q, s) => { s.set({ 'X-B': 'b', 'X-C': ['1', '2'] }); s.header('X-D', 4); return s.get('x-d') },
        append: (q, s) => { s.append('Link', ['<a>', '<b>']); s.append('Set-Cookie', 'a=1').append('Set-Cookie', 'b=2') },
        vary: (q, s) => { s.vary('Accept'); s.vary(['Origin', 'accept']); s.vary('User-Agent, Cookie') },
        links: (q, s) => { s.links({ next: 'http://x/2', last: 'http://x/5' }); s.links({ prev: '/0' }) },
        location: (q, s) => { s.location('/é b?x=1&y=%20%zz') }, redirect: (q, s) => { s.redirect('/foo/bar?<a>') },
        moved: (q, s) => { s.redirect(301, 'https://example.com') },
        cookie: (q, s) => { s.cookie('a', 'b c;é'); s.cookie('o', { x: 1 });
            s.cookie('h', 'v', { httpOnly: true, secure: true, sameSite: 'lax', path: '/p', domain: 'example.com' }) },
        clear: (q, s) => { s.clearCookie('a', { path: '/x', httpOnly: true }) },
        attachment: (q, s) => { s.attachment('€ rates.pdf') },
        format: (q, s) => { s.format({ 'text/plain': () => s.send('plain'), html: () => s.send('<p>'), json: () => s.json({}) }) },
        evil: (q, s) => { s.set('X-A', 'a\r\nX-B: b'); return 'x' },"#,
    );
    for (path, expected) in [
        (
            "send",
            r#"200 | content-type: text/html; charset=utf-8 | etag: W/"a-HsXCmaWe31E+n3sGTaLt/xvWdqY" | <b>hé</b>"#,
        ),
        ("bytes", r#"200 | content-type: application/octet-stream | etag: W/"3-qZk+NkcGgWq6PiVxeFDCbJzQ2J0" | abc"#),
        (
            "json",
            r#"201 | content-type: application/json; charset=utf-8 | etag: W/"7-n4nHQM60bXQYySSnisV5QdXpZSA" | {"a":1}"#,
        ),
        ("plain", r#"200 | content-type: text/plain; charset=utf-8 | etag: W/"5-aMRuhNdtLn5oblFYv1mJCavU5Fs" | plain"#),
        ("latin", r#"200 | content-type: text/plain; charset=utf-8 | etag: W/"5-aMRuhNdtLn5oblFYv1mJCavU5Fs" | plain"#),
        ("svg", r#"200 | content-type: image/svg+xml; charset=utf-8 | etag: W/"4-25qoZjLG8syZaEot0V0rZIKOdiI" | <a/>"#),
        (
            "unknown",
            r#"200 | content-type: application/octet-stream; charset=utf-8 | etag: W/"1-EfatjsUqKYSrqv18O1FlA3hcIHI" | x"#,
        ),
        (
            "sendStatus",
            r#"404 | content-type: text/plain; charset=utf-8 | etag: W/"9-0gXL1ngzMqISxa6S1zx3F4wtLyg" | Not Found"#,
        ),
        ("none", r#"200 | etag: W/"0-2jmj7l5rSw0yVb/vlWAYkK/YBwk" | "#),
        ("tag", r#"200 | content-type: text/html; charset=utf-8 | etag: "v1" | x"#),
        ("set", "200 | x-b: b | x-c: 1 | x-c: 2 | x-d: 4 | 4"),
        ("append", "200 | link: <a> | link: <b> | set-cookie: a=1 | set-cookie: b=2 | "),
        ("vary", "200 | vary: Accept, Origin, User-Agent, Cookie | "),
        ("links", r#"200 | link: <http://x/2>; rel="next", <http://x/5>; rel="last", </0>; rel="prev" | "#),
        ("location", "200 | location: /%C3%A9%20b?x=1&y=%20%25zz | "),
        (
            "redirect",
            "302 | content-type: text/plain; charset=utf-8 | location: /foo/bar?%3Ca%3E | vary: Accept | Found. Redirecting to /foo/bar?%3Ca%3E",
        ),
        (
            "moved",
            "301 | content-type: text/plain; charset=utf-8 | location: https://example.com | vary: Accept | Moved Permanently. Redirecting to https://example.com",
        ),
        (
            "cookie",
            "200 | set-cookie: a=b%20c%3B%C3%A9; Path=/ | set-cookie: h=v; Domain=example.com; Path=/p; HttpOnly; Secure; SameSite=Lax | set-cookie: o=j%3A%7B%22x%22%3A1%7D; Path=/ | ",
        ),
        ("clear", "200 | set-cookie: a=; Path=/x; Expires=Thu, 01 Jan 1970 00:00:00 GMT; HttpOnly | "),
        (
            "attachment",
            r#"200 | content-disposition: attachment; filename="? rates.pdf"; filename*=UTF-8''%E2%82%AC%20rates.pdf | content-type: application/pdf | "#,
        ),
        ("evil", "500 | content-type: text/html; charset=utf-8 | Internal Server Error"),
    ] {
        assert_eq!(server.get(&format!("/{path}")).full(), expected, "{path}");
    }
    let callback = server.get("/jsonp?callback=foo.bar[0];x");
    assert_eq!(callback.body, r#"/**/ typeof foo.bar[0]x === 'function' && foo.bar[0]x({"a":"\u2028x"});"#);
    let asked = |path: &str, name: &str, value: &str| server.ask("GET", path, &[(name, value)], b"");
    assert_eq!(asked("/format", "Accept", "text/html;q=0.5, application/json").short(), "200 {}");
    assert_eq!(asked("/format", "Accept", "image/png").status, 406);
    assert_eq!(asked("/tag", "If-None-Match", "\"v1\"").short(), "304 ");
    assert_eq!(asked("/redirect", "Accept", "text/html").body, "<p>Found. Redirecting to /foo/bar?%3Ca%3E</p>");
}

/// Recorded behaviour of Express 4.22.3 for the same requests.
#[test]
fn the_request_behaves_like_that_of_express() {
    let server = handlers(
        "fields: (q) => [q.method, q.originalUrl, q.path, q.hostname, q.protocol, q.secure, q.xhr, q.subdomains, q.ip,
            q.ips, q.fresh, q.get('X-Test'), q.header('referrer')],
        query: (q) => q.query, body: (q) => q.body,
        is: (q) => [q.is('json'), q.is('text/*'), q.is(['html', 'json']), q.is('application/*'), q.is('*/*')],
        accepts: (q) => [q.accepts(), q.accepts('json'), q.accepts('html', 'json'), q.accepts(['weird'])],
        more: (q) => [q.acceptsEncodings('br', 'gzip'), q.acceptsLanguages('de', 'en'), q.acceptsCharsets('utf-8')],
        range: (q) => q.range(1000),",
    );
    let asked = |method: &str, path: &str, headers: &[(&str, &str)], body: &str| -> Reply {
        server.ask(method, path, headers, body.as_bytes())
    };
    let headers = [("X-Test", "v"), ("Referer", "http://r/"), ("X-Requested-With", "XMLHttpRequest")];
    assert_eq!(
        asked("PUT", "/fields?x=1", &headers, "").body,
        r#"["PUT","/fields?x=1","/fields","fn.example.com","http",false,true,["fn"],"127.0.0.1",[],false,"v","http://r/"]"#
    );
    for (query, expected) in [
        ("a=1&b=%C3%A9+x", r#"{"a":"1","b":"é x"}"#),
        ("a=1&a=2", r#"{"a":["1","2"]}"#),
        ("a[]=1", r#"{"a":["1"]}"#),
        ("a[b]=1&a[c]=2", r#"{"a":{"b":"1","c":"2"}}"#),
        ("a[1]=y&a[0]=x", r#"{"a":["x","y"]}"#),
        ("a[b][c][d][e][f][g]=1", r#"{"a":{"b":{"c":{"d":{"e":{"f":{"[g]":"1"}}}}}}}"#),
        ("a=1&a[b]=2", r#"{"a":["1",{"b":"2"}]}"#),
        ("a&b=&=c&%zz=1", r#"{"a":"","b":"","%zz":"1"}"#),
        ("__proto__[x]=1&__proto__=2", "{}"),
    ] {
        assert_eq!(asked("GET", &format!("/query?{query}"), &[], "").body, expected, "{query}");
    }
    let json = [("Content-Type", "application/json; charset=utf-8")];
    assert_eq!(
        asked("POST", "/is", &json, "{}").body,
        r#"["json",false,"json","application/json","application/json"]"#
    );
    assert_eq!(asked("POST", "/body", &json, r#"{"a":1}"#).body, r#"{"a":1}"#);
    let accept = [("Accept", "text/html;q=0.5, application/json")];
    assert_eq!(asked("GET", "/accepts", &accept, "").body, r#"[["application/json","text/html"],"json","json",false]"#);
    let more = [("Accept-Encoding", "br;q=0.5, gzip"), ("Accept-Language", "en-US,de;q=0.8")];
    assert_eq!(asked("GET", "/more", &more, "").body, r#"["gzip","en","utf-8"]"#);
    assert_eq!(
        asked("GET", "/range", &[("Range", "bytes=0-9,990-")], "").body,
        r#"[{"start":0,"end":9},{"start":990,"end":999}]"#
    );
}

#[test]
fn a_function_may_call_back() {
    let source = "exports.main = (event, context, callback) => {
        const kind = event.extensions.request.query.kind;
        if (kind === 'returns') return 'returned';
        setTimeout(() => callback({ ok: true }, 201, { 'X-A': '1' }), 5);
        setTimeout(() => callback('twice', 500), 10);
    };";
    let server = Server::start("nodejs22", source, &[]);
    let reply = server.get("/");
    assert_eq!((reply.short().as_str(), reply.header("x-a")), (r#"201 {"ok":true}"#, "1"));
    assert_eq!(server.get("/?kind=returns").short(), "200 returned");
}

#[test]
fn modules_of_every_kind_are_loaded() {
    let module = "import fs from 'node:fs'; export const main = async () => typeof fs.readFileSync + typeof require;";
    for files in [
        vec![("handler.js", module), ("package.json", r#"{"type": "module"}"#)],
        vec![("handler.mjs", module)],
        vec![("handler.js", "export default () => 'functionundefined'"), ("package.json", r#"{"type": "module"}"#)],
        vec![("handler.js", "module.exports = function () { return 'functionundefined' }"), ("package.json", "{}")],
        vec![("handler.js", "undeclared = 'functionundefined'; exports.main = () => undeclared")],
    ] {
        let server = Server::with("nodejs22", &files, &[]);
        assert_eq!(server.get("/").short(), "200 functionundefined", "{files:?}");
    }
}

#[test]
fn modules_that_await_at_their_top_level_and_those_with_options_are_loaded() {
    let package = r#"{"type": "module"}"#;
    let awaits = "const answer = await Promise.resolve(5);\nexport const main = () => `${answer}`;";
    for (env, answer) in [(vec![], "200 5"), (vec![("NODE_OPTIONS", "--no-deprecation")], "200 5")] {
        let server = Server::with("nodejs22", &[("package.json", package), ("handler.js", awaits)], &env);
        assert_eq!(server.get("/").short(), answer, "{env:?}");
    }
    let named = "const answer = () => 'named';\nexport { answer as 'module.exports', answer as main };";
    let server = Server::with("nodejs22", &[("package.json", package), ("handler.js", named)], &[]);
    assert_eq!(server.get("/").short(), "200 named");
    let fails = "await Promise.resolve();\nthrow new Error('late');";
    let server = Server::launch("nodejs22", &[("package.json", package), ("handler.js", fails)], &[]);
    server.await_log("The function cannot be loaded: Error: late");
}

#[test]
fn a_pod_is_ready_before_express_is_loaded_and_each_call_has_it() {
    let count = "const count = () => Object.keys(require.cache).filter((name) => name.includes('/express/')).length;\n\
        const first = count();\n\
        let probed = 0;\n\
        globalThis.setInterval(() => { if (count() > 0 && !probed) { probed = 1; console.log('Express is loaded'); } }, 5).unref();\n\
        exports.main = (event) => `${first} ${event.extensions.request.query.id} ${count() > 0}`;";
    let server = Server::start("nodejs22", count, &[]);
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.get("/?id=7").short(), "200 0 7 true", "the first call");
    let server = Server::start("nodejs22", count, &[]);
    for _ in 0..2 {
        assert_eq!(server.get("/healthz").status, 200);
    }
    server.await_log("Express is loaded");
    assert_eq!(server.get("/?id=8").short(), "200 0 8 true");
}

#[test]
fn state_of_the_module_lasts_from_call_to_call() {
    let server = Server::start("nodejs22", "let n = 0; exports.main = () => ++n", &[]);
    assert_eq!([server.get("/").body, server.get("/").body, server.get("/").body], ["1", "2", "3"]);
}

#[test]
fn a_function_that_cannot_be_loaded_ends_the_process_with_the_reason() {
    let secret = [
        ("PASSWORD", "correct horse"),
        ("OTHER", "first line\nbattery staple"),
        ("SERVICE_NAMESPACE", "shop"),
        ("TRACE_COLLECTOR_ENDPOINT", "http://traces.local"),
        ("PUBLISHER_PROXY_ADDRESS", "http://me:secret@events.local/publish"),
    ];
    for (source, said, left) in [
        ("exports.main = (", "SyntaxError", "the module fails: handler.js:1: SyntaxError: Unexpected end of input"),
        (
            "\nrequire('no-such-package')",
            "no-such-package",
            "the module fails: handler.js:2: Error: Cannot find module 'no-such-package'",
        ),
        ("exports.other = () => 1", "no function \"main\"", "the module exports no function \"main\""),
        ("module.exports = null", "no function \"main\"", "the module exports no function \"main\""),
        ("throw undefined", "undefined", "the module fails: undefined"),
        ("throw { toString() { throw 1 } }", "cannot be shown", "the module fails: it throws what cannot be shown"),
        ("process.exit(0)", "exit code 0", "the process ended with exit code 0 during it"),
        ("export const main = await new Promise(() => {})", "exit code", "during it"),
        (
            "throw new TypeError(`at load ${process.env.PASSWORD} battery staple\\nmore`)",
            "at load",
            "the module fails: handler.js:1: TypeError: at load *** ***",
        ),
        (
            "const env = process.env; throw [env.SERVICE_NAMESPACE, env.TRACE_COLLECTOR_ENDPOINT, env.PUBLISHER_PROXY_ADDRESS]",
            "shop",
            "the module fails: shop,http://traces.local,***",
        ),
        ("throw new Error('x'.repeat(100000))", "xxx", "xxx…"),
    ] {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("termination-log");
        std::fs::write(&file, "").unwrap();
        let mut env = secret.to_vec();
        env.push(("MAINSTAY_TERMINATION_LOG", file.to_str().unwrap()));
        let name = if source.contains("export const") { "handler.mjs" } else { "handler.js" };
        let mut server = Server::launch("nodejs22", &[(name, source)], &env);
        assert_ne!(server.await_exit(), None, "{source}");
        server.await_log(said);
        let message = std::fs::read_to_string(&file).unwrap();
        assert!(message.starts_with("the function cannot be loaded: "), "{source}: {message}");
        assert!(message.ends_with(left) && message.len() < 800, "{source}: {message}");
    }
}

#[test]
fn browsers_may_call_from_everywhere() {
    let server = Server::start("nodejs22", "exports.main = (e) => e.extensions.request.method", &[]);
    let asked = [("Access-Control-Request-Method", "PUT"), ("Access-Control-Request-Headers", "x-a, x-b")];
    let reply = server.ask("OPTIONS", "/x", &asked, b"");
    assert_eq!(reply.short(), "200 ");
    assert_eq!(reply.header("access-control-allow-origin"), "*");
    assert_eq!(reply.header("access-control-allow-methods"), "PUT");
    assert_eq!(reply.header("access-control-allow-headers"), "x-a, x-b");
    let reply = server.ask("OPTIONS", "/x", &[], b"");
    assert_eq!((reply.short().as_str(), reply.header("access-control-allow-origin")), ("200 OPTIONS", "*"));
    assert_eq!(server.get("/").header("access-control-allow-origin"), "*");
    assert_eq!(server.get("/healthz").header("access-control-allow-origin"), "");
}

#[test]
fn a_stream_may_be_answered() {
    let source = "const { Readable } = require('stream'); const path = require('path');
        exports.main = (event) => {
            const s = event.extensions.response;
            if (event.extensions.request.path === '/file') return s.sendFile(path.join(__dirname, 'handler.js'));
            Readable.from(['a', 'b']).pipe(s);
        }";
    let server = Server::start("nodejs22", source, &[]);
    assert_eq!(server.get("/").short(), "200 ab");
    let file = server.get("/file");
    assert_eq!((file.body.as_str(), file.header("content-type")), (source, "application/javascript; charset=UTF-8"));
}
