import { checkName, type Environment, isEnvironment } from "./environments.js";
import { BrainError, invalidArgument } from "./errors.js";
import { canonicalJson, deepFreeze, SCHEMA_MAX_BYTES, sha256Hex, toJsonText } from "./json.js";
import type { Outcome } from "./outcome.js";
import { type InferInput, type InferOutput, namesProperty, type Parsed, parse, publishedSchema, type StandardSchema } from "./schema.js";

const BRAND = Symbol.for("aexhq.brain.tool");

/** What a Tool's function is told about its call. */
export interface ToolContext<Options = unknown> {
  /** The options of the placement as the options schema parsed them: once, and frozen. */
  readonly options: Options;
  readonly sessionId: string;
  /** The journal sequence of the call's `tool_call_started` record: with the session, the call's name. */
  readonly sequence: number;
  readonly deadline: Date;
  /** Aborted when the call is to stop; its reason says why. What the function returns afterwards is still kept. */
  readonly signal: AbortSignal;
  /**
   * Records an event of this call, `data` being any JSON value of at most 1 MiB. Resolves with the event's sequence once
   * Brain has committed it; rejects with a BrainError, `call_ended` if the call has ended before.
   */
  readonly emit: (kind: string, data?: unknown) => Promise<number>;
}

/** What `tool` takes. Schemas are zod 4's or any other Standard Schema with Standard JSON Schema. */
export interface ToolDeclaration<Input extends StandardSchema, Output extends StandardSchema, Options extends StandardSchema> {
  /** 1 to 64 letters, digits, "_" or "-". */
  name: string;
  /** What the Tool does, for the model that chooses it. */
  description: string;
  input: Input;
  output?: Output;
  options?: Options & NoOptionNamedEnv<InferInput<Options>>;
  /**
   * Runs one call. Returns a value, nothing (null), or an Outcome made by `outcome`. Whatever is thrown ends the call as
   * `error` `tool_error`, a thrown Outcome too: only a returned one counts.
   */
  run: (
    input: InferOutput<Input>,
    ctx: ToolContext<Readonly<InferOutput<Options>>>,
  ) => MaybePromise<InferInput<Output> | Outcome<InferInput<Output>>>;
}

type MaybePromise<T> = T | Promise<T>;

type KnownKeys<T> = T extends unknown ? keyof { [K in keyof T as string extends K ? never : number extends K ? never : K]: T[K] } : never;

/** `env` is how a placement names its Environment, so no option can have that name. */
type NoOptionNamedEnv<T> = "env" extends KnownKeys<T> ? { readonly "an option may not be named env": never } : unknown;

/** The options schema of a Tool that takes none. */
export type NoOptions = StandardSchema<object, object>;

/** Places a Tool in an Environment, with the options of that placement. */
export interface ToolFactory<Options extends StandardSchema = StandardSchema> {
  (placement: { env: Environment } & InferInput<Options>): Placement;
  readonly definition: ToolDefinition;
}

/** The model-visible contract of a Tool as it is published: fixed when the Tool is declared. */
export interface ToolDefinition {
  readonly name: string;
  readonly description: string;
  readonly inputSchemaJson: string;
  readonly outputSchemaJson?: string;
  /** Of the RFC 8785 text of name, description and schemas: equal for equal definitions, in any process. */
  readonly sha256: string;
}

/** A Tool in an Environment. */
export interface Placement {
  readonly tool: DeclaredTool;
  readonly environment: Environment;
  /** The options as the author wrote them. */
  readonly configurationJson: string;
}

/** A declared Tool: its definition, and how this process runs it. */
export interface DeclaredTool {
  readonly definition: ToolDefinition;
  readonly implementation: HostFunction;
}

/** A function this process holds, with the schemas of its author. */
export interface HostFunction {
  readonly kind: "host_function";
  readonly input: StandardSchema;
  readonly output: StandardSchema | undefined;
  /** Parses the options of a placement; one text is parsed once in the life of the process. */
  readonly parseOptions: (configurationJson: string) => MaybePromise<Parsed>;
  readonly run: (input: unknown, ctx: ToolContext<never>) => unknown;
}

/** Declares a Tool whose implementation is a function of this process. Refuses what could not be published. */
export function tool<
  Input extends StandardSchema,
  Output extends StandardSchema = StandardSchema,
  Options extends StandardSchema = NoOptions,
>(declaration: ToolDeclaration<Input, Output, Options>): ToolFactory<Options> {
  const { name, run } = declaration;
  checkName("Tool", name);
  if (typeof run !== "function") throw invalidArgument(`Tool "${name}": run is not a function`);
  const definition = define(declaration);
  const implementation: HostFunction = Object.freeze({
    kind: "host_function",
    input: declaration.input,
    output: declaration.output,
    parseOptions: optionsParser(name, declaration.options),
    run: run as HostFunction["run"],
  });
  const declared: DeclaredTool = Object.freeze({ definition, implementation });
  const factory = (placement: { env: Environment }): Placement => place(declared, placement, declaration.options);
  Object.defineProperties(factory, {
    name: { value: name },
    definition: { value: definition, enumerable: true },
    [BRAND]: { value: declared },
  });
  return factory as unknown as ToolFactory<Options>;
}

/** The Tool behind a factory. */
export function declaredTool(factory: unknown): DeclaredTool {
  const declared = typeof factory === "function" ? (factory as { [BRAND]?: DeclaredTool })[BRAND] : undefined;
  if (declared === undefined) throw invalidArgument("tools: expected what tool({...}) returned, without calling it");
  return declared;
}

function define(declaration: { name: string; description: unknown; input: StandardSchema; output?: StandardSchema }): ToolDefinition {
  const { name, description, input, output } = declaration;
  if (typeof description !== "string") throw invalidArgument(`Tool "${name}": the description is not a text`);
  const describable = toJsonText(description, SCHEMA_MAX_BYTES);
  if (!describable.ok) throw invalidArgument(`Tool "${name}": the description cannot travel: ${describable.problem}`);
  const inputSchemaJson = publishedSchema(input, "input", name, "input");
  const outputSchemaJson = output === undefined ? undefined : publishedSchema(output, "output", name, "output");
  const canonical = canonicalJson({
    name,
    description,
    input_schema: JSON.parse(inputSchemaJson) as unknown,
    ...(outputSchemaJson === undefined ? {} : { output_schema: JSON.parse(outputSchemaJson) as unknown }),
  });
  return Object.freeze({
    name,
    description,
    inputSchemaJson,
    ...(outputSchemaJson === undefined ? {} : { outputSchemaJson }),
    sha256: sha256Hex(canonical),
  });
}

/** Texts of options that are remembered for one Tool; more placements than this are parsed again, never refused. */
const MAX_REMEMBERED_OPTIONS = 1_000;

function optionsParser(name: string, schema: StandardSchema | undefined): HostFunction["parseOptions"] {
  if (schema === undefined) {
    const none: Parsed = { ok: true, value: Object.freeze({}) };
    return () => none;
  }
  const published = JSON.parse(publishedSchema(schema, "input", name, "options")) as unknown;
  if (namesProperty(published, "env")) {
    throw new BrainError(
      "invalid_schema",
      `Tool "${name}": an option may not be named "env", which names the Environment of a placement; rename the option`,
      { tool: name, path: "/env" },
    );
  }
  const remembered = new Map<string, MaybePromise<Parsed>>();
  return (configurationJson) => {
    const known = remembered.get(configurationJson);
    if (known !== undefined) return known;
    const parsing = parse(schema, JSON.parse(configurationJson));
    const frozen = parsing instanceof Promise ? parsing.then(freeze) : freeze(parsing);
    if (remembered.size >= MAX_REMEMBERED_OPTIONS) remembered.clear();
    remembered.set(configurationJson, frozen);
    return frozen;
  };
}

function freeze(options: Parsed): Parsed {
  return options.ok ? { ok: true, value: deepFreeze(options.value) } : options;
}

function place(declared: DeclaredTool, placement: unknown, schema: StandardSchema | undefined): Placement {
  const { name } = declared.definition;
  const { env, ...options } = (placement ?? {}) as { env?: unknown } & Record<string, unknown>;
  if (!isEnvironment(env)) {
    throw invalidArgument(`Tool "${name}": env is missing; place the Tool with { env: hostEnv({ name: "..." }) }`);
  }
  const unexpected = schema === undefined ? Object.keys(options)[0] : undefined;
  if (unexpected !== undefined) {
    throw invalidArgument(`Tool "${name}": it takes no options, but "${unexpected}" was given; declare it in options`);
  }
  const text = toJsonText(options, SCHEMA_MAX_BYTES);
  if (!text.ok) {
    throw invalidArgument(`Tool "${name}": the options cannot travel: at ${text.path || "/"}: ${text.problem}`);
  }
  return Object.freeze({ tool: declared, environment: env, configurationJson: text.text });
}
