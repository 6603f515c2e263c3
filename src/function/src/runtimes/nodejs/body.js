'use strict';
// Reads a request's body up to a limit and decodes its content encoding.

class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Names in the module `zlib`, which the first compressed body loads.
const DECODERS = { gzip: 'gunzip', 'x-gzip': 'gunzip', deflate: 'inflate', br: 'brotliDecompress' };

function hasBody(request) {
  const length = request.headers['content-length'];
  return request.headers['transfer-encoding'] !== undefined || (length !== undefined && Number(length) > 0);
}

/** Whether the announced length exceeds the limit. */
function isTooLarge(request, limit) {
  return Number(request.headers['content-length']) > limit;
}

/** Passes the whole body, or a `Refusal`, to the callback. */
function read(request, limit, done) {
  const encoding = (request.headers['content-encoding'] || 'identity').toLowerCase();
  if (encoding !== 'identity' && !Object.prototype.hasOwnProperty.call(DECODERS, encoding)) {
    request.resume();
    done(new Refusal(415, `unsupported content encoding "${encoding.slice(0, 32)}"`));
    return;
  }
  const chunks = [];
  let size = 0;
  let ended = false;
  const finish = (error, body) => {
    if (ended) return;
    ended = true;
    done(error, body);
  };
  request.on('data', (chunk) => {
    if (ended) return; // data after a refusal is dropped
    size += chunk.length;
    if (size > limit) {
      chunks.length = 0;
      finish(new Refusal(413, 'request entity too large'));
      return;
    }
    chunks.push(chunk);
  });
  request.on('end', () => {
    const body = chunks.length === 1 ? chunks[0] : Buffer.concat(chunks);
    if (ended || encoding === 'identity' || body.length === 0) {
      finish(null, body);
      return;
    }
    require('zlib')[DECODERS[encoding]](body, { maxOutputLength: limit }, (error, plain) => {
      if (!error) finish(null, plain);
      else if (error.code === 'ERR_BUFFER_TOO_LARGE') finish(new Refusal(413, 'request entity too large'));
      else finish(new Refusal(400, 'the body is not what its content encoding says'));
    });
  });
  request.on('aborted', () => finish(new Refusal(400, 'request aborted')));
  request.on('error', () => finish(new Refusal(400, 'request aborted')));
}

module.exports = { Refusal, hasBody, isTooLarge, read };
