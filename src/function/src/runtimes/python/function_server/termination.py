"""Why a function cannot be loaded, as the termination message of its container.

The agent shows it in the condition `Running` of the Function, whose earlier version goes on serving. Values of the pod's
environment, which may be secrets, are not in it.
"""

import os
import re
import traceback

_LONGEST = 600  # characters of an error
_SHORTEST_SECRET = 4  # characters; anything shorter is in every text
# Variables that the image, the agent and the kubelet set, and whose values are in paths and names. They are named one by one:
# a user's own PYTHON_INDEX_TOKEN or PAYMENT_SERVICE_KEY is a secret.
_OPEN = frozenset(
    "PATH HOME PWD HOSTNAME SHLVL LANG LC_ALL LC_CTYPE GPG_KEY MOD_NAME KUBELESS_INSTALL_VOLUME PYTHONPATH PYTHONUNBUFFERED"
    " PYTHON_VERSION PYTHON_SHA256 PYTHON_PIP_VERSION FUNC_HANDLER FUNC_RUNTIME FUNC_PORT FUNC_HOST FUNC_SOCKET"
    " FUNC_TIMEOUT FUNC_MEMORY_LIMIT FUNC_DRAIN_DELAY MAINSTAY_TERMINATION_LOG SERVICE_NAMESPACE PUBLISHER_PROXY_ADDRESS"
    " TRACE_COLLECTOR_ENDPOINT".split()
)
_OF_SERVICE = re.compile(r".*(_SERVICE_HOST|_SERVICE_PORT|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)\Z")


def leave(text):
    """Leaves a text; a file that the kubelet has not made is not made here."""
    file = os.environ.get("MAINSTAY_TERMINATION_LOG") or "/dev/termination-log"
    try:
        opened = os.open(file, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
        try:
            os.write(opened, text.encode("utf8", "replace"))
        finally:
            os.close(opened)
    except OSError:
        pass  # not in a pod: the log says it, too


def describe(error, folder, env):
    """Where and what, on one line: `handler.py:3: ModuleNotFoundError: No module named 'x'`."""
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        text = _without_secrets((text or "").split("\n", 1)[0], env)
        what = type(error).__name__ + (": " + text if text else "")
        if len(what) > _LONGEST:
            what = what[:_LONGEST] + "…"
        where = _place(error, folder)
        return where + ": " + what if where else what
    except Exception:  # noqa: BLE001 an error of the user's own class may do anything
        return "it raises what cannot be shown"


def _place(error, folder):
    """The innermost line of the user's own code in the traceback, else of a package."""
    found = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        found.append((error.filename or "", error.lineno))
    below = os.path.join(folder, "")
    found = [(name[len(below):], line) for name, line in reversed(found) if name.startswith(below)]
    own = [place for place in found if not place[0].startswith("lib")] or found
    return "%s:%s" % own[0] if own else None


def _without_secrets(text, env):
    # An address may have been given with a password.
    secret = [
        value for name, value in env.items() if (name not in _OPEN or "@" in value) and not _OF_SERVICE.match(name)
    ]
    values = [line.strip() for value in secret for line in value.split("\n")]
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "***")
    return text
