import { once } from "node:events";
import * as http from "node:http";
import type { AddressInfo } from "node:net";
import * as net from "node:net";
import { afterEach, expect, test } from "vitest";
import type { Clock } from "../runtime/clock.js";
import { type EventStream, openEventStream } from "./sse.js";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** Time that moves when the test says so. */
function testClock(): Clock & { advance(ms: number): void; readonly armed: number } {
  let time = 0;
  const timers = new Set<{ due: number; wake: () => void }>();
  return {
    now: () => time,
    monotonic: () => time,
    after(delayMs, wake) {
      const timer = { due: time + delayMs, wake };
      timers.add(timer);
      return () => timers.delete(timer);
    },
    advance(ms) {
      time += ms;
      for (const timer of [...timers]) {
        if (timer.due > time || !timers.delete(timer)) continue;
        timer.wake();
      }
    },
    get armed() {
      return timers.size;
    },
  };
}

async function open(): Promise<{ clock: ReturnType<typeof testClock>; stream: EventStream; res: http.ServerResponse; peer: net.Socket }> {
  const clock = testClock();
  const server = http.createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const peer = net.connect((server.address() as AddressInfo).port, "127.0.0.1");
  peer.on("error", () => {});
  cleanups.push(() => new Promise((closed) => server.close(closed)));
  cleanups.push(() => peer.destroy());
  peer.write("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip, br\r\n\r\n");
  const [, res] = (await once(server, "request")) as [http.IncomingMessage, http.ServerResponse];
  return { clock, stream: openEventStream(res, { commentEveryMs: 15_000, clock }), res, peer };
}

async function until(peer: net.Socket, enough: (text: string) => boolean): Promise<string> {
  let text = "";
  for await (const chunk of peer.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    text += chunk.toString();
    if (enough(text)) break;
  }
  return text;
}

test("headers and a comment are there before any event, and nothing is compressed or cached", async () => {
  const { peer } = await open();
  const text = await until(peer, (got) => got.includes(": this stream is open"));
  const header = text.slice(0, text.indexOf("\r\n\r\n")).toLowerCase();
  expect(header).toContain("content-type: text/event-stream; charset=utf-8");
  expect(header).toContain("cache-control: no-cache, no-transform");
  expect(header).toContain("x-accel-buffering: no");
  expect(header).not.toContain("content-encoding");
});

test("a comment goes out every period of silence, and none after the stream has ended", async () => {
  const { clock, stream, peer } = await open();
  await until(peer, (got) => got.includes("open\n\n"));
  for (let period = 0; period < 3; period += 1) {
    clock.advance(14_999);
    clock.advance(1);
    expect(await until(peer, (got) => got.includes("\n\n"))).toContain(":\n\n");
  }
  stream.close();
  expect(clock.armed).toBe(0);
  expect(await stream.write({ data: "late" })).toBe(false);
  stream.close();
});

test("an event is its data, whatever line ends and characters that has", async () => {
  const { stream, peer } = await open();
  expect(await stream.write({ data: '{"a":"\u0000\u{1f600}é"}' })).toBe(true);
  expect(await stream.write({ event: "refusal", data: "a\nb\r\nc\rd\n" })).toBe(true);
  const text = await until(peer, (got) => got.includes("data: d"));
  expect(text).toContain('data: {"a":"\u0000\u{1f600}é"}\n\n');
  expect(text).toContain("event: refusal\ndata: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
});

test("a reader that takes nothing holds the writer up, and lets it go on when it reads again", async () => {
  const { stream, res, peer } = await open();
  const data = "x".repeat(1 << 20);
  let written = 0;
  let blocked = stream.write({ data });
  // The kernel takes some megabytes before it pushes back.
  while (!res.writableNeedDrain) {
    expect(await blocked).toBe(true);
    written += 1;
    expect(written).toBeLessThan(100);
    blocked = stream.write({ data });
  }
  peer.resume();
  expect(await blocked).toBe(true);
});

test("a writer that waits for a reader learns that it has left", async () => {
  const { clock, stream, res, peer } = await open();
  const data = "x".repeat(1 << 20);
  let blocked = stream.write({ data });
  while (!res.writableNeedDrain) {
    await blocked;
    blocked = stream.write({ data });
  }
  peer.destroy();
  expect(await blocked).toBe(false);
  expect(await stream.write({ data })).toBe(false);
  expect(clock.armed).toBe(0);
});
