/** Schedules that the simulation found a broken promise in, each written out. */
import {
  CallToolRequestSchema,
  CreateSessionRequestSchema,
  type Record as JournalRecord,
  RegisterHostRequestSchema,
} from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { durationFromMs, durationMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, it } from "vitest";
import { defaultConfig } from "../../server/src/config.js";
import { ok } from "../../server/src/core/outcome.js";
import type { Entry } from "../../server/src/journal/port.js";
import { type Brain, createBrain } from "../../server/src/runtime/brain.js";
import type { Ending } from "../../server/src/runtime/live-call.js";
import type { Validator } from "../../server/src/validation/port.js";
import { summary, TIMES } from "../support/brain-in-process.js";
import { MemoryFile, MemoryJournal } from "../support/memory-journal.js";
import { RawHost } from "../support/raw-host.js";
import { createVirtualClock, type VirtualClock } from "../support/virtual-clock.js";

type EntryKind = Entry["case"];

interface Asked {
  told: Ending | undefined;
  refusal: { reason?: string } | undefined;
}

/** A Brain whose commits are made one by one when a test says so, and refused by what they hold. */
class PacedBrain {
  readonly clock: VirtualClock = createVirtualClock({ startWallMs: Date.UTC(2026, 0, 1) });
  readonly file = new MemoryFile();
  readonly bugs: string[] = [];
  brain: Brain;
  /** Refuses, for want of space, every append that holds one of these. */
  full: readonly EntryKind[] = [];
  #journal: MemoryJournal;
  #isPaced = false;
  #commit: (() => void) | undefined;
  #calls = 0;

  constructor() {
    [this.brain, this.#journal] = this.#begin();
    this.brain.listening();
  }

  #begin(): [Brain, MemoryJournal] {
    const journal = new MemoryJournal(
      this.file,
      {
        now: () => this.clock.now(),
        commitLater: (run) => {
          if (!this.#isPaced) return void this.clock.after(0, run);
          this.#commit = run;
        },
        answerLater: (run) => run(),
        read: async (look) => look(),
        refuses: (_, entries) => (entries.some((entry) => this.full.includes(entry.case)) ? "journal_full" : undefined),
      },
      { asked: () => undefined, refused: () => undefined, broken: (message) => void this.bugs.push(message) },
    );
    const ignore = (): void => undefined;
    const log = { debug: ignore, info: ignore, warn: ignore, error: (fields: object) => void this.bugs.push(JSON.stringify(fields)) };
    const config = { ...defaultConfig(), ...TIMES };
    const brain = createBrain({ journal, clock: this.clock, validator: ACCEPTS_ALL, config, log, serverVersion: "test" });
    return [brain, journal];
  }

  /** From now on a commit is made only by `commit`. */
  pace(): void {
    this.#isPaced = true;
  }

  /** Commits what waits, and goes on as fast as it is asked to. */
  async unpace(): Promise<void> {
    this.#isPaced = false;
    await this.commit();
  }

  async commit(): Promise<void> {
    const commit = this.#commit;
    this.#commit = undefined;
    commit?.();
    await this.clock.advance(0);
  }

  async crash(): Promise<void> {
    this.#journal.die();
    [this.brain, this.#journal] = this.#begin();
    const recovering = this.brain.recover();
    await this.clock.advance(0);
    await recovering;
    this.brain.listening();
  }

  async host(): Promise<RawHost> {
    const { hostId } = await this.brain.hosts.register(create(RegisterHostRequestSchema));
    return new RawHost(
      hostId,
      () => this.brain,
      this.clock,
      () => undefined,
    );
  }

  async session(host: RawHost): Promise<string> {
    const tool = { name: "lookup", description: "looks up", inputSchemaJson: "{}" };
    const message = create(CreateSessionRequestSchema, {
      environments: [{ name: "local", kind: { case: "host", value: { hostId: host.hostId } } }],
      tools: [{ tool, environment: "local", implementation: { kind: { case: "hostFunction", value: {} } } }],
    });
    const creating = this.brain.sessions.create(message, "api");
    await this.clock.advance(0);
    return (await creating).sessionId;
  }

  async call(sessionId: string, wish: { callId?: string; inputJson?: string; timeoutMs?: number } = {}): Promise<Asked> {
    const { callId = `call-${++this.#calls}`, inputJson = "{}", timeoutMs = 120_000 } = wish;
    const timeout = durationFromMs(timeoutMs);
    const message = create(CallToolRequestSchema, { sessionId, callId, name: "lookup", environment: "local", inputJson, timeout });
    const asked: Asked = { told: undefined, refusal: undefined };
    this.brain.sessions.callTool(message, { principal: "api", traceparent: "" }).then(
      (told) => {
        asked.told = told;
      },
      (error: { reason?: string }) => {
        asked.refusal = error;
      },
    );
    await this.clock.advance(0);
    return asked;
  }

  ask(asking: Promise<unknown>): { answered: boolean; refusal: { reason?: string } | undefined } {
    const asked = { answered: false, refusal: undefined as { reason?: string } | undefined };
    asking.then(
      () => {
        asked.answered = true;
      },
      (error: { reason?: string }) => {
        asked.refusal = error;
      },
    );
    return asked;
  }

  ending(sessionId: string, callId: string): string {
    return summary(this.file.call(sessionId, { callId })?.ended?.outcome);
  }

  kinds(sessionId: string): (JournalRecord["entry"]["case"] | undefined)[] {
    return (this.file.sessions.get(sessionId)?.records ?? []).map(({ entry }) => entry.case);
  }
}

const ACCEPTS_ALL: Validator = {
  check: async () => undefined,
  validate: async () => ({ valid: true }),
  close: async () => undefined,
};

describe("a command that lies in a queue", () => {
  it("is dropped when its call ends before anybody reads it", async () => {
    const paced = new PacedBrain();
    const host = await paced.host();
    const one = await host.attached({ reading: false });
    const session = await paced.session(host);
    await paced.call(session, { callId: "gone", timeoutMs: 3000 });
    await paced.call(session, { callId: "there" });
    await paced.clock.advance(3000);
    expect(paced.ending(session, "gone")).toBe("timeout deadline_passed");
    await one.readOn();
    expect(one.runTools.map(({ callId }) => callId)).toEqual(["there"]);
  });

  it("says how much time is left when it is read, not when it was put there", async () => {
    const paced = new PacedBrain();
    const host = await paced.host();
    const one = await host.attached({ reading: false });
    const session = await paced.session(host);
    await paced.call(session, { timeoutMs: 10_000 });
    await paced.clock.advance(4000);
    await one.readOn();
    const { remaining } = await one.runTool();
    expect(remaining === undefined ? 0 : durationMs(remaining)).toBe(6000);
  });
});

describe("a caller with other content", () => {
  it("is refused while the ending of the call is being recorded, and not answered by it", async () => {
    const paced = new PacedBrain();
    const host = await paced.host();
    const one = await host.attached();
    const session = await paced.session(host);
    const first = await paced.call(session, { callId: "one" });
    const run = await one.runTool();
    paced.pace();
    const reporting = paced.ask(one.report(run, ok("1")));
    await paced.clock.advance(0);
    const other = await paced.call(session, { callId: "one", inputJson: '{"other":1}' });
    const same = await paced.call(session, { callId: "one" });
    await paced.unpace();
    expect(reporting.answered).toBe(true);
    expect(other).toMatchObject({ told: undefined, refusal: { reason: "call_id_conflict" } });
    expect([first, same].map(({ told }) => summary(told?.outcome))).toEqual(["ok 1", "ok 1"]);
  });
});

describe("the end of a session that cannot be recorded", () => {
  it("is told to no caller, and the session goes on", async () => {
    const paced = new PacedBrain();
    const host = await paced.host();
    const one = await host.attached();
    const session = await paced.session(host);
    paced.full = ["sessionEnded"];
    paced.pace();
    const ending = paced.ask(paced.brain.sessions.end(session, "api"));
    await paced.clock.advance(0);
    const meanwhile = await paced.call(session, { callId: "meanwhile" });
    expect(meanwhile.refusal).toBeUndefined();
    await paced.unpace();
    expect(ending.refusal?.reason).toBe("journal_full");
    expect(meanwhile.refusal?.reason).toBe("journal_full");
    const again = await paced.call(session, { callId: "meanwhile" });
    paced.ask(one.report(await one.runTool(), ok("1")));
    await paced.clock.advance(0);
    expect(summary(again.told?.outcome)).toBe("ok 1");
  });

  it("is one end for all who ask for it at once", async () => {
    const paced = new PacedBrain();
    const host = await paced.host();
    const session = await paced.session(host);
    paced.pace();
    const both = [paced.ask(paced.brain.sessions.end(session, "api")), paced.ask(paced.brain.sessions.end(session, "api"))];
    await paced.clock.advance(0);
    await paced.unpace();
    expect(both.map(({ answered }) => answered)).toEqual([true, true]);
    expect(paced.kinds(session)).toEqual(["sessionCreated", "sessionEnded"]);
  });
});

describe("a call that is taken up after a restart while another's ending cannot be recorded", () => {
  /** Two calls run, the deadline of the first passes while the server is down, and there is no space for its ending. */
  async function restarted(): Promise<{ paced: PacedBrain; host: RawHost; session: string }> {
    const paced = new PacedBrain();
    const host = await paced.host();
    const one = await host.attached();
    const session = await paced.session(host);
    await paced.call(session, { callId: "overdue", timeoutMs: 1000 });
    await paced.call(session, { callId: "open" });
    await one.runTool();
    one.die();
    paced.full = ["toolCallEnded"];
    await paced.clock.advance(1000);
    await paced.crash();
    await paced.clock.advance(1000);
    expect([paced.ending(session, "overdue"), paced.ending(session, "open")]).toEqual(["none", "none"]);
    return { paced, host, session };
  }

  it("is ended with its session", async () => {
    const { paced, session } = await restarted();
    paced.full = [];
    const ending = paced.ask(paced.brain.sessions.end(session, "api"));
    await paced.clock.advance(1000);
    expect(ending.answered).toBe(true);
    expect(paced.ending(session, "overdue")).toBe("timeout deadline_passed");
    expect(paced.ending(session, "open")).toBe("cancelled session_ended");
    expect(paced.bugs).toEqual([]);
  });

  it("is lost when its last holder is gone, although that was before there was space again", async () => {
    const { paced, session } = await restarted();
    await paced.clock.advance(TIMES.hostGraceMs);
    expect(paced.ending(session, "open")).toBe("none");
    paced.full = [];
    await paced.clock.advance(1000);
    expect(paced.ending(session, "open")).toBe("unknown host_instance_lost");
  });
});

describe("a call that is cancelled before its start is durable", () => {
  it("is ended as not delivered when its start is recorded and its cancelling is not", async () => {
    const paced = new PacedBrain();
    const host = await paced.host();
    const one = await host.attached();
    const session = await paced.session(host);
    paced.pace();
    await paced.call(session, { callId: "one" });
    const cancelling = paced.ask(paced.brain.sessions.cancelCall(session, { callId: "one" }, "", "api"));
    await paced.clock.advance(0);
    paced.full = ["toolCallCancelRequested"];
    await paced.commit();
    await paced.unpace();
    expect(cancelling.refusal?.reason).toBe("journal_full");
    await paced.clock.advance(1000);
    expect(one.runTools).toEqual([]);
    expect(paced.ending(session, "one")).toBe("error command_not_delivered");
  });
});
