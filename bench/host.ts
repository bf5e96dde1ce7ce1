/** A process that holds a function, written as anybody would write it: Brain's counterpart of the floor's host. */
import { Brain, hostEnv, tool } from "@aexhq/brain";
import { z } from "zod";
import { fail, tell } from "./channel.js";
import { ENVIRONMENT, OUTPUT, TOOL } from "./lookup.js";

const [baseUrl = "", sessions = ""] = process.argv.slice(2);

const lookup = tool({
  name: TOOL,
  description: "Finds what the stock of the warehouses is",
  input: z.object({ query: z.string().min(1), limit: z.int().min(1).max(100), fields: z.array(z.string()) }),
  output: z.object({ summary: z.string(), total: z.number(), sources: z.array(z.string()) }),
  run: () => OUTPUT,
});

const brain = new Brain({ baseUrl, hostRoute: "attach" });
const created = await Promise.all(
  Array.from({ length: Number(sessions) }, () => brain.sessions.create({ tools: [lookup({ env: hostEnv({ name: ENVIRONMENT }) })] })),
);
tell({ type: "attached", sessionIds: created.map(({ sessionId }) => sessionId) });
process.once("disconnect", () => {
  brain.close().then(() => process.exit(0), fail);
});
