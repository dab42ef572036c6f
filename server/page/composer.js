// The form that sends messages. Enter sends, and Shift+Enter begins a line.

import { send, sessionPath } from "./api.js";
import { alertBox, element, whileBusy } from "./dom.js";

export class Composer {
  #session;
  #onSend;
  // The last message that may not have arrived: it is repeated with the same key, so that the agent receives it once.
  #unsure = null;

  /** `onSend` receives a promise that ends when the server has stored the message, or has refused it. */
  constructor(session, onSend) {
    this.#session = session;
    this.#onSend = onSend;
    this.problem = element("div");
    this.input = element("textarea", {
      id: "message", rows: "2", maxlength: "500000", "aria-describedby": "message-hint",
      onkeydown: (event) => this.#key(event),
    });
    this.submit = element("button", { type: "submit", class: "primary" }, "Send");
    this.hint = element("p", { id: "message-hint", class: "label" });
    this.element = element("form", {
      class: "composer", "aria-label": "New message",
      onsubmit: (event) => { event.preventDefault(); this.#submit(); },
    }, this.problem, element("label", { for: "message" }, "Message"),
      element("div", { class: "composer-row" }, this.input, this.submit), this.hint);
  }

  setStatus(status) {
    const isActive = status === "active";
    this.input.disabled = this.submit.disabled = !isActive;
    const remedy = status === "ended" ? "It cannot receive messages." : "Resume it to send messages.";
    this.hint.textContent = isActive ? "Enter sends, Shift+Enter begins a new line."
      : status === "starting" ? "The session is starting." : `The session is ${status}. ${remedy}`;
  }

  #key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.#submit();
  }

  async #submit() {
    const text = this.input.value;
    if (!text.trim() || this.submit.disabled) return;
    await whileBusy([this.submit], () => this.#sendShown(text));
  }

  async #sendShown(text) {
    this.problem.replaceChildren();
    const sent = this.#send(text);
    this.#onSend(sent.catch(() => {}));
    try {
      await sent;
      if (this.input.value === text) this.input.value = "";
    } catch (error) {
      this.problem.replaceChildren(alertBox(`The message was not sent: ${error.message}`));
    }
  }

  async #send(text) {
    if (this.#unsure?.text !== text) this.#unsure = { text, key: randomKey() };
    const headers = { "Idempotency-Key": this.#unsure.key };
    const body = { content: text, includePartialMessages: true };
    const response = await send("POST", sessionPath(this.#session, "messages"), { body, headers });
    this.#unsure = null;
    // The stream of the session has the same events, and the turn does not need this connection.
    await response.body.cancel();
  }
}

function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
