/** The stream of a turn, over connections that are cut. */

import assert from "node:assert/strict";
import test from "node:test";
import { collect, SESSION, withServer } from "./support/clients.js";
import {
  chunk, cut, cutStream, frame, json, openStream, silence, stream, STREAM_HEAD,
} from "./support/scripted-server.js";
import type { Answer } from "./support/scripted-server.js";

const START = frame(2999, "session_start", {});
const TURN = [
  START,
  frame(3000, "text_delta", { delta: "ü€😀" }),
  frame(3998, "message", { type: "stream_event" }),
  // Events of one id, two of them equal.
  frame(4999, "other", { part: 1 }),
  frame(4999, "other", { part: 1 }),
  frame(4999, "other", { part: 2 }),
  ":\n\n",
  frame(5999, "done", {}),
];
const WHOLE = TURN.filter((text) => text.startsWith("id")).map((text) => {
  const [, id, event, data] = /^id: (\d+)\nevent: (.*)\ndata: (.*)\n\n$/.exec(text) ?? [];
  return { id: Number(id), event, data: JSON.parse(data ?? "") };
});
const body = { content: "hi" };

test("turn is delivered once and in order, wherever the connection is cut", async () => {
  const length = Buffer.byteLength(STREAM_HEAD + TURN.map(chunk).join(""));
  for (let bytes = Buffer.byteLength(STREAM_HEAD) - 1; bytes < length; bytes += 1) {
    await withServer([cutStream(bytes, ...TURN), stream(...TURN)], {}, async (client, server) => {
      assert.deepEqual(await collect(client.sendMessage(SESSION, body)), WHOLE, `cut after ${bytes} bytes`);
      const [first, again] = server.requests;
      // Only the end of the response can be missing after `done`.
      if (again === undefined) return assert.ok(bytes > length - 60, `no repetition after ${bytes} bytes`);
      assert.deepEqual(again, first);
      assert.match(first?.headers.get("idempotency-key") ?? "", /^[0-9a-f]{32}$/);
    });
  }
});

test("each turn has a key of its own, unless the caller has one", async () => {
  await withServer([stream(...TURN), stream(...TURN), cut, stream(...TURN)], {}, async (client, server) => {
    await collect(client.sendMessage(SESSION, body));
    await collect(client.sendMessage(SESSION, body));
    await collect(client.sendMessage(SESSION, body, { idempotencyKey: "mine" }));
    const keys = server.requests.map(({ headers }) => headers.get("idempotency-key"));
    assert.notEqual(keys[0], keys[1]);
    assert.deepEqual(keys.slice(2), ["mine", "mine"]);
    assert.ok(server.requests.every((request) => request.body === '{"content":"hi"}'));
  });
});

test("stream that the server ends before its turn is repeated", async () => {
  await withServer([stream(...TURN.slice(0, 2)), stream(), stream(...TURN)], {}, async (client, server) => {
    assert.deepEqual(await collect(client.sendMessage(SESSION, body)), WHOLE);
    assert.equal(server.requests.length, 3);
  });
});

test("error ends a turn, with and without done", async () => {
  const error = frame(3999, "error", { error: "failed" });
  const done = frame(3999, "done", { sessionId: SESSION });
  const beforeDone = Buffer.byteLength(STREAM_HEAD + chunk(START) + chunk(error));
  for (const [answer, events] of [
    [stream(START, error), ["session_start", "error"]],
    [stream(START, error, done), ["session_start", "error", "done"]],
    [cutStream(beforeDone, START, error, done), ["session_start", "error"]],
  ] as const) {
    await withServer([answer], {}, async (client, server) => {
      const found = await collect(client.sendMessage(SESSION, body));
      assert.deepEqual(found.map(({ event }) => event), events);
      assert.equal(server.requests.length, 1);
    });
  }
});

test("attempts are counted from the last new event on", async () => {
  const parts = [1, 2, 3, 4].map((count) => stream(...TURN.slice(0, count)));
  await withServer([...parts.flatMap((part) => [part, cut]), stream(...TURN)], { attempts: 3 }, async (client) => {
    assert.deepEqual(await collect(client.sendMessage(SESSION, body)), WHOLE);
  });
  await withServer([...parts.slice(0, 1), cut, cut, stream(...TURN)], { attempts: 3 }, async (client, server) => {
    await assert.rejects(collect(client.sendMessage(SESSION, body)), { name: "ConnectionError", failure: "lost" });
    assert.equal(server.requests.length, 3);
  });
});

test("silent stream counts as lost", async () => {
  // On a busy machine, a response can be late, too.
  const answers = [openStream(...TURN.slice(0, 3)), ...Array<Answer>(9).fill(stream(...TURN))];
  await withServer(answers, { idleTimeout: 100, attempts: 10 }, async (client, server) => {
    assert.deepEqual(await collect(client.sendMessage(SESSION, body)), WHOLE);
    assert.ok(server.requests.length >= 2);
    await server.closed();
  });
});

test("leaving the loop closes the connection", async () => {
  await withServer([openStream(...TURN.slice(0, 3))], {}, async (client, server) => {
    for await (const event of client.sendMessage(SESSION, body)) {
      if (event.event === "text_delta") break;
    }
    await server.closed();
    assert.ok(server.requests.length <= 1);
  });
});

test("signal ends a stream at once", async () => {
  const controller = new AbortController();
  await withServer([openStream(START)], {}, async (client, server) => {
    const events = client.sendMessage(SESSION, body, { signal: controller.signal });
    assert.equal((await events.next()).value?.event, "session_start");
    const next = events.next();
    controller.abort(new Error("enough"));
    await assert.rejects(next, { message: "enough" });
    await server.closed();
  });
  await withServer([], {}, async (client, server) => {
    const events = client.sendMessage(SESSION, body, { signal: controller.signal });
    await assert.rejects(collect(events), { message: "enough" });
    assert.equal(server.requests.length, 0);
  });
});

test("error response ends a turn", async () => {
  await withServer([json(400, { error: "Session is paused", statusCode: 400 })], {}, async (client, server) => {
    const expected = { name: "ApiError", status: 400, message: "Session is paused" };
    await assert.rejects(collect(client.sendMessage(SESSION, body)), expected);
    assert.equal(server.requests.length, 1);
  });
  await withServer([json(200, {})], {}, async (client, server) => {
    await assert.rejects(collect(client.sendMessage(SESSION, body)), /application\/json instead of a stream/);
    await server.closed();
  });
});

test("server that does not answer counts as lost", async () => {
  // On a busy machine, a response can be late, too.
  const answers = [silence, ...Array<Answer>(9).fill(stream(...TURN))];
  await withServer(answers, { idleTimeout: 100, attempts: 10 }, async (client, server) => {
    assert.deepEqual(await collect(client.sendMessage(SESSION, body)), WHOLE);
    assert.ok(server.requests.length >= 2);
    assert.equal(new Set(server.requests.map(({ headers }) => headers.get("idempotency-key"))).size, 1);
  });
  await withServer([silence, silence], { idleTimeout: 50, attempts: 2 }, async (client, server) => {
    const expected = { name: "ConnectionError", failure: "lost", message: /no response within 0.05 s/ };
    await assert.rejects(collect(client.sendMessage(SESSION, body)), expected);
    await server.closed();
    assert.ok(server.requests.length <= 2);
  });
});
