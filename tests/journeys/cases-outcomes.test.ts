import { hostEnv, type Session } from "@aexhq/brain";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { CaseGround, kindsOf } from "../support/case-ground.js";
import { ConnectJson, type Json, type JsonAnswer } from "../support/connect-json.js";
import { FetchHost } from "../support/fetch-host.js";

let ground: CaseGround;
let wire: ConnectJson;
let host: FetchHost;
let session: Session;
let commands: number;
beforeAll(async () => {
  ground = await CaseGround.open();
  wire = new ConnectJson(ground.server.url, ground.token);
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});
beforeEach(async () => {
  host = await FetchHost.register(wire);
  await host.attachByGet();
  const env = hostEnv({ name: "app", hostId: host.hostId });
  session = await ground.caller.sessions.create({ tools: [ground.tools.plain({ env })] });
  commands = 0;
});
afterEach(() => host.drop());

/** Starts a call, and has its command. */
async function started(callId: string): Promise<{ command: Json; ending: Promise<unknown> }> {
  const ending = session.callTool({ callId, name: "plain", environment: "app", input: callId, timeoutMs: 60_000 });
  const command = await host.runTool();
  commands++;
  return { command, ending };
}

const ok = (value: unknown): Json => ({ ok: { valueJson: JSON.stringify(value) } });
const disposition = ({ httpStatus, body }: JsonAnswer): unknown => [httpStatus, body.disposition];
const answered = (word: string): unknown => [200, `DISPOSITION_${word}`];

async function kinds(): Promise<unknown[]> {
  return kindsOf(await ground.records(session)).slice(1);
}

describe("H27: an outcome that is posted more than once", () => {
  test("is the ending the first time, a duplicate when equal, and late when different, which changes nothing", async () => {
    const { command, ending } = await started("one");
    const first = ok({ n: 1, s: "x" });
    expect(disposition(await host.report(command, first))).toEqual(answered("RECORDED"));
    expect(disposition(await host.report(command, first))).toEqual(answered("DUPLICATE"));
    // Equal is what is equal as JSON, not as text.
    expect(disposition(await host.report(command, { ok: { valueJson: '{ "s": "x", "n": 1.0 }' } }))).toEqual(answered("DUPLICATE"));
    for (const other of [ok({ n: 2 }), { error: { code: "e", message: "m" } }, ok(null), { unknown: { code: "u", message: "m" } }]) {
      const { body } = await host.report(command, other);
      expect(body).toMatchObject({ disposition: "DISPOSITION_LATE", standingOutcome: first });
    }
    expect(disposition(await host.report(command, first))).toEqual(answered("DUPLICATE"));
    expect(await ending).toEqual({ status: "ok", value: { n: 1, s: "x" } });
    expect(await kinds()).toEqual(["toolCallStarted", "toolCallEnded", "toolCallLateOutcome"]);
    expect(await session.getToolCall({ callId: "one" })).toMatchObject({ lateOutcome: { status: "ok", value: { n: 2 } } });
    await ground.expectStanding(session);
  });

  test("twenty times at once is recorded once, whether all are equal or all differ", async () => {
    const equal = await started("equal");
    const equals = await Promise.all(Array.from({ length: 20 }, () => host.report(equal.command, ok("same"))));
    const words = (answers: readonly JsonAnswer[]): string[] => answers.map(({ body }) => String(body.disposition).slice(12)).sort();
    expect(words(equals)).toEqual([...Array(19).fill("DUPLICATE"), "RECORDED"]);
    expect(await equal.ending).toEqual({ status: "ok", value: "same" });

    const differing = await started("differing");
    const others = await Promise.all(Array.from({ length: 20 }, (_, n) => host.report(differing.command, ok(n))));
    expect(words(others)).toEqual([...Array(19).fill("LATE"), "RECORDED"]);
    const recorded = others.find(({ body }) => body.disposition === "DISPOSITION_RECORDED");
    const ending = { status: "ok", value: JSON.parse(recorded?.body.standingOutcome.ok.valueJson) };
    expect(await differing.ending).toEqual(ending);
    // One answer for everybody.
    expect(new Set(others.map(({ body }) => body.standingOutcome.ok.valueJson)).size).toBe(1);
    expect(await kinds()).toEqual(["toolCallStarted", "toolCallEnded", "toolCallStarted", "toolCallEnded", "toolCallLateOutcome"]);
    await ground.expectStanding(session);
  });

  test("of a call that never was, or is another host's, is not found, and nothing is written", async () => {
    const { command, ending } = await started("one");
    const { sessionId } = session;
    const stranger = await FetchHost.register(wire, "stranger");
    const before = await ground.records(session);
    const refusals = [
      await host.report({ sessionId, callSequence: 99 }, ok(1)),
      // The record of that sequence is no start of a call.
      await host.report({ sessionId, callSequence: 1 }, ok(1)),
      await host.report({ sessionId, callSequence: 0 }, ok(1)),
      await host.report({ sessionId: crypto.randomUUID(), callSequence: 2 }, ok(1)),
      await stranger.report(command, ok(1)),
      await stranger.emit(command, "kind", {}),
    ];
    for (const refusal of refusals) expect(refusal).toMatchObject({ httpStatus: 404, reason: "call_not_found" });
    expect(await ground.records(session)).toEqual(before);
    await host.report(command, ok("mine"));
    expect(await ending).toEqual({ status: "ok", value: "mine" });
    await ground.expectStanding(session);
  });

  test("after the call was cancelled is kept beside the ending, once", async () => {
    const { command, ending } = await started("one");
    await session.cancelToolCall({ callId: "one" });
    expect(await ending).toMatchObject({ status: "cancelled", code: "cancel_requested" });
    const late = await host.report(command, ok("done all the same"));
    expect(late.body).toMatchObject({ disposition: "DISPOSITION_LATE", standingOutcome: { cancelled: { code: "cancel_requested" } } });
    expect(disposition(await host.report(command, ok("done all the same")))).toEqual(answered("LATE"));
    expect(disposition(await host.report(command, ok("otherwise")))).toEqual(answered("LATE"));
    expect(await kinds()).toEqual(["toolCallStarted", "toolCallCancelRequested", "toolCallEnded", "toolCallLateOutcome"]);
    expect(await session.getToolCall({ callId: "one" })).toMatchObject({ lateOutcome: { status: "ok", value: "done all the same" } });
    await ground.expectStanding(session);
  });

  test("that is none, or out of its bounds, is refused and ends nothing", async () => {
    const { command, ending } = await started("one");
    for (const outcome of [undefined, {}, { error: { message: "no code" } }, { error: { code: "x".repeat(200), message: "m" } }]) {
      expect(await host.report(command, outcome)).toMatchObject({ httpStatus: 400, reason: "invalid_argument" });
    }
    expect(await kinds()).toEqual(["toolCallStarted"]);
    expect(disposition(await host.report(command, ok("at last")))).toEqual(answered("RECORDED"));
    expect(await ending).toEqual({ status: "ok", value: "at last" });
    expect(commands).toBe(1);
    await ground.expectStanding(session);
  });
});
