"""Resolves names of Services in the programs of pods: `b`, `b.shop`, `b.shop.svc` and `b.shop.svc.cluster.local`
resolve to the Service's loopback address. Connections use the port that is bound for a Service's port.

Other names are resolved as usual. Names below `svc` are never sent to DNS. This directory is removed from the search
path, and the program's own `sitecustomize` runs afterwards.
"""


def _install():
    import _socket
    import os
    import re

    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    own_namespace = os.path.basename(here)
    label = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
    numbers = re.compile(r"127\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}")

    def read(*place):
        """Returns address and ports of a Service from the node's file; None if it does not exist."""
        try:
            with open(os.path.join(root, *place), encoding="ascii") as file:
                address, *pairs = file.read().split("\n")
        except (OSError, ValueError):
            return None
        return address, dict(map(int, pair.split(" ")) for pair in pairs if pair)

    def service(host):
        """Returns the Service of a host, and whether the name must not be sent to DNS."""
        if isinstance(host, (bytes, bytearray)):
            host = bytes(host).decode("latin-1")
        if not isinstance(host, str) or not 0 < len(host) < 255:
            return None, False
        if numbers.fullmatch(host):
            return read("addresses", host), False
        name = host.lower()
        whole = name[:-1] if name.endswith(".") else name
        labels = name.split(".")
        if whole.endswith(".svc.cluster.local"):
            labels = whole.split(".")[:-2]
        is_ours = len(labels) > 1 and labels[-1] == "svc"
        if is_ours:
            labels.pop()
            if len(labels) != 2:
                return None, True
        if len(labels) > 2 or name == "localhost" or not all(map(label.fullmatch, labels)):
            return None, is_ours
        return read("services", labels[1] if len(labels) > 1 else own_namespace, labels[0]), is_ours

    def port_of(port, ports):
        """Returns the bound port of a Service's port."""
        try:
            known = ports.get(int(port))
        except (TypeError, ValueError):
            return port
        if known is None:
            return port
        return known if isinstance(port, int) else str(known)

    def led(host, port=None):
        """Returns host and port for the system's functions."""
        found, is_ours = service(host)
        if found is not None:
            return found[0], port_of(port, found[1])
        if is_ours:
            raise _socket.gaierror(_socket.EAI_NONAME, "Name or service not known")
        return host, port

    def replace(name, make):
        before = getattr(_socket, name)
        after = make(before)
        after.__name__ = after.__qualname__ = name
        after.__doc__ = before.__doc__
        setattr(_socket, name, after)

    # `socket.getaddrinfo` and executors call this function. The others are replaced by name.
    replace(
        "getaddrinfo",
        lambda before: lambda host, port, *args, **kwargs: before(*led(host, port), *args, **kwargs),
    )
    replace("gethostbyname", lambda before: lambda host: before(led(host)[0]))
    replace("gethostbyname_ex", lambda before: lambda host: before(led(host)[0]))

    class Socket(_socket.socket):
        __slots__ = ()

        def connect(self, address):
            return super().connect(_at(self, address))

        def connect_ex(self, address):
            return super().connect_ex(_at(self, address))

    def _at(sock, address):
        if sock.family == _socket.AF_INET and isinstance(address, tuple) and len(address) == 2:
            return led(*address)
        return address

    # The base class of `socket.socket`.
    _socket.socket = _socket.SocketType = Socket


def _make_way():
    """Removes this directory from the search path and imports the program's own `sitecustomize`."""
    import os
    import sys

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or os.curdir) != here]
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if own is not None:
            sys.modules.setdefault("sitecustomize", own)


try:
    _install()
finally:
    _make_way()
