'use strict';
// What is answered: a function's result by its type, and everything that is not a result.

const http = require('http');

const FAILED = 'Internal Server Error';
/** Written straight to a connection when the process ends under a call. */
const LAST =
  'HTTP/1.1 500 Internal Server Error\r\nAccess-Control-Allow-Origin: *\r\nContent-Type: text/html; charset=utf-8\r\n' +
  `Content-Length: ${FAILED.length}\r\nConnection: close\r\n\r\n${FAILED}`;
// What a client may still send of a refused body before its connection is cut.
const LINGER_MILLIS = 1000;

function plain(response, status, type, text) {
  response.statusCode = status;
  response.setHeader('Content-Type', type);
  response.setHeader('Content-Length', Buffer.byteLength(text));
  response.end(text);
}

/** Answers a preflight request, which never reaches the function. */
function allow(request, response) {
  response.allowAllOrigins();
  const method = request.headers['access-control-request-method'];
  const headers = request.headers['access-control-request-headers'];
  if (method !== undefined) response.setHeader('Access-Control-Allow-Methods', method);
  if (headers !== undefined) response.setHeader('Access-Control-Allow-Headers', headers);
  response.setHeader('Content-Length', 0);
  response.end();
}

/** Answers with what a function returned, unless it has answered by itself. */
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

/** Ends an answer without a body, unless a stream or a file is on its way into it. */
function finish(response) {
  if (response.deferred || response.listenerCount('unpipe') > 0) return;
  response.end();
}

/** The function failed; a text that it has thrown is for the caller. */
function fail(response, error) {
  if (response.writableEnded || response.destroyed) return;
  if (response.headersSent) {
    response.destroy(); // the client must not take half an answer for a whole one
    return;
  }
  bare(response);
  if (typeof error === 'string') plain(response, 500, 'text/plain; charset=utf-8', error);
  else plain(response, 500, 'text/html; charset=utf-8', FAILED);
}

/** The function has not answered in time. */
function late(request, response) {
  if (!request.complete) endAfter(request, response);
  bare(response);
  plain(response, 408, 'text/plain; charset=utf-8', http.STATUS_CODES[408]);
}

/** The request cannot be given to the function: `error.status` says why, `error.message` says what. */
function refuse(request, response, error) {
  if (!request.complete) endAfter(request, response);
  bare(response);
  plain(response, error.status, 'text/plain; charset=utf-8', `${http.STATUS_CODES[error.status]}: ${error.message}`);
}

/** Makes the answer the last of its connection; what the client still sends of the body is dropped for a while. */
function endAfter(request, response) {
  const { socket } = request;
  response.shouldKeepAlive = false;
  request.resume();
  response.on('finish', () => setTimeout(() => socket.destroy(), LINGER_MILLIS).unref());
}

/** Forgets what a function has set, so that its failure does not look like its success. */
function bare(response) {
  for (const name of response.getHeaderNames()) {
    if (name !== 'access-control-allow-origin') response.removeHeader(name);
  }
}

/** One line in Apache's combined format when the response is done. */
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
