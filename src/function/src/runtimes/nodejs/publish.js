'use strict';
// Sends CloudEvents over HTTP to the publisher in the pod's environment.

const ANSWER_MILLIS = 30000;

/** Posts the event in structured mode. Resolves with the status and the body of the response. */
function publish(address, event) {
  return new Promise((resolve, reject) => {
    if (!address) throw new Error('PUBLISHER_PROXY_ADDRESS is not set, so there is nobody to publish to');
    const body = JSON.stringify(event);
    const options = {
      method: 'POST',
      timeout: ANSWER_MILLIS,
      headers: { 'Content-Type': 'application/cloudevents+json', 'Content-Length': Buffer.byteLength(body) },
    };
    const { request } = require(address.startsWith('https:') ? 'https' : 'http');
    const sent = request(address, options, (response) => {
      const chunks = [];
      response.on('data', (chunk) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        const { statusCode: status } = response;
        if (status >= 200 && status < 300) resolve({ status, data: Buffer.concat(chunks).toString('utf8') });
        else reject(new Error(`the publisher has answered ${status}`));
      });
    });
    sent.on('timeout', () => sent.destroy(new Error('the publisher has not answered in time')));
    sent.on('error', reject);
    sent.end(body);
  });
}

/** Builds an event with all required attributes. */
function build(type, source, data, attributes) {
  return {
    specversion: '1.0',
    id: require('crypto').randomUUID(),
    time: new Date().toISOString(),
    datacontenttype: typeof data === 'object' ? 'application/json' : 'text/plain',
    ...attributes,
    type,
    source,
    data,
  };
}

module.exports = { publish, build };
