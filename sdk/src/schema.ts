/**
 * Schemas of any library that speaks Standard Schema with Standard JSON Schema: zod 4, ArkType, Valibot with
 * `toStandardJsonSchema`, and plain JSON Schema.
 *
 * 1. What is published is what the library itself says the schema is in JSON Schema 2020-12. What it cannot say is
 *    refused at declaration, naming the Tool and the place: no schema is published that lets through more in silence.
 * 2. A value is parsed once; the function sees what the parse made of it.
 * 3. Violations name places and rules. They never carry values.
 */
import { BrainError } from "./errors.js";
import { cutToBytes, jsonPointer, SCHEMA_MAX_BYTES, toJsonText } from "./json.js";
import { converted, isStandardSchema, localReference } from "./schema-libraries.js";

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
      readonly input: (options: JsonSchemaOptions) => Record<string, unknown>;
      readonly output: (options: JsonSchemaOptions) => Record<string, unknown>;
    };
  };
}

interface JsonSchemaOptions {
  readonly target: "draft-2020-12";
  readonly libraryOptions?: Record<string, unknown> | undefined;
}

type Verdict<Output> = { readonly value: Output; readonly issues?: undefined } | { readonly issues: ReadonlyArray<Issue> };

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
 * A plain JSON Schema (2020-12, or draft-07 where `$schema` says so) as a schema. Brain checks values against it; this
 * process does not, so values have the type that the declaration claims, unknown unless it says otherwise.
 *
 * @example
 * input: jsonSchema<{ id: string }>({ type: "object", properties: { id: { type: "string" } }, required: ["id"] }),
 */
export function jsonSchema<T = unknown>(schema: Readonly<Record<string, unknown>> | boolean): StandardSchema<T, T> {
  const isSchema = typeof schema === "boolean" || (typeof schema === "object" && schema !== null && !Array.isArray(schema));
  if (!isSchema) throw new BrainError("invalid_schema", "jsonSchema: a JSON Schema is an object, true or false; give one of them");
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
    throw refused(
      tool,
      what,
      "it is no Standard Schema with JSON Schema; use zod 4, ArkType, Valibot's toStandardJsonSchema(schema), or jsonSchema({...})",
    );
  }
  const conversion = converted(schema, side);
  if ("problem" in conversion) {
    const path = jsonPointer(conversion.path);
    throw refused(tool, what, `${path === "" ? "" : `at ${path}: `}${conversion.problem}`, path);
  }
  const { published } = conversion;
  if (typeof published !== "object" || published === null || Array.isArray(published)) {
    throw refused(tool, what, `its library (${schema["~standard"].vendor}) made no JSON Schema of it, which is an object`);
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
    return safeParseAsync(value).then(({ success, data, error }) =>
      parsed(success ? { value: data } : { issues: error?.issues ?? [] }, value),
    );
  }
  const verdict = schema["~standard"].validate(value);
  return verdict instanceof Promise ? verdict.then((late) => parsed(late, value)) : parsed(verdict, value);
}

/** As {@link parse}, for where nobody can wait; undefined when the schema is asynchronous. */
export function parseNow(schema: StandardSchema, value: unknown): Parsed | undefined {
  const verdict = schema["~standard"].validate(value);
  if (!(verdict instanceof Promise)) return parsed(verdict, value);
  // What becomes of it changes nothing any more.
  verdict.catch(() => undefined);
  return undefined;
}

function parsed(verdict: Verdict<unknown>, value: unknown): Parsed {
  if (verdict.issues === undefined) return { ok: true, value: verdict.value };
  const issues = verdict.issues.flatMap((issue) => meantIssues(issue, []));
  return { ok: false, violations: issues.slice(0, MAX_VIOLATIONS).map((issue) => violation(issue, value)) };
}

/** An issue of a library, as far as anything is known about it. */
interface Issue {
  readonly message: string;
  readonly path?: ReadonlyArray<PropertyKey | { readonly key: PropertyKey }> | undefined;
  readonly code?: unknown;
  readonly type?: unknown;
  readonly expected?: unknown;
  readonly received?: unknown;
  readonly actual?: unknown;
  /** Of a union of zod: what each alternative objects to, within the union's own place. */
  readonly errors?: unknown;
}

type Step = string;

/** For a union the objections of the alternative that the value came nearest to: "no alternative" helps nobody. */
function meantIssues(issue: Issue, above: readonly Step[]): Issue[] {
  const path = [...above, ...steps(issue)];
  const alternatives = Array.isArray(issue.errors) ? (issue.errors as Issue[][]).filter((one) => Array.isArray(one) && one.length > 0) : [];
  const [nearest] = alternatives.toSorted((a, b) => depth(b) - depth(a) || a.length - b.length);
  if (nearest === undefined || depth(nearest) === 0) {
    // Read one by one: of some libraries they are getters, which a copy would lose.
    const { message, code, type, expected, received, actual } = issue;
    return [{ path, message, code, type, expected, received, actual }];
  }
  return nearest.flatMap((one) => meantIssues(one, path));
}

/** How far into the value an alternative went before it objected at all. */
function depth(issues: readonly Issue[]): number {
  return Math.min(...issues.map((issue) => issue.path?.length ?? 0));
}

function steps(issue: Issue): Step[] {
  return (issue.path ?? []).map((part) => String(typeof part === "object" ? part.key : part));
}

function violation(issue: Issue, value: unknown): Violation {
  const { code, type } = issue;
  const path = steps(issue);
  return {
    path: cutToBytes(jsonPointer(path), MAX_VIOLATION_BYTES),
    rule: cutToBytes(typeof code === "string" ? code : typeof type === "string" ? type : "schema", MAX_VIOLATION_BYTES),
    message: cutToBytes(withoutValue(issue, at(value, path)), MAX_VIOLATION_BYTES),
  };
}

/** Shorter texts are part of any sentence, and no secret. */
const SHORTEST_SECRET = 4;

/** The message of an issue without the value that it is about, which libraries like to quote. */
function withoutValue({ message, expected, received, actual }: Issue, value: unknown): string {
  const quoted = [received, actual].find((text) => typeof text === "string" && text !== "" && message.includes(text));
  if (quoted !== undefined && typeof expected === "string" && expected !== "") return `expected ${expected}`;
  const text = typeof value === "string" ? value : typeof value === "number" ? String(value) : "";
  // A value that reads like the type it should be is no secret, and the type is the point of the message.
  const isNamed = typeof expected === "string" && expected.includes(text);
  return text.length < SHORTEST_SECRET || isNamed ? message : message.replaceAll(text, "...");
}

function at(value: unknown, path: readonly Step[]): unknown {
  let found = value;
  for (const step of path) {
    if (typeof found !== "object" || found === null || !Object.hasOwn(found, step)) return undefined;
    found = (found as Record<string, unknown>)[step];
  }
  return found;
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
