import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type FileHandle, open as openFile } from "node:fs/promises";
import * as http from "node:http";
import * as net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Clock } from "./clock.js";
import { HostConnection } from "./host.js";
import { RouteChoice } from "./host-routes/choice.js";
import type { HostRouteName } from "./host-routes/route.js";
import { Outbox } from "./outbox.js";
import { wireOk } from "./outcome.js";
import { jsonSchema } from "./schema.js";
import { ServedTools } from "./served-tools.js";
import { declaredTool, tool } from "./tool.js";

/** Stands until it is moved; then every timer that is due goes off, in order. */
class MovedClock implements Clock {
  #nowMs = 0;
  readonly #armed = new Map<() => void, number>();

  monotonic(): number {
    return this.#nowMs;
  }

  after(delayMs: number, wake: () => void): () => void {
    const own = (): void => wake();
    this.#armed.set(own, this.#nowMs + delayMs);
    return () => this.#armed.delete(own);
  }

  pass(milliseconds: number): void {
    this.#nowMs += milliseconds;
    for (const [wake, dueMs] of [...this.#armed].sort(([, one], [, other]) => one - other)) {
      if (dueMs <= this.#nowMs && this.#armed.delete(wake)) wake();
    }
  }
}

interface Asked {
  readonly what: string;
  readonly body: { heldCalls?: { calls?: { callSequence: number }[] }; generation?: number };
}

/** A peer on a real socket that answers an instance as it is told to: what no well-behaved server would do. */
class OddPeer {
  readonly asked: Asked[] = [];
  /** HTTP statuses by the last part of the path; a stream is opened, and anything else answered, where there is none. */
  readonly refused = new Map<string, number>();
  /** What is heard and never answered. */
  readonly mute = new Set<string>();
  readonly streams = new Set<http.ServerResponse>();
  readonly #server = http.createServer((req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => this.#answer(req.url ?? "", Buffer.concat(chunks).toString(), res));
  });

  static async open(): Promise<OddPeer> {
    const peer = new OddPeer();
    peer.#server.listen(0, "127.0.0.1");
    await once(peer.#server, "listening");
    return peer;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as net.AddressInfo).port}`;
  }

  #answer(path: string, body: string, res: http.ServerResponse): void {
    const what = path.split("/").at(-1) ?? "";
    if (what === "settled") return void res.end();
    this.asked.push({ what, body: JSON.parse(body || "{}") as Asked["body"] });
    if (this.mute.has(what)) return;
    const status = this.refused.get(what) ?? this.refused.get("*");
    if (status !== undefined) return void res.writeHead(status).end();
    if (what !== "commands") return void res.writeHead(200, { "Content-Type": "application/json" }).end("{}");
    this.streams.add(res);
    res.writeHead(200, { "Content-Type": "text/event-stream" });
    res.write(`data: ${JSON.stringify({ attached: { generation: 1, heartbeatInterval: "1s", grace: "30s" } })}\n\n`);
  }

  count(what?: string): number {
    return this.asked.filter((one) => what === undefined || one.what === what).length;
  }

  /** Everything that was on its way has come. */
  async settled(): Promise<void> {
    for (let turn = 0; turn < 3; turn++) await fetch(`${this.url}/settled`);
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }
}

let folder: string;
let clock: MovedClock;
let lines: string[];
let host: HostConnection | undefined;
let outbox: Outbox | undefined;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "brain-host-"));
  clock = new MovedClock();
  lines = [];
});
afterEach(async () => {
  await leave();
  rmSync(folder, { recursive: true, force: true });
});

async function leave(): Promise<void> {
  const closing = host?.close(0);
  host = undefined;
  let isClosed = closing === undefined;
  void closing?.then(() => {
    isClosed = true;
  });
  // It may wait for its own bounds.
  await vi.waitFor(() => {
    clock.pass(5_000);
    expect(isClosed).toBe(true);
  });
  await outbox?.close();
  outbox = undefined;
}

function connect(baseUrl: string, route: HostRouteName | "auto" = "sse", served = new ServedTools(true)): void {
  host = new HostConnection({
    hostId: "a-host",
    routes: new RouteChoice(route, { baseUrl, token: "a-token" }),
    served,
    maxConcurrentCalls: 0,
    outbox,
    clock,
    log: (line) => lines.push(line),
  });
}

/** An outbox in which an earlier process left that many outcomes. */
async function leftOutbox(count: number): Promise<number[]> {
  const options = { path: join(folder, "outbox"), hostId: "a-host", log: () => undefined };
  const earlier = await Outbox.open(options);
  const sequences = Array.from({ length: count }, (_, index) => 2 * index + 2);
  const entry = { hostId: "a-host", sessionId: "a-session", tool: "lookup", outcome: wireOk("1") };
  await Promise.all(sequences.map((callSequence) => earlier.save({ ...entry, callSequence })));
  await earlier.close();
  outbox = await Outbox.open(options);
  return sequences;
}

const listed = ({ body }: Asked): number[] | undefined => body.heldCalls?.calls?.map(({ callSequence }) => callSequence) ?? [];

describe("outcomes that an earlier process left", () => {
  test("are on the list of the first attach and of every one until they are answered, and then forgotten", async () => {
    const peer = await OddPeer.open();
    peer.refused.set("ReportOutcome", 503);
    const sequences = await leftOutbox(20);
    connect(peer.url);
    await vi.waitFor(() => expect(peer.count("ReportOutcome")).toBeGreaterThanOrEqual(8));
    const attaches = (): Asked[] => peer.asked.filter(({ what }) => what === "commands");
    expect(attaches().map(listed)).toEqual([sequences]);

    for (const stream of peer.streams) stream.end();
    await vi.waitFor(() => {
      clock.pass(10_000);
      expect(peer.count("commands")).toBeGreaterThanOrEqual(2);
    });
    expect(listed(attaches().at(-1) as Asked)).toEqual(sequences);
    expect(outbox?.savedCount).toBe(20);

    peer.refused.clear();
    await vi.waitFor(() => {
      clock.pass(1_000);
      expect(outbox?.savedCount).toBe(0);
    });
    const before = peer.count("commands");
    for (const stream of peer.streams) stream.end();
    await vi.waitFor(() => {
      clock.pass(10_000);
      expect(peer.count("commands")).toBeGreaterThan(before);
    });
    expect(listed(attaches().at(-1) as Asked)).toEqual([]);
    await leave();
    await peer.close();
  });
});

describe("an outcome of this process", () => {
  test("is reported when it is flushed to the outbox, and not before", async () => {
    const peer = await OddPeer.open();
    await leftOutbox(0);
    const probe = await openFile(folder, "r");
    await probe.close();
    let flushed: () => void = () => undefined;
    const flush = vi.spyOn(Object.getPrototypeOf(probe) as FileHandle, "datasync");
    flush.mockImplementation(
      () =>
        new Promise((resolve) => {
          flushed = resolve;
        }),
    );
    const served = new ServedTools(true);
    const answer = tool({ name: "answer", description: "", input: jsonSchema(true), run: () => 42 });
    served.holdForProcess("app", declaredTool(answer));
    connect(peer.url, "sse", served);
    await vi.waitFor(() => expect(peer.streams.size).toBe(1));
    const runTool = { sessionId: "a-session", callSequence: 2, name: "answer", environment: "app", inputJson: "1", remaining: "60s" };
    for (const stream of peer.streams) stream.write(`data: ${JSON.stringify({ runTool })}\n\n`);
    await vi.waitFor(() => expect(flush).toHaveBeenCalledTimes(1));
    await peer.settled();
    expect(peer.count("ReportOutcome")).toBe(0);
    flushed();
    await vi.waitFor(() => expect(peer.count("ReportOutcome")).toBe(1));
    flush.mockRestore();
    await vi.waitFor(() => expect(outbox?.savedCount).toBe(0));
    await leave();
    await peer.close();
  });
});

describe("a refused token", () => {
  test("is tried once in 3 s and no more, however many outcomes wait, and it is said once", async () => {
    const peer = await OddPeer.open();
    peer.refused.set("*", 401);
    await leftOutbox(50);
    connect(peer.url);
    await vi.waitFor(() => expect(lines).toHaveLength(1));
    expect(lines[0]).toContain("Brain refused this host (unauthenticated");
    await peer.settled();
    for (let round = 0; round < 5; round++) {
      const before = peer.count();
      clock.pass(2_900);
      await peer.settled();
      expect(peer.count() - before, `requests within 3 s, round ${round}`).toBeLessThanOrEqual(round === 0 ? 0 : 1);
      await vi.waitFor(() => {
        clock.pass(100);
        expect(peer.count()).toBeGreaterThan(before);
      });
      await peer.settled();
      expect(peer.count() - before, `requests of round ${round}`).toBe(1);
    }
    // It is accepted after all: everything goes on by itself.
    peer.refused.clear();
    await vi.waitFor(() => {
      clock.pass(1_000);
      expect(outbox?.savedCount).toBe(0);
    });
    expect(lines.filter((line) => line.includes("refused this host"))).toHaveLength(1);
    expect(lines[1]).toContain("up again");
    await leave();
    await peer.close();
  });
});

describe("silence", () => {
  test("before the first message leads to the next route after 5 s, said once for each", async () => {
    const sockets = new Set<net.Socket>();
    const peer = net.createServer((socket) => {
      socket.on("error", () => undefined);
      sockets.add(socket.resume());
    });
    peer.listen(0, "127.0.0.1");
    await once(peer, "listening");
    connect(`http://127.0.0.1:${(peer.address() as net.AddressInfo).port}`, "auto");
    for (const [from, to] of [
      ["attach", "watch"],
      ["watch", "sse"],
      ["sse", "attach"],
    ]) {
      // The first second is an attempt of its own, on the same route.
      const before = sockets.size;
      clock.pass(1_000);
      await vi.waitFor(() => expect(sockets.size).toBeGreaterThan(before));
      clock.pass(3_999);
      const said = `the host route "${from}" does not work here (no first message came within 5 s); trying "${to}"`;
      expect(lines).not.toContain(said);
      clock.pass(1);
      await vi.waitFor(() => expect(lines).toContain(said));
      const { size } = sockets;
      await vi.waitFor(() => {
        clock.pass(100);
        expect(sockets.size).toBeGreaterThan(size);
      });
    }
    expect(lines.filter((line) => line.includes("trying"))).toHaveLength(3);
    await leave();
    for (const socket of sockets) socket.destroy();
    peer.close();
  });

  test("before the very first message makes the instance attach again after 1 s: a grace of 2 s may be running", async () => {
    const peer = await OddPeer.open();
    peer.mute.add("commands");
    connect(peer.url);
    await vi.waitFor(() => expect(peer.count("commands")).toBe(1));
    clock.pass(999);
    await peer.settled();
    expect(peer.count("commands")).toBe(1);
    peer.mute.clear();
    clock.pass(1);
    await vi.waitFor(() => expect(peer.count("commands")).toBe(2));
    expect(peer.asked.filter(({ what }) => what === "commands").map(({ body }) => body.generation)).toEqual([1, 2]);
    expect(lines).toEqual([]);
    await leave();
    await peer.close();
  });

  test("on the stream for three heartbeats makes the instance attach again, though its own heartbeats are answered", async () => {
    const peer = await OddPeer.open();
    connect(peer.url);
    await vi.waitFor(() => expect(peer.streams.size).toBe(1));
    await peer.settled();
    for (let beat = 1; beat <= 3; beat++) {
      clock.pass(1_000);
      await vi.waitFor(() => expect(peer.count("Heartbeat")).toBe(beat));
      await peer.settled();
    }
    expect(peer.count("commands")).toBe(1);
    clock.pass(1_000);
    await vi.waitFor(() => {
      clock.pass(100);
      expect(peer.count("commands")).toBe(2);
    });
    expect(lines[0]).toContain("nothing was heard for 3 heartbeats of 1000 ms");
    expect(peer.asked.filter(({ what }) => what === "commands").map(({ body }) => body.generation)).toEqual([1, 2]);
    await leave();
    await peer.close();
  });
});
