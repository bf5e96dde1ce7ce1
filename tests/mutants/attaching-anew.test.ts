/** What a host that attaches anew owes Brain: its list names whatever its functions run. Against a peer on a real socket. */
import { once } from "node:events";
import * as http from "node:http";
import type * as net from "node:net";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Clock } from "../../sdk/src/clock.js";
import { HostConnection } from "../../sdk/src/host.js";
import { RouteChoice } from "../../sdk/src/host-routes/choice.js";
import { jsonSchema } from "../../sdk/src/schema.js";
import { ServedTools } from "../../sdk/src/served-tools.js";
import { declaredTool, tool } from "../../sdk/src/tool.js";

/** Stands until it is moved. */
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
    for (const [wake, dueMs] of [...this.#armed]) if (dueMs <= this.#nowMs && this.#armed.delete(wake)) wake();
  }
}

interface Attach {
  readonly listed: readonly number[];
  command(callSequence: number): void;
}

/** Takes every attach as server-sent events, and answers whatever else is asked with nothing. */
class Peer {
  readonly attaches: Attach[] = [];
  readonly reported: number[] = [];
  readonly #server = http.createServer((req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => this.#answer(req.url ?? "", JSON.parse(Buffer.concat(chunks).toString()), res));
  });

  async listen(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return `http://127.0.0.1:${(this.#server.address() as net.AddressInfo).port}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }

  #answer(
    url: string,
    body: { callSequence?: number; heldCalls?: { calls?: { callSequence: number }[] } },
    res: http.ServerResponse,
  ): void {
    if (url.endsWith("/ReportOutcome")) this.reported.push(body.callSequence ?? 0);
    if (!url.endsWith("/commands")) return void res.writeHead(200, { "Content-Type": "application/json" }).end("{}");
    const write = (command: object): void => void res.write(`data: ${JSON.stringify(command)}\n\n`);
    res.writeHead(200, { "Content-Type": "text/event-stream" });
    write({ attached: { generation: this.attaches.length + 1, heartbeatInterval: "1s", grace: "30s" } });
    this.attaches.push({
      listed: body.heldCalls?.calls?.map(({ callSequence }) => callSequence) ?? [],
      command: (callSequence) =>
        write({ runTool: { sessionId: "a-session", callSequence, name: "hold", environment: "app", inputJson: "1", remaining: "600s" } }),
    });
  }
}

let peer: Peer;
let clock: MovedClock;
let served: ServedTools;
let host: HostConnection;
/** The calls whose function was called, in that order. */
let ran: number[];
let finish: () => void;
beforeEach(async () => {
  peer = new Peer();
  clock = new MovedClock();
  ran = [];
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  served = new ServedTools(true);
  const run = (_input: unknown, { sequence }: { sequence: number }): Promise<void> => {
    ran.push(sequence);
    return finished;
  };
  served.holdForProcess("app", declaredTool(tool({ name: "hold", description: "", input: jsonSchema(true), run })));
  host = new HostConnection({
    hostId: "a-host",
    routes: new RouteChoice("sse", { baseUrl: await peer.listen(), token: "a-token" }),
    served,
    maxConcurrentCalls: 0,
    outbox: undefined,
    clock,
    log: () => undefined,
  });
  await vi.waitFor(() => expect(peer.attaches).toHaveLength(1));
  await host.attached(1_000);
});
afterEach(async () => {
  finish();
  let isClosed = false;
  const closing = host.close(0).then(() => {
    isClosed = true;
  });
  // It may wait for its own bounds.
  await vi.waitFor(() => {
    clock.pass(5_000);
    expect(isClosed).toBe(true);
  });
  await closing;
  await peer.close();
});

function serveAnother(): Promise<void> {
  const another = tool({ name: "another", description: "", input: jsonSchema(true), run: () => null });
  served.holdForProcess("app", declaredTool(another));
  return host.attached(600_000);
}

describe("a command that comes while the instance attaches anew", () => {
  test("is on the list of that attach, or is never run", async () => {
    peer.attaches[0]?.command(2);
    await vi.waitFor(() => expect(ran).toEqual([2]));
    // Written to the old stream in the very step in which the instance begins to attach again.
    peer.attaches[0]?.command(4);
    const again = serveAnother();
    // Either it is read, or the next attach comes without it.
    await vi.waitFor(() => expect(ran.length + peer.attaches.length).toBeGreaterThan(2));
    await vi.waitFor(() => {
      clock.pass(100);
      expect(peer.attaches).toHaveLength(2);
    });
    await again;
    expect(peer.attaches[1]?.listed).toEqual(ran);
  });
});

describe("a call", () => {
  test("runs once, however often its command comes, on one stream or the next", async () => {
    for (const callSequence of [2, 2, 4]) peer.attaches[0]?.command(callSequence);
    await vi.waitFor(() => expect(ran).toContain(4));
    expect(ran).toEqual([2, 4]);
    await serveAnother();
    for (const callSequence of [4, 2, 6]) peer.attaches[1]?.command(callSequence);
    await vi.waitFor(() => expect(ran).toContain(6));
    expect(ran).toEqual([2, 4, 6]);
    finish();
    await vi.waitFor(() => expect(peer.reported.toSorted()).toEqual([2, 4, 6]));
  });
});
