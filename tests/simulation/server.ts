import { HostService } from "@aexhq/brain-proto";
import type { ConnectRouter, ContextValues, HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { createContextValues } from "@connectrpc/connect";
import { defaultConfig } from "../../server/src/config.js";
import type { AppendFailure, Entry, Journal } from "../../server/src/journal/port.js";
import { authorize, type Principal } from "../../server/src/rpc/authorize.js";
import { registerHostService } from "../../server/src/rpc/host-service.js";
import { type Brain, createBrain } from "../../server/src/runtime/brain.js";
import type { Clock } from "../../server/src/runtime/clock.js";
import type { Log } from "../../server/src/runtime/log.js";
import type { Validator, Verdict } from "../../server/src/validation/port.js";
import { type AppendWatch, MemoryJournal, type MemoryJournalFate } from "../support/memory-journal.js";
import type { Ground } from "./ground.js";
import { LifeView } from "./life-view.js";
import { type Ask, keyOf } from "./truth.js";

const START_WALL_MS = Date.UTC(2026, 0, 1);
/** What the server sees of its process starting: it does not begin at zero either. */
const START_MONOTONIC_MS = 1000;

/** The real implementation of the host protocol, without its port. */
export type HostProtocol = ServiceImpl<typeof HostService>;

/** A journal that dies with one life of the server. */
export interface LifeJournal extends Journal {
  die(): void;
  /** Appends that are durable, and who asked for them has not heard of it. */
  readonly unheard: number;
}

/** Opens the journal of a life over what is durable. */
export type OpenJournal = (ground: Ground, clock: Clock, watch: AppendWatch) => LifeJournal;

export const openMemoryJournal: OpenJournal = (ground, clock, watch) => new MemoryJournal(ground.file, new Fate(ground, clock), watch);

/** One life of the server: everything in it dies with it, except what is durable. */
export class BrainLife {
  readonly brain: Brain;
  readonly journal: LifeJournal;
  readonly protocol: HostProtocol;
  readonly view: LifeView;
  readonly number: number;
  alive = true;
  /** It listens: it can be reached. */
  listens = false;
  stalledUntil = 0;
  readonly #onDeath = new Set<() => void>();

  constructor(ground: Ground, number: number, openJournal: OpenJournal) {
    this.number = number;
    const { file, weather, schedule } = ground;
    this.view = new LifeView(schedule.now, weather.graceMs, file.open.values());
    const clock = new LifeClock(ground, this);
    this.journal = openJournal(ground, clock, appendWatch(ground, this));
    const { heartbeatMs, graceMs: hostGraceMs, hostWaitMs, toolTimeoutMs } = weather;
    const config = { ...defaultConfig(), heartbeatMs, hostGraceMs, hostWaitMs, toolTimeoutMs, hostConcurrency: 50 };
    const log = lifeLog(ground, this);
    const validator = new SmallValidator(ground, clock);
    this.brain = createBrain({ journal: this.journal, clock, validator, config, log, serverVersion: "simulated" });
    this.protocol = protocolOf(this.brain, log);
  }

  async start(ground: Ground): Promise<void> {
    const open = await this.brain.recover();
    if (!this.alive) return;
    this.brain.listening();
    this.listens = true;
    this.view.listeningAt = ground.schedule.now;
    ground.trace.note(`brain life ${this.number} listens, ${open} open`);
  }

  /** What was connected to it learns that it died. */
  onDeath(run: () => void): () => void {
    this.#onDeath.add(run);
    return () => this.#onDeath.delete(run);
  }

  die(): void {
    this.alive = false;
    this.listens = false;
    this.journal.die();
    for (const run of this.#onDeath) run();
    this.#onDeath.clear();
  }
}

/** The seat of the server: at most one life at a time, and what can be done to it. */
export class Server {
  readonly #ground: () => Ground;
  readonly #openJournal: OpenJournal;
  #life: BrainLife | undefined;
  #lives = 0;
  #crashInGap: number | undefined;
  /** The wall clock is ahead of the schedule by this. */
  wallStepMs = 0;
  /** Why appends are refused at the moment, and until when. */
  trouble: { failure: AppendFailure; until: number } | undefined;
  readonly #troubles: { from: number; until: number }[] = [];
  readonly principals = new Map<string, ContextValues>();

  constructor(ground: () => Ground, openJournal: OpenJournal) {
    this.#ground = ground;
    this.#openJournal = openJournal;
  }

  get life(): BrainLife | undefined {
    return this.#life;
  }

  refuseAppends(failure: AppendFailure, until: number): void {
    this.trouble = { failure, until };
    this.#troubles.push({ from: this.#ground().schedule.now, until });
  }

  /** Whether no append could be made at some moment between the two. */
  wasInTrouble(from: number, to: number): boolean {
    return this.#troubles.some((trouble) => trouble.from <= to && trouble.until >= from);
  }

  wallMs(): number {
    return START_WALL_MS + this.#ground().schedule.now + this.wallStepMs;
  }

  start(): void {
    const life = new BrainLife(this.#ground(), ++this.#lives, this.#openJournal);
    this.#life = life;
    life.start(this.#ground()).catch((error: unknown) => this.#ground().oracle.fail(`the server cannot start: ${describe(error)}`));
  }

  /** As SIGKILL does. */
  crash(downMs: number): void {
    const ground = this.#ground();
    const life = this.#life;
    if (life === undefined) return;
    const { file, reached, schedule, trace, truth } = ground;
    trace.note(`brain life ${life.number} crashes`);
    if (file.open.size > 0) reached.reach("crash with an open call");
    for (const key of life.view.open.keys()) if (!file.open.has(key)) reached.reach("crash with a start that is not durable");
    for (const key of file.open.keys()) if (!life.view.open.has(key)) reached.reach("crash with an ending that is not durable");
    if (life.journal.unheard > 0) reached.reach("crash between a commit and its answer");
    const waits = (ask: Ask): boolean =>
      ask.over === undefined &&
      ask.lastArrivalMs !== undefined &&
      ask.lastArrivalMs >= life.view.startedAt &&
      schedule.now - ask.lastArrivalMs > 100;
    if ([...truth.asks.values()].some((ask) => waits(ask) && file.call(ask.sessionId, ask) === undefined)) {
      reached.reach("crash while a call waits for a slot");
    }
    this.#life = undefined;
    life.die();
    schedule.after(downMs, () => this.start());
  }

  /** Crashes when the next commit is made and nobody has heard of it. */
  crashBetweenCommitAndAnswer(downMs: number): void {
    this.#crashInGap = downMs;
  }

  /** A commit was just made. True when the server will not live to hear of it. */
  committed(): boolean {
    if (this.#crashInGap === undefined || this.#ground().calm) return false;
    const downMs = this.#crashInGap;
    this.#crashInGap = undefined;
    this.#ground().schedule.after(0, () => this.crash(downMs));
    return true;
  }

  /** As SIGTERM does. */
  restart(drainMs: number, downMs: number): void {
    const life = this.#life;
    if (life === undefined || !life.listens) return;
    const { trace, schedule, reached, file } = this.#ground();
    trace.note(`brain life ${life.number} drains`);
    life.brain.drain(drainMs).then(
      () => {
        // What it still writes is read within a moment; then the process exits.
        schedule.after(50, () => {
          if (this.#life !== life) return;
          trace.note(`brain life ${life.number} exits`);
          if (file.open.size > 0) reached.reach("restart with an open call");
          this.#life = undefined;
          life.die();
          schedule.after(downMs, () => this.start());
        });
      },
      (error: unknown) => this.#ground().oracle.fail(`draining failed: ${describe(error)}`),
    );
  }

  /** Nothing in its process happens for a while. */
  stall(forMs: number): void {
    const life = this.#life;
    const { schedule, trace, reached, weather } = this.#ground();
    if (life === undefined || life.stalledUntil > schedule.now) return;
    trace.note(`brain life ${life.number} stalls for ${forMs}`);
    if (forMs > 3 * weather.heartbeatMs) reached.reach("stall of the server over a liveness limit");
    life.stalledUntil = schedule.now + forMs;
    life.view.stalls.push({ from: schedule.now, to: life.stalledUntil });
  }

  /** Does it to the life that listens, now or when it has caught its breath; `unreachable` when there is none. */
  reach(run: (life: BrainLife) => void, unreachable: () => void): void {
    const life = this.#life;
    const { schedule } = this.#ground();
    if (life === undefined || !life.listens) {
      unreachable();
      return;
    }
    if (life.stalledUntil <= schedule.now) {
      run(life);
      return;
    }
    // It may stand still again by then, or be another's life.
    schedule.after(life.stalledUntil - schedule.now, () => (life.alive ? this.reach(run, unreachable) : unreachable()));
  }

  /** The context of a request that shows the token of this host. */
  context(hostId: string, signal: AbortSignal): HandlerContext {
    const values = this.principals.get(hostId);
    return { values, signal } as Partial<HandlerContext> as HandlerContext;
  }

  /** Those with the API token are named `api`. */
  async introduceApi(): Promise<void> {
    this.principals.set("api", await valuesOf({ kind: "api" }));
  }

  async introduce(hostId: string): Promise<void> {
    this.principals.set(hostId, await valuesOf({ kind: "host", hostId }));
  }
}

/** What the authorizing interceptor leaves for those behind it. */
async function valuesOf(principal: Principal): Promise<ContextValues> {
  const contextValues = createContextValues();
  const request = { service: HostService, method: HostService.method.heartbeat, header: new Headers(), contextValues };
  const through = authorize(async () => principal)(async (req) => req as never);
  await through(request as never);
  return contextValues;
}

function protocolOf(brain: Brain, log: Log): HostProtocol {
  let protocol: HostProtocol | undefined;
  const router = {
    service: (_service: unknown, implementation: HostProtocol) => {
      protocol = implementation;
      return router;
    },
  };
  registerHostService(router as Partial<ConnectRouter> as ConnectRouter, brain, log);
  if (protocol === undefined) throw new Error("the host service did not register");
  return protocol;
}

class LifeClock implements Clock {
  readonly #ground: Ground;
  readonly #life: BrainLife;

  constructor(ground: Ground, life: BrainLife) {
    this.#ground = ground;
    this.#life = life;
  }

  now(): number {
    return Math.floor(this.#ground.server.wallMs());
  }

  monotonic(): number {
    return START_MONOTONIC_MS + this.#ground.schedule.now;
  }

  after(delayMs: number, wake: () => void): () => void {
    const { schedule } = this.#ground;
    const life = this.#life;
    let disarmed = false;
    const fire = (): void => {
      if (disarmed || !life.alive) return;
      if (life.stalledUntil > schedule.now) schedule.after(life.stalledUntil - schedule.now, fire);
      else wake();
    };
    const callOff = schedule.after(delayMs, fire);
    return () => {
      disarmed = true;
      callOff();
    };
  }
}

/** When commits are made and heard of, and which are refused. */
class Fate implements MemoryJournalFate {
  readonly #ground: Ground;
  readonly #clock: Clock;

  constructor(ground: Ground, clock: Clock) {
    this.#ground = ground;
    this.#clock = clock;
  }

  now(): number {
    return Math.floor(this.#ground.server.wallMs());
  }

  commitLater(run: () => void): void {
    const { random, weather } = this.#ground;
    this.#clock.after(random.next() * weather.commitMs, run);
  }

  answerLater(run: () => void): void {
    const { random, server } = this.#ground;
    if (server.committed()) return;
    // Mostly at once, as where the commit is made by the asking thread itself.
    if (random.chance(0.7)) run();
    else this.#clock.after(random.next() * 3, run);
  }

  read<T>(look: () => T): Promise<T> {
    const { random } = this.#ground;
    const seen = look();
    if (random.chance(0.8)) return Promise.resolve(seen);
    const isFresh = random.chance(0.5);
    return new Promise((resolve) => this.#clock.after(random.next() * 4, () => resolve(isFresh ? look() : seen)));
  }

  refuses(): AppendFailure | undefined {
    const { server, schedule, random, weather, calm } = this.#ground;
    if (server.trouble !== undefined && schedule.now < server.trouble.until) return server.trouble.failure;
    if (calm || !random.chance(weather.refusedAppend)) return undefined;
    return random.pick(["journal_full", "journal_unavailable"] as const);
  }
}

function appendWatch(ground: Ground, life: BrainLife): AppendWatch {
  const { oracle, trace, reached } = ground;
  let undoneAt = -1;
  let undone = 0;
  return {
    asked: (sessionId, next, entries) => oracle.decided(life.view, sessionId, next, entries),
    refused: (sessionId, next, entries) => {
      const named = entries[0]?.case === "sessionCreated" ? "a session" : trace.name(sessionId);
      trace.note(`journal ${named} ${next} refused ${entries.map((entry) => entry.case).join(" ")}`);
      for (const [index, entry] of entries.entries()) noteRefused(ground, life, sessionId, next + index, entry, entries);
      undone = undoneAt === ground.schedule.happened ? undone + 1 : 1;
      undoneAt = ground.schedule.happened;
      if (undone > 1) reached.reach("several decisions undone at once");
      oracle.refused(life.view, sessionId, next, entries);
    },
    broken: (message) => oracle.fail(message, [" journal "]),
  };
}

function noteRefused(ground: Ground, life: BrainLife, sessionId: string, sequence: number, entry: Entry, all: readonly Entry[]): void {
  if (entry.case === "toolCallStarted" && !all.some((other) => other.case === "toolCallEnded")) {
    if (life.view.open.has(keyOf({ sessionId, callSequence: sequence }))) ground.reached.reach("append refused between start and send");
  }
  if (entry.case === "sessionEnded") ground.reached.reach("session's end refused");
}

function lifeLog(ground: Ground, life: BrainLife): Log {
  const ignore = (): void => undefined;
  return {
    debug: ignore,
    info: ignore,
    warn: ignore,
    error: (fields, message) => {
      if (!life.alive) return;
      const { err } = fields as { err?: unknown };
      ground.oracle.fail(`the server met a bug: ${message}: ${describe(err)}`);
    },
  };
}

/**
 * Judges by the two words of a schema that the simulated sessions use, at a moment of its own: `required` names the
 * members a value must have, and a value with the member `costly` takes too long.
 */
class SmallValidator implements Validator {
  readonly #ground: Ground;
  readonly #clock: Clock;

  constructor(ground: Ground, clock: Clock) {
    this.#ground = ground;
    this.#clock = clock;
  }

  async check(): Promise<undefined> {
    return undefined;
  }

  validate(schema: { text: string }, text: string): Promise<Verdict> {
    const { random } = this.#ground;
    const verdict = judge(schema.text, text);
    if (random.chance(0.7)) return Promise.resolve(verdict);
    return new Promise((resolve) => this.#clock.after(random.next() * 20, () => resolve(verdict)));
  }

  async close(): Promise<void> {}
}

function judge(schema: string, text: string): Verdict {
  const { required } = JSON.parse(schema) as { required: string[] };
  // Large values are judged by their beginning.
  const value: unknown = text.length > 10_000 ? { n: 1 } : JSON.parse(text);
  const members = typeof value === "object" && value !== null ? Object.keys(value) : [];
  if (members.includes("costly")) return { valid: false, tooCostly: true };
  const missing = required.find((name) => !members.includes(name));
  if (missing === undefined) return { valid: true };
  return { valid: false, violations: [{ path: "", rule: "required", message: `lacks ${missing}` }] };
}

export function describe(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
