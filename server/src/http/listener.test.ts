import { once } from "node:events";
import * as http from "node:http";
import * as http2 from "node:http2";
import * as net from "node:net";
import { pino } from "pino";
import { afterEach, describe, expect, test } from "vitest";
import type { HttpHandler } from "./exchange.js";
import { type Listener, type ListenerLimits, openListener } from "./listener.js";

const LIMITS: ListenerLimits = {
  protocolDecisionMs: 5000,
  connections: 1000,
  streamsPerConnection: 2000,
  headerBytes: 16 * 1024,
  headersMs: 10_000,
  requestMs: 60_000,
  idleConnectionMs: 60_000,
  idleSessionMs: 60_000,
  sessionMemoryMib: 64,
};
const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const EMPTY_SETTINGS = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);
const log = pino({ enabled: false });

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function listen(handler: HttpHandler, limits: Partial<ListenerLimits> = {}): Promise<Listener> {
  const listener = await openListener({ host: "127.0.0.1", port: 0, handler, limits: { ...LIMITS, ...limits }, log });
  cleanups.push(() => listener.close(0));
  return listener;
}

async function dial(listener: Listener): Promise<net.Socket> {
  const socket = net.connect({ host: "127.0.0.1", port: listener.port, noDelay: true });
  socket.on("error", () => {});
  cleanups.push(() => socket.destroy());
  await once(socket, "connect");
  return socket;
}

/** Everything a peer sends until it closes, or until `enough`. */
async function receive(socket: net.Socket, enough: (received: Buffer) => boolean = () => false): Promise<Buffer> {
  let received = Buffer.alloc(0);
  for await (const chunk of socket.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    received = Buffer.concat([received, chunk]);
    if (enough(received)) break;
  }
  return received;
}

function session(listener: Listener): http2.ClientHttp2Session {
  const client = http2.connect(listener.url);
  client.on("error", () => {});
  cleanups.push(() => client.destroy());
  return client;
}

function deferred<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {};
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

async function read(stream: http2.ClientHttp2Stream): Promise<string> {
  let text = "";
  for await (const chunk of stream.setEncoding("utf8")) text += chunk;
  return text;
}

const echoVersion: HttpHandler = (req, res) => {
  res.end(`${req.httpVersion} ${req.method} ${req.url}`);
};

describe("deciding the protocol", () => {
  test("HTTP/1.1 and HTTP/2 are answered on one port", async () => {
    const listener = await listen(echoVersion);
    const answer = await fetch(`${listener.url}/a`);
    expect(await answer.text()).toBe("1.1 GET /a");
    expect(await read(session(listener).request({ ":path": "/b" }))).toBe("2.0 GET /b");
  });

  test("an HTTP/2 preface that comes one byte at a time is HTTP/2", async () => {
    const listener = await listen(echoVersion);
    const socket = await dial(listener);
    for (const byte of Buffer.concat([Buffer.from(PREFACE), EMPTY_SETTINGS])) {
      await new Promise((written) => socket.write(Buffer.from([byte]), written));
    }
    // A SETTINGS frame: type 4 on stream 0.
    const received = await receive(socket, (bytes) => bytes.length >= 9);
    expect(received[3]).toBe(4);
    expect(received.toString("latin1")).not.toContain("HTTP/1.1");
  });

  test("an HTTP/1.1 request that comes one byte at a time is HTTP/1.1, also when it begins like the preface", async () => {
    const listener = await listen(echoVersion);
    for (const method of ["PROPFIND", "PUT", "POST"]) {
      const socket = await dial(listener);
      for (const byte of Buffer.from(`${method} /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`)) {
        await new Promise((written) => socket.write(Buffer.from([byte]), written));
      }
      expect((await receive(socket)).toString()).toContain(`1.1 ${method} /x`);
    }
  });

  test("a preface that goes wrong in its last byte is not HTTP/2", async () => {
    const listener = await listen(echoVersion);
    const socket = await dial(listener);
    socket.write(`${PREFACE.slice(0, -1)}x`);
    expect((await receive(socket)).toString()).toContain("400 Bad Request");
  });

  test("requests that were sent in one piece with the first are all answered", async () => {
    const listener = await listen(echoVersion);
    const socket = await dial(listener);
    socket.write("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    const text = (await receive(socket)).toString();
    expect(text).toContain("1.1 GET /1");
    expect(text).toContain("1.1 GET /2");
  });

  test("a large body that follows its header at once arrives whole", async () => {
    const listener = await listen((req, res) => {
      let bytes = 0;
      req.on("data", (chunk: Buffer) => {
        bytes += chunk.length;
      });
      req.on("end", () => res.end(String(bytes)));
    });
    const answer = await fetch(listener.url, { method: "POST", body: Buffer.alloc(2_000_000, 1) });
    expect(await answer.text()).toBe("2000000");
  });

  test("a request that asks to change to HTTP/2 is answered as HTTP/1.1", async () => {
    const listener = await listen(echoVersion);
    const socket = await dial(listener);
    socket.write(
      "GET /up HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
    );
    const text = (await receive(socket)).toString();
    expect(text).toMatch(/^HTTP\/1\.1 200/);
    expect(text).toContain("1.1 GET /up");
  });

  test("garbage gets a 400 and the server goes on", async () => {
    const listener = await listen(echoVersion);
    const socket = await dial(listener);
    socket.write(Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0xff, 0xfe]));
    expect((await receive(socket)).toString()).toContain("400 Bad Request");
    const broken = await dial(listener);
    broken.write(Buffer.concat([Buffer.from(PREFACE), Buffer.alloc(64, 0xff)]));
    await receive(broken);
    expect(await (await fetch(listener.url)).text()).toBe("1.1 GET /");
  });
});

describe("connections that cost and say nothing", () => {
  test("a connection that says nothing is closed at its limit", async () => {
    const listener = await listen(echoVersion, { protocolDecisionMs: 10 });
    const socket = await dial(listener);
    expect(await receive(socket)).toHaveLength(0);
    await expect.poll(() => listener.connectionCount).toBe(0);
  });

  test("half a preface does not prolong the limit", async () => {
    const listener = await listen(echoVersion, { protocolDecisionMs: 30 });
    const socket = await dial(listener);
    socket.write("PRI * HT");
    expect(await receive(socket)).toHaveLength(0);
  });

  test("a connection that ends before it said anything is forgotten", async () => {
    const listener = await listen(echoVersion);
    const socket = await dial(listener);
    socket.end();
    await receive(socket);
    await expect.poll(() => listener.connectionCount).toBe(0);
  });

  test("a header that never ends is given up with 408", async () => {
    const listener = await listen(echoVersion, { headersMs: 20, requestMs: 40 });
    const socket = await dial(listener);
    socket.write("GET / HTTP/1.1\r\nHost: a\r\n");
    expect((await receive(socket)).toString()).toContain("408 Request Timeout");
  });

  test("a response is not cut by the limits on the request, however long it takes", async () => {
    const { promise: late, resolve: answer } = deferred<void>();
    const listener = await listen(
      (_req, res) => {
        res.write("first ");
        void late.then(() => res.end("last"));
      },
      { headersMs: 100, requestMs: 200, idleConnectionMs: 100 },
    );
    const response = fetch(listener.url, { method: "POST", body: "{}" }).then((got) => got.text());
    const stream = read(session(listener).request({ ":path": "/" }));
    // Each header that never ends is given up after its limit: then both responses have outlived all of them.
    for (let round = 0; round < 3; round += 1) {
      const witness = await dial(listener);
      witness.write("GET / HTTP/1.1\r\nHost: a\r\n");
      await receive(witness);
    }
    answer();
    expect(await response).toBe("first last");
    expect(await stream).toBe("first last");
  });

  test("an HTTP/1.1 connection between requests is closed at its limit", async () => {
    const listener = await listen(echoVersion, { idleConnectionMs: 20 });
    const socket = await dial(listener);
    socket.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    expect((await receive(socket)).toString()).toContain("1.1 GET /");
  });

  test("an HTTP/2 connection without a stream is told to go at its limit, one with a silent stream is not", async () => {
    const opened: (() => void)[] = [];
    const listener = await listen(
      (_req, res) => {
        res.writeHead(200);
        res.write("open");
        opened.push(() => res.end());
      },
      { idleSessionMs: 20 },
    );
    const busy = session(listener);
    const stream = busy.request({ ":path": "/" });
    await once(stream, "data");
    const idle = session(listener);
    await once(idle, "goaway");
    const another = session(listener);
    await once(another, "goaway");
    expect(busy.closed).toBe(false);
    for (const end of opened) end();
    await once(busy, "goaway");
  });

  test("an HTTP/2 connection that was told to go and says nothing is gone all the same", async () => {
    const listener = await listen(echoVersion, { idleSessionMs: 20 });
    const mute = await dial(listener);
    mute.write(Buffer.concat([Buffer.from(PREFACE), EMPTY_SETTINGS]));
    await receive(mute);
    await expect.poll(() => listener.connectionCount).toBe(0);
  });

  test("one connection more than the limit is closed, and there is room again when one leaves", async () => {
    const listener = await listen(echoVersion, { connections: 2 });
    const first = await dial(listener);
    await dial(listener);
    await expect.poll(() => listener.connectionCount).toBe(2);
    const third = await dial(listener);
    expect(await receive(third)).toHaveLength(0);
    first.destroy();
    await expect.poll(() => listener.connectionCount).toBe(1);
    expect(await (await fetch(listener.url)).text()).toBe("1.1 GET /");
  });

  test("a header over the limit is refused on both protocols", async () => {
    const listener = await listen(echoVersion, { headerBytes: 8192 });
    const answer = await fetch(listener.url, { headers: { "x-large": "a".repeat(20_000) } });
    expect(answer.status).toBe(431);
    const client = session(listener);
    // A limit stands once the peer has heard of it.
    await once(client, "remoteSettings");
    const stream = client.request({ ":path": "/", "x-large": "a".repeat(20_000) });
    stream.on("error", () => {});
    await new Promise((resolve) => stream.once("close", resolve));
    expect(stream.rstCode).toBe(http2.constants.NGHTTP2_ENHANCE_YOUR_CALM);
    expect(await (await fetch(listener.url)).text()).toBe("1.1 GET /");
  });
});

describe("many streams on one connection", () => {
  test("a thousand streams are open at once and all are answered", async () => {
    const waiting: (() => void)[] = [];
    const listener = await listen((req, res) => {
      waiting.push(() => res.end(req.url));
      if (waiting.length === 1000) for (const answer of waiting) answer();
    });
    const client = session(listener);
    await once(client, "remoteSettings");
    expect(client.remoteSettings.maxConcurrentStreams).toBeGreaterThanOrEqual(1000);
    const answers = await Promise.all(Array.from({ length: 1000 }, (_, index) => read(client.request({ ":path": `/${index}` }))));
    expect(answers).toEqual(Array.from({ length: 1000 }, (_, index) => `/${index}`));
  }, 30_000);

  describe("a peer that goes on sending to a stream that was answered", () => {
    const refuseEarly: HttpHandler = (req, res) => {
      if (req.method === "GET") return void res.end("got");
      req.once("data", () => {
        req.pause();
        res.writeHead(200, { trailer: "x-last" });
        res.write("refused");
        res.addTrailers({ "x-last": "yes" });
        res.end();
      });
    };

    test("gets its whole answer, and its connection goes on", async () => {
      const listener = await listen(refuseEarly);
      const client = session(listener);
      for (let round = 0; round < 20; round += 1) {
        const upload = client.request({ ":path": "/", ":method": "POST" });
        const trailers = new Promise((resolve) => upload.once("trailers", resolve));
        const closed = new Promise((resolve) => upload.once("close", resolve));
        // More than the window of the stream and of the connection.
        upload.end(Buffer.alloc(1_000_000));
        expect(await read(upload)).toBe("refused");
        expect(await trailers).toMatchObject({ "x-last": "yes" });
        await closed;
      }
      expect(await read(client.request({ ":path": "/" }))).toBe("got");
      await listener.close(60_000);
    });

    test("is reset when it does not end in time", async () => {
      const listener = await listen(refuseEarly, { headersMs: 20, requestMs: 20 });
      const upload = session(listener).request({ ":path": "/", ":method": "POST" });
      upload.write("more to come");
      expect(await read(upload)).toBe("refused");
      if (!upload.closed) await new Promise((resolve) => upload.once("close", resolve));
      expect(upload.rstCode).toBe(http2.constants.NGHTTP2_NO_ERROR);
    });
  });

  test("a peer that opens and resets streams without end loses its connection, and only its own", async () => {
    const listener = await listen(() => {});
    const attacker = session(listener);
    const neighbour = session(listener);
    await Promise.all([once(attacker, "remoteSettings"), once(neighbour, "remoteSettings")]);
    const gone = new Promise<void>((resolve) => attacker.once("close", resolve));
    const flood = (): void => {
      if (attacker.destroyed || attacker.closed) return;
      for (let index = 0; index < 500; index += 1) {
        const stream = attacker.request({ ":path": "/" });
        stream.on("error", () => {});
        stream.close(http2.constants.NGHTTP2_CANCEL);
      }
      setImmediate(flood);
    };
    flood();
    await gone;
    expect(neighbour.destroyed).toBe(false);
  }, 30_000);
});

describe("closing", () => {
  test("idle connections of every kind end at once, though they never say anything", async () => {
    const listener = await listen(echoVersion);
    const silent = await dial(listener);
    const keptAlive = await dial(listener);
    keptAlive.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    await receive(keptAlive, (bytes) => bytes.toString().includes("1.1 GET /"));
    const mute = await dial(listener);
    mute.write(Buffer.concat([Buffer.from(PREFACE), EMPTY_SETTINGS]));
    await receive(mute, (bytes) => bytes.length >= 9);
    const closed = listener.close(60_000);
    const goodbye = await receive(mute);
    await receive(silent);
    await receive(keptAlive);
    await closed;
    // A GOAWAY frame: type 7.
    expect([...frames(goodbye)]).toContain(7);
    await expect(fetch(listener.url)).rejects.toThrow();
  });

  test("open requests finish, and their connections end with them", async () => {
    const answers: (() => void)[] = [];
    const both = deferred<void>();
    const listener = await listen((_req, res) => {
      res.write("a");
      answers.push(() => res.end("b"));
      if (answers.length === 2) both.resolve();
    });
    const agent = new http.Agent({ keepAlive: true });
    cleanups.push(() => agent.destroy());
    const first = new Promise<string>((resolve) => {
      http.get(listener.url, { agent }, (res) => {
        let text = "";
        res.setEncoding("utf8").on("data", (chunk: string) => {
          text += chunk;
        });
        res.on("end", () => resolve(text));
      });
    });
    const client = session(listener);
    const second = read(client.request({ ":path": "/" }));
    await both.promise;
    const closed = listener.close(60_000);
    await once(client, "goaway");
    for (const answer of answers) answer();
    expect(await first).toBe("ab");
    expect(await second).toBe("ab");
    await closed;
    expect(listener.connectionCount).toBe(0);
  });

  test("what does not finish is destroyed at the bound", async () => {
    const asked = deferred<void>();
    const listener = await listen((_req, res) => {
      res.write("a");
      asked.resolve();
    });
    const stream = session(listener).request({ ":path": "/" });
    stream.on("error", () => {});
    await asked.promise;
    await Promise.all([listener.close(10), listener.close(60_000)]);
    expect(listener.connectionCount).toBe(0);
  });
});

describe("the address", () => {
  test("an IPv6 address stands in brackets", async () => {
    const listener = await openListener({ host: "::1", port: 0, handler: echoVersion, limits: LIMITS, log });
    cleanups.push(() => listener.close(0));
    expect(listener.url).toBe(`http://[::1]:${listener.port}`);
    expect(await (await fetch(listener.url)).text()).toBe("1.1 GET /");
  });

  test("an address in use is named in the error", async () => {
    const listener = await listen(echoVersion);
    await expect(openListener({ host: "127.0.0.1", port: listener.port, handler: echoVersion, limits: LIMITS, log })).rejects.toThrow(
      `cannot listen on 127.0.0.1:${listener.port}: the address is in use`,
    );
  });

  test("a request that fails in the server is a 500 and does not end the process", async () => {
    const listener = await listen(() => {
      throw new Error("a bug");
    });
    expect((await fetch(listener.url)).status).toBe(500);
    const stream = session(listener).request({ ":path": "/" });
    const [headers] = await once(stream, "response");
    expect(headers[":status"]).toBe(500);
  });
});

function* frames(bytes: Buffer): Generator<number> {
  for (let at = 0; at + 9 <= bytes.length; at += 9 + bytes.readUIntBE(at, 3)) yield bytes[at + 3] ?? -1;
}
