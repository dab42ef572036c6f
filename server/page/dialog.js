// A question in the page, before a change that cannot be undone.

import { button, element } from "./dom.js";

/** Asks for a confirmation. Resolves to whether it was given; Escape is a refusal. The focus returns to where it was. */
export function confirm(title, { content = [], action }) {
  return new Promise((resolve) => {
    const close = (answer) => {
      dialog.returnValue = answer;
      dialog.close();
    };
    const cancel = button("Cancel", () => close(""));
    const dialog = element("dialog", { "aria-labelledby": "dialog-title" },
      element("h2", { id: "dialog-title" }, title),
      ...content,
      element("div", { class: "actions" }, cancel, button(action, () => close("yes"), { class: "primary" })));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
    cancel.focus();
  });
}
