'use strict';
// The response that a function sees: Node.js' own, with what handlers expect of Express' `res`.

const crypto = require('crypto');
const fs = require('fs');
const http = require('http');
const path = require('path');

const cookies = require('./cookies');
const media = require('./media');

const EMPTY_TAG = 'W/"0-2jmj7l5rSw0yVb/vlWAYkK/YBwk"';

class Response extends http.ServerResponse {
  constructor(...args) {
    super(...args);
    // What the server notes of a call; see calls.js.
    this.call = null;
    this.deferred = false; // the answer comes after the function has returned
  }

  status(code) {
    this.statusCode = code;
    return this;
  }

  sendStatus(code) {
    this.statusCode = code;
    this.type('txt');
    return this.send(http.STATUS_CODES[code] || String(code));
  }

  set(field, value) {
    if (typeof field !== 'string') {
      for (const name of Object.keys(field)) this.set(name, field[name]);
      return this;
    }
    let text = Array.isArray(value) ? value.map(String) : String(value);
    if (field.toLowerCase() === 'content-type') {
      if (Array.isArray(text)) throw new TypeError('Content-Type cannot be set to an Array');
      if (!/;\s*charset\s*=/.test(text) && media.isText(text)) text += '; charset=utf-8';
    }
    this.setHeader(field, text);
    return this;
  }

  header(field, value) {
    return this.set(field, value);
  }

  get(field) {
    return this.getHeader(field);
  }

  type(name) {
    return this.set('Content-Type', name.includes('/') ? name : media.lookup(name, 'application/octet-stream'));
  }

  contentType(name) {
    return this.type(name);
  }

  append(field, value) {
    const old = this.get(field);
    return this.set(field, old === undefined ? value : [].concat(old, value));
  }

  vary(field) {
    const fields = Array.isArray(field) ? field : String(field).split(',');
    const old = this.get('Vary');
    const listed = (old === undefined ? [] : String(old).split(',')).map((name) => name.trim());
    for (const name of fields.map((one) => one.trim())) {
      if (!listed.some((known) => known.toLowerCase() === name.toLowerCase())) listed.push(name);
    }
    this.setHeader('Vary', listed.includes('*') ? '*' : listed.join(', '));
    return this;
  }

  links(links) {
    const old = this.get('Link');
    const texts = Object.keys(links).map((relation) => `<${links[relation]}>; rel="${relation}"`);
    return this.set('Link', (old ? `${old}, ` : '') + texts.join(', '));
  }

  location(url) {
    const target = url === 'back' ? this.req.get('Referrer') || '/' : String(url);
    return this.set('Location', encodeUrl(target));
  }

  redirect(...args) {
    const status = typeof args[0] === 'number' ? args.shift() : 302;
    if (typeof args[1] === 'number') return this.redirect(args[1], args[0]);
    this.location(args[0]);
    const target = this.get('Location');
    const reason = http.STATUS_CODES[status];
    let body = '';
    this.format({
      text: () => { body = `${reason}. Redirecting to ${target}`; },
      html: () => { body = `<p>${reason}. Redirecting to ${escapeHtml(target)}</p>`; },
      default: () => {},
    });
    this.statusCode = status;
    this.setHeader('Content-Length', Buffer.byteLength(body));
    if (this.req.method === 'HEAD') this.end();
    else this.end(body);
    return undefined;
  }

  format(choices) {
    const names = Object.keys(choices).filter((name) => name !== 'default');
    const best = names.length > 0 ? this.req.accepts(names) : false;
    this.vary('Accept');
    if (best) {
      this.set('Content-Type', media.normalize(best));
      choices[best](this.req, this, () => {});
    } else if (choices.default) {
      choices.default(this.req, this, () => {});
    } else {
      this.sendStatus(406);
    }
    return this;
  }

  attachment(name) {
    if (name) this.type(path.extname(name) || 'bin');
    return this.set('Content-Disposition', disposition(name));
  }

  cookie(name, value, options) {
    if (options && options.signed) throw new Error('cookieParser("secret") required for signed cookies');
    const all = { path: '/', ...options };
    const text = typeof value === 'object' ? `j:${JSON.stringify(value)}` : String(value);
    if (all.maxAge !== undefined && all.maxAge !== null && !Number.isNaN(Number(all.maxAge))) {
      all.expires = new Date(Date.now() + Number(all.maxAge));
    }
    return this.append('Set-Cookie', cookies.serialize(name, text, all));
  }

  clearCookie(name, options) {
    return this.cookie(name, '', { path: '/', ...options, expires: new Date(1), maxAge: undefined });
  }

  json(...args) {
    let body = args[0];
    if (args.length === 2) {
      // The old forms `json(status, body)` and `json(body, status)`.
      if (typeof args[1] === 'number') this.statusCode = args[1];
      else [this.statusCode, body] = args;
    }
    const text = JSON.stringify(body);
    if (this.getHeader('Content-Type') === undefined) this.setHeader('Content-Type', 'application/json; charset=utf-8');
    return this.send(text);
  }

  jsonp(value) {
    let text = JSON.stringify(value);
    let callback = this.req.query.callback;
    if (this.getHeader('Content-Type') === undefined) {
      this.set('X-Content-Type-Options', 'nosniff');
      this.set('Content-Type', 'application/json');
    }
    if (Array.isArray(callback)) [callback] = callback;
    if (typeof callback === 'string' && callback !== '') {
      this.set('X-Content-Type-Options', 'nosniff');
      this.set('Content-Type', 'text/javascript');
      callback = callback.replace(/[^[\]\w$.]/g, '');
      text = text === undefined ? '' : text.replace(/\u2028/g, '\\u2028').replace(/\u2029/g, '\\u2029');
      text = `/**/ typeof ${callback} === 'function' && ${callback}(${text});`;
    }
    return this.send(text);
  }

  send(...args) {
    let body = args[0];
    if (args.length === 2) {
      // The old forms `send(status, body)` and `send(body, status)`.
      if (typeof args[0] !== 'number' && typeof args[1] === 'number') this.statusCode = args[1];
      else [this.statusCode, body] = args;
    } else if (typeof body === 'number') {
      if (this.getHeader('Content-Type') === undefined) this.type('txt');
      this.statusCode = body;
      body = http.STATUS_CODES[body] || String(body);
    }
    const kind = this.getHeader('Content-Type');
    if (typeof body === 'string') {
      if (kind === undefined) this.setHeader('Content-Type', 'text/html; charset=utf-8');
      else if (typeof kind === 'string') this.setHeader('Content-Type', inUtf8(kind));
    } else if (body === null) {
      body = '';
    } else if (ArrayBuffer.isView(body)) {
      if (kind === undefined) this.type('bin');
    } else if (body !== undefined) {
      return this.json(body);
    }
    if (body !== undefined) this.seal(body);
    if (this.req.fresh) this.statusCode = 304;
    if (this.statusCode === 204 || this.statusCode === 304) {
      for (const name of ['Content-Type', 'Content-Length', 'Transfer-Encoding']) this.removeHeader(name);
      body = '';
    } else if (this.statusCode === 205) {
      this.setHeader('Content-Length', '0');
      this.removeHeader('Transfer-Encoding');
      body = '';
    }
    if (this.req.method === 'HEAD' || body === undefined) this.end();
    else this.end(body);
    return this;
  }

  /** Sets the length and, unless there is one, the entity tag. */
  seal(body) {
    const length = Buffer.byteLength(body);
    this.setHeader('Content-Length', length);
    if (this.getHeader('ETag') !== undefined) return;
    if (length === 0) {
      this.setHeader('ETag', EMPTY_TAG);
      return;
    }
    const hash = crypto.createHash('sha1').update(body, 'utf8').digest('base64').slice(0, 27);
    this.setHeader('ETag', `W/"${length.toString(16)}-${hash}"`);
  }

  /** Sends a file; `options` are `root`, `headers` and `maxAge` (milliseconds). */
  sendFile(name, options, done) {
    const settings = typeof options === 'object' && options !== null ? options : {};
    const finished = typeof options === 'function' ? options : done;
    if (!settings.root && !path.isAbsolute(name)) {
      throw new TypeError('path must be absolute or specify root to res.sendFile');
    }
    const full = settings.root ? path.join(settings.root, path.join('/', name)) : name;
    this.deferred = true;
    const stream = fs.createReadStream(full);
    stream.once('open', (fd) => {
      const stat = fs.fstatSync(fd);
      if (this.getHeader('Content-Type') === undefined) this.type(path.extname(full) || 'bin');
      for (const field of Object.keys(settings.headers || {})) this.set(field, settings.headers[field]);
      const age = Math.floor((Number(settings.maxAge) || 0) / 1000);
      if (this.getHeader('Cache-Control') === undefined) this.setHeader('Cache-Control', `public, max-age=${age}`);
      this.setHeader('Last-Modified', stat.mtime.toUTCString());
      this.setHeader('Content-Length', stat.size);
      stream.pipe(this);
    });
    stream.once('error', (error) => {
      if (finished) finished(error);
      if (this.headersSent) this.destroy();
      else this.sendStatus(error.code === 'ENOENT' || error.code === 'EISDIR' ? 404 : 500);
    });
    if (finished) this.once('finish', () => finished());
  }

  download(name, ...rest) {
    const shown = typeof rest[0] === 'string' ? rest.shift() : undefined;
    this.set('Content-Disposition', disposition(path.basename(shown || name)));
    return this.sendFile(path.resolve(name), ...rest);
  }
}

Object.defineProperty(Response.prototype, 'locals', {
  configurable: true,
  get() {
    const value = Object.create(null);
    Object.defineProperty(this, 'locals', { value, writable: true, configurable: true, enumerable: true });
    return value;
  },
  set(value) {
    Object.defineProperty(this, 'locals', { value, writable: true, configurable: true, enumerable: true });
  },
});

/** The type with its charset replaced by UTF-8, which is what strings are sent in. */
function inUtf8(kind) {
  if (/;\s*charset=utf-8$/.test(kind)) return kind;
  return `${kind.replace(/;\s*charset\s*=\s*("[^"]*"|[^;\s]*)/i, '')}; charset=utf-8`;
}

/** Percent-encodes what a URL cannot hold and leaves what is encoded already. */
function encodeUrl(url) {
  const paired = url.replace(/(^|[^\uD800-\uDBFF])[\uDC00-\uDFFF]|[\uD800-\uDBFF]([^\uDC00-\uDFFF]|$)/g, '$1\uFFFD$2');
  return paired.replace(/(?:[^\x21\x23-\x3B\x3D\x3F-\x5F\x61-\x7A\x7C\x7E%]|%(?![0-9A-Fa-f]{2}))+/g, encodeURI);
}

function escapeHtml(text) {
  const names = { '"': '&quot;', '&': '&amp;', "'": '&#39;', '<': '&lt;', '>': '&gt;' };
  return text.replace(/["&'<>]/g, (character) => names[character]);
}

function disposition(name) {
  if (name === undefined) return 'attachment';
  const base = path.basename(name);
  const quoted = (text) => `"${text.replace(/(["\\])/g, '\\$1')}"`;
  // eslint-disable-next-line no-control-regex
  const plain = /^[\x20-\x7e\xa0-\xff]*$/.test(base) && !/%[0-9A-Fa-f]{2}/.test(base);
  if (plain) return `attachment; filename=${/^[!#$%&'*+.0-9A-Z^_`a-z|~-]+$/.test(base) ? quoted(base) : quoted(base)}`;
  const fallback = base.replace(/[^\x20-\x7e\xa0-\xff]/g, '?');
  const encoded = encodeURIComponent(base).replace(/[!'()*]/g, (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`);
  return `attachment; filename=${quoted(fallback)}; filename*=UTF-8''${encoded}`;
}

module.exports = { Response };
