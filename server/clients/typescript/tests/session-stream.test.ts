/** The stream of a session, over connections that are cut. */

import assert from "node:assert/strict";
import test from "node:test";
import { collect, SESSION, withServer } from "./support/clients.js";
import { cut, cutStream, frame, json, openStream, stream, STREAM_HEAD, chunk } from "./support/scripted-server.js";
import type { Answer } from "./support/scripted-server.js";

const start = (id: number) => frame(id, "session_start", { sessionId: SESSION });
const a = frame(5000, "a", 1);
const shared = frame(5998, "b", 1);
const other = frame(5998, "b", 2);
const c = frame(6000, "c", 1);
const status = (text: string) => json(200, { session: { status: text } });
const names = ["session_start", "a", "b", "b", "c"];

/** The positions that a client asked for. */
const positions = (requests: { line: string; headers: Map<string, string> }[]) =>
  requests.filter(({ line }) => line.endsWith("/stream")).map(({ headers }) => headers.get("last-event-id"));

/** Answers as the server does: without the events up to the requested position. */
const after = (from: number): Answer => {
  const events = [[5000, a], [5998, shared], [5998, other], [6000, c]] as const;
  return stream(start(from), ...events.filter(([id]) => id > from).map(([, text]) => text));
};

test("stream continues after the last event, with all events that share its id", async () => {
  const texts = [start(0), a, shared, other, c];
  for (let count = 1; count < texts.length; count += 1) {
    const bytes = Buffer.byteLength(STREAM_HEAD + texts.slice(0, count).map(chunk).join(""));
    const from = [0, 4999, 5997, 5997][count - 1] ?? 0;
    const answers = [cutStream(bytes, ...texts), after(from), stream(start(5999), c), status("ended")];
    await withServer(answers, {}, async (client, server) => {
      const events = await collect(client.streamSession(SESSION));
      assert.deepEqual(events.map(({ event }) => event), names, `after ${count} events`);
      assert.deepEqual(positions(server.requests), ["0", String(from), "5999"]);
    });
  }
});

test("stream begins where the caller asks for", async () => {
  for (const options of [{ after: 5000 }, { lastEventId: 5000 }, { after: 1, lastEventId: 5000 }]) {
    const answers = [cut, stream(start(5000)), stream(start(5000)), status("paused")];
    await withServer(answers, {}, async (client, server) => {
      assert.equal((await collect(client.streamSession(SESSION, options))).length, 1);
      assert.deepEqual(positions(server.requests), ["5000", "5000", "5000"]);
      assert.ok(server.requests.every(({ line }) => !line.includes("?")));
    });
  }
});

test("stream of a session with a sandbox does not end", async () => {
  const answers = [
    stream(start(0), a),
    // A proxy ends a stream in which nothing happens.
    stream(start(4999), a, ":\n\n"),
    stream(start(4999), a, ":\n\n"),
    // The server is starting again, and has not found the sandbox.
    stream(start(4999), a),
    status("active"),
    cut,
    openStream(start(4999), a, shared),
  ];
  await withServer(answers, {}, async (client, server) => {
    const events = client.streamSession(SESSION);
    const found = [];
    for (let count = 0; count < 3; count += 1) found.push((await events.next()).value?.event);
    assert.deepEqual(found, ["session_start", "a", "b"]);
    await events.return();
    await server.closed();
    assert.equal(server.requests.length, 7);
  });
});

test("attempts are bounded", async () => {
  const lost = { name: "ConnectionError", failure: "lost" };
  await withServer([stream(start(0), a), cut, cut, cut], { attempts: 3 }, async (client, server) => {
    await assert.rejects(collect(client.streamSession(SESSION)), lost);
    assert.equal(server.requests.length, 4);
  });
  const quiet = [stream(start(4999), a), status("active")];
  await withServer([stream(start(0), a), ...quiet, ...quiet], { attempts: 2 }, async (client) => {
    await assert.rejects(collect(client.streamSession(SESSION)), { ...lost, message: /of an active session ended/ });
  });
});

test("unknown session is an error", async () => {
  await withServer([json(404, { error: "Session not found" })], {}, async (client) => {
    await assert.rejects(collect(client.streamSession(SESSION)), { name: "ApiError", status: 404 });
  });
});
