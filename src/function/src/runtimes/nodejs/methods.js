'use strict';
// Loads Express and gives requests and responses its methods.
//
// Express takes a third of the CPU time of a start, and probes do not need it. So a pod is ready before it is loaded.

const request = require('./request');
const response = require('./response');

let isLoaded = false;

/** Loads Express, unless that is done. It must run before the function sees a request. */
function load() {
  if (isLoaded) return;
  const express = require('./express');
  request.complete(express);
  response.complete(express);
  isLoaded = true;
}

module.exports = { load };
