// A process that serves the case Tools as a host. Says over its channel what its functions do, and is told what to do.
import { appendFileSync } from "node:fs";
import { Brain, type BrainOptions, jsonSchema, tool } from "@aexhq/brain";
import { caseTools, type HostEvent, type Watcher } from "./case-tools.js";

const { BRAIN_URL = "", BRAIN_TOKEN, COUNTER_FILE = "", HOST_ROUTE, HOST_ID, HOST_TOKEN } = process.env;

const say = (event: HostEvent): void => void process.send?.(event);
// Written before the function does anything, so that it is known of one that was killed.
const watcher: Watcher = { ran: (call) => appendFileSync(COUNTER_FILE, `${call}\n`), says: say };

const brain = new Brain({
  baseUrl: BRAIN_URL,
  ...(BRAIN_TOKEN === undefined ? {} : { token: BRAIN_TOKEN }),
  ...(HOST_ROUTE === undefined ? {} : { hostRoute: HOST_ROUTE as NonNullable<BrainOptions["hostRoute"]> }),
  ...(HOST_ID === undefined || HOST_TOKEN === undefined ? {} : { credentials: { hostId: HOST_ID, hostToken: HOST_TOKEN } }),
  log: (line) => say({ event: "log", line }),
});

interface Order {
  readonly order: "serve" | "leave";
  readonly environment?: string;
  readonly name?: string;
  readonly description?: string;
  readonly schema?: unknown;
  readonly withinMs?: number;
}

async function obey({ order, environment = "app", name = "", description = "", schema = true, withinMs = 10_000 }: Order): Promise<void> {
  if (order === "serve") {
    const echo = tool({
      name,
      description,
      input: jsonSchema(schema as boolean),
      run: (input, ctx) => {
        watcher.ran(`${ctx.sessionId}/${ctx.sequence}`);
        return { input, environment, name };
      },
    });
    await brain.serve({ environment, tools: [echo] });
    say({ event: "served", environment, name });
    return;
  }
  await brain.close({ withinMs });
  say({ event: "left" });
  process.disconnect();
}

process.on("message", (order: Order | string) => {
  if (typeof order === "string") return;
  obey(order).catch((error: unknown) => say({ event: "failed", message: String(error) }));
});

const { hostId, hostToken } = await brain.credentials();
await brain.serve({ environment: "app", tools: Object.values(caseTools(watcher)) });
say({ event: "serving", hostId, hostToken });
