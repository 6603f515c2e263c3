'use strict';
// Ends a process whose main thread is blocked by user code. A second thread answers the calls in progress with 408 and
// ends the process, so that the pod restarts.
//
// Time is counted in turns of the watching thread, so a suspended process is not killed.

const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const fs = require('fs');

const TURNS = 20; // per timeout
const SHORTEST_TURN = 25;
const LONGEST_TURN = 1000; // milliseconds
const SLOTS = 1024; // calls that can be answered; the connections of others are closed
const BEAT = 0;
const FIRST_SLOT = 1;
const DESCRIPTOR = Symbol('descriptor');
const BODY = 'Request Timeout';
const ANSWER =
  'HTTP/1.1 408 Request Timeout\r\nAccess-Control-Allow-Origin: *\r\nContent-Type: text/plain; charset=utf-8\r\n' +
  `Content-Length: ${BODY.length}\r\nConnection: close\r\n\r\n${BODY}`;

class Watchdog {
  /** Calls `onTurn` about twenty times per timeout, at least once per second. */
  constructor(timeoutMillis, onTurn) {
    this.shared = new Int32Array(new SharedArrayBuffer(4 * (FIRST_SLOT + SLOTS)));
    this.free = Array.from({ length: SLOTS }, (_, at) => FIRST_SLOT + SLOTS - 1 - at);
    this.beats = 0;
    const turn = Math.min(Math.max(Math.floor(timeoutMillis / TURNS), SHORTEST_TURN), LONGEST_TURN);
    const onBeat = () => {
      this.beat();
      onTurn();
    };
    setInterval(onBeat, turn).unref();
    this.data = { shared: this.shared, turn, turns: Math.ceil(timeoutMillis / turn) + 1, seconds: timeoutMillis / 1000 };
    this.isStarted = false;
  }

  /** Starts the second thread, once. It takes a quarter of the CPU time of a start, so the pod is ready before. */
  start() {
    if (this.isStarted) return;
    this.isStarted = true;
    const worker = new Worker(__filename, { workerData: this.data, execArgv: [] });
    worker.on('error', () => {}); // the function also runs without a watchdog
    worker.unref();
  }

  /** Signals that the main thread is alive. */
  beat() {
    this.beats = (this.beats + 1) | 0;
    this.shared[BEAT] = this.beats;
  }

  /** Registers the connection of a call and returns its slot. */
  enter(socket) {
    this.start();
    this.beat();
    const fd = descriptor(socket);
    if (!(fd > 2) || this.free.length === 0) return 0;
    const slot = this.free.pop();
    this.shared[slot] = fd;
    return slot;
  }

  /** Releases a slot when the response has begun. */
  leave(slot) {
    if (slot === 0) return;
    this.shared[slot] = 0;
    this.free.push(slot);
  }
}

/** Returns the socket's file descriptor. It is cached, because reading it calls native code. */
function descriptor(socket) {
  if (socket[DESCRIPTOR] === undefined) socket[DESCRIPTOR] = socket._handle ? socket._handle.fd : -1;
  return socket[DESCRIPTOR];
}

function watch({ shared, turn, turns, seconds }) {
  let last = Atomics.load(shared, BEAT);
  let missed = 0;
  setInterval(() => {
    const now = Atomics.load(shared, BEAT);
    missed = now === last ? missed + 1 : 0;
    last = now;
    if (missed === turns) finish(shared, seconds);
  }, turn);
}

function finish(shared, seconds) {
  write(2, `The function has not come back for ${seconds} s: the process ends, so that it starts afresh\n`);
  for (const fd of new Set(shared.slice(FIRST_SLOT))) if (fd > 2) write(fd, ANSWER);
  // PID 1 of a container ignores signals from within, so the main thread is interrupted through the inspector.
  try {
    const { Session } = require('inspector');
    const session = new Session();
    session.connectToMainThread();
    session.post('Runtime.evaluate', { expression: 'process.reallyExit(1)' });
  } catch (error) {
    write(2, `The main thread cannot be interrupted: ${error.message}\n`);
  }
  // Native code cannot be interrupted.
  setTimeout(() => process.kill(process.pid, 'SIGKILL'), 1000);
}

function write(fd, text) {
  try {
    fs.writeSync(fd, text);
  } catch (_) {
    // The connection is closed or full.
  }
}

if (!isMainThread && parentPort && workerData && workerData.shared) watch(workerData);

module.exports = { Watchdog };
