"""The request that a function sees: Bottle's `request`, made from what came over the wire."""

import base64
import binascii
import io
import json
from urllib.parse import SplitResult, quote, unquote_to_bytes

from . import forms, signed
from .multidict import FormsDict, HeaderDict
from .response import HTTPError


class BaseRequest:
    """A request. It holds values only, so that it can be copied and kept."""

    def __init__(self, head=None, body=b"", remote=("127.0.0.1", 0), server=("127.0.0.1", 8080)):
        self._head = head
        self._raw = body
        self._remote = remote
        self._server = server
        self._cache = {}

    def _once(self, name, compute):
        if name not in self._cache:
            self._cache[name] = compute()
        return self._cache[name]

    @property
    def method(self):
        return self._head.method.upper()

    @property
    def headers(self):
        """The headers; names without case."""
        return self._once("headers", lambda: HeaderDict(self._head.headers))

    def get_header(self, name, default=None):
        return self.headers.get(name, default)

    @property
    def path(self):
        """The path, decoded, with one leading slash."""
        target = self._head.target.partition("?")[0]
        if "://" in target:
            target = "/" + target.split("://", 1)[1].partition("/")[2]
        return "/" + unquote_to_bytes(target.encode("latin-1")).decode("utf8", "replace").lstrip("/")

    @property
    def fullpath(self):
        return self.path

    script_name = "/"

    @property
    def query_string(self):
        return self._head.target.partition("?")[2]

    @property
    def query(self):
        return self._once("query", lambda: forms.parse_query(self.query_string))

    GET = query

    @property
    def body(self):
        """The body as a file, from its beginning."""
        file = self._once("body", lambda: io.BytesIO(self._raw))
        file.seek(0)
        return file

    @property
    def chunked(self):
        return self._head.chunked

    @property
    def content_type(self):
        return self._head.get("content-type", "").lower()

    @property
    def content_length(self):
        length = self._head.get("content-length")
        return int(length) if length else -1

    @property
    def json(self):
        """The body when it is JSON, else `None`."""
        if self.content_type.split(";", 1)[0].strip() not in ("application/json", "application/json-rpc"):
            return None
        return self._once("json", self._json)

    def _json(self):
        if not self._raw:
            return None
        try:
            return json.loads(self._raw)
        except ValueError as error:
            raise HTTPError(400, "Invalid JSON", exception=error) from None

    @property
    def POST(self):
        """Fields and files of a form."""
        return self._once("post", self._post)

    def _post(self):
        kind, options = forms.parse_options(self._head.get("content-type", ""))
        if not kind.startswith("multipart/"):
            return forms.parse_query(self._raw.decode("utf8", "replace"))  # whatever it says that it is
        post = FormsDict()
        for name, value in forms.parse_multipart(self._raw, options.get("boundary", "")):
            post.append(name, value)
        return post

    @property
    def forms(self):
        return self._only("forms", lambda value: not isinstance(value, forms.FileUpload))

    @property
    def files(self):
        return self._only("files", lambda value: isinstance(value, forms.FileUpload))

    def _only(self, name, wanted):
        def select():
            found = FormsDict()
            for key, value in self.POST.allitems():
                if wanted(value):
                    found.append(key, value)
            return found

        return self._once(name, select)

    @property
    def params(self):
        """Query and form values together."""

        def both():
            found = FormsDict()
            for key, value in [*self.query.allitems(), *self.forms.allitems()]:
                found.append(key, value)
            return found

        return self._once("params", both)

    @property
    def cookies(self):
        return self._once("cookies", self._cookies)

    def _cookies(self):
        from http.cookies import CookieError, SimpleCookie

        found = FormsDict()
        try:
            for morsel in SimpleCookie(self._head.get("cookie", "")).values():
                found.append(morsel.key, morsel.value)
        except CookieError:
            pass  # what cannot be read is not there
        return found

    def get_cookie(self, key, default=None, secret=None, digestmod="sha256"):
        value = self.cookies.get(key)
        if secret:
            value = signed.decode(key, value, secret, digestmod) if value else None
        return default if value is None else value

    @property
    def urlparts(self):
        scheme = self._head.get("x-forwarded-proto") or "http"
        host = self._head.get("x-forwarded-host") or self._head.get("host") or "%s:%s" % self._server[:2]
        return SplitResult(scheme, host, quote(self.path), self.query_string, "")

    @property
    def url(self):
        return self.urlparts.geturl()

    @property
    def is_xhr(self):
        return self._head.get("x-requested-with", "").lower() == "xmlhttprequest"

    is_ajax = is_xhr

    @property
    def auth(self):
        """User and password of Basic authentication, or `None`."""
        scheme, _, text = self._head.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            user, colon, password = base64.b64decode(text).decode("utf8").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        return (user, password) if colon else None

    @property
    def remote_route(self):
        """All addresses that the request came through, as the proxies say."""
        proxies = self._head.get("x-forwarded-for")
        return [address.strip() for address in proxies.split(",")] if proxies else [self._remote[0]]

    @property
    def remote_addr(self):
        route = self.remote_route
        return route[0] if route else None

    @property
    def environ(self):
        """The request as WSGI knows it."""
        return self._once("environ", self._environ)

    def _environ(self):
        head = self._head
        environ = {
            "REQUEST_METHOD": head.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": self.path.encode("utf8").decode("latin-1"),
            "QUERY_STRING": self.query_string,
            "CONTENT_TYPE": head.get("content-type", ""),
            "CONTENT_LENGTH": str(len(self._raw)),
            "SERVER_NAME": self._server[0],
            "SERVER_PORT": str(self._server[1]),
            "SERVER_PROTOCOL": "HTTP/" + head.version,
            "REMOTE_ADDR": self._remote[0],
            "REMOTE_PORT": str(self._remote[1]),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(self._raw),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in head.headers.items():
            if name not in ("content-type", "content-length"):
                environ["HTTP_" + name.upper().replace("-", "_")] = value
        return environ

    def get(self, name, default=None):
        return self.environ.get(name, default)

    def __getitem__(self, name):
        return self.environ[name]

    def __iter__(self):
        return iter(self.environ)

    def __len__(self):
        return len(self.environ)

    def keys(self):
        return self.environ.keys()

    def copy(self):
        return type(self)(self._head, self._raw, self._remote, self._server)

    def __repr__(self):
        return "<%s: %s %s>" % (type(self).__name__, self.method, self.url)
