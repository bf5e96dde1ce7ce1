import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Brain, hostEnv, isBrainError, jsonSchema, type Placement, tool } from "@aexhq/brain";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { BrainCommand, type BrainCommandOptions } from "../support/brain-command.js";
import { timed } from "../support/case-ground.js";
import { ConnectJson } from "../support/connect-json.js";
import { type Deferred, deferred } from "../support/deferred.js";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const ANY_PORT = ["--listen", "127.0.0.1:0"];

let folder: string;
let dataDir: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "brain-cli-"));
  dataDir = join(folder, "data");
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

function serve(flags: readonly string[], options: BrainCommandOptions = {}): BrainCommand {
  return new BrainCommand(["serve", ...flags], options);
}

/** On a free port, with the data directory of this test. */
const serveHere = (flags: readonly string[] = [], options: BrainCommandOptions = {}): BrainCommand =>
  serve([...ANY_PORT, "--data-dir", dataDir, ...flags], options);

/** A process that cannot serve: it ends by itself, with one line. */
async function failure(flags: readonly string[], options: BrainCommandOptions = {}): Promise<string> {
  await using command = serve(flags, options);
  const code = await command.exited();
  expect(command.stdout).toBe("");
  expect(command.stderr, "what it says").toHaveLength(1);
  expect(code).not.toBe(0);
  expect(typeof code, "it ends by itself").toBe("number");
  return command.stderr[0] ?? "";
}

/** A function that runs until it is told to finish. */
function holding(): { placement: Placement; running: Deferred<void>; finish: Deferred<string>; runs: () => number } {
  const running = deferred();
  const finish = deferred<string>();
  let runs = 0;
  const hold = tool({
    name: "hold",
    description: "Waits for the test.",
    input: jsonSchema(true),
    run: async () => {
      runs++;
      running.resolve();
      return await finish.promise;
    },
  });
  return { placement: hold({ env: hostEnv({ name: "app" }) }), running, finish, runs: () => runs };
}

const quiet = { log: () => undefined };
const HOLD = { callId: "one", name: "hold", environment: "app", input: {} };

describe("brain serve", () => {
  test("prints one line on stdout once it can serve, and JSON lines on stderr", async () => {
    await using server = serveHere();
    const url = await server.listening();
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:[1-9]\d*$/);
    expect(await (await fetch(`${url}/healthz`)).json()).toEqual({ serving: true });
    server.signal("SIGTERM");
    expect(await server.exited()).toBe(0);
    expect(server.stdout).toBe(`brain listening on ${url}\n`);
    expect(server.stderr.length).toBeGreaterThan(0);
    for (const line of server.stderr) {
      expect(JSON.parse(line)).toMatchObject({ level: "info", time: expect.stringMatching(/^\d{4}-\d\d-\d\dT/), msg: expect.any(String) });
    }
    // What it is told to say less of, it says less of.
    await using silent = serveHere(["--log-level", "silent"]);
    await silent.listening();
    silent.signal("SIGTERM");
    expect(await silent.exited()).toBe(0);
    expect(silent.stderr).toEqual([]);
  });

  test("listens on the port it is told, and says so when that is taken", async () => {
    await using first = serveHere();
    const { host } = new URL(await first.listening());
    const said = await failure(["--listen", host, "--data-dir", join(folder, "other")]);
    expect(said).toContain(host);
    expect(said).toContain("in use");
    first.signal("SIGTERM");
    await first.exited();
    await using second = serve(["--listen", host, "--data-dir", dataDir]);
    expect(await second.listening()).toBe(`http://${host}`);
  });

  test.each(["SIGTERM", "SIGINT"] as const)("with nothing in flight ends at once on %s, streams and all", async (signal) => {
    await using server = serveHere();
    const url = await server.listening();
    const brain = new Brain({ baseUrl: url, ...quiet });
    const { placement } = holding();
    const session = await brain.sessions.create({ tools: [placement] });
    const following = session.records(1).next();
    const ms = await timed(async () => {
      server.signal(signal);
      expect(await server.exited()).toBe(0);
    });
    expect(ms).toBeLessThan(3_000);
    await brain.close({ withinMs: 0 });
    expect(await following).toEqual({ done: true, value: undefined });
  });

  test("lets a call in flight finish on SIGTERM, takes no new one, and ends with 0", async () => {
    await using server = serveHere();
    const url = await server.listening();
    const { placement, running, finish } = holding();
    const brain = new Brain({ baseUrl: url, ...quiet });
    const session = await brain.sessions.create({ tools: [placement] });
    const call = session.callTool(HOLD);
    await running.promise;
    server.signal("SIGTERM");
    await server.said("draining");
    const wire = new ConnectJson(url);
    const refused = await wire.post("ToolCallService/CallTool", {
      sessionId: session.sessionId,
      callId: "two",
      name: "hold",
      environment: "app",
      inputJson: "{}",
    });
    expect(refused).toMatchObject({ httpStatus: 503, reason: "server_draining" });
    expect(await wire.post("SessionService/CreateSession", {})).toMatchObject({ httpStatus: 503, reason: "server_draining" });
    finish.resolve("finished");
    expect(await call).toEqual({ status: "ok", value: "finished" });
    expect(await server.exited()).toBe(0);
    await brain.close({ withinMs: 0 });

    await using again = serveHere();
    const read = new Brain({ baseUrl: await again.listening(), ...quiet });
    const kept = await read.sessions.get(session.sessionId);
    expect(await kept.getToolCall({ callId: "one" })).toMatchObject({ outcome: { status: "ok", value: "finished" } });
    expect((await kept.describe()).lastSequence).toBe(3);
    await read.close();
  });

  test("waits for calls in flight no longer than --drain, and leaves them open for the next start", async () => {
    await using server = serveHere(["--drain", "200ms"]);
    const url = await server.listening();
    const { placement, running, finish, runs } = holding();
    const brain = new Brain({ baseUrl: url, ...quiet });
    const session = await brain.sessions.create({ tools: [placement] });
    const call = session.callTool(HOLD);
    await running.promise;
    const ms = await timed(async () => {
      server.signal("SIGTERM");
      expect(await server.exited()).toBe(0);
    });
    expect(ms).toBeLessThan(5_000);
    await using again = serve(["--listen", new URL(url).host, "--data-dir", dataDir]);
    await again.listening();
    finish.resolve("survived");
    expect(await call).toEqual({ status: "ok", value: "survived" });
    expect(runs()).toBe(1);
    await brain.close();
  });

  test("ends at once on a second SIGTERM, and says so", async () => {
    await using server = serveHere();
    const url = await server.listening();
    const { placement, running } = holding();
    const brain = new Brain({ baseUrl: url, ...quiet });
    const session = await brain.sessions.create({ tools: [placement] });
    const call = session.callTool(HOLD).catch((error: unknown) => error);
    await running.promise;
    server.signal("SIGTERM");
    await server.said("draining");
    server.signal("SIGTERM");
    expect(await server.exited()).toBe(1);
    expect(server.stderr.at(-1)).toContain("stopping at once");
    await brain.close({ withinMs: 0 });
    const refused = await call;
    expect(isBrainError(refused) && refused.reason).toBe("closed");
  });
});

describe("the data directory", () => {
  test("belongs to one server: a second one is refused by its name, and the first goes on", async () => {
    await using first = serveHere();
    const url = await first.listening();
    const said = await failure([...ANY_PORT, "--data-dir", dataDir]);
    expect(said).toContain(dataDir);
    expect(said).toContain("in use by another Brain server");
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    // Whatever ended its owner, the directory is free again.
    first.signal("SIGKILL");
    await first.exited();
    await using next = serveHere();
    await next.listening();
  });

  test("that no file system can make is refused within 5 s, in one line that names it", async () => {
    let said = "";
    const ms = await timed(async () => {
      said = await failure([...ANY_PORT, "--data-dir", "/proc/x"]);
    });
    expect(ms).toBeLessThan(5_000);
    expect(said).toContain("/proc/x");
    writeFileSync(join(folder, "file"), "not a directory");
    for (const bad of [join(folder, "file"), join(folder, "file", "below")]) {
      expect(await failure([...ANY_PORT, "--data-dir", bad])).toContain(bad);
    }
  });

  test("is made with all that is missing above it, for this user alone", async () => {
    dataDir = join(folder, "some", "where", "deep");
    await using server = serveHere();
    await server.listening();
    expect(existsSync(join(dataDir, "journal.sqlite3"))).toBe(true);
  });

  test("keeps sessions, their records and their hosts over a restart", async () => {
    await using first = serveHere();
    const brain = new Brain({ baseUrl: await first.listening(), ...quiet });
    const { placement, finish } = holding();
    finish.resolve("done");
    const session = await brain.sessions.create({ tools: [placement], labels: { kept: "yes" } });
    const ending = await session.callTool(HOLD);
    const before = await session.describe();
    const credentials = await brain.credentials();
    await brain.close();
    first.signal("SIGTERM");
    await first.exited();

    await using second = serveHere();
    await using again = new Brain({ baseUrl: await second.listening(), credentials, ...quiet });
    const { sessions } = await again.sessions.list({ labels: { kept: "yes" } });
    expect(sessions.map(({ sessionId }) => sessionId)).toEqual([session.sessionId]);
    const kept = await again.sessions.get(session.sessionId, { tools: [placement] });
    expect(await kept.describe()).toEqual(before);
    expect(await kept.callTool(HOLD)).toEqual(ending);
    expect(await kept.callTool({ ...HOLD, callId: "two" })).toEqual(ending);
  });

  test("tells the true ending of a call whose server was killed while it ran", async () => {
    await using first = serveHere();
    const url = await first.listening();
    const { placement, running, finish, runs } = holding();
    const brain = new Brain({ baseUrl: url, ...quiet });
    const session = await brain.sessions.create({ tools: [placement] });
    const call = session.callTool(HOLD);
    await running.promise;
    first.signal("SIGKILL");
    expect(await first.exited()).toBe("SIGKILL");
    finish.resolve("it did happen");
    await using second = serve(["--listen", new URL(url).host, "--data-dir", dataDir]);
    await second.listening();
    expect(await call).toEqual({ status: "ok", value: "it did happen" });
    expect(runs()).toBe(1);
    expect((await session.describe()).lastSequence).toBe(3);
    await brain.close();
  });
});

test("a journal written in a thread is as durable as one written inline, and either goes on with the other's", async () => {
  const { placement, finish } = holding();
  finish.resolve("done");
  let sessionId = "";
  for (const [index, writer] of ["thread", "inline", "thread"].entries()) {
    await using server = serveHere(["--journal-writer", writer]);
    await using brain = new Brain({ baseUrl: await server.listening(), ...quiet });
    if (sessionId !== "") {
      const kept = await brain.sessions.get(sessionId);
      expect(await kept.getToolCall({ callId: "one" })).toMatchObject({ outcome: { status: "ok", value: "done" } });
      expect((await kept.describe()).lastSequence).toBe(3);
    }
    const session = await brain.sessions.create({ tools: [placement], labels: { index: String(index) } });
    expect(await session.callTool(HOLD)).toEqual({ status: "ok", value: "done" });
    sessionId = session.sessionId;
    await brain.close();
    server.signal("SIGKILL");
    await server.exited();
  }
});

describe("the API token", () => {
  const asks = async (url: string, token?: string): Promise<number> =>
    (await new ConnectJson(url, token).post("SessionService/ListSessions", {})).httpStatus;

  test("comes from BRAIN_API_TOKEN, and is asked for then", async () => {
    await using server = serveHere([], { environment: { BRAIN_API_TOKEN: "from-the-environment" } });
    const url = await server.listening();
    expect(await asks(url)).toBe(401);
    expect(await asks(url, "wrong")).toBe(401);
    expect(await asks(url, "from-the-environment")).toBe(200);
    expect(server.stderr.join("\n") + server.stdout).not.toContain("from-the-environment");
  });

  test("comes from --api-token-file before BRAIN_API_TOKEN, without its line end", async () => {
    const file = join(folder, "token");
    writeFileSync(file, "from-a-file\n");
    await using server = serveHere(["--api-token-file", file], { environment: { BRAIN_API_TOKEN: "from-the-environment" } });
    const url = await server.listening();
    expect(await asks(url, "from-a-file")).toBe(200);
    expect(await asks(url, "from-the-environment")).toBe(401);
  });

  test("that is missing, empty or no token stops the start, naming where it was looked for", async () => {
    const missing = join(folder, "missing");
    expect(await failure([...ANY_PORT, "--data-dir", dataDir, "--api-token-file", missing])).toContain(`--api-token-file ${missing}`);
    const empty = join(folder, "empty");
    writeFileSync(empty, "\n");
    expect(await failure([...ANY_PORT, "--data-dir", dataDir, "--api-token-file", empty])).toContain(`--api-token-file ${empty}`);
    const environment = { BRAIN_API_TOKEN: "two words" };
    const said = await failure([...ANY_PORT, "--data-dir", dataDir], { environment });
    expect(said).toContain("BRAIN_API_TOKEN");
    expect(said).not.toContain("two words");
    expect(existsSync(dataDir)).toBe(false);
  });

  test("is a must on an address that other machines reach", async () => {
    const said = await failure(["--listen", "0.0.0.0:0", "--data-dir", dataDir]);
    expect(said).toContain("--listen 0.0.0.0:0");
    expect(said).toContain("BRAIN_API_TOKEN");
    expect(existsSync(dataDir)).toBe(false);
    await using server = serve(["--listen", "0.0.0.0:0", "--data-dir", dataDir], { environment: { BRAIN_API_TOKEN: "a-token" } });
    const url = await server.listening();
    expect(await asks(`http://127.0.0.1:${new URL(url).port}`, "a-token")).toBe(200);
  });

  test("is no flag's value, so that no process list shows it", async () => {
    expect(await failure([...ANY_PORT, "--data-dir", dataDir, "--api-token", "secret"])).toContain("--api-token");
  });
});

describe("flags", () => {
  test.each([
    [["--heartbeat", "fast"], "--heartbeat"],
    [["--heartbeat", "1ms"], "--heartbeat"],
    [["--tool-timeout", "-1s"], "--tool-timeout"],
    [["--tool-timeout", "5"], "--tool-timeout"],
    [["--host-concurrency", "0"], "--host-concurrency"],
    [["--host-concurrency", "1.5"], "--host-concurrency"],
    [["--host-grace", "1s", "--heartbeat", "1s"], "--host-grace"],
    [["--journal-writer", "quill"], "--journal-writer"],
    [["--log-level", "loud"], "--log-level"],
    [["--listen", "nowhere"], "--listen"],
    [["--listen", "127.0.0.1:99999"], "--listen"],
    [["--public-url", "brain.example.com"], "--public-url"],
    [["--allow-origin", "*"], "--allow-origin"],
    [["--tls-cert", "cert.pem"], "--tls-cert"],
    [["--tls-cert", "/missing.pem", "--tls-key", "/missing.pem"], "/missing.pem"],
    [["--no-such-flag"], "--no-such-flag"],
    [["--heartbeat"], "--heartbeat"],
    [["surplus"], "argument"],
  ])("that cannot be used are named, and nothing is started: %j", async (flags, named) => {
    expect(await failure([...ANY_PORT, "--data-dir", dataDir, ...flags])).toContain(named);
  });

  test("win over environment variables, and those over the defaults", async () => {
    const environment = {
      BRAIN_LISTEN: "127.0.0.1:0",
      BRAIN_DATA_DIR: dataDir,
      BRAIN_TOOL_TIMEOUT: "7s",
      BRAIN_HEARTBEAT: "2s",
      BRAIN_HOST_GRACE: "",
    };
    await using server = serve(["--heartbeat", "3s"], { environment });
    const wire = new ConnectJson(await server.listening());
    expect(existsSync(join(dataDir, "journal.sqlite3"))).toBe(true);
    const { session } = await wire.ask("SessionService/CreateSession", {});
    expect(session.defaultToolTimeout).toBe("7s");
    const { hostId, hostToken } = await wire.ask("HostService/RegisterHost", {});
    const attached = await fetch(`${wire.url}/v1/hosts/${hostId}/commands?instance_id=one`, {
      headers: { Authorization: `Bearer ${hostToken}` },
    });
    const reader = attached.body?.pipeThrough(new TextDecoderStream()).getReader();
    let read = "";
    while (!read.includes("data: ")) read += (await reader?.read())?.value ?? "";
    await reader?.cancel();
    expect(read).toContain('"heartbeatInterval":"3s"');
    expect(read).toContain('"grace":"30s"');
  });

  test("in an environment variable that cannot be used are named as that variable", async () => {
    const said = await failure([...ANY_PORT, "--data-dir", dataDir], { environment: { BRAIN_HEARTBEAT: "fast" } });
    expect(said).toContain("BRAIN_HEARTBEAT");
  });
});

describe("npx brain", () => {
  const brain = (...args: string[]) => promisify(execFile)("npx", ["--no-install", "brain", ...args], { cwd: ROOT });

  test("--version says the version of the package, and --help how to serve", async () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, "server/package.json"), "utf8")) as { version: string };
    expect((await brain("--version")).stdout).toBe(`${version}\n`);
    expect((await brain("--help")).stdout).toContain("serve");
    const { stdout } = await brain("serve", "--help");
    for (const flag of ["--listen", "--data-dir", "--api-token-file", "--tool-timeout"]) expect(stdout).toContain(flag);
    expect(stdout).toContain("BRAIN_TOOL_TIMEOUT");
  });
});
