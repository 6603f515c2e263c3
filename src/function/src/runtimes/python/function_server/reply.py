"""Converts a function's result or exception to status line, headers and bytes, by Bottle's rules."""

import html
import json

from . import framework
from .stream import Stream, encode, read

FAILED = "Internal server error"
_JSON = "application/json"


class Unanswerable(Exception):
    """The function's result has an unsupported type."""


def is_response(value):
    """Whether a value is a response of any Bottle, ours or the function's."""
    return any(kind.__name__ == "BaseResponse" and kind.__module__ == "bottle" for kind in type(value).__mro__)


def render(result, response, method):
    """Returns the status line, the headers, the body (bytes or a [`Stream`]) and the length that the function set.

    `response` holds the function's changes beside its result. A body of `None` is not sent and has an unknown
    length.
    """
    kind = None
    depth = 0
    while is_response(result):
        if _is_error(result) and not isinstance(result.body, dict):
            response = result
            result = framework.page(result)
            break
        response, result = result, result.body
        depth += 1
        if depth > 8:
            raise Unanswerable("answers within answers")
    if isinstance(result, dict):
        body, kind = json.dumps(result).encode("utf8"), _JSON
    else:
        body = _body(result, response)
    try:
        return _with_headers(body, kind, response, method)
    except BaseException:
        if isinstance(body, Stream):
            body.close()
        raise


def _with_headers(body, kind, response, method):
    headers = list(response.headerlist)
    if kind is not None:
        headers = [pair for pair in headers if pair[0].lower() != "content-type"]
        headers.append(("Content-Type", kind))
    length = None
    if isinstance(body, Stream):
        if method == "HEAD" or response.status_code in (204, 304):
            body.close()
            body = None
        else:
            length = _promised(headers)
    # A response to HEAD keeps the length of the omitted body.
    dropped = {"connection", "transfer-encoding"} | (set() if method == "HEAD" else {"content-length"})
    headers = [pair for pair in headers if pair[0].lower() not in dropped]
    return response.status_line, [_safe(pair) for pair in headers], body, length


def _promised(headers):
    values = [value for name, value in headers if name.lower() == "content-length"]
    if len(values) == 1 and values[0].isascii() and values[0].isdigit() and len(values[0]) <= 15:
        return int(values[0])
    return None


def _is_error(result):
    return any(kind.__name__ == "HTTPError" for kind in type(result).__mro__)


def _body(result, response):
    if not result:
        return b""
    if isinstance(result, (bytes, bytearray, memoryview)):
        return bytes(result)
    if isinstance(result, str):
        return result.encode(response.charset)
    if isinstance(result, (list, tuple)):
        return b"".join([encode(piece, response.charset, result) for piece in result])
    if hasattr(result, "read"):
        return _begun(read(result), result, response)
    if hasattr(result, "__iter__"):
        return _begun(iter(result), result, response)
    raise Unanswerable("unsupported response type: %s" % type(result).__name__)


def _begun(pieces, result, response):
    """Waits for the first piece. Until then the function can change its response or fail."""
    closed = result if hasattr(result, "close") else None
    try:
        for first in pieces:
            if is_response(first) and isinstance(first, BaseException):
                raise first
            if first:
                return Stream(encode(first, response.charset, result), pieces, closed, response.charset)
    except BaseException:
        if closed is not None:
            closed.close()
        raise
    if closed is not None:
        closed.close()
    return b""


def _safe(pair):
    name, value = pair
    if any(character in name + value for character in "\r\n\0"):
        raise Unanswerable("control characters in the header %r" % name)
    return name, value


def error_page(status_line, text):
    """Builds an error page. `text` may contain any characters."""
    status = html.escape(status_line)
    return (
        "<!DOCTYPE html>\n<html>\n<head><title>Error: %s</title></head>\n"
        "<body>\n<h1>Error: %s</h1>\n<pre>%s</pre>\n</body>\n</html>\n" % (status, status, html.escape(str(text)))
    )
