/**
 * A session's Tools and where each may run. Built once when the session is created, and again from its first
 * record; never changed in between.
 *
 * A Tool name may be placed in several Environments. Its definitions must agree as values: the order of
 * members in a schema does not count, one blank in a description does.
 */

import {
  type Environment,
  EnvironmentSchema,
  type Implementation,
  ImplementationSchema,
  type ToolDefinition,
  ToolDefinitionSchema,
  type ToolPlacement,
  ToolPlacementSchema,
} from "@aexhq/brain-proto";
import { clone, create } from "@bufbuild/protobuf";
import { LIMITS } from "../config.js";
import { acceptJson, canonicalJson } from "./json.js";
import { checkName, quote } from "./names.js";
import { utf8Length } from "./outcome.js";
import { invalidArgument, Refusal } from "./refusal.js";

export interface Placement {
  readonly definition: ToolDefinition;
  /** RFC 8785 text of the definition: what its SHA-256 is taken of, equal in every language. */
  readonly canonicalDefinition: string;
  readonly environment: Environment;
  readonly implementation: Implementation;
  readonly configurationJson: string;
}

export type EnvironmentKind = Exclude<Environment["kind"]["case"], undefined>;

export interface Catalogue {
  readonly environments: readonly Environment[];
  /** Normalised, in the order given. */
  readonly tools: readonly ToolPlacement[];
  readonly placements: readonly Placement[];
  find(name: string, environment: string): Placement | undefined;
}

const KIND_OF_IMPLEMENTATION: Readonly<Record<Exclude<Implementation["kind"]["case"], undefined>, EnvironmentKind>> = {
  hostFunction: "host",
  component: "brain",
  descriptorJson: "remote",
};

/**
 * Checks and normalises what a client declares. `supported` are the kinds of Environment this server runs.
 * @throws Refusal naming the Tool, the Environment and the rule.
 */
export function buildCatalogue(
  environments: readonly Environment[],
  tools: readonly ToolPlacement[],
  supported: ReadonlySet<EnvironmentKind>,
): Catalogue {
  const byName = new Map<string, Environment>();
  for (const [index, environment] of environments.entries()) declareEnvironment(byName, environment, `environments[${index}]`, supported);

  const definitions = new Map<string, { definition: ToolDefinition; canonical: string; environment: string }>();
  const placements = new Map<string, Placement>();
  let bytes = 0;
  for (const environment of byName.values()) bytes += utf8Length(environment.name) + utf8Length(describeEnvironment(environment));
  for (const [index, tool] of tools.entries()) {
    const field = `tools[${index}]`;
    const definition = acceptDefinition(tool.tool, field);
    const environment = byName.get(tool.environment);
    if (environment === undefined) {
      throw new Refusal(
        "environment_not_found",
        `Tool ${definition.name} is placed in Environment ${quote(tool.environment)}, which is not among the session's environments; declare it there`,
        { tool: definition.name, environment: shorten(tool.environment) },
      );
    }
    const pair = pairOf(definition.name, environment.name);
    if (placements.has(pair)) {
      throw new Refusal(
        "placement_duplicate",
        `Tool ${definition.name} is placed twice in Environment ${environment.name}; place it once`,
        {
          tool: definition.name,
          environment: environment.name,
        },
      );
    }
    const canonical = canonicalDefinition(definition);
    const other = definitions.get(definition.name);
    if (other === undefined) definitions.set(definition.name, { definition, canonical, environment: environment.name });
    else if (other.canonical !== canonical) throw conflicting(other, { definition, environment: environment.name });
    const implementation = acceptImplementation(tool.implementation, definition.name, environment);
    const configurationJson = acceptConfiguration(tool.configurationJson, implementation, definition.name, environment.name);
    bytes += utf8Length(canonical) + utf8Length(environment.name) + utf8Length(configurationJson);
    if (implementation.kind.case === "descriptorJson") bytes += utf8Length(implementation.kind.value);
    placements.set(pair, { definition, canonicalDefinition: canonical, environment, implementation, configurationJson });
  }
  if (bytes > LIMITS.catalogueBytes) {
    throw new Refusal(
      "catalogue_too_large",
      `the Tools and Environments of this session take ${bytes} bytes; at most ${LIMITS.catalogueBytes} are allowed`,
    );
  }
  return freeze([...byName.values()], placements);
}

/** The catalogue of a session that was created earlier; what was accepted once is taken as it is. */
export function restoreCatalogue(environments: readonly Environment[], tools: readonly ToolPlacement[]): Catalogue {
  const byName = new Map(environments.map((environment) => [environment.name, environment]));
  const placements = new Map<string, Placement>();
  for (const { tool, environment: name, implementation, configurationJson } of tools) {
    const environment = byName.get(name);
    if (tool === undefined || environment === undefined || implementation === undefined) continue;
    placements.set(pairOf(tool.name, name), {
      definition: tool,
      canonicalDefinition: canonicalDefinition(tool),
      environment,
      implementation,
      configurationJson,
    });
  }
  return freeze(environments, placements);
}

function freeze(environments: readonly Environment[], placements: ReadonlyMap<string, Placement>): Catalogue {
  const all = [...placements.values()];
  return Object.freeze({
    environments,
    placements: all,
    tools: all.map(({ definition: tool, environment, implementation, configurationJson }) =>
      create(ToolPlacementSchema, { tool, environment: environment.name, implementation, configurationJson }),
    ),
    find: (name: string, environment: string) => placements.get(pairOf(name, environment)),
  });
}

/** Names have no slash, so the pair cannot be another pair. */
function pairOf(name: string, environment: string): string {
  return `${name}/${environment}`;
}

function declareEnvironment(
  byName: Map<string, Environment>,
  declared: Environment,
  field: string,
  supported: ReadonlySet<EnvironmentKind>,
): void {
  const name = checkName(`${field}.name`, declared.name);
  const kind = declared.kind.case;
  if (kind === undefined) throw invalidArgument(`${field}.kind`, `Environment ${name} has no kind; set one of host, brain, remote`);
  const environment = create(EnvironmentSchema, { name, kind: clone(EnvironmentSchema, declared).kind });
  const earlier = byName.get(name);
  if (earlier !== undefined && !sameEnvironment(earlier, environment)) {
    throw new Refusal(
      "environment_conflict",
      `Environment ${name} is declared twice, as ${shorten(describeEnvironment(earlier))} and as ${shorten(describeEnvironment(environment))}; give one of them another name`,
      { environment: name },
    );
  }
  if (!supported.has(kind)) {
    throw new Refusal("environment_unsupported", `Environment ${name} is of kind ${kind}, which this server does not run`, {
      environment: name,
      kind,
    });
  }
  byName.set(name, environment);
}

function sameEnvironment(left: Environment, right: Environment): boolean {
  return describeEnvironment(left) === describeEnvironment(right);
}

/** A text that is equal for equal Environments and for no others, and that a person can compare. */
function describeEnvironment({ kind }: Environment): string {
  switch (kind.case) {
    case "host":
      return `host ${JSON.stringify(kind.value.hostId)}`;
    case "brain": {
      const { filesystem, network, secrets } = kind.value;
      const grants = { filesystem: { workspace: filesystem?.workspace ?? 0, scratch: filesystem?.scratch ?? 0 }, network, secrets };
      return `brain ${canonicalJson(grants)}`;
    }
    case "remote":
      return `remote ${JSON.stringify(kind.value.url)} ${JSON.stringify(kind.value.configurationJson)}`;
    case undefined:
      return "no kind";
  }
}

function acceptDefinition(given: ToolDefinition | undefined, field: string): ToolDefinition {
  if (given === undefined) throw invalidArgument(`${field}.tool`, "is missing; every placement carries its Tool's definition");
  const name = checkName(`${field}.tool.name`, given.name);
  const descriptionBytes = utf8Length(given.description);
  if (descriptionBytes > LIMITS.descriptionBytes) {
    throw invalidArgument(
      `${field}.tool.description`,
      `of Tool ${name} is ${descriptionBytes} bytes; at most ${LIMITS.descriptionBytes} are allowed`,
    );
  }
  const definition = create(ToolDefinitionSchema, {
    name,
    description: given.description,
    inputSchemaJson: acceptSchemaText(given.inputSchemaJson, name, "input schema"),
  });
  if (given.outputSchemaJson !== undefined) definition.outputSchemaJson = acceptSchemaText(given.outputSchemaJson, name, "output schema");
  return definition;
}

/** Only that it is JSON of the right shape; whether it is a schema is the validator's to say. */
function acceptSchemaText(text: string, tool: string, what: string): string {
  const accepted = acceptJson(text, LIMITS.schemaBytes);
  if (!accepted.ok) throw new Refusal("invalid_schema", `the ${what} of Tool ${tool} is not usable JSON: ${accepted.problem}`, { tool });
  const { value } = accepted;
  if (typeof value !== "boolean" && (typeof value !== "object" || value === null || Array.isArray(value))) {
    throw new Refusal("invalid_schema", `the ${what} of Tool ${tool} is not a schema; it must be a JSON object or a boolean`, { tool });
  }
  return accepted.text;
}

function acceptImplementation(given: Implementation | undefined, tool: string, environment: Environment): Implementation {
  const kind = given?.kind.case;
  if (given === undefined || kind === undefined) {
    throw invalidArgument(
      "implementation",
      `Tool ${tool} in Environment ${environment.name} has none; set host_function, component or descriptor_json`,
    );
  }
  if (KIND_OF_IMPLEMENTATION[kind] !== environment.kind.case) {
    throw new Refusal(
      "implementation_mismatch",
      `Tool ${tool} has a ${kind} implementation, which cannot run in Environment ${environment.name} of kind ${environment.kind.case}; place it in an Environment of kind ${KIND_OF_IMPLEMENTATION[kind]}`,
      { tool, environment: environment.name },
    );
  }
  return clone(ImplementationSchema, given);
}

function acceptConfiguration(text: string, implementation: Implementation, tool: string, environment: string): string {
  const descriptorBytes = implementation.kind.case === "descriptorJson" ? utf8Length(implementation.kind.value) : 0;
  const left = LIMITS.configurationBytes - descriptorBytes;
  // The shortest configuration is `{}`.
  if (left < 2) {
    throw invalidArgument(
      "descriptor_json",
      `of Tool ${tool} in Environment ${environment} is ${descriptorBytes} bytes; with its configuration at most ${LIMITS.configurationBytes} are allowed`,
    );
  }
  const accepted = acceptJson(text === "" ? "{}" : text, left);
  if (!accepted.ok) throw invalidArgument("configuration_json", `of Tool ${tool} in Environment ${environment}: ${accepted.problem}`);
  return accepted.text;
}

function canonicalDefinition(definition: ToolDefinition): string {
  const { name, description, inputSchemaJson, outputSchemaJson } = definition;
  return canonicalJson({
    name,
    description,
    input_schema: JSON.parse(inputSchemaJson),
    ...(outputSchemaJson === undefined ? {} : { output_schema: JSON.parse(outputSchemaJson) }),
  });
}

function conflicting(
  earlier: { definition: ToolDefinition; environment: string },
  later: { definition: ToolDefinition; environment: string },
): Refusal {
  const tool = later.definition.name;
  return new Refusal(
    "definition_conflict",
    `Tool ${tool} is defined differently in Environments ${earlier.environment} and ${later.environment}: ${difference(earlier.definition, later.definition)}; a Tool has one definition`,
    { tool, environment: later.environment },
  );
}

/** Where two definitions part, said for a person: the first path that differs. */
function difference(left: ToolDefinition, right: ToolDefinition): string {
  if (left.description !== right.description) return `description ${quote(left.description)} and ${quote(right.description)}`;
  const input = differingPath(JSON.parse(left.inputSchemaJson), JSON.parse(right.inputSchemaJson));
  if (input !== undefined) return `the input schema differs at ${input === "" ? "its root" : shorten(input)}`;
  if (left.outputSchemaJson === undefined || right.outputSchemaJson === undefined) return "only one of them has an output schema";
  const output = differingPath(JSON.parse(left.outputSchemaJson), JSON.parse(right.outputSchemaJson)) ?? "";
  return `the output schema differs at ${output === "" ? "its root" : shorten(output)}`;
}

/** A message travels in a header, where a stranger's text of any length has no place. */
function shorten(text: string): string {
  return text.length <= 300 ? text : `${text.slice(0, 300).toWellFormed()}...`;
}

function differingPath(left: unknown, right: unknown): string | undefined {
  const sameKind =
    typeof left === "object" &&
    typeof right === "object" &&
    left !== null &&
    right !== null &&
    Array.isArray(left) === Array.isArray(right);
  if (!sameKind) return Object.is(left, right) ? undefined : "";
  const names = new Set([...Object.keys(left), ...Object.keys(right)]);
  for (const name of names) {
    const inLeft = Object.hasOwn(left, name);
    const inRight = Object.hasOwn(right, name);
    const step = `/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;
    if (inLeft !== inRight) return step;
    const deeper = differingPath((left as Record<string, unknown>)[name], (right as Record<string, unknown>)[name]);
    if (deeper !== undefined) return step + deeper;
  }
  return undefined;
}
