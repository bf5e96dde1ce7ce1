// Loaded into a process with --expose-gc and an IPC channel: says what the process holds, when it is asked "memory".
import { setImmediate as turn } from "node:timers/promises";

process.on("message", async (question) => {
  if (question !== "memory") return;
  for (let round = 0; round < 3; round++) {
    globalThis.gc();
    await turn();
  }
  const timers = process.getActiveResourcesInfo().filter((resource) => resource === "Timeout").length;
  process.send({ heapUsed: process.memoryUsage().heapUsed, timers });
});
// The question must not be what keeps the process alive.
process.channel?.unref();
