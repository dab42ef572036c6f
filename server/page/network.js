// The network of a session: the hosts that its programs connected to, and refused ones to allow.

import { get, post, sessionPath } from "./api.js";
import { confirm } from "./dialog.js";
import { alertBox, announce, button, element, repeatWhileVisible, textElement } from "./dom.js";
import { formatBytes, formatNumber, visibleText } from "./text.js";

const INTERVAL = 3000;
const STRICT = { strict: true };
const COLUMNS = ["Host", "Connected", "Refused", "Unreachable", "Sent", "Received", "Action"];
const MODES = {
  none: "The sandbox has no network.",
  host: "The sandbox uses the network of the host, without restriction.",
  policy: "Programs can connect to the hosts of the rules only.",
};
const LISTS = { allow: "Allowed", ask: "Allowed after a request", consented: "Allowed by an answer", deny: "Denied" };

export class Network {
  #id;
  #stop;
  /** What is shown, as text: an equal answer changes nothing, and keeps the focus. */
  #shown = "";

  constructor(id) {
    this.#id = id;
    this.problem = element("div");
    this.mode = element("p");
    this.rows = element("tbody");
    this.table = element("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Hosts", hidden: true },
      element("table", {}, element("thead", {}, element("tr", {},
        ...COLUMNS.map((name) => element("th", { scope: "col" }, name)))), this.rows));
    this.empty = element("p", { hidden: true }, "No program has connected to a host since the sandbox started.");
    this.rules = element("dl", { class: "subject" });
    this.element = element("div", {}, this.problem, this.mode, this.table, this.empty, this.rules);
    this.#stop = repeatWhileVisible(INTERVAL, () => this.#load());
  }

  close() {
    this.#stop();
  }

  setStatus() {}

  async #load() {
    try {
      const network = await get(sessionPath(this.#id, "network"));
      // The button that a question began with stays, since the focus returns to it.
      if (!document.querySelector("dialog[open]")) this.#show(network);
    } catch (error) {
      this.#fail(error);
    }
  }

  #show(network) {
    const text = JSON.stringify(network);
    if (text === this.#shown) return;
    this.#shown = text;
    const focused = document.activeElement?.dataset.destination;
    this.mode.textContent = network.mode === null ? "No sandbox is running." : MODES[network.mode] ?? network.mode;
    const isPolicy = network.mode === "policy";
    this.table.hidden = network.hosts.length === 0;
    this.empty.hidden = !isPolicy || network.hosts.length > 0;
    this.rows.replaceChildren(...network.hosts.map((row) => this.#row(row, network)));
    const lists = isPolicy ? Object.entries(LISTS).filter(([name]) => network[name].length > 0) : [];
    this.rules.replaceChildren(...lists.flatMap(([name, label]) => [
      element("dt", {}, label),
      element("dd", {}, element("ul", { class: "paths" },
        ...network[name].map((rule) => element("li", {}, textElement("code", { dir: "ltr" }, rule, STRICT))))),
    ]));
    // The host of the button may be allowed now.
    if (focused && !document.activeElement?.dataset.destination) this.#focus(focused);
  }

  #focus(destination) {
    const buttons = [...this.rows.querySelectorAll("button")];
    (buttons.find((found) => found.dataset.destination === destination) ?? this.table).focus();
  }

  #row(row, { allow }) {
    const destination = row.host !== null && row.port !== null ? destinationOf(row) : null;
    const canAllow = destination !== null && row.refused > 0 && !allow.includes(destination);
    return element("tr", {},
      element("th", { scope: "row" }, textElement("code", { dir: "ltr" },
        destination ?? row.host ?? "other hosts", STRICT)),
      element("td", {}, formatNumber(row.connections)),
      element("td", { class: row.refused > 0 ? "refused" : "" }, formatNumber(row.refused)),
      element("td", {}, formatNumber(row.unreachable)),
      element("td", {}, formatBytes(row.sent)),
      element("td", {}, formatBytes(row.received)),
      element("td", {}, canAllow ? button("Allow", () => this.#allow(destination, row), {
        "aria-label": `Allow ${visibleText(destination)}`, "data-destination": destination,
      }) : ""));
  }

  async #allow(destination, { host, port }) {
    const content = [
      element("dl", { class: "subject" },
        element("dt", {}, "Host"), textElement("dd", { dir: "ltr" }, host, STRICT),
        element("dt", {}, "Port"), textElement("dd", { dir: "ltr" }, port, STRICT),
        element("dt", {}, "Session"), textElement("dd", { dir: "ltr" }, this.#id, STRICT)),
      element("p", {}, "All programs in the sandbox can connect to it, and send it what they can read, until the session ",
        "ends. This cannot be undone while the session exists."),
    ];
    if (!(await confirm("Allow connections to this host?", { content, action: "Allow" }))) return;
    try {
      this.problem.replaceChildren();
      await post(sessionPath(this.#id, "network"), { allow: [destination] });
      announce(`${visibleText(destination)} is allowed`);
      await this.#load();
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error) {
    if (error.status !== 401) this.problem.replaceChildren(alertBox(error.message));
  }
}

/** The rule for a host: an IPv6 address is in brackets. */
function destinationOf({ host, port }) {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}
