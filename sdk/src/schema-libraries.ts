/**
 * What each library is asked, so that it says in JSON Schema all it can, and refuses the rest.
 *
 * 1. A type that JSON has no form for is refused at its place, whatever the library would publish in its stead.
 * 2. A rule that cannot travel (a check by a function, a pattern whose flags change its meaning) is left out. The
 *    author's schema still applies it, where the function runs.
 * 3. A library that is not named here is believed.
 */
import { thrownMessage } from "./errors.js";
import type { Side, StandardSchema } from "./schema.js";

/** What cannot be represented, and where in a value: "*" is any element. */
export interface Unrepresentable {
  readonly path: readonly string[];
  readonly problem: string;
}

export type Conversion = { readonly published: unknown } | Unrepresentable;

/** The JSON Schema 2020-12 of one side of a schema. */
export function converted(schema: StandardSchema, side: Side): Conversion {
  let published: unknown;
  try {
    published = ask(schema, side);
  } catch (error) {
    return unrepresentable(schema, side) ?? { path: [], problem: thrownMessage(error) };
  }
  const problem = markIn(published) ?? (isArkType(schema) && side === "output" ? blankOutput(schema, published) : undefined);
  if (problem !== undefined) return problem;
  return { published: isArkType(schema) ? withSteadyNames(withoutPatterns(published, flaggedPatterns(schema))) : published };
}

function ask(schema: StandardSchema, side: Side): unknown {
  const { vendor, jsonSchema } = schema["~standard"];
  const libraryOptions = OPTIONS[vendor];
  return jsonSchema[side]({ target: "draft-2020-12", ...(libraryOptions === undefined ? {} : { libraryOptions }) });
}

/** A keyword that stands in a published schema where a library would have let something through in silence. */
const MARK = "aexhq.brain/unrepresentable";

type Members = Record<string, unknown>;

function isMembers(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Without these a pattern means the same to every engine of JSON Schema. */
const FLAGS_WITH_MEANING = /[imsy]/;

const OPTIONS: Readonly<Record<string, Readonly<Members>>> = {
  zod: { override: overrideZod },
  valibot: { overrideSchema: overrideValibotSchema, overrideAction: overrideValibotAction },
  arktype: {
    fallback: {
      arrayObject: ({ base }: ArkContext) => marked(base, "An array with members of its own"),
      arrayPostfix: ({ base }: ArkContext) => marked(base, "An array that ends in given elements"),
      date: ({ base }: ArkContext) => marked(base, "Date"),
      defaultValue: () => undefined,
      domain: ({ base, domain }: ArkContext) => marked(base, domain ?? "A domain"),
      morph: ({ base }: ArkContext) => marked(base, "A morph"),
      patternIntersection: ({ base, pattern }: ArkContext) => withPattern(base, pattern ?? ""),
      predicate: ({ base }: ArkContext) => base,
      proto: ({ base, proto }: ArkContext) => marked(base, proto?.name ?? "A class"),
      symbolKey: ({ base }: ArkContext) => marked(base, "A symbol as a name"),
      unit: ({ base, unit }: ArkContext) => marked(base, typeof unit === "object" ? "An object as a literal" : String(unit)),
    },
  },
};

function marked(base: Members, what: string): Members {
  // In place: some of these are asked only to say what they think of it.
  return Object.assign(base, { [MARK]: `${what} cannot be represented in JSON Schema` });
}

function withPattern(base: Members, pattern: string): Members {
  return { ...base, allOf: [...(Array.isArray(base["allOf"]) ? base["allOf"] : []), { pattern }] };
}

interface ArkContext {
  readonly base: Members;
  readonly domain?: string;
  readonly pattern?: string;
  readonly proto?: { readonly name: string };
  readonly unit?: unknown;
}

interface ZodDefinition extends Members {
  readonly type?: string;
  readonly checks?: readonly { readonly _zod: { readonly def: { readonly pattern?: unknown } } }[];
}

function zodDefinition(schema: unknown): ZodDefinition | undefined {
  return (schema as { _zod?: { def?: ZodDefinition } })._zod?.def;
}

function overrideZod({ zodSchema, jsonSchema }: { zodSchema: unknown; jsonSchema: Members }): void {
  const { type, checks = [] } = zodDefinition(zodSchema) ?? {};
  if (type === "file") throw new Error("File cannot be represented in JSON Schema");
  const patterns = checks.map(({ _zod: { def } }) => def.pattern);
  const flagged = patterns.flatMap((pattern) => (pattern instanceof RegExp && hasFlags(pattern) ? [pattern.source] : []));
  if (flagged.length > 0) Object.assign(jsonSchema, leavingOut(jsonSchema, new Set(flagged)));
}

function hasFlags({ flags }: RegExp): boolean {
  return FLAGS_WITH_MEANING.test(flags);
}

interface ValibotContext {
  readonly jsonSchema: Members;
  readonly errors?: readonly string[];
}

function overrideValibotSchema({ jsonSchema, errors }: ValibotContext): Members | undefined {
  return errors?.[0] === undefined ? undefined : { ...jsonSchema, [MARK]: errors[0] };
}

/** Transformations whose outcome is of the type they were given. */
const SAME_TYPE: ReadonlySet<string> = new Set([
  "filter_items",
  "normalize",
  "sort_items",
  "to_lower_case",
  "to_max_value",
  "to_min_value",
  "to_upper_case",
  "trim",
  "trim_end",
  "trim_start",
]);

function overrideValibotAction(
  context: ValibotContext & { valibotAction: { kind: string; type: string; requirement?: unknown } },
): Members | undefined {
  const { jsonSchema, errors, valibotAction } = context;
  const { kind, type, requirement } = valibotAction;
  if (errors?.[0] === undefined) return undefined;
  if (type === "regex" && requirement instanceof RegExp) {
    if (!hasFlags(requirement))
      return jsonSchema["pattern"] === requirement.source ? jsonSchema : withPattern(jsonSchema, requirement.source);
    return { ...jsonSchema, ...leavingOut(jsonSchema, new Set([requirement.source])) };
  }
  if (kind === "validation" || SAME_TYPE.has(type)) return jsonSchema;
  return { ...jsonSchema, [MARK]: errors[0] };
}

/** What `pattern` and `allOf` become without these patterns; undefined members are left out of what is published. */
function leavingOut(schema: Members, patterns: ReadonlySet<string>): { pattern?: unknown; allOf?: unknown } {
  const isKept = (pattern: unknown): boolean => typeof pattern !== "string" || !patterns.has(pattern);
  const { pattern, allOf } = schema;
  const all = Array.isArray(allOf) ? allOf.filter((part: unknown) => !isMembers(part) || isKept(part["pattern"])) : [];
  return { pattern: isKept(pattern) ? pattern : undefined, allOf: all.length === 0 ? undefined : all };
}

/** What arktype offers beside the standard: the nodes a type is made of. */
interface ArkType {
  readonly references?: readonly {
    readonly kind: string;
    readonly flags?: string;
    readonly rule?: unknown;
    readonly introspectableOut?: unknown;
  }[];
}

function isArkType(schema: StandardSchema): schema is StandardSchema & ArkType {
  return schema["~standard"].vendor === "arktype";
}

function flaggedPatterns({ references = [] }: ArkType): ReadonlySet<string> {
  return new Set(
    references.flatMap(({ kind, flags, rule }) =>
      kind === "pattern" && FLAGS_WITH_MEANING.test(flags ?? "") && typeof rule === "string" ? [rule] : [],
    ),
  );
}

function withoutPatterns(published: unknown, patterns: ReadonlySet<string>): unknown {
  if (patterns.size === 0) return published;
  if (Array.isArray(published)) return published.map((part: unknown) => withoutPatterns(part, patterns));
  if (!isMembers(published)) return published;
  const parts = Object.entries(published).map(([name, part]) => [name, withoutPatterns(part, patterns)]);
  const rest: Members = Object.fromEntries(parts);
  return { ...rest, ...leavingOut(rest, patterns) };
}

/**
 * ArkType numbers its definitions through the whole process. Numbered by the order in which they are referred to, one
 * schema has one text, and a Tool one digest, in every process.
 */
function withSteadyNames(published: unknown): unknown {
  const names = new Map<string, string>();
  const definitions = isMembers(published) && isMembers(published["$defs"]) ? published["$defs"] : undefined;
  if (definitions === undefined) return published;
  const renamed: Members = {};
  const rename = (part: unknown): unknown => {
    if (Array.isArray(part)) return part.map(rename);
    if (!isMembers(part)) return part;
    const reference = part["$ref"];
    if (typeof reference !== "string") return Object.fromEntries(Object.entries(part).map(([name, value]) => [name, rename(value)]));
    const known = reference.slice("#/$defs/".length);
    const name = names.get(known) ?? `type${names.size + 1}`;
    if (!names.has(known)) {
      names.set(known, name);
      renamed[name] = rename(definitions[known]);
    }
    return { ...part, $ref: `#/$defs/${name}` };
  };
  const { $defs: _, ...rest } = published as Members;
  return { ...(rename(rest) as Members), $defs: renamed };
}

/** Where arktype publishes anything for what a morph makes, because the morph does not say. */
function blankOutput(schema: StandardSchema & ArkType, output: unknown): Unrepresentable | undefined {
  const hasSilentMorph = schema.references?.some(({ kind, introspectableOut }) => kind === "morph" && introspectableOut === undefined);
  if (hasSilentMorph !== true) return undefined;
  const isBlank = (part: Members): boolean => Object.keys(part).every((keyword) => keyword === "$schema");
  const known = new Set<string>();
  visit(ask(schema, "input"), (part, path) => void (isBlank(part) && known.add(path.join("/"))));
  let found: Unrepresentable | undefined;
  visit(output, (part, path) => {
    if (!isBlank(part) || known.has(path.join("/"))) return false;
    found = { path, problem: "A morph cannot be represented in JSON Schema unless it says what it makes, as .to(...) does" };
    return true;
  });
  return found;
}

function markIn(published: unknown): Unrepresentable | undefined {
  let found: Unrepresentable | undefined;
  visit(published, (part, path) => {
    const problem = part[MARK];
    if (typeof problem !== "string") return false;
    found = { path, problem };
    return true;
  });
  return found;
}

const IN_PLACE = ["allOf", "anyOf", "oneOf"];

/** Shows every subschema once, with the place in a value that it judges, until `see` answers true. */
function visit(root: unknown, see: (part: Members, path: readonly string[]) => unknown): void {
  const seen = new Set<unknown>();
  const enter = (part: unknown, path: readonly string[]): boolean => {
    if (!isMembers(part) || seen.has(part)) return false;
    seen.add(part);
    if (see(part, path) === true) return true;
    const reference = part["$ref"];
    if (typeof reference === "string" && enter(localReference(root, reference), path)) return true;
    const members = Object.entries(isMembers(part["properties"]) ? part["properties"] : {});
    if (members.some(([name, member]) => enter(member, [...path, name]))) return true;
    const elements = Array.isArray(part["prefixItems"]) ? part["prefixItems"] : [];
    if (elements.some((element, index) => enter(element, [...path, String(index)]))) return true;
    const others = Object.values(isMembers(part["patternProperties"]) ? part["patternProperties"] : {});
    if ([part["items"], part["additionalProperties"], part["propertyNames"], ...others].some((other) => enter(other, [...path, "*"]))) {
      return true;
    }
    return IN_PLACE.flatMap((keyword) => (Array.isArray(part[keyword]) ? part[keyword] : [])).some((same) => enter(same, path));
  };
  enter(root, []);
}

/** The deepest part that cannot be represented by itself: libraries throw without saying where. */
function unrepresentable(
  schema: unknown,
  side: Side,
  path: readonly string[] = [],
  seen = new Set<unknown>(),
): Unrepresentable | undefined {
  if (!isStandardSchema(schema) || seen.has(schema)) return undefined;
  seen.add(schema);
  let problem: string;
  try {
    ask(schema, side);
    return undefined;
  } catch (error) {
    problem = thrownMessage(error);
  }
  let isLoop = false;
  for (const [name, part] of zodParts(schema, side)) {
    if (seen.has(part)) isLoop = true;
    const deeper = unrepresentable(part, side, name === "" ? path : [...path, name], seen);
    if (deeper !== undefined) return deeper;
  }
  // What leads back to where the search came from fails for a reason that lies elsewhere.
  return isLoop ? undefined : { path, problem };
}

/** The parts of a zod schema with the names of their places. Other libraries have none. */
function zodParts(schema: object, side: Side): [string, unknown][] {
  const def = zodDefinition(schema);
  if (def === undefined) return [];
  const found: [string, unknown][] = [];
  const add = (name: string, part: unknown): void => {
    if (typeof part === "object" && part !== null) found.push([name, part]);
  };
  if (isMembers(def["shape"])) for (const [name, part] of Object.entries(def["shape"])) add(name, part);
  if (Array.isArray(def["items"])) for (const [index, part] of def["items"].entries()) add(String(index), part);
  if (Array.isArray(def["options"])) for (const part of def["options"]) add("", part);
  for (const name of ["element", "valueType", "rest", "catchall"]) add("*", def[name]);
  for (const name of ["innerType", "left", "right", "keyType", side === "input" ? "in" : "out"]) add("", def[name]);
  if (def.type === "pipe" && side === "input") add("", def["out"]);
  if (typeof def["getter"] === "function") add("", (def["getter"] as () => unknown)());
  return found;
}

export function isStandardSchema(schema: unknown): schema is StandardSchema {
  if ((typeof schema !== "object" && typeof schema !== "function") || schema === null) return false;
  const standard = (schema as Partial<StandardSchema>)["~standard"];
  return typeof standard?.validate === "function" && typeof standard.jsonSchema?.input === "function";
}

/** What a reference within one document refers to; undefined for any other. */
export function localReference(root: unknown, reference: string): unknown {
  if (reference === "#") return root;
  if (!reference.startsWith("#/")) return undefined;
  let at: unknown = root;
  for (const part of reference.slice(2).split("/")) {
    if (typeof at !== "object" || at === null) return undefined;
    at = (at as Members)[decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~")];
  }
  return at;
}
