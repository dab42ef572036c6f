// The conversation of a session: the stored messages, and then what the stream brings.
//
// Both sources contain the messages of the agent, byte for byte, and each is shown once. Only the list of messages has
// those of clients, and only the stream has partial text, questions and errors. All work is done in one queue, so that
// the entries are in order.

import { get, sessionPath } from "./api.js";
import { Composer } from "./composer.js";
import { announce, element } from "./dom.js";
import { agentEntries, noticeEntry, parse, textEntry, userEntry } from "./entries.js";
import { follow } from "./stream.js";
import { contentText } from "./text.js";

const PAGE_SIZE = 1000;
// While the stream repeats what is stored already, the list is read again at most this often, in milliseconds.
const SYNC_INTERVAL = 1000;

export class Conversation {
  #id;
  #session;
  #queue = Promise.resolve();
  #isClosed = false;
  #stopStream = null;
  /** The id of the last frame of the stream. */
  #position;
  /** The sequence number of the last message in the list. */
  #sequence = 0;
  #lastSync = 0;
  /** Messages of the list that the stream has not repeated yet: the last entry of each. */
  #listed = new PendingMessages();
  /** Messages of the stream that the list has not repeated yet. */
  #streamed = new PendingMessages();
  /** The entry after which the stream has got, while it repeats what is listed. */
  #cursor = null;
  #tools = new Map();
  #draft = null;
  #inTurn = false;

  /** `session` has the board of permission requests, `isRunning()`, and `turnEnded()`. */
  constructor(id, session) {
    this.#id = id;
    this.#session = session;
    this.log = element("ol", { class: "log", "aria-label": "Conversation" });
    this.state = element("p", { class: "label stream-state" });
    this.composer = new Composer(id, (sent) => this.#enqueue(() => this.#sent(sent)));
    this.element = element("div", { class: "conversation" }, this.log, this.state, this.composer.element);
    this.#enqueue(() => this.#load());
  }

  close() {
    this.#isClosed = true;
    this.#stopStream?.();
    this.#session.board.showIn(null);
  }

  /** The status of the session has changed: a stream that has ended is started again. */
  setStatus(status) {
    this.composer.setStatus(status);
    if (this.#stopStream === null && status === "active") this.#enqueue(() => this.#follow());
  }

  #enqueue(work) {
    this.#queue = this.#queue.then(() => (this.#isClosed ? undefined : work())).catch((error) => {
      if (!this.#isClosed) this.#append(noticeEntry("error", error.message));
    });
    return this.#queue;
  }

  async #load() {
    await this.#sync();
    this.#session.board.showIn((card) => this.#append(card));
    const { events } = await get(sessionPath(this.#id, "events"), { type: "tool_result", limit: PAGE_SIZE });
    for (const event of events) {
      const { toolId, stdout, stderr } = parse(event.data);
      this.#tools.get(String(toolId))?.finish([contentText(stdout), contentText(stderr)].filter(Boolean).join("\n"), null);
    }
    this.#follow();
    scrollToEnd();
  }

  #follow() {
    if (this.#stopStream || this.#isClosed) return;
    this.#stopStream = follow(sessionPath(this.#id, "stream"), this.#position, {
      onFrame: async (frame) => {
        await this.#enqueue(() => this.#frame(frame));
        this.#position = frame.id ?? this.#position;
      },
      onState: (state, error) => {
        this.state.textContent = state === "waiting" ? "Connection lost. Connecting again…" : error?.message ?? "";
        if (state === "ended") {
          this.#stopStream = null;
          this.#inTurn = false;
        }
      },
      isWanted: async () => {
        // Without a sandbox, the stream ends after what is stored.
        await this.#session.refresh();
        return this.#session.status() === "active";
      },
    });
  }

  /** Frames wait until the message that may have caused them is shown. */
  async #sent(stored) {
    await stored;
    await this.#sync();
    scrollToEnd();
  }

  /** Reads the messages after the last known one, and shows those that the stream has not brought. */
  async #sync() {
    let rows;
    do {
      const query = { after: this.#sequence, limit: PAGE_SIZE };
      rows = (await get(sessionPath(this.#id, "messages"), query)).messages;
      for (const row of rows) this.#row(row);
    } while (rows.length === PAGE_SIZE);
    this.#lastSync = Date.now();
  }

  #row(row) {
    this.#sequence = row.sequence;
    if (row.role === "user") return this.#append(userEntry(row));
    if (this.#streamed.take(row.content)) return;
    const entries = this.#agentEntries(parse(row.content));
    entries.forEach((entry) => this.#append(entry));
    this.#listed.put(row.content, entries.at(-1) ?? null);
  }

  #agentEntries(message) {
    return agentEntries(message, (id, tool) => this.#tools.set(id, tool));
  }

  async #frame({ event, data }) {
    const value = parse(data);
    switch (event) {
      case "message": return this.#message(value, data);
      case "text_delta": return this.#addToDraft(value.delta);
      case "tool_result":
        return this.#tools.get(String(value.tool_use_id))?.finish(value.content, value.is_error === true);
      case "permission_request": return this.#session.board.add(value);
      case "permission_resolved": return this.#session.board.resolve(value);
      case "gap": return this.#insert(noticeEntry("gap", "Earlier events are no longer stored."));
      case "error":
        this.#insert(noticeEntry("error", `Error: ${value.error}`));
        announce(`Error: ${value.error}`);
        return this.#endTurn();
      case "done": return this.#endTurn();
    }
  }

  async #message(message, raw) {
    const isListed = this.#listed.has(raw);
    if (!this.#inTurn && !isListed && (this.#listed.isEmpty() || Date.now() - this.#lastSync > SYNC_INTERVAL)) {
      // The message of the client that began this turn comes first.
      await this.#sync();
    }
    this.#inTurn = true;
    this.#showWork();
    if (message.type !== "assistant" && message.type !== "result") return;
    this.#endDraft();
    const listed = this.#listed.take(raw);
    if (listed) {
      this.#cursor = listed.value;
      return;
    }
    this.#streamed.put(raw, null);
    this.#agentEntries(message).forEach((entry) => this.#insert(entry));
    const text = contentText((message.message?.content ?? []).filter?.((block) => block?.type === "text") ?? "");
    if (text) announce(`Agent: ${text}`);
  }

  #endTurn() {
    this.#endDraft();
    this.#inTurn = false;
    this.#showWork();
    this.#session.turnEnded();
  }

  #showWork() {
    this.log.classList.toggle("working", this.#inTurn);
    this.state.textContent = this.#inTurn && this.#session.isRunning() ? "The agent is working…" : "";
  }

  /** Partial text is drawn at most once a frame of the display, and not at all if the whole text comes before. */
  #addToDraft(delta) {
    if (!this.#draft) {
      this.#draft = { text: "", element: null, request: 0 };
    }
    const draft = this.#draft;
    draft.text += delta ?? "";
    draft.request ||= requestAnimationFrame(() => {
      draft.request = 0;
      const shown = textEntry("Agent", draft.text);
      shown.classList.add("draft");
      if (draft.element) this.#keepScroll(() => draft.element.replaceWith(shown));
      else this.#append(shown);
      draft.element = shown;
    });
  }

  #endDraft() {
    if (!this.#draft) return;
    cancelAnimationFrame(this.#draft.request);
    this.#draft.element?.remove();
    this.#draft = null;
  }

  /** Adds an entry of the stream: at its place, if later messages are listed already. */
  #insert(entry) {
    if (this.#listed.isEmpty() || !this.#cursor) return this.#append(entry);
    this.#cursor.after(entry);
    this.#cursor = entry;
  }

  #append(entry) {
    this.#keepScroll(() => this.log.append(entry));
  }

  /** A reader at the end of the conversation stays there; any other one is not moved. */
  #keepScroll(change) {
    const page = document.documentElement;
    const isAtEnd = page.scrollHeight - page.clientHeight - window.scrollY < 80;
    change();
    if (isAtEnd) scrollToEnd();
  }
}

function scrollToEnd() {
  window.scrollTo(0, document.documentElement.scrollHeight);
}

/**
 * Messages in the order of one source, each with a value, until the other source brings them. Both sources have the same
 * order: those before a message that is taken are not in the other source, and are dropped.
 */
class PendingMessages {
  #messages = [];

  put(text, value) {
    this.#messages.push({ text, value });
  }

  has(text) {
    return this.#messages.some((message) => message.text === text);
  }

  isEmpty() {
    return this.#messages.length === 0;
  }

  /** Removes the first message with this text, and those before it; `undefined` if there is none. */
  take(text) {
    const index = this.#messages.findIndex((message) => message.text === text);
    if (index < 0) return undefined;
    return this.#messages.splice(0, index + 1).at(-1);
  }
}
