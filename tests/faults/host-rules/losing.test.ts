import { Disposition, InstanceState } from "@aexhq/brain-proto";
import { describe, expect, it } from "vitest";
import { ok } from "../../../server/src/core/outcome.js";
import { BrainInProcess, outcomeOf } from "../../support/brain-in-process.js";

describe("a stream that is lost", () => {
  it("ends nothing: the call goes on and its report is recorded, attached again or not", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const run = await one.runTool();
    one.drop();
    await brain.virtual.advance(100_000);
    expect(call.answered).toBeUndefined();
    expect(await host.seen(one)).toMatchObject({ state: InstanceState.STREAM_LOST, openCalls: 1 });
    await one.report(run, ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("ok 1");
  });

  it("gets no new calls", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const [one, two] = [await host.attached(), await host.attached()];
    one.drop();
    const session = await brain.createSession(host);
    await brain.call(session);
    await brain.call(session);
    expect([one.runTools.length, two.runTools.length]).toEqual([0, 2]);
  });
});

describe("an instance that is silent for three periods", () => {
  it("gets no new calls, keeps those it has, and gets new ones again when it is heard", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const first = await brain.call(session);
    one.silence();
    await brain.virtual.advance(14_999);
    expect(await host.seen(one)).toMatchObject({ state: InstanceState.ATTACHED });
    await brain.virtual.advance(1);
    expect(await host.seen(one)).toMatchObject({ state: InstanceState.SILENT });
    const second = await brain.call(session);
    expect(one.runTools).toHaveLength(1);
    one.heartbeat();
    await brain.virtual.settle();
    expect(one.runTools.map(({ callId }) => callId)).toEqual([first.callId, second.callId]);
    expect(first.answered).toBeUndefined();
  });

  it("is found silent in time again and again, also under a long grace", async () => {
    await using brain = await BrainInProcess.start({ config: { hostGraceMs: 600_000 } });
    const host = await brain.registerHost();
    const one = host.instance();
    await one.attach();
    for (let silence = 0; silence < 3; silence++) {
      await brain.virtual.advance(15_000);
      expect(await host.seen(one)).toMatchObject({ state: InstanceState.SILENT });
      await brain.virtual.advance(1000);
      one.heartbeat();
      expect(await host.seen(one)).toMatchObject({ state: InstanceState.ATTACHED });
    }
    await brain.virtual.advance(599_999);
    expect(await host.seen(one)).toMatchObject({ state: InstanceState.SILENT });
    await brain.virtual.advance(1);
    expect(await host.seen(one)).toBeUndefined();
  });

  it("is heard by an attach too", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = host.instance();
    await one.attach();
    await brain.virtual.advance(20_000);
    const session = await brain.createSession(host);
    await brain.call(session);
    await one.attach();
    expect(one.runTools).toHaveLength(1);
    await brain.virtual.advance(14_999);
    expect(await host.seen(one)).toMatchObject({ state: InstanceState.ATTACHED });
  });
});

describe("an instance that is gone", () => {
  it("takes its calls with it after the grace and not before, as unknown", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const calls = [await brain.call(session), await brain.call(session)];
    one.heartbeat();
    one.die();
    await brain.virtual.advance(29_999);
    expect(calls.map(outcomeOf)).toEqual(["none", "none"]);
    await brain.virtual.advance(1);
    expect(calls.map(outcomeOf)).toEqual(["unknown host_instance_lost", "unknown host_instance_lost"]);
    expect(await host.seen(one)).toBeUndefined();
  });

  it("is gone after the grace of silence even with an open stream, which is closed", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = host.instance();
    await one.attach();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    await brain.virtual.advance(30_000);
    expect(outcomeOf(call)).toBe("unknown host_instance_lost");
    expect(one.stream.ended).toBe(true);
    expect(() => one.heartbeat()).toThrow(expect.objectContaining({ reason: "instance_not_attached" }));
  });

  it("leaves as command_not_delivered what was still unread on its stream: that is known not to have run", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = host.instance();
    await one.attach({ reading: false });
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    await brain.virtual.advance(30_000);
    expect(outcomeOf(call)).toBe("error command_not_delivered");
    await one.readOn();
    expect(one.runTools).toEqual([]);
  });

  it("ends no call that another instance holds by its heartbeat's list", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const [one, two] = [await host.attached(), await host.attached()];
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const run = await one.runTool();
    expect(two.heartbeat([run])).toEqual([]);
    one.die();
    await brain.virtual.advance(60_000);
    expect(call.answered).toBeUndefined();
    two.die();
    await brain.virtual.advance(35_000);
    expect(outcomeOf(call)).toBe("unknown host_instance_lost");
  });

  it("is succeeded by a process that lists its call from a file, whose report is the ending", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const run = await one.runTool();
    one.die();
    await brain.virtual.advance(20_000);
    const successor = await host.attached({ list: [run] });
    expect(successor.ended).toEqual([]);
    await brain.virtual.advance(60_000);
    expect(call.answered).toBeUndefined();
    expect(await successor.report(run, ok("1"))).toMatchObject({ disposition: Disposition.RECORDED });
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("ok 1");
    expect(successor.runTools).toEqual([]);
  });

  it("holds its calls to the end although a successor listed and left them", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const run = await one.runTool();
    const two = await host.attached({ list: [run] });
    two.die();
    await brain.virtual.advance(60_000);
    expect(call.answered).toBeUndefined();
    await one.report(run, ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("ok 1");
  });

  it("may come back under its name: its slots are still those its open calls use", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 1 });
    const session = await brain.createSession(host);
    await brain.call(session);
    const run = await one.runTool();
    await host.attached({ list: [run], servedTools: [{ environment: "local", name: "store" }] });
    one.die();
    await brain.virtual.advance(60_000);
    expect(await host.seen(one)).toBeUndefined();
    await one.attach({ maxConcurrentCalls: 1 });
    expect(await host.seen(one)).toMatchObject({ openCalls: 1 });
    await brain.call(session);
    expect(one.runTools).toHaveLength(1);
  });

  it("may come back under its name: an attach whose list lacks a call it was sent still ends that call", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const run = await one.runTool();
    const two = await host.attached({ list: [run] });
    one.die();
    await brain.virtual.advance(60_000);
    expect(call.answered).toBeUndefined();
    await one.attach({ list: [] });
    expect(outcomeOf(call)).toBe("error command_not_delivered");
    expect(two.cancels).toHaveLength(1);
  });

  it("may not come back with a generation that an open call of it already names", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ generation: 3 });
    const session = await brain.createSession(host);
    await brain.call(session);
    const run = await one.runTool();
    await host.attached({ list: [run] });
    one.die();
    await brain.virtual.advance(60_000);
    await expect(one.attach({ generation: 3 })).rejects.toMatchObject({ reason: "attach_superseded" });
  });
});

describe("a Brain that was stalled", () => {
  it("gives an instance one more period before it calls it gone", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    one.silence();
    await brain.virtual.stall(120_000 - 1);
    expect(call.answered).toBeUndefined();
    expect(await host.seen(one)).toMatchObject({ state: InstanceState.ATTACHED });
    one.heartbeat();
    one.beat();
    await brain.virtual.settle();
    await one.report(await one.runTool(), ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("ok 1");
  });

  it("gives it only one: an instance that is not heard in that period is gone", async () => {
    await using brain = await BrainInProcess.start({ config: { toolTimeoutMs: 600_000 } });
    const host = await brain.registerHost();
    const one = host.instance();
    await one.attach();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    await brain.virtual.stall(100_000);
    await brain.virtual.advance(4999);
    expect(call.answered).toBeUndefined();
    await brain.virtual.stall(100_000);
    expect(outcomeOf(call)).toBe("unknown host_instance_lost");
  });

  it("excuses every stall anew, once something was heard between them", async () => {
    await using brain = await BrainInProcess.start({ config: { toolTimeoutMs: 600_000 } });
    const host = await brain.registerHost();
    const one = host.instance();
    await one.attach();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    for (let stall = 0; stall < 4; stall++) {
      await brain.virtual.stall(100_000);
      one.heartbeat();
      await brain.virtual.settle();
    }
    expect(call.answered).toBeUndefined();
    expect(await host.seen(one)).toMatchObject({ state: InstanceState.ATTACHED });
  });
});
