/** A server on loopback whose responses are scripted byte by byte, so that connections can be cut anywhere. */

import { createServer } from "node:net";
import type { AddressInfo, Server, Socket } from "node:net";

export interface ReceivedRequest {
  /** Method and path. */
  line: string;
  headers: Map<string, string>;
  body: string;
}

/** Answers one request. A connection has one request. */
export type Answer = (socket: Socket, request: ReceivedRequest) => void;

export class ScriptedServer {
  readonly requests: ReceivedRequest[] = [];
  /** Number of open connections with a request: `fetch` of Node.js opens others ahead. */
  open = 0;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #waiting: (() => void)[] = [];

  private constructor(answers: Answer[]) {
    this.#server = createServer((socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
      socket.on("error", () => {});
      let text = "";
      socket.on("data", (data) => {
        text += data;
        const request = parseRequest(text);
        if (request === undefined) return;
        text = "";
        this.requests.push(request);
        this.open += 1;
        socket.on("close", () => {
          this.open -= 1;
          this.#waiting.splice(0).forEach((wake) => wake());
        });
        const answer = answers.shift();
        if (answer === undefined) socket.destroy();
        else answer(socket, request);
      });
    });
  }

  /** Starts a server that gives these answers, in order. */
  static async start(...answers: Answer[]): Promise<ScriptedServer> {
    const server = new ScriptedServer(answers);
    await new Promise<void>((resolve) => server.#server.listen(0, "127.0.0.1", resolve));
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Waits until no connection is open. */
  async closed(): Promise<void> {
    while (this.open > 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  stop(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}

function parseRequest(text: string): ReceivedRequest | undefined {
  const end = text.indexOf("\r\n\r\n");
  if (end < 0) return undefined;
  const [line = "", ...fields] = text.slice(0, end).split("\r\n");
  const headers = new Map(fields.map((field) => {
    const colon = field.indexOf(":");
    return [field.slice(0, colon).toLowerCase(), field.slice(colon + 1).trim()];
  }));
  const body = text.slice(end + 4);
  if (Buffer.byteLength(body) < Number(headers.get("content-length") ?? 0)) return undefined;
  return { line: line.replace(" HTTP/1.1", ""), headers, body };
}

/** A whole response with a JSON body. */
export function json(status: number, body: unknown, headers = ""): Answer {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return (socket) => {
    socket.end(`HTTP/1.1 ${status} X\r\ncontent-type: application/json\r\n${headers}` +
      `content-length: ${Buffer.byteLength(text)}\r\nconnection: close\r\n\r\n${text}`);
  };
}

/** Closes the connection without a response. */
export const cut: Answer = (socket) => socket.destroy();

/** Accepts the request, and sends nothing. */
export const silence: Answer = () => {};

/**
 * A connection has one request, but without `connection: close`: with it, `fetch` of Node.js takes a body that is cut
 * for a whole one.
 */
export const STREAM_HEAD =
  "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nkeep-alive: timeout=0\r\n\r\n";

/** A chunk of a response. */
export function chunk(text: string): string {
  return `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
}

/** A stream of these texts that the server ends. */
export function stream(...texts: string[]): Answer {
  return (socket) => socket.end(`${STREAM_HEAD}${texts.map(chunk).join("")}0\r\n\r\n`);
}

/** A stream of these texts that remains open. */
export function openStream(...texts: string[]): Answer {
  return (socket) => socket.write(`${STREAM_HEAD}${texts.map(chunk).join("")}`);
}

/** The first bytes of a stream whose connection is then cut. */
export function cutStream(bytes: number, ...texts: string[]): Answer {
  return (socket) => {
    const whole = Buffer.from(`${STREAM_HEAD}${texts.map(chunk).join("")}0\r\n\r\n`);
    socket.write(whole.subarray(0, bytes), () => socket.destroy());
  };
}

/** An event as the server sends it. */
export function frame(id: number, event: string, data: unknown): string {
  return `id: ${id}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}
