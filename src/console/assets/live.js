// Reads the page again when the server says that something has changed, and swaps its content.
// Keeps the focus, the scroll position, open details, and a form that the user has begun to fill in.
"use strict";

const main = document.getElementById("main");
const badge = document.getElementById("live");
const stream = main && main.dataset.live;

let isReading = false;
let isDirty = false;
let hasInput = false;

function say(text) {
  if (badge && badge.textContent !== text) badge.textContent = text;
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

function summaries(root) {
  return Array.from(root.querySelectorAll("details"));
}

function nameOf(details) {
  const link = details.querySelector("summary a");
  return link ? link.getAttribute("href") : "";
}

function swap(next) {
  const open = new Map(summaries(main).map((details) => [nameOf(details), details.open]));
  const focused = main.contains(document.activeElement) ? place(document.activeElement) : null;
  for (const details of summaries(next)) {
    if (open.has(nameOf(details))) details.open = open.get(nameOf(details));
  }
  main.replaceChildren(...next.childNodes);
  const element = focused && at(focused);
  if (element && element.focus) element.focus({ preventScroll: true });
}

async function read() {
  if (isReading || hasInput) {
    isDirty = true;
    return;
  }
  isReading = true;
  isDirty = false;
  try {
    const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
    if (answer.status === 401) {
      say("The session has ended");
      return;
    }
    const next = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
    if (next && !hasInput) swap(next);
    say("Live");
  } catch {
    say("Connecting…");
  } finally {
    isReading = false;
    if (isDirty && !hasInput) setTimeout(read, 300);
  }
}

if (stream) {
  main.addEventListener("input", () => { hasInput = true; });
  const source = new EventSource(stream);
  let wasLost = false;
  source.addEventListener("open", () => {
    say("Live");
    // Something may have changed while the connection was lost.
    if (wasLost) read();
    wasLost = false;
  });
  source.addEventListener("change", read);
  source.addEventListener("error", () => {
    wasLost = true;
    say("Connecting…");
    // The server refuses the stream: the page says why.
    if (source.readyState === EventSource.CLOSED) read();
  });
}
