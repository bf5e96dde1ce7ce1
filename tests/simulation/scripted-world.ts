import { CreateSessionRequestSchema, RegisterHostRequestSchema } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { MemoryFile } from "../support/memory-journal.js";
import { call, cancel, endSession } from "./callers.js";
import { NthFault } from "./faults.js";
import { FileJournal, JournalDirectories } from "./file-journal.js";
import type { Plan } from "./function-run.js";
import type { Ground } from "./ground.js";
import { InstanceProcess, type ProcessSpec } from "./instance-process.js";
import { Oracle } from "./oracle.js";
import { Random } from "./random.js";
import { Reached } from "./reached.js";
import { Schedule, turnOfTheLoop } from "./schedule.js";
import { describe, Server } from "./server.js";
import { Trace } from "./trace.js";
import { type Ask, Truth } from "./truth.js";
import type { Weather } from "./weather.js";

const NONE = Number.POSITIVE_INFINITY;

/** Nothing goes wrong by chance. */
const QUIET: Weather = {
  heartbeatMs: 500,
  graceMs: 2500,
  hostWaitMs: 1000,
  toolTimeoutMs: 20_000,
  calls: 0,
  spanMs: 0,
  latencyMs: 2,
  commitMs: 0,
  processesPerHost: 0,
  slots: 0,
  windowMessages: 64,
  crashEveryMs: NONE,
  restartEveryMs: NONE,
  stallEveryMs: NONE,
  wallStepEveryMs: NONE,
  journalTroubleEveryMs: NONE,
  cutEveryMs: NONE,
  freezeEveryMs: NONE,
  deathEveryMs: NONE,
  leaveEveryMs: NONE,
  sessionEndEveryMs: NONE,
  strangerEveryMs: NONE,
  slowStart: 0,
  lostRequest: 0,
  lostAnswer: 0,
  doubledRequest: 0,
  refusedAppend: 0,
  lateAttach: 0,
  cancel: 0,
  shortTimeout: 0,
  secondCaller: 0,
  callerLeaves: 0,
  badCall: 0,
  keepsNoList: 0,
  outboxFile: 0,
  flood: false,
  largeInputs: false,
};

/** A world in which a script says what happens, over a real journal, with one fault at most. */
export class ScriptedWorld implements Ground {
  readonly random = new Random(1);
  readonly schedule: Schedule;
  readonly trace: Trace;
  readonly weather: Weather = QUIET;
  readonly truth = new Truth();
  readonly file = new MemoryFile();
  readonly reached = new Reached();
  readonly oracle: Oracle;
  readonly server: Server;
  readonly faults: NthFault;
  readonly calm = true;
  readonly directories = new JournalDirectories();
  readonly #journals: FileJournal[] = [];
  readonly #plans = new Map<string, Plan>();
  readonly #processes = new Map<string, InstanceProcess>();
  #host = "";
  session = "";
  #expectsRest = true;

  constructor(fault: NthFault | undefined) {
    this.faults = fault ?? new NthFault("append", "", 0);
    this.schedule = new Schedule(this.random, () => this.#rest());
    this.trace = new Trace(() => this.schedule.now, true);
    this.oracle = new Oracle({
      now: () => this.schedule.now,
      trace: this.trace,
      truth: this.truth,
      file: this.file,
      reached: this.reached,
      heartbeatMs: QUIET.heartbeatMs,
      hostWaitMs: QUIET.hostWaitMs,
      wasInTrouble: () => false,
      soon: (run) => void this.schedule.after(0, run),
    });
    this.server = new Server(
      () => this,
      (ground, clock, watch) => {
        const journal = new FileJournal(this.directories, ground, clock, watch);
        this.#journals.push(journal);
        return journal;
      },
    );
  }

  /** Starts the server, with a host and a session. */
  async begin(): Promise<void> {
    this.server.start();
    await this.schedule.runUntil(() => this.server.life?.listens === true, 10_000);
    await this.server.introduceApi();
    await this.#asking(async () => {
      const { life } = this.server;
      if (life === undefined) throw new Error("the server does not run");
      const { hostId } = await life.brain.hosts.register(create(RegisterHostRequestSchema, { displayName: "h1" }));
      this.#host = hostId;
    });
    this.trace.rename(this.#host, "h1");
    await this.server.introduce(this.#host);
    await this.#asking(() => this.#openSession());
  }

  /** Waits for what is asked of the server while time passes. */
  async #asking(ask: () => Promise<void>): Promise<void> {
    let over = false;
    const asked = ask().finally(() => {
      over = true;
    });
    asked.catch(() => undefined);
    this.schedule.after(0, () => undefined);
    await this.schedule.runUntil(() => over, this.schedule.now + 10_000);
    await asked;
  }

  /** Creates the session, however often that takes. */
  async #openSession(): Promise<void> {
    const tool = { name: "lookup", description: "looks up", inputSchemaJson: '{"required":["n"]}' };
    const message = create(CreateSessionRequestSchema, {
      requestId: "s1",
      environments: [{ name: "alpha", kind: { case: "host", value: { hostId: this.#host } } }],
      tools: [{ tool, environment: "alpha", implementation: { kind: { case: "hostFunction", value: {} } } }],
    });
    for (;;) {
      const made = await new Promise<string | undefined>((resolve) => {
        this.server.reach(
          (life) => {
            life.onDeath(() => resolve(undefined));
            life.brain.sessions.create(message, "api").then(
              ({ sessionId }) => resolve(sessionId),
              () => resolve(undefined),
            );
          },
          () => resolve(undefined),
        );
      });
      if (made !== undefined) {
        this.session = made;
        return;
      }
      await new Promise<void>((resolve) => void this.schedule.after(50, resolve));
    }
  }

  // -- what a script does ------------------------------------------------------------------------------------------

  at(ms: number, run: () => void): void {
    this.schedule.after(ms, run);
  }

  process(name: string, more: Partial<ProcessSpec> = {}): InstanceProcess {
    const process = new InstanceProcess(this, {
      hostId: this.#host,
      instanceId: name,
      route: "watch",
      keepsList: true,
      isNumbered: true,
      hasOutbox: false,
      slots: 0,
      served: [],
      functions: new Set(["alpha/lookup"]),
      inherited: new Map(),
      ...more,
    });
    this.#processes.set(name, process);
    return process;
  }

  call(callId: string, plan: Plan, more: Partial<Ask> = {}): Ask {
    const ask: Ask = {
      sessionId: this.session,
      callId,
      name: "lookup",
      environment: "alpha",
      inputJson: '{"n":1}',
      timeoutMs: 20_000,
      firstArrivalMs: undefined,
      lastArrivalMs: undefined,
      cancelAsked: false,
      over: undefined,
      toldEnding: undefined,
      ...more,
    };
    this.#plans.set(callId, plan);
    this.truth.asks.set(`${ask.sessionId} ${callId}`, ask);
    call(this, ask, true);
    return ask;
  }

  cancel(ask: Ask): void {
    cancel(this, ask);
  }

  endSession(): void {
    endSession(this, this.session);
  }

  planOf(callId: string): Plan | undefined {
    return this.#plans.get(callId);
  }

  loseStream(instanceId: string): void {
    this.#processes.get(instanceId)?.connection?.loseAtServer();
  }

  /** Lets everything happen until nobody waits, no call is open, and no process holds one. */
  async rest(atLeastMs: number): Promise<void> {
    const { schedule, oracle, truth } = this;
    await schedule.runUntil(() => false, schedule.now + atLeastMs);
    const isOver = (): boolean =>
      oracle.violations.length > 0 ||
      ([...truth.asks.values()].every((ask) => ask.over !== undefined) &&
        this.file.open.size === 0 &&
        [...this.#processes.values()].every((process) => !process.lives || process.heldCalls === 0));
    await schedule.runUntil(isOver, schedule.now + 120_000);
    // Only signs of life follow.
    this.faults.isArmed = false;
    await schedule.runUntil(() => false, schedule.now + 2 * QUIET.graceMs);
    if (oracle.violations.length === 0) oracle.finish();
  }

  /** How a call ended, as "status code". */
  ending(ask: Ask): string {
    const status = this.file.call(ask.sessionId, ask)?.ended?.outcome?.status;
    if (status?.case === undefined) return "none";
    return status.case === "ok" ? "ok" : `${status.case} ${status.value.code}`;
  }

  /** Stops the server and lets go of its files. */
  async close(): Promise<void> {
    for (const process of this.#processes.values()) if (process.lives) process.die(false);
    this.#expectsRest = false;
    for (const journal of this.#journals) {
      await journal.close().catch((error: unknown) => this.oracle.fail(`the journal cannot be closed: ${describe(error)}`));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
    this.directories.remove();
  }

  /** Until the file has answered everything, and nothing new was asked of it. */
  async #rest(): Promise<void> {
    for (let quiet = 0; quiet < 2 && this.#expectsRest; ) {
      await turnOfTheLoop();
      quiet = this.directories.underway === 0 ? quiet + 1 : 0;
    }
  }
}
