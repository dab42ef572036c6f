// Elements. All text becomes a text node: nothing is ever parsed as HTML.

import { formatTime, visibleParts } from "./text.js";

/**
 * Creates an element. `properties` has attributes, and listeners as functions named `onclick` and so on; `false`, `null`
 * and `undefined` leave an attribute out. Children are nodes, or strings, which become text.
 */
export function element(name, properties = {}, ...children) {
  const created = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (typeof value === "function") created.addEventListener(key.slice(2), value);
    else if (value === true) created.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) created.setAttribute(key, value);
  }
  created.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return created;
}

/** Nodes that show a text of an agent or of the API, with escapes for characters that would not be visible. */
export function visible(text, options) {
  return visibleParts(String(text ?? ""), options)
    .map((part) => (typeof part === "string" ? part : element("span", { class: "escape" }, part.escape)));
}

/** An element with a text of an agent or of the API. */
export function textElement(name, properties, text, options) {
  return element(name, { dir: "auto", ...properties }, ...visible(text, options));
}

/** A block of preformatted text that scrolls, also by the keyboard. */
export function textBlock(label, text, options) {
  const properties = { class: "block", tabindex: "0", role: "region", "aria-label": label };
  return textElement("pre", { ...properties, dir: "ltr" }, text, options);
}

export function timeElement(iso) {
  return element("time", { datetime: iso }, formatTime(iso));
}

export function button(label, onclick, properties = {}) {
  return element("button", { type: "button", ...properties, onclick }, label);
}

/** Marks controls as disabled while `run` runs, once at a time. They can still have the focus. */
export async function whileBusy(controls, run) {
  if (controls.some((control) => control.getAttribute("aria-disabled") === "true")) return;
  controls.forEach((control) => control.setAttribute("aria-disabled", "true"));
  try {
    await run();
  } finally {
    controls.forEach((control) => control.removeAttribute("aria-disabled"));
  }
}

/** An error that appears at once, also to a screen reader. */
export function alertBox(text, ...more) {
  return element("div", { class: "alert", role: "alert" }, element("p", {}, ...visible(text)), ...more);
}

let announcementTimer;

/** Has a screen reader read a text when it is idle. */
export function announce(text) {
  const region = document.getElementById("announcements");
  region.textContent = text.length > 300 ? `${text.slice(0, 300)}…` : text;
  clearTimeout(announcementTimer);
  // An equal text later must be a change again.
  announcementTimer = setTimeout(() => { region.textContent = ""; }, 10_000);
}

/**
 * Calls `work` at once and then at an interval in milliseconds, but not while the page is hidden. Returns a function that
 * ends it.
 */
export function repeatWhileVisible(interval, work) {
  let timer;
  let ended = false;
  const run = async () => {
    clearTimeout(timer);
    if (ended || document.hidden) return;
    await work();
    if (ended) return;
    clearTimeout(timer);
    timer = setTimeout(run, interval);
  };
  document.addEventListener("visibilitychange", run);
  run();
  return () => {
    ended = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", run);
  };
}
