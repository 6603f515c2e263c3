"""What functions answer with, when a plain value will not do: Bottle's `HTTPResponse` and `HTTPError`."""

import datetime
import html
import time

from . import signed
from .message import REASONS, http_date
from .multidict import HeaderDict

HTTP_CODES = {**REASONS, 418: "I'm a teapot", 428: "Precondition Required", 429: "Too Many Requests"}
_STATUS_LINES = {code: "%d %s" % (code, reason) for code, reason in HTTP_CODES.items()}
_COOKIE_OPTIONS = ("max_age", "expires", "path", "domain", "secure", "httponly", "samesite", "comment", "version")
LONGEST_COOKIE = 4096


class BaseResponse:
    """Status, headers, cookies and body of an answer."""

    default_status = 200
    default_content_type = "text/html; charset=UTF-8"
    bad_headers = {
        204: ("Content-Type", "Content-Length"),
        304: (
            "Allow", "Content-Encoding", "Content-Language", "Content-Length", "Content-Range", "Content-Type",
            "Content-Md5", "Last-Modified",
        ),
    }

    def __init__(self, body="", status=None, headers=None, **more_headers):
        self._cookies = None
        self._headers = HeaderDict()
        self.body = body
        self.status = status or self.default_status
        pairs = headers.items() if isinstance(headers, dict) else headers or ()
        for name, value in [*pairs, *more_headers.items()]:
            self.add_header(name, value)

    @property
    def status(self):
        """The status line; set it to a code or to a line."""
        return self._status_line

    @status.setter
    def status(self, status):
        if isinstance(status, int):
            code, line = int(status), _STATUS_LINES.get(status)
        elif isinstance(status, str) and " " in status.strip():
            line = status.strip()
            first = line.split()[0]
            code = int(first) if first.isdigit() else 0
            if any(ord(character) < 32 for character in line):
                raise ValueError("Status line must not contain control characters.")
        else:
            raise ValueError("String status line without a reason phrase.")
        if not 100 <= code <= 999:
            raise ValueError("Status code out of range.")
        self._status_code = code
        self._status_line = line or "%d Unknown" % code

    @property
    def status_code(self):
        return self._status_code

    @property
    def status_line(self):
        return self._status_line

    @property
    def headers(self):
        return self._headers

    def __contains__(self, name):
        return name in self._headers

    def __getitem__(self, name):
        return self._headers[name]

    def __setitem__(self, name, value):
        self._headers[name] = value

    def __delitem__(self, name):
        del self._headers[name]

    def __iter__(self):
        return iter(self.body)

    def close(self):
        if hasattr(self.body, "close"):
            self.body.close()

    def get_header(self, name, default=None):
        return self._headers.get(name, default)

    def set_header(self, name, value):
        self._headers.replace(name, value)

    def add_header(self, name, value):
        self._headers.append(name, value)

    def iter_headers(self):
        return self.headerlist

    @property
    def headerlist(self):
        """All headers as pairs, as they are sent."""
        dropped = self.bad_headers.get(self._status_code, ())
        pairs = [(name, value) for name, value in self._headers.allitems() if name not in dropped]
        if "Content-Type" not in self._headers and "Content-Type" not in dropped:
            pairs.append(("Content-Type", self.default_content_type))
        if self._cookies:
            pairs += [("Set-Cookie", morsel.OutputString()) for morsel in self._cookies.values()]
        return [(name, value.encode("utf8").decode("latin-1")) for name, value in pairs]

    @property
    def charset(self):
        kind = self.content_type
        return kind.split("charset=")[-1].split(";")[0].strip() if "charset=" in kind else "UTF-8"

    @property
    def content_type(self):
        return self._headers.get("Content-Type", "")

    @content_type.setter
    def content_type(self, value):
        self._headers["Content-Type"] = value

    @property
    def content_length(self):
        return self._headers.get("Content-Length", -1, type=int)

    @content_length.setter
    def content_length(self, value):
        self._headers["Content-Length"] = value

    @property
    def expires(self):
        return self._headers.get("Expires")

    @expires.setter
    def expires(self, value):
        self._headers["Expires"] = http_date(_timestamp(value))

    def set_cookie(self, name, value, secret=None, digestmod="sha256", **options):
        """Adds a cookie; with a secret, any JSON value that is then signed."""
        if self._cookies is None:
            from http.cookies import SimpleCookie

            self._cookies = SimpleCookie()
        if secret:
            value = signed.encode(name, value, secret, digestmod)
        elif not isinstance(value, str):
            raise TypeError("Secret key required for non-string cookies.")
        if len(name) + len(value) > LONGEST_COOKIE - 299:
            raise ValueError("Content of cookie too long.")
        self._cookies[name] = value
        morsel = self._cookies[name]
        for key, option in options.items():
            key = {"maxage": "max_age", "same_site": "samesite"}.get(key.lower(), key.lower())
            if key not in _COOKIE_OPTIONS:
                raise ValueError("unknown cookie option: %s" % key)
            if key == "max_age" and isinstance(option, datetime.timedelta):
                option = int(option.total_seconds())
            if key == "expires":
                option = http_date(_timestamp(option))
            if key in ("secure", "httponly") and not option:
                continue
            if key == "samesite" and str(option).lower() not in ("lax", "none", "strict"):
                raise ValueError("Invalid value for SameSite")
            if option is not None:
                morsel[key.replace("_", "-")] = option

    def delete_cookie(self, key, **options):
        options["max_age"] = -1
        options["expires"] = 0
        self.set_cookie(key, "", **options)

    def copy(self, cls=None):
        copy = (cls or type(self))()
        self.apply(copy)
        copy._headers = HeaderDict()
        copy._headers.dict = {name: list(values) for name, values in self._headers.dict.items()}
        return copy

    def apply(self, other):
        """Makes `other` answer what this one answers."""
        other._status_code = self._status_code
        other._status_line = self._status_line
        other._headers = self._headers
        other._cookies = self._cookies
        other.body = self.body

    def __repr__(self):
        return "".join("%s: %s\n" % pair for pair in self.headerlist)


def _timestamp(value):
    if isinstance(value, datetime.datetime):
        return value.timestamp() if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc).timestamp()
    if isinstance(value, datetime.date):
        return time.mktime(value.timetuple())
    return float(value)


class BottleException(Exception):
    """What functions may catch to catch all of these."""


class HTTPResponse(BaseResponse, BottleException):
    """An answer that may be returned or raised."""

    def __init__(self, body="", status=None, headers=None, **more_headers):
        super().__init__(body, status, headers, **more_headers)


class HTTPError(HTTPResponse):
    """An answer that is a page about an error."""

    default_status = 500

    def __init__(self, status=None, body=None, exception=None, traceback=None, **more_headers):
        self.exception = exception
        self.traceback = traceback
        super().__init__(body, status, **more_headers)


def error_page(status_line, text):
    """The page of an error; `text` may hold anything."""
    status = html.escape(status_line)
    return (
        "<!DOCTYPE html>\n<html>\n<head><title>Error: %s</title></head>\n"
        "<body>\n<h1>Error: %s</h1>\n<pre>%s</pre>\n</body>\n</html>\n" % (status, status, html.escape(str(text)))
    )
