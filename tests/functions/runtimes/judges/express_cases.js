'use strict';
// What a handler can do with every name of Express' request and response. A case of `req` returns what it has seen, a case of
// `res` answers; `asks` are the requests that it is asked, one after the other.

const path = require('path');

const files = process.env.FILES;
const file = path.join(files, 'digits.txt');
const ask = (headers = {}, more = {}) => ({ headers, ...more });
const plain = [ask()];
const post = (type, body) => ask({ 'Content-Type': type }, { method: 'POST', body });
const negotiated = (header, ...values) => [ask(), ...values.map((value) => ask({ [header]: value }))];
const encodings = negotiated('Accept-Encoding', 'br;q=0.5, gzip', 'identity;q=0', '*');
const charsets = negotiated('Accept-Charset', 'utf-8', 'iso-8859-1;q=0.5, utf-8;q=0.1', 'x');
const languages = negotiated('Accept-Language', 'en-US,de;q=0.8', 'fr', '*');
const conditional = [
  ask(), ask({ 'If-None-Match': '"v1"' }), ask({ 'If-None-Match': '"v2"' }), ask({ 'If-None-Match': 'W/"v1", "x"' }),
  ask({ 'If-None-Match': '"v1"', 'Cache-Control': 'no-cache' }), ask({ 'If-None-Match': '"v1"' }, { method: 'HEAD' }),
];
const ranges = [
  ask(), ask({ Range: 'bytes=2-4' }), ask({ Range: 'bytes=-3' }), ask({ Range: 'bytes=100-' }), ask({ Range: 'bytes=1-2,4-5' }),
  ask({ Range: 'lines=1-2' }), ask({}, { method: 'HEAD' }), ask({ 'If-Modified-Since': 'Fri, 01 Jan 2100 00:00:00 GMT' }),
  ask({ 'If-Unmodified-Since': 'Fri, 01 Jan 1999 00:00:00 GMT' }), ask({ Range: 'bytes=2-4', 'If-Range': '"other"' }),
];

const settled = (call) => new Promise((resolve) => call((error) => resolve(error ? `${error.name} ${error.status}` : 'sent')));

exports.req = {
  accepts: [negotiated('Accept', 'text/html;q=0.5, application/json', 'image/*', '*/*;q=0.1'),
    (q) => [q.accepts(), q.accepts('json'), q.accepts('html', 'json'), q.accepts(['weird', 'png']), q.accepts('text/plain')]],
  acceptsCharset: [charsets, (q) => [q.acceptsCharset(), q.acceptsCharset('utf-8')]],
  acceptsCharsets: [charsets, (q) => [q.acceptsCharsets(), q.acceptsCharsets('iso-8859-1', 'utf-8')]],
  acceptsEncoding: [encodings, (q) => [q.acceptsEncoding(), q.acceptsEncoding('gzip')]],
  acceptsEncodings: [encodings, (q) => [q.acceptsEncodings(), q.acceptsEncodings('br', 'gzip'), q.acceptsEncodings('x')]],
  acceptsLanguage: [languages, (q) => [q.acceptsLanguage(), q.acceptsLanguage('de')]],
  acceptsLanguages: [languages, (q) => [q.acceptsLanguages(), q.acceptsLanguages('de', 'en'), q.acceptsLanguages(['en-US'])]],
  app: [plain, (q) => [typeof q.app, q.app.get('etag'), q.app.enabled('trust proxy'), q.app.disabled('strict routing'),
    typeof q.app.set, typeof q.app.locals, q.app.path(), q.app === q.res.app]],
  baseUrl: [plain, (q) => q.baseUrl],
  body: [[post('application/json', '{"a":[1]}'), post('application/json', '[]'), post('text/plain; charset=utf-8', 'é'),
    post('application/x-www-form-urlencoded', 'a=1&a=2&b[c]=%C3%A9+x&d[]=1&__proto__[x]=1'),
    post('application/octet-stream', 'bytes'), post('image/png', 'png')], (q) => q.body],
  fresh: [conditional, (q, s) => { s.setHeader('ETag', '"v1"'); return q.fresh; }],
  get: [[ask({ 'X-Test': 'v', Referer: 'http://r/' }), ask()], (q) => [q.get('x-test'), q.get('referrer'), attempt(() => q.get())]],
  header: [[ask({ 'X-Test': 'v' })], (q) => [q.header('X-Test'), q.header('no'), attempt(() => q.header(1))]],
  host: [[ask(), ask({ Host: '[::1]:80' }), ask({ 'X-Forwarded-Host': 'evil' })], (q) => q.host],
  hostname: [[ask(), ask({ Host: '[::1]:80' }), ask({ Host: 'a.b:1' })], (q) => q.hostname],
  ip: [[ask(), ask({ 'X-Forwarded-For': '1.2.3.4' })], (q) => q.ip],
  ips: [[ask(), ask({ 'X-Forwarded-For': '1.2.3.4' })], (q) => q.ips],
  is: [[post('application/json; charset=utf-8', '{}'), post('text/html', 'x'), post('application/vnd.api+json', '{}'), ask()],
    (q) => [q.is('json'), q.is('text/*'), q.is(['html', 'json']), q.is('*/*'), q.is('+json'), q.is('multipart')]],
  next: [[ask(), ask({ 'X-Error': '418' }), ask({ 'X-Error': '1' })],
    (q) => { const status = q.get('X-Error'); q.next(status && Object.assign(new Error('no'), { status: Number(status) })); return LATER; }],
  originalUrl: [[ask({}, { query: '?a=%zz&b' })], (q) => q.originalUrl],
  param: [[ask({}, { query: '?x=1' }), post('application/x-www-form-urlencoded', 'x=2')], (q) => [q.param('x'), q.param('0'), q.param('no', 'd')]],
  params: [[ask({}, { tail: '/a%20b/' })], (q) => q.params],
  path: [[ask({}, { tail: '/a%20b/', query: '?c' })], (q) => q.path],
  protocol: [[ask(), ask({ 'X-Forwarded-Proto': 'https' })], (q) => q.protocol],
  query: [['a=1&b=%C3%A9+x', 'a=1&a=2', 'a[]=1', 'a[b]=1&a[c]=2', 'a[1]=y&a[0]=x', 'a[b][c][d][e][f][g]=1', 'a=1&a[b]=2',
    'a&b=&=c&%zz=1', '__proto__[x]=1&__proto__=2', 'a[30]=1', 'toString=1'].map((query) => ask({}, { query: `?${query}` })), (q) => q.query],
  range: [negotiated('Range', 'bytes=0-9,990-', 'bytes=5-2', 'bytes=-5', 'none', 'bytes=0-5,3-9'),
    (q) => { const found = q.range(1000, { combine: true }); return [found, found && found.type, q.range(10)]; }],
  res: [plain, (q, s) => [q.res === s, s.req === q]],
  route: [plain, (q) => [q.route.path, typeof q.route.stack, q.route.methods]],
  secure: [plain, (q) => q.secure],
  stale: [conditional, (q, s) => { s.setHeader('ETag', '"v1"'); return q.stale; }],
  subdomains: [[ask(), ask({ Host: 'a.b.example.com' }), ask({ Host: '127.0.0.1' })], (q) => q.subdomains],
  xhr: [[ask(), ask({ 'X-Requested-With': 'XMLHttpRequest' })], (q) => q.xhr],
};

exports.res = {
  app: [plain, (q, s) => s.json([typeof s.app.render, s.app === q.app])],
  append: [plain, (q, s) => s.append('Link', ['<a>']).append('Link', '<b>').append('Set-Cookie', 'a=1').append('Set-Cookie', 'b=2').end()],
  attachment: [plain, (q, s) => s.attachment('€ "rates%20".pdf').send('x')],
  clearCookie: [plain, (q, s) => s.clearCookie('a', { path: '/x', httpOnly: true, maxAge: 5 }).clearCookie('b').end()],
  contentType: [plain, (q, s) => s.contentType('.html').end()],
  cookie: [plain, (q, s) => { q.secret = 'k'; s.cookie('a', 'b c;é').cookie('o', { x: 1 }).cookie('s', 'v', { signed: true })
    .cookie('h', 'v', { httpOnly: true, secure: true, sameSite: 'lax', path: '/p', domain: 'example.com', priority: 'high' });
    s.json([attempt(() => s.cookie('a b', 'c')), attempt(() => s.cookie('a', 'b', { domain: 'x;y' }))]); }],
  download: [ranges, (q, s) => s.download(file, 'tø.txt', { headers: { 'X-A': '1' } })],
  format: [negotiated('Accept', 'text/html;q=0.5, application/json', 'image/png', 'text/*'),
    (q, s) => s.format({ 'text/plain': () => s.send('plain'), html: () => s.send('<p>'), json: () => s.json({}) })],
  get: [plain, (q, s) => s.set('X-A', 'b').json([s.get('x-a'), s.get('no')])],
  header: [plain, (q, s) => s.header('X-A', ['1', '2']).header({ 'X-B': 3 }).end()],
  json: [[ask(), ask({}, { method: 'HEAD' }), ask({ 'If-None-Match': 'W/"1b-/4aC1Gi0uuBGXUOoB0hQF4Jn5fM"' })],
    (q, s) => s.status(201).json({ a: [1, null], b: 'é<', c: undefined })],
  jsonp: [[ask(), ask({}, { query: '?callback=foo.bar[0];x' }), ask({}, { query: '?callback[]=a' })], (q, s) => s.jsonp({ a: '\u2028x' })],
  links: [plain, (q, s) => s.links({ next: 'http://x/2', last: 'http://x/5' }).links({ prev: '/0' }).end()],
  locals: [plain, (q, s) => { s.locals.a = 1; s.json([s.locals, Object.getPrototypeOf(s.locals)]); }],
  location: [[ask(), ask({ Referer: 'http://r/' })], (q, s) => s.location(q.get('referer') ? 'back' : '/é b?x=1&y=%20%zz').end()],
  redirect: [[ask(), ask({ Accept: 'text/html' }), ask({}, { query: '?status=301' }), ask({}, { method: 'HEAD' })],
    (q, s) => (q.query.status ? s.redirect(Number(q.query.status), 'https://example.com/?<a>') : s.redirect('../x?<a>'))],
  render: [[ask(), ask({}, { query: '?missing=1' })], (q, s) => {
    s.app.engine('txt', (name, options, done) => done(null, `${path.basename(name)} ${options.who} ${options._locals.own}`));
    s.locals.own = 'local';
    s.app.set('views', files);
    s.render(q.query.missing ? 'missing.txt' : 'digits.txt', { who: 'Ann' });
  }],
  req: [plain, (q, s) => s.send(String(s.req === q))],
  send: [['html', 'bytes', 'object', 'null', 'nothing', 'number', 'both', 'true', 'tagged', 'none', 'reset', 'charset', 'boolean']
    .map((query) => ask({}, { query: `?${query}` })).concat(ask({ 'If-None-Match': '"t"' }, { query: '?tagged' }), ask({}, { query: '?html', method: 'HEAD' })),
  (q, s) => {
    const forms = { html: () => s.send('<b>hé</b>'), bytes: () => s.send(Buffer.from('abc')), object: () => s.send({ a: 1 }), null: () => s.send(null),
      nothing: () => s.send(), number: () => s.send(404), both: () => s.send(202, 'x'), true: () => s.send(true), boolean: () => s.send(false),
      tagged: () => s.set('ETag', '"t"').send('x'), none: () => s.status(204).send('x'), reset: () => s.status(205).send('x'),
      charset: () => s.type('text/plain; charset=latin1').send('é') };
    forms[Object.keys(q.query)[0]]();
  }],
  sendFile: [[...ranges, ...['.hidden', 'missing', '.', '../x', '%2e%2e/x', 'a\0b'].map((name) => ask({}, { query: `?name=${encodeURIComponent(name)}` })),
    ask({}, { query: '?cb=1' }), ask({}, { query: '?cb=1&name=missing' })], (q, s) => {
    const name = q.query.name || 'digits.txt';
    if (q.query.cb) return settled((done) => s.sendFile(name, { root: files }, done)).then((end) => { if (!s.headersSent) s.status(500).send(end); });
    s.sendFile(name, { root: files, maxAge: '1h' });
    return undefined;
  }],
  sendStatus: [plain, (q, s) => s.sendStatus(404)],
  sendfile: [[ask(), ask({}, { query: '?name=.hidden' })], (q, s) => s.sendfile(q.query.name || 'digits.txt', { root: files })],
  set: [plain, (q, s) => s.set('X-B', 'b').set({ 'X-C': ['1', 2], 'X-D': 4 }).set('Content-Type', 'text/html').json([
    attempt(() => s.set('X-A', 'a\r\nX-B: b')), attempt(() => s.set('Content-Type', ['a']))])],
  status: [plain, (q, s) => s.status(418).end('x')],
  type: [['json', 'text/html', '.svg', 'x-unknown', 'application/x; a=b'].map((kind) => ask({}, { query: `?kind=${kind}` })),
    (q, s) => s.type(q.query.kind).send('x')],
  vary: [plain, (q, s) => s.vary('Accept').vary(['Origin', 'accept']).vary('User-Agent, Cookie').end()],
};

const LATER = Symbol('later');

function attempt(call) {
  try {
    return call();
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
}

/** Runs the case that the path names: `/req/accepts`. */
exports.run = async (q, s) => {
  const [, kind, name] = q.path.split('/');
  const found = exports[kind][name][1](q, s);
  if (kind === 'res') {
    await (found === s ? undefined : found);
  } else if (found !== LATER) {
    s.json({ seen: found === undefined ? 'undefined' : found });
  }
};

/** What is to be asked: a list of requests. */
exports.requests = () => {
  const all = [];
  for (const kind of ['req', 'res']) {
    for (const [name, [asks]] of Object.entries(exports[kind])) {
      for (const { headers, method = 'GET', tail = '', query = '', body = '' } of asks) {
        all.push({ method, path: `/${kind}/${name}${tail}${query}`, headers: Object.entries(headers), body });
      }
    }
  }
  return all;
};
