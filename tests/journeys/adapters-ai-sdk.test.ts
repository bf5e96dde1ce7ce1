import { Brain, hostEnv, isBrainError, jsonSchema, type Outcome, outcome, type Session, tool } from "@aexhq/brain";
import { type AiSdkToolsOptions, toAiSdkTools } from "@aexhq/brain/ai-sdk";
import { APICallError, generateText, type StepResult, stepCountIs, streamText, type ToolSet } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { deferred } from "../support/deferred.js";
import { generated, type Step, scriptedModel, toolOutputs } from "../support/scripted-model.js";
import { ServerProcess } from "../support/server-process.js";

let server: ServerProcess;
let brain: Brain;
let ran: string[];
const here = hostEnv({ name: "here" });
const there = hostEnv({ name: "there" });

const lookup = tool({
  name: "lookup",
  description: "Look up one item.",
  input: z.object({ id: z.string() }),
  output: z.object({ value: z.string() }),
  run: ({ id }) => {
    ran.push(id);
    return { value: `item:${id}` };
  },
});
const refuse = tool({
  name: "refuse",
  description: "Refuses.",
  input: z.object({}),
  run: () => outcome.error({ code: "out_of_stock", message: "there is none left", retryable: true, details: { until: "Monday" } }),
});
const where = tool({
  name: "where",
  description: "Says where it runs.",
  input: z.object({}),
  options: z.object({ place: z.string() }),
  run: (_, ctx) => {
    ran.push(ctx.options.place);
    return ctx.options.place;
  },
});
const whereBoth = () => [where({ env: here, place: "here" }), where({ env: there, place: "there" })];

beforeAll(async () => {
  server = await ServerProcess.start();
  brain = new Brain({ baseUrl: server.url, log: () => undefined });
});
afterAll(async () => {
  await brain.close();
  await server[Symbol.asyncDispose]();
});
beforeEach(() => {
  ran = [];
});

/** Plays the steps against the session's Tools and hands back everything that came of it. */
async function play(
  session: Session,
  options: AiSdkToolsOptions,
  ...steps: Step[]
): Promise<{ text: string; model: MockLanguageModelV3; steps: StepResult<ToolSet>[] }> {
  const model = scriptedModel(...steps);
  const tools = await toAiSdkTools(session, options);
  const generation = await generateText({ model, tools, prompt: "go", stopWhen: stepCountIs(steps.length) });
  return { text: generation.text, model, steps: generation.steps };
}

async function refusal(request: Promise<unknown>): Promise<string> {
  const error: unknown = await request.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!isBrainError(error)) throw new Error(`it was not refused: ${String(error)}`);
  return error.message;
}

const call = (toolName: string, input: unknown, toolCallId = "call-1") => [{ toolCallId, toolName, input }];

describe("the AI SDK, given a session's Tools", () => {
  test("shows the model the canonical definition, runs what it asks for through Brain, and shows it the value", async () => {
    const session = await brain.sessions.create({ tools: [lookup({ env: here })] });
    const { text, model } = await play(session, {}, call("lookup", { id: "7" }), "It is item 7.");
    expect(text).toBe("It is item 7.");
    expect(model.doGenerateCalls[0]?.tools).toEqual([
      {
        type: "function",
        name: "lookup",
        description: "Look up one item.",
        inputSchema: JSON.parse(lookup.definition.inputSchemaJson),
      },
    ]);
    expect(toolOutputs(model)).toEqual([{ type: "json", value: { value: "item:7" } }]);
    expect(await session.getToolCall({ callId: "call-1" })).toMatchObject({
      name: "lookup",
      environment: "here",
      outcome: { status: "ok", value: { value: "item:7" } },
    });
  });

  test("streams all the same", async () => {
    const session = await brain.sessions.create({ tools: [lookup({ env: here })] });
    const model = scriptedModel(call("lookup", { id: "8" }), "done");
    const stream = streamText({ model, tools: await toAiSdkTools(session), prompt: "go", stopWhen: stepCountIs(2) });
    expect(await stream.text).toBe("done");
    expect(toolOutputs(model)).toEqual([{ type: "json", value: { value: "item:8" } }]);
  });

  test("calls several Tools of one step at once, each under its own id", async () => {
    const session = await brain.sessions.create({ tools: [lookup({ env: here })] });
    const asked = [...call("lookup", { id: "a" }, "one"), ...call("lookup", { id: "b" }, "two")];
    await play(session, {}, asked, "done");
    expect(ran.sort()).toEqual(["a", "b"]);
    expect((await session.getToolCall({ callId: "two" })).outcome).toEqual({ status: "ok", value: { value: "item:b" } });
  });

  test("gets an invalid input back as an invalid_input that is on record, and runs nothing", async () => {
    const session = await brain.sessions.create({ tools: [lookup({ env: here })] });
    const { model, steps } = await play(session, {}, call("lookup", { id: 7 }), "sorry");
    expect(ran).toEqual([]);
    const [error] = toolOutputs(model) as { type: string; value: string }[];
    expect(error?.type).toBe("error-text");
    expect(error?.value).toMatch(/^error invalid_input: .*\/id/);
    const part = steps[0]?.content.find(({ type }) => type === "tool-error");
    expect(part).toMatchObject({ error: { name: "OutcomeError", status: "error", code: "invalid_input" } });
    expect((await session.getToolCall({ callId: "call-1" })).outcome).toMatchObject({ status: "error", code: "invalid_input" });
  });

  test("gets a number that JSON cannot carry exactly back as an invalid_input too, and calls nothing", async () => {
    const any = tool({ name: "any", description: "", input: jsonSchema({ type: "object" }), run: () => ran.push("any") });
    const session = await brain.sessions.create({ tools: [any({ env: here })] });
    const { model } = await play(session, {}, call("any", '{"n": 9007199254740993}'), "sorry");
    expect(toolOutputs(model)).toEqual([{ type: "error-text", value: expect.stringMatching(/^error invalid_input: .*\/n/) }]);
    expect(ran).toEqual([]);
    expect((await session.describe()).lastSequence).toBe(1);
  });

  test("shows the model a failure's code and message, and the program all of it", async () => {
    const session = await brain.sessions.create({ tools: [refuse({ env: here })] });
    const { model, steps } = await play(session, {}, call("refuse", {}), "sorry");
    expect(toolOutputs(model)).toEqual([{ type: "error-text", value: "error out_of_stock: there is none left" }]);
    expect(steps[0]?.content.find(({ type }) => type === "tool-error")).toMatchObject({
      error: { code: "out_of_stock", retryable: true, details: { until: "Monday" } },
    });
  });

  test("with failures returned shows the model the whole Failure, and the program every Outcome", async () => {
    const session = await brain.sessions.create({
      tools: [refuse({ env: here }), lookup({ env: here }), where({ env: here, place: "x" })],
    });
    const asked = [...call("refuse", {}, "1"), ...call("lookup", { id: "7" }, "2"), ...call("where", {}, "3")];
    const { model, steps } = await play(session, { failures: "return" }, asked, "sorry");
    const failure = {
      status: "error",
      code: "out_of_stock",
      message: "there is none left",
      retryable: true,
      details: { until: "Monday" },
    };
    expect(toolOutputs(model)).toEqual([
      { type: "error-json", value: failure },
      { type: "json", value: { value: "item:7" } },
      { type: "text", value: "x" },
    ]);
    expect(steps[0]?.toolResults.map(({ output }) => output as Outcome)).toEqual([
      failure,
      { status: "ok", value: { value: "item:7" } },
      { status: "ok", value: "x" },
    ]);
  });

  test("runs one call id once, however often it is asked for, and answers what is on record", async () => {
    const session = await brain.sessions.create({ tools: [lookup({ env: here })] });
    await play(session, {}, call("lookup", { id: "7" }), "done");
    const { model } = await play(session, {}, call("lookup", { id: "7" }), "done again");
    expect(ran).toEqual(["7"]);
    expect(toolOutputs(model)).toEqual([{ type: "json", value: { value: "item:7" } }]);
    const { model: other } = await play(session, {}, call("lookup", { id: "8" }), "and again");
    expect(toolOutputs(other)).toEqual([{ type: "error-text", value: expect.stringContaining("call-1") }]);
    expect(ran).toEqual(["7"]);
  });

  test("with call ids of the program's own runs calls that a provider has given one id", async () => {
    const session = await brain.sessions.create({ tools: [lookup({ env: here })] });
    let calls = 0;
    const options: AiSdkToolsOptions = { callId: ({ toolCallId, name }) => `${name}-${toolCallId}-${++calls}` };
    await play(session, options, call("lookup", { id: "7" }), call("lookup", { id: "8" }), "done");
    expect(ran).toEqual(["7", "8"]);
    expect((await session.getToolCall({ callId: "lookup-call-1-2" })).outcome).toMatchObject({ status: "ok" });
  });

  test("repeats calls of the model where it fails, and never one of a Tool", async () => {
    const session = await brain.sessions.create({ tools: [lookup({ env: here }), refuse({ env: here })] });
    const answers = [generated([...call("lookup", { id: "7" }, "1"), ...call("refuse", {}, "2")]), undefined, generated("done")];
    const model = new MockLanguageModelV3({
      doGenerate: () => {
        const answer = answers.shift();
        if (answer !== undefined) return Promise.resolve(answer);
        // The AI SDK waits as long as the provider says before it asks again.
        const responseHeaders = { "retry-after-ms": "1" };
        throw new APICallError({
          message: "overloaded",
          url: "",
          requestBodyValues: {},
          statusCode: 529,
          isRetryable: true,
          responseHeaders,
        });
      },
    });
    const { text } = await generateText({ model, tools: await toAiSdkTools(session), prompt: "go", stopWhen: stepCountIs(2) });
    expect(text).toBe("done");
    expect(model.doGenerateCalls).toHaveLength(3);
    expect(ran).toEqual(["7"]);
    const { lastSequence } = await session.describe();
    expect(lastSequence).toBe(5);
  });

  test("that is aborted cancels the call, which is recorded as cancelled", async () => {
    const running = deferred();
    const stopped = deferred<unknown>();
    const slow = tool({
      name: "slow",
      description: "",
      input: z.object({}),
      run: (_, { signal }) => {
        running.resolve();
        return new Promise((_resolve, reject) => {
          signal.addEventListener("abort", () => {
            stopped.resolve((signal.reason as { code?: unknown }).code);
            reject(signal.reason);
          });
        });
      },
    });
    const session = await brain.sessions.create({ tools: [slow({ env: here })] });
    const controller = new AbortController();
    const model = scriptedModel(call("slow", {}), "never said");
    const generating = generateText({ model, tools: await toAiSdkTools(session), prompt: "go", abortSignal: controller.signal });
    await running.promise;
    controller.abort(new Error("the user went away"));
    await generating.catch(() => undefined);
    expect(await stopped.promise).toBe("cancel_requested");
    expect((await session.getToolCall({ callId: "call-1" })).outcome).toMatchObject({ status: "cancelled", code: "cancel_requested" });
  });

  test("in a session that has ended is told so, by a tool-error with Brain's reason", async () => {
    const session = await brain.sessions.create({ tools: [lookup({ env: here })] });
    await session.end();
    const { steps } = await play(session, {}, call("lookup", { id: "7" }), "sorry");
    expect(steps[0]?.content.find(({ type }) => type === "tool-error")).toMatchObject({ error: { reason: "session_ended" } });
  });
});

describe("a Tool with several placements", () => {
  test("is refused until somebody says who chooses, by name", async () => {
    const session = await brain.sessions.create({ tools: whereBoth() });
    expect(await refusal(toAiSdkTools(session))).toContain('Tool "where" is placed in the Environments "here", "there"');
    expect(await refusal(toAiSdkTools(session, { environment: {} }))).toContain('environment: { "where": "here" }');
    expect(await refusal(toAiSdkTools(session, { environment: { where: "nowhere" } }))).toContain('not placed in Environment "nowhere"');
    expect(await refusal(toAiSdkTools(session, { environment: { whence: here } }))).toContain('no Tool "whence"');
    for (const environment of [here as never, "here" as never, null as never]) {
      expect(await refusal(toAiSdkTools(session, { environment }))).toContain("expected a map");
    }
    expect(await refusal(toAiSdkTools(session, { environment: { where: 7 as never } }))).toContain("neither a name nor an Environment");
  });

  test("runs where the map says", async () => {
    const session = await brain.sessions.create({ tools: whereBoth() });
    const { model } = await play(session, { environment: { where: there } }, call("where", {}), "done");
    expect(model.doGenerateCalls[0]?.tools?.[0]).toMatchObject({ inputSchema: JSON.parse(where.definition.inputSchemaJson) });
    expect(ran).toEqual(["there"]);
  });

  test("runs where the function says, which is told the call", async () => {
    const session = await brain.sessions.create({ tools: whereBoth() });
    const asked: unknown[] = [];
    const environment: AiSdkToolsOptions["environment"] = (policyCall) => {
      asked.push(policyCall);
      return Promise.resolve(there);
    };
    await play(session, { environment }, call("where", {}), "done");
    expect(asked).toEqual([{ name: "where", environments: ["here", "there"], input: {}, callId: "call-1" }]);
    expect(ran).toEqual(["there"]);
  });

  test("runs nowhere else when the function names an Environment that is not its own", async () => {
    const session = await brain.sessions.create({ tools: [...whereBoth(), lookup({ env: hostEnv({ name: "elsewhere" }) })] });
    const { model } = await play(session, { environment: () => "elsewhere" }, call("where", {}), "sorry");
    expect(toolOutputs(model)).toEqual([{ type: "error-text", value: expect.stringMatching(/^error placement_not_found/) }]);
    expect(ran).toEqual([]);
  });

  test("runs where the model says that has a selector, and gets its input unwrapped", async () => {
    const session = await brain.sessions.create({ tools: [...whereBoth(), lookup({ env: here })] });
    const asked = [...call("where", { environment: "there", input: {} }, "1"), ...call("lookup", { id: "7" }, "2")];
    const { model } = await play(session, { environment: "selector" }, asked, "done");
    const [shownWhere, shownLookup] = model.doGenerateCalls[0]?.tools ?? [];
    expect(shownWhere).toMatchObject({
      inputSchema: {
        type: "object",
        properties: { environment: { type: "string", enum: ["here", "there"] }, input: { type: "object" } },
        required: ["environment", "input"],
        additionalProperties: false,
      },
    });
    expect(shownLookup).toMatchObject({ inputSchema: JSON.parse(lookup.definition.inputSchemaJson) });
    expect(ran.sort()).toEqual(["7", "there"]);
    const started = [];
    for await (const { entry } of session.records()) {
      if (entry.case === "toolCallStarted") started.push([entry.value.environment, entry.value.inputJson]);
      if (started.length === 2) break;
    }
    expect(started.sort()).toEqual([
      ["here", '{"id":"7"}'],
      ["there", "{}"],
    ]);
  });

  test.each([
    [{ environment: "nowhere", input: {} }, /\/environment: choose one of "here", "there"/],
    [{ environment: ["here"], input: {} }, /\/environment: choose one of/],
    [{ input: {} }, /environment is missing/],
    [{ environment: "here" }, /input is missing/],
    [{ environment: "here", input: {}, id: "7" }, /only environment and input may be given/],
    [["here", {}], /expected an object with environment and input/],
  ])("is not called with the selector filled in as %j", async (input, why) => {
    const session = await brain.sessions.create({ tools: whereBoth() });
    const { model } = await play(session, { environment: "selector" }, call("where", input), "sorry");
    const [output] = toolOutputs(model) as { type: string; value: string }[];
    expect(output?.value).toMatch(/^error invalid_input: /);
    expect(output?.value).toMatch(why);
    expect(ran).toEqual([]);
  });
});

describe("a Tool whose input is no object", () => {
  test("is shown with its input under a name, which is unwrapped before the call", async () => {
    const shout = tool({ name: "shout", description: "", input: z.string().min(2), run: (word) => word.toUpperCase() });
    const session = await brain.sessions.create({ tools: [shout({ env: here })] });
    const asked = [...call("shout", { input: "hello" }, "1"), ...call("shout", { input: "x" }, "2"), ...call("shout", { word: "x" }, "3")];
    const { model } = await play(session, {}, asked, "done");
    expect(model.doGenerateCalls[0]?.tools?.[0]).toMatchObject({
      inputSchema: { type: "object", properties: { input: { type: "string", minLength: 2 } }, required: ["input"] },
    });
    expect(toolOutputs(model)).toEqual([
      { type: "text", value: "HELLO" },
      { type: "error-text", value: expect.stringContaining("invalid_input") },
      { type: "error-text", value: expect.stringContaining("input is missing") },
    ]);
  });
});
