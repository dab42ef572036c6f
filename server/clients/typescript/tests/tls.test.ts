/** TLS with a certificate authority of one's own, as the README describes it. */

import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Agent, fetch as undiciFetch } from "undici";
import { Client, ConnectionError } from "../src/index.js";
import type { Fetch } from "../src/index.js";

const folder = mkdtempSync(join(tmpdir(), "saggar-client-"));
const [certificate, key] = [join(folder, "ca.pem"), join(folder, "key.pem")];
let baseUrl = "";

before(async () => {
  const subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
  const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
  const files = ["-keyout", key, "-out", certificate];
  execFileSync("openssl", ["req", "-x509", ...kind, ...subject, ...files], { stdio: "ignore" });
  const options = { cert: readFileSync(certificate), key: readFileSync(key) };
  const server = createServer(options, (_, response) => {
    response.setHeader("content-type", "application/json");
    response.end('{"status":"ok"}');
  });
  await new Promise<void>((resolve) => server.listen(0, "localhost", resolve));
  server.unref();
  baseUrl = `https://localhost:${(server.address() as AddressInfo).port}`;
});

after(() => rmSync(folder, { recursive: true }));

test("unknown authority is refused", async () => {
  const client = new Client({ baseUrl, attempts: 1 });
  const isExpected = (error: Error) => error instanceof ConnectionError && /self-signed/.test(error.message);
  await assert.rejects(client.health(), isExpected);
});

test("authority of a dispatcher is accepted", async () => {
  const connect = { ca: readFileSync(certificate), timeout: 10_000 };
  const dispatcher = new Agent({ connect, headersTimeout: 0, bodyTimeout: 0 });
  const ownFetch = ((url: string, init: object) => undiciFetch(url, { ...init, dispatcher })) as unknown as Fetch;
  assert.equal((await new Client({ baseUrl, fetch: ownFetch }).health()).status, "ok");
  await dispatcher.close();
});

test("authority of NODE_EXTRA_CA_CERTS is accepted", async () => {
  const index = new URL("../src/index.js", import.meta.url);
  const script = `const { Client } = await import(${JSON.stringify(index)});
    console.log((await new Client({ baseUrl: ${JSON.stringify(baseUrl)} }).health()).status);`;
  const env = { ...process.env, NODE_EXTRA_CA_CERTS: certificate };
  const run = promisify(execFile)(process.execPath, ["--input-type=module", "--eval", script], { env });
  assert.equal((await run).stdout, "ok\n");
});
