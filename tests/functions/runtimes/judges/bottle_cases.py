"""What a handler can do with every public name of Bottle that needs a call: each case answers one or more requests."""

import datetime
import io
import os

import bottle
from bottle import request, response

FILES = os.environ["FILES"]
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PARTS = (
    '--XX\r\nContent-Disposition: form-data; name="a"\r\n\r\ntext\r\n--XX\r\nContent-Disposition: form-data; name="f"; '
    'filename="../my file.txt"\r\nContent-Type: text/plain\r\n\r\nline1\r\nline2\r\n--XX--\r\n'
)
MULTI = {"Content-Type": "multipart/form-data; boundary=XX"}


def ask(path="", method="GET", body="", **headers):
    return {"path": path, "method": method, "body": body, "headers": [(k.replace("_", "-"), v) for k, v in headers.items()]}


def form(body, kind=FORM):
    return {"path": "", "method": "POST", "body": body, "headers": list(kind.items())}


def seen(*values):
    return {"seen": [value if isinstance(value, (dict, int, type(None))) else str(value) for value in values]}


def attempt(call):
    try:
        return call()
    except Exception as error:  # noqa: BLE001 what it is, is compared
        return "%s %s" % (type(error).__name__, error)


def pairs(found):
    return sorted((str(key), str(value)) for key, value in found.allitems())


def made(change):
    answer = bottle.HTTPResponse("x")
    change(answer)
    return answer


def changed(change, result="x"):
    change(response)
    return result


REQUEST = {
    "GET": ([ask("?a=1&a=%C3%A9+x&b")], lambda: seen(pairs(request.GET))),
    "POST": ([form("a=1&b=x+y"), form(PARTS, MULTI)], lambda: seen(sorted(request.POST.keys()))),
    "app": ([ask()], lambda: seen(type(request.app).__name__)),
    "auth": ([ask(Authorization="Basic dTpwOnE="), ask(), ask(Authorization="Basic x")], lambda: seen(request.auth)),
    "body": ([form("twice")], lambda: request.body.read() + request.body.read()),
    "chunked": ([form("x")], lambda: seen(request.chunked)),
    "content_length": ([form("xyz"), ask()], lambda: seen(request.content_length)),
    "content_type": ([form("x", {"Content-Type": "Text/X; Y=Z"}), form("x")], lambda: seen(request.content_type)),
    "cookies": ([ask(Cookie='a=1; b="q x"; c=d=e'), ask()], lambda: seen(sorted(request.cookies.items()))),
    "copy": ([ask("?a=1")], lambda: seen(request.copy().query.a, type(request.copy()).__name__)),
    "environ": ([ask("/sub%20x?z=1", X_Test="v")], lambda: seen(*[request.environ.get(name) for name in (
        "REQUEST_METHOD", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "SERVER_PROTOCOL", "HTTP_X_TEST", "wsgi.url_scheme")])),
    "files": ([form(PARTS, MULTI)], lambda: seen([(k, f.filename, f.raw_filename, f.content_type, f.file.read(), f.name,
        f.content_length, f.get_header("X", "d")) for k, f in request.files.allitems()])),
    "forms": ([form("a=1&a=2&b=%C3%A9"), form(PARTS, MULTI), form("x", {"Content-Type": "text/plain"})],
        lambda: seen(pairs(request.forms), request.forms.b)),
    "fullpath": ([ask("/a%20b/")], lambda: seen(request.fullpath)),
    "get": ([ask()], lambda: seen(request.get("REQUEST_METHOD"), request.get("none", "d"))),
    "get_cookie": ([ask(Cookie="a=1"), ask(Cookie='s="!x?y"')],
        lambda: seen(request.get_cookie("a"), request.get_cookie("s", "d", secret="k"), request.get_cookie("zz", "d"))),
    "get_header": ([ask(X_Test="v")], lambda: seen(request.get_header("x-test"), request.get_header("n", "d"))),
    "headers": ([ask(X_Test="v")], lambda: seen(request.headers["X-TEST"], request.headers.get("none"), "x-test" in request.headers)),
    "is_ajax": ([ask(X_Requested_With="XMLHttpRequest")], lambda: seen(request.is_ajax)),
    "is_xhr": ([ask(X_Requested_With="XMLHttpRequest"), ask()], lambda: seen(request.is_xhr)),
    "json": ([form('{"a":1}', {"Content-Type": "application/json; charset=utf-8"}), form("{}"),
        ask()], lambda: seen(request.json)),
    "keys": ([ask()], lambda: seen("PATH_INFO" in request.keys())),
    "method": ([ask(), form("x"), ask(method="DELETE"), ask(method="PATCH")], lambda: request.method),
    "params": ([ask("?q=1"), form("a=1")], lambda: seen(pairs(request.params))),
    "path": ([ask("/a%20b//"), ask("/%C3%A9")], lambda: seen(request.path)),
    "path_shift": ([ask("/b/c")], lambda: seen(attempt(lambda: request.path_shift(1)), request.path, request.script_name)),
    "query": ([ask("?a=1&a=%C3%A9+x&n=5&&=c")], lambda: seen(request.query.a, request.query.getall("a"), request.query.zz,
        request.query.get("n", type=int), request.query.get("a", 7, type=int), pairs(request.query.decode()))),
    "query_string": ([ask("?a=%zz&b")], lambda: seen(request.query_string)),
    "remote_addr": ([ask(), ask(X_Forwarded_For="1.1.1.1, 2.2.2.2")], lambda: seen(request.remote_addr)),
    "remote_route": ([ask(), ask(X_Forwarded_For="1.1.1.1, 2.2.2.2")], lambda: seen(request.remote_route)),
    "route": ([ask()], lambda: seen(request.route.rule, type(request.route).__name__)),
    "script_name": ([ask()], lambda: seen(request.script_name)),
    "url": ([ask("/sub%20x?z=1"), ask(X_Forwarded_Proto="https", X_Forwarded_Host="h")], lambda: seen(request.url)),
    "url_args": ([ask()], lambda: seen(request.url_args)),
    "urlparts": ([ask("/sub%20x?z=1")], lambda: seen(tuple(request.urlparts))),
    "bind": ([ask()], lambda: seen(callable(request.bind))),
    "MEMFILE_MAX": ([ask()], lambda: seen(isinstance(request.MEMFILE_MAX, int))),
    "MAX_PARAMS": ([ask()], lambda: seen(getattr(request, "MAX_PARAMS", 0))),
}

RESPONSE = {
    "add_header": ([ask()], lambda: changed(lambda r: (r.add_header("X-A", "1"), r.add_header("x-a", "2")))),
    "apply": ([ask()], lambda: changed(lambda r: bottle.HTTPResponse("y", 202, X_A="1").apply(r))),
    "bad_headers": ([ask()], lambda: seen(sorted(response.bad_headers))),
    "bind": ([ask()], lambda: seen(callable(response.bind))),
    "body": ([ask()], lambda: seen(response.body)),
    "charset": ([ask()], lambda: changed(lambda r: setattr(r, "content_type", "text/plain; charset=latin1"), "é" + response.charset)),
    "close": ([ask()], lambda: seen(response.close())),
    "content_length": ([ask()], lambda: seen(response.content_length)),
    "content_type": ([ask()], lambda: changed(lambda r: setattr(r, "content_type", "text/csv"), "a,b")),
    "copy": ([ask()], lambda: changed(lambda r: r.set_header("X-A", "1")) and response.copy(cls=bottle.HTTPResponse)),
    "default_content_type": ([ask()], lambda: seen(response.default_content_type)),
    "default_status": ([ask()], lambda: seen(response.default_status)),
    "delete_cookie": ([ask()], lambda: changed(lambda r: r.delete_cookie("a", path="/p"))),
    "expires": ([ask()], lambda: changed(lambda r: setattr(r, "expires", datetime.datetime(2030, 1, 2)))),
    "get_header": ([ask()], lambda: seen(response.get_header("x", "d"))),
    "headerlist": ([ask()], lambda: seen(response.headerlist)),
    "headers": ([ask()], lambda: changed(lambda r: r.headers.update({"X-A": "é", "X-B": "2"}))),
    "iter_headers": ([ask()], lambda: seen(list(response.iter_headers()))),
    "set_cookie": ([ask()], lambda: changed(lambda r: (r.set_cookie("a", "v w", path="/p", max_age=5, httponly=True, secure=True,
        samesite="lax", domain="x.org", expires=datetime.datetime(2030, 1, 2)), r.set_cookie("s", "v", secret="k"),
        r.set_cookie("d", "x", max_age=datetime.timedelta(1)))) + str(attempt(lambda: response.set_cookie("b", 1)))),
    "set_header": ([ask()], lambda: changed(lambda r: (r.set_header("X-A", "1"), r.set_header("x-a", "2")))),
    "status": ([ask()], lambda: changed(lambda r: setattr(r, "status", 418)) + str(attempt(lambda: setattr(response, "status", 9)))),
    "status_code": ([ask()], lambda: seen(response.status_code)),
    "status_line": ([ask()], lambda: changed(lambda r: setattr(r, "status", "299 Odd Thing"), response.status_line)),
}

RANGES = [ask(), ask(Range="bytes=2-4"), ask(Range="bytes=-3"), ask(Range="bytes=100-"), ask(method="HEAD"),
    ask(If_Modified_Since="Fri, 01 Jan 2100 00:00:00 GMT")]
MODULE = {
    "HTTPError": ([ask()], lambda: bottle.HTTPError(401, "who <b>", WWW_Authenticate="Basic")),
    "HTTPResponse": ([ask()], lambda: made(lambda r: r.set_cookie("a", "b"))),
    "abort": ([ask()], lambda: attempt(lambda: bottle.abort(404, "nope <b>"))),
    "redirect": ([ask(), ask("/deep?x")], lambda: bottle.redirect("y?z=1")),
    "static_file": (RANGES + [ask("/.hidden"), ask("/missing"), ask("/../x"), ask("/sub")],
        lambda: bottle.static_file(request.path.partition("static_file")[2].strip("/") or "digits.txt", root=FILES)),
    "download": (RANGES, lambda: bottle.static_file("digits.txt", FILES, mimetype="text/x", download="t.txt", charset=None)),
    "template": ([ask()], lambda: bottle.template("Hi {{n}}\n% for i in range(2):\n{{!i}}\n% end", n="<b>")),
    "SimpleTemplate": ([ask()], lambda: bottle.SimpleTemplate("{{a}}").render(a="é")),
    "view": ([ask()], lambda: bottle.view("{{a}} {{b}}", b=2)(lambda: {"a": 1})()),
    "html_escape": ([ask()], lambda: bottle.html_escape("<'&\">")),
    "json_dumps": ([ask()], lambda: bottle.json_dumps({"a": [1]})),
    "cookie_encode": ([ask()], lambda: seen(hasattr(bottle, "cookie_encode"))),
    "parse_auth": ([ask()], lambda: seen(bottle.parse_auth("Basic dTpwOnE="))),
    "parse_date": ([ask()], lambda: seen(bottle.parse_date("Fri, 01 Jan 2100 00:00:00 GMT"))),
    "tob": ([ask()], lambda: bottle.tob("é")),
    "touni": ([ask()], lambda: bottle.touni(b"x")),
    "default_app": ([ask()], lambda: seen(type(bottle.default_app()).__name__)),
    "str": ([ask()], lambda: "hé"), "bytes": ([ask()], lambda: b"\xff"), "dict": ([ask()], lambda: {"a": [1, None]}),
    "none": ([ask()], lambda: None), "list": ([ask()], lambda: ["a", "bé"]), "generator": ([ask()], lambda: (x for x in "ab")),
    "file": ([ask()], lambda: io.BytesIO(b"content")), "raised": ([ask()], lambda: raised(bottle.HTTPResponse("raised", 403))),
    "inner": ([ask()], lambda: bottle.HTTPResponse({"a": 1}, 202)), "gone": ([ask()], lambda: bottle.HTTPResponse(status=204)),
}
CASES = {"request": REQUEST, "response": RESPONSE, "bottle": MODULE}


def raised(error):
    raise error


def run():
    kind, name = request.path.split("/")[1:3]
    return CASES[kind][name][1]()


def names():
    """What there is to be covered."""
    plain = {"default_status", "default_content_type"}
    of = lambda kind: [name for name in dir(kind) if not name.startswith("_")]  # noqa: E731
    return {"request": of(bottle.LocalRequest), "response": sorted(set(of(bottle.LocalResponse)) | plain)}


def requests():
    return [
        dict(asked, path="/%s/%s%s" % (kind, name, asked["path"]))
        for kind, cases in CASES.items() for name, (asks, _) in cases.items() for asked in asks
    ]
