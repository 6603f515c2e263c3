"""What a function returned or raised becomes an answer: status line, headers and bytes. Bottle's rules."""

import json

from .response import BaseResponse, HTTPError, error_page

FAILED = "Internal server error"
MOST_BYTES = 256 * 1024 * 1024  # of an answer that comes in pieces
_JSON = "application/json"


class Unanswerable(Exception):
    """The function returned what cannot be sent."""


def is_response(value):
    """Whether it is an answer of ours, or one of the real Bottle that the function brought along."""
    if isinstance(value, BaseResponse):
        return True
    return any(kind.__name__ == "BaseResponse" and kind.__module__ == "bottle" for kind in type(value).__mro__)


def render(result, response, url):
    """The status line, the headers and the body. `response` is what the function could change beside returning."""
    kind = None
    depth = 0
    while is_response(result):
        if _is_error(result) and not isinstance(result.body, dict):
            response = result
            result = _page(result)
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
    headers = [pair for pair in headers if pair[0].lower() not in ("content-length", "connection", "transfer-encoding")]
    return response.status_line, [_safe(pair) for pair in headers], body


def _is_error(result):
    return any(kind.__name__ == "HTTPError" for kind in type(result).__mro__)


def _page(error):
    text = error.body if error.body is not None else ""
    return error_page(error.status_line, text)


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
    if isinstance(result, (list, tuple)) or hasattr(result, "__next__"):
        return _joined(result, response)
    raise Unanswerable("unsupported response type: %s" % type(result).__name__)


def _joined(pieces, response):
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


def failure(status, text):
    """An answer of the server's, as a value like any other."""
    return HTTPError(status, text)
