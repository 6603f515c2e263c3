'use strict';
// The response that a function sees: Express' own `res`, as a class; see request.js.

const http = require('http');

const express = require('./express');

// Where Node.js keeps the headers that are set. Validating the same header again for each answer would be a fifth of what
// the server computes; where the place is not found, the header is set as any other.
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

/** The headers of an answer for which nothing has been set, by their names in lower case. */
function Headers() {
  this['access-control-allow-origin'] = [ORIGIN, '*'];
}
Headers.prototype = Object.create(null);

class Response extends http.ServerResponse {
  constructor(request, options) {
    super(request, options);
    // What the server notes of a call; see calls.js.
    this.call = null;
    this.deferred = false; // the answer comes after the function has returned
  }

  /** To be called before any header is set. */
  allowAllOrigins() {
    if (KEPT === null) this.setHeader(ORIGIN, '*');
    else this[KEPT] = new Headers();
  }
}

Object.setPrototypeOf(Response.prototype, express.response);
Object.defineProperty(Response.prototype, 'app', { value: express.app, writable: true, configurable: true });
express.lazy(Response.prototype, 'locals', () => Object.create(null));

// These look at files first, and answer later.
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

module.exports = { Response };
