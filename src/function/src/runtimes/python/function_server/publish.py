"""Sends CloudEvents over HTTP to the publisher in the pod's environment."""

import datetime
import json
import uuid

ANSWER_TIME = 30.0  # seconds


def publish(address, event):
    """Posts the event in structured mode. Returns the status of the response; raises on failure."""
    import urllib.request  # imported only by functions that publish

    if not address:
        raise RuntimeError("PUBLISHER_PROXY_ADDRESS is not set, so there is nobody to publish to")
    body = json.dumps(event).encode("utf8")
    headers = {"Content-Type": "application/cloudevents+json"}
    with urllib.request.urlopen(
        urllib.request.Request(address, body, headers, method="POST"), timeout=ANSWER_TIME
    ) as answer:
        return answer.status


def build(type, source, data, attributes):
    """Builds an event with all required attributes."""
    event = {
        "specversion": "1.0",
        "id": str(uuid.uuid4()),
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "datacontenttype": "application/json" if isinstance(data, (dict, list)) else "text/plain",
    }
    event.update(attributes or {})
    event.update({"type": type, "source": source, "data": data})
    return event
