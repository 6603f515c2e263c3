"""Names of Services for programs that stand for pods: `b`, `b.shop`, `b.shop.svc` and `b.shop.svc.cluster.local` lead to
the Service's address of this machine, and its ports to those that are listened on.

Everything else is looked up as ever. Names below `svc` are never asked of others. The program sees neither this file on
its path nor that another `sitecustomize` comes second.
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
        """The address and the ports of a Service as the node has written them; None if it has not."""
        try:
            with open(os.path.join(root, *place), encoding="ascii") as file:
                address, *pairs = file.read().split("\n")
        except (OSError, ValueError):
            return None
        return address, dict(map(int, pair.split(" ")) for pair in pairs if pair)

    def service(host):
        """The Service of a host, and whether nobody else is to be asked for it."""
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
        """The port that is listened on for a port."""
        try:
            known = ports.get(int(port))
        except (TypeError, ValueError):
            return port
        if known is None:
            return port
        return known if isinstance(port, int) else str(known)

    def led(host, port=None):
        """A host and a port as the system knows them."""
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

    # `socket.getaddrinfo` calls this one, and so does what asks in threads; the others are taken over by name.
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

    # The class that `socket.socket` is made of.
    _socket.socket = _socket.SocketType = Socket


def _make_way():
    """Takes this directory off the path, and has the program's own `sitecustomize` run."""
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
