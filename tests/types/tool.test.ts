/** What compiles, and what does not. The type check of the whole tree is what judges here; running it only proves that it is there. */
import {
  type Failed,
  type FunctionPlacement,
  hostEnv,
  type InferInput,
  type InferOutput,
  jsonSchema,
  type Outcome,
  outcome,
  type Placement,
  type Session,
  type StandardSchema,
  type ToolContext,
  type ToolFactory,
  tool,
  unwrap,
} from "@aexhq/brain";
import { toStandardJsonSchema } from "@valibot/to-json-schema";
import { type } from "arktype";
import * as v from "valibot";
import { describe, expectTypeOf, test } from "vitest";
import { z } from "zod";
// No public function makes an Environment of these kinds yet; their types decide what compiles.
import type { BrainEnvironment, RemoteEnvironment } from "../../sdk/src/environments.js";

const app = hostEnv({ name: "app" });
const named = { name: "t", description: "d" };
/** Never called: only its type counts. */
const compiles = (_: () => unknown): void => undefined;

describe("the function of a Tool", () => {
  test("is given what a parse makes of the input, and returns what a parse takes as output", () => {
    const schema = z.object({ text: z.string().transform((text) => text.length), depth: z.number().default(3) });
    tool({
      ...named,
      input: schema,
      output: z.object({ at: z.string(), n: z.number().default(1) }),
      run: (input) => {
        expectTypeOf(input).toEqualTypeOf<{ text: number; depth: number }>();
        return { at: "now" };
      },
    });
    compiles(() =>
      // @ts-expect-error `at` is missing
      tool({ ...named, input: z.object({}), output: z.object({ at: z.string() }), run: () => ({}) }),
    );
    compiles(() =>
      // @ts-expect-error `at` is a number
      tool({ ...named, input: z.object({}), output: z.object({ at: z.string() }), run: async () => ({ at: 1 }) }),
    );
    compiles(() =>
      // @ts-expect-error nothing is not an object
      tool({ ...named, input: z.object({}), output: z.object({ at: z.string() }), run: () => undefined }),
    );
    compiles(() =>
      // @ts-expect-error the input has no such member
      tool({ ...named, input: z.object({ id: z.string() }), run: ({ ib }) => ib }),
    );
  });

  test("may return each of the five Outcomes, of the right value", () => {
    const declaration = { ...named, input: z.object({}), output: z.object({ n: z.number() }) };
    const failure = { code: "no", message: "no" };
    tool({ ...declaration, run: () => outcome.ok({ n: 1 }) });
    tool({ ...declaration, run: () => outcome.error(failure) });
    tool({ ...declaration, run: () => outcome.timeout(failure) });
    tool({ ...declaration, run: () => outcome.cancelled(failure) });
    tool({ ...declaration, run: () => outcome.unknown({ ...failure, retryable: true, details: { any: ["value"] } }) });
    tool({ ...declaration, run: async () => (Math.random() < 2 ? { n: 1 } : outcome.error(failure)) });
    compiles(() =>
      // @ts-expect-error the value is a text
      tool({ ...declaration, run: () => outcome.ok({ n: "1" }) }),
    );
    // @ts-expect-error a failure has a code
    compiles(() => outcome.error({ message: "no" }));
  });

  test("returns anything where no output is declared", () => {
    tool({ ...named, input: z.object({}), run: () => undefined });
    tool({ ...named, input: z.object({}), run: () => ({ any: ["thing"] }) });
    tool({ ...named, input: z.object({}), run: () => outcome.ok("thing") });
  });

  test("is told of its call by a context that it cannot change", () => {
    tool({
      ...named,
      input: z.object({}),
      options: z.object({ prefix: z.string(), limit: z.number().default(1) }),
      run: (_, ctx) => {
        expectTypeOf(ctx).toEqualTypeOf<ToolContext<Readonly<{ prefix: string; limit: number }>>>();
        expectTypeOf(ctx.deadline).toEqualTypeOf<Date>();
        expectTypeOf(ctx.signal).toEqualTypeOf<AbortSignal>();
        expectTypeOf(ctx.emit("kind", { any: 1 })).toEqualTypeOf<Promise<number>>();
        // @ts-expect-error options are read only
        compiles(() => (ctx.options.prefix = "x"));
        // @ts-expect-error an event has a kind
        compiles(() => ctx.emit());
        return null;
      },
    });
  });
});

describe("the schemas of every library", () => {
  test("infer what is written and what is read", () => {
    const inZod = z.object({ id: z.string(), depth: z.number().default(3) });
    const inValibot = toStandardJsonSchema(v.object({ id: v.string(), depth: v.optional(v.number(), 3) }));
    const inArkType = type({ id: "string", depth: "number = 3" });
    expectTypeOf<InferInput<typeof inZod>>().toEqualTypeOf<{ id: string; depth?: number | undefined }>();
    expectTypeOf<InferOutput<typeof inZod>>().toEqualTypeOf<{ id: string; depth: number }>();
    tool({ ...named, input: inZod, run: ({ id, depth }) => id.repeat(depth) });
    tool({ ...named, input: inValibot, run: ({ id, depth }) => id.repeat(depth) });
    tool({ ...named, input: inArkType, run: ({ id, depth }) => id.repeat(depth) });
    const withOptions = { ...named, input: z.object({}), run: () => null };
    const ofValibot = tool({ ...withOptions, options: toStandardJsonSchema(v.object({ root: v.string() })) });
    const ofArkType = tool({ ...withOptions, options: type({ root: "string" }) });
    compiles(() => [ofValibot({ env: app, root: "/" }), ofArkType({ env: app, root: "/" })]);
    // @ts-expect-error the root is missing
    compiles(() => ofValibot({ env: app }));
    // @ts-expect-error the root is no number
    compiles(() => ofArkType({ env: app, root: 1 }));
  });

  test("are unknown in plain JSON Schema, unless the declaration claims a type", () => {
    tool({ ...named, input: jsonSchema({ type: "object" }), run: (input) => expectTypeOf(input).toEqualTypeOf<unknown>() });
    tool({
      ...named,
      input: jsonSchema<{ id: string }>({ type: "object", properties: { id: { type: "string" } }, required: ["id"] }),
      output: jsonSchema<number>({ type: "number" }),
      run: ({ id }) => id.length,
    });
    compiles(() =>
      // @ts-expect-error the claimed output is a number
      tool({ ...named, input: jsonSchema(true), output: jsonSchema<number>({ type: "number" }), run: () => "1" }),
    );
  });

  test("are schemas: a validator without JSON Schema, a text or a bare object is none", () => {
    compiles(() =>
      // @ts-expect-error Valibot's own schemas have no JSON Schema
      tool({ ...named, input: v.string(), run: () => null }),
    );
    compiles(() =>
      // @ts-expect-error plain JSON Schema is wrapped by jsonSchema
      tool({ ...named, input: { type: "object" }, run: () => null }),
    );
    expectTypeOf<ReturnType<typeof jsonSchema>>().toExtend<StandardSchema>();
  });
});

describe("a placement", () => {
  const lookup = tool({
    ...named,
    input: z.object({}),
    options: z.object({ prefix: z.string(), limit: z.number().default(1) }),
    run: () => null,
  });

  test("names an Environment and gives the options as they are written", () => {
    expectTypeOf(lookup({ env: app, prefix: "x" })).toEqualTypeOf<FunctionPlacement>();
    compiles(() => lookup({ env: app, prefix: "x", limit: 2 }));
    // @ts-expect-error the prefix is missing
    compiles(() => lookup({ env: app }));
    // @ts-expect-error the Environment is missing
    compiles(() => lookup({ prefix: "x" }));
    // @ts-expect-error an Environment is no name
    compiles(() => lookup({ env: "app", prefix: "x" }));
    // @ts-expect-error there is no such option
    compiles(() => lookup({ env: app, prefix: "x", suffix: "y" }));
    expectTypeOf<FunctionPlacement>().toExtend<Placement>();
  });

  test("takes no options where none are declared, and none is named env", () => {
    const plain = tool({ ...named, input: z.object({}), run: () => null });
    compiles(() => plain({ env: app }));
    // @ts-expect-error it takes no options
    compiles(() => plain({ env: app, depth: 1 }));
    compiles(() =>
      // @ts-expect-error an option may not be named env
      tool({ ...named, input: z.object({}), options: z.object({ env: z.string() }), run: () => null }),
    );
  });

  test("of a function is in a host Environment, and of an implementation in one that interprets it", () => {
    const sandbox = {} as BrainEnvironment;
    const remote = {} as RemoteEnvironment;
    const described = tool({ ...named, input: z.object({}), implementation: { module: "./a.py" } });
    compiles(() => described({ env: remote }));
    // @ts-expect-error a function needs a host
    compiles(() => lookup({ env: sandbox, prefix: "x" }));
    // @ts-expect-error a function needs a host
    compiles(() => lookup({ env: remote, prefix: "x" }));
    // @ts-expect-error a host runs functions alone
    compiles(() => described({ env: app }));
    // @ts-expect-error the sandbox runs Components alone
    compiles(() => described({ env: sandbox }));
    expectTypeOf(lookup).toExtend<ToolFactory<never>>();
  });

  test("has a run or an implementation, not both and not neither", () => {
    const declaration = { ...named, input: z.object({}) };
    compiles(() =>
      // @ts-expect-error both
      tool({ ...declaration, run: () => null, implementation: {} }),
    );
    // @ts-expect-error neither
    compiles(() => tool(declaration));
    compiles(() =>
      // @ts-expect-error no text
      tool({ ...declaration, implementation: "./a.wasm" }),
    );
  });

  test("of an implementation made of the options sees them as they were parsed", () => {
    tool({
      ...named,
      input: z.object({}),
      options: z.object({ depth: z.number().default(3) }),
      implementation: (options) => {
        expectTypeOf(options).toEqualTypeOf<Readonly<{ depth: number }>>();
        return { depth: options.depth };
      },
    });
  });
});

describe("an ending", () => {
  test("is a value or a failure, told apart by its status", () => {
    const called = (session: Session) => session.callTool<{ n: number }>({ name: "t", environment: app, input: {} });
    expectTypeOf(called).returns.resolves.toEqualTypeOf<Outcome<{ n: number }>>();
    const ending = outcome.ok({ n: 1 }) as Outcome<{ n: number }>;
    if (ending.status === "ok") expectTypeOf(ending.value).toEqualTypeOf<{ n: number }>();
    else expectTypeOf(ending).toEqualTypeOf<Failed>();
    expectTypeOf(unwrap(ending)).toEqualTypeOf<{ n: number }>();
    // @ts-expect-error a failure has no value
    compiles(() => ending.value);
  });
});
