import { RecordSchema } from "@aexhq/brain-proto";
import { fromBinary } from "@bufbuild/protobuf";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import Database from "better-sqlite3";
import { type Problem, SessionFold } from "./fold-session.js";
import type { Entry } from "./port.js";
import { describeError } from "./sqlite/journal-file-error.js";
import { APPLICATION_ID, missingFromSchema } from "./sqlite/migrate.js";
import { MIGRATIONS } from "./sqlite/migrations/all.js";

export type { Problem } from "./fold-session.js";

/**
 * Everything that is wrong with a journal file; empty when it is sound. Reads only, also beside a running server: each
 * session is judged in one snapshot.
 *
 * Checked: the file itself; sequences 1, 2, 3... without gaps (L7); one ending at most for a started call, one late outcome
 * at most, none without its start, nothing but endings after the session's end (L3); no event above its call's ending
 * (L6); the projections equal what the records add up to (what L5 rests on).
 */
export function checkJournal(databaseFile: string): Problem[] {
  let db: Database.Database | undefined;
  try {
    db = new Database(databaseFile, { readonly: true, fileMustExist: true });
    const unsound = checkFile(db, databaseFile);
    return unsound.length > 0 ? unsound : [...checkOwners(db), ...checkSessions(db)];
  } catch (error) {
    return [{ law: "file", message: `the journal file ${databaseFile} cannot be read: ${describeError(error)}` }];
  } finally {
    db?.close();
  }
}

function checkFile(db: Database.Database, file: string): Problem[] {
  const problem = (what: string): Problem[] => [{ law: "file", message: `the journal file ${file} ${what}` }];
  if (db.pragma("application_id", { simple: true }) !== APPLICATION_ID) return problem("is not a Brain journal");
  const verdict = db.pragma("integrity_check(1)", { simple: true });
  if (verdict !== "ok") return problem(`is damaged: ${String(verdict)}`);
  const missing = missingFromSchema(db, MIGRATIONS);
  return missing.length > 0 ? problem(`lacks ${missing.join(", ")}`) : [];
}

/** Rows of sessions that neither are nor wait for their removal. */
function checkOwners(db: Database.Database): Problem[] {
  return db.transaction(() => {
    const owned = db.prepare(
      "SELECT 1 WHERE EXISTS (SELECT 1 FROM sessions WHERE session = ?) OR EXISTS (SELECT 1 FROM purges WHERE session = ?)",
    );
    const problems: Problem[] = [];
    for (const table of ["records", "calls", "emits"]) {
      // From one session to the next, not from row to row.
      const next = db.prepare(`SELECT min(session) FROM ${table} WHERE session > ?`).pluck();
      for (let session = next.get(-1) as number | null; session !== null; session = next.get(session) as number | null) {
        if (owned.get(session, session) === undefined) {
          problems.push({ law: "L5", message: `table ${table} has rows of session number ${session}, which does not exist` });
        }
      }
    }
    const labels = db.prepare("SELECT DISTINCT session FROM session_labels WHERE session NOT IN (SELECT session FROM sessions)");
    for (const session of labels.pluck().all()) {
      problems.push({ law: "L5", message: `table session_labels has rows of session number ${String(session)}, which does not exist` });
    }
    return problems;
  })();
}

function checkSessions(db: Database.Database): Problem[] {
  const problems: Problem[] = [];
  const next = db.prepare("SELECT * FROM sessions WHERE session > ? ORDER BY session LIMIT 1");
  const check = db.transaction((after: number): number | undefined => {
    const row = next.get(after) as SessionColumns | undefined;
    if (row !== undefined) problems.push(...checkSession(db, row));
    return row?.session;
  });
  for (let session = check(0); session !== undefined; session = check(session));
  return problems;
}

function checkSession(db: Database.Database, row: SessionColumns): Problem[] {
  const fold = new SessionFold(row.session_id);
  const records = db.prepare("SELECT sequence, kind, body FROM records WHERE session = ? ORDER BY sequence").raw();
  for (const [sequence, kind, body] of records.iterate(row.session) as Iterable<[number, string, Buffer]>) {
    fold.add(sequence, decode(fold, sequence, kind, body));
  }
  fold.finish();
  const differ = (what: string): void => {
    fold.problems.push({ law: "L5", sessionId: row.session_id, message: `session ${row.session_id}: ${what}` });
  };
  compareSession(db, row, fold, differ);
  compareCalls(db, row.session, fold, differ);
  compareEmits(db, row.session, fold, differ);
  return fold.problems;
}

function decode(fold: SessionFold, sequence: number, kind: string, body: Buffer): Entry | undefined {
  const problem = (what: string): void => {
    fold.problems.push({
      law: "L5",
      sessionId: fold.sessionId,
      sequence,
      message: `session ${fold.sessionId}: record ${sequence} ${what}`,
    });
  };
  try {
    const { entry } = fromBinary(RecordSchema, body);
    if (entry.case === undefined) return undefined;
    const name = RecordSchema.field[entry.case]?.name;
    if (name !== kind) problem(`is of kind ${kind} but holds ${name}`);
    return entry;
  } catch (error) {
    problem(`of kind ${kind} cannot be decoded: ${describeError(error)}`);
    return undefined;
  }
}

type Differ = (what: string) => void;

function compareSession(db: Database.Database, row: SessionColumns, fold: SessionFold, differ: Differ): void {
  const { created } = fold;
  if (row.end_sequence !== fold.endSequence) {
    differ(`its row says it ended at ${row.end_sequence}, its records at ${fold.endSequence}`);
  }
  if (created === undefined) return;
  const { session } = created;
  if (session !== undefined && session.sessionId !== row.session_id) differ(`its first record creates session ${session.sessionId}`);
  if ((row.request_id ?? "") !== created.requestId) differ(`its row has request_id "${row.request_id}", its record "${created.requestId}"`);
  if (session?.createTime !== undefined && timestampMs(session.createTime) !== row.create_time) {
    differ("its row and its record have different create times");
  }
  const labels = sortedEntries(session?.labels ?? {});
  const indexed = db.prepare("SELECT name, value FROM session_labels WHERE session = ?").raw().all(row.session) as [string, string][];
  const ofRow = sortedEntries(JSON.parse(row.labels) as Record<string, string>);
  if (ofRow !== labels || sortedEntries(Object.fromEntries(indexed)) !== labels) differ("its labels differ from its record's");
}

function compareCalls(db: Database.Database, session: number, fold: SessionFold, differ: Differ): void {
  const unseen = new Set(fold.calls.keys());
  const rows = db.prepare("SELECT call_sequence, call_id, end_sequence, late_sequence FROM calls WHERE session = ?").raw();
  for (const [callSequence, callId, endSequence, lateSequence] of rows.iterate(session) as Iterable<CallColumns>) {
    unseen.delete(callSequence);
    const call = fold.calls.get(callSequence);
    if (call === undefined) differ(`there is a row of call ${callSequence}, but no record starts it`);
    else if (call.callId !== callId || call.endSequence !== endSequence || call.lateSequence !== lateSequence) {
      differ(
        `the row of call ${callSequence} says call_id "${callId}", ended ${endSequence}, late ${lateSequence}; its records say ` +
          `"${call.callId}", ${call.endSequence}, ${call.lateSequence}`,
      );
    }
  }
  for (const callSequence of unseen) differ(`call ${callSequence} has no row`);
}

function compareEmits(db: Database.Database, session: number, fold: SessionFold, differ: Differ): void {
  let rows = 0;
  const emits = db.prepare("SELECT call_sequence, emit_id, sequence FROM emits WHERE session = ?").raw();
  for (const [callSequence, emitId, sequence] of emits.iterate(session) as Iterable<[number, string, number]>) {
    rows += 1;
    const folded = fold.calls.get(callSequence)?.emits.get(emitId);
    if (folded !== sequence) differ(`the row of emit_id "${emitId}" of call ${callSequence} says ${sequence}, its record ${folded}`);
  }
  const folded = [...fold.calls.values()].reduce((sum, call) => sum + call.emits.size, 0);
  if (folded !== rows) differ(`it has ${rows} rows of emit ids and ${folded} records of them`);
}

function sortedEntries(labels: Readonly<Record<string, string>>): string {
  return JSON.stringify(Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)));
}

interface SessionColumns {
  readonly session: number;
  readonly session_id: string;
  readonly request_id: string | null;
  readonly create_time: number;
  readonly labels: string;
  readonly end_sequence: number | null;
}

type CallColumns = [callSequence: number, callId: string, endSequence: number | null, lateSequence: number | null];
