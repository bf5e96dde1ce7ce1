import type { ErrorObject } from "ajv";
import { LIMITS } from "../config.js";
import { duplicateOf } from "./equality.js";
import type { Violation } from "./port.js";

/**
 * The library's errors, said so that a model or a person can correct the value.
 *
 * 1. No value of the input is repeated, except names of members; constants and patterns of the schema are.
 * 2. At most `LIMITS.violations`, each of bounded length.
 * 3. Where alternatives failed, the one that was meant is told apart when a tag or the type says which, and only
 *    what it lacks is said.
 */
/** Nested unions leave errors by the thousand, and settling them takes time quadratic in their number. */
const MAX_ERRORS = 300;
const MAX_MESSAGE = 500;
const MAX_PATH = 1000;
const MAX_NAME = 100;
const MAX_LISTED = 300;

/** Errors come in the order they were met, those of an alternative before those of their union. */
export function violationsOf(errors: readonly ErrorObject[]): readonly Violation[] {
  const kept: Entry[] = [];
  for (const error of errors.slice(0, MAX_ERRORS)) {
    if (isUnion(error)) kept.push(...settleUnion(error, takeBranches(error, kept)));
    else if (!isEcho(error, kept)) kept.push({ error, message: messageOf(error) });
  }
  return kept.slice(0, LIMITS.violations).map(({ error, message }) => ({
    path: boundedPath(error.instancePath),
    rule: error.keyword === "false schema" ? "false" : error.keyword,
    message: message.length <= MAX_MESSAGE ? message : `${message.slice(0, MAX_MESSAGE)}…`,
  }));
}

interface Entry {
  readonly error: ErrorObject;
  readonly message: string;
}

function isUnion(error: ErrorObject): boolean {
  return error.keyword === "anyOf" || error.keyword === "oneOf";
}

/** Errors that only say that those before them exist. */
function isEcho(error: ErrorObject, kept: readonly Entry[]): boolean {
  const last = kept.at(-1)?.error;
  if (last === undefined) return false;
  if (error.keyword === "if") return isWithin(last.instancePath, error.instancePath);
  return error.keyword === "propertyNames" && last.propertyName === error.params["propertyName"];
}

/** Removes from the end of `kept` what the alternatives of the union left there, by alternative. */
function takeBranches(union: ErrorObject, kept: Entry[]): Entry[][] {
  const alternatives = Array.isArray(union.schema) ? (union.schema as unknown[]) : [];
  const prefixes = alternatives.map((alternative, index) => {
    const reference = (alternative as { $ref?: unknown } | null)?.$ref;
    return [`${union.schemaPath}/${index}/`, typeof reference === "string" ? `${reference}/` : undefined];
  });
  const branchOf = ({ error }: Entry): number =>
    isWithin(error.instancePath, union.instancePath)
      ? prefixes.findIndex((own) => own.some((prefix) => prefix !== undefined && error.schemaPath.startsWith(prefix)))
      : -1;
  const first = kept.findIndex((entry) => branchOf(entry) >= 0);
  if (first < 0) return [];
  const branches: Entry[][] = [];
  let branch = 0;
  for (const entry of kept.splice(first)) {
    // An error from deeper references does not show its alternative; it is that of the error before it.
    const shown = branchOf(entry);
    if (shown >= 0) branch = shown;
    branches[branch] ??= [];
    branches[branch]?.push(entry);
  }
  return branches.filter((entries) => entries !== undefined);
}

function settleUnion(union: ErrorObject, branches: readonly (readonly Entry[])[]): readonly Entry[] {
  const passing = union.params["passingSchemas"] as readonly number[] | null | undefined;
  if (Array.isArray(passing)) {
    return [{ error: union, message: `must match exactly one alternative but matches numbers ${passing.join(" and ")}` }];
  }
  const meant = branches.filter((branch) => !branch.some((entry) => tellsApart(entry.error, union)));
  if (meant.length === 1 && meant[0] !== undefined) return meant[0];
  const fewest = [...meant].sort((a, b) => a.length - b.length)[0] ?? [];
  if (fewest.length > 0) {
    return [{ error: union, message: `must match one of ${branches.length} alternatives; the nearest lacks what follows` }, ...fewest];
  }
  return [commonMismatch(union, branches) ?? { error: union, message: "must match one of the alternatives of the schema" }];
}

/** Whether an error says that its alternative was not the one meant: another type, or another tag one level down. */
function tellsApart(error: ErrorObject, union: ErrorObject): boolean {
  const below = error.instancePath.slice(union.instancePath.length);
  if (below === "") return ["type", "const", "enum"].includes(error.keyword);
  return (error.keyword === "const" || error.keyword === "enum") && below.lastIndexOf("/") === 0;
}

/** When every alternative asks for another type or tag in one place: that place and all that would do there. */
function commonMismatch(union: ErrorObject, branches: readonly (readonly Entry[])[]): Entry | undefined {
  const errors = branches.map((branch) => branch.find((entry) => tellsApart(entry.error, union))?.error);
  const [first] = errors;
  if (first === undefined || errors.some((error) => error?.instancePath !== first.instancePath)) return undefined;
  const wanted = errors.flatMap((error) => (error === undefined ? [] : wantedBy(error)));
  return { error: { ...union, instancePath: first.instancePath }, message: `must be one of: ${[...new Set(wanted)].join(", ")}` };
}

function wantedBy(error: ErrorObject): readonly string[] {
  if (error.keyword === "type") return ([error.schema].flat() as unknown[]).map(String);
  if (error.keyword === "enum" && Array.isArray(error.schema)) return error.schema.map((value) => JSON.stringify(value));
  return [JSON.stringify(error.schema) ?? ""];
}

function messageOf(error: ErrorObject): string {
  const about = error.propertyName === undefined ? "" : `the property name ${quoted(error.propertyName)} `;
  return about + ownMessage(error);
}

function ownMessage(error: ErrorObject): string {
  const { params, schema } = error as { params: Record<string, unknown>; schema: unknown };
  switch (error.keyword) {
    case "type":
      return `must be ${[schema].flat().join(" or ")}`;
    case "required":
      return `must have the property ${quoted(params["missingProperty"])}`;
    case "dependentRequired":
    case "dependencies":
      return `must have the property ${quoted(params["missingProperty"])} because it has ${quoted(params["property"])}`;
    case "additionalProperties":
      return `must not have the property ${quoted(params["additionalProperty"])}`;
    case "unevaluatedProperties":
      return `must not have the property ${quoted(params["unevaluatedProperty"])}`;
    case "propertyNames":
      return `must not have the property name ${quoted(params["propertyName"])}`;
    case "const":
      return `must be ${listed([schema])}`;
    case "enum":
      return `must be one of: ${listed(Array.isArray(schema) ? schema : [])}`;
    case "pattern":
      return `must match the pattern ${quoted(schema)}`;
    case "format":
      return `must be a string of the format ${quoted(schema)}`;
    case "multipleOf":
      return `must be a multiple of ${String(schema)}`;
    case "uniqueItems": {
      const pair = duplicateOf(Array.isArray(error.data) ? error.data : []);
      return `must not have equal items${pair === undefined ? "" : `, as numbers ${pair[0]} and ${pair[1]} are`}`;
    }
    case "not":
      return "must not match the schema under not";
    case "false schema":
      return "must be absent: the schema allows no value here";
    default:
      return error.message ?? `breaks the rule ${error.keyword}`;
  }
}

function listed(values: readonly unknown[]): string {
  let text = "";
  for (const value of values) {
    const next = text === "" ? JSON.stringify(value) : `${text}, ${JSON.stringify(value)}`;
    if (next.length > MAX_LISTED) return text === "" ? "a value too long to show" : `${text}, …`;
    text = next;
  }
  return text;
}

function quoted(name: unknown): string {
  const text = String(name);
  return JSON.stringify(text.length <= MAX_NAME ? text : `${text.slice(0, MAX_NAME)}…`);
}

function isWithin(path: string, outer: string): boolean {
  return path === outer || path.startsWith(`${outer}/`);
}

/** A pointer is cut between segments, so that it still points at something that contains the place. */
function boundedPath(path: string): string {
  if (path.length <= MAX_PATH) return path;
  return path.slice(0, path.lastIndexOf("/", MAX_PATH));
}
