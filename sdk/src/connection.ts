/** How this package speaks HTTP: one place that knows addresses, tokens and sockets. */
import * as http from "node:http";
import * as http2 from "node:http2";
import * as https from "node:https";
import { Code, ConnectError, type Interceptor, type Transport } from "@connectrpc/connect";
import { type ConnectTransportOptions, createConnectTransport } from "@connectrpc/connect-node";
import { invalidArgument } from "./errors.js";

export interface Address {
  /** Origin and path prefix, without a trailing slash. */
  readonly baseUrl: string;
  readonly token: string | undefined;
}

export function parseAddress(baseUrl: unknown, token: string | undefined): Address {
  const url = typeof baseUrl === "string" && URL.canParse(baseUrl) ? new URL(baseUrl) : undefined;
  if (url === undefined || (url.protocol !== "http:" && url.protocol !== "https:")) {
    throw invalidArgument(`baseUrl ${JSON.stringify(baseUrl)} is no http or https address; give one like http://127.0.0.1:8080`);
  }
  if (token !== undefined && !/^[\x21-\x7e]+$/.test(token)) {
    throw invalidArgument("token: it is empty or holds characters no header can carry; give the token alone");
  }
  return { baseUrl: url.href.replace(/\/+$/, ""), token };
}

/** Keeps connections open between requests; an idle one keeps no process alive. */
export function createAgent(address: Address): http.Agent {
  const options = { keepAlive: true };
  return address.baseUrl.startsWith("https:") ? new https.Agent(options) : new http.Agent(options);
}

function authorize(token: string | undefined): Interceptor[] {
  if (token === undefined) return [];
  return [
    (next) => (request) => {
      request.header.set("Authorization", `Bearer ${token}`);
      return next(request);
    },
  ];
}

/** Connect over HTTP/1.1, which every proxy carries and which is the fastest way for unary requests. */
export function http1Transport(address: Address, agent: http.Agent, format: "binary" | "json" = "binary"): Transport {
  return createConnectTransport({
    baseUrl: address.baseUrl,
    httpVersion: "1.1",
    nodeOptions: { agent },
    useBinaryFormat: format === "binary",
    acceptCompression: [],
    interceptors: authorize(address.token),
  });
}

/** Connect over one HTTP/2 connection of its own, which `release` destroys. */
export function http2Transport(address: Address): { transport: Transport; release: () => void } {
  const connection = new Http2Connection(address.baseUrl);
  const transport = createConnectTransport({
    baseUrl: address.baseUrl,
    httpVersion: "2",
    sessionManager: connection,
    acceptCompression: [],
    interceptors: authorize(address.token),
  });
  return { transport, release: () => connection.destroy() };
}

type SessionManager = NonNullable<Extract<ConnectTransportOptions, { httpVersion: "2" }>["sessionManager"]>;

/**
 * One HTTP/2 connection for one stream, never opened again. The library's own manager stops listening to a session that has failed
 * once, and what such a session says afterwards ends the process; this one listens as long as there is a session.
 */
class Http2Connection implements SessionManager {
  readonly authority: string;
  #session: http2.ClientHttp2Session | undefined;
  #isDestroyed = false;

  constructor(baseUrl: string) {
    this.authority = new URL(baseUrl).origin;
  }

  async request(
    method: string,
    path: string,
    headers: http2.OutgoingHttpHeaders,
    options: Omit<http2.ClientSessionRequestOptions, "signal">,
  ): Promise<http2.ClientHttp2Stream> {
    if (this.#isDestroyed || this.#session !== undefined) throw new ConnectError("the connection was closed", Code.Unavailable);
    const session = http2.connect(this.authority, { settings: { enablePush: false } });
    this.#session = session;
    // Every stream of the session is told of its failure; this keeps the session's own word of it from being unheard.
    session.on("error", () => undefined);
    await new Promise<void>((resolve, reject) => {
      session.once("connect", () => resolve());
      session.once("error", reject);
      session.once("close", () => reject(new ConnectError("the connection was closed", Code.Unavailable)));
    });
    return session.request({ ...headers, ":method": method, ":path": path }, options);
  }

  notifyResponseByteRead(): void {
    // Signs of life are counted in commands, not in bytes.
  }

  destroy(): void {
    this.#isDestroyed = true;
    this.#session?.destroy();
  }
}
