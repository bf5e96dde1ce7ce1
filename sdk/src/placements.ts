import {
  ComponentSchema,
  type EnvironmentSchema,
  FilesystemAccess,
  HostFunctionSchema,
  type ImplementationSchema,
  type ToolPlacementSchema,
} from "@aexhq/brain-proto";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { definitionDifference } from "./definition-difference.js";
import { type Environment, environmentText } from "./environments.js";
import { BrainError, invalidArgument } from "./errors.js";
import { sha256Hex } from "./json.js";
import type { Placement, ToolDefinition } from "./tool.js";

/** The catalogue that several placements make, as the wire has it. */
export interface PlacementMessages {
  environments: MessageInitShape<typeof EnvironmentSchema>[];
  tools: MessageInitShape<typeof ToolPlacementSchema>[];
}

/** Refuses placements that could not be of one session, naming both sides of each disagreement. */
export function checkPlacements(placements: readonly Placement[]): void {
  const environments = new Map<string, Environment>();
  const definitions = new Map<string, ToolDefinition>();
  const pairs = new Set<string>();
  for (const placement of placements) {
    if (typeof placement !== "object" || placement?.tool === undefined) {
      throw invalidArgument("tools: expected placements; call each Tool with { env: hostEnv({ name }) }");
    }
    const { environment, tool } = placement;
    const { name } = tool.definition;
    const sameName = environments.get(environment.name);
    if (sameName !== undefined && environmentText(sameName) !== environmentText(environment)) {
      throw new BrainError(
        "environment_conflict",
        `Environment "${environment.name}" is declared twice and differs: ${environmentText(sameName)} and ${environmentText(environment)}; give one of them another name`,
        { environment: environment.name },
      );
    }
    environments.set(environment.name, environment);
    checkKind(placement);
    const defined = definitions.get(name);
    if (defined !== undefined && defined.sha256 !== tool.definition.sha256) {
      throw new BrainError(
        "definition_conflict",
        `Tool "${name}" is declared twice and differs in ${definitionDifference(defined, tool.definition)}; make the definitions agree, or rename one`,
        { tool: name },
      );
    }
    definitions.set(name, tool.definition);
    const pair = `${environment.name} ${name}`;
    if (pairs.has(pair)) {
      throw new BrainError(
        "placement_duplicate",
        `Tool "${name}" is placed twice in Environment "${environment.name}"; keep one of the placements`,
        { tool: name, environment: environment.name },
      );
    }
    pairs.add(pair);
  }
}

const RUNS: Readonly<Record<Placement["tool"]["implementation"]["kind"], { what: string; kind: Environment["kind"]; where: string }>> = {
  host_function: { what: "is a function", kind: "host", where: "hostEnv" },
  component: { what: "is a Component", kind: "brain", where: "an Environment that runs Components" },
  descriptor: { what: "has an implementation", kind: "remote", where: "an Environment that interprets it" },
};

/** Types say this too, except to whoever goes around them. */
function checkKind({ tool, environment }: Placement): void {
  const { what, kind, where } = RUNS[tool.implementation.kind];
  if (environment.kind === kind) return;
  const { name } = tool.definition;
  throw new BrainError(
    "implementation_mismatch",
    `Tool "${name}" ${what}, which Environment "${environment.name}" of kind ${environment.kind} does not run; place it in ${where}`,
    { tool: name, environment: environment.name },
  );
}

/** `hostId` is the host of this process, for the Environments that name no other. */
export async function placementMessages(placements: readonly Placement[], hostId: string): Promise<PlacementMessages> {
  const environments = new Map<string, Environment>();
  for (const { environment } of placements) environments.set(environment.name, environment);
  return {
    environments: [...environments.values()].map((environment) => ({ name: environment.name, kind: environmentKind(environment, hostId) })),
    tools: await Promise.all(placements.map(toolMessage)),
  };
}

function environmentKind(environment: Environment, hostId: string) {
  switch (environment.kind) {
    case "host":
      return { case: "host" as const, value: { hostId: environment.hostId ?? hostId } };
    case "brain": {
      const { filesystem, network = [], secrets = [] } = environment;
      const grants = { network: [...network], secrets: [...secrets] };
      const folders = filesystem && { workspace: access(filesystem.workspace), scratch: access(filesystem.scratch) };
      return { case: "brain" as const, value: { ...grants, ...(folders && { filesystem: folders }) } };
    }
    case "remote":
      return { case: "remote" as const, value: { url: environment.url, configurationJson: environment.configurationJson ?? "" } };
  }
}

function access(granted: "read" | "write" | undefined): FilesystemAccess {
  if (granted === undefined) return FilesystemAccess.UNSPECIFIED;
  return granted === "read" ? FilesystemAccess.READ : FilesystemAccess.WRITE;
}

async function toolMessage(placement: Placement): Promise<MessageInitShape<typeof ToolPlacementSchema>> {
  const { tool, environment, configurationJson } = placement;
  const { name, description, inputSchemaJson, outputSchemaJson } = tool.definition;
  return {
    tool: { name, description, inputSchemaJson, ...(outputSchemaJson === undefined ? {} : { outputSchemaJson }) },
    environment: environment.name,
    implementation: { kind: await implementationKind(tool.implementation) },
    configurationJson,
  };
}

type ImplementationKind = NonNullable<MessageInitShape<typeof ImplementationSchema>["kind"]>;

async function implementationKind(implementation: Placement["tool"]["implementation"]): Promise<ImplementationKind> {
  switch (implementation.kind) {
    case "host_function":
      return { case: "hostFunction" as const, value: create(HostFunctionSchema) };
    case "component": {
      const sha256 = sha256Hex(await implementation.read());
      return { case: "component" as const, value: create(ComponentSchema, { sha256 }) };
    }
    case "descriptor":
      return { case: "descriptorJson" as const, value: implementation.json };
  }
}
