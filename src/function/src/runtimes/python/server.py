"""Runs one function behind HTTP: this file starts the process, the package beside it does the rest.

Deliberately absent: TLS and authentication (the mesh's business).
"""

import os
import sys


def prepare_path():
    """Lets the user's modules win over ours: this folder leaves the search path, and our packages come last."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, here)
    import function_server.main  # noqa: F401  (found here, and from now on known)

    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    sys.path.append(os.path.join(here, "lib"))


if __name__ == "__main__":
    prepare_path()
    from function_server.main import run

    run()
