'use strict';
// Handles a call: reads the request, calls the function, and answers with its result or failure before the deadline.

const fs = require('fs');
const { performance } = require('perf_hooks');

const body = require('./body');
const event = require('./event');
const methods = require('./methods');
const { CONTENT_TYPE } = require('./metrics');
const reply = require('./reply');

/** The state of a call. */
class Call {
  constructor(deadline, slot) {
    this.deadline = deadline; // on the clock of `performance`, in milliseconds
    this.slot = slot; // index in the watchdog's list
    this.started = 0; // time of the function call, or 0
    this.settled = false; // the function has returned, thrown or timed out
    this.late = false; // the timeout was answered
  }
}

class Calls {
  constructor(settings, metrics, log) {
    Object.assign(this, { settings, metrics, log });
    this.watchdog = null;
    this.target = null;
    this.open = new Set(); // responses in progress, oldest first
    this.draining = false;
    this.drained = null;
    this.probes = 0; // answered ones
    const calls = this;
    this.onClose = function onClose() {
      calls.close(this);
    };
  }

  /** Sets the function to call. */
  use(target, watchdog) {
    this.target = target;
    this.watchdog = watchdog;
  }

  answer(request, response, expectsContinue) {
    if (this.settings.accessLog) reply.logAccess(request, response);
    if (this.draining) response.shouldKeepAlive = false;
    request.res = response; // as in Express, besides Node.js's own link
    this.open.add(response);
    response.on('close', this.onClose);
    const { method, url } = request;
    if (request.headers.host === undefined && request.httpVersion === '1.1') {
      response.shouldKeepAlive = false; // older Node.js accepts such a request
      reply.refuse(request, response, new body.Refusal(400, 'the Host header is missing'));
    } else if (method === 'OPTIONS' && request.headers['access-control-request-method'] !== undefined) {
      // A CORS preflight. The function handles every other OPTIONS request.
      reply.allow(request, response);
    } else if ((method === 'GET' || method === 'HEAD') && /^\/(healthz|metrics)(\?|$)/.test(url)) {
      if (url.startsWith('/h') && this.draining) reply.plain(response, 503, 'text/html; charset=utf-8', 'Shutting down');
      else if (url.startsWith('/h')) this.probed(response);
      else reply.plain(response, 200, CONTENT_TYPE, this.metrics.text());
    } else {
      this.receive(request, response, expectsContinue);
    }
  }

  /** Answers a probe. The second answer makes the pod ready, so what only calls need is prepared after it. */
  probed(response) {
    reply.plain(response, 200, 'text/html; charset=utf-8', 'OK');
    this.probes += 1;
    if (this.probes !== 2) return;
    setImmediate(() => {
      methods.load();
      this.watchdog.start();
    });
  }

  receive(request, response, expectsContinue) {
    response.allowAllOrigins();
    // The call's time begins afterwards, and so does the watchdog's.
    try {
      methods.load();
    } catch (error) {
      this.log(`Express cannot be loaded: ${error instanceof Error ? error.stack : String(error)}`);
      reply.fail(response, error);
      return;
    }
    const slot = this.watchdog.enter(request.socket);
    response.call = new Call(performance.now() + this.settings.timeoutMillis, slot);
    if (!body.hasBody(request)) {
      this.invoke(request, response, null);
      return;
    }
    if (body.isTooLarge(request, this.settings.bodyLimit)) {
      reply.refuse(request, response, new body.Refusal(413, 'request entity too large'));
      return;
    }
    if (expectsContinue) response.writeContinue();
    // The function receives multipart forms as a stream.
    if (/^multipart\//i.test(request.headers['content-type'] || '')) {
      this.invoke(request, response, null);
      return;
    }
    body.read(request, this.settings.bodyLimit, (error, bytes) => {
      if (response.writableEnded || response.destroyed) return;
      if (error) reply.refuse(request, response, error);
      else this.invoke(request, response, bytes);
    });
  }

  invoke(request, response, bytes) {
    let input;
    try {
      input = event.make(request, response, bytes, this.settings);
    } catch (error) {
      reply.refuse(request, response, error);
      return;
    }
    response.call.started = performance.now();
    this.metrics.called(request.method);
    const { target } = this;
    // A function with three parameters may call back instead of returning. Others may use the callback from their
    // arguments.
    const waits = target.length >= 3;
    const callback = (value, status, headers) => this.callBack(response, value, status, headers);
    let result;
    try {
      result = target(input, this.context(), callback);
    } catch (error) {
      this.settleFailed(response, error);
      return;
    }
    if (result && typeof result.then === 'function') {
      const settle = (value) => {
        if (value !== undefined || !waits) this.settle(response, value);
      };
      Promise.resolve(result).then(settle, (error) => this.settleFailed(response, error));
    } else if (result !== undefined || !waits) {
      this.settle(response, result);
    }
  }

  context() {
    const { settings } = this;
    return {
      'function-name': settings.functionName,
      timeout: settings.timeout,
      runtime: settings.runtime,
      'memory-limit': settings.memoryLimit,
      namespace: settings.namespace,
    };
  }

  /** Handles the function's call of `callback(body, status, headers)`. */
  callBack(response, result, status, headers) {
    if (response.call.settled || response.headersSent) return;
    try {
      if (headers) response.set(headers);
      if (status) response.status(status);
    } catch (error) {
      this.settleFailed(response, error);
      return;
    }
    this.settle(response, result);
  }

  settle(response, result) {
    if (!this.take(response)) return;
    try {
      reply.send(response, result);
    } catch (error) {
      this.fail(response, error);
    }
  }

  settleFailed(response, error) {
    if (this.take(response)) this.fail(response, error);
  }

  /** Marks the call as settled. Returns false if it already was. */
  take(response) {
    const { call } = response;
    if (call.settled) return false;
    call.settled = true;
    this.metrics.took(response.req.method, (performance.now() - call.started) / 1000);
    return true;
  }

  fail(response, error) {
    this.metrics.failed(response.req.method);
    this.log(`Function failed to execute: ${error instanceof Error ? error.stack : String(error)}`);
    reply.fail(response, error);
  }

  /** Answers calls after their deadline. The deadline covers the whole response. */
  expire() {
    const now = performance.now();
    for (const response of this.open) {
      const { call } = response;
      if (call === null || call.late) continue;
      if (call.deadline > now) break;
      if (call.started > 0) this.take(response);
      call.settled = true;
      call.late = true;
      this.metrics.failed(response.req.method);
      this.log(`The function has not answered within ${this.settings.timeout} s`);
      if (response.headersSent) response.destroy();
      else reply.late(response.req, response);
    }
  }

  close(response) {
    if (!this.open.delete(response)) return;
    if (response.call !== null) this.watchdog.leave(response.call.slot);
    if (this.drained && this.open.size === 0) this.drained();
  }

  /** Starts draining: every response closes its connection, and the server is not ready. */
  retire() {
    this.draining = true;
    for (const response of this.open) response.shouldKeepAlive = false;
  }

  /** Calls back when all calls in progress have finished. */
  drain(drained) {
    this.drained = drained;
    if (this.open.size === 0) drained();
  }

  /** Answers the calls in progress synchronously, because the process is ending. */
  abandon() {
    for (const response of this.open) {
      const handle = response.socket && response.socket._handle;
      if (response.headersSent || !handle || !(handle.fd > 2)) continue;
      try {
        fs.writeSync(handle.fd, reply.LAST);
      } catch (_) {
        // The connection is closed or full.
      }
    }
  }
}

module.exports = { Calls };
