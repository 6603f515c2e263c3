'use strict';
// Reads the environment once: the pod's settings of the function and the server.

const path = require('path');

const LONGEST_TIMER = 2 ** 31 - 1; // milliseconds; Node.js fires longer timers immediately

function number(text, fallback) {
  const value = Number(text);
  return text !== undefined && text !== '' && Number.isFinite(value) && value > 0 ? value : fallback;
}

function read(env) {
  const folder = env.KUBELESS_INSTALL_VOLUME || '/kubeless';
  const timeout = number(env.FUNC_TIMEOUT, 180);
  const port = Number(env.FUNC_PORT);
  const delay = Number(env.FUNC_DRAIN_DELAY);
  return {
    folder,
    moduleName: env.MOD_NAME || 'handler',
    functionName: env.FUNC_HANDLER || 'main',
    modulePath: path.join(folder, env.MOD_NAME || 'handler'),
    runtime: env.FUNC_RUNTIME,
    memoryLimit: env.FUNC_MEMORY_LIMIT,
    namespace: env.SERVICE_NAMESPACE || undefined,
    timeout, // seconds; for the whole response
    timeoutMillis: Math.min(Math.ceil(timeout * 1000), LONGEST_TIMER),
    bodyLimit: Math.floor(number(env.REQ_MB_LIMIT, 1) * 1024 * 1024), // bytes
    host: env.FUNC_HOST || undefined, // default: all IPv4 and IPv6 addresses
    socket: env.FUNC_SOCKET || undefined, // a Unix socket; another process owns the port
    port: Number.isInteger(port) && port >= 0 && port < 65536 && env.FUNC_PORT !== '' ? port : 8080,
    // Time to accept connections after SIGTERM, until proxies have observed the pod's end.
    drainMillis: env.FUNC_DRAIN_DELAY && delay >= 0 && delay <= 3600 ? delay * 1000 : 5000,
    accessLog: Boolean(env.KYMA_INTERNAL_LOGGER_ENABLED),
    publisher: env.PUBLISHER_PROXY_ADDRESS || undefined,
  };
}

module.exports = { read };
