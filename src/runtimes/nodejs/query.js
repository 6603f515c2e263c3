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
  if (first === -1 || key.indexOf(']', first) === -1) return [key];
  const found = first > 0 ? [key.slice(0, first)] : [];
  const bracket = /\[([^[\]]*)\]/g;
  let end = first;
  for (let depth = 0; depth < DEEPEST; depth += 1) {
    const match = bracket.exec(key);
    if (match === null) return found;
    found.push(match[1] === '' ? null : match[1]);
    end = bracket.lastIndex;
  }
  const rest = key.indexOf('[', end);
  if (rest !== -1) found.push(key.slice(rest));
  return found;
}

/** What is read of one key: a list when all its keys are small numbers, else an object. */
class Branch {
  constructor() {
    this.children = new Map(); // key to a text, to a branch, or to a list of both
    this.next = 0;
  }

  put(keys, value) {
    const [key, ...deeper] = keys;
    if (key === '__proto__') return;
    if (key === null && deeper.length === 0) {
      this.children.set(`${this.unused()}`, value);
      return;
    }
    const name = key === null ? '0' : key;
    const old = this.children.get(name);
    if (deeper.length === 0) {
      if (old === undefined) this.children.set(name, value);
      else if (old instanceof Branch && old.isList()) old.put([null], value);
      else this.children.set(name, [].concat(old, value));
    } else if (old instanceof Branch) {
      old.put(deeper, value);
    } else {
      const branch = new Branch();
      if (deeper[0] === null || Array.isArray(old)) {
        for (const one of [].concat(old === undefined ? [] : old)) branch.put([null], one);
      }
      branch.put(deeper, value);
      const mixed = old !== undefined && branch.children.size === 1;
      this.children.set(name, mixed ? [old, branch] : branch);
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
      return order.map((key) => plain(this.children.get(key)));
    }
    const object = {};
    for (const [key, child] of this.children) object[key] = plain(child);
    return object;
  }
}

function plain(child) {
  if (Array.isArray(child)) return child.map(plain);
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
