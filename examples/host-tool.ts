// One Tool, held by this process, called five ways. Run it with `npm run demo`, which starts a server for it, or
// against your own: BRAIN_URL=http://127.0.0.1:8080 npx tsx examples/host-tool.ts
import { setTimeout as sleep } from "node:timers/promises";
import { Brain, formatRecord, hostEnv, tool } from "@aexhq/brain";
import { z } from "zod";

const lookup = tool({
  name: "lookup",
  description: "Look up one item.",
  input: z.object({ id: z.string() }),
  options: z.object({ prefix: z.string() }),
  run: async ({ id }, ctx) => {
    if (id === "missing") throw new Error("there is no such item");
    if (id === "slow") await sleep(60_000, undefined, { signal: ctx.signal });
    await ctx.emit("lookup_started", { id });
    return { value: `${ctx.options.prefix}${id}` };
  },
});

await using brain = new Brain({
  baseUrl: process.env["BRAIN_URL"] ?? "http://127.0.0.1:8080",
  ...(process.env["BRAIN_API_TOKEN"] ? { token: process.env["BRAIN_API_TOKEN"] } : {}),
});

const placed = lookup({ env: hostEnv({ name: "app" }), prefix: "item:" });
const session = await brain.sessions.create({ tools: [placed] });
const call = { name: "lookup", environment: "app" };

const found = await session.callTool({ ...call, input: { id: "7" } });
const invalid = await session.callTool({ ...call, input: { id: 7 } });
const thrown = await session.callTool({ ...call, input: { id: "missing" } });
const timeout = await session.callTool({ ...call, input: { id: "slow" }, timeoutMs: 200 });
const cancelled = await session.callTool({ ...call, input: { id: "slow" }, signal: AbortSignal.timeout(200) });
await session.end();

for await (const record of session.records()) {
  console.log(formatRecord(record));
  if (record.entry.case === "sessionEnded") break;
}
console.log("\nThe caller saw:", [found, invalid, thrown, timeout, cancelled].map(({ status }) => status).join(", "));
