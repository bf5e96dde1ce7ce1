/**
 * Schedules nobody thought of: random orders of what callers, instances, time, the journal and the server do. After each
 * step what is on record is compared with what really happened:
 *
 * 1. A call that ended `command_not_delivered` was read by no instance, then or later.
 * 2. A call that ended `unknown` was held by no instance that lives and is heard.
 * 3. A report that was answered RECORDED is the ending, and stays it.
 * 4. When time has passed every call has its one ending, and no slot is in use.
 *
 * The end of every schedule also checks what every test of a Brain in this process checks.
 */
import { Disposition, type Outcome, type RunTool } from "@aexhq/brain-proto";
import fc from "fast-check";
import { expect, it } from "vitest";
import { ok } from "../../../server/src/core/outcome.js";
import { type AskedCall, BrainInProcess, summary } from "../../support/brain-in-process.js";
import type { RawHost, RawInstance } from "../../support/raw-host.js";

const SCHEDULES = Number(process.env["SCHEDULES"] ?? 30);
const TIMEOUT_MS = 90_000;

type Action =
  | { readonly do: "call"; readonly session: number; readonly repeat: boolean }
  | { readonly do: "cancel"; readonly session: number; readonly call: number }
  | { readonly do: "attach"; readonly instance: number; readonly reading: boolean; readonly list: boolean }
  | { readonly do: "read" | "drop" | "report" | "reportAndDrop" | "emit" | "die" | "detach"; readonly instance: number }
  | { readonly do: "succeed"; readonly instance: number; readonly by: number }
  | { readonly do: "advance"; readonly ms: number }
  | { readonly do: "hold" | "release" | "refuse" | "restart" | "crash" };

const instance = fc.nat(2);
const session = fc.nat(1);
const action: fc.Arbitrary<Action> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant("call" as const), session, repeat: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("cancel" as const), session, call: fc.nat(5) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("attach" as const), instance, reading: fc.boolean(), list: fc.boolean() }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constantFrom("read" as const, "report" as const, "emit" as const), instance }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom("drop" as const, "reportAndDrop" as const), instance }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom("die" as const, "detach" as const), instance }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("succeed" as const), instance, by: instance }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("advance" as const), ms: fc.constantFrom(100, 4000, 16_000, 31_000) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom("hold" as const, "release" as const, "refuse" as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom("restart" as const, "crash" as const) }) },
);

/** One process of the host, and what is true of it whatever Brain believes. */
interface Process {
  readonly instance: RawInstance;
  readonly runs: RunTool[];
  /** Attached since the server started last: its heartbeats are heard. */
  heard: boolean;
  reading: boolean;
  attached: boolean;
}

class Schedule {
  readonly brain: BrainInProcess;
  readonly host: RawHost;
  readonly sessions: readonly string[];
  readonly processes: Process[];
  readonly calls: AskedCall[][] = [[], []];
  readonly recorded = new Map<string, Outcome>();
  readonly #seen = new Set<string>();
  readonly #underway: Promise<unknown>[] = [];
  readonly #read = new Set<string>();
  #reports = 0;

  private constructor(brain: BrainInProcess, host: RawHost, sessions: readonly string[]) {
    this.brain = brain;
    this.host = host;
    this.sessions = sessions;
    this.processes = [0, 1, 2].map(() => this.#process());
  }

  static async begin(brain: BrainInProcess): Promise<Schedule> {
    const host = await brain.registerHost();
    return new Schedule(brain, host, [await brain.createSession(host), await brain.createSession(host)]);
  }

  async act(action: Action): Promise<void> {
    await this.#do(action);
    await this.brain.virtual.settle();
    this.#noteWhatWasRead();
    await this.#checkNewEndings();
  }

  /** Lets everything end, and looks at what is left. */
  async finish(): Promise<void> {
    this.brain.journal.release();
    await this.brain.virtual.advance(3 * TIMEOUT_MS);
    await Promise.all(this.#underway);
    this.#noteWhatWasRead();
    await this.#checkNewEndings();
    expect(this.brain.brain.sessions.openCalls).toBe(0);
    const { instances } = await this.brain.brain.hosts.get(this.host.hostId);
    expect(instances.map(({ openCalls }) => openCalls)).toEqual(instances.map(() => 0));
    for (const [key, outcome] of this.recorded) {
      const [sessionId = "", callSequence] = key.split("/");
      expect((await this.brain.brain.calls.get(sessionId, { callSequence: Number(callSequence) })).outcome).toEqual(outcome);
    }
  }

  async #do(action: Action): Promise<void> {
    const { brain } = this;
    switch (action.do) {
      case "call": {
        const calls = this.calls[action.session] ?? [];
        const callId = action.repeat ? calls.at(-1)?.callId : undefined;
        calls.push(brain.ask(this.sessions[action.session] ?? "", { timeoutMs: TIMEOUT_MS, ...(callId === undefined ? {} : { callId }) }));
        return;
      }
      case "cancel": {
        const callId = this.calls[action.session]?.[action.call]?.callId;
        if (callId === undefined) return;
        this.#ignoreRefusal(brain.brain.sessions.cancelCall(this.sessions[action.session] ?? "", { callId }, "", "api"));
        return;
      }
      case "attach":
        return this.#attach(this.#at(action.instance), action.reading, action.list);
      case "read": {
        const process = this.#at(action.instance);
        if (!process.attached || process.reading) return;
        process.reading = true;
        await process.instance.readOn();
        return;
      }
      case "drop":
        return this.#drop(this.#at(action.instance));
      case "report":
      case "reportAndDrop": {
        const process = this.#at(action.instance);
        const run = process.runs[0];
        if (run !== undefined) this.#report(process, run);
        if (action.do === "reportAndDrop") this.#drop(process);
        return;
      }
      case "emit": {
        const process = this.#at(action.instance);
        const run = process.runs[0];
        if (run !== undefined) this.#ignoreRefusal(process.instance.emit(run));
        return;
      }
      case "die":
        this.#at(action.instance).instance.die();
        this.processes[action.instance] = this.#process();
        return;
      case "detach": {
        const process = this.#at(action.instance);
        this.processes[action.instance] = this.#process();
        await process.instance.detach();
        process.instance.die();
        return;
      }
      case "succeed":
        return this.#succeed(action.instance, this.#at(action.by));
      case "advance":
        return brain.virtual.advance(action.ms);
      case "hold":
        return brain.journal.hold();
      case "release":
        return brain.journal.release();
      case "refuse":
        return brain.journal.refuseHeld();
      case "restart":
      case "crash":
        brain.journal.release();
        await brain.virtual.settle();
        this.#noteWhatWasRead();
        for (const process of this.processes) {
          process.heard = false;
          process.attached = false;
        }
        await (action.do === "crash" ? brain.crash() : brain.restart());
        return;
    }
  }

  #process(): Process {
    return { instance: this.host.instance(), runs: [], heard: false, reading: false, attached: false };
  }

  #at(index: number): Process {
    const process = this.processes[index];
    if (process === undefined) throw new Error(`there is no process ${index}`);
    return process;
  }

  async #attach(process: Process, reading: boolean, list: boolean): Promise<void> {
    await process.instance.attach({ maxConcurrentCalls: 2, reading, ...(list ? {} : { list: "no list" as const }) });
    process.instance.beat();
    process.heard = true;
    process.attached = true;
    process.reading = reading;
  }

  #drop(process: Process): void {
    process.instance.drop();
    process.attached = false;
  }

  /** The process dies with its calls in a file, and another one takes them over. */
  async #succeed(index: number, successor: Process): Promise<void> {
    const dying = this.#at(index);
    if (dying === successor) return;
    dying.instance.die();
    this.processes[index] = this.#process();
    for (const run of dying.runs) {
      successor.instance.holdAlso(run);
      successor.runs.push(run);
    }
    await this.#attach(successor, true, true);
  }

  #report(process: Process, run: RunTool): void {
    const outcome = ok(String(++this.#reports));
    const reporting = process.instance.report(run, outcome).then(({ disposition, standing }) => {
      process.runs.splice(process.runs.indexOf(run), 1);
      const key = keyOf(run);
      if (disposition === Disposition.RECORDED) this.recorded.set(key, outcome);
      else expect(summary(standing)).not.toBe("none");
    });
    this.#ignoreRefusal(reporting);
  }

  /** The dead answer nobody, so only what can still be answered is waited for. */
  #ignoreRefusal(asked: Promise<unknown>): void {
    void asked.catch((error: unknown) => {
      if (!(error instanceof Error && "reason" in error)) this.#underway.push(Promise.reject(error));
    });
  }

  #noteWhatWasRead(): void {
    for (const process of this.processes) {
      for (const run of process.instance.runTools) {
        const key = keyOf(run);
        if (this.#read.has(key)) continue;
        this.#read.add(key);
        process.runs.push(run);
      }
    }
  }

  async #checkNewEndings(): Promise<void> {
    for (const sessionId of this.sessions) {
      for (const { sequence, entry } of await this.brain.records(sessionId)) {
        if (entry.case !== "toolCallEnded") continue;
        const key = keyOf({ sessionId, callSequence: entry.value.callSequence });
        const ending = summary(entry.value.outcome);
        if (ending === "error command_not_delivered") expect([...this.#read], "rule 1").not.toContain(key);
        if (this.#seen.has(`${sessionId}/${sequence}`)) continue;
        this.#seen.add(`${sessionId}/${sequence}`);
        if (!ending.startsWith("unknown")) continue;
        for (const { heard, instance } of this.processes) if (heard) expect(instance.held.map(keyOf), "rule 2").not.toContain(key);
      }
    }
  }
}

function keyOf({ sessionId, callSequence }: { sessionId: string; callSequence: number }): string {
  return `${sessionId}/${callSequence}`;
}

it("keeps every promise in schedules that nobody thought of", { timeout: 20_000 + SCHEDULES * 2000 }, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(action, { minLength: 20, maxLength: 60, size: "max" }), async (actions) => {
      await using brain = await BrainInProcess.start();
      const schedule = await Schedule.begin(brain);
      for (const next of actions) await schedule.act(next);
      await schedule.finish();
    }),
    { numRuns: SCHEDULES },
  );
});
