"""The server that runs one Python function: sockets, calls, and what functions see of a request."""
