"""Writes the reason why a function cannot be loaded as the container's termination message.

The agent shows it in the condition `Running` of the Function, whose previous version keeps serving. The message
contains no value of the pod's environment, because it may be secret.
"""

import os

_LONGEST = 600  # maximum length of an error in characters
_SHORTEST_SECRET = 4  # characters; shorter values occur in any text
# Variables that the image, the agent and the kubelet set. Their values occur in paths and names. They are listed
# individually, because a user's PYTHON_INDEX_TOKEN or PAYMENT_SERVICE_KEY is a secret.
_OPEN = frozenset(
    "PATH HOME PWD HOSTNAME SHLVL LANG LC_ALL LC_CTYPE GPG_KEY MOD_NAME KUBELESS_INSTALL_VOLUME PYTHONPATH PYTHONUNBUFFERED"
    " PYTHON_VERSION PYTHON_SHA256 PYTHON_PIP_VERSION FUNC_HANDLER FUNC_RUNTIME FUNC_PORT FUNC_HOST FUNC_SOCKET"
    " FUNC_TIMEOUT FUNC_MEMORY_LIMIT FUNC_DRAIN_DELAY MAINSTAY_TERMINATION_LOG SERVICE_NAMESPACE PUBLISHER_PROXY_ADDRESS"
    " TRACE_COLLECTOR_ENDPOINT".split()
)
_OF_SERVICE = r".*(_SERVICE_HOST|_SERVICE_PORT|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)\Z"


def leave(text):
    """Writes the message. The file is not created, because the kubelet creates it in a pod."""
    file = os.environ.get("MAINSTAY_TERMINATION_LOG") or "/dev/termination-log"
    try:
        opened = os.open(file, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
        try:
            os.write(opened, text.encode("utf8", "replace"))
        finally:
            os.close(opened)
    except OSError:
        pass  # not in a pod: the log contains the reason, too


def describe(error, folder, env):
    """Formats place and error on one line: `handler.py:3: ModuleNotFoundError: No module named 'x'`."""
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        text = _without_secrets((text or "").split("\n", 1)[0], env)
        what = type(error).__name__ + (": " + text if text else "")
        if len(what) > _LONGEST:
            what = what[:_LONGEST] + "…"
        where = _place(error, folder)
        return where + ": " + what if where else what
    except Exception:  # noqa: BLE001 an error of the user's class may fail in any way
        return "it raises what cannot be shown"


def _place(error, folder):
    """Returns the innermost line of the user's code in the traceback, or else of a package."""
    import traceback

    found = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        found.append((error.filename or "", error.lineno))
    below = os.path.join(folder, "")
    found = [(name[len(below):], line) for name, line in reversed(found) if name.startswith(below)]
    own = [place for place in found if not place[0].startswith("lib")] or found
    return "%s:%s" % own[0] if own else None


def _without_secrets(text, env):
    import re

    # An address may contain a password.
    secret = [
        value for name, value in env.items() if (name not in _OPEN or "@" in value) and not re.match(_OF_SERVICE, name)
    ]
    values = [line.strip() for value in secret for line in value.split("\n")]
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "***")
    return text
