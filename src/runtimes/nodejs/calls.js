'use strict';
// One call: the request is read, the function is called, its result or failure is answered. Always, and in time.

const fs = require('fs');

const body = require('./body');
const event = require('./event');
const { CONTENT_TYPE } = require('./metrics');
const reply = require('./reply');

class Calls {
  constructor(settings, metrics, watchdog, log) {
    Object.assign(this, { settings, metrics, watchdog, log });
    this.target = null;
    this.context = {
      'function-name': settings.functionName,
      timeout: settings.timeout,
      runtime: settings.runtime,
      'memory-limit': settings.memoryLimit,
    };
    this.open = new Set(); // responses that are not done
    this.draining = false;
    this.drained = null;
    const calls = this;
    this.onClose = function onClose() {
      calls.close(this);
    };
    this.onTimeout = (response) => this.timeOut(response);
  }

  /** Sets the function to call; `null` when it could not be loaded. */
  use(target) {
    this.target = target;
  }

  answer(request, response, expectsContinue) {
    if (this.settings.accessLog) reply.logAccess(request, response);
    if (this.draining) response.shouldKeepAlive = false;
    request.res = response; // as Express links the two
    this.open.add(response);
    response.on('close', this.onClose);
    const { method } = request;
    if (method === 'OPTIONS') {
      reply.allow(request, response);
      return;
    }
    if (method === 'GET' || method === 'HEAD') {
      const [path] = request.url.split('?', 1);
      if (path === '/healthz') {
        reply.plain(response, 200, 'text/html; charset=utf-8', 'OK');
        return;
      }
      if (path === '/metrics') {
        reply.plain(response, 200, CONTENT_TYPE, this.metrics.text());
        return;
      }
    }
    this.receive(request, response, expectsContinue);
  }

  receive(request, response, expectsContinue) {
    response.setHeader('Access-Control-Allow-Origin', '*');
    response.slot = this.watchdog.enter(request.socket);
    response.timer = setTimeout(this.onTimeout, this.settings.timeoutMillis, response);
    if (!body.hasBody(request)) {
      this.invoke(request, response, null);
      return;
    }
    if (body.isTooLarge(request, this.settings.bodyLimit)) {
      reply.refuse(request, response, new body.Refusal(413, 'request entity too large'));
      return;
    }
    if (expectsContinue) response.writeContinue();
    // Forms with files are left to the function, as a stream.
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
    const { method } = request;
    if (this.target === null) {
      this.metrics.failed(method);
      this.log('The function is not loaded: see the first lines of this log');
      reply.plain(response, 500, 'text/plain; charset=utf-8', 'User function not loaded');
      return;
    }
    let input;
    try {
      input = event.make(request, response, bytes);
    } catch (error) {
      reply.refuse(request, response, error);
      return;
    }
    this.metrics.called(method);
    const started = process.hrtime();
    const settle = (error, result) => {
      if (response.settled) return;
      response.settled = true;
      const [seconds, nanos] = process.hrtime(started);
      this.metrics.took(method, seconds + nanos / 1e9);
      this.conclude(request, response, error, result);
    };
    response.settle = settle;
    this.call(input, response, settle);
  }

  call(input, response, settle) {
    const { target } = this;
    const callback = (result, status, headers) => {
      if (response.settled || response.headersSent) return;
      try {
        if (headers) response.set(headers);
        if (status) response.status(status);
        settle(null, { value: result });
      } catch (error) {
        settle({ cause: error });
      }
    };
    let result;
    try {
      result = target(input, { ...this.context }, callback);
    } catch (error) {
      settle({ cause: error });
      return;
    }
    if (result && typeof result.then === 'function') {
      // A thenable of the user's may throw when it is asked.
      Promise.resolve(result).then((value) => settle(null, { value }), (error) => settle({ cause: error }));
    } else if (result !== undefined || target.length < 3) {
      settle(null, { value: result });
    }
    // Who takes a callback and returns nothing will call it.
  }

  conclude(request, response, error, result) {
    let failure = error;
    if (!failure) {
      try {
        reply.send(response, result.value);
        return;
      } catch (cause) {
        failure = { cause };
      }
    }
    this.metrics.failed(request.method);
    const { cause } = failure;
    this.log(`Function failed to execute: ${cause instanceof Error ? cause.stack : String(cause)}`);
    reply.fail(response);
  }

  timeOut(response) {
    const { req: request } = response;
    if (!response.settled && response.settle) {
      response.settled = true;
      this.metrics.took(request.method, this.settings.timeout);
      this.metrics.failed(request.method);
    }
    if (response.writableFinished) return;
    this.log(`The function has not answered within ${this.settings.timeout} s`);
    if (response.headersSent) response.destroy();
    else reply.late(request, response);
  }

  close(response) {
    if (!this.open.delete(response)) return;
    if (response.timer) clearTimeout(response.timer);
    if (response.slot) this.watchdog.leave(response.slot);
    if (this.drained && this.open.size === 0) this.drained();
  }

  /** Lets the calls in flight finish, each as the last of its connection. */
  drain(drained) {
    this.draining = true;
    for (const response of this.open) response.shouldKeepAlive = false;
    this.drained = drained;
    if (this.open.size === 0) drained();
  }

  /** The process is ending under the calls in flight: they are answered at once, past the event loop. */
  abandon() {
    for (const response of this.open) {
      const handle = response.socket && response.socket._handle;
      if (response.headersSent || !handle || !(handle.fd > 2)) continue;
      try {
        fs.writeSync(handle.fd, reply.LAST);
      } catch (_) {
        // The connection is gone or full, and there is nobody to tell.
      }
    }
  }
}

module.exports = { Calls };
