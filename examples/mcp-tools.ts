// The tools of an MCP server as Tools of a session: journaled, validated, run once. Run it against a server:
// BRAIN_URL=http://127.0.0.1:8080 npx tsx examples/mcp-tools.ts
import { Brain, hostEnv } from "@aexhq/brain";
import { mcpTools } from "@aexhq/brain/mcp";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { z } from "zod";

// Some MCP server. One in a process of its own is reached with StdioClientTransport, one elsewhere with
// StreamableHTTPClientTransport; the rest stays as it is.
const notes = new McpServer({ name: "notes", version: "1.0.0" });
notes.registerTool("notes.read", { description: "Read one note.", inputSchema: { title: z.string() } }, ({ title }) =>
  title === "secret"
    ? { isError: true, content: [{ type: "text", text: "this note is not for you" }] }
    : { content: [{ type: "text", text: `the text of ${title}` }] },
);
const [clientSide, serverSide] = InMemoryTransport.createLinkedPair();
const client = new Client({ name: "notes-in-brain", version: "1.0.0" });
await Promise.all([notes.connect(serverSide), client.connect(clientSide)]);

await using brain = new Brain({
  baseUrl: process.env["BRAIN_URL"] ?? "http://127.0.0.1:8080",
  ...(process.env["BRAIN_API_TOKEN"] ? { token: process.env["BRAIN_API_TOKEN"] } : {}),
});
// "notes.read" is no name of a Tool (no dots), so it gets one.
const tools = await mcpTools(client, { env: hostEnv({ name: "notes" }), names: { "notes.read": "read_note" } });
const session = await brain.sessions.create({ tools });

for (const input of [{ title: "shopping" }, { title: "secret" }, { title: 7 }]) {
  const ending = await session.callTool({ name: "read_note", environment: "notes", input });
  console.log(ending.status === "ok" ? `ok: ${String(ending.value)}` : `${ending.status} ${ending.code}`);
}
