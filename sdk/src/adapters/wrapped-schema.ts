/** A JSON Schema that is an object, as a program reads it. */
export type SchemaObject = Readonly<Record<string, unknown>>;

/** The names a wrapper has members of. */
export const ENVIRONMENT_MEMBER = "environment";
export const INPUT_MEMBER = "input";

/** Keywords whose values are data, in which `$ref` is a word like any other. */
const DATA: ReadonlySet<string> = new Set(["const", "default", "enum", "examples"]);
/** Keywords whose members are schemas under names that somebody chose. */
const NAMED: ReadonlySet<string> = new Set(["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"]);

export function isSchemaObject(schema: unknown): schema is SchemaObject {
  return typeof schema === "object" && schema !== null && !Array.isArray(schema);
}

/**
 * The schema of `{ environment, input }`, or of `{ input }` without Environments to choose from. What the canonical
 * schema says of a value, the wrapper says of the value under `input`: references are moved along, and the dialect is
 * told at the top, where it belongs.
 */
export function wrappedSchema(canonical: unknown, environments: readonly string[] | undefined): SchemaObject {
  const properties = {
    ...(environments === undefined
      ? {}
      : { [ENVIRONMENT_MEMBER]: { type: "string", enum: [...environments], description: "The Environment in which the Tool is to run." } }),
    [INPUT_MEMBER]: moved(canonical),
  };
  return {
    ...(isSchemaObject(canonical) && typeof canonical["$schema"] === "string" ? { $schema: canonical["$schema"] } : {}),
    type: "object",
    properties,
    required: Object.keys(properties),
    additionalProperties: false,
  };
}

function moved(canonical: unknown): unknown {
  if (!isSchemaObject(canonical)) return canonical === false ? { not: {} } : {};
  if (isOwnResource(canonical)) return canonical;
  const { $schema: _, ...rest } = canonical;
  return relocated(rest);
}

/** With an `$id` of its own, a schema's references start from itself, wherever it stands. */
function isOwnResource(schema: SchemaObject): boolean {
  const id = schema["$id"];
  return typeof id === "string" && !id.startsWith("#");
}

function relocated(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(relocated);
  if (!isSchemaObject(schema) || isOwnResource(schema)) return schema;
  return mapped(schema, (keyword, value) => {
    if ((keyword === "$ref" || keyword === "$dynamicRef") && typeof value === "string") return relocatedReference(value);
    if (DATA.has(keyword)) return value;
    if (NAMED.has(keyword) && isSchemaObject(value)) return mapped(value, (_name, part) => relocated(part));
    return relocated(value);
  });
}

/** Pointers from the root now start one level deeper; anchors and other documents are found as before. */
function relocatedReference(reference: string): string {
  return reference === "#" || reference.startsWith("#/") ? `#/properties/${INPUT_MEMBER}${reference.slice(1)}` : reference;
}

function mapped(members: SchemaObject, change: (name: string, value: unknown) => unknown): SchemaObject {
  return Object.fromEntries(Object.entries(members).map(([name, value]) => [name, change(name, value)]));
}
