import { Brain, type BrainOptions, hostEnv, isBrainError, type JournalRecord, jsonSchema, outcome, tool, unwrap } from "@aexhq/brain";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { z } from "zod";
import { deferred } from "../support/deferred.js";
import { HostProcess } from "../support/host-process.js";
import { ServerProcess } from "../support/server-process.js";
import { TcpProxy } from "../support/tcp-proxy.js";

const TOKEN = "an-api-token";
const app = hostEnv({ name: "app" });

let server: ServerProcess;
let proxy: TcpProxy;
beforeAll(async () => {
  proxy = await TcpProxy.open();
  const flags = ["--heartbeat", "200ms", "--host-grace", "5s", "--public-url", proxy.url];
  server = await ServerProcess.start({ apiToken: TOKEN, flags });
  proxy.forwardTo(server.url);
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await proxy[Symbol.asyncDispose]();
});

function connect(options: Partial<BrainOptions> = {}): Brain {
  return new Brain({ baseUrl: server.url, token: TOKEN, log: () => undefined, ...options });
}

/** The records up to and with the first that `isLast` accepts. */
async function recordsUntil(records: AsyncIterable<JournalRecord>, isLast: (record: JournalRecord) => boolean): Promise<JournalRecord[]> {
  const found: JournalRecord[] = [];
  for await (const record of records) {
    found.push(record);
    if (isLast(record)) break;
  }
  return found;
}

const kinds = (records: readonly JournalRecord[]): unknown[] => records.map(({ entry }) => entry.case);
const ended = ({ entry }: JournalRecord): boolean => entry.case === "toolCallEnded";

async function refusal(request: Promise<unknown>): Promise<string> {
  const error: unknown = await request.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!isBrainError(error)) throw new Error(`it was not refused by Brain: ${String(error)}`);
  return error.reason;
}

describe.each(["attach", "watch", "sse", "auto"] as const)("a function served over the route %s", (hostRoute) => {
  test("is called with its input and options, emits, and answers once, all on record", async () => {
    await using brain = connect({ hostRoute });
    await using observer = connect();
    const seen: unknown[] = [];
    const lookup = tool({
      name: "lookup",
      description: "Look up one item.",
      input: z.object({ id: z.string() }),
      options: z.object({ prefix: z.string() }),
      run: async ({ id }, ctx) => {
        const sequence = await ctx.emit("lookup_started", { id });
        // Somebody else reads the event before the function goes on.
        const other = await observer.sessions.get(ctx.sessionId);
        const records = await recordsUntil(other.records(), (record) => record.sequence === sequence);
        seen.push(records.at(-1)?.entry.case, ctx.sequence, ctx.deadline > new Date(), Object.isFrozen(ctx.options));
        return { value: `${ctx.options.prefix}${id}` };
      },
    });
    const session = await brain.sessions.create({ tools: [lookup({ env: app, prefix: "item:" })] });
    const ending = await session.callTool({ name: "lookup", environment: "app", input: { id: "7" } });
    expect(ending).toEqual({ status: "ok", value: { value: "item:7" } });
    expect(seen).toEqual(["eventEmitted", 2, true, true]);
    const records = await recordsUntil(session.records(), ended);
    expect(kinds(records)).toEqual(["sessionCreated", "toolCallStarted", "eventEmitted", "toolCallEnded"]);
    expect(records.map(({ sequence }) => sequence)).toEqual([1, 2, 3, 4]);
  });

  test("is stopped by a cancel and by its deadline, whether it listens or not", async () => {
    await using brain = connect({ hostRoute });
    const started: (() => void)[] = [];
    const reasons: string[] = [];
    const slow = tool({
      name: "slow",
      description: "Takes its time.",
      input: z.object({ deaf: z.boolean() }),
      run: async ({ deaf }, { signal }) => {
        started.shift()?.();
        const stopped = new Promise<void>((resolve) => {
          signal.addEventListener("abort", () => {
            reasons.push((signal.reason as { code: string }).code);
            resolve();
          });
        });
        await stopped;
        if (!deaf) throw signal.reason;
        return "late";
      },
    });
    const session = await brain.sessions.create({ tools: [slow({ env: app })] });
    for (const deaf of [false, true]) {
      const running = deferred();
      started.push(running.resolve);
      const controller = new AbortController();
      const call = session.callTool({ name: "slow", environment: app, input: { deaf }, signal: controller.signal });
      await running.promise;
      controller.abort();
      expect(await call).toMatchObject({ status: "cancelled", code: "cancel_requested" });
      const timedOut = await session.callTool({ name: "slow", environment: app, input: { deaf }, timeoutMs: 100 });
      expect(timedOut).toMatchObject({ status: "timeout", code: "deadline_passed" });
    }
    // The ending is told to the caller and the stop to the function, in no order.
    await vi.waitFor(() => expect(reasons).toEqual(["cancel_requested", "deadline_passed", "cancel_requested", "deadline_passed"]));
  });

  test("goes on while Brain is killed and started again, runs once, and its outcome is recorded", async () => {
    await using first = await ServerProcess.start({ apiToken: TOKEN, flags: ["--heartbeat", "100ms"] });
    await using brain = connect({ hostRoute, baseUrl: first.url });
    const running = deferred();
    const finish = deferred<string>();
    let runs = 0;
    const hold = tool({
      name: "hold",
      description: "Waits for the test.",
      input: z.object({}),
      run: async () => {
        runs++;
        running.resolve();
        return await finish.promise;
      },
    });
    const session = await brain.sessions.create({ tools: [hold({ env: app })] });
    const call = session.callTool({ name: "hold", environment: "app", input: {} });
    await running.promise;
    await first.stop("SIGKILL");
    finish.resolve("survived");
    await using second = await first.restart();
    expect(await call).toEqual({ status: "ok", value: "survived" });
    expect(second.url).toBe(first.url);
    expect(runs).toBe(1);
    const records = await recordsUntil(session.records(), ended);
    expect(kinds(records)).toEqual(["sessionCreated", "toolCallStarted", "toolCallEnded"]);
    // Before the server goes: a host that cannot say goodbye waits for one that could hear it.
    await brain.close();
  });
});

test("what a function returns after its call has timed out is kept beside the ending", async () => {
  await using brain = connect();
  const stopped = deferred();
  const finish = deferred<string>();
  const deaf = tool({
    name: "deaf",
    description: "",
    input: z.object({}),
    run: async (_, { signal }) => {
      signal.addEventListener("abort", () => stopped.resolve());
      return await finish.promise;
    },
  });
  const session = await brain.sessions.create({ tools: [deaf({ env: app })] });
  const call = { callId: "one", name: "deaf", environment: "app", input: {} };
  const timedOut = await session.callTool({ ...call, timeoutMs: 100 });
  expect(timedOut).toMatchObject({ status: "timeout" });
  await stopped.promise;
  finish.resolve("late");
  const records = await recordsUntil(session.records(), ({ entry }) => entry.case === "toolCallLateOutcome");
  expect(kinds(records)).toEqual(["sessionCreated", "toolCallStarted", "toolCallEnded", "toolCallLateOutcome"]);
  expect(await session.getToolCall({ callId: "one" })).toMatchObject({ outcome: timedOut, lateOutcome: { status: "ok", value: "late" } });
  expect(await session.callTool(call)).toEqual(timedOut);
});

describe("what a function does wrong", () => {
  const output = z.object({ n: z.number() });
  const misbehave = tool({
    name: "misbehave",
    description: "Does as it is told.",
    input: z.object({ how: z.string() }),
    run: ({ how }): unknown => {
      if (how === "throw") throw new Error("as told");
      if (how === "bigint") return { n: 10n };
      if (how === "outcome") return outcome.error({ code: "told_so", message: "as told", retryable: true, details: { how } });
      return how === "nothing" ? undefined : { n: how };
    },
  });
  const strict = tool({ name: "strict", description: "", input: z.object({}), output, run: () => ({ n: "x" }) as never });

  test("is a failed outcome with its own code, and the process serves on", async () => {
    await using brain = connect();
    const session = await brain.sessions.create({ tools: [misbehave({ env: app }), strict({ env: app })] });
    const ask = (how: unknown) => session.callTool({ name: "misbehave", environment: "app", input: { how } });
    expect(await ask("throw")).toEqual({ status: "error", code: "tool_error", message: "as told", retryable: false });
    expect(await ask("bigint")).toMatchObject({ status: "error", code: "invalid_output", message: expect.stringContaining("/n") });
    expect(await ask("outcome")).toEqual({
      status: "error",
      code: "told_so",
      message: "as told",
      retryable: true,
      details: { how: "outcome" },
    });
    expect(await ask(1)).toMatchObject({ status: "error", code: "invalid_input" });
    expect(unwrap(await ask("nothing"))).toBe(null);
    expect(await session.callTool({ name: "strict", environment: "app", input: {} })).toMatchObject({ code: "invalid_output" });
    expect(await session.callTool({ name: "other", environment: "app", input: {} })).toMatchObject({ code: "placement_not_found" });
  });
});

describe("a caller", () => {
  const echo = tool({ name: "echo", description: "", input: jsonSchema(true), run: (input) => input });

  test("who asks again with the same callId gets the same call, and another content is refused", async () => {
    await using brain = connect();
    const session = await brain.sessions.create({ tools: [echo({ env: app })] });
    const call = { callId: "one", name: "echo", environment: "app", input: { a: 1, b: 2 } };
    expect(unwrap(await session.callTool(call))).toEqual({ a: 1, b: 2 });
    expect(unwrap(await session.callTool({ ...call, input: { b: 2, a: 1 } }))).toEqual({ a: 1, b: 2 });
    expect(await refusal(session.callTool({ ...call, input: 1 }))).toBe("call_id_conflict");
    expect(await session.getToolCall({ callId: "one" })).toMatchObject({ callSequence: 2, endSequence: 3, outcome: { status: "ok" } });
    expect(await refusal(session.getToolCall({ callSequence: 99 }))).toBe("call_not_found");
  });

  test("who aborts before calling calls nothing, and one with a bad input or time neither", async () => {
    await using brain = connect();
    const session = await brain.sessions.create({ tools: [echo({ env: app })] });
    const call = { name: "echo", environment: "app", input: 1 };
    expect(await refusal(session.callTool({ ...call, signal: AbortSignal.abort() }))).toBe("aborted");
    for (const timeoutMs of [0, -5, Number.NaN, Number.POSITIVE_INFINITY, "soon" as never]) {
      expect(await refusal(session.callTool({ ...call, timeoutMs }))).toBe("invalid_argument");
    }
    expect(await refusal(session.callTool({ ...call, input: { n: Number.NaN } }))).toBe("invalid_argument");
    expect(await refusal(session.callTool({ ...call, callId: "" }))).toBe("invalid_argument");
    expect((await session.describe()).lastSequence).toBe(1);
  });

  test.each([2 ** 31 - 1, 2 ** 31, 400 * 24 * 60 * 60 * 1_000])("may give a call %i ms, and no timer fires early", async (timeoutMs) => {
    await using brain = connect();
    const deadlines: number[] = [];
    const note = tool({
      name: "note",
      description: "",
      input: z.object({}),
      run: async (_, ctx) => {
        await ctx.emit("here");
        deadlines.push(ctx.deadline.getTime() - Date.now());
        return ctx.signal.aborted;
      },
    });
    const session = await brain.sessions.create({ tools: [note({ env: app })] });
    expect(unwrap(await session.callTool({ name: "note", environment: "app", input: {}, timeoutMs }))).toBe(false);
    expect(Math.abs((deadlines[0] ?? 0) - timeoutMs)).toBeLessThan(5_000);
  });

  test("gets exact JSON, whatever characters and names are in it", async () => {
    await using brain = connect();
    const session = await brain.sessions.create({ tools: [echo({ env: app })] });
    const input: unknown = JSON.parse(
      '{"a\\u0000b":"\\u0000","😀":["é",1e308,5e-324,9007199254740991],"__proto__":{"x":1},"constructor":null}',
    );
    expect(JSON.stringify(unwrap(await session.callTool({ name: "echo", environment: "app", input })))).toBe(JSON.stringify(input));
  });

  test("with a wrong token is refused, and so is an address that is not there", async () => {
    await using wrong = connect({ token: "wrong" });
    expect(await refusal(wrong.sessions.create({ tools: [] }))).toBe("unauthenticated");
    await using nowhere = connect({ baseUrl: "http://127.0.0.1:1" });
    expect(await refusal(nowhere.sessions.list())).toBe("unavailable");
  });
});

describe("a session", () => {
  const echo = tool({ name: "echo", description: "", input: jsonSchema(true), run: (input) => input });

  test("is found again, listed by its labels, followed live, ended and deleted", async () => {
    await using brain = connect();
    const labels = { test: crypto.randomUUID() };
    const session = await brain.sessions.create({ tools: [echo({ env: app })], labels, defaultToolTimeoutMs: 5_000 });
    const found = await brain.sessions.get(session.sessionId);
    const follower = found.records();
    expect((await follower.next()).value?.entry.case).toBe("sessionCreated");
    const next = follower.next();
    await session.callTool({ name: "echo", environment: "app", input: 1 });
    expect((await next).value?.entry.case).toBe("toolCallStarted");
    expect((await follower.next()).value?.entry.case).toBe("toolCallEnded");
    expect((await brain.sessions.list({ labels })).sessions.map(({ sessionId }) => sessionId)).toEqual([session.sessionId]);
    await session.end();
    expect((await follower.next()).value?.entry.case).toBe("sessionEnded");
    expect(await refusal(session.callTool({ name: "echo", environment: "app", input: 1 }))).toBe("session_ended");
    expect((await brain.sessions.list({ labels, state: "open" })).sessions).toEqual([]);
    const last = follower.next();
    await session.delete();
    expect(await last).toEqual({ done: true, value: undefined });
    expect(await refusal(brain.sessions.get(session.sessionId))).toBe("session_not_found");
    expect(await refusal(session.records().next())).toBe("session_not_found");
  });

  test("lets a follower go while it waits for the next record", async () => {
    await using brain = connect();
    const session = await brain.sessions.create({ tools: [echo({ env: app })] });
    const follower = session.records(1);
    const next = follower.next();
    await follower.return?.();
    expect(await next).toEqual({ done: true, value: undefined });
    for (const cursor of [-1, 1.5, 2 ** 53, Number.NaN]) expect(() => session.records(cursor)).toThrow("cursor");
  });

  test("shows every record once and in order over cut connections", async () => {
    await using brain = connect();
    await using far = connect({ baseUrl: proxy.url });
    const session = await brain.sessions.create({ tools: [echo({ env: app })] });
    const follower = (await far.sessions.get(session.sessionId)).records();
    const sequences: number[] = [];
    for (const how of ["reset", "end", "reset"] as const) {
      await session.callTool({ name: "echo", environment: "app", input: how });
      const { lastSequence } = await session.describe();
      while ((sequences.at(-1) ?? 0) < lastSequence) sequences.push((await follower.next()).value?.sequence ?? Number.NaN);
      proxy.cut(how);
    }
    await follower.return?.();
    expect(sequences).toEqual([1, 2, 3, 4, 5, 6, 7]);
  });

  test("created twice under one request id is one session", async () => {
    await using brain = connect();
    const requestId = crypto.randomUUID();
    const one = await brain.sessions.create({ tools: [echo({ env: app })], requestId });
    const other = await brain.sessions.create({ tools: [echo({ env: app })], requestId });
    expect(other.sessionId).toBe(one.sessionId);
  });

  test("has its own functions, though another has the same names", async () => {
    await using brain = connect();
    const say = (word: string) => tool({ name: "say", description: word, input: z.object({}), run: () => word })({ env: app });
    const one = await brain.sessions.create({ tools: [say("one")] });
    const two = await brain.sessions.create({ tools: [say("two")] });
    const call = { name: "say", environment: "app", input: {} };
    expect(unwrap(await two.callTool(call))).toBe("two");
    expect(unwrap(await one.callTool(call))).toBe("one");
  });
});

describe("a host", () => {
  const echo = tool({ name: "echo", description: "", input: jsonSchema(true), run: (input) => input });

  test.each(["attach", "watch", "sse"] as const)("whose connections are cut comes back by itself, on %s", async (hostRoute) => {
    await using host = connect({ baseUrl: proxy.url, hostRoute });
    const session = await host.sessions.create({ tools: [echo({ env: app })] });
    await using caller = connect();
    const near = await caller.sessions.get(session.sessionId);
    for (const how of ["reset", "end"] as const) {
      proxy.cut(how);
      // A command on its way into a cut connection is known not to have arrived; any other ending would be wrong.
      let ending = await near.callTool({ name: "echo", environment: "app", input: how });
      while (ending.status !== "ok") {
        expect(ending).toMatchObject({ status: "error", code: "command_not_delivered", retryable: true });
        ending = await near.callTool({ name: "echo", environment: "app", input: how });
      }
      expect(ending.value).toBe(how);
    }
  });

  test("takes another route where HTTP/2 does not get through, and says so once", async () => {
    proxy.http1Only = true;
    const lines: string[] = [];
    await using host = connect({ baseUrl: proxy.url, log: (line) => lines.push(line) });
    const session = await host.sessions.create({ tools: [echo({ env: app })] });
    expect(unwrap(await session.callTool({ name: "echo", environment: "app", input: 1 }))).toBe(1);
    await host.close();
    proxy.http1Only = false;
    expect(lines.filter((line) => line.includes('trying "watch"'))).toHaveLength(1);
  });

  test("whose token is refused says so, and does not ask faster than once in 3 s", async () => {
    const lines: string[] = [];
    const credentials = { hostId: "nobody", hostToken: "wrong" };
    const brain = connect({ baseUrl: proxy.url, credentials, log: (line) => lines.push(line) });
    const refused = deferred();
    const before = proxy.accepted;
    const serving = brain.serve({ environment: "app", tools: [echo] });
    const watching = setInterval(() => {
      if (lines.length > 0) refused.resolve();
    }, 10);
    await refused.promise;
    clearInterval(watching);
    const attempts = proxy.accepted - before;
    await brain.close();
    await serving;
    expect(lines[0]).toContain("unauthenticated");
    expect(attempts).toBeLessThanOrEqual(2);
  });

  test("of several processes serves sessions it did not create, and each call runs in one of them", async () => {
    await using brain = connect();
    const { hostId, hostToken } = await brain.credentials();
    const environment = { BRAIN_URL: server.url, BRAIN_TOKEN: TOKEN, HOST_ID: hostId, HOST_TOKEN: hostToken };
    const program = new URL("../support/replica.ts", import.meta.url);
    await using one = new HostProcess(program, environment);
    await using two = new HostProcess(program, environment);
    expect([await one.line(), await two.line()]).toEqual(["serving", "serving"]);

    const where = tool({
      name: "where",
      description: "Says which process ran it.",
      input: z.object({ id: z.string(), deaf: z.boolean().default(false) }),
      run: () => {
        throw new Error("this process only places the Tool");
      },
    });
    const session = await brain.sessions
      .create({ tools: [where({ env: hostEnv({ name: "app", hostId: "other" }) })] })
      .catch((error: unknown) => error);
    expect(isBrainError(session) && session.reason).toBe("host_not_found");

    await using placing = connect();
    const placed = await placing.sessions.create({ tools: [where({ env: hostEnv({ name: "app", hostId }) })] });
    const first = await placed.callTool<{ pid: number }>({ name: "where", environment: "app", input: { id: "a" } });
    expect(unwrap(first).pid).not.toBe(process.pid);

    // The one that is left goes on alone; the other leaves, though a function of its will not hear of it.
    two.say("leave");
    const said = [await two.line()];
    if (said[0] === "ran a") said.push(await two.line());
    expect(said.at(-1)).toBe("left");
    expect(await two.exitCode()).toBe(0);
    unwrap(await placed.callTool({ name: "where", environment: "app", input: { id: "b" } }));
    const deaf = placed.callTool({ name: "where", environment: "app", input: { id: "c", deaf: true }, timeoutMs: 60_000 });
    for (let line = await one.line(); line !== "ran c"; line = await one.line());
    one.say("leave");
    expect(await deaf).toMatchObject({ status: "unknown", code: "host_instance_lost" });
    expect(await one.exitCode()).toBe(0);
    expect([...one.stderr, ...two.stderr]).toEqual([]);
  });

  test("that closes lets running functions finish, and their outcomes are recorded", async () => {
    const host = connect();
    await using caller = connect();
    const running = deferred();
    const finish = deferred<string>();
    const hold = tool({
      name: "hold",
      description: "",
      input: z.object({}),
      run: () => {
        running.resolve();
        return finish.promise;
      },
    });
    const session = await host.sessions.create({ tools: [hold({ env: app })] });
    const call = (await caller.sessions.get(session.sessionId)).callTool({ name: "hold", environment: "app", input: {} });
    await running.promise;
    const closing = host.close();
    finish.resolve("done");
    await closing;
    expect(await call).toEqual({ status: "ok", value: "done" });
    expect(await refusal(host.sessions.list())).toBe("closed");
    await host.close();
  });
});
