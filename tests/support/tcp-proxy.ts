import { once } from "node:events";
import * as net from "node:net";

/** Stands between a client and a server, byte for byte, and can cut what goes through it. */
export class TcpProxy {
  readonly #server: net.Server;
  readonly #sockets = new Set<net.Socket>();
  #target: URL | undefined;
  /** Answers HTTP/2 as a proxy does that has never heard of it. */
  http1Only = false;
  /** Connections that were accepted so far. */
  accepted = 0;

  private constructor(server: net.Server) {
    this.#server = server;
  }

  /** Listens at once, so that the server can be told this address; `forwardTo` says where it is. */
  static async open(): Promise<TcpProxy> {
    const server = net.createServer((client) => {
      proxy.accepted++;
      const upstream = net.connect(Number(proxy.#target?.port), proxy.#target?.hostname);
      for (const [from, to] of [
        [client, upstream],
        [upstream, client],
      ] as const) {
        proxy.#sockets.add(from);
        from.on("error", () => to.destroy());
        from.on("close", () => {
          proxy.#sockets.delete(from);
          to.destroy();
        });
      }
      client.once("data", (first) => {
        if (proxy.http1Only && first.toString("latin1", 0, 4) === "PRI ") {
          client.end("HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
          return;
        }
        upstream.write(first);
        client.pipe(upstream);
      });
      upstream.pipe(client);
    });
    const proxy = new TcpProxy(server);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return proxy;
  }

  forwardTo(url: string): void {
    this.#target = new URL(url);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as net.AddressInfo).port}`;
  }

  /** Cuts every connection: "reset" as a crashed peer does, "end" as one that leaves, in the middle of whatever it said. */
  cut(how: "reset" | "end"): void {
    for (const socket of this.#sockets) {
      if (how === "reset") socket.resetAndDestroy();
      else socket.end();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}
