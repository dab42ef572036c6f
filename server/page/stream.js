// Server-sent events, read with fetch: an EventSource cannot send the header with the key.

import { send } from "./api.js";

const MIN_DELAY = 500;
const MAX_DELAY = 15_000;
// The server sends a comment each 15 seconds: a connection that is silent for longer is dead.
const SILENCE = 40_000;

/** Splits the text of a stream into frames with `id`, `event` and `data`. Feed it with each part that arrives. */
export class FrameParser {
  #rest = "";
  #frame = {};

  push(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    const frames = [];
    for (const line of lines) this.#line(line.replace(/\r$/, ""), frames);
    return frames;
  }

  #line(line, frames) {
    if (line === "") {
      if (this.#frame.event) frames.push(this.#frame);
      this.#frame = {};
      return;
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.#frame.data = "data" in this.#frame ? `${this.#frame.data}\n${value}` : value;
    else if (name === "id" || name === "event") this.#frame[name] = value;
  }
}

/**
 * Follows a stream after the frame with the id `last`, and connects again after its last id when it breaks. `onFrame`
 * is awaited for each frame; `onState` receives "live", "waiting" or "ended". `isWanted` is asked after the stream has ended by itself: false ends
 * the follower. Returns a function that ends it.
 */
export function follow(path, last, { onFrame, onState, isWanted }) {
  const control = new AbortController();
  run(path, last, { onFrame, onState, isWanted }, control).catch((error) => {
    if (!control.signal.aborted) onState("ended", error);
  });
  return () => control.abort();
}

async function run(path, last, { onFrame, onState, isWanted }, control) {
  let delay = MIN_DELAY;
  while (!control.signal.aborted) {
    try {
      const headers = last === undefined ? {} : { "Last-Event-ID": last };
      const response = await send("GET", path, { headers, signal: control.signal });
      onState("live");
      for await (const frame of frames(response.body)) {
        if (control.signal.aborted) return;
        await onFrame(frame);
        // The first frame of each connection has the id that was sent.
        if (frame.id !== last) delay = MIN_DELAY;
        last = frame.id ?? last;
      }
      if (!(await isWanted())) return onState("ended");
    } catch (error) {
      if (control.signal.aborted || [401, 403, 404].includes(error.status)) throw error;
    }
    onState("waiting");
    await pause(delay, control.signal);
    delay = Math.min(delay * 2, MAX_DELAY);
  }
}

async function* frames(body) {
  const parser = new FrameParser();
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await withTimeout(reader.read(), SILENCE);
      if (done) return;
      yield* parser.push(value);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function withTimeout(promise, milliseconds) {
  let timer;
  const expired = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("the stream is silent")), milliseconds);
  });
  return Promise.race([promise, expired]).finally(() => clearTimeout(timer));
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
