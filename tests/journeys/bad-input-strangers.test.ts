import { once } from "node:events";
import * as http from "node:http";
import * as net from "node:net";
import { isBrainError } from "@aexhq/brain";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Json, type JsonAnswer, read, type Service } from "../support/connect-json.js";
import { FetchHost, StreamRefused } from "../support/fetch-host.js";
import { expectRefused, WireGround } from "../support/wire-ground.js";

let ground: WireGround;
beforeAll(async () => {
  ground = await WireGround.open();
});
afterAll(() => ground.close());
afterEach(() => ground.expectAlive());

describe("what Brain does not know", () => {
  const SESSION_RPCS = [
    ["SessionService/GetSession", {}],
    ["SessionService/EndSession", {}],
    ["SessionService/DeleteSession", {}],
    ["SessionService/ListRecords", {}],
    ["ToolCallService/CallTool", { callId: "one", name: "echo", environment: "app", inputJson: "1" }],
    ["ToolCallService/GetToolCall", { callId: "one" }],
    ["ToolCallService/ListToolCalls", {}],
    ["ToolCallService/CancelToolCall", { callId: "one" }],
  ] as const;

  test.each(SESSION_RPCS)("is refused by its name: a session, to %s", async (rpc, message) => {
    for (const sessionId of ["never-was", "", crypto.randomUUID(), "x".repeat(10_000), "\u0000"]) {
      expectRefused(await ground.wire.post(rpc, { ...message, sessionId }), 404, "session_not_found", {
        session_id: sessionId.slice(0, 80),
      });
    }
  });

  test("is refused by its name: a session, to a watch, which ends at once", async () => {
    const { messages, end } = await ground.wire.frames("SessionService/WatchRecords", { sessionId: "never-was" });
    expect(messages).toEqual([]);
    expect(end).toMatchObject({ code: "not_found", reason: "session_not_found", metadata: { session_id: "never-was" } });
    const gone: unknown = await ground.brain.sessions.get("never-was").catch((error: unknown) => error);
    expect(isBrainError(gone) && gone.reason).toBe("session_not_found");
  });

  test("is refused by its name: a call, and nothing is committed", async () => {
    const sessionId = await ground.createSession();
    for (const by of [{ callId: "never-was" }, { callSequence: 99 }, { callSequence: 1 }, { callSequence: 0 }]) {
      for (const rpc of ["ToolCallService/GetToolCall", "ToolCallService/CancelToolCall"] as const) {
        expectRefused(await ground.wire.post(rpc, { sessionId, ...by }), 404, "call_not_found", { session_id: sessionId });
      }
    }
    for (const by of [{}, { callId: "" }]) {
      for (const rpc of ["ToolCallService/GetToolCall", "ToolCallService/CancelToolCall"] as const) {
        expectRefused(await ground.wire.post(rpc, { sessionId, ...by }), 400, "invalid_argument");
      }
    }
    const event = { kind: "k", dataJson: "1", emitId: "e" };
    for (const callSequence of [0, 1, 99]) {
      expectRefused(await ground.wire.post("HostService/EmitEvent", { sessionId, callSequence, ...event }), 404, "call_not_found");
      const outcome = { ok: { valueJson: "1" } };
      expectRefused(await ground.wire.post("HostService/ReportOutcome", { sessionId, callSequence, outcome }), 404, "call_not_found");
    }
    expectRefused(
      await ground.wire.post("HostService/EmitEvent", { sessionId: "never-was", callSequence: 2, ...event }),
      404,
      "call_not_found",
    );
    expect(await ground.lastSequence(sessionId)).toBe(1);
  });

  test("is refused by its name: a host", async () => {
    for (const rpc of ["HostService/GetHost", "HostService/DeleteHost"] as const) {
      expectRefused(await ground.wire.post(rpc, { hostId: "never-was" }), 404, "host_not_found", { host_id: "never-was" });
    }
    const before = await ground.sessionCount();
    const environments = [{ name: "app", host: { hostId: "never-was" } }];
    const tools = [{ tool: { name: "echo", inputSchemaJson: "true" }, environment: "app", implementation: { hostFunction: {} } }];
    const answer = await ground.wire.post("SessionService/CreateSession", { environments, tools });
    expectRefused(answer, 404, "host_not_found", { environment: "app", host_id: "never-was" });
    expect(await ground.sessionCount()).toBe(before);
    const host = new FetchHost(ground.wire, "never-was");
    await expect(host.attachByGet()).rejects.toSatisfy(
      (error) => error instanceof StreamRefused && error.answer.reason === "host_not_found",
    );
  });

  test("is refused by its name: a path, a method, a content type", async () => {
    const at = async (path: string, request: RequestInit = {}): Promise<JsonAnswer & { allow: string | null }> => {
      const response = await fetch(`${ground.server.url}${path}`, {
        ...request,
        headers: { ...ground.wire.authorization, ...request.headers },
      });
      return { ...read(response.status, await response.text()), allow: response.headers.get("allow") };
    };
    const list = "/brain.v1.SessionService/ListSessions";
    expectRefused(await at("/brain.v1.SessionService/Nope", { method: "POST" }), 404, "path_not_found", {
      path: "/brain.v1.SessionService/Nope",
    });
    expectRefused(await at("/nowhere"), 404, "path_not_found");
    expectRefused(await at("/v1/nowhere"), 404, "path_not_found");
    const got = await at(list);
    expectRefused(got, 405, "method_not_allowed");
    expect(got.allow).toBe("POST");
    for (const type of ["text/plain", "application/x-www-form-urlencoded", "application/xml"]) {
      expectRefused(await at(list, { method: "POST", body: "{}", headers: { "Content-Type": type } }), 415, "unsupported_media_type");
    }
    expectRefused(await at("/v1/hosts/h/commands", { method: "DELETE" }), 405, "method_not_allowed");
  });
});

describe("a token", () => {
  const RPCS: `${Service}/${string}`[] = [
    ...(["CreateSession", "GetSession", "ListSessions", "EndSession", "DeleteSession", "ListRecords"] as const).map(
      (rpc) => `SessionService/${rpc}` as const,
    ),
    ...(["CallTool", "GetToolCall", "ListToolCalls", "CancelToolCall"] as const).map((rpc) => `ToolCallService/${rpc}` as const),
    ...(["RegisterHost", "Heartbeat", "EmitEvent", "ReportOutcome", "Detach", "GetHost", "ListHosts", "DeleteHost"] as const).map(
      (rpc) => `HostService/${rpc}` as const,
    ),
  ];
  const STREAMS = ["SessionService/WatchRecords", "HostService/WatchCommands"] as const;

  test.each(RPCS)("that is missing, wrong or malformed is refused alike by %s", async (rpc) => {
    const answers = [
      await ground.wire.as(undefined).post(rpc, {}),
      await ground.wire.as("wrong").post(rpc, {}),
      await ground.wire.as(`${ground.token}x`).post(rpc, {}),
      await ground.wire.as(undefined).post(rpc, {}, { Authorization: ground.token }),
      await ground.wire.as(undefined).post(rpc, {}, { Authorization: `Basic ${ground.token}` }),
      await ground.wire.as(undefined).post(rpc, {}, { Authorization: `Bearer ${ground.token}, Bearer wrong` }),
    ];
    for (const answer of answers) {
      expectRefused(answer, 401, "unauthenticated");
      expect(answer.message).toBe(answers[0]?.message);
    }
  });

  test("that is missing or wrong opens no stream, on any route", async () => {
    for (const rpc of STREAMS) {
      for (const token of [undefined, "wrong"]) {
        const { messages, end } = await ground.wire.as(token).frames(rpc, { attachment: { hostId: "h", instanceId: "i" } });
        expect(messages).toEqual([]);
        expect(end).toMatchObject({ code: "unauthenticated", reason: "unauthenticated" });
      }
    }
    const { hostId } = await FetchHost.register(ground.wire);
    for (const token of [undefined, "wrong"]) {
      const stranger = new FetchHost(ground.wire.as(token), hostId);
      await expect(stranger.attachByGet()).rejects.toSatisfy((error) => error instanceof StreamRefused && error.answer.httpStatus === 401);
      await expect(stranger.attachByPost({ generation: 1 })).rejects.toSatisfy(
        (error) => error instanceof StreamRefused && error.answer.reason === "unauthenticated",
      );
      expect((await fetch(`${ground.server.url}/metrics`, { headers: ground.wire.as(token).authorization })).status).toBe(401);
    }
    expect((await fetch(`${ground.server.url}/healthz`)).status).toBe(200);
  });

  test("of a host opens nothing but that host's own doors", async () => {
    const host = await FetchHost.register(ground.wire);
    const sessionId = await ground.createSession();
    const api = RPCS.filter((rpc) => !/Heartbeat|EmitEvent|ReportOutcome|Detach/.test(rpc));
    for (const rpc of api) expectRefused(await host.wire.post(rpc, { sessionId }), 403, "permission_denied");
    const { end } = await host.wire.frames("SessionService/WatchRecords", { sessionId });
    expect(end).toMatchObject({ code: "permission_denied", reason: "permission_denied" });
    expect(await ground.lastSequence(sessionId)).toBe(1);
  });

  test("of a host neither sees nor touches another host's calls and streams", async () => {
    const owner = await FetchHost.register(ground.wire);
    const stranger = await FetchHost.register(ground.wire);
    await owner.attachByGet();
    const sessionId = await ground.createSessionOf(owner.hostId);
    const calling = ground.callTool({ sessionId, inputJson: "1" });
    const command = await owner.runTool();

    const missing = { httpStatus: 404, reason: "call_not_found" };
    expect(await stranger.emit(command, "tick", 1)).toMatchObject(missing);
    expect(await stranger.report(command, { ok: { valueJson: '"stolen"' } })).toMatchObject(missing);
    // It is answered as a call that never was, word for word.
    const never = await stranger.report({ ...command, callSequence: 999 }, { ok: { valueJson: '"stolen"' } });
    expect(never.message.replace("999", "2")).toBe((await stranger.report(command, { ok: { valueJson: '"stolen"' } })).message);

    const posing = new FetchHost(stranger.wire, owner.hostId, owner.instanceId);
    expect(await posing.heartbeat([command])).toMatchObject({ httpStatus: 403, reason: "permission_denied" });
    expect(await posing.detach(1)).toMatchObject({ httpStatus: 403, reason: "permission_denied" });
    await expect(posing.attachByGet()).rejects.toSatisfy((error) => error instanceof StreamRefused && error.answer.httpStatus === 403);
    await expect(posing.attachByPost({ generation: 9 })).rejects.toSatisfy(
      (error) => error instanceof StreamRefused && error.answer.reason === "permission_denied",
    );
    const watched = await stranger.wire.frames("HostService/WatchCommands", { attachment: { hostId: owner.hostId, instanceId: "i" } });
    expect(watched.end.reason).toBe("permission_denied");
    // Listing somebody else's call makes nobody its holder, and tells nothing about it.
    await stranger.attachByPost({ generation: 1, heldCalls: { calls: [] } });
    for (const callSequence of [2, 999]) {
      const unknown = { sessionId, callSequence };
      expect((await stranger.heartbeat([unknown])).body).toEqual({ ended: [unknown] });
    }
    expect(await stranger.report(command, { ok: { valueJson: '"stolen"' } })).toMatchObject(missing);
    expect(await ground.lastSequence(sessionId)).toBe(2);

    expect((await owner.report(command, { ok: { valueJson: '"mine"' } })).body.disposition).toBe("DISPOSITION_RECORDED");
    expect((await calling).outcome).toEqual({ ok: { valueJson: '"mine"' } });
    owner.drop();
    stranger.drop();
  });
});

describe("H30: pages and cursors", () => {
  const BAD_CURSORS = [-1, "abc", 1.5, 2 ** 53, 2 ** 32, true, { a: 1 }];
  const BAD_SIZES = [-5, 1e9, 1001, 1.5, "many"];

  test("of records that are none are refused, and never answered from the start", async () => {
    const sessionId = await ground.createSession();
    for (let count = 0; count < 3; count++) await ground.callTool({ sessionId, inputJson: "1" });
    for (const afterSequence of BAD_CURSORS) {
      expectRefused(await ground.wire.post("SessionService/ListRecords", { sessionId, afterSequence }), 400, "invalid_argument");
    }
    for (const pageSize of BAD_SIZES) {
      expectRefused(await ground.wire.post("SessionService/ListRecords", { sessionId, pageSize }), 400, "invalid_argument");
    }
    const beyond = await ground.wire.post("SessionService/ListRecords", { sessionId, afterSequence: 17 });
    expectRefused(beyond, 400, "invalid_argument", { field: "after_sequence" });
    const watch = await ground.wire.frames("SessionService/WatchRecords", { sessionId, afterSequence: 17 });
    expect(watch).toMatchObject({ messages: [], end: { code: "invalid_argument", reason: "invalid_argument" } });

    // The last one gives an empty page, and a cursor that goes on working.
    expect(await ground.wire.ask("SessionService/ListRecords", { sessionId, afterSequence: 7 })).toEqual({ lastSequence: 7 });
    await ground.callTool({ sessionId, inputJson: "1" });
    const page = await ground.wire.ask("SessionService/ListRecords", { sessionId, afterSequence: 7 });
    expect(page.records.map(({ sequence }: Json) => sequence)).toEqual([8, 9]);
    const all = await ground.wire.ask("SessionService/ListRecords", { sessionId, pageSize: 0 });
    expect(all.records).toHaveLength(9);
    const paged: number[] = [];
    while (paged.length < 9) {
      const { records } = await ground.wire.ask("SessionService/ListRecords", { sessionId, afterSequence: paged.at(-1) ?? 0, pageSize: 2 });
      paged.push(...records.map(({ sequence }: Json) => sequence));
    }
    expect(paged).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });

  test("of calls, sessions and hosts that are none are refused", async () => {
    const sessionId = await ground.createSession();
    for (const rpc of ["ToolCallService/ListToolCalls", "SessionService/ListSessions", "HostService/ListHosts"] as const) {
      for (const pageToken of ["abc", "-1", "1.5", "0", "1e3", "' OR 1=1 --", "9".repeat(400)]) {
        expectRefused(await ground.wire.post(rpc, { sessionId, pageToken }), 400, "invalid_argument", { field: "page_token" });
      }
      for (const pageSize of BAD_SIZES) expectRefused(await ground.wire.post(rpc, { sessionId, pageSize }), 400, "invalid_argument");
    }
  });

  test("of the SDK that are none are refused before anything is asked", async () => {
    const session = await ground.brain.sessions.get(await ground.createSession());
    for (const cursor of [-1, 1.5, 2 ** 53, Number.NaN, "abc" as never]) expect(() => session.records(cursor)).toThrow("cursor");
    const beyond: unknown = await session
      .records(11)
      .next()
      .catch((error: unknown) => error);
    expect(isBrainError(beyond) && beyond.reason).toBe("invalid_argument");
  });
});

describe("a stranger at the port", () => {
  const request = (
    path: string,
    headers: Record<string, string>,
    method = "GET",
  ): Promise<JsonAnswer & { headers: http.IncomingHttpHeaders }> =>
    new Promise((resolve, reject) => {
      const asked = http.request(`${ground.server.url}${path}`, { method, headers, agent: false }, (response) => {
        let text = "";
        response.setEncoding("utf8");
        response.on("data", (chunk) => {
          text += chunk;
        });
        response.on("end", () => {
          const isJson = /json/.test(response.headers["content-type"] ?? "");
          resolve({ ...read(response.statusCode ?? 0, isJson ? text : ""), headers: response.headers });
        });
      });
      asked.on("error", reject);
      asked.end(method === "POST" ? "{}" : undefined);
    });
  const PATHS = ["/", "/healthz", "/metrics", "/v1/hosts/h/commands?instance_id=i", "/brain.v1.SessionService/ListSessions", "/nowhere"];

  test("with a foreign Host is misdirected on every path, with or without the token", async () => {
    const { port } = new URL(ground.server.url);
    for (const host of ["evil.example", `evil.example:${port}`, "127.0.0.1:1", "localhost.evil.example", "127.0.0.1.evil.example", "a b"]) {
      for (const path of PATHS) {
        expectRefused(await request(path, { ...ground.wire.authorization, Host: host }), 421, "misdirected_request");
      }
    }
    expectRefused(await request("/brain.v1.SessionService/ListSessions", { Host: "evil.example" }, "POST"), 421, "misdirected_request");
    for (const host of [`127.0.0.1:${port}`, `localhost:${port}`, "localhost", `[::1]:${port}`]) {
      expect((await request("/healthz", { Host: host })).httpStatus).toBe(200);
    }
  });

  test("with a foreign Origin is forbidden on every path, and gets no CORS headers", async () => {
    for (const origin of ["http://evil.example", "https://127.0.0.1", "null", `${ground.server.url}.evil.example`, "http://127.0.0.1:1"]) {
      for (const path of PATHS) {
        const answer = await request(path, { ...ground.wire.authorization, Origin: origin });
        expectRefused(answer, 403, "origin_not_allowed");
        expect(Object.keys(answer.headers).filter((name) => name.startsWith("access-control-"))).toEqual([]);
      }
      const preflight = await request(
        "/brain.v1.SessionService/ListSessions",
        { Origin: origin, "Access-Control-Request-Method": "POST" },
        "OPTIONS",
      );
      expectRefused(preflight, 403, "origin_not_allowed");
    }
    expect((await request("/healthz", { Origin: ground.server.url })).httpStatus).toBe(200);
  });

  test("that sends nothing, or never gets to the point, is closed", async () => {
    const { hostname, port } = new URL(ground.server.url);
    const connect = async (said: string): Promise<{ said: string; got: string; ms: number }> => {
      const since = performance.now();
      const socket = net.connect(Number(port), hostname);
      let got = "";
      socket.on("data", (chunk) => {
        got += chunk.toString("latin1");
      });
      socket.on("error", () => undefined);
      await once(socket, "connect");
      if (said !== "") socket.write(said);
      await once(socket, "close");
      return { said, got, ms: performance.now() - since };
    };
    const [silent, half, slow, garbage] = await Promise.all([
      connect(""),
      connect("PRI * HTTP/2"),
      connect(`POST /brain.v1.SessionService/ListSessions HTTP/1.1\r\nHost: ${hostname}:${port}\r\n`),
      connect("\u0000\u0001\u0002 what is this\r\n\r\n"),
    ]);
    // Who names no server at all is misdirected too; the rest of such a request is not waited for.
    for (const head of ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n"]) {
      expect((await connect(head)).got).toMatch(/^HTTP\/1\.1 421 /);
    }
    for (const { said, ms } of [silent, half]) {
      expect(ms, JSON.stringify(said)).toBeGreaterThan(4_000);
      expect(ms, JSON.stringify(said)).toBeLessThan(10_000);
    }
    expect(slow.ms).toBeLessThan(18_000);
    expect(slow.got).toMatch(/^(HTTP\/1\.1 408 |$)/);
    expect(garbage.got).toMatch(/^HTTP\/1\.1 400 /);
    expect(garbage.ms).toBeLessThan(3_000);
  }, 40_000);
});
