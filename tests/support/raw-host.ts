import {
  type CallReference,
  CallReferenceSchema,
  type CancelCall,
  type Command,
  EmitEventRequestSchema,
  type HeldCalls,
  HeldCallsSchema,
  HostAttachmentSchema,
  type HostInstance,
  type Outcome,
  ReportOutcomeRequestSchema,
  type RunTool,
} from "@aexhq/brain-proto";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { CommandStream } from "../../server/src/environments/host/command-stream.js";
import type { Brain } from "../../server/src/runtime/brain.js";
import type { Reported } from "../../server/src/runtime/live-call.js";
import { TIMES } from "./brain-in-process.js";
import type { VirtualClock } from "./virtual-clock.js";

/** How an instance names a call. */
export type CallNamed = Pick<CallReference, "sessionId" | "callSequence">;

/** What an instance says it holds: the calls, or that it keeps no list. */
export type ListWish = readonly CallNamed[] | "no list";

export interface AttachWish {
  /** One higher than the last without it. */
  readonly generation?: number;
  /** What it really holds without it. */
  readonly list?: ListWish;
  readonly maxConcurrentCalls?: number;
  readonly servedTools?: MessageInitShape<typeof HostAttachmentSchema>["servedTools"];
  /** False leaves everything on the stream unread, `attached` included. */
  readonly reading?: boolean;
}

interface Connection {
  readonly stream: CommandStream;
  dropped: boolean;
  ended: boolean;
  refusal: Error | undefined;
}

/** A host whose instances do exactly what a test tells them, by calling the host protocol of a Brain in this process. */
export class RawHost {
  readonly hostId: string;
  readonly brain: () => Brain;
  readonly clock: VirtualClock;
  readonly onRunTool: (key: string) => void;
  #instances = 0;

  constructor(hostId: string, brain: () => Brain, clock: VirtualClock, onRunTool: (key: string) => void) {
    this.hostId = hostId;
    this.brain = brain;
    this.clock = clock;
    this.onRunTool = onRunTool;
  }

  /** A process that has not attached yet. */
  instance(instanceId = `${this.hostId.slice(0, 8)}-${++this.#instances}`): RawInstance {
    return new RawInstance(this, instanceId);
  }

  /** A process that has attached and sends heartbeats, so that time can pass. */
  async attached(wish: AttachWish = {}): Promise<RawInstance> {
    const instance = this.instance();
    await instance.attach(wish);
    instance.beat();
    return instance;
  }

  async seen(instance: RawInstance): Promise<HostInstance | undefined> {
    const { instances } = await this.brain().hosts.get(this.hostId);
    return instances.find(({ instanceId }) => instanceId === instance.instanceId);
  }
}

export class RawInstance {
  readonly instanceId: string;
  /** Of its newest attempt to attach. */
  generation = 0;
  /** Every command it has read, of all its streams. */
  readonly commands: Command["kind"][] = [];
  readonly #host: RawHost;
  readonly #held = new Map<string, CallReference>();
  #untaken: RunTool[] = [];
  #connection: Connection | undefined;
  #disarm: (() => void) | undefined;
  #emits = 0;

  constructor(host: RawHost, instanceId: string) {
    this.#host = host;
    this.instanceId = instanceId;
  }

  /** Drops its stream, makes its list and attaches in one step. @throws Refusal */
  async attach(wish: AttachWish = {}): Promise<void> {
    this.drop();
    this.generation = wish.generation ?? this.generation + 1;
    await this.#attach(wish);
  }

  /** Attaches beside its open stream, as one that arrives late or out of order does. @throws Refusal */
  async attachBeside(wish: AttachWish & { readonly generation: number }): Promise<void> {
    await this.#attach(wish);
  }

  async #attach(wish: AttachWish): Promise<void> {
    const { hostId, clock } = this.#host;
    const generation = wish.generation ?? this.generation;
    const attachment = create(HostAttachmentSchema, {
      hostId,
      instanceId: this.instanceId,
      generation,
      maxConcurrentCalls: wish.maxConcurrentCalls ?? 0,
      servedTools: wish.servedTools ?? [],
    });
    const list = this.#list(wish.list);
    if (list !== undefined) attachment.heldCalls = list;
    const stream = await this.#host.brain().hosts.attach(hostId, attachment);
    const connection: Connection = { stream, dropped: false, ended: false, refusal: undefined };
    this.#connection = connection;
    if (wish.reading !== false) void this.#read(connection);
    await clock.settle();
  }

  async #read(connection: Connection): Promise<void> {
    try {
      for await (const { message } of connection.stream) {
        if (connection.dropped) return;
        if (message.case !== "command") continue;
        const { kind } = message.value;
        this.commands.push(kind);
        if (kind.case !== "runTool") continue;
        const key = keyOf(kind.value);
        this.#held.set(key, create(CallReferenceSchema, { sessionId: kind.value.sessionId, callSequence: kind.value.callSequence }));
        this.#untaken.push(kind.value);
        this.#host.onRunTool(key);
      }
    } catch (error) {
      connection.refusal = error instanceof Error ? error : new Error(String(error));
    } finally {
      connection.ended = true;
    }
  }

  /** Reads what was left unread. */
  async readOn(): Promise<void> {
    if (this.#connection === undefined) throw new Error(`instance ${this.instanceId} has no stream`);
    void this.#read(this.#connection);
    await this.#host.clock.settle();
  }

  /** Loses its stream and reads nothing more from it. */
  drop(): void {
    if (this.#connection === undefined) return;
    this.#connection.dropped = true;
    this.#connection.stream.close();
  }

  /** Whether its newest stream has ended, and why. */
  get stream(): { ended: boolean; refusal: Error | undefined } {
    return { ended: this.#connection?.ended ?? true, refusal: this.#connection?.refusal };
  }

  /** The next RunTool it has read. */
  async runTool(): Promise<RunTool> {
    await this.#host.clock.settle();
    const next = this.#untaken.shift();
    if (next === undefined) throw new Error(`instance ${this.instanceId} was sent no call that the test has not taken`);
    return next;
  }

  /** The calls it was sent, taken or not. */
  get runTools(): RunTool[] {
    return this.commands.flatMap((command) => (command.case === "runTool" ? [command.value] : []));
  }

  get cancels(): CancelCall[] {
    return this.commands.flatMap((command) => (command.case === "cancelCall" ? [command.value] : []));
  }

  get held(): CallReference[] {
    return [...this.#held.values()];
  }

  /** Takes over a call of another process, found in a file of its. */
  holdAlso({ sessionId, callSequence }: CallNamed): void {
    const call = create(CallReferenceSchema, { sessionId, callSequence });
    this.#held.set(keyOf(call), call);
  }

  /** What the newest `attached` told it has ended. */
  get ended(): CallNamed[] {
    const attached = this.commands.findLast((command) => command.case === "attached");
    return attached?.case === "attached" ? attached.value.ended.map(plain) : [];
  }

  /** One sign of life; answers which of the list have ended. @throws Refusal */
  heartbeat(list?: ListWish): CallNamed[] {
    return this.#host.brain().hosts.heartbeat(this.#host.hostId, this.instanceId, this.#list(list)).map(plain);
  }

  /** Sends a heartbeat every period, until `silence`. */
  beat(everyMs: number = TIMES.heartbeatMs): void {
    this.silence();
    this.#disarm = this.#host.clock.after(everyMs, () => {
      try {
        this.heartbeat();
      } catch {
        // A heartbeat that is refused or meets no server changes nothing for one that goes on beating.
      }
      this.beat(everyMs);
    });
  }

  /** Says nothing from now on. */
  silence(): void {
    this.#disarm?.();
    this.#disarm = undefined;
  }

  /** Dies: nothing is heard of it any more and its stream is gone. */
  die(): void {
    this.silence();
    this.drop();
  }

  async report(call: CallNamed, outcome: Outcome): Promise<Reported> {
    const { sessionId, callSequence } = call;
    const request = create(ReportOutcomeRequestSchema, { sessionId, callSequence, outcome });
    const reported = await this.#host.brain().hosts.report(this.#host.hostId, request);
    this.#held.delete(keyOf(call));
    return reported;
  }

  emit(call: CallNamed, event: { kind?: string; dataJson?: string; emitId?: string } = {}): Promise<number> {
    const { sessionId, callSequence } = call;
    const { kind = "tick", dataJson = "{}", emitId = `${this.instanceId}-emit-${++this.#emits}` } = event;
    return this.#host
      .brain()
      .hosts.emit(this.#host.hostId, create(EmitEventRequestSchema, { sessionId, callSequence, kind, dataJson, emitId }));
  }

  /** @throws Refusal */
  async detach(wish: { list?: ListWish; generation?: number } = {}): Promise<void> {
    this.#host.brain().hosts.detach(this.#host.hostId, this.instanceId, wish.generation ?? this.generation, this.#list(wish.list));
    await this.#host.clock.settle();
  }

  #list(wish: ListWish | undefined): HeldCalls | undefined {
    if (wish === "no list") return undefined;
    const calls = (wish ?? this.held).map(({ sessionId, callSequence }) => ({ sessionId, callSequence }));
    return create(HeldCallsSchema, { calls });
  }
}

function keyOf({ sessionId, callSequence }: CallNamed): string {
  return `${sessionId}/${callSequence}`;
}

function plain({ sessionId, callSequence }: CallNamed): CallNamed {
  return { sessionId, callSequence };
}
