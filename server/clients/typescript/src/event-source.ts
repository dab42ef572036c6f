/** The server-sent events of one response. */

import { createParser } from "eventsource-parser";
import { ApiError, ConnectionError } from "./errors.js";
import type { Exchange } from "./exchange.js";
import type { StreamEvent } from "./stream-event.js";

/** An event, and the text of its data, by which two events with the same id are told apart. */
export interface ReceivedEvent {
  event: StreamEvent;
  text: string;
}

/** Reads the events of a response. It ends when the server ends the response, and throws if the connection is lost. */
export class EventSource {
  /** The server has sent a comment: the stream was open while nothing happened. */
  hasWaited = false;
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

  async *[Symbol.asyncIterator](): AsyncGenerator<ReceivedEvent, void> {
    const received: ReceivedEvent[] = [];
    let lastId = "";
    const parser = createParser({
      onEvent: ({ id, event, data }) => {
        lastId = id ?? lastId;
        received.push({ event: parseEvent(lastId, event ?? "message", data), text: data });
      },
      onComment: () => {
        this.hasWaited = true;
      },
    });
    const decoder = new TextDecoder();
    const reader = this.#response.body?.getReader();
    try {
      for (;;) {
        const chunk = await this.#exchange.within(this.#idleTimeout, "nothing was received", async () =>
          this.#exchange.guard(reader?.read() ?? Promise.resolve({ done: true as const, value: undefined })),
        );
        if (chunk.done) return;
        parser.feed(decoder.decode(chunk.value, { stream: true }));
        yield* received.splice(0);
      }
    } finally {
      this.#exchange.close();
    }
  }
}

function parseEvent(id: string, event: string, data: string): StreamEvent {
  if (!/^\d+$/.test(id)) throw new ConnectionError("the stream has an event whose id is not a number", "invalid");
  try {
    // Events of unknown names are delivered, too.
    return { id: Number(id), event, data: JSON.parse(data) } as StreamEvent;
  } catch (error) {
    throw new ConnectionError("the stream has an event whose data is not JSON", "invalid", { cause: error });
  }
}
