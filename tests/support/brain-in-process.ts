import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  CallToolRequestSchema,
  CreateSessionRequestSchema,
  type Record as JournalRecord,
  type Outcome,
  RegisterHostRequestSchema,
} from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { expect } from "vitest";
import { type Config, defaultConfig, LIMITS } from "../../server/src/config.js";
import { checkJournal } from "../../server/src/journal/check-journal.js";
import { openSqliteJournal } from "../../server/src/journal/sqlite/open-journal.js";
import { type Brain, createBrain } from "../../server/src/runtime/brain.js";
import type { Clock } from "../../server/src/runtime/clock.js";
import type { Ending } from "../../server/src/runtime/live-call.js";
import type { Log } from "../../server/src/runtime/log.js";
import type { Validator } from "../../server/src/validation/port.js";
import { createValidator } from "../../server/src/validation/validator.js";
import { RawHost } from "./raw-host.js";
import { SwitchedJournal } from "./switched-journal.js";
import { createVirtualClock, turnOfTheLoop, type VirtualClock } from "./virtual-clock.js";

export const START_WALL_MS = Date.UTC(2026, 0, 1);

/** The times the tests speak of, unless they set others. */
export const TIMES = { heartbeatMs: 5000, hostGraceMs: 30_000, hostWaitMs: 5000, toolTimeoutMs: 120_000, hostConcurrency: 1000 };

export interface BrainOptions {
  readonly config?: Partial<Config>;
  /** The real clock, for what only that can show. */
  readonly clock?: Clock;
}

/** A call that was asked for, as far as it has come. */
export interface AskedCall {
  readonly callId: string;
  /** What the caller was told, or what the caller was refused with. */
  readonly ending: Promise<Ending>;
  readonly answered: Ending | undefined;
  readonly refusal: Error | undefined;
}

export interface CallWish {
  readonly callId?: string;
  readonly name?: string;
  readonly environment?: string;
  readonly inputJson?: string;
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** What happens between two lives of a server. */
export interface Meanwhile {
  /** While there is no server. */
  readonly down?: () => Promise<void>;
  /** After the new one has taken up the open calls and before it listens. */
  readonly listening?: () => Promise<void>;
}

/** What one life of a server is made of. */
interface Life {
  readonly brain: Brain;
  readonly journal: SwitchedJournal;
  readonly clock: MortalClock;
  readonly directory: string;
}

/**
 * A Brain without a port over a real journal on disk, in virtual time. It can be restarted and crashed, and its appends
 * can be held back and refused. When it is disposed the journal is checked against the laws, every ending a caller was
 * told is compared with its record, and no command may have been received twice.
 */
export class BrainInProcess {
  readonly virtual: VirtualClock;
  readonly #clock: Clock;
  readonly #config: Config;
  readonly #validator = new WatchedValidator();
  readonly #directories: string[] = [];
  readonly #told: { sessionId: string; ending: Ending }[] = [];
  readonly #received = new Map<string, number>();
  readonly #bugs: string[] = [];
  #life: Life | undefined;
  #calls = 0;

  private constructor(options: BrainOptions) {
    this.virtual = createVirtualClock({ startWallMs: START_WALL_MS, settle: () => this.#settle() });
    this.#clock = options.clock ?? this.virtual;
    this.#config = { ...defaultConfig(), ...TIMES, ...options.config };
  }

  static async start(options: BrainOptions = {}): Promise<BrainInProcess> {
    const started = new BrainInProcess(options);
    const directory = started.#newDirectory();
    await started.#begin(directory);
    started.brain.listening();
    return started;
  }

  get brain(): Brain {
    return this.#alive.brain;
  }

  /** Between Brain and its journal: holds appends back, or refuses them. */
  get journal(): SwitchedJournal {
    return this.#alive.journal;
  }

  /** Stops as SIGTERM does and starts again on the same directory. */
  async restart(meanwhile: Meanwhile = {}): Promise<void> {
    const life = this.#alive;
    const stopping = life.brain.drain(0);
    await this.virtual.advance(0);
    await stopping;
    await this.#bury(life);
    await this.#resume(life.directory, meanwhile);
  }

  /**
   * Dies as SIGKILL does: what is committed at this moment is there afterwards, and nothing else. Who waits for the old
   * Brain is never answered.
   */
  async crash(meanwhile: Meanwhile = {}): Promise<void> {
    const life = this.#alive;
    life.clock.die();
    life.journal.die();
    this.#life = undefined;
    const directory = this.#newDirectory();
    cpSync(life.directory, directory, { recursive: true, filter: (source) => !source.endsWith("-shm") });
    await life.journal.close();
    await this.#resume(directory, meanwhile);
  }

  async registerHost(): Promise<RawHost> {
    const { hostId } = await this.brain.hosts.register(create(RegisterHostRequestSchema));
    return new RawHost(
      hostId,
      () => this.brain,
      this.virtual,
      (key) => this.#received.set(key, (this.#received.get(key) ?? 0) + 1),
    );
  }

  /** A session with the Tools `lookup` and `store` in Environment `local` of that host, and the id of it. */
  async createSession(host: RawHost, more: { inputSchema?: object; outputSchema?: object } = {}): Promise<string> {
    const tools = ["lookup", "store"].map((name) => ({
      tool: {
        name,
        description: `${name} things`,
        inputSchemaJson: JSON.stringify(more.inputSchema ?? { type: "object" }),
        ...(more.outputSchema === undefined ? {} : { outputSchemaJson: JSON.stringify(more.outputSchema) }),
      },
      environment: "local",
      implementation: { kind: { case: "hostFunction" as const, value: {} } },
    }));
    const environments = [{ name: "local", kind: { case: "host" as const, value: { hostId: host.hostId } } }];
    const session = await this.brain.sessions.create(create(CreateSessionRequestSchema, { environments, tools }), "api");
    return session.sessionId;
  }

  /** Asks for a call and lets happen what can happen at once. */
  async call(sessionId: string, wish: CallWish = {}): Promise<AskedCall> {
    const asked = this.ask(sessionId, wish);
    await this.virtual.settle();
    return asked;
  }

  /** Asks for a call; nothing has happened when this returns. */
  ask(sessionId: string, wish: CallWish = {}): AskedCall {
    const callId = wish.callId ?? `call-${++this.#calls}`;
    const request = create(CallToolRequestSchema, {
      sessionId,
      callId,
      name: wish.name ?? "lookup",
      environment: wish.environment ?? "local",
      inputJson: wish.inputJson ?? "{}",
      ...(wish.timeoutMs === undefined ? {} : { timeout: durationFromMs(wish.timeoutMs) }),
    });
    const ending = this.brain.sessions.callTool(request, { principal: "api", traceparent: "" }, wish.signal);
    const asked = { callId, ending, answered: undefined as Ending | undefined, refusal: undefined as Error | undefined };
    ending.then(
      (told) => {
        asked.answered = told;
        this.#told.push({ sessionId, ending: told });
      },
      (error: unknown) => {
        asked.refusal = error instanceof Error ? error : new Error(String(error));
      },
    );
    return asked;
  }

  async records(sessionId: string): Promise<JournalRecord[]> {
    const records: JournalRecord[] = [];
    for (;;) {
      const page = await this.journal.read(sessionId, records.length, { records: 1000, bytes: LIMITS.pageBytes });
      if (page.length === 0) return records;
      records.push(...page);
    }
  }

  /** The kinds of a session's records, in their order. */
  async kinds(sessionId: string): Promise<string[]> {
    return (await this.records(sessionId)).map(({ entry }) => String(entry.case));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const life = this.#alive;
    try {
      for (const { sessionId, ending } of this.#told) await this.#checkTold(sessionId, ending);
      life.clock.die();
      await life.journal.close();
      expect(checkJournal(join(life.directory, "journal.sqlite3"))).toEqual([]);
      expect([...this.#received].filter(([, times]) => times > 1)).toEqual([]);
      expect(this.#bugs).toEqual([]);
    } finally {
      await life.journal.close();
      await this.#validator.close();
      for (const directory of this.#directories) rmSync(directory, { recursive: true, force: true });
    }
  }

  /** What a caller is told is what the journal holds, at the place that was named (L5, L6). */
  async #checkTold(sessionId: string, { callSequence, endSequence, outcome }: Ending): Promise<void> {
    if ((await this.journal.findSession(sessionId)) === undefined) return;
    const [start] = await this.journal.read(sessionId, callSequence - 1, { records: 1, bytes: 1 });
    const [end] = await this.journal.read(sessionId, endSequence - 1, { records: 1, bytes: 1 });
    expect(start?.entry.case).toBe("toolCallStarted");
    expect(end?.entry).toMatchObject({ case: "toolCallEnded", value: { callSequence, outcome } });
  }

  get #alive(): Life {
    if (this.#life === undefined) throw new Error("the Brain is not running");
    return this.#life;
  }

  #newDirectory(): string {
    const directory = mkdtempSync(join(tmpdir(), "brain-in-process-"));
    this.#directories.push(directory);
    return directory;
  }

  async #resume(directory: string, meanwhile: Meanwhile): Promise<void> {
    await meanwhile.down?.();
    await this.#begin(directory);
    await this.brain.recover();
    await meanwhile.listening?.();
    this.brain.listening();
    await this.virtual.settle();
  }

  async #begin(directory: string): Promise<void> {
    const clock = new MortalClock(this.#clock);
    const onFatal = (error: Error): void => void this.#bugs.push(error.message);
    const opened = await openSqliteJournal({ directory, clock, limits: LIMITS, mode: "inline", onFatal });
    const journal = new SwitchedJournal(opened);
    const ports = { journal, validator: this.#validator, clock, config: this.#config, log: this.#log(), serverVersion: "test" };
    this.#life = { brain: createBrain(ports), journal, clock, directory };
  }

  async #bury(life: Life): Promise<void> {
    this.#life = undefined;
    life.clock.die();
    await life.journal.close();
  }

  #log(): Log {
    const ignore = (): void => undefined;
    return {
      debug: ignore,
      info: ignore,
      warn: ignore,
      error: (fields, message) => void this.#bugs.push(`${message}: ${describe(fields)}`),
    };
  }

  /** Until the journal and the validator have answered everything and nothing new was asked for some turns. */
  async #settle(): Promise<void> {
    const giveUpAt = performance.now() + SETTLING_MS;
    const journal = this.#life?.journal;
    const asked = (): number => (journal?.asked ?? 0) + this.#validator.asked;
    let before = asked();
    for (let quietTurns = 0; quietTurns < 3; ) {
      if (performance.now() > giveUpAt) throw new Error(`the Brain did not come to rest within ${SETTLING_MS} ms`);
      await turnOfTheLoop();
      const quiet = (journal?.underway ?? 0) === 0 && this.#validator.underway === 0 && asked() === before;
      quietTurns = quiet ? quietTurns + 1 : 0;
      before = asked();
    }
  }
}

const SETTLING_MS = 10_000;

/** The real validator, and whether it is at work. */
class WatchedValidator implements Validator {
  readonly #validator = createValidator(LIMITS);
  underway = 0;
  asked = 0;

  check: Validator["check"] = (...question) => this.#track(this.#validator.check(...question));
  validate: Validator["validate"] = (...question) => this.#track(this.#validator.validate(...question));

  close(): Promise<void> {
    return this.#validator.close();
  }

  async #track<T>(answer: Promise<T>): Promise<T> {
    this.asked++;
    this.underway++;
    try {
      return await answer;
    } finally {
      this.underway--;
    }
  }
}

/** The clock of one life of a server: its timers die with it. */
class MortalClock implements Clock {
  readonly #clock: Clock;
  #dead = false;
  readonly #disarms = new Set<() => void>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  now(): number {
    return this.#clock.now();
  }

  monotonic(): number {
    return this.#clock.monotonic();
  }

  after(delayMs: number, wake: () => void): () => void {
    if (this.#dead) return () => undefined;
    const disarm = this.#clock.after(delayMs, () => {
      this.#disarms.delete(disarm);
      wake();
    });
    this.#disarms.add(disarm);
    return () => {
      this.#disarms.delete(disarm);
      disarm();
    };
  }

  die(): void {
    this.#dead = true;
    for (const disarm of this.#disarms) disarm();
    this.#disarms.clear();
  }
}

function describe(fields: object): string {
  const { err } = fields as { err?: unknown };
  return err instanceof Error ? (err.stack ?? err.message) : JSON.stringify(fields);
}

/** The one word of an outcome's status, and the code of a failure, as `error host_unavailable`. */
export function summary(outcome: Outcome | undefined): string {
  const status = outcome?.status;
  if (status?.case === undefined) return "none";
  return status.case === "ok" ? `ok ${status.value.valueJson}` : `${status.case} ${status.value.code}`;
}

/** What a caller was told, in one word or two; `none` while it waits. */
export function outcomeOf(call: AskedCall): string {
  return summary(call.answered?.outcome);
}
