/**
 * Generates the types and the methods of the client from the OpenAPI document of the server.
 *
 * Arguments: the document, and the folder of the generated files.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import openapiTS, { astToString } from "openapi-typescript";
import { clientSource } from "./methods.js";

const [documentPath, folder] = process.argv.slice(2);
if (documentPath === undefined || folder === undefined) {
  console.error("usage: generate.js DOCUMENT FOLDER");
  process.exit(2);
}
const document = JSON.parse(readFileSync(documentPath, "utf8"));
const notice = "// Generated from server/openapi.json by scripts/generate.ts (npm run generate). Do not edit.\n\n";
const types = await openapiTS(structuredClone(document), {
  // A field of a request with a default is optional.
  defaultNonNullable: false,
  rootTypes: true,
  rootTypesNoSchemaPrefix: true,
});
writeFileSync(join(folder, "types.ts"), notice + astToString(types));
writeFileSync(join(folder, "client.ts"), notice + clientSource(document));
