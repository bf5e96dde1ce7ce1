import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Json, JsonAnswer } from "../support/connect-json.js";
import { FetchHost, StreamRefused } from "../support/fetch-host.js";
import { expectRefused, WireGround } from "../support/wire-ground.js";

const MIB = 1024 * 1024;

let ground: WireGround;
beforeAll(async () => {
  ground = await WireGround.open();
});
afterAll(() => ground.close());
afterEach(() => ground.expectAlive());

describe("a call", () => {
  test.each([
    ["no text", ""],
    ["an open brace", "{"],
    ["two values", "1 2"],
    ["a trailing comma", "[1,]"],
    ["a comment", "/* 1 */ 1"],
    ["a single quote", "'a'"],
    ["no JSON number", "NaN"],
    ["a byte order mark", "\ufeff1"],
    ["a control character in a string", '"\u0001"'],
    ["a member named twice", '{"a":1,"a":2}'],
    ["a member named twice, once by escapes", '{"a":1,"\\u0061":2}'],
    ["half a surrogate pair in a value", '{"s":"x\\ud800y"}'],
    ["half a surrogate pair in a name", '{"\\udc00":1}'],
    ["an integer that no double holds", "9007199254740993"],
    ["a number beyond every double", "1e400"],
    ["more nesting than 512", `${"[".repeat(513)}${"]".repeat(513)}`],
    ["endless nesting", "[".repeat(500_000)],
    ["one byte over 1 MiB", `"${"x".repeat(MIB - 1)}"`],
    ["one byte over 1 MiB, in characters of two bytes", `"${"é".repeat(MIB / 2)}"`],
  ])("with input that is %s ends as invalid_input, on record, and nothing ground.runs", async (_, inputJson) => {
    const sessionId = await ground.createSession();
    const before = ground.runs;
    const { callSequence, endSequence, outcome } = await ground.callTool({ sessionId, inputJson });
    expect({ callSequence, endSequence }).toEqual({ callSequence: 2, endSequence: 3 });
    expect(outcome.error).toMatchObject({ code: "invalid_input", message: expect.stringContaining("Tool echo") });
    expect(ground.runs).toBe(before);
    expect(await ground.lastSequence(sessionId)).toBe(3);
    const { records } = await ground.wire.ask("SessionService/ListRecords", { sessionId });
    const kept = records[1].toolCallStarted;
    expect(kept.receiver).toBe(undefined);
    expect(kept.inputJson ?? "").toBe(Buffer.byteLength(inputJson) <= MIB ? inputJson : "");
  });

  test.each([
    ["exactly 1 MiB", `"${"x".repeat(MIB - 2)}"`],
    ["512 levels deep", `${"[".repeat(512)}${"]".repeat(512)}`],
    ["characters of every length", '"a\\u0000bé\u{1f600}"'],
  ])("with input that is %s is run as any other", async (_, inputJson) => {
    const sessionId = await ground.createSession();
    const { outcome } = await ground.callTool({ sessionId, inputJson });
    expect(JSON.parse(outcome.ok.valueJson)).toEqual(JSON.parse(inputJson));
  });

  test.each([
    ["a call_id", { callId: "" }, { field: "call_id" }],
    ["a call_id of 256 characters or fewer", { callId: "x".repeat(257) }, { field: "call_id" }],
    ["a call_id without control characters", { callId: "a\nb" }, { field: "call_id" }],
    ["the name of a Tool", { name: "" }, { field: "name" }],
    ["a Tool's name of the right letters", { name: "a.b" }, { field: "name" }],
    ["a Tool's name of 64 letters or fewer", { name: "x".repeat(65) }, { field: "name" }],
    ["the name of an Environment", { environment: "" }, { field: "environment" }],
    ["an Environment's name of the right letters", { environment: "é" }, { field: "environment" }],
    ["a timeout above zero", { timeout: "0s" }, { field: "timeout" }],
    ["a timeout that is not negative", { timeout: "-1s" }, { field: "timeout" }],
    ["a timeout that is a number", { timeout: "NaNs" }, {}],
    ["a timeout below ten years", { timeout: "315360001s" }, { field: "timeout" }],
    ["whole characters", { inputJson: '"\ud800"' }, {}],
    ["input that is text", { inputJson: { a: 1 } }, {}],
  ])("without %s is refused before anything is committed", async (_, wrong, metadata) => {
    const sessionId = await ground.createSession();
    const before = ground.runs;
    const call = { sessionId, callId: "one", name: "echo", environment: "app", inputJson: "1", ...wrong };
    expectRefused(await ground.wire.post("ToolCallService/CallTool", call), 400, "invalid_argument", metadata);
    expect(await ground.lastSequence(sessionId)).toBe(1);
    expect(ground.runs).toBe(before);
  });

  test("whose body is no JSON, no message, or endless is refused before anything is committed", async () => {
    const sessionId = await ground.createSession();
    for (const body of ["", "{", "[]", "null", '"text"', '{"sessionId":7}', '{"sessionId":"a","sessionId":"b"}']) {
      expectRefused(await ground.wire.post("ToolCallService/CallTool", body), 400, "invalid_argument");
    }
    const long = JSON.stringify({ sessionId, callId: "one", name: "echo", environment: "app", inputJson: "x".repeat(17 * MIB) });
    expectRefused(await ground.wire.post("ToolCallService/CallTool", long), 429, "request_too_large");
    expect(await ground.lastSequence(sessionId)).toBe(1);
  });

  test("under a call_id that another content has is refused, whichever is asked first and however it ended", async () => {
    const sessionId = await ground.createSession();
    const call = { sessionId, callId: "one", inputJson: '{"a":1,"b":2}' };
    const { outcome } = await ground.callTool(call);
    const conflicts: Json[] = [{ inputJson: '{"a":1}' }, { inputJson: "{" }, { name: "other" }, { environment: "other" }];
    for (const other of conflicts) {
      const answer = await ground.wire.post("ToolCallService/CallTool", { name: "echo", environment: "app", ...call, ...other });
      expectRefused(answer, 409, "call_id_conflict");
      expect(answer.message).toContain('"one"');
    }
    expect(await ground.callTool({ ...call, inputJson: ' { "b" : 2, "a" : 1 } ', timeout: "5s" })).toMatchObject({
      callSequence: 2,
      outcome,
    });
    expect(await ground.lastSequence(sessionId)).toBe(3);
  });

  test("of an ended session is refused, and one that is on record is still read back", async () => {
    const sessionId = await ground.createSession();
    const call = { sessionId, callId: "one", inputJson: "1" };
    const ending = await ground.callTool(call);
    await ground.wire.ask("SessionService/EndSession", { sessionId });
    await ground.wire.ask("SessionService/EndSession", { sessionId });
    const refused = await ground.wire.post("ToolCallService/CallTool", { ...call, callId: "two", name: "echo", environment: "app" });
    expectRefused(refused, 400, "session_ended", { session_id: sessionId });
    expect(await ground.callTool(call)).toEqual(ending);
    expect(await ground.lastSequence(sessionId)).toBe(4);
  });

  test("that is cancelled with more words than fit is not cancelled", async () => {
    const sessionId = await ground.createSession();
    await ground.callTool({ sessionId, callId: "one", inputJson: "1" });
    const answer = await ground.wire.post("ToolCallService/CancelToolCall", { sessionId, callId: "one", reason: "x".repeat(2000) });
    expectRefused(answer, 400, "invalid_argument", { field: "reason" });
  });
});

describe("what a host says", () => {
  let host: FetchHost;
  let sessionId: string;
  let calling: Promise<Json>;
  let command: Json;
  const start = async (outputSchema?: unknown): Promise<void> => {
    host = await FetchHost.register(ground.wire);
    await host.attachByGet();
    const output = outputSchema === undefined ? {} : { outputSchemaJson: JSON.stringify(outputSchema) };
    sessionId = await ground.createSessionOf(host.hostId, output);
    calling = ground.callTool({ sessionId, inputJson: "1" });
    command = await host.runTool();
  };
  afterEach(() => host.drop());

  test("in an event out of its bounds is refused, and neither adds a record nor ends the call", async () => {
    await start();
    const event = { sessionId, callSequence: 2, kind: "tick", dataJson: "1", emitId: "e" };
    for (const [wrong, metadata] of [
      [{ kind: "" }, { field: "kind" }],
      [{ kind: "x".repeat(129) }, { field: "kind" }],
      [{ kind: "a\u0000" }, { field: "kind" }],
      [{ emitId: "" }, { field: "emit_id" }],
      [{ emitId: "x".repeat(257) }, { field: "emit_id" }],
      [{ dataJson: "{" }, { field: "data_json" }],
      [{ dataJson: '{"a":1,"a":2}' }, { field: "data_json" }],
      [{ dataJson: '"\\ud800"' }, { field: "data_json" }],
      [{ dataJson: "1e400" }, { field: "data_json" }],
      [{ dataJson: `"${"x".repeat(MIB)}"` }, { field: "data_json" }],
    ] as const) {
      expectRefused(await host.wire.post("HostService/EmitEvent", { ...event, ...wrong }), 400, "invalid_argument", metadata);
    }
    expect(await ground.lastSequence(sessionId)).toBe(2);
    expect((await host.wire.post("HostService/EmitEvent", event)).body).toEqual({ sequence: 3 });
    await host.report(command, { ok: { valueJson: "1" } });
    expect((await calling).outcome).toEqual({ ok: { valueJson: "1" } });
  });

  test("in a failure out of its bounds is refused, and the call can still be reported", async () => {
    await start();
    const failure = { code: "broken", message: "it broke" };
    for (const [outcome, field] of [
      [undefined, "outcome"],
      [{}, "outcome"],
      [{ error: { ...failure, code: "" } }, "outcome.error.code"],
      [{ error: { ...failure, code: "x".repeat(129) } }, "outcome.error.code"],
      [{ error: { ...failure, message: "x".repeat(8 * 1024 + 1) } }, "outcome.error.message"],
      [{ error: { ...failure, detailsJson: "{" } }, "outcome.error.details_json"],
      [{ error: { ...failure, detailsJson: `"${"x".repeat(64 * 1024)}"` } }, "outcome.error.details_json"],
      [{ unknown: { ...failure, detailsJson: '{"a":1,"a":2}' } }, "outcome.unknown.details_json"],
    ] as const) {
      expectRefused(await host.report(command, outcome), 400, "invalid_argument", { field });
    }
    expect(await ground.lastSequence(sessionId)).toBe(2);
    expect((await host.report(command, { error: failure })).body.disposition).toBe("DISPOSITION_RECORDED");
    expect((await calling).outcome.error).toMatchObject(failure);
  });

  test.each([
    ["no text", ""],
    ["no JSON", "{"],
    ["a member named twice", '{"a":1,"a":2}'],
    ["half a surrogate pair", '"\\ud800"'],
    ["a number beyond every double", "1e400"],
    ["over 1 MiB", `"${"x".repeat(MIB)}"`],
    ["against the output schema", '"text"'],
  ])("in a value that is %s is recorded as invalid_output", async (_, valueJson) => {
    await start({ type: "object" });
    const { body } = await host.report(command, { ok: { valueJson } });
    expect(body).toMatchObject({ disposition: "DISPOSITION_RECORDED", standingOutcome: { error: { code: "invalid_output" } } });
    expect(body.standingOutcome.error.message).toContain("Tool echo");
    expect((await calling).outcome).toEqual(body.standingOutcome);
    expect(await ground.lastSequence(sessionId)).toBe(3);
  });

  test("when it attaches wrongly is refused, naming the field", async () => {
    await start();
    for (const [attachment, reason] of [
      [{ generation: 1, instanceId: "" }, "invalid_argument"],
      [{ generation: 1, instanceId: "x".repeat(257) }, "invalid_argument"],
      [{ generation: 1 }, "attach_superseded"],
      [{ generation: -1 }, "invalid_argument"],
      [{ generation: 2, hostId: "another" }, "invalid_argument"],
    ] as const) {
      const other = new FetchHost(host.wire, host.hostId, host.instanceId);
      await expect(other.attachByPost(attachment), JSON.stringify(attachment)).rejects.toSatisfy(
        (error) => error instanceof StreamRefused && error.answer.reason === reason,
      );
    }
    await host.report(command, { ok: { valueJson: "1" } });
    expect((await calling).outcome).toEqual({ ok: { valueJson: "1" } });
    expectRefused(await ground.wire.post("HostService/DeleteHost", { hostId: host.hostId }), 400, "host_in_use");
  });
});

describe("a session", () => {
  const definition = (more: Json = {}): Json => ({
    tool: { name: "echo", description: "", inputSchemaJson: "true", ...more },
    environment: "app",
    implementation: { hostFunction: {} },
  });
  const create = async (more: Json): Promise<JsonAnswer> => {
    const { hostId } = await ground.brain.credentials();
    return ground.wire.post("SessionService/CreateSession", {
      environments: [{ name: "app", host: { hostId } }],
      tools: [definition()],
      ...more,
    });
  };
  const expectNothingLeft = async (more: Json, reason: string, metadata: Record<string, unknown> = {}): Promise<string> => {
    const before = await ground.sessionCount();
    const answer = await create(more);
    expectRefused(answer, answer.httpStatus, reason, metadata);
    expect(answer.httpStatus).toBeGreaterThanOrEqual(400);
    expect(answer.httpStatus).toBeLessThan(500);
    expect(await ground.sessionCount()).toBe(before);
    return answer.message;
  };

  test.each([
    ["no JSON", "{", ""],
    ["no text", "", ""],
    ["a list", "[]", ""],
    ["a number", "7", ""],
    ["an unknown type", '{"type":"strin"}', "/type"],
    ["a pattern that is none", '{"properties":{"q":{"pattern":"^(?<a"}}}', "/properties/q/pattern"],
    ["an unknown dialect", '{"$schema":"https://example.com/my-dialect"}', ""],
    ["a reference to nowhere", '{"$ref":"#/$defs/nowhere"}', ""],
    ["a reference to another machine", '{"$ref":"https://example.com/schema.json"}', ""],
    ["a member named twice", '{"type":"string","type":"number"}', ""],
    ["over 256 KiB", JSON.stringify({ description: "x".repeat(256 * 1024) }), ""],
  ])("with a schema that is %s is refused, naming the Tool and the path, as input and as output", async (_, schema, path) => {
    for (const field of ["inputSchemaJson", "outputSchemaJson"]) {
      const message = await expectNothingLeft({ tools: [definition({ [field]: schema })] }, "invalid_schema", { tool: "echo" });
      expect(message).toContain("echo");
      expect(message).toContain(field === "inputSchemaJson" ? "input schema" : "output schema");
      expect(message).toContain(path);
    }
  });

  test.each([
    [
      "labels that are too many",
      { labels: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`label-${i}`, "x"])) },
      "invalid_argument",
    ],
    ["a label that is too long", { labels: { a: "x".repeat(257) } }, "invalid_argument"],
    ["a credential of nobody", { credentials: { nobody: "secret-of-nobody" } }, "invalid_argument"],
    ["a timeout of zero", { defaultToolTimeout: "0s" }, "invalid_argument"],
    ["a timeout below zero", { defaultToolTimeout: "-1s" }, "invalid_argument"],
    ["an Environment of no kind", { environments: [{ name: "app" }] }, "invalid_argument"],
    ["an Environment this server does not run", { environments: [{ name: "app", brain: {} }] }, "environment_unsupported"],
    ["a placement without a Tool", { tools: [{ environment: "app", implementation: { hostFunction: {} } }] }, "invalid_argument"],
    ["a placement without an implementation", { tools: [{ ...definition(), implementation: undefined }] }, "invalid_argument"],
    [
      "an implementation of another kind",
      { tools: [{ ...definition(), implementation: { component: { sha256: "0".repeat(64) } } }] },
      "implementation_mismatch",
    ],
    ["an Environment nobody declared", { tools: [{ ...definition(), environment: "other" }] }, "environment_not_found"],
    ["a configuration that is no JSON", { tools: [{ ...definition(), configurationJson: "{" }] }, "invalid_argument"],
    [
      "a configuration over 256 KiB",
      { tools: [{ ...definition(), configurationJson: `"${"x".repeat(256 * 1024)}"` }] },
      "invalid_argument",
    ],
    ["a description over 64 KiB", { tools: [definition({ description: "x".repeat(64 * 1024 + 1) })] }, "invalid_argument"],
    ["a request_id with a control character", { requestId: "a\tb" }, "invalid_argument"],
    ["a request_id over 256 characters", { requestId: "x".repeat(257) }, "invalid_argument"],
  ])("with %s is refused, and leaves nothing behind", async (_, more, reason) => {
    expect(await expectNothingLeft(more, reason)).not.toContain("secret-of-nobody");
  });

  test("with more Tools than a catalogue holds is refused", async () => {
    const tools = Array.from({ length: 6 }, (_, i) =>
      definition({ name: `tool-${i}`, inputSchemaJson: `{"description":"${"x".repeat(200 * 1024)}"}` }),
    );
    await expectNothingLeft({ tools }, "catalogue_too_large");
  });

  test("is created once for one request_id, and refused for the same one with other content", async () => {
    const requestId = crypto.randomUUID();
    const before = await ground.sessionCount();
    const answers = await Promise.all(Array.from({ length: 5 }, () => create({ requestId, labels: { a: "1" } })));
    const ids = new Set(answers.map(({ body }) => body.session.sessionId));
    expect(ids.size).toBe(1);
    const conflict = await create({ requestId, labels: { a: "2" } });
    expectRefused(conflict, 409, "request_id_conflict", { session_id: [...ids][0] });
    expectRefused(await create({ requestId, tools: [] }), 409, "request_id_conflict");
    expect(await ground.sessionCount()).toBe(before + 1);
    await ground.wire.ask("SessionService/DeleteSession", { sessionId: [...ids][0] });
    const anew = await create({ requestId, labels: { a: "2" } });
    expect(anew.httpStatus).toBe(200);
  });

  test("of a host that is registered twice under one request_id has one host, and only the newest token opens it", async () => {
    const request = { displayName: "twice", requestId: crypto.randomUUID() };
    const first = await ground.wire.ask("HostService/RegisterHost", request);
    const second = await ground.wire.ask("HostService/RegisterHost", request);
    expect(second.hostId).toBe(first.hostId);
    expect(second.hostToken).not.toBe(first.hostToken);
    const old = new FetchHost(ground.wire.as(first.hostToken), first.hostId);
    await expect(old.attachByGet()).rejects.toSatisfy((error) => error instanceof StreamRefused && error.answer.httpStatus === 401);
    const current = new FetchHost(ground.wire.as(second.hostToken), first.hostId);
    expect(await current.attachByGet()).toMatchObject({ generation: 1 });
    current.drop();
    const listed = await ground.wire.ask("HostService/ListHosts", { pageSize: 1000 });
    expect(listed.hosts.filter(({ hostId }: Json) => hostId === first.hostId)).toHaveLength(1);
  });
});
