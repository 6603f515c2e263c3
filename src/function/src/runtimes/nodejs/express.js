'use strict';
// Express' application without its router: the settings that its requests and responses ask for, and what `req.app` shows.

const { EventEmitter } = require('events');

const application = require('express/lib/application');
const Route = require('express/lib/router/route');
const request = require('express/lib/request');
const response = require('express/lib/response');
const finalhandler = require('finalhandler');
const methods = require('methods');
const qs = require('qs');

function app(...given) {
  app.handle(...given);
}

for (const part of [EventEmitter.prototype, application]) {
  for (const name of Object.keys(part)) app[name] = part[name];
}
app.request = request;
app.response = response;
app.init();

/** The route that every call takes, as `app.all('*', …)` makes it. */
function everything(target) {
  const route = new Route('*');
  for (const method of methods) route[method](target);
  return route;
}

/** What follows a handler that gives its call on: not found, or the error's status; never a stack. */
function giveOn(request, response, error) {
  response.deferred = true;
  finalhandler(request, response, { env: 'production' })(error);
}

/** Makes `name` a property that is computed when first read and that a handler may overwrite. */
function lazy(prototype, name, compute) {
  Object.defineProperty(prototype, name, {
    configurable: true,
    enumerable: true,
    get() {
      const value = compute(this);
      keep(this, name, value);
      return value;
    },
    set(value) {
      keep(this, name, value);
    },
  });
}

function keep(object, name, value) {
  Object.defineProperty(object, name, { value, writable: true, configurable: true, enumerable: true });
}

/** A form as the parser of Express' own makes it: `a[b]=1` nests, and no name reaches a prototype. */
function parseForm(text) {
  return qs.parse(text, { allowPrototypes: true, arrayLimit: 1000, depth: 32, strictDepth: true, parameterLimit: Infinity });
}

module.exports = { app, request, response, everything, giveOn, lazy, parseForm };
