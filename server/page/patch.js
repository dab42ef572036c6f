// A unified diff, file by file. Added and removed lines keep their sign, and are elements of that meaning.

import { button, element, visible } from "./dom.js";
import { count } from "./text.js";

// Lines that are shown at first.
const LIMIT = 2000;

export function patchView(patch) {
  const lines = patch.split("\n");
  if (lines.at(-1) === "") lines.pop();
  const view = element("div", { class: "patch", tabindex: "0", role: "region", "aria-label": "Patch" });
  const writer = new PatchWriter(view);
  lines.slice(0, LIMIT).forEach((line) => writer.line(line));
  if (lines.length > LIMIT) {
    const rest = button(`Show ${count(lines.length - LIMIT, "more line")}`, () => {
      rest.remove();
      lines.slice(LIMIT).forEach((line) => writer.line(line));
      view.focus();
    });
    view.append(rest);
  }
  return view;
}

class PatchWriter {
  #view;
  // Lines that the current hunk still has, of the old file and of the new one: a line in a hunk is never a header.
  #old = 0;
  #new = 0;

  constructor(view) {
    this.#view = view;
  }

  line(text) {
    if (this.#old > 0 || this.#new > 0) return this.#content(text);
    const hunk = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/.exec(text);
    if (hunk) {
      this.#old = Number(hunk[1] ?? 1);
      this.#new = Number(hunk[2] ?? 1);
    }
    this.#add("div", hunk ? "hunk" : /^[AMD] /.test(text) ? "file" : "header", text);
  }

  #content(text) {
    const sign = text[0];
    if (sign === "\\") return this.#add("div", "header", text);
    if (sign !== "+") this.#old -= 1;
    if (sign !== "-") this.#new -= 1;
    if (sign === "+") this.#add("ins", "added", text);
    else if (sign === "-") this.#add("del", "removed", text);
    else this.#add("div", "context", text);
  }

  #add(name, kind, text) {
    this.#view.append(element(name, { class: kind }, ...visible(text), "\n"));
  }
}
