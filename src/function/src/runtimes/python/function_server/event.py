"""Builds the event argument of the function from a request."""

import base64
import json

from . import publish, tracer

ATTRIBUTES = ("ce-type", "ce-source", "ce-eventtypeversion", "ce-specversion", "ce-id", "ce-time")
_REQUIRED = ("specversion", "type", "source", "id")
_STRUCTURED = "application/cloudevents+json"


class Refusal(Exception):
    """A client error, answered with `status` and `text`."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status
        self.text = text


class Event:
    """The first argument of every function. It behaves like a dictionary."""

    def __init__(self, request, response, publisher=None):
        self._publisher = publisher
        self.ceHeaders = dict.fromkeys(ATTRIBUTES)
        self.ceHeaders["data"] = None
        self.ceHeaders["extensions"] = {"request": request, "response": response}
        self.req = request
        self._tracer = None

    @property
    def tracer(self):
        """Created on first use."""
        if self._tracer is None:
            self._tracer = tracer.Tracer(self.req.get_header)
        return self._tracer

    def __getitem__(self, key):
        return self.ceHeaders[key]

    def __setitem__(self, key, value):
        self.ceHeaders[key] = value

    def __contains__(self, key):
        return key in self.ceHeaders

    def __iter__(self):
        return iter(self.ceHeaders)

    def __len__(self):
        return len(self.ceHeaders)

    def get(self, key, default=None):
        return self.ceHeaders.get(key, default)

    def keys(self):
        return self.ceHeaders.keys()

    def values(self):
        return self.ceHeaders.values()

    def items(self):
        return self.ceHeaders.items()

    def publishCloudEvent(self, data):
        """Publishes a complete CloudEvent."""
        return publish.publish(self._publisher, data)

    def emitCloudEvent(self, type, source, data, optionalCloudEventAttributes=None):
        """Builds and publishes a CloudEvent."""
        return publish.publish(self._publisher, publish.build(type, source, data, optionalCloudEventAttributes))

    def buildResponseCloudEvent(self, id, type, data):
        """Builds the CloudEvent that answers this one."""
        return {
            "type": type,
            "source": self["ce-source"],
            "eventtypeversion": self["ce-eventtypeversion"],
            "specversion": self["ce-specversion"],
            "id": id,
            "data": data,
            "datacontenttype": "application/json" if isinstance(data, (dict, list)) else "text/plain",
        }


def make(request, response, head, body, publisher):
    """Builds the event. Raises a [`Refusal`] for a client error."""
    kind = head.get("content-type", "").partition(";")[0].strip().lower()
    event = Event(request, response, publisher)
    if kind == _STRUCTURED:
        _structured(event, _parsed(body))
        return event
    for name in ATTRIBUTES:
        event[name] = head.get(name)
    if event["ce-type"] is not None and event["ce-source"] is not None:
        _binary(event, head)
    if kind == "application/json":
        event["data"] = _parsed(body) if body else None
    else:
        event["data"] = body
    return event


def _parsed(body):
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal(400, "the body is not valid JSON") from None


def _binary(event, head):
    for name in _REQUIRED:
        if not event["ce-" + name]:
            raise Refusal(400, 'incomplete CloudEvent: the header "ce-%s" is missing' % name)
    if head.get("content-type"):
        event["ce-datacontenttype"] = head.get("content-type")


def _structured(event, envelope):
    if not isinstance(envelope, dict):
        raise Refusal(400, "incomplete CloudEvent: the body is not a JSON object")
    for name in _REQUIRED:
        if not isinstance(envelope.get(name), str) or not envelope[name]:
            raise Refusal(400, 'incomplete CloudEvent: the attribute "%s" is missing' % name)
    for name in ATTRIBUTES:
        event[name] = envelope.get(name[3:])
    if "datacontenttype" in envelope:
        event["ce-datacontenttype"] = envelope["datacontenttype"]
    encoded = envelope.get("data_base64")
    if isinstance(encoded, str):
        try:
            event["data"] = base64.b64decode(encoded, validate=True)
        except ValueError:
            raise Refusal(400, "data_base64 is not in Base64") from None
    else:
        event["data"] = envelope.get("data")
