/** Agents, their versions and files, keys, credentials, and what belongs to no session. */

import assert from "node:assert/strict";
import { base64, text } from "./context.js";
import type { Context } from "./context.js";

export async function health({ client }: Context): Promise<void> {
  assert.equal((await client.health()).status, "ok");
  assert.deepEqual(await client.live(), { ok: true });
  assert.match(await client.getMetrics(), /^ash_up/m);
  assert.match(await client.getDocumentPage(), /<html/);
  assert.deepEqual(await client.getDocument(), await client.getDocumentOfAsh());
}

export async function agents({ client }: Context): Promise<void> {
  const files = [{ path: "CLAUDE.md", content: base64("Prompt.") }];
  const { agent } = await client.deployAgent({ name: "filed", files });
  assert.equal(agent.version, 1);
  assert.deepEqual((await client.listAgents()).agents.map(({ name }) => name), ["filed"]);
  assert.equal((await client.getAgent("filed")).agent.id, agent.id);
  await client.updateAgent("filed", { env: { A: "1" } });
  await client.updateAgentConfig("filed", { model: "m" });
  assert.equal((await client.getAgentConfig("filed")).config["model"], "m");
  const added = { files: [{ path: "docs/ü b.txt", content: base64("added") }] };
  assert.equal((await client.uploadAgentFiles("filed", added)).written, 1);
  assert.equal((await client.listAgentFiles("filed")).files.length, 2);
  assert.equal((await client.getAgentFile("filed", "docs/ü b.txt")).content, "added");
  assert.equal(text(await client.getAgentFile("filed", "docs/ü b.txt", { format: "raw" })), "added");
  assert.equal((await client.deleteAgentFile("filed", "docs/ü b.txt")).deleted, true);
}

export async function versions({ client }: Context): Promise<void> {
  const { version } = await client.createAgentVersion("filed", { systemPrompt: "One." });
  assert.equal(version.versionNumber, 1);
  assert.equal((await client.getAgentVersion("filed", version.id)).version.systemPrompt, "One.");
  assert.equal((await client.updateAgentVersion("filed", "1", { name: "first" })).version.name, "first");
  assert.equal((await client.activateAgentVersion("filed", "1")).activated, true);
  assert.equal((await client.listAgentVersions("filed")).versions.length, 1);
  assert.equal((await client.deleteAgentVersion("filed", "1")).ok, true);
  assert.equal((await client.deleteAgent("filed")).ok, true);
  await assert.rejects(client.getAgent("filed"), { name: "ApiError", status: 404, message: /not found/ });
}

export async function keys({ client }: Context): Promise<void> {
  const created = await client.createApiKey({ label: "test", scope: "read" });
  assert.ok((await client.listApiKeys()).keys.some(({ id }) => id === created.id));
  assert.equal((await client.deleteApiKey(created.id)).ok, true);
  assert.equal((await client.createTenantApiKey({ tenantId: "other" })).tenantId, "other");
  const { credential } = await client.storeCredential({ type: "custom", key: "secret" });
  assert.deepEqual((await client.listCredentials()).credentials.map(({ id }) => id), [credential.id]);
  assert.equal((await client.deleteCredential(credential.id)).ok, true);
}
