import { type Component, isComponent } from "./component.js";
import { type BrainEnvironment, checkName, type HostEnvironment, isEnvironment, type RemoteEnvironment } from "./environments.js";
import { BrainError, invalidArgument } from "./errors.js";
import { canonicalJson, DESCRIPTION_MAX_BYTES, deepFreeze, SCHEMA_MAX_BYTES, sha256Hex, toJsonText } from "./json.js";
import type { Outcome } from "./outcome.js";
import {
  type InferInput,
  type InferOutput,
  namesProperty,
  type Parsed,
  parse,
  parseNow,
  publishedSchema,
  type StandardSchema,
  violationsText,
} from "./schema.js";

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

/**
 * What every Tool declares. Schemas are zod 4's, those of any other library with Standard Schema and Standard JSON Schema,
 * or plain JSON Schema with `jsonSchema({...})`.
 */
export interface ToolDeclaration<Input extends StandardSchema, Output extends StandardSchema, Options extends StandardSchema> {
  /** 1 to 64 letters, digits, "_" or "-". */
  name: string;
  /** What the Tool does, for the model that chooses it. */
  description: string;
  /** Published is its input side: what a caller writes. */
  input: Input;
  /** Published is its output side: what a caller reads. Any value is good without it. */
  output?: Output;
  /** What each placement of the Tool is given beside its Environment. No model sees them. */
  options?: Options & NoOptionNamedEnv<InferInput<Options>>;
}

/** A Tool whose implementation is a function that a process holds. */
export interface FunctionDeclaration<Input extends StandardSchema, Output extends StandardSchema, Options extends StandardSchema>
  extends ToolDeclaration<Input, Output, Options> {
  /**
   * Runs one call. Returns a value, nothing (null), or an Outcome made by `outcome`. Whatever is thrown ends the call as
   * `error` `tool_error`, a thrown Outcome too: only a returned one counts.
   */
  run: (
    input: InferOutput<Input>,
    ctx: ToolContext<Readonly<InferOutput<Options>>>,
  ) => MaybePromise<InferInput<Output> | Outcome<InferInput<Output>>>;
  implementation?: never;
}

/** A Tool whose implementation the Environment of a placement interprets. */
export interface ImplementationDeclaration<
  Input extends StandardSchema,
  Output extends StandardSchema,
  Options extends StandardSchema,
  Implementation,
> extends ToolDeclaration<Input, Output, Options> {
  /**
   * A Component; or an object that the Environment understands, of JSON values; or a function that makes such an object
   * of the options of a placement, which are parsed, once, when the Tool is placed.
   */
  implementation: Implementation & ImplementationOf<InferOutput<Options>>;
  run?: never;
}

type ImplementationOf<Options> = Component | object | ((options: Readonly<Options>) => object);

type MaybePromise<T> = T | Promise<T>;

type KnownKeys<T> = T extends unknown ? keyof { [K in keyof T as string extends K ? never : number extends K ? never : K]: T[K] } : never;

/** `env` is how a placement names its Environment, so no option can have that name. */
type NoOptionNamedEnv<T> = "env" extends KnownKeys<T> ? { readonly "an option may not be named env": never } : unknown;

/** The options schema of a Tool that takes none. */
export type NoOptions = StandardSchema<object, object>;

/** Places a Tool in an Environment, with the options of that placement. */
export interface ToolFactory<Options extends StandardSchema = StandardSchema, P extends Placement = FunctionPlacement> {
  (placement: { env: P["environment"] } & InferInput<Options>): P;
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

/** A Tool in an Environment, which must be of the kind that runs the Tool's implementation. */
export type Placement = FunctionPlacement | ComponentPlacement | DescriptorPlacement;

export interface FunctionPlacement {
  readonly tool: DeclaredTool;
  readonly environment: HostEnvironment;
  /** The options as the author wrote them. */
  readonly configurationJson: string;
}

export interface ComponentPlacement {
  readonly tool: { readonly definition: ToolDefinition; readonly implementation: Component };
  readonly environment: BrainEnvironment;
  /** The options as their schema parsed them. */
  readonly configurationJson: string;
}

export interface DescriptorPlacement {
  readonly tool: { readonly definition: ToolDefinition; readonly implementation: Descriptor };
  readonly environment: RemoteEnvironment;
  /** The options as their schema parsed them. */
  readonly configurationJson: string;
}

/** A declared Tool of this process: its definition, and how this process runs it. */
export interface DeclaredTool {
  readonly definition: ToolDefinition;
  readonly implementation: HostFunction;
}

/** What the Environment of one placement interprets: JSON text. */
export interface Descriptor {
  readonly kind: "descriptor";
  readonly json: string;
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

/**
 * Declares a Tool that an Environment interprets: `implementation` is a Component, an object, or a function of the
 * options that returns one.
 *
 * @throws BrainError `invalid_schema` or `invalid_argument`, naming the Tool and the place, for what could not be published.
 * @example
 * const inspect = tool({
 *   name: "inspect",
 *   description: "Inspect one path.",
 *   input: z.object({ path: z.string() }),
 *   options: z.object({ depth: z.number().int().default(1) }),
 *   implementation: ({ depth }) => ({ module: "./inspect.py", arguments: { depth } }),
 * });
 */
export function tool<
  Input extends StandardSchema,
  const Implementation,
  Output extends StandardSchema = StandardSchema,
  Options extends StandardSchema = NoOptions,
>(
  declaration: ImplementationDeclaration<Input, Output, Options, Implementation>,
): ToolFactory<Options, Implementation extends Component ? ComponentPlacement : DescriptorPlacement>;
/**
 * Declares a Tool whose implementation is a function of this process: `run`.
 *
 * @throws BrainError `invalid_schema` or `invalid_argument`, naming the Tool and the place, for what could not be published.
 * @example
 * const lookup = tool({
 *   name: "lookup",
 *   description: "Look up one item.",
 *   input: z.object({ id: z.string() }),
 *   options: z.object({ prefix: z.string() }),
 *   run: ({ id }, ctx) => ({ value: `${ctx.options.prefix}${id}` }),
 * });
 * const placed = lookup({ env: hostEnv({ name: "app" }), prefix: "item:" });
 */
export function tool<
  Input extends StandardSchema,
  Output extends StandardSchema = StandardSchema,
  Options extends StandardSchema = NoOptions,
>(declaration: FunctionDeclaration<Input, Output, Options>): ToolFactory<Options>;
export function tool(declaration: AnyDeclaration): unknown {
  const { name, run, implementation, options } = declaration;
  checkName("Tool", name);
  if (run !== undefined && implementation !== undefined) {
    throw invalidArgument(`Tool "${name}": it has both run and implementation; give one of them`);
  }
  if (implementation === undefined && typeof run !== "function") {
    throw invalidArgument(`Tool "${name}": run is not a function; give run, or implementation`);
  }
  const definition = define(declaration);
  if (options !== undefined) checkOptionsSchema(name, options);
  const declared: DeclaredTool | undefined =
    typeof run !== "function" ? undefined : Object.freeze({ definition, implementation: hostFunction(declaration, run) });
  const factory =
    declared === undefined
      ? interpretedFactory(definition, checkedImplementation(name, implementation), options)
      : (placement: unknown) => {
          const { environment, text } = placed(name, placement, options);
          return Object.freeze({ tool: declared, environment, configurationJson: text });
        };
  return Object.defineProperties(factory, {
    name: { value: name },
    definition: { value: definition, enumerable: true },
    [BRAND]: { value: declared ?? definition },
  });
}

/** Either form, with nothing known of its types. */
interface AnyDeclaration {
  readonly name: string;
  readonly description: string;
  readonly input: StandardSchema;
  readonly output?: StandardSchema;
  readonly options?: StandardSchema;
  readonly run?: unknown;
  readonly implementation?: unknown;
}

/** The Tool behind a factory, where it is a function of this process. */
export function declaredTool(factory: unknown): DeclaredTool {
  const declared = typeof factory === "function" ? (factory as { [BRAND]?: DeclaredTool | ToolDefinition })[BRAND] : undefined;
  if (declared === undefined) throw invalidArgument("tools: expected what tool({...}) returned, without calling it");
  if ("implementation" in declared) return declared;
  throw invalidArgument(`Tool "${declared.name}": it has no run, so that this process cannot serve it; its Environment runs it`);
}

/** Whether the Tool is one that a process holds. */
export function isFunctionPlacement(placement: Placement): placement is FunctionPlacement {
  return placement.tool.implementation.kind === "host_function";
}

function hostFunction(declaration: AnyDeclaration, run: object): HostFunction {
  const { input, output, options } = declaration;
  return Object.freeze({
    kind: "host_function",
    input,
    output,
    parseOptions: optionsParser(options),
    run: run as HostFunction["run"],
  });
}

function define(declaration: { name: string; description: unknown; input: StandardSchema; output?: StandardSchema }): ToolDefinition {
  const { name, description, input, output } = declaration;
  if (typeof description !== "string") throw invalidArgument(`Tool "${name}": the description is not a text`);
  const bytes = Buffer.byteLength(description);
  if (bytes > DESCRIPTION_MAX_BYTES) {
    throw invalidArgument(
      `Tool "${name}": the description is ${bytes} bytes, and at most ${DESCRIPTION_MAX_BYTES} are allowed; shorten it`,
    );
  }
  const describable = toJsonText(description);
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

function checkOptionsSchema(name: string, schema: StandardSchema): void {
  const published = JSON.parse(publishedSchema(schema, "input", name, "options")) as unknown;
  if (!namesProperty(published, "env")) return;
  throw new BrainError(
    "invalid_schema",
    `Tool "${name}": an option may not be named "env", which names the Environment of a placement; rename the option`,
    { tool: name, path: "/env" },
  );
}

function optionsParser(schema: StandardSchema | undefined): HostFunction["parseOptions"] {
  if (schema === undefined) {
    const none: Parsed = { ok: true, value: Object.freeze({}) };
    return () => none;
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

/** What a placement says: its Environment, and its options as JSON text, as the author wrote them. */
function placed(name: string, placement: unknown, schema: StandardSchema | undefined): { environment: unknown; text: string } {
  const { env, ...options } = (placement ?? {}) as { env?: unknown } & Record<string, unknown>;
  if (!isEnvironment(env)) {
    throw invalidArgument(`Tool "${name}": env is missing; place the Tool with { env: hostEnv({ name: "..." }) }`);
  }
  const unexpected = schema === undefined ? Object.keys(options)[0] : undefined;
  if (unexpected !== undefined) {
    throw invalidArgument(`Tool "${name}": it takes no options, but "${unexpected}" was given; declare it in options`);
  }
  return { environment: env, text: optionsText(name, options, SCHEMA_MAX_BYTES) };
}

function optionsText(name: string, options: unknown, maxBytes: number): string {
  const text = toJsonText(options, maxBytes);
  if (text.ok) return text.text;
  throw invalidArgument(`Tool "${name}": the options cannot travel: at ${text.path || "/"}: ${text.problem}`);
}

function checkedImplementation(name: string, implementation: unknown): object {
  const isObject = typeof implementation === "object" && implementation !== null && !Array.isArray(implementation);
  if (isObject || typeof implementation === "function") return implementation;
  throw invalidArgument(`Tool "${name}": implementation is no Component, object or function of the options; give one of them`);
}

/** Parses the options of each placement once; the parsed value is what the implementation is made of and what travels. */
function interpretedFactory(definition: ToolDefinition, implementation: object, schema: StandardSchema | undefined) {
  const { name } = definition;
  // One that no options can change is written when the Tool is declared, so that what is wrong with it is said there.
  const fixed = typeof implementation === "function" ? undefined : interpreted(name, implementation);
  return (placement: unknown) => {
    const { environment, text } = placed(name, placement, schema);
    const options = schema === undefined ? {} : parsedOptions(name, schema, JSON.parse(text));
    const tool = Object.freeze({
      definition,
      implementation: fixed ?? interpreted(name, (implementation as (options: unknown) => unknown)(options)),
    });
    const taken = tool.implementation.kind === "descriptor" ? Buffer.byteLength(tool.implementation.json) : 0;
    const configurationJson = optionsText(name, options, Math.max(0, SCHEMA_MAX_BYTES - taken));
    return Object.freeze({ tool, environment, configurationJson });
  };
}

function interpreted(name: string, implementation: unknown): Component | Descriptor {
  if (isComponent(implementation)) return implementation;
  if (typeof implementation !== "object" || implementation === null || Array.isArray(implementation) || implementation instanceof Promise) {
    throw invalidArgument(`Tool "${name}": the function given as implementation returned no object; return what the Environment runs`);
  }
  const json = toJsonText(implementation, SCHEMA_MAX_BYTES);
  if (json.ok) return Object.freeze({ kind: "descriptor", json: json.text });
  throw invalidArgument(`Tool "${name}": the implementation cannot travel: at ${json.path || "/"}: ${json.problem}`);
}

function parsedOptions(name: string, schema: StandardSchema, options: unknown): unknown {
  const parsed = parseNow(schema, options);
  if (parsed === undefined) {
    throw invalidArgument(
      `Tool "${name}": its options are parsed when it is placed, and their schema is asynchronous; make it synchronous`,
    );
  }
  if (parsed.ok) return deepFreeze(parsed.value);
  throw invalidArgument(`Tool "${name}": the options are not what their schema asks for: ${violationsText(parsed.violations)}`);
}
