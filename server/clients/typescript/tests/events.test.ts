/** Parsing of server-sent events, by the specification of WHATWG. */

import assert from "node:assert/strict";
import test from "node:test";
import { EventSource } from "../src/event-source.js";
import { Exchange } from "../src/exchange.js";
import type { StreamEvent } from "../src/index.js";

/** Reads a stream that arrives in these pieces. */
async function read(pieces: Uint8Array[]): Promise<StreamEvent[]> {
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const piece of pieces) controller.enqueue(piece);
      controller.close();
    },
  });
  const response = new Response(body, { headers: { "content-type": "text/event-stream" } });
  const exchange = new Exchange(async () => response, "GET /", undefined);
  const events = [];
  for await (const { event } of new EventSource(exchange, response, 1000)) events.push(event);
  return events;
}

const event = (id: number, name: string, data: unknown) => ({ id, event: name, data });

const TABLE: [string, string, unknown[]][] = [
  ["LF", "id: 1\nevent: a\ndata: 2\n\n", [event(1, "a", 2)]],
  ["CR LF", "id: 1\r\nevent: a\r\ndata: 2\r\n\r\n", [event(1, "a", 2)]],
  ["CR", "id: 1\revent: a\rdata: 2\r\r", [event(1, "a", 2)]],
  ["mixed", "id: 1\r\nevent: a\rdata: 2\n\r\nid: 3\ndata: 4\r\n\n", [event(1, "a", 2), event(3, "message", 4)]],
  ["byte order mark", "\ufeffid: 1\ndata: 2\n\n", [event(1, "message", 2)]],
  ["several lines of data", "id: 1\ndata: [1,\ndata: 2]\ndata:\n\n", [event(1, "message", [1, 2])]],
  ["no space after the colon", "id:1\nevent:a\ndata:2\n\n", [event(1, "a", 2)]],
  ["one space is removed", "id: 1\nevent:  a\ndata:  \" b\"\n\n", [event(1, " a", " b")]],
  ["the id stays", "id: 1\ndata: 1\n\ndata: 2\n\n", [event(1, "message", 1), event(1, "message", 2)]],
  ["the name does not stay", "id: 1\nevent: a\ndata: 1\n\ndata: 2\n\n", [event(1, "a", 1), event(1, "message", 2)]],
  ["without data there is no event", "id: 1\nevent: a\n\ndata: 2\n\n", [event(1, "message", 2)]],
  ["an id with NUL is ignored", "id: 1\nid: 2\0\ndata: 3\n\n", [event(1, "message", 3)]],
  ["comments and unknown fields", ":\n: x\nretry: 5\nother: 1\nid: 1\ndata\ndata: 2\n\n", [event(1, "message", 2)]],
  ["an event without its end", "id: 1\ndata: 1\n\nid: 2\ndata: 2\n", [event(1, "message", 1)]],
  ["characters of several bytes", "id: 1\ndata: \"ü€😀\u2028\"\n\n", [event(1, "message", "ü€😀\u2028")]],
  ["nothing", "", []],
];

for (const [name, text, expected] of TABLE) {
  test(`stream is parsed in pieces of any size: ${name}`, async () => {
    const bytes = new TextEncoder().encode(text);
    for (let size = 1; size <= Math.max(1, bytes.length); size += 1) {
      const pieces = [];
      for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.subarray(at, at + size));
      assert.deepEqual(await read(pieces), expected, `pieces of ${size} bytes`);
    }
  });
}

for (const [name, text] of [
  ["no id", "data: 1\n\n"],
  ["an id that is not a number", "id: x\ndata: 1\n\n"],
  ["data that is not JSON", "id: 1\ndata: x\n\n"],
  ["empty data", "id: 1\ndata\n\n"],
] as const) {
  test(`stream is refused: ${name}`, async () => {
    await assert.rejects(read([new TextEncoder().encode(text)]), { name: "ConnectionError", failure: "invalid" });
  });
}
