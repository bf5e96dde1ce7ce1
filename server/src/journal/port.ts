import type { Record as JournalRecord, ToolCallEnded, ToolCallLateOutcome, ToolCallStarted } from "@aexhq/brain-proto";
import type { Entry } from "../core/entry.js";

export type { Entry } from "../core/entry.js";

/** Why an append was not made. Nothing of it is in the journal, and it may be tried again. */
export type AppendFailure =
  /** The disk (or the configured size) is full. */
  | "journal_full"
  /** The file is held by somebody else for longer than the journal waits. */
  | "journal_unavailable"
  /** `expectedNext` was not the next sequence: an earlier append of this session failed, or another owner wrote. */
  | "sequence_conflict"
  /** The session was deleted, or never created. */
  | "session_not_found";

/** Thrown (as a rejection) by {@link Journal.append}. */
export class JournalError extends Error {
  readonly failure: AppendFailure;
  constructor(failure: AppendFailure, message: string) {
    super(message);
    this.name = "JournalError";
    this.failure = failure;
  }
}

export interface PageLimits {
  readonly records: number;
  /** Encoded bytes; a page always holds at least one record, even a larger one. */
  readonly bytes: number;
}

export interface SessionRow {
  readonly sessionId: string;
  readonly ended: boolean;
  readonly createTimeMs: number;
  readonly lastSequence: number;
  readonly openToolCalls: number;
  readonly labels: Readonly<Record<string, string>>;
}

export interface SessionQuery {
  /** Opaque cursor of an earlier page. */
  readonly pageToken: string;
  readonly pageSize: number;
  readonly labels: Readonly<Record<string, string>>;
  readonly ended?: boolean;
}

/** A call as its records tell it. */
export interface CallRow {
  readonly sessionId: string;
  readonly callSequence: number;
  readonly started: ToolCallStarted;
  readonly endSequence?: number;
  readonly ended?: ToolCallEnded;
  readonly lateSequence?: number;
  readonly late?: ToolCallLateOutcome;
}

export interface CallQuery {
  readonly sessionId: string;
  readonly open?: boolean;
  readonly afterCallSequence: number;
  readonly pageSize: number;
}

export interface HostRow {
  readonly hostId: string;
  readonly displayName: string;
  readonly createTimeMs: number;
  /** SHA-256 of the host token; the token itself is stored nowhere. */
  readonly tokenSha256: Uint8Array;
  readonly requestId: string;
}

/**
 * Everything that is true. Appends of one session are made in the order they are asked for; an append
 * resolves when it is durable, appends of a session resolve in their order, and when one fails every later
 * append of that session that was already asked for fails too (`sequence_conflict`).
 *
 * The port is asynchronous and optimistic so that it can stand on a database shared by several servers;
 * nothing above it may assume one process.
 */
export interface Journal {
  /** Appends all entries at `expectedNext`, `expectedNext + 1`, ... or none. @throws JournalError */
  append(sessionId: string, expectedNext: number, entries: readonly Entry[]): Promise<void>;

  /** Records above `after`, in order; empty at the end, and for an unknown session. */
  read(sessionId: string, after: number, limits: PageLimits): Promise<JournalRecord[]>;
  /** Calls `listener` after each commit that appended to the session (and once when it is deleted); returns the unsubscribe. */
  watch(sessionId: string, listener: () => void): () => void;

  findSession(sessionId: string): Promise<SessionRow | undefined>;
  /** The session created with this `request_id`, as long as that session exists. */
  findSessionByRequestId(requestId: string): Promise<string | undefined>;
  listSessions(query: SessionQuery): Promise<{ sessions: SessionRow[]; nextPageToken: string }>;
  /** Makes the session unfindable at once; its records are removed in bounded steps afterwards, also after a restart. */
  deleteSession(sessionId: string): Promise<void>;

  /** Every call without an ending, of all sessions; reads the open calls and nothing else, whatever the history. */
  openCalls(): Promise<CallRow[]>;
  findCall(sessionId: string, by: { callId: string } | { callSequence: number }): Promise<CallRow | undefined>;
  /** In start order; bounded by bytes too, so that only an empty page is the end. */
  listCalls(query: CallQuery): Promise<CallRow[]>;
  /** The sequence of the event of this call with this `emit_id`. */
  findEmit(sessionId: string, callSequence: number, emitId: string): Promise<number | undefined>;

  /** Durable when it resolves. A repeated `requestId` replaces the token and keeps the host (its first answer was lost). Returns the row that stands. @throws JournalError */
  putHost(host: HostRow): Promise<HostRow>;
  findHost(hostId: string): Promise<HostRow | undefined>;
  findHostByToken(tokenSha256: Uint8Array): Promise<HostRow | undefined>;
  listHosts(pageToken: string, pageSize: number): Promise<{ hosts: HostRow[]; nextPageToken: string }>;
  deleteHost(hostId: string): Promise<void>;

  /** Flushes (commits) since the journal was opened, for the promise of two per call. */
  readonly flushCount: number;
  /** Commits what is waiting, checkpoints, and lets go of the data directory. */
  close(): Promise<void>;
}
