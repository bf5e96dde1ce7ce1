import { createHash } from "node:crypto";
import { ErrorReasonSchema, HostService, SessionService, ToolCallService } from "@aexhq/brain-proto";
import type { DescMethod, DescMethodStreaming, DescMethodUnary } from "@bufbuild/protobuf";
import { Code, ConnectError, type HandlerContext, type Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createGuard } from "../http/guard.js";
import { type Listener, openListener } from "../http/listener.js";
import { createMetrics } from "../http/metrics.js";
import { createHttpHandler } from "../http/server.js";
import { systemClock } from "../runtime/clock.js";
import { type Authenticate, callersOf, createAuthenticate, principalOf, requireHost, SERVED_SERVICES } from "./authorize.js";
import { createHealth } from "./health.js";

const API_TOKEN = "api-token-Zq3";
const HOST_TOKENS: Readonly<Record<string, string>> = { a: "host-token-A7", b: "host-token-B9" };
const HOST_RPCS = ["WatchCommands", "Attach", "Heartbeat", "EmitEvent", "ReportOutcome", "Detach"];
/** Those whose request names the host; the two others name a call, whose host their service knows. */
const NAMES_ITS_HOST = ["WatchCommands", "Attach", "Heartbeat", "Detach"];

const AUTHORIZATIONS: Readonly<Record<string, string | undefined>> = {
  missing: undefined,
  wrong: "Bearer nobody-has-this",
  api: `Bearer ${API_TOKEN}`,
  hostA: `Bearer ${HOST_TOKENS["a"]}`,
  hostB: `bearer ${HOST_TOKENS["b"]}`,
  empty: "Bearer ",
  basic: `Basic ${Buffer.from(`x:${API_TOKEN}`).toString("base64")}`,
  twice: `Bearer ${API_TOKEN}, Bearer ${API_TOKEN}`,
  prefix: `Bearer ${API_TOKEN.slice(0, -1)}`,
  bare: API_TOKEN,
};

const lines: string[] = [];
const log = pino({ level: "trace" }, { write: (line: string) => lines.push(line) });

function authentication(apiToken: string | undefined): Authenticate {
  const digests = new Map(Object.entries(HOST_TOKENS).map(([hostId, token]) => [createHash("sha256").update(token).digest("hex"), hostId]));
  return createAuthenticate({
    ...(apiToken === undefined ? {} : { apiToken }),
    findHostByToken(sha256) {
      const hostId = digests.get(Buffer.from(sha256).toString("hex"));
      return Promise.resolve(hostId === undefined ? undefined : { hostId });
    },
  });
}

/** A service that does nothing but what it must: ask whether its caller may speak for the host it names. */
function tinyImplementation(method: DescMethod): unknown {
  const admit = (request: unknown, context: HandlerContext): void => {
    const principal = principalOf(context);
    const named = hostIdOf(request);
    if (named !== undefined) requireHost(principal, named);
  };
  switch (method.methodKind) {
    case "unary":
      return (request: unknown, context: HandlerContext) => {
        admit(request, context);
        return {};
      };
    case "server_streaming":
      return async function* (request: unknown, context: HandlerContext) {
        admit(request, context);
        yield {};
      };
    default:
      return async function* (requests: AsyncIterable<unknown>, context: HandlerContext) {
        for await (const request of requests) {
          admit(request, context);
          yield {};
        }
      };
  }
}

function hostIdOf(request: unknown): string | undefined {
  const { hostId, attachment, message } = request as {
    hostId?: string;
    attachment?: { hostId: string };
    message?: { value?: { hostId: string } };
  };
  return hostId ?? attachment?.hostId ?? message?.value?.hostId;
}

async function serve(apiToken: string | undefined): Promise<{ listener: Listener; transport: Transport }> {
  const handler = createHttpHandler({
    routes: (router) => {
      for (const service of [SessionService, ToolCallService, HostService]) {
        router.service(service, Object.fromEntries(service.methods.map((method) => [method.localName, tinyImplementation(method)])));
      }
    },
    guard: createGuard({ host: "127.0.0.1", publicUrl: "", allowOrigins: [] }),
    authenticate: authentication(apiToken),
    async *attach() {},
    health: createHealth(SERVED_SERVICES),
    metrics: createMetrics(),
    shutdownSignal: new AbortController().signal,
    version: "0.0.0",
    clock: systemClock,
    log,
    limits: { commentEveryMs: 15_000, requestBytes: 4 * 1024 * 1024, responseBytes: 4 * 1024 * 1024 },
  });
  const listener = await openListener({
    host: "127.0.0.1",
    port: 0,
    handler,
    limits: {
      protocolDecisionMs: 5000,
      connections: 100,
      streamsPerConnection: 2000,
      headerBytes: 16 * 1024,
      headersMs: 10_000,
      requestMs: 60_000,
      idleConnectionMs: 60_000,
      idleSessionMs: 60_000,
      sessionMemoryMib: 64,
    },
    log,
  });
  return { listener, transport: createGrpcTransport({ baseUrl: listener.url }) };
}

/** `ok`, or the reason of the refusal (its code where it has none). */
async function call(transport: Transport, method: DescMethod, authorization: string | undefined): Promise<string> {
  const header = authorization === undefined ? {} : { authorization };
  const request = requestTo(method);
  try {
    if (method.methodKind === "unary") {
      await transport.unary(method as DescMethodUnary, undefined, undefined, header, request);
    } else {
      const leave = new AbortController();
      const requests = (async function* () {
        yield request;
      })();
      const response = await transport.stream(method as DescMethodStreaming, leave.signal, undefined, header, requests);
      for await (const _message of response.message) break;
      leave.abort();
    }
    return "ok";
  } catch (error) {
    const connectError = ConnectError.from(error);
    return connectError.findDetails(ErrorReasonSchema)[0]?.reason ?? Code[connectError.code];
  }
}

function requestTo(method: DescMethod): Record<string, unknown> {
  if (method.parent !== HostService)
    return method.name === "ServerReflectionInfo" ? { messageRequest: { case: "listServices", value: "" } } : {};
  if (method.name === "WatchCommands") return { attachment: { hostId: "a" } };
  if (method.name === "Attach") return { message: { case: "attachment", value: { hostId: "a" } } };
  return NAMES_ITS_HOST.includes(method.name) ? { hostId: "a" } : {};
}

function expected(method: DescMethod, token: string, asksForToken: boolean): string {
  if (method.parent.typeName === "grpc.health.v1.Health") return "ok";
  if (token === "missing") return asksForToken ? "unauthenticated" : "ok";
  if (token === "api") return asksForToken ? "ok" : "unauthenticated";
  if (token === "hostA") return HOST_RPCS.includes(method.name) ? "ok" : "permission_denied";
  if (token === "hostB") return HOST_RPCS.includes(method.name) && !NAMES_ITS_HOST.includes(method.name) ? "ok" : "permission_denied";
  return "unauthenticated";
}

const METHODS = SERVED_SERVICES.flatMap((service) => service.methods);

describe.each([
  ["with an API token", API_TOKEN],
  ["without an API token", undefined],
])("a server %s", (_name, apiToken) => {
  let listener: Listener;
  let transport: Transport;
  beforeAll(async () => {
    ({ listener, transport } = await serve(apiToken));
  });
  afterAll(() => listener.close(0));

  test.each(Object.entries(AUTHORIZATIONS))("answers every RPC as the table says for a token that is %s", async (token, authorization) => {
    const got = Object.fromEntries(
      await Promise.all(
        METHODS.map(async (method) => [`${method.parent.typeName}/${method.name}`, await call(transport, method, authorization)]),
      ),
    );
    const wanted = Object.fromEntries(
      METHODS.map((method) => [`${method.parent.typeName}/${method.name}`, expected(method, token, apiToken !== undefined)]),
    );
    expect(got).toEqual(wanted);
  });

  test("asks the same of /metrics, and nothing of /healthz", async () => {
    const codes = async (path: string): Promise<number[]> =>
      Promise.all(
        [undefined, "Bearer wrong", `Bearer ${HOST_TOKENS["a"]}`, `Bearer ${API_TOKEN}`].map(
          async (authorization) =>
            (await fetch(`${listener.url}${path}`, { headers: authorization === undefined ? {} : { authorization } })).status,
        ),
      );
    expect(await codes("/metrics")).toEqual(apiToken === undefined ? [200, 401, 403, 401] : [401, 401, 403, 200]);
    expect(await codes("/healthz")).toEqual([200, 200, 200, 200]);
  });
});

test("every RPC of every served service is in the table", () => {
  expect(METHODS.length).toBeGreaterThan(20);
  expect(METHODS.filter((method) => callersOf(method) === undefined)).toEqual([]);
});

test("a missing, a wrong and a malformed token are refused with the same words, which hold no token", async () => {
  const authenticate = authentication(API_TOKEN);
  const refusals = await Promise.all(
    ["missing", "wrong", "empty", "basic", "twice", "prefix", "bare"].map((token) =>
      authenticate({ authorization: AUTHORIZATIONS[token] }).then(
        () => "admitted",
        (error: unknown) => JSON.stringify({ ...(error as object), message: (error as Error).message }),
      ),
    ),
  );
  expect(new Set(refusals).size).toBe(1);
  expect(refusals[0]).toContain("unauthenticated");
});

test("no token is in the log", () => {
  const written = lines.join("");
  for (const token of [API_TOKEN, ...Object.values(HOST_TOKENS), "nobody-has-this"]) expect(written).not.toContain(token);
});
