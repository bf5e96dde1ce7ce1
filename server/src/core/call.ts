/**
 * The whole life of a call, in two pure functions: `decide` says what an event means for a call, `evolve` says
 * what an entry makes of it. The driver appends everything a decision names in one transaction and performs
 * the effects afterwards.
 *
 *   absent --started--> running --ended--> ended
 *
 * Laws, asserted here where they can be seen and proved by the tests beside this file:
 * L1 `send` occurs only in the decision that appends `tool_call_started`; at most one send per call, ever.
 * L2 no effect before its append is durable (the driver's).
 * L3 exactly one ended per started; the first cause stands.
 * L4 reopening never yields `send`.
 * L5 folding the journal gives the live state.
 * L6 a call's answer follows its ended record, and no event of a call comes after it.
 */

import {
  CancelCause,
  Disposition,
  EventEmittedSchema,
  type Failure,
  type Outcome,
  type Receiver,
  ToolCallCancelRequestedSchema,
  ToolCallEndedSchema,
  ToolCallLateOutcomeSchema,
  type ToolCallStarted,
  ToolCallStartedSchema,
} from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { assert } from "./assert.js";
import type { Entry, PlacedEntry } from "./entry.js";
import { failed, failure, sameJson, sameOutcome } from "./outcome.js";

export type Call =
  | { readonly phase: "absent" }
  | { readonly phase: "running"; readonly callSequence: number; readonly started: ToolCallStarted }
  | {
      readonly phase: "ended";
      readonly callSequence: number;
      readonly started: ToolCallStarted;
      readonly endSequence: number;
      readonly outcome: Outcome;
      /** The one outcome that came after the ending and differs from it. */
      readonly late?: Outcome;
    };

export const ABSENT: Call = { phase: "absent" };

/** What makes two requests of one call_id the same request. The timeout is no part of it. */
export interface Content {
  readonly name: string;
  readonly environment: string;
  readonly inputJson: string;
}

export interface CallRequest extends Content {
  readonly callId: string;
  readonly deadlineMs: number;
  readonly definitionSha256: string;
  readonly principal: string;
  readonly traceparent: string;
}

export type CallEvent =
  /** Valid, placed, and with a receiver reserved where the Environment has receivers. */
  | { readonly type: "requested"; readonly request: CallRequest; readonly receiver?: Receiver }
  /** Refused by a schema or the catalogue. */
  | { readonly type: "refused"; readonly request: CallRequest; readonly failure: Failure }
  /** Given up while it waited for a receiver. */
  | { readonly type: "given_up"; readonly request: CallRequest; readonly outcome: Outcome }
  /** `recorded` is the sequence this emit_id already has in this call. */
  | { readonly type: "emitted"; readonly kind: string; readonly dataJson: string; readonly emitId: string; readonly recorded?: number }
  /** The outcome as judged by validation. */
  | { readonly type: "returned"; readonly outcome: Outcome; readonly principal: string }
  /** Known not to have run. */
  | { readonly type: "undeliverable"; readonly failure: Failure }
  | { readonly type: "deadline_passed" }
  | { readonly type: "cancel_requested"; readonly reason: string; readonly principal: string }
  | { readonly type: "session_ended" }
  /** The last holder is gone for good. */
  | { readonly type: "lost"; readonly failure: Failure }
  | { readonly type: "reopened"; readonly deadlinePassed: boolean; readonly holderCanReturn: boolean };

export type Answer =
  | { readonly type: "ending"; readonly callSequence: number; readonly endSequence: number; readonly outcome: Outcome }
  | { readonly type: "emitted"; readonly sequence: number }
  | { readonly type: "reported"; readonly disposition: Disposition; readonly standing: Outcome }
  | { readonly type: "refused"; readonly reason: "call_id_conflict" | "call_ended" | "call_not_found"; readonly message: string };

export type Effect =
  | { readonly type: "send" }
  | { readonly type: "stop"; readonly cause: CancelCause }
  | { readonly type: "arm_deadline"; readonly deadlineMs: number }
  | { readonly type: "disarm_deadline" }
  /** `callers` is everyone who waits for the ending, `asker` who posted this event. */
  | { readonly type: "answer"; readonly to: "callers" | "asker"; readonly answer: Answer };

export interface Decision {
  readonly append: readonly Entry[];
  readonly effects: readonly Effect[];
}

const NOTHING: Decision = { append: [], effects: [] };

/** `next` is the sequence that the first appended entry will have. */
export function decide(call: Call, event: CallEvent & { readonly next: number }): Decision {
  const decision = call.phase === "absent" ? start(event) : call.phase === "running" ? run(call, event) : afterwards(call, event);
  assertLaws(call, event, decision);
  return decision;
}

function start(event: CallEvent & { next: number }): Decision {
  switch (event.type) {
    case "requested": {
      const { deadlineMs } = event.request;
      return { append: [startedEntry(event.request, event.receiver)], effects: [{ type: "arm_deadline", deadlineMs }, { type: "send" }] };
    }
    case "refused":
      return startAndEnd(event.next, event.request, failed("error", event.failure));
    case "given_up":
      return startAndEnd(event.next, event.request, event.outcome);
    case "cancel_requested":
      return refuse("call_not_found", "no such call in this session; a call that is on its way can be cancelled once it has arrived");
    case "session_ended":
      return NOTHING;
    default:
      return assert.fail(`${event.type} for an absent call`);
  }
}

function run(call: Call & { phase: "running" }, event: CallEvent & { next: number }): Decision {
  switch (event.type) {
    case "requested":
    case "refused":
      // Whoever asks again waits with the callers that are there; the ending answers them all.
      return sameContent(call.started, event.request) ? NOTHING : conflict(call);
    case "emitted": {
      if (event.recorded !== undefined) return answer("asker", { type: "emitted", sequence: event.recorded });
      const { kind, dataJson, emitId } = event;
      const origin = { case: "callSequence", value: call.callSequence } as const;
      return {
        append: [{ case: "eventEmitted", value: create(EventEmittedSchema, { origin, kind, dataJson, emitId }) }],
        effects: [{ type: "answer", to: "asker", answer: { type: "emitted", sequence: event.next } }],
      };
    }
    case "returned": {
      const ended = end(call, event.next, event.outcome, [{ type: "disarm_deadline" }]);
      const reported: Answer = { type: "reported", disposition: Disposition.RECORDED, standing: event.outcome };
      return { append: ended.append, effects: [...ended.effects, { type: "answer", to: "asker", answer: reported }] };
    }
    case "undeliverable":
      return end(call, event.next, failed("error", event.failure), [{ type: "disarm_deadline" }], CancelCause.CALL_ENDED);
    case "deadline_passed":
      return end(call, event.next, deadlinePassed(), [], CancelCause.DEADLINE);
    case "cancel_requested": {
      const { reason, principal } = event;
      const requested = create(ToolCallCancelRequestedSchema, { callSequence: call.callSequence, reason, principal });
      const ended = end(call, event.next + 1, cancelled(reason), [{ type: "disarm_deadline" }], CancelCause.REQUESTED);
      return { append: [{ case: "toolCallCancelRequested", value: requested }, ...ended.append], effects: ended.effects };
    }
    case "session_ended":
      return end(call, event.next, sessionEnded(), [{ type: "disarm_deadline" }], CancelCause.SESSION_ENDED);
    case "lost":
      return end(call, event.next, failed("unknown", event.failure), [{ type: "disarm_deadline" }], CancelCause.CALL_ENDED);
    case "reopened":
      if (event.deadlinePassed) return end(call, event.next, deadlinePassed(), []);
      if (!event.holderCanReturn) return end(call, event.next, restarted(), []);
      return { append: [], effects: [{ type: "arm_deadline", deadlineMs: deadlineOf(call.started) }] };
    case "given_up":
      return assert.fail("a running call is not waiting and cannot be given up");
  }
}

function afterwards(call: Call & { phase: "ended" }, event: CallEvent & { next: number }): Decision {
  switch (event.type) {
    case "requested":
    case "refused":
      return sameContent(call.started, event.request) ? answer("asker", endingOf(call)) : conflict(call);
    case "emitted":
      if (event.recorded !== undefined) return answer("asker", { type: "emitted", sequence: event.recorded });
      return refuse("call_ended", `call ${call.callSequence} has ended; an event can be emitted only while it runs`);
    case "returned": {
      const standing = call.outcome;
      if (sameOutcome(standing, event.outcome)) return answer("asker", { type: "reported", disposition: Disposition.DUPLICATE, standing });
      const late: Effect = { type: "answer", to: "asker", answer: { type: "reported", disposition: Disposition.LATE, standing } };
      if (call.late !== undefined) return { append: [], effects: [late] };
      const { outcome, principal } = event;
      const value = create(ToolCallLateOutcomeSchema, { callSequence: call.callSequence, outcome, principal });
      return { append: [{ case: "toolCallLateOutcome", value }], effects: [late] };
    }
    case "given_up":
      return assert.fail("an ended call is not waiting and cannot be given up");
    default:
      // The first cause stands; whatever else would have ended the call came too late.
      return NOTHING;
  }
}

/** The state after an entry; the fold of a call's entries is its live state (L5). */
export function evolve(call: Call, placed: PlacedEntry): Call {
  const { sequence, entry } = placed;
  switch (entry.case) {
    case "toolCallStarted":
      assert(call.phase === "absent", "a call starts once");
      return { phase: "running", callSequence: sequence, started: entry.value };
    case "eventEmitted":
    case "toolCallCancelRequested":
      assert(call.phase === "running", `${entry.case} belongs to a running call`);
      return call;
    case "toolCallEnded":
      assert(call.phase === "running" && entry.value.outcome !== undefined, "a call ends once, with an outcome (L3)");
      return {
        phase: "ended",
        callSequence: call.callSequence,
        started: call.started,
        endSequence: sequence,
        outcome: entry.value.outcome,
      };
    case "toolCallLateOutcome":
      assert(call.phase === "ended" && call.late === undefined && entry.value.outcome !== undefined, "one late outcome, after the ending");
      return { ...call, late: entry.value.outcome };
    default:
      return assert.fail(`${entry.case} is not an entry of a call`);
  }
}

export function sameContent(left: Content, right: Content): boolean {
  return left.name === right.name && left.environment === right.environment && sameJson(left.inputJson, right.inputJson);
}

/** What a call that waits for a receiver is given up with when its deadline passes, it is cancelled, or its session ends. */
export const deadlinePassed = (): Outcome =>
  failed("timeout", failure("deadline_passed", "the deadline of the call passed before an outcome was recorded"));
export const cancelled = (reason: string): Outcome =>
  failed("cancelled", failure("cancel_requested", reason === "" ? "the call was cancelled" : `the call was cancelled: ${reason}`));
export const sessionEnded = (): Outcome => failed("cancelled", failure("session_ended", "the session was ended while the call was open"));
const restarted = (): Outcome =>
  failed(
    "unknown",
    failure(
      "server_restarted",
      "the server was restarted while the call ran, and what ran it did not survive; it may have run, wholly or in part",
    ),
  );

function deadlineOf(started: ToolCallStarted): number {
  assert(started.deadline !== undefined, "a started record has a deadline");
  return Number(started.deadline.seconds) * 1000 + started.deadline.nanos / 1e6;
}

function startedEntry(request: CallRequest, receiver?: Receiver): Entry {
  const { callId, name, environment, inputJson, definitionSha256, principal, traceparent } = request;
  const deadline = timestampFromMs(request.deadlineMs);
  const value = create(ToolCallStartedSchema, { callId, name, environment, inputJson, deadline, definitionSha256, principal, traceparent });
  if (receiver !== undefined) value.receiver = receiver;
  return { case: "toolCallStarted", value };
}

function endedEntry(callSequence: number, outcome: Outcome): Entry {
  return { case: "toolCallEnded", value: create(ToolCallEndedSchema, { callSequence, outcome }) };
}

function startAndEnd(next: number, request: CallRequest, outcome: Outcome): Decision {
  const ending: Answer = { type: "ending", callSequence: next, endSequence: next + 1, outcome };
  return {
    append: [startedEntry(request), endedEntry(next, outcome)],
    effects: [{ type: "answer", to: "callers", answer: ending }],
  };
}

function end(
  call: Call & { phase: "running" },
  endSequence: number,
  outcome: Outcome,
  first: readonly Effect[],
  stop?: CancelCause,
): Decision {
  const { callSequence } = call;
  const ending: Effect = { type: "answer", to: "callers", answer: { type: "ending", callSequence, endSequence, outcome } };
  const effects: Effect[] = [...first, ending];
  if (stop !== undefined) effects.push({ type: "stop", cause: stop });
  return { append: [endedEntry(callSequence, outcome)], effects };
}

function endingOf(call: Call & { phase: "ended" }): Answer {
  const { callSequence, endSequence, outcome } = call;
  return { type: "ending", callSequence, endSequence, outcome };
}

function answer(to: "callers" | "asker", content: Answer): Decision {
  return { append: [], effects: [{ type: "answer", to, answer: content }] };
}

function refuse(reason: (Answer & { type: "refused" })["reason"], message: string): Decision {
  return answer("asker", { type: "refused", reason, message });
}

function conflict(call: Exclude<Call, { phase: "absent" }>): Decision {
  const { callId, name, environment } = call.started;
  return refuse(
    "call_id_conflict",
    `call_id ${JSON.stringify(callId)} names call ${call.callSequence} of ${name} in ${environment}, which was asked for with other content; use a new call_id`,
  );
}

function assertLaws(call: Call, event: CallEvent, decision: Decision): void {
  const starts = decision.append.some((entry) => entry.case === "toolCallStarted");
  const ends = decision.append.some((entry) => entry.case === "toolCallEnded");
  const sends = decision.effects.filter((effect) => effect.type === "send").length;
  assert(sends === 0 || (sends === 1 && starts && !ends && call.phase === "absent"), "L1: a send only with its start");
  assert(!starts || call.phase === "absent", "L1: a call starts once");
  assert(!ends || call.phase === "running" || starts, "L3: one ending per start");
  assert(event.type !== "reopened" || sends === 0, "L4: reopening sends nothing");
  assert(
    ends || !decision.effects.some((effect) => effect.type === "answer" && effect.to === "callers"),
    "L6: callers are answered by the ending",
  );
}
