"""A body that is made while it is sent: the pieces of a generator or of a file, and how they are framed. Never waits."""

from .settings import log

PIECE = 64 * 1024  # bytes that are read of a file at once


class Stream:
    """Invariant: `source` is closed once, by the thread that makes the pieces."""

    def __init__(self, first, source, closed, charset):
        self._first = first
        self._source = source  # an iterator over what comes after `first`
        self._closed = closed  # what has to be closed at the end, or `None`
        self._charset = charset
        self._chunked = False
        self._missing = None  # bytes that were promised and have not come, if any were
        self.ended = False
        self.broken = False  # the client has to be told that something is missing

    def begin(self, head, length):
        """Chooses the framing; `length` is what the function has promised, if it has. The header that says so."""
        self._missing = length
        if length is not None:
            return ("Content-Length", str(length))
        if head.version == "1.0":
            head.keep_alive = False
            return None
        self._chunked = True
        return ("Transfer-Encoding", "chunked")

    def next(self):
        """The bytes to send next; after the last ones `ended` is true."""
        if self._first is not None:
            piece, self._first = self._first, None
            return self._framed(piece)
        for piece in self._source:
            if piece:
                return self._framed(encode(piece, self._charset, self._source))
        self.close()
        if self._missing:
            log("The function's answer is %d bytes shorter than its Content-Length" % self._missing)
            self.broken = True
        return b"0\r\n\r\n" if self._chunked else b""

    def _framed(self, piece):
        if self._chunked:
            return b"%x\r\n%b\r\n" % (len(piece), piece)
        if self._missing is not None:
            if len(piece) > self._missing:
                log("The function's answer is longer than its Content-Length: the rest is not sent")
                piece = piece[: self._missing]
                self._missing = 0
                self.close()
            else:
                self._missing -= len(piece)
        return bytes(piece)

    def close(self):
        """No more pieces are wanted. Runs code of the function."""
        self.ended = True
        closed, self._closed = self._closed, None
        if closed is not None:
            closed.close()


def encode(piece, charset, source):
    """A piece as bytes."""
    if isinstance(piece, str):
        return piece.encode(charset)
    if isinstance(piece, (bytes, bytearray, memoryview)):
        return bytes(piece)
    raise TypeError("unsupported response type: %s of %s" % (type(source).__name__, type(piece).__name__))


def read(file):
    """The pieces of what has a method `read`."""
    while True:
        piece = file.read(PIECE)
        if not piece:
            return
        yield piece
