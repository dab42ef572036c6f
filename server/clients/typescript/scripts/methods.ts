/** The class with a method for each operation. */

import { fail, operationsOf } from "./document.js";
import type { Operation, Parameter } from "./document.js";

/** How the response of each media type is returned. */
const READERS: Record<string, { call: string; type?: string }> = {
  "application/json": { call: "json" },
  "application/octet-stream": { call: "bytes", type: "Uint8Array" },
  "application/gzip": { call: "bytes", type: "Uint8Array" },
  "*/*": { call: "bytes", type: "Uint8Array" },
  "text/plain": { call: "text", type: "string" },
  "text/html": { call: "text", type: "string" },
  "text/x-diff": { call: "text", type: "string" },
};

/** Streams differ in how they continue after a lost connection. */
const STREAMS: Record<string, string> = { sendMessage: "streamTurn", streamSession: "streamSession" };

/** The document does not say which value of `format` selects which media type: that for the value, and the default. */
const FORMATS: Record<string, { value: string; media: string; otherwise: string }> = {
  getAgentFile: { value: "raw", media: "application/octet-stream", otherwise: "application/json" },
  getSessionFile: { value: "json", media: "application/json", otherwise: "*/*" },
  getSessionDiff: { value: "patch", media: "text/x-diff", otherwise: "application/json" },
};

/** Names of options that each method has. */
const CALL_OPTIONS = ["signal", "timeout"];

/** Returns the source of the class. */
export function clientSource(document: Record<string, unknown>): string {
  const operations = operationsOf(document);
  const ids = operations.map(({ id }) => id);
  for (const id of [...Object.keys(STREAMS), ...Object.keys(FORMATS)]) {
    if (!ids.includes(id)) fail(id, "is not in the document any more");
  }
  return `import { Http } from "../http.js";
import type { CallOptions, ClientOptions } from "../options.js";
import { filePath, segment } from "../path.js";
import { streamSession, streamTurn } from "../streams.js";
import type { EventStream } from "../streams.js";
import type * as Api from "./types.js";
import type { operations } from "./types.js";

/** The query of an operation. */
type Query<Id extends keyof operations> = NonNullable<operations[Id]["parameters"]["query"]>;

/** A client of a server. */
export class Client {
  readonly #http: Http;

  constructor(options: ClientOptions) {
    this.#http = new Http(options);
  }
${operations.map(method).join("")}}
`;
}

function method(operation: Operation): string {
  const { id, parameters, body } = operation;
  const inPath = parameters.filter(({ place }) => place === "path").map(({ name }) => `${name}: string`);
  const positional = [...inPath, ...(body === undefined ? [] : [`body: ${body}`])];
  const [returned, call] = result(operation);
  const options = optionsType(operation);
  const signature = (type: string, result: string) => `${id}(${[...positional, type].join(", ")}): ${result}`;
  // Invalid arguments reject the promise.
  const prefix = returned[0] === "EventStream" ? "" : "async ";
  const doc = comment(operation.doc, "  ");
  if (returned.length === 1) {
    return `\n${doc}  ${prefix}${signature(`options: ${options} = {}`, returned[0] ?? "")} {\n    ${call}\n  }\n`;
  }
  // One declaration for each representation, the one for a value of the format first.
  const format = FORMATS[id] ?? fail(id, "has several media types and is not in FORMATS");
  const types = returned.map((type) => type.replace(/^Promise<(.*)>$/, "$1"));
  const selected = `options: ${options} & { format: ${JSON.stringify(format.value)} }`;
  return `
${doc}  ${signature(selected, returned[0] ?? "")};
  ${signature(`options?: ${options}`, returned[1] ?? "")};
  async ${signature(`options: ${options} = {}`, `Promise<${types.join(" | ")}>`)} {
    ${call}
  }
`;
}

/** The types that a method returns, and its statements. */
function result(operation: Operation): [string[], string] {
  const { id, responses } = operation;
  const sent = request(operation);
  const medias = [...responses.keys()];
  if (medias.join() === "text/event-stream") {
    const stream = STREAMS[id] ?? fail(id, "is a stream and is not in STREAMS");
    return [["EventStream"], `return ${stream}(this.#http, ${sent}, options);`];
  }
  const read = (media: string): [string, string] => {
    const reader = READERS[media] ?? fail(id, `has the unknown media type ${media}`);
    const type = reader.type ?? responses.get(media) ?? fail(id, `does not have the media type ${media}`);
    const generic = reader.type === undefined ? `<${type}>` : "";
    return [`Promise<${type}>`, `this.#http.${reader.call}${generic}(request, options)`];
  };
  if (medias.length === 1) {
    const [type, call] = read(medias[0] ?? "");
    return [[type], `return ${call.replace("request", sent)};`];
  }
  const format = FORMATS[id] ?? fail(id, "has several media types and is not in FORMATS");
  const isKnown = [format.media, format.otherwise].sort().join() === medias.sort().join();
  if (!isKnown) fail(id, `has other media types: ${medias}`);
  const [selected, other] = [read(format.media), read(format.otherwise)];
  const choice = `options.format === ${JSON.stringify(format.value)} ? ${selected[1]} : ${other[1]}`;
  return [[selected[0], other[0]], `const request = ${sent} as const;\n    return ${choice};`];
}

function request({ method, path, security, parameters, body }: Operation): string {
  const encoded = path.replace(/\{(\w+)\}/g, (_, name) => {
    // The path of a file is the rest of the route.
    const encode = name === "path" && path.endsWith("{path}") ? "filePath" : "segment";
    return `\${${encode}("${name}", ${name})}`;
  });
  const text = encoded === path ? JSON.stringify(path) : `\`${encoded}\``;
  const fields = [`method: "${method}"`, `path: ${text}`, `security: "${security}"`];
  for (const [field, place] of [["query", "query"], ["headers", "header"]] as const) {
    const values = parameters.filter((parameter) => parameter.place === place);
    const entries = values.map(({ name }) => `${JSON.stringify(name)}: options.${camelCase(name)}`);
    if (entries.length > 0) fields.push(`${field}: { ${entries.join(", ")} }`);
  }
  return `{ ${[...fields, ...(body === undefined ? [] : ["body"])].join(", ")} }`;
}

/** The type of the last argument. */
function optionsType({ id, parameters }: Operation): string {
  const optional = parameters.filter(({ place }) => place !== "path");
  const names = optional.map(({ name }) => camelCase(name));
  if (new Set([...names, ...CALL_OPTIONS]).size < names.length + CALL_OPTIONS.length) {
    fail(id, `has two options of one name: ${names}`);
  }
  const types = ["CallOptions"];
  if (optional.some(({ place }) => place === "query")) types.push(`Query<"${id}">`);
  const headers = optional.filter(({ place }) => place === "header").map(headerField);
  if (headers.length > 0) types.push(`{ ${headers.join("; ")} }`);
  return types.join(" & ");
}

function headerField({ name, type, doc }: Parameter): string {
  return `${doc === undefined ? "" : `/** ${doc} */ `}${camelCase(name)}?: ${type}`;
}

function camelCase(name: string): string {
  return name.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());
}

function comment(paragraphs: string[], indent: string): string {
  const lines = paragraphs.join("\n\n").split("\n");
  if (lines.some((line) => line.includes("*/"))) fail("a description", "contains the end of a comment");
  if (lines.length === 1) return `${indent}/** ${lines[0]} */\n`;
  return [`${indent}/**`, ...lines.map((line) => `${indent} * ${line}`.trimEnd()), `${indent} */`, ""].join("\n");
}
