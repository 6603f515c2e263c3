'use strict';
// The request that a function sees: Express' own `req`.
//
// A class and not a prototype put under each request, as Express does it: the server makes it at once, which keeps it fast.

const http = require('http');

const cookie = require('cookie');
const parseurl = require('parseurl');

const express = require('./express');

const { lazy } = express;

class Request extends http.IncomingMessage {}

// Express' prototype inherits from that of Node.js.
Object.setPrototypeOf(Request.prototype, express.request);

/** As the route `*` names it. */
function params(request) {
  const path = parseurl(request).pathname;
  try {
    return { 0: decodeURIComponent(path) };
  } catch (_) {
    return { 0: path };
  }
}

Object.defineProperty(Request.prototype, 'app', { value: express.app, writable: true, configurable: true });
lazy(Request.prototype, 'next', (request) => (error) => express.giveOn(request, request.res, error));
lazy(Request.prototype, 'route', () => express.everything((request) => request));
lazy(Request.prototype, 'originalUrl', (request) => request.url);
lazy(Request.prototype, 'baseUrl', () => '');
lazy(Request.prototype, 'params', params);
lazy(Request.prototype, 'query', (request) => express.app.get('query parser fn')(parseurl(request).query));
// What the usual package `cookie-parser` adds.
lazy(Request.prototype, 'cookies', (request) => cookie.parse(request.headers.cookie || ''));
lazy(Request.prototype, 'signedCookies', () => Object.create(null));

module.exports = { Request };
