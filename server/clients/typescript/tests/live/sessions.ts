/** Sessions, their files and attachments, the queue, and usage. */

import assert from "node:assert/strict";
import { base64, collect, startSession, text } from "./context.js";
import type { Context } from "./context.js";

export async function lifecycle(context: Context): Promise<void> {
  const { client } = context;
  const id = await startSession(context);
  assert.equal((await client.getSession(id)).session.status, "active");
  assert.equal((await client.listSessions({ agent: "hello", status: "active", limit: 1 })).total, 1);
  assert.equal((await client.updateSessionConfig(id, { model: "m" })).session.model, "m");
  assert.equal((await client.pauseSession(id)).session.status, "paused");
  assert.equal((await client.resumeSession(id)).session.status, "active");
  assert.equal((await client.interruptSession(id)).ok, true);
  const fork = (await client.forkSession(id)).session;
  assert.equal(fork.parentSessionId, id);
  const { snapshot } = await client.createSnapshot(id);
  assert.equal((await client.listSnapshots(id)).snapshots.length, 1);
  assert.equal((await client.deleteSnapshot(id, snapshot.name)).ok, true);
  assert.equal((await client.stopSession(id)).session.status, "stopped");
  for (const ended of [id, fork.id]) assert.equal((await client.endSession(ended)).session.status, "ended");
}

export async function files(context: Context): Promise<void> {
  const { client } = context;
  const id = await startSession(context);
  const output = await client.exec(id, { command: "echo out; echo err >&2; exit 3", timeout: 20_000 });
  assert.deepEqual(output, { exitCode: 3, stdout: "out\n", stderr: "err\n" });
  const written = await client.writeSessionFiles(id, { files: [{ path: "a b/ü.txt", content: base64("one") }] });
  assert.equal(written.files[0]?.written, true);
  const listed = (await client.getSessionFiles(id, { includeHidden: false })).files;
  assert.ok(listed.some(({ path }) => path === "a b/ü.txt"));
  assert.equal(text(await client.getSessionFile(id, "a b/ü.txt")), "one");
  assert.equal((await client.getSessionFile(id, "a b/ü.txt", { format: "json" })).content, "one");
  const archive = await client.downloadWorkspace(id);
  assert.equal((await client.deleteSessionFile(id, "a b/ü.txt")).deleted, true);
  await client.uploadWorkspace(id, { bundle: Buffer.from(archive).toString("base64") });
  assert.equal(text(await client.getSessionFile(id, "a b/ü.txt")), "one");
  assert.ok(Array.isArray((await client.getSessionLogs(id, { after: -1 })).logs));

  const { attachment } = await client.uploadAttachment(id, { filename: "a.txt", content: base64("file") });
  assert.equal((await client.listAttachments(id)).attachments.length, 1);
  assert.equal(text(await client.downloadAttachment(attachment.id)), "file");
  assert.equal((await client.deleteAttachment(attachment.id)).ok, true);

  await client.stopSession(id);
  assert.ok((await client.getSessionDiff(id)).files.some(({ path }) => path === "a b/ü.txt"));
  assert.match(await client.getSessionDiff(id, { format: "patch" }), /^\+one/m);
  assert.equal((await client.discardChanges(id, { paths: ["a b/ü.txt"] })).ok, true);
  assert.equal((await client.applyChanges(id, { paths: ["attachments/a.txt"] })).ok, true);
  assert.equal((await client.getAgentFile("hello", "attachments/a.txt")).content, "file");
  await client.endSession(id);
}

export async function network(context: Context): Promise<void> {
  const { client } = context;
  const id = await startSession(context);
  const { mode, allow } = await client.getSessionNetwork(id);
  assert.deepEqual([mode, allow], ["policy", ["192.0.2.1:80"]]);
  assert.equal((await client.allowHosts(id, { allow: ["192.0.2.1:81"] })).ok, true);
  assert.deepEqual((await client.getSessionNetwork(id)).allow, ["192.0.2.1:80", "192.0.2.1:81"]);
  await client.endSession(id);
}

export async function quarantine(context: Context): Promise<void> {
  const { client } = context;
  const id = await startSession(context);
  await collect(client.sendMessage(id, { content: "run: echo x > .bashrc; echo x > .envrc" }));
  await client.stopSession(id);
  assert.deepEqual((await client.listQuarantine(id)).files.map(({ path }) => path).sort(), [".bashrc", ".envrc"]);
  assert.equal((await client.releaseQuarantine(id, { action: "restore", names: [".bashrc"] })).ok, true);
  assert.equal(text(await client.getSessionFile(id, ".bashrc")), "x\n");
  assert.equal((await client.releaseQuarantine(id, { action: "remove" })).ok, true);
  assert.deepEqual((await client.listQuarantine(id)).files, []);
  await client.endSession(id);
}

export async function queue(context: Context): Promise<void> {
  const { client } = context;
  const id = await startSession(context);
  const { item } = await client.enqueue({ agentName: "hello", prompt: "ask: true", sessionId: id });
  // The stream has the turns of all clients, also of the queue.
  for await (const event of client.streamSession(id)) {
    if (event.event === "done") break;
    if (event.event !== "permission_request") continue;
    // It waits for the turn of the first item.
    const second = await client.enqueue({ agentName: "hello", prompt: "hi", sessionId: id });
    assert.equal((await client.listQueueItems({ status: "pending", limit: 1 })).items[0]?.id, second.item.id);
    assert.equal((await client.cancelQueueItem(second.item.id)).item.status, "cancelled");
    await client.answerPermission(id, event.data.id, { behavior: "allow" });
  }
  assert.equal((await client.getQueueItem(item.id)).item.prompt, "ask: true");
  assert.equal((await client.getQueueStats()).stats["cancelled"], 1);
  await client.endSession(id);
}

export async function usage(context: Context): Promise<void> {
  const { client } = context;
  const id = await startSession(context);
  await collect(client.sendMessage(id, { content: "hi" }));
  assert.ok((await client.listMessages(id, { limit: 10 })).messages.length >= 2);
  assert.ok((await client.listSessionEvents(id, { type: "turn_complete" })).events.length === 1);
  assert.ok((await client.listUsageEvents({ sessionId: id })).events.length > 0);
  assert.ok((await client.getUsageStats({ sessionId: id })).stats.totalMessages >= 1);
  assert.ok((await client.getSessionUsage(id)).usage.stats.totalMessages >= 1);
  assert.ok((await client.getAnalytics()).sessions.total > 0);
  await client.endSession(id);
}
