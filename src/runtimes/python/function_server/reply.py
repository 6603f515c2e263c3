"""What a function returned or raised becomes an answer: status line, headers and bytes. Bottle's rules."""

import html
import json

from . import framework

FAILED = "Internal server error"
MOST_BYTES = 256 * 1024 * 1024  # of an answer that comes in pieces
_JSON = "application/json"


class Unanswerable(Exception):
    """The function returned what cannot be sent."""


def is_response(value):
    """Whether it is an answer of Bottle, ours or the one that the function brought along."""
    return any(kind.__name__ == "BaseResponse" and kind.__module__ == "bottle" for kind in type(value).__mro__)


def render(result, response, method):
    """The status line, the headers and the body. `response` is what the function could change beside returning."""
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
        body = _bytes(result, response)
    headers = list(response.headerlist)
    if kind is not None:
        headers = [pair for pair in headers if pair[0].lower() != "content-type"]
        headers.append(("Content-Type", kind))
    # A body that is not sent has the length that it would have.
    dropped = {"connection", "transfer-encoding"} | (set() if method == "HEAD" else {"content-length"})
    headers = [pair for pair in headers if pair[0].lower() not in dropped]
    return response.status_line, [_safe(pair) for pair in headers], body


def _is_error(result):
    return any(kind.__name__ == "HTTPError" for kind in type(result).__mro__)


def _bytes(result, response):
    if not result:
        return b""
    if isinstance(result, (bytes, bytearray, memoryview)):
        return bytes(result)
    if isinstance(result, str):
        return result.encode(response.charset)
    if hasattr(result, "read"):
        with_close = getattr(result, "close", None)
        try:
            return _bytes(result.read(MOST_BYTES), response)
        finally:
            if with_close:
                with_close()
    if isinstance(result, (list, tuple)) or hasattr(result, "__iter__"):
        return _joined(result, response)
    raise Unanswerable("unsupported response type: %s" % type(result).__name__)


def _joined(pieces, response):
    try:
        return _gathered(pieces, response)
    finally:
        if hasattr(pieces, "close"):
            pieces.close()


def _gathered(pieces, response):
    found = bytearray()
    for piece in pieces:
        if isinstance(piece, str):
            piece = piece.encode(response.charset)
        if not isinstance(piece, (bytes, bytearray)):
            raise Unanswerable("unsupported response type: %s of %s" % (type(pieces).__name__, type(piece).__name__))
        found += piece
        if len(found) > MOST_BYTES:
            raise Unanswerable("the answer is larger than %d bytes" % MOST_BYTES)
    return bytes(found)


def _safe(pair):
    name, value = pair
    if any(character in name + value for character in "\r\n\0"):
        raise Unanswerable("control characters in the header %r" % name)
    return name, value


def error_page(status_line, text):
    """The page of an error; `text` may hold anything."""
    status = html.escape(status_line)
    return (
        "<!DOCTYPE html>\n<html>\n<head><title>Error: %s</title></head>\n"
        "<body>\n<h1>Error: %s</h1>\n<pre>%s</pre>\n</body>\n</html>\n" % (status, status, html.escape(str(text)))
    )
