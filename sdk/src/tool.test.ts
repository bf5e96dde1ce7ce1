import { describe, expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import { hostEnv } from "./environments.js";
import { isBrainError } from "./errors.js";
import { type Outcome, outcome } from "./outcome.js";
import { jsonSchema } from "./schema.js";
import { type ToolContext, tool } from "./tool.js";

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
