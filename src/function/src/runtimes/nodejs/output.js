'use strict';
// Standard output and error that block until the pipe accepts the data. Node.js would queue it in memory, so a function
// that prints endlessly would fill the pod's memory.

const fs = require('fs');
const { Writable } = require('stream');

const PAUSE_MILLIS = 2;

class Output extends Writable {
  constructor(fd) {
    super({ decodeStrings: true });
    this.fd = fd;
    this.isTTY = false;
    this.pause = new Int32Array(new SharedArrayBuffer(4));
  }

  _write(chunk, encoding, done) {
    let rest = chunk;
    while (rest.length > 0) {
      try {
        rest = rest.subarray(fs.writeSync(this.fd, rest));
      } catch (error) {
        if (error.code !== 'EAGAIN') break; // the reader is gone
        Atomics.wait(this.pause, 0, 0, PAUSE_MILLIS);
      }
    }
    done();
  }

  _destroy(error, done) {
    done(error); // the file descriptor belongs to the process
  }
}

function isPipe(fd) {
  try {
    const stat = fs.fstatSync(fd);
    return stat.isFIFO() || stat.isSocket();
  } catch (_) {
    return false;
  }
}

/** Replaces both streams if they are pipes. Must run before any output. */
function install() {
  for (const [name, fd] of [['stdout', 1], ['stderr', 2]]) {
    if (!isPipe(fd)) continue;
    const output = new Output(fd);
    Object.defineProperty(process, name, { configurable: true, enumerable: true, get: () => output });
  }
}

module.exports = { install };
