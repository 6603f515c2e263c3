"""Reads the environment once: the pod's settings of the function and the server."""

import os
import sys


def _number(text, fallback, kind=float):
    try:
        value = kind(text)
    except (TypeError, ValueError):
        return fallback
    return value if 0 < value < 2**53 else fallback


def _delay(text):
    try:
        value = float(text)
    except (TypeError, ValueError):
        return 5.0
    return value if 0 <= value <= 3600 else 5.0


class Settings:
    """All settings; times in seconds, sizes in bytes."""

    def __init__(self, env):
        self.folder = env.get("KUBELESS_INSTALL_VOLUME") or "/kubeless"
        self.module_name = env.get("MOD_NAME") or "handler"
        self.function_name = env.get("FUNC_HANDLER") or "main"
        self.runtime = env.get("FUNC_RUNTIME")
        self.memory_limit = env.get("FUNC_MEMORY_LIMIT")
        self.namespace = env.get("SERVICE_NAMESPACE")
        self.timeout = _number(env.get("FUNC_TIMEOUT"), 180.0)
        self.body_limit = _number(env.get("FUNC_MEMFILE_MAX"), 100 * 1024 * 1024, int)
        self.threads = min(_number(env.get("CHERRYPY_NUMTHREADS"), 50, int), 1000)
        self.host = env.get("FUNC_HOST") or ""
        # A Unix socket; another process owns the port.
        self.socket = env.get("FUNC_SOCKET")
        port = env.get("FUNC_PORT") or "8080"
        self.port = int(port) if port.isdigit() and int(port) < 65536 else 8080
        # Time to accept connections after SIGTERM, until proxies have observed the pod's end.
        self.drain_delay = _delay(env.get("FUNC_DRAIN_DELAY"))
        self.access_log = bool(env.get("KYMA_INTERNAL_LOGGER_ENABLED"))
        self.publisher = env.get("PUBLISHER_PROXY_ADDRESS")


def read():
    return Settings(os.environ)


def log(line):
    """Writes a line to the pod's log."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
