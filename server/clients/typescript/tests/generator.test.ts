/** The generator refuses what it does not understand. */

import assert from "node:assert/strict";
import test from "node:test";
import { clientSource } from "../scripts/methods.js";

/** A document with the operations that the generator knows by name, and this one. */
function documentWith(path: string, method: string, change: Record<string, unknown>): Record<string, unknown> {
  const operation = (operationId: string, ...medias: string[]) => ({
    operationId,
    tags: ["a"],
    summary: "Does it.",
    responses: { 200: { content: Object.fromEntries(medias.map((media) => [media, { schema: {} }])) } },
  });
  const named = {
    "/s": { post: operation("sendMessage", "text/event-stream"), get: operation("streamSession", "text/event-stream") },
    "/f": { get: operation("getAgentFile", "application/json", "application/octet-stream") },
    "/g": { get: operation("getSessionFile", "application/json", "*/*") },
    "/d": { get: operation("getSessionDiff", "application/json", "text/x-diff") },
  };
  const tested = { ...operation("tested", "application/json"), ...change };
  return { security: [{ apiKey: [] }], paths: { ...named, [path]: { [method]: tested } } };
}

const parameter = (change: object) => {
  return { parameters: [{ name: "a", in: "query", required: false, schema: { type: "string" }, ...change }] };
};
const any = { schema: {} };
const body = (content: object, rest = {}) => ({ requestBody: { content, ...rest } });
const response = (content: object, status = 200) => ({ responses: { [status]: { content } } });

test("operation becomes a method", () => {
  const source = clientSource(documentWith("/t", "get", parameter({ in: "header", name: "x-a-b" })));
  assert.match(source, /async tested\(options: CallOptions & \{ xAB\?: string \} = \{\}\)/);
  assert.match(source, /method: "GET", path: "\/t", security: "key", headers: \{ "x-a-b": options.xAB \}/);
});

for (const [name, path, method, change, message] of [
  ["method", "/t", "trace", {}, /unknown key trace/],
  ["field of an operation", "/t", "get", { callbacks: {} }, /unknown key callbacks/],
  ["place of a parameter", "/t", "get", parameter({ in: "cookie" }), /unknown place: cookie/],
  ["field of a parameter", "/t", "get", parameter({ explode: true }), /unknown key explode/],
  ["type of a parameter", "/t", "get", parameter({ schema: { type: "array" } }), /unknown type/],
  ["required query", "/t", "get", parameter({ required: true }), /required parameters in its path only/],
  ["query with the name of an option", "/t", "get", parameter({ name: "timeout" }), /two options of one name/],
  ["undeclared path parameter", "/t/{a}", "get", {}, /its path has a/],
  ["media type of a body", "/t", "post", body({ "text/plain": {} }, { required: true }), /unknown body/],
  ["optional body", "/t", "post", body({ "application/json": {} }), /unknown body/],
  ["media type of a response", "/t", "get", response({ "image/png": any }), /unknown media type image\/png/],
  ["several media types", "/t", "get", response({ "text/plain": any, "text/html": any }), /FORMATS/],
  ["stream", "/t", "get", response({ "text/event-stream": any }), /not in STREAMS/],
  ["redirect", "/t", "get", response({}, 302), /other responses/],
  ["response without a body", "/t", "get", { responses: { 204: {} } }, /without a media type/],
  ["security", "/t", "get", { security: [{ cookie: [] }] }, /unknown security/],
  ["two securities", "/t", "get", { security: [{ apiKey: [] }, {}] }, /unknown security/],
  ["known name without its operation", "/s", "get", {}, /sendMessage is not in the document/],
] as const) {
  test(`generator refuses an unknown part: ${name}`, () => {
    assert.throws(() => clientSource(documentWith(path, method, change)), message);
  });
}
