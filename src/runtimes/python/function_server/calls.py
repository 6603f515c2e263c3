"""Calls of the function: threads that run it, its time limit, and what becomes of those that exceed it."""

import ctypes
import inspect
import queue
import sys
import threading
import time
import traceback

from . import bottle, event, message, reply
from .request import BaseRequest
from .response import BaseResponse, error_page
from .settings import log


class OutOfTime(BaseException):
    """Thrown into a function that has exceeded its time; it does not derive from Exception, so it is not swallowed."""


class Call:
    """One request on its way through the function."""

    __slots__ = ("connection", "head", "body", "deadline", "started", "thread")

    def __init__(self, connection, head, body, deadline):
        self.connection = connection
        self.head = head
        self.body = body
        self.deadline = deadline
        self.started = None  # since when the function runs
        self.thread = None  # the identifier of the thread that runs it


class Calls:
    """`answer(call, bytes)` is called once per call; `stop(code)` when the function wants the process to end."""

    def __init__(self, settings, function, metrics, answer, stop):
        self._settings = settings
        self._function = function
        self._metrics = metrics
        self._answer = answer
        self._stop = stop
        self._queue = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open = {}  # calls that are not answered, the oldest first
        self._threads = 0
        self._idle = 0
        self._stuck = 0  # threads that run a call whose caller has been told that it is too late

    def __len__(self):
        return len(self._open)

    def submit(self, call):
        with self._lock:
            self._open[call] = True
            if self._idle > 0:
                self._idle -= 1
            elif self._threads < self._settings.threads:
                self._threads += 1
                threading.Thread(target=self._work, daemon=True).start()
            else:
                self._idle -= 1  # owed: the next thread that is done takes it
        self._queue.put(call)

    def next_deadline(self):
        """When the oldest call exceeds its time, or `None`."""
        with self._lock:
            for call in self._open:
                return call.deadline
        return None

    def expire(self, now):
        """Answers the calls that have exceeded their time."""
        while True:
            with self._lock:
                call = next(iter(self._open), None)
                if call is None or call.deadline > now:
                    return
                del self._open[call]
                thread = call.thread
                if thread is not None:
                    self._stuck += 1
                    self._threads -= 1  # another may take its place
            if call.started is not None:
                self._metrics.took(call.head.method, now - call.started)
            self._metrics.failed(call.head.method)
            log("Timeout while processing the function: no answer within %g s" % self._settings.timeout)
            self._answer(call, self._page(call, 408, "Timeout while processing the function"))
            if thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(OutOfTime))
            if self._stuck >= self._settings.threads:
                log("%d calls have never come back: the process ends, so that it starts afresh" % self._stuck)
                self._stop(1)

    def _work(self):
        while True:
            call = self._queue.get()
            call.thread = threading.get_ident()
            try:
                self._run(call)
            except OutOfTime:
                pass
            with self._lock:
                if call.connection is None:
                    self._stuck -= 1
                    return  # its place is taken
                self._idle += 1

    def _run(self, call):
        try:
            data, failed = self._outcome(call)
        except event.Refusal as refusal:
            text = "%s: %s" % (message.REASONS[refusal.status], refusal.text)
            self._finish(call, message.simple(refusal.status, text, "text/plain; charset=UTF-8", call.head,
                                              call.head.keep_alive))
            return
        taken = time.monotonic() - call.started
        with self._lock:
            mine = self._open.pop(call, False)
        if not mine:
            call.connection = None  # too late: the caller has been told
            return
        self._metrics.took(call.head.method, taken)
        if failed:
            self._metrics.failed(call.head.method)
        self._answer(call, data)

    def _finish(self, call, data):
        with self._lock:
            mine = self._open.pop(call, False)
        if mine:
            self._answer(call, data)
        else:
            call.connection = None

    def _outcome(self, call):
        """The bytes to answer with, and whether the function failed."""
        head = call.head
        request = BaseRequest(head, call.body, call.connection.remote, call.connection.local)
        response = BaseResponse()
        bottle.enter(request, response)
        call.started = time.monotonic()
        argument = event.make(request, response, head, call.body)
        self._metrics.called(head.method)
        try:
            result = self._invoke(argument)
            return self._rendered(call, result, response, request), False
        except Exception as error:  # noqa: BLE001 whatever the function raises is an answer
            if reply.is_response(error):
                try:
                    return self._rendered(call, error, response, request), error.status_code >= 500
                except Exception as second:  # noqa: BLE001
                    error = second
            self._log_failure(error)
        except SystemExit as error:
            log("The function ended the process: SystemExit(%r)" % (error.code,))
            self._stop(error.code if isinstance(error.code, int) else 0 if error.code is None else 1)
        return self._failed(call), True

    def _invoke(self, argument):
        settings = self._settings
        context = {
            "function-name": settings.function_name,
            "timeout": settings.timeout,
            "runtime": settings.runtime,
            "memory-limit": settings.memory_limit,
        }
        result = self._function(argument, context)
        if inspect.iscoroutine(result):
            import asyncio

            return asyncio.run(result)
        return result

    @staticmethod
    def _rendered(call, result, response, request):
        status_line, headers, body = reply.render(result, response, request.url)
        return message.build(status_line, headers, body, call.head, call.head.keep_alive)

    @staticmethod
    def _failed(call):
        return message.simple(500, reply.FAILED, head=call.head, keep_alive=call.head.keep_alive)

    @staticmethod
    def _page(call, status, text):
        page = error_page("%d %s" % (status, message.REASONS[status]), text)
        return message.simple(status, page, head=call.head, keep_alive=call.head.keep_alive)

    @staticmethod
    def _log_failure(error):
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        sys.stderr.write("Function returned an exception: " + text)
        sys.stderr.flush()
