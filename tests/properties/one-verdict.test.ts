/**
 * Schemas and values made by chance get one verdict: from the library the schema is written in, from Brain that judges by
 * what was published, and from Brain again after a restart.
 *
 * The shapes are those that JSON Schema can say whole. Texts are of ASCII where their length counts, because libraries
 * count UTF-16 units and JSON Schema characters; no member is named `__proto__`, which zod does not look at.
 */
import { Brain, hostEnv, jsonSchema, type Session, tool } from "@aexhq/brain";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { CountedRuns } from "../support/counted-runs.js";
import { ServerProcess } from "../support/server-process.js";

const SESSIONS = 25;
const TOOLS = 8;
const VALUES = 3;
/** Another one makes other cases: `FC_SEED=7 npx vitest run tests/properties`. */
const SEED = Number(process.env["FC_SEED"] ?? 20260101);

/** A schema, and values that are near enough to fit at times. */
interface Shape {
  readonly schema: z.ZodType;
  readonly values: fc.Arbitrary<unknown>;
  /** What the schema was made of, for whoever reads a failure. */
  readonly says: string;
}

/** Brain says exactly whether a decimal number is a multiple of another; zod rounds, which shows in tinier ones. */
const hundredths = (min: number, max: number): fc.Arbitrary<number> => fc.integer({ min: min * 100, max: max * 100 }).map((n) => n / 100);
const word = fc.string({ unit: fc.constantFrom("a", "b", "c", "-", " "), maxLength: 5 });
const anything = fc.oneof(
  fc.constant(null),
  fc.boolean(),
  fc.integer({ min: -20, max: 20 }),
  hundredths(-20, 20),
  word,
  fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 3 }),
  fc.dictionary(fc.constantFrom("a", "b", "c", "d"), fc.integer({ min: 0, max: 3 }), { maxKeys: 3 }),
);
/** Mostly what was meant, at times anything. */
const nearly = (meant: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
  fc.oneof({ weight: 7, arbitrary: meant }, { weight: 1, arbitrary: anything });

const bounds = fc
  .tuple(fc.integer({ min: 0, max: 3 }), fc.integer({ min: 0, max: 3 }))
  .map(([least, more]) => [least, least + more] as const);

const leaf: fc.Arbitrary<Shape> = fc.oneof(
  bounds.map(([least, most]) => ({ schema: z.string().min(least).max(most), values: nearly(word), says: `text ${least}..${most}` })),
  fc.constantFrom("^a", "b+$", "^[a-c]*$", "^(?:a|b)-", "^\\S+$").map((pattern) => ({
    schema: z.string().regex(new RegExp(pattern)),
    values: nearly(word),
    says: `text like ${pattern}`,
  })),
  bounds.map(([least, most]) => ({
    schema: z.number().min(least).max(most),
    values: nearly(fc.oneof(fc.integer({ min: -1, max: 7 }), hundredths(-1, 7))),
    says: `number ${least}..${most}`,
  })),
  fc.integer({ min: 1, max: 4 }).map((step) => ({
    schema: z.int().multipleOf(step).gt(-10),
    values: nearly(fc.integer({ min: -12, max: 12 })),
    says: `integer by ${step}`,
  })),
  fc.constantFrom(0.01, 0.1, 0.25).map((step) => ({
    schema: z.number().multipleOf(step),
    values: nearly(hundredths(-4, 4)),
    says: `number by ${step}`,
  })),
  fc.constant({ schema: z.boolean(), values: nearly(fc.boolean()), says: "boolean" }),
  fc.constant({ schema: z.null(), values: nearly(fc.constant(null)), says: "null" }),
  fc.constant({ schema: z.json(), values: anything, says: "any JSON" }),
  fc.uniqueArray(fc.constantFrom("a", "b", "c", 1, 2, true, null), { minLength: 1, maxLength: 4 }).map((literals) => ({
    schema: z.literal(literals),
    values: nearly(fc.constantFrom("a", "b", "c", 1, 2, true, null)),
    says: `one of ${JSON.stringify(literals)}`,
  })),
  fc.constantFrom(z.uuid(), z.ipv4(), z.iso.date(), z.base64()).map((schema) => ({
    schema,
    values: nearly(
      fc.oneof(
        fc.uuid(),
        fc.ipV4(),
        fc.date({ noInvalidDate: true }).map((at) => at.toISOString().slice(0, 10)),
        fc.base64String({ maxLength: 8 }),
      ),
    ),
    says: `a ${schema.def.format}`,
  })),
);

const { shape } = fc.letrec<{ shape: Shape }>((tie) => ({
  shape: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    leaf,
    fc.tuple(tie("shape"), bounds).map(([item, [least, most]]) => ({
      schema: z.array(item.schema).min(least).max(most),
      values: nearly(fc.array(item.values, { maxLength: 6 })),
      says: `list ${least}..${most} of ${item.says}`,
    })),
    fc.array(tie("shape"), { minLength: 1, maxLength: 3 }).map((items) => ({
      schema: z.tuple(items.map(({ schema }) => schema) as [z.ZodType, ...z.ZodType[]]),
      values: nearly(
        fc.oneof(
          { weight: 4, arbitrary: fc.tuple(...items.map(({ values }) => values)) },
          { weight: 1, arbitrary: fc.array(anything, { maxLength: 4 }) },
        ),
      ),
      says: `tuple of ${items.map(({ says }) => says).join(" and ")}`,
    })),
    fc
      .tuple(
        fc.uniqueArray(fc.tuple(fc.constantFrom("a", "b", "c", "constructor", "x/~y"), tie("shape"), fc.boolean()), {
          selector: ([name]) => name,
          maxLength: 3,
        }),
        fc.constantFrom("strict", "loose", "plain"),
      )
      .map(([members, kind]) => objectShape(members, kind)),
    fc.tuple(tie("shape")).map(([{ schema, values, says }]) => ({
      schema: z.record(z.string().regex(/^[a-c]/), schema),
      values: nearly(fc.dictionary(fc.constantFrom("a", "b1", "c", "d"), values, { maxKeys: 3 })),
      says: `record of ${says}`,
    })),
    fc.array(tie("shape"), { minLength: 2, maxLength: 3 }).map((arms) => ({
      schema: z.union(arms.map(({ schema }) => schema)),
      values: nearly(fc.oneof(...arms.map(({ values }) => values))),
      says: `either ${arms.map(({ says }) => says).join(" or ")}`,
    })),
    tie("shape").map(({ schema, values, says }) => ({
      schema: schema.nullable(),
      values: fc.oneof({ weight: 4, arbitrary: values }, { weight: 1, arbitrary: fc.constant(null) }),
      says: `${says}, or null`,
    })),
  ),
}));

function objectShape(members: readonly (readonly [string, Shape, boolean])[], kind: "strict" | "loose" | "plain"): Shape {
  const shape: Record<string, z.ZodType> = {};
  const values: Record<string, fc.Arbitrary<unknown>> = {};
  for (const [name, member, isOptional] of members) {
    // As JSON does it: an own member, whatever its name.
    own(shape, name, isOptional ? member.schema.optional() : member.schema);
    own(values, name, member.values);
  }
  own(values, "extra", fc.constant(1));
  const make = { strict: z.strictObject, loose: z.looseObject, plain: z.object }[kind];
  return {
    schema: make(shape),
    values: nearly(fc.record(values, { requiredKeys: [] })),
    says: `${kind} object of ${members.map(([name, { says }, isOptional]) => `${name}${isOptional ? "?" : ""}: ${says}`).join(", ")}`,
  };
}

function own(object: object, name: string, value: unknown): void {
  Object.defineProperty(object, name, { value, enumerable: true, writable: true, configurable: true });
}

interface Case {
  readonly shape: Shape;
  readonly values: readonly unknown[];
}

const cases = fc
  .sample(
    shape.chain((made) => fc.tuple(fc.constant(made), fc.array(made.values, { minLength: VALUES, maxLength: VALUES }))),
    { numRuns: SESSIONS * TOOLS, seed: SEED },
  )
  // As they arrive everywhere: some are made without a prototype, and zod looks at inherited members.
  .map(([made, values]): Case => ({ shape: made, values: values.map((value): unknown => JSON.parse(JSON.stringify(value))) }));

let server: ServerProcess;
let brain: Brain;
const runs = new CountedRuns();
beforeAll(async () => {
  server = await ServerProcess.start();
  brain = new Brain({ baseUrl: server.url, log: () => undefined });
});
afterAll(async () => {
  await brain.close();
  await server[Symbol.asyncDispose]();
  runs[Symbol.dispose]();
});

/** One Tool takes a value as input, the other gives it as output: both sides of the schema are judged. */
function placed({ shape: { schema } }: Case, index: number) {
  const env = hostEnv({ name: "app" });
  const takes = tool({ name: `takes_${index}`, description: "", input: schema, run: runs.counting(() => null) });
  const gives = tool({
    name: `gives_${index}`,
    description: "",
    input: jsonSchema(true),
    output: schema,
    run: runs.counting((given: unknown): unknown => given),
  });
  return [takes({ env }), gives({ env })];
}

async function expectVerdicts(session: Session, mine: readonly Case[], when: string): Promise<void> {
  const calls = mine.flatMap(({ shape: { schema, says }, values }, index) =>
    values.map(async (value) => {
      const said = schema.safeParse(value).success;
      const about = `${when}, seed ${SEED}: ${JSON.stringify(value)} as ${says}`;
      const taken = await session.callTool({ name: `takes_${index}`, environment: "app", input: value });
      expect(taken.status === "ok" ? "ok" : taken.code, `input ${about}`).toBe(said ? "ok" : "invalid_input");
      const given = await session.callTool({ name: `gives_${index}`, environment: "app", input: value });
      expect(given.status === "ok" ? "ok" : given.code, `output ${about}`).toBe(said ? "ok" : "invalid_output");
    }),
  );
  await Promise.all(calls);
}

test(`${SESSIONS * TOOLS} schemas with ${VALUES} values each are judged alike by their library, by Brain, and after a restart`, async () => {
  const sessions: { session: Session; mine: readonly Case[] }[] = [];
  for (let first = 0; first < cases.length; first += TOOLS) {
    const mine = cases.slice(first, first + TOOLS);
    const session = await brain.sessions.create({ tools: mine.flatMap(placed) });
    sessions.push({ session, mine });
    await expectVerdicts(session, mine, "at first");
  }
  await server.stop("SIGKILL");
  server = await server.restart();
  for (const { session, mine } of sessions) await expectVerdicts(session, mine, "after a restart");
  expect(runs.repeated).toEqual([]);
  const verdicts = cases.flatMap((one) => one.values.map((value) => one.shape.schema.safeParse(value).success));
  // Both verdicts occur often, or the values would prove nothing.
  const accepted = verdicts.filter(Boolean).length / verdicts.length;
  expect(accepted).toBeGreaterThan(0.2);
  expect(accepted).toBeLessThan(0.9);
}, 180_000);
