/** Streams of events, which continue after a lost connection. */

import { Delivered } from "./delivered.js";
import { ConnectionError } from "./errors.js";
import { EventSource } from "./event-source.js";
import type { ApiRequest, Http } from "./http.js";
import type { CallOptions } from "./options.js";
import { Retries } from "./retries.js";
import type { StreamEvent } from "./stream-event.js";

/** A sequence of events. Leaving its loop closes the connection. */
export type EventStream = AsyncGenerator<StreamEvent, void, undefined>;

/**
 * Sends a message, and returns the events of its turn. If the connection is lost before the end of the turn, the
 * request is sent again with the same key: the server then sends the turn from its beginning.
 */
export async function* streamTurn(http: Http, request: ApiRequest, options: CallOptions): EventStream {
  const key = request.headers?.["idempotency-key"] ?? randomKey();
  const keyed = { ...request, headers: { ...request.headers, "idempotency-key": key } };
  const delivered = new Delivered();
  const retries = new Retries(http.limits);
  let hasEnded = false;
  for (;;) {
    let source: EventSource | undefined;
    try {
      source = await openSource(http, keyed, options);
      delivered.reconnect();
      for await (const received of source) {
        if (!delivered.add(received)) continue;
        retries.reset();
        yield received.event;
        if (received.event.event === "done") return;
        // `done` can follow.
        hasEnded ||= received.event.event === "error";
      }
      if (hasEnded) return;
      throw lost(keyed, "the stream ended before its turn");
    } catch (error) {
      if (hasEnded && error instanceof ConnectionError) return;
      if (source?.hasWaited) retries.reset();
      await retries.wait(error, true, options.signal);
    }
  }
}

/**
 * Returns the events of a session, and continues after the last one when the connection is lost.
 *
 * The server ends the response without an error in two cases: the session has no sandbox, so that all stored events
 * have been sent, or the server exits. In the first case a second response has nothing new, ends at once, and the
 * session is not active.
 */
export async function* streamSession(http: Http, request: ApiRequest, options: CallOptions): EventStream {
  const { "last-event-id": header, ...headers } = request.headers ?? {};
  const { after: query, ...rest } = request.query ?? {};
  const after = Number(header ?? query ?? 0);
  const delivered = new Delivered();
  const retries = new Retries(http.limits);
  let hasEnded = false;
  for (;;) {
    // The events that share the last id may not all have arrived: they are requested again.
    const from = Math.max(after, delivered.last - 1);
    const position = { ...request, query: rest, headers: { ...headers, "last-event-id": from } };
    let source: EventSource | undefined;
    try {
      source = await openSource(http, position, options);
      delivered.reconnect();
      let isNew = false;
      for await (const received of source) {
        if (!delivered.add(received)) continue;
        isNew ||= received.event.event !== "session_start";
        if (isNew) retries.reset();
        yield received.event;
      }
      const isQuiet = !isNew && !source.hasWaited;
      if (isQuiet && hasEnded && !(await isActive(http, request, options))) return;
      if (isQuiet && hasEnded) throw lost(position, "the stream of an active session ended");
      if (!isQuiet) retries.reset();
      hasEnded = true;
    } catch (error) {
      if (source?.hasWaited) retries.reset();
      await retries.wait(error, true, options.signal);
    }
  }
}

/** `crypto.randomUUID` does not exist in pages without TLS. */
function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function openSource(http: Http, request: ApiRequest, options: CallOptions): Promise<EventSource> {
  const [exchange, response] = await http.open(request, options);
  return new EventSource(exchange, response, http.limits.idleTimeout);
}

/** Whether a session, as the server knows it, has a sandbox. */
async function isActive(http: Http, stream: ApiRequest, options: CallOptions): Promise<boolean> {
  const request: ApiRequest = { method: "GET", path: stream.path.replace(/\/stream$/, ""), security: stream.security };
  const { session } = await http.json<{ session: { status: string } }>(request, options);
  return session.status === "active" || session.status === "starting";
}

function lost(request: ApiRequest, what: string): ConnectionError {
  return new ConnectionError(`${request.method} ${request.path}: ${what}`, "lost");
}
