/** What a request can fail with. No error contains a key. */

/** The server has answered a request with an error, or with something that is not an answer of its API. */
export class ApiError extends Error {
  override readonly name = "ApiError";

  constructor(
    /** What is wrong, in the words of the server. */
    message: string,
    /** The status of the response. */
    readonly status: number,
    /** The body of the response: a JSON value, or its text. */
    readonly body: unknown,
    /** After this many seconds the request can succeed, if the server knows. */
    readonly retryAfter?: number,
  ) {
    super(message);
  }
}

/** Why a connection failed: only a lost connection is a reason to send the request again. */
export type ConnectionFailure = "lost" | "timeout" | "invalid";

/** The server could not be reached, the connection to it was lost, or it did not answer in time. */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError";

  constructor(
    message: string,
    /** `lost`, `timeout`, or `invalid` if a stream is not that of a server. */
    readonly failure: ConnectionFailure,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
