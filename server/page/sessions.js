// The list of sessions by status, and the form that starts one.

import { get, post, sessionPath } from "./api.js";
import { alertBox, button, element, repeatWhileVisible, textElement, timeElement, whileBusy } from "./dom.js";
import { sessionLink, sessionsLink } from "./routes.js";
import { count, formatNumber, useText } from "./text.js";

const STATUSES = ["starting", "active", "paused", "stopped", "error", "ended"];
const INTERVAL = 5000;
const PAGE_SIZE = 100;

export class SessionsView {
  #status;
  #limit = PAGE_SIZE;
  #rows = new Map();
  #groups = new Map();
  #stop;
  #seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting) this.#rows.get(target.dataset.id)?.readUse();
  });

  constructor(status) {
    this.#status = STATUSES.includes(status) ? status : "";
    this.heading = element("h1", { tabindex: "-1" }, "Sessions");
    this.problem = element("div");
    this.list = element("div", { class: "groups" });
    this.more = button("Show more", () => { this.#limit += PAGE_SIZE; this.#load(); }, { hidden: true });
    this.total = element("p", { class: "label" });
    this.element = element("div", {}, this.heading, startForm(), this.#filter(), this.problem, this.list, this.total, this.more);
  }

  async show() {
    this.#stop = repeatWhileVisible(INTERVAL, () => this.#load());
    return "Sessions";
  }

  close() {
    this.#stop?.();
    this.#seen.disconnect();
  }

  #filter() {
    const select = element("select", {
      id: "status-filter",
      onchange: () => { location.hash = sessionsLink(select.value); },
    }, element("option", { value: "" }, "all"),
      ...STATUSES.map((status) => element("option", { value: status, selected: status === this.#status }, status)));
    return element("p", { class: "filter" }, element("label", { for: "status-filter" }, "Status"), " ", select);
  }

  async #load() {
    try {
      const { sessions, total } = await get("api/sessions", { status: this.#status, limit: Math.min(this.#limit, 1000) });
      this.problem.replaceChildren();
      this.#update(sessions);
      this.total.textContent = sessions.length === 0 ? "No sessions." : `${formatNumber(sessions.length)} of ${count(total, "session")}`;
      this.more.hidden = sessions.length >= total || sessions.length >= 1000;
    } catch (error) {
      if (error.status !== 401) this.problem.replaceChildren(alertBox(error.message));
    }
  }

  /** Changes what differs only, so that the focus and the position stay. */
  #update(sessions) {
    const known = new Set(sessions.map((session) => session.id));
    for (const [id, row] of this.#rows) {
      if (known.has(id)) continue;
      this.#seen.unobserve(row.element);
      row.element.remove();
      this.#rows.delete(id);
    }
    for (const status of STATUSES) {
      const members = sessions.filter((session) => session.status === status);
      const group = this.#group(status);
      group.title.textContent = `${status[0].toUpperCase()}${status.slice(1)} (${members.length})`;
      group.element.hidden = members.length === 0;
      members.forEach((session, index) => {
        const row = this.#row(session);
        if (group.list.children[index] !== row.element) group.list.insertBefore(row.element, group.list.children[index] ?? null);
      });
    }
  }

  #group(status) {
    if (!this.#groups.has(status)) {
      const id = `group-${status}`;
      const title = element("h2", { id });
      const list = element("ul", { class: "rows", "aria-labelledby": id });
      const section = element("section", { hidden: true }, title, list);
      this.list.append(section);
      this.#groups.set(status, { element: section, title, list });
    }
    return this.#groups.get(status);
  }

  #row(session) {
    let row = this.#rows.get(session.id);
    if (!row) {
      row = new SessionRow(session.id);
      this.#rows.set(session.id, row);
      this.#seen.observe(row.element);
    }
    row.update(session);
    return row;
  }
}

class SessionRow {
  #id;
  #shown = "";
  #session = null;
  #readFor = null;

  constructor(id) {
    this.#id = id;
    this.link = element("a", { href: sessionLink(id), class: "name" });
    this.facts = element("span", { class: "facts" });
    this.use = element("span", { class: "use" });
    this.element = element("li", { "data-id": id }, this.link, this.facts, this.use);
  }

  update(session) {
    const shown = JSON.stringify(session);
    if (shown === this.#shown) return;
    const wasRead = this.#readFor !== null;
    this.#shown = shown;
    this.#session = session;
    this.link.replaceChildren(textElement("span", {}, session.agentName), " ", element("code", {}, this.#id.slice(0, 8)));
    this.facts.replaceChildren(element("span", { class: `status ${session.status}` }, session.status),
      ...(session.model ? [textElement("span", {}, session.model)] : []),
      element("span", {}, "created ", timeElement(session.createdAt)),
      element("span", {}, "active ", timeElement(session.lastActiveAt)));
    if (wasRead) this.readUse();
  }

  /** Reads the use when the row becomes visible, and again after the session has been active. */
  async readUse() {
    if (this.#readFor === this.#session.lastActiveAt) return;
    this.#readFor = this.#session.lastActiveAt;
    try {
      this.use.textContent = useText((await get(sessionPath(this.#id, "usage"))).usage);
    } catch {
      this.#readFor = null;
    }
  }
}

function startForm() {
  const problem = element("div");
  const agents = element("select", { id: "agent" });
  const submit = element("button", { type: "submit", class: "primary" }, "Start session");
  const form = element("form", {
    class: "start", "aria-label": "New session",
    onsubmit: async (event) => {
      event.preventDefault();
      await whileBusy([submit], async () => {
        problem.replaceChildren();
        try {
          const { session } = await post("api/sessions", { agent: agents.value });
          location.hash = sessionLink(session.id);
        } catch (error) {
          problem.replaceChildren(alertBox(error.message));
        }
      });
    },
  }, element("label", { for: "agent" }, "Agent"), agents, submit, problem);
  listAgents(agents, submit).catch((error) => {
    if (error.status !== 401) problem.replaceChildren(alertBox(error.message));
  });
  return form;
}

async function listAgents(select, submit) {
  const names = (await get("api/agents")).agents.map((agent) => agent.name);
  select.append(...names.map((name) => element("option", { value: name }, name)));
  if (names.length > 0) return;
  select.append(element("option", { value: "" }, "no agent is deployed"));
  submit.disabled = true;
}
