/**
 * Watches the life of a call from outside: what was asked, recorded, sent, armed and answered, and whether it keeps the
 * laws of the machine. Knows the table only as far as "the first cause stands", and nothing of how the machine is made.
 */
import { Disposition, type Outcome } from "@aexhq/brain-proto";
import { ABSENT, type Answer, type Call, type CallEvent, type Decision, decide, evolve } from "../../server/src/core/call.js";
import type { PlacedEntry } from "../../server/src/core/entry.js";
import { answersTo, fold, placed } from "./call-fixture.js";

export interface Witness {
  readonly call: Call;
  readonly entries: readonly PlacedEntry[];
  readonly events: readonly CallEvent[];
  readonly sends: number;
  readonly stops: number;
  readonly endingAnswers: number;
  /** Callers that were told to wait and have no answer yet. */
  readonly waiting: number;
  readonly armed: boolean;
  /** The sequence of each event by its emit_id, as the journal's index has it. */
  readonly emits: Readonly<Record<string, number>>;
}

export const UNSEEN: Witness = {
  call: ABSENT,
  entries: [],
  events: [],
  sends: 0,
  stops: 0,
  endingAnswers: 0,
  waiting: 0,
  armed: false,
  emits: {},
};

/** Whether the event can come to a call in this phase at all; every other one is a bug that an assertion meets. */
export function canCome(phase: Call["phase"], type: CallEvent["type"]): boolean {
  const starting =
    type === "requested" || type === "refused" || type === "given_up" || type === "cancel_requested" || type === "session_ended";
  return phase === "absent" ? starting : type !== "given_up";
}

/** What the call is after the event, taken at `next`. @throws Error naming the law that is broken and the events that led there. */
export function step(before: Witness, event: CallEvent, next: number): Witness {
  const reopening = event.type === "reopened";
  // A restart keeps nothing but the journal: no callers, no timers.
  const call = reopening ? fold(before.entries) : before.call;
  let armed = reopening || event.type === "deadline_passed" ? false : before.armed;
  const events = [...before.events, event];
  const law = (holds: boolean, name: string): void => {
    if (!holds) throw new Error(`${name}, after ${events.map((one) => one.type).join(", ")}: ${show(events)}`);
  };

  const decision = decide(call, { ...event, next });
  const appended = placed(next, decision.append);
  const after = appended.reduce(evolve, call);
  const entries = appended.length === 0 ? before.entries : [...before.entries, ...appended];
  const askerAnswers = answersTo(decision.effects, "asker");
  const joins =
    (event.type === "requested" || event.type === "refused" || event.type === "given_up") &&
    call.phase !== "ended" &&
    askerAnswers.length === 0;

  let { sends, stops, endingAnswers } = before;
  let waiting = (reopening ? 0 : before.waiting) + (joins ? 1 : 0);
  for (const effect of decision.effects) {
    if (effect.type === "send") sends++;
    else if (effect.type === "stop") stops++;
    else if (effect.type === "arm_deadline") armed = true;
    else if (effect.type === "disarm_deadline") armed = false;
    else if (effect.to === "callers") {
      endingAnswers++;
      waiting = 0;
    }
  }

  const starts = decision.append.some((entry) => entry.case === "toolCallStarted");
  const ends = decision.append.some((entry) => entry.case === "toolCallEnded");
  law(sends <= 1 && (sends === before.sends || (starts && !ends)), "L1: one send at most, in the decision that starts the call");
  law(!(reopening && sends > before.sends), "L4: reopening sends nothing");
  law(count(entries, "toolCallStarted") === (after.phase === "absent" ? 0 : 1), "L1: one start");
  law(count(entries, "toolCallEnded") === (after.phase === "ended" ? 1 : 0), "L3: one ending for each start");
  law(count(entries, "toolCallLateOutcome") <= 1, "one late outcome at most");
  law(
    call.phase !== "ended" || (after.phase === "ended" && after.outcome === call.outcome && after.endSequence === call.endSequence),
    "L3: the ending stands",
  );
  law(same(after, fold(entries)), "L5: the fold of the journal is the live state");
  law(endingAnswers === (after.phase === "ended" ? 1 : 0), "callers are answered once, by the ending");
  law(endingAnswers > before.endingAnswers === ends, "L6: callers are answered in the decision that records the ending");
  law(after.phase !== "ended" || waiting === 0, "nobody waits for a call that has ended");
  law(armed === (after.phase === "running"), "the deadline is armed exactly while the call runs");
  const needsStop = ends && before.sends === 1 && event.type !== "returned" && !reopening;
  law(
    stops === before.stops + (needsStop ? 1 : 0),
    "what was sent is stopped with its ending, unless it reported it or did not survive the server",
  );
  checkPlaces(after, entries, law);
  checkAnswers(after, decision, event, law);
  checkCause(call, after, event, law);
  checkAsker(call, after, event, before.emits, next, askerAnswers, law);
  const emitted = event.type === "emitted" && appended.length > 0 ? { ...before.emits, [event.emitId]: next } : before.emits;
  return { call: after, entries, events, sends, stops, endingAnswers, waiting, armed, emits: emitted };
}

type Law = (holds: boolean, name: string) => void;

function checkPlaces(after: Call, entries: readonly PlacedEntry[], law: Law): void {
  if (after.phase === "absent") return;
  for (const { sequence, entry } of entries) {
    if (entry.case === "toolCallStarted") law(sequence === after.callSequence, "a call is named by the place of its start");
    else if (entry.case === "eventEmitted") {
      law(entry.value.origin.case === "callSequence" && entry.value.origin.value === after.callSequence, "an event names its call");
      law(after.phase !== "ended" || sequence < after.endSequence, "L6: no event after the ending");
    } else if (entry.case === "toolCallEnded") {
      law(entry.value.callSequence === after.callSequence, "an ending names its call");
      law(after.phase === "ended" && sequence === after.endSequence, "the ending is where the call says");
    } else if (entry.case === "toolCallCancelRequested" || entry.case === "toolCallLateOutcome") {
      law(entry.value.callSequence === after.callSequence, `${entry.case} names its call`);
    }
  }
}

function checkAnswers(after: Call, { effects }: Decision, event: CallEvent, law: Law): void {
  for (const effect of effects) {
    if (effect.type !== "answer" || effect.answer.type !== "ending") continue;
    const { callSequence, endSequence, outcome } = effect.answer;
    law(
      after.phase === "ended" && callSequence === after.callSequence && endSequence === after.endSequence && outcome === after.outcome,
      `an answer to ${event.type} is the recorded ending`,
    );
  }
}

/** The ending that a call has when this event is the first that ends it. */
function endingBy(event: CallEvent): { status: Outcome["status"]["case"]; code: string | undefined } | undefined {
  switch (event.type) {
    case "returned":
      return { status: event.outcome.status.case, code: codeOf(event.outcome) };
    case "undeliverable":
      return { status: "error", code: event.failure.code };
    case "lost":
      return { status: "unknown", code: event.failure.code };
    case "deadline_passed":
      return { status: "timeout", code: "deadline_passed" };
    case "cancel_requested":
      return { status: "cancelled", code: "cancel_requested" };
    case "session_ended":
      return { status: "cancelled", code: "session_ended" };
    case "reopened":
      if (event.deadlinePassed) return { status: "timeout", code: "deadline_passed" };
      return event.holderCanReturn ? undefined : { status: "unknown", code: "server_restarted" };
    default:
      return undefined;
  }
}

function checkCause(call: Call, after: Call, event: CallEvent, law: Law): void {
  if (call.phase !== "running") return;
  const cause = endingBy(event);
  law((after.phase === "ended") === (cause !== undefined), `${event.type} ${cause === undefined ? "ends nothing" : "ends the call"}`);
  if (after.phase !== "ended") return;
  law(after.outcome.status.case === cause?.status && codeOf(after.outcome) === cause?.code, "L3: the first cause is the ending");
}

function checkAsker(
  call: Call,
  after: Call,
  event: CallEvent,
  emits: Readonly<Record<string, number>>,
  next: number,
  answers: readonly Answer[],
  law: Law,
): void {
  const [answer] = answers;
  law(answers.length <= 1, "an asker is answered once");
  switch (event.type) {
    case "emitted": {
      const known = emits[event.emitId];
      const sequence = known ?? (call.phase === "running" ? next : undefined);
      if (sequence === undefined) law(answer?.type === "refused" && answer.reason === "call_ended", "an event after the ending is refused");
      else law(answer?.type === "emitted" && answer.sequence === sequence, "an emit is answered with the place of its record");
      return;
    }
    case "returned": {
      const disposition =
        call.phase === "running" ? Disposition.RECORDED : sameAsEnding(call, event.outcome) ? Disposition.DUPLICATE : Disposition.LATE;
      law(answer?.type === "reported" && answer.disposition === disposition, `a report is answered ${Disposition[disposition]}`);
      law(
        after.phase === "ended" && answer?.type === "reported" && answer.standing === after.outcome,
        "a report is answered with what stands",
      );
      return;
    }
    case "requested":
    case "refused": {
      if (call.phase === "absent") {
        law(answer === undefined, "a first request waits for its ending");
        return;
      }
      const { inputJson } = event.request;
      // Requests of the tests differ in their input alone, and write one value in one way.
      if (inputJson !== call.started.inputJson)
        law(answer?.type === "refused" && answer.reason === "call_id_conflict", "other content is refused");
      else law(call.phase === "running" ? answer === undefined : answer?.type === "ending", "the same content joins or is answered");
      return;
    }
    case "cancel_requested":
      law(
        call.phase === "absent" ? answer?.type === "refused" && answer.reason === "call_not_found" : answer === undefined,
        "only a call that is there is cancelled",
      );
      return;
    default:
      law(answer === undefined, `${event.type} asks nothing`);
  }
}

function sameAsEnding(call: Call, outcome: Outcome): boolean {
  if (call.phase !== "ended") return false;
  const [standing, reported] = [call.outcome.status, outcome.status];
  // Failures of the tests that differ have different codes, and one value is written in one way.
  if (standing.case === "ok" && reported.case === "ok") return standing.value.valueJson === reported.value.valueJson;
  return standing.case === reported.case && codeOf(call.outcome) === codeOf(outcome);
}

function same(left: Call, right: Call): boolean {
  if (left.phase === "absent" || right.phase === "absent") return left.phase === right.phase;
  if (left.callSequence !== right.callSequence || left.started !== right.started) return false;
  if (left.phase !== "ended" || right.phase !== "ended") return left.phase === right.phase;
  return left.endSequence === right.endSequence && left.outcome === right.outcome && left.late === right.late;
}

function count(entries: readonly PlacedEntry[], kind: PlacedEntry["entry"]["case"]): number {
  let found = 0;
  for (const { entry } of entries) if (entry.case === kind) found++;
  return found;
}

function codeOf({ status }: Outcome): string | undefined {
  return status.case === "ok" || status.case === undefined ? undefined : status.value.code;
}

function show(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) => (typeof inner === "bigint" ? String(inner) : inner));
}
