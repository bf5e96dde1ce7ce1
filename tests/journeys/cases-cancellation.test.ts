import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Brain, hostEnv, type Session } from "@aexhq/brain";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { BrainCommand } from "../support/brain-command.js";
import { CaseGround, expectNoWarnings, kindsOf, recordsUntil, timed } from "../support/case-ground.js";
import { CaseHost } from "../support/case-host.js";
import { caseTools } from "../support/case-tools.js";

const DAY_MS = 24 * 60 * 60 * 1_000;
const MIB = 1024 * 1024;

let ground: CaseGround;
beforeAll(async () => {
  ground = await CaseGround.open();
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

describe("H04: functions that end after their deadline, deaf to their signal", () => {
  test("stay timeouts whether they resolve or reject, and the host serves on", async () => {
    const session = await ground.session("deaf", "plain");
    const hows = ["resolve", "reject"] as const;
    const calls = hows.map((how) =>
      session.callTool({ callId: how, name: "deaf", environment: "app", input: { ms: 600, how }, timeoutMs: 300 }),
    );
    const timeout = { status: "timeout", code: "deadline_passed" };
    const endings = await Promise.all(calls);
    expect(endings).toMatchObject([timeout, timeout]);
    for (const callId of hows) {
      const { callSequence } = await session.getToolCall({ callId });
      expect(await ground.host.event("done", { call: callSequence })).toMatchObject({ aborted: true });
    }
    // What the one returned is kept beside its ending, and says that the host has reported.
    await recordsUntil(session, ({ entry }) => entry.case === "toolCallLateOutcome");
    expect(await session.callTool({ name: "plain", environment: "app", input: "after" })).toEqual({ status: "ok", value: "after" });

    expect(await session.getToolCall({ callId: "resolve" })).toMatchObject({
      outcome: endings[0],
      lateOutcome: { status: "ok", value: "late" },
    });
    expect(await session.getToolCall({ callId: "reject" })).toMatchObject({ outcome: endings[1], lateOutcome: undefined });
    expect(ground.runs(session.sessionId)).toBe(3);
    await ground.expectStanding(session);
  });
});

describe("H05: a call of 30 s that is cancelled", () => {
  test.each([
    ["a function that honours its signal", false],
    ["a function that ignores it", true],
  ])("ends as cancelled at once, with %s", async (_, deaf) => {
    const session = await ground.session("long");
    const cancelling = new AbortController();
    const call = session.callTool({ callId: "one", name: "long", environment: "app", input: { deaf }, signal: cancelling.signal });
    const { callSequence } = await callStarted(session);
    await ground.host.event("running", { call: callSequence });
    const tookMs = await timed(async () => {
      cancelling.abort();
      expect(await call).toMatchObject({ status: "cancelled", code: "cancel_requested" });
    });
    expect(tookMs).toBeLessThan(1_000);
    expect(await ground.host.event("aborted", { call: callSequence })).toMatchObject({ aborted: true, code: "cancel_requested" });

    // What the function itself says of its stop may be kept beside the ending, now or later.
    const recorded = async () => (await ground.records(session)).filter(({ entry }) => entry.case !== "toolCallLateOutcome");
    const before = await recorded();
    expect(kindsOf(before)).toEqual(["sessionCreated", "toolCallStarted", "toolCallCancelRequested", "toolCallEnded"]);
    const again = await session.cancelToolCall({ callId: "one", reason: "once more" });
    expect(again.outcome).toEqual(await call);
    expect(await recorded()).toEqual(before);
    expect(ground.runs(session.sessionId, callSequence)).toBe(1);
    await ground.expectStanding(session);
  });
});

async function callStarted(session: Session): Promise<{ callSequence: number }> {
  const records = await recordsUntil(session, ({ entry }) => entry.case === "toolCallStarted");
  return { callSequence: records.at(-1)?.sequence ?? Number.NaN };
}

describe("H06: 2,000 calls one after another, each with a deadline a day away", () => {
  test("leave neither listeners nor memory nor timers behind, in Brain or in the host", async () => {
    const folder = mkdtempSync(join(tmpdir(), "brain-leak-"));
    const counterFile = join(folder, "runs");
    writeFileSync(counterFile, "");
    const token = "leak-token";
    const warnings: string[] = [];
    const warned = (warning: Error): void => void warnings.push(warning.message);
    process.on("warning", warned);
    try {
      await using server = new BrainCommand(["serve", "--listen", "127.0.0.1:0", "--data-dir", join(folder, "data")], {
        environment: { BRAIN_API_TOKEN: token },
        probed: true,
      });
      const url = await server.listening();
      await using host = await CaseHost.start({ url, token, counterFile, probed: true });
      const caller = new Brain({ baseUrl: url, token });
      const session = await caller.sessions.create({ tools: [caseTools().plain({ env: hostEnv({ name: "app", hostId: host.hostId }) })] });
      const callOften = async (count: number): Promise<void> => {
        for (let i = 0; i < count; i++) {
          const ending = await session.callTool({ name: "plain", environment: "app", input: { i }, timeoutMs: DAY_MS });
          expect(ending).toEqual({ status: "ok", value: { i } });
        }
      };
      // What is made once, on the way of the first calls, is no leak.
      await callOften(200);
      const serverBefore = await server.memory();
      const hostBefore = await host.memory();
      await callOften(2_000);
      const { lastSequence } = await session.describe();
      expect(lastSequence).toBe(1 + 2 * 2_200);
      await session.end();
      const serverAfter = await server.memory();
      const hostAfter = await host.memory();
      expect((serverAfter.heapUsed - serverBefore.heapUsed) / MIB, "MiB that the server grew").toBeLessThan(15);
      expect((hostAfter.heapUsed - hostBefore.heapUsed) / MIB, "MiB that the host grew").toBeLessThan(15);
      expect(serverAfter.timers - serverBefore.timers, "timers that the server gathered").toBeLessThan(10);
      expect(hostAfter.timers - hostBefore.timers, "timers that the host gathered").toBeLessThan(10);
      expect(readFileSync(counterFile, "utf8").split("\n").filter(Boolean)).toHaveLength(2_200);

      await caller.close();
      const left = await host.leave();
      expect(left.code).toBe(0);
      expect(left.ms).toBeLessThan(2_000);
      const exitMs = await timed(async () => {
        server.signal("SIGTERM");
        expect(await server.exited()).toBe(0);
      });
      expect(exitMs).toBeLessThan(2_000);
      expect(host.stderr).toEqual([]);
      expectNoWarnings("the server", server.stderr);
      expect(warnings).toEqual([]);
    } finally {
      process.off("warning", warned);
      rmSync(folder, { recursive: true, force: true });
    }
  }, 120_000);
});
