import { InstanceState } from "@aexhq/brain-proto";
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../../server/src/config.js";
import { ok } from "../../../server/src/core/outcome.js";
import { BrainInProcess, outcomeOf } from "../../support/brain-in-process.js";

describe("an attach", () => {
  it("is answered first on its stream by its generation, the heartbeat period and the grace", async () => {
    await using brain = await BrainInProcess.start({ config: { heartbeatMs: 2000, hostGraceMs: 11_000 } });
    const host = await brain.registerHost();
    const session = await brain.createSession(host);
    await brain.call(session);
    const one = host.instance();
    await one.attach({ generation: 7 });
    expect(one.commands.map((command) => command.case)).toEqual(["attached", "runTool"]);
    expect(one.commands[0]?.value).toMatchObject({ generation: 7, heartbeatInterval: { seconds: 2n }, grace: { seconds: 11n }, ended: [] });
  });

  it("of a host that is not registered is refused as host_not_found", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    await brain.brain.hosts.delete(host.hostId);
    await expect(host.instance().attach()).rejects.toMatchObject({ reason: "host_not_found" });
  });

  it("without an instance_id, or with a list or Tools beyond the limits, is refused as invalid_argument", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const list = Array.from({ length: LIMITS.heldCallsPerAttach + 1 }, (_, index) => ({ sessionId: "s", callSequence: index + 1 }));
    const servedTools = Array.from({ length: LIMITS.servedToolsPerAttach + 1 }, (_, index) => ({
      environment: "local",
      name: `tool-${index}`,
    }));
    await expect(host.instance("").attach()).rejects.toMatchObject({ reason: "invalid_argument" });
    await expect(host.instance().attach({ list })).rejects.toMatchObject({ reason: "invalid_argument" });
    await expect(host.instance().attach({ servedTools })).rejects.toMatchObject({ reason: "invalid_argument" });
  });

  it("with a generation not above the highest seen is refused as attach_superseded, and disturbs nothing", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = host.instance();
    await one.attach({ generation: 4 });
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    for (const generation of [3, 4]) {
      await expect(one.attachBeside({ generation, list: [] })).rejects.toMatchObject({
        reason: "attach_superseded",
        metadata: { generation: "4" },
      });
    }
    await brain.virtual.settle();
    expect(call.answered).toBeUndefined();
    expect(one.stream).toEqual({ ended: false, refusal: undefined });
    await brain.call(session);
    expect(one.runTools).toHaveLength(2);
  });

  it("with a higher generation closes the older stream as attach_superseded", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const old = host.instance("twice");
    await old.attach({ generation: 1 });
    const young = host.instance("twice");
    await young.attach({ generation: 2 });
    expect(old.stream).toMatchObject({ ended: true, refusal: { reason: "attach_superseded" } });
    const session = await brain.createSession(host);
    await brain.call(session);
    expect([old.runTools.length, young.runTools.length]).toEqual([0, 1]);
  });

  it("may skip generations: refused and lost attempts count too", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = host.instance();
    await one.attach({ generation: 1 });
    await one.attach({ generation: 9 });
    expect(await host.seen(one)).toMatchObject({ generation: 9, state: InstanceState.ATTACHED });
  });

  it("of generation 0 gets the next number", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = host.instance();
    await one.attach({ generation: 0 });
    expect(await host.seen(one)).toMatchObject({ generation: 1 });
    await one.attach({ generation: 0 });
    expect(await host.seen(one)).toMatchObject({ generation: 2 });
  });

  it("of one instance says nothing about another", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const two = await host.attached({ generation: 5, list: [] });
    expect(call.answered).toBeUndefined();
    await one.report(await one.runTool(), ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("ok 1");
    expect(two.runTools).toEqual([]);
  });

  it("says nothing about an instance of the same name that another host has", async () => {
    await using brain = await BrainInProcess.start();
    const [left, right] = [await brain.registerHost(), await brain.registerHost()];
    const [one, other] = [left.instance("same"), right.instance("same")];
    await one.attach({ generation: 5 });
    const session = await brain.createSession(left);
    const call = await brain.call(session);
    await other.attach({ generation: 6, list: [] });
    await other.detach({ list: [] });
    expect(call.answered).toBeUndefined();
    expect(one.stream.ended).toBe(false);
    await one.report(await one.runTool(), ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("ok 1");
  });
});

describe("the list of an attach", () => {
  it("ends as command_not_delivered a call of an earlier generation that it lacks", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ reading: false });
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    await one.attach({ list: [] });
    expect(outcomeOf(call)).toBe("error command_not_delivered");
    expect(call.answered?.outcome.status.value).toMatchObject({ retryable: true });
    expect(one.runTools).toEqual([]);
  });

  it("ends a call that was written to the old stream and lost on the way", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    await one.attach({ list: [] });
    expect(outcomeOf(call)).toBe("error command_not_delivered");
  });

  it("keeps every call it names", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const calls = [await brain.call(session), await brain.call(session)];
    const [first, second] = [await one.runTool(), await one.runTool()];
    await one.attach({ list: [second] });
    expect(calls.map(outcomeOf)).toEqual(["error command_not_delivered", "none"]);
    await one.report(second, ok("2"));
    await brain.virtual.settle();
    expect(calls.map(outcomeOf)).toEqual(["error command_not_delivered", "ok 2"]);
    expect(first.callId).toBe(calls[0]?.callId);
  });

  it("keeps a call over any number of attaches, and its command is not written again", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    for (let attach = 0; attach < 5; attach++) await one.attach();
    const run = await one.runTool();
    expect(one.runTools).toHaveLength(1);
    await one.report(run, ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("ok 1");
  });

  it("ends a call whose start is not durable yet, once it is, and its command is never written", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    brain.journal.hold();
    const call = await brain.call(session);
    await one.attach({ list: [] });
    expect(call.answered).toBeUndefined();
    brain.journal.release();
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("error command_not_delivered");
    expect(one.runTools).toEqual([]);
  });

  it("does not end a call of the generation that it announces", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const one = await host.attached({ generation: 2, list: [] });
    await expect(one.attachBeside({ generation: 2, list: [] })).rejects.toMatchObject({ reason: "attach_superseded" });
    expect(call.answered).toBeUndefined();
    expect(one.runTools).toHaveLength(1);
  });

  it("that is absent ends nothing, even of a call that never arrived", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const run = await one.runTool();
    await one.attach({ list: "no list" });
    expect(call.answered).toBeUndefined();
    await one.report(run, ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("ok 1");
  });

  it("concludes nothing from absence in an attach of generation 0", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    await one.attach({ generation: 0, list: [] });
    expect(call.answered).toBeUndefined();
  });

  it("ends a call that was still unread on the old stream, also when no list is kept", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ reading: false });
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    await one.attach({ list: "no list" });
    expect(outcomeOf(call)).toBe("error command_not_delivered");
  });

  it("is answered by the calls of it that have ended, and by those that are not its host's", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const stranger = await brain.registerHost();
    const one = await host.attached();
    const other = await stranger.attached();
    const session = await brain.createSession(host);
    const timed = await brain.call(session, { timeoutMs: 1000 });
    await brain.call(session);
    await brain.call(await brain.createSession(stranger));
    const [ended, open] = [await one.runTool(), await one.runTool()];
    const foreign = await other.runTool();
    await brain.virtual.advance(1000);
    expect(outcomeOf(timed)).toBe("timeout deadline_passed");
    const never = { sessionId: session, callSequence: 999 };
    await one.attach({ list: [ended, open, foreign, never] });
    expect(one.ended).toEqual([ended, foreign, never].map(({ sessionId, callSequence }) => ({ sessionId, callSequence })));
    await brain.virtual.advance(60_000);
    expect(await stranger.seen(other)).toMatchObject({ openCalls: 1 });
  });

  it("does not call ended what has an ending that is not durable, and makes its sender a holder of it", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const [one, two] = [await host.attached(), await host.attached()];
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const run = await one.runTool();
    brain.journal.hold();
    const cancelling = brain.brain.sessions.cancelCall(session, { callSequence: run.callSequence }, "", "api");
    cancelling.catch(() => undefined);
    await brain.virtual.settle();
    await two.attach({ list: [run] });
    expect(two.ended).toEqual([]);
    expect(one.heartbeat()).toEqual([]);
    brain.journal.refuseHeld();
    await expect(cancelling).rejects.toMatchObject({ reason: "journal_full" });
    one.die();
    await brain.virtual.advance(60_000);
    expect(call.answered).toBeUndefined();
    await two.report(run, ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(call)).toBe("ok 1");
  });
});

describe("the list of a heartbeat", () => {
  it("ends nothing, whatever it lacks", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    expect(one.heartbeat([])).toEqual([]);
    await one.attach();
    expect(one.heartbeat([])).toEqual([]);
    await brain.virtual.settle();
    expect(call.answered).toBeUndefined();
  });

  it("is answered by the calls of it that have ended", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session);
    await brain.call(session);
    const [first, second] = [await one.runTool(), await one.runTool()];
    expect(one.heartbeat([first, second])).toEqual([]);
    await one.report(first, ok("1"));
    await brain.virtual.settle();
    expect(one.heartbeat([first, second])).toEqual([{ sessionId: session, callSequence: first.callSequence }]);
    expect(one.heartbeat("no list")).toEqual([]);
  });

  it("of an instance that never attached is refused as instance_not_attached", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    expect(() => host.instance().heartbeat()).toThrow(expect.objectContaining({ reason: "instance_not_attached" }));
  });
});

describe("a host", () => {
  it("is deleted only when no instance of it is attached and none of its calls is open", async () => {
    await using brain = await BrainInProcess.start({ config: { toolTimeoutMs: 20_000 } });
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const inUse = { reason: "host_in_use" };
    await expect(brain.brain.hosts.delete(host.hostId)).rejects.toMatchObject(inUse);
    await brain.call(session);
    const run = await one.runTool();
    await brain.crash();
    await expect(brain.brain.hosts.delete(host.hostId)).rejects.toMatchObject(inUse);
    const two = await host.attached({ list: [run] });
    await one.detach({ list: [run] });
    two.drop();
    await expect(brain.brain.hosts.delete(host.hostId)).rejects.toMatchObject(inUse);
    await two.report(run, ok("1"));
    await two.detach();
    await brain.brain.hosts.delete(host.hostId);
    await expect(brain.brain.hosts.get(host.hostId)).rejects.toMatchObject({ reason: "host_not_found" });
  });
});
