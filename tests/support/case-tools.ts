import { execFileSync } from "node:child_process";
import { setTimeout as after } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isBrainError, jsonSchema, type ToolContext, tool } from "@aexhq/brain";
import { z } from "zod";

const READ_RECORDS = fileURLToPath(new URL("./read-records.mjs", import.meta.url));

/** What the functions tell whoever watches them. */
export interface Watcher {
  /** Called first in every run. */
  ran(call: string): void;
  says(event: HostEvent): void;
}

export interface HostEvent {
  readonly event: string;
  readonly [detail: string]: unknown;
}

const NOBODY: Watcher = { ran: () => undefined, says: () => undefined };

/**
 * The Tools that journeys call, the same in every process: one serves them, another places them. Their waits are the
 * cases themselves, and keep no process alive.
 */
export function caseTools(watcher: Watcher = NOBODY) {
  const run =
    <Input, Output>(body: (input: Input, ctx: ToolContext) => Output) =>
    (input: Input, ctx: ToolContext): Output => {
      watcher.ran(`${ctx.sessionId}/${ctx.sequence}`);
      return body(input, ctx);
    };
  const pause = (ms: number, signal?: AbortSignal): Promise<void> => after(ms, undefined, { ref: false, ...(signal && { signal }) });
  return {
    /** Answers at once. */
    plain: tool({ name: "plain", description: "Answers what it was given.", input: jsonSchema(true), run: run((input: unknown) => input) }),

    /** Emits its deadline, waits, and answers. */
    wait: tool({
      name: "wait",
      description: "Answers after a while.",
      input: z.object({ ms: z.number() }),
      run: run(async ({ ms }, ctx) => {
        await ctx.emit("deadline", ctx.deadline.toISOString());
        await pause(ms);
        return { v: 1 };
      }),
    }),

    /** Emits every 100 ms for 2 s, deaf to its signal, and says what became of the first emit that was refused. */
    tick: tool({
      name: "tick",
      description: "Emits a tick every 100 ms.",
      input: z.object({}),
      run: run(async (_, ctx) => {
        let refused: unknown;
        for (let i = 0; i < 20; i++) {
          await ctx.emit("tick", { i }).catch((error: unknown) => {
            refused ??= isBrainError(error) ? error.reason : String(error);
          });
          await pause(100);
        }
        watcher.says({ event: "ticked", call: ctx.sequence, refused });
        return "ticked";
      }),
    }),

    /** Deaf to its signal: resolves or rejects after its time. */
    deaf: tool({
      name: "deaf",
      description: "Takes its time, whatever is said to it.",
      input: z.object({ ms: z.number(), how: z.enum(["resolve", "reject"]) }),
      run: run(async ({ ms, how }, ctx) => {
        watcher.says({ event: "running", call: ctx.sequence });
        await pause(ms);
        watcher.says({ event: "done", call: ctx.sequence, aborted: ctx.signal.aborted });
        if (how === "reject") throw new Error("too late to matter");
        return "late";
      }),
    }),

    /** Takes 30 s; one that listens stops at its signal. */
    long: tool({
      name: "long",
      description: "Takes half a minute.",
      input: z.object({ deaf: z.boolean() }),
      run: run(async ({ deaf }, ctx) => {
        ctx.signal.addEventListener("abort", () => {
          watcher.says({
            event: "aborted",
            call: ctx.sequence,
            aborted: ctx.signal.aborted,
            code: (ctx.signal.reason as { code: string }).code,
          });
        });
        watcher.says({ event: "running", call: ctx.sequence });
        await pause(30_000, deaf ? undefined : ctx.signal);
        return "done";
      }),
    }),

    /** Emits, and has another process read the journal before anything else happens in this one. */
    witnessed: tool({
      name: "witnessed",
      description: "Emits an event that another process reads at once.",
      input: z.object({ id: z.string() }),
      run: run(async ({ id }, ctx) => {
        const sequence = await ctx.emit("witnessed", { id });
        // Synchronous: nothing that comes to this process after the emit's answer can be what made the record visible.
        const read = execFileSync(process.execPath, [READ_RECORDS, ctx.sessionId], { encoding: "utf8" });
        const { records } = JSON.parse(read) as { records: { sequence: number }[] };
        return { sequence, seen: records.at(-1) };
      }),
    }),

    /** Throws. */
    fails: tool({
      name: "fails",
      description: "Throws an error.",
      input: z.object({ message: z.string() }),
      run: run(({ message }): never => {
        throw new Error(message);
      }),
    }),
  };
}

export type CaseTools = ReturnType<typeof caseTools>;
