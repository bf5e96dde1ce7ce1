/**
 * Every cell of the table of the call machine, one test or more each; the last test says that none is missing.
 * What holds over many events is in `call-laws.test.ts`.
 */
import { CancelCause, Disposition, type Outcome } from "@aexhq/brain-proto";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, it } from "vitest";
import {
  answersTo,
  callRequest,
  DEADLINE_MS,
  event,
  fold,
  OUTCOME_A,
  OUTCOME_B,
  placed,
  RECEIVER,
  someFailure,
} from "../../../tests/support/call-fixture.js";
import { AssertionFailed } from "./assert.js";
import { ABSENT, type Call, type CallEvent, type Decision, decide, evolve, sameContent } from "./call.js";
import { failed } from "./outcome.js";

type Phase = Call["phase"];
type Running = Call & { phase: "running" };
type Ended = Call & { phase: "ended" };

/** The call starts at 7 in a session that has other records as well, and ends at 20. */
const START = 7;
const END = 20;
const NEXT = 30;

function running(): Running {
  const call = fold(placed(START, decide(ABSENT, { ...event.requested(), next: START }).append));
  if (call.phase !== "running") throw new Error("the call did not start");
  return call;
}

function ended(by: CallEvent = event.returned(OUTCOME_A)): Ended {
  const call = after(running(), END, decide(running(), { ...by, next: END }));
  if (call.phase !== "ended") throw new Error("the call did not end");
  return call;
}

function after(call: Call, next: number, decision: Decision): Call {
  return placed(next, decision.append).reduce(evolve, call);
}

function outcomeOf(decision: Decision): Outcome | undefined {
  const entry = decision.append.at(-1);
  return entry?.case === "toolCallEnded" ? entry.value.outcome : undefined;
}

function ending(callSequence: number, endSequence: number, outcome: Outcome | undefined): object {
  return { type: "answer", to: "callers", answer: { type: "ending", callSequence, endSequence, outcome } };
}

function kinds(decision: Decision): (string | undefined)[] {
  return decision.append.map((entry) => entry.case);
}

/** Every kind of event: a new one does not compile until it stands here, and then needs its cells. */
const EVENT_TYPES: Readonly<Record<CallEvent["type"], true>> = {
  requested: true,
  refused: true,
  given_up: true,
  emitted: true,
  returned: true,
  undeliverable: true,
  deadline_passed: true,
  cancel_requested: true,
  session_ended: true,
  lost: true,
  reopened: true,
};

const covered = new Set<string>();

function cell(type: CallEvent["type"], phase: Phase, sentence: string, prove: () => void): void {
  covered.add(`${type} / ${phase}`);
  it(`${type} / ${phase}: ${sentence}`, prove);
}

function nothing(type: CallEvent["type"], phase: "running" | "ended" | "absent", events: readonly CallEvent[]): void {
  cell(type, phase, "appends nothing and has no effect", () => {
    const call = phase === "absent" ? ABSENT : phase === "running" ? running() : ended();
    for (const one of events) expect(decide(call, { ...one, next: NEXT })).toEqual({ append: [], effects: [] });
  });
}

function unreachable(type: CallEvent["type"], phase: Phase, event: CallEvent): void {
  cell(type, phase, "is a bug of the driver, and an assertion says so", () => {
    const call = phase === "absent" ? ABSENT : phase === "running" ? running() : ended();
    expect(() => decide(call, { ...event, next: NEXT })).toThrow(AssertionFailed);
    expect(() => decide(call, { ...event, next: NEXT })).toThrow(new RegExp(type.replace("_", "[ _]")));
  });
}

describe("a call that is absent", () => {
  cell("requested", "absent", "is started with its receiver, its deadline armed, and sent", () => {
    const decision = decide(ABSENT, { ...event.requested(), next: START });
    expect(kinds(decision)).toEqual(["toolCallStarted"]);
    expect(decision.effects).toEqual([{ type: "arm_deadline", deadlineMs: DEADLINE_MS }, { type: "send" }]);
    const [entry] = decision.append;
    if (entry?.case !== "toolCallStarted") throw new Error("no start");
    const { deadline, receiver, ...said } = entry.value;
    const { deadlineMs: _, ...asked } = callRequest();
    expect(said).toMatchObject(asked);
    expect(receiver).toEqual(RECEIVER);
    expect(deadline && timestampMs(deadline)).toBe(DEADLINE_MS);
  });

  cell("requested", "absent", "names no receiver where the Environment has none, and is sent all the same", () => {
    const decision = decide(ABSENT, { ...event.requestedWithoutReceiver(), next: START });
    expect(decision.append[0]?.case === "toolCallStarted" && decision.append[0].value.receiver).toBeUndefined();
    expect(decision.effects.map((effect) => effect.type)).toEqual(["arm_deadline", "send"]);
  });

  for (const code of ["invalid_input", "placement_not_found"]) {
    cell("refused", "absent", `starts and ends together with error ${code}, answers, and sends nothing`, () => {
      const decision = decide(ABSENT, { ...event.refused({}, code), next: START });
      const outcome = failed("error", someFailure(code));
      expect(kinds(decision)).toEqual(["toolCallStarted", "toolCallEnded"]);
      expect(outcomeOf(decision)).toEqual(outcome);
      expect(decision.append[1]?.value).toMatchObject({ callSequence: START });
      expect(decision.append[0]?.case === "toolCallStarted" && decision.append[0].value.receiver).toBeUndefined();
      expect(decision.effects).toEqual([ending(START, START + 1, outcome)]);
    });
  }

  for (const [why, outcome] of [
    ["no host came", failed("error", someFailure("host_unavailable", true))],
    ["too many wait", failed("error", someFailure("host_overloaded", true))],
    ["its time was over", failed("timeout", someFailure("deadline_passed"))],
    ["it was cancelled", failed("cancelled", someFailure("cancel_requested"))],
  ] as const) {
    cell("given_up", "absent", `starts and ends together when ${why}, names no receiver, and sends nothing`, () => {
      const decision = decide(ABSENT, { ...event.givenUp(outcome), next: START });
      expect(kinds(decision)).toEqual(["toolCallStarted", "toolCallEnded"]);
      expect(outcomeOf(decision)).toEqual(outcome);
      expect(decision.append[0]?.case === "toolCallStarted" && decision.append[0].value.receiver).toBeUndefined();
      expect(decision.effects).toEqual([ending(START, START + 1, outcome)]);
    });
  }

  cell("cancel_requested", "absent", "is refused call_not_found to whoever asked, and nothing is recorded", () => {
    const decision = decide(ABSENT, { ...event.cancelRequested(), next: START });
    expect(decision.append).toEqual([]);
    expect(decision.effects).toHaveLength(1);
    expect(answersTo(decision.effects, "asker")).toMatchObject([{ type: "refused", reason: "call_not_found" }]);
  });

  nothing("session_ended", "absent", [event.sessionEnded()]);
  unreachable("emitted", "absent", event.emitted("e1"));
  unreachable("returned", "absent", event.returned(OUTCOME_A));
  unreachable("undeliverable", "absent", event.undeliverable());
  unreachable("deadline_passed", "absent", event.deadlinePassed());
  unreachable("lost", "absent", event.lost());
  unreachable("reopened", "absent", event.reopened());
});

describe("a call that runs", () => {
  for (const type of ["requested", "refused"] as const) {
    cell(type, "running", "with the same content joins and waits", () => {
      for (const more of [{}, { inputJson: ' { "id" : "7" } ' }, { deadlineMs: 1, traceparent: "", principal: "other" }]) {
        expect(decide(running(), { ...event[type](more), next: NEXT })).toEqual({ append: [], effects: [] });
      }
    });
    cell(type, "running", "with other content is refused call_id_conflict to whoever asked, naming the call", () => {
      for (const more of [{ name: "other" }, { environment: "other" }, { inputJson: '{"id":"8"}' }]) {
        const decision = decide(running(), { ...event[type](more), next: NEXT });
        expect(decision.append).toEqual([]);
        expect(decision.effects).toHaveLength(1);
        const [answer] = answersTo(decision.effects, "asker");
        expect(answer).toMatchObject({ type: "refused", reason: "call_id_conflict" });
        expect(answer?.type === "refused" && answer.message).toMatch(/"call-1" names call 7 of lookup in app.*new call_id/);
      }
    });
  }

  cell("emitted", "running", "is recorded, and its sequence answered", () => {
    const decision = decide(running(), { ...event.emitted("e1"), next: NEXT });
    expect(decision.append).toMatchObject([
      {
        case: "eventEmitted",
        value: { origin: { case: "callSequence", value: START }, kind: "progress", dataJson: '{"done":1}', emitId: "e1" },
      },
    ]);
    expect(decision.effects).toEqual([{ type: "answer", to: "asker", answer: { type: "emitted", sequence: NEXT } }]);
  });

  cell("emitted", "running", "with a known emit_id answers the sequence it has and records nothing", () => {
    const decision = decide(running(), { ...event.emitted("e1", 9), next: NEXT });
    expect(decision).toEqual({ append: [], effects: [{ type: "answer", to: "asker", answer: { type: "emitted", sequence: 9 } }] });
  });

  cell("returned", "running", "ends with the outcome, disarms, answers the callers and the reporter", () => {
    const decision = decide(running(), { ...event.returned(OUTCOME_A), next: NEXT });
    expect(kinds(decision)).toEqual(["toolCallEnded"]);
    expect(decision.append[0]?.value).toMatchObject({ callSequence: START, outcome: OUTCOME_A });
    expect(decision.effects).toEqual([
      { type: "disarm_deadline" },
      ending(START, NEXT, OUTCOME_A),
      { type: "answer", to: "asker", answer: { type: "reported", disposition: Disposition.RECORDED, standing: OUTCOME_A } },
    ]);
  });

  const endings: readonly [
    type: CallEvent["type"],
    sentence: string,
    by: CallEvent,
    outcome: object,
    first: readonly object[],
    stop: CancelCause | undefined,
  ][] = [
    [
      "undeliverable",
      "ends with error, disarms, answers and stops",
      event.undeliverable(),
      { case: "error", value: { code: "command_not_delivered", retryable: true } },
      [{ type: "disarm_deadline" }],
      CancelCause.CALL_ENDED,
    ],
    [
      "deadline_passed",
      "ends with timeout, answers and stops",
      event.deadlinePassed(),
      { case: "timeout", value: { code: "deadline_passed", retryable: false } },
      [],
      CancelCause.DEADLINE,
    ],
    [
      "session_ended",
      "ends with cancelled session_ended, disarms, answers and stops",
      event.sessionEnded(),
      { case: "cancelled", value: { code: "session_ended", retryable: false } },
      [{ type: "disarm_deadline" }],
      CancelCause.SESSION_ENDED,
    ],
    [
      "lost",
      "ends with unknown, disarms, answers and stops",
      event.lost(),
      { case: "unknown", value: { code: "host_instance_lost", retryable: false } },
      [{ type: "disarm_deadline" }],
      CancelCause.CALL_ENDED,
    ],
    [
      "reopened",
      "ends with timeout when the deadline passed while the server was away, whoever could come back",
      event.reopened({ deadlinePassed: true, holderCanReturn: true }),
      { case: "timeout", value: { code: "deadline_passed", retryable: false } },
      [],
      undefined,
    ],
    [
      "reopened",
      "ends with unknown when what ran it cannot come back",
      event.reopened({ holderCanReturn: false }),
      { case: "unknown", value: { code: "server_restarted", retryable: false } },
      [],
      undefined,
    ],
  ];
  for (const [type, sentence, by, outcome, first, stop] of endings) {
    cell(type, "running", sentence, () => {
      const decision = decide(running(), { ...by, next: NEXT });
      expect(kinds(decision)).toEqual(["toolCallEnded"]);
      expect(decision.append[0]?.value).toMatchObject({ callSequence: START });
      expect(outcomeOf(decision)?.status).toMatchObject(outcome);
      expect(decision.effects).toEqual([
        ...first,
        ending(START, NEXT, outcomeOf(decision)),
        ...(stop === undefined ? [] : [{ type: "stop", cause: stop }]),
      ]);
    });
  }

  cell("cancel_requested", "running", "records the request and the ending cancelled together, disarms, answers and stops", () => {
    const decision = decide(running(), { ...event.cancelRequested("no longer needed"), next: NEXT });
    expect(decision.append).toMatchObject([
      { case: "toolCallCancelRequested", value: { callSequence: START, reason: "no longer needed", principal: "api" } },
      {
        case: "toolCallEnded",
        value: { callSequence: START, outcome: { status: { case: "cancelled", value: { code: "cancel_requested" } } } },
      },
    ]);
    expect(outcomeOf(decision)?.status.value).toMatchObject({ message: expect.stringContaining("no longer needed") });
    expect(decision.effects).toEqual([
      { type: "disarm_deadline" },
      ending(START, NEXT + 1, outcomeOf(decision)),
      { type: "stop", cause: CancelCause.REQUESTED },
    ]);
  });

  cell("reopened", "running", "stays running when its holder can come back: the first deadline is armed again and nothing is sent", () => {
    const decision = decide(running(), { ...event.reopened({ holderCanReturn: true }), next: NEXT });
    expect(decision).toEqual({ append: [], effects: [{ type: "arm_deadline", deadlineMs: DEADLINE_MS }] });
  });

  unreachable("given_up", "running", event.givenUp());
});

describe("a call that has ended", () => {
  for (const type of ["requested", "refused"] as const) {
    cell(type, "ended", "with the same content answers the recorded outcome to whoever asked", () => {
      const decision = decide(ended(), { ...event[type]({ inputJson: '{ "id":"7" }' }), next: NEXT });
      const answer = { type: "ending", callSequence: START, endSequence: END, outcome: OUTCOME_A };
      expect(decision).toEqual({ append: [], effects: [{ type: "answer", to: "asker", answer }] });
    });
    cell(type, "ended", "with other content is refused call_id_conflict", () => {
      const decision = decide(ended(), { ...event[type]({ inputJson: "{}" }), next: NEXT });
      expect(decision.append).toEqual([]);
      expect(answersTo(decision.effects, "asker")).toMatchObject([{ type: "refused", reason: "call_id_conflict" }]);
      expect(decision.effects).toHaveLength(1);
    });
  }

  cell("emitted", "ended", "with a known emit_id answers its sequence", () => {
    const decision = decide(ended(), { ...event.emitted("e1", 9), next: NEXT });
    expect(decision).toEqual({ append: [], effects: [{ type: "answer", to: "asker", answer: { type: "emitted", sequence: 9 } }] });
  });

  cell("emitted", "ended", "with an unknown emit_id is refused call_ended", () => {
    const decision = decide(ended(), { ...event.emitted("e1"), next: NEXT });
    expect(decision.append).toEqual([]);
    expect(answersTo(decision.effects, "asker")).toMatchObject([
      { type: "refused", reason: "call_ended", message: expect.stringContaining("call 7") },
    ]);
    expect(decision.effects).toHaveLength(1);
  });

  const reported = (disposition: Disposition, standing: Outcome): object => ({
    type: "answer",
    to: "asker",
    answer: { type: "reported", disposition, standing },
  });

  cell("returned", "ended", "equal to the ending is a DUPLICATE and records nothing", () => {
    const decision = decide(ended(), { ...event.returned(OUTCOME_A), next: NEXT });
    expect(decision).toEqual({ append: [], effects: [reported(Disposition.DUPLICATE, OUTCOME_A)] });
  });

  cell("returned", "ended", "different from the ending is LATE, recorded once, and the ending stands", () => {
    const call = ended();
    const first = decide(call, { ...event.returned(OUTCOME_B, "host:h"), next: NEXT });
    expect(first.append).toMatchObject([
      { case: "toolCallLateOutcome", value: { callSequence: START, outcome: OUTCOME_B, principal: "host:h" } },
    ]);
    expect(first.effects).toEqual([reported(Disposition.LATE, OUTCOME_A)]);
    const late = after(call, NEXT, first);
    expect(late).toEqual({ ...call, late: OUTCOME_B });
    for (const again of [OUTCOME_B, failed("error", someFailure("other"))]) {
      expect(decide(late, { ...event.returned(again), next: NEXT + 1 })).toEqual({
        append: [],
        effects: [reported(Disposition.LATE, OUTCOME_A)],
      });
    }
    expect(decide(late, { ...event.returned(OUTCOME_A), next: NEXT + 1 })).toEqual({
      append: [],
      effects: [reported(Disposition.DUPLICATE, OUTCOME_A)],
    });
  });

  nothing("undeliverable", "ended", [event.undeliverable()]);
  nothing("deadline_passed", "ended", [event.deadlinePassed()]);
  nothing("cancel_requested", "ended", [event.cancelRequested()]);
  nothing("session_ended", "ended", [event.sessionEnded()]);
  nothing("lost", "ended", [event.lost()]);
  nothing("reopened", "ended", [event.reopened(), event.reopened({ deadlinePassed: true }), event.reopened({ holderCanReturn: true })]);
  unreachable("given_up", "ended", event.givenUp());
});

describe("the table", () => {
  it("has a test for every event in every phase", () => {
    const cells = Object.keys(EVENT_TYPES).flatMap((type) =>
      (["absent", "running", "ended"] as const).map((phase) => `${type} / ${phase}`),
    );
    expect([...covered].sort()).toEqual(cells.sort());
  });
});

describe("evolve", () => {
  const startEntry = decide(ABSENT, { ...event.requested(), next: START }).append[0];
  const endEntry = decide(running(), { ...event.returned(OUTCOME_A), next: END }).append[0];
  const emitEntry = decide(running(), { ...event.emitted("e1"), next: END }).append[0];
  const lateEntry = decide(ended(), { ...event.returned(OUTCOME_B), next: NEXT }).append[0];
  if (startEntry === undefined || endEntry === undefined || emitEntry === undefined || lateEntry === undefined)
    throw new Error("no entries");

  it("refuses entries that no decision makes: a second start, an ending without a start, an event or a second ending afterwards", () => {
    expect(() => evolve(running(), { sequence: NEXT, entry: startEntry })).toThrow(AssertionFailed);
    expect(() => evolve(ended(), { sequence: NEXT, entry: startEntry })).toThrow(AssertionFailed);
    expect(() => evolve(ABSENT, { sequence: NEXT, entry: endEntry })).toThrow(AssertionFailed);
    expect(() => evolve(ended(), { sequence: NEXT, entry: endEntry })).toThrow(AssertionFailed);
    expect(() => evolve(ABSENT, { sequence: NEXT, entry: emitEntry })).toThrow(AssertionFailed);
    expect(() => evolve(ended(), { sequence: NEXT, entry: emitEntry })).toThrow(AssertionFailed);
    expect(() => evolve(running(), { sequence: NEXT, entry: lateEntry })).toThrow(AssertionFailed);
    const late = evolve(ended(), { sequence: NEXT, entry: lateEntry });
    expect(() => evolve(late, { sequence: NEXT + 1, entry: lateEntry })).toThrow(AssertionFailed);
  });

  it("knows the entries of calls and no others", () => {
    const entry = { case: "sessionEnded" as const, value: { $typeName: "brain.v1.SessionEnded" as const, principal: "api" } };
    expect(() => evolve(running(), { sequence: NEXT, entry })).toThrow(/sessionEnded is not an entry of a call/);
  });
});

describe("the content of a request", () => {
  it("is name, environment and input as a JSON value, and nothing else", () => {
    const content = { name: "a", environment: "b", inputJson: '{"x":1,"y":[2]}' };
    expect(sameContent(content, { ...content, inputJson: '{"y":[2.0],"x":1}' })).toBe(true);
    expect(sameContent(content, { ...content, inputJson: '{"y":[2,2],"x":1}' })).toBe(false);
    expect(sameContent(content, { ...content, name: "A" })).toBe(false);
    expect(sameContent(content, { ...content, environment: "B" })).toBe(false);
  });

  it("of an input that is no JSON is its text", () => {
    const content = { name: "a", environment: "b", inputJson: "{oops" };
    expect(sameContent(content, { ...content })).toBe(true);
    expect(sameContent(content, { ...content, inputJson: "{oops " })).toBe(false);
  });
});
