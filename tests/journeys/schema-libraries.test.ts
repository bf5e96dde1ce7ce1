import { hostEnv, isBrainError, jsonSchema, type Placement, type Session, type StandardSchema, tool } from "@aexhq/brain";
import { toStandardJsonSchema } from "@valibot/to-json-schema";
import { type } from "arktype";
import * as v from "valibot";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { recordsUntil } from "../support/case-ground.js";
import { ContractGround } from "../support/contract-ground.js";

let ground: ContractGround;
beforeAll(async () => {
  ground = await ContractGround.open();
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

/** The same contract in each library: an id, a depth with a default, and tags that must differ, a rule that cannot travel. */
interface Library {
  readonly input: StandardSchema;
  readonly output: StandardSchema;
  readonly options: StandardSchema;
  readonly date: StandardSchema;
}

const differ = (tags: string[]): boolean => new Set(tags).size === tags.length;

const LIBRARIES: Readonly<Record<string, Library>> = {
  zod: {
    input: z.object({ id: z.string().min(1), depth: z.number().default(3), tags: z.array(z.string()).refine(differ, "tags must differ") }),
    output: z.object({ found: z.array(z.string()).max(3) }),
    options: z.object({ prefix: z.string(), suffix: z.string().default("!") }),
    date: z.object({ list: z.array(z.object({ when: z.date() })) }),
  },
  Valibot: {
    input: toStandardJsonSchema(
      v.object({
        id: v.pipe(v.string(), v.minLength(1)),
        depth: v.optional(v.number(), 3),
        tags: v.pipe(v.array(v.string()), v.check(differ, "tags must differ")),
      }),
    ),
    output: toStandardJsonSchema(v.object({ found: v.pipe(v.array(v.string()), v.maxLength(3)) })),
    options: toStandardJsonSchema(v.object({ prefix: v.string(), suffix: v.optional(v.string(), "!") })),
    date: toStandardJsonSchema(v.object({ list: v.array(v.object({ when: v.date() })) })),
  },
  ArkType: {
    input: type({
      id: "string >= 1",
      depth: "number = 3",
      tags: type("string[]").narrow((tags, ctx) => differ(tags) || ctx.mustBe("different")),
    }),
    output: type({ found: "string[] <= 3" }),
    options: type({ prefix: "string", suffix: "string = '!'" }),
    date: type({ list: type({ when: "Date" }).array() }),
  },
};

describe.each(Object.entries(LIBRARIES))("a Tool declared with %s", (_, { input, output, options, date }) => {
  let session: Session;
  let definition: { sha256: string };
  const given: unknown[] = [];
  beforeAll(async () => {
    const lookup = tool({
      name: "lookup",
      description: "Look up one item.",
      input,
      output,
      options,
      run: ground.runs.counting((found: unknown, ctx) => {
        const { id, depth } = found as { id: string; depth: number };
        const { prefix, suffix } = ctx.options as { prefix: string; suffix: string };
        given.push(found);
        return { found: Array.from({ length: depth }, () => `${prefix}${id}${suffix}`) };
      }),
    });
    ({ definition } = lookup);
    const place = lookup as unknown as (placement: object) => Placement;
    session = await ground.session(place({ env: ground.here, prefix: "item:" }));
  });
  afterAll(() => ground.expectStanding());
  const call = (value: unknown) => session.callTool({ name: "lookup", environment: "here", input: value });

  test("runs with what its parses make of input and options", async () => {
    expect(await call({ id: "7", tags: [] })).toEqual({ status: "ok", value: { found: ["item:7!", "item:7!", "item:7!"] } });
    expect(given.at(-1)).toEqual({ id: "7", depth: 3, tags: [] });
    expect(await call({ id: "7", tags: ["a"], depth: 1 })).toEqual({ status: "ok", value: { found: ["item:7!"] } });
  });

  test.each([
    ["a wrong type", { id: 7, tags: [] }, "/id"],
    ["a rule that is published", { id: "", tags: [] }, "/id"],
    ["a rule that cannot travel", { id: "7", tags: ["hunter2-hunter2", "hunter2-hunter2"] }, "/tags"],
    ["an element", { id: "7", tags: [1] }, "/tags/0"],
  ])("refuses %s by place and rule, before it runs and without the value", async (_what, value, path) => {
    const before = ground.runs.of(session.sessionId);
    const ending = await call(value);
    expect(ending).toMatchObject({ status: "error", code: "invalid_input", details: { violations: [{ path }] } });
    const { violations } = (ending as { details: { violations: { rule: string; message: string }[] } }).details;
    for (const { rule, message } of violations) expect([rule, message]).not.toContain("");
    expect(JSON.stringify(ending)).not.toContain("hunter2");
    expect(ground.runs.of(session.sessionId)).toBe(before);
  });

  test("refuses an output that is not what it says, after it ran", async () => {
    const before = ground.runs.of(session.sessionId);
    expect(await call({ id: "7", tags: [], depth: 4 })).toMatchObject({
      status: "error",
      code: "invalid_output",
      details: { violations: [{ path: "/found" }] },
    });
    expect(ground.runs.of(session.sessionId)).toBe(before + 1);
  });

  test("has one digest, in this process and on record", async () => {
    const records = await recordsUntil(session, ({ entry }) => entry.case === "toolCallStarted");
    const entry = records.at(-1)?.entry;
    expect(entry?.case === "toolCallStarted" && entry.value.definitionSha256).toBe(definition.sha256);
  });

  test("is refused at declaration for what JSON has no form for, by Tool and place", () => {
    let refused: unknown;
    try {
      tool({ name: "second", description: "", input: date, run: () => null });
    } catch (error) {
      refused = error;
    }
    expect(isBrainError(refused) && refused).toMatchObject({
      reason: "invalid_schema",
      metadata: { tool: "second", path: "/list/*/when" },
    });
  });
});

test("one contract has the same digest whichever way it is written, if what is published is the same", async () => {
  const published = {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    properties: { id: { type: "string" } },
    required: ["id"],
  };
  const declare = (input: StandardSchema) => tool({ name: "lookup", description: "", input, run: ground.runs.counting(() => null) });
  const ways = [
    z.object({ id: z.string() }),
    toStandardJsonSchema(v.object({ id: v.string() })),
    type({ id: "string" }),
    jsonSchema({ required: published.required, properties: published.properties, type: published.type, $schema: published.$schema }),
  ].map((schema) => declare(schema));
  expect(new Set(ways.map(({ definition }) => definition.sha256)).size).toBe(1);
  // So they are one Tool, and may be placed in several Environments of one session.
  const session = await ground.session(...ways.map((way, index) => way({ env: hostEnv({ name: `env_${index}` }) })));
  for (const index of ways.keys()) {
    const call = { name: "lookup", environment: `env_${index}` };
    expect(await session.callTool({ ...call, input: { id: "7" } })).toEqual({ status: "ok", value: null });
    expect(await session.callTool({ ...call, input: {} })).toMatchObject({ status: "error", code: "invalid_input" });
  }
  await ground.expectStanding();
});

describe("a Tool in the wrong kind of Environment", () => {
  const described = tool({ name: "inspect", description: "", input: z.object({}), implementation: { module: "./inspect.py" } });

  test("is refused by the SDK before anything is sent, naming Tool and Environment", async () => {
    const place = described as unknown as (placement: object) => Placement;
    await expect(ground.session(place({ env: ground.here }))).rejects.toMatchObject({
      reason: "implementation_mismatch",
      metadata: { tool: "inspect", environment: "here" },
      message: expect.stringMatching(/Tool "inspect" has an implementation.*Environment "here" of kind host/),
    });
    // @ts-expect-error types say so too
    await expect(ground.brain.serve({ environment: "here", tools: [described] })).rejects.toThrow('Tool "inspect": it has no run');
  });

  test.each([
    [
      "a descriptor in a host",
      { descriptorJson: "{}" },
      { host: {} },
      "implementation_mismatch",
      /inspect.*descriptorJson.*here of kind host/,
    ],
    [
      "a Component in a host",
      { component: { sha256: "0".repeat(64) } },
      { host: {} },
      "implementation_mismatch",
      /inspect.*component.*here of kind host/,
    ],
    [
      "a function in the sandbox",
      { hostFunction: {} },
      { brain: {} },
      "environment_unsupported",
      /here is of kind brain, which this server does not run/,
    ],
    [
      "a function in a service",
      { hostFunction: {} },
      { remote: { url: "http://127.0.0.1:1" } },
      "environment_unsupported",
      /here is of kind remote, which this server does not run/,
    ],
  ])("is refused by the server for clients of any language: %s", async (_, implementation, kind, reason, said) => {
    const { hostId } = ground.cases.host;
    const answer = await ground.wire.post("SessionService/CreateSession", {
      environments: [{ name: "here", ...("host" in kind ? { host: { hostId } } : kind) }],
      tools: [{ tool: { name: "inspect", inputSchemaJson: "true" }, environment: "here", implementation }],
    });
    expect(answer.reason).toBe(reason);
    expect(answer.message).toMatch(said);
    expect(answer.metadata).toMatchObject({ environment: "here" });
  });
});
