import { createHash } from "node:crypto";
import { CreateSessionRequestSchema, RegisterHostRequestSchema, type ServedTool, ServedToolSchema, type Session } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { buildCatalogue } from "../../server/src/core/catalogue.js";
import { MemoryFile } from "../support/memory-journal.js";
import { call, cancel, endSession } from "./callers.js";
import { NO_FAULTS } from "./faults.js";
import type { Ground } from "./ground.js";
import { InstanceProcess, type OutboxEntry, type ProcessSpec } from "./instance-process.js";
import { Oracle, type Violation } from "./oracle.js";
import { Random } from "./random.js";
import type { Reached } from "./reached.js";
import { Schedule } from "./schedule.js";
import { describe, openMemoryJournal, Server } from "./server.js";
import { strangerKnocks } from "./strangers.js";
import { Trace } from "./trace.js";
import { type Ask, Truth } from "./truth.js";
import { drawWeather, type Weather, type WorldKind } from "./weather.js";

export interface WorldEnd {
  readonly violations: readonly Violation[];
  readonly hash: string;
  readonly trace: Trace;
  readonly weather: Weather;
  readonly calls: number;
  readonly happened: number;
}

/** One server, two hosts, their processes and those who call, from the beginning until everything has come to rest. */
export class World implements Ground {
  readonly random: Random;
  readonly schedule: Schedule;
  readonly trace: Trace;
  readonly weather: Weather;
  readonly truth = new Truth();
  readonly file = new MemoryFile();
  readonly oracle: Oracle;
  readonly server: Server;
  readonly reached: Reached;
  readonly faults = NO_FAULTS;
  calm = false;
  readonly #hosts: string[] = [];
  readonly #processes = new Set<InstanceProcess>();
  readonly #sessions: string[] = [];
  #tools: readonly ServedTool[] = [];
  #spawned = 0;
  #asked = 0;
  #opening = 0;

  constructor(seed: number, kind: WorldKind, reached: Reached, keepTrace: boolean) {
    this.random = new Random(seed);
    this.schedule = new Schedule(this.random);
    this.trace = new Trace(() => this.schedule.now, keepTrace);
    this.weather = drawWeather(this.random, kind);
    this.reached = reached;
    this.oracle = new Oracle({
      now: () => this.schedule.now,
      trace: this.trace,
      truth: this.truth,
      file: this.file,
      reached,
      heartbeatMs: this.weather.heartbeatMs,
      hostWaitMs: this.weather.hostWaitMs,
      wasInTrouble: (from, to) => this.server.wasInTrouble(from, to),
      soon: (run) => void this.schedule.after(0, run),
    });
    this.server = new Server(() => this, openMemoryJournal);
  }

  planOf(): undefined {}

  loseStream(): never {
    throw new Error("streams are lost by chance here");
  }

  async run(): Promise<WorldEnd> {
    const { schedule, oracle, weather } = this;
    const failed = (): boolean => oracle.violations.length > 0;
    this.server.start();
    await schedule.runUntil(() => this.server.life?.listens === true, 10_000);
    await this.#furnish();
    for (const hostId of this.#hosts) for (let one = 0; one < weather.processesPerHost; one++) this.#spawn(hostId, new Map());
    this.#letCallersCome();
    this.#letTroublesCome();
    const endsAt = schedule.now + weather.spanMs;
    await schedule.runUntil(failed, endsAt);
    this.#calmDown();
    const isOver = (): boolean => this.#asked >= weather.calls && [...this.truth.asks.values()].every((ask) => ask.over !== undefined);
    let next = 0;
    const atRest = (): boolean => {
      if (failed()) return true;
      if (schedule.happened < next) return false;
      next = schedule.happened + 50;
      return isOver() && this.file.open.size === 0 && [...this.#processes].every((process) => process.heldCalls === 0);
    };
    // Longer than any deadline, any grace, and everything that may come after them.
    await schedule.runUntil(atRest, schedule.now + 300_000);
    if (!failed()) await schedule.runUntil(failed, schedule.now + 2 * weather.graceMs);
    if (!failed()) oracle.finish();
    return {
      violations: oracle.violations,
      hash: this.trace.hash,
      trace: this.trace,
      weather,
      calls: this.truth.asks.size,
      happened: schedule.happened,
    };
  }

  // -- what is there from the beginning --------------------------------------------------------------------------

  async #furnish(): Promise<void> {
    const { life } = this.server;
    if (life === undefined) throw new Error("the server did not start");
    for (const name of ["h1", "h2"]) {
      const { hostId } = await life.brain.hosts.register(create(RegisterHostRequestSchema, { displayName: name }));
      this.trace.rename(hostId, name);
      await this.server.introduce(hostId);
      this.#hosts.push(hostId);
    }
    await this.server.introduceApi();
    const { environments, tools } = this.#catalogue();
    const catalogue = buildCatalogue(environments, tools, new Set(["host"]));
    this.#tools = catalogue.placements.map((placement) =>
      create(ServedToolSchema, {
        environment: placement.environment.name,
        name: placement.definition.name,
        definitionSha256: createHash("sha256").update(placement.canonicalDefinition).digest("hex"),
      }),
    );
    for (let session = 0; session < 3; session++) this.#openSession();
    await this.schedule.runUntil(() => this.#sessions.length === 3 || this.oracle.violations.length > 0, this.schedule.now + 60_000);
  }

  #catalogue(): Pick<ReturnType<typeof create<typeof CreateSessionRequestSchema>>, "environments" | "tools"> {
    const [first = "", second = ""] = this.#hosts;
    const tool = (name: string, environment: string) => ({
      environment,
      implementation: { kind: { case: "hostFunction" as const, value: {} } },
      tool: {
        name,
        description: `${name} things`,
        inputSchemaJson: '{"required":["n"]}',
        ...(name === "store" ? { outputSchemaJson: '{"required":["value"]}' } : {}),
      },
    });
    const { environments, tools } = create(CreateSessionRequestSchema, {
      environments: [
        { name: "alpha", kind: { case: "host", value: { hostId: first } } },
        { name: "beta", kind: { case: "host", value: { hostId: second } } },
      ],
      tools: [tool("lookup", "alpha"), tool("store", "alpha"), tool("rare", "alpha"), tool("lookup", "beta")],
    });
    return { environments, tools };
  }

  /** Creates a session, however often that takes. */
  #openSession(): void {
    const requestId = `s${++this.#opening}`;
    const message = create(CreateSessionRequestSchema, { requestId, ...this.#catalogue() });
    const attempt = (): void =>
      this.server.reach(
        (life) => {
          let over = false;
          const forget = life.onDeath(() => {
            if (!over) again();
          });
          const done = (): void => {
            over = true;
            forget();
          };
          life.brain.sessions.create(message, "api").then(
            (session: Session) => {
              if (!life.alive) return;
              done();
              if (!this.#sessions.includes(session.sessionId)) this.#sessions.push(session.sessionId);
            },
            (error: unknown) => {
              if (!life.alive) return;
              done();
              const { reason } = error as { reason?: string };
              if (reason !== "journal_full" && reason !== "journal_unavailable" && reason !== "server_draining") {
                this.oracle.fail(`a session is not created: ${describe(error)}`);
              }
              again();
            },
          );
        },
        () => again(),
      );
    const again = (): void => void this.schedule.after(100, attempt);
    attempt();
  }

  // -- processes ---------------------------------------------------------------------------------------------------

  #spawn(hostId: string, inherited: ReadonlyMap<string, OutboxEntry>): void {
    const { random, weather } = this;
    const environment = hostId === this.#hosts[0] ? "alpha" : "beta";
    const own = this.#tools.filter((tool) => tool.environment === environment);
    const withoutRare = own.filter((tool) => tool.name !== "rare");
    const keepsList = inherited.size > 0 || !random.chance(weather.keepsNoList);
    const served = random.weighted<readonly ServedTool[]>([
      [5, []],
      [4, own],
      [2, withoutRare],
      // Functions that were written for another definition: never chosen for it.
      [1, own.map((tool) => (tool.name === "rare" ? create(ServedToolSchema, { ...tool, definitionSha256: "f".repeat(64) }) : tool))],
    ]);
    const isComplete = served.length > 0 || random.chance(0.7);
    const functions = (isComplete ? own : withoutRare).map((tool) => `${tool.environment}/${tool.name}`);
    const spec: ProcessSpec = {
      hostId,
      instanceId: `${this.trace.name(hostId)}-i${++this.#spawned}`,
      route: random.pick(["attach", "watch"]),
      keepsList,
      isNumbered: keepsList || random.chance(0.5),
      hasOutbox: keepsList && random.chance(weather.outboxFile),
      slots: weather.slots,
      served,
      functions: new Set(functions),
      inherited,
    };
    this.#processes.add(new InstanceProcess(this, spec));
  }

  /** Another process takes the place of one that ended, and finds what it left in its file. */
  #replace(process: InstanceProcess): void {
    const { random, schedule, weather } = this;
    this.#processes.delete(process);
    const delay = this.calm ? 10 : random.chance(0.7) ? random.span(500) : random.span(weather.graceMs);
    const left = new Map(process.spec.hasOutbox ? process.outbox : []);
    schedule.after(delay, () => this.#spawn(process.hostId, left));
  }

  // -- callers -----------------------------------------------------------------------------------------------------

  #letCallersCome(): void {
    const { weather, schedule, random } = this;
    for (let index = 0; index < weather.calls; index++) {
      const at = weather.flood ? random.next() * 100 : random.next() * weather.spanMs * 0.9;
      schedule.after(at, () => this.#ask());
    }
  }

  #ask(): void {
    const { random, weather, schedule } = this;
    const sessionId = random.pick(this.#sessions);
    const [name, environment] = random.weighted<readonly [string, string]>([
      [6, ["lookup", "alpha"]],
      [3, ["store", "alpha"]],
      [1, ["rare", "alpha"]],
      [weather.flood ? 0.1 : 4, ["lookup", "beta"]],
    ]);
    const isBad = random.chance(weather.badCall);
    const bad = isBad ? random.pick(["schema", "json", "costly", "nowhere"] as const) : undefined;
    const inputs = { schema: '{"m":1}', json: '{"n":', costly: '{"n":1,"costly":1}', nowhere: '{"n":1}' };
    const isShort = random.chance(weather.shortTimeout);
    const ask: Ask = {
      sessionId,
      callId: `c${++this.#asked}`,
      name: bad === "nowhere" ? "nowhere" : name,
      environment,
      inputJson: bad !== undefined ? inputs[bad] : weather.largeInputs ? LARGE_INPUT : '{"n":1}',
      timeoutMs: isShort ? random.between(1, 500) : random.between(1000, weather.toolTimeoutMs),
      firstArrivalMs: undefined,
      lastArrivalMs: undefined,
      cancelAsked: false,
      over: undefined,
      toldEnding: undefined,
    };
    this.truth.asks.set(`${sessionId} ${ask.callId}`, ask);
    call(this, ask, true);
    if (random.chance(weather.secondCaller)) schedule.after(random.span(200), () => call(this, ask, false));
    if (random.chance(weather.cancel)) schedule.after(random.chance(0.3) ? random.next() * 30 : random.span(1000), () => cancel(this, ask));
  }

  // -- troubles ----------------------------------------------------------------------------------------------------

  #every(meanMs: number, trouble: () => void): void {
    if (!Number.isFinite(meanMs)) return;
    this.schedule.after(this.random.span(meanMs), () => {
      if (this.calm) return;
      trouble();
      this.#every(meanMs, trouble);
    });
  }

  #anyProcess(): InstanceProcess | undefined {
    const living = [...this.#processes].filter((process) => process.lives);
    return living.length === 0 ? undefined : this.random.pick(living);
  }

  #letTroublesCome(): void {
    const { weather, random, schedule, server, reached } = this;
    const { graceMs, heartbeatMs } = weather;
    this.#every(weather.crashEveryMs, () => {
      const downMs = random.chance(0.7) ? random.span(500) : random.span(graceMs);
      // The disk that was full is full when it comes back, too.
      if (Number.isFinite(weather.journalTroubleEveryMs) && random.chance(0.5))
        this.#fillJournal(schedule.now + downMs + random.span(graceMs));
      if (random.chance(0.3)) server.crashBetweenCommitAndAnswer(downMs);
      else server.crash(downMs);
    });
    this.#every(weather.restartEveryMs, () => server.restart(random.next() * 1000, random.span(500)));
    this.#every(weather.stallEveryMs, () => server.stall(random.span(random.pick([heartbeatMs, 4 * heartbeatMs, graceMs]))));
    this.#every(weather.wallStepEveryMs, () => {
      if (this.file.open.size > 0) reached.reach("step of the wall clock with an open call");
      server.wallStepMs += random.pick([-3_600_000, 3_600_000, -1000, 1000]);
      this.trace.note(`brain wall clock steps to ${server.wallStepMs}`);
    });
    this.#every(weather.journalTroubleEveryMs, () => this.#fillJournal(schedule.now + random.span(random.pick([2000, 2000, graceMs]))));
    this.#every(weather.cutEveryMs, () => this.#cut());
    this.#every(weather.freezeEveryMs, () => this.#freeze());
    this.#every(weather.deathEveryMs, () => {
      const process = this.#anyProcess();
      process?.die(random.chance(0.3));
      if (process !== undefined) this.#replace(process);
    });
    this.#every(weather.leaveEveryMs, () => {
      const process = this.#anyProcess();
      if (process === undefined) return;
      process.leave(random.chance(0.3) ? 0 : random.span(2000));
      this.#replaceWhenGone(process);
    });
    this.#every(weather.sessionEndEveryMs, () => {
      const [oldest] = this.#sessions;
      if (oldest === undefined || this.#sessions.length < 2) return;
      this.#openSession();
      schedule.after(random.span(500), () => {
        endSession(this, oldest);
        // Some still call it.
        schedule.after(random.span(500), () => {
          if (this.#sessions.length > 1) this.#sessions.splice(this.#sessions.indexOf(oldest), 1);
        });
      });
    });
    this.#every(weather.strangerEveryMs, () => strangerKnocks(this, this.#hosts));
  }

  #fillJournal(until: number): void {
    const failure = this.random.pick(["journal_full", "journal_unavailable"] as const);
    this.server.refuseAppends(failure, until);
    this.trace.note(`journal is in trouble: ${failure} until ${Math.round(until)}`);
  }

  #replaceWhenGone(process: InstanceProcess): void {
    if (!this.#processes.has(process)) return;
    if (process.lives) this.schedule.after(100, () => this.#replaceWhenGone(process));
    else this.#replace(process);
  }

  #cut(): void {
    const { random, reached, trace } = this;
    const process = this.#anyProcess();
    const connection = process?.connection;
    if (process === undefined || connection === undefined) return;
    const [what, tellHost, tellServer] = random.weighted<
      readonly ["both ends" | "at the server" | "at the host" | "silent", boolean, boolean]
    >([
      [4, ["both ends", true, true]],
      [2, ["at the server", true, false]],
      [2, ["at the host", false, true]],
      [2, ["silent", false, false]],
    ]);
    trace.note(`stream of ${process.instanceId} is cut: ${what}`);
    const windows = {
      "both ends": "stream cut at both ends",
      "at the server": "stream half open at the server",
      "at the host": "stream half open at the host",
      silent: "stream silent at both ends",
    } as const;
    reached.reach(windows[what]);
    connection.cut(tellHost, tellServer);
  }

  #freeze(): void {
    const { random, schedule, weather, reached, trace } = this;
    const process = this.#anyProcess();
    if (process === undefined) return;
    process.frozenUntil = schedule.now + random.span(random.pick([weather.heartbeatMs, 3 * weather.heartbeatMs, 1.2 * weather.graceMs]));
    trace.note(`${process.instanceId} is frozen until ${Math.round(process.frozenUntil)}`);
    schedule.after(process.frozenUntil - schedule.now, () => reached.reach("stream frozen and thawed"));
  }

  /** Whatever is broken mends, and nothing new breaks. */
  #calmDown(): void {
    const { schedule, server } = this;
    this.calm = true;
    this.trace.note("brain calm from here on");
    server.trouble = undefined;
    for (const process of this.#processes) process.frozenUntil = Math.min(process.frozenUntil, schedule.now);
  }
}

const LARGE_INPUT = JSON.stringify({ n: 1, pad: "x".repeat(950 * 1024) });
