import { statSync } from "node:fs";
import Database from "better-sqlite3";
import { AssertionFailed, assert } from "../../core/assert.js";
import type { HostRow } from "../port.js";
import type { EncodedEntry } from "./encode-entry.js";
import { describeError, errorCode, isBusy, JournalFileError } from "./journal-file-error.js";
import { migrate } from "./migrate.js";
import { MIGRATIONS } from "./migrations/all.js";
import type { CheckpointReply, CommitReply, Operation, Reply, WriterOptions } from "./operation.js";
import { formatSeal, parseSeal, type Seal } from "./seal.js";

/**
 * The one connection that writes.
 *
 * 1. A batch is one transaction and one flush. Only when an operation of it cannot be written (no space, or it breaks a
 *    law) is the batch rolled back and each operation given a transaction of its own.
 * 2. The flush is real: `synchronous=FULL` is set at every opening and asserted after the first write.
 * 3. `expectedNext` is checked against the file inside the transaction; what is remembered of sessions between
 *    transactions is dropped when another connection has written (`data_version`) and after every rollback.
 * 4. After an operation of a session has failed, no later append of that session in the batch is made.
 * 5. An error that leaves a commit in doubt ends the writer: nothing is written by it again.
 * 6. The seal is rewritten in the first transaction after a complete checkpoint (see `seal.ts`). A seal that
 *    somebody else has rewritten ends the writer: the journal has another owner.
 */
export class Writer {
  readonly #file: string;
  readonly #options: WriterOptions;
  readonly #db: Database.Database;
  readonly #statements: ReturnType<typeof prepareStatements>;
  readonly #places = new Map<string, Place>();
  #seal: Seal | undefined;
  #sealDue = false;
  #dataVersion = -1;
  #logFrames = 0;
  #framesToCheckpoint: number;
  #fatal: string | undefined;

  /** Opens a file that `openJournalFile` has found good. */
  private constructor(options: WriterOptions, db: Database.Database) {
    this.#file = options.file;
    this.#options = options;
    this.#db = db;
    this.#statements = prepareStatements(db);
    this.#framesToCheckpoint = Math.ceil(options.limits.journalLogBytes / PAGE_BYTES);
  }

  /**
   * Opens the file for writing: upgrades its schema, rewrites the seal, asserts that commits are flushed.
   * @throws JournalFileError; an error for which {@link isBusy} holds when somebody else is writing (try again).
   */
  static open(options: WriterOptions): Writer {
    const db = new Database(options.file, { timeout: 0, fileMustExist: true });
    try {
      assert(db.pragma("journal_mode = WAL", { simple: true }) === "wal", "the journal file is in WAL mode");
      db.pragma("synchronous = FULL");
      db.pragma("wal_autocheckpoint = 0");
      db.pragma("cell_size_check = ON");
      db.pragma(`journal_size_limit = ${options.limits.journalLogFileBytes}`);
      if (options.maxPages !== undefined) db.pragma(`max_page_count = ${options.maxPages}`);
      migrate(db, options.file, MIGRATIONS);
      const writer = new Writer(options, db);
      writer.#claim();
      assert(db.pragma("synchronous", { simple: true }) === FULL, "synchronous is FULL after the first write");
      return writer;
    } catch (error) {
      db.close();
      throw error;
    }
  }

  /** Makes the operations, as far as they can be made. Never throws. */
  commit(operations: readonly Operation[], commitTimeMs: number): CommitReply {
    if (this.#fatal !== undefined) return this.#lost(operations, this.#fatal);
    const failed = new Set<string>();
    const together = this.#transact(operations, commitTimeMs, failed);
    if (together.type !== "undone" || operations.length === 1) return this.#report(operations, [together]);
    failed.clear();
    const alone: Attempt[] = [];
    for (const operation of operations) {
      const last = alone.at(-1);
      const stopped = last !== undefined && (last.type === "busy" || last.type === "fatal");
      alone.push(stopped ? last : this.#transact([operation], commitTimeMs, failed));
    }
    return this.#report(operations, alone);
  }

  /** Copies the log into the database file as far as readers allow, off the commit path. */
  checkpoint(): CheckpointReply {
    if (this.#fatal !== undefined) return { complete: false, logBytes: 0, fatal: this.#fatal };
    try {
      let complete = this.#checkpoint("PASSIVE");
      let logBytes = fileBytes(`${this.#file}-wal`);
      if (complete && logBytes > this.#options.limits.journalLogFileBytes) {
        complete = this.#checkpoint("TRUNCATE");
        logBytes = fileBytes(`${this.#file}-wal`);
      }
      return { complete, logBytes };
    } catch (error) {
      const code = errorCode(error);
      // No space in the database file yet: the log keeps everything, and the next checkpoint tries again.
      if (isBusy(error) || code === "SQLITE_FULL" || code === "SQLITE_LOCKED") return { complete: false, logBytes: 0 };
      return { complete: false, logBytes: 0, fatal: this.#die(error) };
    }
  }

  /** Checkpoints and closes; the last connection removes the log. */
  close(): void {
    this.#db.close();
  }

  /** Whether sessions wait for the removal of their rows. */
  hasPurges(): boolean {
    return this.#statements.nextPurge.get() !== undefined;
  }

  #claim(): void {
    this.#statements.begin.run();
    try {
      const seal = parseSeal(this.#statements.readSeal.get() as string);
      assert(seal !== undefined, "the seal of the journal can be read");
      const claimed = { ...seal, generation: seal.generation + 1 };
      this.#statements.writeSeal.run(formatSeal(claimed));
      this.#statements.commit.run();
      this.#seal = claimed;
    } catch (error) {
      this.#rollback();
      throw error;
    }
  }

  #transact(operations: readonly Operation[], commitTimeMs: number, failed: Set<string>): Attempt {
    try {
      this.#statements.begin.run();
    } catch (error) {
      return this.#undone(error);
    }
    try {
      this.#follow();
      const before = this.#statements.totalChanges.get();
      const replies = operations.map((operation) => {
        const reply = this.#perform(operation, commitTimeMs, failed);
        if (reply.type !== "done" && operation.type === "append") failed.add(operation.sessionId);
        return reply;
      });
      if (this.#statements.totalChanges.get() === before) {
        this.#statements.rollback.run();
        return { type: "made", replies, flushes: 0 };
      }
      const sealed = this.#reseal();
      this.#statements.commit.run();
      if (sealed !== undefined) {
        this.#seal = sealed;
        this.#sealDue = false;
      }
      return { type: "made", replies, flushes: 1 };
    } catch (error) {
      this.#places.clear();
      const rollbackError = this.#rollback();
      const only = operations.length === 1 ? operations[0] : undefined;
      if (only?.type === "append") failed.add(only.sessionId);
      return rollbackError === undefined ? this.#undone(error) : { type: "fatal", message: this.#die(rollbackError) };
    }
  }

  /** Forgets what it knew of sessions when another connection has written; invariants 3 and 6. */
  #follow(): void {
    const version = this.#statements.dataVersion.get() as number;
    if (version === this.#dataVersion) return;
    this.#places.clear();
    const found = parseSeal(this.#statements.readSeal.get() as string);
    if (found?.generation !== this.#seal?.generation || found?.databaseId !== this.#seal?.databaseId) {
      throw new JournalFileError(this.#file, `the journal file ${this.#file} was taken over by another server; this one writes no more`);
    }
    this.#dataVersion = version;
  }

  #reseal(): Seal | undefined {
    if (!this.#sealDue || this.#seal === undefined) return undefined;
    const next = { ...this.#seal, generation: this.#seal.generation + 1, base: this.#seal.generation };
    this.#statements.writeSeal.run(formatSeal(next));
    return next;
  }

  #perform(operation: Operation, commitTimeMs: number, failed: ReadonlySet<string>): Reply {
    switch (operation.type) {
      case "append":
        return this.#append(operation, commitTimeMs, failed);
      case "delete_session":
        return this.#deleteSession(operation.sessionId);
      case "put_host":
        return { type: "done", host: this.#putHost(operation.host) };
      case "delete_host":
        this.#statements.deleteHost.run(operation.hostId);
        return { type: "done" };
      case "purge":
        return { type: "done", purgesLeft: this.#purge() };
      default:
        return operation satisfies never;
    }
  }

  #append(operation: AppendOperation, commitTimeMs: number, failed: ReadonlySet<string>): Reply {
    const { sessionId, expectedNext, entries } = operation;
    if (failed.has(sessionId)) {
      return conflict(`an earlier append of session ${sessionId} was not made, so this one was not either`);
    }
    let place = this.#places.get(sessionId) ?? this.#findPlace(sessionId);
    const first = entries[0]?.projection;
    if (place === undefined) {
      if (first?.type !== "session_created" || expectedNext !== 1) {
        return { type: "failed", failure: "session_not_found", message: `there is no session ${sessionId}` };
      }
      const holder = first.requestId === null ? undefined : this.#statements.findRequest.get(first.requestId);
      if (holder !== undefined) {
        return conflict(`request_id "${first.requestId}" already made session ${String(holder)}`);
      }
      place = this.#createSession(sessionId, first);
    }
    if (place.next !== expectedNext) {
      return conflict(`the next sequence of session ${sessionId} is ${place.next}, not ${expectedNext}`);
    }
    for (const [index, entry] of entries.entries()) {
      const sequence = expectedNext + index;
      this.#statements.insertRecord.run(place.session, sequence, commitTimeMs, entry.kind, entry.body);
      this.#project(place.session, sequence, entry);
      this.#logFrames += FRAMES_PER_RECORD + Math.ceil(entry.body.byteLength / PAGE_BYTES);
    }
    place.next = expectedNext + entries.length;
    return { type: "done" };
  }

  #createSession(sessionId: string, created: Extract<EncodedEntry["projection"], { type: "session_created" }>): Place {
    const labels = JSON.stringify(created.labels);
    const added = this.#statements.insertSession.run(sessionId, created.requestId, created.createTimeMs, labels);
    const session = Number(added.lastInsertRowid);
    for (const [name, value] of Object.entries(created.labels)) {
      this.#statements.insertLabel.run(name, value, session);
    }
    return this.#remember(sessionId, { session, next: 1 });
  }

  #project(session: number, sequence: number, entry: EncodedEntry): void {
    const { projection } = entry;
    switch (projection.type) {
      case "session_created":
        assert(sequence === 1, "session_created is the first record of its session");
        return;
      case "session_ended":
        assert(this.#statements.endSession.run(sequence, session).changes === 1, "a session that ends exists");
        return;
      case "call_started":
        this.#statements.insertCall.run(session, sequence, projection.callId);
        return;
      case "call_ended": {
        const ended = this.#statements.endCall.run(sequence, session, projection.callSequence);
        if (ended.changes !== 1) assert.fail(`call ${projection.callSequence} was started before it ended`);
        return;
      }
      case "late_outcome": {
        const late = this.#statements.addLateOutcome.run(sequence, session, projection.callSequence);
        assert(late.changes === 1, `call ${projection.callSequence} was started before its late outcome`);
        return;
      }
      case "event_emitted": {
        const { callSequence, emitId } = projection;
        const open =
          emitId === null
            ? this.#statements.isOpen.get(session, callSequence) !== undefined
            : this.#statements.insertEmit.run(emitId, sequence, session, callSequence).changes === 1;
        assert(open, `call ${callSequence} was open when it emitted`);
        return;
      }
      case "none":
        return;
      default:
        projection satisfies never;
    }
  }

  #deleteSession(sessionId: string): Reply {
    const found = this.#statements.findSession.get(sessionId) as { session: number; labels: string } | undefined;
    if (found === undefined) return { type: "done" };
    for (const [name, value] of Object.entries(JSON.parse(found.labels) as Record<string, string>)) {
      this.#statements.deleteLabel.run(name, value, found.session);
    }
    this.#statements.deleteSession.run(found.session);
    this.#statements.insertPurge.run(found.session);
    this.#places.delete(sessionId);
    return { type: "done", purgesLeft: true };
  }

  /** One bounded step; open calls go first, so that they leave the index that is read at every start. */
  #purge(): boolean {
    const session = this.#statements.nextPurge.get() as number | undefined;
    if (session === undefined) return false;
    const { journalPurgeRows, journalPurgeBytes } = this.#options.limits;
    for (const purge of [this.#statements.purgeCalls, this.#statements.purgeEmits]) {
      if (purge.run(session, journalPurgeRows).changes === journalPurgeRows) return true;
    }
    let bytes = 0;
    let last: number | undefined;
    const lengths = this.#statements.recordLengths.all(session, journalPurgeRows) as [number, number][];
    for (const [sequence, length] of lengths) {
      bytes += length;
      if (last !== undefined && bytes > journalPurgeBytes) break;
      last = sequence;
    }
    if (last !== undefined) this.#statements.purgeRecords.run(session, last);
    if (last === lengths.at(-1)?.[0] && lengths.length < journalPurgeRows) this.#statements.endPurge.run(session);
    return true;
  }

  #putHost(host: HostRow): HostRow {
    const row = this.#statements.putHost.get(
      host.hostId,
      host.displayName,
      host.createTimeMs,
      host.tokenSha256,
      host.requestId === "" ? null : host.requestId,
    ) as [string, string, number];
    return { ...host, hostId: row[0], displayName: row[1], createTimeMs: row[2] };
  }

  #findPlace(sessionId: string): Place | undefined {
    const row = this.#statements.findPlace.get(sessionId) as [number, number] | undefined;
    return row === undefined ? undefined : this.#remember(sessionId, { session: row[0], next: row[1] + 1 });
  }

  #remember(sessionId: string, place: Place): Place {
    if (this.#places.size >= REMEMBERED_PLACES) this.#places.clear();
    this.#places.set(sessionId, place);
    return place;
  }

  #checkpoint(mode: "PASSIVE" | "TRUNCATE"): boolean {
    const [row] = this.#db.pragma(`wal_checkpoint(${mode})`) as { busy: number; log: number; checkpointed: number }[];
    assert(row !== undefined, "a checkpoint tells what it did");
    const complete = row.busy === 0 && row.log === row.checkpointed;
    const bound = Math.ceil(this.#options.limits.journalLogBytes / PAGE_BYTES);
    this.#logFrames = complete ? 0 : Math.max(row.log, 0);
    // A reader that holds the log open would make every commit try in vain: try again when it has grown noticeably.
    this.#framesToCheckpoint = complete ? bound : Math.max(bound, this.#logFrames + Math.ceil(bound / 4));
    if (complete) this.#sealDue = true;
    return complete;
  }

  #rollback(): unknown {
    try {
      // SQLite rolls back by itself after some errors.
      if (this.#db.inTransaction) this.#statements.rollback.run();
      return undefined;
    } catch (error) {
      return error;
    }
  }

  #undone(error: unknown): Attempt {
    if (isBusy(error)) return { type: "busy" };
    const code = errorCode(error);
    if (code === "SQLITE_FULL") {
      const message = `there is no space left for the journal file ${this.#file}; make room, then try again`;
      return { type: "undone", reply: { type: "failed", failure: "journal_full", message } };
    }
    if (error instanceof AssertionFailed || code.startsWith("SQLITE_CONSTRAINT")) {
      return { type: "undone", reply: { type: "refuted", message: describeError(error) } };
    }
    return { type: "fatal", message: this.#die(error) };
  }

  #die(error: unknown): string {
    this.#fatal =
      error instanceof JournalFileError
        ? error.message
        : `the journal file ${this.#file} could not be written (${describeError(error)}); what was being committed may ` +
          "or may not be in it: mend the disk and start the server again, it goes on from what the file holds";
    return this.#fatal;
  }

  #lost(operations: readonly Operation[], fatal: string): CommitReply {
    return { replies: operations.map(() => ({ type: "in_doubt" })), flushes: 0, checkpointDue: false, fatal };
  }

  /** One attempt for all operations, or one for each. */
  #report(operations: readonly Operation[], attempts: readonly Attempt[]): CommitReply {
    const each = operations.length / attempts.length;
    const replies = attempts.flatMap((attempt): readonly Reply[] => {
      if (attempt.type === "made") return attempt.replies;
      const reply: Reply = attempt.type === "undone" ? attempt.reply : { type: attempt.type === "busy" ? "busy" : "in_doubt" };
      return Array.from({ length: each }, () => reply);
    });
    const flushes = attempts.reduce((sum, attempt) => sum + (attempt.type === "made" ? attempt.flushes : 0), 0);
    return {
      replies,
      flushes,
      checkpointDue: this.#logFrames >= this.#framesToCheckpoint,
      ...(this.#fatal === undefined ? {} : { fatal: this.#fatal }),
    };
  }
}

type AppendOperation = Extract<Operation, { type: "append" }>;

/** Where the next record of a session goes. */
interface Place {
  readonly session: number;
  next: number;
}

type Attempt =
  | { readonly type: "made"; readonly replies: readonly Reply[]; readonly flushes: number }
  /** Rolled back; the reply is that of an operation that was alone. */
  | { readonly type: "undone"; readonly reply: Reply }
  | { readonly type: "busy" }
  | { readonly type: "fatal"; readonly message: string };

const FULL = 2;
const PAGE_BYTES = 4096;
/** Leaf pages that a record and its projections touch; only an estimate of the log's growth. */
const FRAMES_PER_RECORD = 3;
const REMEMBERED_PLACES = 10_000;

function conflict(message: string): Reply {
  return { type: "failed", failure: "sequence_conflict", message };
}

function fileBytes(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.size ?? 0;
}

function prepareStatements(db: Database.Database) {
  return {
    begin: db.prepare("BEGIN IMMEDIATE"),
    commit: db.prepare("COMMIT"),
    rollback: db.prepare("ROLLBACK"),
    dataVersion: db.prepare("PRAGMA data_version").pluck(),
    totalChanges: db.prepare("SELECT total_changes()").pluck(),
    readSeal: db.prepare("SELECT text FROM seal").pluck(),
    writeSeal: db.prepare("UPDATE seal SET text = ?"),
    findPlace: db
      .prepare(
        `SELECT session, (SELECT max(sequence) FROM records WHERE records.session = sessions.session)
         FROM sessions WHERE session_id = ?`,
      )
      .raw(),
    findRequest: db.prepare("SELECT session_id FROM sessions WHERE request_id = ?").pluck(),
    insertSession: db.prepare("INSERT INTO sessions (session_id, request_id, create_time, labels) VALUES (?, ?, ?, ?)"),
    insertLabel: db.prepare("INSERT INTO session_labels (name, value, session) VALUES (?, ?, ?)"),
    insertRecord: db.prepare("INSERT INTO records (session, sequence, commit_time, kind, body) VALUES (?, ?, ?, ?, ?)"),
    endSession: db.prepare("UPDATE sessions SET end_sequence = ? WHERE session = ?"),
    insertCall: db.prepare("INSERT INTO calls (session, call_sequence, call_id) VALUES (?, ?, ?)"),
    endCall: db.prepare("UPDATE calls SET end_sequence = ? WHERE session = ? AND call_sequence = ?"),
    addLateOutcome: db.prepare("UPDATE calls SET late_sequence = ? WHERE session = ? AND call_sequence = ?"),
    isOpen: db.prepare("SELECT 1 FROM calls WHERE session = ? AND call_sequence = ? AND end_sequence IS NULL").pluck(),
    insertEmit: db.prepare(
      `INSERT INTO emits (emit_id, sequence, session, call_sequence)
       SELECT ?, ?, session, call_sequence FROM calls WHERE session = ? AND call_sequence = ? AND end_sequence IS NULL`,
    ),
    findSession: db.prepare("SELECT session, labels FROM sessions WHERE session_id = ?"),
    deleteLabel: db.prepare("DELETE FROM session_labels WHERE name = ? AND value = ? AND session = ?"),
    deleteSession: db.prepare("DELETE FROM sessions WHERE session = ?"),
    insertPurge: db.prepare("INSERT INTO purges (session) VALUES (?)"),
    nextPurge: db.prepare("SELECT session FROM purges LIMIT 1").pluck(),
    endPurge: db.prepare("DELETE FROM purges WHERE session = ?"),
    purgeCalls: db.prepare("DELETE FROM calls WHERE session = ? LIMIT ?"),
    purgeEmits: db.prepare("DELETE FROM emits WHERE session = ? LIMIT ?"),
    recordLengths: db.prepare("SELECT sequence, length(body) FROM records WHERE session = ? ORDER BY sequence LIMIT ?").raw(),
    purgeRecords: db.prepare("DELETE FROM records WHERE session = ? AND sequence <= ?"),
    putHost: db
      .prepare(
        `INSERT INTO hosts (host_id, display_name, create_time, token_sha256, request_id) VALUES (?, ?, ?, ?, ?)
         ON CONFLICT (request_id) DO UPDATE SET token_sha256 = excluded.token_sha256
         RETURNING host_id, display_name, create_time`,
      )
      .raw(),
    deleteHost: db.prepare("DELETE FROM hosts WHERE host_id = ?"),
  };
}
