/**
 * Schemas of any library that speaks Standard Schema with Standard JSON Schema (zod 4 does).
 *
 * 1. What is published is what the library itself says the schema is in JSON Schema 2020-12. What it cannot say is
 *    refused at declaration, naming the Tool and the place: no schema is published that lets through more in silence.
 * 2. A value is parsed once; the function sees what the parse made of it.
 * 3. Violations name places and rules. They never carry values.
 */
import { BrainError, thrownMessage } from "./errors.js";
import { cutToBytes, jsonPointer, SCHEMA_MAX_BYTES, toJsonText } from "./json.js";

const TARGET = { target: "draft-2020-12" } as const;

/** `input` is what a caller writes, `output` what a parse makes of it. */
export type Side = "input" | "output";

/** What a schema library offers under `~standard`. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => Verdict<Output> | Promise<Verdict<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
    readonly jsonSchema: {
      readonly input: (options: { readonly target: "draft-2020-12" }) => Record<string, unknown>;
      readonly output: (options: { readonly target: "draft-2020-12" }) => Record<string, unknown>;
    };
  };
}

type Verdict<Output> = { readonly value: Output; readonly issues?: undefined } | { readonly issues: ReadonlyArray<Issue> };

interface Issue {
  readonly message: string;
  readonly path?: ReadonlyArray<PropertyKey | { readonly key: PropertyKey }> | undefined;
}

/** What the author of a value writes. */
export type InferInput<S extends StandardSchema> = NonNullable<S["~standard"]["types"]>["input"];
/** What the reader of a value sees. */
export type InferOutput<S extends StandardSchema> = NonNullable<S["~standard"]["types"]>["output"];

/** One way in which a value breaks its schema. */
export interface Violation {
  /** JSON Pointer of the place, empty for the value itself. */
  readonly path: string;
  readonly rule: string;
  readonly message: string;
}

export type Parsed = { ok: true; value: unknown } | { ok: false; violations: Violation[] };

/**
 * A plain JSON Schema as a schema. Brain checks values against it; this process does not, so values have the type that
 * the declaration claims (unknown, unless it says otherwise).
 */
export function jsonSchema<T = unknown>(schema: Readonly<Record<string, unknown>> | boolean): StandardSchema<T, T> {
  const published = (): Record<string, unknown> => (typeof schema === "boolean" ? (schema ? {} : { not: {} }) : schema);
  return {
    "~standard": {
      version: 1,
      vendor: "aexhq.brain",
      validate: (value) => ({ value: value as T }),
      jsonSchema: { input: published, output: published },
    },
  };
}

/** The JSON Schema text of one side of a schema. `what` names the schema in refusals: "input", "output", "options". */
export function publishedSchema(schema: StandardSchema, side: Side, tool: string, what: string): string {
  if (!isStandardSchema(schema)) {
    throw refused(tool, what, "it is no Standard Schema with JSON Schema; use zod 4, or jsonSchema({...})");
  }
  let published: unknown;
  try {
    published = schema["~standard"].jsonSchema[side](TARGET);
  } catch (error) {
    const { path, problem } = unrepresentable(schema, side) ?? { path: "", problem: thrownMessage(error) };
    throw refused(tool, what, `${path === "" ? "" : `at ${path}: `}${problem}`, path);
  }
  const text = toJsonText(published, SCHEMA_MAX_BYTES);
  if (!text.ok) throw refused(tool, what, `${text.path === "" ? "" : `at ${text.path}: `}${text.problem}`, text.path);
  return text.text;
}

function refused(tool: string, what: string, problem: string, path = ""): BrainError {
  return new BrainError("invalid_schema", `Tool "${tool}": the ${what} schema cannot be published: ${problem}`, {
    tool,
    path,
  });
}

function isStandardSchema(schema: unknown): schema is StandardSchema {
  if ((typeof schema !== "object" && typeof schema !== "function") || schema === null) return false;
  const standard = (schema as Partial<StandardSchema>)["~standard"];
  return typeof standard?.validate === "function" && typeof standard.jsonSchema?.input === "function";
}

/** The deepest part that cannot be represented by itself: libraries throw without saying where. */
function unrepresentable(
  schema: unknown,
  side: Side,
  path: readonly string[] = [],
  seen = new Set<unknown>(),
): { path: string; problem: string } | undefined {
  if (!isStandardSchema(schema) || seen.has(schema)) return undefined;
  seen.add(schema);
  let problem: string;
  try {
    schema["~standard"].jsonSchema[side](TARGET);
    return undefined;
  } catch (error) {
    problem = thrownMessage(error);
  }
  let isLoop = false;
  for (const [name, part] of parts(schema, side)) {
    if (seen.has(part)) isLoop = true;
    const deeper = unrepresentable(part, side, name === "" ? path : [...path, name], seen);
    if (deeper !== undefined) return deeper;
  }
  // What leads back to where the search came from fails for a reason that lies elsewhere.
  return isLoop ? undefined : { path: jsonPointer(path), problem };
}

/** The parts of a zod schema with the names of their places; "*" is any element. Other libraries have none. */
function parts(schema: object, side: Side): [string, unknown][] {
  const def = (schema as { _zod?: { def?: Record<string, unknown> } })._zod?.def;
  if (def === undefined) return [];
  const found: [string, unknown][] = [];
  const add = (name: string, part: unknown): void => {
    if (typeof part === "object" && part !== null) found.push([name, part]);
  };
  if (typeof def["shape"] === "object" && def["shape"] !== null) {
    for (const [name, part] of Object.entries(def["shape"])) add(name, part);
  }
  if (Array.isArray(def["items"])) for (const [index, part] of def["items"].entries()) add(String(index), part);
  if (Array.isArray(def["options"])) for (const part of def["options"]) add("", part);
  for (const name of ["element", "valueType", "rest", "catchall"]) add("*", def[name]);
  for (const name of ["innerType", "left", "right", "keyType", side === "input" ? "in" : "out"]) add("", def[name]);
  if (def["type"] === "pipe" && side === "input") add("", def["out"]);
  if (typeof def["getter"] === "function") add("", (def["getter"] as () => unknown)());
  return found;
}

const MAX_VIOLATIONS = 10;
const MAX_VIOLATION_BYTES = 1024;

interface ZodParse {
  safeParseAsync?: (value: unknown) => Promise<{
    success: boolean;
    data?: unknown;
    error?: { issues: ReadonlyArray<Issue> };
  }>;
}

/** Parses a value with its author's schema; asynchronous only where the schema is. */
export function parse(schema: StandardSchema, value: unknown): Parsed | Promise<Parsed> {
  const { safeParseAsync } = schema as ZodParse;
  // The standard entry of zod parses synchronously first, and again when it meets something asynchronous: refinements
  // and transforms with an effect would run twice.
  if (schema["~standard"].vendor === "zod" && typeof safeParseAsync === "function") {
    return safeParseAsync(value).then(({ success, data, error }) => parsed(success ? { value: data } : { issues: error?.issues ?? [] }));
  }
  const verdict = schema["~standard"].validate(value);
  return verdict instanceof Promise ? verdict.then(parsed) : parsed(verdict);
}

function parsed(verdict: Verdict<unknown>): Parsed {
  if (verdict.issues === undefined) return { ok: true, value: verdict.value };
  return { ok: false, violations: verdict.issues.slice(0, MAX_VIOLATIONS).map(violation) };
}

function violation(issue: Issue): Violation {
  const { code } = issue as { code?: unknown };
  const path = (issue.path ?? []).map((part) => String(typeof part === "object" ? part.key : part));
  return {
    path: cutToBytes(jsonPointer(path), MAX_VIOLATION_BYTES),
    rule: typeof code === "string" ? cutToBytes(code, MAX_VIOLATION_BYTES) : "schema",
    message: cutToBytes(issue.message, MAX_VIOLATION_BYTES),
  };
}

/** Violations in one line, for the message of a Failure. */
export function violationsText(violations: readonly Violation[]): string {
  return violations.map(({ path, message }) => (path === "" ? message : `${path}: ${message}`)).join("; ");
}

/** Whether a JSON Schema object takes a member of this name at its top level, looking through what applies in place. */
export function namesProperty(schema: unknown, name: string, root: unknown = schema, depth = 0): boolean {
  if (typeof schema !== "object" || schema === null || depth > 16) return false;
  const { properties, required, $ref, allOf, anyOf, oneOf } = schema as Record<string, unknown>;
  if (typeof properties === "object" && properties !== null && Object.hasOwn(properties, name)) return true;
  if (Array.isArray(required) && required.includes(name)) return true;
  const inPlace = [allOf, anyOf, oneOf].flatMap((list) => (Array.isArray(list) ? list : []));
  if (typeof $ref === "string") inPlace.push(localReference(root, $ref));
  return inPlace.some((part) => namesProperty(part, name, root, depth + 1));
}

function localReference(root: unknown, reference: string): unknown {
  if (!reference.startsWith("#/")) return undefined;
  let at: unknown = root;
  for (const part of reference.slice(2).split("/")) {
    if (typeof at !== "object" || at === null) return undefined;
    at = (at as Record<string, unknown>)[decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~")];
  }
  return at;
}
