// A session's Tools as an MCP server on stdio, for any MCP client to start:
// { "command": "npx", "args": ["tsx", "examples/mcp-server.ts"], "env": { "BRAIN_URL": "http://127.0.0.1:8080" } }
import { once } from "node:events";
import { Brain, hostEnv, outcome, tool } from "@aexhq/brain";
import { toMcpServer } from "@aexhq/brain/mcp";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";

const lookup = tool({
  name: "lookup",
  description: "Look up one item.",
  input: z.object({ id: z.string() }),
  output: z.object({ value: z.string() }),
  run: ({ id }) =>
    id === "missing" ? outcome.error({ code: "item_not_found", message: "there is no such item" }) : { value: `item:${id}` },
});

await using brain = new Brain({
  baseUrl: process.env["BRAIN_URL"] ?? "http://127.0.0.1:8080",
  ...(process.env["BRAIN_API_TOKEN"] ? { token: process.env["BRAIN_API_TOKEN"] } : {}),
});
const session = await brain.sessions.create({ tools: [lookup({ env: hostEnv({ name: "app" }) })] });
const server = await toMcpServer(session, { serverInfo: { name: "items", version: "1.0.0" } });
await server.connect(new StdioServerTransport());
// stdout is the protocol's; people read stderr.
console.error(`serving session ${session.sessionId} over MCP`);
await once(process.stdin, "end");
await server.close();
