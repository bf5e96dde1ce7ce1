import { once } from "node:events";
import * as http2 from "node:http2";
import * as https from "node:https";
import * as net from "node:net";
import { pino } from "pino";
import { afterAll, beforeAll, expect, test } from "vitest";
import { selfSigned } from "../../../tests/support/self-signed.js";
import { type Listener, openListener } from "./listener.js";

const { cert, key } = selfSigned();
let listener: Listener;

beforeAll(async () => {
  listener = await openListener({
    host: "127.0.0.1",
    port: 0,
    tls: { cert, key },
    handler: (req, res) => res.end(`${req.httpVersion} ${"encrypted" in req.socket} ${req.url}`),
    limits: {
      protocolDecisionMs: 200,
      connections: 100,
      streamsPerConnection: 2000,
      headerBytes: 16 * 1024,
      headersMs: 10_000,
      requestMs: 60_000,
      idleConnectionMs: 60_000,
      idleSessionMs: 60_000,
      sessionMemoryMib: 64,
    },
    log: pino({ enabled: false }),
  });
});
afterAll(() => listener.close(0));

test("the address says https", () => {
  expect(listener.url).toBe(`https://127.0.0.1:${listener.port}`);
});

test("a client that offers h2 gets HTTP/2", async () => {
  const client = http2.connect(listener.url, { ca: cert });
  const stream = client.request({ ":path": "/two" });
  let text = "";
  for await (const chunk of stream.setEncoding("utf8")) text += chunk;
  expect(text).toBe("2.0 true /two");
  expect(client.alpnProtocol).toBe("h2");
  client.close();
});

test("a client that offers HTTP/1.1 only gets HTTP/1.1", async () => {
  const text = await new Promise<string>((resolve, reject) => {
    https
      .get(`${listener.url}/one`, { ca: cert, agent: false }, (res) => {
        let body = "";
        res.setEncoding("utf8").on("data", (chunk: string) => {
          body += chunk;
        });
        res.on("end", () => resolve(body));
      })
      .on("error", reject);
  });
  expect(text).toBe("1.1 true /one");
});

test("a client that speaks cleartext, and one that says nothing, are closed", async () => {
  for (const words of ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", ""]) {
    const socket = net.connect(listener.port, "127.0.0.1");
    socket.on("error", () => {});
    socket.write(words);
    socket.resume();
    await new Promise((resolve) => socket.once("close", resolve));
  }
  await expect.poll(() => listener.connectionCount).toBe(0);
});

test("closing ends TLS connections of both protocols", async () => {
  const client = http2.connect(listener.url, { ca: cert });
  client.on("error", () => {});
  await once(client, "remoteSettings");
  const closed = listener.close(5000);
  await Promise.all([closed, new Promise((resolve) => client.once("close", resolve))]);
  expect(listener.connectionCount).toBe(0);
});
