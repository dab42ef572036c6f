/** Requests and their repetition, and responses that are no streams. */

import { ApiError } from "./errors.js";
import { Exchange } from "./exchange.js";
import { baseUrlOf, bearer, limitsOf, milliseconds } from "./options.js";
import type { CallOptions, ClientOptions, Fetch, Limits } from "./options.js";
import { Retries, retryAfterOf } from "./retries.js";

/** A value of a query or a header. One that is undefined or null is left out. */
export type Parameter = string | number | boolean | null | undefined;

/** A request of an operation. */
export interface ApiRequest {
  method: "GET" | "POST" | "PATCH" | "PUT" | "DELETE";
  /** The encoded path, which begins with a slash. */
  path: string;
  security: "key" | "internalSecret" | "none";
  query?: Record<string, Parameter>;
  headers?: Record<string, Parameter>;
  body?: unknown;
}

/** Sends the requests of one client. */
export class Http {
  readonly limits: Limits;
  readonly #baseUrl: string;
  readonly #fetch: Fetch;
  /** The values of `Authorization`. */
  readonly #secrets: Partial<Record<ApiRequest["security"], string>> = {};

  constructor(options: ClientOptions) {
    this.limits = limitsOf(options);
    this.#baseUrl = baseUrlOf(options.baseUrl);
    this.#fetch = options.fetch ?? ((url, init) => globalThis.fetch(url, init));
    if (options.key !== undefined) this.#secrets.key = bearer("key", options.key);
    if (options.internalSecret !== undefined) {
      this.#secrets.internalSecret = bearer("internalSecret", options.internalSecret);
    }
  }

  /** Returns the body of a response as JSON. */
  json<T>(request: ApiRequest, options: CallOptions): Promise<T> {
    return this.#call(request, options, async (response) => {
      const text = await response.text();
      return () => {
        const value = parseJson(text);
        if (value === undefined) throw new ApiError("the response is not JSON", response.status, text);
        return value as T;
      };
    });
  }

  /** Returns the body of a response as text. */
  text(request: ApiRequest, options: CallOptions): Promise<string> {
    return this.#call(request, options, async (response) => {
      const text = await response.text();
      return () => text;
    });
  }

  /** Returns the body of a response as bytes. */
  bytes(request: ApiRequest, options: CallOptions): Promise<Uint8Array> {
    return this.#call(request, options, async (response) => {
      const bytes = new Uint8Array(await response.arrayBuffer());
      return () => bytes;
    });
  }

  /**
   * Sends a request for a stream once, and returns the exchange with the head of its response. The caller closes the
   * exchange.
   */
  async open(request: ApiRequest, options: CallOptions): Promise<[Exchange, Response]> {
    const [exchange, send] = this.#prepare(request, options);
    try {
      return [exchange, await exchange.within(this.limits.idleTimeout, "no response", "lost", send)];
    } catch (error) {
      exchange.close();
      throw error;
    }
  }

  /** `read` reads the whole body; what it returns makes the result of it. */
  async #call<T>(
    request: ApiRequest,
    options: CallOptions,
    read: (response: Response) => Promise<() => T>,
  ): Promise<T> {
    const timeout = milliseconds("timeout", options.timeout ?? this.limits.timeout);
    const retries = new Retries(this.limits);
    for (;;) {
      const [exchange, send] = this.#prepare(request, options);
      try {
        const whole = async () => exchange.guard(read(await send()));
        const result = await exchange.within(timeout, "no complete response", "timeout", whole);
        return result();
      } catch (error) {
        await retries.wait(error, request.method === "GET", options.signal);
      } finally {
        exchange.close();
      }
    }
  }

  /** Invalid input fails here, before anything is sent. */
  #prepare(request: ApiRequest, options: CallOptions): [Exchange, () => Promise<Response>] {
    const { method, path, body } = request;
    const query = defined(request.query ?? {});
    const url = `${this.#baseUrl}${path}${query.length > 0 ? `?${new URLSearchParams(query)}` : ""}`;
    const headers = new Headers(defined(request.headers ?? {}));
    if (request.security !== "none") headers.set("authorization", this.#secret(request.security));
    const init: RequestInit = { method, headers };
    if (body !== undefined) {
      headers.set("content-type", "application/json");
      init.body = JSON.stringify(body);
    }
    const exchange = new Exchange(this.#fetch, `${method} ${path}`, options.signal);
    return [exchange, async () => accepted(await exchange.send(url, init), exchange)];
  }

  #secret(name: "key" | "internalSecret"): string {
    const secret = this.#secrets[name];
    if (secret === undefined) throw new TypeError(`this method needs the option ${name} of the client`);
    return secret;
  }
}

/** Returns a successful response. */
async function accepted(response: Response, exchange: Exchange): Promise<Response> {
  if (response.ok) return response;
  const { status } = response;
  if (response.type === "opaqueredirect" || (status >= 300 && status < 400)) {
    throw new ApiError("the server redirects the request: set baseUrl to its final address", status, null);
  }
  const text = await exchange.guard(response.text());
  const body = parseJson(text) ?? text;
  throw new ApiError(messageOf(body) ?? `the server answered with status ${status}`, status, body,
    retryAfterOf(response.headers.get("retry-after")));
}

/** The text of an error of the server: the message is more exact than the error. */
function messageOf(body: unknown): string | undefined {
  if (typeof body !== "object" || body === null) return undefined;
  const { message, error } = body as { message?: unknown; error?: unknown };
  return [message, error].find((text) => typeof text === "string");
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function defined(values: Record<string, Parameter>): [string, string][] {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null);
  return given.map(([name, value]) => [name, String(value)]);
}
