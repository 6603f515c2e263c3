'use strict';
// Runs one function behind HTTP: this file starts and ends the process, the files beside it do the rest.
//
// Deliberately absent: TLS and authentication (the mesh's business), and any package that is not part of Node.js.

require('./output').install();

const http = require('http');

const { Calls } = require('./calls');
const { load } = require('./function');
const { Metrics } = require('./metrics');
const { Request } = require('./request');
const { Response } = require('./response');
const settings = require('./settings').read(process.env);
const { Watchdog } = require('./watchdog');

// A client must have sent its head in this time, so that slow ones do not hold connections for ever.
const HEAD_MILLIS = 20000;
// Longer than the usual idle time of proxies, so that it is the proxy that closes, not we under a request.
const IDLE_MILLIS = 75000;
const CHECK_MILLIS = 5000;
const MOST_CONNECTIONS = 4096;

let ending = false;

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
  });

  // Loaded before the port opens: a pod that is ready has its function loaded, or has said why not.
  const watchdog = new Watchdog(settings.timeoutMillis, () => calls.expire());
  calls.use(await load(settings, log), watchdog);

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
  server.listen({ port: settings.port, host: settings.host }, () => {
    const at = server.address();
    process.stdout.write(`Listening on ${at.address} port ${at.port}\n`);
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
  // Proxies go on leading callers here until they have heard that the pod ends: these are answered, each as the last of
  // its connection. A second signal ends that.
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

function end(code) {
  ending = true;
  process.exit(code);
}

function describe(error) {
  return error instanceof Error ? error.stack : String(error);
}

start();
