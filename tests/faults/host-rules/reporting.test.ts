import { Disposition } from "@aexhq/brain-proto";
import { describe, expect, it } from "vitest";
import { failed, failure, ok } from "../../../server/src/core/outcome.js";
import { BrainInProcess, outcomeOf, summary } from "../../support/brain-in-process.js";

describe("a report", () => {
  it("is recorded as the ending, and answered only when that is durable", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const run = await one.runTool();
    brain.journal.hold();
    let reported = false;
    const reporting = one.report(run, ok("1")).then((answer) => {
      reported = true;
      return answer;
    });
    await brain.virtual.settle();
    expect([reported, call.answered]).toEqual([false, undefined]);
    brain.journal.release();
    expect(await reporting).toMatchObject({ disposition: Disposition.RECORDED, standing: ok("1") });
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("ok 1");
  });

  it("that repeats the ending is answered DUPLICATE and adds nothing, also after a restart", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host, { outputSchema: { type: "object" } });
    await brain.call(session);
    const run = await one.runTool();
    await one.report(run, ok('{"a":1,"b":2}'));
    expect(await one.report(run, ok('{"b":2, "a":1}'))).toMatchObject({ disposition: Disposition.DUPLICATE });
    await brain.crash();
    expect(await one.report(run, ok('{"a":1,"b":2}'))).toMatchObject({ disposition: Disposition.DUPLICATE, standing: ok('{"a":1,"b":2}') });
    expect(await brain.kinds(session)).toEqual(["sessionCreated", "toolCallStarted", "toolCallEnded"]);
  });

  it("that differs from the ending is answered LATE, kept once, and changes nothing, also over a restart", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session, { timeoutMs: 1000 });
    const run = await one.runTool();
    await brain.virtual.advance(1000);
    const answers = [await one.report(run, ok("1")), await one.report(run, ok("1")), await one.report(run, ok("2"))];
    await brain.crash();
    answers.push(await one.report(run, ok("3")), await one.report(run, ok("1")));
    expect(answers.map(({ disposition }) => disposition)).toEqual(Array(5).fill(Disposition.LATE));
    expect(new Set(answers.map(({ standing }) => summary(standing)))).toEqual(new Set(["timeout deadline_passed"]));
    expect(await brain.kinds(session)).toEqual(["sessionCreated", "toolCallStarted", "toolCallEnded", "toolCallLateOutcome"]);
    const toolCall = await brain.brain.calls.get(session, { callSequence: run.callSequence });
    expect([summary(toolCall.outcome), summary(toolCall.lateOutcome)]).toEqual(["timeout deadline_passed", "ok 1"]);
    expect(outcomeOf(call)).toBe("timeout deadline_passed");
  });

  it("that comes twenty times at once makes one ending and at most one late outcome", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session);
    const run = await one.runTool();
    const answers = await Promise.all(Array.from({ length: 20 }, (_, index) => one.report(run, ok(String(index % 4)))));
    const count = (disposition: Disposition): number => answers.filter((answer) => answer.disposition === disposition).length;
    expect([count(Disposition.RECORDED), count(Disposition.DUPLICATE), count(Disposition.LATE)]).toEqual([1, 4, 15]);
    expect(await brain.kinds(session)).toEqual(["sessionCreated", "toolCallStarted", "toolCallEnded", "toolCallLateOutcome"]);
  });

  it("after an unknown ending is kept beside it", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const run = await one.runTool();
    one.die();
    await brain.virtual.advance(35_000);
    expect(outcomeOf(call)).toBe("unknown host_instance_lost");
    expect(await one.report(run, ok("1"))).toMatchObject({ disposition: Disposition.LATE });
    expect(summary((await brain.brain.calls.get(session, { callSequence: run.callSequence })).lateOutcome)).toBe("ok 1");
  });

  it("of an ended session's call is still kept as late", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session);
    const run = await one.runTool();
    await brain.brain.sessions.end(session, "api");
    expect(await one.report(run, ok("1"))).toMatchObject({ disposition: Disposition.LATE });
    expect((await brain.kinds(session)).slice(-2)).toEqual(["sessionEnded", "toolCallLateOutcome"]);
  });

  it("of tool_not_served is an ending like any other", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    await one.report(await one.runTool(), failed("error", failure("tool_not_served", "this process has no function lookup")));
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("error tool_not_served");
  });

  it("from a host that was not sent the call, or of a call that never was, is refused as call_not_found", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const stranger = await (await brain.registerHost()).attached();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const run = await one.runTool();
    const notFound = { reason: "call_not_found" };
    await expect(stranger.report(run, ok("1"))).rejects.toMatchObject(notFound);
    await expect(stranger.emit(run)).rejects.toMatchObject(notFound);
    await expect(one.report({ sessionId: session, callSequence: 1 }, ok("1"))).rejects.toMatchObject(notFound);
    await expect(one.report({ sessionId: session, callSequence: 77 }, ok("1"))).rejects.toMatchObject(notFound);
    await expect(one.report({ sessionId: "no-such-session", callSequence: 2 }, ok("1"))).rejects.toMatchObject(notFound);
    await expect(one.emit({ sessionId: "no-such-session", callSequence: 2 })).rejects.toMatchObject(notFound);
    await one.report(run, ok("1"));
    await expect(stranger.report(run, ok("1"))).rejects.toMatchObject(notFound);
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("ok 1");
    expect(await brain.kinds(session)).toEqual(["sessionCreated", "toolCallStarted", "toolCallEnded"]);
  });

  it("of a call whose session was deleted is refused as call_not_found, and the host learns that from its list", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session);
    const run = await one.runTool();
    await brain.brain.sessions.delete(session, "api");
    expect(one.cancels).toHaveLength(1);
    expect(one.heartbeat()).toEqual([{ sessionId: session, callSequence: run.callSequence }]);
    await expect(one.report(run, ok("1"))).rejects.toMatchObject({ reason: "call_not_found" });
    await expect(one.emit(run)).rejects.toMatchObject({ reason: "call_not_found" });
  });

  it("of a call that was given up before it had a receiver is refused as call_not_found", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const session = await brain.createSession(host);
    const call = await brain.call(session, { timeoutMs: 100 });
    await brain.virtual.advance(100);
    const one = await host.attached();
    const callSequence = call.answered?.callSequence ?? 0;
    await expect(one.report({ sessionId: session, callSequence }, ok("1"))).rejects.toMatchObject({ reason: "call_not_found" });
  });

  it("that the journal had no space for is recorded when space returns, before whatever comes after it", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session, { timeoutMs: 10_000 });
    const run = await one.runTool();
    brain.journal.fill();
    await expect(one.report(run, ok("1"))).rejects.toMatchObject({ reason: "journal_full" });
    expect(call.answered).toBeUndefined();
    await brain.virtual.advance(20_000);
    expect(call.answered).toBeUndefined();
    brain.journal.release();
    await brain.virtual.advance(1000);
    expect(outcomeOf(call)).toBe("ok 1");
    expect(await one.report(run, ok("1"))).toMatchObject({ disposition: Disposition.DUPLICATE });
  });
});

describe("an emit", () => {
  it("is answered with the sequence of its durable record", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session);
    const run = await one.runTool();
    brain.journal.hold();
    let answered = false;
    const emitting = one.emit(run, { kind: "progress", dataJson: '{"done":1}', emitId: "e1" }).then((sequence) => {
      answered = true;
      return sequence;
    });
    await brain.virtual.settle();
    expect(answered).toBe(false);
    brain.journal.release();
    expect(await emitting).toBe(3);
    expect((await brain.records(session))[2]?.entry).toMatchObject({
      case: "eventEmitted",
      value: { origin: { case: "callSequence", value: run.callSequence }, kind: "progress", dataJson: '{"done":1}', emitId: "e1" },
    });
  });

  it("is repeated without harm under its emit_id: at once, after the ending, and after a restart", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session);
    const run = await one.runTool();
    const sequences = await Promise.all([1, 2, 3].map(() => one.emit(run, { emitId: "e1" })));
    sequences.push(await one.emit(run, { emitId: "e1", kind: "other", dataJson: "1" }));
    await brain.crash();
    sequences.push(await one.emit(run, { emitId: "e1" }));
    await one.report(run, ok("1"));
    sequences.push(await one.emit(run, { emitId: "e1" }));
    await brain.crash();
    sequences.push(await one.emit(run, { emitId: "e1" }));
    expect(sequences).toEqual(Array(7).fill(3));
    expect(await brain.kinds(session)).toEqual(["sessionCreated", "toolCallStarted", "eventEmitted", "toolCallEnded"]);
  });

  it("with an emit_id of another call is an event of its own", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session);
    await brain.call(session);
    const [first, second] = [await one.runTool(), await one.runTool()];
    expect([await one.emit(first, { emitId: "e" }), await one.emit(second, { emitId: "e" })]).toEqual([4, 5]);
  });

  it("of an ended call is refused as call_ended, and never stands above the ending", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session);
    const run = await one.runTool();
    // Asked for at once, an emit may come before the ending or after it, and is told so.
    const emits = [one.emit(run), one.report(run, ok("1")).then(() => 0), one.emit(run)];
    const answers = await Promise.allSettled(emits);
    for (const answer of answers) if (answer.status === "rejected") expect(answer.reason).toMatchObject({ reason: "call_ended" });
    await expect(one.emit(run)).rejects.toMatchObject({ reason: "call_ended" });
    await brain.crash();
    await expect(one.emit(run)).rejects.toMatchObject({ reason: "call_ended" });
    expect((await brain.kinds(session)).at(-1)).toBe("toolCallEnded");
  });

  it("that could not be recorded is refused, and its repeat under the same emit_id is recorded once", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session);
    const run = await one.runTool();
    brain.journal.fill();
    await expect(one.emit(run, { emitId: "e1" })).rejects.toMatchObject({ reason: "journal_full" });
    brain.journal.release();
    expect([await one.emit(run, { emitId: "e1" }), await one.emit(run, { emitId: "e1" })]).toEqual([3, 3]);
  });

  it("does not move the deadline", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session, { timeoutMs: 500 });
    const run = await one.runTool();
    for (let tick = 0; tick < 4; tick++) {
      await brain.virtual.advance(100);
      await one.emit(run);
    }
    await brain.virtual.advance(99);
    expect(call.answered).toBeUndefined();
    await brain.virtual.advance(1);
    expect(outcomeOf(call)).toBe("timeout deadline_passed");
    await expect(one.emit(run)).rejects.toMatchObject({ reason: "call_ended" });
  });
});
