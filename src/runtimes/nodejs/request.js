'use strict';
// The request that a function sees: Node.js' own, with what handlers expect of Express' `req`.
//
// A class and not a prototype put under each request: the server makes it at once, which keeps it fast.

const http = require('http');
const net = require('net');

const cookies = require('./cookies');
const media = require('./media');
const query = require('./query');

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

class Request extends http.IncomingMessage {
  get(name) {
    if (typeof name !== 'string' || name === '') throw new TypeError('name argument is required to req.get');
    const lower = name.toLowerCase();
    if (lower === 'referer' || lower === 'referrer') return this.headers.referrer || this.headers.referer;
    return this.headers[lower];
  }

  header(name) {
    return this.get(name);
  }

  is(...wanted) {
    if (this.headers['transfer-encoding'] === undefined && this.headers['content-length'] === undefined) return null;
    return media.is(this.headers['content-type'], wanted.flat());
  }

  accepts(...offers) {
    const wanted = offers.flat();
    const header = this.headers.accept;
    if (wanted.length === 0) return header === undefined ? ['*/*'] : media.preferred(header, [], 'type');
    if (!header) return wanted[0];
    const types = wanted.map((offer) => media.normalize(offer));
    const known = types.filter(Boolean);
    const [best] = known.length > 0 ? media.preferred(header, known, 'type') : [];
    return best === undefined ? false : wanted[types.indexOf(best)];
  }

  acceptsEncodings(...offers) {
    return choose(this.headers['accept-encoding'] || '', offers.flat(), 'word', 'identity');
  }

  acceptsCharsets(...offers) {
    return choose(any(this.headers['accept-charset']), offers.flat(), 'word');
  }

  acceptsLanguages(...offers) {
    return choose(any(this.headers['accept-language']), offers.flat(), 'language');
  }

  param(name, fallback) {
    for (const place of [this.params, this.body, this.query]) {
      if (place && Object.prototype.hasOwnProperty.call(place, name)) return place[name];
    }
    return fallback;
  }

  /** The ranges that a `Range` header asks for: -1 for none that can be had, -2 for a malformed header. */
  range(size, options) {
    const header = this.get('range');
    if (header === undefined) return undefined;
    const equals = header.indexOf('=');
    if (equals === -1) return -2;
    const found = [];
    for (const part of header.slice(equals + 1).split(',', 64)) {
      const [from, to = ''] = part.split('-');
      let start = parseInt(from, 10);
      let end = parseInt(to, 10);
      if (Number.isNaN(start)) {
        start = size - end;
        end = size - 1;
      } else if (Number.isNaN(end)) {
        end = size - 1;
      }
      end = Math.min(end, size - 1);
      if (Number.isNaN(start) || Number.isNaN(end) || start > end || start < 0) continue;
      found.push({ start, end });
    }
    if (found.length === 0) return -1;
    const ranges = options && options.combine ? combined(found) : found;
    ranges.type = header.slice(0, equals);
    return ranges;
  }

  /** Whether what the client has is still right, so that 304 will do. */
  get fresh() {
    const { method, headers, res } = this;
    if (method !== 'GET' && method !== 'HEAD') return false;
    if (!((res.statusCode >= 200 && res.statusCode < 300) || res.statusCode === 304)) return false;
    const match = headers['if-none-match'];
    const since = headers['if-modified-since'];
    if (!match && !since) return false;
    if (/(?:^|,)\s*?no-cache\s*?(?:,|$)/.test(headers['cache-control'] || '')) return false;
    if (match) {
      if (match === '*') return true;
      const tag = res.getHeader('ETag');
      if (!tag) return false;
      const bare = (text) => text.trim().replace(/^W\//, '');
      return match.split(',').some((one) => bare(one) === bare(String(tag)));
    }
    const modified = Date.parse(res.getHeader('Last-Modified'));
    return modified <= Date.parse(since);
  }

  get stale() {
    return !this.fresh;
  }

  get xhr() {
    return (this.get('X-Requested-With') || '').toLowerCase() === 'xmlhttprequest';
  }

  get secure() {
    return this.protocol === 'https';
  }

  get subdomains() {
    const name = this.hostname;
    return !name || net.isIP(name) ? [] : name.split('.').reverse().slice(2);
  }
}

function combined(ranges) {
  const sorted = ranges.map((range, at) => ({ ...range, at })).sort((a, b) => a.start - b.start);
  const joined = [];
  for (const range of sorted) {
    const last = joined[joined.length - 1];
    if (last !== undefined && range.start <= last.end + 1) {
      last.end = Math.max(last.end, range.end);
      last.at = Math.min(last.at, range.at);
    } else {
      joined.push(range);
    }
  }
  return joined.sort((a, b) => a.at - b.at).map(({ start, end }) => ({ start, end }));
}

function any(header) {
  return header === undefined ? '*' : header;
}

function choose(header, offers, kind, implied) {
  const found = media.preferred(header, offers, kind, implied);
  if (offers.length === 0) return found;
  return found.length > 0 ? found[0] : false;
}

function split(url) {
  const mark = url.indexOf('?');
  return mark === -1 ? [url, ''] : [url.slice(0, mark), url.slice(mark + 1)];
}

function hostname(request) {
  const host = request.headers.host;
  if (!host) return undefined;
  const end = host[0] === '[' ? host.indexOf(']') + 1 : 0;
  const colon = host.indexOf(':', end);
  return colon === -1 ? host : host.slice(0, colon);
}

function path(url) {
  const [before] = split(url);
  if (before[0] === '/' || before === '*') return before;
  try {
    return new URL(before).pathname; // a proxy's absolute form
  } catch (_) {
    return before;
  }
}

lazy(Request.prototype, 'query', (request) => query.parse(split(request.url)[1]));
lazy(Request.prototype, 'path', (request) => path(request.url));
lazy(Request.prototype, 'originalUrl', (request) => request.url);
lazy(Request.prototype, 'baseUrl', () => '');
lazy(Request.prototype, 'params', (request) => ({ 0: request.path })); // as of the route `*`
lazy(Request.prototype, 'cookies', (request) => cookies.parse(request.headers.cookie));
lazy(Request.prototype, 'signedCookies', () => Object.create(null));
lazy(Request.prototype, 'hostname', hostname);
lazy(Request.prototype, 'host', hostname);
lazy(Request.prototype, 'protocol', (request) => (request.socket.encrypted ? 'https' : 'http'));
lazy(Request.prototype, 'ip', (request) => request.socket.remoteAddress);
lazy(Request.prototype, 'ips', () => []);

module.exports = { Request };
