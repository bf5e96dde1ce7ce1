import { type Record as JournalRecord, RecordSchema } from "@aexhq/brain-proto";
import { fromBinary } from "@bufbuild/protobuf";
import Database from "better-sqlite3";

/** A record as it lies in the file, read by nobody's code but SQLite's and protobuf's. */
export interface FiledRecord {
  readonly sessionId: string;
  readonly sequence: number;
  readonly commitTimeMs: number;
  readonly entry: JournalRecord["entry"];
}

export function readRecords(journalFile: string): FiledRecord[] {
  const db = new Database(journalFile, { readonly: true, fileMustExist: true });
  try {
    const rows = db
      .prepare(
        `SELECT session_id, sequence, commit_time, body FROM records JOIN sessions ON records.session = sessions.session
         ORDER BY records.session, sequence`,
      )
      .raw()
      .all() as [string, number, number, Buffer][];
    return rows.map(([sessionId, sequence, commitTimeMs, body]) => {
      const { entry } = fromBinary(RecordSchema, body);
      return { sessionId, sequence, commitTimeMs, entry };
    });
  } finally {
    db.close();
  }
}
