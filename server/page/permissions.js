// Permission requests of an agent: a card with the whole subject, and a banner while one is open.

import { post, sessionPath } from "./api.js";
import { alertBox, button, element, textBlock, textElement, timeElement, whileBusy } from "./dom.js";
import { count, pretty } from "./text.js";

const STRICT = { strict: true };

/** The requests of one session. `banner` is shown while one of them is open. */
export class PermissionBoard {
  #session;
  #cards = new Map();
  #place = null;
  #openConversation;

  constructor(session, openConversation) {
    this.#session = session;
    this.#openConversation = openConversation;
    this.banner = element("div", { class: "banner", role: "alert" });
  }

  /** Shows cards by calling `place` with each: those of open requests at once. `null` shows no more. */
  showIn(place) {
    this.#place = place;
    if (place) for (const card of this.#cards.values()) if (card.isOpen) place(card.element);
  }

  add(request) {
    if (this.#cards.has(request.id)) return;
    const card = new PermissionCard(request, (answer) => this.#answer(card, answer));
    this.#cards.set(request.id, card);
    this.#place?.(card.element);
    this.#showBanner();
  }

  /** Closes a request that has been answered, or has been denied by saggar. */
  resolve({ id, behavior, by }) {
    const outcome = behavior === "allow" ? "Allowed" : "Denied";
    this.#close(id, by === "saggar" ? `${outcome} by saggar, without an answer` : outcome);
  }

  /** The ids of the requests that are open here. */
  openIds() {
    return [...this.#cards.values()].filter((card) => card.isOpen).map((card) => card.id);
  }

  /** Adds requests of a list, and closes those of `before`, which were open before the list was read, and are not in it. */
  setOpen(requests, before) {
    const open = new Set(requests.map((request) => request.id));
    before.filter((id) => !open.has(id)).forEach((id) => this.#close(id, "Closed"));
    requests.forEach((request) => this.add(request));
  }

  #close(id, outcome) {
    this.#cards.get(id)?.close(outcome);
    this.#showBanner();
  }

  async #answer(card, answer) {
    const path = sessionPath(this.#session, `permissions/${encodeURIComponent(card.id)}`);
    try {
      await post(path, answer);
      this.#close(card.id, answer.behavior === "allow" ? "Allowed" : "Denied");
    } catch (error) {
      // Answered already, or expired.
      if (error.status === 409 || error.status === 404) this.#close(card.id, error.message);
      else card.fail(error.message);
    }
  }

  #showBanner() {
    const open = [...this.#cards.values()].filter((card) => card.isOpen);
    const text = open.length === 0 ? "" : open.length === 1 ? open[0].title : count(open.length, "permission request");
    // The same alert is not read again.
    if (this.banner.dataset.text === text) return;
    this.banner.dataset.text = text;
    this.banner.replaceChildren();
    if (!text) return;
    const review = button("Review", () => {
      this.#openConversation();
      open[0].focus();
    });
    this.banner.append(textElement("strong", {}, text, STRICT), review);
  }
}

class PermissionCard {
  constructor(request, answer) {
    this.id = request.id;
    this.isOpen = true;
    const isNetwork = request.kind === "network";
    const { host, port } = request.input ?? {};
    this.title = isNetwork ? `Connection to ${host}:${port}?` : `Permission to use ${request.tool}?`;
    this.status = element("p", { class: "outcome" });
    this.actions = element("div", { class: "actions" });
    const allow = { behavior: "allow" };
    this.#button("Allow", allow, answer, "primary");
    if (isNetwork && Array.isArray(request.suggestions) && request.suggestions.length > 0) {
      this.#button("Allow for this session", { ...allow, updatedPermissions: request.suggestions }, answer);
    }
    this.#button("Deny", { behavior: "deny" }, answer);
    const id = `permission-${request.id}`;
    this.heading = textElement("h3", { id, tabindex: "-1" }, this.title, STRICT);
    this.expiry = request.expiresAt
      ? element("p", { class: "label" }, "Denied without an answer at ", timeElement(request.expiresAt))
      : null;
    const section = element("section", { "aria-labelledby": id }, this.heading,
      ...(isNetwork ? networkSubject(request.input) : toolSubject(request)), this.expiry, this.status, this.actions);
    this.element = element("li", { class: "entry permission" }, section);
  }

  #button(label, body, answer, kind = "") {
    const run = () => whileBusy([...this.actions.children], () => answer(body));
    this.actions.append(button(label, run, { class: kind }));
  }

  focus() {
    this.element.scrollIntoView({ block: "center" });
    this.heading.focus({ preventScroll: true });
  }

  fail(reason) {
    this.status.replaceChildren(alertBox(reason));
  }

  close(outcome) {
    if (!this.isOpen) return;
    this.isOpen = false;
    const hadFocus = this.element.contains(document.activeElement);
    this.actions.remove();
    this.expiry?.remove();
    this.status.textContent = outcome;
    this.element.classList.add("closed");
    if (hadFocus) this.heading.focus({ preventScroll: true });
  }
}

function networkSubject(input) {
  const { host, port, ...others } = input ?? {};
  const rest = Object.keys(others).length ? toolSubject({ input: others }) : [];
  return [
    element("p", {}, "A program in the sandbox waits to connect:"),
    element("dl", { class: "subject" },
      element("dt", {}, "Host"), textElement("dd", { dir: "ltr" }, pretty(host), STRICT),
      element("dt", {}, "Port"), textElement("dd", { dir: "ltr" }, pretty(port), STRICT)),
    ...rest,
  ];
}

/** All of the input: each field under its name, a string with its line breaks and anything else as JSON. */
function toolSubject({ input }) {
  const isObject = input !== null && typeof input === "object" && !Array.isArray(input);
  const fields = isObject ? Object.entries(input) : [["input", input]];
  const rows = fields.flatMap(([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "";
    const size = `${count(text.split("\n").length, "line")}, ${count([...text].length, "character")}`;
    return [
      element("dt", {}, textElement("span", {}, name, STRICT), element("span", { class: "size" }, size)),
      element("dd", {}, textBlock(`Field ${name}`, text, STRICT)),
    ];
  });
  return [fields.length ? element("dl", { class: "subject" }, ...rows) : element("p", {}, "Without input")];
}
