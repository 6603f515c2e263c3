"""`event.tracer`: the interface of an OpenTelemetry tracer, so that functions with spans run unchanged.

Its spans carry the caller's context and are not recorded. Not here: an exporter.
"""

import contextlib
import re

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-|\Z)")
_TRACE = re.compile(r"[0-9a-f]{16}([0-9a-f]{16})?\Z")
_SPAN = re.compile(r"[0-9a-f]{16}\Z")


class SpanContext:
    """The caller's trace context; all zero without one."""

    def __init__(self, trace_id=0, span_id=0, trace_flags=0):
        self.trace_id = trace_id
        self.span_id = span_id
        self.trace_flags = trace_flags
        self.is_remote = self.is_valid = trace_id != 0 and span_id != 0


def _context(header):
    """Returns the caller's context from the W3C header, or else from the B3 headers."""
    parent = _TRACEPARENT.match(header("traceparent") or "")
    if parent:
        return SpanContext(*(int(digits, 16) for digits in parent.groups()[:3]))
    trace, span = (header("x-b3-traceid") or "").lower(), (header("x-b3-spanid") or "").lower()
    if _TRACE.match(trace) and _SPAN.match(span):
        return SpanContext(int(trace, 16), int(span, 16), int(header("x-b3-sampled") == "1"))
    return SpanContext()


class Span:
    """A span that is not recorded."""

    def __init__(self, context):
        self._context = context

    def get_span_context(self):
        return self._context

    def is_recording(self):
        return False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def _nothing(self, *_, **__):
        return None

    set_attribute = set_attributes = add_event = add_link = set_status = update_name = record_exception = end = _nothing


class Tracer:
    """A tracer. `header` returns a header of the request, or `None`."""

    def __init__(self, header):
        self._context = _context(header)

    def start_span(self, name, *_, **__):
        return Span(self._context)

    @contextlib.contextmanager
    def start_as_current_span(self, name, *_, **__):
        yield Span(self._context)
