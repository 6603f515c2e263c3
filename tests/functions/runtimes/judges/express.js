'use strict';
// A plain Express application that answers the same cases, and says which names there are.

const http = require('http');

const express = require(process.env.EXPRESS);
const cases = require('./express_cases');

const app = express();
app.disable('x-powered-by');
app.set('env', 'production');
app.use((request, response, next) => {
  request.had = new Set(Object.getOwnPropertyNames(new http.IncomingMessage(null)));
  next();
});
app.use(express.json({ strict: false }), express.urlencoded({ extended: true }), express.text({ type: 'text/*' }), express.raw({ type: '*/*' }));
app.get('/names', (request, response) => {
  response.json({ req: names(request, http.IncomingMessage), res: names(response, http.ServerResponse) });
});
app.get('/requests', (request, response) => response.json(cases.requests()));
app.all('*', (request, response) => cases.run(request, response));

/** What Express has added to an object of Node.js: on its prototypes, and on itself. */
function names(object, base) {
  const all = new Set();
  const own = new Set(Object.getOwnPropertyNames(base === http.ServerResponse ? new base({ method: 'GET' }) : new base(null)));
  for (let at = object; at !== base.prototype; at = Object.getPrototypeOf(at)) {
    for (const name of Object.getOwnPropertyNames(at)) if (!own.has(name) && !name.startsWith('_') && name !== 'had') all.add(name);
  }
  return [...all].sort();
}

const server = app.listen(0, '127.0.0.1', () => console.log(`Listening on port ${server.address().port}`));
