import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { CaseGround, kindsOf, recordsUntil } from "../support/case-ground.js";

describe.each(["attach", "watch", "sse", "auto"] as const)("a host in another process, on the route %s", (hostRoute) => {
  let ground: CaseGround;
  beforeAll(async () => {
    ground = await CaseGround.open({ hostRoute });
  });
  afterAll(async () => {
    await ground[Symbol.asyncDispose]();
  });

  test("shows an emitted event to every process before the emit resolves, and returns a value", async () => {
    const session = await ground.session("witnessed");
    const ending = await session.callTool({ name: "witnessed", environment: "app", input: { id: "7" } });
    const emitted = { kind: "witnessed", dataJson: '{"id":"7"}', callSequence: 2 };
    expect(ending).toMatchObject({ status: "ok", value: { sequence: 3, seen: { sequence: 3, eventEmitted: emitted } } });
    expect(kindsOf(await ground.records(session))).toEqual(["sessionCreated", "toolCallStarted", "eventEmitted", "toolCallEnded"]);
  });

  test("ends the same call in each of the ways there are, all on record once", async () => {
    const session = await ground.session("plain", "wait", "fails", "long");
    const call = { environment: "app", timeoutMs: 60_000 };

    expect(await session.callTool({ ...call, name: "wait", input: { ms: 0 } })).toEqual({ status: "ok", value: { v: 1 } });
    expect(await session.callTool({ ...call, name: "wait", input: { ms: "soon" } })).toMatchObject({
      status: "error",
      code: "invalid_input",
      retryable: false,
      details: { violations: [{ path: "/ms" }] },
    });
    expect(await session.callTool({ ...call, name: "fails", input: { message: "as told" } })).toEqual({
      status: "error",
      code: "tool_error",
      message: "as told",
      retryable: false,
    });
    expect(await session.callTool({ ...call, name: "long", input: { deaf: false }, timeoutMs: 100 })).toMatchObject({
      status: "timeout",
      code: "deadline_passed",
    });

    const cancelling = new AbortController();
    const cancelled = session.callTool({
      ...call,
      callId: "cancelled",
      name: "long",
      input: { deaf: false },
      signal: cancelling.signal,
    });
    const records = await recordsUntil(session, ({ entry }) => entry.case === "toolCallStarted" && entry.value.callId === "cancelled");
    const callSequence = records.at(-1)?.sequence;
    await ground.host.event("running", { call: callSequence });
    cancelling.abort();
    expect(await cancelled).toMatchObject({ status: "cancelled", code: "cancel_requested" });
    expect(await ground.host.event("aborted", { call: callSequence })).toMatchObject({ code: "cancel_requested" });

    // A value at the limit goes through whole, both ways.
    const large = "x".repeat(1024 * 1024 - 2);
    expect(await session.callTool({ ...call, name: "plain", input: large })).toEqual({ status: "ok", value: large });

    const { lastSequence } = await session.describe();
    const endings = (await recordsUntil(session, ({ sequence }) => sequence >= lastSequence)).flatMap(({ entry }) =>
      entry.case === "toolCallEnded" ? [entry.value.outcome?.status.case] : [],
    );
    expect(endings).toEqual(["ok", "error", "error", "timeout", "cancelled", "ok"]);
    const starts = (await ground.records(session)).flatMap(({ sequence, entry }) => (entry.case === "toolCallStarted" ? [sequence] : []));
    const [ok, invalid, thrown, timeout, stopped, big] = starts.map((sequence) => ground.runs(session.sessionId, sequence));
    expect({ ok, invalid, thrown, stopped, big }).toEqual({ ok: 1, invalid: 0, thrown: 1, stopped: 1, big: 1 });
    // On a busy machine the deadline may pass before the function would begin.
    expect(timeout).toBeLessThanOrEqual(1);
    await ground.expectStanding(session);
  });

  test("leaves when it is told to, and its process ends by itself", async () => {
    const session = await ground.session("plain");
    expect(await session.callTool({ name: "plain", environment: "app", input: 1 })).toEqual({ status: "ok", value: 1 });
    const { code, ms } = await ground.host.leave();
    expect(code).toBe(0);
    expect(ms).toBeLessThan(2_000);
    expect(ground.host.stderr).toEqual([]);
  });
});
