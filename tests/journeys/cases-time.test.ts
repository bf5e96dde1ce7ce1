import { hostEnv, isBrainError, type JournalRecord } from "@aexhq/brain";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { CaseGround, kindsOf } from "../support/case-ground.js";
import { ConnectJson } from "../support/connect-json.js";

const DAY_MS = 24 * 60 * 60 * 1_000;

let ground: CaseGround;
beforeAll(async () => {
  ground = await CaseGround.open();
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

const commitMs = ({ commitTime }: JournalRecord): number => (commitTime === undefined ? Number.NaN : timestampMs(commitTime));

describe("H01: a deadline further away than a 32-bit timer reaches", () => {
  test("ends no call early, and the function is told the deadline that is on record", async () => {
    const session = await ground.session("wait");
    const timeouts = [2 ** 31 - 1, 2 ** 31, 400 * DAY_MS];
    const asked = Date.now();
    const endings = await Promise.all(
      timeouts.map((timeoutMs, index) =>
        session.callTool({ callId: `call-${index}`, name: "wait", environment: "app", input: { ms: 50 }, timeoutMs }),
      ),
    );
    const answered = Date.now();
    expect(endings).toEqual(timeouts.map(() => ({ status: "ok", value: { v: 1 } })));

    const records = await ground.records(session);
    for (const [index, timeoutMs] of timeouts.entries()) {
      const { callSequence, deadline } = await session.getToolCall({ callId: `call-${index}` });
      expect(deadline?.getTime()).toBeGreaterThanOrEqual(asked + timeoutMs);
      expect(deadline?.getTime()).toBeLessThanOrEqual(answered + timeoutMs + 1);
      const told = records.find(({ entry }) => entry.case === "eventEmitted" && entry.value.origin.value === callSequence);
      expect(told?.entry.value).toMatchObject({ kind: "deadline", dataJson: JSON.stringify(deadline?.toISOString()) });
    }
    await ground.expectStanding(session);
  });
});

describe("H02: a timeout that is no time", () => {
  test("is refused by the SDK before anything is committed, and a fraction of a millisecond is a time", async () => {
    const session = await ground.session("plain");
    const call = { name: "plain", environment: "app", input: 1 };
    for (const timeoutMs of [-1, 0, -5, Number.NaN, Number.POSITIVE_INFINITY, "soon" as never]) {
      const refused: unknown = await session.callTool({ ...call, timeoutMs }).catch((error: unknown) => error);
      expect(isBrainError(refused) && refused.reason, String(timeoutMs)).toBe("invalid_argument");
    }
    expect(kindsOf(await ground.records(session))).toEqual(["sessionCreated"]);
    expect(await session.callTool({ ...call, timeoutMs: 60_000.5 })).toEqual({ status: "ok", value: 1 });
    expect(ground.runs(session.sessionId)).toBe(1);
    await ground.expectStanding(session);
  });

  test("is refused on the wire before anything is committed, whatever it is written as", async () => {
    const wire = new ConnectJson(ground.server.url, ground.token);
    const session = await ground.session("plain");
    const call = { sessionId: session.sessionId, callId: "one", name: "plain", environment: "app", inputJson: "1" };
    for (const timeout of ["0s", "-5s", "-0.001s", "NaNs", "NaN", "Infinitys", "soon", "", 5, "1e3s", "99999999999s", "315360000001s"]) {
      const { httpStatus, reason } = await wire.post("ToolCallService/CallTool", { ...call, timeout });
      expect([timeout, httpStatus, reason]).toEqual([timeout, 400, "invalid_argument"]);
    }
    const { lastSequence } = await session.describe();
    expect(lastSequence).toBe(1);
    expect(ground.runs(session.sessionId)).toBe(0);
    await ground.expectStanding(session);
  });

  test("that is over before anybody could run the call ends it once as timeout, and nothing runs", async () => {
    const wire = new ConnectJson(ground.server.url, ground.token);
    // A host that no process has attached as: the call waits for it until its time is over.
    const { hostId } = await wire.ask("HostService/RegisterHost", { displayName: "nobody" });
    const session = await ground.caller.sessions.create({ tools: [ground.tools.plain({ env: hostEnv({ name: "app", hostId }) })] });
    const call = { sessionId: session.sessionId, name: "plain", environment: "app", inputJson: "1" };
    for (const timeout of ["0.000000001s", "0.001s", "0.0010005s", "0.025s"]) {
      const { outcome } = await wire.ask("ToolCallService/CallTool", { ...call, callId: timeout, timeout });
      expect(outcome.timeout).toMatchObject({ code: "deadline_passed" });
    }
    expect(ground.runs(session.sessionId)).toBe(0);
    expect(kindsOf(await ground.records(session)).filter((kind) => kind === "toolCallEnded")).toHaveLength(4);
    await ground.expectStanding(session);
  });
});

describe("H03: a function that emits beyond its deadline", () => {
  test("times out on time, keeps the events from before, and adds none after", async () => {
    const session = await ground.session("tick");
    const ending = await session.callTool({ callId: "one", name: "tick", environment: "app", input: {}, timeoutMs: 500 });
    expect(ending).toMatchObject({ status: "timeout", code: "deadline_passed" });
    const { callSequence } = await session.getToolCall({ callId: "one" });
    expect(await ground.host.event("ticked", { call: callSequence })).toMatchObject({ refused: "call_ended" });

    const records = await ground.records(session);
    const started = records.find(({ entry }) => entry.case === "toolCallStarted");
    const ended = records.find(({ entry }) => entry.case === "toolCallEnded");
    if (started === undefined || ended === undefined) throw new Error("the call has no start or no ending");
    const tookMs = commitMs(ended) - commitMs(started);
    // The function goes on for 2 s: anything well below that has not been extended.
    expect(tookMs).toBeGreaterThanOrEqual(490);
    expect(tookMs).toBeLessThan(1_500);
    const ticks = records.flatMap(({ sequence, entry }) =>
      entry.case === "eventEmitted" ? [{ sequence, data: entry.value.dataJson }] : [],
    );
    expect(ticks.length).toBeGreaterThanOrEqual(1);
    expect(ticks.map(({ data }) => data)).toEqual(ticks.map((_, i) => JSON.stringify({ i })));
    expect(Math.max(...ticks.map(({ sequence }) => sequence))).toBeLessThan(ended.sequence);
    await ground.expectStanding(session);
  });
});
