"""A plain Bottle application that answers the same cases, and says which names there are."""

import os
import sys
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, make_server

sys.path.append(os.environ["PACKAGES"])
import bottle  # noqa: E402

import bottle_cases  # noqa: E402

app = bottle.Bottle()
ServerHandler.http_version = "1.1"  # as what it is compared with


class Quiet(WSGIRequestHandler):
    def log_request(self, *_):
        pass

    def address_string(self):
        return self.client_address[0]


@app.get("/names")
def names():
    return bottle_cases.names()


@app.get("/requests")
def requests():
    return {"requests": bottle_cases.requests()}


@app.route("/<:re:.*>", method=["GET", "POST", "PATCH", "DELETE"])
def case():
    return bottle_cases.run()


server = make_server("127.0.0.1", 0, app, handler_class=Quiet)
print("Listening on port %d" % server.server_port, flush=True)
server.serve_forever()
