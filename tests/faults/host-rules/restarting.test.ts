import { Disposition, InstanceState } from "@aexhq/brain-proto";
import { describe, expect, it } from "vitest";
import { ok } from "../../../server/src/core/outcome.js";
import { BrainInProcess, outcomeOf } from "../../support/brain-in-process.js";

describe("a host call that is open over a restart of Brain", () => {
  it("is kept by an instance that attaches with it on its list, and its command is not written again", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session, { callId: "kept" });
    const run = await one.runTool();
    await brain.restart();
    await one.attach();
    expect(one.ended).toEqual([]);
    const again = await brain.call(session, { callId: "kept" });
    await brain.virtual.advance(60_000);
    expect(again.answered).toBeUndefined();
    await one.report(run, ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(again)).toBe("ok 1");
    expect(one.runTools).toHaveLength(1);
  });

  it("survives a crash in the same way", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session, { callId: "kept" });
    const run = await one.runTool();
    await brain.crash();
    await one.attach();
    await one.report(run, ok("1"));
    const again = await brain.call(session, { callId: "kept" });
    expect(outcomeOf(again)).toBe("ok 1");
    expect(one.runTools).toHaveLength(1);
  });

  it("is ended at once as command_not_delivered by an attach whose list lacks it", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ reading: false });
    const session = await brain.createSession(host);
    await brain.call(session, { callId: "lost" });
    await brain.crash();
    await one.attach({ list: [] });
    const again = await brain.call(session, { callId: "lost" });
    expect(outcomeOf(again)).toBe("error command_not_delivered");
    expect(one.runTools).toEqual([]);
  });

  it("whose start was committed and whose command was not written, is ended by the instance's list as well", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    brain.journal.muteAppends();
    await brain.call(session, { callId: "unsent" });
    expect(one.runTools).toEqual([]);
    expect(await brain.kinds(session)).toEqual(["sessionCreated", "toolCallStarted"]);
    await brain.crash();
    await one.attach();
    const again = await brain.call(session, { callId: "unsent" });
    expect(outcomeOf(again)).toBe("error command_not_delivered");
    expect(one.runTools).toEqual([]);
  });

  it("is not ended by a list of an instance that it does not name", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session, { callId: "open" });
    await brain.crash();
    await host.attached({ list: [] });
    const again = await brain.call(session, { callId: "open" });
    expect(again.answered).toBeUndefined();
  });

  it("stays open for a full grace from the moment Brain listens again, however long it took to get there", async () => {
    await using brain = await BrainInProcess.start({ config: { toolTimeoutMs: 600_000 } });
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session, { callId: "open" });
    one.die();
    await brain.virtual.advance(29_000);
    await brain.crash({ listening: () => brain.virtual.advance(25_000) });
    const again = await brain.call(session, { callId: "open" });
    await brain.virtual.advance(29_999);
    expect(again.answered).toBeUndefined();
    await brain.virtual.advance(1);
    expect(outcomeOf(again)).toBe("unknown host_instance_lost");
  });

  it("is given up by nobody before Brain listens, even if taking up its calls takes longer than the grace", async () => {
    await using brain = await BrainInProcess.start({ config: { toolTimeoutMs: 600_000 } });
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session, { callId: "open" });
    const run = await one.runTool();
    // Nobody hears it while nobody listens.
    one.silence();
    await brain.crash({ listening: () => brain.virtual.advance(120_000) });
    const again = await brain.call(session, { callId: "open" });
    await brain.virtual.advance(29_000);
    expect(again.answered).toBeUndefined();
    await one.attach();
    await one.report(run, ok("1"));
    await brain.virtual.settle();
    expect(outcomeOf(again)).toBe("ok 1");
  });

  it("stays open no longer than its deadline", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session, { callId: "open", timeoutMs: 40_000 });
    one.die();
    await brain.virtual.advance(20_000);
    await brain.crash();
    const again = await brain.call(session, { callId: "open" });
    await brain.virtual.advance(19_999);
    expect(again.answered).toBeUndefined();
    await brain.virtual.advance(1);
    expect(outcomeOf(again)).toBe("timeout deadline_passed");
  });

  it("ends as timeout when its deadline passed while Brain was down, and a report after that is late", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session, { callId: "open", timeoutMs: 40_000 });
    const run = await one.runTool();
    await brain.crash({ down: () => brain.virtual.advance(40_000) });
    const again = await brain.call(session, { callId: "open" });
    expect(outcomeOf(again)).toBe("timeout deadline_passed");
    await one.attach();
    expect(one.ended).toEqual([{ sessionId: session, callSequence: run.callSequence }]);
    expect(await one.report(run, ok("1"))).toMatchObject({ disposition: Disposition.LATE });
  });

  it("can be reported on before its instance attaches again", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session, { callId: "open" });
    const run = await one.runTool();
    await brain.crash();
    expect(await one.emit(run)).toBe(3);
    expect(await one.report(run, ok("1"))).toMatchObject({ disposition: Disposition.RECORDED });
    expect(outcomeOf(await brain.call(session, { callId: "open" }))).toBe("ok 1");
  });

  it("can be cancelled, and its session ended, before its instance attaches again", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session, { callId: "cancelled" });
    await brain.call(session, { callId: "ended" });
    await brain.crash();
    expect(await brain.brain.sessions.cancelCall(session, { callId: "cancelled" }, "", "api")).toBe(2);
    await brain.brain.sessions.end(session, "api");
    await one.attach();
    expect(one.ended).toHaveLength(2);
    expect(outcomeOf(await brain.call(session, { callId: "cancelled" }))).toBe("cancelled cancel_requested");
    expect(outcomeOf(await brain.call(session, { callId: "ended" }))).toBe("cancelled session_ended");
  });

  it("takes a slot of its instance again, and takes it from nobody else", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ maxConcurrentCalls: 1 });
    const session = await brain.createSession(host);
    await brain.call(session);
    const run = await one.runTool();
    await brain.crash();
    expect(await host.seen(one)).toMatchObject({ state: InstanceState.STREAM_LOST, generation: 1, openCalls: 1 });
    await one.attach({ maxConcurrentCalls: 1 });
    await brain.call(session);
    expect(one.runTools).toHaveLength(1);
    await one.report(run, ok("1"));
    await brain.virtual.settle();
    expect(one.runTools).toHaveLength(2);
  });

  it("remembers by its record the generation that an attach must be above", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached({ generation: 6 });
    const session = await brain.createSession(host);
    await brain.call(session);
    await one.runTool();
    await brain.crash();
    await expect(one.attach({ generation: 6 })).rejects.toMatchObject({ reason: "attach_superseded" });
    await one.attach({ generation: 7 });
  });

  it("survives several restarts in a row", async () => {
    await using brain = await BrainInProcess.start({ config: { toolTimeoutMs: 600_000 } });
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    await brain.call(session, { callId: "open" });
    const run = await one.runTool();
    for (let restart = 0; restart < 4; restart++) {
      await brain.virtual.advance(20_000);
      await (restart % 2 === 0 ? brain.crash() : brain.restart());
    }
    await one.attach();
    await one.report(run, ok("1"));
    expect(outcomeOf(await brain.call(session, { callId: "open" }))).toBe("ok 1");
    expect(one.runTools).toHaveLength(1);
  });
});

describe("a restart of Brain", () => {
  it("tells attached instances that the server drains, and then ends their streams", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    await brain.restart();
    expect(one.commands.map((command) => command.case)).toEqual(["attached", "drain"]);
    expect(one.stream).toEqual({ ended: true, refusal: undefined });
  });

  it("forgets instances: a heartbeat is refused as instance_not_attached until the instance attaches", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    await brain.restart();
    expect(() => one.heartbeat()).toThrow(expect.objectContaining({ reason: "instance_not_attached" }));
    await one.attach();
    expect(one.heartbeat()).toEqual([]);
  });

  it("changes no ending, and answers a repeat of an ended call from the journal", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const one = await host.attached();
    const session = await brain.createSession(host);
    const call = await brain.call(session, { callId: "done" });
    await one.report(await one.runTool(), ok("1"));
    await brain.virtual.settle();
    await brain.crash();
    await one.attach();
    expect((await brain.call(session, { callId: "done" })).answered).toEqual(call.answered);
    expect((await brain.call(session, { callId: "done", inputJson: "[]" })).refusal).toMatchObject({ reason: "call_id_conflict" });
    expect(one.runTools).toHaveLength(1);
  });
});
