import type { Receiver } from "@aexhq/brain-proto";
import { assert } from "../core/assert.js";
import type { Answer, Call, CallEvent, CallRequest } from "../core/call.js";
import { Refusal } from "../core/refusal.js";
import type { EnvironmentPort, OpenCall, WaitingCall } from "../environments/port.js";
import type { CallRow } from "../journal/port.js";

/** How a call ended. */
export type Ending = Answer & { readonly type: "ending" };
export type Reported = Answer & { readonly type: "reported" };

/** Somebody who posted an event or waits for an ending, and is answered once. */
export interface Asker {
  answer(answer: Answer): void;
  refuse(refusal: Refusal): void;
}

/** What a reporter must own to speak for a call. */
export interface OwnedCall {
  readonly started: CallRow["started"];
}
export type Ownership = (call: OwnedCall) => boolean;

/** One call in memory: from its arrival to the moment its last decision is durable. */
export interface LiveCall {
  readonly callId: string;
  state: Call;
  readonly callers: Set<Asker>;
  /** What was asked for; absent for a call that was read from the journal. */
  readonly request: CallRequest | undefined;
  /** On the monotonic clock. */
  readonly deadlineAt: number;
  /** Settles when the journal has said whether this call_id is new. */
  lookup: Promise<void> | undefined;
  waiting: WaitingCall | undefined;
  open: OpenCall | undefined;
  environment: EnvironmentPort | undefined;
  disarm: (() => void) | undefined;
  /** Sequences of emits that are decided and not yet durable. */
  readonly emits: Map<string, number>;
  /** Decisions not yet durable. */
  unsettled: number;
  /** The first cause of an ending that could not be recorded; it is posted again. */
  held: CallEvent | undefined;
}

export function liveCall(call: Pick<LiveCall, "callId" | "state" | "request" | "deadlineAt">): LiveCall {
  const { callId, state, request, deadlineAt } = call;
  // Not `...call`: on the path of every call, an object that begins with a spread costs the engine a shape of its own.
  return {
    callId,
    state,
    request,
    deadlineAt,
    callers: new Set(),
    lookup: undefined,
    waiting: undefined,
    open: undefined,
    environment: undefined,
    disarm: undefined,
    emits: new Map(),
    unsettled: 0,
    held: undefined,
  };
}

export function disarm(live: LiveCall): void {
  live.disarm?.();
  live.disarm = undefined;
}

/** The call waits no longer, for whatever reason. */
export function stopWaiting(live: LiveCall): void {
  disarm(live);
  if (live.waiting !== undefined) live.environment?.leave(live.waiting);
  live.waiting = undefined;
}

/** Waits for the call's ending; `signal` ends only the waiting. `post` posts what the asker came with. */
export function join(live: LiveCall, signal?: AbortSignal, post?: (asker: Asker) => void): Promise<Ending> {
  return new Promise((resolve, reject) => {
    const leave = (): void => {
      live.callers.delete(asker);
      signal?.removeEventListener("abort", gone);
    };
    const gone = (): void => {
      leave();
      reject(signal?.reason);
    };
    const asker: Asker = {
      answer: (answer) => {
        leave();
        if (answer.type === "ending") resolve(answer);
        else if (answer.type === "refused") reject(new Refusal(answer.reason, answer.message));
      },
      refuse: (refusal) => {
        leave();
        reject(refusal);
      },
    };
    if (signal?.aborted === true) return reject(signal.reason);
    signal?.addEventListener("abort", gone);
    live.callers.add(asker);
    post?.(asker);
  });
}

/** Posts an event and waits for its answer. */
export function ask(post: (asker: Asker) => void): Promise<Answer> {
  return new Promise((resolve, reject) => {
    post({
      answer: (answer) => (answer.type === "refused" ? reject(new Refusal(answer.reason, answer.message)) : resolve(answer)),
      refuse: reject,
    });
  });
}

export function everyCaller(live: LiveCall): Asker {
  return {
    answer: (answer) => {
      for (const caller of [...live.callers]) caller.answer(answer);
    },
    refuse: (refusal) => {
      for (const caller of [...live.callers]) caller.refuse(refusal);
    },
  };
}

export function ownedCall(state: Call): OwnedCall {
  assert(state.phase !== "absent", "a call with a sequence has started");
  return state;
}

export function requestOf(live: LiveCall): CallRequest {
  assert(live.request !== undefined, "a call that is in no record has its request");
  return live.request;
}

export function requested(request: CallRequest, receiver: Receiver | undefined): CallEvent {
  return receiver === undefined ? { type: "requested", request } : { type: "requested", request, receiver };
}

/** The state that the records of a call make. */
export function stateOf(row: CallRow): Call {
  const { started, callSequence, endSequence, ended, late } = row;
  if (endSequence === undefined || ended?.outcome === undefined) return { phase: "running", callSequence, started };
  const state = { phase: "ended" as const, callSequence, started, endSequence, outcome: ended.outcome };
  return late?.outcome === undefined ? state : { ...state, late: late.outcome };
}

export function callNotFound(sessionId: string, by: { callId: string } | { callSequence: number }): Refusal {
  const name = "callId" in by ? `call_id ${JSON.stringify(by.callId)}` : `call_sequence ${by.callSequence}`;
  return new Refusal("call_not_found", `session ${sessionId} has no call with ${name}`, { session_id: sessionId });
}
