import { type Brain, jsonSchema, type Session, tool } from "@aexhq/brain";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ConnectJson, Json } from "../support/connect-json.js";
import { ContractGround } from "../support/contract-ground.js";

/**
 * The promise is that nothing in one session delays a call in another by more than 100 ms. Each test prints what it
 * measured; a machine that builds something else at the same time delays everything, and some calls by much, so what is
 * asserted is more, of all but a few calls.
 */
const DELAY_MS = 400;
const LONGEST_DELAY_MS = 2_000;
const CALLS = 30;

let ground: ContractGround;
let wire: ConnectJson;
let caller: Brain;
let hostId: string;
let innocent: Session;
beforeAll(async () => {
  ground = await ContractGround.open();
  ({ wire } = ground);
  caller = ground.cases.caller;
  // The strangers' function is one of this process, which takes whatever their schemas let through.
  const taken = tool({ name: "taken", description: "", input: jsonSchema(true), run: ground.runs.counting(() => null) });
  await ground.brain.serve({ environment: "here", tools: [taken] });
  const [environment] = (await (await ground.session(taken({ env: ground.here }))).describe()).environments;
  hostId = environment?.kind.case === "host" ? environment.kind.value.hostId : "";
  // The innocent one is served by another process, and called over a connection of its own.
  const { wait } = ground.cases.tools;
  innocent = await caller.sessions.create({ tools: [wait({ env: ground.cases.app })] });
  await quiet();
});
afterAll(async () => {
  await ground.cases.expectStanding(innocent);
  await ground.expectStanding();
  await ground[Symbol.asyncDispose]();
});

/** One call of the innocent session, and how long it took. */
async function callMs(): Promise<number> {
  const began = performance.now();
  const ending = await innocent.callTool({ name: "wait", environment: "app", input: { ms: 0 } });
  expect(ending).toEqual({ status: "ok", value: { v: 1 } });
  return performance.now() - began;
}

async function quiet(): Promise<number> {
  const times: number[] = [];
  for (let call = 0; call < CALLS; call++) times.push(await callMs());
  return at(times, 0.5);
}

/** The time that this share of the calls took at most. */
const at = (times: readonly number[], share: number): number =>
  times.toSorted((a, b) => a - b)[Math.ceil(times.length * share) - 1] ?? Number.NaN;

function create(schema: unknown): Promise<{ httpStatus: number; body: Json; reason: string | undefined; message: string }> {
  return wire.post("SessionService/CreateSession", {
    environments: [{ name: "here", host: { hostId } }],
    tools: [
      { tool: { name: "taken", inputSchemaJson: JSON.stringify(schema) }, environment: "here", implementation: { hostFunction: {} } },
    ],
  });
}

async function createdWith(schema: unknown): Promise<string> {
  const { body, message } = await create(schema);
  expect(message).toBe("");
  return body.session.sessionId;
}

const call = (sessionId: string, input: unknown): Promise<Json> =>
  wire.ask("ToolCallService/CallTool", {
    sessionId,
    callId: crypto.randomUUID(),
    name: "taken",
    environment: "here",
    inputJson: JSON.stringify(input),
  });

/** Measures calls of the innocent session while four strangers at a time do what they can. */
async function expectUndelayed(what: string, attack: (n: number) => Promise<unknown>): Promise<void> {
  const idle = await quiet();
  let over = false;
  let attacks = 0;
  const strangers = Array.from({ length: 4 }, async () => {
    while (!over) await attack(attacks++);
  });
  const times: number[] = [];
  const began = performance.now();
  while (times.length < CALLS || performance.now() - began < 1_000) times.push(await callMs());
  over = true;
  await Promise.all(strangers);
  const [most, longest] = [at(times, 0.95) - idle, at(times, 1) - idle];
  console.log(
    `${what}: ${times.length} calls beside ${attacks} attacks were delayed by ${(at(times, 0.5) - idle).toFixed(1)} ms as a rule, ` +
      `${most.toFixed(0)} ms at 95 %, ${longest.toFixed(0)} ms at most; a call of the quiet server takes ${idle.toFixed(1)} ms`,
  );
  expect(most, "ms that nearly all calls were delayed at most").toBeLessThan(DELAY_MS);
  expect(longest, "ms that one call was delayed").toBeLessThan(LONGEST_DELAY_MS);
}

describe("a call is not delayed by another session's", { timeout: 60_000 }, () => {
  test("pattern that backtracks without end, which fails its own call as too costly", async () => {
    const sessionId = await createdWith({ type: "string", pattern: "^(a+)+$(?!b)" });
    const { outcome } = await call(sessionId, `${"a".repeat(60)}!`);
    expect(outcome.error).toMatchObject({ code: "schema_too_costly" });
    expect(outcome.error.message).toContain("taken");
    await expectUndelayed("a backtracking pattern", (n) => call(sessionId, `${"a".repeat(40 + (n % 40))}!`));
    expect((await call(sessionId, "aaa")).outcome.ok).toBeDefined();
  });

  test("schema whose references double at every level", async () => {
    const levels = Array.from({ length: 31 }, (_, level) => [
      level,
      level === 30 ? { type: "string" } : { allOf: [{ $ref: `#/$defs/${level + 1}` }, { $ref: `#/$defs/${level + 1}` }] },
    ]);
    const sessionId = await createdWith({ $ref: "#/$defs/0", $defs: Object.fromEntries(levels) });
    expect((await call(sessionId, "x")).outcome.error).toMatchObject({ code: "schema_too_costly" });
    await expectUndelayed("doubling references", () => call(sessionId, "x"));
  });

  test("schemas of nearly 256 KiB, each new", async () => {
    const huge = (n: number): unknown => ({
      title: `${n}`,
      properties: Object.fromEntries(Array.from({ length: 3_000 }, (_, i) => [`p${i}`, { type: "string", pattern: `^a${n}x${i}(b|c)*$` }])),
    });
    const { httpStatus, reason, message } = await create(huge(0));
    if (httpStatus !== 200) {
      expect(reason).toBe("schema_too_costly");
      expect(message).toMatch(/Tool taken/);
    }
    await expectUndelayed("huge schemas", (n) => create(huge(n + 1)));
  });

  test("values of a mebibyte that must differ in all their items", async () => {
    const sessionId = await createdWith({ type: "array", items: { type: "object" }, uniqueItems: true });
    const items = Array.from({ length: 30_000 }, (_, id) => ({ id, name: `n${id % 7}` }));
    await expectUndelayed("large values", () => call(sessionId, items));
  });
});

test("a value for a costly schema that goes through is not refused for what others did before", { timeout: 60_000 }, async () => {
  const sessionId = await createdWith({ type: "string", pattern: "^(a+)+$(?!b)" });
  await Promise.all(Array.from({ length: 10 }, () => call(sessionId, `${"a".repeat(60)}!`)));
  expect((await call(sessionId, "aaa")).outcome.ok).toEqual({ valueJson: "null" });
});
