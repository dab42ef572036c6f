/** Turns whose connections are cut, permission requests, and a server that is killed. */

import assert from "node:assert/strict";
import type { StreamEvent } from "../../src/index.js";
import { collect, startSession } from "./context.js";
import type { Context } from "./context.js";

/** The stored events of a session, in one response. */
async function stored(context: Context, id: string): Promise<StreamEvent[]> {
  await context.client.stopSession(id);
  const events = await collect(context.client.streamSession(id));
  return events.slice(1);
}

export async function cutTurn(context: Context): Promise<void> {
  const { client, proxy } = context;
  const id = await startSession(context);
  const line = `POST /api/sessions/${id}/messages`;
  const cuts = [0, 50, 400, 1_000, 3_000, 6_000, 6_001, 10_000];
  for (const bytes of cuts) proxy.cutNext(line, bytes);
  const before = proxy.cuts;
  const turn = await collect(client.sendMessage(id, { content: "count: 60", includePartialMessages: true }));
  assert.equal(proxy.cuts - before, cuts.length);
  assert.equal(turn.filter(({ event }) => event === "session_start").length, 1);
  assert.deepEqual(turn.slice(1), await stored(context, id));
  const sent = (await client.listMessages(id)).messages.filter(({ role }) => role === "user");
  assert.equal(sent.length, 1);
  await client.endSession(id);
}

export async function permission(context: Context): Promise<void> {
  const { client, proxy } = context;
  const expected = ["session_start", "message", "permission_request", "message", "message", "tool_use", "message"];
  expected.push("tool_result", "message", "message", "turn_complete", "message", "done");
  // The connection is lost before, in and after the request, which is open then.
  for (const bytes of [300, 1_200, 1_600, 2_400]) {
    const id = await startSession(context);
    const before = proxy.cuts;
    proxy.cutNext(`POST /api/sessions/${id}/messages`, bytes);
    const events: string[] = [];
    for await (const event of client.sendMessage(id, { content: "ask: echo ran > ran" })) {
      events.push(event.event);
      if (event.event !== "permission_request") continue;
      assert.deepEqual((await client.listPermissions(id)).permissions, [event.data]);
      assert.equal((await client.answerPermission(id, event.data.id, { behavior: "allow" })).ok, true);
    }
    assert.equal(proxy.cuts - before, 1);
    // A request that was answered before the client was connected again has no `permission_resolved`.
    assert.deepEqual(events.filter((event) => event !== "permission_resolved"), expected, `cut after ${bytes} bytes`);
    assert.equal((await client.getSessionFile(id, "ran", { format: "json" })).content, "ran\n");
    await client.endSession(id);
  }
}

export async function killedServer(context: Context): Promise<void> {
  const { client } = context;
  const id = await startSession(context);
  await collect(client.sendMessage(id, { content: "hi" }));
  const sending = collect(client.sendMessage(id, { content: "count: 100", includePartialMessages: true }));
  const streamed: StreamEvent[] = [];
  let parts = 0;
  let done = 0;
  for await (const event of client.streamSession(id)) {
    streamed.push(event);
    if (event.event === "text_delta" && (parts += 1) === 10) await context.restartServer();
    if (event.event === "done" && (done += 1) === 2) break;
  }
  const turn = await sending;
  const all = await stored(context, id);
  assert.deepEqual(streamed.slice(1), all);
  assert.deepEqual(turn.slice(1), all.slice(all.length - turn.length + 1));
  await client.endSession(id);
}

export async function endOfSandbox(context: Context): Promise<void> {
  const { client } = context;
  const id = await startSession(context);
  await collect(client.sendMessage(id, { content: "hi" }));
  const stream = client.streamSession(id);
  const events: StreamEvent[] = [];
  for await (const event of stream) {
    events.push(event);
    // The stream ends with the sandbox.
    if (event.event === "done") await client.stopSession(id);
  }
  assert.equal(events.at(-1)?.event, "done");
  await client.endSession(id);
}
