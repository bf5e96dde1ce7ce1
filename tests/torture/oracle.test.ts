import {
  EventEmittedSchema,
  OutcomeSchema,
  ToolCallEndedSchema,
  ToolCallLateOutcomeSchema,
  ToolCallStartedSchema,
} from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import type { Answer, AskedCall, Evidence, ProcessLife } from "./evidence.js";
import type { FiledRecord } from "./journal-records.js";
import { judge, type Promised } from "./oracle.js";
import { makePlan, TIMES } from "./plan.js";
import type { Line, Witnessed } from "./witness.js";

const CALL = "1.0";
const SESSION = "session-a";
const INSTANCE = "instance-0";
const AT = 1_000_000;
const GONE_AT = AT + 100 + TIMES.graceMs;

type Failed = "error" | "timeout" | "cancelled" | "unknown";

function ok(value: string) {
  return create(OutcomeSchema, { status: { case: "ok", value: { valueJson: JSON.stringify(value) } } });
}

function failed(status: Failed, code: string, message = "why") {
  return create(OutcomeSchema, { status: { case: status, value: { code, message } } });
}

function record(sequence: number, atMs: number, entry: FiledRecord["entry"]): FiledRecord {
  return { sessionId: SESSION, sequence, commitTimeMs: atMs, entry };
}

function started(options: { receiver?: boolean; deadlineMs?: number } = {}): FiledRecord {
  const { receiver = true, deadlineMs = AT + 60_000 } = options;
  const value = create(ToolCallStartedSchema, {
    callId: CALL,
    name: "work",
    environment: "one",
    deadline: timestampFromMs(deadlineMs),
    ...(receiver ? { receiver: { hostId: "host", instanceId: INSTANCE, generation: 1 } } : {}),
  });
  return record(2, AT, { case: "toolCallStarted", value });
}

function ended(outcome: ReturnType<typeof ok>, atMs = AT + 50, sequence = 3): FiledRecord {
  return record(sequence, atMs, { case: "toolCallEnded", value: create(ToolCallEndedSchema, { callSequence: 2, outcome }) });
}

function late(outcome: ReturnType<typeof ok>): FiledRecord {
  return record(4, GONE_AT + 50, { case: "toolCallLateOutcome", value: create(ToolCallLateOutcomeSchema, { callSequence: 2, outcome }) });
}

function event(sequence: number, mark: string): FiledRecord {
  const value = create(EventEmittedSchema, {
    origin: { case: "callSequence", value: 2 },
    kind: "progress",
    dataJson: JSON.stringify({ mark }),
  });
  return record(sequence, AT + 10, { case: "eventEmitted", value });
}

function said(line: Line, at = AT + 10, by = "host0.0"): Witnessed {
  return { ...line, by, at };
}

const ofCall = { sessionId: SESSION, callSequence: 2 };
const attached = said({ what: "attached", instanceId: INSTANCE, generation: 1 }, AT - 100);
const start = said({ what: "start", call: CALL, ...ofCall });
const end = said({ what: "end", call: CALL, value: "v", throws: false });
const reporting = said({ what: "reporting", ...ofCall, outcome: 'ok "v"' });

function acknowledged(disposition: string, outcome = 'ok "v"'): Witnessed {
  return said({ what: "acknowledged", ...ofCall, outcome, disposition });
}

function told(outcome: string, sequences: Partial<Answer> = { callSequence: 2, endSequence: 3 }): Answer {
  return { callId: CALL, at: AT + 60, by: "call", outcome, ...sequences };
}

function host(life: Partial<ProcessLife> = {}): ProcessLife {
  return { name: "host0.0", kind: "host", place: 0, outbox: false, startedAt: AT - 200, ...life };
}

const killed = host({ killedAt: AT + 100, killedBy: "at any time" });

function evidence(parts: Partial<Evidence> & { asked?: Partial<AskedCall> }): Evidence {
  const { asked, ...rest } = parts;
  const plan = makePlan(1, 1);
  const planned = plan.calls[0];
  if (planned === undefined) throw new Error("a plan has calls");
  const call: AskedCall = {
    ...planned,
    callId: CALL,
    timeoutMs: 60_000,
    sessionId: SESSION,
    firstAskedAt: AT - 5,
    cancelAskedAt: undefined,
    ...asked,
  };
  return {
    plan,
    startedAt: AT - 500,
    calls: [call],
    answers: [],
    log: [],
    cuts: {},
    lives: [host()],
    witnessed: [attached, start, end, reporting],
    records: [started(), ended(ok("v"))],
    journalProblems: [],
    complaints: [],
    ...rest,
  };
}

function broken(parts: Parameters<typeof evidence>[0]): Promised[] {
  return judge(evidence(parts)).broken.map(({ promise }) => promise);
}

test("a call that ran once, ended with its value and was told so breaks nothing", () => {
  const answers = [told('ok "v"'), told('ok "v"', {})];
  expect(broken({ answers, witnessed: [attached, start, end, reporting, acknowledged("RECORDED")] })).toEqual([]);
});

describe("runs", () => {
  test("a second start is a failure", () => {
    expect(broken({ witnessed: [attached, start, start, end] })).toEqual(["runs"]);
  });
  test("a start without a started record is a failure", () => {
    expect(broken({ records: [] })).toEqual(["runs", "one ending"]);
  });
  test("a start under another sequence than the record's is a failure", () => {
    expect(broken({ witnessed: [attached, said({ what: "start", call: CALL, sessionId: SESSION, callSequence: 9 }), end] })).toEqual([
      "runs",
    ]);
  });
});

describe("one ending", () => {
  test("none is a failure", () => {
    expect(broken({ records: [started()] })).toEqual(["one ending"]);
  });
  test("two are a failure", () => {
    expect(broken({ records: [started(), ended(ok("v")), ended(ok("v"), AT + 70, 4)] })).toEqual(["one ending"]);
  });
});

describe("truth", () => {
  test("ok with another value than the function's is a failure", () => {
    expect(broken({ records: [started(), ended(ok("other"))] })).toEqual(["truth"]);
  });
  test("ok of a function that did not return is a failure", () => {
    expect(broken({ witnessed: [attached, start] })).toEqual(["truth"]);
  });
  test("tool_error carries what the function threw", () => {
    const threw = said({ what: "end", call: CALL, value: "v", throws: true });
    const witnessed = [attached, start, threw];
    expect(broken({ witnessed, records: [started(), ended(failed("error", "tool_error", "v"))] })).toEqual([]);
    expect(broken({ witnessed, records: [started(), ended(failed("error", "tool_error", "w"))] })).toEqual(["truth"]);
  });
  test("command_not_delivered with a start is a failure, and without one is none", () => {
    const records = [started(), ended(failed("error", "command_not_delivered"))];
    expect(broken({ records })).toEqual(["truth"]);
    expect(broken({ records, witnessed: [attached] })).toEqual([]);
  });
  test("host_unavailable of a call that was sent is a failure", () => {
    const outcome = failed("error", "host_unavailable");
    expect(broken({ records: [started(), ended(outcome)], witnessed: [attached] })).toEqual(["truth"]);
    expect(broken({ records: [started({ receiver: false }), ended(outcome)], witnessed: [] })).toEqual([]);
  });
  test("a timeout before the deadline is a failure, and at it is none", () => {
    const outcome = failed("timeout", "deadline_passed");
    const asked = { timeoutMs: 50 };
    expect(broken({ asked, records: [started({ deadlineMs: AT + 50 }), ended(outcome, AT + 20)] })).toEqual(["truth"]);
    expect(broken({ asked, records: [started({ deadlineMs: AT + 50 }), ended(outcome, AT + 51)] })).toEqual([]);
  });
  test("cancelled without anybody asking is a failure", () => {
    const records = [started(), ended(failed("cancelled", "cancel_requested"))];
    expect(broken({ records })).toEqual(["truth"]);
    expect(broken({ records, asked: { cancelAskedAt: AT + 20 } })).toEqual([]);
  });
  test("an ending that no fault of a round explains is a failure", () => {
    expect(broken({ records: [started(), ended(failed("error", "tool_not_served"))] })).toEqual(["truth"]);
  });
});

describe("unknown", () => {
  const lost = failed("unknown", "host_instance_lost");
  const records = [started(), ended(lost, GONE_AT)];

  test("of a host that was killed between start and end could not be avoided", () => {
    expect(broken({ records, lives: [killed], witnessed: [attached, start] })).toEqual([]);
  });
  test("of a host that was killed before it read its command could not be avoided", () => {
    expect(broken({ records, lives: [killed], witnessed: [attached] })).toEqual([]);
  });
  test("of a host that was killed before its report was acknowledged, without an outbox, could not be avoided", () => {
    expect(broken({ records, lives: [killed] })).toEqual([]);
  });
  test("of a host that lived is avoidable", () => {
    expect(broken({ records })).toEqual(["avoidable unknown"]);
  });
  test("of a host that was killed only afterwards is avoidable", () => {
    expect(broken({ records, lives: [host({ killedAt: GONE_AT + 10 })] })).toEqual(["avoidable unknown"]);
  });
  test("after an acknowledged report is avoidable, and a lost record", () => {
    const witnessed = [attached, start, end, reporting, acknowledged("RECORDED")];
    expect(broken({ records, lives: [killed], witnessed })).toEqual(["avoidable unknown", "acknowledged"]);
  });
  test("of a host whose own process got no time is counted apart", () => {
    const witnessed = [attached, start, said({ what: "stalled", ms: TIMES.graceMs }, AT + TIMES.graceMs)];
    const verdict = judge(evidence({ records, witnessed }));
    expect(verdict.broken).toEqual([]);
    expect(verdict.excused).toBe(1);
  });

  describe("with the outcome in a file", () => {
    const lives = [{ ...killed, outbox: true }, host({ name: "host0.1", startedAt: AT + 200, outbox: true })];
    const welcomed = (at: number): Witnessed => said({ what: "welcomed", instanceId: "instance-1", generation: 1 }, at, "host0.1");

    test("and a successor within the grace is avoidable", () => {
      expect(broken({ records, lives, witnessed: [attached, start, end, reporting, welcomed(AT + 300)] })).toEqual(["avoidable unknown"]);
    });
    test("and a successor after the grace could not be avoided, and is kept as late outcome", () => {
      const witnessed = [attached, start, end, reporting, welcomed(GONE_AT + 40)];
      expect(broken({ records: [...records, late(ok("v"))], lives, witnessed })).toEqual([]);
      expect(broken({ records, lives, witnessed })).toEqual(["avoidable unknown"]);
    });
    test("is no reproach when the outcome was not complete", () => {
      expect(broken({ records, lives, witnessed: [attached, start, end, welcomed(AT + 300)] })).toEqual([]);
    });
  });
});

describe("acknowledged", () => {
  test("an answer that is not in the journal is a failure", () => {
    expect(broken({ answers: [told('ok "other"')] })).toEqual(["acknowledged"]);
    expect(broken({ answers: [told('ok "v"', { callSequence: 2, endSequence: 4 })] })).toEqual(["acknowledged"]);
  });
  test("an answer about a call the journal does not have is a failure", () => {
    expect(broken({ answers: [told('ok "v"')], records: [], witnessed: [] })).toEqual(["one ending", "acknowledged"]);
  });
  test("an event that was acknowledged must be there, under its sequence", () => {
    const witnessed = [attached, start, end, said({ what: "emitted", call: CALL, sequence: 3, mark: "m" })];
    expect(broken({ witnessed })).toEqual(["acknowledged"]);
    expect(broken({ witnessed, records: [started(), event(3, "m"), ended(ok("v"), AT + 50, 4)] })).toEqual([]);
    expect(broken({ witnessed, records: [started(), event(4, "m"), ended(ok("v"), AT + 50, 5)] })).toEqual(["acknowledged"]);
  });
  test("an event that is recorded twice breaks the law", () => {
    expect(broken({ records: [started(), event(3, "m"), event(4, "m"), ended(ok("v"), AT + 50, 5)] })).toEqual(["law"]);
  });
  test("what a host was told of its report agrees with the journal", () => {
    const cancelled = [started(), ended(failed("cancelled", "cancel_requested"))];
    const asked = { cancelAskedAt: AT + 20 };
    const withReport = (disposition: string, outcome?: string): Witnessed[] => [attached, start, end, acknowledged(disposition, outcome)];
    expect(broken({ asked, records: cancelled, witnessed: withReport("RECORDED") })).toEqual(["acknowledged"]);
    expect(broken({ asked, records: cancelled, witnessed: withReport("DUPLICATE") })).toEqual(["acknowledged"]);
    expect(broken({ asked, records: cancelled, witnessed: withReport("DUPLICATE", "cancelled cancel_requested in other words") })).toEqual(
      [],
    );
    expect(broken({ asked, records: cancelled, witnessed: withReport("LATE") })).toEqual(["acknowledged"]);
    expect(broken({ asked, records: [...cancelled, late(ok("v"))], witnessed: withReport("LATE") })).toEqual([]);
    expect(broken({ witnessed: withReport("DISPOSITION_UNKNOWN") })).toEqual(["acknowledged"]);
  });
});

describe("after a server kill", () => {
  const server: ProcessLife = {
    name: "server.0",
    kind: "server",
    outbox: false,
    startedAt: AT - 400,
    killedAt: AT + 20,
    killedBy: "at any time",
  };

  test("an open call whose host lived counts, and its true ending too", () => {
    expect(judge(evidence({ lives: [server, host()] })).afterServerKill).toEqual({ calls: 1, ended: 1 });
  });
  test("one that ended untruly counts against it", () => {
    const records = [started(), ended(failed("unknown", "host_instance_lost"))];
    expect(judge(evidence({ lives: [server, host()], records })).afterServerKill).toEqual({ calls: 1, ended: 0 });
  });
  test("one whose host was killed, and one that had ended, do not count", () => {
    const none = { calls: 0, ended: 0 };
    expect(judge(evidence({ lives: [server, host({ killedAt: AT + 30 })] })).afterServerKill).toEqual(none);
    expect(judge(evidence({ lives: [{ ...server, killedAt: AT + 90 }, host()] })).afterServerKill).toEqual(none);
  });
});

test("what the journal's own check and the round itself complain of is a failure", () => {
  expect(broken({ journalProblems: [{ law: "L7", message: "a gap" }] })).toEqual(["law"]);
  expect(broken({ complaints: [{ what: "a caller waits" }] })).toEqual(["round"]);
});
