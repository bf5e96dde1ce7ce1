import { describe, expect, it } from "vitest";
import { ok } from "../../../server/src/core/outcome.js";
import { BrainInProcess } from "../../support/brain-in-process.js";

describe("a server that drains", () => {
  it("lets an instance that lost its stream at that moment attach again and report, and sends it nothing new", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session, { callId: "running" });
    const run = await one.runTool();
    const drained = brain.brain.drain(60_000);
    await one.attach();
    expect(one.commands.at(-1)?.case).toBe("drain");
    await one.report(run, ok("1"));
    await brain.virtual.advance(100);
    await drained;
    expect(call.answered?.outcome.status).toMatchObject({ case: "ok" });
    await expect(one.attach()).rejects.toMatchObject({ reason: "server_draining" });
  });

  it("lets no instance attach that it does not know", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    await brain.brain.drain(0);
    await expect(host.attached()).rejects.toMatchObject({ reason: "server_draining" });
  });

  it("refuses the calls that only wait as server_draining and records nothing of them, so that a repeat starts them", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const session = await brain.createSession(host);
    const waiting = await brain.call(session, { callId: "waits" });
    await brain.brain.drain(0);
    await brain.virtual.settle();
    expect(waiting.refusal).toMatchObject({ reason: "server_draining" });
    await brain.restart();
    expect(await brain.kinds(session)).toEqual(["sessionCreated"]);
    const one = await host.attached();
    await brain.call(session, { callId: "waits" });
    expect((await one.runTool()).callId).toBe("waits");
  });
});

describe("a report that comes after the deadline and before its timer", () => {
  it("is late: the deadline came first", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session, { callId: "slow", timeoutMs: 1000 });
    const run = await one.runTool();
    const reported: Promise<unknown>[] = [];
    // Asked for in the turn in which the clock has moved on and no timer has fired yet.
    brain.virtual.after(1000, () => reported.push(one.report(run, ok("1"))));
    await brain.virtual.stall(1000);
    await Promise.all(reported);
    expect(reported).toHaveLength(1);
    expect(call.answered?.outcome.status).toMatchObject({ case: "timeout" });
  });
});
