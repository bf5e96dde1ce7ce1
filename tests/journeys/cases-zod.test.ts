import { isBrainError, jsonSchema, type Placement, type Session, type StandardSchema, tool } from "@aexhq/brain";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { ContractGround } from "../support/contract-ground.js";

let ground: ContractGround;
beforeAll(async () => {
  ground = await ContractGround.open();
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

/** Answers with what its function was given. */
function taking(input: StandardSchema, name = "taking"): Placement {
  return tool({ name, description: "", input, run: ground.runs.counting((given) => given) })({ env: ground.here });
}

/** Answers with its input, under this output schema. */
function giving(output: StandardSchema, name = "giving"): Placement {
  const run = ground.runs.counting((given) => given);
  return tool({ name, description: "", input: jsonSchema(true), output, run })({ env: ground.here });
}

const ok = (value: unknown) => ({ status: "ok", value });
const badInput = { status: "error", code: "invalid_input" };
const badOutput = { status: "error", code: "invalid_output" };

/** Calls with each value, and expects each ending; a refused input runs nothing. */
async function expectEndings(session: Session, name: string, cases: readonly (readonly [unknown, object])[]): Promise<void> {
  for (const [input, expected] of cases) {
    const before = ground.runs.of(session.sessionId);
    const ending = await session.callTool({ name, environment: "here", input });
    expect(ending, JSON.stringify(input)).toMatchObject(expected);
    const ran = ground.runs.of(session.sessionId) - before;
    expect(ran, `runs of ${JSON.stringify(input)}`).toBe((expected as { code?: string }).code === "invalid_input" ? 0 : 1);
    if (ending.status === "error") {
      const { violations } = ending.details as { violations: { path: string; rule: string; message: string }[] };
      expect(violations.length).toBeGreaterThan(0);
      for (const { rule, message } of violations) expect([rule, message]).not.toContain("");
    }
  }
}

async function publishedOf(session: Session, name: string): Promise<{ input: unknown; output: unknown }> {
  const placement = (await session.describe()).tools.find(({ tool: definition }) => definition?.name === name);
  const { inputSchemaJson = "null", outputSchemaJson = "null" } = placement?.tool ?? {};
  return { input: JSON.parse(inputSchemaJson), output: JSON.parse(outputSchemaJson) };
}

describe("H12: what JSON Schema has no word for", () => {
  afterAll(() => ground.expectStanding());

  test.each([
    ["a date", z.date()],
    ["a bigint", z.bigint()],
    ["a map", z.map(z.string(), z.string())],
    ["a set", z.set(z.string())],
    ["undefined", z.undefined()],
    ["a symbol", z.symbol()],
    ["a custom type", z.custom()],
    ["an instance of a class", z.instanceof(URL)],
  ] as [string, z.ZodType][])(
    "%s fails the declaration by Tool and place, in input, output and options, and nothing else",
    async (_, when) => {
      const declaration = { name: "second", description: "", input: z.object({}), run: () => ({}) as never };
      const schema = z.object({ when });
      for (const [what, declare] of [
        ["input", () => tool({ ...declaration, input: schema })],
        ["output", () => tool({ ...declaration, output: schema })],
        ["options", () => tool({ ...declaration, options: schema })],
      ] as const) {
        let refused: unknown;
        try {
          declare();
        } catch (error) {
          refused = error;
        }
        expect(isBrainError(refused) && refused).toMatchObject({ reason: "invalid_schema", metadata: { tool: "second", path: "/when" } });
        expect(String(refused)).toMatch(new RegExp(`Tool "second": the ${what} schema cannot be published: at /when: `));
      }
      const session = await ground.session(taking(z.object({}), "first"), taking(z.object({}), "third"));
      await expectEndings(session, "first", [[{}, ok({})]]);
      await expectEndings(session, "third", [[{}, ok({})]]);
    },
  );
});

describe("H13: a default", () => {
  afterAll(() => ground.expectStanding());
  const schema = z.object({ q: z.string(), depth: z.number().default(3) });

  test("of the input is filled in for the function and not demanded of the caller", async () => {
    const session = await ground.session(taking(schema));
    await expectEndings(session, "taking", [[{ q: "x" }, ok({ q: "x", depth: 3 })]]);
    expect((await publishedOf(session, "taking")).input).toMatchObject({ required: ["q"] });
    expect((await ground.texts(session)).inputs).toEqual(['{"q":"x"}']);
  });

  test("of the output is filled in for the journal and for whoever called", async () => {
    const session = await ground.session(giving(schema));
    await expectEndings(session, "giving", [[{ q: "x" }, ok({ q: "x", depth: 3 })]]);
    expect((await publishedOf(session, "giving")).output).toMatchObject({ required: ["q", "depth"] });
    expect((await ground.texts(session)).outputs).toEqual(['{"q":"x","depth":3}']);
  });
});

describe("H14: a transform", () => {
  afterAll(() => ground.expectStanding());

  test("is applied once", async () => {
    let parses = 0;
    const length = z.string().transform((text) => {
      parses++;
      return text.length;
    });
    const session = await ground.session(taking(z.object({ n: length })));
    await expectEndings(session, "taking", [
      [{ n: "abc" }, ok({ n: 3 })],
      [{ n: 3 }, badInput],
    ]);
    expect(parses).toBe(1);
  });

  test("that coerces publishes what it makes, so that a text is no number on either side", async () => {
    const session = await ground.session(taking(z.object({ n: z.coerce.number() })));
    expect((await publishedOf(session, "taking")).input).toMatchObject({ properties: { n: { type: "number" } } });
    await expectEndings(session, "taking", [
      [{ n: "7" }, badInput],
      [{ n: 7 }, ok({ n: 7 })],
    ]);
  });

  test("of the output is checked as what it makes", async () => {
    const output = z.object({
      n: z
        .string()
        .transform((text) => text.length)
        .pipe(z.number().max(3)),
    });
    const session = await ground.session(giving(output));
    await expectEndings(session, "giving", [
      [{ n: "abc" }, ok({ n: 3 })],
      [{ n: "abcd" }, badOutput],
      [{ n: 3 }, badOutput],
    ]);
  });
});

test("H15: optional may be absent and not null, nullable may be null and not absent", async () => {
  const session = await ground.session(taking(z.object({ a: z.string().optional(), b: z.string().nullable() })));
  await expectEndings(session, "taking", [
    [{ b: null }, ok({ b: null })],
    [{ a: null, b: null }, badInput],
    [{}, badInput],
    [{ a: "x", b: "y" }, ok({ a: "x", b: "y" })],
  ]);
  await ground.expectStanding();
});

test("H16: a record has the keys that its key schema says", async () => {
  const session = await ground.session(
    taking(z.record(z.enum(["a", "b"]), z.number()), "enumerated"),
    taking(z.record(z.number(), z.boolean()), "numbered"),
    taking(z.partialRecord(z.enum(["a", "b"]), z.number()), "partial"),
  );
  await expectEndings(session, "enumerated", [
    [{ a: 1 }, badInput],
    [{ a: 1, b: 2 }, ok({ a: 1, b: 2 })],
    [{ a: 1, b: 2, c: 3 }, badInput],
  ]);
  await expectEndings(session, "numbered", [
    [{ 1: true }, ok({ 1: true })],
    [{ x: true }, badInput],
  ]);
  await expectEndings(session, "partial", [
    [{ a: 1 }, ok({ a: 1 })],
    [{ c: 1 }, badInput],
  ]);
  await ground.expectStanding();
});

describe("H17: a schema that refers to itself", () => {
  afterAll(() => ground.expectStanding());
  const Node = z.object({
    v: z.number(),
    get kids() {
      return z.array(Node);
    },
  });
  const tree = (depth: number, bottom: unknown): unknown =>
    depth === 0 ? { v: bottom, kids: [] } : { v: depth, kids: [tree(depth - 1, bottom)] };

  test("judges fifty levels, and names the bottom where that is wrong", async () => {
    const session = await ground.session(taking(Node));
    await expectEndings(session, "taking", [
      [tree(50, 0), ok(tree(50, 0))],
      [tree(50, "no"), badInput],
    ]);
    const ending = await session.callTool({ name: "taking", environment: "here", input: tree(50, "no") });
    const { violations } = (ending.status === "error" ? ending.details : {}) as { violations: { path: string }[] };
    expect(violations.map(({ path }) => path)).toEqual([`${"/kids/0".repeat(50)}/v`]);
  });

  test("and one that refers to another that refers back work, without a reference that leads nowhere", async () => {
    const A = z.object({
      name: z.string(),
      get b() {
        return B.optional();
      },
    });
    const B = z.object({
      size: z.number(),
      get a() {
        return A.optional();
      },
    });
    const session = await ground.session(taking(A));
    const { input } = await publishedOf(session, "taking");
    const references = [...JSON.stringify(input).matchAll(/"\$ref":"([^"]+)"/g)].map(([, reference = ""]) => reference);
    expect(references.length).toBeGreaterThan(0);
    for (const reference of references) expect(followed(input, reference), reference).toBeDefined();
    const pair = { name: "x", b: { size: 1, a: { name: "y", b: { size: 2 } } } };
    await expectEndings(session, "taking", [
      [pair, ok(pair)],
      [{ name: "x", b: { size: 1, a: { name: 1 } } }, badInput],
    ]);
  });
});

function followed(root: unknown, reference: string): unknown {
  return reference
    .split("/")
    .slice(1)
    .reduce((at, part) => (at as Record<string, unknown> | undefined)?.[part], root);
}

describe("H18: a member that the schema does not name", () => {
  afterAll(() => ground.expectStanding());
  const a = { a: z.string() };
  const given = { a: "x", extra: 1 };

  test.each([
    ["a strict object", z.strictObject(a), badInput, badInput],
    ["an object", z.object(a), ok({ a: "x" }), ok({ inner: { a: "x" } })],
    ["a loose object", z.looseObject(a), ok(given), ok({ inner: given })],
  ] as [string, z.ZodType, object, object][])(
    "of %s is refused, kept from the function, or seen, at the top and one level down",
    async (_, schema, top, inner) => {
      const session = await ground.session(taking(schema, "top"), taking(z.object({ inner: schema }), "inner"));
      await expectEndings(session, "top", [[given, top]]);
      await expectEndings(session, "inner", [[{ inner: given }, inner]]);
      // On record is what was sent, which the published schema accepts or not.
      expect((await ground.texts(session)).inputs).toEqual([JSON.stringify(given), JSON.stringify({ inner: given })]);
    },
  );
});

describe("H19: an output", () => {
  afterAll(() => ground.expectStanding());

  test.each([
    ["a list", z.array(z.string()), ["a"], ["a", 1]],
    ["a text", z.string(), "a", 1],
    ["null", z.null(), null, "null"],
    [
      "a discriminated union",
      z.discriminatedUnion("k", [z.object({ k: z.literal("n"), n: z.number() }), z.object({ k: z.literal("s"), s: z.string() })]),
      { k: "n", n: 1 },
      { k: "n", s: "x" },
    ],
    [
      "a union whose arms overlap",
      z.union([z.object({ a: z.number() }), z.object({ a: z.number(), b: z.string().optional() })]),
      { a: 1 },
      { a: "1" },
    ],
    ["a tuple", z.tuple([z.string(), z.number()]), ["a", 1], ["a"]],
    ["a boolean", z.boolean(), false, 0],
  ] as [string, z.ZodType, unknown, unknown][])(
    "that is %s is given bare, and refused when it is another",
    async (_, schema, good, bad) => {
      const session = await ground.session(giving(schema));
      await expectEndings(session, "giving", [
        [good, ok(good)],
        [bad, badOutput],
      ]);
      expect((await ground.texts(session)).outputs).toEqual([JSON.stringify(good)]);
    },
  );

  test("of a union keeps what only one of its overlapping arms names", async () => {
    const arms = z.union([z.object({ a: z.number(), b: z.string() }), z.object({ a: z.number() })]);
    const session = await ground.session(giving(arms));
    await expectEndings(session, "giving", [
      [{ a: 1, b: "x" }, ok({ a: 1, b: "x" })],
      [{ a: 1 }, ok({ a: 1 })],
    ]);
  });
});

describe("rules that cannot travel", () => {
  afterAll(() => ground.expectStanding());
  const distinct = z.object({ from: z.string(), to: z.string() }).refine(({ from, to }) => from !== to, {
    error: "from and to must differ",
    path: ["to"],
  });

  test("give an invalid input by place and rule, and nothing runs", async () => {
    const session = await ground.session(taking(distinct));
    await expectEndings(session, "taking", [
      [{ from: "a", to: "b" }, ok({ from: "a", to: "b" })],
      [
        { from: "a", to: "a" },
        { ...badInput, details: { violations: [{ path: "/to", rule: "custom", message: "from and to must differ" }] } },
      ],
    ]);
    expect(ground.runs.of(session.sessionId)).toBe(1);
  });

  test("give an invalid output by place and rule, after one run", async () => {
    const session = await ground.session(giving(distinct));
    await expectEndings(session, "giving", [
      [{ from: "a", to: "b" }, ok({ from: "a", to: "b" })],
      [
        { from: "a", to: "a" },
        { ...badOutput, details: { violations: [{ path: "/to", rule: "custom", message: "from and to must differ" }] } },
      ],
    ]);
  });

  test("may be asynchronous, and run once", async () => {
    let checks = 0;
    const free = z.object({
      name: z.string().refine(async (name) => {
        checks++;
        await Promise.resolve();
        return name !== "taken";
      }, "the name is taken"),
    });
    const session = await ground.session(taking(free));
    await expectEndings(session, "taking", [[{ name: "free" }, ok({ name: "free" })]]);
    expect(checks).toBe(1);
    expect(await session.callTool({ name: "taking", environment: "here", input: { name: "taken" } })).toMatchObject(badInput);
    expect(checks).toBe(2);
    expect(ground.runs.of(session.sessionId)).toBe(1);
  });

  test("are patterns with flags too: what differs in case alone is left to the author's schema", async () => {
    const session = await ground.session(taking(z.object({ code: z.string().regex(/^[a-z]+$/i) })));
    await expectEndings(session, "taking", [[{ code: "AbC" }, ok({ code: "AbC" })]]);
    const ending = await session.callTool({ name: "taking", environment: "here", input: { code: "a1" } });
    expect(ending).toMatchObject({ ...badInput, details: { violations: [{ path: "/code", rule: "invalid_format" }] } });
    expect(ground.runs.of(session.sessionId)).toBe(1);
  });

  test("and a check that throws ends the call as an error of the Tool", async () => {
    const broken = z.string().refine(() => {
      throw new Error("the check is broken");
    });
    const session = await ground.session(taking(broken));
    expect(await session.callTool({ name: "taking", environment: "here", input: "x" })).toMatchObject({
      status: "error",
      code: "tool_error",
    });
    expect(ground.runs.of(session.sessionId)).toBe(0);
  });
});

test("a secret in a bad input is in no violation and in no message", async () => {
  const session = await ground.session(
    taking(z.object({ token: z.string().max(5), kind: z.enum(["a", "b"]), n: z.number() }), "brain"),
    taking(z.object({ token: z.string().refine(() => false, { error: ({ input }) => `${String(input)} is no token` }) }), "host"),
  );
  const secret = "hunter2-hunter2-hunter2";
  for (const [name, input] of [
    ["brain", { token: secret, kind: secret, n: secret }],
    ["host", { token: secret }],
  ] as const) {
    const ending = await session.callTool({ name, environment: "here", input });
    expect(ending).toMatchObject(badInput);
    expect(JSON.stringify(ending)).not.toContain("hunter2");
    expect(JSON.stringify(ending)).toContain("/token");
  }
  await ground.expectStanding();
});
