// The changes of an agent in its workspace: the list, the patch, and what to apply or to discard.

import { get, getText, post, sessionPath } from "./api.js";
import { confirm } from "./dialog.js";
import { alertBox, announce, button, element, textElement } from "./dom.js";
import { patchView } from "./patch.js";
import { count } from "./text.js";

const SIGNS = { added: "A", modified: "M", deleted: "D" };
const REMARKS = ["conflict", "protected", "refused", "link"];

export class Changes {
  #id;
  #session;
  #status = null;
  /** Counts the reads of the changes. */
  #version = 0;
  /** Whether what is shown is the result of the last read. */
  #isCurrent = false;
  #files = [];
  #boxes = new Map();

  constructor(id, session) {
    this.#id = id;
    this.#session = session;
    this.note = element("div");
    this.problem = element("div");
    this.list = element("ul", { class: "files" });
    this.patch = element("div");
    this.all = element("input", {
      type: "checkbox", id: "all-changes",
      onchange: () => this.#boxes.forEach((box) => { box.checked = this.all.checked; }),
    });
    this.apply = button("Apply", () => this.#settle("apply"), { class: "primary" });
    this.choice = element("fieldset", { hidden: true }, element("legend", {}, "Changed files"),
      element("p", { class: "choice" }, this.all, element("label", { for: "all-changes" }, "All")),
      this.list,
      element("div", { class: "actions" },
        this.apply,
        button("Discard", () => this.#settle("discard"), { class: "danger" }),
        button("Refresh", () => this.#load())));
    this.empty = element("p", { hidden: true }, "The workspace has no changes. ",
      button("Refresh", () => this.#load()));
    this.element = element("div", {}, this.note, this.problem, this.empty, this.choice, this.patch);
    this.setStatus(session.status());
  }

  close() {}

  setStatus(status) {
    if (status === this.#status) return;
    this.#status = status;
    if (!this.#session.isRunning()) {
      // The button in the problem has stopped the session.
      if (this.problem.contains(document.activeElement)) this.apply.focus();
      this.problem.replaceChildren();
    }
    const note = status === "paused" ? "If the sandbox of a paused session is still running, changes"
      : this.#session.isRunning() ? "The sandbox is running. Changes" : "";
    this.note.replaceChildren(...(note ? [element("p", { class: "notice" },
      `${note} can be applied and discarded after the session has been stopped.`)] : []));
    // The agent may have changed files until its sandbox ended: only what is shown from now on is settled.
    this.#load();
  }

  async #load() {
    const version = ++this.#version;
    this.#isCurrent = false;
    try {
      const { files } = await get(sessionPath(this.#id, "diff"));
      const patch = files.length ? await getText(sessionPath(this.#id, "diff?format=patch")) : "";
      if (version !== this.#version) return;
      this.#files = files;
      this.#showFiles();
      this.patch.replaceChildren(...(patch ? [element("h2", {}, "Patch"), patchView(patch)] : []));
      this.#isCurrent = true;
    } catch (error) {
      this.#fail(error);
    }
  }

  #showFiles() {
    this.#boxes.clear();
    this.choice.hidden = this.#files.length === 0;
    this.empty.hidden = !this.choice.hidden;
    const rows = this.#files.map((file, index) => {
      const remarks = REMARKS.filter((name) => file[name]);
      const id = `change-${index}`;
      // apply refuses a change with a remark, and with it all others of the request.
      const box = element("input", { type: "checkbox", id, onchange: () => this.#showWhetherAll() });
      box.checked = remarks.length === 0;
      this.#boxes.set(file.path, box);
      return element("li", {}, box, element("label", { for: id },
        element("span", { class: `change ${file.change}` },
          element("span", { class: "sign", "aria-hidden": "true" }, SIGNS[file.change] ?? "?"), ` ${file.change}`),
        " ", textElement("code", { dir: "ltr" }, file.path, { strict: true }),
        ...remarks.map((name) => textElement("span", { class: "remark" }, ` ${name}: ${remarkText(file[name])}`))));
    });
    this.list.replaceChildren(...rows);
    this.#showWhetherAll();
  }

  #showWhetherAll() {
    this.all.checked = [...this.#boxes.values()].every((box) => box.checked);
  }

  async #settle(action) {
    const paths = [...this.#boxes].filter(([, box]) => box.checked).map(([path]) => path);
    if (paths.length === 0) {
      this.problem.replaceChildren(alertBox("No change is selected."));
      return;
    }
    const version = this.#version;
    const changes = count(paths.length, "change");
    const isApply = action === "apply";
    const title = isApply ? `Apply ${changes} to the folder of the session?` : `Discard ${changes}?`;
    const effect = isApply ? "The files in the folder of the session are replaced."
      : "The changes are removed from the workspace. This cannot be undone.";
    const list = element("ul", { class: "paths", tabindex: "0", "aria-label": "Paths" },
      ...paths.map((path) => element("li", {}, textElement("code", { dir: "ltr" }, path, { strict: true }))));
    const label = isApply ? "Apply" : "Discard";
    if (!(await confirm(title, { content: [element("p", {}, effect), list], action: label }))) return;
    if (!this.#isCurrent || version !== this.#version) {
      this.problem.replaceChildren(alertBox("The changes were read again meanwhile. Look at them before you go on."));
      return;
    }
    try {
      this.problem.replaceChildren();
      await post(sessionPath(this.#id, action), { paths });
      announce(`${changes} ${isApply ? "applied" : "discarded"}`);
      await this.#load();
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error) {
    if (error.status === 401) return;
    const remedy = error.status === 409 && this.#session.isRunning() ? this.#session.stopRemedy() : null;
    this.problem.replaceChildren(alertBox(error.message, remedy));
  }
}

function remarkText(remark) {
  return typeof remark === "string" ? remark : remark === true ? "yes" : JSON.stringify(remark);
}
