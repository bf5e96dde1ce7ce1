// A process that holds a Tool and stays: any client may call it. Start it beside a server and call it from grpcurl, curl
// or another process; stop it with Ctrl-C.
import { once } from "node:events";
import { Brain, hostEnv, tool } from "@aexhq/brain";
import { z } from "zod";

const lookup = tool({
  name: "lookup",
  description: "Look up one item.",
  input: z.object({ id: z.string() }),
  output: z.object({ value: z.string() }),
  run: ({ id }) => ({ value: `item:${id}` }),
});

await using brain = new Brain({
  baseUrl: process.env["BRAIN_URL"] ?? "http://127.0.0.1:8080",
  ...(process.env["BRAIN_API_TOKEN"] ? { token: process.env["BRAIN_API_TOKEN"] } : {}),
});
const session = await brain.sessions.create({ tools: [lookup({ env: hostEnv({ name: "app" }) })] });
console.log(`session ${session.sessionId}`);
await Promise.race([once(process, "SIGINT"), once(process, "SIGTERM")]);
