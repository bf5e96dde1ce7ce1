/** What is known of a round when it is over: what was asked, what was done to whom, what was witnessed, what is recorded. */
import type { Outcome as WireOutcome } from "@aexhq/brain-proto";
import type { Problem } from "../../server/src/journal/check-journal.js";
import type { FiledRecord } from "./journal-records.js";
import type { Plan, PlannedCall } from "./plan.js";
import type { Witnessed } from "./witness.js";

export interface AskedCall extends PlannedCall {
  readonly sessionId: string;
  /** Wall clock, as all times here. */
  readonly firstAskedAt: number;
  cancelAskedAt: number | undefined;
}

/** What a caller was told: by CallTool, or by CancelToolCall. */
export interface Answer {
  readonly callId: string;
  readonly at: number;
  readonly by: "call" | "cancel" | "confirmation";
  readonly outcome: string;
  /** The SDK's callers are not told them. */
  readonly callSequence?: number;
  readonly endSequence?: number;
}

export interface ProcessLife {
  readonly name: string;
  readonly kind: "server" | "host";
  /** Of a host: its place. */
  readonly place?: number;
  /** It was given a file outbox, and takes up what its predecessor left in it. */
  readonly outbox: boolean;
  readonly startedAt: number;
  /** Taken just before the kill. */
  killedAt?: number;
  /** "at any time", or the point at which it killed itself. */
  killedBy?: string;
}

export interface Happening {
  readonly at: number;
  readonly what: string;
}

export interface Evidence {
  readonly plan: Plan;
  readonly startedAt: number;
  readonly calls: readonly AskedCall[];
  readonly answers: readonly Answer[];
  /** Kills, cuts, freezes, starts: the harness's own log. */
  readonly log: readonly Happening[];
  readonly cuts: Readonly<Record<string, number>>;
  readonly lives: readonly ProcessLife[];
  readonly witnessed: readonly Witnessed[];
  readonly records: readonly FiledRecord[];
  readonly journalProblems: readonly Problem[];
  /** What went wrong in the round itself: a caller that waits for ever, an unexpected refusal, a process that would not stop. */
  readonly complaints: readonly { readonly callId?: string; readonly what: string }[];
}

/** One text for equal outcomes, whoever tells of them. */
export function outcomeText(outcome: WireOutcome | undefined): string {
  const ending = outcome?.status;
  if (ending?.case === undefined) return "none";
  return ending.case === "ok" ? `ok ${ending.value.valueJson}` : `${ending.case} ${ending.value.code} ${ending.value.message}`;
}
