/** Client of the HTTP API of saggar-server. */

export { Client } from "./generated/client.js";
export type * as Api from "./generated/types.js";
export { ApiError, ConnectionError } from "./errors.js";
export type { ConnectionFailure } from "./errors.js";
export type { CallOptions, ClientOptions, Fetch } from "./options.js";
export type { EventStream } from "./streams.js";
export type { StreamEvent } from "./stream-event.js";
