"""Metrics of calls, failures, durations and the process in Prometheus's text format."""

import os
import resource
import sys
import threading
import time

from .settings import log

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)


class _Method:
    def __init__(self):
        self.calls = 0
        self.failures = 0
        self.count = 0
        self.sum = 0.0
        self.buckets = [0] * len(_BUCKETS)
        self.created = time.time()


class Metrics:
    """Counts per HTTP method. The number of methods is bounded, because others are refused."""

    def __init__(self):
        self._methods = {}
        self._lock = threading.Lock()

    def called(self, method):
        with self._lock:
            self._of(method).calls += 1

    def failed(self, method):
        with self._lock:
            self._of(method).failures += 1

    def took(self, method, seconds):
        with self._lock:
            of = self._of(method)
            of.count += 1
            of.sum += seconds
            for at, limit in enumerate(_BUCKETS):
                if seconds <= limit:
                    of.buckets[at] += 1
                    break

    def _of(self, method):
        return self._methods.setdefault(method, _Method())

    def text(self):
        with self._lock:
            lines = self._function_lines()
        text = "\n".join(lines) + "\n"
        return text + (_of_the_function() or "\n".join(_process_lines()) + "\n")

    def _function_lines(self):
        methods = sorted(self._methods.items())
        lines = ["# HELP function_duration_seconds Duration of user function in seconds"]
        lines.append("# TYPE function_duration_seconds histogram")
        for name, of in methods:
            total = 0
            for limit, count in zip(_BUCKETS, of.buckets):
                total += count
                lines.append('function_duration_seconds_bucket{le="%s",method="%s"} %s' % (limit, name, float(total)))
            lines.append('function_duration_seconds_bucket{le="+Inf",method="%s"} %s' % (name, float(of.count)))
            lines.append('function_duration_seconds_count{method="%s"} %s' % (name, float(of.count)))
            lines.append('function_duration_seconds_sum{method="%s"} %s' % (name, of.sum))
        lines += _created("function_duration_seconds", "Duration of user function in seconds", methods)
        for family, text, read in (
            ("function_calls", "Number of calls to user function", lambda of: of.calls),
            ("function_failures", "Number of exceptions in user function", lambda of: of.failures),
        ):
            lines.append("# HELP %s_total %s" % (family, text))
            lines.append("# TYPE %s_total counter" % family)
            lines += ['%s_total{method="%s"} %s' % (family, name, float(read(of))) for name, of in methods]
            lines += _created(family, text, methods)
        return lines


def _of_the_function():
    """Returns the function's metrics of `prometheus_client`, which include the process; `None` without that module."""
    client = sys.modules.get("prometheus_client")
    if client is None:
        return None
    try:
        return client.generate_latest(client.REGISTRY).decode("utf8")
    except Exception as error:  # noqa: BLE001 a collector of the function
        log("The metrics of the function cannot be read: %r" % (error,))
        return None


def _created(family, text, methods):
    lines = ["# HELP %s_created %s" % (family, text), "# TYPE %s_created gauge" % family]
    return lines + ['%s_created{method="%s"} %r' % (family, name, of.created) for name, of in methods]


def _process_lines():
    import platform

    version = sys.version_info
    usage = resource.getrusage(resource.RUSAGE_SELF)
    lines = [
        "# HELP python_info Python platform information",
        "# TYPE python_info gauge",
        'python_info{implementation="%s",major="%d",minor="%d",patchlevel="%d",version="%s"} 1.0'
        % (platform.python_implementation(), version[0], version[1], version[2], platform.python_version()),
        "# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.",
        "# TYPE process_cpu_seconds_total counter",
        "process_cpu_seconds_total %s" % (usage.ru_utime + usage.ru_stime),
    ]
    for name, text, read in (
        ("process_resident_memory_bytes", "Resident memory size in bytes.", _resident),
        ("process_open_fds", "Number of open file descriptors.", lambda: len(os.listdir("/proc/self/fd"))),
    ):
        try:
            value = float(read())
        except (OSError, ValueError, IndexError):
            continue  # not on Linux
        lines += ["# HELP %s %s" % (name, text), "# TYPE %s gauge" % name, "%s %s" % (name, value)]
    return lines


def _resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
