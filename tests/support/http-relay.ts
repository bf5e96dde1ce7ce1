/**
 * A reverse proxy that understands HTTP, and cuts what goes through it in the ways proxies and servers do.
 *
 * HTTP/1.1 and HTTP/2 each on a port of its own. Bodies pass as they come, both ways at once; the body of an event
 * stream can be rewritten on its way, byte for byte.
 */
import { once } from "node:events";
import * as http from "node:http";
import * as http2 from "node:http2";
import type * as net from "node:net";

/**
 * "rst": RST_STREAM CANCEL on every stream. "goaway": GOAWAY, and then the connection is closed. "reset": a TCP reset.
 * "end": every response ends as a complete one does. The first two are of HTTP/2 alone.
 */
export type HttpCut = "rst" | "goaway" | "reset" | "end";

/** Rewrites an event stream: gets what comes, gives the pieces to write; one for each response. */
export type Rewrite = (bytes: Buffer) => Iterable<Buffer>;

export class HttpRelay {
  readonly #server: net.Server;
  readonly #sockets = new Set<net.Socket>();
  readonly #responses = new Set<http.ServerResponse>();
  readonly #streams = new Set<http2.ServerHttp2Stream>();
  readonly #sessions = new Set<http2.ServerHttp2Session>();
  #target: URL | undefined;
  /** When each request came; while there is nobody to lead it to, each connection. */
  readonly askedMs: number[] = [];
  /** Of each new event stream. */
  rewrite: (() => Rewrite) | undefined;

  private constructor(version: 1 | 2) {
    this.#server = version === 1 ? this.#http1() : this.#http2();
    this.#server.on("connection", (socket: net.Socket) => {
      socket.on("error", () => undefined);
      if (this.#target === undefined) {
        this.askedMs.push(performance.now());
        socket.resetAndDestroy();
        return;
      }
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
    });
  }

  static async open(version: 1 | 2): Promise<HttpRelay> {
    const relay = new HttpRelay(version);
    relay.#server.listen(0, "127.0.0.1");
    await once(relay.#server, "listening");
    return relay;
  }

  /** Where requests lead; while there is nobody, connections are reset. */
  forwardTo(url: string | undefined): void {
    this.#target = url === undefined ? undefined : new URL(url);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as net.AddressInfo).port}`;
  }

  cut(how: HttpCut): void {
    switch (how) {
      case "rst":
        for (const stream of this.#streams) stream.close(http2.constants.NGHTTP2_CANCEL);
        return;
      case "goaway":
        for (const session of this.#sessions) {
          session.goaway(http2.constants.NGHTTP2_NO_ERROR);
          setImmediate(() => session.destroy());
        }
        return;
      case "reset":
        for (const socket of this.#sockets) socket.resetAndDestroy();
        return;
      case "end":
        for (const response of this.#responses) response.end();
        for (const stream of this.#streams) stream.end();
        return;
      default:
        throw new Error(`there is no such cut: ${String(how satisfies never)}`);
    }
  }

  #http1(): net.Server {
    return http.createServer((req, res) => {
      const target = this.#target;
      if (target === undefined) return void res.destroy();
      this.askedMs.push(performance.now());
      this.#responses.add(res);
      const { hostname, port, host } = target;
      const { method, url: path, headers } = req;
      const upstream = http.request({ hostname, port, path, method, headers: { ...headers, host }, agent: false });
      upstream.on("error", () => res.destroy());
      res.on("close", () => {
        this.#responses.delete(res);
        upstream.destroy();
      });
      res.on("error", () => undefined);
      req.pipe(upstream);
      upstream.on("response", (answer) => {
        res.writeHead(answer.statusCode ?? 502, answer.headers);
        res.flushHeaders();
        const isStream = answer.headers["content-type"]?.startsWith("text/event-stream") === true;
        const rewrite = isStream ? this.rewrite?.() : undefined;
        answer.on("data", (bytes: Buffer) => {
          if (res.writableEnded) return;
          for (const piece of rewrite?.(bytes) ?? [bytes]) res.write(piece);
        });
        answer.on("end", () => res.end());
        answer.on("error", () => res.destroy());
      });
    });
  }

  #http2(): net.Server {
    const server = http2.createServer();
    server.on("session", (session) => {
      this.#sessions.add(session);
      session.on("error", () => undefined);
      session.on("close", () => this.#sessions.delete(session));
    });
    server.on("stream", (stream, headers) => {
      const target = this.#target;
      if (target === undefined) return stream.close(http2.constants.NGHTTP2_CANCEL);
      this.askedMs.push(performance.now());
      this.#streams.add(stream);
      const connection = http2.connect(target.origin);
      connection.on("error", () => stream.close(http2.constants.NGHTTP2_CANCEL));
      const upstream = connection.request({ ...headers, ":authority": target.host });
      stream.on("error", () => undefined);
      stream.on("close", () => {
        this.#streams.delete(stream);
        connection.destroy();
      });
      upstream.on("error", () => stream.close(http2.constants.NGHTTP2_CANCEL));
      upstream.on("response", (answer) => {
        if (!stream.destroyed) stream.respond(answer);
      });
      stream.pipe(upstream);
      upstream.on("data", (bytes: Buffer) => {
        if (!stream.writableEnded) stream.write(bytes);
      });
      upstream.on("end", () => stream.end());
    });
    return server as unknown as net.Server;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#target = undefined;
    const closed = once(this.#server, "close");
    this.#server.close();
    for (const session of this.#sessions) session.destroy();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }
}
