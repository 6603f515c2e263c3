"""The server of a Python function: sockets, calls, and the request objects of functions."""
