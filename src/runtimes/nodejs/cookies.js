'use strict';
// Cookies, read and written.

const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const VALUE = /^("?)[\u0021\u0023-\u002B\u002D-\u003A\u003C-\u005B\u005D-\u007E]*\1$/;
const ATTRIBUTE = /^[\u0020-\u003A\u003C-\u007E]*$/;
const MOST_COOKIES = 256;

function parse(header) {
  const found = Object.create(null);
  for (const pair of (header || '').split(';', MOST_COOKIES)) {
    const equals = pair.indexOf('=');
    if (equals === -1) continue;
    const name = pair.slice(0, equals).trim();
    const text = pair.slice(equals + 1).trim().replace(/^"(.*)"$/, '$1');
    if (name in found) continue; // the first wins
    try {
      found[name] = text.includes('%') ? decodeURIComponent(text) : text;
    } catch (_) {
      found[name] = text;
    }
  }
  return found;
}

/** One `Set-Cookie` value; `maxAge` is in milliseconds, as everywhere in Express. */
function serialize(name, value, options) {
  const encoded = (options.encode || encodeURIComponent)(value);
  if (!NAME.test(name)) throw new TypeError(`argument name is invalid: ${name}`);
  if (!VALUE.test(encoded)) throw new TypeError('argument val is invalid');
  let text = `${name}=${encoded}`;
  if (options.maxAge !== undefined && options.maxAge !== null) {
    const seconds = Math.floor(Number(options.maxAge) / 1000);
    if (!Number.isFinite(seconds)) throw new TypeError('option maxAge is invalid');
    text += `; Max-Age=${seconds}`;
  }
  for (const [key, label] of [['domain', 'Domain'], ['path', 'Path']]) {
    if (!options[key]) continue;
    if (!ATTRIBUTE.test(options[key])) throw new TypeError(`option ${key} is invalid`);
    text += `; ${label}=${options[key]}`;
  }
  if (options.expires) text += `; Expires=${options.expires.toUTCString()}`;
  if (options.httpOnly) text += '; HttpOnly';
  if (options.secure) text += '; Secure';
  if (options.partitioned) text += '; Partitioned';
  if (options.priority) text += `; Priority=${word('priority', options.priority, ['Low', 'Medium', 'High'])}`;
  if (options.sameSite) {
    const site = options.sameSite === true ? 'strict' : options.sameSite;
    text += `; SameSite=${word('sameSite', site, ['Strict', 'Lax', 'None'])}`;
  }
  return text;
}

function word(option, value, known) {
  const found = known.find((one) => one.toLowerCase() === String(value).toLowerCase());
  if (found === undefined) throw new TypeError(`option ${option} is invalid`);
  return found;
}

module.exports = { parse, serialize };
