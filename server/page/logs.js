// The log of a session: standard error of the agent, and messages of saggar.

import { get, sessionPath } from "./api.js";
import { alertBox, element, repeatWhileVisible, textElement, timeElement } from "./dom.js";

const INTERVAL = 2000;
// Older lines are removed from the page.
const MAX_LINES = 5000;

export class Logs {
  #path;
  #after = -1;
  #stop;

  constructor(id, session) {
    this.#path = sessionPath(id, "logs");
    this.problem = element("div");
    this.hint = element("p", { class: "label" });
    this.list = element("ol", { class: "lines", tabindex: "0", role: "region", "aria-label": "Log lines" });
    this.element = element("div", {},
      element("p", {}, "stderr is what the agent writes to standard error. system is from saggar, such as a refused ",
        "connection; a host can be allowed under Network."),
      this.problem, this.hint, this.list);
    this.setStatus(session.status());
    this.#stop = repeatWhileVisible(INTERVAL, () => this.#read());
  }

  close() {
    this.#stop();
  }

  setStatus(status) {
    this.#showHint(status);
  }

  #showHint(status) {
    this.hint.textContent = ["active", "paused", "starting"].includes(status) ? ""
      : "No sandbox is running: the server lists the log of running sessions only.";
  }

  async #read() {
    try {
      const { logs } = await get(this.#path, { after: this.#after });
      this.problem.replaceChildren();
      this.#add(logs);
    } catch (error) {
      if (error.status !== 401) this.problem.replaceChildren(alertBox(error.message));
    }
  }

  #add(logs) {
    if (logs.length === 0) return;
    const isAtEnd = this.list.scrollHeight - this.list.clientHeight - this.list.scrollTop < 40;
    this.#after = logs.at(-1).index;
    this.list.append(...logs.slice(-MAX_LINES).map(logLine));
    while (this.list.children.length > MAX_LINES) this.list.firstChild.remove();
    if (isAtEnd) this.list.scrollTop = this.list.scrollHeight;
  }
}

function logLine({ ts, level, text }) {
  return element("li", { class: level },
    timeElement(ts), " ", element("span", { class: "level" }, level), " ",
    textElement("span", { class: "log-text", dir: "ltr" }, text));
}
