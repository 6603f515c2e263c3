"""The loop that owns all sockets. Functions run in threads, so nothing that they do can keep it from answering probes.

A connection belongs to the loop except while its call runs: then the thread that has the answer sends it, and gives
the connection back.
"""

import collections
import json
import os
import selectors
import socket
import sys
import time

from . import connection, message
from .calls import Call, Calls
from .connection import BUSY, LINGERING, READING, WRITING, Connection
from .metrics import CONTENT_TYPE
from .reply import error_page
from .settings import log

MOST_CONNECTIONS = 1024
BACKLOG = 512
PATIENCE = 1.0  # seconds that a connection may be slow when there are too many
TICK = 0.5  # seconds; how exactly idle connections are timed
# PUT and OPTIONS are more than the documented runtime took, which APIRules could expose all the same.
ALLOWED = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")


class Loop:
    def __init__(self, settings, function, metrics):
        self._settings = settings
        self._metrics = metrics
        self._calls = Calls(settings, function, metrics, self._answer, self.stop)
        self._selector = selectors.DefaultSelector()
        self._connections = set()
        self._returned = collections.deque()  # connections whose answer has been sent, or was begun
        self._exit_code = None
        self._stop_at = None  # when it stops; until then every answer is the last of its connection
        self._retired = False
        self._accepting = False
        self._listener = None
        self._waker, self._wakee = socket.socketpair()
        self._waker.setblocking(False)
        self._wakee.setblocking(False)
        self._selector.register(self._wakee, selectors.EVENT_READ, None)

    @property
    def wakeup_fd(self):
        """Where signals are announced."""
        return self._waker.fileno()

    def listen(self):
        """Opens the port; without a host on all addresses of both families, where the machine has both."""
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
        """Listens on a Unix socket; somebody else has the port, which is returned."""
        try:
            os.unlink(self._settings.socket)  # that of an earlier process
        except FileNotFoundError:
            pass
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._settings.socket)
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        self._accept_more(True)
        return at

    def retire(self, delay):
        """Stops after so many seconds, at once when that was asked for before. From a signal.

        Proxies go on leading callers here until they have heard that the pod ends; these are answered.
        """
        self._stop_at = time.monotonic() + (delay if self._stop_at is None else 0)
        self._wake()

    def stop(self, code):
        """Stops accepting, lets the calls in flight finish, and ends with this code. From any thread or signal."""
        if self._exit_code is None or code:
            self._exit_code = code
        self._wake()

    def run(self):
        """Serves until it is stopped; returns the exit code."""
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
            pass  # it is full, so a wake-up is on its way

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
                self._accept_more(False)  # out of files; the next tick tries again
                return
            if least is not None:
                self._close(least)
            sock.setblocking(False)
            if sock.family == socket.AF_UNIX:
                # Whoever asks is on this machine.
                local, remote = (self._settings.host, self._settings.port), ("127.0.0.1", 0)
            else:
                local = sock.getsockname()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            conn = Connection(sock, local, remote, now)
            self._connections.add(conn)
            self._watch(conn, selectors.EVENT_READ)

    def _least_wanted(self, now):
        """The connection that makes room for another when all are taken, or `None` when each deserves its place.

        An idle one; else one that has not moved; else the one that has been slow for the longest: whoever opens many
        connections and uses them slowly keeps nobody else out.
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
        """The selector says that something is to be done for the connection."""
        if conn not in self._connections:
            return
        conn.moved = now
        if conn.state == WRITING:
            if conn.flush():
                self._answered(conn, now)
        elif conn.state == BUSY:
            self._watch(conn, 0)  # sent ahead; it waits in the kernel until the answer is out
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
            else:
                data = message.simple(200, self._metrics.text(), CONTENT_TYPE, head, head.keep_alive)
            self._send(conn, data, now)
        elif head.method not in ALLOWED:
            page = error_page("405 Method Not Allowed", "Method not allowed.")
            allow = ("Allow", "DELETE,GET,OPTIONS,PATCH,POST,PUT")
            self._send(conn, message.simple(405, page, head=head, keep_alive=head.keep_alive, extra=(allow,)), now)
        else:
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
            # The rest of a refused body is read and dropped, or the answer could be lost to a reset.
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
        """Sends a call's answer, or a part of it when there will be more; called by the thread that has it.

        True when all of it is sent and the thread is to make more; else the connection is given back.
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
    """One line in Apache's combined format."""
    stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime())
    size = "-" if more else str(len(data) - data.find(b"\r\n\r\n") - 4)

    def quoted(text):
        return json.dumps(text)

    line = quoted("%s %s HTTP/%s" % (head.method, head.target, head.version))
    referrer, agent = quoted(head.get("referer", "-")), quoted(head.get("user-agent", "-"))
    status = data[9:12].decode("ascii")
    sys.stdout.write("%s - - [%s] %s %s %s %s %s\n" % (conn.remote[0], stamp, line, status, size, referrer, agent))
    sys.stdout.flush()
