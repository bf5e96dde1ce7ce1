import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Brain, hostEnv, isBrainError, outcome, type Session, tool, unwrap } from "@aexhq/brain";
import { declareMcpTools, type McpToolsOptions, mcpTools, toMcpServer } from "@aexhq/brain/mcp";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import { CallToolRequestSchema, ListToolsRequestSchema, type Tool } from "@modelcontextprotocol/sdk/types.js";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { deferred } from "../support/deferred.js";
import { connectedClient } from "../support/mcp-pair.js";
import { ServerProcess } from "../support/server-process.js";

let server: ServerProcess;
let brain: Brain;
let ran: string[];
let requests: number;
const files = hostEnv({ name: "files" });

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
  requests = 0;
});

/** A server of the kind that people write: the SDK's high-level one, with zod schemas. */
function filesServer(): McpServer {
  const mcp = new McpServer({ name: "files", version: "1" });
  const inputSchema = { path: z.string().min(1) };
  mcp.registerTool("read", { description: "Read a file.", inputSchema }, ({ path }) => {
    ran.push(path);
    if (path === "missing") return { isError: true, content: [{ type: "text", text: "there is no such file" }] };
    return { content: [{ type: "text", text: `text of ${path}` }] };
  });
  mcp.registerTool("size", { inputSchema, outputSchema: { bytes: z.number() } }, ({ path }) => {
    const structuredContent = { bytes: path.length };
    return { structuredContent, content: [{ type: "text", text: JSON.stringify(structuredContent) }] };
  });
  mcp.registerTool("picture", { title: "Show a file.", inputSchema }, ({ path }) => ({
    content: [
      { type: "image", data: "aGVsbG8=", mimeType: "image/png" },
      { type: "resource_link", uri: `file:///${path}`, name: path },
    ],
  }));
  mcp.registerTool("touch", { inputSchema }, () => ({ content: [] }));
  return mcp;
}

type Answer = (name: string, args: unknown, signal: AbortSignal) => unknown;

/** A server that says exactly what it is told to. */
function rawServer(tools: readonly (Partial<Tool> & { name: string })[], answer: Answer = () => ({ content: [] }), pages = 1): Server {
  const raw = new Server({ name: "raw", version: "1" }, { capabilities: { tools: {} } });
  raw.setRequestHandler(ListToolsRequestSchema, ({ params }) => {
    const page = Number(params?.cursor ?? 0);
    const size = Math.ceil(tools.length / pages);
    return {
      tools: tools.slice(page * size, (page + 1) * size).map((mcpTool) => ({ inputSchema: { type: "object" as const }, ...mcpTool })),
      ...(page + 1 < pages ? { nextCursor: String(page + 1) } : {}),
    };
  });
  // Under no method of its own: the SDK's server would judge the answer.
  raw.fallbackRequestHandler = async (request, { signal }) => {
    const { params } = CallToolRequestSchema.parse(request);
    requests++;
    return (await answer(params.name, params.arguments, signal)) as Record<string, unknown>;
  };
  return raw;
}

async function sessionOf(client: Client, options: McpToolsOptions = {}): Promise<Session> {
  return await brain.sessions.create({ tools: await mcpTools(client, { ...options, env: files }) });
}

async function refusal(request: Promise<unknown>): Promise<string> {
  const error: unknown = await request.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!isBrainError(error)) throw new Error(`it was not refused: ${String(error)}`);
  return error.message;
}

describe("the tools of an MCP server, placed in a host Environment", () => {
  test("are in the catalogue with the server's own descriptions and schemas", async () => {
    const client = await connectedClient(filesServer());
    const session = await sessionOf(client);
    const { tools } = await client.listTools();
    const catalogue = (await session.describe()).tools.map(({ tool: defined, environment }) => ({
      name: defined?.name,
      environment,
      description: defined?.description,
      inputSchema: JSON.parse(defined?.inputSchemaJson ?? ""),
      outputSchema: defined?.outputSchemaJson === undefined ? undefined : JSON.parse(defined.outputSchemaJson),
    }));
    expect(catalogue).toEqual(
      tools.map(({ name, description, title, inputSchema, outputSchema }) => ({
        name,
        environment: "files",
        description: description ?? title ?? "",
        inputSchema,
        outputSchema,
      })),
    );
    expect(catalogue.map(({ description }) => description)).toEqual(["Read a file.", "", "Show a file.", ""]);
  });

  test("answer a text as text, structured content as it is, other content as JSON, and nothing as null", async () => {
    const session = await sessionOf(await connectedClient(filesServer()));
    const ask = async (name: string) => unwrap(await session.callTool({ name, environment: "files", input: { path: "a" } }));
    expect(await ask("read")).toBe("text of a");
    expect(await ask("size")).toEqual({ bytes: 1 });
    expect(await ask("picture")).toEqual([
      { type: "image", data: "aGVsbG8=", mimeType: "image/png" },
      { type: "resource_link", uri: "file:///a", name: "a" },
    ]);
    expect(await ask("touch")).toBeNull();
  });

  test("that report an error end in an error with their text, and their structured content as details", async () => {
    const session = await sessionOf(await connectedClient(filesServer()));
    expect(await session.callTool({ name: "read", environment: "files", input: { path: "missing" } })).toEqual({
      status: "error",
      code: "tool_error",
      message: "there is no such file",
      retryable: false,
    });
    const answers: Record<string, unknown> = {
      detailed: { isError: true, content: [{ type: "text", text: "no" }], structuredContent: { field: "path" } },
      mute: { isError: true, content: [] },
      huge: { isError: true, content: [{ type: "text", text: "too much" }], structuredContent: { text: "x".repeat(100_000) } },
    };
    const raw = rawServer(
      Object.keys(answers).map((name) => ({ name })),
      (name) => answers[name],
    );
    const other = await sessionOf(await connectedClient(raw));
    const ask = (name: string) => other.callTool({ name, environment: "files", input: {} });
    expect(await ask("detailed")).toMatchObject({ code: "tool_error", message: "no", details: { field: "path" } });
    expect(await ask("mute")).toMatchObject({ code: "tool_error", message: expect.stringContaining("without a text") });
    expect(await ask("huge")).toEqual({ status: "error", code: "tool_error", message: "too much", retryable: false });
  });

  test("hear nothing of an invalid input, and an output that breaks its schema is an invalid_output", async () => {
    const outputSchema = { type: "object" as const, properties: { bytes: { type: "integer" } }, required: ["bytes"] };
    const answers = [
      { content: [], structuredContent: { bytes: "many" } },
      { content: [{ type: "text", text: "3" }] },
      { content: [{ type: "hologram" }] },
    ];
    const inputSchema = { type: "object" as const, properties: { path: { type: "string" } }, required: ["path"] };
    const raw = rawServer([{ name: "size", inputSchema, outputSchema }], () => answers.shift());
    const client = await connectedClient(raw);
    // The client knows the output schema now, and would judge outputs itself.
    await client.listTools();
    const session = await sessionOf(client);
    const ask = (input: unknown) => session.callTool({ name: "size", environment: "files", input });
    expect(await ask({})).toMatchObject({ status: "error", code: "invalid_input" });
    expect(requests).toBe(0);
    for (let asked = 1; asked <= 3; asked++) {
      expect(await ask({ path: "a" })).toMatchObject({ status: "error", code: "invalid_output" });
      expect(requests).toBe(asked);
    }
  });

  test("run one call id once", async () => {
    const session = await sessionOf(await connectedClient(filesServer()));
    const call = { callId: "mine", name: "read", environment: "files", input: { path: "a" } };
    expect(await session.callTool(call)).toEqual(await session.callTool(call));
    expect(ran).toEqual(["a"]);
  });

  test("are all found, over however many pages the server lists them", async () => {
    const tools = ["a", "b", "c", "d", "e"].map((name) => ({ name }));
    const client = await connectedClient(rawServer(tools, undefined, 3));
    expect((await declareMcpTools(client)).map(({ definition }) => definition.name)).toEqual(["a", "b", "c", "d", "e"]);
  });

  test("serve sessions of other processes, and several Environments, when they are only declared", async () => {
    await using host = new Brain({ baseUrl: server.url, log: () => undefined });
    await host.serve({ environment: "files", tools: await declareMcpTools(await connectedClient(filesServer())) });
    const { hostId } = await host.credentials();
    const read = tool({ name: "read", description: "", input: z.object({ path: z.string() }), run: () => "of this process" });
    const session = await brain.sessions.create({ tools: [read({ env: hostEnv({ name: "files", hostId }) })] });
    expect(unwrap(await session.callTool({ name: "read", environment: "files", input: { path: "a" } }))).toBe("text of a");
  });

  test("keep a failure whole that another Brain's session answers over MCP", async () => {
    const refuse = tool({
      name: "refuse",
      description: "",
      input: z.object({ id: z.string() }),
      output: z.object({ id: z.string() }),
      run: () => outcome.error({ code: "out_of_stock", message: "none left", retryable: true, details: { until: "Monday" } }),
    });
    const far = await brain.sessions.create({ tools: [refuse({ env: hostEnv({ name: "far" }) })] });
    const near = await sessionOf(await connectedClient(await toMcpServer(far)));
    expect(await near.callTool({ name: "refuse", environment: "files", input: { id: "7" } })).toEqual({
      status: "error",
      code: "out_of_stock",
      message: "none left",
      retryable: true,
      details: { until: "Monday" },
    });
  });
});

describe("the names of an MCP server's tools", () => {
  const client = () => connectedClient(rawServer([{ name: "files.read" }, { name: "files.write" }, { name: "size" }], (name) => name));

  test("are refused where they are no names of Tools, saying which and what to do", async () => {
    expect(await refusal(mcpTools(await client(), { env: files }))).toMatch(/MCP tool "files\.read".*names: { "files\.read": "\.\.\." }/);
  });

  test("are mapped by a map or a function, and the server is called by its own", async () => {
    const called: string[] = [];
    const raw = rawServer([{ name: "files.read" }, { name: "size" }], (name) => {
      called.push(name);
      return { content: [] };
    });
    const session = await sessionOf(await connectedClient(raw), { names: { "files.read": "read" } });
    unwrap(await session.callTool({ name: "read", environment: "files", input: {} }));
    unwrap(await session.callTool({ name: "size", environment: "files", input: {} }));
    expect(called).toEqual(["files.read", "size"]);
    const factories = await declareMcpTools(await client(), { names: (name) => `fs-${name.replace(".", "-")}` });
    expect(factories.map(({ definition }) => definition.name)).toEqual(["fs-files-read", "fs-files-write", "fs-size"]);
  });

  test("are refused where they meet, or where the server has none of them", async () => {
    const environment = { env: files };
    expect(await refusal(mcpTools(await client(), { ...environment, names: () => "one" }))).toContain('"files.read" and "files.write"');
    expect(await refusal(mcpTools(await client(), { ...environment, names: { read: "read" } }))).toContain(
      'no tool "read"; it has "files.read"',
    );
    expect(await refusal(mcpTools(await client(), { ...environment, only: ["seize"] }))).toContain('no tool "seize"');
    const twice = await connectedClient(rawServer([{ name: "size" }, { name: "size" }]));
    expect(await refusal(mcpTools(twice, environment))).toContain('"size" twice');
  });

  test("say which tools are taken, and the others do not matter", async () => {
    const factories = await declareMcpTools(await client(), { only: ["size"] });
    expect(factories.map(({ definition }) => definition.name)).toEqual(["size"]);
    const tasks = await connectedClient(rawServer([{ name: "size" }, { name: "long", execution: { taskSupport: "required" } }]));
    expect(await refusal(declareMcpTools(tasks))).toContain('MCP tool "long" runs as an MCP task only');
    expect(await declareMcpTools(tasks, { only: ["size"] })).toHaveLength(1);
  });
});

describe("an MCP server that cannot be used", () => {
  test("is refused where it is not connected, has no tools, or lists them without end", async () => {
    const unconnected = new Client({ name: "test", version: "1" });
    expect(await refusal(declareMcpTools(unconnected))).toContain("not connected");
    const toolless = await connectedClient(new Server({ name: "none", version: "1" }, { capabilities: {} }));
    expect(await refusal(declareMcpTools(toolless))).toContain("has no tools");
    const endless = new Server({ name: "endless", version: "1" }, { capabilities: { tools: {} } });
    endless.setRequestHandler(ListToolsRequestSchema, () => ({ tools: [], nextCursor: "more" }));
    expect(await refusal(declareMcpTools(await connectedClient(endless)))).toContain("does not end");
  });
});

describe("a call of an MCP server's tool", () => {
  /** A server whose one tool says that it runs, and that it was stopped. */
  function slowServer() {
    const running = deferred();
    const stopped = deferred();
    const raw = rawServer([{ name: "slow" }], (_name, _args, signal) => {
      running.resolve();
      return new Promise((resolve) => {
        signal.addEventListener("abort", () => {
          stopped.resolve();
          resolve({ content: [] });
        });
      });
    });
    return { raw, running: running.promise, stopped: stopped.promise };
  }
  const slow = { name: "slow", environment: "files", input: {} };

  test("that is cancelled cancels the request", async () => {
    const { raw, running, stopped } = slowServer();
    const session = await sessionOf(await connectedClient(raw));
    const controller = new AbortController();
    const calling = session.callTool({ ...slow, signal: controller.signal });
    await running;
    controller.abort();
    expect(await calling).toMatchObject({ status: "cancelled", code: "cancel_requested" });
    await stopped;
  });

  test("that runs out of time cancels the request", async () => {
    const { raw, stopped } = slowServer();
    const session = await sessionOf(await connectedClient(raw));
    expect(await session.callTool({ ...slow, timeoutMs: 300 })).toMatchObject({ status: "timeout", code: "deadline_passed" });
    await stopped;
  });

  test("whose answer is lost is unknown, and later ones are errors that say nothing ran", async () => {
    const { raw, running } = slowServer();
    const session = await sessionOf(await connectedClient(raw));
    const calling = session.callTool(slow);
    await running;
    await raw.close();
    expect(await calling).toMatchObject({ status: "unknown", code: "mcp_answer_lost", message: expect.stringContaining('"slow"') });
    expect(await session.callTool(slow)).toMatchObject({ status: "error", code: "mcp_server_unreachable", retryable: true });
    expect(requests).toBe(1);
  });

  test("that the server answers with an MCP error is a tool_error with its message", async () => {
    const raw = rawServer([{ name: "slow" }], () => {
      throw Object.assign(new Error("the disk is gone"), { code: -32000 });
    });
    const session = await sessionOf(await connectedClient(raw));
    expect(await session.callTool(slow)).toMatchObject({
      status: "error",
      code: "tool_error",
      message: expect.stringContaining("the disk is gone"),
    });
  });

  test("over HTTP is an error where the server refuses it or is not there, and unknown where it hangs up", async () => {
    let refuseWith: number | "hang up" | undefined;
    const mcp = filesServer();
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: () => "one", enableJsonResponse: true });
    // The SDK's own transports do not fit its own interface where optional properties are exact.
    await mcp.connect(transport as Transport);
    const http = createServer((request, response) => {
      if (refuseWith === "hang up") request.socket.destroy();
      else if (refuseWith !== undefined) response.writeHead(refuseWith).end("no");
      else void transport.handleRequest(request, response);
    });
    http.listen(0, "127.0.0.1");
    await once(http, "listening");
    const client = new Client({ name: "test", version: "1" });
    const url = new URL(`http://127.0.0.1:${(http.address() as AddressInfo).port}`);
    await client.connect(new StreamableHTTPClientTransport(url) as Transport);
    const session = await sessionOf(client);
    const ask = () => session.callTool({ name: "read", environment: "files", input: { path: "a" } });
    expect(await ask()).toEqual({ status: "ok", value: "text of a" });
    refuseWith = 403;
    expect(await ask()).toMatchObject({ status: "error", code: "tool_error" });
    refuseWith = 502;
    expect(await ask()).toMatchObject({ status: "unknown", code: "mcp_answer_lost" });
    refuseWith = "hang up";
    expect(await ask()).toMatchObject({ status: "unknown", code: "mcp_answer_lost" });
    http.closeAllConnections();
    http.close();
    await once(http, "close");
    expect(await ask()).toMatchObject({ status: "error", code: "mcp_server_unreachable", retryable: true });
    await client.close();
    expect(ran).toEqual(["a"]);
  });
});
