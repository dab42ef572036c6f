/** Streams in which nothing happens, and whose connections are lost again and again. */

import assert from "node:assert/strict";
import test from "node:test";
import { Client } from "../src/index.js";
import type { EventStream, Fetch } from "../src/index.js";
import { SESSION } from "./support/clients.js";
import { frame } from "./support/scripted-server.js";

const START = frame(0, "session_start", {});

/** A stream whose connection is lost when its reader has these texts. `fetch` drops texts that nobody has read then. */
function lostAfter(...texts: string[]): Response {
  const pull = (controller: ReadableStreamDefaultController<Uint8Array>) => {
    const text = texts.shift();
    if (text === undefined) controller.error(new Error("cut"));
    else controller.enqueue(new TextEncoder().encode(text));
  };
  const body = new ReadableStream<Uint8Array>({ pull }, { highWaterMark: 0 });
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}

/** A client that gives up after two attempts that bring nothing, and its stream. */
function streamOver(responses: Response[], open: (client: Client) => EventStream): EventStream {
  const fetch: Fetch = async () => responses.shift() ?? Response.error();
  return open(new Client({ baseUrl: "http://127.0.0.1:1", key: "ash_secret", retryDelay: 1, attempts: 2, fetch }));
}

for (const [name, open] of [
  ["turn", (client: Client) => client.sendMessage(SESSION, { content: "hi" })],
  ["session", (client: Client) => client.streamSession(SESSION)],
] as const) {
  test(`attempts are counted from the last comment on: ${name}`, async () => {
    const idle = Array.from({ length: 6 }, () => lostAfter(START, ":\n\n"));
    const events = streamOver([...idle, lostAfter(START, frame(1, "done", {}))], open);
    assert.equal((await events.next()).value?.event, "session_start");
    assert.equal((await events.next()).value?.event, "done");
    await events.return();
  });

  test(`without a comment, attempts are bounded: ${name}`, async () => {
    const silent = [lostAfter(START, ":\n\n"), lostAfter(START), lostAfter(START, frame(1, "done", {}))];
    const events = streamOver(silent, open);
    assert.equal((await events.next()).value?.event, "session_start");
    await assert.rejects(events.next(), { name: "ConnectionError", failure: "lost", message: /cut/ });
  });
}
