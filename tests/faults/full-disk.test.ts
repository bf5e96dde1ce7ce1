/** What becomes of calls when the disk is full, held by somebody else, read-only or broken. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import Database from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { Brain, type BrainOptions } from "../../sdk/src/client.js";
import { hostEnv } from "../../sdk/src/environments.js";
import { isBrainError } from "../../sdk/src/errors.js";
import type { Session } from "../../sdk/src/sessions.js";
import { tool } from "../../sdk/src/tool.js";
import { readConfig } from "../../server/src/config.js";
import { checkJournal } from "../../server/src/journal/check-journal.js";
import { type Journal, JournalError } from "../../server/src/journal/port.js";
import { type Clock, systemClock } from "../../server/src/runtime/clock.js";
import { type Server, type ServerOptions, startServer } from "../../server/src/server.js";
import { deferred } from "../support/deferred.js";
import { readRecords } from "../torture/journal-records.js";

const MAIN = fileURLToPath(new URL("../../server/dist/main.js", import.meta.url));
const AS_NOBODY = fileURLToPath(new URL("../support/brain-as-nobody.mjs", import.meta.url));
const app = hostEnv({ name: "app" });
const PAGES = 150;

let directory: string;
let closers: (() => Promise<unknown>)[];
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "brain-disk-"));
  closers = [];
});
afterEach(async () => {
  for (const close of closers.reverse()) await close();
  await rm(directory, { recursive: true, force: true });
});

const journalFile = (): string => join(directory, "data", "journal.sqlite3");

/** A server in this process; `said` gets what it logs, `refused` whatever append its journal refuses. */
async function serve(
  options: Partial<ServerOptions> & {
    listen?: string;
    flags?: Record<string, string>;
    said?: (line: string) => void;
    refused?: (why: string, kinds: unknown[]) => void;
  } = {},
): Promise<Server> {
  const { listen = "127.0.0.1:0", flags = {}, said, refused, ...rest } = options;
  const say = (_fields: object, line: string): void => said?.(line);
  const watched = (journal: Journal): Journal =>
    new Proxy(journal, {
      get(target, name) {
        const member: unknown = Reflect.get(target, name, target);
        if (typeof member !== "function") return member;
        if (name !== "append") return member.bind(target) as unknown;
        return (...asked: Parameters<Journal["append"]>) => {
          const made = target.append(...asked);
          made.catch((error: unknown) => {
            if (error instanceof JournalError)
              refused?.(
                error.failure,
                asked[2].map(({ case: kind }) => kind),
              );
          });
          return made;
        };
      },
    });
  const server = await startServer({
    config: readConfig({ listen, dataDir: join(directory, "data"), drainMs: "10ms", hostWaitMs: "60s", ...flags }, {}),
    apiToken: undefined,
    log: { debug: say, info: say, warn: say, error: say },
    onFatal: (error) => {
      throw error;
    },
    wrapJournal: watched,
    ...rest,
  });
  closers.push(() => server.close());
  return server;
}

function connect(server: { url: string }, options: Partial<BrainOptions> = {}): Brain {
  const brain = new Brain({ baseUrl: server.url, log: () => undefined, ...options });
  closers.push(() => brain.close({ withinMs: 0 }));
  return brain;
}

/** A session with a Tool that counts its runs and answers what `run` makes of its input. */
async function sessionWith(brain: Brain, run: (text: string) => unknown = (text) => text): Promise<{ session: Session; runs: string[] }> {
  const runs: string[] = [];
  const work = tool({
    name: "work",
    description: "Counts its runs.",
    input: z.object({ text: z.string() }),
    run: ({ text }) => {
      runs.push(text);
      return run(text);
    },
  });
  return { session: await brain.sessions.create({ tools: [work({ env: app })] }), runs };
}

function call(session: Session, callId: string, text = callId): Promise<Partial<{ status: string; value: unknown; code: string }>> {
  return session.callTool({ callId, name: "work", environment: app, input: { text } });
}

/** The call as soon as there is room for it: what was deleted is removed step by step, beside the work. */
async function callWhenThereIsRoom(session: Session, callId: string, text: string): ReturnType<typeof call> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await call(session, callId, text);
    } catch (error) {
      if (!isBrainError(error) || error.reason !== "journal_full" || attempt === 200) throw error;
    }
  }
}

async function refusal(request: Promise<unknown>): Promise<string> {
  const thrown: unknown = await request.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!isBrainError(thrown)) throw new Error(`it was not refused by Brain: ${String(thrown)}`);
  return thrown.reason;
}

function bulky(bytes: number): ReturnType<ReturnType<typeof tool>> {
  return tool({ name: "ballast", description: "x".repeat(bytes), input: z.object({}), run: () => null })({ env: app });
}

/** Creates sessions, smaller and smaller ones, until not even the smallest fits. */
async function fill(brain: Brain): Promise<void> {
  for (const bytes of [60_000, 8_000, 1_000, 10]) {
    for (;;) {
      const refused = await brain.sessions.create({ tools: [bulky(bytes)] }).then(
        () => undefined,
        (error: unknown) => error,
      );
      if (refused === undefined) continue;
      expect(isBrainError(refused) && refused.reason).toBe("journal_full");
      break;
    }
  }
}

/** An ended session whose deletion makes room. */
async function ballast(brain: Brain): Promise<Session> {
  const session = await brain.sessions.create({ tools: [1, 2, 3, 4].map((nth) => bulkyNamed(nth)) });
  await session.end();
  return session;
}

function bulkyNamed(nth: number): ReturnType<ReturnType<typeof tool>> {
  return tool({ name: `ballast${nth}`, description: "x".repeat(60_000), input: z.object({}), run: () => null })({ env: app });
}

const kindsOf = (sessionId: string): unknown[] =>
  readRecords(journalFile())
    .filter((record) => record.sessionId === sessionId)
    .map(({ entry }) => entry.case);

describe("on a full disk", () => {
  test("a call is refused journal_full and its Tool does not run, reads go on, and the repeat runs once when there is room", async () => {
    const brain = connect(await serve({ maxJournalPages: PAGES }));
    const { session, runs } = await sessionWith(brain);
    const spare = await ballast(brain);
    await fill(brain);

    const text = "x".repeat(50_000);
    expect(await refusal(call(session, "a", text))).toBe("journal_full");
    expect(runs).toEqual([]);
    expect((await brain.sessions.get(session.sessionId)).sessionId).toBe(session.sessionId);
    expect(await refusal(session.getToolCall({ callId: "a" }))).toBe("call_not_found");
    expect((await brain.sessions.list({ state: "ended" })).sessions.map(({ sessionId }) => sessionId)).toEqual([spare.sessionId]);

    await spare.delete();
    expect(await callWhenThereIsRoom(session, "a", text)).toMatchObject({ status: "ok", value: text });
    expect(runs).toEqual([text]);
    expect(kindsOf(session.sessionId)).toEqual(["sessionCreated", "toolCallStarted", "toolCallEnded"]);
    expect(checkJournal(journalFile())).toEqual([]);
  });

  test("an outcome that has no room is held and becomes the ending when there is room, and the function does not run again", async () => {
    const heldBack = deferred();
    const refused = (why: string, kinds: unknown[]): void => {
      if (why === "journal_full" && kinds.includes("toolCallEnded")) heldBack.resolve();
    };
    const brain = connect(await serve({ maxJournalPages: PAGES, refused }));
    const begun = deferred();
    const finish = deferred();
    const value = "v".repeat(100_000);
    const { session, runs } = await sessionWith(brain, async () => {
      begun.resolve();
      await finish.promise;
      return value;
    });
    const spare = await ballast(brain);
    const calling = call(session, "a");
    await begun.promise;
    await fill(brain);
    finish.resolve();
    await heldBack.promise;
    expect((await session.getToolCall({ callId: "a" })).outcome).toBeUndefined();

    await spare.delete();
    expect(await calling).toMatchObject({ status: "ok", value });
    expect(runs).toEqual(["a"]);
    expect(kindsOf(session.sessionId)).toEqual(["sessionCreated", "toolCallStarted", "toolCallEnded"]);
    expect(checkJournal(journalFile())).toEqual([]);
  });

  test("an outcome that was held over the end of a server becomes the ending under the next one that has room", async () => {
    const heldBack = deferred();
    const first = await serve({
      maxJournalPages: PAGES,
      refused: (why, kinds) => {
        if (why === "journal_full" && kinds.includes("toolCallEnded")) heldBack.resolve();
      },
    });
    const brain = connect(first);
    const begun = deferred();
    const finish = deferred();
    const value = "v".repeat(100_000);
    const { session, runs } = await sessionWith(brain, async () => {
      begun.resolve();
      await finish.promise;
      return value;
    });
    const calling = call(session, "a");
    await begun.promise;
    await fill(brain);
    finish.resolve();
    await heldBack.promise;
    await first.close();

    await serve({ listen: new URL(first.url).host });
    expect(await calling).toMatchObject({ status: "ok", value });
    expect(runs).toEqual(["a"]);
    expect(kindsOf(session.sessionId)).toEqual(["sessionCreated", "toolCallStarted", "toolCallEnded"]);
    expect(checkJournal(journalFile())).toEqual([]);
  });
});

/** Runs so many times as fast as time does. */
function hurried(times: number): Clock {
  return {
    now: () => systemClock.now(),
    monotonic: () => systemClock.monotonic() * times,
    after: (delayMs, wake) => systemClock.after(delayMs / times, wake),
  };
}

describe("while another process holds the journal", () => {
  function hold(): { release: () => void } {
    const other = new Database(journalFile(), { timeout: 0 });
    other.exec("BEGIN IMMEDIATE");
    closers.push(async () => other.close());
    return { release: () => other.exec("COMMIT") };
  }

  /** A call that runs, and emits once it may. */
  async function emitterIn(brain: Brain): Promise<{ session: Session; calling: Promise<unknown>; go: () => void; emitted: number[] }> {
    const emitted: number[] = [];
    const begun = deferred();
    const go = deferred();
    const emitter = tool({
      name: "emitter",
      description: "Emits once it may.",
      input: z.object({}),
      run: async (_input, ctx) => {
        begun.resolve();
        await go.promise;
        emitted.push(await ctx.emit("tick", 1));
        return "done";
      },
    });
    const session = await brain.sessions.create({ tools: [emitter({ env: app })] });
    const calling = session.callTool({ name: "emitter", environment: app, input: {} });
    await begun.promise;
    return { session, calling, go: go.resolve, emitted };
  }

  test("calls and events wait, reads go on, and everything is as it should be once it lets go", async () => {
    const waits = deferred();
    const server = await serve({
      said: (line) => {
        if (line.includes("held by another process")) waits.resolve();
      },
    });
    const brain = connect(server);
    const { session, runs } = await sessionWith(brain);
    const emitter = await emitterIn(brain);

    const lock = hold();
    const calling = call(session, "a");
    emitter.go();
    await waits.promise;
    const asked = performance.now();
    expect((await brain.sessions.get(session.sessionId)).sessionId).toBe(session.sessionId);
    expect(performance.now() - asked).toBeLessThan(500);
    expect({ runs, emitted: emitter.emitted }).toEqual({ runs: [], emitted: [] });

    lock.release();
    expect(await calling).toMatchObject({ status: "ok", value: "a" });
    expect(await emitter.calling).toMatchObject({ status: "ok", value: "done" });
    expect(runs).toEqual(["a"]);
    expect(kindsOf(emitter.session.sessionId)).toEqual(["sessionCreated", "toolCallStarted", "eventEmitted", "toolCallEnded"]);
    expect(checkJournal(journalFile())).toEqual([]);
  });

  test("for longer than the journal waits a call is refused journal_unavailable and its Tool does not run, and the repeat does", async () => {
    const brain = connect(await serve({ clock: hurried(30), flags: { heartbeatMs: "60s", hostGraceMs: "1h" } }));
    const { session, runs } = await sessionWith(brain);
    const emitter = await emitterIn(brain);
    const lock = hold();
    emitter.go();
    expect(await refusal(call(session, "a"))).toBe("journal_unavailable");
    expect({ runs, emitted: emitter.emitted }).toEqual({ runs: [], emitted: [] });
    expect((await brain.sessions.get(session.sessionId)).sessionId).toBe(session.sessionId);
    expect(kindsOf(session.sessionId)).toEqual(["sessionCreated"]);

    lock.release();
    expect(await call(session, "a")).toMatchObject({ status: "ok", value: "a" });
    expect(await emitter.calling).toMatchObject({ status: "ok", value: "done" });
    expect(runs).toEqual(["a"]);
    expect(kindsOf(emitter.session.sessionId)).toEqual(["sessionCreated", "toolCallStarted", "eventEmitted", "toolCallEnded"]);
    expect(checkJournal(journalFile())).toEqual([]);
  });
});

describe("a server that cannot write", () => {
  // The host comes back soon, and calls wait for it however long that takes.
  const TIMES = ["--heartbeat", "500ms", "--host-grace", "6s", "--host-wait", "60s"];

  interface Ended {
    readonly code: number | null;
    readonly stderr: string;
  }

  function brainServe(options: { limit?: number; asNobody?: boolean; listen?: string }): {
    listening: Promise<string>;
    ended: Promise<Ended>;
  } {
    const { limit, asNobody = false, listen = "127.0.0.1:0" } = options;
    const serve = [asNobody ? AS_NOBODY : MAIN, "serve", "--listen", listen, "--data-dir", join(directory, "data"), ...TIMES];
    // The limit on the size of a file makes true I/O errors, which nothing inside the process could.
    const script = `${limit === undefined ? "" : `ulimit -f ${limit}; `}exec "$0" "$@"`;
    const child = spawn("bash", ["-c", script, process.execPath, ...serve], { stdio: ["ignore", "pipe", "pipe"] });
    let stdout = "";
    let stderr = "";
    child.stderr.on("data", (chunk: Buffer) => {
      stderr += chunk.toString();
    });
    const listening = new Promise<string>((resolve) => {
      child.stdout.on("data", (chunk: Buffer) => {
        stdout += chunk.toString();
        const url = /^brain listening on (\S+)\n/m.exec(stdout)?.[1];
        if (url !== undefined) resolve(url);
      });
    });
    closers.push(async () => {
      child.kill("SIGKILL");
    });
    return { listening, ended: once(child, "close").then(([code]) => ({ code: code as number | null, stderr })) };
  }

  test("because its directory is read-only says so in one line, ends, and leaves the journal as it was", async () => {
    await (await serve()).close();
    const before = await readFile(journalFile());
    await chmod(directory, 0o755);
    await chmod(journalFile(), 0o444);
    await chmod(join(directory, "data"), 0o555);
    const { code, stderr } = await brainServe({ asNobody: true }).ended;
    await chmod(join(directory, "data"), 0o755);
    expect(code).toBe(1);
    expect(stderr).toMatch(/^brain: the data directory \S+\/data cannot be written \(.*\); make it writable for this user, .*\n$/);
    expect((await readFile(journalFile())).equals(before)).toBe(true);
  });

  test("because of an I/O error stops with a clear message, and the next one goes on from the file, every call run once", async () => {
    const broken = brainServe({ limit: 1000 });
    const url = await broken.listening;
    const brain = connect({ url });
    const value = "v".repeat(50_000);
    const { session, runs } = await sessionWith(brain, () => value);
    // More than the file may hold; those that the server leaves without an answer are repeated until there is one.
    const callIds = Array.from({ length: 40 }, (_, nth) => `call-${nth}`);
    const calling = Promise.all(callIds.map((callId) => call(session, callId)));
    const { code, stderr } = await broken.ended;
    expect(code).toBe(70);
    expect(stderr).toContain("could not be written (SQLITE_IOERR");
    expect(stderr).toContain("mend the disk and start the server again");
    expect(checkJournal(journalFile())).toEqual([]);

    await brainServe({ listen: new URL(url).host }).listening;
    // Where the start was in the file and the command on no stream yet, the call is known not to have run.
    const outcomes = await calling;
    const delivered = callIds.filter((_, nth) => outcomes[nth]?.code !== "command_not_delivered");
    expect(delivered.length).toBeGreaterThan(0);
    for (const callId of delivered) expect(outcomes[callIds.indexOf(callId)]).toMatchObject({ status: "ok", value });
    expect([...runs].sort()).toEqual(delivered.sort());
    expect(checkJournal(journalFile())).toEqual([]);
  });
});
