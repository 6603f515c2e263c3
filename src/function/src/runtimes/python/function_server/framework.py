"""Bottle itself: the module that functions import, and its `request` and `response` bound to the call of a thread.

Deliberately absent: its routes and servers; what is below is ours.
"""

import importlib
import importlib.util
import io
import os
import sys
from urllib.parse import unquote_to_bytes

_NEEDED = ("BaseRequest", "LocalRequest", "LocalResponse", "Route", "Bottle", "request", "response")
_PACKAGES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib")

bottle = None
_app = None
_route = None


def choose(function_name, memory_limit):
    """The function's own Bottle if it has brought one, else ours. To be called before the function's module is loaded."""
    global bottle, _app, _route
    try:
        found = importlib.import_module("bottle")
    except Exception:  # noqa: BLE001 the function will see it, if it imports that
        found = None
    if found is None or not all(hasattr(found, name) for name in _NEEDED):
        found = _ours()
    bottle = found
    bottle.BaseRequest.MEMFILE_MAX = memory_limit
    _app = bottle.Bottle()
    _route = bottle.Route(_app, "/<:re:.*>", "ANY", lambda: None, name=function_name)


def _ours():
    spec = importlib.util.spec_from_file_location("bottle", os.path.join(_PACKAGES, "bottle.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def enter(head, body, remote, server):
    """From now on this thread serves this call: its request and its response."""
    environ = _environ(head, body, remote, server)
    bottle.request.bind(environ)
    bottle.response.bind()
    return bottle.BaseRequest(environ), bottle.response


def go_on(environ):
    """From now on this thread makes more of this call's answer."""
    bottle.request.bind(environ)
    bottle.response.bind()


def page(error):
    """The page that Bottle answers an error with; without traces."""
    return _app.default_error_handler(error)


def _environ(head, body, remote, server):
    """The request as WSGI and Bottle know it."""
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
        # The body is whole, however it came.
        if name not in ("content-type", "content-length", "transfer-encoding"):
            environ["HTTP_" + name.upper().replace("-", "_")] = value
    return environ
