/** Connect as JSON over HTTP/1.1, by fetch alone: what curl does, and what a program without any library can do. */
export interface JsonAnswer {
  readonly httpStatus: number;
  readonly body: Json;
  /** Of a refusal: its Connect code, its message, and the `ErrorReason` that came with it. */
  readonly code: string | undefined;
  readonly message: string;
  readonly reason: string | undefined;
  readonly metadata: Readonly<Record<string, string>>;
}

/** Whatever JSON came: a test says what it expects of it. */
// biome-ignore lint/suspicious/noExplicitAny: reading a stranger's JSON member by member is what these tests are about.
export type Json = any;

export type Service = "SessionService" | "ToolCallService" | "HostService";

export class ConnectJson {
  readonly url: string;
  readonly #token: string | undefined;

  constructor(url: string, token?: string) {
    this.url = url;
    this.#token = token;
  }

  /** The same server, with another token or none. */
  as(token: string | undefined): ConnectJson {
    return new ConnectJson(this.url, token);
  }

  get authorization(): Record<string, string> {
    return this.#token === undefined ? {} : { Authorization: `Bearer ${this.#token}` };
  }

  /** One unary RPC. A text is sent as it is; anything else as its JSON. */
  async post(rpc: `${Service}/${string}`, message: unknown, headers: Readonly<Record<string, string>> = {}): Promise<JsonAnswer> {
    const response = await fetch(`${this.url}/brain.v1.${rpc}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...this.authorization, ...headers },
      body: typeof message === "string" ? message : JSON.stringify(message),
    });
    return read(response.status, await response.text());
  }

  /** The frames of one server-streaming RPC to its end; the last one is how it ended. */
  async frames(rpc: `${Service}/${string}`, message: unknown): Promise<{ messages: Json[]; end: JsonAnswer }> {
    const text = Buffer.from(JSON.stringify(message));
    const head = Buffer.alloc(5);
    head.writeUInt32BE(text.length, 1);
    const response = await fetch(`${this.url}/brain.v1.${rpc}`, {
      method: "POST",
      headers: { "Content-Type": "application/connect+json", ...this.authorization },
      body: Buffer.concat([head, text]),
    });
    const bytes = Buffer.from(await response.arrayBuffer());
    const messages: Json[] = [];
    for (let at = 0; at < bytes.length; at += 5 + bytes.readUInt32BE(at + 1)) {
      const frame = bytes.subarray(at + 5, at + 5 + bytes.readUInt32BE(at + 1)).toString();
      const isEnd = (bytes.readUInt8(at) & 2) !== 0;
      if (isEnd) return { messages, end: read(response.status, JSON.stringify(JSON.parse(frame).error ?? {})) };
      messages.push(JSON.parse(frame));
    }
    throw new Error(`the stream of ${rpc} ended without saying how`);
  }

  /** The body of one that must succeed. */
  async ask(rpc: `${Service}/${string}`, message: unknown): Promise<Json> {
    const answer = await this.post(rpc, message);
    if (answer.httpStatus !== 200) throw new Error(`${rpc} was refused ${answer.reason ?? answer.code}: ${answer.message}`);
    return answer.body;
  }
}

/** What a refusal says, whichever route it came by. */
export function read(httpStatus: number, text: string): JsonAnswer {
  const body: Json = text === "" ? undefined : JSON.parse(text);
  const [detail] = (body?.details ?? []) as { type: string; debug?: { reason?: string; metadata?: Record<string, string> } }[];
  const isReason = detail?.type === "brain.v1.ErrorReason";
  return {
    httpStatus,
    body,
    code: body?.code,
    message: body?.message ?? "",
    reason: isReason ? detail.debug?.reason : undefined,
    metadata: isReason ? (detail.debug?.metadata ?? {}) : {},
  };
}
