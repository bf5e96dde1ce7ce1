import { toStandardJsonSchema } from "@valibot/to-json-schema";
import { type } from "arktype";
import * as v from "valibot";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { Side, StandardSchema } from "./schema.js";
import { converted } from "./schema-libraries.js";

/** What is published, without the dialect; or what cannot be, after its place. */
function published(schema: StandardSchema, side: Side = "input"): unknown {
  const conversion = converted(schema, side);
  if ("problem" in conversion) return `${conversion.path.join("/")}: ${conversion.problem}`;
  const { $schema, ...rest } = JSON.parse(JSON.stringify(conversion.published)) as Record<string, unknown>;
  expect($schema).toBe("https://json-schema.org/draft/2020-12/schema");
  return rest;
}

const std = toStandardJsonSchema;

describe("what JSON has no form for is refused at its place", () => {
  test.each([
    ["a date in zod", z.object({ list: z.array(z.object({ when: z.date() })) }), "list/*/when"],
    ["a file in zod", z.object({ files: z.array(z.file()) }), "files/*"],
    ["a literal bigint in zod", z.object({ n: z.literal(1n) }), "n"],
    ["a function in zod", z.object({ f: z.custom() }), "f"],
    ["a date in Valibot", std(v.object({ list: v.array(v.object({ when: v.date() })) })), "list/*/when"],
    ["a bigint in Valibot", std(v.bigint()), ""],
    ["a map in Valibot", std(v.object({ m: v.map(v.string(), v.string()) })), "m"],
    ["a custom type in Valibot", std(v.object({ c: v.custom(() => true) })), "c"],
    ["undefined in Valibot", std(v.object({ u: v.optional(v.undefined()) })), "u"],
    ["one of Valibot's alternatives", std(v.object({ u: v.union([v.string(), v.date()]) })), "u"],
    ["what is lazy in Valibot", std(v.object({ x: v.lazy(() => v.object({ d: v.date() })) })), "x/d"],
    ["a date in ArkType", type({ list: type({ when: "Date" }).array() }), "list/*/when"],
    ["a bigint in ArkType", type({ n: "bigint" }), "n"],
    ["a symbol in ArkType", type({ s: "symbol" }), "s"],
    ["a map in ArkType", type({ m: "Map" }), "m"],
    ["undefined in ArkType", type({ u: "undefined" }), "u"],
    ["a symbol as a name in ArkType", type({ [Symbol("q")]: "string" }), ""],
    ["one of ArkType's alternatives", type({ u: "string|Date" }), "u"],
    ["a recursive type in ArkType", type.module({ node: { d: "Date", kids: "node[]" } }).node, "d"],
  ] as [string, StandardSchema, string][])("%s", (_, schema, path) => {
    for (const side of ["input", "output"] as const) {
      expect(published(schema, side)).toMatch(/cannot be (represented|converted)/);
      expect(String(published(schema, side)).split(":")[0]).toBe(path);
    }
  });

  test.each([
    ["zod", z.object({ a: z.object({ n: z.string().transform((text) => text.length) }) })],
    [
      "Valibot",
      std(
        v.object({
          a: v.object({
            n: v.pipe(
              v.string(),
              v.transform((text) => text.length),
            ),
          }),
        }),
      ),
    ],
    ["ArkType", type({ a: { n: type("string").pipe((text) => text.length) } })],
  ] as [string, StandardSchema][])("a transform of %s, on the output side alone", (_, schema) => {
    expect(published(schema)).toMatchObject({ properties: { a: { properties: { n: { type: "string" } } } } });
    expect(published(schema, "output")).toMatch(/^a\/n: .*cannot/);
  });

  test.each([
    [
      "zod",
      z.object({
        n: z
          .string()
          .transform((text) => text.length)
          .pipe(z.number()),
      }),
    ],
    [
      "Valibot",
      std(
        v.object({
          n: v.pipe(
            v.string(),
            v.transform((text) => text.length),
            v.number(),
          ),
        }),
      ),
    ],
    [
      "ArkType",
      type({
        n: type("string")
          .pipe((text) => text.length)
          .to("number"),
      }),
    ],
    ["ArkType's own parsers", type({ n: "string.numeric.parse" })],
  ] as [string, StandardSchema][])("a transform of %s that says what it makes is published as that", (_, schema) => {
    expect(published(schema)).toMatchObject({ properties: { n: { type: "string" } } });
    expect(published(schema, "output")).toMatchObject({ properties: { n: { type: "number" } } });
  });
});

describe("a rule that cannot travel is left out of what is published", () => {
  test.each([
    ["a refinement of zod", z.string().refine((text) => text !== "no")],
    [
      "a check of Valibot",
      std(
        v.pipe(
          v.string(),
          v.check((text) => text !== "no"),
        ),
      ),
    ],
    ["a narrowing of ArkType", type("string").narrow((text) => text !== "no")],
    ["a pattern of zod whose flags mean something", z.string().regex(/^ab$/i)],
    ["a pattern of Valibot whose flags mean something", std(v.pipe(v.string(), v.regex(/^ab$/i)))],
    ["a pattern of ArkType whose flags mean something", type(/^ab$/i)],
    ["what Valibot makes of a text, which stays a text", std(v.pipe(v.string(), v.trim()))],
  ] as [string, StandardSchema][])("%s", (_, schema) => {
    expect(published(schema)).toEqual({ type: "string" });
  });

  test("and the patterns beside it stay", () => {
    const both = { type: "string", pattern: "^a", allOf: [{ pattern: "b$" }] };
    expect(published(z.string().regex(/x/i).regex(/^a/u).regex(/b$/))).toEqual({
      type: "string",
      allOf: [{ pattern: "^a" }, { pattern: "b$" }],
    });
    expect(published(std(v.pipe(v.string(), v.regex(/x/i), v.regex(/^a/u), v.regex(/b$/))))).toEqual(both);
    expect(published(type(/^a/).and(/b$/))).toEqual(both);
  });
});

test("a recursive ArkType type has one text, whatever was declared before it", () => {
  const declare = (): unknown => published(type.module({ node: { v: "number", kids: "node[]" } }).node);
  const first = declare();
  type.module({ other: { kids: "other[]" } });
  expect(declare()).toEqual(first);
  expect(first).toMatchObject({ $ref: "#/$defs/type1", $defs: { type1: { properties: { kids: { $ref: "#/$defs/type2" } } } } });
});
