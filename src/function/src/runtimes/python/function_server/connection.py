"""One connection: bytes come in until a request is whole, and an answer goes out. Never waits."""

from . import message

READING, BUSY, WRITING, LINGERING = range(4)
READ_SIZE = 64 * 1024
# What a client may still send of a refused body before its connection is cut.
LINGER = 1.0  # seconds
HEAD_TIME = 20.0  # seconds to send a head
IDLE_TIME = 75.0  # seconds between two requests


class Connection:
    """Invariant: at most one call is in flight; what a client sends ahead waits in the buffer."""

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
        self.watched = 0  # events that the selector looks out for
        self.closing = False  # after the answer that is going out
        self.refused = False
        self.gone = False  # nothing reaches the client any more
        self.logged = False  # the answer that is going out
        self.call = None  # whose answer goes on when what is going out is sent
        self.deadline = now + HEAD_TIME
        self.since = now  # when it began to read a request or to send an answer
        self.moved = now  # when bytes last came or went while the loop had it

    def receive(self):
        """Reads what there is; false when the client is gone."""
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
        """The head and the body of the next request when it is whole, else `None`; raises `Malformed`."""
        if self.head is None:
            end = message.find_head(self.buffer)
            if end == -1:
                # Empty lines before a request are tolerated.
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
            pass  # the next read will tell

    def start_answer(self, data, closing):
        """Sends as much of the answer as fits; true when that was all. False leaves the rest to `flush`."""
        self.closing = self.closing or closing
        self.out = data
        self.sent = 0
        return self.flush()

    def flush(self):
        """True when everything is sent or the client is gone, after which `closing` says whether to close."""
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
