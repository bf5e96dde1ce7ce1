import { CancelCause } from "@aexhq/brain-proto";
import { describe, expect, it } from "vitest";
import { ok } from "../../../server/src/core/outcome.js";
import { BrainInProcess, outcomeOf } from "../../support/brain-in-process.js";

describe("a command", () => {
  it("carries what the function needs, and the time left beside the deadline", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const session = await brain.createSession(host);
    await brain.call(session, { callId: "seven", name: "store", inputJson: '{"id": 7}', timeoutMs: 10_000 });
    await brain.virtual.advance(2500);
    const one = await host.attached();
    const [, started] = await brain.records(session);
    expect(await one.runTool()).toMatchObject({
      sessionId: session,
      callSequence: 2,
      callId: "seven",
      name: "store",
      environment: "local",
      inputJson: '{"id":7}',
      configurationJson: "{}",
      remaining: { seconds: 7n, nanos: 500_000_000 },
      deadline: started?.entry.case === "toolCallStarted" ? started.entry.value.deadline : undefined,
    });
  });

  it("is written only to the generation its start names: to none when that was replaced meanwhile", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    brain.journal.hold();
    const call = await brain.call(session);
    await one.attach({ list: "no list" });
    brain.journal.release();
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("error command_not_delivered");
    expect(call.answered?.outcome.status.value).toMatchObject({ retryable: true });
    expect(one.runTools).toEqual([]);
  });

  it("is written to no other instance when its stream is gone", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const [one, two] = [await host.attached(), await host.attached()];
    const session = await brain.createSession(host);
    brain.journal.hold();
    const call = await brain.call(session);
    one.drop();
    brain.journal.release();
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("error command_not_delivered");
    expect([...one.runTools, ...two.runTools]).toEqual([]);
  });

  it("is not kept for a later stream", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ reading: false });
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    expect(call.answered).toBeUndefined();
    one.drop();
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("error command_not_delivered");
    await one.attach();
    await brain.virtual.settle();
    expect(one.runTools).toEqual([]);
  });

  it("is still written to an instance that fell silent after its slot was reserved", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    one.silence();
    await brain.virtual.advance(14_999);
    brain.journal.hold();
    const call = await brain.call(session);
    await brain.virtual.advance(1);
    brain.journal.release();
    await one.report(await one.runTool(), ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("ok 1");
  });

  it("is not written when its time is over by the time its start is durable", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    brain.journal.hold();
    const call = await brain.call(session, { timeoutMs: 1000 });
    await brain.virtual.advance(1000);
    brain.journal.release();
    await brain.virtual.advance(0);
    expect(outcomeOf(call)).toBe("timeout deadline_passed");
    expect(one.commands.map((command) => command.case)).not.toContain("runTool");
  });

  it("is not written for a call that was cancelled before its start was durable", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    brain.journal.hold();
    const call = await brain.call(session, { callId: "early" });
    const cancelling = brain.brain.sessions.cancelCall(session, { callId: "early" }, "", "api");
    await brain.virtual.settle();
    brain.journal.release();
    expect(await cancelling).toBe(2);
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("cancelled cancel_requested");
    expect(one.runTools).toEqual([]);
  });

  it("goes to a reader that is too slow no more: its stream is closed, and what it did not read ends", async () => {
    await using brain = await BrainInProcess.start({ config: { heartbeatMs: 1_000_000, hostGraceMs: 5_000_000 } });
    const host = await brain.registerHost();
    const one = await host.attached({ reading: false });
    const quick = host.instance();
    const session = await brain.createSession(host);
    const inputJson = JSON.stringify({ text: "x".repeat(60_000) });
    const calls = [await brain.call(session, { inputJson }), await brain.call(session, { inputJson })];
    expect(calls.map(outcomeOf)).toEqual(["none", "none"]);
    while (calls[0]?.answered === undefined && calls.length < 300) calls.push(await brain.call(session, { inputJson }));
    await quick.attach();
    expect(new Set(calls.map(outcomeOf))).toEqual(new Set(["error command_not_delivered"]));
    await one.readOn();
    expect(one.stream).toMatchObject({ ended: true, refusal: { reason: "stream_too_slow" } });
    const next = await brain.call(session);
    await quick.report(await quick.runTool(), ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(next)).toBe("ok 1");
  });
});

describe("a command to stop", () => {
  it("reaches every holder of a call that ended by its deadline, a cancel, or the end of its session", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session, { timeoutMs: 1000 });
    await brain.call(session, { callId: "cancelled" });
    await brain.call(session);
    const [timed, cancelled, ended] = [await one.runTool(), await one.runTool(), await one.runTool()];
    const two = await host.attached({ list: [timed, cancelled, ended] });
    await brain.virtual.advance(1000);
    await brain.brain.sessions.cancelCall(session, { callId: "cancelled" }, "", "api");
    await brain.brain.sessions.end(session, "api");
    await brain.virtual.settle();
    const expected = [
      { callSequence: timed.callSequence, cause: CancelCause.DEADLINE },
      { callSequence: cancelled.callSequence, cause: CancelCause.REQUESTED },
      { callSequence: ended.callSequence, cause: CancelCause.SESSION_ENDED },
    ];
    expect(one.cancels).toMatchObject(expected);
    expect(two.cancels).toMatchObject(expected);
  });

  it("is written only when the ending is durable", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session, { timeoutMs: 1000 });
    brain.journal.hold();
    await brain.virtual.advance(1000);
    expect(one.cancels).toEqual([]);
    expect(call.answered).toBeUndefined();
    brain.journal.release();
    await brain.virtual.settle();
    expect(one.cancels).toHaveLength(1);
    expect(outcomeOf(call)).toBe("timeout deadline_passed");
  });

  it("is not written for a call that its function ended", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session);
    await one.report(await one.runTool(), ok("1"));
    await brain.virtual.advance(200_000);
    expect(one.cancels).toEqual([]);
  });
});
