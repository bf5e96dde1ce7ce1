import { Brain, hostEnv, isBrainError, jsonSchema, type Session, tool } from "@aexhq/brain";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { CaseGround } from "../support/case-ground.js";
import { ConnectJson, type Json, type JsonAnswer } from "../support/connect-json.js";

let ground: CaseGround;
let wire: ConnectJson;
beforeAll(async () => {
  ground = await CaseGround.open();
  wire = new ConnectJson(ground.server.url, ground.token);
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

/** A Tool in an Environment as the wire has it. */
function placed(name: string, environment: string, more: { description?: string; schema?: unknown; configuration?: unknown } = {}): Json {
  const { description = "", schema = true, configuration } = more;
  return {
    tool: { name, description, inputSchemaJson: JSON.stringify(schema) },
    environment,
    implementation: { hostFunction: {} },
    ...(configuration === undefined ? {} : { configurationJson: JSON.stringify(configuration) }),
  };
}

const environment = (name: string, hostId = ground.host.hostId): Json => ({ name, host: { hostId } });

const create = (environments: Json[], tools: Json[]): Promise<JsonAnswer> =>
  wire.post("SessionService/CreateSession", { environments, tools });

async function sessionCount(): Promise<number> {
  let count = 0;
  let pageToken = "";
  do {
    const page = await wire.ask("SessionService/ListSessions", { pageToken, pageSize: 1000 });
    count += page.sessions?.length ?? 0;
    pageToken = page.nextPageToken ?? "";
  } while (pageToken !== "");
  return count;
}

async function refusalOf(request: () => unknown): Promise<{ reason: string; message: string }> {
  try {
    await request();
  } catch (error) {
    if (isBrainError(error)) return error;
    throw error;
  }
  throw new Error("it was not refused");
}

describe("H23: names of Tools and Environments", () => {
  const bad = [
    ["the empty name", ""],
    ["a blank", " "],
    ["a dot", "a.b"],
    ["a slash", "a/b"],
    ["a way out of a folder", "../x"],
    ["a letter beyond ASCII", "é".normalize("NFC")],
    ["the same letter in two characters", "é".normalize("NFD")],
    ["a line end", "a\n"],
    ["a character NUL", "a\u0000"],
    ["65 letters", "a".repeat(65)],
    ["300 letters", "a".repeat(300)],
  ] as const;

  test.each(bad)("are refused at declaration by the SDK and by the server, naming the name: %s", async (_, name) => {
    // A long one is cut, so the closing quote may stand further on.
    const shown = JSON.stringify(name.slice(0, 80)).slice(0, -1);
    const declared = await refusalOf(() => tool({ name, description: "", input: jsonSchema(true), run: () => null }));
    expect(declared.reason).toBe("invalid_argument");
    expect(declared.message).toContain(shown);
    const placedIn = await refusalOf(() => hostEnv({ name }));
    expect(placedIn.reason).toBe("invalid_argument");
    expect(placedIn.message).toContain(shown);

    const before = await sessionCount();
    const ofTool = await create([environment("app")], [placed(name, "app")]);
    expect(ofTool).toMatchObject({ httpStatus: 400, reason: "invalid_argument", metadata: { field: "tools[0].tool.name" } });
    expect(ofTool.message).toContain(shown);
    const ofEnvironment = await create([environment(name)], [placed("plain", name)]);
    expect(ofEnvironment).toMatchObject({ httpStatus: 400, reason: "invalid_argument", metadata: { field: "environments[0].name" } });
    expect(ofEnvironment.message).toContain(shown);
    expect(await sessionCount()).toBe(before);
  });

  test("that are accepted are listed unchanged, are callable, and never meet one another", async () => {
    const names = ["a", "A", "a".repeat(64), "__proto__", "constructor", "toString", "hasOwnProperty", "-", "_", "0"];
    const pairs = names.flatMap((name) => [
      { name, in: "app" },
      { name: "plain", in: name },
    ]);
    for (const { name, in: where } of pairs) await ground.host.serve({ name, environment: where });
    const tools = pairs.map(({ name, in: where }) =>
      tool({ name, description: "", input: jsonSchema(true), run: () => null })({
        env: hostEnv({ name: where, hostId: ground.host.hostId }),
      }),
    );
    const session = await ground.caller.sessions.create({ tools });
    const catalogue = await session.describe();
    expect(catalogue.tools.map((placement) => ({ name: placement.tool?.name, in: placement.environment }))).toEqual(pairs);
    expect(catalogue.environments.map(({ name }) => name)).toEqual(["app", ...names]);

    for (const { name, in: where } of pairs) {
      const ending = await session.callTool({ name, environment: where, input: { n: 1 } });
      expect(ending).toEqual({ status: "ok", value: { input: { n: 1 }, environment: where, name } });
    }
    // Words that exist on every object are not declared because of that, and pairs are not mixed up.
    for (const [name, where] of [
      ["valueOf", "app"],
      ["isPrototypeOf", "app"],
      ["a", "A"],
      ["__proto__", "__proto__"],
      ["constructor", "constructor"],
    ] as const) {
      const ending = await session.callTool({ name, environment: where, input: 1 });
      expect(ending).toMatchObject({ status: "error", code: "placement_not_found" });
    }
    expect(ground.runs(session.sessionId)).toBe(pairs.length);
    await ground.expectStanding(session);
  });
});

describe("H24: placements of one Tool", () => {
  test("twice in one Environment are refused, naming both, and leave no session behind", async () => {
    const before = await sessionCount();
    const { plain } = ground.tools;
    const bySdk = await refusalOf(() => ground.caller.sessions.create({ tools: [plain({ env: ground.app }), plain({ env: ground.app })] }));
    expect(bySdk.reason).toBe("placement_duplicate");
    expect(bySdk.message).toMatch(/"plain".*"app"/);
    const byServer = await create([environment("app")], [placed("plain", "app"), placed("plain", "app")]);
    expect(byServer).toMatchObject({ httpStatus: 400, reason: "placement_duplicate", metadata: { tool: "plain", environment: "app" } });
    expect(await sessionCount()).toBe(before);
  });

  test("in two Environments of one name are refused when those differ, and one when they are equal", async () => {
    const before = await sessionCount();
    const { plain, wait } = ground.tools;
    const { hostId: other } = await wire.ask("HostService/RegisterHost", {});
    const local = hostEnv({ name: "local", hostId: ground.host.hostId });
    const differing = hostEnv({ name: "local", hostId: other });
    const bySdk = await refusalOf(() => ground.caller.sessions.create({ tools: [plain({ env: local }), wait({ env: differing })] }));
    expect(bySdk.reason).toBe("environment_conflict");
    expect(bySdk.message).toContain("local");
    const byServer = await create([environment("local"), environment("local", other)], [placed("plain", "local"), placed("wait", "local")]);
    expect(byServer).toMatchObject({ httpStatus: 400, reason: "environment_conflict", metadata: { environment: "local" } });
    for (const shown of ["local", ground.host.hostId, other]) expect(byServer.message).toContain(shown);
    expect(await sessionCount()).toBe(before);

    const equal = hostEnv({ name: "local", hostId: ground.host.hostId });
    const session = await ground.caller.sessions.create({ tools: [plain({ env: local }), wait({ env: equal })] });
    expect((await session.describe()).environments.map(({ name }) => name)).toEqual(["local"]);
    const twice = await create([environment("local"), environment("local")], [placed("plain", "local")]);
    expect(twice.body.session.environments).toHaveLength(1);
  });

  test("that nobody declared together are refused as a result, without dispatch to any other placement", async () => {
    const { plain, wait } = ground.tools;
    const other = hostEnv({ name: "other", hostId: ground.host.hostId });
    const session = await ground.caller.sessions.create({ tools: [plain({ env: ground.app }), wait({ env: other })] });
    const ending = await session.callTool({ callId: "one", name: "plain", environment: "other", input: 1 });
    expect(ending).toMatchObject({ status: "error", code: "placement_not_found", retryable: false });
    expect(ending.status === "error" && ending.message).toMatch(/plain.*other.*app/);
    expect(await session.getToolCall({ callId: "one" })).toMatchObject({ instanceId: undefined, outcome: ending });
    const undeclared = await create([environment("app")], [placed("plain", "nowhere")]);
    expect(undeclared).toMatchObject({
      httpStatus: 400,
      reason: "environment_not_found",
      metadata: { tool: "plain", environment: "nowhere" },
    });
    expect(ground.runs(session.sessionId)).toBe(0);
    await ground.expectStanding(session);
  });
});

describe("H25: one Tool in two Environments", () => {
  const schema = { type: "object", properties: { id: { type: "string" }, n: { type: "number" } }, required: ["id"] };
  const turned = { required: ["id"], properties: { n: { type: "number" }, id: { type: "string" } }, type: "object" };
  const wider = { ...schema, properties: { ...schema.properties, more: { type: "string" } } };
  const one = { description: "Look up.", schema };

  test.each([
    ["a description that differs by one blank", { ...one, description: "Look up. " }, "description"],
    ["one more optional field", { ...one, schema: wider }, "/properties/more"],
  ])("is refused with %s, by the SDK and by the server", async (_, other, named) => {
    const before = await sessionCount();
    const factory = ({ description, schema: input }: typeof one) =>
      tool({ name: "lookup", description, input: jsonSchema(input), run: () => null });
    const bySdk = await refusalOf(() =>
      ground.caller.sessions.create({
        tools: [factory(one)({ env: ground.app }), factory(other)({ env: hostEnv({ name: "other", hostId: ground.host.hostId }) })],
      }),
    );
    expect(bySdk.reason).toBe("definition_conflict");
    expect(bySdk.message).toContain("lookup");
    const byServer = await create(
      [environment("app"), environment("other")],
      [placed("lookup", "app", one), placed("lookup", "other", other)],
    );
    expect(byServer).toMatchObject({ httpStatus: 400, reason: "definition_conflict", metadata: { tool: "lookup", environment: "other" } });
    expect(byServer.message).toContain(named);
    expect(await sessionCount()).toBe(before);
  });

  test.each([
    ["the order of keys in the schema", { ...one, schema: turned }],
    ["the options", { ...one, configuration: { prefix: "b:" } }],
  ])("is accepted when only %s differs", async (_, other) => {
    const answer = await create(
      [environment("app"), environment("other")],
      [placed("lookup", "app", { ...one, configuration: { prefix: "a:" } }), placed("lookup", "other", other)],
    );
    expect(answer.httpStatus).toBe(200);
    expect(answer.body.session.tools).toHaveLength(2);
    const name = `lookup_${crypto.randomUUID().slice(0, 8)}`;
    const bySdk = (input: typeof schema, env: string) =>
      tool({ name, description: "", input: jsonSchema(input), run: () => null })({
        env: hostEnv({ name: env, hostId: ground.host.hostId }),
      });
    await ground.caller.sessions.create({ tools: [bySdk(schema, "app"), bySdk(turned, "other")] });
  });

  test("stays what it was when the schema object is changed and the host comes back with another schema", async () => {
    const mutable = structuredClone(schema) as { required: string[]; properties: Record<string, unknown> };
    await ground.host.serve({ name: "strict", schema });
    const strict = tool({ name: "strict", description: "", input: jsonSchema(mutable), run: () => null });
    const session = await ground.caller.sessions.create({ tools: [strict({ env: ground.app })] });
    const before = await session.describe();
    await expectVerdicts(session);

    mutable.required.push("n");
    delete mutable.properties["id"];
    await expectVerdicts(session);
    expect((await session.describe()).tools).toEqual(before.tools);
    // Nor does what the server answers reach into what it keeps: every reading is its own.
    const copy = await session.describe();
    copy.tools.length = 0;
    expect((await session.describe()).tools).toEqual(before.tools);

    // Another process attaches as the same host with another definition under the same name; calls of this session
    // are not for it, and the definition of the session is still the one that judges.
    const credentials = { hostId: ground.host.hostId, hostToken: ground.host.hostToken };
    await using changed = new Brain({ baseUrl: ground.server.url, token: ground.token, credentials, log: () => undefined });
    let strayed = 0;
    const other = tool({
      name: "strict",
      description: "",
      input: jsonSchema({ type: "number" }),
      run: () => {
        strayed++;
        return "strayed";
      },
    });
    await changed.serve({ environment: "app", tools: [other] });
    for (let count = 0; count < 5; count++) await expectVerdicts(session);
    expect(strayed).toBe(0);
    expect((await session.describe()).tools).toEqual(before.tools);
    const calls = kindsOfStarts(await ground.records(session));
    expect(ground.runs(session.sessionId)).toBe(calls / 2);
    await changed.close();
    await ground.expectStanding(session);
    expect((await session.describe()).tools).toEqual(before.tools);
  });

  /** One call that the schema accepts and one that it does not. */
  async function expectVerdicts(session: Session): Promise<void> {
    const call = { name: "strict", environment: "app" };
    expect(await session.callTool({ ...call, input: { id: "x" } })).toMatchObject({ status: "ok", value: { input: { id: "x" } } });
    expect(await session.callTool({ ...call, input: { n: 1 } })).toMatchObject({ status: "error", code: "invalid_input" });
  }

  const kindsOfStarts = (records: readonly { entry: { case: string | undefined } }[]): number =>
    records.filter(({ entry }) => entry.case === "toolCallStarted").length;
});
