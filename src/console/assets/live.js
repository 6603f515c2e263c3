// Reads the page again when the server says that something has changed, and swaps its content.
// Keeps the focus, the scroll position, open details, and the fields of a search. Waits while the user fills in another
// form, or has selected text.
// Adds the lines of a log that the page follows. Says since when the content is old, if it is, and how long the session
// lasts.
"use strict";

// A longer log loses its first lines.
const LONGEST_LOG = 1 << 20;

// Milliseconds before the next attempt, and the maximum after several streams that the server refused.
const AGAIN = 5000;
const LONGEST_PAUSE = 60000;

// Milliseconds for the beginning of a response about a stream, and of a page.
const STREAM_WITHIN = 10000;
const PAGE_WITHIN = 90000;

// Why a page without a stream is not live.
const FULL = "too many pages are open";

const main = document.getElementById("main");
const badge = document.getElementById("live");
const left = document.getElementById("left");

let source = null;
let isReading = false;
// Whether the stream has failed, and no other one has begun.
let isReconnecting = false;
let isDirty = false;
// Whether the user has begun to fill in a form other than a search.
let hasInput = false;
// The lines of the page are replaced by the first ones of the stream.
let isLogFresh = false;
let isFollowing = false;
let hasEnded = false;
// Whether the server says that the content is old.
let isStale = false;
// Why the content is old; empty while it is current.
let old = "";
// The next attempt after a failure.
let attempt = 0;
// How many streams the server has refused, one after the other.
let refusals = 0;
// When the session ends, in seconds since the page was opened.
let endsAt = left ? Number(left.dataset.left) : 0;

function say(text) {
  if (badge && badge.textContent !== text) badge.textContent = text;
}

function isSelecting() {
  const selection = getSelection();
  return Boolean(selection) && !selection.isCollapsed && main.contains(selection.anchorNode);
}

// Why the content is not replaced now; empty if it may be.
function pause() {
  if (hasInput) return "Paused: the form has your input";
  return isSelecting() ? "Paused: text is selected" : "";
}

function sayFreshness() {
  if (hasEnded) return;
  if (badge) badge.classList.toggle("old", old !== "" || isReconnecting);
  const isOpen = Boolean(source) && source.readyState === EventSource.OPEN;
  say(old || (isReconnecting ? "Reconnecting" : "") || pause() || (isOpen ? "Live" : ""));
}

function becomeOld(since, why) {
  old = `Not live since ${since.toLocaleString()}: ${why}`;
  sayFreshness();
}

// The path of an element among its ancestors, by which its successor is found.
function place(element) {
  const steps = [];
  for (let at = element; at && at !== main; at = at.parentElement) {
    steps.unshift(Array.prototype.indexOf.call(at.parentElement.children, at));
  }
  return steps;
}

function at(steps) {
  return steps.reduce((element, step) => element && element.children[step], main);
}

function all(root, selector) {
  return Array.from(root.querySelectorAll(selector));
}

// The element that has the focus: its selector with the number among the elements of this selector, or its place.
function identity(element) {
  const quoted = (name) => `[${name}="${CSS.escape(element.getAttribute(name))}"]`;
  let selector = "";
  if (element.id) selector = `#${CSS.escape(element.id)}`;
  else if (element.hasAttribute("href")) selector = `a${quoted("href")}`;
  else if (element.hasAttribute("name")) selector = quoted("name");
  return { selector, number: selector ? all(main, selector).indexOf(element) : 0, steps: place(element) };
}

// The successor of an element that had the focus. An object that is gone has none: the next one is another object.
function successor({ selector, number, steps }) {
  if (!selector) return at(steps);
  const found = all(main, selector);
  return found[number] || found[0] || main;
}

function fields(form) {
  return all(form, "input, select, textarea").filter((field) => field.name && field.type !== "hidden");
}

// Whether the user has changed a field.
function isChanged(field) {
  if (field.tagName === "SELECT") {
    const options = Array.from(field.options);
    const initial = options.find((option) => option.defaultSelected) || options[0];
    return Boolean(initial) && field.value !== initial.value;
  }
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  return field.value !== field.defaultValue;
}

function isSearch(form) {
  return form.getAttribute("role") === "search";
}

// Keeps in the new content the fields of a search that the user has changed.
function keepSearch(next) {
  for (const form of all(main, "form").filter(isSearch)) {
    const action = form.getAttribute("action");
    const same = all(next, "form").find((one) => isSearch(one) && one.getAttribute("action") === action);
    for (const field of same ? fields(form).filter(isChanged) : []) {
      const other = fields(same).find((one) => one.name === field.name);
      const isKnown = other && (!other.options || Array.from(other.options).some((one) => one.value === field.value));
      if (isKnown) other.value = field.value;
    }
  }
}

// Returns the selected part of a text field; null for other elements.
function caret(element) {
  const isText = element.tagName === "TEXTAREA" || ["text", "search"].includes(element.type);
  return isText ? [element.selectionStart, element.selectionEnd] : null;
}

function nameOf(details) {
  return details.id || details.dataset.name || "";
}

function followed(root) {
  return root.querySelector("[data-follow]");
}

function sayOfLog(text) {
  const note = document.getElementById("following");
  if (note) note.textContent = text;
}

// Keeps the log that is followed, with its lines, in the new content.
function keepLog(next) {
  const [before, after] = [followed(main), followed(next)];
  if (!isFollowing || !before || !after || before.dataset.follow !== after.dataset.follow) return;
  const note = next.querySelector("#following");
  if (note) note.textContent = "Following the log.";
  after.replaceWith(before);
}

function swap(next) {
  const open = new Map(all(main, "details").map((details) => [nameOf(details), details.open]));
  const scrolled = all(main, "pre").map((pre) => [place(pre), pre.scrollTop]);
  const active = document.activeElement;
  const focused = active !== main && main.contains(active) ? identity(active) : null;
  const selected = focused && caret(active);
  for (const details of all(next, "details")) {
    if (open.has(nameOf(details))) details.open = open.get(nameOf(details));
  }
  keepLog(next);
  keepSearch(next);
  // The buttons have a place among the elements, by which the focus and the scroll position are kept.
  addCopyButtons(next);
  main.replaceChildren(...next.childNodes);
  for (const [steps, top] of scrolled) {
    const pre = at(steps);
    if (pre) pre.scrollTop = top;
  }
  const element = focused && successor(focused);
  if (element && element.focus) element.focus({ preventScroll: true });
  if (element && selected && caret(element)) element.setSelectionRange(...selected);
  if (next.dataset.seen) main.dataset.seen = next.dataset.seen;
  if (next.dataset.live && next.dataset.live !== main.dataset.live) {
    main.dataset.live = next.dataset.live;
    listen();
  }
}

// Requests a URL, and waits a limited time until the response begins.
async function get(url, within, abort = new AbortController()) {
  const late = setTimeout(() => abort.abort(), within);
  try {
    return await fetch(url, { credentials: "same-origin", redirect: "error", signal: abort.signal });
  } finally {
    clearTimeout(late);
  }
}

async function read() {
  if (isReading || hasInput) {
    isDirty = true;
    return;
  }
  isReading = true;
  isDirty = false;
  try {
    const answer = await get(location.href, PAGE_WITHIN);
    if (answer.status === 401) {
      end();
      return;
    }
    const text = await answer.text();
    if (answer.status >= 500) {
      // The content that the page has is better than an error.
      if (!old) becomeOld(new Date(), "the page cannot be read");
      retryLater();
      return;
    }
    const page = new DOMParser().parseFromString(text, "text/html");
    // Another tab may have renewed the session.
    const nextLeft = page.getElementById("left");
    if (nextLeft) endsAt = Number(nextLeft.dataset.left) + performance.now() / 1000;
    const next = page.getElementById("main");
    if (next && pause()) {
      isDirty = true;
      sayFreshness();
      return;
    }
    if (next) swap(next);
    if (hasEnded) return;
    if (source && source.readyState === EventSource.OPEN && !isStale) old = "";
    sayFreshness();
  } catch {
    if (!old) becomeOld(new Date(), "there is no connection");
    // The stream may still be open, and then reports only the next change.
    retryLater();
  } finally {
    isReading = false;
    if (isDirty && !pause()) setTimeout(read, 300);
  }
}

function addLines(text) {
  const log = followed(main);
  if (!log) return;
  const isAtEnd = isLogFresh || log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
  if (isLogFresh) log.textContent = "";
  isLogFresh = false;
  log.append(text + "\n");
  if (log.textContent.length > LONGEST_LOG) {
    const kept = log.textContent.slice(-LONGEST_LOG / 2);
    log.textContent = kept.slice(kept.indexOf("\n") + 1);
  }
  log.normalize();
  if (isAtEnd) log.scrollTop = log.scrollHeight;
}

function retryLater() {
  clearTimeout(attempt);
  const pause = Math.min(AGAIN * 2 ** refusals, LONGEST_PAUSE);
  // Pages that were refused together do not come back together.
  attempt = setTimeout(retry, refusals > 0 ? pause * (1 + Math.random()) / 2 : pause);
}

// Finds out why the server has refused a stream, because EventSource does not tell the status.
async function closed(own) {
  const abort = new AbortController();
  let isFull = false;
  try {
    const answer = await get(own.url, STREAM_WITHIN, abort);
    // A proxy without a server responds with 503, too, but names no time.
    isFull = answer.status === 429 || answer.status === 503 && answer.headers.has("retry-after");
  } catch {
    // Without a connection, the page says so.
  }
  abort.abort();
  if (own !== source || hasEnded) return;
  if (isFull) {
    refusals += 1;
    if (refusals === 1) becomeOld(new Date(), FULL);
  } else {
    refusals = 0;
    if (!old) becomeOld(new Date(), "there is no connection");
    // The page says why.
    read();
  }
  retryLater();
}

// Reads the page again, and its stream if that has ended.
function retry() {
  if (source && source.readyState === EventSource.CLOSED) listen();
  else if (!isStale) read();
}

function listen() {
  if (source) source.close();
  isFollowing = false;
  const { live, seen } = main.dataset;
  // The stream begins with what has changed since the page was read.
  const own = new EventSource(`${live}${live.includes("?") ? "&" : "?"}seen=${seen}`);
  source = own;
  own.addEventListener("open", () => {
    isReconnecting = false;
    sayFreshness();
  });
  own.addEventListener("fresh", () => {
    // Something may have changed while the content was old.
    const wasOld = old !== "";
    isStale = false;
    refusals = 0;
    if (wasOld) read();
    else sayFreshness();
  });
  own.addEventListener("stale", (event) => {
    const [since, why] = event.data.split("\n");
    isStale = true;
    refusals = 0;
    becomeOld(new Date(since), why);
  });
  own.addEventListener("change", read);
  own.addEventListener("ended", (event) => {
    own.close();
    becomeOld(new Date(), event.data);
    // The page finds out whether the session has ended, or the proxy sends another token.
    read();
    retryLater();
  });
  own.addEventListener("log-begin", () => {
    isLogFresh = true;
    isFollowing = true;
    sayOfLog("Following the log.");
  });
  own.addEventListener("log", (event) => addLines(event.data));
  own.addEventListener("log-end", (event) => {
    isFollowing = false;
    sayOfLog(event.data);
  });
  own.addEventListener("error", () => {
    if (own !== source || hasEnded) return;
    isFollowing = false;
    isReconnecting = true;
    sayFreshness();
    if (own.readyState === EventSource.CLOSED) closed(own);
    else if (!old) becomeOld(new Date(), "there is no connection");
  });
}

// Reads the page if something changed during a pause that is over.
function resume() {
  sayFreshness();
  if (isDirty && !isReading && !pause()) read();
}

// An issuer may open a new session without a question, so the page is opened again.
function end() {
  if (hasEnded) return;
  hasEnded = true;
  if (badge) {
    badge.classList.add("old");
    const link = document.createElement("a");
    link.href = location.origin + location.pathname + location.search;
    link.textContent = "Open again";
    badge.after(link);
  }
  say("The session has ended");
  if (left && left.hasAttribute("data-renewable") && !hasInput) location.reload();
}

// Says how long the session lasts, by the clock of the server.
function sayLeft() {
  const seconds = Math.max(0, Math.ceil(endsAt - performance.now() / 1000));
  const units = [[172800, 86400, "days"], [7200, 3600, "h"], [120, 60, "min"], [0, 1, "s"]];
  const [, length, unit] = units.find(([from]) => seconds >= from);
  left.textContent = `${Math.floor(seconds / length)} ${unit}`;
  if (seconds > 0) setTimeout(sayLeft, seconds < 150 ? 1000 : 20000);
  else if (main.dataset.live && !hasEnded) setTimeout(leave, AGAIN);
}

// Finds out whether the session has ended. The server may end it a moment later.
function leave() {
  if (hasInput) end();
  else read();
  sayLeft();
}

if (left) sayLeft();

if (main && main.dataset.live) {
  main.addEventListener("input", (event) => {
    const form = event.target.form;
    if (!form || isSearch(form)) return;
    hasInput = all(main, "form").some((one) => !isSearch(one) && fields(one).some(isChanged));
    resume();
  });
  document.addEventListener("selectionchange", resume);
  listen();
}
