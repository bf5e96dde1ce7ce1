import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { jsonSchema, tool } from "@aexhq/brain";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { BrainCommand } from "../support/brain-command.js";
import { ConnectJson, type Json, type JsonAnswer } from "../support/connect-json.js";
import { ContractGround } from "../support/contract-ground.js";

let ground: ContractGround;
let hostId: string;
beforeAll(async () => {
  ground = await ContractGround.open();
  const echo = tool({ name: "echo", description: "", input: jsonSchema(true), run: ground.runs.counting((given) => given) });
  const session = await ground.session(echo({ env: ground.here }));
  const [environment] = (await session.describe()).environments;
  hostId = environment?.kind.case === "host" ? environment.kind.value.hostId : "";
  // Whatever schemas a client declares under these names, this is what runs.
  for (const name of ["first", "second", "third", "fourth"]) {
    const held = tool({ name, description: "", input: jsonSchema(true), run: ground.runs.counting((given) => given) });
    await ground.brain.serve({ environment: "here", tools: [held] });
  }
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

/** Declares Tools as a client in any language does. */
function create(schemas: Readonly<Record<string, unknown>>): Promise<JsonAnswer> {
  return ground.wire.post("SessionService/CreateSession", {
    environments: [{ name: "here", host: { hostId } }],
    tools: Object.entries(schemas).map(([name, schema]) => ({
      tool: { name, inputSchemaJson: typeof schema === "string" ? schema : JSON.stringify(schema) },
      environment: "here",
      implementation: { hostFunction: {} },
    })),
  });
}

/** "ok", or the code of the failure. A refused input runs nothing. */
async function ending(sessionId: string, name: string, input: unknown): Promise<string> {
  const request = { sessionId, callId: crypto.randomUUID(), name, environment: "here", inputJson: JSON.stringify(input) };
  const { callSequence, outcome } = await ground.wire.ask("ToolCallService/CallTool", request);
  expect(ground.runs.of(sessionId, callSequence)).toBe(outcome.ok === undefined ? 0 : 1);
  return outcome.ok === undefined ? outcome.error.code : "ok";
}

async function expectEndings(schema: unknown, cases: readonly (readonly [unknown, "ok" | "invalid_input"])[]): Promise<void> {
  const { body, message } = await create({ first: schema });
  expect(message).toBe("");
  for (const [input, expected] of cases) {
    expect(await ending(body.session.sessionId, "first", input), JSON.stringify(input)).toBe(expected);
  }
}

async function sessionCount(): Promise<number> {
  return (await ground.wire.ask("SessionService/ListSessions", { pageSize: 1000 })).sessions?.length ?? 0;
}

/** Refused by Tool and place, without a session. */
async function expectRefused(schema: unknown, path: string, said: RegExp): Promise<void> {
  const before = await sessionCount();
  const answer = await create({ first: true, second: schema });
  expect(answer).toMatchObject({ httpStatus: 400, reason: "invalid_schema", metadata: { tool: "second", path } });
  expect(answer.message).toMatch(/Tool second/);
  expect(answer.message).toMatch(said);
  expect(await sessionCount()).toBe(before);
}

describe("H20: a dialect", () => {
  afterAll(() => ground.expectStanding());

  test.each(["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft-07/schema"])(
    "draft-07 (%s) has its own rules",
    ($schema) =>
      expectEndings(
        {
          $schema,
          definitions: { id: { type: "string" } },
          // In draft-07 nothing beside a reference counts, and a list of `items` is a tuple.
          properties: {
            id: { $ref: "#/definitions/id", maxLength: 1 },
            pair: { items: [{ type: "string" }, { type: "number" }], additionalItems: false },
          },
          dependencies: { id: ["pair"] },
        },
        [
          [{ id: "longer", pair: ["a", 1] }, "ok"],
          [{ id: 1, pair: ["a", 1] }, "invalid_input"],
          [{ pair: [1, "a"] }, "invalid_input"],
          [{ pair: ["a", 1, 2] }, "invalid_input"],
          [{ id: "alone" }, "invalid_input"],
        ],
      ),
  );

  test.each([
    ["2020-12", "https://json-schema.org/draft/2020-12/schema"],
    ["none", undefined],
  ])("%s has the rules of 2020-12", (_, $schema) =>
    expectEndings(
      {
        ...($schema === undefined ? {} : { $schema }),
        $defs: { id: { type: "string" } },
        definitions: { old: { type: "boolean" } },
        properties: {
          id: { $ref: "#/$defs/id", maxLength: 3 },
          old: { $ref: "#/definitions/old" },
          pair: { prefixItems: [{ type: "string" }, { type: "number" }], items: false },
        },
        dependentRequired: { id: ["pair"] },
        unevaluatedProperties: false,
      },
      [
        [{ id: "abc", pair: ["a", 1], old: true }, "ok"],
        [{ id: "abcd", pair: ["a", 1] }, "invalid_input"],
        [{ pair: [1, "a"] }, "invalid_input"],
        [{ pair: ["a", 1, 2] }, "invalid_input"],
        [{ id: "a" }, "invalid_input"],
        [{ old: 1 }, "invalid_input"],
        [{ extra: 1 }, "invalid_input"],
      ],
    ),
  );

  test("that is made up is refused by Tool and place, when the session is created", () =>
    expectRefused({ $schema: "https://example.com/my-dialect", type: "object" }, "/$schema", /dialect/));

  test("leaves keywords and formats that it does not know alone", () =>
    expectEndings({ type: "object", "x-vendor": 1, properties: { n: { type: "integer", format: "uint64", "x-order": { a: 1 } } } }, [
      [{ n: 1 }, "ok"],
      [{ n: "1" }, "invalid_input"],
    ]));
});

describe("H21: a pattern", () => {
  afterAll(() => ground.expectStanding());

  test("with an escape that only older engines know is accepted and enforced", async () => {
    const url = tool({
      name: "url",
      description: "",
      input: z.string().regex(/^https:\/\//),
      run: ground.runs.counting((given) => given),
    });
    const session = await ground.session(url({ env: ground.here }));
    const call = { name: "url", environment: "here" };
    expect(await session.callTool({ ...call, input: "https://x" })).toEqual({ status: "ok", value: "https://x" });
    expect(await session.callTool({ ...call, input: "ftp://x" })).toMatchObject({ status: "error", code: "invalid_input" });
    expect(ground.runs.of(session.sessionId)).toBe(1);
  });

  test.each([
    ["in pattern", { properties: { u: { type: "string", pattern: "^(?<a" } } }, "/properties/u/pattern"],
    ["in patternProperties", { patternProperties: { "[": true } }, "/patternProperties/["],
    ["deep inside", { $defs: { x: { items: { pattern: "*" } } }, $ref: "#/$defs/x" }, "/$defs/x/items/pattern"],
  ])("that is broken %s is refused by Tool and place, when the session is created", (_, schema, path) =>
    expectRefused(schema, path, /pattern/),
  );
});

describe("a schema", () => {
  afterAll(() => ground.expectStanding());

  test.each([
    ["is no JSON", "{", "", /JSON/],
    ["is a number", "1", "", /JSON object or a boolean/],
    ["has a member twice", '{"type":"string","type":"number"}', "", /"type"/],
    ["has a type that is none", { type: "text" }, "/type", /./],
    ["has required that is no list", { required: "id" }, "/required", /./],
    ["refers to what is not there", { properties: { a: { $ref: "#/$defs/none" } } }, "/properties/a/$ref", /none/],
    ["refers to another document", { $ref: "other.json" }, "/$ref", /other\.json/],
    ["refers to a file", { $ref: "file:///etc/passwd" }, "/$ref", /file/],
  ] as const)("that %s is refused by Tool, and by place where there is one", async (_, schema, path, said) => {
    const before = await sessionCount();
    const answer = await create({ first: true, second: schema });
    expect(answer).toMatchObject({
      httpStatus: 400,
      reason: "invalid_schema",
      metadata: { tool: "second", ...(path === "" ? {} : { path }) },
    });
    expect(answer.message).toMatch(said);
    expect(await sessionCount()).toBe(before);
  });

  test("is never fetched", async () => {
    let asked = 0;
    const elsewhere = createServer((_, response) => {
      asked++;
      response.end('{"type":"string"}');
    }).listen(0, "127.0.0.1");
    try {
      await new Promise((resolve) => elsewhere.once("listening", resolve));
      const url = `http://127.0.0.1:${(elsewhere.address() as AddressInfo).port}/schema.json`;
      await expectRefused({ properties: { a: { $ref: url } } }, "/properties/a/$ref", /127\.0\.0\.1/);
      await expectRefused({ $schema: url }, "/$schema", /dialect/);
      const { message } = await create({ first: { $id: url, type: "string" } });
      expect(message).toBe("");
      expect(asked).toBe(0);
    } finally {
      elsewhere.close();
    }
  });

  test("shares its $id with others and is still its own, in one session and in two", async () => {
    const $id = "https://example.com/shared";
    const schema = (type: string) => ({ $id, $ref: "#/$defs/value", $defs: { value: { $id: "value", type } } });
    const one = await create({ first: schema("string"), second: schema("number") });
    const other = await create({ first: schema("boolean") });
    const { sessionId } = one.body.session;
    const { sessionId: otherId } = other.body.session;
    for (const [session, name, good, bad] of [
      [sessionId, "first", "x", 1],
      [sessionId, "second", 1, "x"],
      [otherId, "first", true, "x"],
    ] as const) {
      expect(await ending(session, name, good)).toBe("ok");
      expect(await ending(session, name, bad)).toBe("invalid_input");
    }
  });

  test("touches no prototype, and its words are words", async () => {
    const text = '{"properties":{"__proto__":{"type":"string"},"constructor":{"type":"number"}},"required":["__proto__"]}';
    const { body } = await create({ first: text });
    const { sessionId } = body.session as Json;
    const raw = async (inputJson: string): Promise<string> => {
      const request = { sessionId, callId: crypto.randomUUID(), name: "first", environment: "here", inputJson };
      const { outcome } = await ground.wire.ask("ToolCallService/CallTool", request);
      return outcome.ok?.valueJson ?? outcome.error.code;
    };
    expect(await raw('{"__proto__":"x","constructor":1}')).toBe('{"__proto__":"x","constructor":1}');
    expect(await raw("{}")).toBe("invalid_input");
    expect(await raw('{"__proto__":1}')).toBe("invalid_input");
    expect(await raw('{"__proto__":"x","constructor":"y"}')).toBe("invalid_input");
  });
});

describe("H22: three thousand sessions with the same Tools", () => {
  test("cost no memory that stays, and the last is created as fast as the first", async () => {
    const folder = mkdtempSync(join(tmpdir(), "brain-many-"));
    const args = ["serve", "--listen", "127.0.0.1:0", "--data-dir", folder, "--log-level", "warn"];
    const server = new BrainCommand(args, { probed: true, environment: { BRAIN_API_TOKEN: "many" } });
    try {
      const wire = new ConnectJson(await server.listening(), "many");
      const host = await wire.ask("HostService/RegisterHost", {});
      const creation = async (): Promise<number> => {
        // Fresh texts every time: nothing is shared but what they say.
        const tools = Array.from({ length: 5 }, (_, n) => ({
          tool: {
            name: `tool_${n}`,
            description: "d".repeat(200),
            inputSchemaJson: JSON.stringify({
              type: "object",
              properties: { [`p${n}`]: { type: "string", pattern: `^a${n}` } },
              required: [`p${n}`],
            }),
          },
          environment: "app",
          implementation: { hostFunction: {} },
        }));
        const began = performance.now();
        const { session } = await wire.ask("SessionService/CreateSession", {
          environments: [{ name: "app", host: { hostId: host.hostId } }],
          tools,
        });
        const ms = performance.now() - began;
        await wire.ask("SessionService/EndSession", { sessionId: session.sessionId });
        return ms;
      };
      const first: number[] = [];
      for (let n = 0; n < 500; n++) first.push(await creation());
      const before = await server.memory();
      const rest: number[] = [];
      for (let n = 500; n < 3_000; n++) rest.push(await creation());
      const after = await server.memory();
      expect((after.heapUsed - before.heapUsed) / 2 ** 20, "MiB that the server grew").toBeLessThan(20);
      expect(median(rest), "ms of creating one of the last").toBeLessThan(3 * median(first.slice(0, 100)));
      expect(server.stderr).toEqual([]);
    } finally {
      await server[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true, force: true });
    }
  }, 120_000);
});

function median(numbers: readonly number[]): number {
  return numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? Number.NaN;
}
