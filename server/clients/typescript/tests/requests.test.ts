/** Requests, their repetition, and what the client refuses to send. */

import assert from "node:assert/strict";
import test from "node:test";
import { Agent, fetch as undiciFetch } from "undici";
import { Client, ConnectionError } from "../src/index.js";
import type { Fetch } from "../src/index.js";
import { SESSION, withServer } from "./support/clients.js";
import { cut, json, silence } from "./support/scripted-server.js";

const list = json(200, { sessions: [], total: 0 });
const busy = (seconds?: string) =>
  json(503, { error: "capacity reached", statusCode: 503 }, seconds === undefined ? "" : `retry-after: ${seconds}\r\n`);

test("request has the parts of its operation", async () => {
  const answers = [
    list,
    json(201, { session: { id: "x" } }),
    json(200, { ok: true }),
    json(200, "{}"),
    json(200, "bytes"),
    json(200, { path: "a" }),
    json(200, { deleted: true }),
  ];
  await withServer(answers, { internalSecret: "s3cret" }, async (client, server) => {
    assert.deepEqual(await client.listSessions({ agent: "ä b&c", limit: 5 }), { sessions: [], total: 0 });
    const unknown = { agent: "hello", later: { field: 1 } };
    assert.equal((await client.createSession(unknown)).session.id, "x");
    await client.deleteAgent("a/b?c");
    await client.createTenantApiKey({ tenantId: "t" });
    assert.deepEqual(await client.getSessionFile(SESSION, "a b/ü.txt"), new TextEncoder().encode("bytes"));
    assert.equal((await client.getSessionFile(SESSION, "a", { format: "json" })).path, "a");
    await client.deleteSessionFile(SESSION, "a/b");
    const lines = server.requests.map(({ line }) => line);
    assert.deepEqual(lines, [
      "GET /api/sessions?agent=%C3%A4+b%26c&limit=5",
      "POST /api/sessions",
      "DELETE /api/agents/a%2Fb%3Fc",
      "POST /api/internal/api-keys",
      `GET /api/sessions/${SESSION}/files/a%20b/%C3%BC.txt`,
      `GET /api/sessions/${SESSION}/files/a?format=json`,
      `DELETE /api/sessions/${SESSION}/files/a/b`,
    ]);
    const keys = server.requests.map(({ headers }) => headers.get("authorization"));
    assert.deepEqual(keys, keys.map((_, at) => `Bearer ${at === 3 ? "s3cret" : "ash_secret"}`));
    assert.deepEqual(JSON.parse(server.requests[1]?.body ?? ""), unknown);
    assert.equal(server.requests[1]?.headers.get("content-type"), "application/json");
    assert.deepEqual([server.requests[0]?.body, server.requests[0]?.headers.get("content-type")], ["", undefined]);
  });
});

test("address can have a path, and open routes receive no key", async () => {
  await withServer([json(200, { status: "ok" })], {}, async (_, server) => {
    const client = new Client({ baseUrl: `${server.url}/agents/`, key: "ash_secret" });
    assert.equal((await client.health()).status, "ok");
    assert.equal(server.requests[0]?.line, "GET /agents/health");
    assert.equal(server.requests[0]?.headers.has("authorization"), false);
  });
});

test("lost request is repeated only if it is safe", async () => {
  await withServer([cut, cut, cut, list], {}, async (client, server) => {
    assert.equal((await client.listSessions()).total, 0);
    assert.equal(server.requests.length, 4);
  });
  await withServer([cut, cut, list], { attempts: 2 }, async (client, server) => {
    const expected = { name: "ConnectionError", failure: "lost", message: /^GET \/api\/sessions: / };
    await assert.rejects(client.listSessions(), expected);
    assert.equal(server.requests.length, 2);
  });
  for (const call of [
    (client: Client) => client.createSession({ agent: "hello" }),
    (client: Client) => client.endSession(SESSION),
    (client: Client) => client.updateAgent("hello", {}),
  ]) {
    await withServer([cut, list], {}, async (client, server) => {
      await assert.rejects(call(client), ConnectionError);
      assert.equal(server.requests.length, 1);
    });
  }
});

test("response that is cut in its body is lost", async () => {
  const half = (socket: import("node:net").Socket) => {
    socket.write("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", () => socket.destroy());
  };
  await withServer([half, list], {}, async (client) => assert.equal((await client.listSessions()).total, 0));
});

test("any request is repeated when the server says when", async () => {
  await withServer([busy("0"), json(429, { message: "later" }, "retry-after: 0\r\n"), json(201, { session: {} })], {},
    async (client, server) => {
      await client.createSession({ agent: "hello" });
      assert.equal(server.requests.length, 3);
    });
  await withServer([busy("1"), list], {}, async (client) => {
    const start = performance.now();
    await client.listSessions();
    // Timers have a resolution of 1 ms.
    assert.ok(performance.now() - start >= 999);
  });
  await withServer([busy("0"), list], { retryDelay: 200 }, async (client) => {
    const start = performance.now();
    await client.listSessions();
    assert.ok(performance.now() - start >= 99);
  });
  // Without a time, with one that is too far away, and after the last attempt.
  for (const [seconds, attempts, retryAfter] of [[undefined, 4, undefined], ["900", 4, 900], ["0", 1, 0]] as const) {
    await withServer([busy(seconds), list], { attempts }, async (client, server) => {
      const expected = { name: "ApiError", status: 503, message: "capacity reached", retryAfter };
      await assert.rejects(client.listSessions(), expected);
      assert.equal(server.requests.length, 1);
    });
  }
  const date = new Date(Date.now() + 600_000).toUTCString();
  await withServer([busy(date)], {}, async (client) => {
    await assert.rejects(client.listSessions(), ({ retryAfter }) => retryAfter > 500 && retryAfter <= 600);
  });
});

test("error has the text of the server", async () => {
  for (const [body, message] of [
    [{ error: "Bad Request", message: "body/agent: missing", statusCode: 400 }, "body/agent: missing"],
    [{ error: "Session not found" }, "Session not found"],
    ["<html>", "the server answered with status 400"],
  ] as const) {
    await withServer([json(400, body)], {}, async (client) => {
      await assert.rejects(client.listSessions(), { name: "ApiError", status: 400, message, body });
    });
  }
  await withServer([json(302, "", "location: http://127.0.0.1:9/\r\n")], {}, async (client) => {
    await assert.rejects(client.listSessions(), /set baseUrl to its final address/);
  });
  await withServer([json(200, "<html>")], {}, async (client, server) => {
    await assert.rejects(client.listSessions(), { name: "ApiError", message: "the response is not JSON" });
    assert.equal(server.requests.length, 1);
  });
});

test("time limit and signal end a request", async () => {
  await withServer([silence], {}, async (client, server) => {
    const expected = { name: "ConnectionError", failure: "timeout", message: /no complete response within 0.05 s/ };
    await assert.rejects(client.listSessions({ timeout: 50 }), expected);
    assert.ok(server.requests.length <= 1);
    await server.closed();
  });
  await withServer([silence, busy("20")], {}, async (client, server) => {
    const reason = new Error("enough");
    await assert.rejects(client.listSessions({ signal: AbortSignal.abort(reason) }), reason);
    const silent = new AbortController();
    const request = client.listSessions({ signal: silent.signal });
    setTimeout(() => silent.abort(reason), 20);
    await assert.rejects(request, reason);
    await server.closed();
    // During the delay before the next attempt.
    const delayed = new AbortController();
    const waiting = client.listSessions({ signal: delayed.signal });
    setTimeout(() => delayed.abort(reason), 20);
    await assert.rejects(waiting, reason);
  });
});

test("time limit of fetch ends a request", async () => {
  const dispatcher = new Agent({ headersTimeout: 20 });
  const ownFetch = ((url: string, init: object) => undiciFetch(url, { ...init, dispatcher })) as unknown as Fetch;
  await withServer([silence], { fetch: ownFetch }, async (client, server) => {
    const expected = { name: "ConnectionError", failure: "timeout", message: /Headers Timeout Error/ };
    await assert.rejects(client.listSessions(), expected);
    assert.ok(server.requests.length <= 1);
  });
  await dispatcher.destroy();
});

test("segments that lead to another operation are refused", async () => {
  await withServer([], {}, async (client, server) => {
    for (const call of [
      () => client.deleteSessionFile(SESSION, ".."),
      () => client.deleteSessionFile(SESSION, "a/../../.."),
      () => client.deleteSessionFile(SESSION, ""),
      () => client.deleteSessionFile(SESSION, "a//b"),
      () => client.deleteAgent(".."),
      () => client.getSession(""),
    ]) {
      await assert.rejects(call(), { name: "TypeError", message: /must have no empty segment/ });
    }
    assert.equal(server.requests.length, 0);
  });
});

test("invalid options are refused", () => {
  const baseUrl = "http://127.0.0.1:4100";
  for (const options of [
    { baseUrl: "127.0.0.1:4100" }, { baseUrl: "" }, { baseUrl: "ftp://host" }, { baseUrl: `${baseUrl}?a=b` },
    { baseUrl: `${baseUrl}?` }, { baseUrl: `${baseUrl}#` }, { baseUrl: `${baseUrl}/a#b` },
    { baseUrl: "http://user:ash_secret@host" }, { baseUrl, key: "ash_secret\n" }, { baseUrl, key: "" },
    { baseUrl, internalSecret: "ash secret" }, { baseUrl, timeout: 0 }, { baseUrl, attempts: Number.NaN },
    { baseUrl, idleTimeout: -1 }, { baseUrl, timeout: Infinity }, { baseUrl, retryDelay: 2 ** 31 },
  ]) {
    const isClean = (error: Error) => !error.message.includes("secret");
    assert.throws(() => new Client(options), isClean, JSON.stringify(options));
  }
});

test("invalid time limit of a call is refused", async () => {
  await withServer([], {}, async (client, server) => {
    for (const timeout of [0, -1, Number.NaN, Infinity, 2 ** 31]) {
      const expected = { name: "RangeError", message: /^timeout must be a time/ };
      await assert.rejects(client.listSessions({ timeout }), expected);
    }
    assert.equal(server.requests.length, 0);
  });
});
