'use strict';
// Express's application without its router: the settings that requests and responses use, and `req.app`.

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

/** The route of every call, as `app.all('*', …)` creates it. */
function everything(target) {
  const route = new Route('*');
  for (const method of methods) route[method](target);
  return route;
}

/** Answers after a handler called `next`: 404 or the error's status, without a stack trace. */
function giveOn(request, response, error) {
  response.deferred = true;
  finalhandler(request, response, { env: 'production' })(error);
}

/** Parses a form as Express does: `a[b]=1` nests, and no name modifies a prototype. */
function parseForm(text) {
  return qs.parse(text, { allowPrototypes: true, arrayLimit: 1000, depth: 32, strictDepth: true, parameterLimit: Infinity });
}

module.exports = { app, request, response, everything, giveOn, parseForm };
