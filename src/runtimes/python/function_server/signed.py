"""Cookies that nobody but the function can have written: JSON with an HMAC."""

import base64
import hashlib
import hmac
import json


def _signature(name, payload, secret, digestmod):
    key = secret.encode("utf8") if isinstance(secret, str) else secret
    text = name.encode("utf8") + b"?" + payload
    return base64.b64encode(hmac.new(key, text, getattr(hashlib, digestmod, digestmod)).digest())


def encode(name, value, secret, digestmod):
    payload = base64.b64encode(json.dumps(value).encode("utf8"))
    return (b"!" + _signature(name, payload, secret, digestmod) + b"?" + payload).decode("ascii")


def decode(name, text, secret, digestmod):
    """The value, or `None` when the signature is not ours."""
    data = text.encode("utf8", "replace")
    if not data.startswith(b"!") or b"?" not in data:
        return None
    signature, _, payload = data[1:].partition(b"?")
    if not hmac.compare_digest(signature, _signature(name, payload, secret, digestmod)):
        return None
    return json.loads(base64.b64decode(payload))
