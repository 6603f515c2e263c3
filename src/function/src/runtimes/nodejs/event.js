'use strict';
// Builds the event argument of the function from a request.

const { Refusal } = require('./body');
const { publish, build } = require('./publish');
const { Tracer } = require('./tracer');

const ATTRIBUTES = ['ce-type', 'ce-source', 'ce-eventtypeversion', 'ce-specversion', 'ce-id', 'ce-time'];
const REQUIRED = ['specversion', 'type', 'source', 'id'];
const NOTHING = Buffer.alloc(0);
const STRUCTURED = 'application/cloudevents+json';
const FORM = 'application/x-www-form-urlencoded';
const TEXT = /^text\/|[/+](json|xml|javascript|yaml|graphql)$/;
// The limit of Express's form parser.
const MOST_FIELDS = 1000;

class Event {
  #publisher;
  #tracer;

  constructor(request, response, publisher) {
    this.#publisher = publisher;
    const { headers } = request;
    for (const name of ATTRIBUTES) this[name] = headers[name];
    this.data = undefined; // if there is no body
    this.extensions = { request, response };
  }

  /** Created on first use. */
  get tracer() {
    this.#tracer ??= new Tracer(this.extensions.request.headers);
    return this.#tracer;
  }

  setResponseHeader(key, value) {
    this.extensions.response.set(key, value);
  }

  setResponseContentType(type) {
    this.extensions.response.type(type);
  }

  setResponseStatus(status) {
    this.extensions.response.status(status);
  }

  /** Publishes a complete CloudEvent. */
  publishCloudEvent(event) {
    return publish(this.#publisher, event);
  }

  /** Builds and publishes a CloudEvent; `attributes` are optional. */
  emitCloudEvent(type, source, data, attributes) {
    return publish(this.#publisher, build(type, source, data, attributes));
  }

  /** Builds the CloudEvent that answers this one. */
  buildResponseCloudEvent(id, type, data) {
    return {
      type,
      source: this['ce-source'],
      eventtypeversion: this['ce-eventtypeversion'],
      specversion: this['ce-specversion'],
      id,
      data,
      datacontenttype: typeof data === 'object' ? 'application/json' : 'text/plain',
    };
  }
}

/** Builds the event. Throws a `Refusal` for a client error. `body` is `null` if the function reads it as a stream. */
function make(request, response, body, settings) {
  const kind = essence(request.headers['content-type']);
  const event = new Event(request, response, settings.publisher);
  request.rawBody = body || NOTHING;
  if (kind === STRUCTURED) {
    structured(event, parsed(body === null ? '' : body.toString('utf8')));
    return event;
  }
  if (event['ce-type'] !== undefined && event['ce-source'] !== undefined) binary(event, request);
  if (body !== null && body.length > 0) {
    event.data = valueOf(kind, body);
  }
  request.body = event.data;
  return event;
}

/** Returns the media type without parameters, in lower case. */
function essence(contentType) {
  return contentType ? contentType.split(';', 1)[0].trim().toLowerCase() : '';
}

/** Parses JSON and forms. Text becomes a string, other types bytes. */
function valueOf(kind, body) {
  if (kind === 'application/json') return parsed(body.toString('utf8'));
  if (kind === FORM) return form(body.toString('utf8'));
  return TEXT.test(kind) ? body.toString('utf8') : body;
}

function form(text) {
  let fields = 1;
  for (let at = text.indexOf('&'); at !== -1; at = text.indexOf('&', at + 1)) fields += 1;
  if (fields > MOST_FIELDS) throw new Refusal(413, `the form has more than ${MOST_FIELDS} fields`);
  try {
    return require('./express').parseForm(text);
  } catch (_) {
    throw new Refusal(400, 'the names in the form nest too deep');
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (_) {
    throw new Refusal(400, 'the body is not valid JSON');
  }
}

function binary(event, request) {
  for (const name of REQUIRED) {
    if (!event[`ce-${name}`]) throw new Refusal(400, `incomplete CloudEvent: the header "ce-${name}" is missing`);
  }
  const kind = request.headers['content-type'];
  if (kind !== undefined) event['ce-datacontenttype'] = kind;
}

function structured(event, envelope) {
  if (envelope === null || typeof envelope !== 'object' || Array.isArray(envelope)) {
    throw new Refusal(400, 'incomplete CloudEvent: the body is not a JSON object');
  }
  for (const name of REQUIRED) {
    if (typeof envelope[name] !== 'string' || envelope[name] === '') {
      throw new Refusal(400, `incomplete CloudEvent: the attribute "${name}" is missing`);
    }
  }
  for (const name of ATTRIBUTES) event[name] = envelope[name.slice(3)];
  if (envelope.datacontenttype !== undefined) event['ce-datacontenttype'] = envelope.datacontenttype;
  if (typeof envelope.data_base64 === 'string') event.data = Buffer.from(envelope.data_base64, 'base64');
  else if (envelope.data !== undefined) event.data = envelope.data;
  event.extensions.request.body = envelope;
}

module.exports = { make };
