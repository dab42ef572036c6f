// A session: its status and use, what can be done with it, and one of its parts.

import { get, post, remove, sessionPath } from "./api.js";
import { Changes } from "./changes.js";
import { Conversation } from "./conversation.js";
import { confirm } from "./dialog.js";
import {
  alertBox, announce, button, element, repeatWhileVisible, textElement, timeElement, whileBusy,
} from "./dom.js";
import { Logs } from "./logs.js";
import { Network } from "./network.js";
import { PermissionBoard } from "./permissions.js";
import { Quarantine } from "./quarantine.js";
import { sessionLink } from "./routes.js";
import { useText } from "./text.js";

const INTERVAL = 4000;
const PARTS = {
  conversation: Conversation, changes: Changes, network: Network, quarantine: Quarantine, logs: Logs,
};
const TITLES = {
  conversation: "Conversation", changes: "Changes", network: "Network", quarantine: "Quarantine", logs: "Logs",
};

/** What a status allows: the label, and the request. */
const ACTIONS = {
  starting: ["stop", "end"],
  active: ["interrupt", "pause", "stop", "end"],
  paused: ["resume", "end"],
  stopped: ["resume", "end"],
  error: ["resume", "end"],
  ended: [],
};
const LABELS = { interrupt: "Interrupt", pause: "Pause", resume: "Resume", stop: "Stop", end: "End" };

export class SessionView {
  #id;
  #session = null;
  #part = null;
  #stop = () => {};
  #isClosed = false;

  constructor(id) {
    this.#id = id;
    this.heading = element("h1", { tabindex: "-1" }, "Session");
    this.facts = element("p", { class: "facts" });
    this.use = element("span", { class: "use" });
    this.actions = element("div", { class: "actions", role: "group", "aria-label": "Session" });
    this.problem = element("div");
    this.links = element("nav", { class: "parts", "aria-label": "Parts of the session" });
    this.panel = element("section", { "aria-labelledby": "part-heading" });
    this.board = new PermissionBoard(id, () => {
      if (!(this.#part instanceof Conversation)) this.#showPart("conversation");
      window.history.replaceState(null, "", sessionLink(id));
    });
    this.element = element("div", { class: "session" }, this.board.banner,
      element("div", { class: "head" }, this.heading, this.facts, this.actions), this.problem, this.links, this.panel);
  }

  /** Shows a part. Returns the title of the page. */
  async show(part) {
    if (this.#session === null) {
      const { session } = await get(sessionPath(this.#id));
      if (this.#isClosed) return "";
      this.#session = session;
      const short = this.#id.slice(0, 8);
      this.heading.replaceChildren(textElement("span", {}, this.#session.agentName), " ", element("code", {}, short));
      this.#showPart(part);
      this.#stop = repeatWhileVisible(INTERVAL, () => this.refresh());
      this.#readUse();
    } else {
      this.#showPart(part);
    }
    return `${TITLES[part]} · ${this.#session.agentName}`;
  }

  close() {
    this.#isClosed = true;
    this.#stop();
    this.#part?.close();
  }

  status() {
    return this.#session.status;
  }

  /** Whether a sandbox may be running. */
  isRunning() {
    return ["starting", "active", "paused"].includes(this.#session.status);
  }

  turnEnded() {
    this.refresh();
    this.#readUse();
  }

  /** A button that makes changes of the session's files possible. */
  stopRemedy() {
    if (this.status() === "paused") return element("p", {}, "Resume the session, then stop it.");
    return button("Stop the session", () => this.#act("stop"));
  }

  /** Reads the status and the open permission requests. */
  async refresh() {
    const openBefore = this.board.openIds();
    try {
      const [{ session }, { permissions }] = await Promise.all([
        get(sessionPath(this.#id)), get(sessionPath(this.#id, "permissions")),
      ]);
      // Of a session that is not active the list is empty, although its requests stay open while it is paused.
      if (session.status === "active") this.board.setOpen(permissions, openBefore);
      this.#setSession(session);
    } catch (error) {
      if (error.status !== 401) this.#fail(error);
    }
  }

  #setSession(session) {
    const changed = session.status !== this.#session.status;
    this.#session = session;
    if (changed) announce(`The session is ${session.status}`);
    this.#showHead();
    this.#part?.setStatus(session.status);
  }

  #showHead() {
    const { status, model, createdAt, parentSessionId } = this.#session;
    this.facts.replaceChildren(element("span", { class: `status ${status}` }, status),
      ...(model ? [textElement("span", {}, model)] : []),
      element("span", {}, "created ", timeElement(createdAt)),
      ...(parentSessionId ? [element("span", {}, "fork of ",
        element("a", { href: sessionLink(parentSessionId) }, parentSessionId.slice(0, 8)))] : []),
      this.use);
    const wanted = ACTIONS[status] ?? [];
    // The buttons of an unchanged status keep the focus.
    if (this.actions.dataset.names === wanted.join(" ")) return;
    const hadFocus = this.actions.contains(document.activeElement);
    this.actions.dataset.names = wanted.join(" ");
    this.actions.replaceChildren(...wanted.map((name) =>
      button(LABELS[name], () => this.#act(name), { class: name === "end" ? "danger" : "" })));
    if (hadFocus) (this.actions.firstChild ?? this.heading).focus();
  }

  async #act(name) {
    const content = [element("p", {}, "An ended session cannot be resumed. Its messages and files remain.")];
    if (name === "end" && !(await confirm("End this session?", { content, action: "End" }))) return;
    await whileBusy([...this.actions.children], async () => {
      try {
        this.problem.replaceChildren();
        const answer = await (name === "end" ? remove(sessionPath(this.#id)) : post(sessionPath(this.#id, name)));
        if (answer.session) this.#setSession(answer.session);
        else announce("The turn was interrupted");
      } catch (error) {
        if (error.status !== 401) this.#fail(error);
      }
    });
  }

  #fail(error) {
    this.problem.replaceChildren(alertBox(error.message));
  }

  async #readUse() {
    try {
      this.use.textContent = useText((await get(sessionPath(this.#id, "usage"))).usage);
    } catch {
      this.use.textContent = "";
    }
  }

  #showPart(name) {
    this.#part?.close();
    this.links.replaceChildren(...Object.keys(PARTS).map((part) => element("a", {
      href: sessionLink(this.#id, part), "aria-current": part === name ? "page" : null,
    }, TITLES[part])));
    this.#part = new PARTS[name](this.#id, this);
    const heading = element("h2", { id: "part-heading", class: "visually-hidden" }, TITLES[name]);
    this.panel.replaceChildren(heading, this.#part.element);
    this.#showHead();
    this.#part.setStatus(this.#session.status);
  }
}
