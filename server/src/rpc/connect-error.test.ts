import { ErrorReasonSchema, HostService, SessionService } from "@aexhq/brain-proto";
import { Code, ConnectError, createClient, createRouterTransport } from "@connectrpc/connect";
import { pino } from "pino";
import { beforeEach, describe, expect, test } from "vitest";
import { REFUSAL_REASONS } from "../core/codes.js";
import { Refusal } from "../core/refusal.js";
import { isRefusal, refusals, refusalToConnectError } from "./connect-error.js";

const lines: { msg: string; rpc?: string; err?: { message: string } }[] = [];
const log = pino({ level: "trace" }, { write: (line: string) => lines.push(JSON.parse(line)) });
beforeEach(() => {
  lines.length = 0;
});

function transport(fail: () => never): ReturnType<typeof createRouterTransport> {
  return createRouterTransport(
    (router) => {
      router.service(SessionService, { getSession: fail });
      router.service(HostService, {
        async *watchCommands() {
          yield {};
          fail();
        },
        async *attach(requests) {
          for await (const _request of requests) yield {};
          fail();
        },
      });
    },
    { router: { interceptors: [refusals(log)] } },
  );
}

/** How the RPC ends, by each way an error can leave a service. */
const WAYS = {
  "before the response": (fail: () => never) => createClient(SessionService, transport(fail)).getSession({}),
  "in the middle of a stream": async (fail: () => never) => {
    let messages = 0;
    try {
      for await (const _message of createClient(HostService, transport(fail)).watchCommands({})) messages += 1;
    } finally {
      expect(messages).toBe(1);
    }
  },
  "in the middle of a stream both ways": async (fail: () => never) => {
    const requests = (async function* () {
      yield {};
    })();
    for await (const _message of createClient(HostService, transport(fail)).attach(requests));
  },
} as const;

async function endOf(way: (fail: () => never) => Promise<unknown>, error: unknown): Promise<ConnectError> {
  const thrown = await way(() => {
    throw error;
  }).then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(thrown).toBeInstanceOf(ConnectError);
  return thrown as ConnectError;
}

describe.each(Object.entries(WAYS))("an error %s", (_name, way) => {
  test("that is a refusal arrives as its code, message, reason and metadata", async () => {
    const error = await endOf(way, new Refusal("call_id_conflict", "call_id c1 names another call", { call_id: "c1" }));
    expect(error.code).toBe(Code.AlreadyExists);
    expect(error.rawMessage).toBe("call_id c1 names another call");
    expect(error.findDetails(ErrorReasonSchema)).toMatchObject([{ reason: "call_id_conflict", metadata: { call_id: "c1" } }]);
    expect(lines).toEqual([]);
  });

  test("that nobody expected arrives as Internal without detail, and is logged once with its cause", async () => {
    const error = await endOf(way, new TypeError("secret-4711 is not iterable"));
    expect(error.code).toBe(Code.Internal);
    expect(error.details).toEqual([]);
    expect(error.message).not.toContain("4711");
    expect(lines).toMatchObject([{ err: { message: "secret-4711 is not iterable" } }]);
  });

  test("that was made for the wire passes as it is", async () => {
    const error = await endOf(way, new ConnectError("no such service", Code.NotFound));
    expect([error.code, error.rawMessage]).toEqual([Code.NotFound, "no such service"]);
    expect(lines).toEqual([]);
  });

  test("that is no Error is Internal too", async () => {
    expect((await endOf(way, "text")).code).toBe(Code.Internal);
    expect((await endOf(way, undefined)).code).toBe(Code.Internal);
  });
});

test("every reason has a code, and carries itself as its detail", () => {
  for (const reason of REFUSAL_REASONS) {
    const error = refusalToConnectError(new Refusal(reason, "m"));
    expect(Code[error.code]).toBeDefined();
    expect(error.findDetails(ErrorReasonSchema)[0]?.reason).toBe(reason);
  }
});

test("a refusal of another copy of the class is a refusal, anything else is not", () => {
  expect(isRefusal(Object.assign(new Error("m"), { name: "Refusal", reason: "call_ended", metadata: {} }))).toBe(true);
  expect(isRefusal(Object.assign(new Error("m"), { name: "Refusal", reason: "made_up", metadata: {} }))).toBe(false);
  expect(isRefusal(Object.assign(new Error("m"), { reason: "call_ended" }))).toBe(false);
  expect(isRefusal({ name: "Refusal", reason: "call_ended" })).toBe(false);
});
