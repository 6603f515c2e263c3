'use strict';
// Media types: their short names, and what a client says that it accepts.

const TYPES = {
  txt: 'text/plain', text: 'text/plain', html: 'text/html', htm: 'text/html', css: 'text/css', csv: 'text/csv',
  md: 'text/markdown', ics: 'text/calendar', js: 'application/javascript', mjs: 'application/javascript',
  json: 'application/json', jsonld: 'application/ld+json', map: 'application/json', xml: 'application/xml',
  xhtml: 'application/xhtml+xml', atom: 'application/atom+xml', rss: 'application/rss+xml', pdf: 'application/pdf',
  zip: 'application/zip', gz: 'application/gzip', tar: 'application/x-tar', wasm: 'application/wasm',
  bin: 'application/octet-stream', form: 'application/x-www-form-urlencoded', yaml: 'text/yaml', yml: 'text/yaml',
  urlencoded: 'application/x-www-form-urlencoded', multipart: 'multipart/*', png: 'image/png', jpg: 'image/jpeg',
  jpeg: 'image/jpeg', gif: 'image/gif', svg: 'image/svg+xml', webp: 'image/webp', ico: 'image/x-icon',
  bmp: 'image/bmp', tif: 'image/tiff', tiff: 'image/tiff', avif: 'image/avif', mp3: 'audio/mpeg', wav: 'audio/wav',
  ogg: 'audio/ogg', mp4: 'video/mp4', mpeg: 'video/mpeg', webm: 'video/webm', woff: 'font/woff', woff2: 'font/woff2',
  ttf: 'font/ttf', otf: 'font/otf', doc: 'application/msword', rtf: 'text/rtf', xls: 'application/vnd.ms-excel',
  docx: 'application/vnd.openxmlformats-officedocument.wordprocessingml.document',
  xlsx: 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet',
};
const MOST_ACCEPTED = 64;

/** The type of a file name or an extension, with or without its dot. */
function lookup(name, fallback) {
  const extension = /([^./\\]*)$/.exec(name)[1].toLowerCase();
  return Object.prototype.hasOwnProperty.call(TYPES, extension) ? TYPES[extension] : fallback;
}

/** `json` and `.json` are short names, `text/html` and `text/*` are types. */
function normalize(name) {
  if (name.includes('/')) return name;
  return lookup(name, undefined);
}

function isText(type) {
  return /^text\/|^application\/(javascript|json)/.test(type);
}

/** The type without its parameters, in lower case. */
function essence(contentType) {
  return contentType ? contentType.split(';', 1)[0].trim().toLowerCase() : '';
}

/** Whether a request's type matches one of `wanted`, and as which; as `req.is` answers. */
function is(contentType, wanted) {
  const actual = essence(contentType);
  if (!/^[^\s/]+\/[^\s/]+$/.test(actual)) return false;
  if (wanted.length === 0) return actual;
  for (const name of wanted) {
    const expected = name.startsWith('+') ? `*/*${name}` : normalize(name);
    if (expected && matches(expected.toLowerCase(), actual)) {
      return name.startsWith('+') || name.includes('*') ? actual : name;
    }
  }
  return false;
}

function matches(expected, actual) {
  const [type, subtype] = expected.split('/');
  const [actualType, actualSubtype] = actual.split('/');
  if (type !== '*' && type !== actualType) return false;
  if (subtype.startsWith('*+')) return actualSubtype.endsWith(subtype.slice(1));
  return subtype === '*' || subtype === actualSubtype;
}

/** The entries of an `Accept…` header: value, quality, parameters and place. */
function accepted(header) {
  const entries = header.split(',', MOST_ACCEPTED).filter((entry) => entry.trim() !== '');
  return entries.map((entry, place) => {
    const [value, ...rest] = entry.split(';').map((part) => part.trim());
    let quality = 1;
    const parameters = [];
    for (const parameter of rest) {
      const [key, text = ''] = parameter.split('=').map((part) => part.trim());
      if (key.toLowerCase() === 'q') {
        quality = parseFloat(text) || 0;
        break;
      }
      parameters.push(`${key.toLowerCase()}=${text.replace(/^"(.*)"$/, '$1')}`);
    }
    return { value: value.toLowerCase(), written: value, quality, parameters, place };
  });
}

/** How closely an accepted entry names an offer: 0 not at all, higher is closer. */
const CLOSENESS = {
  type(entry, offer) {
    const [full, ...parameters] = offer.toLowerCase().split(';').map((part) => part.trim());
    const [type, subtype] = entry.value.split('/');
    const [offerType, offerSubtype] = full.split('/');
    if (!subtype || !offerSubtype) return 0;
    let close = 1;
    if (type === offerType) close += 4;
    else if (type !== '*') return 0;
    if (subtype === offerSubtype) close += 2;
    else if (subtype !== '*') return 0;
    if (entry.parameters.length > 0) {
      const holds = entry.parameters.every((one) => one.endsWith('=*') || parameters.includes(one.toLowerCase()));
      if (!holds) return 0;
      close += 1;
    }
    return close;
  },
  word(entry, offer) {
    if (entry.value === offer.toLowerCase()) return 2;
    return entry.value === '*' ? 1 : 0;
  },
  language(entry, offer) {
    const full = offer.toLowerCase();
    if (entry.value === full) return 4;
    if (full.startsWith(`${entry.value}-`)) return 3;
    if (entry.value.startsWith(`${full}-`)) return 2;
    return entry.value === '*' ? 1 : 0;
  },
};

/** The offers that the header accepts, the best first; without offers, everything that it names. */
function preferred(header, offers, kind, implied) {
  const entries = accepted(header);
  if (implied && !entries.some((entry) => CLOSENESS[kind](entry, implied) > 0)) {
    const least = entries.reduce((low, entry) => Math.min(low, entry.quality || 1), 1);
    entries.push({ value: implied, written: implied, quality: least, parameters: [], place: entries.length });
  }
  if (offers.length === 0) {
    const wanted = entries.filter((entry) => entry.quality > 0 && (kind !== 'type' || entry.value.includes('/')));
    return wanted.sort((a, b) => b.quality - a.quality || a.place - b.place).map((entry) => entry.written);
  }
  const ranked = [];
  offers.forEach((offer, at) => {
    let best = null;
    for (const entry of entries) {
      const close = CLOSENESS[kind](entry, offer);
      if (close === 0) continue;
      const better = best === null || close > best.close || (close === best.close && entry.quality > best.quality);
      if (better) best = { close, quality: entry.quality, place: entry.place, at, offer };
    }
    if (best !== null && best.quality > 0) ranked.push(best);
  });
  ranked.sort((a, b) => b.quality - a.quality || b.close - a.close || a.place - b.place || a.at - b.at);
  return ranked.map((entry) => entry.offer);
}

module.exports = { lookup, normalize, isText, essence, is, preferred };
