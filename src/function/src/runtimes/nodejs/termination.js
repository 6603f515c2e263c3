'use strict';
// Writes the reason why a function cannot be loaded as the container's termination message. The agent shows it in the
// condition `Running` of the Function, whose previous version keeps serving.
//
// Invariant: the message contains no value of the pod's environment, because it may be secret.

const fs = require('fs');
const path = require('path');

const FILE = process.env.MAINSTAY_TERMINATION_LOG || '/dev/termination-log';
const LONGEST = 600; // maximum length of an error in characters
const SHORTEST_SECRET = 4; // characters; shorter values occur in any text
// Variables that the image, the agent and the kubelet set. Their values occur in paths and names. They are listed
// individually, because a user's NODE_AUTH_TOKEN or PAYMENT_SERVICE_KEY is a secret.
const SET = 'PATH HOME PWD HOSTNAME SHLVL LANG NODE_VERSION NODE_PATH YARN_VERSION MOD_NAME KUBELESS_INSTALL_VOLUME ' +
  'FUNC_HANDLER FUNC_RUNTIME FUNC_PORT FUNC_HOST FUNC_SOCKET FUNC_TIMEOUT FUNC_MEMORY_LIMIT FUNC_DRAIN_DELAY ' +
  'MAINSTAY_TERMINATION_LOG SERVICE_NAMESPACE PUBLISHER_PROXY_ADDRESS TRACE_COLLECTOR_ENDPOINT';
const OF_SERVICE = /_SERVICE_HOST$|_SERVICE_PORT$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$/;
const OPEN = new Set(SET.split(' '));

/** Writes the message. The file is not created, because the kubelet creates it in a pod. */
function leave(text) {
  try {
    const fd = fs.openSync(FILE, fs.constants.O_WRONLY | fs.constants.O_TRUNC | fs.constants.O_NOFOLLOW);
    fs.writeSync(fd, text);
    fs.closeSync(fd);
  } catch (_) {
    // Not in a pod: the log contains the reason, too.
  }
}

/** Formats place and error on one line: `handler.js:3: Error: Cannot find module 'x'`. */
function describe(error, folder, env) {
  try {
    const what = withoutSecrets(first(error instanceof Error ? `${error.name}: ${error.message}` : String(error)), env);
    const cut = what.length > LONGEST ? `${what.slice(0, LONGEST)}…` : what;
    const where = error instanceof Error ? place(String(error.stack), fs.realpathSync(folder)) : null;
    return where === null ? cut : `${where}: ${cut}`;
  } catch (_) {
    return 'it throws what cannot be shown';
  }
}

function first(text) {
  return text.split('\n', 1)[0];
}

/** Returns the innermost line of the user's code in the stack, or else of a package. */
function place(stack, folder) {
  const found = [];
  for (const line of stack.split('\n')) {
    const at = line.indexOf(folder + path.sep);
    const match = at < 0 ? null : /^([^():]+):(\d+)/.exec(line.slice(at + folder.length + 1));
    if (match !== null) found.push(`${match[1]}:${match[2]}`);
  }
  return found.find((where) => !where.startsWith('node_modules')) || found[0] || null;
}

function withoutSecrets(text, env) {
  const values = [];
  for (const [name, value] of Object.entries(env)) {
    // An address may contain a password.
    const open = OPEN.has(name) && !value.includes('@');
    if (!open && !OF_SERVICE.test(name)) values.push(...value.split('\n').map((line) => line.trim()));
  }
  const secret = values.filter((value) => value.length >= SHORTEST_SECRET).sort((a, b) => b.length - a.length);
  return secret.reduce((left, value) => left.split(value).join('***'), text);
}

module.exports = { describe, leave };
