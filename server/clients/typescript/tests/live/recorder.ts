/** Records which methods of a client were called, and finds those of the document. */

import { readFileSync } from "node:fs";
import type { Client } from "../../src/index.js";

/** Returns the client, whose calls are added to `called`. */
export function recorded(client: Client, called: Set<string>): Client {
  return new Proxy(client, {
    get(target, name: keyof Client) {
      called.add(name);
      return target[name].bind(target);
    },
  });
}

/** The ids of all operations of the document. */
export function operationIds(documentPath: string): string[] {
  const document = JSON.parse(readFileSync(documentPath, "utf8"));
  const items = Object.values<Record<string, { operationId: string }>>(document.paths);
  return items.flatMap((item) => Object.values(item).map(({ operationId }) => operationId));
}
