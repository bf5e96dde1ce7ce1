import { Brain, hostEnv, jsonSchema, outcome, type Session, tool } from "@aexhq/brain";
import { type McpServerOptions, toMcpServer } from "@aexhq/brain/mcp";
import type { Client } from "@modelcontextprotocol/sdk/client/index.js";
import type { CallToolResult } from "@modelcontextprotocol/sdk/types.js";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { deferred } from "../support/deferred.js";
import { connectedClient } from "../support/mcp-pair.js";
import { ServerProcess } from "../support/server-process.js";

let server: ServerProcess;
let brain: Brain;
let ran: unknown[];
const here = hostEnv({ name: "here" });
const there = hostEnv({ name: "there" });

const lookup = tool({
  name: "lookup",
  description: "Look up one item.",
  input: z.object({ id: z.string(), depth: z.int().min(1).default(1) }),
  output: z.object({ value: z.string() }),
  run: ({ id }) => {
    ran.push(id);
    return { value: `item:${id}` };
  },
});
const refuse = tool({
  name: "refuse",
  description: "Refuses.",
  input: z.object({}),
  output: z.object({ never: z.string() }),
  run: () => outcome.error({ code: "out_of_stock", message: "there is none left", retryable: true, details: { until: "Monday" } }),
});

beforeAll(async () => {
  server = await ServerProcess.start();
  brain = new Brain({ baseUrl: server.url, log: () => undefined });
});
afterAll(async () => {
  await brain.close();
  await server[Symbol.asyncDispose]();
});
beforeEach(() => {
  ran = [];
});

async function clientOf(session: Session, options: McpServerOptions = {}): Promise<Client> {
  return await connectedClient(await toMcpServer(session, options));
}

async function callTool(client: Client, name: string, args?: Record<string, unknown>, callId?: string): Promise<CallToolResult> {
  const params = {
    name,
    ...(args === undefined ? {} : { arguments: args }),
    ...(callId === undefined ? {} : { _meta: { "brain/call_id": callId } }),
  };
  return (await client.callTool(params)) as CallToolResult;
}

const thrown = (request: Promise<unknown>): Promise<unknown> =>
  request.then(
    () => undefined,
    (error: unknown) => error,
  );

/** A Tool that runs until its signal is aborted or it is let go; says when it runs. */
function slowTool() {
  const running = deferred();
  const finish = deferred<string>();
  const stopped = deferred<unknown>();
  const slow = tool({
    name: "slow",
    description: "",
    input: z.object({}),
    run: (_, { signal }) => {
      running.resolve();
      signal.addEventListener("abort", () => stopped.resolve((signal.reason as { code?: unknown }).code));
      return finish.promise;
    },
  });
  return { slow, running: running.promise, stopped: stopped.promise, finish: finish.resolve };
}

describe("an MCP client of a session", () => {
  test("lists its Tools with their canonical schemas, in words that it takes", async () => {
    const shout = tool({ name: "shout", description: "", input: z.string(), output: z.string(), run: (word) => word.toUpperCase() });
    const loose = tool({
      name: "loose",
      description: "",
      input: jsonSchema({ type: "object", properties: { any: true, none: false }, patternProperties: { "^x": true } }),
      output: jsonSchema({ $schema: "http://json-schema.org/draft-07/schema#", type: "object", definitions: { a: true } }),
      run: () => ({}),
    });
    const session = await brain.sessions.create({ tools: [lookup({ env: here }), shout({ env: here }), loose({ env: here })] });
    const client = await clientOf(session, { serverInfo: { name: "items", version: "2" }, instructions: "Look it up." });
    expect(client.getServerVersion()).toEqual({ name: "items", version: "2" });
    expect(client.getInstructions()).toBe("Look it up.");
    const { $schema: inputDialect, ...input } = JSON.parse(lookup.definition.inputSchemaJson) as Record<string, unknown>;
    const { $schema: outputDialect, ...output } = JSON.parse(lookup.definition.outputSchemaJson ?? "") as Record<string, unknown>;
    expect([inputDialect, outputDialect]).toEqual(Array(2).fill("https://json-schema.org/draft/2020-12/schema"));
    expect((await client.listTools()).tools).toEqual([
      { name: "lookup", description: "Look up one item.", inputSchema: input, outputSchema: output },
      {
        name: "shout",
        description: "",
        inputSchema: { type: "object", properties: { input: { type: "string" } }, required: ["input"], additionalProperties: false },
      },
      {
        name: "loose",
        description: "",
        inputSchema: { type: "object", properties: { any: {}, none: { not: {} } }, patternProperties: { "^x": true } },
        outputSchema: { $schema: "http://json-schema.org/draft-07/schema#", type: "object", definitions: { a: true } },
      },
    ]);
    expect(await callTool(client, "shout", { input: "hello" })).toMatchObject({ content: [{ type: "text", text: "HELLO" }] });
    expect(await callTool(client, "loose")).toMatchObject({ structuredContent: {} });
  });

  test("calls a Tool through Brain and gets its value, structured and as text, with the id of the call", async () => {
    const session = await brain.sessions.create({ tools: [lookup({ env: here })] });
    const client = await clientOf(session);
    await client.listTools();
    const result = await callTool(client, "lookup", { id: "7" });
    expect(result).toEqual({
      content: [{ type: "text", text: '{"value":"item:7"}' }],
      structuredContent: { value: "item:7" },
      _meta: { "brain/call_id": expect.any(String) },
    });
    const callId = String(result._meta?.["brain/call_id"]);
    expect(await session.getToolCall({ callId })).toMatchObject({ name: "lookup", outcome: { status: "ok" } });
  });

  test("gets an invalid input back as an error result with path and rule, on record, and nothing has run", async () => {
    const session = await brain.sessions.create({ tools: [lookup({ env: here })] });
    const client = await clientOf(session);
    await client.listTools();
    const result = await callTool(client, "lookup", { id: "7", depth: 0 }, "bad");
    expect(result.isError).toBe(true);
    expect(result.structuredContent).toBeUndefined();
    const failure = {
      status: "error",
      code: "invalid_input",
      message: expect.stringContaining("/depth"),
      retryable: false,
      details: { violations: [expect.objectContaining({ path: "/depth", rule: expect.any(String) })] },
    };
    const [block] = result.content;
    expect(JSON.parse(block?.type === "text" ? block.text : "")).toEqual(failure);
    expect(result._meta?.["brain/outcome"]).toEqual(failure);
    expect(ran).toEqual([]);
    expect((await session.getToolCall({ callId: "bad" })).outcome).toEqual(failure);
  });

  test("gets a failure whole, though the Tool has an output schema that it does not fit", async () => {
    const session = await brain.sessions.create({ tools: [refuse({ env: here })] });
    const client = await clientOf(session);
    await client.listTools();
    const result = await callTool(client, "refuse", {});
    expect(result._meta?.["brain/outcome"]).toEqual({
      status: "error",
      code: "out_of_stock",
      message: "there is none left",
      retryable: true,
      details: { until: "Monday" },
    });
  });

  test("that names its call runs it once, and gets the ending again, over another connection too", async () => {
    const session = await brain.sessions.create({ tools: [lookup({ env: here })] });
    const first = await callTool(await clientOf(session), "lookup", { id: "7" }, "mine");
    const again = await callTool(await clientOf(session), "lookup", { id: "7" }, "mine");
    expect(again).toEqual(first);
    expect(ran).toEqual(["7"]);
    const conflict = await thrown(callTool(await clientOf(session), "lookup", { id: "8" }, "mine"));
    expect(conflict).toMatchObject({ data: { reason: "call_id_conflict" } });
    expect(ran).toEqual(["7"]);
  });

  test("that asks twice without naming its calls has made two calls", async () => {
    const session = await brain.sessions.create({ tools: [lookup({ env: here })] });
    const client = await clientOf(session);
    await callTool(client, "lookup", { id: "7" });
    await callTool(await clientOf(session), "lookup", { id: "7" });
    expect(ran).toEqual(["7", "7"]);
  });

  test("that cancels its request cancels the call, which is recorded as cancelled", async () => {
    const { slow, running, stopped, finish } = slowTool();
    const session = await brain.sessions.create({ tools: [slow({ env: here })] });
    const client = await clientOf(session);
    const controller = new AbortController();
    const params = { name: "slow", arguments: {}, _meta: { "brain/call_id": "long" } };
    const calling = thrown(client.callTool(params, undefined, { signal: controller.signal }));
    await running;
    controller.abort("the user pressed escape");
    await calling;
    expect(await stopped).toBe("cancel_requested");
    finish("too late");
    expect((await session.getToolCall({ callId: "long" })).outcome).toMatchObject({ status: "cancelled", code: "cancel_requested" });
  });

  test("that goes away leaves its call running, and finds the ending when it asks again", async () => {
    const { slow, running, finish } = slowTool();
    const session = await brain.sessions.create({ tools: [slow({ env: here })] });
    const client = await clientOf(session);
    const calling = thrown(callTool(client, "slow", {}, "long"));
    await running;
    await client.close();
    expect(await calling).toMatchObject({ message: expect.stringContaining("Connection closed") });
    // Had closing cancelled the call, its cancellation would have been asked for before this.
    expect((await session.getToolCall({ callId: "long" })).outcome).toBeUndefined();
    finish("done");
    const result = await callTool(await clientOf(session), "slow", {}, "long");
    expect(result.content).toEqual([{ type: "text", text: "done" }]);
  });

  test("that asks for what is not there, or of a session that has ended, gets an MCP error that says so", async () => {
    const session = await brain.sessions.create({ tools: [lookup({ env: here })] });
    const client = await clientOf(session);
    expect(await thrown(callTool(client, "look_up", {}))).toMatchObject({ code: -32602, message: expect.stringContaining('"look_up"') });
    expect(await thrown(callTool(client, "lookup", { id: "7" }, "a\u0007"))).toMatchObject({
      code: -32602,
      data: { reason: "invalid_argument" },
    });
    await session.end();
    expect(await thrown(callTool(client, "lookup", { id: "7" }))).toMatchObject({ code: -32603, data: { reason: "session_ended" } });
  });

  test("chooses among several placements with a selector, and is never given another", async () => {
    const where = tool({
      name: "where",
      description: "",
      input: z.object({}),
      options: z.object({ place: z.string() }),
      run: (_, ctx) => ctx.options.place,
    });
    const tools = [where({ env: here, place: "here" }), where({ env: there, place: "there" })];
    const session = await brain.sessions.create({ tools });
    await expect(toMcpServer(session)).rejects.toMatchObject({ reason: "invalid_argument" });
    const client = await clientOf(session, { environment: "selector" });
    expect(await callTool(client, "where", { environment: "there", input: {} })).toMatchObject({ content: [{ text: "there" }] });
    const wrong = await callTool(client, "where", { environment: "nowhere", input: {} });
    expect(wrong._meta?.["brain/outcome"]).toMatchObject({ status: "error", code: "invalid_input" });
    const fixed = await clientOf(session, { environment: { where: here } });
    expect(await callTool(fixed, "where")).toMatchObject({ content: [{ text: "here" }] });
  });
});
