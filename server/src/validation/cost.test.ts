import { describe, expect, it } from "vitest";
import { costOf, countNodes } from "./cost.js";
import { linkSchema } from "./link.js";

function cost(schema: unknown): { weight: number; cheap: boolean } {
  const linking = linkSchema(structuredClone(schema));
  if (!linking.ok) throw new Error(linking.problem.message);
  const { weight, cheap } = costOf(linking.linked);
  return { weight, cheap: cheap !== undefined };
}

const doubling = (levels: number) => ({
  $ref: "#/$defs/d0",
  $defs: Object.fromEntries(
    Array.from({ length: levels + 1 }, (_, i) => [
      `d${i}`,
      i === levels ? { type: "string" } : { allOf: [{ $ref: `#/$defs/d${i + 1}` }, { $ref: `#/$defs/d${i + 1}` }] },
    ]),
  ),
});

describe("costOf", () => {
  it.each<[string, unknown]>([
    ["a boolean", true],
    ["an ordinary object", { type: "object", properties: { a: { type: "string", pattern: "^[a-z]+$" } }, required: ["a"] }],
    ["shared definitions", { properties: { a: { $ref: "#/$defs/x" }, b: { $ref: "#/$defs/x" } }, $defs: { x: { type: "string" } } }],
    ["a few levels of doubling", doubling(4)],
    ["unique items", { uniqueItems: true }],
    ["a format", { format: "date-time" }],
  ])("proves %s cheap", (_what, schema) => {
    expect(cost(schema).cheap).toBe(true);
  });

  it.each<[string, unknown]>([
    ["recursion", { properties: { a: { $ref: "#" } } }],
    ["mutual recursion", { $ref: "#/$defs/a", $defs: { a: { items: { $ref: "#/$defs/b" } }, b: { items: { $ref: "#/$defs/a" } } } }],
    ["references that fan out", doubling(30)],
    ["more than 200 schemas", { properties: Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`p${i}`, {}])) }],
    ["lookahead", { pattern: "(?=a)" }],
    ["a backreference in a property pattern", { patternProperties: { "(a)\\1": {} } }],
    ["a format whose check backtracks", { format: "url" }],
    ["a thousand required names", { required: Array.from({ length: 1000 }, (_, i) => `p${i}`) }],
    ["many patterns", { properties: Object.fromEntries(Array.from({ length: 40 }, (_, i) => [`p${i}`, { pattern: `^${i}` }])) }],
  ])("does not prove %s cheap", (_what, schema) => {
    expect(cost(schema).cheap).toBe(false);
  });

  it("weighs by unrolling references", () => {
    expect(cost(doubling(3)).weight).toBe(2 * cost(doubling(2)).weight + 2);
    expect(cost({ items: { $ref: "#" } }).weight).toBe(Number.POSITIVE_INFINITY);
  });

  it("analyses a schema of 256 KiB at once, however it refers to itself", () => {
    const began = performance.now();
    expect(cost(doubling(2500)).cheap).toBe(false);
    expect(performance.now() - began).toBeLessThan(2000);
  });
});

describe("countNodes", () => {
  it("counts every value once and stops beyond the bound", () => {
    expect(countNodes({ a: [1, 2, { b: null }], c: "x" }, 100)).toBe(7);
    expect(countNodes(Array(1_000_000).fill(0), 10)).toBeLessThan(20);
  });
});
