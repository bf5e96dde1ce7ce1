import { expect, test } from "vitest";
import { definitionDifference } from "./definition-difference.js";
import { jsonSchema } from "./schema.js";
import { tool } from "./tool.js";

const schema = { type: "object", properties: { id: { type: "string" } }, required: ["id"] };

function defined(more: { description?: string; input?: Record<string, unknown>; output?: Record<string, unknown> } = {}) {
  const { description = "Look up.", input = schema, output } = more;
  const declaration = { name: "lookup", description, input: jsonSchema(input), run: () => null };
  return tool(output === undefined ? declaration : { ...declaration, output: jsonSchema(output) }).definition;
}

test.each([
  ["one blank", { description: "Look up. " }, 'the description ("Look up." and "Look up. ")'],
  [
    "one value deep inside",
    { input: { ...schema, properties: { id: { type: "number" } } } },
    'the input schema at /properties/id/type ("string" and "number")',
  ],
  [
    "one more member",
    { input: { ...schema, properties: { id: { type: "string" }, more: true } } },
    "the input schema at /properties/more (only in the second: true)",
  ],
  ["one fewer", { input: { type: "object", properties: schema.properties } }, 'the input schema at /required (only in the first: ["id"])'],
  ["a longer list", { input: { ...schema, required: ["id", "x"] } }, 'the input schema at /required/1 (only in the second: "x")'],
  ["an output schema", { output: {} }, "the output schema, which only the second has"],
] as const)("a difference in %s is said as the place and what stands there", (_, more, said) => {
  expect(definitionDifference(defined(), defined(more as Parameters<typeof defined>[0]))).toBe(said);
});

test("five places are enough, and no text is shown at length", () => {
  const wide = (type: string) => ({ properties: Object.fromEntries(Array.from({ length: 8 }, (_, n) => [`p${n}`, { type }])) });
  expect(definitionDifference(defined({ input: wide("string") }), defined({ input: wide("number") }))).toMatch(
    /^(?:[^,]*, ){5}and 3 more$/,
  );
  const long = definitionDifference(defined(), defined({ description: "é".repeat(1000) }));
  expect(long.length).toBeLessThan(200);
});

test("the order of members is no difference", () => {
  expect(definitionDifference(defined(), defined({ input: { required: ["id"], properties: schema.properties, type: "object" } }))).toBe("");
});
