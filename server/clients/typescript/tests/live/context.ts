import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Client, StreamEvent } from "../../src/index.js";
import type { Proxy } from "./proxy.js";

/** What the parts of the script use. */
export interface Context {
  client: Client;
  proxy: Proxy;
  /** The folder of the demo agent. */
  folder: string;
  /** Kills the server and starts it again. */
  restartServer(): Promise<void>;
}

/** Starts a session of the demo agent, on a folder of the server, and returns its id. */
export async function startSession({ client, folder }: Context): Promise<string> {
  const names = ["CLAUDE.md", "saggar.toml"];
  const files = names.map((path) => ({ path, content: base64(readFileSync(join(folder, path), "utf8")) }));
  await client.deployAgent({ name: "hello", files });
  return (await client.createSession({ agent: "hello" })).session.id;
}

export async function collect(stream: AsyncIterable<StreamEvent>): Promise<StreamEvent[]> {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

export const base64 = (text: string) => Buffer.from(text).toString("base64");
export const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
