// Declares a Tool, serves it from this process and calls it. Start a server first, then: npx tsx lookup.ts
import { Brain, hostEnv, tool } from "@aexhq/brain";
import { z } from "zod";

const lookup = tool({
  name: "lookup",
  description: "Look up one item by its id.",
  input: z.object({ id: z.string() }),
  output: z.object({ value: z.string() }),
  options: z.object({ prefix: z.string() }),
  run: ({ id }, ctx) => ({ value: `${ctx.options.prefix}${id}` }),
});

await using brain = new Brain({ baseUrl: process.env["BRAIN_URL"] ?? "http://127.0.0.1:8080" });
const placed = lookup({ env: hostEnv({ name: "app" }), prefix: "item:" });
const session = await brain.sessions.create({ tools: [placed] });
const ending = await session.callTool({ name: "lookup", environment: "app", input: { id: "7" } });
console.log(JSON.stringify(ending));
