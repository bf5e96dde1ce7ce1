import { DIALECT_NAMES, type Dialect, dialectOf, type Keyword } from "./dialect.js";
import { nativePattern } from "./pattern.js";
import type { SchemaProblem } from "./port.js";

/**
 * From a schema's parsed text to a form the library compiles without surprises, or the reason it cannot be used.
 *
 * 1. References are resolved here, by `$id`, `$anchor` and JSON Pointer over own members, and rewritten to
 *    `#/$defs/rN`: the library never sees an `$id`, so schemas cannot collide, nothing is looked up by a name that
 *    could meet a prototype, and nothing is ever fetched. What does not resolve inside the schema is a problem.
 * 2. Only the keywords of the dialect remain. Extensions of the library (`nullable`, `$async`, `$data`,
 *    `discriminator`, `id`, format limits) have no effect, like any unknown keyword.
 * 3. A schema that applies itself to the same value for ever is a problem.
 * 4. Every problem carries the JSON Pointer of its place where there is one.
 *
 * The schema is the caller's own copy: it is changed.
 */

/** One schema within the schema: every place that can judge something, referred-to places in unknown keywords included. */
export interface SubSchema {
  readonly path: string;
  readonly node: SchemaObject;
  /** What it applies, with whether that judges the same value. Filled when its references are known. */
  readonly applies: { readonly to: SubSchema; readonly inPlace: boolean }[];
}

export type SchemaObject = Record<string, unknown>;

export interface Linked {
  readonly dialect: Dialect;
  /** For the library. */
  readonly schema: boolean | SchemaObject;
  /** Absent for a boolean schema. */
  readonly root: SubSchema | undefined;
  /** In the order they were found; the root is the first. */
  readonly subSchemas: readonly SubSchema[];
}

/** Leaves with a {@link SchemaProblem}. */
class Unusable extends Error {
  readonly problem: SchemaProblem;
  constructor(path: string, message: string) {
    super(message);
    this.problem = { path, message };
  }
}

export function linkSchema(schema: unknown): { ok: true; linked: Linked } | { ok: false; problem: SchemaProblem } {
  try {
    return { ok: true, linked: link(schema) };
  } catch (error) {
    if (error instanceof Unusable) return { ok: false, problem: error.problem };
    throw error;
  }
}

function link(schema: unknown): Linked {
  if (typeof schema !== "boolean" && !isSchemaObject(schema)) {
    throw new Unusable("", "a schema must be a JSON object or a boolean");
  }
  const dialect = dialectOf(typeof schema === "boolean" ? undefined : own(schema, "$schema"));
  if (dialect === undefined) {
    throw new Unusable("/$schema", `this dialect is not supported; use ${DIALECT_NAMES.join(" or ")}`);
  }
  if (typeof schema === "boolean") return { dialect, schema, root: undefined, subSchemas: [] };
  judgeByMetaSchema(dialect, schema, "");
  return new Linker(dialect, schema).link();
}

function judgeByMetaSchema(dialect: Dialect, schema: unknown, path: string): void {
  const objection = dialect.objection(schema);
  if (objection === undefined) return;
  const { propertyName } = objection;
  const place = propertyName === undefined ? objection.instancePath : `${objection.instancePath}/${escaped(propertyName)}`;
  const what = `the schema is not valid ${dialect.name} JSON Schema here: it ${objection.message ?? "is refused"}`;
  throw new Unusable(path + place, what);
}

/** Where anything is resolved when the schema gives itself no `$id`. */
const NO_BASE = "schema://root/";

class Linker {
  readonly #dialect: Dialect;
  readonly #rootNode: SchemaObject;
  readonly #found = new Map<SchemaObject, SubSchema>();
  /** Base URI in force inside each sub-schema. */
  readonly #bases = new Map<SubSchema, string>();
  /** Resources by their URI without fragment. */
  readonly #resources = new Map<string, SchemaObject>();
  /** By URI with fragment; `undefined` marks one given twice. */
  readonly #anchors = new Map<string, SchemaObject>();
  readonly #dynamicAnchors = new Map<string, SchemaObject[]>();
  readonly #definitions = new Map<SchemaObject | boolean, string>();

  constructor(dialect: Dialect, root: SchemaObject) {
    this.#dialect = dialect;
    this.#rootNode = root;
  }

  link(): Linked {
    this.#resources.set(NO_BASE, this.#rootNode);
    this.#visit(this.#rootNode, "", NO_BASE);
    // Resolving may find further sub-schemas, in places no keyword leads to; the map grows while it is walked.
    const references = new Map<SubSchema, SchemaObject | boolean>();
    for (const sub of this.#found.values()) {
      const target = this.#resolve(sub);
      if (target !== undefined) references.set(sub, target);
    }
    for (const [sub, target] of references) this.#refer(sub, target);
    for (const sub of this.#found.values()) this.#clean(sub);
    if (this.#definitions.size > 0) {
      this.#rootNode["$defs"] = Object.fromEntries([...this.#definitions].map(([node, name]) => [name, node]));
    }
    const subSchemas = [...this.#found.values()];
    const loop = inPlaceLoop(subSchemas);
    if (loop !== undefined) {
      throw new Unusable(loop.path, "the schema refers back to itself without going into the value; break the loop");
    }
    return { dialect: this.#dialect, schema: this.#rootNode, root: subSchemas[0], subSchemas };
  }

  /** Records a schema and all that its keywords hold. */
  #visit(start: SchemaObject, startPath: string, startBase: string): void {
    const open: [SchemaObject, string, string, SubSchema | undefined, boolean][] = [[start, startPath, startBase, undefined, false]];
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      const [node, path, outerBase, parent, inPlace] = next;
      const known = this.#found.get(node);
      const sub = known ?? { path, node, applies: [] };
      parent?.applies.push({ to: sub, inPlace });
      if (known !== undefined) continue;
      this.#found.set(node, sub);
      checkPatterns(node, path);
      const base = this.#identify(node, path, outerBase);
      this.#bases.set(sub, base);
      const children: typeof open = [];
      for (const [name, value] of Object.entries(node)) {
        const keyword = this.#dialect.keywords.get(name);
        if (keyword === undefined || keyword.holds === "none") continue;
        for (const [childPath, child] of held(keyword, value, `${path}/${escaped(name)}`)) {
          const definition = name === "$defs" || name === "definitions";
          children.push([child, childPath, base, definition ? undefined : sub, keyword.inPlace]);
        }
      }
      // Reversed, so that sub-schemas are met in the order of the text and problems name the first.
      open.push(...children.reverse());
    }
  }

  /** Notes what the node calls itself and gives the base URI inside it. */
  #identify(node: SchemaObject, path: string, outerBase: string): string {
    let base = outerBase;
    const $schema = own(node, "$schema");
    if ($schema !== undefined && dialectOf($schema) !== this.#dialect) {
      throw new Unusable(`${path}/$schema`, `one schema has one dialect, and this one began as ${this.#dialect.name}`);
    }
    const $id = own(node, "$id");
    if (typeof $id === "string" && !(this.#dialect.refStandsAlone && own(node, "$ref") !== undefined)) {
      const uri = resolveUri($id, outerBase);
      if (uri === undefined) throw new Unusable(`${path}/$id`, "the $id is not a URI reference");
      const [resource, fragment] = splitUri(uri);
      if (this.#dialect.refStandsAlone && fragment !== "") this.#anchor(uri, node, `${path}/$id`);
      if (resource !== splitUri(outerBase)[0]) {
        base = resource;
        const holder = this.#resources.get(resource);
        if (holder !== undefined && holder !== node) throw new Unusable(`${path}/$id`, "another schema has this $id");
        this.#resources.set(resource, node);
      }
    }
    if (this.#dialect.refStandsAlone) return base;
    const $anchor = own(node, "$anchor");
    if (typeof $anchor === "string") this.#anchor(`${base}#${$anchor}`, node, `${path}/$anchor`);
    const $dynamicAnchor = own(node, "$dynamicAnchor");
    if (typeof $dynamicAnchor === "string") {
      this.#anchor(`${base}#${$dynamicAnchor}`, node, `${path}/$dynamicAnchor`);
      const same = this.#dynamicAnchors.get($dynamicAnchor) ?? [];
      this.#dynamicAnchors.set($dynamicAnchor, [...same, node]);
    }
    return base;
  }

  #anchor(uri: string, node: SchemaObject, path: string): void {
    const holder = this.#anchors.get(uri);
    if (holder !== undefined && holder !== node) throw new Unusable(path, "another schema has this anchor");
    this.#anchors.set(uri, node);
  }

  /** What `$ref` or `$dynamicRef` of a schema means. */
  #resolve(sub: SubSchema): SchemaObject | boolean | undefined {
    const $ref = own(sub.node, "$ref");
    const $dynamicRef = this.#dialect.refStandsAlone ? undefined : own(sub.node, "$dynamicRef");
    if (typeof $ref === "string" && typeof $dynamicRef === "string") {
      throw new Unusable(`${sub.path}/$dynamicRef`, "$ref and $dynamicRef in one place are not supported; use allOf");
    }
    if (typeof $ref === "string") return this.#target(sub, $ref, `${sub.path}/$ref`);
    if (typeof $dynamicRef !== "string") return undefined;
    const target = this.#target(sub, $dynamicRef, `${sub.path}/$dynamicRef`);
    const name = splitUri($dynamicRef)[1];
    const candidates = this.#dynamicAnchors.get(name) ?? [];
    // With one such anchor the dynamic scope cannot change the answer.
    if (candidates.length > 1 && isSchemaObject(target) && candidates.includes(target)) {
      throw new Unusable(
        `${sub.path}/$dynamicRef`,
        `${candidates.length} schemas have the $dynamicAnchor it names, which is not supported; use $ref`,
      );
    }
    return target;
  }

  #target(sub: SubSchema, reference: string, path: string): SchemaObject | boolean {
    const base = this.#bases.get(sub) ?? NO_BASE;
    const uri = resolveUri(reference, base);
    const [resource, fragment] = uri === undefined ? ["", ""] : splitUri(uri);
    const node = this.#resources.get(resource);
    if (uri === undefined || node === undefined) {
      throw new Unusable(path, `nothing in this schema is named ${shown(reference)}, and nothing is fetched; inline it`);
    }
    if (fragment === "") return node;
    const anchored = this.#anchors.get(uri);
    if (anchored !== undefined) return anchored;
    if (!fragment.startsWith("/")) throw new Unusable(path, `nothing in this schema is named ${shown(reference)}`);
    return this.#pointedTo(node, fragment, resource, reference, path);
  }

  #pointedTo(from: SchemaObject, pointer: string, base: string, reference: string, path: string): SchemaObject | boolean {
    let value: unknown = from;
    let place = this.#found.get(from)?.path ?? "";
    let innerBase = base;
    for (const segment of pointer.slice(1).split("/")) {
      const name = segment.replaceAll("~1", "/").replaceAll("~0", "~");
      value = typeof value === "object" && value !== null ? own(value as SchemaObject, name) : undefined;
      place += `/${escaped(name)}`;
      if (isSchemaObject(value)) {
        const inner = this.#found.get(value);
        if (inner !== undefined) innerBase = this.#bases.get(inner) ?? innerBase;
      }
    }
    if (typeof value === "boolean") return value;
    if (!isSchemaObject(value)) throw new Unusable(path, `nothing in this schema is at ${shown(reference)}`);
    if (!this.#found.has(value)) {
      judgeByMetaSchema(this.#dialect, value, place);
      this.#visit(value, place, innerBase);
    }
    return value;
  }

  #refer(sub: SubSchema, target: SchemaObject | boolean): void {
    delete sub.node["$dynamicRef"];
    if (target === this.#rootNode) {
      sub.node["$ref"] = "#";
    } else {
      const name = this.#definitions.get(target) ?? `r${this.#definitions.size}`;
      this.#definitions.set(target, name);
      sub.node["$ref"] = `#/$defs/${name}`;
    }
    if (typeof target === "boolean") return;
    if (this.#dialect.refStandsAlone) sub.applies.length = 0;
    const to = this.#found.get(target);
    if (to !== undefined) sub.applies.push({ to, inPlace: true });
  }

  /** Leaves only what judges. */
  #clean({ node, path }: SubSchema): void {
    const alone = this.#dialect.refStandsAlone && own(node, "$ref") !== undefined;
    for (const name of Object.keys(node)) {
      const definition = name === "$defs" || name === "definitions";
      if (definition || !this.#dialect.keywords.has(name) || (alone && name !== "$ref")) delete node[name];
    }
    for (const name of ["dependencies", "dependentRequired", "dependentSchemas"]) {
      const map = own(node, name);
      if (isSchemaObject(map) && Object.hasOwn(map, PROTO)) {
        throw new Unusable(`${path}/${name}/__proto__`, "a dependency on a property of this name is not supported");
      }
    }
    sayProtoByPattern(node);
  }
}

function checkPatterns(node: SchemaObject, path: string): void {
  const pattern = own(node, "pattern");
  const patterns = own(node, "patternProperties");
  const places: [string, string][] = isSchemaObject(patterns)
    ? Object.keys(patterns).map((name) => [name, `${path}/patternProperties/${escaped(name)}`])
    : [];
  if (typeof pattern === "string") places.push([pattern, `${path}/pattern`]);
  for (const [text, place] of places) {
    if (nativePattern(text) === undefined) throw new Unusable(place, `the pattern ${shown(text)} is not a regular expression`);
  }
}

const PROTO = "__proto__";

/** The library skips a property named `__proto__`, but not a pattern that matches that name only. */
function sayProtoByPattern(node: SchemaObject): void {
  for (const [keyword, pattern] of [
    ["patternProperties", "(?:__proto__)"],
    ["properties", "^__proto__$"],
  ] as const) {
    const map = own(node, keyword);
    if (!isSchemaObject(map) || !Object.hasOwn(map, PROTO)) continue;
    const schema = own(map, PROTO);
    delete map[PROTO];
    const patterns = (own(node, "patternProperties") ?? {}) as SchemaObject;
    let free: string = pattern;
    while (Object.hasOwn(patterns, free)) free = `(?:${free})`;
    patterns[free] = schema;
    node["patternProperties"] = patterns;
  }
}

/** The schemas a keyword holds, each with its place. Values of another shape were refused by the meta-schema or judge nothing. */
function* held(keyword: Keyword, value: unknown, path: string): Iterable<[string, SchemaObject]> {
  const single = keyword.holds === "schema" || keyword.holds === "schema or schemas";
  const several = keyword.holds === "schemas" || keyword.holds === "schema or schemas";
  if (single && isSchemaObject(value)) {
    yield [path, value];
  } else if (several && Array.isArray(value)) {
    for (const [index, item] of value.entries()) if (isSchemaObject(item)) yield [`${path}/${index}`, item];
  } else if ((keyword.holds === "map" || keyword.holds === "dependencies") && isSchemaObject(value)) {
    for (const [name, item] of Object.entries(value)) if (isSchemaObject(item)) yield [`${path}/${escaped(name)}`, item];
  }
}

/** A schema that can be reached from itself by applications to the same value. */
function inPlaceLoop(subSchemas: readonly SubSchema[]): SubSchema | undefined {
  const done = new Set<SubSchema>();
  const entered = new Set<SubSchema>();
  for (const start of subSchemas) {
    const open = [start];
    for (let sub = open.at(-1); sub !== undefined; sub = open.at(-1)) {
      if (entered.has(sub)) {
        open.pop();
        entered.delete(sub);
        done.add(sub);
        continue;
      }
      if (done.has(sub)) {
        open.pop();
        continue;
      }
      entered.add(sub);
      for (const { to, inPlace } of sub.applies) {
        if (!inPlace || done.has(to)) continue;
        if (entered.has(to)) return to;
        open.push(to);
      }
    }
  }
  return undefined;
}

function resolveUri(reference: string, base: string): string | undefined {
  if (reference.startsWith("#")) {
    try {
      return `${splitUri(base)[0]}#${decodeURIComponent(reference.slice(1))}`;
    } catch {
      return undefined;
    }
  }
  try {
    const url = new URL(reference, base);
    const fragment = decodeURIComponent(url.hash.slice(1));
    url.hash = "";
    return `${url.href}#${fragment}`;
  } catch {
    return undefined;
  }
}

/** The part before the first `#`, and the part after. */
function splitUri(uri: string): [string, string] {
  const at = uri.indexOf("#");
  return at < 0 ? [uri, ""] : [uri.slice(0, at), uri.slice(at + 1)];
}

function own(object: SchemaObject, name: string): unknown {
  return Object.hasOwn(object, name) ? object[name] : undefined;
}

function isSchemaObject(value: unknown): value is SchemaObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function escaped(name: string): string {
  return name.replaceAll("~", "~0").replaceAll("/", "~1");
}

function shown(text: string): string {
  return JSON.stringify(text.length <= 200 ? text : `${text.slice(0, 200)}…`);
}
