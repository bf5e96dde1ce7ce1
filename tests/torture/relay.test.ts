import { once } from "node:events";
import * as net from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Relay } from "./relay.js";

let relay: Relay;
let server: net.Server;
let served: net.Socket[];

beforeEach(async () => {
  served = [];
  server = net.createServer((socket) => {
    socket.on("error", () => undefined);
    served.push(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  relay = await Relay.open();
  relay.forwardTo(`http://127.0.0.1:${(server.address() as net.AddressInfo).port}`);
});

afterEach(async () => {
  await relay[Symbol.asyncDispose]();
  for (const socket of served) socket.destroy();
  server.close();
});

async function connected(): Promise<{ client: net.Socket; upstream: net.Socket }> {
  const accepted = once(server, "connection");
  const client = net.connect(Number(new URL(relay.url).port), "127.0.0.1");
  client.on("error", () => undefined);
  const [upstream] = (await accepted) as [net.Socket];
  return { client, upstream };
}

/** Whether it closed for an error. */
function closed(socket: net.Socket): Promise<boolean> {
  return new Promise((resolve) => socket.resume().on("close", resolve));
}

async function heard(socket: net.Socket, text: string): Promise<void> {
  let all = "";
  while (all.length < text.length) {
    const [bytes] = (await once(socket, "data")) as [Buffer];
    all += bytes.toString();
  }
  expect(all).toBe(text);
}

test("bytes pass both ways", async () => {
  const { client, upstream } = await connected();
  client.write("ping");
  await heard(upstream, "ping");
  upstream.write("pong");
  await heard(client, "pong");
});

test("a reset is seen as a reset and a clean end as an end, by both sides", async () => {
  const first = await connected();
  const resets = [closed(first.client), closed(first.upstream)];
  relay.cut("reset");
  expect(await Promise.all(resets)).toEqual([true, true]);

  const second = await connected();
  const ends = [once(second.client.resume(), "end"), once(second.upstream.resume(), "end")];
  relay.cut("end");
  await Promise.all(ends);
});

test("a frozen connection passes neither bytes nor the end of a side until it thaws, and then passes both", async () => {
  const { client, upstream } = await connected();
  let said = "";
  upstream.on("data", (bytes: Buffer) => {
    said += bytes.toString();
  });
  relay.freeze();
  client.write("late");
  client.end();
  // A second connection through the same loop of events has everything it needs to be quicker than the first.
  const other = await Relay.open();
  other.forwardTo(`http://127.0.0.1:${(server.address() as net.AddressInfo).port}`);
  const accepted = once(server, "connection");
  net
    .connect(Number(new URL(other.url).port), "127.0.0.1")
    .on("error", () => undefined)
    .end("probe");
  const [probe] = (await accepted) as [net.Socket];
  await heard(probe, "probe");
  expect({ said, ended: upstream.readableEnded }).toEqual({ said: "", ended: false });

  const ended = once(upstream, "end");
  relay.thaw();
  await ended;
  expect(said).toBe("late");
  await other[Symbol.asyncDispose]();
});

test("what a cut connection held is never delivered", async () => {
  const { client, upstream } = await connected();
  let said = "";
  upstream.on("data", (bytes: Buffer) => {
    said += bytes.toString();
  });
  const gone = closed(upstream);
  relay.freeze();
  client.write("lost");
  relay.cut("reset");
  await gone;
  relay.thaw();
  expect(said).toBe("");
});

test("one connection can be stuck while the others go on, and thawing does not free it", async () => {
  const stuck = await connected();
  const other = await connected();
  let said = "";
  stuck.upstream.on("data", (bytes: Buffer) => {
    said += bytes.toString();
  });
  relay.stick(0);
  relay.freeze();
  relay.thaw();
  stuck.client.write("lost");
  other.client.write("heard");
  await heard(other.upstream, "heard");
  expect(said).toBe("");
});

test("slow bytes come in order and complete", async () => {
  const { client, upstream } = await connected();
  relay.slow(1);
  const text = Array.from({ length: 3_000 }, (_, index) => String(index % 10)).join("");
  client.write(text);
  await heard(upstream, text);
});

test("a connection to nobody is refused", async () => {
  relay.forwardTo(undefined);
  const client = net.connect(Number(new URL(relay.url).port), "127.0.0.1");
  client.on("error", () => undefined);
  expect(await closed(client)).toBe(true);
  expect(relay.accepted).toBe(1);
});
