import { CallToolRequestSchema } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { ok } from "../../../server/src/core/outcome.js";
import { BrainInProcess, outcomeOf } from "../../support/brain-in-process.js";

describe("calling a Tool", () => {
  it("goes on when the caller's connection drops; a repeat with the same call_id joins it", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const leaving = new AbortController();
    const left = await brain.call(session, { callId: "kept", signal: leaving.signal });
    leaving.abort(new Error("the connection is gone"));
    await brain.virtual.settle();
    expect(left.refusal?.message).toBe("the connection is gone");
    const repeats = [await brain.call(session, { callId: "kept" }), await brain.call(session, { callId: "kept" })];
    await one.report(await one.runTool(), ok("1"));
    await brain.virtual.settle();
    expect(repeats.map(outcomeOf)).toEqual(["ok 1", "ok 1"]);
    expect(one.runTools).toHaveLength(1);
    expect(await brain.kinds(session)).toEqual(["sessionCreated", "toolCallStarted", "toolCallEnded"]);
  });

  it("answers what is recorded when the call has ended, and refuses other content as call_id_conflict", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session, { callId: "once", inputJson: '{"a":1}' });
    await one.report(await one.runTool(), ok("1"));
    const repeat = await brain.call(session, { callId: "once", inputJson: ' {"a": 1}' });
    expect(repeat.answered).toEqual(call.answered);
    for (const other of [{ inputJson: '{"a":2}' }, { name: "store" }]) {
      const refused = await brain.call(session, { callId: "once", inputJson: '{"a":1}', ...other });
      expect(refused.refusal).toMatchObject({ reason: "call_id_conflict" });
    }
    expect(one.runTools).toHaveLength(1);
  });

  it("runs once, however many ask for it at the same moment", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const calls = Array.from({ length: 50 }, () => brain.ask(session, { callId: "same" }));
    await one.report(await one.runTool(), ok("1"));
    await brain.virtual.settle();
    expect(new Set(calls.map(outcomeOf))).toEqual(new Set(["ok 1"]));
    expect(one.runTools).toHaveLength(1);
  });

  it("in a session that was ended answers recorded calls and refuses new ones as session_ended", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const done = await brain.call(session, { callId: "done" });
    await one.report(await one.runTool(), ok("1"));
    await brain.call(session, { callId: "open" });
    await brain.brain.sessions.end(session, "api");
    for (const restart of [false, true]) {
      if (restart) await brain.crash();
      expect((await brain.call(session, { callId: "done" })).answered).toEqual(done.answered);
      expect(outcomeOf(await brain.call(session, { callId: "open" }))).toBe("cancelled session_ended");
      expect((await brain.call(session, { callId: "new" })).refusal).toMatchObject({ reason: "session_ended" });
    }
    expect((await brain.kinds(session)).at(-1)).toBe("sessionEnded");
  });

  it("in a session that is ending at that moment ends with it or is refused, and never runs after it", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session);
    const ending = brain.brain.sessions.end(session, "api");
    const late = brain.ask(session);
    await ending;
    await brain.virtual.settle();
    expect(late.refusal === undefined ? outcomeOf(late) : late.refusal).toEqual(
      late.refusal === undefined ? "cancelled session_ended" : expect.objectContaining({ reason: "session_ended" }),
    );
    expect((await brain.kinds(session)).at(-1)).toBe("sessionEnded");
    expect(one.runTools.length).toBeLessThanOrEqual(1);
  });

  it("of a placement that the session does not have, or with input its schema refuses, ends at once and is sent to nobody", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host, { inputSchema: { type: "object", required: ["id"] } });
    const calls = [
      await brain.call(session, { name: "nothing" }),
      await brain.call(session, { environment: "nowhere", inputJson: '{"id":1}' }),
      await brain.call(session, { inputJson: "{}" }),
      await brain.call(session, { inputJson: "{" }),
    ];
    expect(calls.map(outcomeOf)).toEqual([
      "error placement_not_found",
      "error placement_not_found",
      "error invalid_input",
      "error invalid_input",
    ]);
    expect(one.runTools).toEqual([]);
    const records = await brain.records(session);
    for (const { entry } of records.slice(1)) expect(entry).not.toHaveProperty("value.receiver");
  });

  it("in a session that never was is refused as session_not_found", async () => {
    await using brain = await BrainInProcess.start();
    expect((await brain.call("no-such-session")).refusal).toMatchObject({ reason: "session_not_found" });
  });
});

describe("cancelling a call", () => {
  it("ends it as cancelled, with the request and the ending in one append", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const run = await one.runTool();
    const flushes = brain.journal.flushCount;
    expect(await brain.brain.sessions.cancelCall(session, { callSequence: run.callSequence }, "enough", "api")).toBe(2);
    await brain.virtual.settle();
    expect(brain.journal.flushCount).toBe(flushes + 1);
    expect(outcomeOf(call)).toBe("cancelled cancel_requested");
    expect((await brain.records(session))[2]?.entry).toMatchObject({
      case: "toolCallCancelRequested",
      value: { reason: "enough", principal: "api" },
    });
    expect(one.cancels).toHaveLength(1);
  });

  it("again, or after another ending, is harmless and adds nothing, also after a restart", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session, { callId: "done" });
    await one.report(await one.runTool(), ok("1"));
    const { sessions } = brain.brain;
    expect(await sessions.cancelCall(session, { callId: "done" }, "", "api")).toBe(2);
    expect(await sessions.cancelCall(session, { callSequence: 2 }, "", "api")).toBe(2);
    await brain.crash();
    expect(await brain.brain.sessions.cancelCall(session, { callId: "done" }, "", "api")).toBe(2);
    expect(await brain.kinds(session)).toEqual(["sessionCreated", "toolCallStarted", "toolCallEnded"]);
  });

  it("before it has arrived is refused as call_not_found, and the call may still come", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const notFound = { reason: "call_not_found" };
    await expect(brain.brain.sessions.cancelCall(session, { callId: "later" }, "", "api")).rejects.toMatchObject(notFound);
    await expect(brain.brain.sessions.cancelCall(session, { callSequence: 2 }, "", "api")).rejects.toMatchObject(notFound);
    const call = await brain.call(session, { callId: "later" });
    await one.report(await one.runTool(), ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("ok 1");
  });

  it("at the moment it arrives ends it or is refused as call_not_found", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = brain.ask(session, { callId: "now" });
    const cancelled = await brain.brain.sessions.cancelCall(session, { callId: "now" }, "", "api").catch((error: unknown) => error);
    await brain.virtual.settle();
    if (cancelled === 2) expect(outcomeOf(call)).toBe("cancelled cancel_requested");
    else expect(cancelled).toMatchObject({ reason: "call_not_found" });
    expect(one.runTools.length).toBe(cancelled === 2 ? 0 : 1);
  });

  it("races its report: one of them is the ending, and the other is told so", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    for (let round = 0; round < 10; round++) {
      const call = await brain.call(session);
      const run = await one.runTool();
      const cancelling = (): Promise<number> => brain.brain.sessions.cancelCall(session, { callSequence: run.callSequence }, "", "api");
      const both = round % 2 === 0 ? [cancelling(), one.report(run, ok("1"))] : [one.report(run, ok("1")), cancelling()];
      await Promise.all(both);
      await brain.virtual.settle();
      expect(["ok 1", "cancelled cancel_requested"]).toContain(outcomeOf(call));
    }
  });
});

describe("the end of a session", () => {
  it("does not wait for the calls of another", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const [left, right] = [await brain.createSession(host), await brain.createSession(host)];
    await brain.call(left);
    const other = await brain.call(right);
    await brain.brain.sessions.end(left, "api");
    await brain.virtual.settle();
    expect(other.answered).toBeUndefined();
    await one.runTool();
    await one.report(await one.runTool(), ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(other)).toBe("ok 1");
  });

  it("that could not be recorded ends nothing: calls go on, and new ones are taken", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    brain.journal.fill();
    await expect(brain.brain.sessions.end(session, "api")).rejects.toMatchObject({ reason: "journal_full" });
    brain.journal.release();
    expect(one.cancels).toEqual([]);
    const next = await brain.call(session);
    for (let run = 0; run < 2; run++) await one.report(await one.runTool(), ok("1"));
    await brain.virtual.settle();
    expect([call, next].map(outcomeOf)).toEqual(["ok 1", "ok 1"]);
    expect(await host.seen(one)).toMatchObject({ openCalls: 0 });
  });
});

describe("a request", () => {
  it("with a call_id that is empty, or a name that is none, is refused as invalid_argument", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const sessionId = await brain.createSession(host);
    const from = { principal: "api", traceparent: "" };
    for (const more of [{ callId: "" }, { name: "" }, { environment: "../x" }]) {
      const request = create(CallToolRequestSchema, {
        sessionId,
        callId: "c",
        name: "lookup",
        environment: "local",
        inputJson: "{}",
        ...more,
      });
      await expect(brain.brain.sessions.callTool(request, from)).rejects.toMatchObject({ reason: "invalid_argument" });
    }
    expect(await brain.kinds(sessionId)).toEqual(["sessionCreated"]);
  });
});
