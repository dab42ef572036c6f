/** The events of one response. */

import { ApiError, ConnectionError } from "./errors.js";
import { EventParser } from "./event-parser.js";
import type { ParsedEvent } from "./event-parser.js";
import type { Exchange } from "./exchange.js";
import type { StreamEvent } from "./stream-event.js";

/** An event, and the text of its data, by which two events with the same id are told apart. */
export interface ReceivedEvent {
  event: StreamEvent;
  text: string;
}

/** Reads the events of a response. It ends when the server ends the response, and throws if the connection is lost. */
export class EventSource {
  readonly #parser = new EventParser();
  readonly #exchange: Exchange;
  readonly #response: Response;
  readonly #idleTimeout: number;

  constructor(exchange: Exchange, response: Response, idleTimeout: number) {
    const type = response.headers.get("content-type") ?? "nothing";
    if (!/^text\/event-stream\b/i.test(type)) {
      exchange.close();
      throw new ApiError(`the response is ${type} instead of a stream of events`, response.status, null);
    }
    this.#exchange = exchange;
    this.#response = response;
    this.#idleTimeout = idleTimeout;
  }

  /** The server has sent a comment: the stream was open while nothing happened. */
  get hasWaited(): boolean {
    return this.#parser.hasComment;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ReceivedEvent, void> {
    const reader = this.#response.body?.getReader();
    try {
      while (reader !== undefined) {
        const read = () => this.#exchange.guard(reader.read());
        const limit = this.#idleTimeout;
        const { done, value } = await this.#exchange.within(limit, "nothing was received", "lost", read);
        if (done) return;
        for (const parsed of this.#parser.push(value)) yield receivedEvent(parsed);
      }
    } finally {
      this.#exchange.close();
    }
  }
}

function receivedEvent({ id, event, data }: ParsedEvent): ReceivedEvent {
  if (!/^\d+$/.test(id)) throw new ConnectionError("the stream has an event whose id is not a number", "invalid");
  try {
    // Events of unknown names are delivered, too.
    return { event: { id: Number(id), event, data: JSON.parse(data) } as StreamEvent, text: data };
  } catch (error) {
    throw new ConnectionError("the stream has an event whose data is not JSON", "invalid", { cause: error });
  }
}
