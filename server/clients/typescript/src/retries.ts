/** Decides whether and when a request is sent again. */

import { ApiError, ConnectionError } from "./errors.js";
import type { Limits } from "./options.js";

/** Maximum delay, in ms. If the server asks for a longer one, the error is raised. */
const MAX_DELAY = 30_000;

export class Retries {
  readonly #limits: Limits;
  #failures = 0;

  constructor(limits: Limits) {
    this.#limits = limits;
  }

  /** The last attempt has brought something: the count starts again. */
  reset(): void {
    this.#failures = 0;
  }

  /** Waits until the next attempt, or throws the error if there is none. `isRepeatable`: it may arrive twice. */
  async wait(error: unknown, isRepeatable: boolean, signal: AbortSignal | undefined): Promise<void> {
    this.#failures += 1;
    const delay = this.#delay(error, isRepeatable);
    if (delay === undefined || delay > MAX_DELAY || this.#failures >= this.#limits.attempts) throw error;
    await sleep(delay, signal);
  }

  #delay(error: unknown, isRepeatable: boolean): number | undefined {
    const growing = Math.min(this.#limits.retryDelay * 2 ** (this.#failures - 1), MAX_DELAY);
    // Clients that lost the same server do not come back at the same time.
    const delay = growing * (0.5 + Math.random() / 2);
    if (error instanceof ApiError) {
      // With these, a server or a proxy invites the client to send the same request again.
      const isRefused = error.status === 429 || error.status === 503;
      return isRefused && error.retryAfter !== undefined ? Math.max(error.retryAfter * 1000, delay) : undefined;
    }
    return isRepeatable && error instanceof ConnectionError && error.failure === "lost" ? delay : undefined;
  }
}

/** Reads the header `Retry-After`: seconds, or a date. */
export function retryAfterOf(value: string | null): number | undefined {
  if (value === null) return undefined;
  if (/^\d+$/.test(value)) return Number(value);
  const date = Date.parse(value);
  return Number.isNaN(date) ? undefined : Math.max(0, (date - Date.now()) / 1000);
}

function sleep(delay: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, delay);
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort, { once: true });
  });
}
