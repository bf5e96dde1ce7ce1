import { once } from "node:events";
import * as http from "node:http";
import type { AddressInfo } from "node:net";
import { CallToolResponseSchema } from "@aexhq/brain-proto";
import { create, toBinary } from "@bufbuild/protobuf";
import { afterEach, beforeEach, expect, test } from "vitest";
import { callTool } from "./call-tool.js";
import type { Clock } from "./clock.js";
import { Requests } from "./requests.js";

/** Stands still until it is moved. */
class MovedClock implements Clock {
  #now = 0;
  #timers: { readonly dueMs: number; readonly wake: () => void }[] = [];

  monotonic(): number {
    return this.#now;
  }

  after(delayMs: number, wake: () => void): () => void {
    const timer = { dueMs: this.#now + delayMs, wake };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  move(ms: number): void {
    this.#now += ms;
    const due = this.#timers.filter(({ dueMs }) => dueMs <= this.#now);
    this.#timers = this.#timers.filter(({ dueMs }) => dueMs > this.#now);
    for (const { wake } of due) wake();
  }

  get armed(): number {
    return this.#timers.length;
  }
}

let server: http.Server;
let requests: Requests;
let clock: MovedClock;

beforeEach(async () => {
  server = http.createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  clock = new MovedClock();
  requests = new Requests({ baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, token: undefined }, clock);
});

afterEach(() => {
  requests.close();
  server.closeAllConnections();
  server.close();
});

test("a connection that says nothing for 10 s after the call's own time is given up, and the call asked for again on another", async () => {
  const message = { sessionId: "s", callId: "c", name: "work", environment: "app", inputJson: "{}" };
  const calling = callTool(requests, message, 1_000, undefined);
  const [silent] = (await once(server, "request")) as [http.IncomingMessage];
  let isClosed = false;
  const closed = once(silent.socket, "close").then(() => {
    isClosed = true;
  });
  clock.move(10_999);
  expect(isClosed).toBe(false);
  const again = once(server, "request");
  clock.move(1);
  await closed;
  // The wait before the next attempt.
  while (clock.armed === 0) await new Promise((resolve) => setImmediate(resolve));
  clock.move(100);
  const [, response] = (await again) as [http.IncomingMessage, http.ServerResponse];
  response.setHeader("Content-Type", "application/proto");
  response.end(toBinary(CallToolResponseSchema, create(CallToolResponseSchema, { callSequence: 2, endSequence: 3 })));
  expect(await calling).toMatchObject({ callSequence: 2, endSequence: 3 });
  expect(clock.armed).toBe(0);
});
