import { Disposition } from "@aexhq/brain-proto";
import { describe, expect, it } from "vitest";
import { ok } from "../../../server/src/core/outcome.js";
import { BrainInProcess, outcomeOf } from "../../support/brain-in-process.js";

describe("a detach", () => {
  it("ends as unknown the calls on its list that nobody else holds, and as command_not_delivered those it lacks", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const [listed, unlisted] = [await brain.call(session), await brain.call(session)];
    await one.detach({ list: [await one.runTool()] });
    expect([listed, unlisted].map(outcomeOf)).toEqual(["unknown host_instance_lost", "error command_not_delivered"]);
    expect(unlisted.answered?.outcome.status.value).toMatchObject({ retryable: true });
  });

  it("of an instance that holds nothing ends nothing of others, and closes its stream without a refusal", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const two = await host.attached();
    await two.detach();
    expect(call.answered).toBeUndefined();
    expect(two.stream).toEqual({ ended: true, refusal: undefined });
    expect(one.stream.ended).toBe(false);
    expect(await host.seen(two)).toBeUndefined();
  });

  it("leaves a listed call to its other holders", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const run = await one.runTool();
    const two = await host.attached({ list: [run] });
    await one.detach({ list: [run] });
    expect(call.answered).toBeUndefined();
    await two.report(run, ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("ok 1");
  });

  it("without a list promises nothing: its calls only lose this holder", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    await one.detach({ list: "no list" });
    expect(outcomeOf(call)).toBe("unknown host_instance_lost");
  });

  it("says nothing about calls of a higher generation than it names", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const older = await brain.call(session);
    await one.attach();
    const newer = await brain.call(session);
    const [, run] = [await one.runTool(), await one.runTool()];
    const two = await host.attached({ list: [run] });
    await one.detach({ generation: 1, list: [] });
    expect([older, newer].map(outcomeOf)).toEqual(["error command_not_delivered", "none"]);
    await two.report(run, ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(newer)).toBe("ok 1");
  });

  it("is final: later attaches of the instance are refused as instance_detached, whatever their generation", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    await one.detach();
    for (const generation of [0, 1, 2, 1000]) {
      await expect(one.attach({ generation })).rejects.toMatchObject({ reason: "instance_detached" });
    }
    expect(() => one.heartbeat()).toThrow(expect.objectContaining({ reason: "instance_not_attached" }));
  });

  it("is final also for an instance whose attach is still on its way", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = host.instance();
    await one.detach();
    await expect(one.attach()).rejects.toMatchObject({ reason: "instance_detached" });
  });

  it("can be repeated", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    await one.detach();
    await one.detach();
    expect(await host.seen(one)).toBeUndefined();
  });

  it("is no bar to a report of what had been sent", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const run = await one.runTool();
    await one.detach();
    expect(outcomeOf(call)).toBe("unknown host_instance_lost");
    expect(await one.report(run, ok("1"))).toMatchObject({ disposition: Disposition.LATE });
  });

  it("lets go of the instance: a call that waits is armed to give up, and one that comes goes to another", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 1 });
    const session = await brain.createSession(host);
    const held = await brain.call(session);
    const waiting = await brain.call(session);
    await brain.virtual.advance(20_000);
    await one.detach();
    expect([held, waiting].map(outcomeOf)).toEqual(["unknown host_instance_lost", "none"]);
    await brain.virtual.advance(4999);
    expect(waiting.answered).toBeUndefined();
    const two = await host.attached();
    expect((await two.runTool()).callId).toBe(waiting.callId);
  });

  it("ends a call whose start is not durable yet, once it is, and its command is never written", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    brain.journal.hold();
    const call = await brain.call(session);
    await one.detach({ list: [] });
    brain.journal.release();
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("error command_not_delivered");
    expect(one.runTools).toEqual([]);
  });

  it("of a gone instance still ends what its record names and its list lacks", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    await host.attached({ list: [await one.runTool()] });
    one.die();
    await brain.virtual.advance(60_000);
    expect(call.answered).toBeUndefined();
    await one.detach({ list: [] });
    expect(outcomeOf(call)).toBe("error command_not_delivered");
  });

  it("works the same after a restart, before the instance has attached again", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const [listed, unlisted] = [await brain.call(session, { callId: "listed" }), await brain.call(session, { callId: "unlisted" })];
    const run = await one.runTool();
    await brain.crash();
    await one.detach({ list: [run] });
    expect(listed.answered).toBeUndefined();
    const again = [await brain.call(session, { callId: "listed" }), await brain.call(session, { callId: "unlisted" })];
    expect(again.map(outcomeOf)).toEqual(["unknown host_instance_lost", "error command_not_delivered"]);
    expect(unlisted.answered).toBeUndefined();
  });
});
