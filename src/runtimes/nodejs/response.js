'use strict';
// The response that a function sees: Express' own `res`, as a class; see request.js.

const http = require('http');

const express = require('./express');

class Response extends http.ServerResponse {
  constructor(...args) {
    super(...args);
    // What the server notes of a call; see calls.js.
    this.call = null;
    this.deferred = false; // the answer comes after the function has returned
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
