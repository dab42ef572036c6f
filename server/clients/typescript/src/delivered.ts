/** What of a stream its reader has: an event that the server sends again is not delivered again. */

import type { ReceivedEvent } from "./event-source.js";

/**
 * The server derives the id of an event from what is stored, so that it is the same each time. Ids never decrease, and
 * events that share an id differ in their name or data. So an event is new if its id is above the last one, or equal to
 * it and no such event was delivered.
 */
export class Delivered {
  #last: number | undefined;
  /** Name and data of the delivered events with the last id. */
  readonly #atLast = new Set<string>();

  /** The id of the last delivered event. */
  get last(): number | undefined {
    return this.#last;
  }

  /** Adds an event. Returns false if it was delivered before. */
  add({ event, text }: ReceivedEvent): boolean {
    const content = `${event.event}\n${text}`;
    if (this.#last !== undefined) {
      // Each response begins with one, which is no event of the session.
      if (event.event === "session_start" || event.id < this.#last) return false;
      if (event.id === this.#last && this.#atLast.has(content)) return false;
    }
    if (event.id !== this.#last) this.#atLast.clear();
    this.#last = event.id;
    this.#atLast.add(content);
    return true;
  }
}
