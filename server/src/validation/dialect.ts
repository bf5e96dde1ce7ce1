import { Ajv, type ErrorObject, type Options, type ValidateFunction } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { useOwnEquality } from "./equality.js";

/**
 * The dialects of JSON Schema that can be used: 2020-12, which is meant when a schema names none, and draft-07.
 * A dialect says which keywords exist, where schemas stand in a schema, and judges schemas by its meta-schema.
 */

/** What a keyword holds: one schema, a list of schemas, a map of schemas, a map of schemas or name lists, or no schema. */
export type Holds = "schema" | "schemas" | "map" | "dependencies" | "schema or schemas" | "none";

export interface Keyword {
  readonly holds: Holds;
  /** Its schemas judge the same value as the schema it stands in, not a part of it. */
  readonly inPlace: boolean;
}

export interface Dialect {
  readonly name: string;
  readonly uri: string;
  /** Every keyword with an effect on the verdict, and those whose schemas can be referred to. */
  readonly keywords: ReadonlyMap<string, Keyword>;
  /** In draft-07 nothing beside `$ref` counts, and `$id: "#name"` is an anchor. */
  readonly refStandsAlone: boolean;
  newAjv(options: Options): Ajv;
  /** The meta-schema's first objection to a schema. */
  objection(schema: unknown): ErrorObject | undefined;
}

function keywords(...groups: readonly (readonly [Holds, boolean, string])[]): ReadonlyMap<string, Keyword> {
  return new Map(groups.flatMap(([holds, inPlace, names]) => names.split(" ").map((name) => [name, { holds, inPlace }] as const)));
}

const ASSERTIONS =
  "$ref type enum const multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern format " +
  "maxItems minItems uniqueItems maxProperties minProperties required";

const KEYWORDS_2020_12 = keywords(
  ["none", false, `${ASSERTIONS} $dynamicRef minContains maxContains dependentRequired`],
  ["schema", true, "not if then else"],
  ["schemas", true, "allOf anyOf oneOf"],
  ["map", true, "dependentSchemas"],
  ["dependencies", true, "dependencies"],
  ["schema", false, "items contains additionalProperties propertyNames unevaluatedItems unevaluatedProperties"],
  ["schemas", false, "prefixItems"],
  ["map", false, "properties patternProperties $defs definitions"],
);

const KEYWORDS_DRAFT_07 = keywords(
  ["none", false, ASSERTIONS],
  ["schema", true, "not if then else"],
  ["schemas", true, "allOf anyOf oneOf"],
  ["dependencies", true, "dependencies"],
  ["schema", false, "additionalItems contains additionalProperties propertyNames"],
  ["schema or schemas", false, "items"],
  ["map", false, "properties patternProperties definitions"],
);

const META_OPTIONS: Options = { strict: false, logger: false };

function metaSchema(ajv: Ajv, uri: string): ValidateFunction {
  useOwnEquality(ajv);
  const validate = ajv.getSchema(uri);
  if (validate === undefined) throw new Error(`the validator has no meta-schema ${uri}`);
  return validate as ValidateFunction;
}

function objectionOf(makeJudge: () => ValidateFunction): Dialect["objection"] {
  let judge: ValidateFunction | undefined;
  return (schema) => {
    judge ??= makeJudge();
    return judge(schema) ? undefined : (judge.errors?.[0] ?? undefined);
  };
}

function equipped(ajv: Ajv): Ajv {
  // `formatMinimum` and its like are extensions of the library, not of JSON Schema.
  formats.default(ajv, { keywords: false });
  useOwnEquality(ajv);
  return ajv;
}

const DRAFT_2020_12: Dialect = {
  name: "2020-12",
  uri: "https://json-schema.org/draft/2020-12/schema",
  keywords: KEYWORDS_2020_12,
  refStandsAlone: false,
  newAjv: (options) => equipped(new Ajv2020({ ...options, dynamicRef: false })),
  objection: objectionOf(() => metaSchema(new Ajv2020(META_OPTIONS), "https://json-schema.org/draft/2020-12/schema")),
};

const DRAFT_07: Dialect = {
  name: "draft-07",
  uri: "http://json-schema.org/draft-07/schema",
  keywords: KEYWORDS_DRAFT_07,
  refStandsAlone: true,
  newAjv: (options) => equipped(new Ajv(options)),
  objection: objectionOf(() => metaSchema(new Ajv(META_OPTIONS), "http://json-schema.org/draft-07/schema")),
};

export const DIALECT_NAMES = [DRAFT_2020_12, DRAFT_07].map((dialect) => dialect.uri);

/** The dialect that a `$schema` names; 2020-12 when there is none; undefined when it is one we do not have. */
export function dialectOf($schema: unknown): Dialect | undefined {
  if ($schema === undefined) return DRAFT_2020_12;
  if (typeof $schema !== "string") return undefined;
  const bare = $schema.replace(/#$/, "").replace(/^https?:/, "");
  return [DRAFT_2020_12, DRAFT_07].find((dialect) => dialect.uri.replace(/^https?:/, "") === bare);
}
