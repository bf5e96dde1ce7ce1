import { afterAll, beforeAll, expect, test } from "vitest";
import { ConnectJson, type Json } from "../support/connect-json.js";
import { FetchHost, StreamRefused } from "../support/fetch-host.js";
import { ServerProcess } from "../support/server-process.js";

const TOKEN = "plain-token";

let server: ServerProcess;
let wire: ConnectJson;
beforeAll(async () => {
  server = await ServerProcess.start({ apiToken: TOKEN, flags: ["--heartbeat", "1s", "--host-wait", "500ms"] });
  wire = new ConnectJson(server.url, TOKEN);
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
});

async function createSession(hostId: string): Promise<string> {
  const { session } = await wire.ask("SessionService/CreateSession", {
    environments: [{ name: "app", host: { hostId } }],
    tools: [
      {
        tool: {
          name: "lookup",
          description: "Look up one item.",
          inputSchemaJson: JSON.stringify({ type: "object", properties: { id: { type: "string" } }, required: ["id"] }),
          outputSchemaJson: JSON.stringify({ type: "object", properties: { value: { type: "string" } }, required: ["value"] }),
        },
        environment: "app",
        implementation: { hostFunction: {} },
        configurationJson: '{"prefix":"item:"}',
      },
    ],
  });
  return session.sessionId;
}

function callTool(sessionId: string, callId: string, id: unknown = "7"): Promise<Json> {
  return wire.ask("ToolCallService/CallTool", { sessionId, callId, name: "lookup", environment: "app", inputJson: JSON.stringify({ id }) });
}

async function kinds(sessionId: string): Promise<string[]> {
  const { records } = await wire.ask("SessionService/ListRecords", { sessionId });
  return records.map((record: Json) => Object.keys(record).find((key) => !["sessionId", "sequence", "commitTime"].includes(key)));
}

test("a host of nothing but fetch runs a call: command, event, outcome, each on record", async () => {
  const host = await FetchHost.register(wire);
  const attached = await host.attachByGet();
  expect(attached).toMatchObject({ generation: 1, heartbeatInterval: "1s", grace: "30s" });
  expect(host.stream.headers.get("content-type")).toMatch(/^text\/event-stream/);
  const sessionId = await createSession(host.hostId);

  const calling = callTool(sessionId, "one");
  const command = await host.runTool();
  expect(command).toMatchObject({
    sessionId,
    callSequence: 2,
    callId: "one",
    name: "lookup",
    environment: "app",
    inputJson: '{"id":"7"}',
    configurationJson: '{"prefix":"item:"}',
  });
  expect(Number.parseFloat(command.remaining)).toBeGreaterThan(100);
  expect((await host.heartbeat([command])).body).toEqual({});

  const emitId = "an-emit";
  expect((await host.emit(command, "lookup_started", { id: "7" }, emitId)).body).toEqual({ sequence: 3 });
  expect((await host.emit(command, "lookup_started", { id: "7" }, emitId)).body).toEqual({ sequence: 3 });
  expect((await host.report(command, { ok: { valueJson: '{"value":"item:7"}' } })).body).toEqual({
    disposition: "DISPOSITION_RECORDED",
    standingOutcome: { ok: { valueJson: '{"value":"item:7"}' } },
  });
  expect(await calling).toEqual({ callSequence: 2, endSequence: 4, outcome: { ok: { valueJson: '{"value":"item:7"}' } } });

  expect((await host.report(command, { ok: { valueJson: '{"value":"item:7"}' } })).body.disposition).toBe("DISPOSITION_DUPLICATE");
  expect((await host.report(command, { ok: { valueJson: '{"value":"other"}' } })).body).toMatchObject({
    disposition: "DISPOSITION_LATE",
    standingOutcome: { ok: { valueJson: '{"value":"item:7"}' } },
  });
  expect(await host.emit(command, "lookup_started", {})).toMatchObject({ httpStatus: 400, reason: "call_ended" });
  expect(await kinds(sessionId)).toEqual(["sessionCreated", "toolCallStarted", "eventEmitted", "toolCallEnded", "toolCallLateOutcome"]);
  host.drop();
});

test("a caller of nothing but fetch gets its recorded ending again, and never a second run", async () => {
  const host = await FetchHost.register(wire);
  await host.attachByGet();
  const sessionId = await createSession(host.hostId);
  const calling = [callTool(sessionId, "one"), callTool(sessionId, "one")];
  const command = await host.runTool();
  await host.report(command, { error: { code: "no_such_item", message: "there is none", detailsJson: '{"id":"7"}' } });
  const ending = {
    callSequence: 2,
    endSequence: 3,
    outcome: { error: { code: "no_such_item", message: "there is none", detailsJson: '{"id":"7"}' } },
  };
  expect(await Promise.all(calling)).toEqual([ending, ending]);
  expect(await callTool(sessionId, "one")).toEqual(ending);
  const other = await wire.post("ToolCallService/CallTool", {
    sessionId,
    callId: "one",
    name: "lookup",
    environment: "app",
    inputJson: "{}",
  });
  expect(other).toMatchObject({ httpStatus: 409, reason: "call_id_conflict" });
  expect(await callTool(sessionId, "two", 7)).toMatchObject({ outcome: { error: { code: "invalid_input" } } });
  expect(await kinds(sessionId)).toEqual(["sessionCreated", "toolCallStarted", "toolCallEnded", "toolCallStarted", "toolCallEnded"]);
  host.drop();
});

test("a value against the output schema is recorded as invalid_output, and the answer says so", async () => {
  const host = await FetchHost.register(wire);
  await host.attachByGet();
  const sessionId = await createSession(host.hostId);
  const calling = callTool(sessionId, "one");
  const command = await host.runTool();
  const { body } = await host.report(command, { ok: { valueJson: '{"value":7}' } });
  expect(body).toMatchObject({ disposition: "DISPOSITION_RECORDED", standingOutcome: { error: { code: "invalid_output" } } });
  expect((await calling).outcome).toEqual(body.standingOutcome);
  host.drop();
});

test("a cancel reaches the host as a command, and the ending stands at once", async () => {
  const host = await FetchHost.register(wire);
  await host.attachByGet();
  const sessionId = await createSession(host.hostId);
  const calling = callTool(sessionId, "one");
  const { callSequence } = await host.runTool();
  const { toolCall } = await wire.ask("ToolCallService/CancelToolCall", { sessionId, callId: "one", reason: "changed my mind" });
  expect(toolCall.outcome.cancelled).toMatchObject({ code: "cancel_requested" });
  expect((await calling).outcome).toEqual(toolCall.outcome);
  expect((await host.stream.nextOf("cancelCall")).cancelCall).toEqual({ sessionId, callSequence, cause: "CANCEL_CAUSE_REQUESTED" });
  expect((await host.heartbeat([{ sessionId, callSequence }])).body).toEqual({ ended: [{ sessionId, callSequence }] });
  host.drop();
});

test("a host that attaches again by POST keeps the call on its list, and one without a stream can still report", async () => {
  const host = await FetchHost.register(wire);
  await host.attachByPost({ generation: 1, heldCalls: { calls: [] } });
  const sessionId = await createSession(host.hostId);
  const calling = callTool(sessionId, "one");
  const { callSequence } = await host.runTool();
  host.drop();
  const held = { sessionId, callSequence };
  expect(await host.attachByPost({ generation: 2, heldCalls: { calls: [held] } })).toMatchObject({ generation: 2 });
  const older = host.attachByPost({ generation: 2, heldCalls: { calls: [held] } });
  await expect(older).rejects.toSatisfy((error) => error instanceof StreamRefused && error.answer.reason === "attach_superseded");
  host.drop();
  expect((await host.report(held, { ok: { valueJson: '{"value":"x"}' } })).body.disposition).toBe("DISPOSITION_RECORDED");
  expect((await calling).outcome).toEqual({ ok: { valueJson: '{"value":"x"}' } });
});

test("a host that attaches again without the call on its list ends it as not delivered, at once", async () => {
  const host = await FetchHost.register(wire);
  await host.attachByPost({ generation: 1, heldCalls: { calls: [] } });
  const sessionId = await createSession(host.hostId);
  const calling = callTool(sessionId, "one");
  await host.runTool();
  host.drop();
  await host.attachByPost({ generation: 2, heldCalls: { calls: [] } });
  expect((await calling).outcome.error).toMatchObject({ code: "command_not_delivered", retryable: true });
  host.drop();
});

test("a host that detaches is gone for good, and its stream ends", async () => {
  const host = await FetchHost.register(wire);
  const { generation } = await host.attachByGet();
  const sessionId = await createSession(host.hostId);
  const calling = callTool(sessionId, "one");
  await host.runTool();
  expect((await host.detach(generation)).httpStatus).toBe(200);
  expect((await calling).outcome.error).toMatchObject({ code: "command_not_delivered" });
  let event = await host.stream.event();
  while (event !== undefined) {
    expect(event.name).toBe("message");
    event = await host.stream.event();
  }
  await expect(host.attachByGet()).rejects.toSatisfy(
    (error) => error instanceof StreamRefused && error.answer.reason === "instance_detached",
  );
  expect(await host.heartbeat([])).toMatchObject({ httpStatus: 400, reason: "instance_not_attached" });
  // Nobody is left to run it, and that is known before anything is sent.
  expect((await callTool(sessionId, "two")).outcome.error).toMatchObject({ code: "host_unavailable", retryable: true });
});

test("a journal is followed as JSON frames, each record once and in order", async () => {
  const host = await FetchHost.register(wire);
  await host.attachByGet();
  const sessionId = await createSession(host.hostId);
  const watching = new AbortController();
  const message = Buffer.from(JSON.stringify({ sessionId }));
  const frame = Buffer.alloc(5 + message.length);
  frame.writeUInt32BE(message.length, 1);
  message.copy(frame, 5);
  const response = await fetch(`${server.url}/brain.v1.SessionService/WatchRecords`, {
    method: "POST",
    headers: { "Content-Type": "application/connect+json", ...wire.authorization },
    body: frame,
    signal: watching.signal,
  });
  expect(response.status).toBe(200);
  const calling = callTool(sessionId, "one");
  await host.report(await host.runTool(), { ok: { valueJson: '{"value":"x"}' } });
  await calling;

  const seen: unknown[] = [];
  let bytes = Buffer.alloc(0);
  for await (const chunk of response.body ?? []) {
    bytes = Buffer.concat([bytes, chunk]);
    while (bytes.length >= 5 && bytes.length >= 5 + bytes.readUInt32BE(1)) {
      const end = 5 + bytes.readUInt32BE(1);
      const item = JSON.parse(bytes.subarray(5, end).toString());
      seen.push(item.record?.sequence ?? Object.keys(item)[0]);
      bytes = bytes.subarray(end);
    }
    if (seen.includes(3)) break;
  }
  watching.abort();
  expect(seen).toEqual([1, "caughtUpTo", 2, 3]);
  host.drop();
});
