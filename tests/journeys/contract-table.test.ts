/**
 * One list of Tools, inputs, what the function does and the ending that is to come of it, for every kind of placement
 * there is. A kind is a column: where its Tools are placed, and by what they are run.
 */
import { Brain, hostEnv, jsonSchema, type Outcome, outcome, type Placement, type Session, type StandardSchema, tool } from "@aexhq/brain";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { CaseGround } from "../support/case-ground.js";
import { CountedRuns } from "../support/counted-runs.js";

/** What every implementation of a Tool is made to do: answer so, whatever it is given; or throw so. */
type Behaviour = { readonly returns: unknown } | { readonly throws: unknown } | { readonly echoes: true };

interface Row {
  readonly says: string;
  readonly input: StandardSchema;
  readonly output?: StandardSchema;
  readonly given: unknown;
  readonly does: Behaviour;
  readonly ends: object;
  /** Whether the implementation runs at all; yes unless it is said. */
  readonly runs?: 0;
}

const id = z.object({ id: z.string() });
const n = z.object({ n: z.number() });
const violated = (code: string, path: string) => ({ status: "error", code, retryable: false, details: { violations: [{ path }] } });
const failure = { code: "out_of_stock", message: "none left", retryable: true, details: { sku: "7", left: 0, list: [null] } };
const failed = (status: "error" | "timeout" | "cancelled" | "unknown") => ({ status, ...failure });

const ROWS: readonly Row[] = [
  {
    says: "a value is its value",
    input: id,
    output: n,
    given: { id: "7" },
    does: { returns: { n: 1 } },
    ends: { status: "ok", value: { n: 1 } },
  },
  { says: "nothing is null", input: id, given: { id: "7" }, does: { returns: undefined }, ends: { status: "ok", value: null } },
  { says: "null is null", input: id, given: { id: "7" }, does: { returns: null }, ends: { status: "ok", value: null } },
  {
    says: "a bare text is a text",
    input: z.string(),
    output: z.string(),
    given: "x",
    does: { echoes: true },
    ends: { status: "ok", value: "x" },
  },
  {
    says: "a bare list is a list",
    input: z.array(z.number()),
    given: [1, 2],
    does: { echoes: true },
    ends: { status: "ok", value: [1, 2] },
  },
  {
    says: "an astral text with a NUL is itself",
    input: z.string(),
    given: "😀\u0000é",
    does: { echoes: true },
    ends: { status: "ok", value: "😀\u0000é" },
  },
  {
    says: "the largest exact integer is itself",
    input: n,
    given: { n: 2 ** 53 - 1 },
    does: { echoes: true },
    ends: { status: "ok", value: { n: 2 ** 53 - 1 } },
  },
  {
    says: "a bad input names its place and runs nothing",
    input: id,
    given: { id: 7 },
    does: { returns: null },
    ends: violated("invalid_input", "/id"),
    runs: 0,
  },
  { says: "a missing member is a bad input", input: id, given: {}, does: { returns: null }, ends: violated("invalid_input", ""), runs: 0 },
  {
    says: "a bad output names its place",
    input: id,
    output: n,
    given: { id: "7" },
    does: { returns: { n: "1" } },
    ends: violated("invalid_output", "/n"),
  },
  {
    says: "an output that should be there is missed",
    input: id,
    output: n,
    given: { id: "7" },
    does: { returns: undefined },
    ends: violated("invalid_output", ""),
  },
  {
    says: "an Outcome that is ok is its value",
    input: id,
    output: n,
    given: { id: "7" },
    does: { returns: outcome.ok({ n: 2 }) },
    ends: { status: "ok", value: { n: 2 } },
  },
  {
    says: "an Outcome that is ok is checked as any value",
    input: id,
    output: n,
    given: { id: "7" },
    does: { returns: outcome.ok({ n: "2" }) },
    ends: violated("invalid_output", "/n"),
  },
  {
    says: "a structured error keeps all of it",
    input: id,
    output: n,
    given: { id: "7" },
    does: { returns: outcome.error(failure) },
    ends: failed("error"),
  },
  {
    says: "a structured timeout keeps all of it",
    input: id,
    given: { id: "7" },
    does: { returns: outcome.timeout(failure) },
    ends: failed("timeout"),
  },
  {
    says: "a structured cancellation keeps all of it",
    input: id,
    given: { id: "7" },
    does: { returns: outcome.cancelled(failure) },
    ends: failed("cancelled"),
  },
  {
    says: "a structured unknown keeps all of it",
    input: id,
    given: { id: "7" },
    does: { returns: outcome.unknown(failure) },
    ends: failed("unknown"),
  },
  {
    says: "a failure without details has none",
    input: id,
    given: { id: "7" },
    does: { returns: outcome.error({ code: "no", message: "no" }) },
    ends: { status: "error", code: "no", message: "no", retryable: false },
  },
  {
    says: "what looks like an Outcome is data",
    input: id,
    given: { id: "7" },
    does: { returns: { status: "error", code: "x", message: "y", retryable: false } },
    ends: { status: "ok", value: { status: "error", code: "x", message: "y", retryable: false } },
  },
  {
    says: "an error that is thrown is a tool_error",
    input: id,
    given: { id: "7" },
    does: { throws: new Error("as told") },
    ends: { status: "error", code: "tool_error", message: "as told", retryable: false },
  },
  {
    says: "an Outcome that is thrown is a tool_error",
    input: id,
    given: { id: "7" },
    does: { throws: outcome.cancelled(failure) },
    ends: { status: "error", code: "tool_error" },
  },
  {
    says: "plain JSON Schema judges both ways",
    input: jsonSchema({ type: "integer" }),
    output: jsonSchema({ maximum: 5 }),
    given: 7,
    does: { echoes: true },
    ends: violated("invalid_output", ""),
  },
];

/** A kind of placement: it makes the Tools of the rows run somewhere, and tells how often they did. */
interface Column {
  readonly place: (rows: readonly Row[]) => readonly Placement[];
  readonly session: (placements: readonly Placement[]) => Promise<Session>;
  readonly runs: (session: Session) => number;
  readonly close: () => Promise<void>;
}

function hostColumn(hostRoute: "attach" | "watch" | "sse") {
  return (ground: CaseGround): Column => {
    const brain = new Brain({ baseUrl: ground.server.url, token: ground.token, hostRoute, log: () => undefined });
    const runs = new CountedRuns();
    const env = hostEnv({ name: "column" });
    const place = ({ input, output, does }: Row, index: number): Placement => {
      const run = runs.counting((given: unknown): unknown => {
        if ("throws" in does) throw does.throws;
        return "echoes" in does ? given : does.returns;
      });
      const declaration = { name: nameOf(index), description: "", input, run };
      return (output === undefined ? tool(declaration) : tool({ ...declaration, output }))({ env });
    };
    return {
      place: (rows) => rows.map(place),
      session: (tools) => brain.sessions.create({ tools }),
      runs: ({ sessionId }) => runs.of(sessionId),
      close: async () => {
        expect(runs.repeated).toEqual([]);
        await brain.close();
        runs[Symbol.dispose]();
      },
    };
  };
}

const nameOf = (index: number): string => `row_${index}`;

const COLUMNS: Readonly<Record<string, (ground: CaseGround) => Column>> = {
  "a host on the route attach": hostColumn("attach"),
  "a host on the route watch": hostColumn("watch"),
  "a host on the route sse": hostColumn("sse"),
};

describe.each(Object.entries(COLUMNS))("in %s", (_, open) => {
  let ground: CaseGround;
  let column: Column;
  let session: Session;
  beforeAll(async () => {
    ground = await CaseGround.open();
    column = open(ground);
    session = await column.session(column.place(ROWS));
  });
  afterAll(async () => {
    await ground.expectStanding(session);
    await column.close();
    await ground[Symbol.asyncDispose]();
  });

  test.each(ROWS.map((row, index) => ({ ...row, index })))("$says", async ({ given, ends, runs = 1, index }) => {
    const before = column.runs(session);
    const call = { callId: `call-${index}`, name: nameOf(index), environment: "column" };
    const ending: Outcome = await session.callTool({ ...call, input: given });
    expect(ending).toMatchObject(ends);
    expect("details" in ending).toBe("details" in ends);
    expect(column.runs(session) - before).toBe(runs);
    // What the caller was told is what is on record.
    expect((await session.getToolCall({ callId: call.callId })).outcome).toEqual(ending);
  });
});
