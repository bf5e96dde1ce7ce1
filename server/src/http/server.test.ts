import { once } from "node:events";
import * as http2 from "node:http2";
import * as net from "node:net";
import { CommandSchema, ErrorReasonSchema, HostService, SessionService, ToolCallService } from "@aexhq/brain-proto";
import { Health } from "@aexhq/brain-proto/grpc/health/v1/health_pb";
import { create, fromBinary } from "@bufbuild/protobuf";
import { base64Decode } from "@bufbuild/protobuf/wire";
import { Code, ConnectError, createClient, type HandlerContext } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Refusal } from "../core/refusal.js";
import { createAuthenticate, SERVED_SERVICES } from "../rpc/authorize.js";
import { createHealth } from "../rpc/health.js";
import { systemClock } from "../runtime/clock.js";
import { createGuard } from "./guard.js";
import { type Listener, openListener } from "./listener.js";
import { createMetrics } from "./metrics.js";
import { createHttpHandler } from "./server.js";

const KIB = 1024;
const MIB = 1024 * KIB;
const lines: string[] = [];
const log = pino({ level: "warn" }, { write: (line: string) => lines.push(line) });
const warnings: string[] = [];
const onWarning = (warning: Error): void => {
  warnings.push(warning.name);
};

let listener: Listener;
const shutdown = new AbortController();
const health = createHealth(SERVED_SERVICES);
/** Calls that wait until the test lets them go. */
const waiting: ((outcome: object) => void)[] = [];
let whenWaiting: { count: number; reached: () => void } | undefined;
const contexts: HandlerContext[] = [];

function untilWaiting(count: number): Promise<void> {
  return new Promise((reached) => {
    whenWaiting = { count, reached };
  });
}

beforeAll(async () => {
  process.on("warning", onWarning);
  const metrics = createMetrics();
  const handler = createHttpHandler({
    routes(router) {
      router.service(SessionService, {
        getSession({ sessionId }) {
          if (sessionId === "none") throw new Refusal("session_not_found", "no session none; list those that are", { session_id: "none" });
          if (sessionId === "bug") throw new Error("secret-4711");
          return { session: { sessionId } };
        },
      });
      router.service(ToolCallService, {
        callTool({ callId }, context) {
          contexts.push(context);
          return new Promise((resolve, reject) => {
            context.signal.addEventListener("abort", () => reject(context.signal.reason));
            waiting.push(() => resolve({ callSequence: Number(callId) }));
            if (waiting.length === whenWaiting?.count) whenWaiting.reached();
          });
        },
        getToolCall: ({ sessionId }) => ({ toolCall: { sessionId: String(sessionId.length) } }),
      });
      router.service(HostService, {
        async *watchCommands(_request, { signal }) {
          yield { command: { kind: { case: "heartbeat", value: {} } } };
          if (!signal.aborted) await once(signal, "abort");
        },
        async *attach(requests) {
          for await (const { messageId } of requests) yield { answersMessageId: messageId };
        },
      });
    },
    guard: createGuard({ host: "127.0.0.1", publicUrl: "", allowOrigins: ["https://app.example.com"] }),
    authenticate: createAuthenticate({ findHostByToken: () => Promise.resolve(undefined) }),
    async *attach(_hostId, _attachment, signal) {
      yield create(CommandSchema, { kind: { case: "heartbeat", value: {} } });
      if (!signal.aborted) await once(signal, "abort");
    },
    health,
    metrics,
    shutdownSignal: shutdown.signal,
    version: "1.2.3",
    clock: systemClock,
    log,
    limits: { commentEveryMs: 15_000, requestBytes: 4 * MIB, responseBytes: 9 * MIB },
  });
  listener = await openListener({
    host: "127.0.0.1",
    port: 0,
    handler,
    limits: {
      protocolDecisionMs: 5000,
      connections: 1000,
      streamsPerConnection: 2000,
      headerBytes: 64 * KIB,
      headersMs: 10_000,
      requestMs: 60_000,
      idleConnectionMs: 60_000,
      idleSessionMs: 60_000,
      sessionMemoryMib: 64,
    },
    log,
  });
  metrics.gauge("brain_http_connections", "Open connections.", () => listener.connectionCount);
});
afterAll(async () => {
  await listener.close(0);
  process.off("warning", onWarning);
});

function deferred(): { promise: Promise<void>; resolve: () => void } {
  let resolve = (): void => {};
  const promise = new Promise<void>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

function post(path: string, body: unknown, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(`${listener.url}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
}

const GET_SESSION = "/brain.v1.SessionService/GetSession";
const CALL_TOOL = "/brain.v1.ToolCallService/CallTool";

/** A request with headers that fetch would not let through. */
async function raw(text: string): Promise<string> {
  const socket = net.connect(listener.port, "127.0.0.1");
  socket.on("error", () => {});
  socket.write(text);
  let answer = "";
  for await (const chunk of socket.setEncoding("utf8")) answer += chunk;
  return answer;
}

function reasonOf(body: string): string | undefined {
  const { details } = JSON.parse(body) as { details?: { value: string }[] };
  return details?.[0] === undefined ? undefined : fromBinary(ErrorReasonSchema, base64Decode(details[0].value)).reason;
}

describe("one port", () => {
  test("answers Connect JSON over HTTP/1.1", async () => {
    const response = await post(GET_SESSION, { sessionId: "s" }, { "accept-encoding": "gzip, br" });
    expect(await response.json()).toEqual({ session: { sessionId: "s" } });
    expect(response.headers.get("content-encoding")).toBeNull();
  });

  test.each([
    ["Connect over HTTP/1.1", () => createConnectTransport({ baseUrl: listener.url, httpVersion: "1.1" })],
    ["Connect over HTTP/2", () => createConnectTransport({ baseUrl: listener.url, httpVersion: "2" })],
    ["gRPC", () => createGrpcTransport({ baseUrl: listener.url })],
    ["gRPC-Web over HTTP/1.1", () => createGrpcWebTransport({ baseUrl: listener.url, httpVersion: "1.1" })],
    ["gRPC-Web over HTTP/2", () => createGrpcWebTransport({ baseUrl: listener.url, httpVersion: "2" })],
  ])("answers, refuses and streams over %s", async (_name, open) => {
    const transport = open();
    const sessions = createClient(SessionService, transport);
    expect((await sessions.getSession({ sessionId: "s" })).session?.sessionId).toBe("s");

    const refused = await sessions.getSession({ sessionId: "none" }).catch(ConnectError.from);
    expect(refused).toMatchObject({ code: Code.NotFound, rawMessage: "no session none; list those that are" });
    expect((refused as ConnectError).findDetails(ErrorReasonSchema)).toMatchObject([
      { reason: "session_not_found", metadata: { session_id: "none" } },
    ]);
    const broken = await sessions.getSession({ sessionId: "bug" }).catch(ConnectError.from);
    expect(broken).toMatchObject({ code: Code.Internal, details: [] });

    const leave = new AbortController();
    const commands = createClient(HostService, transport).watchCommands({}, { signal: leave.signal })[Symbol.asyncIterator]();
    expect((await commands.next()).value?.command?.kind.case).toBe("heartbeat");
    leave.abort();
    await expect(commands.next()).rejects.toMatchObject({ code: Code.Canceled });
    expect((await createClient(Health, transport).check({})).status).toBe(1);
  });

  test("streams both ways over HTTP/2", async () => {
    const requests = (async function* () {
      for (const messageId of [1, 2, 3]) yield { messageId };
    })();
    const answers: (number | undefined)[] = [];
    for await (const { answersMessageId } of createClient(HostService, createGrpcTransport({ baseUrl: listener.url })).attach(requests)) {
      answers.push(answersMessageId);
    }
    expect(answers).toEqual([1, 2, 3]);
  });

  test("streams commands as server-sent events, over both protocols", async () => {
    const response = await fetch(`${listener.url}/v1/hosts/h/commands?instance_id=i`);
    const reader = response.body?.getReader();
    let text = "";
    while (!text.includes("heartbeat")) text += new TextDecoder().decode((await reader?.read())?.value);
    await reader?.cancel();
    const client = http2.connect(listener.url);
    const stream = client.request({ ":path": "/v1/hosts/h/commands?instance_id=i" });
    let second = "";
    for await (const chunk of stream.setEncoding("utf8")) {
      second += chunk;
      if (second.includes("heartbeat")) break;
    }
    client.destroy();
    expect(second).toContain('data: {"heartbeat":{}}\n\n');
  });

  test("holds a thousand waiting calls on one connection, and answers each", async () => {
    const client = createClient(ToolCallService, createConnectTransport({ baseUrl: listener.url, httpVersion: "2" }));
    const all = untilWaiting(waiting.length + 1000);
    const calls = Array.from({ length: 1000 }, (_, index) => client.callTool({ callId: String(index + 1) }));
    await all;
    for (const release of waiting.splice(0)) release({});
    expect((await Promise.all(calls)).map(({ callSequence }) => callSequence)).toEqual(
      Array.from({ length: 1000 }, (_, index) => index + 1),
    );
  }, 30_000);
});

describe("who may ask", () => {
  test("a foreign Host is a 421 with its reason, over HTTP/1.0, 1.1 and 2", async () => {
    const answer = await raw("GET /healthz HTTP/1.1\r\nHost: evil.example.com\r\nConnection: close\r\n\r\n");
    expect(answer).toMatch(/^HTTP\/1\.1 421 /);
    expect(reasonOf(answer.slice(answer.indexOf("\r\n\r\n")))).toBe("misdirected_request");
    expect(answer).toContain('\\"evil.example.com\\" does not name this server');
    expect(await raw("GET /healthz HTTP/1.0\r\n\r\n")).toMatch(/^HTTP\/1\.1 421 /);
    const client = http2.connect(listener.url);
    const stream = client.request({ ":path": "/healthz", ":authority": "evil.example.com" });
    const [headers] = await once(stream, "response");
    expect(headers[":status"]).toBe(421);
    client.destroy();
  });

  test("a refused upload is answered though nobody reads it", async () => {
    const answer = await raw(
      `POST ${GET_SESSION} HTTP/1.1\r\nHost: evil.example.com\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n{`,
    );
    expect(answer).toMatch(/^HTTP\/1\.1 421 /);
  });

  test("a foreign origin is a 403 without CORS headers", async () => {
    const response = await post(GET_SESSION, { sessionId: "s" }, { origin: "https://evil.example.com" });
    expect(response.status).toBe(403);
    expect(reasonOf(await response.text())).toBe("origin_not_allowed");
    expect(response.headers.get("access-control-allow-origin")).toBeNull();
  });

  test("an allowed origin gets CORS headers on answers, refusals and streams, and never a credential", async () => {
    const origin = "https://app.example.com";
    for (const response of [
      await post(GET_SESSION, { sessionId: "s" }, { origin }),
      await post(GET_SESSION, { sessionId: "none" }, { origin }),
      await post("/v1/nothing", {}, { origin }),
      await fetch(`${listener.url}/v1/hosts/h/commands?instance_id=i`, { headers: { origin } }),
    ]) {
      expect(response.headers.get("access-control-allow-origin")).toBe(origin);
      expect(response.headers.get("vary")).toBe("Origin");
      expect(response.headers.get("access-control-expose-headers")).toContain("Grpc-Status");
      expect(response.headers.get("access-control-allow-credentials")).toBeNull();
      await response.body?.cancel();
    }
  });

  test("a preflight of an allowed origin names what Connect and gRPC-Web need, and the token's header", async () => {
    const response = await fetch(`${listener.url}${GET_SESSION}`, {
      method: "OPTIONS",
      headers: {
        origin: "https://app.example.com",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
      },
    });
    expect(response.status).toBe(204);
    const allowed = response.headers.get("access-control-allow-headers") ?? "";
    for (const header of ["Content-Type", "Connect-Protocol-Version", "X-Grpc-Web", "Authorization"]) expect(allowed).toContain(header);
    expect(response.headers.get("access-control-allow-methods")).toBe("POST, GET");
  });
});

describe("timeouts that callers send", () => {
  test.each([
    ["2^31 ms", { "connect-timeout-ms": "2147483648" }],
    ["400 days", { "connect-timeout-ms": "34560000000" }],
    ["more digits than a number holds", { "connect-timeout-ms": "9".repeat(400) }],
  ])("Connect: %s is no timer and no refusal", async (_name, headers) => {
    const reached = untilWaiting(waiting.length + 1);
    const call = post(CALL_TOOL, { callId: "7" }, headers);
    await reached;
    expect(contexts.at(-1)?.timeoutMs()).toBeUndefined();
    for (const release of waiting.splice(0)) release({});
    expect(await (await call).json()).toEqual({ callSequence: 7 });
  });

  test.each([
    ["2^31 ms", "597H"],
    ["400 days", "9600H"],
    ["the longest there is", "99999999H"],
  ])("gRPC: %s is no timer and no refusal", async (_name, timeout) => {
    const reached = untilWaiting(waiting.length + 1);
    const client = createClient(ToolCallService, createGrpcTransport({ baseUrl: listener.url }));
    const call = client.callTool({ callId: "7" }, { headers: { "grpc-timeout": timeout } });
    await reached;
    expect(contexts.at(-1)?.timeoutMs()).toBeUndefined();
    for (const release of waiting.splice(0)) release({});
    expect((await call).callSequence).toBe(7);
  });

  test("a short one ends the waiting, the longest a timer holds stands, a malformed one is refused", async () => {
    const short = await post(CALL_TOOL, { callId: "7" }, { "connect-timeout-ms": "10" });
    expect(await short.json()).toMatchObject({ code: "deadline_exceeded" });
    waiting.splice(0);
    const reached = untilWaiting(1);
    const long = post(CALL_TOOL, { callId: "7" }, { "connect-timeout-ms": "2147483647" });
    await reached;
    expect(contexts.at(-1)?.timeoutMs()).toBeGreaterThan(2_000_000_000);
    for (const release of waiting.splice(0)) release({});
    expect((await long).status).toBe(200);
    expect(await (await post(CALL_TOOL, {}, { "connect-timeout-ms": "soon" })).json()).toMatchObject({ code: "invalid_argument" });
  });
});

describe("what is asked for", () => {
  test("the largest input passes as JSON, also where every character is escaped", async () => {
    const largest = "é".repeat(MIB / 2);
    const escaped = `{"sessionId":"${"\\u00e9".repeat(MIB / 2)}"}`;
    for (const body of [JSON.stringify({ sessionId: largest }), escaped]) {
      expect(await (await post("/brain.v1.ToolCallService/GetToolCall", body)).json()).toEqual({
        toolCall: { sessionId: String(MIB / 2) },
      });
    }
  });

  test("more than the limit is refused, over every protocol", async () => {
    expect(await (await post(GET_SESSION, { sessionId: "x".repeat(4 * MIB) })).json()).toMatchObject({ code: "resource_exhausted" });
    const client = createClient(SessionService, createGrpcTransport({ baseUrl: listener.url }));
    await expect(client.getSession({ sessionId: "x".repeat(4 * MIB) })).rejects.toMatchObject({ code: Code.ResourceExhausted });
  });

  test("paths that nobody serves are 404s that name them, whatever they look like", async () => {
    for (const path of ["/v1/nothing", "/brain.v1.SessionService/Nothing", "/favicon.ico", "//", "/..%2f", "/v1/hosts/%"]) {
      const answer = await raw(`GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
      expect(answer).toMatch(/^HTTP\/1\.1 404 /);
      expect(reasonOf(answer.slice(answer.indexOf("\r\n\r\n")))).toBe("path_not_found");
      expect(answer).toContain(path);
    }
    expect(await raw("GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")).toMatch(/^HTTP\/1\.1 404 /);
  });

  test("an RPC is no page: GET and forms are refused", async () => {
    expect((await fetch(`${listener.url}${GET_SESSION}`)).status).toBe(405);
    expect((await post(GET_SESSION, "sessionId=s", { "content-type": "text/plain" })).status).toBe(415);
    expect((await post(GET_SESSION, "sessionId=s", { "content-type": "application/x-www-form-urlencoded" })).status).toBe(415);
  });

  test("the front page says what this is and where to look", async () => {
    const text = await (await fetch(listener.url)).text();
    for (const word of ["brain 1.2.3", "brain.v1.SessionService", "grpcurl", "/healthz", "/metrics"]) expect(text).toContain(word);
    expect((await post("/", {})).status).toBe(405);
    expect((await fetch(`${listener.url}/healthz`, { method: "HEAD" })).status).toBe(200);
  });

  test("the metrics count connections and RPCs by code", async () => {
    await post(GET_SESSION, { sessionId: "s" });
    const text = await (await fetch(`${listener.url}/metrics`)).text();
    expect(text).toMatch(/^# TYPE brain_http_connections gauge\nbrain_http_connections [1-9]\d*$/m);
    expect(text).toMatch(/^brain_rpcs_total\{rpc="brain.v1.SessionService\/GetSession",code="ok"\} \d+$/m);
    expect(text).toMatch(/^brain_rpcs_total\{rpc="brain.v1.SessionService\/GetSession",code="not_found"\} \d+$/m);
    expect(text).toMatch(/^brain_rpcs_total\{rpc="brain.v1.SessionService\/GetSession",code="internal"\} \d+$/m);
    expect(text).toMatch(/^brain_rpcs_total\{rpc="brain.v1.HostService\/WatchCommands",code="\w+"\} \d+$/m);
  });
});

describe("callers that leave", () => {
  test("a broken connection ends its streams, both ways too, and is no failure of the server", async () => {
    const attached = deferred();
    const client = http2.connect(listener.url);
    client.on("error", () => {});
    const attach = client.request({ ":method": "POST", ":path": "/brain.v1.HostService/Attach", "content-type": "application/grpc" });
    attach.on("error", () => {});
    attach.on("data", attached.resolve);
    // One empty AttachRequest in a gRPC envelope, and no end.
    attach.write(Buffer.alloc(5));
    await attached.promise;
    const watch = client.request({ ":method": "POST", ":path": "/brain.v1.HostService/WatchCommands", "content-type": "application/grpc" });
    watch.on("error", () => {});
    watch.end(Buffer.alloc(5));
    await once(watch, "data");
    const before = (await canceled()) + 2;
    client.destroy();
    await expect.poll(canceled).toBe(before);
  });

  async function canceled(): Promise<number> {
    const text = await (await fetch(`${listener.url}/metrics`)).text();
    const counts = text.matchAll(/^brain_rpcs_total\{rpc="brain\.v1\.HostService\/(?:Attach|WatchCommands)",code="canceled"\} (\d+)$/gm);
    return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
  }
});

describe("stopping", () => {
  test("draining shows in /healthz, and every open stream ends when the server stops", async () => {
    const transport = createConnectTransport({ baseUrl: listener.url, httpVersion: "2" });
    const hosts = createClient(HostService, transport);
    const streams = await Promise.all(
      Array.from({ length: 50 }, async () => {
        const commands = hosts.watchCommands({})[Symbol.asyncIterator]();
        await commands.next();
        return commands;
      }),
    );
    const events = await fetch(`${listener.url}/v1/hosts/h/commands?instance_id=i`);
    health.drain();
    const answer = await fetch(`${listener.url}/healthz`);
    expect([answer.status, await answer.json()]).toEqual([503, { serving: false }]);
    shutdown.abort();
    await Promise.all(streams.map((commands) => commands.next().catch(() => undefined)));
    await events.text();
    await listener.close(10_000);
    expect(listener.connectionCount).toBe(0);
  });

  test("nothing warned, and the log holds the bugs of these tests and nothing else", () => {
    expect(warnings).toEqual([]);
    expect(lines.filter((line) => !line.includes("secret-4711"))).toEqual([]);
    expect(lines).toHaveLength(5);
  });
});
