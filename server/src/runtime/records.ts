import {
  CaughtUpToSchema,
  type Record as JournalRecord,
  KeepAliveSchema,
  type WatchRecordsResponse,
  WatchRecordsResponseSchema,
} from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { LIMITS } from "../config.js";
import { invalidArgument } from "../core/refusal.js";
import type { Journal } from "../journal/port.js";
import type { Clock } from "./clock.js";
import { checkPageSize } from "./pages.js";
import { sessionNotFound } from "./sessions.js";

/** A session's records, read in pages or followed as they are committed. */
export class Records {
  readonly #journal: Journal;
  readonly #clock: Clock;

  constructor(ports: { journal: Journal; clock: Clock }) {
    this.#journal = ports.journal;
    this.#clock = ports.clock;
  }

  /** @throws Refusal for an unknown session and for a cursor above the last sequence. */
  async list(sessionId: string, after: number, pageSize: number): Promise<{ records: JournalRecord[]; lastSequence: number }> {
    const records = checkPageSize(pageSize);
    const lastSequence = await this.#checkCursor(sessionId, after);
    return { records: await this.#journal.read(sessionId, after, { records, bytes: LIMITS.pageBytes }), lastSequence };
  }

  /**
   * Every record after the cursor, each once and in order; `caught_up_to` once, when all that was committed has
   * been sent; then each new record as it is committed. Holds one page in memory, however slow the reader is.
   */
  async *watch(sessionId: string, after: number, signal: AbortSignal): AsyncGenerator<WatchRecordsResponse> {
    let changed = false;
    let wake: () => void = () => undefined;
    const stopWatching = this.#journal.watch(sessionId, () => {
      changed = true;
      wake();
    });
    const left = (): void => wake();
    signal.addEventListener("abort", left);
    try {
      await this.#checkCursor(sessionId, after);
      let cursor = after;
      let caughtUp = false;
      while (!signal.aborted) {
        const woken = changed;
        changed = false;
        const page = await this.#journal.read(sessionId, cursor, { records: LIMITS.pageRecords, bytes: LIMITS.pageBytes });
        for (const record of page) {
          yield create(WatchRecordsResponseSchema, { item: { case: "record", value: record } });
          cursor = record.sequence;
        }
        if (page.length > 0) continue;
        if (woken && (await this.#journal.findSession(sessionId)) === undefined) throw sessionNotFound(sessionId);
        if (!caughtUp) {
          caughtUp = true;
          yield create(WatchRecordsResponseSchema, {
            item: { case: "caughtUpTo", value: create(CaughtUpToSchema, { lastSequence: cursor }) },
          });
        }
        const quiet = await new Promise<boolean>((resolve) => {
          if (changed || signal.aborted) return resolve(false);
          const disarm = this.#clock.after(LIMITS.keepAliveEveryMs, () => resolve(true));
          wake = () => {
            disarm();
            resolve(false);
          };
        });
        if (quiet) yield create(WatchRecordsResponseSchema, { item: { case: "keepAlive", value: create(KeepAliveSchema) } });
      }
    } finally {
      signal.removeEventListener("abort", left);
      stopWatching();
    }
  }

  async #checkCursor(sessionId: string, after: number): Promise<number> {
    const row = await this.#journal.findSession(sessionId);
    if (row === undefined) throw sessionNotFound(sessionId);
    if (after > row.lastSequence) {
      throw invalidArgument(
        "after_sequence",
        `${after} is above ${row.lastSequence}, the last sequence of session ${sessionId}; use a cursor that was read`,
      );
    }
    return row.lastSequence;
  }
}
