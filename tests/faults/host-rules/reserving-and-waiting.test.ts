import { Disposition } from "@aexhq/brain-proto";
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../../server/src/config.js";
import { ok } from "../../../server/src/core/outcome.js";
import { BrainInProcess, outcomeOf } from "../../support/brain-in-process.js";

describe("a reservation", () => {
  it("names the instance and its generation in the started record, which is durable before the command is read", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    await one.attach();
    const session = await brain.createSession(host);
    brain.journal.hold();
    await brain.call(session);
    expect(one.runTools).toEqual([]);
    brain.journal.release();
    const run = await one.runTool();
    const [, started] = await brain.records(session);
    expect(started?.entry).toMatchObject({
      case: "toolCallStarted",
      value: { receiver: { hostId: host.hostId, instanceId: one.instanceId, generation: 2 } },
    });
    expect(run).toMatchObject({ callSequence: started?.sequence, name: "lookup", environment: "local" });
  });

  it("takes the least loaded instance that serves the Tool", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const [one, two] = [await host.attached(), await host.attached()];
    const session = await brain.createSession(host);
    await brain.call(session);
    await brain.call(session);
    await brain.call(session);
    await brain.call(session);
    expect([one.runTools.length, two.runTools.length]).toEqual([2, 2]);
    for (let left = 0; left < 2; left++) await two.report(await two.runTool(), ok("1"));
    await brain.call(session);
    await brain.call(session);
    expect([one.runTools.length, two.runTools.length]).toEqual([2, 4]);
  });

  it("passes over an instance that serves other Tools, another Environment or another definition", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const others = [
      await host.attached({ servedTools: [{ environment: "local", name: "store" }] }),
      await host.attached({ servedTools: [{ environment: "elsewhere", name: "lookup" }] }),
      await host.attached({ servedTools: [{ environment: "local", name: "lookup", definitionSha256: "0".repeat(64) }] }),
    ];
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    expect(others.map((other) => other.runTools.length)).toEqual([0, 0, 0]);
    await brain.virtual.advance(5000);
    expect(outcomeOf(call)).toBe("error host_unavailable");
  });

  it("takes an instance that serves just this definition, any definition of the Tool, or everything of its host", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const session = await brain.createSession(host);
    const everything = await host.attached();
    await brain.call(session);
    expect(everything.runTools).toHaveLength(1);
    const [, started] = await brain.records(session);
    const definitionSha256 = started?.entry.case === "toolCallStarted" ? started.entry.value.definitionSha256 : "";
    expect(definitionSha256).toMatch(/^[0-9a-f]{64}$/);
    const exact = await host.attached({ servedTools: [{ environment: "local", name: "lookup", definitionSha256 }] });
    await brain.call(session);
    expect(exact.runTools).toHaveLength(1);
    const any = await host.attached({ servedTools: [{ environment: "local", name: "lookup" }] });
    await brain.call(session);
    expect(any.runTools).toHaveLength(1);
  });

  it("keeps to max_concurrent_calls, and to the server's number where the instance asks for more or names none", async () => {
    await using brain = await BrainInProcess.start({ config: { hostConcurrency: 3 } });
    const host = await brain.registerHost();
    const two = await host.attached({ maxConcurrentCalls: 2 });
    const session = await brain.createSession(host);
    for (let call = 0; call < 5; call++) await brain.call(session);
    expect(two.runTools).toHaveLength(2);
    const greedy = await host.attached({ maxConcurrentCalls: 100 });
    expect(greedy.runTools).toHaveLength(3);
    expect(await host.seen(greedy)).toMatchObject({ maxConcurrentCalls: 3, openCalls: 3 });
    await brain.call(session);
    const modest = await host.attached();
    expect(modest.runTools).toHaveLength(1);
    expect(await host.seen(modest)).toMatchObject({ maxConcurrentCalls: 3, openCalls: 1 });
  });

  it("counts a start that is not yet durable as a slot in use", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 1 });
    const session = await brain.createSession(host);
    brain.journal.hold();
    await brain.call(session);
    await brain.call(session);
    expect(await host.seen(one)).toMatchObject({ openCalls: 1 });
    brain.journal.release();
    await brain.virtual.settle();
    expect(one.runTools).toHaveLength(1);
  });

  it("counts a call as a slot in use of the instance its record names, also when another holds it", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 1 });
    const session = await brain.createSession(host);
    await brain.call(session);
    const run = await one.runTool();
    const two = await host.attached({ maxConcurrentCalls: 1, list: [run] });
    await brain.call(session);
    expect(two.runTools).toHaveLength(1);
    await brain.call(session);
    expect(one.runTools).toHaveLength(1);
  });
});

describe("a call that waits for a slot", () => {
  it("is in no record until it is given one", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 1 });
    const session = await brain.createSession(host);
    const first = await brain.call(session);
    const second = await brain.call(session);
    expect(await brain.kinds(session)).toEqual(["sessionCreated", "toolCallStarted"]);
    await one.report(await one.runTool(), ok("1"));
    const run = await one.runTool();
    expect(run.callId).toBe(second.callId);
    await one.report(run, ok("2"));
    await brain.virtual.settle();
    expect([outcomeOf(first), outcomeOf(second)]).toEqual(["ok 1", "ok 2"]);
  });

  it("is forgotten by a crash, and started by the caller's repeat", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 1 });
    const session = await brain.createSession(host);
    await brain.call(session);
    await brain.call(session, { callId: "waited" });
    await brain.crash();
    expect(await brain.kinds(session)).toEqual(["sessionCreated", "toolCallStarted"]);
    const two = await host.attached();
    const repeat = await brain.call(session, { callId: "waited" });
    await two.report(await two.runTool(), ok("2"));
    await brain.virtual.settle();
    expect(outcomeOf(repeat)).toBe("ok 2");
    expect(one.runTools).toHaveLength(1);
  });

  it("is joined by a repeat with the same content, and runs once", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const session = await brain.createSession(host);
    const first = await brain.call(session, { callId: "same", inputJson: '{"a":1,"b":2}' });
    const repeat = await brain.call(session, { callId: "same", inputJson: '{"b":2, "a":1}' });
    const one = await host.attached();
    await one.report(await one.runTool(), ok("1"));
    await brain.virtual.settle();
    expect(one.runTools).toHaveLength(1);
    expect(repeat.answered).toEqual(first.answered);
  });

  it("refuses a repeat with other content as call_id_conflict, and goes on waiting", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const session = await brain.createSession(host);
    await brain.call(session, { callId: "same", inputJson: '{"a":1}' });
    const other = await brain.call(session, { callId: "same", inputJson: '{"a":2}' });
    expect(other.refusal).toMatchObject({ reason: "call_id_conflict" });
    const one = await host.attached();
    expect((await one.runTool()).inputJson).toBe('{"a":1}');
  });

  it("takes freed slots in the order in which calls came, whatever their session", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 1 });
    const [left, right] = [await brain.createSession(host), await brain.createSession(host)];
    for (const [session, callId] of [
      [left, "a"],
      [right, "b"],
      [left, "c"],
      [left, "d"],
      [right, "e"],
    ] as const)
      await brain.call(session, { callId });
    const order: string[] = [];
    for (let call = 0; call < 5; call++) {
      const run = await one.runTool();
      order.push(run.callId);
      await one.report(run, ok("1"));
    }
    expect(order).toEqual(["a", "b", "c", "d", "e"]);
  });

  it("gets the slot of an ended call of its own session with the sequences in the order of the records", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 1 });
    const session = await brain.createSession(host);
    const first = await brain.call(session);
    const second = await brain.call(session);
    await one.report(await one.runTool(), ok("1"));
    await brain.virtual.settle();
    expect(first.answered).toMatchObject({ callSequence: 2, endSequence: 3 });
    expect((await one.runTool()).callSequence).toBe(4);
    await brain.brain.sessions.cancelCall(session, { callSequence: 4 }, "", "api");
    await brain.virtual.settle();
    expect(second.answered).toMatchObject({ callSequence: 4, endSequence: 6 });
  });

  it("is woken by an attach that raises the number of slots", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 1 });
    const session = await brain.createSession(host);
    await brain.call(session);
    await brain.call(session);
    await one.attach({ maxConcurrentCalls: 2 });
    expect(one.runTools).toHaveLength(2);
  });

  it("does not hold up a later call whose Tool another instance serves", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const lookups = await host.attached({ maxConcurrentCalls: 1, servedTools: [{ environment: "local", name: "lookup" }] });
    const stores = await host.attached({ servedTools: [{ environment: "local", name: "store" }] });
    const session = await brain.createSession(host);
    await brain.call(session, { name: "lookup" });
    await brain.call(session, { name: "lookup" });
    await brain.call(session, { name: "store" });
    expect([lookups.runTools.length, stores.runTools.length]).toEqual([1, 1]);
  });

  it("leaves the list when its deadline passes: started and ended are appended together, with no receiver", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 1 });
    const session = await brain.createSession(host);
    await brain.call(session);
    const waiting = await brain.call(session, { timeoutMs: 60_000 });
    await brain.virtual.advance(59_999);
    expect(waiting.answered).toBeUndefined();
    await brain.virtual.advance(1);
    expect(outcomeOf(waiting)).toBe("timeout deadline_passed");
    const records = await brain.records(session);
    expect(records.slice(2).map(({ entry }) => entry.case)).toEqual(["toolCallStarted", "toolCallEnded"]);
    expect(records[2]?.entry).not.toHaveProperty("value.receiver");
    await one.report(await one.runTool(), ok("1"));
    await brain.virtual.settle();
    expect(one.runTools).toHaveLength(1);
  });

  it("leaves the list when it is cancelled by its call_id", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 1 });
    const session = await brain.createSession(host);
    await brain.call(session);
    const waiting = await brain.call(session, { callId: "waiting" });
    expect(await brain.brain.sessions.cancelCall(session, { callId: "waiting" }, "enough", "api")).toBe(3);
    await brain.virtual.settle();
    expect(outcomeOf(waiting)).toBe("cancelled cancel_requested");
    await one.report(await one.runTool(), ok("1"));
    await brain.virtual.settle();
    expect(one.runTools).toHaveLength(1);
    expect(await brain.kinds(session)).toEqual(["sessionCreated", "toolCallStarted", "toolCallStarted", "toolCallEnded", "toolCallEnded"]);
  });

  it("leaves the list when its session ends, together with the calls that run, and takes no slot that this frees", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 1 });
    const session = await brain.createSession(host);
    const running = await brain.call(session);
    const waiting = [await brain.call(session), await brain.call(session)];
    const other = await brain.createSession(host);
    await brain.call(other, { callId: "of another session" });
    await brain.brain.sessions.end(session, "api");
    await brain.virtual.settle();
    expect([running, ...waiting].map(outcomeOf)).toEqual(Array(3).fill("cancelled session_ended"));
    expect(await brain.kinds(session)).toEqual([
      "sessionCreated",
      "toolCallStarted",
      "toolCallEnded",
      "toolCallStarted",
      "toolCallEnded",
      "toolCallStarted",
      "toolCallEnded",
      "sessionEnded",
    ]);
    expect(one.runTools.map(({ callId }) => callId)).toEqual([running.callId, "of another session"]);
  });

  it("is not cancelled by a caller that leaves; a repeat joins it", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const session = await brain.createSession(host);
    const leaving = new AbortController();
    const left = await brain.call(session, { callId: "kept", signal: leaving.signal });
    leaving.abort(new Error("the connection is gone"));
    await brain.virtual.settle();
    expect(left.refusal?.message).toBe("the connection is gone");
    const repeat = await brain.call(session, { callId: "kept" });
    const one = await host.attached();
    await one.report(await one.runTool(), ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(repeat)).toBe("ok 1");
    expect(one.runTools).toHaveLength(1);
  });

  it("is one of at most 1,024 of its host; the next one ends at once as host_overloaded", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 1 });
    const session = await brain.createSession(host);
    await brain.call(session);
    const waiting = Array.from({ length: LIMITS.waitingPerHost }, () => brain.ask(session));
    await brain.virtual.settle();
    expect(LIMITS.waitingPerHost).toBe(1024);
    const tooMany = await brain.call(session);
    expect(outcomeOf(tooMany)).toBe("error host_overloaded");
    expect(tooMany.answered?.outcome.status.value).toMatchObject({ retryable: true });
    expect(waiting.every(({ answered }) => answered === undefined)).toBe(true);
    const other = await brain.registerHost();
    const elsewhere = await brain.call(await brain.createSession(other));
    expect(elsewhere.answered).toBeUndefined();
    await one.report(await one.runTool(), ok("1"));
    const next = await brain.call(session);
    expect(next.answered).toBeUndefined();
    await brain.brain.sessions.end(session, "api");
  });
});

describe("host_wait", () => {
  it("ends a call as host_unavailable when nobody who serves its Tool attaches in time", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    await brain.virtual.advance(4999);
    expect(call.answered).toBeUndefined();
    await brain.virtual.advance(1);
    expect(outcomeOf(call)).toBe("error host_unavailable");
    expect(call.answered?.outcome.status.value).toMatchObject({ retryable: true });
    expect(await brain.kinds(session)).toEqual(["sessionCreated", "toolCallStarted", "toolCallEnded"]);
  });

  it("is bounded by the deadline", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const call = await brain.call(await brain.createSession(host), { timeoutMs: 300 });
    await brain.virtual.advance(300);
    expect(outcomeOf(call)).toBe("timeout deadline_passed");
  });

  it("is not running while a serving instance is attached without a free slot", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    await host.attached({ maxConcurrentCalls: 1 });
    const session = await brain.createSession(host);
    await brain.call(session);
    const waiting = await brain.call(session);
    await brain.virtual.advance(60_000);
    expect(waiting.answered).toBeUndefined();
  });

  it("is disarmed by an attach and armed again, in full, when the last serving instance is lost", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const session = await brain.createSession(host);
    const busy = await brain.call(session);
    const waiting = await brain.call(session);
    await brain.virtual.advance(4000);
    const one = await host.attached({ maxConcurrentCalls: 1 });
    expect((await one.runTool()).callId).toBe(busy.callId);
    await brain.virtual.advance(60_000);
    expect(waiting.answered).toBeUndefined();
    one.drop();
    await brain.virtual.advance(4999);
    expect(waiting.answered).toBeUndefined();
    await brain.virtual.advance(1);
    expect(outcomeOf(waiting)).toBe("error host_unavailable");
    expect(busy.answered).toBeUndefined();
  });

  it("goes on over the loss of one serving instance while another is attached", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const [one, two] = [await host.attached({ maxConcurrentCalls: 1 }), await host.attached({ maxConcurrentCalls: 1 })];
    const session = await brain.createSession(host);
    await brain.call(session);
    await brain.call(session);
    const waiting = await brain.call(session);
    one.drop();
    await brain.virtual.advance(20_000);
    expect(waiting.answered).toBeUndefined();
    await two.report(await two.runTool(), ok("1"));
    expect((await two.runTool()).callId).toBe(waiting.callId);
  });

  it("is armed for a call whose Tool nobody serves, whoever else attaches", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const call = await brain.call(await brain.createSession(host));
    await brain.virtual.advance(3000);
    await host.attached({ servedTools: [{ environment: "local", name: "store" }] });
    await brain.virtual.advance(2000);
    expect(outcomeOf(call)).toBe("error host_unavailable");
  });

  it("is armed when the last serving instance falls silent, and disarmed when it is heard again", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 1 });
    const session = await brain.createSession(host);
    await brain.call(session);
    const waiting = await brain.call(session);
    one.heartbeat();
    one.silence();
    await brain.virtual.advance(15_000 + 4999);
    one.heartbeat();
    await brain.virtual.advance(14_000);
    expect(waiting.answered).toBeUndefined();
    await brain.virtual.advance(1000 + 5000);
    expect(outcomeOf(waiting)).toBe("error host_unavailable");
  });
});

describe("a start that could not be recorded", () => {
  it("sends nothing, frees its slot and wakes whoever waits for it", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 1 });
    const [left, right] = [await brain.createSession(host), await brain.createSession(host)];
    brain.journal.hold();
    const refused = await brain.call(left);
    const waiting = await brain.call(right);
    brain.journal.refuseHeld();
    await brain.virtual.settle();
    expect(refused.refusal).toMatchObject({ reason: "journal_full" });
    const run = await one.runTool();
    expect(run.callId).toBe(waiting.callId);
    await one.report(run, ok("1"));
    expect(await brain.kinds(left)).toEqual(["sessionCreated"]);
    expect(one.runTools).toHaveLength(1);
  });

  it("frees its slot for a waiting call of the same session, even when several starts fall together", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 2 });
    const session = await brain.createSession(host);
    brain.journal.hold();
    const refused = [await brain.call(session), await brain.call(session)];
    const waiting = [await brain.call(session), await brain.call(session)];
    brain.journal.refuseHeld();
    await brain.virtual.settle();
    expect(refused.map(({ refusal }) => refusal)).toMatchObject([{ reason: "journal_full" }, { reason: "journal_full" }]);
    for (const { callId } of waiting) {
      const run = await one.runTool();
      expect(run.callId).toBe(callId);
      expect(await one.report(run, ok("1"))).toMatchObject({ disposition: Disposition.RECORDED });
    }
    expect(await host.seen(one)).toMatchObject({ openCalls: 0 });
    await brain.virtual.settle();
    expect(waiting.map(outcomeOf)).toEqual(["ok 1", "ok 1"]);
  });

  it("leaves its call_id free, so that the caller's repeat starts the call", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    brain.journal.fill();
    const refused = await brain.call(session, { callId: "again" });
    expect(refused.refusal).toMatchObject({ reason: "journal_full" });
    brain.journal.release();
    const repeat = await brain.call(session, { callId: "again" });
    await one.report(await one.runTool(), ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(repeat)).toBe("ok 1");
    expect(one.runTools).toHaveLength(1);
  });
});
