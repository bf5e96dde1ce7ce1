import { describe, expect, it } from "vitest";
import { createVirtualClock, type VirtualClock } from "../../../../tests/support/virtual-clock.js";
import { CommandStream } from "./command-stream.js";
import { Instance } from "./instance.js";

const TIMES = { heartbeatMs: 1000, graceMs: 10_000 };

function watched(): { instance: Instance; clock: VirtualClock; seen: string[] } {
  const clock = createVirtualClock({ startWallMs: 5000, settle: () => Promise.resolve() });
  const seen: string[] = [];
  const startedAt = clock.monotonic();
  const note = (what: string): void => void seen.push(`${what} at ${clock.monotonic() - startedAt}`);
  const instance = new Instance({ hostId: "h", instanceId: "i" }, clock, TIMES, { silent: () => note("silent"), gone: () => note("gone") });
  instance.watch();
  return { instance, clock, seen };
}

describe("the watch over an instance", () => {
  it("finds it silent after three periods and gone after the grace, each once", async () => {
    const { instance, clock, seen } = watched();
    await clock.advance(100_000);
    expect(seen).toEqual(["silent at 3000", "gone at 10000"]);
    expect(clock.pendingTimers).toBe(0);
    expect(instance.silent).toBe(true);
  });

  it("finds nothing while it is heard", async () => {
    const { instance, clock, seen } = watched();
    for (let beat = 0; beat < 50; beat++) {
      await clock.advance(2999);
      instance.heard();
    }
    expect(seen).toEqual([]);
  });

  it("counts every silence from the last sign of life, also after an earlier silence", async () => {
    const { instance, clock, seen } = watched();
    await clock.advance(3500);
    instance.heard();
    await clock.advance(5000);
    instance.heard();
    await clock.advance(20_000);
    expect(seen).toEqual(["silent at 3000", "silent at 6500", "silent at 11500", "gone at 18500"]);
  });

  it("begins when it is asked for, and not before", async () => {
    const clock = createVirtualClock({ startWallMs: 5000, settle: () => Promise.resolve() });
    let gone = 0;
    const instance = new Instance({ hostId: "h", instanceId: "i" }, clock, TIMES, { silent: () => undefined, gone: () => gone++ });
    instance.heard();
    await clock.advance(100_000);
    expect([gone, clock.pendingTimers]).toEqual([0, 0]);
    instance.watch();
    await clock.advance(9999);
    expect(gone).toBe(0);
    await clock.advance(1);
    expect(gone).toBe(1);
  });

  it("has one timer at a time", async () => {
    const { instance, clock } = watched();
    for (let beat = 0; beat < 20; beat++) {
      await clock.advance(beat % 2 === 0 ? 500 : 3500);
      instance.heard();
      expect(clock.pendingTimers).toBe(1);
    }
  });

  it("excuses a timer that fires more than a period late, once until something is heard", async () => {
    const { instance, clock, seen } = watched();
    await clock.stall(60_000);
    expect(seen).toEqual([]);
    await clock.advance(999);
    instance.heard();
    await clock.stall(60_000);
    expect(seen).toEqual([]);
    await clock.advance(1000);
    expect(seen).toEqual(["gone at 121999"]);
  });

  it("excuses no timer that is less than a period late", async () => {
    const { clock, seen } = watched();
    await clock.stall(4000);
    expect(seen).toEqual(["silent at 4000"]);
  });

  it("is not moved by the wall clock", async () => {
    const { clock, seen } = watched();
    clock.stepWall(3_600_000);
    await clock.advance(2999);
    clock.stepWall(-7_200_000);
    expect(seen).toEqual([]);
    await clock.advance(1);
    expect(seen).toEqual(["silent at 3000"]);
  });

  it("ends for good when it is forgotten, silent or not", async () => {
    const { instance, clock, seen } = watched();
    await clock.advance(3000);
    instance.forget();
    instance.heard();
    await clock.advance(100_000);
    expect(seen).toEqual(["silent at 3000"]);
    expect(clock.pendingTimers).toBe(0);
  });
});

describe("an instance", () => {
  it("is attached while its stream is open and it is not silent", async () => {
    const { instance, clock } = watched();
    expect(instance.attached).toBe(false);
    instance.stream = new CommandStream(() => undefined);
    expect(instance.attached).toBe(true);
    await clock.advance(3000);
    expect(instance.attached).toBe(false);
    instance.heard();
    expect(instance.attached).toBe(true);
    instance.stream.close();
    expect(instance.attached).toBe(false);
  });

  it("serves everything without a list, and what is listed by Environment, Tool and definition with one", () => {
    const { instance } = watched();
    expect(instance.serves("local", "lookup", "abc")).toBe(true);
    instance.served = new Map([
      ["local/lookup", "abc"],
      ["local/store", ""],
    ]);
    expect(instance.serves("local", "lookup", "abc")).toBe(true);
    expect(instance.serves("local", "lookup", "abd")).toBe(false);
    expect(instance.serves("local", "store", "whatever")).toBe(true);
    expect(instance.serves("remote", "lookup", "abc")).toBe(false);
    expect(instance.serves("local", "other", "abc")).toBe(false);
  });
});
