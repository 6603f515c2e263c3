"""Runs calls of the function in threads, with a time limit.

Bottle and the modules that only calls need take two thirds of the CPU time of a start. They are imported after the pod
is ready, or by the first call.
"""

import queue
import threading
import time
import types

from . import message
from .settings import log
from .stream import Stream

# Set by `prepare`.
event = framework = reply = None
_preparing = threading.Lock()


def prepare(settings):
    """Imports the modules that calls need, once."""
    global event, framework, reply
    with _preparing:
        if reply is None:
            from . import event, framework

            framework.choose(settings.function_name, settings.body_limit)
            from . import reply


class OutOfTime(BaseException):
    """Raised in a function that exceeded its time. Not derived from Exception, so that it is not swallowed."""


class Call:
    """A request in progress."""

    __slots__ = ("connection", "head", "body", "deadline", "started", "thread", "environ", "stream", "begun", "gone")

    def __init__(self, connection, head, body, deadline):
        self.connection = connection
        self.head = head
        self.body = body
        self.deadline = deadline
        self.started = None  # time of the function call
        self.thread = None  # the thread that runs it
        self.environ = None  # WSGI environment
        self.stream = None  # the rest of the response
        self.begun = False  # whether a part of the response was sent
        self.gone = False  # the client disconnected


class Calls:
    """The calls in progress.

    `answer(call, bytes, more)` sends a response or a part of it. It returns true if everything was sent and more
    follows. `stop(code)` is called when the process must end.

    Invariant: only the code that removes a call from `_open` answers it. A streamed call returns for each part.
    Between two parts it waits for its client in the loop, without a thread.
    """

    def __init__(self, settings, function, metrics, answer, stop):
        self._settings = settings
        self._function = function
        self._metrics = metrics
        self._answer = answer
        self._stop = stop
        self._queue = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open = {}  # unanswered calls, oldest first
        self._threads = 0  # number of threads that take calls
        self._idle = 0  # idle threads minus waiting calls
        self._lost = set()  # threads of calls whose timeout was answered

    def __len__(self):
        return len(self._open)

    def submit(self, call):
        """Queues a call, or the next part of its response."""
        with self._lock:
            self._open[call] = True
            self._idle -= 1
            if self._idle < 0 and self._threads < self._settings.threads:
                self._start_thread()
        self._queue.put(call)

    def resume(self, call):
        """Continues a call after a part of its response was sent."""
        call.deadline = time.monotonic() + self._settings.timeout
        self.submit(call)

    def abandon(self, call):
        """Ends a call whose client disconnected."""
        call.gone = True
        self.resume(call)

    def _start_thread(self):
        self._threads += 1
        self._idle += 1
        threading.Thread(target=self._work, daemon=True).start()

    def drain(self):
        """Makes the calls in progress the last of their connections."""
        with self._lock:
            for call in self._open:
                call.head.keep_alive = False

    def next_deadline(self):
        """Returns the deadline of the oldest call, or `None`."""
        with self._lock:
            for call in self._open:
                return call.deadline
        return None

    def expire(self, now):
        """Answers calls after their deadline."""
        while True:
            with self._lock:
                call = next(iter(self._open), None)
                if call is None or call.deadline > now:
                    return
                del self._open[call]
                thread = call.thread
                if thread is not None:
                    self._lose(thread)
                lost = len(self._lost)
            if call.started is not None and not call.begun:
                self._metrics.took(call.head.method, now - call.started)
            self._metrics.failed(call.head.method)
            what = "more of an answer" if call.begun else "answer"
            log("Timeout while processing the function: no %s within %g s" % (what, self._settings.timeout))
            if not call.begun:
                self._answer(call, self._page(call, 408, "Timeout while processing the function"), False)
            else:
                call.head.keep_alive = False
                self._answer(call, b"", False)
            if thread is not None:
                interrupt(thread)
            if lost >= self._settings.threads:
                log("%d calls have never come back: the process ends, so that it starts afresh" % lost)
                self._stop(1)

    def _lose(self, thread):
        """Replaces the thread of a timed-out call."""
        self._lost = {other for other in self._lost if other.is_alive()}
        self._lost.add(thread)
        self._threads -= 1
        if self._idle < 0:
            self._start_thread()

    def prepare(self):
        """Imports the modules that calls need. Returns false if the process must end."""
        try:
            prepare(self._settings)
        except BaseException as error:  # noqa: BLE001 a module of the function may replace one of Python
            log_failure(error)
            self._stop(1)
            return False
        return True

    def _work(self):
        try:
            while self._run(self._queue.get()):
                pass
        except OutOfTime:
            pass  # the call was answered, and the thread was replaced

    def _run(self, call):
        """Runs a call, or produces the next part of its response. Returns false if it timed out and the thread must
        end.
        """
        with self._lock:
            if call not in self._open:
                self._idle += 1  # it timed out in the queue
                return True
            call.thread = threading.current_thread()
        if call.begun:
            framework.go_on(call.environ)
            data, failed = self._more(call)
        else:
            data, failed = self._outcome(call)
        while True:
            now = time.monotonic()
            with self._lock:
                in_time = self._open.pop(call, None) is not None
                first = not call.begun
                call.begun = call.begun or in_time  # a call that timed out is answered as if nothing was sent
                ends = call.stream is None
                if in_time and ends:
                    self._idle += 1
            if not in_time:
                if not ends:
                    call.stream.close()
                return False
            if first and failed is not None:
                self._metrics.took(call.head.method, now - call.started)
            if failed:
                self._metrics.failed(call.head.method)
            goes_on = self._answer(call, data, not ends)
            if ends:
                return True
            with self._lock:
                if not goes_on:
                    self._idle += 1
                    return True
                call.deadline = time.monotonic() + self._settings.timeout
                call.gone = call.connection.gone
                self._open[call] = True
            data, failed = self._more(call)

    def _more(self, call):
        """Returns the next part of a response and whether the function failed. `stream` is None after the last part."""
        stream = call.stream
        try:
            if call.gone:
                call.head.keep_alive = False
                call.stream = None
                stream.close()
                return b"", False
            data = stream.next()
        except OutOfTime:
            raise
        except BaseException as error:  # noqa: BLE001 any exception of the function ends the response
            self._report(error)
            self._break_off(call)
            return b"", True
        if stream.ended:
            call.stream = None
            if stream.broken:
                call.head.keep_alive = False
        return data, stream.broken

    def _break_off(self, call):
        """Ends a response early. The closed connection informs the client."""
        call.head.keep_alive = False
        stream, call.stream = call.stream, None
        try:
            stream.close()
        except OutOfTime:
            raise
        except BaseException as error:  # noqa: BLE001
            self._report(error)

    def _outcome(self, call):
        """Returns the response and whether the function failed; `None` instead of the latter if it was not called."""
        head = call.head
        request, response = framework.enter(head, call.body, call.connection.remote, call.connection.local)
        call.started = time.monotonic()
        call.environ = request.environ
        try:
            argument = event.make(request, response, head, call.body, self._settings.publisher)
        except event.Refusal as refusal:
            text = "%s: %s" % (message.REASONS[refusal.status], refusal.text)
            return message.simple(refusal.status, text, "text/plain; charset=UTF-8", head, head.keep_alive), None
        self._metrics.called(head.method)
        try:
            return self._rendered(call, self._invoke(argument), response), False
        except OutOfTime:
            raise
        except BaseException as error:  # noqa: BLE001 any exception of the function is answered
            try:
                if reply.is_response(error):
                    return self._rendered(call, error, response), error.status_code >= 500
            except Exception as second:  # noqa: BLE001
                error = second
            self._report(error)
        return self._failed(call), True

    def _report(self, error):
        if isinstance(error, SystemExit):
            log("The function ended the process: SystemExit(%r)" % (error.code,))
            self._stop(error.code if isinstance(error.code, int) else 0 if error.code is None else 1)
        else:
            log_failure(error)

    def _invoke(self, argument):
        settings = self._settings
        context = {
            "function-name": settings.function_name,
            "timeout": settings.timeout,
            "runtime": settings.runtime,
            "memory-limit": settings.memory_limit,
        }
        if settings.namespace:
            context["namespace"] = settings.namespace
        result = self._function(argument, context)
        if isinstance(result, types.CoroutineType):
            import asyncio

            return asyncio.run(result)
        return result

    @staticmethod
    def _rendered(call, result, response):
        head = call.head
        status_line, headers, body, length = reply.render(result, response, head.method)
        if not isinstance(body, Stream):
            return message.build(status_line, headers, body, head, head.keep_alive)
        framing = body.begin(head, length)
        data = message.start(status_line, headers, framing, head, head.keep_alive) + body.next()
        call.stream = None if body.ended else body
        return data

    @staticmethod
    def _failed(call):
        return message.simple(500, reply.FAILED, head=call.head, keep_alive=call.head.keep_alive)

    @staticmethod
    def _page(call, status, text):
        page = reply.error_page("%d %s" % (status, message.REASONS[status]), text)
        return message.simple(status, page, head=call.head, keep_alive=call.head.keep_alive)


def interrupt(thread):
    """Raises [`OutOfTime`] in the thread as soon as it runs Python code."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(OutOfTime))


def log_failure(error):
    import traceback

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    log("Function returned an exception: " + text.rstrip("\n"))
