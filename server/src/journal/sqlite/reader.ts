import { type Record as JournalRecord, RecordSchema } from "@aexhq/brain-proto";
import { fromBinary } from "@bufbuild/protobuf";
import Database from "better-sqlite3";
import { assert } from "../../core/assert.js";
import { invalidArgument } from "../../core/refusal.js";
import type { CallQuery, CallRow, HostRow, PageLimits, SessionQuery, SessionRow } from "../port.js";
import { decodeRecord, recordBytes } from "./encode-entry.js";

/**
 * All reading, over a connection that cannot write. Every read is one statement that is finished when it returns: a
 * snapshot held open would keep the log from being reused, and it would grow for ever.
 */
export class Reader {
  readonly #db: Database.Database;
  readonly #statements: ReturnType<typeof prepareStatements>;
  readonly #lists = new Map<string, Database.Statement>();
  readonly #callPageBytes: number;

  constructor(file: string, callPageBytes: number) {
    this.#db = new Database(file, { readonly: true, fileMustExist: true, timeout: 0 });
    this.#db.pragma("cell_size_check = ON");
    this.#statements = prepareStatements(this.#db);
    this.#callPageBytes = callPageBytes;
  }

  read(sessionId: string, after: number, limits: PageLimits): JournalRecord[] {
    const records: JournalRecord[] = [];
    let bytes = 0;
    const rows = this.#statements.read.iterate(sessionId, after, limits.records) as Iterable<[number, number, Buffer]>;
    for (const [sequence, commitTimeMs, body] of rows) {
      bytes += recordBytes(sessionId, body.byteLength);
      if (records.length > 0 && bytes > limits.bytes) break;
      records.push(decodeRecord(sessionId, sequence, commitTimeMs, body));
    }
    return records;
  }

  findSession(sessionId: string): SessionRow | undefined {
    const row = this.#statements.findSession.get(sessionId) as SessionColumns | undefined;
    return row === undefined ? undefined : toSessionRow(row);
  }

  findSessionByRequestId(requestId: string): string | undefined {
    return this.#statements.findSessionByRequestId.get(requestId) as string | undefined;
  }

  /** Newest first, so that sessions created meanwhile shift no page. */
  listSessions(query: SessionQuery): { sessions: SessionRow[]; nextPageToken: string } {
    const before = query.pageToken === "" ? Number.MAX_SAFE_INTEGER : parseToken(query.pageToken);
    const labels = Object.entries(query.labels);
    const statement = this.#list(labels.length, query.ended);
    const rows = statement.all(...labels.flat(), before, query.pageSize + 1) as [...SessionColumns, number][];
    const page = rows.slice(0, query.pageSize);
    const last = page.at(-1)?.at(-1);
    return {
      sessions: page.map((row) => toSessionRow(row)),
      nextPageToken: rows.length > page.length && last !== undefined ? String(last) : "",
    };
  }

  openCalls(): CallRow[] {
    return (this.#statements.openCalls.all() as CallColumns[]).map(toCallRow);
  }

  findCall(sessionId: string, by: { callId: string } | { callSequence: number }): CallRow | undefined {
    const row = (
      "callId" in by ? this.#statements.findCallById.get(sessionId, by.callId) : this.#statements.findCall.get(sessionId, by.callSequence)
    ) as CallColumns | undefined;
    return row === undefined ? undefined : toCallRow(row);
  }

  listCalls(query: CallQuery): CallRow[] {
    const statement =
      query.open === undefined ? this.#statements.listCalls : query.open ? this.#statements.listOpenCalls : this.#statements.listEndedCalls;
    const calls: CallRow[] = [];
    let bytes = 0;
    for (const row of statement.iterate(query.sessionId, query.afterCallSequence, query.pageSize) as Iterable<CallColumns>) {
      bytes += row[2].byteLength + (row[4]?.byteLength ?? 0) + (row[6]?.byteLength ?? 0);
      if (calls.length > 0 && bytes > this.#callPageBytes) break;
      calls.push(toCallRow(row));
    }
    return calls;
  }

  findEmit(sessionId: string, callSequence: number, emitId: string): number | undefined {
    return this.#statements.findEmit.get(sessionId, callSequence, emitId) as number | undefined;
  }

  findHost(hostId: string): HostRow | undefined {
    const row = this.#statements.findHost.get(hostId) as HostColumns | undefined;
    return row === undefined ? undefined : toHostRow(row);
  }

  findHostByToken(tokenSha256: Uint8Array): HostRow | undefined {
    const row = this.#statements.findHostByToken.get(tokenSha256) as HostColumns | undefined;
    return row === undefined ? undefined : toHostRow(row);
  }

  /** Oldest first: hosts are few and long-lived. */
  listHosts(pageToken: string, pageSize: number): { hosts: HostRow[]; nextPageToken: string } {
    const after = pageToken === "" ? 0 : parseToken(pageToken);
    const rows = this.#statements.listHosts.all(after, pageSize + 1) as [...HostColumns, number][];
    const page = rows.slice(0, pageSize);
    const last = page.at(-1)?.at(-1);
    return {
      hosts: page.map((row) => toHostRow(row)),
      nextPageToken: rows.length > page.length && last !== undefined ? String(last) : "",
    };
  }

  /** How SQLite goes about a statement, one line a step: the proof that a read does not scan. */
  explain(statement: "openCalls" | "findSession" | "listOpenCalls"): string[] {
    const { source } = this.#statements[statement];
    const parameters = source.split("?").length - 1;
    const plan = this.#db.prepare(`EXPLAIN QUERY PLAN ${source}`).all(...Array<string>(parameters).fill("0"));
    return (plan as { detail: string }[]).map((step) => step.detail);
  }

  close(): void {
    this.#db.close();
  }

  #list(labels: number, ended: boolean | undefined): Database.Statement {
    const key = `${labels} ${String(ended)}`;
    const kept = this.#lists.get(key);
    if (kept !== undefined) return kept;
    const first = labels === 0 ? "" : "session_labels AS label CROSS JOIN ";
    const conditions = [
      ...(labels === 0 ? [] : ["label.name = ? AND label.value = ? AND sessions.session = label.session"]),
      ...Array.from(
        { length: Math.max(labels - 1, 0) },
        () => "EXISTS (SELECT 1 FROM session_labels AS l WHERE l.name = ? AND l.value = ? AND l.session = sessions.session)",
      ),
      ...(ended === undefined ? [] : [`sessions.end_sequence IS ${ended ? "NOT NULL" : "NULL"}`]),
      `${labels === 0 ? "sessions" : "label"}.session < ?`,
    ];
    const order = labels === 0 ? "sessions" : "label";
    const statement = this.#db
      .prepare(
        `SELECT ${SESSION_COLUMNS}, sessions.session FROM ${first}sessions
         WHERE ${conditions.join(" AND ")} ORDER BY ${order}.session DESC LIMIT ?`,
      )
      .raw();
    this.#lists.set(key, statement);
    return statement;
  }
}

type SessionColumns = [sessionId: string, ended: number, createTime: number, labels: string, last: number, open: number];
const SESSION_COLUMNS = `sessions.session_id, sessions.end_sequence IS NOT NULL, sessions.create_time, sessions.labels,
  (SELECT max(sequence) FROM records WHERE records.session = sessions.session),
  (SELECT count(*) FROM calls INDEXED BY open_calls WHERE calls.session = sessions.session AND calls.end_sequence IS NULL)`;

type CallColumns = [
  sessionId: string,
  callSequence: number,
  started: Buffer,
  endSequence: number | null,
  ended: Buffer | null,
  lateSequence: number | null,
  late: Buffer | null,
];
const CALL_COLUMNS =
  "sessions.session_id, calls.call_sequence, started.body, calls.end_sequence, ended.body, calls.late_sequence, late.body";
const CALL_RECORDS = `
  CROSS JOIN records AS started ON started.session = calls.session AND started.sequence = calls.call_sequence
  LEFT JOIN records AS ended ON ended.session = calls.session AND ended.sequence = calls.end_sequence
  LEFT JOIN records AS late ON late.session = calls.session AND late.sequence = calls.late_sequence`;

type HostColumns = [hostId: string, displayName: string, createTime: number, tokenSha256: Buffer, requestId: string | null];
const HOST_COLUMNS = "host_id, display_name, create_time, token_sha256, request_id";

function toSessionRow(row: readonly [...SessionColumns, ...unknown[]]): SessionRow {
  return {
    sessionId: row[0],
    ended: row[1] === 1,
    createTimeMs: row[2],
    labels: JSON.parse(row[3]) as Record<string, string>,
    lastSequence: row[4],
    openToolCalls: row[5],
  };
}

function toCallRow(row: CallColumns): CallRow {
  const [sessionId, callSequence, startedBody, endSequence, endedBody, lateSequence, lateBody] = row;
  const started = fromBinary(RecordSchema, startedBody).entry;
  assert(started.case === "toolCallStarted", `record ${callSequence} of session ${sessionId} starts a call`);
  const ended = endedBody === null ? undefined : fromBinary(RecordSchema, endedBody).entry;
  const late = lateBody === null ? undefined : fromBinary(RecordSchema, lateBody).entry;
  return {
    sessionId,
    callSequence,
    started: started.value,
    ...(endSequence !== null && ended?.case === "toolCallEnded" ? { endSequence, ended: ended.value } : {}),
    ...(lateSequence !== null && late?.case === "toolCallLateOutcome" ? { lateSequence, late: late.value } : {}),
  };
}

function toHostRow(row: readonly [...HostColumns, ...unknown[]]): HostRow {
  return {
    hostId: row[0],
    displayName: row[1],
    createTimeMs: row[2],
    tokenSha256: new Uint8Array(row[3]),
    requestId: row[4] ?? "",
  };
}

function parseToken(token: string): number {
  if (!/^[1-9]\d{0,14}$/.test(token)) {
    throw invalidArgument("page_token", "is not one that an earlier page gave; leave it empty to begin at the first page");
  }
  return Number(token);
}

function prepareStatements(db: Database.Database) {
  const sessionOf = "(SELECT session FROM sessions WHERE session_id = ?)";
  const callsOf = (condition: string, index = ""): Database.Statement =>
    db
      .prepare(
        `SELECT ${CALL_COLUMNS} FROM sessions CROSS JOIN calls ${index} ON calls.session = sessions.session ${CALL_RECORDS}
         WHERE sessions.session_id = ? AND ${condition}`,
      )
      .raw();
  return {
    read: db
      .prepare(
        `SELECT sequence, commit_time, body FROM records WHERE session = ${sessionOf} AND sequence > ?
         ORDER BY sequence LIMIT ?`,
      )
      .raw(),
    findSession: db.prepare(`SELECT ${SESSION_COLUMNS} FROM sessions WHERE session_id = ?`).raw(),
    findSessionByRequestId: db.prepare("SELECT session_id FROM sessions WHERE request_id = ?").pluck(),
    // From the index of open calls outwards; a deleted session's calls have no session any more.
    openCalls: db
      .prepare(
        `SELECT ${CALL_COLUMNS} FROM calls INDEXED BY open_calls
         CROSS JOIN sessions ON sessions.session = calls.session ${CALL_RECORDS}
         WHERE calls.end_sequence IS NULL ORDER BY calls.session, calls.call_sequence`,
      )
      .raw(),
    findCall: callsOf("calls.call_sequence = ?"),
    findCallById: callsOf("calls.call_id = ?"),
    listCalls: callsOf("calls.call_sequence > ? ORDER BY calls.call_sequence LIMIT ?"),
    listOpenCalls: callsOf(
      "calls.end_sequence IS NULL AND calls.call_sequence > ? ORDER BY calls.call_sequence LIMIT ?",
      "INDEXED BY open_calls",
    ),
    listEndedCalls: callsOf("calls.end_sequence IS NOT NULL AND calls.call_sequence > ? ORDER BY calls.call_sequence LIMIT ?"),
    findEmit: db.prepare(`SELECT sequence FROM emits WHERE session = ${sessionOf} AND call_sequence = ? AND emit_id = ?`).pluck(),
    findHost: db.prepare(`SELECT ${HOST_COLUMNS} FROM hosts WHERE host_id = ?`).raw(),
    findHostByToken: db.prepare(`SELECT ${HOST_COLUMNS} FROM hosts WHERE token_sha256 = ?`).raw(),
    listHosts: db.prepare(`SELECT ${HOST_COLUMNS}, host FROM hosts WHERE host > ? ORDER BY host LIMIT ?`).raw(),
  };
}
