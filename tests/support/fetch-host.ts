import { type ConnectJson, type Json, type JsonAnswer, read } from "./connect-json.js";

/**
 * A host written with nothing but fetch: commands as server-sent events, everything else as JSON POSTs. The whole of
 * what a program in any language needs.
 */
export class FetchHost {
  readonly hostId: string;
  readonly instanceId: string;
  readonly wire: ConnectJson;
  #stream: CommandEvents | undefined;

  constructor(wire: ConnectJson, hostId: string, instanceId: string = crypto.randomUUID()) {
    this.wire = wire;
    this.hostId = hostId;
    this.instanceId = instanceId;
  }

  /** Takes the API token to register, and its own token afterwards. */
  static async register(wire: ConnectJson, displayName = "fetch"): Promise<FetchHost> {
    const { hostId, hostToken } = await wire.ask("HostService/RegisterHost", { displayName });
    return new FetchHost(wire.as(hostToken), hostId);
  }

  get stream(): CommandEvents {
    if (this.#stream === undefined) throw new Error("the host has not attached");
    return this.#stream;
  }

  /** GET with the instance in the query: it keeps no list. */
  async attachByGet(): Promise<Json> {
    this.#stream = await CommandEvents.open(this.#commandsUrl(`?instance_id=${this.instanceId}`), { headers: this.wire.authorization });
    return (await this.#stream.next()).attached;
  }

  /** POST with a HostAttachment, which can say what it holds. */
  async attachByPost(attachment: { generation: number; heldCalls?: { calls: Json[] } } & Json): Promise<Json> {
    this.#stream = await CommandEvents.open(this.#commandsUrl(), {
      method: "POST",
      headers: { "Content-Type": "application/json", ...this.wire.authorization },
      body: JSON.stringify({ instanceId: this.instanceId, ...attachment }),
    });
    return (await this.#stream.next()).attached;
  }

  #commandsUrl(query = ""): string {
    return `${this.wire.url}/v1/hosts/${this.hostId}/commands${query}`;
  }

  /** The next RunTool, skipping signs of life. */
  async runTool(): Promise<Json> {
    return (await this.stream.nextOf("runTool")).runTool;
  }

  emit(call: Json, kind: string, data: unknown, emitId: string = crypto.randomUUID()): Promise<JsonAnswer> {
    const { sessionId, callSequence } = call;
    return this.wire.post("HostService/EmitEvent", { sessionId, callSequence, kind, dataJson: JSON.stringify(data), emitId });
  }

  report(call: Json, outcome: Json): Promise<JsonAnswer> {
    const { sessionId, callSequence } = call;
    return this.wire.post("HostService/ReportOutcome", { sessionId, callSequence, outcome });
  }

  heartbeat(calls: Json[]): Promise<JsonAnswer> {
    return this.wire.post("HostService/Heartbeat", { hostId: this.hostId, instanceId: this.instanceId, heldCalls: { calls } });
  }

  detach(generation: number, calls: Json[] = []): Promise<JsonAnswer> {
    return this.wire.post("HostService/Detach", { hostId: this.hostId, instanceId: this.instanceId, generation, heldCalls: { calls } });
  }

  drop(): void {
    this.#stream?.drop();
  }
}

/** Raised when a command stream is refused instead of opened. */
export class StreamRefused extends Error {
  readonly answer: JsonAnswer;

  constructor(answer: JsonAnswer) {
    super(`the stream was refused ${answer.reason ?? answer.code}: ${answer.message}`);
    this.answer = answer;
  }
}

/** Server-sent events, as few as it takes: the data of each event, in order. */
export class CommandEvents {
  readonly headers: Headers;
  readonly #controller: AbortController;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #decoder = new TextDecoder();
  #read = "";

  private constructor(response: Response, controller: AbortController) {
    if (response.body === null) throw new Error("the stream has no body");
    this.headers = response.headers;
    this.#controller = controller;
    this.#reader = response.body.getReader();
  }

  /** @throws StreamRefused */
  static async open(url: string, request: RequestInit): Promise<CommandEvents> {
    const controller = new AbortController();
    const response = await fetch(url, { ...request, signal: controller.signal });
    if (response.status !== 200) throw new StreamRefused(read(response.status, await response.text()));
    return new CommandEvents(response, controller);
  }

  /** The next event's data; undefined when the stream has ended. */
  async event(): Promise<{ name: string; data: Json } | undefined> {
    for (;;) {
      const end = this.#read.indexOf("\n\n");
      if (end >= 0) {
        const lines = this.#read.slice(0, end).split("\n");
        this.#read = this.#read.slice(end + 2);
        const field = (name: string): string[] =>
          lines.flatMap((line) => (line.startsWith(`${name}: `) ? [line.slice(name.length + 2)] : []));
        const data = field("data");
        if (data.length > 0) return { name: field("event")[0] ?? "message", data: JSON.parse(data.join("\n")) };
        continue;
      }
      const { done, value } = await this.#reader.read();
      if (done) return undefined;
      this.#read += this.#decoder.decode(value, { stream: true });
    }
  }

  async next(): Promise<Json> {
    const event = await this.event();
    if (event === undefined) throw new Error("the command stream has ended");
    return event.data;
  }

  /** The next command of this kind. */
  async nextOf(kind: string): Promise<Json> {
    for (;;) {
      const command = await this.next();
      if (command[kind] !== undefined) return command;
    }
  }

  drop(): void {
    this.#controller.abort();
  }
}
