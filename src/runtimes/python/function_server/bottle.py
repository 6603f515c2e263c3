"""What functions import from `bottle`: the objects of requests and responses, and the functions that end a call.

Deliberately absent: routes, templates and servers. Who needs them lists `bottle` in requirements.txt.
"""

import html
import json
import threading
from urllib.parse import urljoin

from .forms import FileUpload
from .message import http_date
from .multidict import FormsDict, HeaderDict, MultiDict
from .request import BaseRequest
from .response import HTTP_CODES, BaseResponse, BottleException, HTTPError, HTTPResponse

__version__ = "0.13"
__all__ = [
    "BaseRequest", "BaseResponse", "BottleException", "FileUpload", "FormsDict", "HTTPError", "HTTPResponse",
    "HTTP_CODES", "HeaderDict", "LocalRequest", "LocalResponse", "MultiDict", "Request", "Response", "WSGIHeaderDict",
    "abort", "html_escape", "http_date", "json_dumps", "json_loads", "redirect", "request", "response", "tob", "touni",
]

Request = LocalRequest = BaseRequest
Response = LocalResponse = BaseResponse
WSGIHeaderDict = HeaderDict
json_dumps = json.dumps
json_loads = json.loads

_local = threading.local()


class _Current:
    """Stands for the object of the call that this thread serves."""

    def __init__(self, name):
        object.__setattr__(self, "_name", name)

    def _object(self):
        found = getattr(_local, self._name, None)
        if found is None:
            raise RuntimeError("Request context not initialized.")
        return found

    def __getattr__(self, name):
        return getattr(self._object(), name)

    def __setattr__(self, name, value):
        setattr(self._object(), name, value)

    def __getitem__(self, name):
        return self._object()[name]

    def __setitem__(self, name, value):
        self._object()[name] = value

    def __contains__(self, name):
        return name in self._object()


request = _Current("request")
response = _Current("response")


def enter(current_request, current_response):
    """From now on this thread serves this call."""
    _local.request = current_request
    _local.response = current_response


def abort(code=500, text="Unknown Error."):
    """Ends the call with an error."""
    raise HTTPError(code, text)


def redirect(url, code=None):
    """Ends the call and sends the client elsewhere."""
    if not code:
        code = 303 if request._head.version == "1.1" else 302
    answer = response.copy(cls=HTTPResponse)
    answer.status = code
    answer.body = ""
    answer.set_header("Location", urljoin(request.url, url))
    raise answer


def html_escape(text):
    return html.escape(text).replace("&#x27;", "&#039;")


def tob(text, encoding="utf8"):
    return text.encode(encoding) if isinstance(text, str) else bytes(text or b"")


def touni(data, encoding="utf8", errors="strict"):
    return data.decode(encoding, errors) if isinstance(data, bytes) else str("" if data is None else data)
