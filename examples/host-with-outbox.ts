// A process that holds Tools for sessions that others create, stays the same host over restarts, and keeps finished
// outcomes in a file until Brain has them. Start several, each with an OUTBOX of its own.
import { once } from "node:events";
import { Brain, tool } from "@aexhq/brain";
import { z } from "zod";

const resize = tool({
  name: "resize",
  description: "Resize an image.",
  input: z.object({ image: z.string(), width: z.number().int().positive() }),
  output: z.object({ image: z.string() }),
  run: async ({ image, width }, ctx) => {
    await ctx.emit("resizing", { image });
    return { image: `${width}/${image}` };
  },
});

const { BRAIN_URL = "http://127.0.0.1:8080", HOST_ID = "", HOST_TOKEN = "", OUTBOX = "./outbox" } = process.env;
await using brain = new Brain({
  baseUrl: BRAIN_URL,
  credentials: { hostId: HOST_ID, hostToken: HOST_TOKEN },
  outbox: OUTBOX,
  maxConcurrentCalls: 4,
});
await brain.serve({ environment: "images", tools: [resize] });
console.log("serving");
await Promise.race([once(process, "SIGINT"), once(process, "SIGTERM")]);
