/** Clients of scripted servers, with short delays. */

import { Client } from "../../src/index.js";
import type { ClientOptions, StreamEvent } from "../../src/index.js";
import { ScriptedServer } from "./scripted-server.js";
import type { Answer } from "./scripted-server.js";

export const SESSION = "00000000-0000-4000-8000-000000000000";

/** Runs a test with a client of a server that gives these answers. */
export async function withServer(
  answers: Answer[],
  options: Partial<ClientOptions>,
  test: (client: Client, server: ScriptedServer) => Promise<void>,
): Promise<void> {
  const server = await ScriptedServer.start(...answers);
  try {
    await test(new Client({ baseUrl: server.url, key: "ash_secret", retryDelay: 1, ...options }), server);
  } finally {
    server.stop();
  }
}

export async function collect(stream: AsyncIterable<StreamEvent>): Promise<StreamEvent[]> {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}
