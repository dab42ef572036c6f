/** Options of a client and of its calls, with their defaults. */

/** The longest time of a timer, in ms: a longer one, such as `Infinity`, would end at once. */
const MAX_TIME = 2_147_483_647;

/** The function that sends requests, as `fetch` of browsers and of Node.js. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

export interface ClientOptions {
  /** The address of the server, such as `http://127.0.0.1:4100`, with a path if a proxy adds one. */
  baseUrl: string;
  /** An API key. Its scope decides which methods it permits. */
  key?: string;
  /** The secret of the internal routes (`ASH_INTERNAL_SECRET` of the server), for `createTenantApiKey` only. */
  internalSecret?: string;
  /** Replaces the global `fetch`, for example by one with a certificate authority of its own. */
  fetch?: Fetch;
  /** Maximum time for a whole response that is no stream, in ms. Default: 330000. */
  timeout?: number;
  /**
   * A stream without a byte for this time, its first one included, counts as lost, in ms. The server sends one each
   * 15 s. Default: 45000.
   */
  idleTimeout?: number;
  /** Maximum number of attempts in a row that bring nothing, the first one included. Default: 4. */
  attempts?: number;
  /** Delay before the second attempt, in ms. It doubles with each further one, up to 30 s. Default: 1000. */
  retryDelay?: number;
}

export interface CallOptions {
  /** Aborts the call and closes its connection. The call then fails with the reason of the signal. */
  signal?: AbortSignal;
  /** As the option of the client, for this call. Streams do not use it: they have `idleTimeout`. */
  timeout?: number;
}

/** The limits of a client. Times are in ms. */
export interface Limits {
  timeout: number;
  idleTimeout: number;
  attempts: number;
  retryDelay: number;
}

export function limitsOf(options: ClientOptions): Limits {
  return {
    timeout: milliseconds("timeout", options.timeout ?? 330_000),
    idleTimeout: milliseconds("idleTimeout", options.idleTimeout ?? 45_000),
    attempts: positive("attempts", options.attempts ?? 4),
    retryDelay: milliseconds("retryDelay", options.retryDelay ?? 1_000),
  };
}

/** Returns a time of an option. */
export function milliseconds(name: string, value: number): number {
  if (!(value > 0 && value <= MAX_TIME)) {
    throw new RangeError(`${name} must be a time in ms, above 0 and at most ${MAX_TIME}, not ${value}`);
  }
  return value;
}

function positive(name: string, value: number): number {
  if (!(value > 0)) throw new RangeError(`${name} must be a number above 0, not ${value}`);
  return value;
}

/** Returns the address without a slash at its end. The text is not in the errors: it can contain a password. */
export function baseUrlOf(text: string): string {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new TypeError("baseUrl must be a URL such as http://127.0.0.1:4100");
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw new TypeError(`baseUrl must begin with http:// or https://, not ${url.protocol}`);
  }
  if (url.username !== "" || url.password !== "") {
    throw new TypeError("baseUrl must not contain a user or a password; pass the API key as the option key");
  }
  // `search` and `hash` do not show empty ones, to which paths would be appended all the same.
  if (/[?#]/.test(text)) throw new TypeError("baseUrl must end with its path, without ? and #");
  return url.href.replace(/\/+$/, "");
}

/** Returns the value of an `Authorization` header. The secret is not in the errors. */
export function bearer(name: string, secret: string): string {
  if (!/^[\x21-\x7e]+$/.test(secret)) {
    throw new TypeError(`${name} must consist of printable ASCII characters, without spaces and line breaks`);
  }
  return `Bearer ${secret}`;
}
