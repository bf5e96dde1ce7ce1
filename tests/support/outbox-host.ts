// A host with an outbox. Says "serving PID", then "running SEQUENCE" for each call, which waits until it is told how to
// finish; says "log LINE" for what the SDK tells people, and "refused REASON MESSAGE" where it may not serve.
import { appendFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Brain, type BrainOptions, isBrainError, tool } from "@aexhq/brain";
import { z } from "zod";

const { BRAIN_URL = "", HOST_ID = "", HOST_TOKEN = "", HOST_ROUTE = "auto", OUTBOX = "", RUNS_FILE = "" } = process.env;

process.on("unhandledRejection", (reason) => {
  console.error("unhandled rejection", reason);
  process.exit(70);
});
// A file that may not grow any more is then an error like a full disk, and not the end of the process.
process.on("SIGXFSZ", () => undefined);

const finishes: ((order: string) => void)[] = [];
const hold = tool({
  name: "hold",
  description: "Waits to be told how to finish.",
  input: z.object({}),
  run: async (_, ctx) => {
    appendFileSync(RUNS_FILE, `${ctx.sessionId}/${ctx.sequence}\n`);
    console.log(`running ${ctx.sequence}`);
    const order = await new Promise<string>((resolve) => finishes.push(resolve));
    // Nobody waits for what it emits: the outcome is there before these are answered.
    if (order.startsWith("emit")) for (const count of [1, 2, 3]) void ctx.emit("tick", { count });
    const [, length] = /^long (\d+)$/.exec(order) ?? [];
    return length === undefined ? order : "x".repeat(Number(length));
  },
});

const brain = new Brain({
  baseUrl: BRAIN_URL,
  credentials: { hostId: HOST_ID, hostToken: HOST_TOKEN },
  hostRoute: HOST_ROUTE as NonNullable<BrainOptions["hostRoute"]>,
  outbox: OUTBOX,
  log: (line) => console.log(`log ${line}`),
});
try {
  await brain.serve({ environment: "app", tools: [hold] });
  console.log(`serving ${process.pid}`);
} catch (error) {
  console.log(`refused ${isBrainError(error) ? error.reason : ""} ${String(error)}`);
}
for await (const line of createInterface({ input: process.stdin })) {
  if (line === "leave") break;
  finishes.shift()?.(line);
}
process.stdin.destroy();
await brain.close({ withinMs: 200 });
console.log("left");
