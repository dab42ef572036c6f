/** What of a stream its reader has: an event that the server sends again is not delivered again. */

import type { ReceivedEvent } from "./event-source.js";

/**
 * The server derives the id of an event from what is stored, so that it is the same each time. Ids never decrease, and
 * several events can have the same id, name and data: such an event is dropped as often as it was delivered by earlier
 * connections.
 */
export class Delivered {
  #hasStarted = false;
  #last = 0;
  /** Name and data of the delivered events with the last id. */
  #atLast: string[] = [];
  /** Those of them that this connection has not repeated yet. */
  #awaited: string[] = [];

  /** The id of the last delivered event, or 0. */
  get last(): number {
    return this.#last;
  }

  /** Begins a connection, which can repeat events. */
  reconnect(): void {
    this.#awaited = [...this.#atLast];
  }

  /** Adds an event. Returns false if it was delivered before. */
  add({ event, text }: ReceivedEvent): boolean {
    if (event.event === "session_start") {
      // Each response begins with one, which is no event of the session.
      const isFirst = !this.#hasStarted;
      this.#hasStarted = true;
      return isFirst;
    }
    if (event.id < this.#last) return false;
    const content = `${event.event}\n${text}`;
    if (event.id > this.#last) {
      this.#last = event.id;
      this.#atLast = [];
      this.#awaited = [];
    }
    const repeated = this.#awaited.indexOf(content);
    if (repeated >= 0) {
      this.#awaited.splice(repeated, 1);
      return false;
    }
    this.#atLast.push(content);
    return true;
  }
}
