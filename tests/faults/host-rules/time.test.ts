import { afterEach, describe, expect, it, vi } from "vitest";
import { ok } from "../../../server/src/core/outcome.js";
import { systemClock } from "../../../server/src/runtime/clock.js";
import { BrainInProcess, outcomeOf, START_WALL_MS } from "../../support/brain-in-process.js";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

describe("a timeout", () => {
  it("counts from the request's arrival: waiting for a slot is part of it", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const session = await brain.createSession(host);
    const call = await brain.call(session, { timeoutMs: 10_000 });
    await brain.virtual.advance(4000);
    const one = await host.attached();
    expect((await one.runTool()).remaining).toMatchObject({ seconds: 6n, nanos: 0 });
    await brain.virtual.advance(5999);
    expect(call.answered).toBeUndefined();
    await brain.virtual.advance(1);
    expect(outcomeOf(call)).toBe("timeout deadline_passed");
  });

  it("is the server's where neither the call nor its session names one", async () => {
    await using brain = await BrainInProcess.start({ config: { toolTimeoutMs: 7000 } });
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    expect((await one.runTool()).deadline).toMatchObject({ seconds: BigInt(START_WALL_MS / 1000 + 7) });
    await brain.virtual.advance(6999);
    expect(call.answered).toBeUndefined();
    await brain.virtual.advance(1);
    expect(outcomeOf(call)).toBe("timeout deadline_passed");
  });

  it("of zero, less, or more than ten years is refused before anything is recorded", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const session = await brain.createSession(host);
    for (const timeoutMs of [0, -5, 11 * 365 * DAY_MS]) {
      expect((await brain.call(session, { timeoutMs })).refusal).toMatchObject({ reason: "invalid_argument" });
    }
    expect(await brain.kinds(session)).toEqual(["sessionCreated"]);
  });

  it("of a repeat changes nothing: the first deadline stands", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session, { callId: "same", timeoutMs: 1000 });
    const repeat = await brain.call(session, { callId: "same", timeoutMs: 100_000 });
    await brain.virtual.advance(1000);
    expect([call, repeat].map(outcomeOf)).toEqual(["timeout deadline_passed", "timeout deadline_passed"]);
  });
});

describe("a wall clock that is stepped", () => {
  it.each([
    ["forward", HOUR_MS],
    ["back", -HOUR_MS],
  ])("an hour %s changes no deadline, no liveness and no order", async (_, stepMs) => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 2 });
    const session = await brain.createSession(host);
    const timed = await brain.call(session, { timeoutMs: 40_000 });
    const done = await brain.call(session);
    const waiting = await brain.call(session, { timeoutMs: 50_000 });
    const [, run] = [await one.runTool(), await one.runTool()];
    brain.virtual.stepWall(stepMs);
    await brain.virtual.advance(39_999);
    expect([timed, done, waiting].map(outcomeOf)).toEqual(["none", "none", "none"]);
    await brain.virtual.advance(1);
    expect(outcomeOf(timed)).toBe("timeout deadline_passed");
    expect((await one.runTool()).remaining).toMatchObject({ seconds: 10n, nanos: 0 });
    await one.report(run, ok("1"));
    await brain.virtual.advance(10_000);
    expect([done, waiting].map(outcomeOf)).toEqual(["ok 1", "timeout deadline_passed"]);
    const records = await brain.records(session);
    expect(records.map(({ sequence }) => sequence)).toEqual(records.map((_record, index) => index + 1));
    expect(records.map(({ entry }) => entry.case)).toEqual([
      "sessionCreated",
      "toolCallStarted",
      "toolCallStarted",
      "toolCallEnded",
      "toolCallStarted",
      "toolCallEnded",
      "toolCallEnded",
    ]);
  });

  it("while Brain is down moves the deadlines of open calls with it, which is all that a record can say", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session, { callId: "open", timeoutMs: 60_000 });
    await brain.crash({ down: async () => brain.virtual.stepWall(HOUR_MS) });
    expect(outcomeOf(await brain.call(session, { callId: "open" }))).toBe("timeout deadline_passed");
  });
});

describe("a deadline beyond what one timer can wait for", () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  it.each([
    ["2^31 - 1 ms", 2 ** 31 - 1],
    ["2^31 ms", 2 ** 31],
    ["400 days", 400 * DAY_MS],
  ])("of %s is kept to the millisecond", async (_, timeoutMs) => {
    const heartbeatMs = 10 * DAY_MS;
    await using brain = await BrainInProcess.start({ config: { heartbeatMs, hostGraceMs: 100 * DAY_MS } });
    const host = await brain.registerHost();
    const one = host.instance();
    await one.attach();
    one.beat(heartbeatMs);
    const session = await brain.createSession(host);
    const call = await brain.call(session, { timeoutMs });
    expect((await one.runTool()).remaining).toMatchObject({ seconds: BigInt(Math.floor(timeoutMs / 1000)) });
    await brain.virtual.advance(timeoutMs - 1);
    expect(call.answered).toBeUndefined();
    await brain.virtual.advance(1);
    expect(outcomeOf(call)).toBe("timeout deadline_passed");
  });

  it.each([2 ** 31 - 1, 2 ** 31, 400 * DAY_MS])("of %d ms wakes the real clock once, when it is due and not before", (delayMs) => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    let woken = 0;
    systemClock.after(delayMs, () => woken++);
    vi.advanceTimersByTime(delayMs - 1);
    expect(woken).toBe(0);
    vi.advanceTimersByTime(1);
    expect(woken).toBe(1);
    vi.advanceTimersByTime(delayMs);
    expect(woken).toBe(1);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("can be disarmed on the real clock after any number of its turns", () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    let woken = 0;
    const disarm = systemClock.after(400 * DAY_MS, () => woken++);
    vi.advanceTimersByTime(100 * DAY_MS);
    disarm();
    vi.advanceTimersByTime(400 * DAY_MS);
    expect([woken, vi.getTimerCount()]).toEqual([0, 0]);
  });

  it("lets a call on the real clock run and end, with no warning of a timer that overflowed", async () => {
    const warnings: Error[] = [];
    const warned = (warning: Error): void => void warnings.push(warning);
    process.on("warning", warned);
    await using brain = await BrainInProcess.start({ clock: systemClock });
    const host = await brain.registerHost();
    const one = host.instance();
    await one.attach();
    const session = await brain.createSession(host);
    const calls = [];
    for (const timeoutMs of [2 ** 31 - 1, 2 ** 31, 400 * DAY_MS]) calls.push(await brain.call(session, { timeoutMs }));
    // Long enough for a timer that overflowed, which fires after a millisecond.
    await new Promise<void>((resolve) => systemClock.after(20, resolve));
    expect(calls.map(outcomeOf)).toEqual(["none", "none", "none"]);
    for (let call = 0; call < 3; call++) await one.report(await one.runTool(), ok('{"v":1}'));
    await brain.virtual.settle();
    expect(calls.map(outcomeOf)).toEqual(Array(3).fill('ok {"v":1}'));
    process.off("warning", warned);
    expect(warnings).toEqual([]);
  });
});

describe("a call that ended", () => {
  it("leaves no timer behind", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session, { timeoutMs: DAY_MS });
    await one.report(await one.runTool(), ok("1"));
    await brain.virtual.advance(1000);
    const before = brain.virtual.pendingTimers;
    for (let call = 0; call < 50; call++) {
      await brain.call(session, { timeoutMs: DAY_MS });
      await one.report(await one.runTool(), ok("1"));
    }
    await brain.virtual.advance(1000);
    expect(brain.virtual.pendingTimers).toBe(before);
  });
});

describe("a heartbeat of Brain", () => {
  it("is written every period to every stream, and to none after it was closed", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const beats = (): number => one.commands.filter((command) => command.case === "heartbeat").length;
    await brain.virtual.advance(20_000);
    expect(beats()).toBe(4);
    await one.attach();
    await brain.virtual.advance(20_000);
    expect(beats()).toBe(8);
  });
});
