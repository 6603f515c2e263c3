"""Starts and ends the process: settings, the user's module, the loop, signals."""

import faulthandler
import importlib
import os
import signal
import site
import sys
import threading
import time

from . import termination
from . import settings as environment
from .loop import Loop
from .metrics import Metrics
from .settings import log

WATCH_INTERVAL = 1.0  # seconds


def load(settings):
    """Returns the function. If it cannot be loaded, the process ends, so the pod never becomes ready."""
    dependencies = os.path.join(settings.folder, "lib", "python")
    if os.path.isdir(dependencies):
        site.addsitedir(dependencies)  # also processes its .pth files
    for folder in (dependencies, settings.folder):
        if folder in sys.path:
            sys.path.remove(folder)
        sys.path.insert(0, folder)
    environ = dict(os.environ)  # copied before the module can change it
    try:
        module = importlib.import_module(settings.module_name)
    except BaseException as error:  # noqa: BLE001 a module may also exit
        import traceback

        traceback.print_exc()
        log("The function cannot be loaded: the module %r fails: %r" % (settings.module_name, error))
        why = "the module fails: " + termination.describe(error, settings.folder, environ)
        termination.leave("the function cannot be loaded: " + why)
        sys.exit(1)
    function = getattr(module, settings.function_name, None)
    if not callable(function):
        why = "the module %r has no function %r" % (settings.module_name, settings.function_name)
        log("The function cannot be loaded: " + why)
        termination.leave("the function cannot be loaded: " + why)
        sys.exit(1)
    return function


def watch(timeout):
    """Ends the process and logs the stacks if native code blocks all threads longer than the timeout."""
    while True:
        faulthandler.dump_traceback_later(timeout + 2 * WATCH_INTERVAL, exit=True)
        time.sleep(WATCH_INTERVAL)


def run():
    settings = environment.read()
    function = load(settings)
    loop = Loop(settings, function, Metrics())

    signal.signal(signal.SIGTERM, lambda *_: loop.retire(settings.drain_delay))
    signal.signal(signal.SIGINT, lambda *_: loop.retire(0))
    signal.set_wakeup_fd(loop.wakeup_fd, warn_on_full_buffer=False)
    threading.Thread(target=watch, args=(settings.timeout,), daemon=True).start()
    try:
        host, port = loop.listen()[:2]
    except OSError as error:
        log("The server cannot listen on port %d: %s" % (settings.port, error))
        os._exit(1)
    sys.stdout.write("Listening on %s port %d\n" % (host, port))
    sys.stdout.flush()
    code = loop.run()
    sys.stdout.write("Server stopped\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # blocked threads of functions must not keep the process alive
