"""The loop that owns all sockets. Functions run in threads, so they cannot block probes.

A connection belongs to the loop except while its call runs. The thread of the call sends the response and then
returns the connection.
"""

import collections
import os
import selectors
import socket
import sys
import threading
import time

from . import connection, message
from .calls import Call, Calls
from .connection import BUSY, LINGERING, READING, WRITING, Connection
from .metrics import CONTENT_TYPE
from .settings import log

MOST_CONNECTIONS = 1024
BACKLOG = 512
PATIENCE = 1.0  # seconds that a connection may be slow if all connections are in use
PROBES_UNTIL_READY = 2  # the startup probe and the readiness probe
TICK = 0.5  # seconds; precision of idle timeouts
# PUT and OPTIONS exceed the methods of the documented runtime, but APIRules can expose them.
ALLOWED = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")


class Loop:
    def __init__(self, settings, function, metrics):
        self._settings = settings
        self._metrics = metrics
        self._calls = Calls(settings, function, metrics, self._answer, self.stop)
        self._selector = selectors.DefaultSelector()
        self._connections = set()
        self._returned = collections.deque()  # connections whose response was sent or begun
        self._exit_code = None
        self._stop_at = None  # time of the stop; until then every response closes its connection
        self._retired = False
        self._accepting = False
        self._listener = None
        self._probes = 0  # answered ones
        self._waker, self._wakee = socket.socketpair()
        self._waker.setblocking(False)
        self._wakee.setblocking(False)
        self._selector.register(self._wakee, selectors.EVENT_READ, None)

    @property
    def wakeup_fd(self):
        """File descriptor for signal wake-ups."""
        return self._waker.fileno()

    def listen(self):
        """Opens the port. Without a host it listens on all IPv4 and IPv6 addresses."""
        at = (self._settings.host, self._settings.port)
        if self._settings.socket:
            return self._listen_on_socket(at)
        try:
            dual = not at[0]
            family = socket.AF_INET6 if dual or ":" in at[0] else socket.AF_INET
            self._listener = socket.create_server(at, family=family, backlog=BACKLOG, dualstack_ipv6=dual)
        except (OSError, ValueError):
            if at[0]:
                raise
            self._listener = socket.create_server(at, backlog=BACKLOG)
        self._listener.setblocking(False)
        self._accept_more(True)
        return self._listener.getsockname()

    def _listen_on_socket(self, at):
        """Listens on a Unix socket and returns the port, which another process owns."""
        try:
            os.unlink(self._settings.socket)  # from an earlier process
        except FileNotFoundError:
            pass
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._settings.socket)
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        self._accept_more(True)
        return at

    def retire(self, delay):
        """Stops after a delay in seconds, or at once at the second call. Called by signal handlers.

        Proxies may still route requests here until they have observed the pod's end. These are answered.
        """
        self._stop_at = time.monotonic() + (delay if self._stop_at is None else 0)
        self._wake()

    def stop(self, code):
        """Stops accepting, finishes the calls in progress, and exits with this code. Called by any thread or signal
        handler.
        """
        if self._exit_code is None or code:
            self._exit_code = code
        self._wake()

    def run(self):
        """Serves until it is stopped. Returns the exit code."""
        tick = time.monotonic() + TICK
        while True:
            now = time.monotonic()
            deadline = self._calls.next_deadline()
            is_idle = not self._connections and deadline is None and (self._accepting or self._listener is None)
            wait = None if is_idle and self._stop_at is None else tick - now
            if self._stop_at is not None:
                wait = min(wait, self._stop_at - now)
            if deadline is not None:
                wait = min(wait, deadline - now)
            events = self._selector.select(None if wait is None else max(wait, 0))
            now = time.monotonic()
            self._take_back(now)
            for key, _ in events:
                if key.fileobj is self._wakee:
                    self._drain_wakeups()
                elif key.fileobj is self._listener:
                    self._accept(now)
                else:
                    self._advance(key.data, now)
            self._take_back(now)
            self._calls.expire(now)
            if now >= tick:
                tick = now + TICK
                self._close_overdue(now)
            if self._stop_at is not None and self._exit_code is None:
                self._begin_to_stop(now)
            if self._exit_code is not None and self._is_drained():
                return self._exit_code

    def _begin_to_stop(self, now):
        if not self._retired:
            self._retired = True
            self._calls.drain()
            if now < self._stop_at:
                sys.stdout.write("Shutting down..\n")
                sys.stdout.flush()
                return
        if now >= self._stop_at:
            self.stop(0)

    def _wake(self):
        try:
            self._waker.send(b"\0")
        except OSError:
            pass  # full, so a wake-up is pending

    def _drain_wakeups(self):
        try:
            while len(self._wakee.recv(4096)) == 4096:
                pass
        except OSError:
            pass

    def _is_drained(self):
        if self._listener is not None:
            self._accept_more(False)
            self._listener.close()
            self._listener = None
            self._calls.drain()
            sys.stdout.write("Shutting down..\n")
            sys.stdout.flush()
        for conn in [conn for conn in self._connections if conn.state == READING and conn.head is None]:
            self._close(conn)
        in_flight = (conn for conn in self._connections if conn.state in (BUSY, WRITING) or conn.head is not None)
        return not self._calls and next(in_flight, None) is None

    def _accept_more(self, wanted):
        if wanted and not self._accepting and self._listener is not None:
            self._selector.register(self._listener, selectors.EVENT_READ, None)
        elif not wanted and self._accepting:
            self._selector.unregister(self._listener)
        self._accepting = wanted

    def _accept(self, now):
        for _ in range(64):
            least = None
            if len(self._connections) >= MOST_CONNECTIONS:
                least = self._least_wanted(now)
                if least is None:
                    self._accept_more(False)
                    return
            try:
                sock, remote = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                log("A connection could not be accepted: %s" % error)
                self._accept_more(False)  # out of file descriptors; the next tick retries
                return
            if least is not None:
                self._close(least)
            sock.setblocking(False)
            if sock.family == socket.AF_UNIX:
                # Only local clients can connect.
                local, remote = (self._settings.host, self._settings.port), ("127.0.0.1", 0)
            else:
                local = sock.getsockname()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            conn = Connection(sock, local, remote, now)
            self._connections.add(conn)
            self._watch(conn, selectors.EVENT_READ)

    def _least_wanted(self, now):
        """Returns the connection to close for a new one if all are in use, or `None` if none may be closed.

        It is an idle one, else a stalled one, else the one that is slow for the longest time. A client with many
        slow connections therefore cannot exclude others.
        """
        worst = None
        for conn in self._connections:
            if conn.state == BUSY or now - conn.since < PATIENCE:
                continue
            is_idle = conn.state == READING and conn.head is None and not conn.buffer
            stalled = now - conn.moved >= PATIENCE
            rank = (is_idle, stalled, now - (conn.moved if is_idle or stalled else conn.since))
            if worst is None or rank > worst[0]:
                worst = (rank, conn)
        return None if worst is None else worst[1]

    def _watch(self, conn, events):
        if conn.watched == events:
            return
        if events == 0:
            self._selector.unregister(conn.sock)
        elif conn.watched == 0:
            self._selector.register(conn.sock, events, conn)
        else:
            self._selector.modify(conn.sock, events, conn)
        conn.watched = events

    def _close(self, conn):
        if conn in self._connections:
            self._watch(conn, 0)
            self._connections.discard(conn)
            conn.close()
            if conn.call is not None:
                self._calls.abandon(conn.call)

    def _advance(self, conn, now):
        """Handles an event of a connection."""
        if conn not in self._connections:
            return
        conn.moved = now
        if conn.state == WRITING:
            if conn.flush():
                self._answered(conn, now)
        elif conn.state == BUSY:
            self._watch(conn, 0)  # pipelined data waits in the kernel until the response is sent
        else:
            if conn.state == READING and conn.head is None and not conn.buffer:
                conn.since = now
            if not conn.receive():
                self._close(conn)
            elif conn.state == READING:
                self._read(conn, now)

    def _read(self, conn, now):
        fresh = conn.head is None
        try:
            request = conn.next_request(self._settings.body_limit)
        except message.Malformed as error:
            self._refuse(conn, error, now)
            return
        if request is None:
            if fresh and conn.head is not None:
                conn.deadline = now + self._settings.timeout  # for the body
            elif conn.head is None and conn.buffer and conn.deadline > now + connection.HEAD_TIME:
                conn.deadline = now + connection.HEAD_TIME
            return
        head, body = request
        self._dispatch(conn, head, body, now)

    def _dispatch(self, conn, head, body, now):
        conn.state = BUSY
        is_ending = self._exit_code is not None or self._stop_at is not None
        if is_ending:
            head.keep_alive = False
        conn.closing = not head.keep_alive
        path = head.target.partition("?")[0]
        if head.method in ("GET", "HEAD") and path in ("/healthz", "/metrics"):
            if path == "/healthz" and is_ending:
                data = message.simple(503, "Shutting down", head=head, keep_alive=False)
            elif path == "/healthz":
                data = message.simple(200, "OK", head=head, keep_alive=head.keep_alive)
                self._probes += 1
            else:
                data = message.simple(200, self._metrics.text(), CONTENT_TYPE, head, head.keep_alive)
            self._send(conn, data, now)
            if self._probes == PROBES_UNTIL_READY:
                self._probes += 1
                threading.Thread(target=self._calls.prepare, daemon=True).start()
        elif head.method not in ALLOWED:
            from .reply import error_page

            page = error_page("405 Method Not Allowed", "Method not allowed.")
            allow = ("Allow", "DELETE,GET,OPTIONS,PATCH,POST,PUT")
            self._send(conn, message.simple(405, page, head=head, keep_alive=head.keep_alive, extra=(allow,)), now)
        elif self._calls.prepare():
            now = time.monotonic()  # the call's time begins when it can run
            self._calls.submit(Call(conn, head, body, now + self._settings.timeout))

    def _refuse(self, conn, error, now):
        conn.refused = True
        conn.state = BUSY
        conn.buffer.clear()
        text = "%s: %s" % (message.REASONS.get(error.status, "Error"), error.text)
        self._send(conn, message.simple(error.status, text, "text/plain; charset=UTF-8"), now, closing=True)

    def _send(self, conn, data, now, closing=False):
        if conn.start_answer(data, closing):
            self._answered(conn, now)
        else:
            self._keep_writing(conn, now)

    def _keep_writing(self, conn, now):
        conn.state = WRITING
        conn.since = conn.moved = now
        conn.deadline = now + self._settings.timeout
        self._watch(conn, selectors.EVENT_WRITE)

    def _answered(self, conn, now):
        conn.since = conn.moved = now
        if conn.call is not None and not conn.gone:
            call, conn.call = conn.call, None
            conn.state = BUSY
            self._watch(conn, 0)
            self._calls.resume(call)
        elif conn.closing and conn.refused:
            # The rest of a refused body is dropped. Otherwise a reset could destroy the response.
            conn.state = LINGERING
            conn.deadline = now + connection.LINGER
            self._watch(conn, selectors.EVENT_READ)
        elif conn.closing or self._exit_code is not None:
            self._close(conn)
        else:
            conn.state = READING
            conn.deadline = now + connection.IDLE_TIME
            self._watch(conn, selectors.EVENT_READ)
            if conn.buffer:
                self._read(conn, now)

    def _answer(self, call, data, more):
        """Sends a response or a part of it. Called by the thread of the call.

        Returns true if everything was sent and the thread should produce more. Otherwise the connection is returned.
        """
        conn = call.connection
        if self._settings.access_log and not conn.logged:
            log_access(conn, call.head, data, more)
        conn.logged = more
        done = conn.start_answer(data, not call.head.keep_alive)
        if done and more:
            return True
        conn.call = call if more else None
        self._returned.append((conn, done))
        self._wake()
        return False

    def _take_back(self, now):
        while self._returned:
            conn, done = self._returned.popleft()
            if done:
                self._answered(conn, now)
            else:
                self._keep_writing(conn, now)

    def _close_overdue(self, now):
        for conn in [conn for conn in self._connections if conn.state != BUSY and conn.deadline <= now]:
            if conn.state == READING and (conn.head is not None or conn.buffer):
                self._refuse(conn, message.Malformed(408, "the request did not come in time"), now)
            else:
                self._close(conn)
        if self._listener is not None:
            self._accept_more(True)


def log_access(conn, head, data, more):
    """Logs a line in Apache's combined format."""
    stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime())
    size = "-" if more else str(len(data) - data.find(b"\r\n\r\n") - 4)

    import json

    def quoted(text):
        return json.dumps(text)

    line = quoted("%s %s HTTP/%s" % (head.method, head.target, head.version))
    referrer, agent = quoted(head.get("referer", "-")), quoted(head.get("user-agent", "-"))
    status = data[9:12].decode("ascii")
    sys.stdout.write("%s - - [%s] %s %s %s %s %s\n" % (conn.remote[0], stamp, line, status, size, referrer, agent))
    sys.stdout.flush()
