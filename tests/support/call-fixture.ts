import { type Failure, FailureSchema, type Outcome, type Receiver, ReceiverSchema, RecordSchema } from "@aexhq/brain-proto";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { ABSENT, type Answer, type Call, type CallEvent, type CallRequest, type Effect, evolve } from "../../server/src/core/call.js";
import type { Entry, PlacedEntry } from "../../server/src/core/entry.js";
import { failed, ok } from "../../server/src/core/outcome.js";

export const DEADLINE_MS = 1_700_000_120_000;

/** A request for the call that the tests of the machine are about; `more` makes it another one. */
export function callRequest(more: Partial<CallRequest> = {}): CallRequest {
  return {
    callId: "call-1",
    name: "lookup",
    environment: "app",
    inputJson: '{"id":"7"}',
    deadlineMs: DEADLINE_MS,
    definitionSha256: "d".repeat(64),
    principal: "api",
    traceparent: "00-trace",
    ...more,
  };
}

export const RECEIVER: Receiver = create(ReceiverSchema, { hostId: "host-1", instanceId: "instance-1", generation: 3 });

/** Two outcomes that differ, and a failure for the events that carry one. */
export const OUTCOME_A: Outcome = ok('{"value":"a"}');
export const OUTCOME_B: Outcome = ok('{"value":"b"}');

export function someFailure(code: string, retryable = false): Failure {
  return create(FailureSchema, { code, message: `${code} happened`, retryable });
}

/** The events of a call, named as the rows of its table. */
export const event = {
  requested: (more: Partial<CallRequest> = {}, receiver: Receiver | undefined = RECEIVER): CallEvent => ({
    type: "requested",
    request: callRequest(more),
    ...(receiver === undefined ? {} : { receiver }),
  }),
  requestedWithoutReceiver: (more: Partial<CallRequest> = {}): CallEvent => ({ type: "requested", request: callRequest(more) }),
  refused: (more: Partial<CallRequest> = {}, code = "invalid_input"): CallEvent => ({
    type: "refused",
    request: callRequest(more),
    failure: someFailure(code),
  }),
  givenUp: (outcome: Outcome = failed("error", someFailure("host_unavailable", true))): CallEvent => ({
    type: "given_up",
    request: callRequest(),
    outcome,
  }),
  emitted: (emitId: string, recorded?: number): CallEvent => ({
    type: "emitted",
    kind: "progress",
    dataJson: '{"done":1}',
    emitId,
    ...(recorded === undefined ? {} : { recorded }),
  }),
  returned: (outcome: Outcome, principal = "host:host-1"): CallEvent => ({ type: "returned", outcome, principal }),
  undeliverable: (): CallEvent => ({ type: "undeliverable", failure: someFailure("command_not_delivered", true) }),
  deadlinePassed: (): CallEvent => ({ type: "deadline_passed" }),
  cancelRequested: (reason = "changed my mind"): CallEvent => ({ type: "cancel_requested", reason, principal: "api" }),
  sessionEnded: (): CallEvent => ({ type: "session_ended" }),
  lost: (): CallEvent => ({ type: "lost", failure: someFailure("host_instance_lost") }),
  reopened: (facts: { deadlinePassed?: boolean; holderCanReturn?: boolean } = {}): CallEvent => ({
    type: "reopened",
    deadlinePassed: facts.deadlinePassed ?? false,
    holderCanReturn: facts.holderCanReturn ?? false,
  }),
} as const;

/** Entries at the places a decision taken at `next` gives them. */
export function placed(next: number, entries: readonly Entry[]): PlacedEntry[] {
  return entries.map((entry, index) => ({ sequence: next + index, entry }));
}

/** The state that entries make, from the beginning. */
export function fold(entries: readonly PlacedEntry[]): Call {
  return entries.reduce(evolve, ABSENT);
}

/** The same entries as a reader of the journal has them: written as records and read back. */
export function throughJournal(entries: readonly PlacedEntry[]): PlacedEntry[] {
  return entries.map(({ sequence, entry }) => {
    const bytes = toBinary(RecordSchema, create(RecordSchema, { sessionId: "session-1", sequence, entry }));
    const record = fromBinary(RecordSchema, bytes);
    if (record.entry.case === undefined) throw new Error(`record ${sequence} came back without its entry`);
    return { sequence: record.sequence, entry: record.entry };
  });
}

export function answersTo(effects: readonly Effect[], to: "callers" | "asker"): Answer[] {
  return effects.flatMap((effect) => (effect.type === "answer" && effect.to === to ? [effect.answer] : []));
}
