'use strict';
// Query strings as Express reads them: `a=1&a=2` is a list, `a[]=1` too, `a[b]=1` nests. Bounded in every direction.

const MOST_PARAMETERS = 1000;
const DEEPEST = 5;
const LARGEST_INDEX = 20;

function decode(text) {
  const plain = text.replace(/\+/g, ' ');
  try {
    return decodeURIComponent(plain);
  } catch (_) {
    return plain;
  }
}

/** `a[b][c]` becomes `['a', 'b', 'c']`; what lies deeper than the bound stays one key, with its brackets. */
function segments(key) {
  const first = key.indexOf('[');
  if (first === -1) return [key];
  const found = first > 0 ? [key.slice(0, first)] : [];
  let rest = key.slice(first);
  let brackets = 0;
  while (rest !== '' && brackets < DEEPEST) {
    const match = /^\[([^[\]]*)\]/.exec(rest);
    if (match === null) break;
    found.push(match[1] === '' ? null : match[1]);
    rest = rest.slice(match[0].length);
    brackets += 1;
  }
  if (brackets === 0) return [key];
  const next = rest.indexOf('[');
  if (next !== -1) found.push(rest.slice(next).replace(/^\[([\s\S]*)\]$/, '[$1]'));
  return found;
}

class Branch {
  constructor() {
    this.children = new Map(); // key (null for `[]`) to text, list or branch
    this.next = 0;
  }

  put(keys, value) {
    const [key, ...deeper] = keys;
    if (key === '__proto__') return;
    const name = key === null ? `${this.unused()}` : key;
    const old = this.children.get(name);
    if (deeper.length > 0) {
      let branch = old;
      if (!(branch instanceof Branch)) {
        branch = new Branch();
        if (old !== undefined) for (const text of [].concat(old)) branch.put([null], text);
        this.children.set(name, branch);
      }
      branch.put(deeper, value);
    } else if (old === undefined) {
      this.children.set(name, value);
    } else if (old instanceof Branch) {
      old.put(old.isList() ? [null] : [value], old.isList() ? value : true);
    } else {
      this.children.set(name, [].concat(old, value));
    }
  }

  unused() {
    while (this.children.has(`${this.next}`)) this.next += 1;
    return this.next;
  }

  isList() {
    for (const key of this.children.keys()) {
      if (!/^(0|[1-9]\d?)$/.test(key) || Number(key) > LARGEST_INDEX) return this.children.size <= this.next;
    }
    return true;
  }

  value() {
    if (this.isList()) {
      const order = [...this.children.keys()].sort((a, b) => a - b);
      return order.flatMap((key) => plain(this.children.get(key)));
    }
    const object = {};
    for (const [key, child] of this.children) object[key] = plain(child);
    return object;
  }
}

function plain(child) {
  return child instanceof Branch ? child.value() : child;
}

function parse(text) {
  const flat = {};
  if (text === '') return flat;
  const root = new Branch();
  for (const part of text.split('&', MOST_PARAMETERS)) {
    if (part === '') continue;
    const bracketed = part.indexOf(']=');
    const equals = bracketed === -1 ? part.indexOf('=') : bracketed + 1;
    const key = decode(equals === -1 ? part : part.slice(0, equals));
    const value = equals === -1 ? '' : decode(part.slice(equals + 1));
    if (key !== '') root.put(segments(key), value);
  }
  for (const [key, child] of root.children) flat[key] = plain(child);
  return flat;
}

module.exports = { parse };
