import { CancelCause, RunToolSchema, type Outcome as WireOutcome } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { durationFromMs, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, test, vi } from "vitest";
import { z } from "zod";
import type { Clock } from "./clock.js";
import { hostEnv } from "./environments.js";
import { BrainError, isBrainError } from "./errors.js";
import { type EmitEvent, HostCall, stopCause } from "./host-call.js";
import { outcome, outcomeFromWire } from "./outcome.js";
import type { StandardSchema } from "./schema.js";
import { type ToolContext, tool } from "./tool.js";

/** A clock that stands until it is moved. */
class StandingClock implements Clock {
  #nowMs = 0;
  readonly armed = new Map<() => void, number>();

  monotonic(): number {
    return this.#nowMs;
  }

  after(delayMs: number, wake: () => void): () => void {
    this.armed.set(wake, this.#nowMs + delayMs);
    return () => this.armed.delete(wake);
  }

  pass(milliseconds: number): void {
    this.#nowMs += milliseconds;
    for (const [wake, dueMs] of [...this.armed]) {
      if (dueMs > this.#nowMs || !this.armed.delete(wake)) continue;
      wake();
    }
  }
}

interface Setup {
  input?: StandardSchema;
  output?: StandardSchema;
  options?: StandardSchema;
  run?: (input: never, ctx: ToolContext<never>) => unknown;
  inputJson?: string;
  configurationJson?: string;
  remainingMs?: number;
  emit?: EmitEvent;
}

function prepare(setup: Setup): { call: HostCall; clock: StandingClock } {
  const clock = new StandingClock();
  const { input = z.unknown(), run = () => null, inputJson = "{}", configurationJson = "{}", remainingMs = 60_000 } = setup;
  const { tool: declared } = tool({
    name: "lookup",
    description: "",
    input: input as StandardSchema,
    ...(setup.output === undefined ? {} : { output: setup.output }),
    ...(setup.options === undefined ? {} : { options: setup.options }),
    run: run as () => unknown,
  })({ env: hostEnv({ name: "app" }) });
  const command = create(RunToolSchema, {
    sessionId: "s1",
    callSequence: 2,
    name: "lookup",
    environment: "app",
    inputJson,
    configurationJson,
    deadline: timestampFromMs(1_234),
    remaining: durationFromMs(remainingMs),
  });
  return { call: new HostCall(command, declared, setup.emit ?? (async () => 3), clock), clock };
}

async function ran(setup: Setup): Promise<ReturnType<typeof shown>> {
  return shown(await prepare(setup).call.run());
}

function shown(wire: WireOutcome): Record<string, unknown> {
  return { ...outcomeFromWire(wire) };
}

describe("what a function returns", () => {
  test("is the value, nothing is null, and an undefined member is absent", async () => {
    expect(await ran({ run: () => ({ a: 1, b: undefined }) })).toEqual({ status: "ok", value: { a: 1 } });
    expect(await ran({ run: async () => undefined })).toEqual({ status: "ok", value: null });
  });

  test("is the Outcome it made, and a look-alike is data", async () => {
    const failure = { code: "no_item", message: "none", retryable: true, details: { id: 1 } };
    expect(await ran({ run: () => outcome.error(failure) })).toEqual({ status: "error", ...failure });
    expect(await ran({ run: () => outcome.ok({ a: 1 }) })).toEqual({ status: "ok", value: { a: 1 } });
    expect(await ran({ run: () => ({ status: "ok", value: 1 }) })).toEqual({ status: "ok", value: { status: "ok", value: 1 } });
  });

  test("is what the output schema makes of it: defaults applied, the rest cut off", async () => {
    const output = z.object({ q: z.string(), depth: z.number().default(3) });
    expect(await ran({ output, run: () => ({ q: "x", extra: 1 }) })).toEqual({ status: "ok", value: { q: "x", depth: 3 } });
  });

  test("that breaks the output schema is invalid_output with places and rules", async () => {
    const output = z.object({ list: z.array(z.object({ n: z.number() })) });
    const ending = await ran({ output, run: () => ({ list: [{ n: "secret" }] }) });
    expect(ending).toMatchObject({ status: "error", code: "invalid_output", retryable: false });
    expect(ending["details"]).toEqual({ violations: [{ path: "/list/0/n", rule: "invalid_type", message: expect.any(String) }] });
    expect(JSON.stringify(ending)).not.toContain("secret");
    expect(await ran({ output, run: () => undefined })).toMatchObject({ code: "invalid_output" });
  });

  test.each([
    ["NaN", { n: Number.NaN }, "/n"],
    ["a bigint", { n: 10n }, "/n"],
    ["a function", () => 1, ""],
    ["a lone surrogate", "\ud800", ""],
    ["over 1 MiB", "x".repeat(1024 * 1024), ""],
  ])("that has no JSON form (%s) is invalid_output naming Tool and place", async (_, value, path) => {
    const ending = await ran({ run: () => value });
    expect(ending).toMatchObject({ status: "error", code: "invalid_output", details: { violations: [{ path, rule: "json" }] } });
    expect(ending["message"]).toContain('Tool "lookup"');
  });
});

describe("what a function throws is tool_error with a message and no stack", () => {
  const circular = new Error("circular");
  circular.cause = circular;
  test.each([
    ["an Error", new Error("no luck"), "no luck"],
    ["a text", "text", "text"],
    ["undefined", undefined, "undefined"],
    ["null", null, "null"],
    ["an Error that causes itself", circular, "circular"],
    ["an Error without a message", new TypeError(""), "TypeError without a message"],
    ["something that cannot be shown", Object.create(null), "an object without a message was thrown"],
  ])("%s", async (_, thrown, message) => {
    const ending = await ran({
      run: () => {
        throw thrown;
      },
    });
    expect(ending).toEqual({ status: "error", code: "tool_error", message, retryable: false });
  });

  test("a message is cut to 8 KiB", async () => {
    const ending = await ran({ run: () => Promise.reject(new Error("é".repeat(10_000))) });
    expect(Buffer.byteLength(String(ending["message"]))).toBe(8 * 1024);
  });

  test("an Outcome, which only counts when it is returned", async () => {
    const ending = await ran({ run: () => Promise.reject(outcome.error({ code: "no_item", message: "none" })) });
    expect(ending).toMatchObject({ code: "tool_error", message: expect.stringContaining("no_item: none") });
  });

  test("a getter of the returned value", async () => {
    const value = Object.defineProperty({}, "bad", {
      enumerable: true,
      get: () => {
        throw new Error("from a getter");
      },
    });
    expect(await ran({ run: () => value })).toMatchObject({ code: "tool_error", message: "from a getter" });
  });
});

describe("the input", () => {
  test("is parsed once, asynchronous refinements included, and the function sees the parsed value", async () => {
    let parses = 0;
    const input = z.object({
      n: z.string().transform((text) => {
        parses++;
        return text.length;
      }),
      m: z.string().refine(async () => {
        parses++;
        return true;
      }),
    });
    const run = vi.fn(() => null);
    await ran({ input, run, inputJson: '{"n":"abc","m":"x","extra":1}' });
    expect(run).toHaveBeenCalledExactlyOnceWith({ n: 3, m: "x" }, expect.anything());
    expect(parses).toBe(2);
  });

  test("that fails an asynchronous refinement is invalid_input, and nothing runs", async () => {
    const run = vi.fn();
    const input = z.object({ id: z.string().refine(async () => false, "is unknown") });
    const ending = await ran({ input, run, inputJson: '{"id":"secret"}' });
    expect(ending).toMatchObject({
      code: "invalid_input",
      details: { violations: [{ path: "/id", rule: "custom", message: "is unknown" }] },
    });
    expect(JSON.stringify(ending)).not.toContain("secret");
    expect(run).not.toHaveBeenCalled();
  });

  test("whose check throws is tool_error", async () => {
    const input = z.string().refine(() => {
      throw new Error("from a refinement");
    });
    expect(await ran({ input, inputJson: '"x"' })).toMatchObject({ code: "tool_error", message: "from a refinement" });
  });
});

describe("the context", () => {
  test("names the call, its deadline and its parsed, frozen options", async () => {
    const options = z.object({ prefix: z.string().transform((text) => text.toUpperCase()) });
    let seen: ToolContext<{ prefix: string }> | undefined;
    const run = (_: never, ctx: ToolContext<never>): void => {
      seen = ctx;
    };
    await ran({ options, run, configurationJson: '{"prefix":"a"}' });
    expect(seen).toMatchObject({ sessionId: "s1", sequence: 2, deadline: new Date(1_234), options: { prefix: "A" } });
    expect(Object.isFrozen(seen?.options)).toBe(true);
    expect(seen?.signal.aborted).toBe(false);
  });

  test("with options that their schema refuses is invalid_options, and nothing runs", async () => {
    const run = vi.fn();
    const ending = await ran({ options: z.object({ depth: z.number() }), run, configurationJson: '{"depth":"x"}' });
    expect(ending).toMatchObject({ code: "invalid_options", details: { violations: [{ path: "/depth" }] } });
    expect(run).not.toHaveBeenCalled();
  });
});

describe("an emit", () => {
  test("carries kind, data and a new key, and resolves with the sequence", async () => {
    const emit = vi.fn<EmitEvent>(async () => 7);
    const run = async (_: never, ctx: ToolContext<never>): Promise<unknown> => [await ctx.emit("a", { x: 1 }), await ctx.emit("b")];
    expect(await ran({ run, emit })).toEqual({ status: "ok", value: [7, 7] });
    const [first, second] = emit.mock.calls.map(([event]) => event);
    expect(first).toEqual({ kind: "a", dataJson: '{"x":1}', emitId: expect.stringMatching(/^[0-9a-f-]{36}$/) });
    expect(second).toMatchObject({ kind: "b", dataJson: "null" });
    expect(second?.emitId).not.toBe(first?.emitId);
  });

  test("that nobody awaited is answered before the outcome is handed over, and its refusal harms nobody", async () => {
    const refuse: ((error: Error) => void)[] = [];
    const emit: EmitEvent = () => new Promise((_, reject) => refuse.push(reject));
    const run = (_: never, ctx: ToolContext<never>): string => {
      void ctx.emit("late");
      return "done";
    };
    let ended = false;
    const { call } = prepare({ run, emit });
    const running = call.run().then((ending) => {
      ended = true;
      return shown(ending);
    });
    await vi.waitFor(() => expect(refuse).toHaveLength(1));
    expect(ended).toBe(false);
    refuse[0]?.(new BrainError("call_ended", "the call has ended"));
    expect(await running).toEqual({ status: "ok", value: "done" });
  });

  test("of what is no JSON, or without a kind, rejects and sends nothing", async () => {
    const emit = vi.fn<EmitEvent>();
    const run = async (_: never, ctx: ToolContext<never>): Promise<unknown> => {
      const refusals = await Promise.allSettled([ctx.emit("a", { n: Number.NaN }), ctx.emit("")]);
      return refusals.map((refusal) => refusal.status === "rejected" && String(refusal.reason.message));
    };
    expect(await ran({ run, emit })).toEqual({
      status: "ok",
      value: [expect.stringContaining("at /n: NaN"), expect.stringContaining("kind")],
    });
    expect(emit).not.toHaveBeenCalled();
  });

  test("after the function has returned rejects with call_ended", async () => {
    let context: ToolContext<never> | undefined;
    await ran({
      run: (_, ctx) => {
        context = ctx;
      },
    });
    await expect(context?.emit("late")).rejects.toSatisfy((error) => isBrainError(error) && error.reason === "call_ended");
  });
});

describe("a stop", () => {
  /** A function that runs until its signal is aborted, and says when it has started. */
  function obedient(): { run: (input: never, ctx: ToolContext<never>) => Promise<never>; started: Promise<AbortSignal> } {
    let start: (signal: AbortSignal) => void = () => undefined;
    const started = new Promise<AbortSignal>((resolve) => {
      start = resolve;
    });
    const run = (_: never, { signal }: ToolContext<never>): Promise<never> =>
      new Promise((_resolve, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason));
        start(signal);
      });
    return { run, started };
  }

  test("by the deadline, counted down on the monotonic clock, is a timeout", async () => {
    const { run, started } = obedient();
    const { call, clock } = prepare({ run, remainingMs: 300 });
    const running = call.run();
    const signal = await started;
    clock.pass(299);
    expect(signal.aborted).toBe(false);
    clock.pass(1);
    expect(shown(await running)).toMatchObject({ status: "timeout", code: "deadline_passed" });
    expect(clock.armed.size).toBe(0);
  });

  test.each([
    [CancelCause.REQUESTED, "cancelled", "cancel_requested", "AbortError"],
    [CancelCause.SESSION_ENDED, "cancelled", "session_ended", "AbortError"],
    [CancelCause.DEADLINE, "timeout", "deadline_passed", "TimeoutError"],
    [CancelCause.CALL_ENDED, "cancelled", "call_ended", "AbortError"],
  ])("by Brain (cause %i) aborts the signal with a reason that names it", async (cause, status, code, name) => {
    const { run, started } = obedient();
    const { call } = prepare({ run });
    const running = call.run();
    const signal = await started;
    call.stop(stopCause(cause));
    expect(signal.reason).toMatchObject({ name, code: stopCause(cause) });
    expect(shown(await running)).toMatchObject({ status, code });
  });

  test("that comes second changes nothing", async () => {
    const { run, started } = obedient();
    const { call, clock } = prepare({ run, remainingMs: 300 });
    const running = call.run();
    await started;
    call.stop("cancel_requested");
    clock.pass(1_000);
    expect(shown(await running)).toMatchObject({ status: "cancelled", code: "cancel_requested" });
  });

  test("does not take away what a deaf function returns in the end", async () => {
    let finish: (value: unknown) => void = () => undefined;
    const finished = new Promise((resolve) => {
      finish = resolve;
    });
    const run = vi.fn(() => finished);
    const { call, clock } = prepare({ run, remainingMs: 300 });
    const running = call.run();
    await vi.waitFor(() => expect(run).toHaveBeenCalled());
    clock.pass(300);
    expect(clock.armed.size).toBe(0);
    finish({ v: 1 });
    expect(shown(await running)).toEqual({ status: "ok", value: { v: 1 } });
  });

  test("before the function has started keeps it from starting", async () => {
    const run = vi.fn();
    const { call } = prepare({ run, input: z.string().refine(async () => true), inputJson: '"x"' });
    const running = call.run();
    call.stop("cancel_requested");
    expect(shown(await running)).toMatchObject({ status: "cancelled" });
    expect(run).not.toHaveBeenCalled();
  });

  test("is what an expired command gets, without running", async () => {
    const run = vi.fn();
    expect(await ran({ run, remainingMs: 0 })).toMatchObject({ status: "timeout", code: "deadline_passed" });
    expect(run).not.toHaveBeenCalled();
  });
});

describe("the outcome", () => {
  test("is kept as soon as it is known, once, and run waits for that and for the emits", async () => {
    let answerEmit: (sequence: number) => void = () => undefined;
    let keptIt: () => void = () => undefined;
    const kept: unknown[] = [];
    const { call } = prepare({
      run: (_, ctx) => {
        void ctx.emit("tick");
        return "done";
      },
      emit: () =>
        new Promise((resolve) => {
          answerEmit = resolve;
        }),
    });
    let isOver = false;
    const running = call.run((known) => {
      kept.push(shown(known));
      return new Promise((resolve) => {
        keptIt = resolve;
      });
    });
    void running.then(() => {
      isOver = true;
    });
    await vi.waitFor(() => expect(kept).toEqual([{ status: "ok", value: "done" }]));
    answerEmit(3);
    await new Promise((resolve) => setImmediate(resolve));
    expect(isOver).toBe(false);
    keptIt();
    expect(shown(await running)).toEqual({ status: "ok", value: "done" });
    expect(kept).toHaveLength(1);
  });

  test("has only well-formed text", async () => {
    const run = () => outcome.error({ code: "half \ud83d", message: "half \ude00" });
    expect(await ran({ run })).toMatchObject({ code: "half \ufffd", message: "half \ufffd" });
  });
});

test("a Tool that the process does not hold is not run but reported", async () => {
  const command = create(RunToolSchema, { sessionId: "s", callSequence: 1, name: "other", environment: "app", inputJson: "{}" });
  const call = new HostCall(command, undefined, async () => 1, new StandingClock());
  const ending = shown(await call.run());
  expect(ending).toMatchObject({ status: "error", code: "tool_not_served" });
  expect(ending["message"]).toContain('"other"');
});
