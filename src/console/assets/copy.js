// Adds a button to each element that a user may copy: a command, an address, a YAML document or a difference. Says to
// screen readers what was copied.
"use strict";

// Milliseconds for which a button says that it has copied.
const COPIED = 2000;

const said = document.createElement("span");

function sayCopied(text) {
  // Another text with the same words is read, too.
  said.textContent = "";
  setTimeout(() => { said.textContent = text; }, 50);
}

// Copies by the selection, for pages that are not of HTTPS and not of this machine. Returns whether that worked.
function copySelected(element) {
  const selection = getSelection();
  selection.selectAllChildren(element);
  const isCopied = document.execCommand("copy");
  if (isCopied) selection.removeAllRanges();
  return isCopied;
}

async function copyText(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    return copySelected(element);
  }
}

async function copyFrom(button) {
  // A document has its button before it, and a word after it.
  const element = button.dataset.side === "before" ? button.nextElementSibling : button.previousElementSibling;
  if (!element) return;
  if (!(await copyText(element))) {
    sayCopied("Selected. Copy it with the keyboard.");
    return;
  }
  sayCopied(`Copied: ${element.dataset.copy}`);
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, COPIED);
}

// Adds the buttons to new content, which live.js does before it shows the content.
function addCopyButtons(root) {
  for (const element of root.querySelectorAll("[data-copy]")) {
    const isDocument = element.tagName === "PRE";
    const button = document.createElement("button");
    button.type = "button";
    button.className = isDocument ? "copy document" : "copy";
    button.dataset.side = isDocument ? "before" : "after";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy ${element.dataset.copy}`);
    if (isDocument) element.before(button);
    else element.after(button);
  }
}

said.className = "unseen";
said.id = "copied";
said.setAttribute("role", "status");
(document.querySelector("header") || document.body).append(said);
document.addEventListener("click", (event) => {
  const button = event.target.closest("button.copy");
  if (button) copyFrom(button);
});
addCopyButtons(document);
