/**
 * A session's journal as one iterator: what is there, page by page, then what is committed, as it is committed.
 *
 * 1. Every record after the cursor comes exactly once and in order, over any number of lost connections.
 * 2. The iterator ends when the session is deleted, when it is returned, and when its Brain object is closed; a record
 *    that says that the session has ended does not end it.
 */
import type { Record as JournalRecord } from "@aexhq/brain-proto";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Backoff } from "./backoff.js";
import { wait } from "./clock.js";
import { type BrainError, invalidArgument, isTransient } from "./errors.js";
import type { Requests } from "./requests.js";

export type { JournalRecord };

/** One record after the other. Leaving a `for await` loop lets go of the connection; so does `return`. */
export type JournalRecords = AsyncIterableIterator<JournalRecord> & AsyncDisposable;

const PAGE_SIZE = 500;
/** Three times the interval in which a watched journal gives signs of life. */
const SILENCE_MS = 45_000;
const MAX_CURSOR = 2 ** 32 - 1;

export function followRecords(requests: Requests, sessionId: string, after: number): JournalRecords {
  if (!Number.isInteger(after) || after < 0 || after > MAX_CURSOR) {
    throw invalidArgument(`records: the cursor ${after} is no sequence; give 0 for all records, or the last one you have`);
  }
  const left = new AbortController();
  const reader = read(requests, sessionId, after, left.signal);
  return {
    next: () => reader.next(),
    // A generator answers `return` only after a `next` that waits; aborting ends that one first.
    return: async () => {
      left.abort();
      await reader.return(undefined);
      return { done: true, value: undefined };
    },
    [Symbol.asyncIterator]() {
      return this;
    },
    async [Symbol.asyncDispose]() {
      await this.return?.();
    },
  };
}

async function* read(requests: Requests, sessionId: string, after: number, left: AbortSignal): AsyncGenerator<JournalRecord, undefined> {
  let cursor = after;
  let hasAnswered = false;
  const backoff = new Backoff();
  while (!left.aborted) {
    try {
      for await (const record of readOnce(requests, sessionId, cursor, left)) {
        backoff.reset();
        hasAnswered = true;
        cursor = record.sequence;
        yield record;
        if (left.aborted) return undefined;
      }
      hasAnswered = true;
    } catch (thrown) {
      if (left.aborted || requests.isClosed) return undefined;
      const error: BrainError = requests.failed(thrown);
      // Once the session has been seen, its absence means that it was deleted.
      if (error.reason === "session_not_found" && hasAnswered) return undefined;
      if (!isTransient(error) && error.reason !== "stream_too_slow" && error.reason !== "journal_unavailable") throw error;
    }
    await wait(requests.clock, backoff.next(), left);
  }
  return undefined;
}

/** Pages, then one watch, until it ends; every failure is thrown. */
async function* readOnce(
  requests: Requests,
  sessionId: string,
  after: number,
  left: AbortSignal,
): AsyncGenerator<JournalRecord, undefined> {
  let afterSequence = after;
  for (;;) {
    const page = await requests.once((options) =>
      requests.sessions.listRecords({ sessionId, afterSequence, pageSize: PAGE_SIZE }, options),
    );
    if (left.aborted) return undefined;
    for (const record of page.records) {
      afterSequence = record.sequence;
      yield record;
    }
    if (page.records.length === 0 || afterSequence >= page.lastSequence) break;
  }
  if (left.aborted) return undefined;
  yield* watch(requests, sessionId, afterSequence, left);
  return undefined;
}

async function* watch(
  requests: Requests,
  sessionId: string,
  afterSequence: number,
  left: AbortSignal,
): AsyncGenerator<JournalRecord, undefined> {
  const controller = requests.open();
  const abort = (): void => controller.abort();
  left.addEventListener("abort", abort, { once: true });
  let disarm = requests.clock.after(SILENCE_MS, abort);
  try {
    for await (const { item } of requests.sessions.watchRecords({ sessionId, afterSequence }, { signal: controller.signal })) {
      disarm();
      if (left.aborted) return undefined;
      // Armed again only when the reader comes back for more: a slow reader is no silent server.
      if (item.case === "record") yield item.value;
      if (left.aborted) return undefined;
      disarm = requests.clock.after(SILENCE_MS, abort);
    }
  } finally {
    disarm();
    left.removeEventListener("abort", abort);
    abort();
    requests.settle(controller);
  }
  return undefined;
}

/** A record on one line, for people. */
export function formatRecord(record: JournalRecord): string {
  const time = record.commitTime === undefined ? "" : timestampDate(record.commitTime).toISOString().slice(11, 23);
  return `${String(record.sequence).padStart(3)}  ${time}  ${describe(record)}`;
}

function describe({ entry }: JournalRecord): string {
  switch (entry.case) {
    case "sessionCreated": {
      const placed = entry.value.session?.tools.map(({ tool, environment }) => `${tool?.name} in ${environment}`) ?? [];
      return `session_created             ${placed.join(", ")}`;
    }
    case "sessionEnded":
      return "session_ended";
    case "toolCallStarted": {
      const { name, environment, inputJson } = entry.value;
      return `tool_call_started           ${name} in ${environment} ${inputJson}`;
    }
    case "eventEmitted": {
      const { origin, kind, dataJson } = entry.value;
      return `event_emitted               ${of(origin.value)} ${kind} ${dataJson}`;
    }
    case "toolCallCancelRequested":
      return `tool_call_cancel_requested  ${of(entry.value.callSequence)} ${entry.value.reason}`;
    case "toolCallEnded":
      return `tool_call_ended             ${of(entry.value.callSequence)} ${ending(entry.value.outcome)}`;
    case "toolCallLateOutcome":
      return `tool_call_late_outcome      ${of(entry.value.callSequence)} ${ending(entry.value.outcome)}`;
    default:
      return `${entry.case ?? "a record this version does not know"}`;
  }
}

function of(sequence: number | undefined): string {
  return `of ${sequence ?? "?"}:`;
}

function ending(outcome: (JournalRecord["entry"] & { case: "toolCallEnded" })["value"]["outcome"]): string {
  const status = outcome?.status;
  if (status?.case === undefined) return "an ending this version does not know";
  if (status.case === "ok") return `ok ${status.value.valueJson}`;
  return `${status.case} ${status.value.code}: ${status.value.message}`;
}
