"""Bottle: the module that functions import, with `request` and `response` bound to the call of a thread.

Not here: its routes and servers, which this package replaces.
"""

import importlib.util
import io
import os
import sys
from urllib.parse import unquote_to_bytes

_NEEDED = ("BaseRequest", "LocalRequest", "LocalResponse", "Route", "Bottle", "request", "response")
_PACKAGES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib")

# Bottle's default of `MEMFILE_MAX` in bytes. A function that sets another one when it is loaded keeps it.
_DEFAULT_MEMFILE = 102400

bottle = None
_app = None
_route = None


def choose(function_name, memory_limit):
    """Selects the function's own Bottle if it has one, or else ours."""
    global bottle, _app, _route
    try:
        found = importlib.import_module("bottle")
    except BaseException:  # noqa: BLE001 the function gets the error if it imports Bottle
        found = None
    if found is None or not all(hasattr(found, name) for name in _NEEDED):
        found = _ours()
    bottle = found
    if bottle.BaseRequest.MEMFILE_MAX == _DEFAULT_MEMFILE:
        bottle.BaseRequest.MEMFILE_MAX = memory_limit
    _app = bottle.Bottle()
    _route = bottle.Route(_app, "/<:re:.*>", "ANY", lambda: None, name=function_name)


def _ours():
    spec = importlib.util.spec_from_file_location("bottle", os.path.join(_PACKAGES, "bottle.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def enter(head, body, remote, server):
    """Binds request and response of a call to this thread."""
    environ = _environ(head, body, remote, server)
    bottle.request.bind(environ)
    bottle.response.bind()
    return bottle.BaseRequest(environ), bottle.response


def go_on(environ):
    """Binds a call to this thread for the next part of its response."""
    bottle.request.bind(environ)
    bottle.response.bind()


def page(error):
    """Returns Bottle's page of an error, without a traceback."""
    return _app.default_error_handler(error)


def _environ(head, body, remote, server):
    """Builds the WSGI environment of a request."""
    target, _, query = head.target.partition("?")
    if "://" in target:
        target = "/" + target.split("://", 1)[1].partition("/")[2]
    environ = {
        "REQUEST_METHOD": head.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(target.encode("latin-1")).decode("utf8", "ignore"),
        "QUERY_STRING": query,
        "CONTENT_TYPE": head.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)) if body or "content-length" in head.headers else "",
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]),
        "SERVER_PROTOCOL": "HTTP/" + head.version,
        "REMOTE_ADDR": remote[0],
        "REMOTE_PORT": str(remote[1]),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "bottle.app": _app,
        "bottle.route": _route,
        "route.handle": _route,
        "route.url_args": {},
        "bottle.raw_path": target,
    }
    for name, value in head.headers.items():
        # The body is complete, regardless of its framing.
        if name not in ("content-type", "content-length", "transfer-encoding"):
            environ["HTTP_" + name.upper().replace("-", "_")] = value
    return environ
