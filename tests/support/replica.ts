// One of several processes that serve the same Tools as one host. Says "serving", then "ran <id>" for each call; leaves
// when its stdin ends or it is told to.
import { createInterface } from "node:readline";
import { Brain, tool } from "@aexhq/brain";
import { z } from "zod";

process.on("unhandledRejection", (reason) => {
  console.error("unhandled rejection", reason);
  process.exit(70);
});

const { BRAIN_URL, BRAIN_TOKEN, HOST_ID, HOST_TOKEN } = process.env;
if (BRAIN_URL === undefined || HOST_ID === undefined || HOST_TOKEN === undefined)
  throw new Error("BRAIN_URL, HOST_ID and HOST_TOKEN are to be set");

const brain = new Brain({
  baseUrl: BRAIN_URL,
  ...(BRAIN_TOKEN === undefined ? {} : { token: BRAIN_TOKEN }),
  credentials: { hostId: HOST_ID, hostToken: HOST_TOKEN },
});
const where = tool({
  name: "where",
  description: "Says which process ran it.",
  input: z.object({ id: z.string(), deaf: z.boolean().default(false) }),
  run: async ({ id, deaf }) => {
    console.log(`ran ${id}`);
    if (deaf) await new Promise(() => undefined);
    return { pid: process.pid };
  },
});
await brain.serve({ environment: "app", tools: [where] });
console.log("serving");
for await (const line of createInterface({ input: process.stdin })) if (line === "leave") break;
process.stdin.destroy();
await brain.close({ withinMs: 100 });
console.log("left");
