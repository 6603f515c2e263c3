'use strict';
// `event.tracer`: the interface of an OpenTelemetry tracer, so that functions with spans run unchanged. Its spans carry
// the caller's context and are not recorded.
//
// Not here: an exporter.

const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-|$)/;
const NO_TRACE = '0'.repeat(32);
const NO_SPAN = '0'.repeat(16);

/** Returns the caller's context from the W3C header, or else from the B3 headers. */
function contextOf(headers) {
  const parent = TRACEPARENT.exec(headers.traceparent || '');
  if (parent !== null) return { traceId: parent[1], spanId: parent[2], traceFlags: parseInt(parent[3], 16), isRemote: true };
  const trace = String(headers['x-b3-traceid'] || '').toLowerCase().padStart(32, '0');
  const span = String(headers['x-b3-spanid'] || '').toLowerCase();
  const valid = /^[0-9a-f]{32}$/.test(trace) && /^[0-9a-f]{16}$/.test(span);
  if (!valid) return { traceId: NO_TRACE, spanId: NO_SPAN, traceFlags: 0 };
  return { traceId: trace, spanId: span, traceFlags: headers['x-b3-sampled'] === '1' ? 1 : 0, isRemote: true };
}

class Span {
  #context;

  constructor(context) {
    this.#context = context;
  }

  spanContext() {
    return this.#context;
  }

  isRecording() {
    return false;
  }

  end() {}

  recordException() {}
}

for (const name of ['setAttribute', 'setAttributes', 'addEvent', 'addLink', 'addLinks', 'setStatus', 'updateName']) {
  Span.prototype[name] = function same() {
    return this;
  };
}

class Tracer {
  #context;

  constructor(headers) {
    this.#context = contextOf(headers);
  }

  startSpan() {
    return new Span(this.#context);
  }

  /** `startActiveSpan(name, [options], [context], call)` */
  startActiveSpan(...given) {
    return given[given.length - 1](this.startSpan());
  }
}

module.exports = { Tracer };
