'use strict';
// Loads the user's function from a CommonJS module (in sloppy mode) or an ES module.

const fs = require('fs');
const path = require('path');
const { pathToFileURL } = require('url');

const MODULE_ONLY = new Set(['ERR_REQUIRE_ESM', 'ERR_REQUIRE_ASYNC_MODULE']);

/**
 * Returns the function. `refuse(what, error)` does not return, so a pod that cannot load its function is never ready.
 */
async function load(settings, refuse) {
  const started = process.hrtime.bigint();
  let exported;
  try {
    exported = await exportsOf(settings);
  } catch (error) {
    refuse('the module fails', error);
  }
  const found = pick(exported, settings.functionName);
  if (found === null) refuse(`the module exports no function "${settings.functionName}"`);
  const millis = Number(process.hrtime.bigint() - started) / 1e6;
  process.stdout.write(`Function loaded in ${millis.toFixed(1)} ms\n`);
  return found;
}

async function exportsOf(settings) {
  const plain = `${settings.modulePath}.js`;
  const modern = `${settings.modulePath}.mjs`;
  if (!fs.existsSync(plain) && fs.existsSync(modern)) return moduleOf(modern);
  if (isModule(settings.folder)) return moduleOf(plain);
  try {
    return require(settings.modulePath);
  } catch (error) {
    if (error && MODULE_ONLY.has(error.code)) return import(pathToFileURL(plain).href);
    throw error;
  }
}

/**
 * Returns an ES module. `import` needs about twice the CPU time of `require`, because it reads each file in another
 * thread. Modules that await at their top level need it, and so may hooks from options of Node.js.
 */
async function moduleOf(file) {
  const hasOptions = Boolean(process.env.NODE_OPTIONS);
  if (process.features.require_module && !hasOptions) {
    try {
      const found = require(file);
      if (found && found[Symbol.toStringTag] === 'Module') return found;
    } catch (error) {
      if (!error || !MODULE_ONLY.has(error.code)) throw error;
    }
  }
  return import(pathToFileURL(file).href);
}

function isModule(folder) {
  try {
    return JSON.parse(fs.readFileSync(path.join(folder, 'package.json'), 'utf8')).type === 'module';
  } catch (_) {
    return false; // package.json is missing or invalid; npm would have reported that
  }
}

/** Supports `module.exports = function`, `exports.main`, `export default` of either, and `export function main`. */
function pick(exported, name) {
  for (const place of [exported, exported && exported.default]) {
    if (typeof place === 'function') return place;
    if (place && typeof place === 'object' && typeof place[name] === 'function') {
      return place[Symbol.toStringTag] === 'Module' ? place[name] : place[name].bind(place);
    }
  }
  return null;
}

module.exports = { load };
