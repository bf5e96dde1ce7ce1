/**
 * A session's Tools as somebody else's loop sees them, and what becomes a call of what it asks for.
 *
 * 1. What is shown is the canonical definition. An input is wrapped only where it has to be: to let the chooser name an
 *    Environment, or because its schema is not of `type: "object"`, which is all that models and MCP take.
 * 2. What is dispatched is the canonical input, unwrapped, once, to the one Environment that was named: by the only
 *    placement, by the policy, or by the chooser. None is ranked, and none stands in for another.
 * 3. What cannot be unwrapped is an `invalid_input`, like any other bad input, and calls nothing.
 */
import { type Environment, isEnvironment } from "../environments.js";
import { invalidArgument } from "../errors.js";
import { toJsonText, VALUE_MAX_BYTES } from "../json.js";
import { type Outcome, outcome } from "../outcome.js";
import { type Violation, violationsText } from "../schema.js";
import type { Session } from "../sessions.js";
import { ENVIRONMENT_MEMBER, INPUT_MEMBER, isSchemaObject, type SchemaObject, wrappedSchema } from "./wrapped-schema.js";

/** What a policy decides on. */
export interface PolicyCall {
  /** The Tool. */
  readonly name: string;
  /** Where the session has placed it, in the order of the session. */
  readonly environments: readonly string[];
  /** The canonical input, not yet validated. */
  readonly input: unknown;
  readonly callId: string;
}

/** Names the Environment of a call. Called once a call; repeating a call id must give the same Environment. */
export type EnvironmentPolicy = (call: PolicyCall) => string | Environment | Promise<string | Environment>;

/**
 * Who says where a Tool runs that has several placements: a fixed map from the Tool's name, a function, or
 * `"selector"`: the model, which is then shown `{ environment, input }` instead of the input. Tools with one placement
 * run there.
 */
export type EnvironmentChoice = Readonly<Record<string, string | Environment>> | EnvironmentPolicy | "selector";

/** One Tool of a session, ready to be shown and called. */
export interface ShownTool {
  readonly name: string;
  readonly description: string;
  /** Always of `type: "object"`. */
  readonly inputSchema: SchemaObject;
  /** The canonical one, of whatever type; undefined where any value is good. */
  readonly outputSchema: unknown;
  /** Calls the Tool with what the chooser wrote. Rejects only where Brain refuses the request, with a BrainError. */
  readonly call: (shown: unknown, callId: string, signal: AbortSignal | undefined) => Promise<Outcome>;
}

interface CatalogueEntry {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: unknown;
  readonly outputSchema: unknown;
  readonly environments: string[];
}

/** Reads the session's catalogue, which never changes, and fixes how each of its Tools is shown. */
export async function shownTools(session: Session, choice: EnvironmentChoice | undefined): Promise<ShownTool[]> {
  checkChoice(choice);
  const entries = await catalogue(session);
  const fixed = typeof choice === "object" ? fixedEnvironments(choice, entries) : new Map<string, string>();
  return [...entries.values()].map((entry) => {
    const [only, ...others] = entry.environments;
    if (only === undefined) throw invalidArgument(`Tool "${entry.name}" has no placement in session ${session.sessionId}`);
    if (typeof choice === "function") return shownTool(session, entry, choice, false);
    const environment = others.length === 0 ? only : fixed.get(entry.name);
    if (environment !== undefined) return shownTool(session, entry, () => environment, false);
    if (choice === "selector") return shownTool(session, entry, undefined, true);
    throw invalidArgument(
      `Tool "${entry.name}" is placed in the Environments ${quoted(entry.environments)}; say who chooses with environment: { ${JSON.stringify(entry.name)}: ${JSON.stringify(only)} }, a function, or "selector"`,
    );
  });
}

function checkChoice(choice: unknown): void {
  const isMap = typeof choice === "object" && choice !== null && !isEnvironment(choice);
  if (choice === undefined || choice === "selector" || typeof choice === "function" || isMap) return;
  throw invalidArgument(
    'environment: expected a map from Tool names to Environments, a function, or "selector"; for one Environment for every Tool, use () => name',
  );
}

async function catalogue(session: Session): Promise<Map<string, CatalogueEntry>> {
  const entries = new Map<string, CatalogueEntry>();
  for (const { tool, environment } of (await session.describe()).tools) {
    if (tool === undefined) continue;
    const known = entries.get(tool.name);
    if (known !== undefined) {
      known.environments.push(environment);
      continue;
    }
    entries.set(tool.name, {
      name: tool.name,
      description: tool.description,
      inputSchema: JSON.parse(tool.inputSchemaJson),
      outputSchema: tool.outputSchemaJson === undefined ? undefined : JSON.parse(tool.outputSchemaJson),
      environments: [environment],
    });
  }
  return entries;
}

/** The map as names, once every entry is known to name a placement. */
function fixedEnvironments(
  choice: Readonly<Record<string, string | Environment>>,
  entries: ReadonlyMap<string, CatalogueEntry>,
): Map<string, string> {
  const fixed = new Map<string, string>();
  for (const [name, chosen] of Object.entries(choice)) {
    const environment = environmentName(chosen, name);
    const entry = entries.get(name);
    if (entry === undefined) {
      throw invalidArgument(`environment: the session has no Tool "${name}"; its Tools are ${quoted([...entries.keys()])}`);
    }
    if (!entry.environments.includes(environment)) {
      throw invalidArgument(
        `environment: Tool "${name}" is not placed in Environment "${environment}"; it is placed in ${quoted(entry.environments)}`,
      );
    }
    fixed.set(name, environment);
  }
  return fixed;
}

function environmentName(chosen: unknown, tool: string): string {
  if (typeof chosen === "string") return chosen;
  if (isEnvironment(chosen)) return chosen.name;
  throw invalidArgument(`environment: of Tool "${tool}" it is neither a name nor an Environment; give one of its placements`);
}

function shownTool(session: Session, entry: CatalogueEntry, policy: EnvironmentPolicy | undefined, hasSelector: boolean): ShownTool {
  const { name, description, inputSchema, outputSchema, environments } = entry;
  const isPlain = !hasSelector && isSchemaObject(inputSchema) && inputSchema["type"] === "object";
  const members = hasSelector ? [ENVIRONMENT_MEMBER, INPUT_MEMBER] : [INPUT_MEMBER];
  return {
    name,
    description,
    inputSchema: isPlain ? inputSchema : wrappedSchema(inputSchema, hasSelector ? environments : undefined),
    outputSchema,
    call: async (shown, callId, signal) => {
      const violations = isPlain ? [] : wrapperViolations(shown, members, environments);
      const written = toJsonText(shown, VALUE_MAX_BYTES);
      if (!written.ok) violations.push({ path: written.path, rule: "json", message: written.problem });
      if (violations.length > 0) return invalidInput(name, violations);
      const wrapper = shown as Readonly<Record<string, unknown>>;
      const input = isPlain ? shown : wrapper[INPUT_MEMBER];
      const chosen = policy === undefined ? wrapper[ENVIRONMENT_MEMBER] : await policy({ name, environments, input, callId });
      const environment = environmentName(chosen, name);
      return await session.callTool({ callId, name, environment, input, ...(signal === undefined ? {} : { signal }) });
    },
  };
}

/** Judges the wrapper alone; what is under `input` is judged by Brain. */
function wrapperViolations(shown: unknown, members: readonly string[], environments: readonly string[]): Violation[] {
  if (!isSchemaObject(shown)) return [{ path: "", rule: "type", message: `expected an object with ${members.join(" and ")}` }];
  const violations: Violation[] = members
    .filter((member) => !Object.hasOwn(shown, member))
    .map((member) => ({ path: "", rule: "required", message: `${member} is missing` }));
  if (Object.keys(shown).some((member) => !members.includes(member))) {
    violations.push({ path: "", rule: "additionalProperties", message: `only ${members.join(" and ")} may be given here` });
  }
  const chosen = shown[ENVIRONMENT_MEMBER];
  if (members.includes(ENVIRONMENT_MEMBER) && chosen !== undefined && !environments.includes(chosen as string)) {
    violations.push({ path: `/${ENVIRONMENT_MEMBER}`, rule: "enum", message: `choose one of ${quoted(environments)}` });
  }
  return violations;
}

/** As Brain would end the call. Nothing ran, and nothing is on record: there was no input to record. */
function invalidInput(name: string, violations: readonly Violation[]): Outcome {
  const message = `Tool "${name}": the input is not what the schema asks for: ${violationsText(violations)}`;
  return outcome.error({ code: "invalid_input", message, details: { violations } });
}

function quoted(names: readonly string[]): string {
  return names.length === 0 ? "none" : names.map((name) => JSON.stringify(name)).join(", ");
}
