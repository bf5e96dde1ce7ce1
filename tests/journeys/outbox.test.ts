import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Brain, hostEnv, type Outcome, type Session, tool } from "@aexhq/brain";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { z } from "zod";
import { expectLawful, kindsOf, recordsUntil } from "../support/case-ground.js";
import { HostProcess } from "../support/host-process.js";
import { ServerProcess } from "../support/server-process.js";
import { Relay } from "../torture/relay.js";

const TOKEN = "an-api-token";
const HOST = new URL("../support/outbox-host.ts", import.meta.url);

const hold = tool({
  name: "hold",
  description: "Waits to be told how to finish.",
  input: z.object({}),
  run: (): never => {
    throw new Error("this process only places the Tool");
  },
});

let folder: string;
let outbox: string;
let relay: Relay;
let server: ServerProcess;
let caller: Brain;
let credentials: { hostId: string; hostToken: string };
let hosts: HostProcess[];

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "brain-outbox-"));
  outbox = join(folder, "host", "outbox");
  writeFileSync(join(folder, "runs"), "");
  hosts = [];
  relay = await Relay.open();
});
afterEach(async () => {
  await caller.close();
  for (const host of hosts) {
    await host[Symbol.asyncDispose]();
    expect(host.stderr).toEqual([]);
  }
  const runs = readFileSync(join(folder, "runs"), "utf8").split("\n").filter(Boolean);
  expect(runs.length, "runs of one call").toBe(new Set(runs).size);
  await relay[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

async function begin(options: { grace?: string } = {}): Promise<Session> {
  const flags = ["--heartbeat", "100ms", "--host-grace", options.grace ?? "20s", "--public-url", relay.url];
  server = await ServerProcess.start({ apiToken: TOKEN, flags });
  relay.forwardTo(server.url);
  await using registrar = new Brain({ baseUrl: server.url, token: TOKEN });
  credentials = await registrar.credentials();
  // Another Brain object places it: the one that has the credentials would serve it itself.
  caller = new Brain({ baseUrl: server.url, token: TOKEN });
  return await caller.sessions.create({ tools: [hold({ env: hostEnv({ name: "app", hostId: credentials.hostId }) })] });
}

async function startHost(options: { route?: string; url?: string } = {}): Promise<HostProcess> {
  const host = new HostProcess(HOST, {
    BRAIN_URL: options.url ?? relay.url,
    HOST_ID: credentials.hostId,
    HOST_TOKEN: credentials.hostToken,
    HOST_ROUTE: options.route ?? "auto",
    OUTBOX: outbox,
    RUNS_FILE: join(folder, "runs"),
  });
  hosts.push(host);
  return host;
}

/** The next line that has the text; others are passed over. */
async function said(host: HostProcess, text: string): Promise<string> {
  for (;;) {
    const line = await host.line();
    if (line.includes(text)) return line;
  }
}

function call(session: Session): Promise<Outcome> {
  return session.callTool({ callId: "one", name: "hold", environment: "app", input: {}, timeoutMs: 60_000 });
}

/** Resolves when the file has as many outcomes as that. */
async function kept(count: number): Promise<void> {
  await vi.waitFor(() => expect(readFileSync(outbox, "utf8").match(/"outcome":/g) ?? []).toHaveLength(count), 10_000);
}

async function emptied(): Promise<void> {
  await vi.waitFor(() => expect(readFileSync(outbox, "utf8").match(/"answered":/g)).not.toBeNull(), 10_000);
}

async function expectRecords(session: Session, kinds: string[]): Promise<void> {
  const { lastSequence } = await session.describe();
  const records = await recordsUntil(session, ({ sequence }) => sequence >= lastSequence);
  expect(kindsOf(records)).toEqual(kinds);
  expectLawful(records);
}

describe.each(["attach", "watch", "sse"])("a process that crashes with a finished outcome, on the route %s", (route) => {
  test("leaves it to the next process with its outbox, and it becomes the ending", async () => {
    const session = await begin();
    const first = await startHost({ route });
    await said(first, "serving");
    const ending = call(session);
    await said(first, "running");
    // Nothing gets through any more, and nobody is told.
    relay.freeze();
    first.say("the only value");
    await kept(1);
    first.kill();
    await first.exitCode();
    relay.thaw();
    relay.cut("reset");

    const second = await startHost({ route });
    await said(second, "1 outcome that an earlier process had no answer to");
    expect(await ending).toEqual({ status: "ok", value: "the only value" });
    await emptied();
    await expectRecords(session, ["sessionCreated", "toolCallStarted", "toolCallEnded"]);

    // It serves on, and leaves nothing behind.
    const again = session.callTool({ name: "hold", environment: "app", input: {} });
    await said(second, "running");
    second.say("more");
    expect(await again).toEqual({ status: "ok", value: "more" });
    second.say("leave");
    await said(second, "left");
    expect(readFileSync(outbox, "utf8")).toBe("brain outbox 1\n");
  });
});

describe("an outbox", () => {
  test("also outlives Brain: both are killed, and the outcome becomes the ending when both are back", async () => {
    const session = await begin();
    const first = await startHost();
    await said(first, "serving");
    const ending = call(session);
    await said(first, "running");
    await server.stop("SIGKILL");
    first.say("survives both");
    await kept(1);
    first.kill();
    await first.exitCode();
    const second = await startHost();
    await said(second, "1 outcome");
    server = await server.restart();
    expect(await ending).toEqual({ status: "ok", value: "survives both" });
    await emptied();
    await expectRecords(session, ["sessionCreated", "toolCallStarted", "toolCallEnded"]);
  });

  test("that comes back after the grace has its outcome kept beside the ending", async () => {
    const session = await begin({ grace: "600ms" });
    const first = await startHost();
    await said(first, "serving");
    const ending = call(session);
    await said(first, "running");
    relay.freeze();
    first.say("too late");
    await kept(1);
    first.kill();
    expect(await ending).toMatchObject({ status: "unknown", code: "host_instance_lost" });
    relay.thaw();
    relay.cut("reset");
    await startHost();
    await emptied();
    const { outcome, lateOutcome } = await session.getToolCall({ callId: "one" });
    expect([outcome, lateOutcome]).toEqual([await ending, { status: "ok", value: "too late" }]);
    await expectRecords(session, ["sessionCreated", "toolCallStarted", "toolCallEnded", "toolCallLateOutcome"]);
  });

  test("has the outcome before the emits that nobody waited for are answered", async () => {
    const session = await begin();
    const first = await startHost();
    await said(first, "serving");
    const ending = call(session);
    await said(first, "running");
    relay.freeze();
    first.say("emit and go");
    await kept(1);
    first.kill();
    await first.exitCode();
    relay.cut("reset");
    relay.thaw();
    await startHost();
    expect(await ending).toEqual({ status: "ok", value: "emit and go" });
  });

  test("is left to the next process by one that closes while Brain cannot be reached", async () => {
    const session = await begin();
    const first = await startHost();
    await said(first, "serving");
    const ending = call(session);
    await said(first, "running");
    relay.freeze();
    first.say("said at the door");
    await kept(1);
    first.say("leave");
    await said(first, "1 finished outcome stays in the outbox");
    await said(first, "left");
    expect(await first.exitCode()).toBe(0);
    relay.thaw();
    await startHost();
    expect(await ending).toEqual({ status: "ok", value: "said at the door" });
    await expectRecords(session, ["sessionCreated", "toolCallStarted", "toolCallEnded"]);
  });

  test("belongs to one live process: of two that start at once, one serves and the other is refused by its name", async () => {
    await begin();
    for (let round = 0; round < 3; round++) {
      const two = await Promise.all([startHost(), startHost()]);
      const lines = await Promise.all(two.map((host) => host.line()));
      const serving = lines.findIndex((line) => line.startsWith("serving"));
      expect(lines[1 - serving]).toMatch(/^refused outbox_in_use .*host\/outbox is in use by another process/);
      // Whatever it dies of, the next one gets it at once.
      if (round % 2 === 0) two[serving]?.kill();
      else two[serving]?.say("leave");
      await two[serving]?.exitCode();
      two[1 - serving]?.kill();
    }
    await said(await startHost(), "serving");
  });

  test("on a full disk costs no outcome, says so, and is used again when there is room", async () => {
    const session = await begin();
    const host = await startHost();
    const [, pid = ""] = (await said(host, "serving")).split(" ");
    const limit = (bytes: string): void => void execFileSync("prlimit", ["--pid", pid, `--fsize=${bytes}:unlimited`]);
    const finish = async (order: string): Promise<Outcome> => {
      const ending = session.callTool({ name: "hold", environment: "app", input: {}, timeoutMs: 30_000 });
      await said(host, "running");
      host.say(order);
      return await ending;
    };
    limit("65536");
    expect(await finish("long 100000")).toEqual({ status: "ok", value: "x".repeat(100_000) });
    expect(await said(host, "log")).toMatch(/cannot be written .*reported from memory meanwhile.*make room/);
    limit("unlimited");
    expect(await finish("short")).toEqual({ status: "ok", value: "short" });
    expect(await said(host, "log")).toContain("can be written again");
  });

  test("that is damaged is set aside by name, and its whole outcomes are reported", async () => {
    const session = await begin();
    const first = await startHost();
    await said(first, "serving");
    const calls = ["a", "b", "c"].map((callId) =>
      session.callTool({ callId, name: "hold", environment: "app", input: {}, timeoutMs: 6_000 }),
    );
    for (const _ of calls) await said(first, "running");
    relay.freeze();
    for (const value of ["value a", "value b", "value c"]) first.say(value);
    await kept(3);
    first.kill();
    await first.exitCode();
    relay.cut("reset");
    relay.thaw();
    const bytes = readFileSync(outbox);
    bytes[bytes.indexOf("value b")] = 0;
    writeFileSync(outbox, bytes);
    const second = await startHost();
    expect(await said(second, "log")).toMatch(
      /is damaged in 1 lines: it is kept as \S+outbox\.corrupt-\S+, and 2 outcomes in it are whole/,
    );
    const endings = await Promise.all(calls);
    const values = endings.flatMap((ending) => (ending.status === "ok" ? [ending.value] : []));
    expect(values.sort()).toEqual(["value a", "value c"]);
    expect(endings.filter(({ status }) => status === "timeout")).toHaveLength(1);
  });
});

test("an outbox without credentials, or without a name, is refused at once", async () => {
  await begin();
  const make = (options: object) => () => new Brain({ baseUrl: server.url, token: TOKEN, ...options });
  expect(make({ outbox: "/tmp/outbox" })).toThrow("without credentials the next process would be another host");
  expect(make({ outbox: "", credentials })).toThrow('outbox "" is no path');
  expect(make({ outbox: 7, credentials })).toThrow("outbox 7 is no path");
});

test("an outbox that cannot be used is refused before a session is created that would need it", async () => {
  await begin();
  writeFileSync(join(folder, "notes"), "my notes");
  await using brain = new Brain({ baseUrl: server.url, token: TOKEN, credentials, outbox: join(folder, "notes") });
  const before = (await brain.sessions.list()).sessions.length;
  await expect(brain.sessions.create({ tools: [hold({ env: hostEnv({ name: "app" }) })] })).rejects.toMatchObject({
    reason: "outbox_unusable",
    message: expect.stringContaining(`${join(folder, "notes")} is no outbox; nothing in it was changed`),
  });
  expect((await brain.sessions.list()).sessions.length).toBe(before);
  expect(readFileSync(join(folder, "notes"), "utf8")).toBe("my notes");
});

test("the process in the guide serves sessions it did not create, and leaves an empty outbox", async () => {
  await begin();
  const resize = tool({
    name: "resize",
    description: "Resize an image.",
    input: z.object({ image: z.string(), width: z.number().int().positive() }),
    output: z.object({ image: z.string() }),
    run: (): never => {
      throw new Error("this process only places the Tool");
    },
  });
  const program = new URL("../../examples/host-with-outbox.ts", import.meta.url);
  const { hostId, hostToken } = credentials;
  const host = new HostProcess(program, { BRAIN_URL: server.url, HOST_ID: hostId, HOST_TOKEN: hostToken, OUTBOX: outbox });
  hosts.push(host);
  await said(host, "serving");
  const session = await caller.sessions.create({ tools: [resize({ env: hostEnv({ name: "images", hostId }) })] });
  const ending = await session.callTool({ name: "resize", environment: "images", input: { image: "cat.png", width: 80 } });
  expect(ending).toEqual({ status: "ok", value: { image: "80/cat.png" } });
  await emptied();
});
