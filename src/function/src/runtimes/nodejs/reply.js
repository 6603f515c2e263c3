'use strict';
// Responses: a function's result by its type, and all other answers.

const http = require('http');

const FAILED = 'Internal Server Error';
/** Written directly to a connection if the process ends during a call. */
const LAST =
  'HTTP/1.1 500 Internal Server Error\r\nAccess-Control-Allow-Origin: *\r\nContent-Type: text/html; charset=utf-8\r\n' +
  `Content-Length: ${FAILED.length}\r\nConnection: close\r\n\r\n${FAILED}`;
// How long the rest of a refused body is read before the connection is closed.
const LINGER_MILLIS = 1000;

function plain(response, status, type, text) {
  response.statusCode = status;
  response.setHeader('Content-Type', type);
  response.setHeader('Content-Length', Buffer.byteLength(text));
  response.end(text);
}

/** Answers a CORS preflight, which the function does not receive. */
function allow(request, response) {
  response.allowAllOrigins();
  const method = request.headers['access-control-request-method'];
  const headers = request.headers['access-control-request-headers'];
  if (method !== undefined) response.setHeader('Access-Control-Allow-Methods', method);
  if (headers !== undefined) response.setHeader('Access-Control-Allow-Headers', headers);
  response.setHeader('Content-Length', 0);
  response.end();
}

/** Answers with the function's result, unless the function has answered itself. */
function send(response, result) {
  if (response.writableEnded || response.destroyed) return;
  switch (typeof result) {
    case 'string':
      response.end(result);
      break;
    case 'number':
    case 'boolean':
      response.end(String(result));
      break;
    case 'bigint':
      throw new TypeError('a BigInt cannot be answered');
    case 'object':
      if (result === response) finish(response);
      else if (response.headersSent) response.end(JSON.stringify(result));
      else response.json(result);
      break;
    default:
      finish(response);
  }
}

/** Ends a response without a body, unless a stream or file is being sent. */
function finish(response) {
  if (response.deferred || response.listenerCount('unpipe') > 0) return;
  response.end();
}

/** Answers a failure. A thrown string is sent to the client. */
function fail(response, error) {
  if (response.writableEnded || response.destroyed) return;
  if (response.headersSent) {
    response.destroy(); // the client must not take a partial response for a complete one
    return;
  }
  bare(response);
  if (typeof error === 'string') plain(response, 500, 'text/plain; charset=utf-8', error);
  else plain(response, 500, 'text/html; charset=utf-8', FAILED);
}

/** Answers a timeout. */
function late(request, response) {
  if (!request.complete) endAfter(request, response);
  bare(response);
  plain(response, 408, 'text/plain; charset=utf-8', http.STATUS_CODES[408]);
}

/** Refuses a request with `error.status` and `error.message`. */
function refuse(request, response, error) {
  if (!request.complete) endAfter(request, response);
  bare(response);
  plain(response, error.status, 'text/plain; charset=utf-8', `${http.STATUS_CODES[error.status]}: ${error.message}`);
}

/**
 * Ends the connection after the response. The rest of the request body is dropped for a while: a connection that closes
 * with unread data is reset, and the client could lose the response.
 */
function endAfter(request, response) {
  const { socket } = request;
  response.shouldKeepAlive = false;
  // Node.js calls this after the last response of a connection, and would close the connection at once.
  socket.destroySoon = () => socket.end();
  const close = () => socket.destroy();
  response.on('finish', () => setTimeout(close, LINGER_MILLIS).unref());
  request.on('end', () => response.writableFinished ? close() : response.on('finish', close));
  request.resume();
}

/** Removes the headers that the function set, so that its failure does not resemble its success. */
function bare(response) {
  for (const name of response.getHeaderNames()) {
    if (name !== 'access-control-allow-origin') response.removeHeader(name);
  }
}

/** Logs a line in Apache's combined format after the response. */
function logAccess(request, response) {
  const from = request.socket.remoteAddress;
  const at = new Date();
  response.on('finish', () => {
    const stamp = at.toUTCString().replace(/^\w+, (\d+) (\w+) (\d+) (.*) GMT$/, '$1/$2/$3:$4 +0000');
    const safe = (text) => (text === undefined ? '-' : JSON.stringify(text).slice(1, -1));
    const line = `${request.method} ${safe(request.url)} HTTP/${request.httpVersion}`;
    const length = response.getHeader('content-length');
    const size = length === undefined ? '-' : length;
    process.stdout.write(
      `${from} - - [${stamp}] "${line}" ${response.statusCode} ${size} ` +
        `"${safe(request.headers.referer)}" "${safe(request.headers['user-agent'])}"\n`,
    );
  });
}

module.exports = { LAST, plain, allow, send, fail, late, refuse, logAccess };
