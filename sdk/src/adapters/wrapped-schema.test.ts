import { Ajv } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type SchemaObject, wrappedSchema } from "./wrapped-schema.js";

const DRAFT_07 = "http://json-schema.org/draft-07/schema#";
const tree = { type: "object", properties: { v: { type: "number" }, kids: { type: "array", items: { $ref: "#" } } }, required: ["v"] };

const schemas: [string, unknown][] = [
  ["a plain object", { type: "object", properties: { id: { type: "string" } }, required: ["id"] }],
  ["a text", { type: "string", minLength: 2 }],
  ["anything", true],
  ["nothing", false],
  ["a tree that refers to its root", tree],
  ["references to $defs", { $defs: { a: { type: "number" }, "b/c": { $ref: "#/$defs/a" } }, properties: { id: { $ref: "#/$defs/b~1c" } } }],
  [
    "draft-07 with definitions",
    { $schema: DRAFT_07, definitions: { a: { type: "number" } }, properties: { v: { $ref: "#/definitions/a" } } },
  ],
  [
    "draft-07, where a reference hides what stands beside it",
    { $schema: DRAFT_07, definitions: { a: true }, items: { $ref: "#/definitions/a", type: "null" } },
  ],
  ["2020-12, where it does not", { $defs: { a: true }, items: { $ref: "#/$defs/a", type: "null" } }],
  ["an anchor", { $defs: { a: { $anchor: "here", type: "number" } }, properties: { v: { $ref: "#here" } } }],
  ["a dynamic anchor", { $dynamicAnchor: "node", type: "object", properties: { kids: { items: { $dynamicRef: "#node" } } } }],
  ["an $id of its own", { ...tree, $id: "https://example.com/tree" }],
  [
    "a part with an $id of its own",
    { properties: { tree: { ...tree, $id: "https://example.com/part" }, v: { $ref: "#/properties/id" }, id: { type: "string" } } },
  ],
  [
    "data that looks like references",
    { properties: { v: { const: { $ref: "#/x" } }, id: { enum: [{ $ref: "#" }], default: { $ref: "#" } } } },
  ],
  [
    "properties that are named as keywords are",
    { properties: { $ref: { $ref: "#/$defs/a" }, const: { $ref: "#" }, default: { type: "null" } }, $defs: { a: { type: "string" } } },
  ],
  [
    "references in every place",
    {
      allOf: [{ $ref: "#/$defs/a" }],
      not: { $ref: "#/$defs/b" },
      dependentSchemas: { id: { $ref: "#/$defs/c" } },
      patternProperties: { "^x": { $ref: "#/$defs/d" } },
      $defs: { a: { type: "object" }, b: { required: ["no"] }, c: { required: ["v"] }, d: { type: "number" } },
    },
  ],
];

const values: unknown[] = [
  null,
  7,
  "x",
  "xx",
  [],
  [null],
  [7],
  {},
  { id: "7" },
  { id: 7 },
  { v: 1, kids: [{ v: 2, kids: [] }] },
  { v: 1, kids: [{ v: "2" }] },
  { kids: [{ kids: [] }, 7] },
  { tree: { v: 1, kids: [{ v: 2 }] } },
  { tree: { kids: [] } },
  { v: "7" },
  { v: { $ref: "#/x" } },
  { id: { $ref: "#" } },
  { $ref: "a" },
  { $ref: 7 },
  { const: {} },
  { const: { const: { $ref: 7 } } },
  { default: null },
  { default: 7 },
  { no: 1 },
  { id: "7", v: 1 },
  { x: "no" },
  { x1: 7 },
];

/** The verdicts of a validator of the schema's own dialect. */
function validator(schema: unknown): (value: unknown) => boolean {
  const dialect = (schema as { $schema?: unknown }).$schema;
  const ajv = dialect === DRAFT_07 ? new Ajv({ strict: false }) : new Ajv2020({ strict: false });
  const validate = ajv.compile(schema as object);
  return (value) => validate(value) as boolean;
}

describe("a wrapped schema says of the value under input what the canonical one says of the value", () => {
  test.each(schemas)("for %s", (_name, canonical) => {
    const [judge, judgeWrapped] = [validator(canonical), validator(wrappedSchema(canonical, undefined))];
    const seen = new Set<boolean>();
    for (const value of values) {
      const expected = judge(value);
      seen.add(expected);
      expect(judgeWrapped({ input: value }), JSON.stringify(value)).toBe(expected);
    }
    // A list of values that all fare alike would prove nothing.
    expect(seen.size).toBe(typeof canonical === "boolean" ? 1 : 2);
  });

  test("for any value", () => {
    for (const [name, canonical] of schemas) {
      const [judge, judgeWrapped] = [validator(canonical), validator(wrappedSchema(canonical, ["a", "b"]))];
      fc.assert(
        fc.property(fc.jsonValue(), (value) => {
          expect(judgeWrapped({ environment: "a", input: value }), name).toBe(judge(value));
        }),
        { numRuns: 100 },
      );
    }
  });
});

describe("a wrapped schema", () => {
  const wrapped = wrappedSchema({ $schema: DRAFT_07, type: "object" }, ["here", "there"]);

  test("takes the Environments there are, and nothing else beside the input", () => {
    const judge = validator(wrapped);
    expect(judge({ environment: "there", input: {} })).toBe(true);
    for (const wrong of [
      {},
      { input: {} },
      { environment: "here" },
      { environment: "x", input: {} },
      { environment: "here", input: {}, id: 7 },
    ]) {
      expect(judge(wrong), JSON.stringify(wrong)).toBe(false);
    }
  });

  test("tells the dialect at the top, once", () => {
    expect(wrapped["$schema"]).toBe(DRAFT_07);
    expect(JSON.stringify(wrapped).split("$schema")).toHaveLength(2);
  });

  test("leaves the canonical schema as it is", () => {
    const canonical: SchemaObject = { ...tree };
    const before = JSON.stringify(canonical);
    wrappedSchema(canonical, undefined);
    expect(JSON.stringify(canonical)).toBe(before);
  });
});
