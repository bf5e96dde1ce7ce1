import type { Linked, SchemaObject, SubSchema } from "./link.js";
import { linearPattern, type Matcher } from "./pattern.js";

/**
 * What judging by a schema can cost, from its shape alone.
 *
 * 1. `weight × nodes of the value` bounds the steps of a judgement by a schema whose `weight` is finite: unrolled
 *    through its references it is a tree, and a place of that tree meets a node of the value at most once.
 * 2. A recursive schema has infinite weight. So has, for our purpose, one whose references fan out.
 * 3. A schema is proved cheap when besides that it is small, every pattern has a linear-time form and every format
 *    check is linear. Only such a schema is judged on the event loop.
 */
export interface Cost {
  readonly weight: number;
  /** The linear form of every pattern; undefined when the schema is not proved cheap. */
  readonly cheap: ReadonlyMap<string, LinearPattern> | undefined;
}

export interface LinearPattern {
  readonly matcher: Matcher;
  readonly size: number;
}

const MAX_CHEAP_SUB_SCHEMAS = 200;
const MAX_CHEAP_WEIGHT = 600;
const MAX_CHEAP_PATTERNS = 32;
const MAX_CHEAP_PATTERN_LENGTH = 4096;
/** Comparing with objects and telling items apart write out parts of the value. */
const COMPARISON_WEIGHT = 8;

/** Formats whose check takes time linear in the string, and which cannot be made to backtrack. Unknown ones check nothing. */
const SLOW_FORMATS: ReadonlySet<unknown> = new Set(["url", "regex", "uri-template", "byte"]);

export function costOf(linked: Linked): Cost {
  if (linked.root === undefined) return { weight: 1, cheap: new Map() };
  const { weight, count } = unrolled(linked.root);
  const small = count <= MAX_CHEAP_SUB_SCHEMAS && weight <= MAX_CHEAP_WEIGHT;
  return { weight, cheap: small ? linearPatterns(linked.subSchemas) : undefined };
}

/** Sums over the tree that references unroll to; infinite for a recursive schema. */
function unrolled(root: SubSchema): { weight: number; count: number } {
  const sums = new Map<SubSchema, { weight: number; count: number }>();
  const entered = new Set<SubSchema>();
  const open = [root];
  for (let sub = open.at(-1); sub !== undefined; sub = open.at(-1)) {
    if (sums.has(sub)) {
      open.pop();
      continue;
    }
    if (!entered.has(sub)) {
      entered.add(sub);
      for (const { to } of sub.applies) {
        // Entered and without a sum: it is being summed, so it contains itself.
        if (entered.has(to) && !sums.has(to)) return { weight: Number.POSITIVE_INFINITY, count: Number.POSITIVE_INFINITY };
        open.push(to);
      }
      continue;
    }
    open.pop();
    const sum = { weight: ownWeight(sub.node), count: 1 };
    for (const { to } of sub.applies) {
      sum.weight += sums.get(to)?.weight ?? 0;
      sum.count += sums.get(to)?.count ?? 0;
    }
    sums.set(sub, sum);
  }
  return sums.get(root) ?? { weight: 1, count: 1 };
}

function ownWeight(node: SchemaObject): number {
  let weight = 1;
  if (Array.isArray(node["required"])) weight += node["required"].length;
  for (const name of ["dependentRequired", "dependencies"]) {
    for (const names of Object.values(node[name] ?? {})) if (Array.isArray(names)) weight += names.length;
  }
  const compared = [node["const"], ...(Array.isArray(node["enum"]) ? node["enum"] : [])];
  if (node["uniqueItems"] === true || compared.some((value) => typeof value === "object" && value !== null)) {
    weight += COMPARISON_WEIGHT;
  }
  return weight;
}

function linearPatterns(subSchemas: readonly SubSchema[]): ReadonlyMap<string, LinearPattern> | undefined {
  const patterns = new Set<string>();
  let length = 0;
  for (const { node } of subSchemas) {
    if (SLOW_FORMATS.has(node["format"])) return undefined;
    for (const pattern of [node["pattern"], ...Object.keys(node["patternProperties"] ?? {})]) {
      if (typeof pattern !== "string") continue;
      patterns.add(pattern);
      length += pattern.length;
    }
  }
  if (patterns.size > MAX_CHEAP_PATTERNS || length > MAX_CHEAP_PATTERN_LENGTH) return undefined;
  const linear = new Map<string, LinearPattern>();
  for (const pattern of patterns) {
    const form = linearPattern(pattern);
    if (form === undefined) return undefined;
    linear.set(pattern, form);
  }
  return linear;
}

/** Values in a value, itself included; counting stops beyond `most`. */
export function countNodes(value: unknown, most: number): number {
  if (typeof value !== "object" || value === null) return 1;
  let nodes = 1;
  for (const member of Array.isArray(value) ? value : Object.values(value)) {
    nodes += countNodes(member, most - nodes);
    if (nodes > most) break;
  }
  return nodes;
}
