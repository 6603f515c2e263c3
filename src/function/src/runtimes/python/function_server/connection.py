"""A connection: reads bytes until a request is complete, and sends a response. Never blocks."""

from . import message

READING, BUSY, WRITING, LINGERING = range(4)
READ_SIZE = 64 * 1024
# How long the rest of a refused body is read before the connection is closed.
LINGER = 1.0  # seconds
HEAD_TIME = 20.0  # seconds to send a head
IDLE_TIME = 75.0  # seconds between two requests


class Connection:
    """Invariant: at most one call is in progress. Pipelined requests wait in the buffer."""

    def __init__(self, sock, local, remote, now):
        self.sock = sock
        self.remote = remote[:2]
        self.local = local[:2]
        self.buffer = bytearray()
        self.head = None
        self.body = None
        self.out = b""
        self.sent = 0
        self.state = READING
        self.watched = 0  # events registered with the selector
        self.closing = False  # close after the present response
        self.refused = False
        self.gone = False  # the client disconnected
        self.logged = False  # whether the present response was logged
        self.call = None  # the call whose response continues after the present part
        self.deadline = now + HEAD_TIME
        self.since = now  # start of reading a request or of sending a response
        self.moved = now  # last time when the loop transferred bytes

    def receive(self):
        """Reads available data. Returns false if the client disconnected."""
        try:
            data = self.sock.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        if self.state != LINGERING:
            self.buffer += data
        return bool(data)

    def next_request(self, limit):
        """Returns head and body of the next complete request, or `None`. Raises `Malformed`."""
        if self.head is None:
            end = message.find_head(self.buffer)
            if end == -1:
                # Empty lines before a request are accepted.
                while self.buffer.startswith(b"\r\n"):
                    del self.buffer[:2]
                return None
            self.head = message.parse_head(self.buffer[:end])
            del self.buffer[: end + 4]
            self.body = message.Body(self.head, limit)
            if self.head.expects_continue and not self.buffer:
                self.send_now(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not self.body.take(self.buffer):
            return None
        head, body = self.head, self.body.bytes()
        self.head = self.body = None
        return head, body

    def send_now(self, data):
        try:
            self.sock.send(data)
        except OSError:
            pass  # the next read reports the error

    def start_answer(self, data, closing):
        """Sends as much of the response as possible. Returns true if it is complete; otherwise `flush` continues."""
        self.closing = self.closing or closing
        self.out = data
        self.sent = 0
        return self.flush()

    def flush(self):
        """Returns true if everything was sent or the client disconnected. `closing` then tells whether to close."""
        try:
            view = memoryview(self.out)
            while self.sent < len(view):
                self.sent += self.sock.send(view[self.sent :])
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self.gone = True
            self.closing = True
            self.refused = False
        self.out = b""
        self.sent = 0
        return True

    def close(self):
        try:
            self.sock.close()
        except OSError:
            pass
