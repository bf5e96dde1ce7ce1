import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  EventEmittedSchema,
  OutcomeSchema,
  SessionCreatedSchema,
  SessionEndedSchema,
  ToolCallCancelRequestedSchema,
  ToolCallEndedSchema,
  ToolCallLateOutcomeSchema,
  ToolCallStartedSchema,
} from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type Entry, JournalError } from "../../server/src/journal/port.js";
import type { SqliteJournalLimits } from "../../server/src/journal/sqlite/sqlite-journal.js";
import type { Clock } from "../../server/src/runtime/clock.js";

const MIB = 1024 * 1024;

export const JOURNAL_LIMITS: SqliteJournalLimits = {
  messageBytes: 3 * MIB,
  journalLockWaitMs: 30_000,
  journalRetryMs: 250,
  journalBatchAppends: 256,
  journalBatchBytes: 8 * MIB,
  journalIdleMs: 200,
  journalLogBytes: 16 * MIB,
  journalLogFileBytes: 32 * MIB,
  journalPurgeRows: 256,
  journalPurgeBytes: 4 * MIB,
  journalQuickCheckBytes: 512 * MIB,
  journalThreadCheckBytes: 512 * MIB,
  journalThreadCheckAfterMs: 1000,
  journalCallPageBytes: 8 * MIB,
};

/** A fresh directory; gone when the disposal is called. */
export function temporaryDirectory(): { path: string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), "brain-journal-"));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

/** Entries with only what the journal looks at. */
export const entry = {
  sessionCreated(sessionId: string, extra: { requestId?: string; labels?: Record<string, string>; createTimeMs?: number } = {}): Entry {
    return {
      case: "sessionCreated",
      value: create(SessionCreatedSchema, {
        session: { sessionId, labels: extra.labels ?? {}, createTime: timestampFromMs(extra.createTimeMs ?? 1000) },
        requestId: extra.requestId ?? "",
      }),
    };
  },
  sessionEnded: (): Entry => ({ case: "sessionEnded", value: create(SessionEndedSchema) }),
  started: (callId: string, inputJson = "{}"): Entry => ({
    case: "toolCallStarted",
    value: create(ToolCallStartedSchema, { callId, name: "lookup", environment: "local", inputJson }),
  }),
  event: (callSequence: number, emitId: string, dataJson = "1"): Entry => ({
    case: "eventEmitted",
    value: create(EventEmittedSchema, {
      origin: { case: "callSequence", value: callSequence },
      kind: "tick",
      dataJson,
      emitId,
    }),
  }),
  cancelRequested: (callSequence: number): Entry => ({
    case: "toolCallCancelRequested",
    value: create(ToolCallCancelRequestedSchema, { callSequence }),
  }),
  ended: (callSequence: number, valueJson = "null"): Entry => ({
    case: "toolCallEnded",
    value: create(ToolCallEndedSchema, {
      callSequence,
      outcome: create(OutcomeSchema, { status: { case: "ok", value: { valueJson } } }),
    }),
  }),
  late: (callSequence: number, valueJson = "null"): Entry => ({
    case: "toolCallLateOutcome",
    value: create(ToolCallLateOutcomeSchema, {
      callSequence,
      outcome: create(OutcomeSchema, { status: { case: "ok", value: { valueJson } } }),
    }),
  }),
};

/** A clock that stands still until the test moves it. */
export class ManualClock implements Clock {
  #time = 1_700_000_000_000;
  #timers: { due: number; wake: () => void }[] = [];
  #waiters: ((delayMs: number) => void)[] = [];

  now(): number {
    return this.#time;
  }
  monotonic(): number {
    return this.#time;
  }
  after(delayMs: number, wake: () => void): () => void {
    const timer = { due: this.#time + delayMs, wake };
    this.#timers.push(timer);
    for (const waiter of this.#waiters.splice(0)) waiter(delayMs);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }
  /** Resolves with the delay of the next timer that is armed. */
  nextTimer(): Promise<number> {
    return new Promise((resolve) => this.#waiters.push(resolve));
  }
  get armed(): number {
    return this.#timers.length;
  }
  /** Moves on and wakes what is due, in order. */
  advance(ms: number): void {
    this.#time += ms;
    const due = this.#timers.filter((timer) => timer.due <= this.#time).sort((a, b) => a.due - b.due);
    this.#timers = this.#timers.filter((timer) => timer.due > this.#time);
    for (const timer of due) timer.wake();
  }
}

/** How a promise that may fail came out. */
export async function settled(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
    return "done";
  } catch (error) {
    return error instanceof JournalError ? error.failure : error instanceof Error ? error.constructor.name : String(error);
  }
}
