/** The parts of an OpenAPI document that the generator understands. Anything else is an error. */

/** An operation of the document. */
export interface Operation {
  id: string;
  method: string;
  path: string;
  doc: string[];
  security: string;
  parameters: Parameter[];
  /** The type of the body, if the operation has one. */
  body: string | undefined;
  /** Media types of the successful response, with their types. */
  responses: Map<string, string>;
}

export interface Parameter {
  name: string;
  place: "path" | "query" | "header";
  type: string;
  doc: string | undefined;
}

type Json = Record<string, any>;

const METHODS = ["get", "post", "patch", "put", "delete"];
const OPERATION_KEYS = [
  "operationId", "parameters", "requestBody", "responses", "security", "tags", "summary", "description",
];
const PARAMETER_KEYS = ["name", "in", "description", "required", "schema"];
const SCALARS: Record<string, string> = { string: "string", integer: "number", number: "number", boolean: "boolean" };
const SECURITY: Record<string, string> = { apiKey: "key", internalSecret: "internalSecret" };

/** Returns the operations of a document, by path and method. */
export function operationsOf(document: Json): Operation[] {
  const paths = Object.entries<Json>(document["paths"]);
  return paths.flatMap(([path, item]) => {
    checkKeys(path, item, METHODS);
    return Object.entries<Json>(item).map(([method, operation]) => operationOf(document, path, method, operation));
  });
}

function operationOf(document: Json, path: string, method: string, operation: Json): Operation {
  const at = `${method} ${path}`;
  checkKeys(at, operation, OPERATION_KEYS);
  const id: string = operation["operationId"] ?? fail(at, "has no operationId");
  const parameters = (operation["parameters"] ?? []).map((found: Json) => parameterOf(at, found));
  const names = parameters.filter((found: Parameter) => found.place === "path").map((found: Parameter) => found.name);
  const inPath = [...path.matchAll(/\{([^}]*)\}/g)].map((match) => match[1]);
  if (names.join() !== inPath.join()) fail(at, `declares the path parameters ${names}, and its path has ${inPath}`);
  return {
    id,
    method: method.toUpperCase(),
    path,
    doc: [operation["summary"], operation["description"]].filter((text) => text !== undefined),
    security: securityOf(at, operation["security"] ?? document["security"]),
    parameters,
    body: bodyOf(at, id, operation["requestBody"]),
    responses: responsesOf(at, id, operation["responses"]),
  };
}

function parameterOf(at: string, parameter: Json): Parameter {
  checkKeys(at, parameter, PARAMETER_KEYS);
  const { name, in: place, required, schema, description } = parameter;
  if (!["path", "query", "header"].includes(place)) fail(at, `has the parameter ${name} in an unknown place: ${place}`);
  if (required !== (place === "path")) fail(at, `must have required parameters in its path only: ${name}`);
  const types = [schema?.type].flat().filter((type: string) => type !== "null");
  const type = (types.length === 1 && SCALARS[types[0]]) || fail(at, `has the parameter ${name} of an unknown type`);
  if (place === "path" && type !== "string") fail(at, `has the path parameter ${name}, which is not a string`);
  return { name, place, type, doc: description };
}

function securityOf(at: string, security: Json[]): string {
  const names = security.length === 1 ? Object.keys(security[0] ?? {}) : ["?"];
  if (names.length === 0) return "none";
  const option = names.length === 1 ? SECURITY[names[0] ?? ""] : undefined;
  return option ?? fail(at, `has an unknown security: ${JSON.stringify(security)}`);
}

function bodyOf(at: string, id: string, body: Json | undefined): string | undefined {
  if (body === undefined) return undefined;
  checkKeys(at, body, ["content", "required", "description"]);
  const types = Object.keys(body["content"]);
  if (body["required"] !== true || types.join() !== "application/json") fail(at, `has an unknown body: ${types}`);
  const schema: Json = body["content"]["application/json"].schema;
  return referenced(schema) ?? `operations[${JSON.stringify(id)}]["requestBody"]["content"]["application/json"]`;
}

function responsesOf(at: string, id: string, responses: Json): Map<string, string> {
  const successes = Object.keys(responses).filter((status) => !/^[45]\d\d$/.test(status));
  const [status] = successes;
  const isKnown = successes.length === 1 && /^2\d\d$/.test(status ?? "");
  if (!isKnown) fail(at, `has other responses than one of 2xx: ${successes}`);
  const response: Json = responses[status ?? ""];
  checkKeys(at, response, ["description", "content"]);
  const contents = Object.entries<Json>(response["content"] ?? fail(at, "has a response without a media type"));
  return new Map(contents.map(([media, { schema }]) => {
    const inline = `operations[${JSON.stringify(id)}]["responses"][${status}]["content"][${JSON.stringify(media)}]`;
    return [media, referenced(schema ?? fail(at, `has no schema for ${media}`)) ?? inline];
  }));
}

/** The name of the type of a schema that is a reference. */
function referenced(schema: Json): string | undefined {
  const name = /^#\/components\/schemas\/(\w+)$/.exec(schema["$ref"] ?? "")?.[1];
  return name === undefined ? undefined : `Api.${name}`;
}

function checkKeys(at: string, object: Json, known: string[]): void {
  const unknown = Object.keys(object).filter((key) => !known.includes(key));
  if (unknown.length > 0) fail(at, `has the unknown key ${unknown}`);
}

export function fail(at: string, what: string): never {
  throw new Error(`${at} ${what}: teach it to the generator`);
}
