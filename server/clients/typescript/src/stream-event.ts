import type * as Api from "./generated/types.js";

/**
 * An event of a stream. Its id never decreases over the lifetime of the session, and several events can share one.
 *
 * Events of other names than those of the type are delivered, too: ignore the names that you do not know.
 */
export type StreamEvent = Api.StreamEvent & { id: number };
