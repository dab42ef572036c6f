/** The key is in no error and in no text of a client. */

import assert from "node:assert/strict";
import { inspect } from "node:util";
import test from "node:test";
import { Client } from "../src/index.js";
import { collect, SESSION, withServer } from "./support/clients.js";
import { cut, json } from "./support/scripted-server.js";

const isClean = (value: unknown) => {
  const texts = [String(value), JSON.stringify(value), inspect(value, { depth: 20, showHidden: true })];
  assert.ok(texts.every((text) => !text?.includes("ash_secret") && !text?.includes("s3cret")), texts.join("\n"));
  return true;
};

test("client and errors contain no key", async () => {
  const answers = [cut, json(401, { error: "Invalid API key" }), cut];
  await withServer(answers, { attempts: 1, internalSecret: "s3cret" }, async (client) => {
    isClean(client);
    await assert.rejects(client.listAgents(), isClean);
    await assert.rejects(client.listAgents(), isClean);
    await assert.rejects(client.createTenantApiKey({ tenantId: "t" }), isClean);
    isClean(client.sendMessage(SESSION, { content: "hi" }));
  });
  const unreachable = new Client({ baseUrl: "http://127.0.0.1:1", key: "ash_secret", attempts: 1 });
  await assert.rejects(unreachable.listAgents(), isClean);
  await assert.rejects(collect(unreachable.streamSession(SESSION)), isClean);
  const none = new Client({ baseUrl: "http://127.0.0.1:1" });
  await assert.rejects(none.listAgents(), { message: "this method needs the option key of the client" });
});
