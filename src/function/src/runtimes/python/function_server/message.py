"""Parses and builds HTTP/1.1 messages. Strict and bounded, without sockets."""

import re
import time
from http import HTTPStatus

LONGEST_HEAD = 16 * 1024  # bytes; as in Node.js
MOST_HEADERS = 128
MOST_TRAILERS = 32
LONGEST_CHUNK_LINE = 1024
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_TARGET = re.compile(rb"[\x21-\x7e\x80-\xff]+\Z")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*\Z")
REASONS = {status.value: status.phrase for status in HTTPStatus}
REASONS[413] = "Request Entity Too Large"


class Malformed(Exception):
    """A malformed request, answered with `status` and `text`. The connection is closed."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status
        self.text = text


class Head:
    """Start line and headers of a request. Header names are in lower case."""

    __slots__ = ("method", "target", "version", "headers", "length", "chunked", "keep_alive", "expects_continue")

    def get(self, name, default=None):
        return self.headers.get(name, default)


def find_head(buffer):
    """Returns the end of the head in the buffer, or -1 if it is incomplete."""
    end = buffer.find(b"\r\n\r\n", 0, LONGEST_HEAD + 4)
    if end == -1 and len(buffer) > LONGEST_HEAD:
        raise Malformed(431, "the head of the request is too large")
    return end


def parse_head(data):
    """Parses the head of a request, without its final empty line."""
    lines = bytes(data).split(b"\r\n")
    parts = lines[0].split(b" ")
    if len(parts) != 3 or not _TOKEN.match(parts[0]) or not _TARGET.match(parts[1]):
        raise Malformed(400, "malformed request line")
    if parts[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise Malformed(505 if parts[2].startswith(b"HTTP/") else 400, "unknown version of HTTP")
    if len(lines) > MOST_HEADERS + 1:
        raise Malformed(431, "too many headers")
    head = Head()
    head.method = parts[0].decode("ascii")
    head.target = parts[1].decode("latin-1")
    head.version = parts[2][5:].decode("ascii")
    head.headers = _headers(lines[1:])
    _framing(head)
    return head


def _headers(lines):
    headers = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        value = value.strip(b" \t")
        if not colon or not _TOKEN.match(name) or not _VALUE.match(value):
            raise Malformed(400, "malformed header")
        key = name.decode("ascii").lower()
        text = value.decode("latin-1")
        old = headers.get(key)
        if old is None:
            headers[key] = text
        elif key in ("content-length", "host", "transfer-encoding", "content-type"):
            if old != text or key != "content-length":
                raise Malformed(400, "header given twice: " + key)
        else:
            headers[key] = old + ("; " if key == "cookie" else ", ") + text
    return headers


def _framing(head):
    headers = head.headers
    if head.version == "1.1" and "host" not in headers:
        raise Malformed(400, "the Host header is missing")
    head.length = 0
    head.chunked = False
    coding = headers.get("transfer-encoding")
    length = headers.get("content-length")
    if coding is not None:
        if length is not None or head.version == "1.0":
            raise Malformed(400, "ambiguous length")
        if coding.lower() != "chunked":
            raise Malformed(501, "unknown transfer encoding")
        head.chunked = True
    elif length is not None:
        if not (length.isascii() and length.isdigit()) or len(length) > 15:
            raise Malformed(400, "malformed Content-Length")
        head.length = int(length)
    options = [option.strip() for option in headers.get("connection", "").lower().split(",")]
    head.keep_alive = "close" not in options and (head.version == "1.1" or "keep-alive" in options)
    expect = headers.get("expect")
    head.expects_continue = False
    if expect is not None and head.version == "1.1":
        if expect.lower() != "100-continue":
            raise Malformed(417, "unknown expectation")
        head.expects_continue = True


class Body:
    """Reads a body from a connection's buffer, with any framing. `limit` is in bytes."""

    def __init__(self, head, limit):
        if head.length > limit:
            raise Malformed(413, "the body is larger than %d bytes" % limit)
        self._limit = limit
        self._chunked = head.chunked
        self._missing = 0 if head.chunked else head.length  # remaining bytes of the chunk or body
        self._state = "size" if head.chunked else "plain"
        self._data = bytearray()
        self._trailers = 0

    def take(self, buffer):
        """Consumes bytes of the body. Returns true at its end."""
        if not self._chunked:
            self._move(buffer)
            return self._missing == 0
        while True:
            if self._state == "data":
                self._move(buffer)
                if self._missing > 0:
                    return False
                self._state = "gap"
            line = self._line(buffer)
            if line is None:
                return False
            if self._state == "gap":
                if line:
                    raise Malformed(400, "malformed chunk")
                self._state = "size"
            elif self._state == "size":
                self._start_chunk(line)
            elif not line:  # end of the trailers
                return True
            else:
                self._trailer(line)

    def bytes(self):
        return bytes(self._data)

    def _move(self, buffer):
        part = buffer[: self._missing]
        self._data += part
        self._missing -= len(part)
        del buffer[: len(part)]

    @staticmethod
    def _line(buffer):
        end = buffer.find(b"\r\n", 0, LONGEST_CHUNK_LINE)
        if end == -1:
            if len(buffer) > LONGEST_CHUNK_LINE:
                raise Malformed(400, "malformed chunk")
            return None
        line = bytes(buffer[:end])
        del buffer[: end + 2]
        return line

    def _trailer(self, line):
        """Checks a trailer and drops it. Their number is limited."""
        self._trailers += 1
        if self._trailers > MOST_TRAILERS:
            raise Malformed(431, "too many trailers")
        _headers([line])

    def _start_chunk(self, line):
        size = line.partition(b";")[0].strip(b" \t")
        if not re.match(rb"[0-9a-fA-F]{1,12}\Z", size) or not _VALUE.match(line):
            raise Malformed(400, "malformed chunk")
        self._missing = int(size, 16)
        if len(self._data) + self._missing > self._limit:
            raise Malformed(413, "the body is larger than %d bytes" % self._limit)
        self._state = "data" if self._missing else "trailer"


_date = (0, "")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def http_date(seconds):
    """Formats a time for HTTP, independent of the locale."""
    at = time.gmtime(seconds)
    return "%s, %02d %s %d %02d:%02d:%02d GMT" % (
        _DAYS[at.tm_wday], at.tm_mday, _MONTHS[at.tm_mon - 1], at.tm_year, at.tm_hour, at.tm_min, at.tm_sec
    )


def _now():
    global _date
    second = int(time.time())
    if _date[0] != second:
        _date = (second, http_date(second))
    return _date[1]


def build(status_line, headers, body, head=None, keep_alive=False):
    """Builds a response. `head` is the request's, `headers` a list of pairs. Without a body there is no length."""
    length = None
    if body is not None and not any(name.lower() == "content-length" for name, _ in headers):
        length = ("Content-Length", str(len(body)))
    text = start(status_line, headers, length, head, keep_alive)
    if body is None or _has_no_body(status_line) or (head is not None and head.method == "HEAD"):
        return text
    return text + body


def start(status_line, headers, framing, head=None, keep_alive=False):
    """Builds the head of a response. `framing` is the header for the end of the body, or `None`."""
    lines = ["HTTP/1.1 " + status_line]
    if not any(name.lower() == "date" for name, _ in headers):
        lines.append("Date: " + _now())
    for name, value in headers:
        lines.append(name + ": " + value)
    if framing is not None and not _has_no_body(status_line):
        lines.append("%s: %s" % framing)
    if not keep_alive:
        lines.append("Connection: close")
    elif head is not None and head.version == "1.0":
        lines.append("Connection: keep-alive")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _has_no_body(status_line):
    code = int(status_line[:3])
    return code < 200 or code in (204, 304)


def simple(status, text, content_type="text/html; charset=UTF-8", head=None, keep_alive=False, extra=()):
    """Builds a response of the server itself."""
    line = "%d %s" % (status, REASONS.get(status, "Unknown"))
    headers = [("Content-Type", content_type), *extra]
    return build(line, headers, text.encode("utf-8"), head, keep_alive)
