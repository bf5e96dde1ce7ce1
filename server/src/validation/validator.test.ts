import { createHash } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { LIMITS } from "../config.js";
import { canonicalJson } from "../core/json.js";
import type { Schema, SchemaProblem, Validator, Verdict, Violation } from "./port.js";
import { createValidator } from "./validator.js";

function schemaOf(schema: unknown): Schema {
  const text = typeof schema === "string" ? schema : JSON.stringify(schema);
  return {
    text,
    sha256: createHash("sha256")
      .update(canonicalJson(JSON.parse(text)))
      .digest("hex"),
  };
}

/** Every answer is asked for on the event loop and in a thread, and must be one. */
let inline: Validator;
let threaded: Validator;

beforeAll(() => {
  inline = createValidator(LIMITS);
  threaded = createValidator({ ...LIMITS, inlineValueBytes: 0, validationMs: 5000, compilationMs: 10_000 });
});
afterAll(async () => {
  await Promise.all([inline.close(), threaded.close()]);
});

async function check(schema: unknown): Promise<SchemaProblem | undefined> {
  return await inline.check(schemaOf(schema));
}

async function judge(schema: unknown, value: unknown): Promise<Verdict> {
  const of = schemaOf(schema);
  expect(await inline.check(of)).toBeUndefined();
  const text = typeof value === "string" && /^[[{"]/.test(value) ? value : JSON.stringify(value);
  const [here, there] = await Promise.all([inline.validate(of, text), threaded.validate(of, text)]);
  expect(there.valid).toBe(here.valid);
  return here;
}

async function violations(schema: unknown, value: unknown): Promise<readonly Violation[]> {
  const verdict = await judge(schema, value);
  if (verdict.valid || !("violations" in verdict)) throw new Error(`no violations: ${JSON.stringify(verdict)}`);
  return verdict.violations;
}

async function accepts(schema: unknown, value: unknown): Promise<boolean> {
  return (await judge(schema, value)).valid;
}

describe("schemas that zod publishes", () => {
  it("tell optional from nullable", async () => {
    const schema = z.toJSONSchema(z.object({ a: z.string().optional(), b: z.string().nullable() }));
    expect(await accepts(schema, { b: null })).toBe(true);
    expect(await violations(schema, { a: null, b: null })).toEqual([{ path: "/a", rule: "type", message: "must be string" }]);
    expect(await violations(schema, {})).toEqual([{ path: "", rule: "required", message: 'must have the property "b"' }]);
    expect(await accepts(schema, { a: "x", b: "y" })).toBe(true);
  });

  it("hold records to their keys", async () => {
    const words = z.toJSONSchema(z.record(z.enum(["a", "b"]), z.number()));
    expect(await violations(words, { a: 1 })).toEqual([{ path: "", rule: "required", message: 'must have the property "b"' }]);
    expect(await accepts(words, { a: 1, b: 2 })).toBe(true);
    expect(await violations(words, { a: 1, b: 2, c: 3 })).toEqual([
      { path: "", rule: "enum", message: 'the property name "c" must be one of: "a", "b"' },
    ]);
    const numbers = z.toJSONSchema(z.record(z.number(), z.boolean()));
    expect(await accepts(numbers, { 1: true })).toBe(true);
    expect(await accepts(numbers, { x: true })).toBe(false);
  });

  it("recurse: a tree of 50 levels is judged down to its bottom", async () => {
    const Node = z.object({
      v: z.number(),
      get kids() {
        return z.array(Node);
      },
    });
    const schema = z.toJSONSchema(Node);
    const tree = (bottom: unknown): unknown => {
      let node: unknown = { v: bottom, kids: [] };
      for (let level = 1; level < 50; level++) node = { v: level, kids: [node] };
      return node;
    };
    expect(await accepts(schema, tree(1))).toBe(true);
    expect(await violations(schema, tree("deep"))).toEqual([
      { path: `${"/kids/0".repeat(49)}/v`, rule: "type", message: "must be number" },
    ]);
  });

  it("recurse mutually, without a dangling reference", async () => {
    const A = z.object({
      n: z.number(),
      get b() {
        return B.optional();
      },
    });
    const B = z.object({
      s: z.string(),
      get a() {
        return A.optional();
      },
    });
    const schema = z.toJSONSchema(z.object({ A, B }));
    expect(await accepts(schema, { A: { n: 1, b: { s: "x", a: { n: 2 } } }, B: { s: "y" } })).toBe(true);
    expect((await violations(schema, { A: { n: 1, b: { s: "x", a: { n: "2" } } }, B: { s: "y" } }))[0]?.path).toBe("/A/b/a/n");
  });

  it("are strict, plain or loose about extra members, at the top and one level down", async () => {
    const a = { a: z.string() };
    const value = { a: "x", extra: 1 };
    const extra = { rule: "additionalProperties", message: 'must not have the property "extra"' };
    const input = { io: "input" } as const;
    expect(await violations(z.toJSONSchema(z.strictObject(a), input), value)).toEqual([{ path: "", ...extra }]);
    expect(await accepts(z.toJSONSchema(z.object(a), input), value)).toBe(true);
    expect(await accepts(z.toJSONSchema(z.looseObject(a), input), value)).toBe(true);
    const nested = (inner: z.ZodType) => z.toJSONSchema(z.object({ in: inner }), input);
    expect(await violations(nested(z.strictObject(a)), { in: value })).toEqual([{ path: "/in", ...extra }]);
    expect(await accepts(nested(z.object(a)), { in: value })).toBe(true);
    expect(await accepts(nested(z.looseObject(a)), { in: value })).toBe(true);
  });

  it("say what a union lacks", async () => {
    const tagged = z.toJSONSchema(
      z.discriminatedUnion("t", [z.object({ t: z.literal("a"), x: z.number() }), z.object({ t: z.literal("b"), y: z.string() })]),
    );
    expect(await accepts(tagged, { t: "b", y: "" })).toBe(true);
    expect(await violations(tagged, { t: "b", y: 1 })).toEqual([{ path: "/y", rule: "type", message: "must be string" }]);
    expect(await violations(tagged, { t: "c" })).toEqual([{ path: "/t", rule: "oneOf", message: 'must be one of: "a", "b"' }]);
    const types = z.toJSONSchema(z.union([z.string(), z.number()]));
    expect(await violations(types, true)).toEqual([{ path: "", rule: "type", message: "must be string or number" }]);
    const plain = { anyOf: [{ type: "string" }, { type: "number", minimum: 3 }] };
    expect(await violations(plain, 2)).toEqual([{ path: "", rule: "minimum", message: "must be >= 3" }]);
    expect(await violations(plain, true)).toEqual([{ path: "", rule: "anyOf", message: "must be one of: string, number" }]);
    const overlapping = z.toJSONSchema(z.union([z.object({ a: z.number() }), z.object({ a: z.number(), b: z.number().optional() })]));
    expect(await accepts(overlapping, { a: 1 })).toBe(true);
    expect((await violations(overlapping, { a: "1" }))[0]?.message).toContain("must match one of 2 alternatives");
  });

  it("have formats, patterns, tuples and money", async () => {
    const schema = z.toJSONSchema(
      z.object({
        id: z.uuid(),
        mail: z.email(),
        at: z.iso.datetime(),
        count: z.int(),
        price: z.number().multipleOf(0.01),
        pair: z.tuple([z.string(), z.number()]),
        face: z.emoji().optional(),
      }),
    );
    const good = {
      id: "2f1d6a3e-8d2b-4c63-9b8e-0a1b2c3d4e5f",
      mail: "a@example.org",
      at: "2024-02-29T12:00:00Z",
      count: 3,
      price: 19.99,
      pair: ["a", 1],
    };
    expect(await accepts(schema, good)).toBe(true);
    for (const [name, bad] of Object.entries({ id: "2f", mail: "a@", at: "2023-02-29T12:00:00Z", count: 1.5, price: 0.005, pair: ["a"] })) {
      expect((await violations(schema, { ...good, [name]: bad }))[0]?.path).toBe(`/${name}`);
    }
    expect(await accepts(schema, { ...good, face: "\u{1f600}" })).toBe(true);
    expect(await accepts(schema, { ...good, face: "x" })).toBe(false);
  });
});

describe("dialects", () => {
  it("enforces draft-07 and 2020-12 by their own rules, and takes 2020-12 when none is named", async () => {
    const draft07 = {
      $schema: "http://json-schema.org/draft-07/schema#",
      type: "object",
      properties: { pair: { type: "array", items: [{ type: "string" }, { $ref: "#/definitions/n" }], additionalItems: false } },
      definitions: { n: { type: "number" } },
    };
    expect(await accepts(draft07, { pair: ["a", 1] })).toBe(true);
    expect((await violations(draft07, { pair: ["a", "b"] }))[0]?.path).toBe("/pair/1");
    expect(await accepts(draft07, { pair: ["a", 1, 2] })).toBe(false);
    const draft202012 = {
      type: "object",
      properties: { pair: { type: "array", prefixItems: [{ type: "string" }, { $ref: "#/$defs/n" }], items: false } },
      $defs: { n: { type: "number" } },
    };
    for (const schema of [draft202012, { $schema: "https://json-schema.org/draft/2020-12/schema", ...draft202012 }]) {
      expect(await accepts(schema, { pair: ["a", 1] })).toBe(true);
      expect((await violations(schema, { pair: ["a", "b"] }))[0]?.path).toBe("/pair/1");
      expect(await accepts(schema, { pair: ["a", 1, 2] })).toBe(false);
    }
    // An array of items is no 2020-12, and prefixItems is nothing in draft-07.
    expect((await check({ items: [{ type: "string" }] }))?.path).toBe("/items");
    expect(await accepts({ $schema: draft07.$schema, prefixItems: [{ type: "string" }] }, [1])).toBe(true);
  });

  it("lets nothing beside $ref count in draft-07", async () => {
    const schema = { $ref: "#/definitions/n", type: "string", definitions: { n: { type: "number" } } };
    expect(await accepts({ $schema: "http://json-schema.org/draft-07/schema#", ...schema }, 1)).toBe(true);
    expect(await accepts(schema, 1)).toBe(false);
  });

  it("refuses a dialect it does not have, by its place", async () => {
    for (const $schema of [
      "https://example.org/made-up",
      "http://json-schema.org/draft-04/schema#",
      "https://json-schema.org/draft/2019-09/schema",
    ]) {
      expect((await check({ $schema, type: "string" }))?.path).toBe("/$schema");
    }
    expect((await check({ properties: { a: { $schema: "http://json-schema.org/draft-07/schema#" } } }))?.path).toBe(
      "/properties/a/$schema",
    );
  });

  it("ignores unknown keywords and formats", async () => {
    const schema = { type: "object", "x-vendor": 1, properties: { n: { type: "number", format: "uint64", "x-more": { $ref: 1 } } } };
    expect(await accepts(schema, { n: 1 })).toBe(true);
    expect(await accepts(schema, { n: "1" })).toBe(false);
  });
});

describe("schemas that cannot be used", () => {
  it.each<[string, unknown, string]>([
    ["a number", 1, ""],
    ["an array", [], ""],
    ["null", null, ""],
    ["a broken pattern", { properties: { a: { type: "string", pattern: "^(?<a" } } }, "/properties/a/pattern"],
    ["a broken property pattern", { patternProperties: { "^ok$": {}, "(": {} } }, "/patternProperties/("],
    ["an unknown type", { properties: { a: { type: "text" } } }, "/properties/a/type"],
    ["a keyword of the wrong shape", { items: { maximum: "3" } }, "/items/maximum"],
    ["a remote reference", { properties: { a: { $ref: "https://example.org/schema.json" } } }, "/properties/a/$ref"],
    ["a reference to the meta-schema", { $ref: "https://json-schema.org/draft/2020-12/schema" }, "/$ref"],
    ["a file reference", { $ref: "file:///etc/passwd" }, "/$ref"],
    ["a dangling reference", { properties: { "a/b": { $ref: "#/$defs/none" } } }, "/properties/a~1b/$ref"],
    ["a dangling anchor", { $ref: "#none" }, "/$ref"],
    ["a reference along the prototype", { $ref: "#/constructor" }, "/$ref"],
    ["a reference to __proto__", { $ref: "#/__proto__" }, "/$ref"],
    ["a reference by an inherited name", { properties: { a: { $ref: "constructor" } } }, "/properties/a/$ref"],
    ["a reference to something that is no schema", { $ref: "#/title", title: "x" }, "/$ref"],
    ["a reference to a broken schema outside all keywords", { $ref: "#/x/y", x: { y: { type: "nope" } } }, "/x/y/type"],
    ["a reference to itself", { $ref: "#" }, ""],
    [
      "a loop of references",
      { $ref: "#/$defs/a", $defs: { a: { anyOf: [{ $ref: "#/$defs/b" }] }, b: { not: { $ref: "#/$defs/a" } } } },
      "/$defs/a",
    ],
    ["a duplicate $id", { $defs: { a: { $id: "x" }, b: { $id: "x" } } }, "/$defs/b/$id"],
    ["$data", { properties: { a: { maximum: { $data: "1/b" } } } }, "/properties/a/maximum"],
    ["a dependency on __proto__", JSON.parse('{"dependentRequired":{"__proto__":["a"]}}'), "/dependentRequired/__proto__"],
  ])("refuses %s and says where", async (_what, schema, path) => {
    const problem = await check(schema);
    expect(problem?.path).toBe(path);
    expect(problem?.message).toMatch(/\w+ \w+/);
    expect(await threaded.check(schemaOf({ allOf: [schema] }))).toBeDefined();
  });

  it("refuses text that is not JSON, repeats a name or is longer than the limit", async () => {
    const text = (text: string): Schema => ({ text, sha256: createHash("sha256").update(text).digest("hex") });
    expect((await inline.check(text("{")))?.message).toContain("invalid JSON");
    expect((await inline.check(text('{"type":"string","type":"number"}')))?.message).toContain('"type"');
    expect((await inline.check(text(`{"title":"${"x".repeat(256 * 1024)}"}`)))?.message).toContain("262144 bytes");
  });
});

describe("references", () => {
  it("resolve by pointer, anchor, $id and base, nested resources included", async () => {
    const schema = {
      $id: "https://example.org/root",
      properties: {
        byPointer: { $ref: "#/$defs/a~1b%25c" },
        byAnchor: { $ref: "#number" },
        byId: { $ref: "other" },
        inId: { $ref: "other#/$defs/inner" },
        byFullId: { $ref: "https://example.org/other#named" },
        unknownPlace: { $ref: "#/x-components/text" },
        nested: { $id: "nested/", properties: { own: { $ref: "#/$defs/self" }, rel: { $ref: "../other" } }, $defs: { self: { const: 1 } } },
      },
      "x-components": { text: { type: "string", "x-more": true } },
      $defs: {
        "a/b%c": { type: "boolean" },
        n: { $anchor: "number", type: "number" },
        other: { $id: "other", type: "null", $defs: { inner: { const: "inner" }, n: { $anchor: "named", const: "named" } } },
      },
    };
    const good = {
      byPointer: true,
      byAnchor: 1,
      byId: null,
      inId: "inner",
      byFullId: "named",
      unknownPlace: "x",
      nested: { own: 1, rel: null },
    };
    expect(await accepts(schema, good)).toBe(true);
    for (const name of Object.keys(good)) {
      const bad = name === "nested" ? { own: 2 } : { deep: ["wrong"] };
      expect(await accepts(schema, { ...good, [name]: bad })).toBe(false);
    }
    expect(await accepts(schema, { nested: { rel: 1 } })).toBe(false);
  });

  it("resolve $dynamicRef where there is one answer, and refuse it where there are several", async () => {
    const tree = { $dynamicAnchor: "node", type: "object", properties: { kids: { type: "array", items: { $dynamicRef: "#node" } } } };
    expect(await accepts(tree, { kids: [{ kids: [] }] })).toBe(true);
    expect(await accepts(tree, { kids: [{ kids: [1] }] })).toBe(false);
    const several = {
      $id: "https://example.org/a",
      $ref: "b",
      $dynamicAnchor: "n",
      $defs: { b: { $id: "b", $dynamicAnchor: "n", items: { $dynamicRef: "#n" } } },
    };
    expect((await check(several))?.path).toBe("/$defs/b/items/$dynamicRef");
  });

  it("of two schemas with one $id do not meet", async () => {
    const $id = "https://example.org/same";
    expect(await accepts({ $id, type: "string" }, "x")).toBe(true);
    expect(await accepts({ $id, type: "number" }, 1)).toBe(true);
    expect(await accepts({ $id, type: "string" }, 1)).toBe(false);
    expect(await accepts({ $id: "https://json-schema.org/draft/2020-12/schema", type: "number" }, 1)).toBe(true);
  });

  it("may go to true, false and the root", async () => {
    const schema = { properties: { t: { $ref: "#/$defs/t" }, f: { $ref: "#/$defs/f" }, r: { $ref: "#" } }, $defs: { t: true, f: false } };
    expect(await accepts(schema, { t: 1, r: { t: 2 } })).toBe(true);
    expect(await violations(schema, { r: { r: { f: 1 } } })).toEqual([
      { path: "/r/r/f", rule: "false", message: "must be absent: the schema allows no value here" },
    ]);
  });
});

describe("extensions of the library", () => {
  it.each<[string, unknown, unknown]>([
    ["nullable", { type: "string", nullable: true }, null],
    ["$async", { $async: true, type: "string" }, 1],
    ["$async within", { properties: { a: { $async: true, type: "string" } } }, { a: 1 }],
    [
      "discriminator",
      { type: "object", discriminator: { propertyName: "t" }, oneOf: [{ properties: { t: { const: 1 } }, required: ["t"] }] },
      { t: 2 },
    ],
    ["id", { id: "x", type: "string" }, 1],
    ["$recursiveRef", { type: "string", $recursiveRef: "#" }, 1],
    ["nullable without a type", { nullable: true, enum: ["a"] }, null],
    ["default", { type: "object", properties: { a: { default: 1 } }, required: ["a"] }, {}],
  ])("%s has no effect", async (_name, schema, value) => {
    expect(await accepts(schema, value)).toBe(false);
  });

  it("formatMinimum and its like have no effect", async () => {
    expect(await accepts({ type: "string", format: "date", formatMinimum: "2030-01-01" }, '"2020-01-01"')).toBe(true);
  });
});

describe("inherited names", () => {
  const names = ["__proto__", "constructor", "toString", "valueOf", "hasOwnProperty"];

  it.each(names)("%s is a property like any other", async (name) => {
    const named = (value: unknown): string => `{${JSON.stringify(name)}:${JSON.stringify(value)}}`;
    for (const closed of [`"additionalProperties":false`, `"unevaluatedProperties":false`]) {
      const schema = `{"type":"object","properties":${named({ type: "number" })},"required":[${JSON.stringify(name)}],${closed}}`;
      expect(await accepts(schema, named(1))).toBe(true);
      expect((await violations(schema, named("1")))[0]).toEqual({ path: `/${name}`, rule: "type", message: "must be number" });
      expect((await violations(schema, {}))[0]?.rule).toBe("required");
      const dynamic = `{"type":"object","anyOf":[{"properties":{"a":true}},{"patternProperties":{"^b":true}}],${closed}}`;
      expect(await accepts(dynamic, named(1))).toBe(false);
      expect(await accepts(`{"type":"object",${closed}}`, named(1))).toBe(false);
    }
    expect(await accepts(`{"propertyNames":{"maxLength":3}}`, named(1))).toBe(false);
    expect(await accepts(`{"patternProperties":${named(false)}}`, named(1))).toBe(false);
    expect(await accepts(`{"$ref":"#/$defs/${name}","$defs":${named({ type: "string" })}}`, named(1))).toBe(false);
    expect(await accepts(`{"dependentRequired":{"a":[${JSON.stringify(name)}]}}`, { a: 1 })).toBe(false);
  });

  it("compare as data in const, enum and uniqueItems", async () => {
    for (const name of names) {
      const object = `{${JSON.stringify(name)}:{"x":1}}`;
      const other = `{${JSON.stringify(name)}:{"x":2}}`;
      expect(await accepts(`{"const":${object}}`, object)).toBe(true);
      expect(await accepts(`{"const":${object}}`, other)).toBe(false);
      expect(await accepts(`{"enum":[1,${object}]}`, object)).toBe(true);
      expect(await accepts(`{"uniqueItems":true}`, `[${object},${object}]`)).toBe(false);
      expect(await accepts(`{"uniqueItems":true}`, `[${object},${other}]`)).toBe(true);
    }
    expect(({} as { x?: number }).x).toBeUndefined();
  });
});

describe("verdicts", () => {
  it("knows boolean and empty schemas", async () => {
    expect(await accepts(true, 1)).toBe(true);
    expect(await accepts({}, null)).toBe(true);
    expect(await violations(false, 1)).toEqual([{ path: "", rule: "false", message: "must be absent: the schema allows no value here" }]);
  });

  it("names every violation up to ten, by pointers that reach them", async () => {
    const schema = {
      type: "object",
      properties: { "a/b": { type: "object", properties: { "c~d": { maximum: 3 } }, required: ["e"] }, f: { enum: ["x", "y"] } },
    };
    expect(await violations(schema, { "a/b": { "c~d": 4 }, f: "z" })).toEqual([
      { path: "/a~1b", rule: "required", message: 'must have the property "e"' },
      { path: "/a~1b/c~0d", rule: "maximum", message: "must be <= 3" },
      { path: "/f", rule: "enum", message: 'must be one of: "x", "y"' },
    ]);
    expect(await violations({ items: { type: "string" } }, Array(50).fill(1))).toHaveLength(10);
  });

  it("repeats no value, and bounds what it says", async () => {
    const secret = "s3cret".repeat(1000);
    const long = "n".repeat(20_000);
    const schemas = [
      { const: "a" },
      { enum: ["a"] },
      { type: "number" },
      { pattern: "^a$" },
      { format: "date", type: "string" },
      { maxLength: 3 },
      { anyOf: [{ const: 1 }, { const: 2 }] },
      { not: {} },
    ];
    for (const schema of schemas) expect(JSON.stringify(await violations(schema, JSON.stringify(secret)))).not.toContain("s3cret");
    const found = await violations({ additionalProperties: { additionalProperties: false } }, { [long]: { [long]: 1 } });
    expect(JSON.stringify(found).length).toBeLessThan(2000);
    expect((await violations({ enum: [long] }, 1))[0]?.message.length).toBeLessThan(600);
  });

  it("compares numbers as JSON does and multiples exactly", async () => {
    expect(await accepts({ const: 1 }, "[1.0]".slice(1, 4))).toBe(false);
    expect(await accepts({ items: { const: 1 } }, "[1.0,1e0]")).toBe(true);
    expect(await accepts({ uniqueItems: true }, "[0,-0]")).toBe(false);
    expect(await accepts({ uniqueItems: true }, '[1,"1",true,"true",null,"null",{},"{}",[],"[]"]')).toBe(true);
    for (const [value, divisor, multiple] of [
      [19.99, 0.01, true],
      [0.3, 0.1, true],
      [0.35, 0.1, false],
      [1e21, 7, false],
      [1e300, 1e-300, true],
      [-4.5, 1.5, true],
      [0, 0.1, true],
      [7, 2, false],
    ] as const) {
      expect([value, divisor, await accepts({ multipleOf: divisor }, value)]).toEqual([value, divisor, multiple]);
    }
  });

  it("runs no code that a name, pattern or value of a schema spells", async () => {
    const hostile = [
      "');globalThis.owned=1;('",
      '"];globalThis.owned=1;["',
      ["`$", "{globalThis.owned=1}`"].join(""),
      "*/globalThis.owned=1;/*",
      "\\u2028\u2028globalThis.owned=1",
      "a\nb",
    ];
    for (const name of hostile) {
      const schema = {
        properties: { [name]: { type: "string", title: name, enum: [name], format: name } },
        required: [name],
        patternProperties: { [`^${name.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&")}$`]: { maxLength: 100 } },
        dependentRequired: { [name]: [name] },
        additionalProperties: false,
        $defs: { [name]: { $anchor: "a", type: "string" } },
        allOf: [{ properties: { [name]: { $ref: "#a" } } }],
      };
      expect(await accepts(schema, { [name]: name })).toBe(true);
      expect(await accepts(schema, { [name]: 1 })).toBe(false);
    }
    expect((globalThis as { owned?: number }).owned).toBeUndefined();
  });

  it("has a broken pattern refused at the check and a needlessly escaped one enforced", async () => {
    const schema = z.toJSONSchema(z.string().regex(/^https:\/\//));
    expect(await accepts(schema, '"https://x"')).toBe(true);
    expect(await accepts(schema, '"ftp://x"')).toBe(false);
    expect((await check({ properties: { url: { pattern: "^(?<a" } } }))?.message).toContain("not a regular expression");
  });

  it("compiles on demand what an earlier process checked", async () => {
    const fresh = createValidator(LIMITS);
    const recursive = schemaOf({ properties: { a: { $ref: "#" } }, additionalProperties: false });
    expect((await fresh.validate(schemaOf({ type: "string" }), "1")).valid).toBe(false);
    expect((await fresh.validate(recursive, '{"a":{"a":{}}}')).valid).toBe(true);
    expect((await fresh.validate(recursive, '{"a":{"b":{}}}')).valid).toBe(false);
    await fresh.close();
  });
});
