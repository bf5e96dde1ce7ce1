// A Tool with everything a function may say: progress, a value, a failure of its own, and a stop in time.
// Run it against a server: BRAIN_URL=http://127.0.0.1:8080 npx tsx examples/booking.ts
import { setTimeout as sleep } from "node:timers/promises";
import { Brain, hostEnv, outcome, tool, unwrap } from "@aexhq/brain";
import { z } from "zod";

const book = tool({
  name: "book",
  description: "Book seats on one train. Fails with sold_out when there are too few; ask for fewer then.",
  // The refinement cannot be said in JSON Schema: Brain checks the rest, and this process all of it before `run`.
  input: z
    .object({ from: z.string(), to: z.string(), seats: z.int().min(1).max(10).default(1) })
    .refine(({ from, to }) => from !== to, { error: "from and to must differ", path: ["to"] }),
  output: z.object({ reference: z.string(), seats: z.array(z.string()) }),
  options: z.object({ freeSeats: z.int() }),
  run: async ({ from, to, seats }, ctx) => {
    // Resolves once the event is on record; whoever reads the session's records sees it from then on.
    await ctx.emit("booking_started", { from, to });
    const left = ctx.options.freeSeats;
    if (seats > left) {
      // A failure that callers can act on: a code to branch on, a message for a model, details, and whether to try again.
      return outcome.error({ code: "sold_out", message: `only ${left} seats are left`, retryable: false, details: { left } });
    }
    // Whatever waits gets the signal: it is aborted at the deadline, at a cancellation, and when the session ends.
    await sleep(to === "Farawayville" ? 60_000 : 10, undefined, { signal: ctx.signal });
    return { reference: `B${ctx.sequence}`, seats: Array.from({ length: seats }, (_, index) => `${index + 1}A`) };
  },
});

await using brain = new Brain({ baseUrl: process.env["BRAIN_URL"] ?? "http://127.0.0.1:8080" });
const session = await brain.sessions.create({ tools: [book({ env: hostEnv({ name: "trains" }), freeSeats: 3 })] });
const call = { name: "book", environment: "trains" };

const booked = await session.callTool<{ seats: string[] }>({ ...call, input: { from: "Aville", to: "Beeville", seats: 2 } });
console.log("booked:", unwrap(booked).seats.join(" and "));
for (const input of [
  { from: "Aville", to: "Beeville", seats: 5 },
  { from: "Aville", to: "Aville" },
  { from: "Aville", to: "Beeville", seats: "two" },
  { from: "Aville", to: "Farawayville" },
]) {
  const ending = await session.callTool({ ...call, input, timeoutMs: 1_000 });
  // A call that fails is a value like any other: nothing was thrown.
  if (ending.status !== "ok") console.log(`${ending.status} ${ending.code}: ${JSON.stringify(ending.details ?? null)}`);
}
await session.end();
