/**
 * Calls every method of the client against a real server, and prints a line for each.
 *
 * Arguments: the port of the server, an API key, the secret of the internal routes, the folder of the demo agent, and
 * the OpenAPI document. When it prints `restart`, the server is to be killed and started again, and its new port to be
 * written to standard input.
 */

import { createInterface } from "node:readline";
import { ApiError, Client } from "../../src/index.js";
import * as agents from "./agents.js";
import { Proxy } from "./proxy.js";
import { operationIds, recorded } from "./recorder.js";
import * as sessions from "./sessions.js";
import * as streams from "./streams.js";
import type { Context } from "./context.js";

const [port = "", key = "", internalSecret = "", folder = "", documentPath = ""] = process.argv.slice(2);
const proxy = new Proxy(Number(port));
const baseUrl = await proxy.listen();
const called = new Set<string>();
const client = recorded(new Client({ baseUrl, key, internalSecret, retryDelay: 100, attempts: 20 }), called);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const context: Context = {
  client,
  proxy,
  folder,
  async restartServer() {
    console.log("restart");
    proxy.upstream = Number((await lines.next()).value);
  },
};

for (const part of [agents, sessions, streams]) {
  for (const [name, run] of Object.entries(part)) {
    try {
      await run(context);
    } catch (error) {
      console.error(error, error instanceof ApiError ? error.body : "");
      console.log(`failed ${name}`);
      process.exit(1);
    }
    console.log(`passed ${name}`);
  }
}
const missing = operationIds(documentPath).filter((id) => !called.has(id));
console.log(missing.length === 0 ? `called ${called.size} methods` : `not called: ${missing.join(", ")}`);
proxy.close();
process.exit(missing.length === 0 ? 0 : 1);
