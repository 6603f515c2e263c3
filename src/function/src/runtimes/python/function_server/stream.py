"""A streamed body: the pieces of a generator or file, and their framing. Never blocks."""

from .settings import log

PIECE = 64 * 1024  # bytes per read of a file


class Stream:
    """Invariant: `source` is closed once, by the thread that reads it."""

    def __init__(self, first, source, closed, charset):
        self._first = first
        self._source = source  # an iterator over the pieces after `first`
        self._closed = closed  # the object to close at the end, or `None`
        self._charset = charset
        self._chunked = False
        self._missing = None  # remaining bytes of the announced length, if there is one
        self.ended = False
        self.broken = False  # whether the connection must be closed because the body is incomplete

    def begin(self, head, length):
        """Selects the framing and returns its header. `length` is the length that the function set, or None."""
        self._missing = length
        if length is not None:
            return ("Content-Length", str(length))
        if head.version == "1.0":
            head.keep_alive = False
            return None
        self._chunked = True
        return ("Transfer-Encoding", "chunked")

    def next(self):
        """Returns the next bytes to send. `ended` is true after the last ones."""
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
        """Discards the remaining pieces. Runs code of the function."""
        self.ended = True
        closed, self._closed = self._closed, None
        if closed is not None:
            closed.close()


def encode(piece, charset, source):
    """Converts a piece to bytes."""
    if isinstance(piece, str):
        return piece.encode(charset)
    if isinstance(piece, (bytes, bytearray, memoryview)):
        return bytes(piece)
    raise TypeError("unsupported response type: %s of %s" % (type(source).__name__, type(piece).__name__))


def read(file):
    """Yields the pieces of an object with a method `read`."""
    while True:
        piece = file.read(PIECE)
        if not piece:
            return
        yield piece
