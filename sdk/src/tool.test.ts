import { describe, expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import { component } from "./component.js";
import { type BrainEnvironment, declaredEnvironment, hostEnv, type RemoteEnvironment } from "./environments.js";
import { isBrainError } from "./errors.js";
import { type Outcome, outcome } from "./outcome.js";
import { jsonSchema } from "./schema.js";
import { declaredTool, type ToolContext, tool } from "./tool.js";

const app = hostEnv({ name: "app" });

function refusal(declare: () => unknown): { reason: string; message: string } {
  try {
    declare();
  } catch (error) {
    if (isBrainError(error)) return error;
    throw error;
  }
  throw new Error("it was not refused");
}

const run = (): null => null;

describe("types come from the schemas", () => {
  test("of input, options and output", () => {
    const lookup = tool({
      name: "lookup",
      description: "Look up one item.",
      input: z.object({ id: z.string(), depth: z.number().default(3) }),
      output: z.object({ value: z.string() }),
      options: z.object({ prefix: z.string(), limit: z.number().default(1) }),
      run: (input, ctx) => {
        expectTypeOf(input).toEqualTypeOf<{ id: string; depth: number }>();
        expectTypeOf(ctx).toEqualTypeOf<ToolContext<Readonly<{ prefix: string; limit: number }>>>();
        return { value: `${ctx.options.prefix}${input.id}` };
      },
    });
    lookup({ env: app, prefix: "item:" });
    // @ts-expect-error the prefix is missing
    lookup({ env: app });
    // @ts-expect-error the prefix is no number
    lookup({ env: app, prefix: 1 });
    // @ts-expect-error the Environment is missing
    expect(() => lookup({ prefix: "x" })).toThrow("env is missing");
  });

  test("of a function that returns an Outcome, or the wrong thing", () => {
    const declaration = { name: "a", description: "", input: z.object({}), output: z.object({ n: z.number() }) };
    tool({ ...declaration, run: () => outcome.ok({ n: 1 }) });
    tool({ ...declaration, run: () => outcome.error({ code: "no", message: "no" }) });
    tool({ ...declaration, run: async (): Promise<Outcome<{ n: number }>> => outcome.ok({ n: 1 }) });
    // @ts-expect-error n is no text
    tool({ ...declaration, run: () => ({ n: "1" }) });
  });

  test("of a Tool without options, which takes none", () => {
    const plain = tool({ name: "a", description: "", input: z.object({}), run: async () => undefined });
    plain({ env: app });
    // @ts-expect-error it takes no options
    expect(() => plain({ env: app, depth: 1 })).toThrow('takes no options, but "depth" was given');
  });

  test("of plain JSON Schema, which are unknown unless claimed", () => {
    tool({
      name: "a",
      description: "",
      input: jsonSchema({ type: "object" }),
      run: (input) => {
        expectTypeOf(input).toEqualTypeOf<unknown>();
        return null;
      },
    });
    tool({
      name: "b",
      description: "",
      input: jsonSchema<{ id: string }>({ type: "object", required: ["id"] }),
      run: ({ id }) => id,
    });
  });
});

describe("a definition", () => {
  test("publishes the input side of the input and the output side of the output", () => {
    const shape = z.object({ q: z.string(), depth: z.number().default(3) });
    const { definition } = tool({ name: "a", description: "d", input: shape, output: shape, run: () => ({ q: "" }) });
    expect(JSON.parse(definition.inputSchemaJson)).toMatchObject({ required: ["q"] });
    expect(JSON.parse(definition.inputSchemaJson)).not.toHaveProperty("additionalProperties");
    expect(JSON.parse(definition.outputSchemaJson ?? "")).toMatchObject({
      required: ["q", "depth"],
      additionalProperties: false,
    });
  });

  test("has one digest whatever the order of its members, and another for another description", () => {
    const declare = (description: string, schema: Record<string, unknown>) =>
      tool({ name: "a", description, input: jsonSchema(schema), run }).definition.sha256;
    const one = declare("d", { type: "object", title: "t" });
    expect(declare("d", { title: "t", type: "object" })).toBe(one);
    expect(declare("d ", { title: "t", type: "object" })).not.toBe(one);
    // printf '{"description":"d","input_schema":{"title":"t","type":"object"},"name":"a"}' | sha256sum
    expect(one).toBe("7867d658f98c8417580c5b85c6d32ec0fb7c2531c09eab6cbb27a4351bcbe1bd");
  });

  test("is fixed when the Tool is declared", () => {
    const schema: Record<string, unknown> = { type: "object" };
    const declared = tool({ name: "a", description: "d", input: jsonSchema(schema), run });
    schema["required"] = ["x"];
    expect(declared.definition.inputSchemaJson).toBe('{"type":"object"}');
    expect(Object.isFrozen(declared.definition)).toBe(true);
    expect(declared.name).toBe("a");
  });
});

test("a description has at most 64 KiB, as Brain counts them", () => {
  const declare = (description: string) => tool({ name: "wordy", description, input: z.object({}), run });
  declare("é".repeat(32 * 1024));
  expect(refusal(() => declare(`${"é".repeat(32 * 1024)}.`)).message).toContain('Tool "wordy": the description is 65537 bytes');
});

describe("what cannot be represented is refused at declaration, by Tool and place", () => {
  const when = z.object({ list: z.array(z.object({ when: z.date().optional() })) });
  test.each([
    ["a date in the input", () => tool({ name: "second", description: "", input: when, run })],
    ["a date in the output", () => tool({ name: "second", description: "", input: z.object({}), output: when, run: run as never })],
    ["a date in the options", () => tool({ name: "second", description: "", input: z.object({}), options: when, run })],
  ])("%s", (_, declare) => {
    const { reason, message } = refusal(declare);
    expect(reason).toBe("invalid_schema");
    expect(message).toContain('"second"');
    expect(message).toContain("/list/*/when: Date cannot be represented");
  });

  test("a bigint, a map, and a transform on the output side", () => {
    const input = (schema: z.ZodType) => refusal(() => tool({ name: "t", description: "", input: z.object({ n: schema }), run })).message;
    expect(input(z.bigint())).toContain("/n: BigInt");
    expect(input(z.union([z.string(), z.map(z.string(), z.string())]))).toContain("/n: Map");
    expect(input(z.lazy(() => z.tuple([z.string(), z.date()])))).toContain("/n/1: Date");
    const output = z.object({ n: z.string().transform((text) => text.length) });
    expect(refusal(() => tool({ name: "t", description: "", input: z.object({}), output, run: run as never })).message).toContain(
      "/n: Transforms",
    );
  });

  test("a recursive schema works, and one with a date inside does not loop", () => {
    const Node = z.object({
      v: z.number(),
      get kids() {
        return z.array(Node);
      },
    });
    expect(tool({ name: "t", description: "", input: Node, run }).definition.inputSchemaJson).toContain("$ref");
    const Dated = z.object({
      get kids() {
        return z.array(Dated);
      },
      at: z.date(),
    });
    expect(refusal(() => tool({ name: "t", description: "", input: Dated, run })).message).toContain("/at: Date");
  });

  test("something that is no schema", () => {
    expect(refusal(() => tool({ name: "t", description: "", input: {} as never, run })).message).toContain("no Standard Schema");
  });
});

describe("names", () => {
  test.each(["", " ", "a.b", "a/b", "../x", "é", "a".repeat(65)])("%j is refused for Tools and Environments, by name", (name) => {
    const shown = JSON.stringify(name);
    expect(refusal(() => tool({ name, description: "", input: z.object({}), run })).message).toContain(`Tool name ${shown}`);
    expect(refusal(() => hostEnv({ name })).message).toContain(`Environment name ${shown}`);
  });

  test.each(["a", "A", "__proto__", "constructor", "a".repeat(64), "a_b-1"])("%s is a name like any other", (name) => {
    expect(tool({ name, description: "", input: z.object({}), run }).definition.name).toBe(name);
    expect(hostEnv({ name }).name).toBe(name);
  });

  test("no option can be named env", () => {
    const plain = z.object({ env: z.string() });
    // @ts-expect-error an option may not be named env
    expect(refusal(() => tool({ name: "t", description: "", input: z.object({}), options: plain, run })).message).toContain('named "env"');
    const hidden = jsonSchema<object>({ allOf: [{ $ref: "#/$defs/x" }], $defs: { x: { properties: { env: {} } } } });
    expect(refusal(() => tool({ name: "t", description: "", input: z.object({}), options: hidden, run })).message).toContain('named "env"');
    tool({ name: "t", description: "", input: z.object({}), options: z.looseObject({ a: z.string() }), run });
  });
});

describe("options", () => {
  test("travel as their author wrote them", () => {
    const options = z.object({ text: z.string().transform((text) => text.length), limit: z.number().default(1) });
    const placed = tool({ name: "t", description: "", input: z.object({}), options, run })({ env: app, text: "abc" });
    expect(placed.configurationJson).toBe('{"text":"abc"}');
  });

  test("are parsed once for one text, and frozen", async () => {
    let parses = 0;
    const options = z.object({ list: z.array(z.string()) }).transform(async (value) => {
      parses++;
      return value;
    });
    const { tool: declared } = tool({ name: "t", description: "", input: z.object({}), options, run })({ env: app, list: ["a"] });
    const parsed = await declared.implementation.parseOptions('{"list":["a"]}');
    expect(await declared.implementation.parseOptions('{"list":["a"]}')).toBe(parsed);
    expect(parses).toBe(1);
    expect(parsed.ok && Object.isFrozen((parsed.value as { list: unknown }).list)).toBe(true);
  });

  test("that are no JSON are refused where they are given", () => {
    const placed = tool({ name: "t", description: "", input: z.object({}), options: z.object({ n: z.number() }), run });
    expect(refusal(() => placed({ env: app, n: Number.NaN })).message).toContain("at /n: NaN");
  });
});

describe("an implementation that an Environment interprets", () => {
  const remote = declaredEnvironment<RemoteEnvironment>({ kind: "remote", name: "service", url: "http://127.0.0.1:1" });
  const sandbox = declaredEnvironment<BrainEnvironment>({ kind: "brain", name: "sandbox" });
  const declaration = { name: "inspect", description: "", input: z.object({ path: z.string() }) };
  const depth = z.object({ depth: z.number().int(), label: z.string().default("none") });

  test("is an object, which travels as JSON", () => {
    const { tool: placed, configurationJson } = tool({ ...declaration, implementation: { module: "./a.py", entry: ["run"] } })({
      env: remote,
    });
    expect(placed.implementation).toEqual({ kind: "descriptor", json: '{"module":"./a.py","entry":["run"]}' });
    expect(configurationJson).toBe("{}");
  });

  test("is a Component, which stays a reference", () => {
    const inspect = component(Uint8Array.of(0));
    expect(tool({ ...declaration, implementation: inspect })({ env: sandbox }).tool.implementation).toBe(inspect);
  });

  test("is made of the options, which are parsed once, frozen, and travel as they were parsed", () => {
    let parses = 0;
    const counted = depth.transform((options) => {
      parses++;
      return { ...options, twice: options.depth * 2 };
    });
    const made: unknown[] = [];
    const inspect = tool({
      ...declaration,
      options: counted,
      implementation: (options) => {
        made.push(options);
        expect(Object.isFrozen(options)).toBe(true);
        return { levels: options.twice };
      },
    });
    expect(made).toEqual([]);
    const placed = inspect({ env: remote, depth: 2 });
    expect(placed.tool.implementation).toEqual({ kind: "descriptor", json: '{"levels":4}' });
    expect(placed.configurationJson).toBe('{"depth":2,"label":"none","twice":4}');
    expect([made.length, parses]).toEqual([1, 1]);
  });

  test("gets no options that break their schema: the placement is refused, naming the Tool and the place", () => {
    const inspect = tool({ ...declaration, options: depth, implementation: {} });
    const { reason, message } = refusal(() => inspect({ env: remote, depth: 1.5 }));
    expect(reason).toBe("invalid_argument");
    expect(message).toMatch(/^Tool "inspect": the options are not what their schema asks for: \/depth: /);
    const asynchronous = tool({ ...declaration, options: z.object({ n: z.number().refine(async () => true) }), implementation: {} });
    expect(refusal(() => asynchronous({ env: remote, n: 1 })).message).toContain("asynchronous");
  });

  test("and run exclude each other, and one of them is needed", () => {
    // @ts-expect-error both
    expect(refusal(() => tool({ ...declaration, run, implementation: {} })).message).toContain(
      'Tool "inspect": it has both run and implementation',
    );
    // @ts-expect-error neither
    expect(refusal(() => tool(declaration)).message).toContain("give run, or implementation");
  });

  test.each([
    ["a text", "./a.wasm"],
    ["a list", ["./a.wasm"]],
    ["null", null],
  ])("is not %s", (_, implementation) => {
    expect(refusal(() => tool({ ...declaration, implementation: implementation as never })).message).toContain(
      'Tool "inspect": implementation is',
    );
    const made = tool({ ...declaration, implementation: (() => implementation) as never });
    expect(refusal(() => made({ env: remote as never })).message).toContain("returned no object");
  });

  test("that is no JSON, or too long with its options, is refused", () => {
    expect(refusal(() => tool({ ...declaration, implementation: { when: 1n } })).message).toContain("at /when: a bigint");
    const wide = tool({ ...declaration, options: z.object({ text: z.string() }), implementation: { text: "x".repeat(200 * 1024) } });
    expect(refusal(() => wide({ env: remote, text: "y".repeat(100 * 1024) })).message).toContain("longer than");
  });

  test("is nothing that this process could serve", () => {
    const { reason, message } = refusal(() => declaredTool(tool({ ...declaration, implementation: {} })));
    expect([reason, message]).toEqual([
      "invalid_argument",
      'Tool "inspect": it has no run, so that this process cannot serve it; its Environment runs it',
    ]);
  });
});
