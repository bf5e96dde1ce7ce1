import type { Record as JournalRecord } from "@aexhq/brain-proto";
import { AssertionFailed, assert } from "../../core/assert.js";
import type { Clock } from "../../runtime/clock.js";
import {
  type AppendFailure,
  type CallQuery,
  type CallRow,
  type Entry,
  type HostRow,
  type Journal,
  JournalError,
  type PageLimits,
  type SessionQuery,
  type SessionRow,
} from "../port.js";
import { encodeEntry } from "./encode-entry.js";
import { describeError, isBusy, JournalFileError } from "./journal-file-error.js";
import type { CommitReply, Operation, Reply, WriterLimits } from "./operation.js";
import type { Reader } from "./reader.js";
import { SessionWatchers } from "./session-watchers.js";
import type { WriterLink } from "./writer-link.js";

export interface SqliteJournalLimits extends WriterLimits {
  /** Any Record, encoded. */
  readonly messageBytes: number;
  /** How long an append waits while somebody else holds the file. */
  readonly journalLockWaitMs: number;
  /** How long after a step that found no space the removal of deleted sessions tries again. */
  readonly journalRetryMs: number;
  /** What one transaction takes at most: appends, and bytes of their entries. */
  readonly journalBatchAppends: number;
  readonly journalBatchBytes: number;
  /** A checkpoint runs when nothing was appended for this long. */
  readonly journalIdleMs: number;
  /** Files up to this size are checked through at the start. */
  readonly journalQuickCheckBytes: number;
  /** Larger ones up to this size are checked through by a thread while the journal is in use. */
  readonly journalThreadCheckBytes: number;
  /** How long after the start. */
  readonly journalThreadCheckAfterMs: number;
  /** Bytes of one page of calls. */
  readonly journalCallPageBytes: number;
}

/** Where the journal says what it went through; pino's logger fits. */
export interface JournalLog {
  warn(details: Readonly<Record<string, unknown>>, message: string): void;
}

interface Waiting {
  readonly operation: Operation;
  /** The session whose order the operation keeps; undefined when it keeps none. */
  readonly sessionId: string | undefined;
  readonly bytes: number;
  /** Monotonic time at which it was asked for. */
  readonly since: number;
  resolve(reply: Extract<Reply, { type: "done" }>): void;
  reject(error: Error): void;
}

/**
 * The journal over one writer and one reader.
 *
 * 1. Whatever waits when the writer is free is one batch: there is no timer, and one batch at a time.
 * 2. Operations settle in the order they were asked for; a session's appends keep that order when a batch goes back.
 * 3. When an append fails, every later append of its session that was asked for before that failure reached its caller
 *    fails with `sequence_conflict`: those queued now, and those asked for until the rejection is seen.
 * 4. Listeners run after the commit, outside any transaction; one that throws disturbs nobody.
 * 5. After an error that leaves a commit in doubt nothing is written, everything waiting and all that is asked for later
 *    is rejected (not as a JournalError: it may be in the file), and `onFatal` is called once.
 */
export class SqliteJournal implements Journal {
  readonly #file: string;
  readonly #link: WriterLink;
  readonly #reader: Reader;
  readonly #clock: Clock;
  readonly #limits: SqliteJournalLimits;
  readonly #onFatal: (error: Error) => void;
  readonly #log: JournalLog | undefined;
  readonly #release: () => void;
  readonly #watchers: SessionWatchers;

  #queue: Waiting[] = [];
  /** Sessions with a rejection that its caller has not seen yet. */
  readonly #failing = new Set<string>();
  #running = false;
  #checkpointDue = false;
  #disarmRetry: (() => void) | undefined;
  #retryDelayMs = 0;
  #disarmIdle: (() => void) | undefined;
  #idleDelayMs: number;
  #lastCommit = 0;
  #disarmPurge: (() => void) | undefined;
  #purging = false;
  #flushes = 0;
  #closed: Promise<void> | undefined;
  #quiet: (() => void) | undefined;
  #fatal: Error | undefined;

  constructor(parts: {
    readonly file: string;
    readonly link: WriterLink;
    readonly reader: Reader;
    readonly clock: Clock;
    readonly limits: SqliteJournalLimits;
    readonly onFatal: (error: Error) => void;
    readonly log: JournalLog | undefined;
    readonly release: () => void;
  }) {
    this.#file = parts.file;
    this.#link = parts.link;
    this.#reader = parts.reader;
    this.#clock = parts.clock;
    this.#limits = parts.limits;
    this.#onFatal = parts.onFatal;
    this.#log = parts.log;
    this.#release = parts.release;
    this.#watchers = new SessionWatchers(parts.log);
    this.#idleDelayMs = parts.limits.journalIdleMs;
    if (parts.link.hadPurges) this.#purge();
  }

  get flushCount(): number {
    return this.#flushes;
  }

  append(sessionId: string, expectedNext: number, entries: readonly Entry[]): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#failing.has(sessionId)) throw cascade(sessionId);
      if (entries.length === 0) assert.fail(`an append of session ${sessionId} has entries`);
      if (!(Number.isInteger(expectedNext) && expectedNext >= 1 && expectedNext + entries.length - 1 <= LAST_SEQUENCE)) {
        assert.fail(`the sequences of session ${sessionId} lie in 1 to ${LAST_SEQUENCE}`);
      }
      const now = this.#clock.now();
      const encoded = entries.map((entry) => encodeEntry(sessionId, entry, now, this.#limits.messageBytes));
      const bytes = encoded.reduce((sum, entry) => sum + entry.body.byteLength, 0);
      const operation = { type: "append" as const, sessionId, expectedNext, entries: encoded };
      this.#enqueue(operation, sessionId, bytes, () => resolve(), reject);
    });
  }

  read(sessionId: string, after: number, limits: PageLimits): Promise<JournalRecord[]> {
    return this.#reading(() => this.#reader.read(sessionId, after, limits));
  }

  watch(sessionId: string, listener: () => void): () => void {
    return this.#watchers.add(sessionId, listener);
  }

  findSession(sessionId: string): Promise<SessionRow | undefined> {
    return this.#reading(() => this.#reader.findSession(sessionId));
  }

  findSessionByRequestId(requestId: string): Promise<string | undefined> {
    return this.#reading(() => this.#reader.findSessionByRequestId(requestId));
  }

  listSessions(query: SessionQuery): Promise<{ sessions: SessionRow[]; nextPageToken: string }> {
    return this.#reading(() => this.#reader.listSessions(query));
  }

  async deleteSession(sessionId: string): Promise<void> {
    const reply = await this.#submit({ type: "delete_session", sessionId }, sessionId);
    if (reply.purgesLeft === true) this.#purge();
  }

  openCalls(): Promise<CallRow[]> {
    return this.#reading(() => this.#reader.openCalls());
  }

  findCall(sessionId: string, by: { callId: string } | { callSequence: number }): Promise<CallRow | undefined> {
    return this.#reading(() => this.#reader.findCall(sessionId, by));
  }

  listCalls(query: CallQuery): Promise<CallRow[]> {
    return this.#reading(() => this.#reader.listCalls(query));
  }

  findEmit(sessionId: string, callSequence: number, emitId: string): Promise<number | undefined> {
    return this.#reading(() => this.#reader.findEmit(sessionId, callSequence, emitId));
  }

  async putHost(host: HostRow): Promise<HostRow> {
    const reply = await this.#submit({ type: "put_host", host }, undefined);
    assert(reply.host !== undefined, "a host that was put stands");
    return reply.host;
  }

  findHost(hostId: string): Promise<HostRow | undefined> {
    return this.#reading(() => this.#reader.findHost(hostId));
  }

  findHostByToken(tokenSha256: Uint8Array): Promise<HostRow | undefined> {
    return this.#reading(() => this.#reader.findHostByToken(tokenSha256));
  }

  listHosts(pageToken: string, pageSize: number): Promise<{ hosts: HostRow[]; nextPageToken: string }> {
    return this.#reading(() => this.#reader.listHosts(pageToken, pageSize));
  }

  async deleteHost(hostId: string): Promise<void> {
    await this.#submit({ type: "delete_host", hostId }, undefined);
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  #submit(operation: Operation, sessionId: string | undefined): Promise<Extract<Reply, { type: "done" }>> {
    return new Promise((resolve, reject) => this.#enqueue(operation, sessionId, 0, resolve, reject));
  }

  #enqueue(
    operation: Operation,
    sessionId: string | undefined,
    bytes: number,
    resolve: Waiting["resolve"],
    reject: Waiting["reject"],
  ): void {
    if (this.#fatal !== undefined) throw this.#fatal;
    if (this.#closed !== undefined) {
      throw new JournalError("journal_unavailable", `the journal ${this.#file} is closed; the server is stopping`);
    }
    this.#queue.push({ operation, sessionId, bytes, since: this.#clock.monotonic(), resolve, reject });
    this.#wake();
  }

  #refuse({ operation, reject }: Waiting, error: Error): void {
    // Queued before the reactions of the caller: its retry, made when it sees the failure, is no longer one of the appends
    // that were asked for before.
    if (operation.type === "append") queueMicrotask(() => this.#failing.delete(operation.sessionId));
    reject(error);
  }

  #wake(): void {
    if (this.#running || this.#disarmRetry !== undefined) return;
    this.#running = true;
    setImmediate(() => {
      // #run rejects for nothing: whatever fails in it is settled as fatal.
      void this.#run();
    });
  }

  async #run(): Promise<void> {
    const batch = this.#takeBatch();
    try {
      if (batch.length > 0) {
        const operations = batch.map((waiting) => waiting.operation);
        this.#settle(batch, await this.#link.commit(operations, this.#clock.now()));
      }
      if (this.#checkpointDue && this.#fatal === undefined) await this.#checkpoint();
    } catch (error) {
      // No answer: nobody knows what of the batch is in the file. Those that were settled stay settled.
      this.#queue.unshift(...batch);
      this.#die(error instanceof Error ? error : new Error(String(error)));
    }
    this.#running = false;
    if (this.#queue.length > 0 || this.#checkpointDue) this.#wake();
    else this.#quiet?.();
  }

  #takeBatch(): Waiting[] {
    let bytes = 0;
    let count = 0;
    for (const waiting of this.#queue) {
      bytes += waiting.bytes;
      if (count > 0 && (count >= this.#limits.journalBatchAppends || bytes > this.#limits.journalBatchBytes)) break;
      count += 1;
    }
    return this.#queue.splice(0, count);
  }

  #settle(batch: readonly Waiting[], reply: CommitReply): void {
    this.#flushes += reply.flushes;
    this.#checkpointDue ||= reply.checkpointDue;
    const changed = new Set<string>();
    const goingBack: Waiting[] = [];
    const rejections: Waiting[] = [];
    const doubtful: Waiting[] = [];
    for (const [index, waiting] of batch.entries()) {
      const made = reply.replies[index];
      assert(made !== undefined, "the writer answers every operation of a batch");
      if (made.type === "busy") goingBack.push(waiting);
      else if (made.type === "in_doubt") doubtful.push(waiting);
      else if (made.type === "done") {
        if (waiting.sessionId !== undefined) changed.add(waiting.sessionId);
        waiting.resolve(made);
      } else {
        const error = made.type === "failed" ? new JournalError(made.failure, made.message) : new AssertionFailed(made.message);
        rejections.push(waiting);
        this.#refuse(waiting, error);
      }
    }
    this.#queue.unshift(...goingBack);
    if (reply.fatal !== undefined) {
      this.#queue.unshift(...doubtful);
      this.#die(new JournalFileError(this.#file, reply.fatal));
    } else {
      for (const waiting of rejections) this.#rejectLater(waiting);
      if (goingBack.length > 0) this.#retryLater();
      else this.#retryDelayMs = 0;
    }
    if (reply.flushes > 0) {
      this.#lastCommit = this.#clock.monotonic();
      this.#idleDelayMs = this.#limits.journalIdleMs;
      this.#armIdle();
    }
    for (const sessionId of changed) this.#watchers.notify(sessionId);
  }

  /** Invariant 3, for an append that was just rejected. */
  #rejectLater(failed: Waiting): void {
    const { sessionId } = failed;
    if (failed.operation.type !== "append" || sessionId === undefined) return;
    this.#failing.add(sessionId);
    const kept: Waiting[] = [];
    for (const waiting of this.#queue) {
      if (waiting.sessionId === sessionId && waiting.operation.type === "append") this.#refuse(waiting, cascade(sessionId));
      else kept.push(waiting);
    }
    this.#queue = kept;
  }

  #retryLater(): void {
    if (this.#retryDelayMs === 0) {
      this.#log?.warn({ file: this.#file }, "the journal file is held by another process; appends wait until it lets go");
    }
    this.#refuseOverdue();
    if (this.#queue.length === 0) {
      this.#retryDelayMs = 0;
      return;
    }
    this.#retryDelayMs = Math.min(Math.max(this.#retryDelayMs * 2, SHORTEST_RETRY_MS), LONGEST_RETRY_MS);
    this.#disarmRetry = this.#clock.after(this.#retryDelayMs, () => {
      this.#disarmRetry = undefined;
      this.#wake();
    });
  }

  /** Gives up what has waited too long for the file. */
  #refuseOverdue(): void {
    const oldest = this.#clock.monotonic() - this.#limits.journalLockWaitMs;
    for (;;) {
      const overdue = this.#queue.find((waiting) => waiting.since <= oldest);
      if (overdue === undefined) return;
      this.#queue.splice(this.#queue.indexOf(overdue), 1);
      this.#refuse(
        overdue,
        new JournalError(
          "journal_unavailable",
          `the journal file ${this.#file} has been held by another process for ${this.#limits.journalLockWaitMs} ms; ` +
            "find out who holds it (fuser), then try again",
        ),
      );
      this.#rejectLater(overdue);
    }
  }

  async #checkpoint(): Promise<void> {
    this.#checkpointDue = false;
    const reply = await this.#link.checkpoint();
    if (reply.fatal !== undefined) {
      this.#die(new JournalFileError(this.#file, reply.fatal));
      return;
    }
    if (reply.complete && reply.logBytes <= this.#limits.journalLogFileBytes) return;
    // A reader keeps the log from being reused, or there is no space in the file yet: look again, less and less often.
    this.#idleDelayMs = Math.min(this.#idleDelayMs * 2, LONGEST_IDLE_MS);
    this.#armIdle();
  }

  #armIdle(): void {
    if (this.#disarmIdle !== undefined || this.#fatal !== undefined || this.#closed !== undefined) return;
    this.#disarmIdle = this.#clock.after(this.#idleDelayMs, () => {
      this.#disarmIdle = undefined;
      if (this.#clock.monotonic() - this.#lastCommit < this.#idleDelayMs || this.#queue.length > 0) {
        this.#armIdle();
        return;
      }
      this.#checkpointDue = true;
      this.#wake();
    });
  }

  /** Removes what deleted sessions left, one bounded step after another, between the commits of others. */
  #purge(): void {
    if (this.#purging || this.#closed !== undefined || this.#fatal !== undefined) return;
    this.#purging = true;
    this.#submit({ type: "purge" }, undefined).then(
      (reply) => {
        this.#purging = false;
        if (reply.purgesLeft === true) this.#purge();
      },
      (error: unknown) => {
        this.#purging = false;
        if (this.#closed !== undefined || this.#fatal !== undefined) return;
        this.#log?.warn({ file: this.#file, error: describeError(error) }, "a deleted session could not be removed yet");
        this.#disarmPurge = this.#clock.after(this.#limits.journalRetryMs, () => this.#purge());
      },
    );
  }

  #die(error: Error): void {
    if (this.#fatal !== undefined) return;
    this.#fatal = error;
    this.#disarmTimers();
    this.#checkpointDue = false;
    for (const waiting of this.#queue.splice(0)) this.#refuse(waiting, error);
    this.#onFatal(error);
  }

  async #reading<T>(read: () => T): Promise<T> {
    let since: number | undefined;
    for (;;) {
      try {
        return read();
      } catch (error) {
        if (!isBusy(error)) throw this.#nameReadError(error);
        since ??= this.#clock.monotonic();
        if (this.#clock.monotonic() - since >= this.#limits.journalLockWaitMs) {
          throw new JournalError("journal_unavailable", `the journal file ${this.#file} is held by another process; try again`);
        }
      }
      await new Promise<void>((resolve) => this.#clock.after(SHORTEST_RETRY_MS, resolve));
    }
  }

  #nameReadError(error: unknown): unknown {
    if (!(error instanceof Error) || error.name !== "SqliteError") return error;
    return new JournalFileError(
      this.#file,
      `the journal file ${this.#file} cannot be read (${describeError(error)}); check the disk, and restore the file from a backup if it is damaged`,
      { cause: error },
    );
  }

  async #close(): Promise<void> {
    if (this.#running || this.#queue.length > 0) {
      await new Promise<void>((resolve) => {
        this.#quiet = resolve;
      });
    }
    this.#disarmTimers();
    this.#reader.close();
    await this.#link.close();
    this.#release();
  }

  #disarmTimers(): void {
    this.#disarmRetry?.();
    this.#disarmIdle?.();
    this.#disarmPurge?.();
    this.#disarmRetry = this.#disarmIdle = this.#disarmPurge = undefined;
  }
}

const LAST_SEQUENCE = 2 ** 32 - 1;
const SHORTEST_RETRY_MS = 5;
const LONGEST_RETRY_MS = 100;
const LONGEST_IDLE_MS = 10_000;

function cascade(sessionId: string): JournalError {
  const failure: AppendFailure = "sequence_conflict";
  return new JournalError(failure, `an earlier append of session ${sessionId} was not made, so this one was not either`);
}
