import type { EnvironmentSchema, ToolPlacementSchema } from "@aexhq/brain-proto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Environment, environmentText } from "./environments.js";
import { BrainError, invalidArgument } from "./errors.js";
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
    const defined = definitions.get(name);
    if (defined !== undefined && defined.sha256 !== tool.definition.sha256) {
      throw new BrainError(
        "definition_conflict",
        `Tool "${name}" is declared twice and differs in ${differences(defined, tool.definition)}; make the definitions agree, or rename one`,
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

function differences(one: ToolDefinition, other: ToolDefinition): string {
  const found: string[] = [];
  const show = (what: string, left: string | undefined, right: string | undefined): void => {
    if (left !== right) found.push(`${what} (${shorten(left)} and ${shorten(right)})`);
  };
  show("description", JSON.stringify(one.description), JSON.stringify(other.description));
  show("input schema", one.inputSchemaJson, other.inputSchemaJson);
  show("output schema", one.outputSchemaJson, other.outputSchemaJson);
  return found.join(", ");
}

function shorten(text: string | undefined): string {
  if (text === undefined) return "none";
  return text.length > 300 ? `${text.slice(0, 300)}...` : text;
}

/** `hostId` is the host of this process, for the Environments that name no other. */
export function placementMessages(placements: readonly Placement[], hostId: string): PlacementMessages {
  const environments = new Map<string, Environment>();
  for (const { environment } of placements) environments.set(environment.name, environment);
  return {
    environments: [...environments.values()].map((environment) => ({
      name: environment.name,
      kind: { case: "host" as const, value: { hostId: environment.hostId ?? hostId } },
    })),
    tools: placements.map(({ tool: { definition }, environment, configurationJson }) => ({
      tool: {
        name: definition.name,
        description: definition.description,
        inputSchemaJson: definition.inputSchemaJson,
        ...(definition.outputSchemaJson === undefined ? {} : { outputSchemaJson: definition.outputSchemaJson }),
      },
      environment: environment.name,
      implementation: { kind: { case: "hostFunction" as const, value: {} } },
      configurationJson,
    })),
  };
}
