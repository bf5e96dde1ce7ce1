import { toStandardJsonSchema } from "@valibot/to-json-schema";
import { type } from "arktype";
import * as v from "valibot";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { jsonSchema, type Parsed, parse, parseNow, publishedSchema, type StandardSchema, type Violation } from "./schema.js";

async function violations(schema: StandardSchema, value: unknown): Promise<Violation[]> {
  const verdict = await parse(schema, value);
  if (verdict.ok) throw new Error("it was accepted");
  return verdict.violations;
}

describe("a violation", () => {
  test.each([
    ["zod", z.object({ list: z.array(z.object({ n: z.number() })) })],
    ["Valibot", toStandardJsonSchema(v.object({ list: v.array(v.object({ n: v.number() })) }))],
    ["ArkType", type({ list: type({ n: "number" }).array() })],
  ] as [string, StandardSchema][])("of %s names the place and the rule, and not the value", async (_, schema) => {
    const [found, ...others] = await violations(schema, { list: [{ n: 1 }, { n: "hunter2-is-secret" }] });
    expect(others).toEqual([]);
    expect(found?.path).toBe("/list/1/n");
    expect(found?.rule).not.toBe("schema");
    expect(found?.message).toMatch(/number/);
    expect(JSON.stringify(found)).not.toContain("hunter2");
  });

  test.each([
    ["zod", z.string().refine(() => false, { error: ({ input }) => `${String(input)} is taken` })],
    [
      "Valibot",
      toStandardJsonSchema(
        v.pipe(
          v.string(),
          v.check(
            () => false,
            ({ input }) => `${input} is taken`,
          ),
        ),
      ),
    ],
  ] as [string, StandardSchema][])("of %s keeps the author's words, without a value that they quote", async (_, schema) => {
    expect((await violations(schema, "hunter2"))[0]?.message).toBe("... is taken");
  });

  test("says which type is meant, also to a value that reads like its name", async () => {
    expect((await violations(z.number(), "number"))[0]?.message).toContain("expected number");
  });

  test("of a union is that of the alternative the value came nearest to", async () => {
    const Pair = z.object({ k: z.string(), n: z.number() }).refine(() => false, { error: "n is taken", path: ["n"] });
    const schema = z.object({ a: z.union([z.string(), Pair]) });
    expect(await violations(schema, { a: { k: "x", n: 1 } })).toEqual([{ path: "/a/n", rule: "custom", message: "n is taken" }]);
    expect(await violations(z.union([z.string(), z.number()]), true)).toMatchObject([{ path: "", rule: "invalid_union" }]);
  });

  test("is bounded in number and length", async () => {
    const found = await violations(
      z.record(z.string(), z.number()),
      Object.fromEntries(Array.from({ length: 50 }, (_, n) => [`${"x".repeat(5000)}${n}`, "no"])),
    );
    expect(found).toHaveLength(10);
    for (const { path } of found) expect(Buffer.byteLength(path)).toBeLessThanOrEqual(1024);
  });
});

describe("a value is parsed once", () => {
  test("also where the schema turns out to be asynchronous", async () => {
    let runs = 0;
    const schema = z.string().transform(async (text) => {
      runs++;
      return text.length;
    });
    expect(await parse(schema, "abc")).toEqual({ ok: true, value: 3 });
    expect(runs).toBe(1);
  });

  test("now or not at all, where nobody can wait", () => {
    expect(parseNow(z.object({ n: z.number().default(1) }), {})).toEqual({ ok: true, value: { n: 1 } });
    expect(parseNow(z.number(), "x")).toMatchObject({ ok: false });
    expect(
      parseNow(
        z.string().refine(async () => true),
        "x",
      ),
    ).toBeUndefined();
  });
});

test("a library that makes no JSON Schema of its schema is refused by name", () => {
  const broken = jsonSchema(true);
  const { "~standard": standard } = broken;
  const said = { "~standard": { ...standard, vendor: "acme", jsonSchema: { input: () => "string" as never, output: () => ({}) } } };
  expect(() => publishedSchema(said, "input", "second", "input")).toThrow(
    'Tool "second": the input schema cannot be published: its library (acme)',
  );
});

describe("plain JSON Schema", () => {
  test("is published as it is, and checks nothing in this process", () => {
    const schema = jsonSchema({ type: "string", "x-vendor": 1 });
    expect(publishedSchema(schema, "input", "t", "input")).toBe('{"type":"string","x-vendor":1}');
    expect(parse(schema, 7) as Parsed).toEqual({ ok: true, value: 7 });
    expect(publishedSchema(jsonSchema(true), "input", "t", "input")).toBe("{}");
    expect(publishedSchema(jsonSchema(false), "input", "t", "input")).toBe('{"not":{}}');
  });

  test.each([
    ["a text", "string"],
    ["null", null],
    ["a list", []],
  ])("is an object or a boolean, not %s", (_, schema) => {
    expect(() => jsonSchema(schema as never)).toThrow("an object, true or false");
  });

  test("with what is no JSON in it is refused, naming the Tool and the place", () => {
    const schema = jsonSchema({ type: "object", properties: { n: { const: 1n } } });
    expect(() => publishedSchema(schema, "output", "second", "output")).toThrow(
      'Tool "second": the output schema cannot be published: at /properties/n/const: a bigint has no JSON form',
    );
  });
});
