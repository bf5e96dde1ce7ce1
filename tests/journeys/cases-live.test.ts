import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import * as http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hostEnv, isBrainError, type Session } from "@aexhq/brain";
import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { defaultConfig } from "../../server/src/config.js";
import { startServer } from "../../server/src/server.js";
import { CaseGround, kindsOf } from "../support/case-ground.js";
import { CaseHost } from "../support/case-host.js";
import { ConnectJson, type Json } from "../support/connect-json.js";
import { FetchHost } from "../support/fetch-host.js";
import { HttpRelay, type Rewrite } from "../support/http-relay.js";
import { createVirtualClock } from "../support/virtual-clock.js";

let ground: CaseGround;
let wire: ConnectJson;
beforeAll(async () => {
  ground = await CaseGround.open({ flags: ["--heartbeat", "500ms", "--host-grace", "20s"] });
  wire = new ConnectJson(ground.server.url, ground.token);
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

/** One byte a piece, of the stream's text written in another way. */
function byBytes(rewritten: (text: string) => string, opening = ""): () => Rewrite {
  return () => {
    let isFirst = true;
    return function* (bytes) {
      // In Latin-1 every byte is a character, so that characters of several bytes are cut as well.
      const text = `${isFirst ? opening : ""}${rewritten(bytes.toString("latin1"))}`;
      isFirst = false;
      for (const byte of Buffer.from(text, "latin1")) yield Buffer.of(byte);
    };
  };
}

/** Cuts an event's data in two where JSON allows a line break. */
const inTwoLines = (text: string): string => text.replaceAll(/^data: \{/gm, "data: {\ndata: ");
const byteOrderMark = Buffer.from("\ufeff").toString("latin1");

describe("H28: a command stream that is written in an unusual way, in chunks of one byte", () => {
  const sessions: Session[] = [];

  test.each([
    ["LF", byBytes((text) => text)],
    ["CRLF", byBytes((text) => text.replaceAll("\n", "\r\n"))],
    ["bare CR", byBytes((text) => text.replaceAll("\n", "\r"))],
    ["all line ends in turn", byBytes(mixed())],
    ["no blank after the colon", byBytes((text) => text.replaceAll(/^data: /gm, "data:"))],
    ["two data lines an event", byBytes(inTwoLines)],
    ["comments and unknown fields between all lines", byBytes((text) => text.replaceAll(/^data: /gm, ": so\nretry: no\nodd\ndata: "))],
    ["a byte order mark", byBytes((text) => text, byteOrderMark)],
  ])("runs every command once, with equal input: %s", async (_, rewrite) => {
    await withHostBehind(rewrite, async ({ session, runs }) => {
      const inputs = [{ s: "four bytes: 😀😀", ключ: "é\u2028\n\r\n" }, "data: x\n\ndata: y", 7, { deep: [[["x".repeat(5_000)]]] }];
      const endings = await Promise.all(inputs.map((input) => session.callTool({ name: "plain", environment: "app", input })));
      expect(endings).toEqual(inputs.map((value) => ({ status: "ok", value })));
      expect(runs()).toBe(inputs.length);
      sessions.push(session);
    });
  });

  test("does not run a command whose event is unfinished when the stream ends, and the call is known not to have run", async () => {
    let isCut = false;
    const halfOfTheCommand = (): Rewrite =>
      function* (bytes) {
        const at = bytes.indexOf("runTool");
        if (at < 0 || isCut) return void (yield bytes);
        isCut = true;
        // All but its empty line, which is what makes an event of it.
        yield bytes.subarray(0, bytes.lastIndexOf("\n\n") + 1);
        setImmediate(() => behind?.cut("end"));
      };
    let behind: HttpRelay | undefined;
    await withHostBehind(halfOfTheCommand, async ({ session, relay, runs }) => {
      behind = relay;
      const call = { name: "plain", environment: "app", input: "half" };
      expect(await session.callTool(call)).toMatchObject({ status: "error", code: "command_not_delivered", retryable: true });
      expect(isCut).toBe(true);
      expect(runs()).toBe(0);
      expect(await session.callTool(call)).toEqual({ status: "ok", value: "half" });
      expect(runs()).toBe(1);
      sessions.push(session);
    });
  });

  test("leaves every call of these with one ending, over a restart", async () => {
    expect(sessions).toHaveLength(9);
    await ground.expectStanding(...sessions);
  });
});

/** Never CR before LF: those two would be one. */
function mixed(): (text: string) => string {
  const ends = ["\n", "\r\n", "\r", "\r\n"];
  let count = 0;
  return (text) => text.replaceAll("\n", () => ends[count++ % ends.length] ?? "");
}

interface Behind {
  readonly relay: HttpRelay;
  readonly session: Session;
  runs(): number;
}

/** The SDK's own host on the SSE route, behind a relay that rewrites its command stream. */
async function withHostBehind(rewrite: () => Rewrite, body: (behind: Behind) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "brain-live-"));
  const counterFile = join(folder, "runs");
  writeFileSync(counterFile, "");
  await using relay = await HttpRelay.open(1);
  relay.rewrite = rewrite;
  relay.forwardTo(ground.server.url);
  const { hostId, hostToken } = await wire.ask("HostService/RegisterHost", { displayName: "behind" });
  const credentials = { hostId, hostToken };
  await using host = await CaseHost.start({ url: relay.url, token: ground.token, counterFile, hostRoute: "sse", credentials });
  const session = await ground.caller.sessions.create({ tools: [ground.tools.plain({ env: hostEnv({ name: "app", hostId }) })] });
  await body({ relay, session, runs: () => readRuns(counterFile, session.sessionId) });
  expect(host.stderr).toEqual([]);
  rmSync(folder, { recursive: true, force: true });
}

describe("H29: a command stream on which nothing happens for six minutes", () => {
  test("opens at once, is not cached, compressed or buffered, and gives a sign of life every 15 s that is no event", async () => {
    const folder = mkdtempSync(join(tmpdir(), "brain-live-"));
    const clock = createVirtualClock({ startWallMs: Date.UTC(2026, 0, 1) });
    const warnings: unknown[] = [];
    const log = pino({ level: "warn" }, { write: (line: string) => void warnings.push(line) });
    // Heartbeats so rare that the stream has nothing of its own to say.
    const config = { ...defaultConfig(), listen: "127.0.0.1:0", dataDir: folder, heartbeatMs: 600_000, hostGraceMs: 3_600_000 };
    const server = await startServer({ config, apiToken: undefined, log, clock, onFatal: (error) => void warnings.push(error) });
    try {
      const at = new ConnectJson(server.url);
      const host = await FetchHost.register(at);
      const { session } = await at.ask("SessionService/CreateSession", {
        environments: [{ name: "app", host: { hostId: host.hostId } }],
        tools: [{ tool: { name: "echo", inputSchemaJson: "true" }, environment: "app", implementation: { hostFunction: {} } }],
      });

      const since = performance.now();
      const response = await fetch(`${server.url}/v1/hosts/${host.hostId}/commands?instance_id=${host.instanceId}`, {
        headers: { ...host.wire.authorization, "Accept-Encoding": "gzip, deflate, br" },
      });
      // 200 ms is the promise, four times that on a machine that does something else as well.
      expect(performance.now() - since).toBeLessThan(800);
      expect(response.status).toBe(200);
      expect(response.headers.get("content-type")).toMatch(/^text\/event-stream/);
      expect(response.headers.get("cache-control")).toBe("no-cache, no-transform");
      expect(response.headers.get("x-accel-buffering")).toBe("no");
      expect(response.headers.get("content-encoding")).toBeNull();
      expect(response.headers.get("content-length")).toBeNull();

      const read = follow(response);
      await vi.waitFor(() => expect(read.text()).toMatch(/^: .*\n\ndata: \{"attached"/));
      const before = read.text().length;
      const { session: quiet } = await at.ask("SessionService/GetSession", { sessionId: session.sessionId });
      for (let second = 0; second < 360; second += 30) {
        const { length } = read.text();
        await clock.advance(30_000);
        await vi.waitFor(() => expect(read.text().slice(length), `after ${second} s`).toMatch(/^(:\n\n)+$/));
      }
      const silence = read.text().slice(before);
      expect(silence).toMatch(/^(:\n\n)+$/);
      expect(silence.length / 3).toBeGreaterThanOrEqual(23);
      const { session: after } = await at.ask("SessionService/GetSession", { sessionId: session.sessionId });
      expect(after.lastSequence).toBe(quiet.lastSequence);

      const asked = performance.now();
      const call = { sessionId: session.sessionId, callId: "one", name: "echo", environment: "app", inputJson: '"after all"' };
      const ending = at.ask("ToolCallService/CallTool", call);
      await vi.waitFor(() => expect(read.text()).toContain('"runTool"'), { interval: 5 });
      expect(performance.now() - asked).toBeLessThan(1_000);
      await host.report({ sessionId: session.sessionId, callSequence: 2 }, { ok: { valueJson: '"at once"' } });
      expect(await ending).toMatchObject({ callSequence: 2, outcome: { ok: { valueJson: '"at once"' } } });
      expect(warnings).toEqual([]);
      read.leave();
    } finally {
      // What still waits in virtual time waits for this.
      const closing = server.close();
      await clock.advance(60_000);
      await closing;
      rmSync(folder, { recursive: true, force: true });
    }
  });

  test("sends its first bytes through a proxy that holds small pieces back unless it is told not to", async () => {
    const host = await FetchHost.register(wire);
    await using proxy = await HoldingProxy.open(ground.server.url);
    const response = await fetch(`${proxy.url}/v1/hosts/${host.hostId}/commands?instance_id=${host.instanceId}`, {
      headers: host.wire.authorization,
    });
    const read = follow(response);
    await vi.waitFor(() => expect(read.text()).toContain('"attached"'));
    read.leave();
  });
});

function readRuns(counterFile: string, sessionId: string): number {
  return readFileSync(counterFile, "utf8")
    .split("\n")
    .filter((line) => line.startsWith(`${sessionId}/`)).length;
}

/** All that has come of a response so far. */
function follow(response: Response): { text(): string; leave(): void } {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let text = "";
  const reading = async (): Promise<void> => {
    for (;;) {
      const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
      if (done) return;
      text += decoder.decode(value, { stream: true });
    }
  };
  reading().catch(() => undefined);
  return { text: () => text, leave: () => void reader?.cancel().catch(() => undefined) };
}

/** Holds back bodies under 4 KB, as proxies do, where the response does not forbid it. */
class HoldingProxy {
  readonly #server: http.Server;

  private constructor(target: URL) {
    this.#server = http.createServer((req, res) => {
      const { hostname, port, host } = target;
      const upstream = http.request({ hostname, port, path: req.url, method: req.method, headers: { ...req.headers, host }, agent: false });
      req.pipe(upstream);
      res.on("close", () => upstream.destroy());
      upstream.on("error", () => res.destroy());
      upstream.on("response", (answer) => {
        const isHeld = answer.headers["x-accel-buffering"] !== "no";
        let held = Buffer.alloc(0);
        res.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.on("data", (bytes: Buffer) => {
          held = Buffer.concat([held, bytes]);
          if (isHeld && held.length < 4096) return;
          res.write(held);
          held = Buffer.alloc(0);
        });
        answer.on("end", () => res.end(held));
      });
    });
  }

  static async open(target: string): Promise<HoldingProxy> {
    const proxy = new HoldingProxy(new URL(target));
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as { port: number }).port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

describe("H30: a cursor or a limit that is none", () => {
  const read = (message: Json) => wire.post("SessionService/ListRecords", message);

  test("is refused as an argument, on pages and live, and never answered with everything or an internal error", async () => {
    const session = await ground.session("plain");
    await session.callTool({ name: "plain", environment: "app", input: 1 });
    const { sessionId } = session;
    const { lastSequence } = await session.describe();
    expect(lastSequence).toBe(3);
    for (const afterSequence of [-1, "abc", 1.5, 2 ** 53, "9007199254740992", lastSequence + 1, lastSequence + 10, 2 ** 32 - 1]) {
      expect([afterSequence, await read({ sessionId, afterSequence })]).toEqual([
        afterSequence,
        expect.objectContaining({ httpStatus: 400, code: "invalid_argument" }),
      ]);
      const watched = await wire.post("SessionService/WatchRecords", { sessionId, afterSequence }).catch(() => undefined);
      expect(watched?.body?.record).toBeUndefined();
      const frames = await wire.frames("SessionService/WatchRecords", { sessionId, afterSequence });
      expect([afterSequence, frames.messages, frames.end.code]).toEqual([afterSequence, [], "invalid_argument"]);
    }
    for (const pageSize of [-5, 1e9, 1.5, "many", 1_001]) {
      expect([pageSize, await read({ sessionId, pageSize })]).toEqual([
        pageSize,
        expect.objectContaining({ httpStatus: 400, code: "invalid_argument" }),
      ]);
    }
    // 0 leaves it to the server.
    expect((await read({ sessionId, pageSize: 0 })).body.records).toHaveLength(3);
    for (const cursor of [-1, "abc" as never, 1.5, 2 ** 53]) expect(() => session.records(cursor)).toThrow("is no sequence");
    const refused: unknown = await session
      .records(lastSequence + 10)
      .next()
      .catch((error: unknown) => error);
    expect(isBrainError(refused) && refused.reason).toBe("invalid_argument");
    await ground.expectStanding(session);
  });

  test("at the last record gives an empty page, and goes on live with the next record", async () => {
    const session = await ground.session("plain");
    const { sessionId } = session;
    const page = await read({ sessionId, afterSequence: 1 });
    expect(page).toMatchObject({ httpStatus: 200, body: { lastSequence: 1 } });
    expect(page.body.records ?? []).toEqual([]);
    const live = session.records(1);
    const next = live.next();
    await session.callTool({ name: "plain", environment: "app", input: 1 });
    expect((await next).value?.sequence).toBe(2);
    expect((await live.next()).value?.sequence).toBe(3);
    await live.return?.();
    expect(kindsOf(await ground.records(session))).toEqual(["sessionCreated", "toolCallStarted", "toolCallEnded"]);
    await ground.expectStanding(session);
  });

  test("of a session that never was is not found, and no endless tail", async () => {
    const sessionId = crypto.randomUUID();
    expect(await read({ sessionId })).toMatchObject({ httpStatus: 404, reason: "session_not_found" });
    const { messages, end } = await wire.frames("SessionService/WatchRecords", { sessionId });
    expect([messages, end.code, end.reason]).toEqual([[], "not_found", "session_not_found"]);
    const session = await ground.session("plain");
    await session.delete();
    const refused: unknown = await session
      .records()
      .next()
      .catch((error: unknown) => error);
    expect(isBrainError(refused) && refused.reason).toBe("session_not_found");
  });
});
