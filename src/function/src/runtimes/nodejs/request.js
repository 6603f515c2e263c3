'use strict';
// The request object of functions: Express's `req`.
//
// It is a class, so that the server creates it directly. Express replaces the prototype per request, which is slower.

const http = require('http');

const { lazy } = require('./lazy');

class Request extends http.IncomingMessage {}

/** The parameters of the route `*`. */
function params(path) {
  try {
    return { 0: decodeURIComponent(path) };
  } catch (_) {
    return { 0: path };
  }
}

/** Gives requests the methods of Express. Its prototype inherits from Node.js's. */
function complete(express) {
  const cookie = require('cookie');
  const parseurl = require('parseurl');
  Object.setPrototypeOf(Request.prototype, express.request);
  Object.defineProperty(Request.prototype, 'app', { value: express.app, writable: true, configurable: true });
  lazy(Request.prototype, 'next', (request) => (error) => express.giveOn(request, request.res, error));
  lazy(Request.prototype, 'route', () => express.everything((request) => request));
  lazy(Request.prototype, 'originalUrl', (request) => request.url);
  lazy(Request.prototype, 'baseUrl', () => '');
  lazy(Request.prototype, 'params', (request) => params(parseurl(request).pathname));
  lazy(Request.prototype, 'query', (request) => express.app.get('query parser fn')(parseurl(request).query));
  // Properties of the package `cookie-parser`.
  lazy(Request.prototype, 'cookies', (request) => cookie.parse(request.headers.cookie || ''));
  lazy(Request.prototype, 'signedCookies', () => Object.create(null));
}

module.exports = { Request, complete };
