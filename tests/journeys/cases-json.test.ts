import { isBrainError, jsonSchema, tool } from "@aexhq/brain";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { timed } from "../support/case-ground.js";
import { ContractGround } from "../support/contract-ground.js";

let ground: ContractGround;
beforeAll(async () => {
  ground = await ContractGround.open();
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

/** Answers with what it was given, and emits it first. */
const echo = () =>
  tool({
    name: "echo",
    description: "",
    input: jsonSchema(true),
    run: ground.runs.counting(async (input, ctx) => {
      await ctx.emit("given", input);
      return input;
    }),
  })({ env: ground.here });

/** Answers with what the test says. */
function returning(name: string, value: () => unknown, output?: z.ZodType) {
  const declaration = { name, description: "", input: z.object({}), run: ground.runs.counting(() => value()) as () => never };
  return (output === undefined ? tool(declaration) : tool({ ...declaration, output }))({ env: ground.here });
}

describe("H07: a lone surrogate", () => {
  afterAll(() => ground.expectStanding());

  const half = "x\ud800y";

  test.each([
    ["in a value", '{"s":"x\\ud800y"}'],
    ["in a name", '{"x\\ud800y":"s"}'],
  ])("that a client sends %s is an invalid input, and is not changed in silence", async (_, inputJson) => {
    const strict = tool({
      name: "strict",
      description: "",
      input: z.looseObject({ s: z.string().optional() }),
      run: ground.runs.counting(() => null),
    });
    const session = await ground.session(strict({ env: ground.here }));
    expect(await ground.callRaw(session, "strict", inputJson)).toMatchObject({ status: "error", code: "invalid_input", runs: 0 });
    expect((await ground.texts(session)).inputs).toEqual([inputJson]);
  });

  test("that a function returns is an invalid output, and one that it emits is refused to it", async () => {
    const refused: unknown[] = [];
    const emits = tool({
      name: "emits",
      description: "",
      input: z.object({}),
      run: ground.runs.counting(async (_, ctx) => {
        for (const data of [half, { [half]: 1 }]) {
          await ctx.emit("bad", data).catch((error: unknown) => refused.push(isBrainError(error) ? error.reason : error));
        }
        return null;
      }),
    });
    const session = await ground.session(
      emits({ env: ground.here }),
      returning("value", () => ({ s: half })),
      returning("name", () => ({ [half]: 1 })),
    );
    const call = { environment: ground.here, input: {} };
    for (const name of ["value", "name"]) {
      const ending = await session.callTool({ ...call, name });
      expect(ending).toMatchObject({ status: "error", code: "invalid_output" });
      expect(ending.status === "error" && ending.message).toContain("lone surrogate");
    }
    expect(await session.callTool({ ...call, name: "emits" })).toEqual({ status: "ok", value: null });
    expect(refused).toEqual(["invalid_argument", "invalid_argument"]);
    expect((await ground.texts(session)).events).toEqual([]);
    await expect(session.callTool({ ...call, name: "value", input: { s: half } })).rejects.toMatchObject({ reason: "invalid_argument" });
  });

  test("is no reason to touch a pair, which passes exactly in every place", async () => {
    const session = await ground.session(echo());
    const value = { "😀": "😀", s: "a\u{10FFFF}b" };
    expect(await session.callTool({ name: "echo", environment: "here", input: value })).toEqual({ status: "ok", value });
    const text = JSON.stringify(value);
    expect(await ground.texts(session)).toEqual({ inputs: [text], events: [text], outputs: [text] });
  });
});

describe("H08: a NUL", () => {
  afterAll(() => ground.expectStanding());

  test("in input, output, event and name is the same in all of them, before and after a restart", async () => {
    const session = await ground.session(echo());
    const value = { s: "a\u0000b", "k\u0000k": ["\u0000"], "\u0000": null };
    expect(await session.callTool({ name: "echo", environment: "here", input: value })).toEqual({ status: "ok", value });
    const text = JSON.stringify(value);
    expect(await ground.texts(session)).toEqual({ inputs: [text], events: [text], outputs: [text] });
    // Restarts the server.
    await ground.expectStanding();
    expect(await ground.texts(session)).toEqual({ inputs: [text], events: [text], outputs: [text] });
  });

  test("counts with all six bytes of its text, for budgets and for pages", async () => {
    const session = await ground.session(echo());
    const call = { name: "echo", environment: "here" };
    const fits = "\u0000".repeat(174_762);
    expect(Buffer.byteLength(JSON.stringify(fits))).toBe(1024 * 1024 - 2);
    expect(await session.callTool({ ...call, input: fits })).toEqual({ status: "ok", value: fits });
    const over = JSON.stringify(`${fits}\u0000`);
    expect(await ground.callRaw(session, "echo", over)).toMatchObject({ status: "error", code: "invalid_input", runs: 0 });
    const page = await ground.wire.ask("SessionService/ListRecords", { sessionId: session.sessionId, pageSize: 1000 });
    expect(page.records.length).toBeLessThan(4);
  });
});

describe("H09: numbers", () => {
  afterAll(() => ground.expectStanding());

  test.each([
    ["9007199254740991", "9007199254740991"],
    ["-9007199254740991", "-9007199254740991"],
    ["1.0", "1"],
    ["-0", "0"],
    ["9007199254740992", undefined],
    ["9007199254740993", undefined],
    ["-9007199254740992", undefined],
    ["1e400", undefined],
    ["1.5", undefined],
  ])("the integer %s is given exactly or not at all", async (literal, given) => {
    const seen: unknown[] = [];
    const integer = tool({
      name: "integer",
      description: "",
      input: z.object({ n: z.int() }),
      run: ground.runs.counting(({ n }) => {
        seen.push(n);
        return n;
      }),
    });
    const session = await ground.session(integer({ env: ground.here }));
    const call = await ground.callRaw(session, "integer", `{"n":${literal}}`);
    if (given === undefined) {
      expect(call).toMatchObject({ status: "error", code: "invalid_input", runs: 0 });
      expect(seen).toEqual([]);
      return;
    }
    expect(call).toMatchObject({ status: "ok", valueJson: given, runs: 1 });
    expect(JSON.stringify(seen)).toBe(`[${given}]`);
  });

  test.each(["1e308", "5e-324", "0.1", "-1.7976931348623157e308", "1e21"])(
    "the number %s comes back as the same double",
    async (literal) => {
      const number = tool({
        name: "number",
        description: "",
        input: z.object({ n: z.number() }),
        output: z.object({ n: z.number() }),
        run: ground.runs.counting(({ n }) => ({ n })),
      });
      const session = await ground.session(number({ env: ground.here }));
      const { status, valueJson = "" } = await ground.callRaw(session, "number", `{"n":${literal}}`);
      expect(status).toBe("ok");
      expect(JSON.parse(valueJson)).toEqual({ n: Number(literal) });
    },
  );
});

describe("H10: numbers that JSON does not have", () => {
  afterAll(() => ground.expectStanding());

  const n = z.object({ n: z.number() });
  test.each([
    ["NaN", Number.NaN, n],
    ["Infinity", Number.POSITIVE_INFINITY, n],
    ["NaN", Number.NaN, undefined],
    ["-Infinity", Number.NEGATIVE_INFINITY, undefined],
  ] as const)("%s is an invalid output, never null (%#)", async (_, value, output) => {
    const session = await ground.session(returning("returns", () => ({ n: value }), output));
    const ending = await session.callTool({ name: "returns", environment: "here", input: {} });
    expect(ending).toMatchObject({ status: "error", code: "invalid_output", details: { violations: [{ path: "/n", rule: "json" }] } });
    expect(ground.runs.of(session.sessionId)).toBe(1);
  });

  test("-0 is ok", async () => {
    const session = await ground.session(returning("returns", () => ({ n: -0 }), n));
    expect(await session.callTool({ name: "returns", environment: "here", input: {} })).toEqual({ status: "ok", value: { n: 0 } });
  });
});

describe("H11: whatever a function returns or throws", () => {
  afterAll(() => ground.expectStanding());

  const circular: Record<string, unknown> = {};
  circular["self"] = { circular };
  const cause = new Error("outer");
  cause.cause = cause;
  const object = z.object({ a: z.number() });
  const thrown = (value: unknown) => (): never => {
    throw value;
  };
  const unfinished = "is ended within a second, whatever the deadline";

  test.each<[string, () => unknown, z.ZodType | undefined, { status: string; code?: string; [member: string]: unknown }]>([
    ["nothing", () => undefined, undefined, { status: "ok", value: null }],
    ["nothing, where an object is demanded", () => undefined, object, { status: "error", code: "invalid_output" }],
    ["a member that is undefined", () => ({ a: 1, b: undefined }), undefined, { status: "ok", value: { a: 1 } }],
    ["a bigint", () => ({ n: 10n }), undefined, { status: "error", code: "invalid_output" }],
    ["a value that holds itself", () => circular, undefined, { status: "error", code: "invalid_output" }],
    ["a function", () => () => 1, undefined, { status: "error", code: "invalid_output" }],
    ["a symbol", () => Symbol("s"), undefined, { status: "error", code: "invalid_output" }],
    ["a Map", () => ({ m: new Map() }), undefined, { status: "error", code: "invalid_output" }],
    [
      "a getter that throws",
      () => ({
        get bad(): never {
          throw new Error("no");
        },
      }),
      undefined,
      { status: "error", code: "tool_error" },
    ],
    ["nothing after throwing undefined", thrown(undefined), undefined, { status: "error", code: "tool_error" }],
    ["nothing after throwing null", thrown(null), undefined, { status: "error", code: "tool_error" }],
    ["nothing after throwing a text", thrown("text"), undefined, { status: "error", code: "tool_error", message: "text" }],
    [
      "nothing after throwing an Error that causes itself",
      thrown(cause),
      undefined,
      { status: "error", code: "tool_error", message: "outer" },
    ],
    [
      "nothing after throwing an object without a prototype",
      thrown(Object.create(null)),
      undefined,
      { status: "error", code: "tool_error" },
    ],
    ["nothing after throwing a long text", thrown("y".repeat(100_000)), undefined, { status: "error", code: "tool_error" }],
    [
      "a promise that rejects",
      () => Promise.reject(new Error("later")),
      undefined,
      { status: "error", code: "tool_error", message: "later" },
    ],
  ])(`%s ${unfinished}`, async (_, body, output, expected) => {
    const session = await ground.session(returning("returns", body, output));
    let ending: unknown;
    const ms = await timed(async () => {
      ending = await session.callTool({ name: "returns", environment: "here", input: {}, timeoutMs: 30_000 });
    });
    expect(ending).toMatchObject(expected);
    const { message = "names returns" } = ending as { message?: string };
    expect(message).not.toBe("");
    expect(message.length).toBeLessThanOrEqual(8 * 1024);
    expect(message).not.toContain("    at ");
    if (expected.code === "invalid_output") expect(message).toContain("returns");
    // A second is the promise; a busy machine gets two.
    expect(ms).toBeLessThan(2_000);
    expect(ground.runs.of(session.sessionId)).toBe(1);
  });

  test("leaves nothing behind that a later call would meet", async () => {
    const session = await ground.session(
      returning("returns", () => circular),
      echo(),
    );
    await session.callTool({ name: "returns", environment: "here", input: {} });
    expect(await session.callTool({ name: "echo", environment: "here", input: 1 })).toEqual({ status: "ok", value: 1 });
  });
});
