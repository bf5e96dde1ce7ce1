import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { Brain } from "@aexhq/brain";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ServerProcess } from "../support/server-process.js";

const TOKEN = "an-api-token";
/** A process that loads TypeScript and two libraries, on a machine that does other things as well. */
const EXAMPLE_MS = 60_000;
const root = new URL("../..", import.meta.url).pathname;

let server: ServerProcess;
beforeAll(async () => {
  server = await ServerProcess.start({ apiToken: TOKEN });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
});

const environment = () => ({ ...process.env, BRAIN_URL: server.url, BRAIN_API_TOKEN: TOKEN }) as Record<string, string>;

/** What an example prints; whatever it complains of is a failure. */
async function printed(file: string): Promise<string[]> {
  const { stdout, stderr } = await promisify(execFile)(process.execPath, ["--import", "tsx", file], {
    cwd: root,
    env: environment(),
    timeout: EXAMPLE_MS,
  });
  expect(stderr).toBe("");
  return stdout.trimEnd().split("\n");
}

describe("the example", { timeout: EXAMPLE_MS }, () => {
  test("examples/ai-sdk.ts runs a Tool in the AI SDK's loop, and the call is in the journal", async () => {
    expect(await printed("examples/ai-sdk.ts")).toEqual([
      "the Tool answered { value: 'item:7' }",
      "the model said It is item:7.",
      "the journal has ok",
    ]);
  });

  test("examples/mcp-tools.ts calls an MCP server's tool through Brain", async () => {
    expect(await printed("examples/mcp-tools.ts")).toEqual(["ok: the text of shopping", "error tool_error", "error invalid_input"]);
  });

  test("examples/mcp-server.ts serves a session to an MCP client that starts it, and leaves with it", async () => {
    const transport = new StdioClientTransport({
      command: process.execPath,
      args: ["--import", "tsx", "examples/mcp-server.ts"],
      cwd: root,
      env: environment(),
      stderr: "pipe",
    });
    const { stderr } = transport;
    const said = new Promise<string>((resolve) => {
      stderr?.on("data", (chunk: Buffer) => {
        const sessionId = /serving session (\S+) over MCP/.exec(chunk.toString())?.[1];
        if (sessionId !== undefined) resolve(sessionId);
      });
    });
    const client = new Client({ name: "test", version: "1" });
    await client.connect(transport);
    expect(client.getServerVersion()).toEqual({ name: "items", version: "1.0.0" });
    const { tools } = await client.listTools();
    expect(tools.map(({ name, outputSchema }) => [name, outputSchema?.type])).toEqual([["lookup", "object"]]);
    const found = await client.callTool({ name: "lookup", arguments: { id: "7" } });
    expect(found).toMatchObject({ structuredContent: { value: "item:7" } });
    const missing = await client.callTool({ name: "lookup", arguments: { id: "missing" } });
    expect(missing).toMatchObject({ isError: true, _meta: { "brain/outcome": { code: "item_not_found" } } });
    const sessionId = await said;
    await client.close();
    await using brain = new Brain({ baseUrl: server.url, token: TOKEN });
    const session = await brain.sessions.get(sessionId);
    const callId = (missing["_meta"] as Record<string, unknown>)["brain/call_id"];
    expect((await session.getToolCall({ callId: String(callId) })).outcome).toMatchObject({ status: "error", code: "item_not_found" });
    // It has left: its host has no process attached any more.
    const afterwards = await session.callTool({ name: "lookup", environment: "app", input: { id: "7" }, timeoutMs: 200 });
    expect(afterwards).toMatchObject({ status: "timeout" });
  });
});
