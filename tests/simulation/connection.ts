import {
  type AttachRequest,
  AttachRequestSchema,
  type AttachResponse,
  type Command,
  type HostAttachment,
  type WatchCommandsRequest,
  WatchCommandsRequestSchema,
} from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { acceptAttach } from "./accepted.js";
import { type Ground, latency } from "./ground.js";
import { refusalReason } from "./requests.js";
import type { BrainLife } from "./server.js";
import { keyOf } from "./truth.js";

export type FromServer =
  | { readonly type: "command"; readonly kind: Command["kind"] }
  | { readonly type: "answer"; readonly messageId: number; readonly message: AttachResponse["message"] }
  /** The stream ended; `reason` is the refusal it ended with. */
  | { readonly type: "end"; readonly reason: string | undefined };

/** How a request looks from the server's side. */
export interface SeenAtServer {
  arrived(life: BrainLife, isSure: boolean): void;
  answered(life: BrainLife, message: AttachResponse["message"]): void;
}

/** Who the connection belongs to, and how well the two hear each other. */
export interface Reader {
  readonly hostId: string;
  readonly instanceId: string;
  /** Nothing travels between it and the server before this moment. */
  readonly frozenUntil: number;
  readonly keepsList: boolean;
  take(connection: Connection, message: FromServer): void;
}

/**
 * One attach and its stream, from the process that opens it to the server and back.
 *
 * 1. What travels one way keeps its order; the two ways, and two connections, know nothing of each other.
 * 2. A connection that is cut delivers nothing that was still on its way; each end learns of it late, or never.
 * 3. The server writes no more than the window allows before the reader takes something.
 */
export class Connection {
  readonly #ground: Ground;
  readonly #reader: Reader;
  readonly #token: string;
  readonly route: "attach" | "watch";
  readonly attachment: HostAttachment;
  /** Of the accepted attach: what the server said, where it gave the number. */
  generation: number;
  /** The host reads and writes it. */
  hostOpen = true;
  /** The server writes it. */
  serverOpen = false;
  /** Nothing gets through any more. */
  #cut = false;
  #life: BrainLife | undefined;
  #stream: AsyncIterator<unknown> | undefined;
  #abort: AbortController | undefined;
  #accepted = false;
  #pulling = false;
  #onItsWay = 0;
  #blockedAt = 0;
  #toHostAt = 0;
  #toServerAt = 0;
  readonly #requests = new Requests();
  readonly #early: ((life: BrainLife) => void)[] = [];
  readonly #seen = new Map<number, SeenAtServer>();
  #messageId = 1;
  #forgetDeath: (() => void) | undefined;

  /** `token` is the host's whose token is shown. */
  constructor(ground: Ground, reader: Reader, route: "attach" | "watch", attachment: HostAttachment, token = attachment.hostId) {
    this.#token = token;
    this.#ground = ground;
    this.#reader = reader;
    this.route = route;
    this.attachment = attachment;
    this.generation = attachment.generation;
  }

  /** Sends the attach; it arrives after `delayMs` or is lost. */
  open(delayMs: number): void {
    this.#toServer(() => this.#arrive(), delayMs);
  }

  /** A request on this stream; `seen` is called when it arrives and when it is answered, at the server. Returns its number. */
  send(message: AttachRequest["message"], seen: SeenAtServer): number {
    const messageId = ++this.#messageId;
    this.#seen.set(messageId, seen);
    this.#toServer(() => {
      if (this.serverOpen && this.#life?.alive === true) {
        const fault = message.case === "heartbeat" ? undefined : this.#ground.faults.at("request");
        if (fault === "lost before") return this.cut(true, true);
        if (fault === "crash before") return this.#ground.server.crash(100);
        if (fault !== undefined) this.#afterRead(fault);
        // That the server has closed the stream can be seen here only while a message is asked of it.
        const isSure = this.#pulling;
        const read = (life: BrainLife, isSure: boolean): void => {
          life.view.hear(this.#reader.instanceId, this.#ground.schedule.now, isSure);
          seen.arrived(life, isSure);
        };
        // What comes behind an attach is read when that was accepted, perhaps before the acceptance can be seen here.
        read(this.#life, isSure && this.#accepted);
        if (!this.#accepted) this.#early.push((life) => read(life, true));
        this.#requests.push(create(AttachRequestSchema, { messageId, message }));
        if (!this.hostOpen) this.#ground.reached.reach("requests on a stream, overtaken by a newer stream");
      }
    }, latency(this.#ground));
    return messageId;
  }

  /** What goes wrong when the request that is about to be read has had its effect. */
  #afterRead(fault: "lost after" | "crash after"): void {
    const { schedule, server } = this.#ground;
    schedule.after(0, () => (fault === "lost after" ? this.cut(true, true) : server.crash(100)));
  }

  /** The server ends the stream, as it does when it learns that nobody reads it; its host learns that later. */
  loseAtServer(): void {
    this.#closeAtServer();
    this.cut(true, false);
  }

  /** The host reads no more of it. The server learns of it, unless nothing gets through. */
  drop(): void {
    if (!this.hostOpen) return;
    this.hostOpen = false;
    this.#toServer(() => this.#closeAtServer(), latency(this.#ground) + (this.#ground.random.chance(0.2) ? 500 : 0));
  }

  /** When the server last had more to write than the window takes; Infinity when it has now, or may not write. */
  blockedAt(): number {
    return this.#onItsWay >= this.#ground.weather.windowMessages || !this.serverOpen ? Number.POSITIVE_INFINITY : this.#blockedAt;
  }

  /** Nothing that is on its way arrives. Each end learns of it after some time, or not. */
  cut(tellHost: boolean, tellServer: boolean): void {
    if (this.#cut) return;
    this.#cut = true;
    const { schedule, random } = this.#ground;
    if (tellHost) schedule.after(random.next() * 200, () => this.#deliver({ type: "end", reason: undefined }));
    if (tellServer) schedule.after(random.next() * 200, () => this.#closeAtServer());
  }

  // -- towards the server ----------------------------------------------------------------------------------------

  #toServer(run: () => void, delayMs: number): void {
    const { schedule, server } = this.#ground;
    const now = schedule.now;
    this.#toServerAt = Math.max(this.#toServerAt, now + delayMs, this.#reader.frozenUntil);
    schedule.after(this.#toServerAt - now, () => {
      if (this.#cut) return;
      server.reach(run, () => this.#unreachable());
    });
  }

  #unreachable(): void {
    const { schedule } = this.#ground;
    schedule.after(latency(this.#ground), () => this.#deliver({ type: "end", reason: undefined }));
  }

  #arrive(): void {
    const { server, trace, reached, random } = this.#ground;
    const life = server.life;
    if (life === undefined) return;
    const { instanceId, generation } = this.attachment;
    trace.note(`attach of ${instanceId} ${generation} arrives${this.hostOpen ? "" : " (given up by its host)"}`);
    const newest = life.view.generation.get(instanceId) ?? 0;
    if (generation !== 0 && newest > generation) reached.reach("attach that arrives after a newer one");
    // It may be accepted after the host has given it up, and that cannot be seen here.
    life.view.slots.set(`${instanceId} ${generation}`, Math.min(this.attachment.maxConcurrentCalls || 50, 50));
    life.view.hear(instanceId, this.#ground.schedule.now, false);
    if (generation === 0) life.view.unnumbered.add(instanceId);
    this.#life = life;
    this.#abort = new AbortController();
    const context = server.context(this.#token, this.#abort.signal);
    if (this.route === "watch") {
      const request: WatchCommandsRequest = create(WatchCommandsRequestSchema, { attachment: this.attachment });
      this.#stream = life.protocol.watchCommands(request, context)[Symbol.asyncIterator]();
    } else {
      this.#requests.push(create(AttachRequestSchema, { messageId: 1, message: { case: "attachment", value: this.attachment } }));
      this.#stream = life.protocol.attach(this.#requests, context)[Symbol.asyncIterator]();
    }
    this.serverOpen = true;
    this.#forgetDeath = life.onDeath(() => {
      this.serverOpen = false;
      // A machine that is gone says nothing; a process that is gone leaves a kernel that does.
      if (random.chance(0.8)) this.#serverEnded(undefined);
      else this.#cut = true;
    });
    this.#pull();
  }

  #closeAtServer(): void {
    if (!this.serverOpen) return;
    this.serverOpen = false;
    this.#forgetDeath?.();
    this.#requests.end();
    if (!this.#accepted) this.#life?.view.hear(this.#reader.instanceId, this.#ground.schedule.now + READ_MS, false);
    this.#abort?.abort();
    // As the library does when its peer is gone.
    this.#stream?.return?.().catch(() => undefined);
  }

  // -- towards the host ------------------------------------------------------------------------------------------

  #pull(): void {
    const { weather, schedule } = this.#ground;
    const life = this.#life;
    if (this.#pulling || !this.serverOpen || life === undefined || this.#onItsWay >= weather.windowMessages) return;
    if (life.stalledUntil > schedule.now) {
      schedule.after(life.stalledUntil - schedule.now, () => this.#pull());
      return;
    }
    this.#pulling = true;
    this.#stream?.next().then(
      (next) => {
        this.#pulling = false;
        if (!life.alive || !this.serverOpen) return;
        if (next.done === true) return this.#serverEnded(undefined);
        this.#written(life, messageOf(next.value, this.route));
        this.#pull();
      },
      (error: unknown) => {
        this.#pulling = false;
        if (life.alive && this.serverOpen) this.#serverEnded(refusalReason(this.#ground, error));
      },
    );
  }

  #written(life: BrainLife, message: FromServer): void {
    const { oracle, trace } = this.#ground;
    const { instanceId } = this.#reader;
    if (message.type === "command") {
      const { kind } = message;
      if (kind.case === "attached") {
        if (this.#accepted) oracle.fail(`${instanceId} is told twice that its attach is accepted`, [instanceId]);
        this.#accepted = true;
        this.generation = kind.value.generation;
        acceptAttach(this.#ground, life, this);
        for (const read of this.#early.splice(0)) read(life);
        oracle.toldEnded(this.#reader.hostId, kind.value.ended);
      } else if (!this.#accepted) oracle.fail(`${instanceId} is told ${kind.case} before its attach is accepted`, [instanceId]);
      if (kind.case === "runTool") {
        const key = keyOf(kind.value);
        trace.note(`write runTool ${trace.name(kind.value.sessionId, kind.value.callSequence)} to ${instanceId} ${this.generation}`);
        this.#faultAtWrite();
        oracle.wrote(life.view, key, { instanceId, generation: this.generation }, oracle.rowOf(key));
      }
      if (kind.case === "cancelCall" && oracle.rowOf(keyOf(kind.value))?.endSequence === undefined) {
        oracle.failCall(keyOf(kind.value), "is stopped before its ending is durable (L2)");
      }
    }
    if (message.type === "answer") this.#seen.get(message.messageId)?.answered(life, message.message);
    this.#onItsWay++;
    this.#toHost(message);
  }

  #faultAtWrite(): void {
    const { faults, schedule, server } = this.#ground;
    const fault = faults.at("write");
    if (fault === "stream lost") this.cut(true, true);
    // What is being committed in this step is committed.
    if (fault === "crash") schedule.after(0, () => server.crash(100));
  }

  #serverEnded(reason: string | undefined): void {
    this.serverOpen = false;
    this.#forgetDeath?.();
    this.#requests.end();
    if (reason !== undefined) this.#ground.reached.reach(`refusal ${reason}` as "refusal attach_superseded");
    this.#toHost({ type: "end", reason });
  }

  #toHost(message: FromServer): void {
    const { schedule } = this.#ground;
    const now = schedule.now;
    this.#toHostAt = Math.max(this.#toHostAt, now + latency(this.#ground), this.#reader.frozenUntil);
    schedule.after(this.#toHostAt - now, () => {
      if (this.#cut) {
        if (message.type === "command" && message.kind.case === "runTool") this.#ground.reached.reach("command lost with its stream");
        return;
      }
      // A freeze that began meanwhile holds it too.
      if (this.#reader.frozenUntil > schedule.now) return this.#toHost(message);
      if (this.#onItsWay >= this.#ground.weather.windowMessages) this.#blockedAt = schedule.now;
      this.#onItsWay--;
      this.#deliver(message);
      this.#pull();
    });
  }

  #deliver(message: FromServer): void {
    if (this.hostOpen) this.#reader.take(this, message);
    else if (message.type !== "end") this.#ground.reached.reach("message on a stream that its host has dropped");
  }
}

/** The longest that the server looks a host up. */
const READ_MS = 10;

function messageOf(value: unknown, route: "attach" | "watch"): FromServer {
  if (route === "watch") return { type: "command", kind: (value as { command: Command }).command.kind };
  const { message, answersMessageId } = value as AttachResponse;
  if (message.case === "command") return { type: "command", kind: message.value.kind };
  return { type: "answer", messageId: answersMessageId ?? 0, message };
}

/** The requests of one stream, as the server reads them. */
class Requests implements AsyncIterable<AttachRequest> {
  readonly #queue: AttachRequest[] = [];
  #ended = false;
  #wake: () => void = () => undefined;

  push(request: AttachRequest): void {
    this.#queue.push(request);
    this.#wake();
  }

  end(): void {
    this.#ended = true;
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<AttachRequest> {
    for (;;) {
      const next = this.#queue.shift();
      if (next !== undefined) yield next;
      else if (this.#ended) return;
      else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }
}
