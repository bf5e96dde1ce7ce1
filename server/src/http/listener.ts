import * as http from "node:http";
import * as http2 from "node:http2";
import * as net from "node:net";
import * as tls from "node:tls";
import type { Log } from "../runtime/log.js";
import type { HttpHandler, HttpRequest, HttpResponse } from "./exchange.js";

/**
 * One port for HTTP/1.1 and HTTP/2, in cleartext or TLS.
 *
 * 1. A connection is HTTP/2 when and only when its first 24 bytes are the whole HTTP/2 preface. It is HTTP/1.1
 *    as soon as they cannot be; nothing a peer says later changes its protocol, `Upgrade` included.
 * 2. A connection that has not decided within `protocolDecisionMs` of being accepted is closed.
 * 3. A stream that is open and silent is never closed here: limits of time are on headers, on request bodies
 *    and on connections without an open request.
 * 4. Nothing a peer sends ends the process: every socket, session and stream has somebody who takes its errors.
 * 5. A request that is answered is over: what its sender still sends costs its connection nothing.
 * 6. `close` ends within its bound, also when peers say nothing.
 */

export interface ListenerLimits {
  /** How long a new connection (with TLS: its handshake, then its first bytes, each) may take to show its protocol. */
  readonly protocolDecisionMs: number;
  /** Connections at once; one more is closed when it is accepted. */
  readonly connections: number;
  /** Open HTTP/2 streams of one connection; a waiting CallTool holds one. */
  readonly streamsPerConnection: number;
  /** All header fields of one request. */
  readonly headerBytes: number;
  /** Until the header of an HTTP/1.1 request is complete. */
  readonly headersMs: number;
  /**
   * Until a whole HTTP/1.1 request, body included, has been read, and until an HTTP/2 stream that was answered stops
   * sending. Says nothing of how long the response may take.
   */
  readonly requestMs: number;
  /** Until an HTTP/1.1 connection between two requests is closed. */
  readonly idleConnectionMs: number;
  /** Until an HTTP/2 connection without an open stream is closed; longer than what clients wait before they do it themselves. */
  readonly idleSessionMs: number;
  /** Memory that one HTTP/2 connection may hold for headers and unread data, in MiB. */
  readonly sessionMemoryMib: number;
}

export interface ListenerOptions {
  /** An address or name of this machine; an IPv6 address without brackets. */
  readonly host: string;
  /** 0 picks a free one. */
  readonly port: number;
  /** PEM. Without it the port speaks cleartext. */
  readonly tls?: { readonly cert: string; readonly key: string };
  readonly handler: HttpHandler;
  readonly limits: ListenerLimits;
  readonly log: Log;
}

export interface Listener {
  /** What a client on this machine writes, e.g. `http://127.0.0.1:8080`. */
  readonly url: string;
  readonly port: number;
  /** Open connections. */
  readonly connectionCount: number;
  /**
   * Stops accepting, tells HTTP/2 peers to go away, ends idle connections, lets open requests finish, and
   * destroys what is left after `withinMs`. Resolves when no connection is left.
   */
  close(withinMs: number): Promise<void>;
}

const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");

/** @throws Error that names the address when it cannot be listened on. */
export async function openListener(options: ListenerOptions): Promise<Listener> {
  const { limits, log } = options;
  const sockets = new Set<net.Socket>();
  const undecided = new Set<net.Socket>();
  const sessions = new Map<http2.ServerHttp2Session, { openStreams: number }>();
  const answered = new Set<http2.ServerHttp2Stream>();
  let closed: Promise<void> | undefined;

  const dispatch = (req: HttpRequest, res: HttpResponse): void => {
    // A peer that leaves while somebody writes to it is everyday life; who writes learns it from the write.
    req.on("error", () => {});
    res.on("error", () => {});
    if (req.httpVersionMajor === 1) {
      if (closed !== undefined) res.setHeader("Connection", "close");
      // A response that was under way when closing began leaves an idle connection behind.
      res.once("close", () => {
        if (closed !== undefined) setImmediate(() => http1.closeIdleConnections());
      });
    }
    try {
      options.handler(req, res);
    } catch (error) {
      log.error({ err: error, path: req.url }, "a request failed in the server");
      if (res.headersSent) res.destroy();
      else res.writeHead(500).end();
    }
  };

  const http1 = http.createServer(
    {
      maxHeaderSize: limits.headerBytes,
      headersTimeout: Math.min(limits.headersMs, limits.requestMs),
      requestTimeout: limits.requestMs,
      keepAliveTimeout: limits.idleConnectionMs,
      connectionsCheckingInterval: Math.max(5, Math.min(limits.headersMs / 4, 5000)),
    },
    dispatch,
  );
  // The server never listens itself; this is what starts its checks of headersTimeout and requestTimeout.
  http1.emit("listening");

  /**
   * Takes and forgets what a peer still sends to a stream that has been answered. Unread, it would hold the stream
   * open and use up the window of the whole connection; and a reset at once, which HTTP/2 allows, makes Node's own
   * clients lose the answer. A peer that is not done in time is reset.
   */
  const discardRest = (stream: http2.ServerHttp2Stream): void => {
    if (stream.state.state !== http2.constants.NGHTTP2_STREAM_STATE_OPEN) return;
    stream.removeAllListeners("data");
    // Whoever read the request may still say pause.
    stream.on("pause", () => stream.resume());
    stream.resume();
    answered.add(stream);
    const timer = setTimeout(() => stream.close(http2.constants.NGHTTP2_NO_ERROR), limits.requestMs);
    stream.once("close", () => {
      clearTimeout(timer);
      answered.delete(stream);
    });
  };

  const h2 = http2.createServer({
    settings: { maxConcurrentStreams: limits.streamsPerConnection, maxHeaderListSize: limits.headerBytes, enablePush: false },
    maxSessionMemory: limits.sessionMemoryMib,
    // Resets are capped by the HTTP/2 library itself: bursts of 1,000, then 33 a second, then the connection goes.
    maxSessionInvalidFrames: 100,
    maxSessionRejectedStreams: 100,
  });
  h2.on("request", (req, res) => {
    // Said once the response is complete, when its trailers have been handed on.
    req.stream.once("wantTrailers", () => discardRest(req.stream));
    dispatch(req as unknown as HttpRequest, res as unknown as HttpResponse);
  });
  h2.on("sessionError", (error) => log.debug({ err: error }, "an HTTP/2 connection failed"));
  h2.on("session", (session) => {
    const use = { openStreams: 0 };
    sessions.set(session, use);
    // Destroying sends GOAWAY too, and does not wait for the goodbye of a peer that may never say it.
    const armIdle = (): NodeJS.Timeout => setTimeout(() => session.destroy(), limits.idleSessionMs);
    let idle = armIdle();
    session.once("close", () => {
      clearTimeout(idle);
      sessions.delete(session);
    });
    session.on("stream", (stream) => {
      use.openStreams += 1;
      clearTimeout(idle);
      stream.once("close", () => {
        use.openStreams -= 1;
        if (use.openStreams === 0 && sessions.has(session)) idle = armIdle();
      });
    });
    if (closed !== undefined) session.close();
  });

  const handOver = (socket: net.Socket, read: Buffer): void => {
    if (socket.destroyed) return;
    socket.unshift(read);
    if (read.length >= PREFACE.length && read.subarray(0, PREFACE.length).equals(PREFACE)) {
      // HTTP/2 has no use for a half-open connection, and would keep it for ever.
      socket.allowHalfOpen = false;
      h2.emit("connection", socket);
    } else {
      http1.emit("connection", socket);
    }
  };

  const decide = (socket: net.Socket): void => {
    undecided.add(socket);
    let read: Buffer = Buffer.alloc(0);
    const timer = setTimeout(() => socket.destroy(), limits.protocolDecisionMs);
    const settle = (): void => {
      clearTimeout(timer);
      undecided.delete(socket);
      socket.off("readable", onReadable);
      socket.off("end", onEnd);
      socket.off("close", settle);
    };
    const onEnd = (): void => {
      socket.destroy();
    };
    const onReadable = (): void => {
      for (let chunk = socket.read() as Buffer | null; chunk !== null; chunk = socket.read() as Buffer | null) {
        read = read.length === 0 ? chunk : Buffer.concat([read, chunk]);
      }
      const compared = Math.min(read.length, PREFACE.length);
      const mayBePreface = read.subarray(0, compared).equals(PREFACE.subarray(0, compared));
      if (mayBePreface && compared < PREFACE.length) return;
      settle();
      handOver(socket, read);
    };
    socket.on("readable", onReadable);
    socket.on("end", onEnd);
    socket.on("close", settle);
  };

  const accept = (socket: net.Socket): void => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.once("close", () => sockets.delete(socket));
  };

  const socketOptions = { allowHalfOpen: true, noDelay: true, keepAlive: true };
  let server: net.Server;
  if (options.tls === undefined) {
    server = net.createServer(socketOptions, decide);
  } else {
    const secure = tls.createServer({
      ...socketOptions,
      cert: options.tls.cert,
      key: options.tls.key,
      ALPNProtocols: ["h2", "http/1.1"],
      handshakeTimeout: limits.protocolDecisionMs,
    });
    secure.on("secureConnection", (socket) => {
      socket.on("error", () => {});
      decide(socket);
    });
    secure.on("tlsClientError", (error, socket) => {
      log.debug({ err: error }, "a TLS handshake failed");
      socket.destroy();
    });
    server = secure;
  }
  server.prependListener("connection", accept);
  server.maxConnections = limits.connections;
  let dropped = false;
  server.on("drop", () => {
    // Once: a flood of connections must not become a flood of log lines.
    if (!dropped) log.warn({ connections: limits.connections }, "a connection was closed because the limit of connections is reached");
    dropped = true;
  });

  await new Promise<void>((resolve, reject) => {
    const refuse = (error: NodeJS.ErrnoException): void => reject(listenError(options, error));
    server.once("error", refuse);
    server.listen({ host: options.host, port: options.port, backlog: 1024 }, () => {
      server.off("error", refuse);
      resolve();
    });
  });
  server.on("error", (error) => log.error({ err: error }, "accepting a connection failed; the server goes on listening"));
  const { port } = server.address() as net.AddressInfo;

  const closeNow = (withinMs: number): Promise<unknown> =>
    new Promise<unknown>((resolve) => {
      const bound = setTimeout(() => {
        for (const socket of sockets) socket.destroy();
      }, withinMs);
      server.close(() => {
        clearTimeout(bound);
        http1.close();
        // The server counts a connection as gone a little before its socket is closed.
        resolve(Promise.all([...sockets].map((socket) => new Promise((gone) => socket.once("close", gone)))));
      });
      for (const socket of undecided) socket.destroy();
      http1.closeIdleConnections();
      for (const stream of answered) stream.close(http2.constants.NGHTTP2_NO_ERROR);
      for (const [session, use] of sessions) {
        // Both send GOAWAY.
        if (use.openStreams === 0) session.destroy();
        else session.close();
      }
    });

  return {
    url: `${options.tls === undefined ? "http" : "https"}://${net.isIPv6(options.host) ? `[${options.host}]` : options.host}:${port}`,
    port,
    get connectionCount() {
      return sockets.size;
    },
    close(withinMs) {
      closed ??= closeNow(withinMs).then(() => {});
      return closed;
    },
  };
}

function listenError(options: ListenerOptions, error: NodeJS.ErrnoException): Error {
  const address = `${options.host}:${options.port}`;
  const what =
    error.code === "EADDRINUSE"
      ? "the address is in use; stop the process that has it, or choose another --listen"
      : error.code === "EACCES"
        ? "this user may not open it; choose a port from 1024 up"
        : error.code === "EADDRNOTAVAIL" || error.code === "ENOTFOUND"
          ? "it is no address of this machine; choose another --listen"
          : error.message;
  return new Error(`cannot listen on ${address}: ${what}`, { cause: error });
}
