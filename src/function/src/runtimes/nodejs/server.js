'use strict';
// Serves one function over HTTP. This file starts and ends the process; the other files handle the calls.
//
// Not here: TLS and authentication, which the mesh provides.

require('./output').install();

const fs = require('fs');
const http = require('http');

const { Calls } = require('./calls');
const { load } = require('./function');
const { Metrics } = require('./metrics');
const { Request } = require('./request');
const { Response } = require('./response');
const settings = require('./settings').read(process.env);
const termination = require('./termination');
const { Watchdog } = require('./watchdog');

// Deadline of a request head, so that slow clients do not hold connections.
const HEAD_MILLIS = 20000;
// Longer than the usual idle timeout of proxies, so that the proxy closes first and no request is lost.
const IDLE_MILLIS = 75000;
const CHECK_MILLIS = 5000;
const MOST_CONNECTIONS = 4096;

// Copied before the function can change it.
const environment = { ...process.env };
let ending = false;
let loaded = false;

function log(line) {
  process.stderr.write(line + '\n');
}

async function start() {
  const metrics = new Metrics(settings.moduleName);
  const calls = new Calls(settings, metrics, log);

  process.on('uncaughtException', (error) => log(`Caught exception: ${describe(error)}`));
  process.on('unhandledRejection', (error) => log(`Caught rejection: ${describe(error)}`));
  process.on('exit', (code) => {
    if (ending) return;
    calls.abandon();
    log(`The function ended the process with exit code ${code}`);
    if (!loaded) termination.leave(`the function cannot be loaded: the process ended with exit code ${code} during it`);
  });

  // Loaded before the port opens, so a ready pod has its function.
  const watchdog = new Watchdog(settings.timeoutMillis, () => calls.expire());
  const target = await load(settings, refuse);
  loaded = true;
  calls.use(target, watchdog);

  const server = http.createServer(
    { IncomingMessage: Request, ServerResponse: Response, noDelay: true, connectionsCheckingInterval: CHECK_MILLIS },
    (request, response) => calls.answer(request, response),
  );
  server.on('checkContinue', (request, response) => calls.answer(request, response, true));
  server.headersTimeout = HEAD_MILLIS;
  server.keepAliveTimeout = IDLE_MILLIS;
  server.maxConnections = MOST_CONNECTIONS;
  server.on('error', (error) => {
    log(`The server cannot listen on port ${settings.port}: ${error.message}`);
    end(1);
  });
  const at = settings.socket ? { path: settings.socket } : { port: settings.port, host: settings.host };
  if (settings.socket) {
    // The socket of an earlier process may remain.
    fs.rmSync(settings.socket, { force: true });
    // Only local clients can connect.
    server.on('connection', (socket) => Object.defineProperty(socket, 'remoteAddress', { value: '127.0.0.1' }));
  }
  server.listen(at, () => {
    const { address, port } = settings.socket ? { address: settings.host, port: settings.port } : server.address();
    process.stdout.write(`Listening on ${address} port ${port}\n`);
  });

  const stop = () => {
    if (calls.drained) return;
    server.close();
    if (server.closeIdleConnections) server.closeIdleConnections();
    calls.drain(() => {
      process.stdout.write('Server stopped\n');
      end(0);
    });
  };
  // Proxies may still route requests here after SIGTERM. They are answered, each on its last connection. A second
  // signal stops the server at once.
  const retire = (delay) => {
    const again = calls.draining;
    calls.retire();
    if (again || delay === 0) stop();
    else setTimeout(stop, delay);
    if (!again) process.stdout.write('Shutting down..\n');
  };
  process.on('SIGTERM', () => retire(settings.drainMillis));
  process.on('SIGINT', () => retire(0));
}

/** Ends the process with the reason in its log and termination message. */
function refuse(what, ...thrown) {
  log(`The function cannot be loaded: ${thrown.length > 0 ? describe(thrown[0]) : what}`);
  const causes = thrown.map((error) => termination.describe(error, settings.folder, environment));
  const why = [what, ...causes].join(': ');
  termination.leave(`the function cannot be loaded: ${why}`);
  end(1);
}

function end(code) {
  ending = true;
  process.exit(code);
}

function describe(error) {
  try {
    return error instanceof Error ? error.stack : String(error);
  } catch (_) {
    return 'what was thrown cannot be shown';
  }
}

start();
