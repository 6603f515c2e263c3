'use strict';

/**
 * Resolves names of Services in the programs of pods: `b`, `b.shop`, `b.shop.svc` and `b.shop.svc.cluster.local`
 * resolve to the Service's loopback address. Connections use the port that is bound for a Service's port.
 *
 * Other names are resolved as usual. Names below `svc` are never sent to DNS.
 *
 * Not here: `dns.resolve` and similar functions, which query name servers directly.
 */

const dns = require('dns');
const fs = require('fs');
const net = require('net');
const path = require('path');

const root = path.dirname(path.dirname(__dirname));
const ownNamespace = path.basename(__dirname);
const LABEL = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;

/** Reads the file that the node wrote for a Service; null if it does not exist. */
function read(...place) {
  let lines;
  try {
    lines = fs.readFileSync(path.join(root, ...place), 'latin1').split('\n');
  } catch {
    return null;
  }
  const [address, ...pairs] = lines.filter((line) => line !== '');
  return { address, ports: new Map(pairs.map((pair) => pair.split(' ').map(Number))) };
}

/** Returns the Service of a host: null if it does not exist, undefined if the name is not that of a Service. */
function service(host) {
  if (typeof host !== 'string' || host === '' || host.length > 254) return undefined;
  if (net.isIP(host) !== 0) return host.startsWith('127.') ? read('addresses', host) || undefined : undefined;
  const name = host.toLowerCase();
  const whole = /^(.*\.svc)\.cluster\.local\.?$/.exec(name);
  const labels = (whole ? whole[1] : name).split('.');
  const isOurs = labels.length > 1 && labels[labels.length - 1] === 'svc';
  if (isOurs) labels.pop();
  if (labels.length > 2 || name === 'localhost' || !labels.every((label) => LABEL.test(label))) {
    return isOurs ? null : undefined;
  }
  const found = isOurs && labels.length === 1 ? null : read('services', labels[1] || ownNamespace, labels[0]);
  return found || (isOurs ? null : undefined);
}

function unknown(hostname) {
  const error = new Error(`getaddrinfo ENOTFOUND ${hostname}`);
  return Object.assign(error, { errno: -3008, code: 'ENOTFOUND', syscall: 'getaddrinfo', hostname });
}

/** Returns the address of a host: null if it has none, undefined if the name is not that of a Service. */
function address(host, options) {
  const found = service(host);
  if (!found || net.isIP(host) !== 0) return found === null ? null : undefined;
  const family = typeof options === 'object' && options !== null ? options.family : options;
  return family === 6 || family === 'IPv6' ? null : found.address;
}

/** Replaces a function and keeps its properties. */
function replace(object, name, make) {
  const before = object[name];
  const after = make(before);
  Object.defineProperties(after, Object.getOwnPropertyDescriptors(before));
  object[name] = after;
}

replace(dns, 'lookup', (lookup) => function (hostname, options, callback) {
  const done = typeof options === 'function' ? options : callback;
  const found = typeof done === 'function' ? address(hostname, options) : undefined;
  if (found === undefined) return Reflect.apply(lookup, this, arguments);
  if (found !== null) return Reflect.apply(lookup, this, [found, ...Array.prototype.slice.call(arguments, 1)]);
  process.nextTick(done, unknown(hostname));
  return {};
});

replace(dns.promises, 'lookup', (lookup) => function (hostname, ...rest) {
  const found = address(hostname, rest[0]);
  if (found === null) return Promise.reject(unknown(hostname));
  return Reflect.apply(lookup, this, [found === undefined ? hostname : found, ...rest]);
});

/** Returns the options of a connection with the bound port. */
function led(options) {
  if (typeof options !== 'object' || options === null) return options;
  const found = service(options.host);
  const port = found ? found.ports.get(Number(options.port)) : undefined;
  if (port === undefined || port === Number(options.port)) return options;
  const copy = Object.create(Object.getPrototypeOf(options), Object.getOwnPropertyDescriptors(options));
  copy.port = port;
  return copy;
}

replace(net.Socket.prototype, 'connect', (connect) => function (...args) {
  let [first, second] = args;
  if (Array.isArray(first)) {
    // The normalized arguments of net.connect; a symbol marks them.
    const list = first.slice();
    for (const symbol of Object.getOwnPropertySymbols(first)) list[symbol] = first[symbol];
    list[0] = led(list[0]);
    first = list;
  } else if (typeof first === 'object') {
    first = led(first);
  } else if (typeof second === 'string') {
    first = led({ host: second, port: first }).port;
  }
  return Reflect.apply(connect, this, args.length === 0 ? [] : [first, ...args.slice(1)]);
});

require('module').syncBuiltinESMExports();
