"""Why a function cannot be loaded, as the termination message of its container.

The agent shows it in the condition `Running` of the Function, whose earlier version goes on serving. Values of the pod's
environment, which may be secrets, are not in it.
"""

import os
import re
import traceback

_LONGEST = 600  # characters of an error
_SHORTEST_SECRET = 4  # characters; anything shorter is in every text
# Variables of the image, the pod and the cluster that are no secrets, and whose values are in paths and names.
_OPEN = re.compile(
    r"(PATH|HOME|PWD|HOSTNAME|SHLVL|LANG|LC_\w+|GPG_KEY|MOD_NAME|PYTHON\w*"
    r"|(FUNC|KUBELESS|KUBERNETES|MAINSTAY)_\w*|\w+_(SERVICE|PORT)(_\w+)?)\Z"
)


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
    values = [line.strip() for name, value in env.items() if not _OPEN.match(name) for line in value.split("\n")]
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "***")
    return text
