import { createHash } from "node:crypto";
import { once } from "node:events";
import * as http from "node:http";
import type { AddressInfo } from "node:net";
import { type Command, CommandSchema, ErrorReasonSchema, type HostAttachment } from "@aexhq/brain-proto";
import { create, fromBinary } from "@bufbuild/protobuf";
import { base64Decode } from "@bufbuild/protobuf/wire";
import { pino } from "pino";
import { afterEach, describe, expect, test } from "vitest";
import { Refusal } from "../core/refusal.js";
import { createAuthenticate } from "../rpc/authorize.js";
import { systemClock } from "../runtime/clock.js";
import { createHostCommands } from "./host-commands.js";

const REQUEST_BYTES = 64 * 1024;
const HOST_TOKEN_SHA256 = createHash("sha256").update("host-token").digest();
const ATTACHED = create(CommandSchema, { kind: { case: "attached", value: { generation: 7, serverVersion: "0.1.0" } } });
const HEARTBEAT = create(CommandSchema, { kind: { case: "heartbeat", value: {} } });

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

interface Attach {
  hostId: string;
  attachment: HostAttachment;
  signal: AbortSignal;
}

async function serve(commands: (attach: Attach) => AsyncIterable<Command>): Promise<{
  url: string;
  attaches: Attach[];
  lines: string[];
  shutDown: () => void;
}> {
  const attaches: Attach[] = [];
  const lines: string[] = [];
  const shutdown = new AbortController();
  const route = createHostCommands({
    authenticate: createAuthenticate({
      apiToken: "api",
      findHostByToken: (sha256) => Promise.resolve(HOST_TOKEN_SHA256.equals(sha256) ? { hostId: "h/1" } : undefined),
    }),
    attach(hostId, attachment, signal) {
      const attach = { hostId, attachment, signal };
      attaches.push(attach);
      return commands(attach);
    },
    shutdownSignal: shutdown.signal,
    clock: systemClock,
    log: pino({ level: "trace" }, { write: (line: string) => lines.push(line) }),
    limits: { commentEveryMs: 15_000, requestBytes: REQUEST_BYTES },
  });
  const server = http.createServer((req, res) => {
    if (!route(req, res)) res.writeHead(404).end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  cleanups.push(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, attaches, lines, shutDown: () => shutdown.abort() };
}

async function* untilLeft(attach: Attach, ...commands: Command[]): AsyncGenerator<Command> {
  yield* commands;
  if (!attach.signal.aborted) await once(attach.signal, "abort");
}

const api = { authorization: "Bearer api" };
const json = { ...api, "content-type": "application/json" };

/** The reason in the Connect error of a response, with its HTTP status. */
async function refusalOf(response: Response): Promise<string> {
  const body = (await response.json()) as { code: string; message: string; details: { type: string; value: string }[] };
  expect(response.headers.get("content-type")).toBe("application/json");
  expect(body.details[0]?.type).toBe("brain.v1.ErrorReason");
  expect(body.message).not.toBe("");
  return `${response.status} ${fromBinary(ErrorReasonSchema, base64Decode(body.details[0]?.value ?? "")).reason}`;
}

async function readUntil(response: Response, enough: (text: string) => boolean): Promise<string> {
  let text = "";
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    text += new TextDecoder().decode(chunk);
    if (enough(text)) break;
  }
  return text;
}

describe("attaching", () => {
  test("GET names the instance in the query and keeps no list", async () => {
    const { url, attaches } = await serve((attach) => untilLeft(attach, ATTACHED, HEARTBEAT));
    const response = await fetch(`${url}/v1/hosts/h1/commands?instance_id=i%201&generation=3&max_concurrent_calls=8`, { headers: api });
    expect(response.status).toBe(200);
    const text = await readUntil(response, (got) => got.includes("heartbeat"));
    expect(text).toContain('data: {"attached":{"generation":7,"serverVersion":"0.1.0"}}\n\n');
    expect(text).toContain('data: {"heartbeat":{}}\n\n');
    expect(attaches[0]).toMatchObject({
      hostId: "h1",
      attachment: { hostId: "h1", instanceId: "i 1", generation: 3, maxConcurrentCalls: 8 },
    });
    expect(attaches[0]?.attachment.heldCalls).toBeUndefined();
  });

  test("POST sends a HostAttachment, whose absent list stays absent and whose empty list stays empty", async () => {
    const { url, attaches } = await serve((attach) => untilLeft(attach, ATTACHED));
    for (const heldCalls of [{}, { calls: [{ sessionId: "s", callSequence: 4 }] }, undefined]) {
      const body = JSON.stringify({ instanceId: "i", generation: 2, heldCalls, servedTools: [{ environment: "e", name: "t" }], later: 1 });
      const response = await fetch(`${url}/v1/hosts/h1/commands`, { method: "POST", headers: json, body });
      expect(response.status).toBe(200);
      await response.body?.cancel();
    }
    expect(attaches.map(({ attachment }) => attachment.heldCalls?.calls.length)).toEqual([0, 1, undefined]);
    expect(attaches[0]?.attachment).toMatchObject({ hostId: "h1", instanceId: "i", servedTools: [{ environment: "e", name: "t" }] });
  });

  test("a host's own token attaches that host, whatever its id looks like in a URL, and no other", async () => {
    const { url, attaches } = await serve((attach) => untilLeft(attach, ATTACHED));
    const headers = { authorization: "Bearer host-token" };
    const response = await fetch(`${url}/v1/hosts/h%2F1/commands?instance_id=i`, { headers });
    expect(response.status).toBe(200);
    expect(attaches[0]?.hostId).toBe("h/1");
    await response.body?.cancel();
    expect(await refusalOf(await fetch(`${url}/v1/hosts/other/commands?instance_id=i`, { headers }))).toBe("403 permission_denied");
    expect(attaches).toHaveLength(1);
  });

  test("when the client leaves, the attachment is told", async () => {
    const { url, attaches } = await serve((attach) => untilLeft(attach, ATTACHED));
    const leave = new AbortController();
    await fetch(`${url}/v1/hosts/h1/commands?instance_id=i`, { headers: api, signal: leave.signal });
    const { signal } = attaches[0] as Attach;
    leave.abort();
    if (!signal.aborted) await once(signal, "abort");
    expect(signal.aborted).toBe(true);
  });

  test("when the server stops, the stream ends", async () => {
    const { url, shutDown } = await serve((attach) => untilLeft(attach, ATTACHED));
    const response = await fetch(`${url}/v1/hosts/h1/commands?instance_id=i`, { headers: api });
    shutDown();
    expect(await response.text()).toContain("attached");
    expect(await refusalOf(await fetch(`${url}/v1/hosts/h1/commands?instance_id=i`, { headers: api }))).toBe("503 server_draining");
  });

  test("a client that leaves before its first command is no failure of the server", async () => {
    let ask: (attach: Attach) => void = () => {};
    const asked = new Promise<Attach>((resolve) => {
      ask = resolve;
    });
    const { url, lines } = await serve((attach) => {
      ask(attach);
      return (async function* () {
        yield* untilLeft(attach);
        throw attach.signal.reason;
      })();
    });
    const leave = new AbortController();
    const response = fetch(`${url}/v1/hosts/h1/commands?instance_id=i`, { headers: api, signal: leave.signal });
    const { signal } = await asked;
    leave.abort();
    await expect(response).rejects.toThrow();
    if (!signal.aborted) await once(signal, "abort");
    // A whole further request: by its answer, the first one has been dealt with.
    expect((await fetch(`${url}/v1/hosts/h1/commands`, { headers: api })).status).toBe(400);
    expect(lines).toEqual([]);
  });
});

describe("refusing", () => {
  const cases: [string, string, RequestInit, string][] = [
    ["no token", "/v1/hosts/h1/commands?instance_id=i", {}, "401 unauthenticated"],
    ["a wrong token", "/v1/hosts/h1/commands?instance_id=i", { headers: { authorization: "Bearer x" } }, "401 unauthenticated"],
    ["no instance", "/v1/hosts/h1/commands", { headers: api }, "400 invalid_argument"],
    ["a generation that is no number", "/v1/hosts/h1/commands?instance_id=i&generation=-1", { headers: api }, "400 invalid_argument"],
    ["a generation over its range", "/v1/hosts/h1/commands?instance_id=i&generation=4294967296", { headers: api }, "400 invalid_argument"],
    ["a host_id that is no UTF-8", "/v1/hosts/%ff/commands?instance_id=i", { headers: api }, "400 invalid_argument"],
    ["another method", "/v1/hosts/h1/commands", { method: "DELETE", headers: api }, "405 method_not_allowed"],
    [
      "a form",
      "/v1/hosts/h1/commands",
      { method: "POST", headers: { ...json, "content-type": "text/plain" }, body: "{}" },
      "415 unsupported_media_type",
    ],
    [
      "a body without a type",
      "/v1/hosts/h1/commands",
      { method: "POST", headers: api, body: new Uint8Array([123, 125]) },
      "415 unsupported_media_type",
    ],
    [
      "a compressed body",
      "/v1/hosts/h1/commands",
      { method: "POST", headers: { ...json, "content-encoding": "gzip" }, body: "x" },
      "415 unsupported_media_type",
    ],
    ["a body that is no JSON", "/v1/hosts/h1/commands", { method: "POST", headers: json, body: "{" }, "400 invalid_argument"],
    [
      "a body that is no UTF-8",
      "/v1/hosts/h1/commands",
      { method: "POST", headers: json, body: new Uint8Array([34, 255, 34]) },
      "400 invalid_argument",
    ],
    [
      "a body that is another message",
      "/v1/hosts/h1/commands",
      { method: "POST", headers: json, body: '{"generation":"x"}' },
      "400 invalid_argument",
    ],
    ["a body of another host", "/v1/hosts/h1/commands", { method: "POST", headers: json, body: '{"hostId":"h2"}' }, "400 invalid_argument"],
    [
      "a body over the limit",
      "/v1/hosts/h1/commands",
      { method: "POST", headers: json, body: " ".repeat(REQUEST_BYTES + 1) },
      "413 request_too_large",
    ],
  ];
  test.each(cases)("%s is refused before anything is attached", async (_name, path, init, expected) => {
    const { url, attaches } = await serve((attach) => untilLeft(attach, ATTACHED));
    expect(await refusalOf(await fetch(`${url}${path}`, init))).toBe(expected);
    expect(attaches).toEqual([]);
  });

  test("a body over the limit that does not say its length is refused with its answer, not with a reset", async () => {
    const { url } = await serve((attach) => untilLeft(attach, ATTACHED));
    const request = http.request(`${url}/v1/hosts/h1/commands`, { method: "POST", headers: json });
    request.on("error", () => {});
    request.write(" ".repeat(REQUEST_BYTES + 1));
    const [response] = (await once(request, "response")) as [http.IncomingMessage];
    expect(response.statusCode).toBe(413);
    request.destroy();
  });

  test("what the attachment refuses has its HTTP status", async () => {
    const { url } = await serve(() => {
      throw new Refusal("host_not_found", "no host h1");
    });
    expect(await refusalOf(await fetch(`${url}/v1/hosts/h1/commands?instance_id=i`, { headers: api }))).toBe("404 host_not_found");
  });

  test("what is refused later is the last event, by name", async () => {
    const { url, lines } = await serve(async function* () {
      yield ATTACHED;
      throw new Refusal("attach_superseded", "generation 2 of instance i has attached");
    });
    const text = await (await fetch(`${url}/v1/hosts/h1/commands?instance_id=i`, { headers: api })).text();
    expect(text).toMatch(/event: refusal\ndata: \{"code":"aborted".*"attach_superseded".*\}\n\n$/);
    expect(lines).toEqual([]);
  });

  test("a bug is a 500 that says nothing of its cause, which is logged once", async () => {
    const { url, lines } = await serve(() => {
      throw new Error("secret-4711");
    });
    const response = await fetch(`${url}/v1/hosts/h1/commands?instance_id=i`, { headers: api });
    expect(response.status).toBe(500);
    expect(await response.text()).not.toContain("4711");
    expect(lines.filter((line) => line.includes("secret-4711"))).toHaveLength(1);
  });
});

test("a path beside the route is left alone", async () => {
  const { url } = await serve((attach) => untilLeft(attach, ATTACHED));
  for (const path of ["/v1/hosts//commands", "/v1/hosts/h1/commands/", "/v1/hosts/a/b/commands", "/v1/hosts"]) {
    expect((await fetch(`${url}${path}`, { headers: api })).status).toBe(404);
  }
});
