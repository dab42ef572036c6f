/** A TCP proxy in front of the server, which can cut connections and follow the server to another port. */

import { connect, createServer } from "node:net";
import type { AddressInfo, Server, Socket } from "node:net";

export class Proxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** The bytes that the next connection with this request line transfers before it is cut. */
  #cuts: { line: string; bytes: number }[] = [];
  /** Number of connections that were cut. */
  cuts = 0;

  /** `upstream` is the port of the server. */
  constructor(public upstream: number) {
    this.#server = createServer((client) => this.#accept(client));
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Cuts the response to the next request whose text begins like this, after this number of bytes. */
  cutNext(line: string, bytes: number): void {
    this.#cuts.push({ line, bytes });
  }

  close(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #accept(client: Socket): void {
    const server = connect(this.upstream, "127.0.0.1");
    let left = Infinity;
    const end = () => {
      client.destroy();
      server.destroy();
    };
    for (const socket of [client, server]) {
      this.#sockets.add(socket);
      socket.on("error", end);
      socket.on("close", () => {
        this.#sockets.delete(socket);
        end();
      });
    }
    client.on("data", (data) => {
      const at = this.#cuts.findIndex(({ line }) => data.toString("latin1").startsWith(line));
      if (at >= 0) left = this.#cuts.splice(at, 1)[0]?.bytes ?? 0;
      server.write(data);
    });
    server.on("data", (data) => {
      const part = data.subarray(0, left);
      left -= part.length;
      if (left > 0) return void client.write(part);
      this.cuts += 1;
      client.write(part, end);
    });
  }
}
