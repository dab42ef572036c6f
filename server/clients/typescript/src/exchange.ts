/** One request and its response, which ends by itself, by the caller, or by a time limit. */

import { ConnectionError } from "./errors.js";
import type { ConnectionFailure } from "./errors.js";
import type { Fetch } from "./options.js";

/** An HTTP exchange. Every failure of the connection becomes a `ConnectionError`. */
export class Exchange {
  readonly #fetch: Fetch;
  readonly #name: string;
  readonly #controller = new AbortController();
  readonly #signal: AbortSignal | undefined;
  readonly #abort = () => this.#controller.abort(this.#signal?.reason);
  #late: ConnectionError | undefined;
  /** What a step that exceeds its time is. */
  #whenLate: ConnectionFailure = "lost";

  /** `name` names the request in errors. */
  constructor(fetch: Fetch, name: string, signal: AbortSignal | undefined) {
    signal?.throwIfAborted();
    this.#fetch = fetch;
    this.#name = name;
    this.#signal = signal;
    signal?.addEventListener("abort", this.#abort, { once: true });
  }

  /** Sends the request, and returns the response when its head has arrived. */
  send(url: string, init: RequestInit): Promise<Response> {
    // A redirect would carry the body to another address.
    const options: RequestInit = { ...init, redirect: "manual", signal: this.#controller.signal };
    return this.guard(Promise.resolve().then(() => this.#fetch(url, options)));
  }

  /** Runs a step of the exchange within this time, in ms. `missing` and `failure` are those of the error. */
  async within<T>(
    time: number,
    missing: string,
    failure: "timeout" | "lost",
    step: () => Promise<T>,
  ): Promise<T> {
    this.#whenLate = failure;
    const timer = setTimeout(() => {
      this.#late = new ConnectionError(`${this.#name}: ${missing} within ${time / 1000} s`, failure);
      this.#controller.abort(this.#late);
    }, time);
    try {
      return await step();
    } finally {
      clearTimeout(timer);
    }
  }

  /** Waits for a part of the response. */
  async guard<T>(part: Promise<T>): Promise<T> {
    try {
      return await part;
    } catch (error) {
      this.#signal?.throwIfAborted();
      if (this.#late !== undefined) throw this.#late;
      const failure = isTimeLimit(error) ? this.#whenLate : "lost";
      throw new ConnectionError(`${this.#name}: ${causeOf(error)}`, failure, { cause: error });
    }
  }

  /** Ends the exchange: a response that has not been read to its end is closed with its connection. */
  close(): void {
    this.#signal?.removeEventListener("abort", this.#abort);
    this.#controller.abort();
  }
}

/** `fetch` of Node.js has time limits of its own for a response. */
function isTimeLimit(error: unknown): boolean {
  const { code } = (error instanceof Error ? error.cause ?? {} : {}) as { code?: unknown };
  return code === "UND_ERR_HEADERS_TIMEOUT" || code === "UND_ERR_BODY_TIMEOUT";
}

/** The reason of a failure: `fetch` of Node.js has it in the cause of its error. */
function causeOf(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  if (!(cause instanceof Error)) return String(cause);
  const first = cause instanceof AggregateError ? cause.errors[0] : undefined;
  return first instanceof Error ? first.message : cause.message || cause.name;
}
