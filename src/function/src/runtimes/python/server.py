"""Serves one function over HTTP. This file starts the process; the package beside it does the rest.

Not here: TLS and authentication, which the mesh provides.
"""

import os
import sys


def prepare_path():
    """Gives the user's modules precedence: removes this folder from the search path and appends our packages."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, here)
    import function_server.main  # noqa: F401  (imported before the path is removed)

    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    sys.path.append(os.path.join(here, "lib"))


if __name__ == "__main__":
    prepare_path()
    from function_server.main import run

    run()
