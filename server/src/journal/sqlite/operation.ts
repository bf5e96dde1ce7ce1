import type { AppendFailure, HostRow } from "../port.js";
import type { EncodedEntry } from "./encode-entry.js";

/** One thing the writer does, entirely or not at all. Plain data: in thread mode it is posted. */
export type Operation =
  | {
      readonly type: "append";
      readonly sessionId: string;
      readonly expectedNext: number;
      readonly entries: readonly EncodedEntry[];
    }
  | { readonly type: "delete_session"; readonly sessionId: string }
  | { readonly type: "put_host"; readonly host: HostRow }
  | { readonly type: "delete_host"; readonly hostId: string }
  /** Removes a bounded number of rows of deleted sessions. */
  | { readonly type: "purge" };

/** What became of one operation. */
export type Reply =
  | { readonly type: "done"; readonly host?: HostRow; readonly purgesLeft?: boolean }
  /** Nothing of it is in the file. */
  | { readonly type: "failed"; readonly failure: AppendFailure; readonly message: string }
  /** It breaks a law of the journal, so a caller has a bug. Nothing of it is in the file. */
  | { readonly type: "refuted"; readonly message: string }
  /** Somebody else holds the file. Nothing of it is in the file; ask again. */
  | { readonly type: "busy" }
  /** It is not known whether it is in the file. */
  | { readonly type: "in_doubt" };

export interface CommitReply {
  /** One for each operation, in order. */
  readonly replies: readonly Reply[];
  /** Transactions that were committed, each with one flush. */
  readonly flushes: number;
  /** The write-ahead log is above its bound: checkpoint before it grows much more. */
  readonly checkpointDue: boolean;
  /** The writer can no longer be used; one plain line. */
  readonly fatal?: string;
}

export interface CheckpointReply {
  /** Everything committed is in the database file: the next write starts the log anew. */
  readonly complete: boolean;
  /** Size of the log file. */
  readonly logBytes: number;
  readonly fatal?: string;
}

export interface WriterLimits {
  /** Size of the write-ahead log at which a checkpoint no longer waits for a quiet moment. */
  readonly journalLogBytes: number;
  /** A log file above this is cut back when it starts anew. */
  readonly journalLogFileBytes: number;
  /** Rows, and bytes of records, that one step removes of a deleted session. */
  readonly journalPurgeRows: number;
  readonly journalPurgeBytes: number;
}

export interface WriterOptions {
  readonly file: string;
  readonly limits: WriterLimits;
  /** Most pages the database may have; unlimited when absent. */
  readonly maxPages?: number;
}
