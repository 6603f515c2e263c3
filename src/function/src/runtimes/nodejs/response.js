'use strict';
// The response object of functions: Express's `res` as a class; see request.js.

const http = require('http');

const { lazy } = require('./lazy');

// The internal property of Node.js that stores headers. It avoids the validation of the same header in each response, a
// fifth of the server's CPU time. If the property is not found, the header is set normally.
const KEPT = keptHeaders();
const ORIGIN = 'Access-Control-Allow-Origin';

function keptHeaders() {
  const probe = new http.OutgoingMessage();
  const before = new Set(Object.getOwnPropertySymbols(probe).filter((symbol) => probe[symbol]));
  probe.setHeader('a', 'b');
  const found = Object.getOwnPropertySymbols(probe).filter((symbol) => {
    const value = probe[symbol];
    return !before.has(symbol) && value && Array.isArray(value.a) && value.a[0] === 'a' && value.a[1] === 'b';
  });
  return found.length === 1 ? found[0] : null;
}

/** The headers of a new response by lower-case name. */
function Headers() {
  this['access-control-allow-origin'] = [ORIGIN, '*'];
}
Headers.prototype = Object.create(null);

class Response extends http.ServerResponse {
  constructor(request, options) {
    super(request, options);
    // The server's state of the call; see calls.js.
    this.call = null;
    this.deferred = false; // the response follows after the function has returned
  }

  /** Must be called before any header is set. */
  allowAllOrigins() {
    if (KEPT === null) this.setHeader(ORIGIN, '*');
    else this[KEPT] = new Headers();
  }
}

/** Gives responses the methods of Express. */
function complete(express) {
  Object.setPrototypeOf(Response.prototype, express.response);
  Object.defineProperty(Response.prototype, 'app', { value: express.app, writable: true, configurable: true });
  lazy(Response.prototype, 'locals', () => Object.create(null));

  // These methods read files first and respond later.
  for (const name of ['sendFile', 'sendfile', 'render']) {
    const original = express.response[name];
    Object.defineProperty(Response.prototype, name, {
      configurable: true,
      writable: true,
      value(...given) {
        this.deferred = true;
        return original.apply(this, given);
      },
    });
  }
}

module.exports = { Response, complete };
