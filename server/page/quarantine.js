// The quarantine of a session: files that programs of the host would run, to restore or to remove.

import { get, post, sessionPath } from "./api.js";
import { confirm } from "./dialog.js";
import { alertBox, announce, button, element, textElement } from "./dom.js";
import { visibleText } from "./text.js";

const STRICT = { strict: true };

export class Quarantine {
  #id;
  #session;
  #status = null;

  constructor(id, session) {
    this.#id = id;
    this.#session = session;
    this.note = element("div");
    this.problem = element("div");
    this.list = element("ul", { class: "quarantined", "aria-label": "Files in quarantine", tabindex: "-1" });
    this.empty = element("p", { hidden: true }, "The quarantine is empty.");
    this.refresh = button("Refresh", () => this.#load());
    this.element = element("div", {},
      element("p", {}, "The agent left these files where programs of the host, such as git or a shell, would run them. ",
        "saggar has moved them out of the workspace."),
      this.note, this.problem, this.empty, this.list,
      element("div", { class: "actions" }, this.refresh));
    this.setStatus(session.status());
  }

  close() {}

  setStatus(status) {
    if (status === this.#status) return;
    this.#status = status;
    if (!this.#session.isRunning()) {
      if (this.problem.contains(document.activeElement)) this.list.focus();
      this.problem.replaceChildren();
    }
    this.note.replaceChildren(...(this.#session.isRunning() ? [element("p", { class: "notice" },
      "Files can be restored after the session has been stopped.")] : []));
    this.#load();
  }

  async #load() {
    try {
      const { files } = await get(sessionPath(this.#id, "quarantine"));
      const hadFocus = this.list.contains(document.activeElement);
      this.empty.hidden = files.length > 0;
      this.list.hidden = files.length === 0;
      this.list.replaceChildren(...files.map((file) => this.#entry(file)));
      if (hadFocus) this.refresh.focus();
    } catch (error) {
      this.#fail(error);
    }
  }

  #entry(file) {
    const { path, why, replaced } = file;
    const name = visibleText(path);
    return element("li", {},
      element("p", {}, textElement("code", { dir: "ltr" }, path, STRICT), " ",
        textElement("span", { class: "remark" }, why, STRICT),
        replaced ? ". A copy without these settings is in the workspace." : ""),
      element("div", { class: "actions" },
        button("Restore", () => this.#restore(file, false), { "aria-label": `Restore ${name}` }),
        button("Remove", () => this.#remove(file), { class: "danger", "aria-label": `Remove ${name}` })));
  }

  async #restore(file, force) {
    const effects = [
      "The file is moved back into the workspace. Programs of the host, such as git, a shell or an editor, may run what is ",
      "in it as soon as they are used there, outside of the sandbox.",
    ];
    if (force) effects.push(" The file that is there now is moved to quarantine.");
    const content = [subject(file), element("p", {}, ...effects)];
    if (!(await confirm("Restore this file?", { content, action: "Restore" }))) return;
    await this.#release(file, { action: "restore", force }, "restored");
  }

  async #remove(file) {
    const content = [subject(file), element("p", {}, "The file is deleted. This cannot be undone.")];
    if (!(await confirm("Remove this file?", { content, action: "Remove" }))) return;
    await this.#release(file, { action: "remove" }, "removed");
  }

  async #release(file, body, done) {
    try {
      this.problem.replaceChildren();
      await post(sessionPath(this.#id, "quarantine"), { ...body, names: [file.name] });
      announce(`${visibleText(file.path)} is ${done}`);
      await this.#load();
    } catch (error) {
      this.#fail(error, file);
    }
  }

  #fail(error, file) {
    if (error.status === 401) return;
    const remedies = [];
    if (error.status === 409) {
      // A paused session can have a sandbox, or not.
      if (this.#session.isRunning()) remedies.push(this.#session.stopRemedy());
      if (!this.#session.isRunning() || this.#session.status() === "paused") {
        remedies.push(button("Restore and quarantine the other file", () => this.#restore(file, true)));
      }
    }
    this.problem.replaceChildren(alertBox(error.message, ...remedies));
  }
}

function subject({ path, why }) {
  return element("dl", { class: "subject" },
    element("dt", {}, "File"), textElement("dd", { dir: "ltr" }, path, STRICT),
    element("dt", {}, "Reason"), textElement("dd", {}, why, STRICT));
}
